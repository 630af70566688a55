"""Grouped GEMM for Hopper with operands swapped (swap-AB): tiles as tall as their group needs, in steps of 16 rows.

Rows of A fill the side of the tensor cores that need not be a power of two, and a group's rows are shared out evenly
over as few tiles as hold them: a group of 130 rows costs two tiles of 80 rows, not two of 128. For 16-bit types and an
A whose rows are stored one after the other; ends cut the rows.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue
from kernels.device.sm90.grouped_mm_pingpong import make_group_output
from kernels.device.sm90.groups import Groups, load_ragged
from kernels.device.sm90.loader import barriers, make_stages
from kernels.device.sm90.mainloop import multiply, wait_for_parts, zero_parts
from kernels.device.sm90.tile_queue import make_queue


@gluon.jit
def multiply_rows(stages, parts, turns, work, FIRST: gl.constexpr, MORE: gl.constexpr, MOST: gl.constexpr):
    """The tile's sum in the least width that holds its rows of A, of which it has more than MORE and at most MOST."""
    MIDDLE: gl.constexpr = (MORE + MOST) // 32 * 16
    if MIDDLE == MORE:
        parts, step = multiply(parts, stages, work.step, work.count, work.last, 0, MOST)
        parts = wait_for_parts(parts, MOST)
        mbarrier.arrive(turns.index(1 - FIRST), count=1)
        stages.release(step + stages.STAGES - 1)
        return parts
    else:
        if work.height <= MIDDLE:
            parts = multiply_rows(stages, parts, turns, work, FIRST, MORE, MIDDLE)
        else:
            parts = multiply_rows(stages, parts, turns, work, FIRST, MIDDLE, MOST)
        return parts


@gluon.jit
def consume(stages, queue, out, turns, FIRST: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr):
    """Four warps: multiply and store every second tile, beginning with tile FIRST. COLS are those of the tensor cores:
    the rows of A."""
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    phase = 0
    turn = 1 - FIRST  # the first consumer need not wait for its first turn
    n = FIRST
    work = queue.receive(n)
    while work.count >= 0:
        parts = zero_parts(ROWS, COLS, out.out.MOST)
        mbarrier.wait(turns.index(FIRST), turn)
        turn ^= 1
        parts = multiply_rows(stages, parts, turns, work, FIRST, 0, COLS)
        phase = out.store(parts, FIRST, phase, work)
        n += 2
        work = queue.receive(n)
    out.out.drain()
    out.zero_rows(work.row, FIRST)


@gluon.jit
def grouped_mm_swap(
    a_desc, b_desc, c_desc, d_desc, d_ptr, bias_ptr, offs_ptr, M, N, K, groups, a_step, b_step, d_step,
    ldd, batch_stride_bias, alpha, beta, activation, offs_wide, zero_tail,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    RUN: gl.constexpr, SYMBOL: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, True)
    out = make_group_output(c_desc, d_desc, d_ptr, ldd, epilogue, batch_stride_bias, M * zero_tail)
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, True,
    )  # fmt: skip
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, True, RUN=RUN, RANK=3
    )
    queue = make_queue()
    turns = barriers(2)
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, turns, 0, BLOCK_N, BLOCK_M)),
            (consume, (stages, queue, out, turns, 1, BLOCK_N, BLOCK_M)),
            (load_ragged, (groups_at, stages, queue)),
        ],
        [4, 1],
        [232, 40],
    )
