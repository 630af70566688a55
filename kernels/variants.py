"""The table of variants. Rows of one problem stand best first; the last accepts every legal call.

To add a variant, add a `Config` to the set it belongs to. A row that fails `Variant.check()` or does not compile
fails the build by name.
"""

import itertools

from kernels.spec import DEFAULT_TARGETS, DTYPES, LAYOUTS, Config, Problem, Variant
from kernels.untuned import untuned_rows

# (a, d, precision) of every legal problem.
TYPES_16BIT = [(a, d, "exact") for a in ("f16", "bf16") for d in (a, "f32")]
TYPES_F32 = [("f32", "f32", precision) for precision in ("tf32", "tf32x3", "ieee")]

KERNELS = {"gemm": "gemm.gemm", "grouped_gemm": "grouped_gemm.grouped_gemm", "grouped_mm": "grouped_mm.grouped_mm"}


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
                aligned = precision in ("exact", "tf32") and (op == "gemm" or (op == "grouped_mm" and layout[0] == "n"))
                if aligned:
                    yield Variant(problem, large(a, target), kernel, target, ("align16", "linear"), rate=100)
                    yield Variant(problem, small(a), kernel, target, ("align16",), rate=60)
                yield Variant(problem, general(precision), kernel, target, rate=12)


def fast_rows(target: int):
    """Dense products of 16-bit inputs."""
    if target == 90:
        yield from sm90_rows()
    else:
        for (a, d, precision), layout in itertools.product(TYPES_16BIT, LAYOUTS):
            yield from untuned_rows(Problem("gemm", a, d, precision, layout), target)


# family, block_m, block_n, block_k, stages, parts: 16-bit inputs and output, the deepest ring that fits in 227 KiB.
SM90_CONFIGS = (
    ("coop", 128, 256, 64, 4, 2),
    ("coop", 256, 128, 64, 4, 2),
    ("pingpong", 128, 128, 64, 5, 1),
    ("pingpong", 64, 128, 64, 8, 1),
    ("pingpong", 64, 128, 128, 4, 1),
    ("pingpong", 64, 64, 128, 6, 1),
    ("pingpong", 64, 32, 128, 8, 1),
    ("swap", 8, 64, 128, 8, 1),
    ("swap", 16, 64, 128, 8, 1),
    ("swap", 32, 64, 128, 8, 1),
    ("swap", 32, 128, 128, 5, 1),
    ("split", 64, 64, 128, 6, 1),
    ("split", 64, 32, 128, 8, 1),
    ("swap_split", 8, 64, 128, 8, 1),
    ("swap_split", 16, 64, 128, 8, 1),
    ("swap_split", 32, 64, 128, 8, 1),
    ("masked", 64, 128, 64, 8, 1),
)
# Those that also come with an activation, whose code makes a large tile's epilogue several times longer.
SM90_ACTIVATED = {("coop", 128, 256, 64), ("pingpong", 64, 128, 64), ("swap", 16, 64, 128), ("swap", 32, 64, 128)}


def sm90_config(family: str, m: int, n: int, k: int, stages: int, parts: int, d: str) -> Config:
    """A wide tile of float32 leaves in twice the parts, so that its buffer is no larger."""
    if d == "f32" and family in ("coop", "pingpong") and n >= 64:
        parts *= 2
    return Config(m, n, k, 8 if family == "coop" else 4, stages, parts=parts, persistent=True)


def sm90_rows():
    """The fast set for Hopper, whose tiles and models are measured."""
    for a, d, precision in TYPES_16BIT:
        for layout in LAYOUTS:
            problem = Problem("gemm", a, d, precision, layout)
            for family, m, n, k, stages, parts in SM90_CONFIGS:
                if family in ("swap", "swap_split") and layout[0] == "t":
                    continue  # a narrow tile of a transposed A is no operand of the tensor cores
                if family == "swap" and n == 128 and d == "f32":
                    continue  # its buffers would pass 227 KiB
                if family == "split" and layout[0] == "n":
                    continue  # swap_split is faster wherever it can run
                config = sm90_config(family, m, n, k, stages, parts, d)
                kernel = f"gemm_sm90.gemm_{family}"
                guard = "descriptor_ab" if family == "masked" else "descriptor"
                if family in ("split", "swap_split"):
                    yield Variant(problem, config, kernel, 90, (guard, "workspace"))
                    continue
                yield Variant(problem, config, kernel, 90, (guard, "linear"))
                if (family, m, n, k) in SM90_ACTIVATED and (family != "coop" or d != "f32"):
                    yield Variant(problem, config, kernel, 90, (guard,))


def variants(targets=DEFAULT_TARGETS) -> list[Variant]:
    """All rows for these targets, checked, in table order."""
    rows = [row for target in targets for row in (*fast_rows(target), *reference_rows(target))]
    for row in rows:
        row.check()
    return rows
