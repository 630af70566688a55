"""The fast set for groups on Hopper: which tiles ship. Of packed ones tuned/sm90_grouped_mm*.json says."""

from kernels.table.dtypes import DTYPES
from kernels.table.families import EXPERTS_SM90, PACKED_SM90, POINTERS_SM90, Family
from kernels.table.model import tuned
from kernels.table.sm90 import persistent_config, row_scale_bytes, with_e5m2
from kernels.table.spec import Config, Problem, Variant, measured_as
from kernels.table.targets import TARGETS

RATE = 125  # relative throughput of these kernels: the reference set's large tile has 100
SPARE = 2048  # bytes of shared memory for barriers, the queue, and what the compiler aligns
# With an activation too, whose code makes a tile's epilogue several times longer: into the same type, and into float32.
ACTIVATED = {("swap", "rows", 192, 128), ("pingpong", "equal", 128, 128)}
WIDE_ACTIVATED = {("pingpong", "rows", 128, 128), ("pingpong", "equal", 128, 128)}
FEW = 2  # tiles of each cut where more are not worth their bytes; the data puts a small one and a large one first
RUN = 32  # rows of A that a swapped tile takes in, and D that it puts out, at a time
# Tiles for large groups of a layer, which blocks may take by a counter as they come free: family, rows of A, columns.
COUNTED = {("swap", 192, 128), ("coop_swap", 128, 256)}


def grouped_config(problem: Problem, family: Family, m: int, n: int) -> Config:
    """The deepest pipeline that fits in 227 KiB beside the output buffers. What a cluster reduces goes where operands
    came."""
    d_bytes, k = DTYPES[problem.d].bytes, 128 // DTYPES[problem.a].bytes
    parts = m // RUN if family.swap_ab else 2 if m * n * d_bytes > 128 * 128 * 2 else 1
    if not family.swap_ab and m == 128 and d_bytes == 2:  # by lines of 128 bytes: a stage more for two tiles' buffers
        parts = n // 64
    owners = 2 if family.cooperative else 1  # warpgroups that share a tile; two have buffers
    out_bytes = 0 if family.store == "reduce" else 2 * m * n // parts // owners * d_bytes
    stages = min(8, (TARGETS[90].shared_bytes - SPARE - out_bytes) // ((m + n) * 128))
    if not family.persistent:
        return Config(m, n, k, m // 16, stages)
    boxes = m // RUN if family.swap_ab else 1
    return Config(m, n, k, 8, stages, parts=parts, persistent=True, a_boxes=boxes)


def grouped_variant(
    problem: Problem, family: str, cut: str, m: int, n: int, activated: bool = False, more: tuple[str, ...] = ()
) -> Variant:
    """One row of a family of PACKED_SM90. `cut` is its guard: "rows" or "equal"; `more`: others."""
    record = PACKED_SM90[family]
    linear = () if record.light_epilogue or activated else ("linear",)
    guard = tuple(sorted((*record.guards, cut, *linear, *more)))
    line = 128 // DTYPES[problem.a].bytes
    config = (
        persistent_config(problem, record, m, n, line) if record.whole_tiles else grouped_config(problem, record, m, n)
    )
    assert config is not None
    return Variant(problem, config, record.kernel, 90, guard, RATE)


def is_taken(problem: Problem) -> bool:
    """Whether there are rows for this problem. Tensor cores take float32 (as tf32) only where K is contiguous."""
    return problem.a != "f32" or (problem.precision == "tf32" and problem.layout == "nt")


def may_have(problem: Problem, family: str, cut: str) -> bool:
    """Where ends cut the rows, A has its rows one after the other: within a stored row TMA begins only at multiples of
    16 bytes, and a group begins anywhere. Whole tiles are there for ends that cut K; to a D in float32 gradients are
    added as a rule, which they cannot."""
    if PACKED_SM90[family].whole_tiles:
        return problem.layout == "tn" and problem.d != "f32" and problem.a != "f32"
    return (cut == "equal" or problem.layout[0] == "n") and (family == "pingpong" or problem.a != "f32")


def tiles_of(problem: Problem) -> list[tuple]:
    """The tuned tiles that this problem has, in order."""
    return [tuple(tile) for tile in tuned(90, "grouped_mm").tiles[problem.layout] if may_have(problem, *tile[:2])]


def grouped_rows(problem: Problem):
    """The rows that ship for one problem of packed groups: all tiles into the same type, few into float32, but for
    those of a weight gradient. One of each cut has an activation."""
    if not is_taken(problem):
        return
    tiles, wide = tiles_of(problem), problem.d == "f32"
    most = 2 * FEW if problem.layout == "tn" else FEW  # of each cut, into float32
    for i, (kernel, cut, m, n) in enumerate(tiles):
        if wide and m * n > 128 * 128 and kernel == "pingpong":
            continue  # in float32 it leaves by more parts than a tile may have
        if not wide and (kernel, m, n) in COUNTED:  # ahead of the same tile without, whose fit it has
            yield grouped_variant(problem, kernel, cut, m, n, more=("counted",))
        if not wide or [before for _, before, *_ in tiles[:i]].count(cut) < most:
            yield grouped_variant(problem, kernel, cut, m, n)
        if (kernel, cut, m, n) in (WIDE_ACTIVATED if wide else ACTIVATED):
            yield grouped_variant(problem, kernel, cut, m, n, activated=True)


# Of ends that cut columns: rows of A, columns of B, and the rate, which is set and not fitted. Into float32 the first.
COLUMN_TILES = ((128, 128, 110), (128, 64, 80))


def column_rows(problem: Problem):
    """The rows for 16-bit packed groups whose columns ends cut: of a B that has K last, as its transposed copy has."""
    if problem.a == "f32" or problem.layout[1] != "t":
        return
    record = PACKED_SM90["columns"]
    for m, n, rate in COLUMN_TILES[: 1 if problem.d == "f32" else 2]:
        stages = min(8, (TARGETS[90].shared_bytes - SPARE) // ((m + n) * 128))
        config = Config(m, n, 64, 8, stages, persistent=True)
        yield Variant(problem, config, record.kernel, 90, record.guards, rate)


# Of 8-bit operands where ends cut K, or groups are whole matrices, by how sums are added up: family, tile, the rate,
# what a tile takes beside its steps, and what a byte costs; set together on 184 drawn gradients (bench/NOTES.md). Where
# ends cut the rows, tuned/sm90_grouped_mm_e4m3*.json says.
EQUAL_TILES = {
    "exact": (
        ("scaled_whole_coop", 128, 192, 232, 1425, 1.045), ("scaled_whole_coop", 128, 128, 212, 1155, 1.045),
        ("scaled_coop", 128, 128, 160, 2200, 1.5),
    ),
    "fast": (
        ("scaled_whole_pingpong_swap", 192, 128, 247, 1140, 1.05), ("scaled_whole_pingpong", 128, 128, 191, 538, 1.1),
        ("scaled_pingpong", 128, 128, 160, 1000, 1.5),
    ),
}  # fmt: skip


def scaled_config(problem: Problem, family: Family, m: int, n: int, cut: str, blocks: bool) -> Config:
    """grouped_config beside the scales: of blocks in each stage, else for each warpgroup. Where a tile's end is a large
    part of its time, it leaves by two buffers in turn: 1 to 7 % of such, and of others nothing for a stage less."""
    owners = 2 if family.cooperative else 1
    parts = m // RUN if family.swap_ab else n * DTYPES[problem.d].bytes // 128
    buffers = 2 if parts > 1 and (cut == "equal" or (blocks and n > 128)) else 1
    leaves = 2 * buffers * m * n // parts // owners * DTYPES[problem.d].bytes
    step = (m + n) * 128 + (row_scale_bytes(m) if blocks else 0)
    if not blocks:
        leaves += 2 * 4 * (m + n)
    stages = min(8, (TARGETS[90].shared_bytes - SPARE - leaves) // step)
    boxes = m // RUN if family.swap_ab else 1
    return Config(m, n, 128, 8, stages, parts=parts, persistent=True, a_boxes=boxes, buffers=buffers)


def scaled_variant(
    problem: Problem, family: str, cut: str, m: int, n: int, scales: str = "unblocked", **speed: float
) -> Variant:
    """One row for packed groups of 8-bit operands. `scales` is a guard: "blocks" or "unblocked". `speed`: fields of
    Variant that say it where there is no fit."""
    record = PACKED_SM90[family]
    if record.whole_tiles:
        config = persistent_config(problem, record, m, n, 128)
        assert config is not None
    else:
        config = scaled_config(problem, record, m, n, cut, scales == "blocks")
    guard = tuple(sorted((*record.guards, cut, "linear", scales)))
    return Variant(problem, config, record.kernel, 90, guard, **{"rate": RATE, **speed})


def scaled_rows(problem: Problem):
    """The rows for packed groups of 8-bit operands, of which one may be e5m2: K comes last in both, as tensor cores
    take it. Where ends cut the rows D is bfloat16; where they cut K, or groups are whole matrices, float32 too, as
    gradients are: by no whole tiles, which add to no C."""
    if problem.layout != "nt":
        return
    if problem.d == "bf16":
        for scales in ("unblocked", "blocks") if problem.precision == "exact" else ("unblocked",):
            for tile in tuned(90, measured_as(problem, scales == "blocks")).tiles["nt"]:
                row = scaled_variant(problem, *tile, scales)
                yield row
                yield from with_e5m2(row)
    if problem.d != "f16":
        for family, m, n, rate, tile_ns, byte_cost in EQUAL_TILES[problem.precision]:
            row = scaled_variant(problem, family, "equal", m, n, rate=rate, tile_ns=tile_ns, byte_cost=byte_cost)
            if problem.d == "bf16" or not row.family.whole_tiles:
                yield row
                yield from with_e5m2(row)


# Of large groups of arrays of pointers: tile -> its rate, as measured.
POINTER_TILES = {(128, 128): 132, (64, 256): 128}


def pointer_rows(problem: Problem):
    """The rows for arrays of pointers to 16-bit matrices of large groups."""
    for (m, n), rate in POINTER_TILES.items():
        parts = n // 64
        room = TARGETS[90].shared_bytes - SPARE - 2 * m * n // parts * DTYPES[problem.d].bytes
        config = Config(m, n, 64, 4, room // ((m + n) * 128), parts=parts, persistent=True)
        guard = tuple(sorted((*POINTERS_SM90.guards, "linear")))
        yield Variant(problem, config, POINTERS_SM90.kernel, 90, guard, rate)


# Of a layer of experts: family, rows of A, columns of B, of which a gated product's D has half as many, elements of a
# step; and, where B is stored [N][K] and where [K][N], the rate, what a tile takes beside its steps, and what a byte
# costs. Set together, for the least that choosing loses on 72 layers, most of few rows, on each of two GPUs; those of
# the first two tiles later, on 445 of more rows (bench/NOTES.md).
EXPERT_TILES = (
    ("coop_swap", 128, 256, 64, {"t": (131, 3000, 1.02), "n": (106, 3250, 1.005)}),
    ("swap", 192, 128, 64, {"t": (129, 500, 1.045), "n": (113, 2350, 1.011)}),
    ("swap", 64, 128, 128, {"t": (75, 500, 1.002), "n": (75, 500, 1.005)}),
    ("swap", 32, 128, 128, {"t": (42, 500, 1.0), "n": (42, 500, 1.0)}),
)


# The same of 8-bit operands, for the first product: of large groups, and of those of few rows, whose tiles stand in
# pairs side by side.
SCALED_EXPERT_TILES = (
    ("scaled_coop", 128, 256, 8, 390), ("scaled_few", 8, 128, 1, 60), ("scaled_few", 16, 128, 1, 60),
    ("scaled_few", 32, 128, 1, 60), ("scaled_one", 8, 128, 1, 60),
)  # fmt: skip


def scaled_expert_rows(problem: Problem):
    """The rows for the first product of a layer of experts in 8 bits; D, in 8 bits too, is not of the problem's type,
    which its bias has."""
    if problem.layout != "nt" or problem.precision != "exact" or problem.d == "f32":
        return
    for family, m, n, group_m, rate in SCALED_EXPERT_TILES:
        record = EXPERTS_SM90[family]
        room = TARGETS[90].shared_bytes - SPARE - m * n // (1 if record.swap_ab else 2)
        stages = min(12, room // ((m + n) * 128 + row_scale_bytes(m)))
        config = Config(m, n, 128, 4, stages, group_m=group_m, persistent=True)
        yield Variant(problem, config, record.kernel, 90, record.guards, rate)


def expert_rows(problem: Problem):
    """The rows for a layer of experts, whose four loading warps gather rows of A: gated ones, and plain ones."""
    paired = [("gated", "paired", "swish")] if problem.layout == "nn" else []
    for gated in (("gated", "halved", "swish"), *paired, ("linear",)):
        for family, m, n, k, speeds in EXPERT_TILES:
            record = EXPERTS_SM90[family]
            of_d = n // (2 if "gated" in gated else 1) // (2 if record.cooperative else 1)
            room = TARGETS[90].shared_bytes - SPARE - 2 * RUN * of_d * DTYPES[problem.d].bytes
            config = Config(m, n, k, 8, min(8, room // ((m + n) * 2 * k)), parts=m // RUN, persistent=True)
            rate, tile_ns, byte_cost = speeds[problem.layout[1]]
            counts = "gated" in gated and (family, m, n) in COUNTED
            for counted in (("counted",), ()) if counts else ((),):
                guard = tuple(sorted((*record.guards, *gated, *counted)))
                yield Variant(problem, config, record.kernel, 90, guard, rate, byte_cost, tile_ns)
