"""The reference set: rows for any shape, alignment and target. The last of a problem accepts every legal call."""

import itertools

from kernels.table.dtypes import CAST_TYPES, DTYPES, TYPES
from kernels.table.families import PAIRS, REFERENCE, TURNED_SM90
from kernels.table.sm90_grouped import is_taken
from kernels.table.spec import CASTS_TO_D, LAYOUTS, OPS, Config, Problem, Variant


def large(a: str, target: int) -> Config:
    """128x128 tile for many tiles. Stages by what the smaller shared memories (99 KiB) can hold."""
    stages = 3 if target in (90, 100, 80) else 2
    return Config(128, 128, 128 // DTYPES[a].bytes, warps=8, stages=stages)


def small(a: str, d: str) -> Config:
    """64x64 tile for few tiles or few rows. 8-bit operands may be float16 once they are loaded. With scales of blocks
    each 128 of K has a sum of its own beside the tile's: eight warps hold both; where D has 8 bits too, with a stage
    more, without which registers are spilled on sm_120."""
    if DTYPES[a].scaled:
        return Config(64, 64, 64, warps=8, stages=4 if DTYPES[d].bytes == 1 else 3)
    return Config(64, 64, 128 // DTYPES[a].bytes, warps=4, stages=3)


def general(precision: str) -> Config:
    """64x64 tile that takes any alignment; eight warps keep its masked loads, and so its code, short."""
    return Config(64, 64, 16 if precision == "ieee" else 32, warps=8, stages=2)


def reference_rows(target: int):
    """Every operation, dtype and layout at any alignment, after the rows that need aligned operands."""
    for op in OPS:
        kernel = REFERENCE[op].kernel
        for a, d, precision in TYPES:
            if DTYPES[a].scaled and (op == "grouped_gemm" or (d == "e4m3" and op != "gemm")):
                continue
            for layout in LAYOUTS:
                problem = Problem(op, a, d, precision, layout)
                if DTYPES[a].scaled and op == "grouped_mm":
                    # What it was measured to take where Hopper has rows of its own: bench/NOTES.md
                    own = {"tile_ns": 2500, "byte_cost": 1.5} if target == 90 and layout == "nt" else {}
                    yield Variant(problem, general(precision), kernel, target, rate=12, **own)
                    continue
                packed = op == "grouped_mm" and layout[0] == "n"
                aligned = precision in ("exact", "tf32", "fast") and (op == "gemm" or packed)
                measured = target == 90 and (packed or precision == "tf32" or DTYPES[a].scaled)
                behind = 3 if measured else 1  # the fast set, which is measured
                covered = packed and target == 90 and is_taken(problem)
                if aligned and not covered and not DTYPES[a].scaled:
                    yield Variant(problem, large(a, target), kernel, target, ("align16", "linear"), rate=100 // behind)
                if aligned:
                    yield Variant(problem, small(a, d), kernel, target, ("align16",), rate=60 // behind)
                yield Variant(problem, general(precision), kernel, target, rate=12)


# Of eight tiles the fastest for small groups: bench/NOTES.md. Where the host does not know the sizes it is this one.
POINTERS = Config(64, 128, 64, warps=4, stages=4)


def small_groups_row(problem: Problem, target: int) -> Variant:
    """For arrays of pointers to small matrices."""
    return Variant(problem, POINTERS, REFERENCE["grouped_gemm"].kernel, target, ("align16", "linear"), rate=90)


def expert_reference_rows(target: int):
    """A layer of experts in 16-bit types, at any alignment last; B's layouts are those of its weights."""
    for a in ("f16", "bf16"):
        for layout in ("nn", "nt"):
            problem = Problem("moe_mm", a, a, "exact", layout)
            for gated in (("gated",), ()):
                kernel = REFERENCE["moe_mm"].kernel
                config = Config(64, 128, 64, warps=4, stages=3 if target in (80, 90, 100) else 2)
                yield Variant(problem, config, kernel, target, ("align16", *gated), rate=60)
                yield Variant(problem, Config(64, 64, 32, warps=8, stages=2), kernel, target, gated, rate=12)


def routing_rows(target: int):
    """Sorting by expert, of few choices and of many in chunks (of no type: bf16 stands for it), and the sum of a
    token's rows."""
    problem = Problem("moe_route", "bf16", "bf16", "exact", "nn")
    for family, entries, warps in ((PAIRS, 256, 4), (REFERENCE["moe_route"], 1024, 8)):
        yield Variant(problem, Config(entries, 8, 8, warps, stages=1), family.kernel, target)
    for a, precision in (("f16", "exact"), ("bf16", "exact"), ("f32", "ieee")):
        problem = Problem("moe_sum", a, a, precision, "nn")
        for guard, columns, warps in ((("align16",), 1024, 2), ((), 512, 4)):
            config = Config(8, columns, 8, warps, stages=1)
            yield Variant(problem, config, REFERENCE["moe_sum"].kernel, target, guard)


def gate_rows(target: int):
    """A layer's gate by itself, and its gradient: a row of columns for each block of threads."""
    for op in ("moe_gate", "moe_gate_grad"):
        for a in ("f16", "bf16"):
            problem = Problem(op, a, a, "exact", "nn")
            for guard, columns in ((("align16",), 1024), ((), 512)):
                config = Config(8, columns, 8, warps=4, stages=1)
                yield Variant(problem, config, REFERENCE[op].kernel, target, guard)


# Of a tile, or its parts, rows, columns and warps, of aligned arrays and of any: there tiles of 128 x 128 are gone over
# in parts, since one as a whole would take more registers than there are. Of whole rows short runs leave fewer threads
# idle. Of the largest magnitudes one number of a matrix, and those of rows and columns.
CASTS = {
    "cast_amax": (((64, 256, 8), (32, 512, 4)), ((16, 128, 4),)),
    "cast_tensor": (((32, 128, 4),), ((32, 128, 8),)),
    "cast_rows": (((8, 2048, 2), (8, 4096, 4), (8, 8192, 8), (8, 16384, 8)), ((8, 2048, 4), (8, 4096, 8))),
    "cast_1x128": (((32, 128, 4),), ((32, 128, 8),)),
    "cast_128x128": (((128, 128, 8),), ((32, 128, 8),)),
    "cast_transpose": (((128, 128, 8),), ((32, 128, 8),)),
    "cast_transpose_rows": (((64, 128, 4), (128, 128, 8)), ((32, 128, 8),)),
}
# Of rows of a layer in 8 bits: what gates them, and warps of 16 x 128 of them. Most gates are silu's.
EXPERT_CASTS = (
    (("gated", "halved", "swish"), 2), (("gated", "halved"), 4), (("gated", "paired", "swish"), 2),
    (("gated", "paired"), 4), (("linear",), 2), ((), 4),
)  # fmt: skip


def cast_rows(target: int):
    """Casts to 8 bits, at any alignment last, and what goes before them: the largest magnitudes, of each type of A."""
    amax = [(a, a, precision) for a, precision in dict.fromkeys((a, precision) for a, _, precision in CAST_TYPES)]
    for op, sizes in CASTS.items():
        for a, d, precision in CAST_TYPES if op in CASTS_TO_D else amax:
            yield from cast_tiles(Problem(op, a, d, precision, "nn"), sizes, target)


def cast_tiles(problem: Problem, sizes, target: int):
    for guard, tiles in zip((("align16",), ()), sizes, strict=True):
        for block_m, block_n, warps in tiles:
            # Aligned numbers of 16 bits are held two in a register.
            warps = min(8, 2 * warps) if guard and DTYPES[problem.a].bytes > 2 else warps
            config = Config(block_m, block_n, 8, warps, stages=1)
            by_words = target == 90 and guard and problem.op == TURNED_SM90.op and DTYPES[problem.a].bytes == 2
            kernel = (TURNED_SM90 if by_words else REFERENCE[problem.op]).kernel
            yield Variant(problem, config, kernel, target, guard)


def expert_cast_rows(target: int):
    """Rows of a layer of experts cast from 16-bit types: by an index and gated, and to all their choices' places."""
    for a, aligned in itertools.product(("f16", "bf16"), (("align16",), ())):
        problem = Problem("moe_spread", a, "e4m3", "exact", "nn")
        config = Config(8, 2048, 8, 4 if aligned else 8, stages=1)
        yield Variant(problem, config, REFERENCE["moe_spread"].kernel, target, aligned)
        problem = Problem("moe_cast", a, "e4m3", "exact", "nn")
        for guards, warps in EXPERT_CASTS:
            guard = tuple(sorted((*aligned, *guards)))
            yield Variant(problem, Config(16, 128, 8, warps, stages=1), REFERENCE["moe_cast"].kernel, target, guard)


def sum_rows(target: int):
    """What comes behind products whose blocks share all tiles."""
    if target == 90:
        for a in ("f16", "bf16"):
            problem = Problem("gemm_sum", a, a, "exact", "nn")
            config = Config(8, 128, 8, 4, stages=1)
            yield Variant(problem, config, REFERENCE["gemm_sum"].kernel, target, ("descriptor",))


def helper_rows(target: int):
    """What goes before descriptor rows where A or B lies as those cannot read it. Elements move as they are: bf16
    stands for both 16-bit types."""
    for a, d, precision in (("bf16", "bf16", "exact"), ("f32", "f32", "tf32"), ("e4m3", "bf16", "exact")):
        if target == 90 or (target > 90 and a == "bf16"):
            problem, kernel = Problem("align", a, d, precision, "nn"), REFERENCE["align"].kernel
            yield Variant(problem, Config(16, 64, 8, warps=4, stages=1), kernel, target)
            # What is turned is read and written in whole lines: square tiles.
            side = 128 if DTYPES[a].bytes == 1 else 64
            for guard in ((), ("align16",)):
                yield Variant(problem, Config(side, side, 8, warps=4, stages=1), kernel, target, guard)
