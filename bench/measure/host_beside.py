"""What a remembered dense call costs the host in C, by several libraries in one process, in turn: a table.

    python bench/measure/host_beside.py old=OLD/include,OLD/lib/libgemm.so new=dist/include,dist/lib/libgemm.so

Each library's calls are compiled against its own header, so it may be of another commit. Needs a GPU, torch for the
memory, and a C compiler (`cc`). Ratios are to the first library; medians of batches of 200 calls. Proves no numerics.
"""

import argparse
import ctypes
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

CALLS, REPEATS, SETS = 200, 301, 4  # of a batch, batches, operands of a shape
WORKSPACE = 64 << 20
SHAPES = {  # name -> (m, n, k, b stored by columns), bf16
    "64 x 64 x 64 NN": [(64, 64, 64, 0)],
    "512 x 512 x 512 NN": [(512, 512, 512, 0)],
    "1 x 1280 x 8192 NT": [(1, 1280, 8192, 1)],
    "the last two in turn": [(512, 512, 512, 0), (1, 1280, 8192, 1)],
}


def parse(word: str) -> tuple[str, Path, Path]:
    """name=include folder,library"""
    name, _, places = word.partition("=")
    include, _, library = places.partition(",")
    if not (name and include and library):
        raise argparse.ArgumentTypeError(f"{word!r}: NAME=INCLUDE,LIBRARY is needed")
    return name, Path(include), Path(library)


def opened(folder: Path, name: str, include: Path, library: Path) -> ctypes.CDLL:
    """The loops, built for this library; each in a file of its own, since they keep their calls."""
    built, source = folder / f"{name}.so", Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{include}", "-o", built, source, "-ldl"], check=True)
    loops = ctypes.CDLL(str(built))
    loops.beside_loop.restype = ctypes.c_double
    if loops.beside_open(str(library.resolve()).encode()):
        raise SystemExit(f"{library}: it cannot be opened, or has not what the dense call takes")
    return loops


def fill(loops: list[ctypes.CDLL]) -> tuple[dict[str, tuple[int, int]], list]:
    """Each library's calls. name -> (number of the first, how many), and what must outlive them."""
    import torch

    stream, workspace = torch.cuda.Stream(), torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")
    alive: list = [stream, workspace]
    places, at = {}, 0
    for name, shapes in SHAPES.items():
        places[name] = at, SETS * len(shapes)
        for m, n, k, by_columns in shapes * SETS:
            b = (n, k) if by_columns else (k, n)
            made = [torch.randn(*size, device="cuda").to(torch.bfloat16) for size in ((m, k), b, (m, n))]
            alive.append(made)
            words = [*(ctypes.c_void_p(x.data_ptr()) for x in made), *map(ctypes.c_int64, (m, n, k)), by_columns]
            more = [ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p(workspace.data_ptr())]
            if any(one.beside_fill(at, *words, *more, ctypes.c_uint64(WORKSPACE)) for one in loops):
                raise SystemExit(f"{name}: a library refuses the call")
            at += 1
    return places, alive


def compare(loops: dict[str, ctypes.CDLL], first: int, count: int, synchronise: Callable[[], None]) -> dict:
    """Each library's median nanoseconds."""
    found: dict[str, list[float]] = {name: [] for name in loops}
    order = list(loops)
    for repeat in range(REPEATS + 1):  # the first loads kernels
        random.shuffle(order)
        for name in order:
            ns = loops[name].beside_loop(first, count, CALLS)
            synchronise()
            if ns < 0:
                raise SystemExit(f"{name}: a call failed")
            if repeat:
                found[name].append(ns)
    return {name: statistics.median(ns) for name, ns in found.items()}


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="+", type=parse, metavar="NAME=INCLUDE,LIBRARY")
    with tempfile.TemporaryDirectory() as folder:
        loops = {one[0]: opened(Path(folder), *one) for one in parser.parse_args().libraries}
        places, _alive = fill(list(loops.values()))
        print(f"{'nanoseconds of a call':24}", *(f"{name:>10}{'ratio':>7}" for name in loops))
        for name, (first, count) in places.items():
            ns = compare(loops, first, count, torch.cuda.synchronize)
            base = next(iter(ns.values()))
            print(f"{name:24}", *(f"{own:10.0f}{own / base:7.3f}" for own in ns.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
