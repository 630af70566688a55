"""The fast set for Hopper: which tiles of dense products there are, and which ship (tuned/sm90.json says)."""

from kernels.table.dtypes import DTYPES
from kernels.table.families import DENSE_SM90, Family
from kernels.table.model import tuned
from kernels.table.spec import Config, Problem, Variant
from kernels.table.targets import TARGETS

# Tiles that also come with an activation, whose code makes a large tile's epilogue several times longer.
MASKED = ("masked", 64, 128, 64)  # for a C or D that TMA cannot address
ACTIVATED = {("coop", 128, 256, 64), ("pingpong", 64, 128, 64), ("swap", 16, 64, 128), ("swap", 32, 64, 128), MASKED}
FIRST = 14  # of the tiles in order of what each gained: those that also come with float32 inputs or output
SPARE = 1024  # bytes of shared memory for barriers, and what the compiler aligns
RATE = 40  # relative throughput where no fit says it: of float32 rows, which run as tf32


def out_bytes(problem: Problem, family: Family, m: int, n: int, parts: int) -> int:
    """Shared memory in which tiles leave: a buffer for each that stores by TMA, or the sum that blocks reduce."""
    if family.store == "registers":
        return 0
    if family.store == "reduce":
        return m * n * 4
    return (1 if family.cooperative else 2) * m * n // parts * DTYPES[problem.d].bytes


def subtiles(problem: Problem, family: Family, n: int) -> int:
    """In how many parts the epilogue stores a tile, so that a wide one's buffer leaves room for the pipeline."""
    parts = 2 if family.cooperative else 1
    narrow = family.swap_ab or family.store != "tma" or n < 64
    return parts if narrow or problem.d != "f32" else 2 * parts


def hopper_config(problem: Problem, family: Family, m: int, n: int, k: int) -> Config | None:
    """The deepest pipeline that fits beside the output buffers in 227 KiB; None when three stages do not."""
    parts = subtiles(problem, family, n)
    room = TARGETS[90].shared_bytes - SPARE - out_bytes(problem, family, m, n, parts)
    stages = min(8, room // ((m + n) * k * DTYPES[problem.a].bytes))
    if stages < 3:
        return None
    tall = family.split == "cluster" and not family.swap_ab and m == 128  # its block's warps all multiply
    warps = 8 if family.cooperative or tall else 4
    return Config(m, n, k, warps, stages, parts=parts, persistent=family.persistent)


def hopper_variant(problem: Problem, family: str, m: int, n: int, k: int, activated: bool = False) -> Variant | None:
    """One row of a family of DENSE_SM90, or None where that cannot compute the problem or does not fit. `k` counts
    elements of 16 bits, so that a tile of float32 inputs moves as many bytes."""
    record = DENSE_SM90[family]
    k = k * 2 // DTYPES[problem.a].bytes
    config = hopper_config(problem, record, m, n, k)
    if config is None or (record.swap_ab and problem.layout[0] == "t"):
        return None  # a narrow tile of a transposed A is no operand of the tensor cores
    linear = () if record.light_epilogue or activated else ("linear",)
    return Variant(problem, config, record.kernel, 90, (*record.guards, *linear), rate=RATE)


def hopper_rows(problem: Problem):
    """The rows that ship for one dense problem. Tensor cores take float32 (as tf32) only where K is contiguous."""
    if problem.a == "f32" and (problem.precision != "tf32" or problem.layout != "nt"):
        return
    tiles = tuned(90).tiles if problem.d != "f32" else tuned(90).tiles[:FIRST]
    for family, m, n, k in (*tiles, MASKED):
        for activated in (False, True):
            wide = problem.a == "f32" or (DENSE_SM90[family].cooperative and problem.d == "f32")
            if activated and ((family, m, n, k) not in ACTIVATED or wide):
                continue
            row = hopper_variant(problem, family, m, n, k, activated)
            if row is not None:
                yield row
