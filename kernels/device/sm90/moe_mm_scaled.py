"""Grouped GEMM of 8-bit operands with scales of blocks for Hopper, gated, and cast again: the first product of a layer
of experts in 8 bits, of large groups.

A tile has 128 rows of A, which two warpgroups share, and of B as many columns of the gate as of up, 128 each, so that a
thread has both numbers of an element. Sums of 128 of K are added up in float32 times their scales, as in promote.py: a
warpgroup multiplies the gate's columns, adds, and then up's, while the tensor cores work for the other one. What the
gate leaves of a row's 128 columns has a scale of its own, and leaves in 8 bits.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.language.extra.cuda import gdc_wait

from kernels.device.portable.eight_bits import E4M3, factor_of, numbers, scale_of, to_8_bits
from kernels.device.sm90.block_scales import BLOCK
from kernels.device.sm90.grouped_mm_scaled import let_go
from kernels.device.sm90.groups import Groups, load_ragged
from kernels.device.sm90.loader import Stages, barriers, make_described
from kernels.device.sm90.mainloop import element_of, part_types, registers_of, step_assembly, wait_for_parts, zero_parts
from kernels.device.sm90.promote import outputs
from kernels.device.sm90.tile_queue import NoQueue, make_queue

PART = gl.constexpr(64)  # columns whose scale of B is one number
PAIRS = gl.constexpr(2)  # libgemm_gate
# That say a stage is ready: TMA's, and of every thread that brings scales. They come here as they came in
# block_scales.py before: with its ways the compiler kept both halves' products at once, and sums went to memory.
ARRIVALS = gl.constexpr(33)


@gluon.aggregate
class GatedStages:
    """The pipeline with the scales of its operands: one for each row of a tile, and for 64 columns four times, those of
    the gate and of up."""

    stages: Stages
    a_scale: gl.tensor
    b_scale: gl.tensor
    a_stride: gl.tensor  # elements from a row's scale, or that of 128 columns, to the next
    a_step: gl.tensor  # from that of 128 of K to the next
    b_stride: gl.tensor
    b_step: gl.tensor
    b_plane: gl.tensor  # from a group's to the next one's
    M: gl.tensor
    N: gl.tensor  # columns of the gate
    blocks: gl.tensor  # of K: of a line beyond them, which is all zeros, scales are too
    gate: gl.tensor
    of_a: gl.shared_memory_descriptor  # [stage][rows]
    of_b: gl.shared_memory_descriptor  # [stage][4]

    @gluon.jit
    def bring(self, step, block, row, col, group):
        """A second loading warp: a step's scales, and its word to the barrier once they have come."""
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
        slot = step % self.stages.STAGES
        rows = row + gl.arange(0, self.of_a.shape[1], layout)
        number = gl.arange(0, 4, layout)
        half, part = number // 2, number % 2 * PART
        cols = gl.where(self.gate == PAIRS, 2 * (col + part), half * self.N + col + part)
        at_a = self.a_scale + gl.minimum(rows, self.M - 1).to(gl.int64) * self.a_stride
        at_b = self.b_scale + group.to(gl.int64) * self.b_plane
        at_b += (gl.minimum(cols, 2 * self.N - 1) // BLOCK).to(gl.int64) * self.b_stride
        inside = block < self.blocks
        async_copy.async_load(self.of_a.index(slot), at_a + block * self.a_step, mask=inside)
        async_copy.async_load(self.of_b.index(slot), at_b + block * self.b_step, mask=inside)
        async_copy.mbarrier_arrive(self.stages.ready.index(slot), increment_count=False)

    @gluon.jit
    def load_tile(self, step, count, row, col, k, a_plane, b_plane, height):
        for i in range(count):
            self.stages.wait_empty(step)
            self.bring(step, i, row, col, b_plane)
            step += 1
        return step


@gluon.jit
def begin_half(like, stages, step, FIRST: gl.constexpr, COLUMN: gl.constexpr):
    """The products of a step by themselves, begun: rows from FIRST on by the right operand's rows from COLUMN on."""
    left = stages.left
    right = stages.right
    slot = step % stages.STAGES
    ASSEMBLY: gl.constexpr = step_assembly(
        like, 2 * PART, element_of(left.bufs.dtype), (left.LINES, left.ROWS, left.TURNED, left.BOX),
        (right.LINES, right.ROWS, right.TURNED, right.BOX), 1, 0, None,
    )  # fmt: skip
    given = (left.bufs, left.at(slot, FIRST), right.bufs, right.at(slot, COLUMN))
    return gl.inline_asm(ASSEMBLY, outputs(registers_of(like), 4), given, part_types(like), is_pure=False)


@gluon.jit
def read_half(like, of_b, NUMBER: gl.constexpr):
    """The scales of two parts' columns."""
    cols: gl.constexpr = gl.SliceLayout(0, like[0].type.layout)
    return of_b.slice(2 * NUMBER, 1).load(cols), of_b.slice(2 * NUMBER + 1, 1).load(cols)


@gluon.jit
def add_half(parts, own, rows_scale, first, second):
    """Two parts with the products of a step, times the scales of their rows and columns."""
    return (
        parts[0] + own[0] * (rows_scale[:, None] * first[None, :]),
        parts[1] + own[1] * (rows_scale[:, None] * second[None, :]),
    )


@gluon.jit
def multiply_gated(gate, up, stages, scales, step, count, FIRST: gl.constexpr):
    """The sums of a tile, the gate's and up's, over `count` steps from number `step` on."""
    rows: gl.constexpr = gl.SliceLayout(1, gate[0].type.layout)
    for _ in range(gl.maximum(count, 1)):
        stages.wait_ready(step)
        slot = step % stages.STAGES
        of_b = scales.of_b.index(slot)
        own = begin_half(gate, stages, step, FIRST, 0)
        of_rows = scales.of_a.index(slot).slice(FIRST, gate[0].shape[0]).load(rows)
        first, second = read_half(gate, of_b, 0)
        gate = add_half(gate, wait_for_parts(own, 2 * PART), of_rows, first, second)
        own = begin_half(up, stages, step, FIRST, 2 * PART)
        first, second = read_half(up, of_b, 1)
        own = wait_for_parts(own, 2 * PART)
        stages.release(step)
        up = add_half(up, own, of_rows, first, second)
        step += 1
    return gate, up


@gluon.jit
def swish_gated(gate, up, alpha, limit, shift):
    """As portable/gate.py has it, by the short instructions for 2^x and 1/x, a few units off in float32: what the gate
    takes is time in which the tensor cores wait."""
    if limit < float("inf"):
        gate = gl.minimum(gate, limit, propagate_nan=tl.PropagateNan.ALL)
        up = gl.minimum(up, limit, propagate_nan=tl.PropagateNan.ALL)
        up = gl.maximum(up, -limit, propagate_nan=tl.PropagateNan.ALL) + shift
    e = gate * (alpha * -1.4426950408889634)
    e = gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [e], gl.float32, True, 1)
    share = gl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [1.0 + e], gl.float32, True, 1)
    return gate * share * up


@gluon.aggregate
class CastOutput:
    """How a tile leaves: gated, cast, by whole chunks of 16 bytes, with a scale for each row."""

    q_ptr: gl.tensor
    scale_ptr: gl.tensor
    bias_ptr: gl.tensor  # of both halves; null: none
    batch_stride_bias: gl.tensor
    ldd: gl.tensor
    scale_stride_m: gl.tensor
    scale_stride_n: gl.tensor
    N: gl.tensor
    gate: gl.tensor
    gate_alpha: gl.tensor
    gate_limit: gl.tensor
    gate_shift: gl.tensor
    bufs: gl.shared_memory_descriptor  # [warpgroup][rows][columns] of bytes

    @gluon.jit
    def gated(self, gate, up, col, group):
        """A part, from D's column `col` on."""
        if self.bias_ptr.to(gl.int64) != 0:
            paired = self.gate == PAIRS
            stride = gl.where(paired, 2, 1)
            cols = col + gl.arange(0, gate.shape[1], gl.SliceLayout(0, gate.type.layout))
            at = self.bias_ptr + group.to(gl.int64) * self.batch_stride_bias + cols * stride
            gate += gl.load(at, mask=cols < self.N, other=0.0).to(gl.float32)[None, :]
            at += gl.where(paired, 1, self.N)
            up += gl.load(at, mask=cols < self.N, other=0.0).to(gl.float32)[None, :]
        return numbers(swish_gated(gate, up, self.gate_alpha, self.gate_limit, self.gate_shift))

    @gluon.jit
    def store(self, gate, up, row, work, NUMBER: gl.constexpr):
        first = self.gated(gate[0], up[0], work.col, work.group)
        second = self.gated(gate[1], up[1], work.col + PART, work.group)
        most = gl.maximum(gl.max(gl.abs(first), 1), gl.max(gl.abs(second), 1))
        scale = scale_of(most, 0, E4M3, True)
        rows = row + gl.arange(0, first.shape[0], gl.SliceLayout(1, first.type.layout))
        at = rows.to(gl.int64) * self.scale_stride_m + (work.col // BLOCK).to(gl.int64) * self.scale_stride_n
        gl.store(self.scale_ptr + at, scale, mask=rows < work.end)
        factor = factor_of(scale, True)[:, None]
        buf = self.bufs.index(NUMBER)
        buf.slice(0, PART, 1).store(to_8_bits(first, factor, E4M3, True))
        buf.slice(PART, PART, 1).store(to_8_bits(second, factor, E4M3, True))
        layout: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [4, 1], [1, 0])
        rows = row + gl.arange(0, buf.shape[0], gl.SliceLayout(1, layout))
        cols = work.col // 16 * 16 + gl.arange(0, buf.shape[1], gl.SliceLayout(0, layout))
        inside = (rows[:, None] < work.end) & (cols[None, :] < self.N // 16 * 16)
        at = rows.to(gl.int64)[:, None] * (self.ldd // 16 * 16) + cols[None, :]
        gl.store(self.q_ptr + at, buf.load(layout), mask=inside)


@gluon.jit
def consume(stages, queue, out, scales, NUMBER: gl.constexpr, ROWS: gl.constexpr):
    """Four warps: multiply and store half the rows of each tile."""
    FIRST: gl.constexpr = NUMBER * ROWS
    gdc_wait()  # what the kernel before this one reads may be our D
    n = 0
    work = queue.receive(n)
    while work.count >= 0:
        if work.row + FIRST < work.end:
            gate = zero_parts(ROWS, 2 * PART, PART)
            up = zero_parts(ROWS, 2 * PART, PART)
            gate, up = multiply_gated(gate, up, stages, scales, work.step, work.count, FIRST)
            out.store(gate, up, work.row + FIRST, work, NUMBER)
        else:
            let_go(stages, work)
        n += 1
        work = queue.receive(n)


@gluon.jit
def moe_mm_scaled(
    a_desc, b_desc, q_ptr, scale_ptr, bias_ptr, offs_ptr, M, N, K, groups, b_step, ldd, batch_stride_bias,
    a_scale, b_scale, batch_stride_b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k,
    scale_stride_m, scale_stride_n, gate, gate_alpha, gate_limit, gate_shift,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SYMBOL: gl.constexpr,
):  # fmt: skip
    """N counts D's columns; B has twice as many, and a tile BLOCK_N of those. N is a multiple of 64."""
    A: gl.constexpr = SYMBOL + "_param_0"
    B: gl.constexpr = SYMBOL + "_param_5"
    COLS: gl.constexpr = BLOCK_N // 2
    ROWS: gl.constexpr = BLOCK_M // 2
    none = gl.to_tensor(0)
    left = make_described(a_desc, STAGES, BLOCK_M, BLOCK_K, False, A)
    right = make_described(b_desc, STAGES, BLOCK_N, BLOCK_K, False, B, 1, 1, 0, 2)
    empty, ready = barriers(STAGES, 2), barriers(STAGES, ARRIVALS)
    stages = Stages(left, right, empty, ready, STAGES, BLOCK_K, 1, 1, False, 3, False, False)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    of_a = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], plain)
    of_b = gl.allocate_shared_memory(gl.float32, [STAGES, 4], plain)
    scales = GatedStages(
        stages, a_scale, b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k,
        batch_stride_b_scale, M, N, gl.cdiv(K, BLOCK), gate, of_a, of_b,
    )  # fmt: skip
    bufs = gl.allocate_shared_memory(gl.uint8, [2, ROWS, COLS], gl.SwizzledSharedLayout(16, 1, 8, [1, 0]))
    out = CastOutput(
        q_ptr, scale_ptr, bias_ptr, batch_stride_bias, ldd, scale_stride_m, scale_stride_n, N, gate, gate_alpha,
        gate_limit, gate_shift, bufs,
    )  # fmt: skip
    groups_at = Groups(offs_ptr, none, groups, M, N, K, none, b_step, none, BLOCK_M, COLS, BLOCK_K, GROUP_M, False)
    queue = make_queue(2)
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, scales, 0, ROWS)),
            (consume, (stages, queue, out, scales, 1, ROWS)),
            (load_ragged, (groups_at, stages, queue)),
            (load_ragged, (groups_at, scales, NoQueue(0))),
        ],
        [4, 1, 1],
        [232, 40, 40],
    )
