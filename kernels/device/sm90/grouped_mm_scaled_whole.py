"""Grouped GEMM of 8-bit operands with scales for Hopper where every group has as many tiles, and each lies whole in its
group: ends cut K, or there are none. What grouped_mm_whole.py is of 16 bits: the same warps beside each other, the
tiles, order and main loops of the dense kernels.

Operands are contiguous along K: a group begins inside a line, and two warps clear what stands before and behind it.
Scales are a number for each row of A and column of a group's B, or one for each operand. Those of the next tile are
asked for before this one leaves: of few steps, a tile would wait for its own.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue, make_output
from kernels.device.sm90.grouped_mm_pingpong import of_group
from kernels.device.sm90.grouped_mm_whole import find_partition, load_partition, store
from kernels.device.sm90.groups import Groups, grain_of
from kernels.device.sm90.loader import barriers, make_stages, prefetch_maps
from kernels.device.sm90.mainloop import multiply, wait_for_parts, zero_parts
from kernels.device.sm90.promote import multiply_promoted
from kernels.device.sm90.scales import Scales, make_scales
from kernels.device.sm90.scheduler import Tiles
from kernels.device.sm90.tails import clear_partition, make_tails
from kernels.device.sm90.team import make_team
from kernels.device.sm90.tile_queue import make_queue


@gluon.jit
def ask(one, work, a_stride, b_stride, first):
    """A tile's scales on their way, from row `first` of its left side on. An empty group has no product that they could
    make NaN, and where there is no tile any more there are none: 1."""
    a_scale = one.a_scale + work.group.to(gl.int64) * a_stride
    b_scale = one.b_scale + work.group.to(gl.int64) * b_stride
    scaling = gl.where(work.height > 0, one.scaling, 0)
    own = Scales(a_scale, b_scale, scaling, one.M, one.N, one.of_left, one.of_right, one.SWAP)
    return own.ask(work.col + first, work.row)


@gluon.jit
def consume(
    tiles, stages, queue, out, turns, d_step, batch_stride_bias, a_stride, b_stride, ROWS: gl.constexpr,
    COOP: gl.constexpr, PROMOTE: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Two warpgroups: each multiplies and stores every second tile, or COOP its ROWS rows of each."""
    team = make_team()
    number = team.number
    stages = stages.of_consumer(team)
    first = number * ROWS if COOP else 0
    gdc_wait()  # what the kernel before this one reads may be our D
    phase = 0
    turn = 1 - number  # the first consumer need not wait for its first turn
    n = gl.to_tensor(0) if COOP else number
    work = queue.receive(n, team)
    asked = ask(out.epilogue.scales[0], work, a_stride, b_stride, first)
    while work.count >= 0:
        parts = zero_parts(ROWS, tiles.RIGHT, out.MOST)
        if not COOP:
            team.wait(turns.index(number), turn)
            turn ^= 1
        if PROMOTE:
            parts, step, _ = multiply_promoted(
                parts, stages, (), work.step, work.count, first, tiles.RIGHT, REGISTERS, COOP
            )
        else:
            parts, step = multiply(parts, stages, work.step, work.count, work.last, first, tiles.RIGHT)
        if not COOP:
            team.tell(turns.index(1 - number))
        n += 1 if COOP else 2
        ahead = queue.receive(n, team)  # while the last step is under way
        if not PROMOTE:
            parts = wait_for_parts(parts, tiles.RIGHT)
            stages.release(step + stages.STAGES - 1)
        of_group(out.epilogue, work.group, 0, work.height > 0).spread(asked, number, team)
        asked = ask(out.epilogue.scales[0], ahead, a_stride, b_stride, first)
        phase = store(out, parts, number, phase, work, d_step, batch_stride_bias, team, first)
        work = ahead
    out.drain()


@gluon.jit
def grouped_mm_scaled_whole(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, offs_ptr, M, N, K, groups, a_step, b_step, d_step,
    lda, ldb, batch_stride_bias, alpha, activation, offs_wide,
    a_scale, b_scale, scaling, batch_stride_a_scale, batch_stride_b_scale,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, SYMBOL: gl.constexpr, SWAP: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr,
    ACTIVATE: gl.constexpr, PINGPONG: gl.constexpr, PROMOTE: gl.constexpr,
):  # fmt: skip
    """d_step: stored rows of D from one group to the next. C is not read: its descriptor only says how D is stored."""
    LEFT: gl.constexpr = BLOCK_N if SWAP else BLOCK_M
    RIGHT: gl.constexpr = BLOCK_M if SWAP else BLOCK_N
    COOP: gl.constexpr = not PINGPONG
    OWNERS: gl.constexpr = 2 if COOP else 1
    ROWS: gl.constexpr = LEFT // OWNERS
    REGISTERS: gl.constexpr = (
        232  # a thread's; those that multiply have as many if the other warps take no more than 40
    )
    left_rows, right_rows = (N, M) if SWAP else (M, N)
    one = gl.to_tensor(1)
    tiles = Tiles(left_rows, right_rows, K, gl.to_tensor(True), one, LEFT, RIGHT, BLOCK_K, GROUP_M, 1, 1, False)
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, False,
    )  # fmt: skip
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, SWAP, OWNERS, RANK=3
    )
    prefetch_maps(SYMBOL, (15,))  # D's
    scales = make_scales(a_scale, b_scale, scaling, M, N, 2, ROWS, RIGHT, SWAP, True)
    epilogue = Epilogue(bias_ptr, N, alpha, gl.to_tensor(0.0), activation, ACTIVATE, SWAP, scales)
    out = make_output(SYMBOL, (c_desc,), (d_desc,), epilogue, 2, BUFFERS)
    queue = make_queue(OWNERS + 2)
    tails = make_tails(STAGES)
    turns = stages.empty  # a barrier that nobody waits at would lie where others write
    if PINGPONG:
        turns = barriers(2)
    gl.barrier()  # barriers are made before anybody waits for one
    gl.warp_specialize(
        [
            (consume, (tiles, stages, queue, out, turns, d_step, batch_stride_bias, batch_stride_a_scale,
                       batch_stride_b_scale, ROWS, COOP, PROMOTE, REGISTERS)),
            (find_partition, (groups_at, tiles, queue, True, grain_of(lda, ldb))),
            (load_partition, (groups_at, stages, queue, tails, True)),
            (clear_partition, (stages, queue, tails, True)),
        ],
        [1, 1, 2],
        [40, 40, 40],
    )  # fmt: skip
