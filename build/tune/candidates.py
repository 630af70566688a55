"""What tuning measures: a grid of tiles for each family, pruned by rule. Larger than what ships; nothing here is built
by `make build`. Stdlib only.

One input type stands for all 16-bit ones: their kernels differ in nothing that takes time. 8-bit ones come three times:
with sums in float32, without, and with scales of blocks.
"""

from kernels.table.boxes import whole_rows
from kernels.table.dtypes import DTYPES
from kernels.table.portable import reference_rows
from kernels.table.sm90 import hopper_variant
from kernels.table.sm90_grouped import grouped_variant, may_have, scaled_variant
from kernels.table.spec import LAYOUTS, Problem, Variant

# family -> tiles (rows, columns, steps in K, and blocks of a cluster, as below) that an earlier grid of all powers of
# two left
GRID = {
    "pingpong": ((128, 64, 64), (64, 64, 128), (64, 32, 128), (64, 16, 128)),
    "pingpong_swap": (
        (8, 64, 128), (8, 128, 128), (16, 64, 128), (32, 64, 128), (32, 128, 128),
        *((m, n, 128, 2) for m in (16, 32) for n in (64, 128)), (32, 64, 128, 4), (32, 128, 128, 4),
    ),
    "cluster": (
        (128, 128, 64), (128, 64, 128), (64, 256, 64), (64, 128, 64), (64, 64, 128), (64, 32, 128),
    ),
    "cluster_swap": (
        (8, 64, 128), (16, 64, 128), (32, 64, 128), (256, 64, 64),
    ),
    "masked": ((64, 128, 64),),
    "split": ((128, 192, 64), (128, 128, 64), (64, 128, 64), (64, 64, 128)),
    "split_swap": ((8, 64, 128),),
}  # fmt: skip

# Of tiles of any width: how their warpgroups share them -> left rows -> widths. With operands swapped left is B.
WIDTHS = {
    "coop": {
        128: (64, 80, 96, 112, *range(128, 241, 8), 256),
        192: (64, 80, 96, *range(104, 193, 8)),
        256: (64, 96, 112, 120, *range(128, 193, 8)),
    },
    "pingpong": {
        64: (56, 64, 72, 80, 96, 112, 128, 136, 144, 152, 160, 176, 184, 192, 200, 208, 224, 240, 256),
        128: (72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192),
    },
}
# The same where all blocks share all tiles evenly, in clusters, as below. Here and there, what won on no shape measured
# is left out.
STREAM = {
    (2, 1): {"stream_pingpong": {128: (128, 160, 192)}},
    (2, 2): {"stream_coop": {128: (192,)}, "stream_pingpong": {128: (64, 80, 112, 176)}},
    (4, 2): {"stream_coop": {128: (192,)}, "stream_pingpong": {128: (80, 96, 112, 128, 160, 176)}},
}
# Of those, in clusters whose blocks share operands, each loading a part: how many blocks, and how many of them side by
# side, which share the left operand; those below one another share the right -> the same.
SHARED = {
    (2, 1): {
        "coop": {128: (128, 144, 160, 192, 208, 224, 256), 192: (128, 144, 160, 192), 256: (96, 128, 160)},
        "pingpong": {64: (16, 32, 56, 64, 72, 80, 96, 112, 128, 144, 192, 256), 128: (64, 128, 160, 192)},
    },
    (4, 1): {
        "coop": {128: (128, 160, 192, 208, 224), 192: (160, 192), 256: (96, 128)},
        "pingpong": {
            64: (32, 48, 56, 64, 72, 96, 112, 128, 136, 144, 160, 192, 256),
            128: (32, 64, 96, 112, 128, 160, 192),
        },
    },
    (8, 1): {"pingpong": {64: (96, 128)}},
    (2, 2): {
        "coop": {128: (128, 144, 160), 192: (160, 192), 256: (128,)},
        "pingpong": {64: (96, 112, 128, 192), 128: (64, 96, 128, 160, 192)},
    },
    (4, 4): {"pingpong": {64: (64, 96, 128, 192), 128: (64, 96, 128)}},
    (4, 2): {
        "coop": {128: (96, 128, 160, 192, 224), 192: (96, 160), 256: (96, 128, 160)},
        "pingpong": {64: (56, 64, 72, 80, 128), 128: (88, 96, 128, 160, 176, 192)},
    },
    (8, 2): {
        "coop": {128: (128, 256), 256: (128,)},
        "pingpong": {64: (48, 56, 64, 72), 128: (64, 80, 88, 96, 128, 192)},
    },
}  # fmt: skip
# Beside those for few rows of A, operands swapped: L2 has B for each tile of A and A for each of B, and is the limit.
FEW_ROWS = {
    "coop": {128: (*range(72, 113, 8), 128, 144, 160, 176)}, "pingpong": {64: (48, 64, *range(72, 113, 8))},
}  # fmt: skip
FEW_SHARED = {
    (1, 1): {"pingpong": {64: (24, 40, 48, 88, 104)}},
    **dict.fromkeys(((2, 1), (4, 1), (2, 2)), FEW_ROWS),
    (4, 2): {"coop": {128: (72, 80, 88, 96, 104, 160, 176)}, "pingpong": {64: (72, 96)}},
}
# Of tiles whose K a cluster shares: left rows -> widths.
CLUSTER_WIDTHS = {64: (72, 80, 96, 112, 144, 160, 176, 192), 128: (72, 80, 96, 112, 144, 160, 176, 192)}
FILLED = 0.8  # of the rows that a stage has of the right operand: less is not worth a tile

# Of packed groups: (kernel, what is cut) -> (tile rows, tile columns)
GROUPED_GRID = {
    ("swap", "rows"): ((192, 128), (128, 128), (128, 64), (64, 128), (64, 64), (32, 128), (32, 64)),
    ("coop_swap", "rows"): ((128, 256),),
    ("pingpong", "rows"): ((128, 128), (128, 64), (64, 256), (64, 128), (64, 64)),
    ("cluster", "equal"): ((128, 128), (64, 128), (64, 64)),
    ("pingpong", "equal"): ((128, 192), (128, 128), (64, 128), (64, 64), (64, 32)),
    ("whole", "equal"): ((128, 192), (128, 128)),
    ("whole_swap", "equal"): ((192, 128), (64, 128)),
}
# The same of 8-bit operands whose rows ends cut, by how sums are added up and with scales of blocks: family -> tiles.
SCALED_GRID = {
    "e4m3": {
        "scaled_coop": ((128, 128), (128, 192), (128, 64)), "scaled_swap": ((64, 128), (32, 128), (32, 64)),
    },
    "e4m3_fast": {
        "scaled_pingpong": ((128, 128),), "scaled_swap": ((128, 128), (64, 128), (32, 128), (32, 64)),
    },
    "e4m3_blocks": {
        "scaled_coop": ((128, 128), (128, 192), (128, 64)), "scaled_swap": ((32, 128), (32, 64)),
    },
}  # fmt: skip


def sizes(grids: dict):
    """(blocks in a cluster, of them side by side), family, left rows, width, of each tile of such a grid."""
    for shared, widths in grids.items():
        for family, lefts in widths.items():
            for left, rights in lefts.items():
                for right in rights:
                    yield shared, family, left, right


def named(family: str, right: int, swap: bool) -> str:
    """Of 64 columns and multiples of that, families that have one box for all parts of a tile are a little faster."""
    name = family if right % 64 == 0 or family.startswith("stream") else f"flex_{family}"
    return f"{name}_swap" if swap else name


def flex_tiles(layout: str):
    """(family, rows, columns, steps in K, blocks in a cluster, of them side by side) of all tiles of any width for a
    layout."""
    for (cluster, across), family, left, right in (*sizes({(1, 1): WIDTHS}), *sizes(SHARED), *sizes(STREAM)):
        # Whether the right operand is contiguous along its rows: then it comes in boxes of these.
        for swap, turned in ((False, layout[1] == "n"), (True, layout[0] == "t")):
            below = cluster // across
            if right < FILLED * whole_rows(right, turned):
                continue
            if right > 64 and right % 16 and turned:
                continue  # rows of boxes that the tile has not, for a width near another's
            if turned and right < 64 and right & (right - 1):
                continue  # a box of it alone would not be a power of two
            if right < 80 and right // 8 % below:
                continue  # none of these gained anything
            yield named(family, right, swap), *((right, left) if swap else (left, right)), 64, cluster, across


def few_tiles(layout: str):
    """The same for few rows of an A that is contiguous along K."""
    if layout[0] == "n":
        for (cluster, across), family, left, right in sizes(FEW_SHARED):
            yield named(family, right, True), right, left, 64, cluster, across


def cluster_tiles(layout: str):
    """(family, rows, columns, steps in K) of tiles of any width whose K a cluster shares."""
    for left, rights in CLUSTER_WIDTHS.items():
        for right in rights:
            for family, tile, turned in (
                ("cluster", (left, right), layout[1] == "n"), ("cluster_swap", (right, left), layout[0] == "t"),
            ):  # fmt: skip
                if right >= FILLED * whole_rows(right, turned):
                    yield family, *tile, 64


# What is measured -> types of A and B and of D, how they are multiplied, the layouts that have rows of their own, and
# whether scales are of blocks.
TYPES = {
    "bf16": ("bf16", "bf16", "exact", LAYOUTS, False),
    "f16": ("f16", "f16", "exact", LAYOUTS, False),
    "e4m3": ("e4m3", "bf16", "exact", ("nt",), False),
    "e4m3_fast": ("e4m3", "bf16", "fast", ("nt",), False),
    "e4m3_blocks": ("e4m3", "bf16", "exact", ("nt",), True),
}


# What 8-bit operands have beside those, for few rows: steps of one line, of which the next is multiplied while sums are
# promoted, and products split for more of them.
BYTES_GRID = {
    "pingpong": ((64, 64, 64), (64, 32, 64), (64, 16, 64)),
    "pingpong_swap": (*((m, n, 64) for m in (8, 16, 32) for n in (64, 128)), (64, 64, 64)),
    "split": ((64, 64, 64),),
    "split_swap": ((8, 64, 64), (16, 64, 64), (32, 64, 64)),
}

# Elements of a warpgroup that its registers hold two sums of, by how many warpgroups share a tile.
PROMOTED = {1: 64 * 192, 2: 64 * 192, 3: 64 * 112}


def takes_bytes(v: Variant) -> bool:
    """Whether a tile is sensible for 8-bit operands: where sums are promoted, a warpgroup's registers hold two of its
    part."""
    sharing = v.consumers if v.family.cooperative else 1 if v.config.persistent else v.config.warps // 4
    return v.problem.precision == "fast" or v.left * v.right // sharing <= PROMOTED[sharing]


def candidates(target: int = 90, types: str = "bf16") -> list[Variant]:
    """Every sensible row of TYPES for a target; of 16-bit ones the reference rows of the same problems with them, which
    others are far behind, and tiles whose blocks share loads."""
    rows = []
    *operands, layouts, blocks = TYPES[types]
    for layout in layouts:
        problem = Problem("gemm", *operands, layout)
        grids = (GRID, BYTES_GRID) if DTYPES[problem.a].scaled else (GRID,)
        tiles = [(family, *tile) for grid in grids for family, tiles in grid.items() for tile in tiles]
        tiles += [*cluster_tiles(layout), *flex_tiles(layout), *few_tiles(layout)]
        made = [row for tile in dict.fromkeys(tiles) if (row := hopper_variant(problem, *tile, blocks=blocks))]
        if DTYPES[problem.a].scaled:
            rows += [row for row in made if takes_bytes(row) and (row.lies_in_blocks or not blocks)]
        else:
            rows += [*(row for row in reference_rows(target) if row.problem == problem), *made]
    for row in rows:
        row.check()
    return rows


def grouped_candidates(target: int = 90, types: str = "bf16") -> list[Variant]:
    """The same of packed groups, but for the reference rows: they are far behind."""
    rows = []
    *operands, layouts, blocks = TYPES[types]
    for layout in layouts:
        problem = Problem("grouped_mm", *operands, layout)
        if types in SCALED_GRID:
            scales = "blocks" if blocks else "unblocked"
            own = [(family, *tile) for family, tiles in SCALED_GRID[types].items() for tile in tiles]
            rows += [scaled_variant(problem, family, "rows", m, n, scales) for family, m, n in own]
            continue
        for (kernel, cut), tiles in GROUPED_GRID.items():
            if may_have(problem, kernel, cut):
                rows += [grouped_variant(problem, kernel, cut, *tile) for tile in tiles]
    for row in rows:
        row.check()
    return rows
