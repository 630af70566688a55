"""cuBLASLt by ctypes, in torch's own copy: what its heuristic names for a row-major product. Times nothing.

The library reads matrices by columns. D = op(A) op(B) by rows is D' = op(B)' op(A)' by columns, so B comes first, and
each stays transposed or not as it was.
"""

import ctypes
import glob
import os
import sys
from collections.abc import Callable
from functools import partial

import torch

TYPES = {"bf16": 14, "f16": 2}  # CUDA_R_16BF, CUDA_R_16F
R_32F, COMPUTE_32F = 0, 68  # CUDA_R_32F, CUBLAS_COMPUTE_32F
TRANSPOSED_FIRST, TRANSPOSED_SECOND = 3, 4  # CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
MOST_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
NOT_SUPPORTED = 15
STATUS = {1: "not initialised", 3: "out of memory", 7: "invalid value", 8: "wrong architecture", 13: "execution failed",
          14: "internal error", NOT_SUPPORTED: "not supported"}  # fmt: skip
WORKSPACE = 64 << 20
MOST = 200  # candidates asked for; it returns fewer


class Missing(RuntimeError):
    """There is no cuBLASLt to measure."""


class Failed(RuntimeError):
    """It returned a status; .status is that."""

    def __init__(self, function: str, status: int):
        super().__init__(f"{function} failed with status {status} ({STATUS.get(status, 'see cublas_api.h')})")
        self.status = status


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class Candidate(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", Algorithm), ("workspace_bytes", ctypes.c_size_t), ("status", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


def load() -> ctypes.CDLL:
    """By its plain name it is the copy that torch has open already; else the file in the folders that pip fills."""
    if not torch.version.cuda:
        raise Missing(f"torch {torch.__version__} is built without CUDA and brings no cuBLASLt")
    name = f"libcublasLt.so.{torch.version.cuda.partition('.')[0]}"
    found = [path for folder in sys.path for path in glob.glob(os.path.join(folder, "nvidia", "*", "lib", name))]
    problems = []
    for path in (name, *found):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            problems.append(str(error))
    raise Missing(f"{name} of torch {torch.__version__} cannot be loaded: {'; '.join(problems)}")


class CublasLt:
    """What is made for one product (four small objects) is kept until the process ends."""

    def __init__(self, library=None):
        self.library = library or load()
        self.handle = ctypes.c_void_p()
        self.ask("cublasLtCreate", ctypes.byref(self.handle))
        self.workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)

    def ask(self, function: str, *arguments) -> None:
        if status := getattr(self.library, function)(*arguments):
            raise Failed(function, status)

    @property
    def version(self) -> int:
        self.library.cublasLtGetVersion.restype = ctypes.c_size_t
        return self.library.cublasLtGetVersion()

    def description(self, layout: str) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.ask("cublasLtMatmulDescCreate", ctypes.byref(made), ctypes.c_int(COMPUTE_32F), ctypes.c_int(R_32F))
        for attribute, letter in ((TRANSPOSED_FIRST, layout[1]), (TRANSPOSED_SECOND, layout[0])):
            value = ctypes.c_int32(letter == "T")
            self.ask("cublasLtMatmulDescSetAttribute", made, ctypes.c_int(attribute), ctypes.byref(value),
                     ctypes.c_size_t(4))  # fmt: skip
        return made

    def matrix(self, dtype: str, rows: int, cols: int, letter: str) -> ctypes.c_void_p:
        """Of rows x cols by columns once transposed or not, packed."""
        made = ctypes.c_void_p()
        rows, cols = (cols, rows) if letter == "T" else (rows, cols)
        self.ask("cublasLtMatrixLayoutCreate", ctypes.byref(made), ctypes.c_int(TYPES[dtype]), ctypes.c_uint64(rows),
                 ctypes.c_uint64(cols), ctypes.c_int64(rows))  # fmt: skip
        return made

    def preference(self) -> ctypes.c_void_p:
        made, most = ctypes.c_void_p(), ctypes.c_size_t(WORKSPACE)
        self.ask("cublasLtMatmulPreferenceCreate", ctypes.byref(made))
        self.ask("cublasLtMatmulPreferenceSetAttribute", made, ctypes.c_int(MOST_WORKSPACE), ctypes.byref(most),
                 ctypes.c_size_t(8))  # fmt: skip
        return made

    def candidates(self, shape: dict, dtype: str) -> list[Callable]:
        """Calls of (a, b, c, out) that multiply a shape by each of the algorithms, what the heuristic likes best
        first. C is not read."""
        m, n, k, layout = (shape[key] for key in ("m", "n", "k", "layout"))
        what, d = self.description(layout), self.matrix(dtype, n, m, "N")
        first, second = self.matrix(dtype, n, k, layout[1]), self.matrix(dtype, k, m, layout[0])
        found, count = (Candidate * MOST)(), ctypes.c_int()
        try:
            self.ask("cublasLtMatmulAlgoGetHeuristic", self.handle, what, first, second, d, d, self.preference(),
                     ctypes.c_int(MOST), found, ctypes.byref(count))  # fmt: skip
        except Failed as error:
            if error.status == NOT_SUPPORTED:
                return []
            raise
        matrices = (what, first, second, d)
        return [partial(self.multiply, matrices, one) for one in found[: count.value] if one.status == 0]

    def multiply(self, matrices: tuple, candidate: Candidate, a, b, c, out) -> None:
        what, first, second, d = matrices
        pointer = ctypes.c_void_p(out.data_ptr())
        self.ask("cublasLtMatmul", self.handle, what, ctypes.byref(self.one), ctypes.c_void_p(b.data_ptr()), first,
                 ctypes.c_void_p(a.data_ptr()), second, ctypes.byref(self.zero), pointer, d, pointer, d,
                 ctypes.byref(candidate.algorithm), ctypes.c_void_p(self.workspace.data_ptr()),
                 ctypes.c_size_t(WORKSPACE), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))  # fmt: skip
