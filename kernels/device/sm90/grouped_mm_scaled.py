"""Grouped GEMM of 8-bit operands with scales for Hopper: ends cut the rows, or K, or there are none.

With operands swapped (swap-AB) tiles are those of grouped_mm_swap.py, as tall as their group needs. Without, they have
all their rows, and scales of blocks of A, one for each row, take few registers: for large groups.

Sums of 128 of K are added up in float32 (promote.py), or, without PROMOTE, all of K on the tensor cores. Scales are a
number for each row of A and column of a group's B (or one for each operand), which the epilogue applies, or with BLOCKS
those of blocks, which come through the pipeline beside the operands.

Where ends cut K, or groups are whole matrices (EQUAL), tiles are not swapped. Operands are contiguous along K, so a
group begins inside a line: edges.py.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.block_scales import ScaleLoader, arrivals, bring_queued, make_block_scales, tile_scales
from kernels.device.sm90.edges import edges_of
from kernels.device.sm90.epilogue import Epilogue
from kernels.device.sm90.grouped_mm_pingpong import make_group_output, of_group
from kernels.device.sm90.groups import Groups, grain_of, load_equal, load_ragged
from kernels.device.sm90.loader import barriers, make_stages
from kernels.device.sm90.mainloop import multiply, wait_for_parts, zero_parts
from kernels.device.sm90.promote import multiply_promoted
from kernels.device.sm90.scales import Scales, make_scales
from kernels.device.sm90.scheduler import Tiles
from kernels.device.sm90.team import make_team
from kernels.device.sm90.tickets import make_tickets
from kernels.device.sm90.tile_queue import NoQueue, WorkTile, make_queue

GRAIN = gl.constexpr(32)  # rows of A: the widths that swapped tiles are multiplied in


@gluon.constexpr_function
def least_width(swap, width, part, blocks):
    """The narrowest that a tile is multiplied in. One with scales of blocks may have fewer columns of B where those of
    its group end: of whole parts, since a tile of three ends so in two of three N that are multiples of 64."""
    if swap:
        return min(width, GRAIN.value)
    return part if len(blocks) and width % (2 * part) else width


@gluon.jit
def multiply_width(
    stages, blocks, parts, turns, work, edges, number, first, extent, WIDTH: gl.constexpr, MOST: gl.constexpr,
    STEP: gl.constexpr, COOP: gl.constexpr, PROMOTE: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """The tile's sum in the least width from WIDTH to MOST, in steps of STEP, that holds its `extent` columns."""
    if WIDTH < MOST:
        if extent <= WIDTH:
            parts = multiply_width(
                stages, blocks, parts, turns, work, edges, number, first, extent, WIDTH, WIDTH, STEP, COOP, PROMOTE,
                REGISTERS,
            )  # fmt: skip
        else:
            parts = multiply_width(
                stages, blocks, parts, turns, work, edges, number, first, extent, WIDTH + STEP, MOST, STEP, COOP,
                PROMOTE, REGISTERS,
            )  # fmt: skip
        return parts
    else:
        COUNT: gl.constexpr = WIDTH // parts[0].shape[1]
        own = parts[:COUNT]
        if PROMOTE:
            own, _, _ = multiply_promoted(
                own, stages, blocks, work.step, work.count, first, WIDTH, REGISTERS, COOP, edges
            )
            if not COOP:
                stages.team.tell(turns.index(1 - number))
        else:
            own, step = multiply(
                own, stages, work.step, work.count, work.last, first, WIDTH, TO_ZEROS=stages.SWAP, edges=edges
            )
            if not COOP:
                stages.team.tell(turns.index(1 - number))
            own = wait_for_parts(own, WIDTH)
            stages.release(step + stages.STAGES - 1)
        return own + parts[COUNT:]


@gluon.jit
def part_of(work, first):
    """The part of a shared tile from row `first` on."""
    return WorkTile(work.row + first, work.end, work.col, work.group, work.step, work.count, work.last, work.height)


@gluon.jit
def ask(scales, work, a_stride, b_stride, d_step, MAY_BE_EMPTY: gl.constexpr):
    """A tile's scales on their way, of its group's columns and rows, which stand d_step rows of D from one group to the
    next; () where they are those of blocks. An empty group has no product that they could make NaN: 1."""
    if len(scales) > 0:
        one = scales[0]
        row = work.row - work.group * d_step
        a_scale = one.a_scale + work.group.to(gl.int64) * a_stride
        b_scale = one.b_scale + work.group.to(gl.int64) * b_stride
        scaling = one.scaling
        if MAY_BE_EMPTY:
            scaling = gl.where(work.count > 0, scaling, 0)
        own = Scales(a_scale, b_scale, scaling, one.M, one.N, one.of_left, one.of_right, one.SWAP)
        left, right = (work.col, row) if one.SWAP else (row, work.col)
        return own.ask(left, right)
    else:
        return ()


@gluon.jit
def let_go(stages, work):
    """A tile's steps, of which a warpgroup has no rows: the other one needs its word as well."""
    step = work.step
    for _ in range(gl.maximum(work.count, 1)):
        stages.wait_ready(step)
        stages.release(step)
        step += 1


@gluon.jit
def consume(
    stages, queue, out, turns, blocks, a_stride, b_stride, d_step, ROWS: gl.constexpr, WIDTH: gl.constexpr,
    COOP: gl.constexpr, EQUAL: gl.constexpr, PROMOTE: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Two warpgroups: each multiplies and stores every second tile, or COOP, half the rows of each. ROWS are those of
    the tensor cores, WIDTH their columns: with operands swapped columns of B, and rows of A."""
    team = make_team()
    number = team.number
    stages = stages.of_consumer(team)
    SWAP: gl.constexpr = stages.SWAP
    first = number * ROWS if COOP else 0
    MOST: gl.constexpr = out.out.MOST
    LEAST: gl.constexpr = least_width(SWAP, WIDTH, MOST, blocks)
    STEP: gl.constexpr = GRAIN if SWAP else MOST
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    phase = 0
    turn = 1 - number  # the first consumer need not wait for its first turn
    n = gl.to_tensor(0) if COOP else number
    met = 0
    work = queue.receive(n, team)
    while work.count >= 0:
        if not COOP:
            team.wait(turns.index(number), turn)
            turn ^= 1
        if EQUAL:  # a group may be empty; what it has, all warpgroups of the tile multiply, with rows or without
            asked = ask(out.out.epilogue.scales, part_of(work, first), a_stride, b_stride, d_step, True)
            edges, met = edges_of(work, met, turns, number, 2 if COOP else 1)
            parts = zero_parts(ROWS, WIDTH, MOST)
            if work.count > 0:
                parts = multiply_width(
                    stages, blocks, parts, turns, work, (edges,), number, first, WIDTH, WIDTH, WIDTH, STEP, COOP,
                    PROMOTE, REGISTERS,
                )  # fmt: skip
            else:
                if not COOP:
                    stages.team.tell(turns.index(1 - number))
            of_group(out.out.epilogue, work.group, 0, work.count > 0).spread(asked, number, team)
            phase = out.store(parts, number, phase, part_of(work, first), team)
        else:
            has_rows = True
            if COOP:
                has_rows = work.row + first < work.end
            if has_rows:
                asked = ask(out.out.epilogue.scales, part_of(work, first), 0, b_stride, 0, False)
                parts = zero_parts(ROWS, WIDTH, MOST)
                left, right = (work.col, work.row) if SWAP else (work.row, work.col)
                own = tile_scales(blocks, left, right, 0)
                extent = work.height if SWAP else out.out.epilogue.N - work.col
                parts = multiply_width(
                    stages, own, parts, turns, work, (), number, first, extent, LEAST, WIDTH, STEP, COOP, PROMOTE,
                    REGISTERS,
                )  # fmt: skip
                out.out.epilogue.spread(asked, number, team)
                phase = out.store(parts, number, phase, part_of(work, first), team)
            else:
                let_go(stages, work)
        n += 1 if COOP else 2
        work = queue.receive(n, team)
    if EQUAL:
        out.out.drain()
    else:
        out.finish(work, team)


@gluon.jit
def grouped_mm_scaled(
    a_desc, b_desc, c_desc, d_desc, d_ptr, bias_ptr, offs_ptr, M, N, K, groups, a_step, b_step, d_step,
    lda, ldb, ldd, batch_stride_bias, alpha, beta, activation, offs_wide, zero_tail,
    a_scale, b_scale, scaling, batch_stride_a_scale, batch_stride_b_scale,
    a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, early, tickets_ptr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    RUN: gl.constexpr, SYMBOL: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
    SWAP: gl.constexpr, PINGPONG: gl.constexpr, EQUAL: gl.constexpr, SCALED: gl.constexpr, PROMOTE: gl.constexpr,
    BLOCKS: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    OWNERS: gl.constexpr = 1 if PINGPONG else 2
    COOP: gl.constexpr = not PINGPONG
    if SWAP:
        gl.static_assert(OWNERS == 1)  # what warpgroups share, they share by rows
    # A thread's, of those that multiply (of EQUAL groups what loaders leave is 8 less) and of those that load, which
    # also bring scales of blocks.
    REGISTERS: gl.constexpr = 224 if BLOCKS and SWAP else 232
    OF_LOADERS: gl.constexpr = 56 if BLOCKS and SWAP else 48 if EQUAL else 40
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, SWAP, OWNERS, RUN=RUN, RANK=3,
        ARRIVALS=arrivals(BLOCKS),
    )  # fmt: skip
    LEFT: gl.constexpr = BLOCK_N if SWAP else BLOCK_M
    RIGHT: gl.constexpr = BLOCK_M if SWAP else BLOCK_N
    scales = make_scales(a_scale, b_scale, scaling, M, N, 2, LEFT // OWNERS, RIGHT, SWAP, SCALED)
    # Its sizes alone count.
    tiles = Tiles(M, N, K, gl.to_tensor(False), gl.to_tensor(1), LEFT, RIGHT, BLOCK_K, GROUP_M, 1, 1, False)
    blocks = make_block_scales(
        a_scale, b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, M, N, K, tiles,
        stages, SWAP, BLOCKS,
    )  # fmt: skip
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, SWAP, scales)
    out = make_group_output(SYMBOL, c_desc, d_desc, d_ptr, ldd, epilogue, batch_stride_bias, M * zero_tail, BUFFERS)
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SWAP,
    )  # fmt: skip
    QUEUED: gl.constexpr = BLOCKS and COOP  # scales come by tiles that the queue tells
    tickets = make_tickets(tickets_ptr) if COOP else ()
    queue = make_queue(OWNERS + 1 if QUEUED else OWNERS)
    turns = queue.full  # a barrier that nobody waits at would lie where others write
    if PINGPONG:
        turns = barriers(2)
    if EQUAL:  # those of a tile meet at one
        gl.static_assert(not SWAP)
        if COOP:
            turns = barriers(1, 2)
    ROWS: gl.constexpr = LEFT // OWNERS
    if BLOCKS:
        # Its planes are groups, whatever those of B are.
        by_group = Groups(
            offs_ptr, offs_wide, groups, M, N, K, a_step, gl.to_tensor(1), d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
            SWAP,
        )  # fmt: skip
        scale_loader = ScaleLoader(stages, blocks[0], batch_stride_b_scale)
        gl.warp_specialize(
            [
                (consume, (stages, queue, out, turns, blocks, batch_stride_a_scale, batch_stride_b_scale, d_step,
                           ROWS, RIGHT, COOP, EQUAL, PROMOTE, REGISTERS)),
                (load_ragged, (groups_at, stages, queue, (early,) if SWAP else (), tickets)),
                (bring_queued, (queue, scale_loader))
                if QUEUED else (load_ragged, (by_group, scale_loader, NoQueue(0))),
            ],
            [1, 1],
            [OF_LOADERS, OF_LOADERS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (consume, (stages, queue, out, turns, blocks, batch_stride_a_scale, batch_stride_b_scale, d_step,
                           ROWS, RIGHT, COOP, EQUAL, PROMOTE, REGISTERS)),
                (load_equal, (groups_at, stages, queue, True, grain_of(lda, ldb)))
                if EQUAL else (load_ragged, (groups_at, stages, queue, (), tickets)),
            ],
            [1],
            [OF_LOADERS],
        )  # fmt: skip
