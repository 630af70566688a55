"""Dense GEMM for Hopper where tiles are few and K is long: all blocks share all tiles' K evenly (stream-K).

The steps in K of all tiles, one tile behind the other, are cut into as many equal runs as there are blocks, or clusters
whose blocks share what they load. A run begins and ends anywhere, and no block has all of a tile: it leaves each sum in
the workspace, and portable/gemm_sum.py, which comes next in the stream, adds up what there is of each tile. (Osama et
al., Stream-K, PPoPP 2023, have one kernel, whose blocks wait for each other. None waits here: two such kernels that run
at once could keep each other's blocks out.)
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.epilogue import columns_before
from kernels.device.sm90.gemm import run
from kernels.device.sm90.loader import kept, make_stages
from kernels.device.sm90.raster import place_of
from kernels.device.sm90.team_layouts import of_all


@gluon.aggregate
class Runs:
    """A block's units of work: its run's part of each tile that it touches. Of a cluster a tile is those of all its
    blocks together."""

    rows: gl.tensor  # of tiles
    columns: gl.tensor
    steps_of_tile: gl.tensor
    begin: gl.tensor  # of the run, counted through all tiles
    end: gl.tensor
    LEFT: gl.constexpr
    RIGHT: gl.constexpr
    GROUP: gl.constexpr
    CLUSTER: gl.constexpr  # blocks, each with a tile of its own
    ACROSS: gl.constexpr  # of them side by side, which share the left operand; those below one another share the right
    SPLIT: gl.constexpr  # a unit has part of its tile's K

    @gluon.jit
    def first(self):
        return gl.to_tensor(0)

    @gluon.jit
    def stride(self):
        return gl.to_tensor(1)

    @gluon.jit
    def count(self):
        touched = gl.cdiv(self.end, self.steps_of_tile) - self.begin // self.steps_of_tile
        return gl.where(self.end > self.begin, touched, 0)

    @gluon.jit
    def tile(self, unit):
        return self.begin // self.steps_of_tile + unit

    @gluon.jit
    def steps(self, unit):
        """First step in K of a unit, and how many it has."""
        start = self.tile(unit) * self.steps_of_tile
        first = gl.maximum(self.begin - start, 0)
        return first, gl.minimum(self.end - start, self.steps_of_tile) - first

    @gluon.jit
    def keep(self):
        return kept(self.rows, self.columns)

    @gluon.jit
    def place(self, unit):
        """Where this block's tile of a unit begins; it may be outside."""
        row, column = place_of(self.tile(unit), self.rows, self.columns, self.GROUP)
        BELOW: gl.constexpr = self.CLUSTER // self.ACROSS
        rank = gl.program_id(0) % self.CLUSTER
        return (row * BELOW + rank % BELOW) * self.LEFT, (column * self.ACROSS + rank // BELOW) * self.RIGHT


@gluon.jit
def make_runs(
    left_rows, right_rows, K, stream_steps, LEFT: gl.constexpr, RIGHT: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP: gl.constexpr, CLUSTER: gl.constexpr, ACROSS: gl.constexpr,
):  # fmt: skip
    rows = gl.cdiv(gl.cdiv(left_rows, LEFT), CLUSTER // ACROSS)
    columns = gl.cdiv(gl.cdiv(right_rows, RIGHT), ACROSS)
    steps_of_tile = gl.cdiv(K, BLOCK_K)
    steps = rows * columns * steps_of_tile
    begin = gl.minimum(gl.program_id(0) // CLUSTER * stream_steps, steps)
    end = gl.minimum(begin + stream_steps, steps)
    return Runs(rows, columns, steps_of_tile, begin, end, LEFT, RIGHT, GROUP, CLUSTER, ACROSS, True)


@gluon.aggregate
class Partials:
    """Where sums of parts of tiles go. From one run to the next, and from a run's tile to its next, the place's number
    grows by one: each part of a tile has its own."""

    to: gl.tensor  # float32, [number of the run + of the tile][block of the cluster][BLOCK_M][BLOCK_N]
    runs: Runs
    SWAP: gl.constexpr
    SHARERS: gl.constexpr  # warpgroups of a tile
    MOST: gl.constexpr  # columns of a part of the accumulator

    @gluon.jit
    def begin(self, unit, left, right, team):
        return ()

    @gluon.jit
    def store(self, parts, number, phase, left, right, unit, asked, team):
        LEFT: gl.constexpr = self.runs.LEFT
        RIGHT: gl.constexpr = self.runs.RIGHT
        CLUSTER: gl.constexpr = self.runs.CLUSTER
        own = number * parts[0].shape[0] if self.SHARERS > 1 else 0
        place = (gl.program_id(0) // CLUSTER + self.runs.tile(unit)) * CLUSTER + gl.program_id(0) % CLUSTER
        for i in gl.static_range(len(parts)):
            part, below = of_all(parts[i])
            left = own - below + gl.arange(0, part.shape[0], gl.SliceLayout(1, part.type.layout))
            right = gl.arange(0, part.shape[1], gl.SliceLayout(0, part.type.layout))
            right += columns_before(parts, i)
            # In 64 bits a thread's places are one and constants from there on; in 32 the compiler keeps each, and works
            # them out ahead of the sum.
            left, right = left.to(gl.int64), right.to(gl.int64)
            at = right[None, :] * LEFT + left[:, None] if self.SWAP else left[:, None] * RIGHT + right[None, :]
            gl.store(self.to + place * (LEFT * RIGHT) + at, part)
        return phase

    @gluon.jit
    def drain(self):
        pass


@gluon.jit
def gemm_stream(
    a_desc, b_desc, partials, stream_steps, M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    CLUSTER: gl.constexpr, ACROSS: gl.constexpr, SYMBOL: gl.constexpr, SWAP: gl.constexpr, PINGPONG: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr,
):  # fmt: skip
    """`stream_steps` steps in K by each block or cluster. Tiles of any width."""
    LEFT: gl.constexpr = BLOCK_N if SWAP else BLOCK_M
    RIGHT: gl.constexpr = BLOCK_M if SWAP else BLOCK_N
    CONSUMERS: gl.constexpr = 3 if not PINGPONG and LEFT == 192 else 2
    OWNERS: gl.constexpr = 1 if PINGPONG else CONSUMERS  # of a tile
    if SWAP:
        runs = make_runs(N, M, K, stream_steps, LEFT, RIGHT, BLOCK_K, GROUP_M, CLUSTER, ACROSS)
    else:
        runs = make_runs(M, N, K, stream_steps, LEFT, RIGHT, BLOCK_K, GROUP_M, CLUSTER, ACROSS)
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, SWAP, OWNERS, CLUSTER,
        ACROSS=ACROSS,
    )  # fmt: skip
    run(runs, stages, Partials(partials, runs, SWAP, OWNERS, 64), (), CONSUMERS, LEFT // OWNERS, PINGPONG, False)
