"""Grouped GEMM for Hopper in Gluon: tensor descriptors, one loading warp that also looks groups up. sm_90a only.

As in the dense pingpong kernel two warpgroups own a tile each and take turns on the tensor cores. Where ends cut the
rows of 16-bit matrices, grouped_swap_sm90.py is faster; this one takes float32 too, ends that cut K (of A stored [K][M]
and B stored [K][N]: TMA begins only at multiples of 16 bytes within a row) and groups of equal size.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue, Output, columns
from kernels.device.sm90.groups import Groups, load_equal, load_ragged
from kernels.device.sm90.loader import barriers, buffers, make_pipeline
from kernels.device.sm90.tile_queue import make_queue


@gluon.aggregate
class GroupOutput:
    """Whole tiles leave through TMA; of one that ends with its group only those rows, by plain stores."""

    out: Output
    d_ptr: gl.tensor
    ldd: gl.tensor
    batch_stride_bias: gl.tensor
    zero_to: gl.tensor  # D's rows from the end of the last group up to this one are set to zero

    @gluon.jit
    def zero_rows(self, first, CONSUMER: gl.constexpr):
        STEP: gl.constexpr = 128 // self.out.d_desc.dtype.primitive_bitwidth
        WIDTH: gl.constexpr = 128 * STEP
        layout: gl.constexpr = gl.BlockedLayout([STEP], [32], [4], [0])
        n = self.out.epilogue.N // STEP * STEP
        begin = first.to(gl.int64) + 2 * gl.program_id(0) + CONSUMER
        for row in range(begin, self.zero_to.to(gl.int64), 2 * gl.num_programs(0)):
            for col in range(0, n, WIDTH):
                cols = col + gl.arange(0, WIDTH, layout)
                at = row * (self.ldd // STEP * STEP) + cols
                gl.store(self.d_ptr + at, gl.zeros([WIDTH], self.out.d_desc.dtype, layout), mask=cols < n)

    @gluon.jit
    def copy_rows(self, buf, row, end, col):
        """What stands in a buffer, as far as the group goes. N and ldd are multiples of 16 bytes: the guard asks it."""
        STEP: gl.constexpr = 128 // buf.dtype.primitive_bitwidth
        ACROSS: gl.constexpr = buf.shape[1] // STEP if buf.shape[1] // STEP < 32 else 32
        layout: gl.constexpr = gl.BlockedLayout([1, STEP], [32 // ACROSS, ACROSS], [4, 1], [1, 0])
        rows = row + gl.arange(0, buf.shape[0], gl.SliceLayout(1, layout))
        cols = col // STEP * STEP + gl.arange(0, buf.shape[1], gl.SliceLayout(0, layout))
        inside = (rows[:, None] < end) & (cols[None, :] < self.out.epilogue.N // STEP * STEP)
        at = rows.to(gl.int64)[:, None] * (self.ldd // STEP * STEP) + cols[None, :]
        gl.store(self.d_ptr + at, buf.load(layout), mask=inside)
        fence_async_shared()  # the buffer is read before TMA writes it again

    @gluon.jit
    def store(self, acc, CONSUMER: gl.constexpr, phase, work):
        own = self.out.epilogue.moved(work.group.to(gl.int64) * self.batch_stride_bias)
        alpha = gl.where(work.count > 0, own.alpha, 0.0)  # an empty group has no product that Inf could multiply
        epilogue = Epilogue(own.bias_ptr, own.N, alpha, own.beta, own.activation, own.ACTIVATE, own.SWAP)
        buf = self.out.bufs.index(CONSUMER)
        parts = columns(acc, self.out.PARTS)
        for i in gl.static_range(self.out.PARTS):
            to = work.col + i * parts[i].shape[1]
            phase = self.out.stage(parts[i], CONSUMER, phase, work.row, to, epilogue)
            if work.row + acc.shape[0] <= work.end:
                tma.async_store(self.out.d_desc, [work.row, to], buf)
            else:
                self.copy_rows(buf, work.row, work.end, to)
        return phase


@gluon.jit
def cut(buf, last, AXIS: gl.constexpr):
    """Set what a buffer holds of K from `last` on to zero: the next group's, whose numbers may be no numbers."""
    WIDTH: gl.constexpr = 128 // buf.dtype.primitive_bitwidth
    ACROSS: gl.constexpr = 8  # lanes: a row of 128 bytes
    layout: gl.constexpr = gl.BlockedLayout([1, WIDTH], [32 // ACROSS, ACROSS], [gl.num_warps(), 1], [1, 0])
    k = gl.arange(0, buf.shape[AXIS], gl.SliceLayout(1 - AXIS, layout))
    inside = k[:, None] < last if AXIS == 0 else k[None, :] < last
    x = buf.load(layout)
    buf.store(gl.where(inside, x, gl.zeros_like(x)))


@gluon.jit
def cut_operands(pipeline, step, last, BOTH: gl.constexpr = True):
    """Where ends cut rows, A's row ends with K, and B alone may go on."""
    slot = step % pipeline.STAGES
    if BOTH:
        cut(pipeline.a_bufs.index(slot), last, 0 if pipeline.TRANS_A else 1)
    cut(pipeline.b_bufs.index(slot), last, 1 if pipeline.TRANS_B else 0)
    fence_async_shared()  # the tensor cores read what was written here
    gl.barrier()


@gluon.jit
def consume(pipeline, queue, out, turns, FIRST: gl.constexpr, EQUAL: gl.constexpr, WHOLE_K: gl.constexpr):
    """Four warps: multiply and store every second tile of this program, beginning with tile FIRST."""
    K_BITS: gl.constexpr = 256  # of K, one instruction takes 32 bytes
    ROWS: gl.constexpr = out.out.d_desc.block_type.shape[0]
    COLS: gl.constexpr = out.out.d_desc.block_type.shape[1] * out.out.PARTS
    BLOCK_K: gl.constexpr = pipeline.b_desc.block_type.shape[1 if pipeline.TRANS_B else 0]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, COLS, K_BITS // pipeline.a_desc.dtype.primitive_bitwidth]
    )
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    phase = 0
    turn = 1 - FIRST  # the first consumer need not wait for its first turn
    n = FIRST
    work = queue.receive(n)
    while work.count >= 0:
        step = work.step
        acc = gl.zeros((ROWS, COLS), gl.float32, layout)
        mbarrier.wait(turns.index(FIRST), turn)
        turn ^= 1
        for i in range(work.count):
            a, b = pipeline.operands(step)
            if (EQUAL or not WHOLE_K) and i == work.count - 1 and work.last < BLOCK_K:
                cut_operands(pipeline, step, work.last, EQUAL)
            acc = warpgroup_mma(a, b, acc, is_async=True, use_acc=i > 0)
            acc = warpgroup_mma_wait(1, deps=(acc,))
            pipeline.release(step + pipeline.STAGES - 1, i > 0)  # the one before this is done
            step += 1
        mbarrier.arrive(turns.index(1 - FIRST), count=1)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        pipeline.release(step + pipeline.STAGES - 1, work.count > 0)
        phase = out.store(acc, FIRST, phase, work)
        n += 2
        work = queue.receive(n)
    out.out.drain()
    if not EQUAL:
        out.zero_rows(work.row, FIRST)


@gluon.jit
def grouped_mm_pingpong(
    a_desc, b_desc, c_desc, d_desc, d_ptr, bias_ptr, offs_ptr, M, N, K, groups, a_step, b_step, d_step,
    ldd, batch_stride_bias, alpha, beta, activation, offs_wide, zero_tail,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, PARTS: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
    EQUAL: gl.constexpr, WHOLE_K: gl.constexpr,
):  # fmt: skip
    """EQUAL: every group has as many tiles, as where ends cut K or there are none. Else ends cut the rows. WHOLE_K: the
    last step in K of a tile does not reach into the next group's B."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    tiles = Output(c_desc, d_desc, buffers(d_desc, 2), barriers(2), epilogue, PARTS)
    out = GroupOutput(tiles, d_ptr, ldd, batch_stride_bias, M * zero_tail)
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, False,
    )  # fmt: skip
    pipeline = make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B)
    queue = make_queue()
    turns = barriers(2)
    gl.warp_specialize(
        [
            (consume, (pipeline, queue, out, turns, 0, EQUAL, WHOLE_K)),
            (consume, (pipeline, queue, out, turns, 1, EQUAL, WHOLE_K)),
            (load_equal if EQUAL else load_ragged, (groups_at, pipeline, queue)),
        ],
        [4, 1],
        [232, 40],
    )
