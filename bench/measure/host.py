"""What a dense call costs the host: in C beside a bare launch of the same kernel, in Python beside torch.mm(out=).

    python bench/measure/host.py [--repeats 101]

Needs dist/ built, a GPU, a Python with torch and cffi, and a C compiler (`cc`) for the loops of host.c; without one the
figures for C are left out, with a sentence. The bare launch has the very function, grid and parameters that a captured
call put into a CUDA graph. Each pair runs in turn, a few hundred calls between two synchronisations, over operands that
rotate; figures are medians. Proves no numerics.
"""

import argparse
import ctypes
import functools
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

from bench.measure.host_python import FRESH_REPEATS, alternate, fresh_rows, paired, python_run  # noqa: E402
from bench.measure.relaunch import Driver, Launch, captured  # noqa: E402

SETS, CALLS, REPEATS = 4, 200, 101  # operands of a shape; calls of a batch, well below what fills a launch queue
SHAPES = {  # name -> (m, n, k, b stored by columns), bf16
    "64 x 64 x 64 NN": [(64, 64, 64, False)],
    "512 x 512 x 512 NN": [(512, 512, 512, False)],
    "1 x 1280 x 8192 NT": [(1, 1280, 8192, True)],
    "512 x 512 x 512 NN and 1 x 1280 x 8192 NT in turn": [(512, 512, 512, False), (1, 1280, 8192, True)],
}
MANY = 500  # problems, each m of its own: what a process that serves people asks for, from C alone
DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


class Loops:
    """host.c, built."""

    def __init__(self):
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("no C compiler: `cc` is not on the PATH, so nothing can be timed from C")
        with tempfile.TemporaryDirectory() as folder:
            library = f"{folder}/host.so"
            command = [compiler, "-O2", "-shared", "-fPIC", "-o", library, str(Path(__file__).with_name("host.c"))]
            subprocess.run(command, check=True)
            self.library = ctypes.CDLL(library)
        for name in ("host_gemm", "host_launch", "host_query"):
            getattr(self.library, name).restype = ctypes.c_double

    def time(self, name: str, *arguments) -> float:
        """Microseconds of one call."""
        found = getattr(self.library, name)(*arguments)
        if found < 0:
            raise RuntimeError(f"{name}: a call failed with status {-found:.0f}")
        return found * 1e-3


def c_runs(loops: Loops, driver: Driver, gemm: int, stream: int, structs: list) -> dict:
    """Batches of libgemm's C call on each of these structs (addresses) in turn, and of the same launches alone."""
    calls = max(CALLS, len(structs))
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(gemm)

    def once(struct: int) -> None:
        if status := call(struct):
            raise RuntimeError(f"libgemm_gemm failed with status {status}")

    for struct in structs:
        once(struct)  # loads the kernel, which capture forbids
    again = [captured(driver, stream, functools.partial(once, struct)) for struct in structs]
    launches, args = (Launch * len(again))(*again), (ctypes.c_void_p * len(structs))(*structs)
    bare = ctypes.c_void_p(driver.address("cuLaunchKernelEx"))
    return {
        "c": lambda: loops.time("host_gemm", ctypes.c_void_p(gemm), args, len(structs), calls),
        "bare": lambda: loops.time("host_launch", bare, launches, len(again), calls),
    }


def query_us(loops: Loops, driver: Driver, pointers: list[int], synchronise, repeats: int) -> float:
    """Microseconds of one cuPointerGetAttribute: libgemm asks one for each operand."""
    array = (ctypes.c_uint64 * len(pointers))(*pointers)
    ask = ctypes.c_void_p(driver.address("cuPointerGetAttribute"))
    run = {"query": lambda: loops.time("host_query", ask, DEVICE_ORDINAL, array, len(pointers), CALLS)}
    return alternate(run, synchronise, repeats)["query"]


def make_struct(a, b, out, stream: int):
    """A filled argument struct, and what must outlive it."""
    import torch
    from libgemm._library import check, ffi, lib

    args, size = ffi.new("libgemm_gemm_args *"), ffi.new("uint64_t *")
    lib.libgemm_gemm_args_init(args, ffi.sizeof("libgemm_gemm_args"))
    args.m, args.n, args.k = a.shape[0], b.shape[1], a.shape[1]
    for name, array in (("a", a), ("b", b), ("d", out)):
        setattr(args, name, ffi.cast("void *", array.data_ptr()))
        setattr(args, f"ld{name}", max(array.stride()))
    args.trans_b = int(b.stride()[0] == 1)
    args.a_type = args.d_type = lib.LIBGEMM_BF16
    args.stream = ffi.cast("libgemm_stream", stream)
    check(lib.libgemm_gemm_workspace(args, size))
    workspace = torch.empty(max(size[0], 1), dtype=torch.uint8, device=a.device)
    if size[0]:
        args.workspace, args.workspace_bytes = ffi.cast("void *", workspace.data_ptr()), size[0]
    return args, workspace


def host_times(repeats: int = REPEATS) -> dict:
    """The report: microseconds for each shape, and of one pointer query; `note` says what could not be measured."""
    import libgemm
    import torch
    from libgemm._library import LIBRARY, ffi

    def matrix(rows: int, cols: int, by_columns: bool):
        made = torch.randn(*((cols, rows) if by_columns else (rows, cols)), device="cuda").to(torch.bfloat16)
        return made.t() if by_columns else made

    def c_row(sets: list) -> dict:
        made = [make_struct(*one, stream.cuda_stream) for one in sets]
        structs = [int(ffi.cast("uintptr_t", args)) for args, _ in made]
        us = alternate(c_runs(loops, driver, gemm, stream.cuda_stream, structs), wait, repeats)
        return {"c_us": us["c"], "bare_us": us["bare"], "c_ratio": us["c"] / us["bare"]}

    note, loops, driver, found = "", None, Driver(), {}
    try:
        loops = Loops()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        note = f"C was not timed: {error}"
    gemm = ctypes.cast(ctypes.CDLL(str(LIBRARY)).libgemm_gemm, ctypes.c_void_p).value
    stream, wait = torch.cuda.Stream(), torch.cuda.synchronize
    for name, shapes in SHAPES.items():
        sets = [
            (matrix(m, k, False), matrix(k, n, by_columns), torch.empty(m, n, device="cuda", dtype=torch.bfloat16))
            for _ in range(SETS) for m, n, k, by_columns in shapes
        ]  # fmt: skip
        calls = {
            "python": lambda a, b, out: libgemm.gemm(a, b, out=out),
            "torch": lambda a, b, out: torch.mm(a, b, out=out),
        }
        row = paired({who: python_run(call, sets, CALLS) for who, call in calls.items()}, wait, repeats)
        if loops and not note:
            try:
                row |= c_row(sets)
            except RuntimeError as error:
                note = f"C was not timed from {name} on: {error}"
        found[name] = row
    if loops and not note:
        b = matrix(512, 512, False)
        many = [
            (matrix(m, 512, False), b, torch.empty(m, 512, device="cuda", dtype=torch.bfloat16))
            for m in range(1, MANY + 1)
        ]
        name = f"m x 512 x 512 NN in turn, m from 1 to {MANY}"
        try:
            found[name] = c_row(many)
        except RuntimeError as error:
            note = f"C was not timed on {name}: {error}"
    pointers = [array.data_ptr() for one in sets for array in one]
    query = query_us(loops, driver, pointers, wait, repeats) if loops else None
    return {"rows": found, "pointer_query_us": query, "note": note}


def all_times(repeats: int = REPEATS) -> dict:
    """The whole report: with `fresh_rows`."""
    report = host_times(repeats)
    return {**report, "rows": report["rows"] | fresh_rows(CALLS, min(repeats, FRESH_REPEATS))}


def lines(report: dict) -> list[str]:
    """The report as a table."""
    table = [f"{'microseconds of host time':54}{'C':>7}{'bare':>7}{'ratio':>7}{'Python':>8}{'torch':>7}{'ratio':>7}"]
    for name, row in report["rows"].items():
        keys = {"c_us": 7, "bare_us": 7, "c_ratio": 7, "python_us": 8, "torch_us": 7, "python_ratio": 7}
        figures = [f"{row[key]:{width}.2f}" if key in row else f"{'-':>{width}}" for key, width in keys.items()]
        table.append(f"{name:54}{''.join(figures)}")
    if report["pointer_query_us"] is not None:
        table.append(f"one cuPointerGetAttribute: {report['pointer_query_us']:.3f}")
    return table + [report["note"]] * bool(report["note"])


def main() -> int:
    sys.modules["triton"] = None  # kernels must come from the library
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    report = all_times(parser.parse_args().repeats)
    print(*lines(report), sep="\n")
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
