"""Makes libgemm calls on the stand-in GPU and reads back what the driver was asked to do. Holds no test.

Used inside bodies that run under stand_in.py. Every call made here is legal as it stands; a test changes fields.
"""

import collections
import contextlib
import ctypes
import functools
import json
import os
import struct

from built import manifest
from libgemm._library import ffi, lib, text

OPS = ("gemm", "grouped_gemm", "grouped_mm")
FLOATS = ("alpha", "beta", "gate_alpha", "gate_limit", "gate_shift")  # arguments of kernels; others are integers
PLACE = 1 << 16  # bytes between the places that operands stand at
PLACES = 16
M, N, K, GROUPS = 96, 80, 64, 3
HOST = ctypes.create_string_buffer(4096)  # memory the driver does not know


@functools.cache
def driver():
    """The stand-in itself, started."""
    library = ctypes.CDLL("libcuda.so.1")
    for name in ("cuCtxPushCurrent_v2", "cuCtxSetCurrent", "cuStreamDestroy_v2"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.fakecuda_fail.argtypes = library.fakecuda_count.argtypes = [ctypes.c_char_p]
    library.fakecuda_count.restype = ctypes.c_uint64
    assert library.cuInit(0) == 0
    return library


@functools.cache
def context(device: int) -> int:
    found = ctypes.c_void_p()
    assert driver().cuDevicePrimaryCtxRetain(ctypes.byref(found), device) == 0
    return found.value


@contextlib.contextmanager
def current(device: int):
    """Make a GPU's context current in this thread meanwhile."""
    assert driver().cuCtxPushCurrent_v2(context(device)) == 0
    yield
    assert driver().cuCtxPopCurrent_v2(None) == 0


def current_context() -> int | None:
    found = ctypes.c_void_p()
    assert driver().cuCtxGetCurrent(ctypes.byref(found)) == 0
    return found.value


def allocate(size: int, device: int = 0) -> int:
    address = ctypes.c_uint64()
    with current(device):
        assert driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    return address.value


@functools.cache
def memory(device: int) -> int:
    return allocate(PLACES * PLACE, device)


def at(place: int, device: int = 0) -> int:
    """Address of one of a GPU's places: 0 a, 1 b, 2 c, 3 d, 4 bias, 5 offs, 6 workspace, 7 and up free."""
    return memory(device) + place * PLACE


def new_stream(device: int = 0) -> int:
    found = ctypes.c_void_p()
    with current(device):
        assert driver().cuStreamCreate(ctypes.byref(found), 1) == 0
    return found.value


def write(address: int, kind: str, values) -> int:
    """Put numbers into device memory, which the stand-in keeps on the host."""
    data = struct.pack(f"<{len(values)}{kind}", *values)
    ctypes.memmove(address, data, len(data))
    return address


def matrices(device: int) -> dict:
    return {name: at(place, device) for place, name in enumerate("abcd")}


def legal_fields(op: str, device: int) -> dict:
    types = {"a_type": lib.LIBGEMM_BF16, "d_type": lib.LIBGEMM_BF16}
    sizes = {"m": M, "n": N, "k": K, "lda": K, "ldb": N, "ldc": N, "ldd": N}
    if op == "gemm":
        return {**types, **sizes, **matrices(device)}
    if op == "grouped_mm":
        rows = {"groups": GROUPS, "offs": write(at(5, device), "i", [10, 40, 96]), "batch_stride_b": K * N}
        return {**types, **sizes, **rows, **matrices(device)}
    tables = {name: [value] * GROUPS for name, value in {**sizes, **matrices(device)}.items()}
    workspace = {"workspace": at(6, device), "workspace_bytes": PLACE}
    return {**types, **tables, **workspace, "groups": GROUPS, "host_tables": 1}


class Arguments:
    """One argument struct as its init function leaves it, its memory, and the three functions that take it."""

    def __init__(self, op: str, **fields):
        self.op, self.alive = op, []
        self.args = ffi.new(f"libgemm_{op}_args *")
        getattr(lib, f"libgemm_{op}_args_init")(self.args, ffi.sizeof(f"libgemm_{op}_args"))
        self.set(**fields)

    def set(self, **changes) -> "Arguments":
        for name, value in changes.items():
            kind = dict(ffi.typeof(f"libgemm_{self.op}_args").fields)[name].type
            if isinstance(value, list):
                self.alive.append(ffi.new("int64_t[]", value))
                value = ffi.cast(kind, self.alive[-1])
            elif isinstance(value, str):
                self.alive.append(ffi.new("char[]", value.encode()))
                value = self.alive[-1]
            elif kind.kind == "pointer":
                value = ffi.cast(kind, value or 0)
            setattr(self.args, name, value)
        return self

    def device_tables(self, place: int = 7) -> "Arguments":
        """grouped_gemm: put the host tables into device memory instead."""
        names = ("a", "b", "c", "d", "m", "n", "k", "lda", "ldb", "ldc", "ldd")
        fields = {}
        for i, name in enumerate(names):
            table = ffi.cast("int64_t *", getattr(self.args, name))
            fields[name] = write(at(place) + 256 * i, "q", list(table[0 : self.args.groups]))
        return self.set(**fields, host_tables=0)

    def run(self) -> int:
        return getattr(lib, f"libgemm_{self.op}")(self.args)

    def workspace(self) -> int:
        size = ffi.new("uint64_t *", 77)
        ok(getattr(lib, f"libgemm_{self.op}_workspace")(self.args, size))
        return size[0]

    def explain(self, target: int = 0):
        choice = ffi.new("libgemm_choice *", {"size": ffi.sizeof("libgemm_choice")})
        return getattr(lib, f"libgemm_{self.op}_explain")(self.args, target, choice), choice

    def variant(self, target: int = 0):
        """The variant_info of what would run."""
        status, choice = self.explain(target)
        ok(status)
        found = ffi.new("libgemm_variant_info *", {"size": ffi.sizeof("libgemm_variant_info")})
        ok(lib.libgemm_variant_get(choice.variant, found))
        return found


class Call(Arguments):
    """A legal call on one GPU."""

    def __init__(self, op: str, gpu: int = 0, **changes):
        super().__init__(op, **{**legal_fields(op, gpu), **changes})


def last_error() -> str:
    return text(lib.libgemm_last_error())


def ok(status: int) -> None:
    assert status == 0, last_error()


def refused(status: int, name: str, *parts: str) -> None:
    """The call failed with this status and a sentence that has all these parts."""
    found = text(lib.libgemm_status_name(status)).removeprefix("LIBGEMM_")
    assert found == name, f"{found} instead of {name}: {last_error()}"
    missing = [part for part in parts if part not in last_error()]
    assert not missing, f"{missing} not in: {last_error()}"


def log(*calls: str) -> list[dict]:
    """The driver calls of these names so far, in order."""
    with open(os.environ["FAKECUDA_LOG"]) as lines:
        records = [json.loads(line) for line in lines]
    return [record for record in records if record["call"] in calls]


@functools.cache
def records() -> dict[str, dict]:
    """The manifest's records by variant."""
    return {v["name"]: v for v in manifest()["variants"]}


@functools.cache
def records_by_entry() -> dict[str, list[dict]]:
    found = collections.defaultdict(list)
    for row in manifest()["variants"]:
        found[row["entry"]].append(row)
    return dict(found)


def variant_of(entry: str, capability: int = 0) -> dict:
    """The manifest's record of the variant with this entry point; of a target below, its code may be that GPU's too."""
    found = records_by_entry()[entry]
    return max((row for row in found if row["target"] <= capability), key=lambda row: row["target"], default=found[0])


def named(launch: dict) -> dict:
    """A launch, as the stand-in logged it, with its variant's name and its kernel's function."""
    gpus = os.environ["FAKECUDA_SM"].split(",")
    row = variant_of(launch["kernel"], int(gpus[min(launch["device"], len(gpus) - 1)]))
    return {**launch, "variant": row["name"], "kernel": row["kernel"].split(".")[-1]}


def last_launch() -> dict:
    """The last launch, without reading the whole log."""
    line = ctypes.create_string_buffer(160 * 1024)
    assert driver().fakecuda_last_launch(line, ctypes.c_size_t(len(line))) > 0
    return named(json.loads(line.value))


def launches() -> list[dict]:
    return [named(record) for record in log("cuLaunchKernelEx", "cuLaunchKernel") if record["result"] == 0]


def fail(rules: str | None) -> None:
    """Failures to inject from now on; None for none."""
    driver().fakecuda_fail(rules and rules.encode())


def count(function: str) -> int:
    return driver().fakecuda_count(function.encode())


def parameters(launch: dict) -> list[tuple[dict, dict]]:
    """What the kernel's own parameter table and the launch say of each argument."""
    params = manifest()["signatures"][records()[launch["variant"]]["signature"]]
    assert [p["size"] for p in params] == [p["size"] for p in launch["params"]]
    return list(zip(params, launch["params"], strict=True))


def mixed_types(name: str) -> dict[str, int]:
    """The fields of a call that tell of an e5m2 operand what this row is for."""
    operand = records()[name]["problem"]["e5m2"]
    return {"a_type": 4, "b_type": 4, f"{operand}_type": 5} if operand else {}


def operand_types(launch: dict) -> tuple[str, str]:
    """The types of A and B that it reads: its row's, or, of rows for e4m3 and e5m2, what it is told."""
    found, problem = values(launch), records()[launch["variant"]]["problem"]
    if "a_type" in found:
        return tuple({4: "e4m3", 5: "e5m2"}[found[name]] for name in ("a_type", "b_type"))
    return tuple("e5m2" if problem["e5m2"] == operand else problem["a"] for operand in "ab")


def values(launch: dict) -> dict:
    """A launch's arguments by name."""
    found = {}
    for param, given in parameters(launch):
        data = bytes.fromhex(given["hex"])
        if param["name"].endswith(".map"):
            continue  # a tensor map: test_capi_fast.py
        kind = "f" if param["name"] in FLOATS else {4: "i", 8: "q"}[len(data)]
        found[param["name"]] = struct.unpack(f"<{kind}", data)[0]
    return found
