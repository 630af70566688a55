"""Grouped GEMM for Hopper where ends cut the columns of D: of a B stored [N][K], packed, and an A of each group.

Columns of a group are rows of B, which TMA finds anywhere. In D they are contiguous, where TMA begins at multiples of
16 bytes alone: so tiles leave from registers, element by element, and D and C may have any alignment. The tensor cores
make D transposed (columns of D on the side of the instruction's M), so that a warp's lanes have neighbouring columns
of a row.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from kernels.device.portable.tiles import activate
from kernels.device.sm90.groups import Groups, load_ragged
from kernels.device.sm90.loader import barriers, make_stages
from kernels.device.sm90.mainloop import multiply, wait_for_parts, zero_parts
from kernels.device.sm90.team import make_team
from kernels.device.sm90.team_layouts import of_all
from kernels.device.sm90.tile_queue import make_queue

RUN = gl.constexpr(16)  # rows of D that are stored at a time: registers hold the places of no more


@gluon.aggregate
class ColumnsOutput:
    """D and C by their rows and columns; a tile's sum is transposed."""

    c_ptr: gl.tensor
    d_ptr: gl.tensor
    bias_ptr: gl.tensor
    ldc: gl.tensor
    ldd: gl.tensor
    batch_stride_bias: gl.tensor
    M: gl.tensor
    N: gl.tensor
    alpha: gl.tensor
    beta: gl.tensor
    activation: gl.tensor
    ACTIVATE: gl.constexpr

    @gluon.jit
    def store(self, acc, work, row):
        """A tile's rows of D from `row` on: its first column is work.row, and work.end one past its group's last."""
        acc, below = of_all(acc)
        cols = work.row - below + gl.arange(0, acc.shape[0], gl.SliceLayout(1, acc.type.layout))
        rows = row + gl.arange(0, acc.shape[1], gl.SliceLayout(0, acc.type.layout))
        inside = (cols[:, None] < work.end) & (rows[None, :] < self.M)
        acc *= self.alpha
        if self.beta != 0.0:
            at = rows.to(gl.int64)[None, :] * self.ldc + cols[:, None]
            acc += self.beta * gl.load(self.c_ptr + at, mask=inside, other=0.0).to(gl.float32)
        if self.bias_ptr.to(gl.int64) != 0:
            bias_ptr = self.bias_ptr + work.group.to(gl.int64) * self.batch_stride_bias
            acc += gl.load(bias_ptr + cols, mask=cols < work.end, other=0.0).to(gl.float32)[:, None]
        if self.ACTIVATE:
            acc = activate(acc, self.activation)
        at = rows.to(gl.int64)[None, :] * self.ldd + cols[:, None]
        gl.store(self.d_ptr + at, acc.to(self.d_ptr.dtype.element_ty), mask=inside)

    @gluon.jit
    def zero_columns(self, first):
        """Those of D from `first` on, where the last group ends; by all threads that are here, each by itself."""
        WIDTH: gl.constexpr = 32 * gl.num_warps()
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        for row in range(gl.program_id(0), self.M, gl.num_programs(0)):
            for col in range(first, self.N, WIDTH):
                cols = col + gl.arange(0, WIDTH, layout)
                at = gl.to_tensor(row).to(gl.int64) * self.ldd + cols
                gl.store(self.d_ptr + at, gl.zeros([WIDTH], self.d_ptr.dtype.element_ty, layout), mask=cols < self.N)


@gluon.jit
def consume(stages, queue, out, turns, zero_tail, LEFT: gl.constexpr, RIGHT: gl.constexpr):
    """Two warpgroups: each multiplies and stores every second tile of this program."""
    team = make_team()
    number = team.number
    stages = stages.of_consumer(team)
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    turn = 1 - number  # the first consumer need not wait for its first turn
    n = number
    work = queue.receive(n, team)
    while work.count >= 0:
        parts = zero_parts(LEFT, RIGHT, RUN)
        team.wait(turns.index(number), turn)
        turn ^= 1
        parts, step = multiply(parts, stages, work.step, work.count, work.last, 0, RIGHT)
        team.tell(turns.index(1 - number))
        parts = wait_for_parts(parts, RIGHT)
        stages.release(step + stages.STAGES - 1)
        for i in gl.static_range(len(parts)):
            out.store(parts[i], work, work.col + i * RUN)
        n += 2
        work = queue.receive(n, team)
    if zero_tail != 0:
        out.zero_columns(work.row)


@gluon.jit
def grouped_mm_columns(
    b_desc, a_desc, c_ptr, d_ptr, bias_ptr, offs_ptr, M, N, K, groups, a_step,
    ldc, ldd, batch_stride_bias, alpha, beta, activation, offs_wide, zero_tail,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SYMBOL: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """What groups.py and the loader know as rows are columns of D, and the other way round."""
    gl.static_assert(TRANS_B == 1)
    groups_at = Groups(
        offs_ptr, offs_wide, groups, N, M, K, gl.to_tensor(0), a_step, gl.to_tensor(0), BLOCK_N, BLOCK_M, BLOCK_K,
        GROUP_M, False,
    )  # fmt: skip
    out = ColumnsOutput(
        c_ptr, d_ptr, bias_ptr, ldc, ldd, batch_stride_bias, M, N, alpha, beta, activation, ACTIVATE
    )  # fmt: skip
    stages = make_stages(b_desc, a_desc, SYMBOL, BLOCK_N, BLOCK_M, BLOCK_K, STAGES, False, not TRANS_A, False, RANK=3)
    queue = make_queue()
    turns = barriers(2)
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, turns, zero_tail, BLOCK_N, BLOCK_M)),
            (load_ragged, (groups_at, stages, queue)),
        ],
        [1],
        [40],
    )
