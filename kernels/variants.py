"""The table of variants. Rows of one problem stand best first; the last accepts every legal call.

To add a variant, add a `Config` to the set it belongs to. A row that fails `Variant.check()` or does not compile
fails the build by name.
"""

import itertools

from kernels.hopper import hopper_rows
from kernels.hopper_grouped import grouped_rows, is_taken, pointer_rows
from kernels.spec import DEFAULT_TARGETS, DTYPES, LAYOUTS, Config, Problem, Variant
from kernels.untuned import untuned_rows

# (a, d, precision) of every legal problem.
TYPES_16BIT = [(a, d, "exact") for a in ("f16", "bf16") for d in (a, "f32")]
TYPES_F32 = [("f32", "f32", precision) for precision in ("tf32", "tf32x3", "ieee")]

KERNELS = {"gemm": "gemm.gemm", "grouped_gemm": "grouped_gemm.grouped_gemm", "grouped_mm": "grouped_mm.grouped_mm"}


# Of eight tiles the fastest for small groups: bench/NOTES.md. Where the host does not know the sizes it is this one.
POINTERS = Config(64, 128, 64, warps=4, stages=4)


def large(a: str, target: int) -> Config:
    """128x128 tile for many tiles. Stages by what the smaller shared memories (99 KiB) can hold."""
    stages = 3 if target in (90, 100, 80) else 2
    return Config(128, 128, 128 // DTYPES[a][1], warps=8, stages=stages)


def small(a: str) -> Config:
    """64x64 tile for few tiles or few rows."""
    return Config(64, 64, 128 // DTYPES[a][1], warps=4, stages=3)


def general(precision: str) -> Config:
    """64x64 tile that takes any alignment; eight warps keep its masked loads, and so its code, short."""
    return Config(64, 64, 16 if precision == "ieee" else 32, warps=8, stages=2)


def reference_rows(target: int):
    """Every operation, dtype and layout at any alignment, after the rows that need aligned operands."""
    for op, kernel in KERNELS.items():
        for a, d, precision in TYPES_16BIT + TYPES_F32:
            for layout in LAYOUTS:
                problem = Problem(op, a, d, precision, layout)
                packed = op == "grouped_mm" and layout[0] == "n"
                aligned = precision in ("exact", "tf32") and (op == "gemm" or packed)
                measured = target == 90 and (packed or precision == "tf32")
                behind = 3 if measured else 1  # the fast set, which is measured
                covered = packed and target == 90 and is_taken(problem)
                if aligned and not covered:
                    yield Variant(problem, large(a, target), kernel, target, ("align16", "linear"), rate=100 // behind)
                if aligned:
                    yield Variant(problem, small(a), kernel, target, ("align16",), rate=60 // behind)
                yield Variant(problem, general(precision), kernel, target, rate=12)


def fast_rows(target: int):
    """Dense products of 16-bit inputs; on Hopper packed groups and pointer arrays too, and float32 as tf32."""
    for (a, d, precision), layout in itertools.product(TYPES_16BIT + TYPES_F32, LAYOUTS):
        problem = Problem("gemm", a, d, precision, layout)
        if target == 90:
            yield from hopper_rows(problem)
            yield from grouped_rows(Problem("grouped_mm", a, d, precision, layout))
            if a != "f32":
                pointers = Problem("grouped_gemm", a, d, precision, layout)
                yield Variant(pointers, POINTERS, KERNELS["grouped_gemm"], target, ("align16", "linear"), rate=90)
                yield from pointer_rows(pointers)
        elif a != "f32":
            yield from untuned_rows(problem, target)


def helper_rows(target: int):
    """What goes before descriptor rows where A or B lies as those cannot read it. Elements move as they are: bf16
    stands for both 16-bit types."""
    for a, precision in (("bf16", "exact"), ("f32", "tf32")):
        if target == 90 or (target > 90 and a != "f32"):
            problem = Problem("align", a, a, precision, "nn")
            yield Variant(problem, Config(16, 64, 8, warps=4, stages=1), "align.align", target)


def variants(targets=DEFAULT_TARGETS) -> list[Variant]:
    """All rows for these targets, checked, in table order."""
    rows = [row for target in targets for row in (*fast_rows(target), *reference_rows(target), *helper_rows(target))]
    for row in rows:
        row.check()
    return rows
