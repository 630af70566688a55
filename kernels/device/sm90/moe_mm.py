"""Grouped GEMM for Hopper as a layer of experts asks for it: rows of A gathered by an index, two halves of N gated.

As grouped_mm_swap.py: operands swapped, tiles as tall as their group needs; two warpgroups take turns, or share a
tile. Four warps load, since rows are gathered by threads. Of a gated product a warpgroup has as many columns of the
gate as of up, in accumulators of their own, so that one thread has both numbers of an element of D.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from kernels.device.portable.gate import swish_gated
from kernels.device.sm90.epilogue import Epilogue, Output
from kernels.device.sm90.gather import COPIERS, GatheredStages, make_gathered_stages
from kernels.device.sm90.grouped_mm_pingpong import GroupOutput
from kernels.device.sm90.grouped_mm_swap import consume
from kernels.device.sm90.groups import Groups, load_ragged
from kernels.device.sm90.loader import barriers
from kernels.device.sm90.tickets import make_tickets
from kernels.device.sm90.tile_queue import make_queue


@gluon.constexpr_function
def part_assembly(blocks, width):
    """Gate and up out of an accumulator of `blocks` * 64 rows, whose rows are theirs in turn, by `width` columns.

    Of an m64 fragment (PTX ISA, wgmma, "Register fragments") a thread has a row and the one eight below; their
    neighbours, which it lacks, are in the lane four further on, or before. One word each way gives every thread both
    numbers: to those of even rows for the upper row, to those of odd rows for the lower one.
    """
    count = blocks * width // 4
    given = [f"${2 * count + i}" for i in range(2 * count)]
    lines = [
        "{ .reg .pred even; .reg .b32 lane; .reg .f32 sent, got;",
        "mov.u32 lane, %laneid;\nand.b32 lane, lane, 4;\nsetp.eq.u32 even, lane, 0;",
    ]
    for out in range(count):
        block, inside = divmod(out, width // 4)
        upper = given[block * width // 2 + inside // 2 * 4 + inside % 2]
        lower = given[block * width // 2 + inside // 2 * 4 + inside % 2 + 2]
        lines += [
            f"selp.f32 sent, {lower}, {upper}, even;\nshfl.sync.bfly.b32 got, sent, 4, 31, -1;",
            f"selp.f32 ${out}, {upper}, got, even;\nselp.f32 ${count + out}, got, {lower}, even;",
        ]
    return "\n".join([*lines, "}"])


@gluon.constexpr_function
def part_constraints(blocks, width):
    count = blocks * width // 4
    return ",".join(["=&f"] * (2 * count) + ["f"] * (2 * count))


@gluon.constexpr_function
def paired_layout(blocks, width, warps):
    """Of what that leaves a warpgroup by itself, or each of a team: 32 rows of D for 64 of the accumulator."""
    columns = [[0, 1 << bit] for bit in range(3, width.bit_length() - 1)]
    rows = [[32 << bit, 0] for bit in range(blocks.bit_length() - 1)]
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 1], *columns, *rows], lane_bases=[[0, 2], [0, 4], [4, 0], [1, 0], [2, 0]],
        warp_bases=[[8, 0], [16, 0], *[[0, 0]] * (warps // 8)], block_bases=[], shape=[blocks * 32, width],
    )  # fmt: skip


@gluon.jit
def pairs_of(acc):
    """The gate's rows and up's of an accumulator where they stand in turn."""
    BLOCKS: gl.constexpr = acc.shape[0] // 64
    WIDTH: gl.constexpr = acc.shape[1]
    like = gl.zeros([BLOCKS * 32, WIDTH], gl.float32, paired_layout(BLOCKS, WIDTH, gl.num_warps()))
    return gl.inline_asm(
        part_assembly(BLOCKS, WIDTH), part_constraints(BLOCKS, WIDTH), [acc], [like.type, like.type], is_pure=True
    )


@gluon.aggregate
class GatedOutput:
    """How a tile of a gated product leaves: gate and up meet, 32 rows of D at a time."""

    plain: GroupOutput
    gate: gl.tensor  # where B's columns for the gate and for up are: 1, halves; 2, in turn
    gate_alpha: gl.tensor
    gate_limit: gl.tensor
    gate_shift: gl.tensor
    PAIRED: gl.constexpr  # rows of the accumulator are the gate's and up's in turn

    @gluon.jit
    def biased(self, acc, bias_ptr, cols, first, stride):
        """With the bias of these columns of D, which begins `first` elements on and stands `stride` apart."""
        N = self.plain.out.epilogue.N
        bias = gl.load(bias_ptr + first + cols * stride, mask=cols < N, other=0.0).to(gl.float32)
        return acc + bias[:, None]

    @gluon.jit
    def store(self, parts, number, phase, work, team):
        """As GroupOutput.store; a tile's columns begin at work.col."""
        out = self.plain.out
        own = out.epilogue
        COUNT: gl.constexpr = len(parts) if self.PAIRED else len(parts) // 2
        bias_ptr = own.bias_ptr
        if bias_ptr.to(gl.int64) != 0:
            bias_ptr += work.group.to(gl.int64) * self.plain.batch_stride_bias
        end = gl.minimum(work.end, work.row + work.height)
        for i in gl.static_range(COUNT):
            row = work.row + i * parts[i].shape[1]
            if row < end:
                if self.PAIRED:
                    gate, up = pairs_of(parts[i])
                else:
                    gate = parts[i]
                    up = parts[COUNT + i]
                gate *= own.alpha
                up *= own.alpha
                if bias_ptr.to(gl.int64) != 0:
                    cols = work.col + gl.arange(0, gate.shape[0], gl.SliceLayout(1, gate.type.layout))
                    paired = self.gate == 2
                    stride = gl.where(paired, 2, 1)
                    gate = self.biased(gate, bias_ptr, cols, 0, stride)
                    up = self.biased(up, bias_ptr, cols, gl.where(paired, 1, own.N), stride)
                acc = swish_gated(gate, up, self.gate_alpha, self.gate_limit, self.gate_shift)
                buf = out.bufs.index(number * out.BUFFERS + i % out.BUFFERS)
                tma.store_wait(pendings=0)
                team.meet()  # as in Output.stage, this one and the next
                buf.permute((1, 0)).store(acc.to(buf.dtype))
                fence_async_shared()
                team.meet()
                self.plain.leave(buf, row, end, work.col, team)
        return phase

    @gluon.jit
    def finish(self, work, team):
        self.plain.finish(work, team)


@gluon.jit
def moe_mm(
    b_desc, d_desc, a_ptr, rows_ptr, d_ptr, bias_ptr, offs_ptr, M, N, K, groups, stored, b_step,
    lda, ldd, batch_stride_bias, alpha, activation, gate, gate_alpha, gate_limit, gate_shift, tickets_ptr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SYMBOL: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr, GATED: gl.constexpr,
    PINGPONG: gl.constexpr, PAIRED: gl.constexpr, LEAST: gl.constexpr, COUNTED: gl.constexpr,
):  # fmt: skip
    """N counts D's columns; of a gated product B has twice as many, and a tile BLOCK_N of those. PAIRED: they stand in
    turn along B's stored rows, so that TMA brings both together."""
    HALVES: gl.constexpr = 2 if GATED and not PAIRED else 1
    PER: gl.constexpr = 2 if PAIRED else 1  # columns of B side by side for each of D
    COLS: gl.constexpr = BLOCK_N // (2 if GATED else 1)
    OWNERS: gl.constexpr = 1 if PINGPONG else 2
    none = gl.to_tensor(0)
    epilogue = Epilogue(bias_ptr, N, alpha, gl.to_tensor(0.0), activation, ACTIVATE, True, ())
    # What nobody waits at has no barriers of its own: the compiler would give their memory to others while they are
    # valid.
    queue = make_queue(OWNERS)
    turns = queue.full
    if PINGPONG:
        turns = barriers(2)
    MOST: gl.constexpr = d_desc.block_type.shape[0]
    bufs = gl.allocate_shared_memory(d_desc.dtype, [2] + d_desc.block_type.shape, d_desc.layout)  # noqa: RUF005
    output = Output((d_desc,), (d_desc,), bufs, queue.full, epilogue, MOST, 1, SYMBOL, 5, 5)
    plain = GroupOutput(output, d_ptr, ldd, batch_stride_bias, none)
    out = plain
    if GATED:
        out = GatedOutput(plain, gate, gate_alpha, gate_limit, gate_shift, PAIRED)
    groups_at = Groups(
        offs_ptr, none, groups, M, N, K, none, b_step, none, BLOCK_M, COLS, BLOCK_K, GROUP_M, True,
    )  # fmt: skip
    stages = make_gathered_stages(b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_B, HALVES, OWNERS)
    tickets = make_tickets(tickets_ptr, COPIERS // 32) if COUNTED else ()
    loader = GatheredStages(stages, a_ptr, rows_ptr, lda, stored, K, PER)
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, turns, BLOCK_N // OWNERS, BLOCK_M, MOST, not PINGPONG, LEAST, PER)),
            (load_ragged, (groups_at, loader, queue, (), tickets)),
        ],
        [4],
        [56] if BLOCK_M > 128 else [72],  # a tile of more rows has sums of 192 registers: 56 here leave 224 to who adds
    )
