"""How long a variant takes on a problem: a fitted formula where tuning measured it, a rough one elsewhere. Stdlib only.

Both begin with what one product asks of a multiprocessor and of memory. With T tiles whose K is shared S ways, on P
multiprocessors, there are ceil(T S / P) waves of `steps` steps in K.

Rough (untuned rows), in nanoseconds:

    compute = fixed + waves * (steps * step + tile),  memory = fixed + bytes * byte
    time    = (compute^4 + memory^4)^(1/4)

A row that makes descriptors on the device needs 2000 more for those of the first group; the others' are made meanwhile.

Fitted (tuned rows): log2 of the microseconds is a weighted sum of `features`, below. The weights come from
tuned/<target>.json, which `make tune` writes; select/cost.c evaluates the same sums (tests compare the two).

Of packed groups whose rows ends cut the host knows M alone, the rows of all. Both take min(M, groups) of them to have
rows, as many each, in max(1, rows / block_m + 1/2) rows of tiles, since the last one is half full in the mean.
"""

import functools
import json
import math
from dataclasses import astuple, dataclass
from pathlib import Path

from kernels.table.families import ROW_STEP, TALL, Family

TUNED = Path(__file__).parent / "tuned"


@dataclass(frozen=True)
class Model:
    fixed_ns: float  # launch, first loads, last store
    step_ns: float  # one step in K of a tile
    tile_ns: float  # its epilogue
    byte_ps: float  # time of one byte of A, B, C and D


@dataclass(frozen=True)
class Speed:
    """What a GPU does, roughly, where nobody has measured."""

    multiply_ns: float  # of one multiplication and addition, for one multiprocessor at a rate of 1
    byte_ps: float  # of one byte of memory


def rough(
    block_m: int, block_n: int, block_k: int, rate: int, speed: Speed, byte_cost: float = 1.0, tile_ns: int = 500
) -> Model:
    """For rows nobody has measured: work over a rate, 100 being the reference set's large tile, bytes by a cost, and
    what a tile takes beside its steps."""
    step_ns = block_m * block_n * block_k * speed.multiply_ns / rate
    return Model(3000.0, step_ns, float(tile_ns), speed.byte_ps * byte_cost)


def reuse(block_m: int, block_n: int) -> float:
    """A tile's speed by how often it uses what it loads: from 0 for a thin one to 1 for an endless one, and half of
    that for one that multiplies each loaded element 96 times, counting an element of A and one of B as one."""
    times = block_m * block_n / (block_m + block_n)
    return times / (times + 96)


@dataclass(frozen=True)
class Work:
    """One product as the features see it. Strides count in bytes; sizes are those of one product of `count`."""

    m: int
    n: int
    k: int
    count: int
    a_bytes: int  # of an element of A and B
    d_bytes: int
    a_stride: int  # from one stored row of A to the next
    b_stride: int
    multiprocessors: int
    both_turned: bool = False  # A is contiguous along M and B along N
    rows: int = 0  # of all products together, where ends cut them that only the device knows; 0: each has m

    @property
    def uneven(self) -> bool:
        """Of one product the host knows the rows."""
        return self.rows > 0 and self.count > 1

    @property
    def filled(self) -> int:
        """Products that have rows, as the formulas take it."""
        return min(self.rows, self.count) if self.uneven else self.count

    @property
    def rows_each(self) -> float:
        """Rows of such a product, in the mean."""
        return self.rows / self.filled if self.uneven else self.m


def packed_work(m: int, n: int, k: int, layout: str, multiprocessors: int, a_bytes: int = 2) -> Work:
    """One product of packed operands with a 16-bit D, as tuning measures it."""
    a_stride, b_stride = (m if layout[0] == "t" else k), (k if layout[1] == "t" else n)
    turned = layout == "tn"
    return Work(m, n, k, 1, a_bytes, 2, a_bytes * a_stride, a_bytes * b_stride, multiprocessors, turned)


def groups_work(
    m: int, n: int, k: int, groups: int, ragged: str, layout: str, multiprocessors: int, a_bytes: int = 2
) -> Work:
    """Products of packed groups into 16 bits, as far as the host knows their sizes. m and k are those of all groups: of
    "K" k is cut, else m, and of "M" by ends."""
    rows = m if ragged == "M" else 0
    if ragged != "K":
        m = math.ceil(m / groups)
    a_stride, b_stride = (m if layout[0] == "t" else k), (k if layout[1] == "t" else n)
    if ragged == "K":
        k = math.ceil(k / groups)
    strides = a_bytes * a_stride, a_bytes * b_stride
    return Work(m, n, k, groups, a_bytes, 2, *strides, multiprocessors, rows=rows)


@dataclass(frozen=True)
class Machine:
    """Rates the features divide by: bytes and multiplications per nanosecond, of a multiprocessor or of all."""

    load: float = 140.0  # bytes into one multiprocessor
    multiply: float = 3700.0  # 16-bit products with additions, in one multiprocessor
    l2: float = 14000.0  # bytes that blocks ask L2 for: what several ask for at a time leaves it once
    memory: float = 4300.0
    fixed: float = 4000.0  # nanoseconds of a launch


MACHINE = Machine()


def stride_class(stride: int) -> int:
    """3 for rows that begin on 128 bytes, 2 on 64, 1 on 32, 0 on 16: what a 128-byte row of a box touches beyond."""
    return next(c for c, step in ((3, 128), (2, 64), (1, 32), (0, 1)) if stride % step == 0)


# Rows of A, and of operands of 16 and 8 bits elements of D, at most for which blocks that share loads are weighed
# whatever the strides; of D twice as many where rows of A or B do not begin on 128 bytes.
SHARED_ROWS = 1024
SHARED_ELEMENTS = 66 * 128 * 128  # a tile of 128 x 128 for every second multiprocessor


def is_shared(w: Work) -> bool:
    """Whether rows of any width whose blocks share loads in clusters are weighed. Where stored rows of A or B begin on
    16 but not on 32 bytes, L2 gives two thirds of its bytes; where A has few rows, each block reads nearly as much of A
    from L2 as of B from memory; where D is small, tiles are too, and L2 is what they wait for; and where both operands
    are contiguous along their rows. Elsewhere sharing costs what it saves."""
    least = min(stride_class(w.a_stride), stride_class(w.b_stride))
    most = SHARED_ELEMENTS if least == 3 else 2 * SHARED_ELEMENTS
    small = w.a_bytes <= 2 and w.m * w.n * w.count <= most
    return w.m <= SHARED_ROWS or small or w.both_turned or least == 0


# Rows of each group, on average, at most for which tiles that are swapped alone are weighed where groups cut rows: by
# fits in between others came first where they lost half.
THIN_ROWS = 16

# A row whose estimate is so many times the least one's is not weighed by its fit: tuning has not measured it there, and
# fits say anything beyond what they were fitted to.
FAR = 1.6
PENALTY = (1.25, 1.08, 1.04, 1.0)  # of a stride's class, on the bytes that move


# Where all blocks share all tiles evenly: how many a tile may have of them, how many steps in K each must have, and how
# many it counts as more, for what leaving sums and adding them up takes.
MOST_SHARERS, LEAST_STEPS, ADDED_STEPS = 16, 24, 8


def stream_steps(tiles: int, steps: int, multiprocessors: int) -> int:
    """Steps in K of each block, where all share all tiles evenly; 0 where there are as many tiles as blocks, or so few
    or so short ones that sharing cannot pay."""
    if not tiles < multiprocessors <= tiles * MOST_SHARERS:
        return 0
    each = math.ceil(tiles * steps / multiprocessors)
    return each if each >= LEAST_STEPS else 0


def split_of(family: Family, tiles: int, steps: int, multiprocessors: int) -> int:
    """In how many ways K of a tile is shared: as many as find a multiprocessor; 1 where the family does not share."""
    if family.split == "stream":
        return math.ceil(multiprocessors / tiles) if stream_steps(tiles, steps, multiprocessors) else 1
    if family.split == "cluster":
        for size in range(len(CLUSTERS) - 1, 1, -1):
            if tiles <= clusters_at_once(multiprocessors, size) and math.ceil(steps / math.ceil(steps / size)) == size:
                return size
        return 1
    if family.split == "workspace" and 2 * tiles <= multiprocessors:
        return math.ceil(steps / math.ceil(steps / max(1, min(multiprocessors // tiles, steps, 64))))
    return 1


# Clusters of so many blocks that an H200 of 132 multiprocessors holds at once, one block to each
# (cuOccupancyMaxActiveClusters): the blocks of a cluster run on neighbours, so some multiprocessors stay without.
CLUSTERS = (0, 132, 66, 39, 30, 22, 17, 15, 15)


def clusters_at_once(multiprocessors: int, size: int) -> int:
    """The same of a GPU, or a slice of one, of so many multiprocessors."""
    return max(1, CLUSTERS[size] * multiprocessors // 132)


def least_rows(block_m: int) -> int:
    """Rows of A that a balanced family's tile works on at least: a tall one is for groups that fill half of one."""
    return block_m // 2 if block_m > TALL else ROW_STEP


def rows_of_tile(block_m: int, family: Family, m: int) -> int:
    """Rows of A that each tile works on: a balanced family shares them out evenly over as few tiles as hold them."""
    if not family.balanced or m == 0:
        return block_m
    return max(math.ceil(math.ceil(m / math.ceil(m / block_m)) / ROW_STEP) * ROW_STEP, least_rows(block_m))


def estimate(
    block_m: int, block_n: int, block_k: int, family: Family, w: Work, below: int = 1, across: int = 1
) -> tuple:  # fmt: skip
    """(microseconds by the rates alone, and what they are made of): the first step of `features`. Of the right operand
    that `below` blocks share, and the left that `across` do, each loads a part."""
    part_full = max(1.0, w.rows_each / block_m + 0.5)  # tiles below one another, of which the last is half full
    block_m = rows_of_tile(block_m, family, w.m)
    tiles_m, tiles_n = math.ceil(w.m / block_m), math.ceil(w.n / block_n)
    all_steps = math.ceil(w.k / block_k)
    shares = (w.count == 1 or family.grouped) and not w.uneven
    share_a, share_b = (below, across) if family.swap_ab else (across, below)
    blocks, at_once = share_a * share_b, w.multiprocessors
    if blocks > 1:  # a cluster's tiles begin and end together
        at_once = clusters_at_once(w.multiprocessors, blocks) * blocks
    units = math.ceil(tiles_m / share_b) * math.ceil(tiles_n / share_a)
    if w.uneven:
        tiles_m, units = part_full, part_full * math.ceil(tiles_n / share_a) / share_b
    streams = family.split == "stream"
    whole = (units, at_once // blocks) if streams else (tiles_m * tiles_n * w.count, w.multiprocessors)
    split = split_of(family, whole[0], all_steps, whole[1]) if shares else 1
    tiles, steps = units * blocks * w.filled * split, math.ceil(all_steps / split)
    if streams and split > 1:  # one wave of blocks that have as much each
        tiles, steps = at_once, stream_steps(units, all_steps, whole[1]) + ADDED_STEPS
    waves = math.ceil(tiles / at_once)
    a, b = (PENALTY[stride_class(stride)] for stride in (w.a_stride, w.b_stride))
    rows_a, rows_b = block_m // share_a, block_n // share_b
    moved = steps * (rows_a * a + rows_b * b) * block_k * w.a_bytes
    load = waves * moved / MACHINE.load * 1e-3
    multiply = waves * steps * block_m * block_n * block_k * w.a_bytes / 2 / MACHINE.multiply * 1e-3
    l2 = tiles * moved / MACHINE.l2 * 1e-3
    m = w.rows_each
    bytes_all = w.filled * (w.a_bytes * (m * w.k + w.n * w.k) + w.d_bytes * m * w.n)
    memory = bytes_all / MACHINE.memory * 1e-3
    us = MACHINE.fixed * 1e-3 + waves / 2 + (load**4 + multiply**4 + l2**4 + memory**4) ** 0.25
    return us, load, multiply, memory, l2, waves, tiles, steps, split, tiles_m, tiles_n


def features(
    block_m: int, block_n: int, block_k: int, family: Family, w: Work, below: int = 1, across: int = 1
) -> list[float]:  # fmt: skip
    """What the fitted formula weighs: logarithms of the estimate and its parts, their products, and the strides."""
    us, load, multiply, memory, l2, waves, tiles, steps, split, tiles_m, tiles_n = estimate(
        block_m, block_n, block_k, family, w, below, across
    )
    block_m = rows_of_tile(block_m, family, w.m)
    parts = [
        us, 2 + load, 2 + multiply, 2 + memory, 2 + l2, waves, min(tiles / w.multiprocessors, 1),
        w.rows_each / (tiles_m * block_m), w.n / (tiles_n * block_n),
        tiles / (waves * w.multiprocessors) if waves > 1 else 1, steps, split, w.rows_each, w.n, w.k * w.a_bytes / 2,
    ]  # fmt: skip
    logs = [math.log2(x) for x in parts]
    products = [logs[i] * logs[j] for i in range(11) for j in range(i, 11)]
    most = 3 + max(load, multiply, memory, l2)
    strides = []
    for stride in (w.a_stride, w.b_stride):
        c = stride_class(stride)
        strides += [c == 0, c == 1, c == 2, (c == 0) * memory / most, (c == 1) * memory / most, (c == 0) * load / most]
    return [1.0, *logs, *products, *(float(x) for x in strides)]


@dataclass(frozen=True)
class Fit:
    """The weights of one tile and family."""

    weights: tuple[tuple[float, ...], ...]  # of the features, for nn, nt, tn and tt

    def us(self, layout: int, found: list[float]) -> float:
        return 2.0 ** sum(w * x for w, x in zip(self.weights[layout], found, strict=True))


def expected_us(fit: Fit, layout: int, found: list[float], w: Work) -> float:
    """What a fit says: of a single product no less than its bytes take (of groups some may be empty).

    Of rows whose fits say less, C takes the one with the least product of that and the square of its estimate: where a
    fit says 0.8 of the bytes' time, it is right that the tile is a good one for 16 rows of A, and wrong of a tile of 32
    rows for 64.
    """
    us, memory_us = fit.us(layout, found), 2.0 ** found[4] - 2
    return max(us, memory_us) if w.count == 1 else us


@dataclass(frozen=True)
class Tuned:
    """What tuning left of one target: the tiles it ships, in order, and their weights where they were measured."""

    origin: dict
    tiles: dict[
        str, tuple[tuple, ...]
    ]  # layout -> family, block_m, block_n, block_k; of packed groups kernel, cut, ...
    known: tuple[tuple, ...]  # m, n, k, count, layout of 16-bit products (see Work), and the tile that won
    fits: dict[str, Fit]  # by tile and family, such as "128x256x64_coop"


# What select/ is told beside the rows, by the names that aot/templates/table.c.j2 has for it.
CONSTANTS = {
    "machine": astuple(MACHINE), "penalties": PENALTY, "clusters": CLUSTERS, "shared_rows": SHARED_ROWS,
    "shared_elements": SHARED_ELEMENTS, "thin_rows": THIN_ROWS, "stream_k": (MOST_SHARERS, LEAST_STEPS, ADDED_STEPS),
    "far": FAR,
}  # fmt: skip

# What is tuned by itself: dense products and packed groups, of 16-bit operands and of 8-bit ones in three ways.
KINDS = tuple(op + sums for op in ("gemm", "grouped_mm") for sums in ("", "_e4m3", "_e4m3_fast", "_e4m3_blocks"))


def known_of(target: int, kind: str) -> tuple[tuple, ...]:
    """Tuned.known; nothing where nobody has tuned."""
    found = tuned(target, kind)
    return found.known if found else ()


def tuned_name(target: int, kind: str) -> str:
    """What its files are called: measurements, and what is fitted to them."""
    return "_".join(filter(None, (f"sm{target}", kind.removeprefix("gemm").removeprefix("_"))))


@functools.cache
def tuned(target: int, kind: str = "gemm") -> Tuned | None:
    """None for a target, or a kind, that nobody has tuned."""
    path = TUNED / f"{tuned_name(target, kind)}.json"
    if not path.is_file():
        return None
    found = json.loads(path.read_text())
    fits = {name: Fit(tuple(map(tuple, weights))) for name, weights in found["fits"].items()}
    tiles = found["tiles"] if kind.startswith("gemm") else dict.fromkeys(("nn", "nt", "tn", "tt"), found["tiles"])
    tiles = {layout: tuple(map(tuple, own)) for layout, own in tiles.items()}
    return Tuned(found["origin"], tiles, tuple(map(tuple, found["known"])), fits)
