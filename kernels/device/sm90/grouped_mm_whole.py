"""Grouped GEMM for Hopper where every group has as many tiles, and each lies whole in its group: ends cut K, or there
are none. Tiles, order and main loop are those of the dense kernels (gemm.py).

A tile at a group's edge is moved inside it, and its rows are written twice, alike: so all leave by TMA. That takes a
group of as many rows as a tile, a multiple of 8 of them, and no C.

Four kinds of warps beside each other: one finds where each tile stands and begins, ahead of all others; one loads; two
clear what the last step brings of the next group; and two warpgroups, a tile each, take turns on the tensor cores.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.device.sm90.epilogue import Epilogue, make_output
from kernels.device.sm90.grouped_mm_pingpong import of_group
from kernels.device.sm90.groups import CHUNK, Groups
from kernels.device.sm90.loader import barriers, make_stages, prefetch_maps
from kernels.device.sm90.mainloop import multiply, wait_for_parts, zero_parts
from kernels.device.sm90.raster import quotient
from kernels.device.sm90.scheduler import Tiles
from kernels.device.sm90.tails import begins_inside, clear_partition, is_cut, make_tails
from kernels.device.sm90.team import make_team
from kernels.device.sm90.tile_queue import WorkTile, make_queue


@gluon.jit
def find_partition(groups, tiles, queue, ALONG: gl.constexpr = False, grain=1):
    """One warp: which tile of which group comes next. Ends are read CHUNK at a time; a group begins at the largest end
    before it. The right and the left operand's first row go as WorkTile's row and column, where K begins as its end,
    and how deep K is as its height. A group without any K has one step, of which nothing counts. ALONG: of operands
    that are contiguous along K, where TMA is to begin at multiples of `grain` of them."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    gdc_wait()  # what the kernel before this one writes may be our ends
    lane = gl.arange(0, CHUNK, layout)
    cut = groups.offs_ptr.to(gl.int64) != 0
    each = tiles.count()
    unit = tiles.first()
    before = gl.to_tensor(0)  # units of the chunks already passed
    final = gl.to_tensor(0)
    step = gl.to_tensor(0)
    sent = 0
    for chunk in range(0, groups.groups, CHUNK):
        group = chunk + lane
        there = cut & (group < groups.groups)
        start, end = groups.cuts(group, there, final, groups.K)
        end = gl.where(cut, end, groups.K)
        final = gl.where(cut, gl.max(end, 0), 0)
        here = gl.minimum(groups.groups - chunk, CHUNK)
        while unit < before + here * each:
            index = quotient(unit - before, each)
            left, right = tiles.place(unit - before - index * each)
            begin = gl.sum(gl.where(lane == index, start, 0), 0)
            depth = gl.sum(gl.where(lane == index, end, 0), 0) - begin
            brought = depth
            head = gl.to_tensor(0)
            if ALONG:
                head = begin % grain
                begin -= head
                head = gl.where(depth > 0, head, 0)
                brought += head
            count = gl.maximum(gl.cdiv(brought, groups.BLOCK_K), 1)
            last = gl.to_tensor(groups.BLOCK_K)
            if cut:
                last = brought - (count - 1) * groups.BLOCK_K  # what follows is another group's
            if ALONG:
                last += head << 16
            queue.send(sent, WorkTile(right, begin, left, chunk + index, step, count, last, depth))
            step += count
            sent += 1
            unit += tiles.stride()
        before += here * each
    none = gl.to_tensor(-1)
    for i in gl.static_range(2):
        queue.send(sent + i, WorkTile(none, none, none, none, step, none, none, none))


@gluon.jit
def bring_cut(stages, step, work, k, left_plane, right_plane, tails, number):
    """A step that is not whole: of a block's, counted from 0, this `number`."""
    stages.wait_empty(step)
    brought = tails.index(number % stages.STAGES)
    stages.fetch(step, work.col, work.row, k, left_plane, right_plane, other=brought)


@gluon.jit
def load_partition(groups, stages, queue, tails, ALONG: gl.constexpr = False):
    """One warp: every tile's operands through the pipeline."""
    gdc_wait()  # what the kernel before this one writes may be our A or B
    n = 0
    cut = 0
    work = queue.receive(n)
    while work.count >= 0:
        a_plane, b_plane = groups.planes(work.group)
        left_plane, right_plane = (b_plane, a_plane) if stages.SWAP else (a_plane, b_plane)
        whole = work.count
        if is_cut(work, stages.BLOCK_K, ALONG):
            whole -= 1
        k = work.end
        first = 0
        if ALONG:  # noqa: SIM102  (this one is the compiler's, the other the device's)
            if begins_inside(work) & (work.count > 1):
                bring_cut(stages, work.step, work, k, left_plane, right_plane, tails, cut)
                k += stages.BLOCK_K
                first = 1
                cut += 1
        for i in range(first, whole):
            stages.load(work.step + i, work.col, work.row, k, left_plane, right_plane)
            k += stages.BLOCK_K
        if whole < work.count:
            bring_cut(stages, work.step + whole, work, k, left_plane, right_plane, tails, cut)
            cut += 1
        n += 1
        work = queue.receive(n)
    gdc_launch_dependents()  # all is read or on its way: the next kernel may come


@gluon.jit
def store(out, parts, number, phase, work, d_step, batch_stride_bias, team, first=0):
    """A tile, by its rows in the matrix that has all groups' D below one another; or what a warpgroup has of it, from
    row `first` of its left side on."""
    own = of_group(out.epilogue, work.group, batch_stride_bias, work.height > 0)
    row = work.group * d_step
    left = work.col + first
    row, col = (row + work.row, left) if own.SWAP else (row + left, work.row)
    for i in gl.static_range(len(parts)):
        buf, phase = out.stage(parts, i, number, phase, row, col, own, team)
        out.send(buf, row, col, team)
        if own.SWAP:
            row += parts[i].shape[1]
        else:
            col += parts[i].shape[1]
    return phase


@gluon.jit
def consume(
    tiles, stages, queue, out, turns, d_step, batch_stride_bias, ROWS: gl.constexpr
):  # fmt: skip
    """Two warpgroups: each multiplies and stores every second tile."""
    team = make_team()
    number = team.number
    stages = stages.of_consumer(team)
    gdc_wait()  # what the kernel before this one reads may be our D
    phase = 0
    turn = 1 - number  # the first consumer need not wait for its first turn
    n = number
    work = queue.receive(n, team)
    while work.count >= 0:
        parts = zero_parts(ROWS, tiles.RIGHT, out.MOST)
        team.wait(turns.index(number), turn)
        turn ^= 1
        parts, step = multiply(parts, stages, work.step, work.count, work.last, 0, tiles.RIGHT, CUT=True)
        team.tell(turns.index(1 - number))
        n += 2
        ahead = queue.receive(n, team)  # while the last step is under way
        parts = wait_for_parts(parts, tiles.RIGHT)
        stages.release(step + stages.STAGES - 1)
        phase = store(out, parts, number, phase, work, d_step, batch_stride_bias, team)
        work = ahead
    out.drain()


@gluon.jit
def grouped_mm_whole(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, offs_ptr, M, N, K, groups, a_step, b_step, d_step,
    batch_stride_bias, alpha, activation, offs_wide,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, SYMBOL: gl.constexpr, SWAP: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr,
    ACTIVATE: gl.constexpr,
):  # fmt: skip
    """d_step: stored rows of D from one group to the next. C is not read: its descriptor only says how D is stored."""
    LEFT: gl.constexpr = BLOCK_N if SWAP else BLOCK_M
    RIGHT: gl.constexpr = BLOCK_M if SWAP else BLOCK_N
    whole = gl.to_tensor(True)
    left_rows, right_rows = (N, M) if SWAP else (M, N)
    one = gl.to_tensor(1)
    tiles = Tiles(left_rows, right_rows, K, whole, one, LEFT, RIGHT, BLOCK_K, GROUP_M, 1, 1, False)
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, False,
    )  # fmt: skip
    stages = make_stages(a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, SWAP, RANK=3)
    prefetch_maps(SYMBOL, (15,))  # D's
    epilogue = Epilogue(bias_ptr, N, alpha, gl.to_tensor(0.0), activation, ACTIVATE, SWAP, ())
    out = make_output(SYMBOL, (c_desc,), (d_desc,), epilogue, 2, BUFFERS)
    queue = make_queue(3)
    tails = make_tails(STAGES)
    turns = barriers(2)
    gl.barrier()  # barriers are made before anybody waits for one
    gl.warp_specialize(
        [
            (consume, (tiles, stages, queue, out, turns, d_step, batch_stride_bias, LEFT)),
            (find_partition, (groups_at, tiles, queue)),
            (load_partition, (groups_at, stages, queue, tails)),
            (clear_partition, (stages, queue, tails)),
        ],
        [1, 1, 2],
        [40, 40, 40],
    )
