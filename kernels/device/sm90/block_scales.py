"""Scales of blocks for the main loop of 8-bit operands: from memory to shared memory, beside the operands that they
belong to, and onto the products of a line. No kernel here.

Threads copy them, four bytes each, since they stand anywhere (cp.async), and tell the stage's barrier: so they come as
early as the operands do, and a tile waits for nothing that lies in memory. That takes a warp longer than to ask TMA for
operands, so it is a second one that walks over the same tiles.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import power_of_two
from kernels.device.sm90.loader import Stages, meet

BLOCK = gl.constexpr(128)  # of K, in a line of a stage; and of the columns of B that share a scale


@gluon.aggregate
class BlockScales:
    """What blocks of the operands were scaled by, 1 row by 128 of K of A, 128 of K by 128 columns of B; and what stages
    have of them: one for each row of a tile, and one for each 64 columns, which lie in one block."""

    a_scale: gl.tensor
    b_scale: gl.tensor
    a_stride: gl.tensor  # elements from a row's scale, or that of 128 columns, to the next
    a_step: gl.tensor  # from that of 128 of K to the next
    b_stride: gl.tensor
    b_step: gl.tensor
    M: gl.tensor
    N: gl.tensor
    blocks: gl.tensor  # of K: of a line beyond them, which is all zeros, scales are too
    of_a: gl.shared_memory_descriptor  # [line of a stage][rows]
    of_b: gl.shared_memory_descriptor
    SWAP: gl.constexpr  # left is B

    @gluon.jit
    def bring(self, stages, step, k, left, right):
        """One warp, once a stage is empty: a step's scales, and its word to the barrier once they have come."""
        LINES: gl.constexpr = stages.left.LINES
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
        slot = step % stages.STAGES
        rows = (right if self.SWAP else left) + gl.arange(0, self.of_a.shape[1], layout)
        cols = (left if self.SWAP else right) + 64 * gl.arange(0, self.of_b.shape[1], layout)
        at_a = self.a_scale + gl.minimum(rows, self.M - 1).to(gl.int64) * self.a_stride
        at_b = self.b_scale + (gl.minimum(cols, self.N - 1) // BLOCK).to(gl.int64) * self.b_stride
        for line in gl.static_range(LINES):
            block = k * LINES + line
            inside = block < self.blocks
            async_copy.async_load(self.of_a.index(slot * LINES + line), at_a + block * self.a_step, mask=inside)
            async_copy.async_load(self.of_b.index(slot * LINES + line), at_b + block * self.b_step, mask=inside)
        async_copy.mbarrier_arrive(stages.ready.index(slot), increment_count=False)

    @gluon.jit
    def read(self, parts, at, FIRST: gl.constexpr, COLUMN: gl.constexpr = 0, PART: gl.constexpr = 0):
        """Those of a line of a stage, the left and the right operand's for each part of the accumulator from number
        PART on, which begins at this column. This warpgroup has the left rows from FIRST on."""
        rows: gl.constexpr = gl.SliceLayout(1, parts[PART].type.layout)
        cols: gl.constexpr = gl.SliceLayout(0, parts[PART].type.layout)
        WIDTH: gl.constexpr = parts[PART].shape[1]
        if self.SWAP:
            left = self.of_b.index(at).slice(FIRST // 64, 1).load(rows)
            right = self.of_a.index(at).slice(COLUMN, WIDTH).load(cols)
        else:
            left = self.of_a.index(at).slice(FIRST, parts[PART].shape[0]).load(rows)
            right = self.of_b.index(at).slice(COLUMN // 64, 1).load(cols)
        if len(parts) == PART + 1:
            return ((left, right),)
        else:
            return ((left, right),) + self.read(parts, at, FIRST, COLUMN + WIDTH, PART + 1)  # noqa: RUF005

    @gluon.jit
    def add(self, parts, own, read, PART: gl.constexpr = 0):
        """The parts from number PART on with those of `own`, scaled."""
        left, right = read[PART]
        sum = parts[PART] + own[PART] * (left[:, None] * right[None, :])
        if len(parts) == PART + 1:
            return (sum,)
        else:
            return (sum,) + self.add(parts, own, read, PART + 1)  # noqa: RUF005


@gluon.jit
def bring_partition(tiles, stages, scales):
    """One warp, beside the one that brings operands (loader.py): every unit's scales."""
    meet(stages.CLUSTER)
    gdc_wait()  # what the kernel before this one writes may be our scales
    step = 0
    for unit in range(tiles.first(), tiles.count(), tiles.stride()):
        left, right = tiles.place(unit)
        first, count = tiles.steps(unit)
        for i in range(first, first + count):
            stages.wait_empty(step)
            scales.bring(stages, step, i, left, right)
            step += 1


@gluon.aggregate
class ScaleLoader:
    """The same of packed groups, in place of the stages that load_ragged (groups.py) fills."""

    stages: Stages
    scales: BlockScales
    b_plane: gl.tensor  # elements from a group's scales of B to the next one's

    @gluon.jit
    def load_tile(self, step, count, row, col, k, a_plane, b_plane, height):
        s = self.scales
        b_scale = s.b_scale + b_plane.to(gl.int64) * self.b_plane
        own = BlockScales(
            s.a_scale, b_scale, s.a_stride, s.a_step, s.b_stride, s.b_step, s.M, s.N, s.blocks, s.of_a, s.of_b, s.SWAP
        )
        left, right = (col, row) if s.SWAP else (row, col)
        for i in range(count):
            self.stages.wait_empty(step)
            own.bring(self.stages, step, i, left, right)
            step += 1
        return step


@gluon.constexpr_function
def arrivals(blocks):
    """That say a stage is ready: TMA's, and of every thread that brings scales."""
    return 33 if blocks else 1


@gluon.jit
def make_block_scales(
    a_scale, b_scale, a_stride, a_step, b_stride, b_step, M, N, K, tiles, stages, SWAP: gl.constexpr,
    BLOCKS: gl.constexpr,
):  # fmt: skip
    """() where operands are not scaled by blocks."""
    if BLOCKS:
        layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        LINES: gl.constexpr = stages.STAGES * stages.left.LINES
        ROWS: gl.constexpr = power_of_two(tiles.RIGHT if SWAP else tiles.LEFT)
        of_a = gl.allocate_shared_memory(gl.float32, [LINES, ROWS], layout)
        of_b = gl.allocate_shared_memory(gl.float32, [LINES, 4], layout)
        blocks = gl.cdiv(K, BLOCK)
        return (BlockScales(a_scale, b_scale, a_stride, a_step, b_stride, b_step, M, N, blocks, of_a, of_b, SWAP),)
    else:
        return ()
