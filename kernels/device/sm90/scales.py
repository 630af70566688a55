"""What operands in 8 bits were scaled by, a number each or one for each row and column, and how a D of 8 bits is
rounded: what an epilogue (epilogue.py) does about both. No kernel here. Scales of blocks: block_scales.py.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.portable.eight_bits import finite_size, over_scale
from kernels.device.sm90.team_layouts import of_all, row_layout


@gluon.aggregate
class Scales:
    """What A and B were scaled by. They are asked for before a tile is multiplied, since its end would wait for them
    longer than for all else, and go through shared memory to the threads that need them."""

    a_scale: gl.tensor
    b_scale: gl.tensor
    scaling: gl.tensor  # libgemm_scaling: 0 none, 1 a number each, 2 one for each row of op(A) and column of op(B)
    M: gl.tensor
    N: gl.tensor
    of_left: gl.shared_memory_descriptor  # [consumer][rows of the tensor-core tile], see spread()
    of_right: gl.shared_memory_descriptor
    SWAP: gl.constexpr

    @gluon.jit
    def numbers(self, scale, first, end, LEAST: gl.constexpr, LENGTH: gl.constexpr):
        """From place `first` on, where `scaling` is LEAST or more; else 1."""
        layout: gl.constexpr = row_layout(LENGTH, gl.num_warps())
        place = first + gl.arange(0, LENGTH, layout)
        return gl.load(scale + place * (self.scaling - 1), mask=(place < end) & (self.scaling >= LEAST), other=1.0)

    @gluon.jit
    def ask(self, left, right):
        """Those of a tile, on their way: of the left side's rows; of the right side's, where these have their own; and
        the right side's number, where it has one for all."""
        LEFT: gl.constexpr = self.of_left.shape[1]
        RIGHT: gl.constexpr = self.of_right.shape[1]
        if self.SWAP:
            one = gl.load(self.a_scale, mask=self.scaling == 1, other=1.0)
            return (
                self.numbers(self.b_scale, left, self.N, 1, LEFT), self.numbers(self.a_scale, right, self.M, 2, RIGHT),
                one,
            )  # fmt: skip
        else:
            one = gl.load(self.b_scale, mask=self.scaling == 1, other=1.0)
            return (
                self.numbers(self.a_scale, left, self.M, 1, LEFT), self.numbers(self.b_scale, right, self.N, 2, RIGHT),
                one,
            )  # fmt: skip

    @gluon.jit
    def spread(self, asked, alpha, number, team):
        """To shared memory. A left row's number there is its scale times alpha and the right side's one number."""
        self.of_left.index(number).store(asked[0] * (asked[2] * alpha))
        self.of_right.index(number).store(asked[1])
        team.meet()  # each thread reads what others have written

    @gluon.jit
    def applied(self, acc, number, COLUMN: gl.constexpr):
        """To the part of a tile that begins at this column, with alpha. Where warpgroups share a tile the tensor cores
        are idle meanwhile: so an element is multiplied once, and twice only if the right side's rows have scales."""
        left = self.of_left.index(number).load(gl.SliceLayout(1, acc.type.layout))
        acc = acc * left[:, None]
        if self.scaling == 2:
            right = self.of_right.index(number).slice(COLUMN, acc.shape[1])
            acc = acc * right.load(gl.SliceLayout(0, acc.type.layout))[None, :]
        return acc


@gluon.aggregate
class Rounding:
    """What a D of 8 bits is divided by, and where the largest magnitudes of its rows go; either may be null."""

    d_scale: gl.tensor
    d_amax: gl.tensor
    M: gl.tensor
    N: gl.tensor
    SWAP: gl.constexpr

    @gluon.jit
    def note_rows(self, acc, row, col):
        """Raise the largest magnitude of each row to what this part of it has. A row lies in one warp, or with operands
        swapped in four: each warp tells what it has found, so that none waits for another."""
        TEAM: gl.constexpr = gl.num_warps() // 4
        acc, below = of_all(acc)
        layout: gl.constexpr = acc.type.layout
        left = gl.arange(0, acc.shape[0], gl.SliceLayout(1, layout))[:, None] - below
        right = gl.arange(0, acc.shape[1], gl.SliceLayout(0, layout))[None, :]
        if self.SWAP:
            inside = (row + right < self.M) & (col + left < self.N)
            RUNS: gl.constexpr = acc.shape[0] // 64 // TEAM
            parts = gl.where(inside, finite_size(acc), 0).reshape([TEAM, RUNS, 4, 16, acc.shape[1]])
            most = gl.max(gl.max(parts, 1).reshape([4 * TEAM, 16, acc.shape[1]]), 1)  # [warp][row of D]
            warps = gl.arange(0, 4 * TEAM, gl.SliceLayout(1, most.type.layout))[:, None]
            rows = row + gl.arange(0, acc.shape[1], gl.SliceLayout(0, most.type.layout))[None, :] + warps * 0
        else:
            inside = (row + left < self.M) & (col + right < self.N)
            most = gl.max(gl.where(inside, finite_size(acc), 0), 1)
            rows = row + gl.arange(0, acc.shape[0], most.type.layout) - below
        gl.atomic_max(self.d_amax + rows, most, mask=rows < self.M, sem="relaxed")

    @gluon.jit
    def divided(self, acc, row, col):
        if self.d_amax.to(gl.int64) != 0:
            self.note_rows(acc, row, col)
        return over_scale(acc, self.d_scale)


@gluon.constexpr_function
def power_of_two(least):
    return 1 << (least - 1).bit_length()


@gluon.jit
def make_scales(
    a_scale, b_scale, scaling, M, N, CONSUMERS: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    SWAP: gl.constexpr, SCALED: gl.constexpr, d_scale=0, d_amax=0, TO_E4M3: gl.constexpr = False,
):  # fmt: skip
    """What an epilogue has of them, for tiles of LEFT rows a consumer by RIGHT, and where D is to have 8 bits how it is
    rounded; () where operands have none."""
    if SCALED:
        layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        of_left = gl.allocate_shared_memory(gl.float32, [CONSUMERS, LEFT], layout)
        of_right = gl.allocate_shared_memory(gl.float32, [CONSUMERS, power_of_two(RIGHT)], layout)
        own = (Scales(a_scale, b_scale, scaling, M, N, of_left, of_right, SWAP),)
        if TO_E4M3:
            rounding = Rounding(d_scale, d_amax, M, N, SWAP)
            return own + (rounding,)  # noqa: RUF005  (the compiler knows no unpacking here)
        else:
            return own
    else:
        return ()
