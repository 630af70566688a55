"""The table of variants. Rows of one problem stand best first; the last accepts every legal call.

To add a variant, add a `Config` to the set it belongs to. A row that fails `Variant.check()` or does not compile
fails the build by name.
"""

from kernels.spec import DEFAULT_TARGETS, DTYPES, LAYOUTS, Config, Problem, Variant

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
    return sm90_rows() if target == 90 else ()


def sm90_rows():
    """The fast set for Hopper: candidates while it is being tuned."""
    for a, d, precision in TYPES_16BIT[2:3]:
        for layout in LAYOUTS:
            problem = Problem("gemm", a, d, precision, layout)
            for kernel, m, n, k, stages, parts in (
                ("gemm_pingpong", 128, 128, 64, 5, 1),
                ("gemm_pingpong", 64, 256, 64, 4, 1),
                ("gemm_pingpong", 64, 128, 64, 8, 1),
                ("gemm_coop", 128, 256, 64, 4, 2),
                ("gemm_coop", 256, 128, 64, 4, 2),
            ):
                warps = 8 if kernel == "gemm_coop" else 4
                config = Config(m, n, k, warps, stages, parts=parts, persistent=True)
                yield Variant(problem, config, f"gemm_sm90.{kernel}", 90, ("descriptor", "linear"), rate=150)


def variants(targets=DEFAULT_TARGETS) -> list[Variant]:
    """All rows for these targets, checked, in table order."""
    rows = [row for target in targets for row in (*fast_rows(target), *reference_rows(target))]
    for row in rows:
        row.check()
    return rows
