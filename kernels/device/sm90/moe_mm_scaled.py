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
from triton.language.extra.cuda import gdc_wait

from kernels.device.portable.eight_bits import E4M3, factor_of, numbers, scale_of, to_8_bits
from kernels.device.sm90.block_scales import BLOCK, BlockScales, arrivals, bring_queued, make_ring
from kernels.device.sm90.grouped_mm_scaled import let_go
from kernels.device.sm90.groups import Groups, load_ragged
from kernels.device.sm90.loader import LINE, Stages, barriers, make_described, prefetch_maps
from kernels.device.sm90.mainloop import (
    element_of,
    part_types,
    registers_of,
    step_assembly,
    tied,
    wait_for_parts,
    zero_parts,
)
from kernels.device.sm90.place import places
from kernels.device.sm90.team import alone
from kernels.device.sm90.tickets import make_tickets
from kernels.device.sm90.tile_queue import make_queue

PART = gl.constexpr(64)  # columns whose scale of B is one number
PAIRS = gl.constexpr(2)  # libgemm_gate


@gluon.aggregate
class GatedScales:
    """The scales, for bring_queued (block_scales.py): B's have four places, for 64 columns each, the gate's and then
    up's."""

    stages: Stages
    scales: BlockScales
    b_plane: gl.tensor  # elements from a group's to the next one's
    gate: gl.tensor

    @gluon.jit
    def columns_from(self, col, group, PLACE: gl.constexpr = 0):
        """B's of each place from number PLACE on, of a tile that begins at column `col` of the gate."""
        s = self.scales
        at = col + PLACE % 2 * PART
        at = gl.minimum(gl.where(self.gate == PAIRS, 2 * at, PLACE // 2 * s.N + at), 2 * s.N - 1)
        own = (s.b_scale + group.to(gl.int64) * self.b_plane + (at // BLOCK).to(gl.int64) * s.b_stride,)
        if PLACE == 3:
            return own
        else:
            return own + self.columns_from(col, group, PLACE + 1)

    @gluon.jit
    def load_tile(self, step, count, row, col, k, a_plane, b_plane, height):
        return self.scales.bring(self.stages, step, count, row, 0, self.columns_from(col, b_plane))


@gluon.jit
def begin_half(own, sums, stages, at):
    """The products of a step by themselves, begun, in place of those of `own`. The sums that those were added to go in
    and come out, so that none is added later: there are no registers for both."""
    left = stages.left
    right = stages.right
    REGISTERS: gl.constexpr = registers_of(own)
    ASSEMBLY: gl.constexpr = step_assembly(
        own, 2 * PART, element_of(left.bufs.dtype), (left.LINES, left.ROWS, left.TURNED, left.BOX),
        (right.LINES, right.ROWS, right.TURNED, right.BOX), 1, 0, None, REGISTERS, True,
    )  # fmt: skip
    types: gl.constexpr = part_types(own) + part_types(own)
    given = own + sums + (at.left, at.right)
    made = gl.inline_asm(ASSEMBLY, tied(2 * REGISTERS, 2), given, types, is_pure=False)
    return (made[0], made[1]), (made[2], made[3])


@gluon.jit
def scaled_by(of_rows, ring, line, HALF: gl.constexpr):
    """The scales of two parts' products."""
    return of_rows * ring.column_at(line, 2 * HALF), of_rows * ring.column_at(line, 2 * HALF + 1)


@gluon.jit
def add_half(parts, own, scales):
    """Two parts with the products of a step, scaled."""
    return parts[0] + own[0] * scales[0][:, None], parts[1] + own[1] * scales[1][:, None]


@gluon.jit
def multiply_gated(gate, up, stages, scales, step, count, FIRST: gl.constexpr):
    """The sums of a tile, the gate's and up's, over `count` steps from number `step` on."""
    rows: gl.constexpr = gl.SliceLayout(1, gate[0].type.layout)
    UP: gl.constexpr = 2 * PART * LINE // 16  # from the gate's rows of B in a stage to up's, in a descriptor's units
    at, first = places(stages, step, FIRST)
    end = step + gl.maximum(count, 1)
    own = up
    stages.wait_at(at.slot, at.parity, True)
    for _ in range(end - step):
        own, up = begin_half(own, up, stages, at)
        of_rows = scales.ring.rows_at(at.slot, scales.low, FIRST, gate[0].shape[0], rows)
        by = scaled_by(of_rows, scales.ring, at.step, 0)
        own = wait_for_parts(own, 2 * PART)
        gate = add_half(gate, own, by)
        own, gate = begin_half(own, gate, stages, at.beside(UP))
        by = scaled_by(of_rows, scales.ring, at.step, 1)
        then = at.after(stages, first)
        stages.wait_at(then.slot, then.parity, then.step < end)
        own = wait_for_parts(own, 2 * PART)
        stages.release_at(at.slot)
        up = add_half(up, own, by)
        at = then
    return gate, up


@gluon.jit
def swish_gated(gate, up, alpha, limit, shift):
    """As portable/gate.py has it, by the short instructions for 2^x and 1/x, a few units off in float32: what the gate
    takes is time in which the tensor cores wait."""
    if limit < float("inf"):
        gate = gl.minimum(gate, limit, propagate_nan=tl.PropagateNan.ALL)
        up = gl.minimum(up, limit, propagate_nan=tl.PropagateNan.ALL)
        up = gl.maximum(up, -limit, propagate_nan=tl.PropagateNan.ALL)
    up += shift
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
    SWAP: gl.constexpr  # accumulators have D's columns first

    @gluon.jit
    def along(self, bias):
        return bias[:, None] if self.SWAP else bias[None, :]

    @gluon.jit
    def gated(self, gate, up, col, group):
        """A part, from D's column `col` on."""
        if self.bias_ptr.to(gl.int64) != 0:
            paired = self.gate == PAIRS
            stride = gl.where(paired, 2, 1)
            AXIS: gl.constexpr = 0 if self.SWAP else 1
            cols = col + gl.arange(0, gate.shape[AXIS], gl.SliceLayout(1 - AXIS, gate.type.layout))
            at = self.bias_ptr + group.to(gl.int64) * self.batch_stride_bias + cols * stride
            gate += self.along(gl.load(at, mask=cols < self.N, other=0.0).to(gl.float32))
            at += gl.where(paired, 1, self.N)
            up += self.along(gl.load(at, mask=cols < self.N, other=0.0).to(gl.float32))
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
        gl.barrier()  # rows are stored by other threads than made them
        self.store_rows(buf, row, work)

    @gluon.jit
    def store_rows(self, buf, row, work):
        """A buffer's, which D has from this row on."""
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
            own = scales.of_tile(work.row, work.col, 0)
            gate, up = multiply_gated(gate, up, stages, own, work.step, work.count, FIRST)
            out.store(gate, up, work.row + FIRST, work, NUMBER)
        else:
            let_go(stages, work)
        n += 1
        work = queue.receive(n)


@gluon.jit
def moe_mm_scaled(
    a_desc, b_desc, q_ptr, scale_ptr, bias_ptr, offs_ptr, M, N, K, groups, b_step, ldd, batch_stride_bias,
    a_scale, b_scale, batch_stride_b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k,
    scale_stride_m, scale_stride_n, gate, gate_alpha, gate_limit, gate_shift, tickets_ptr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SYMBOL: gl.constexpr,
):  # fmt: skip
    """N counts D's columns; B has twice as many, and a tile BLOCK_N of those. N is a multiple of 64."""
    A: gl.constexpr = SYMBOL + "_param_0"
    B: gl.constexpr = SYMBOL + "_param_5"
    COLS: gl.constexpr = BLOCK_N // 2
    ROWS: gl.constexpr = BLOCK_M // 2
    none = gl.to_tensor(0)
    prefetch_maps(SYMBOL, (0, 5))
    left = make_described(a_desc, STAGES, BLOCK_M, BLOCK_K, False, A)
    right = make_described(b_desc, STAGES, BLOCK_N, BLOCK_K, False, B, 1, 1, 0, 2)
    empty, ready = barriers(STAGES, 2), barriers(STAGES, arrivals(True))
    stages = Stages(left, right, empty, ready, gl.to_tensor(0), STAGES, BLOCK_K, 1, 1, False, 3, False, False, alone())
    scales = BlockScales(
        a_scale, b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, M, N,
        gl.cdiv(K, BLOCK), make_ring(STAGES, BLOCK_M, 4, False), BLOCK_M,
    )  # fmt: skip
    gated = GatedScales(stages, scales, batch_stride_b_scale, gate)
    bufs = gl.allocate_shared_memory(gl.uint8, [2, ROWS, COLS], gl.SwizzledSharedLayout(16, 1, 8, [1, 0]))
    out = CastOutput(
        q_ptr, scale_ptr, bias_ptr, batch_stride_bias, ldd, scale_stride_m, scale_stride_n, N, gate, gate_alpha,
        gate_limit, gate_shift, bufs, False,
    )  # fmt: skip
    groups_at = Groups(offs_ptr, none, groups, M, N, K, none, b_step, none, BLOCK_M, COLS, BLOCK_K, GROUP_M, False)
    queue = make_queue(3)  # read by those who multiply, and by who brings scales
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, scales, 0, ROWS)),
            (consume, (stages, queue, out, scales, 1, ROWS)),
            (load_ragged, (groups_at, stages, queue, (), make_tickets(tickets_ptr))),
            (bring_queued, (queue, gated)),
        ],
        [4, 1, 1],
        [232, 40, 40],
    )
