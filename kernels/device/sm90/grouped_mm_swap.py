"""Grouped GEMM for Hopper with operands swapped (swap-AB): tiles as tall as their group needs, in steps of 16 rows.

Rows of A fill the side of the tensor cores that need not be a power of two, and a group's rows are shared out evenly
over as few tiles as hold them: a group of 130 rows costs two tiles of 80 rows, not two of 128. For 16-bit types and an
A whose rows are stored one after the other; ends cut the rows.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma_wait
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue, Output, columns
from kernels.device.sm90.grouped_mm_pingpong import GroupOutput, cut_operands
from kernels.device.sm90.groups import Groups, load_ragged
from kernels.device.sm90.loader import barriers, buffers, make_pipeline
from kernels.device.sm90.tile_queue import make_queue
from kernels.device.sm90.wgmma import multiply_step, wait_all


@gluon.jit
def multiply(pipeline, acc, turns, work, FIRST: gl.constexpr, WIDTH: gl.constexpr, WHOLE_K: gl.constexpr):
    """The tile's sum over all steps, WIDTH rows of A."""
    step = work.step
    for i in range(gl.maximum(work.count, 1)):  # there is one at least: a loop that may be skipped costs registers
        pipeline.wait_ready(step)
        slot = step % pipeline.STAGES
        if not WHOLE_K and i == work.count - 1 and work.last < pipeline.b_desc.block_type.shape[0]:
            cut_operands(pipeline, step, work.last, False)
        right = pipeline.a_bufs.index(slot * pipeline.A_BOXES)
        acc = multiply_step(acc, pipeline.b_bufs.index(slot), right, i > 0, WIDTH, not pipeline.TRANS_B)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        pipeline.release(step + pipeline.STAGES - 1, i > 0)  # the one before this is done
        step += 1
    acc = wait_all(acc, WIDTH)
    mbarrier.arrive(turns.index(1 - FIRST), count=1)
    pipeline.release(step + pipeline.STAGES - 1)
    return acc


@gluon.jit
def multiply_rows(
    pipeline, acc, turns, work, FIRST: gl.constexpr, MORE: gl.constexpr, MOST: gl.constexpr, WHOLE_K: gl.constexpr
):
    """The same in the least width that holds the tile's rows, of which it has more than MORE and at most MOST."""
    MIDDLE: gl.constexpr = (MORE + MOST) // 32 * 16
    if MIDDLE == MORE:
        return multiply(pipeline, acc, turns, work, FIRST, MOST, WHOLE_K)
    else:
        if work.height <= MIDDLE:
            acc = multiply_rows(pipeline, acc, turns, work, FIRST, MORE, MIDDLE, WHOLE_K)
        else:
            acc = multiply_rows(pipeline, acc, turns, work, FIRST, MIDDLE, MOST, WHOLE_K)
        return acc


@gluon.jit
def store(out, acc, CONSUMER: gl.constexpr, phase, work):
    """The tile in runs of rows, those that the group has."""
    epilogue = out.out.epilogue.moved(work.group.to(gl.int64) * out.batch_stride_bias)
    buf = out.out.bufs.index(CONSUMER)
    parts = columns(acc, out.out.PARTS)
    ROWS: gl.constexpr = acc.shape[1] // out.out.PARTS
    for i in gl.static_range(out.out.PARTS):
        row = work.row + i * ROWS
        end = gl.minimum(work.end, work.row + work.height)
        if row < end:
            phase = out.out.stage(parts[i], CONSUMER, phase, row, work.col, epilogue)
            if row + ROWS <= end:
                tma.async_store(out.out.d_desc, [row, work.col], buf)
            else:
                out.copy_rows(buf, row, end, work.col)
    return phase


@gluon.jit
def consume(
    pipeline, queue, out, turns, FIRST: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, WHOLE_K: gl.constexpr
):
    """Four warps: multiply and store every second tile, beginning with tile FIRST. COLS are those of the tensor cores:
    the rows of A."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, COLS, 16])
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    phase = 0
    turn = 1 - FIRST  # the first consumer need not wait for its first turn
    n = FIRST
    work = queue.receive(n)
    while work.count >= 0:
        acc = gl.zeros((ROWS, COLS), gl.float32, layout)
        mbarrier.wait(turns.index(FIRST), turn)
        turn ^= 1
        acc = multiply_rows(pipeline, acc, turns, work, FIRST, 0, COLS, WHOLE_K)
        phase = store(out, acc, FIRST, phase, work)
        n += 2
        work = queue.receive(n)
    out.out.drain()
    out.zero_rows(work.row, FIRST)


@gluon.jit
def grouped_mm_swap(
    a_desc, b_desc, c_desc, d_desc, d_ptr, bias_ptr, offs_ptr, M, N, K, groups, a_step, b_step, d_step,
    ldd, batch_stride_bias, alpha, beta, activation, offs_wide, zero_tail,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, PARTS: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
    WHOLE_K: gl.constexpr,
):  # fmt: skip
    """WHOLE_K: the last step in K of a tile does not reach into the next group's B."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, True)
    tiles = Output(c_desc, d_desc, buffers(d_desc, 2), barriers(2), epilogue, PARTS)
    out = GroupOutput(tiles, d_ptr, ldd, batch_stride_bias, M * zero_tail)
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, True,
    )  # fmt: skip
    pipeline = make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B, BLOCK_M // a_desc.block_type.shape[0])
    queue = make_queue()
    turns = barriers(2)
    gl.warp_specialize(
        [
            (consume, (pipeline, queue, out, turns, 0, BLOCK_N, BLOCK_M, WHOLE_K)),
            (consume, (pipeline, queue, out, turns, 1, BLOCK_N, BLOCK_M, WHOLE_K)),
            (load_ragged, (groups_at, pipeline, queue)),
        ],
        [4, 1],
        [232, 40],
    )
