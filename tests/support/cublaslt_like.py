"""A stand-in for libcublasLt: keeps what it is told, and multiplies float16 by columns. Holds no test."""

import ctypes
import itertools

import numpy as np


def pointed(argument):
    """What ctypes.byref was given."""
    return argument._obj


class Function:
    """As ctypes has them: .restype can be set."""

    def __init__(self, call):
        self.call = call

    def __call__(self, *arguments):
        return self.call(*arguments)


class CublasLtLike:
    """`found`: how many algorithms the heuristic names; the nth multiplication fails where `refuses` has n, from 0."""

    def __init__(self, found: int = 3, refuses: tuple = (), multiplies: bool = True):
        self.found, self.refuses, self.multiplies = found, refuses, multiplies
        self.calls, self.made, self.asked, self.streams = [], {}, {}, set()
        self.handles = itertools.count(1)

    def __getattr__(self, name: str):
        def call(*arguments):
            self.calls.append(name)
            return getattr(type(self), name.removeprefix("cublasLt"))(self, *arguments) or 0

        return Function(call)

    def make(self, into, about) -> None:
        pointed(into).value = handle = next(self.handles)
        self.made[handle] = about

    def Create(self, handle):
        self.make(handle, "library")

    def GetVersion(self):
        return 130100

    def MatmulDescCreate(self, made, compute, scale):
        self.make(made, {"compute": compute.value, "scale": scale.value})

    def MatmulDescSetAttribute(self, made, attribute, value, size):
        assert size.value == ctypes.sizeof(pointed(value)) == 4
        self.made[made.value][{3: "first", 4: "second"}[attribute.value]] = {0: "N", 1: "T"}[pointed(value).value]

    def MatrixLayoutCreate(self, made, dtype, rows, cols, ld):
        self.make(made, {"type": dtype.value, "rows": rows.value, "cols": cols.value, "ld": ld.value})

    def MatmulPreferenceCreate(self, made):
        self.make(made, {})

    def MatmulPreferenceSetAttribute(self, made, attribute, value, size):
        assert attribute.value == 1 and size.value == ctypes.sizeof(pointed(value)) == 8
        self.made[made.value]["workspace"] = pointed(value).value

    def MatmulAlgoGetHeuristic(self, handle, what, first, second, c, d, preference, most, results, count):
        names = ("handle", "what", "first", "second", "c", "d", "preference")
        values = (handle, what, first, second, c, d, preference)
        self.asked = {name: self.made[value.value] for name, value in zip(names, values, strict=True)}
        if not self.found:
            return 15
        for nth in range(min(self.found, most.value)):
            results[nth].algorithm.data[0] = 100 + nth
            results[nth].status = 0
        pointed(count).value = min(self.found, most.value)

    def columns(self, layout, pointer):
        about = self.made[layout.value]
        memory = (ctypes.c_uint16 * (about["ld"] * about["cols"])).from_address(pointer.value)
        return np.frombuffer(memory, np.float16).reshape(about["cols"], about["ld"])[:, : about["rows"]].T

    def Matmul(self, handle, what, alpha, a, first, b, second, beta, c, c_layout, d, d_layout, algorithm, *rest):
        workspace, size, stream = (one.value for one in rest)
        assert self.made[handle.value] == "library" and (pointed(alpha).value, pointed(beta).value) == (1, 0)
        assert c.value == d.value and c_layout.value == d_layout.value and workspace and size == 64 << 20
        self.streams.add(stream)
        nth = pointed(algorithm).data[0] - 100
        if nth in self.refuses:
            return 15
        if self.multiplies:
            turned = {"N": lambda x: x, "T": np.transpose}
            about = self.made[what.value]
            one, two = turned[about["first"]](self.columns(first, a)), turned[about["second"]](self.columns(second, b))
            self.columns(d_layout, d)[:] = one.astype(np.float32) @ two.astype(np.float32)
