"""Grouped GEMM for Hopper with operands swapped (swap-AB): tiles as tall as their group needs, in steps of 16 rows.

Rows of A fill the side of the tensor cores that need not be a power of two, and a group's rows are shared out evenly
over as few tiles as hold them: a group of 200 rows costs tiles of 112 and 96 rows, not two of 128 or 192. For 16-bit
types and an A whose rows are stored one after the other; ends cut the rows.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue
from kernels.device.sm90.grouped_mm_pingpong import make_group_output
from kernels.device.sm90.groups import Groups, load_ragged
from kernels.device.sm90.loader import barriers, make_stages
from kernels.device.sm90.mainloop import multiply, wait_for_parts, zero_parts
from kernels.device.sm90.team import make_team
from kernels.device.sm90.tickets import make_tickets
from kernels.device.sm90.tile_queue import make_queue


@gluon.jit
def multiply_rows(
    stages, parts, turns, work, number, first, MORE: gl.constexpr, MOST: gl.constexpr, COOP: gl.constexpr,
    LEAST: gl.constexpr,
):  # fmt: skip
    """The tile's sum in the least width, from LEAST on, that holds its rows of A: it has more than MORE and at most
    MOST."""
    MIDDLE: gl.constexpr = (MORE + MOST) // 32 * 16
    if (MIDDLE == MORE) | (MOST <= LEAST):
        parts, step = multiply(parts, stages, work.step, work.count, work.last, first, MOST, TO_ZEROS=True)
        if not COOP:
            stages.team.tell(turns.index(1 - number))
        parts = wait_for_parts(parts, MOST)
        stages.release(step + stages.STAGES - 1)
        return parts
    else:
        if work.height <= MIDDLE:
            parts = multiply_rows(stages, parts, turns, work, number, first, MORE, MIDDLE, COOP, LEAST)
        else:
            parts = multiply_rows(stages, parts, turns, work, number, first, MIDDLE, MOST, COOP, LEAST)
        return parts


@gluon.jit
def consume(
    stages, queue, out, turns, ROWS: gl.constexpr, WIDTH: gl.constexpr, MOST: gl.constexpr, COOP: gl.constexpr,
    LEAST: gl.constexpr, PER: gl.constexpr = 1,
):  # fmt: skip
    """Two warpgroups: each multiplies and stores every second tile, or COOP, half the columns of each. ROWS are those
    of the tensor cores, columns of B, that it multiplies, PER of them side by side for each of D; WIDTH is the tile's,
    in rows of A."""
    HALVES: gl.constexpr = stages.left.HALVES
    OWN: gl.constexpr = ROWS // HALVES
    team = make_team()
    number = team.number
    stages = stages.of_consumer(team)
    first = number * OWN if COOP else 0
    column = number * (OWN // PER) if COOP else 0
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    phase = 0
    turn = 1 - number  # the first consumer need not wait for its first turn
    n = gl.to_tensor(0) if COOP else number
    work = queue.receive(n, team)
    while work.count >= 0:
        if HALVES == 2:
            parts = zero_parts(OWN, WIDTH, MOST) + zero_parts(OWN, WIDTH, MOST)
        else:
            parts = zero_parts(ROWS, WIDTH, MOST)
        if not COOP:
            team.wait(turns.index(number), turn)
            turn ^= 1
        parts = multiply_rows(stages, parts, turns, work, number, first, 0, WIDTH, COOP, LEAST)
        phase = out.store(parts, number, phase, work.beside(column), team)
        n += 1 if COOP else 2
        work = queue.receive(n, team)
    out.finish(work, team)


@gluon.jit
def grouped_mm_swap(
    a_desc, b_desc, c_desc, d_desc, d_ptr, bias_ptr, offs_ptr, M, N, K, groups, a_step, b_step, d_step,
    ldd, batch_stride_bias, alpha, beta, activation, offs_wide, zero_tail, tickets_ptr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    RUN: gl.constexpr, SYMBOL: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
    PINGPONG: gl.constexpr, LEAST: gl.constexpr, COUNTED: gl.constexpr,
):  # fmt: skip
    OWNERS: gl.constexpr = 1 if PINGPONG else 2
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, True, ())
    out = make_group_output(SYMBOL, c_desc, d_desc, d_ptr, ldd, epilogue, batch_stride_bias, M * zero_tail)
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, True,
    )  # fmt: skip
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, True, OWNERS, RUN=RUN, RANK=3
    )
    tickets = make_tickets(tickets_ptr) if COUNTED else ()
    queue = make_queue(OWNERS)
    turns = queue.full  # a barrier that nobody waits at would lie where others write
    if PINGPONG:
        turns = barriers(2)
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, turns, BLOCK_N // OWNERS, BLOCK_M, out.out.MOST, not PINGPONG, LEAST)),
            (load_ragged, (groups_at, stages, queue, (), tickets)),
        ],
        [1],
        [40],
    )
