"""Scales of blocks for the main loop of 8-bit operands: which of them a tile needs, from memory to shared memory
(scale_ring.py) beside the operands that they belong to, and onto the products of a line. No kernel here.

A second loading warp brings them. Of one product it goes over the same units as the first one (bring_partition); of
packed groups it is told each tile where warpgroups share them (bring_queued), and looks tiles up by itself where they
take turns (load_ragged). It must not take longer for a step than the tensor cores do, 600 cycles, and an instruction
takes it ten.
"""

import math

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.loader import Stages, meet
from kernels.device.sm90.scale_ring import CHUNK, ScaleRing, low_of, make_ring, promise
from kernels.device.sm90.scales import power_of_two

BLOCK = gl.constexpr(128)  # of K, in a line of a stage; and of the columns of B that share a scale


@gluon.constexpr_function
def places_of(width):
    """Blocks of 128 columns in which a tile of this width may lie: it begins at any multiple of it."""
    grain = math.gcd(width, 128)
    return (128 - grain + width - 1) // 128 + 1


@gluon.constexpr_function
def arrivals(blocks):
    """That say a stage is ready: TMA's, and that of the warp that brings scales."""
    return 2 if blocks else 1


@gluon.jit
def moved(pointers, elements):
    if len(pointers) == 1:
        return (pointers[0] + elements,)
    else:
        return (pointers[0] + elements,) + moved(pointers[1:], elements)  # noqa: RUF005


@gluon.aggregate
class TileScales:
    """Those of a tile, for who multiplies."""

    ring: ScaleRing
    low: gl.tensor  # word of each line from which A's lie
    column: gl.tensor  # where in its block of B's columns the tile begins

    @gluon.jit
    def of_column(self, line, column):
        """B's, of this column of the tile."""
        place = 0
        if self.ring.PLACES > 1:
            place = (self.column + column) // BLOCK
        return self.ring.column_at(line, place)

    @gluon.jit
    def read_right(self, parts, at, line, COLUMN: gl.constexpr, PART: gl.constexpr):
        """The right operand's of each part from number PART on, which begins at this column."""
        cols: gl.constexpr = gl.SliceLayout(0, parts[PART].type.layout)
        WIDTH: gl.constexpr = parts[PART].shape[1]
        own = self.ring.rows_at(at, 0, COLUMN, WIDTH, cols) if self.ring.SWAP else self.of_column(line, COLUMN)
        if len(parts) == PART + 1:
            return (own,)
        else:
            return (own,) + self.read_right(parts, at, line, COLUMN + WIDTH, PART + 1)  # noqa: RUF005

    @gluon.jit
    def read(self, parts, at, line, row):
        """Those of a line of a stage, number `line` of all: the left operand's rows from `row` on, which this
        warpgroup has, and the right one's for each part of the accumulator."""
        rows: gl.constexpr = gl.SliceLayout(1, parts[0].type.layout)
        if self.ring.SWAP:
            left = self.of_column(line, row)
        else:
            left = self.ring.rows_at(at, self.low, row, parts[0].shape[0], rows)
        return left, self.read_right(parts, at, line, 0, 0)

    @gluon.jit
    def products(self, read, PART: gl.constexpr = 0):
        """Of A's and B's, for each part from number PART on; of operands that are not swapped."""
        left, right = read
        if len(right) == PART + 1:
            return (left * right[PART],)
        else:
            return (left * right[PART],) + self.products(read, PART + 1)  # noqa: RUF005

    @gluon.jit
    def add(self, parts, own, read, PART: gl.constexpr = 0):
        """The parts from number PART on with those of `own`, scaled."""
        left, right = read
        if self.ring.SWAP:
            scale = (right[PART] * left)[None, :]
        else:
            rows: gl.constexpr = gl.SliceLayout(1, parts[PART].type.layout)
            scale = gl.convert_layout(left * right[PART], rows, assert_trivial=True)[:, None]
        sum = parts[PART] + own[PART] * scale
        if len(parts) == PART + 1:
            return (sum,)
        else:
            return (sum,) + self.add(parts, own, read, PART + 1)  # noqa: RUF005


@gluon.aggregate
class BlockScales:
    """What blocks of the operands were scaled by, 1 row by 128 of K of A and 128 of K by 128 columns of B, and where in
    shared memory that goes."""

    a_scale: gl.tensor
    b_scale: gl.tensor
    a_stride: gl.tensor  # elements from a row's scale to the next
    a_step: gl.tensor  # from that of 128 of K to the next
    b_stride: gl.tensor  # from that of 128 columns to the next
    b_step: gl.tensor  # as a_step
    M: gl.tensor
    N: gl.tensor
    blocks: gl.tensor  # of K
    ring: ScaleRing
    HEIGHT: gl.constexpr  # rows of A that a tile has

    @gluon.jit
    def rows_from(self, row, block):
        """A's of a tile that begins at this row and block of K."""
        if self.ring.IN_CLUSTER:  # a block may be without a tile, and does as if it were of the last row
            row = gl.minimum(row, self.M - 1)
        return self.a_scale + row.to(gl.int64) * self.a_stride + block * self.a_step

    @gluon.jit
    def columns_from(self, col, block, b_plane, PLACE: gl.constexpr = 0):
        """B's of each place from number PLACE on."""
        number = gl.minimum(gl.minimum(col, self.N - 1) // BLOCK + PLACE, (self.N - 1) // BLOCK)
        own = (self.b_scale + b_plane + number.to(gl.int64) * self.b_stride + block * self.b_step,)
        if self.ring.PLACES == PLACE + 1:
            return own
        else:
            return own + self.columns_from(col, block, b_plane, PLACE + 1)

    @gluon.jit
    def bring(self, stages, step, count, row, block, from_b):
        """One warp: a tile's scales, `count` steps from block `block` of K on, each once its stage is empty, B's from
        these sources on. Returns the number of the step after them. A line of a step beyond K, whose products are all
        zeros, has the last line's scales."""
        LINES: gl.constexpr = stages.left.LINES
        STEPS: gl.constexpr = CHUNK // LINES
        from_a = self.rows_from(row, block)
        lines = self.blocks - block
        rows = gl.minimum(self.M - row, self.HEIGHT)
        if self.ring.IN_CLUSTER:
            rows = gl.maximum(rows, 1)
        low = low_of(from_a)
        bulk = self.ring.is_bulk(low, self.a_stride, self.a_step)
        for first in range(0, count, STEPS):
            chunk = gl.minimum(count - first, STEPS)
            stages.wait_empty(step)
            self.ring.gather_columns(step * LINES, chunk * LINES, from_b, self.b_step, lines)
            promise(self.ring.address(stages.ready.index(step % stages.STAGES)))
            if bulk:
                self.ring.fetch_rows(stages, step, chunk, from_a, self.a_step, rows, lines)
            else:
                for i in range(chunk):
                    stages.wait_empty(step + i)
                    slot = (step + i) % stages.STAGES
                    for line in gl.static_range(LINES):
                        at = gl.minimum(i * LINES + line, lines - 1)
                        source = from_a + at * self.a_step
                        self.ring.gather_rows(slot * LINES + line, source, rows, self.a_stride, self.ring.first(low))
                    promise(self.ring.address(stages.ready.index(slot)))
                    mbarrier.arrive(stages.ready.index(slot), count=1)
            step += chunk
            lines -= CHUNK
            from_a += CHUNK * self.a_step
            from_b = moved(from_b, CHUNK * self.b_step)
        return step

    @gluon.jit
    def of_tile(self, row, col, block):
        """A tile's, which begins there."""
        return TileScales(self.ring, self.ring.first(low_of(self.rows_from(row, block))), col % BLOCK)


@gluon.jit
def tile_scales(blocks, left, right, block):
    """() where operands are not scaled by blocks. Of a tile that begins there and at this block of K."""
    if len(blocks) > 0:
        row, col = (right, left) if blocks[0].ring.SWAP else (left, right)
        return (blocks[0].of_tile(row, col, block),)
    else:
        return ()


@gluon.jit
def bring_partition(tiles, stages, scales):
    """One warp, beside the one that brings operands (loader.py): every unit's scales."""
    meet(stages.CLUSTER)
    gdc_wait()  # what the kernel before this one writes may be our scales
    step = 0
    for unit in range(tiles.first(), tiles.count(), tiles.stride()):
        left, right = tiles.place(unit)
        first, count = tiles.steps(unit)
        row, col = (right, left) if stages.SWAP else (left, right)
        block = first * stages.left.LINES
        step = scales.bring(stages, step, count, row, block, scales.columns_from(col, block, 0))


@gluon.aggregate
class ScaleLoader:
    """A tile's scales where groups are packed: for bring_queued, or in place of the stages that load_ragged (groups.py)
    fills. b_plane is then the group's number."""

    stages: Stages
    scales: BlockScales
    b_plane: gl.tensor  # elements from a group's scales of B to the next one's

    @gluon.jit
    def load_tile(self, step, count, row, col, k, a_plane, b_plane, height):
        sources = self.scales.columns_from(col, 0, b_plane.to(gl.int64) * self.b_plane)
        return self.scales.bring(self.stages, step, count, row, 0, sources)


@gluon.jit
def bring_queued(queue, scales):
    """One warp, beside the one that brings operands and tells which tiles: every tile's scales."""
    gdc_wait()  # what the kernel before this one writes may be our scales
    n = 0
    work = queue.receive(n)
    while work.count >= 0:
        scales.load_tile(work.step, work.count, work.row, work.col, 0, 0, work.group, work.height)
        n += 1
        work = queue.receive(n)


@gluon.jit
def make_block_scales(
    a_scale, b_scale, a_stride, a_step, b_stride, b_step, M, N, K, tiles, stages, SWAP: gl.constexpr,
    BLOCKS: gl.constexpr,
):  # fmt: skip
    """() where operands are not scaled by blocks."""
    if BLOCKS:
        HEIGHT: gl.constexpr = tiles.RIGHT if SWAP else tiles.LEFT
        WIDTH: gl.constexpr = tiles.LEFT if SWAP else tiles.RIGHT
        LINES: gl.constexpr = stages.STAGES * stages.left.LINES
        ring = make_ring(LINES, power_of_two(HEIGHT), places_of(WIDTH), SWAP, stages.IN_CLUSTER)
        blocks = gl.cdiv(K, BLOCK)
        return (BlockScales(a_scale, b_scale, a_stride, a_step, b_stride, b_step, M, N, blocks, ring, HEIGHT),)
    else:
        return ()
