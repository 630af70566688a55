"""Which tile of which group comes next, and the loading warp of grouped kernels. No kernel here."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.device.portable.tiles import rasterise
from kernels.device.sm90.raster import place_of, quotient
from kernels.device.sm90.tickets import AHEAD
from kernels.device.sm90.tile_queue import WorkTile

CHUNK = gl.constexpr(128)  # groups whose ends are read at once


@gluon.jit
def larger(a, b):
    return gl.maximum(a, b)


@gluon.aggregate
class Groups:
    """The call's sizes, and where groups stand in the matrices the descriptors speak of."""

    offs_ptr: gl.tensor
    offs_wide: gl.tensor
    groups: gl.tensor
    M: gl.tensor  # of one group, or with ends that cut rows: of all
    N: gl.tensor
    K: gl.tensor  # of one group, or with ends that cut K: of all
    a_step: gl.tensor  # 0 where all groups are in one matrix A; else its tensor map has a plane for each
    b_step: gl.tensor
    d_step: gl.tensor  # stored rows of D from one group to the next
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP_M: gl.constexpr
    EVEN: gl.constexpr  # a group's rows are shared out evenly over its tiles

    @gluon.jit
    def end_of(self, group, most):
        """End of a group, 0 to `most`; of group -1, 0."""
        here = group >= 0
        if self.offs_wide != 0:
            end = gl.load(self.offs_ptr.to(gl.pointer_type(gl.int64)) + group, mask=here, other=0)
            end = gl.minimum(gl.maximum(end, 0), most).to(gl.int32)
        else:
            end = gl.minimum(gl.maximum(gl.load(self.offs_ptr + group, mask=here, other=0), 0), most)
        return end

    @gluon.jit
    def cuts(self, group, there, final, most):
        """Where these groups begin and end, 0 to `most`, those that are `there`: each at the largest end before it, or
        at `final` if none is larger, and no sooner than it begins."""
        start = self.end_of(gl.where(there, group - 1, -1), most)
        start = gl.maximum(gl.associative_scan(start, 0, larger), final)
        return start, gl.maximum(self.end_of(gl.where(there, group, -1), most), start)

    @gluon.jit
    def inside(self, tile, tiles_m):
        """Row of tiles, and first column, of tile number `tile` of a group."""
        row, column = rasterise(tile, tiles_m, gl.cdiv(self.N, self.BLOCK_N), self.GROUP_M)
        return row, column * self.BLOCK_N

    @gluon.jit
    def equal_tile(self, tile):
        """Group, and row and column within it, of a tile, where every group has as many."""
        tiles_m = gl.cdiv(self.M, self.BLOCK_M)
        tiles_n = gl.cdiv(self.N, self.BLOCK_N)
        group = quotient(tile, tiles_m * tiles_n)
        row, column = place_of(tile - group * tiles_m * tiles_n, tiles_m, tiles_n, self.GROUP_M)
        return group, row * self.BLOCK_M, column * self.BLOCK_N

    @gluon.jit
    def equal_cut(self, index, seen, start):
        """Begin and extent in K of group `index`, where ends cut K. It begins at the largest end before it: `start` is
        that of the first `seen` groups, and grows with them."""
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        lane = gl.arange(0, CHUNK, layout)
        depth = self.K
        if self.offs_ptr.to(gl.int64) != 0:
            for first in range(seen, index, CHUNK):
                group = first + lane
                gl.barrier()  # the largest of a chunk goes through memory that the one before it used
                start = gl.maximum(start, gl.max(self.end_of(gl.where(group < index, group, -1), self.K), 0))
            depth = gl.maximum(self.end_of(index, self.K) - start, 0)
        return start, depth

    @gluon.jit
    def planes(self, index):
        """Of A and of B, the plane that is group `index`'s matrix."""
        return gl.where(self.a_step > 0, index, 0), gl.where(self.b_step > 0, index, 0)


@gluon.jit
def finish(queue, sent, row, step):
    """Tell all that read the queue that there is no tile any more, twice, since consumers may read in turn; and where
    the rows of the last group end."""
    none = gl.to_tensor(-1)
    row = gl.to_tensor(row)
    for i in gl.static_range(2):
        queue.send(sent + i, WorkTile(row, row, none, none, step, none, none, none))
    gdc_launch_dependents()  # all is read or on its way: the next kernel may come


@gluon.jit
def begin_tile(stages, count, row, col, a_plane, b_plane, height):
    """A block's first tile, with operands swapped: B, of as many of its steps as there are stages, and A once the
    kernel before this one is over. Returns how many steps that are."""
    begun = gl.minimum(count, stages.STAGES)
    runs = gl.to_tensor(1)
    if stages.right.RUN > 0:
        runs = gl.minimum(gl.cdiv(height, stages.right.RUN), stages.right.ROWS // stages.right.RUN)
    for i in range(begun):
        stages.fetch(i, col, row, i * stages.BLOCK_K, b_plane, a_plane, runs, "left")
    gdc_wait()
    for i in range(begun):
        stages.fetch(i, col, row, i * stages.BLOCK_K, b_plane, a_plane, runs, "right")
    return begun


@gluon.jit
def load_and_ask(groups, stages, tickets, step, count, row, col, a_plane, b_plane, height):
    """A tile's operands, and before the last of them the number of a next tile asked for. Returns the number of the
    step behind them, and the answer on its way."""
    sooner = gl.maximum(count - AHEAD, 0)
    if gl.num_warps() > 1:
        # Threads that gather A find their rows once. One loop for both parts, of a number of turns that the compiler
        # does not know: in two of them registers would not do, and copies wait for each other's address.
        own = stages.addresses(row, height)
        asked = gl.to_tensor(0)
        take = sooner
        done = gl.to_tensor(0)
        turn = gl.inline_asm("mov.u32 $0, 0;", "=r", [], gl.int32, is_pure=False)
        while turn < 2:
            step, own = stages.load_steps(step, take, col, done * groups.BLOCK_K, b_plane, height, own)
            if turn == 0:
                asked = tickets.ask()
            done += take
            take = count - done
            turn += 1
    else:
        k = sooner * groups.BLOCK_K
        step = stages.load_tile(step, sooner, row, col, 0, a_plane, b_plane, height)
        asked = tickets.ask()
        step = stages.load_tile(step, count - sooner, row, col, k, a_plane, b_plane, height)
    return step, asked


@gluon.jit
def load_ragged(groups, stages, queue, early=(), tickets=()):
    """Where ends cut the rows of A and D: one warp, or four that all do the same, where threads gather A. Ends are
    scanned CHUNK at a time by a prefix sum over their tiles. What is loaded, `stages` says.

    Ends are clamped to [previous end, M], so a table that lies gives wrong rows but never an address outside, and no
    row is computed twice.

    `early`: (whether B and the ends were there before the kernel ahead began,) of kernels that then bring B sooner.
    `tickets`: (Tickets,) of kernels whose programs may take tiles as the programs come free. Of others program p has
    number p of every round of as many tiles as there are programs, which programs in pairs count on
    (moe_mm_scaled_few.py).
    """
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    if len(early) == 0:
        gdc_wait()  # what the kernel before this one writes may be our A, B or ends
    else:
        if early[0] == 0:
            gdc_wait()
    lane = gl.arange(0, CHUNK, layout)
    tiles_n = gl.cdiv(groups.N, groups.BLOCK_N)
    count = gl.cdiv(groups.K, groups.BLOCK_K)
    last = groups.K - (count - 1) * groups.BLOCK_K
    place = gl.program_id(0)
    tile = place.to(gl.int64)
    wave = 0
    before = gl.to_tensor(0).to(gl.int64)  # tiles in the chunks already passed: a table that lies may have any number
    step = 0
    sent = 0
    final = 0
    for chunk in range(0, groups.groups, CHUNK):
        group = chunk + lane
        there = group < groups.groups
        start, end = groups.cuts(group, there, final, groups.M)
        tiles = gl.where(there, gl.cdiv(end - start, groups.BLOCK_M) * tiles_n, 0)
        upto = gl.cumsum(tiles, 0)
        total = gl.sum(tiles, 0)
        final = gl.maximum(final, gl.max(gl.where(there, end, 0), 0))
        while tile < before + total:
            inside = (tile - before).to(gl.int32)
            index = gl.sum((upto <= inside).to(gl.int32), 0)
            here = lane == index
            row_start = gl.sum(gl.where(here, start, 0), 0)
            row_end = gl.sum(gl.where(here, end, 0), 0)
            inside -= gl.sum(gl.where(here, upto - tiles, 0), 0)
            rows = row_end - row_start
            tiles_m = gl.cdiv(rows, groups.BLOCK_M)
            row, col = groups.inside(inside, tiles_m)
            index += chunk
            if groups.EVEN:
                # In steps of 8, so that no tile of a group is much shorter: blocks that run ahead lose what others
                # brought to L2.
                each = gl.cdiv(rows, 8) // tiles_m
                longer = gl.cdiv(rows, 8) % tiles_m
                height = (each + (row < longer).to(gl.int32)) * 8
                row = row_start + (row * each + gl.minimum(row, longer)) * 8
                height = gl.minimum(height, row_end - row)
            else:
                row = row_start + row * groups.BLOCK_M
                height = row_end - row
            queue.send(sent, WorkTile(row, row_end, col, index, step, count, last, height))
            a_plane, b_plane = groups.planes(index)
            begun = 0
            if len(early) > 0:  # noqa: SIM102  (the compiler knows this alone)
                if (early[0] != 0) & (sent == 0):
                    begun = begin_tile(stages, count, row, col, a_plane, b_plane, height)
            k = begun * groups.BLOCK_K
            if len(tickets) > 0:
                gl.static_assert(len(early) == 0)  # `begun` is not looked at
                step, asked = load_and_ask(groups, stages, tickets[0], step, count, row, col, a_plane, b_plane, height)
                if groups.EVEN:
                    tile += gl.num_programs(0)
                else:
                    # Without a number the round behind this one is turned, by one place more than this one was: tiles
                    # where groups end take less than others, and half of the programs would have all of them where
                    # groups have two rows of tiles.
                    wave += 1
                    next_place = (place + wave) % gl.num_programs(0)
                    tile += gl.num_programs(0) + next_place - place
                    place = next_place
                if tickets[0].taken.to(gl.int64) != 0:
                    tile = (gl.num_programs(0) + tickets[0].told(asked, sent)).to(gl.int64)
            else:
                step = stages.load_tile(step + begun, count - begun, row, col, k, a_plane, b_plane, height)
                tile += gl.num_programs(0)
            sent += 1
        before += total
    if len(early) > 0:
        gdc_wait()  # also of a block without a tile: what comes next must not start before what came before is over
    finish(queue, sent, final, step)


@gluon.jit
def grain_of(lda, ldb):
    """Of 8-bit operands that are contiguous along K: at multiples of how many a tile's first line is to begin. 16 it
    must be, for TMA. Where all stored rows begin on 32 bytes, lines that do too take TMA down to half the time. Where
    A or B begins on 16 bytes alone (addresses are not looked at) lines that begin at 32 gain nothing."""
    return gl.where((lda | ldb) % 32 == 0, 32, 16)


@gluon.jit
def load_equal(groups, stages, queue, ALONG: gl.constexpr = False, grain=1):
    """One warp, where every group has as many tiles: ends cut K, or there are none. ALONG: of 8-bit operands that are
    contiguous along K, where TMA is to begin at multiples of `grain` of them."""
    index, row, col = groups.equal_tile(gl.program_id(0))  # each place ahead of the wait that would come before it
    gdc_wait()  # what the kernel before this one writes may be our A, B or ends
    per_group = gl.cdiv(groups.M, groups.BLOCK_M) * gl.cdiv(groups.N, groups.BLOCK_N)
    step = 0
    sent = 0
    seen = 0
    start = 0
    for tile in range(gl.program_id(0), groups.groups * per_group, gl.num_programs(0)):
        start, depth = groups.equal_cut(index, seen, start)
        seen = index
        begin = start
        head = start * 0
        if ALONG:
            head = start % grain
            begin -= head
            depth = gl.where(depth > 0, depth + head, 0)
        count = gl.cdiv(depth, groups.BLOCK_K)
        first = row + index * groups.d_step
        end = index * groups.d_step + groups.M
        last = gl.to_tensor(groups.BLOCK_K)
        if groups.offs_ptr.to(gl.int64) != 0:
            last = depth - (count - 1) * groups.BLOCK_K  # what follows is another group's
        if ALONG:
            last += head << 16
        height = gl.to_tensor(groups.BLOCK_M)
        queue.send(sent, WorkTile(first, end, col, index, step, count, last, height))
        a_plane, b_plane = groups.planes(index)
        step = stages.load_tile(step, count, row, col, begin, a_plane, b_plane, height)
        index, row, col = groups.equal_tile(tile + gl.num_programs(0))
        sent += 1
    finish(queue, sent, 0, step)
