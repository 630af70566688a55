"""Grouped GEMM for Hopper in Gluon: tensor descriptors, one loading warp that also looks groups up. sm_90a only.

As in the dense pingpong kernel two warpgroups own a tile each and take turns on the tensor cores. Where ends cut the
rows of 16-bit matrices, grouped_mm_swap.py is faster; this one takes float32 too, ends that cut K (of A stored [K][M]
and B stored [K][N]: TMA begins only at multiples of 16 bytes within a row) and groups of equal size.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue, Output, make_output
from kernels.device.sm90.groups import Groups, load_equal, load_ragged
from kernels.device.sm90.loader import barriers, make_stages
from kernels.device.sm90.mainloop import multiply, wait_for_parts, zero_parts
from kernels.device.sm90.team import make_team
from kernels.device.sm90.team_layouts import of_all, piece_layout
from kernels.device.sm90.tile_queue import make_queue


@gluon.jit
def of_group(epilogue, group, batch_stride_bias, has_product):
    """The epilogue of this group's tiles. An empty group has no product that an alpha of Inf could multiply."""
    own = epilogue.moved(group.to(gl.int64) * batch_stride_bias)
    alpha = gl.where(has_product, own.alpha, 0.0)
    return Epilogue(own.bias_ptr, own.N, alpha, own.beta, own.activation, own.ACTIVATE, own.SWAP, own.scales)


@gluon.aggregate
class GroupOutput:
    """Whole tiles leave through TMA; of one that ends with its group only those rows, by plain stores."""

    out: Output
    d_ptr: gl.tensor
    ldd: gl.tensor
    batch_stride_bias: gl.tensor
    zero_to: gl.tensor  # D's rows from the end of the last group up to this one are set to zero

    @gluon.jit
    def zero_rows(self, first):
        """By all threads that are here, each by itself."""
        STEP: gl.constexpr = 128 // self.out.bufs.dtype.primitive_bitwidth
        WIDTH: gl.constexpr = 32 * gl.num_warps() * STEP
        layout: gl.constexpr = gl.BlockedLayout([STEP], [32], [gl.num_warps()], [0])
        n = self.out.epilogue.N // STEP * STEP
        begin = first.to(gl.int64) + gl.program_id(0)
        for row in range(begin, self.zero_to.to(gl.int64), gl.num_programs(0)):
            for col in range(0, n, WIDTH):
                cols = col + gl.arange(0, WIDTH, layout)
                at = row * (self.ldd // STEP * STEP) + cols
                gl.store(self.d_ptr + at, gl.zeros([WIDTH], self.out.bufs.dtype, layout), mask=cols < n)

    @gluon.jit
    def copy_rows(self, buf, row, end, col):
        """What stands in a buffer, as far as the group goes. N and ldd are multiples of 16 bytes: the guard asks it."""
        STEP: gl.constexpr = 128 // buf.dtype.primitive_bitwidth
        whole, below = of_all(buf.load(piece_layout(buf.shape, STEP, gl.num_warps())))
        layout: gl.constexpr = whole.type.layout
        rows = row - below + gl.arange(0, whole.shape[0], gl.SliceLayout(1, layout))
        cols = col // STEP * STEP + gl.arange(0, whole.shape[1], gl.SliceLayout(0, layout))
        inside = (rows[:, None] < end) & (cols[None, :] < self.out.epilogue.N // STEP * STEP)
        at = rows.to(gl.int64)[:, None] * (self.ldd // STEP * STEP) + cols[None, :]
        gl.store(self.d_ptr + at, whole, mask=inside)
        fence_async_shared()  # the buffer is read before TMA writes it again

    @gluon.jit
    def leave(self, buf, row, end, col, team):
        """A buffer to D, as far as the group goes."""
        if row + buf.shape[0] <= end:
            self.out.send(buf, row, col, team)
        else:
            self.copy_rows(buf, row, end, col)
            # An empty group: Output.stage counts one for each part of a tile.
            gl.inline_asm("cp.async.bulk.commit_group;", "~{memory}", [], [], is_pure=False)

    @gluon.jit
    def finish(self, work, team):
        """Once there is no tile any more: `work` says where the last group ends."""
        self.out.drain()
        team.meet()  # all that was stored has left
        self.zero_rows(work.row)

    @gluon.jit
    def store(self, parts, number, phase, work, team):
        """A tile in runs of columns; with operands swapped of rows, those that the tile has."""
        own = of_group(self.out.epilogue, work.group, self.batch_stride_bias, work.count > 0)
        for i in gl.static_range(len(parts)):
            if own.SWAP:
                row = work.row + i * parts[i].shape[1]
                end = gl.minimum(work.end, work.row + work.height)
                if row < end:
                    buf, phase = self.out.stage(parts, i, number, phase, row, work.col, own, team)
                    self.leave(buf, row, end, work.col, team)
            else:
                col = work.col + i * parts[i].shape[1]
                buf, phase = self.out.stage(parts, i, number, phase, work.row, col, own, team)
                self.leave(buf, work.row, work.end, col, team)
        return phase


@gluon.jit
def make_group_output(
    SYMBOL: gl.constexpr, c_desc, d_desc, d_ptr, ldd, epilogue, batch_stride_bias, zero_to, BUFFERS: gl.constexpr = 1
):  # fmt: skip
    out = make_output(SYMBOL, (c_desc,), (d_desc,), epilogue, 2, BUFFERS)
    return GroupOutput(out, d_ptr, ldd, batch_stride_bias, zero_to)


@gluon.jit
def multiply_tile(zeros, stages, turns, work, number, COLS: gl.constexpr, CLEAR: gl.constexpr = False):
    """The tile's sum, and the other consumer's turn. An empty group's are zeros."""
    if work.count > 0:
        parts, step = multiply(zeros, stages, work.step, work.count, work.last, 0, COLS, CLEAR, True)
        stages.team.tell(turns.index(1 - number))
        parts = wait_for_parts(parts, COLS)
        stages.release(step + stages.STAGES - 1)
    else:
        stages.team.tell(turns.index(1 - number))
        parts = zeros
    return parts


@gluon.jit
def consume(
    stages, queue, out, turns, ROWS: gl.constexpr, COLS: gl.constexpr, EQUAL: gl.constexpr, CLEAR: gl.constexpr
):  # fmt: skip
    """Two warpgroups: each multiplies and stores every second tile of this program."""
    team = make_team()
    number = team.number
    stages = stages.of_consumer(team)
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    phase = 0
    turn = 1 - number  # the first consumer need not wait for its first turn
    n = number
    work = queue.receive(n, team)
    while work.count >= 0:
        parts = zero_parts(ROWS, COLS, out.out.MOST)
        team.wait(turns.index(number), turn)
        turn ^= 1
        parts = multiply_tile(parts, stages, turns, work, number, COLS, CLEAR)
        phase = out.store(parts, number, phase, work, team)
        n += 2
        work = queue.receive(n, team)
    if EQUAL:
        out.out.drain()
    else:
        out.finish(work, team)


@gluon.jit
def grouped_mm_pingpong(
    a_desc, b_desc, c_desc, d_desc, d_ptr, bias_ptr, offs_ptr, M, N, K, groups, a_step, b_step, d_step,
    ldd, batch_stride_bias, alpha, beta, activation, offs_wide, zero_tail,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SYMBOL: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr, EQUAL: gl.constexpr,
):  # fmt: skip
    """EQUAL: every group has as many tiles, as where ends cut K or there are none. Else ends cut the rows."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False, ())
    out = make_group_output(SYMBOL, c_desc, d_desc, d_ptr, ldd, epilogue, batch_stride_bias, M * zero_tail)
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, False,
    )  # fmt: skip
    stages = make_stages(a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, False, RANK=3)
    queue = make_queue()
    turns = barriers(2)
    CLEAR: gl.constexpr = EQUAL and TRANS_A and not TRANS_B  # ends may cut K
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, turns, BLOCK_M, BLOCK_N, EQUAL, CLEAR)),
            (load_equal if EQUAL else load_ragged, (groups_at, stages, queue)),
        ],
        [1],
        [40],
    )
