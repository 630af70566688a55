"""The fast set for Hopper: which tiles of dense products there are, and which ship (tuned/sm90.json says)."""

import dataclasses
import math

from kernels.table.boxes import consumers, part_columns, sum_bytes, whole_rows
from kernels.table.dtypes import DTYPES
from kernels.table.families import DENSE_SM90, Family
from kernels.table.model import tuned
from kernels.table.spec import MOST_STAGES, Config, Problem, Variant, measured_as
from kernels.table.targets import TARGETS

MASKED = ("masked", 64, 128, 64)  # for a C or D that TMA cannot address
# Of a layout's tiles in order of what each gained:
FIRST = 14  # so many also come with float32 inputs or output, and with 8-bit inputs and a float16 output,
FIRST_SHARED = 3  # beside so many whose blocks share loads, which count for few shapes
FIRST_E4M3 = 8  # of 8-bit inputs and output so many
# Bytes of a D that is transposed in shared memory go there one by one. With fast sums that costs swapped tiles of more
# rows of A than this their advantage, and this is the largest tile.
ROWS_E4M3 = 64
LARGEST_E4M3 = ("coop", 256, 192, 64)
FLOAT = (
    ("coop", 128, 256, 64),
    ("coop_swap", 192, 192, 64),
    ("split_swap", 8, 64, 128),
    ("pingpong_swap", 32, 64, 128),
    ("flex_pingpong", 128, 160, 64),
)  # and with float32 inputs, whose steps are half as deep, these
ACTIVATED = 6  # so many whose blocks do not, with an activation, whose code makes an epilogue several times longer
SPARE = 1024  # bytes of shared memory for barriers, and what the compiler aligns
RATE = 40  # relative throughput where no fit says it: of float32 rows, which run as tf32


def cluster_config(problem: Problem, family: Family, m: int, n: int, k: int) -> Config | None:
    """Of a tile that a cluster reduces: the deepest pipeline that fits in 227 KiB; None when three stages do not, or
    the sum, which goes where the larger operand came, does not fit there."""
    line = k * DTYPES[problem.a].bytes
    rows = whole_rows(m, problem.layout[0] == "t"), whole_rows(n, problem.layout[1] == "n")
    stages = min(MOST_STAGES, (TARGETS[90].shared_bytes - SPARE) // (sum(rows) * line))
    if stages < 3 or stages * max(rows) * line < sum_bytes(m, n, family.swap_ab):
        return None
    tall = (n if family.swap_ab else m) == 128  # its block's warps all multiply
    return Config(m, n, k, 8 if tall else 4, stages)


def scale_bytes(rows: int, right: int, warpgroups: int) -> int:
    """Scales of all rows and, for each warpgroup, of columns in a power of two; half of SPARE is enough beside them."""
    return 4 * (rows + warpgroups * 2 ** math.ceil(math.log2(right))) - SPARE // 2


def row_scale_bytes(rows: int) -> int:
    """Of a line of a stage: scales of A's rows, in a power of two, and what stands around them in 16 bytes."""
    return 4 * 2 ** math.ceil(math.log2(rows)) + 16


def persistent_config(
    problem: Problem, family: Family, m: int, n: int, k: int, cluster: int = 1, across: int = 1, *, blocks: bool = False
) -> Config | None:
    """The same of a tile of any width beside the buffers by which it leaves."""
    left, right = (n, m) if family.swap_ab else (m, n)
    line = k * DTYPES[problem.a].bytes
    turned_a, turned_b = problem.layout[0] == "t", problem.layout[1] == "n"
    share_a, share_b = (cluster // across, across) if family.swap_ab else (across, cluster // across)
    rows = whole_rows(m, turned_a, share_a) + whole_rows(n, turned_b, share_b)
    owners = 1 if family.cooperative else 2
    size = DTYPES[problem.a].bytes
    # Two where a block's next tile may wait for this one's to leave. Blocks that share loads have one tile as a rule:
    # to them a stage more is worth more.
    buffers = 2 if left <= 128 and owners == 1 and family.store == "tma" and (cluster == 1 or size == 4) else 1
    part = part_columns(problem.d) * DTYPES[problem.d].bytes
    leaves = owners * left * part * buffers if family.store == "tma" else 0
    step = rows * line
    if blocks:
        step += row_scale_bytes(m) * line // 128
    elif DTYPES[problem.a].scaled:
        leaves += scale_bytes(owners * left, right, consumers(family, left))
    # Where it was measured to pay: 1 to 2 % of narrow tiles, 8-bit ones 1 to 4 %, but thin ones and split ones lose.
    narrow = right > 32 or (blocks and not family.swap_ab)
    deep = line == 128 and (size == 2 or (size == 1 and narrow and family.split != "workspace"))
    stages = min(MOST_STAGES if deep else 8, (TARGETS[90].shared_bytes - SPARE - leaves) // step)
    if stages < 3:
        return None
    # What runs at a time is about square; where a step has two lines, or a tile no buffer, 8, as they were tuned.
    group = max(1, round(math.sqrt(132 * right / left))) if line == 128 and leaves else 8
    return Config(m, n, k, 8, stages, group_m=group, persistent=True, buffers=buffers, cluster=cluster, across=across)


def hopper_variant(
    problem: Problem, family: str, m: int, n: int, k: int, cluster: int = 1, across: int = 1, *,
    activated: bool = False, blocks: bool = False,
) -> Variant | None:  # fmt: skip
    """One row of a family of DENSE_SM90, or None where that cannot compute the problem or does not fit. `k` counts
    elements of 16 bits, so that a tile of float32 inputs moves as many bytes."""
    record = DENSE_SM90[family]
    if record.split == "stream" and problem.d != problem.a:
        return None  # portable/gemm_sum.py, which comes behind, stores the type of A
    if record.split == "cluster" and (blocks or problem.d == "e4m3"):
        return None  # its kernel knows no scales of blocks, and rounds to 16 bits or more
    k = k * 2 // DTYPES[problem.a].bytes
    if problem.d == "e4m3" and not record.swap_ab and n % 16:
        return None  # TMA stores 16 bytes at least
    if record.swap_ab and problem.layout[0] == "t" and (m < 16 or (m < 64 and cluster > 1)):
        return None  # below 64 rows a transposed A comes in one box, and of 8 it is no operand of the tensor cores
    if record.persistent:
        config = persistent_config(problem, record, m, n, k, cluster, across, blocks=blocks)
    else:
        config = cluster_config(problem, record, m, n, k)
    if config is None:
        return None
    guards = list(record.guards)
    if not record.light_epilogue and not activated:
        guards.append("linear")
    if DTYPES[problem.a].scaled:
        guards.append("blocks" if blocks else "unblocked")
    return Variant(problem, config, record.kernel, 90, tuple(sorted(guards)), rate=RATE)


def with_e5m2(row: Variant):
    """The same for an A that is e5m2, or a B, as gradients are."""
    for operand in ("a", "b"):
        yield dataclasses.replace(row, problem=dataclasses.replace(row.problem, e5m2=operand))


def hopper_rows(problem: Problem):
    """The rows that ship for one dense problem. Tensor cores take no other than 16-bit types but where K is
    contiguous."""
    a = DTYPES[problem.a]
    if a.bytes != 2 and (problem.layout != "nt" or not (a.scaled or problem.precision == "tf32")):
        return
    yield from tuned_rows(problem)
    if a.scaled and problem.precision == "exact" and problem.d != "e4m3":
        yield from tuned_rows(problem, blocks=True)


def alone_and_shared(tiles: list[tuple]) -> tuple[list[tuple], list[tuple]]:
    """Those whose blocks share no loads, and those whose blocks do."""
    return [tile for tile in tiles if len(tile) == 4], [tile for tile in tiles if len(tile) > 4]


def with_activation(alone: list[tuple]) -> list[tuple]:
    """Of tiles whose blocks share no loads those that also ship with an activation."""
    return [tile for tile in alone if not DENSE_SM90[tile[0]].light_epilogue][:ACTIVATED]


def first_of(tiles: list[tuple]) -> list[tuple]:
    """Of a layout's tiles those that also ship with other types."""
    alone, shared = alone_and_shared(tiles)
    return [*alone[:FIRST], *shared[:FIRST_SHARED]]


def with_more(tiles: list[tuple]) -> set[tuple]:
    """Both."""
    return {*first_of(tiles), *with_activation(alone_and_shared(tiles)[0])}


def tuned_rows(problem: Problem, *, blocks: bool = False):
    """Those of a kind of products that is tuned by itself."""
    found = tuned(90, measured_as(problem, blocks))
    if found is None:
        return
    tiles = found.tiles[problem.layout]
    heavy, first = with_activation(alone_and_shared(tiles)[0]), first_of(tiles)
    if problem.d == "f32" or (DTYPES[problem.a].scaled and problem.d == "f16"):
        tiles = first
    if problem.d == "e4m3":
        if problem.precision == "fast":
            tiles = [LARGEST_E4M3, *(t for t in tiles if t[1] <= ROWS_E4M3 or not DENSE_SM90[t[0]].swap_ab)]
        alone, shared = alone_and_shared(tiles)
        tiles = (*alone[:FIRST_E4M3], *shared[:FIRST_SHARED])
    own = dict.fromkeys((*tiles, *(FLOAT if problem.a == "f32" else ())))
    paired = problem.a == "e4m3" and problem.d not in ("f16", "e4m3")
    mixed = (*first, MASKED) if paired else ()
    for tile in (*own, MASKED):
        wide = problem.a == "f32" or (DENSE_SM90[tile[0]].cooperative and problem.d == "f32")
        for activated in (False, True):
            if activated and (tile not in (*heavy, MASKED) or wide):
                continue
            row = hopper_variant(problem, *tile, activated=activated, blocks=blocks)
            if row is not None:
                yield row
                if tile in mixed and not activated:
                    yield from with_e5m2(row)
