"""What a remembered dense call costs the host in C, by several libraries in one process, in turn: a table.

    python bench/measure/host_beside.py old=OLD/include,OLD/lib/libgemm.so new=dist/include,dist/lib/libgemm.so

Each library's calls are filled by its own header, so it may be of another commit. Shapes, batches and loops are those
of host.py. Needs a GPU, torch and cffi, dist/ built, and a C compiler (`cc`). Ratios are to the first library; figures
are medians. Proves no numerics.
"""

import argparse
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

from bench.measure.host import CALLS, REPEATS, SETS, SHAPES, Loops  # noqa: E402
from bench.measure.host_python import alternate  # noqa: E402

WORKSPACE = 64 << 20


def parse(word: str) -> tuple[str, Path, Path]:
    """NAME=INCLUDE,LIBRARY"""
    name, _, places = word.partition("=")
    include, _, library = places.partition(",")
    if not (name and include and library):
        raise argparse.ArgumentTypeError(f"{word!r}: NAME=INCLUDE,LIBRARY is needed")
    return name, Path(include), Path(library)


class Library:
    """One library's dense calls; in a file of its own, since that keeps them."""

    def __init__(self, folder: Path, name: str, include: Path, library: Path):
        built, source = folder / f"{name}.so", Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{include}", "-o", built, source, "-ldl"], check=True)
        calls = ctypes.CDLL(str(built))
        calls.beside_open.restype = calls.beside_call.restype = ctypes.c_void_p
        self.call, self.count, self.name = calls.beside_call, 0, name
        self.gemm = calls.beside_open(str(library.resolve()).encode())
        if not self.gemm:
            raise SystemExit(f"{library}: it cannot be opened, or has no dense call")

    def filled(self, matrices: list, sizes: tuple, stream: int, workspace: int) -> int:
        """The address of one call's struct."""
        m, n, k, by_columns = sizes
        pointers = [ctypes.c_void_p(x.data_ptr()) for x in matrices]
        given = [*pointers, *map(ctypes.c_int64, (m, n, k)), int(by_columns), ctypes.c_void_p(stream)]
        made = self.call(self.count, *given, ctypes.c_void_p(workspace), ctypes.c_uint64(WORKSPACE))
        if not made:
            raise SystemExit(f"{self.name} refuses {m} x {n} x {k}")
        self.count += 1
        return int(made)


def compare(libraries: list[Library], shapes: list[tuple], loops: Loops, repeats: int) -> dict[str, float]:
    """Each library's microseconds on these shapes in turn."""
    import torch

    def matrix(rows: int, cols: int):
        return torch.randn(rows, cols, device="cuda").to(torch.bfloat16)

    stream, workspace = torch.cuda.Stream(), torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")
    sets = [
        ([matrix(m, k), matrix(*((n, k) if by_columns else (k, n))), matrix(m, n)], (m, n, k, by_columns))
        for _ in range(SETS) for m, n, k, by_columns in shapes
    ]  # fmt: skip
    runs = {}
    for library in libraries:
        structs = [library.filled(*one, stream.cuda_stream, workspace.data_ptr()) for one in sets]
        array, gemm = (ctypes.c_void_p * len(structs))(*structs), ctypes.c_void_p(library.gemm)
        runs[library.name] = lambda gemm=gemm, array=array: loops.time("host_gemm", gemm, array, len(array), CALLS)
        runs[library.name]()  # loads kernels, and remembers the calls
    found: dict[str, float] = alternate(runs, torch.cuda.synchronize, repeats)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="+", type=parse, metavar="NAME=INCLUDE,LIBRARY")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options, loops = parser.parse_args(), Loops()
    with tempfile.TemporaryDirectory() as folder:
        libraries = [Library(Path(folder), *one) for one in options.libraries]
        print(f"{'microseconds of a call':54}", *(f"{library.name:>10}{'ratio':>7}" for library in libraries))
        for name, shapes in SHAPES.items():
            us = compare(libraries, shapes, loops, options.repeats)
            base = next(iter(us.values()))
            print(f"{name:54}", *(f"{own:10.3f}{own / base:7.3f}" for own in us.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
