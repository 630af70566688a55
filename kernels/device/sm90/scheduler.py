"""The scheduler of one product: which tile of D a block works on next, and which part of its K. No kernel here."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.loader import kept
from kernels.device.sm90.raster import place_of, quotient


@gluon.jit
def slice_of(K, splits, unit, BLOCK_K: gl.constexpr):
    """First step in K of a unit, slice unit % splits of its tile, and how many it has: none, or less, past the end."""
    total = gl.cdiv(K, BLOCK_K)
    each = quotient(total + splits - 1, splits)
    first = (unit - quotient(unit, splits) * splits) * each
    return first, gl.minimum(each, total - first)


@gluon.aggregate
class Tiles:
    """The problem's extents as the tensor cores see them, and a tile's. A unit of work is a tile, one slice of its K,
    or of a cluster a tile for each of its blocks."""

    left_rows: gl.tensor
    right_rows: gl.tensor
    K: gl.tensor
    whole: gl.tensor  # tiles at an edge are moved inside, so that none is mostly outside; rows are then written twice
    splits: gl.tensor  # units that share K of a tile; 1 unless SPLIT
    LEFT: gl.constexpr
    RIGHT: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP: gl.constexpr  # tiles of left rows that come one after the other, so that the right operand stays in L2
    CLUSTER: gl.constexpr  # blocks, each with a tile of its own, in a unit of work
    ACROSS: gl.constexpr  # of them side by side, which share the left operand; those below one another share the right
    SPLIT: gl.constexpr

    @gluon.jit
    def first(self):
        return gl.program_id(0) // self.CLUSTER

    @gluon.jit
    def stride(self):
        return gl.num_programs(0) // self.CLUSTER

    @gluon.jit
    def rows(self):
        """Of units."""
        return gl.cdiv(gl.cdiv(self.left_rows, self.LEFT), self.CLUSTER // self.ACROSS)

    @gluon.jit
    def columns(self):
        columns = gl.cdiv(self.right_rows, self.RIGHT)
        if self.ACROSS > 1:
            columns = gl.cdiv(columns, self.ACROSS)
        return columns

    @gluon.jit
    def count(self):
        count = self.rows() * self.columns()
        if self.SPLIT:
            count *= self.splits
        return count

    @gluon.jit
    def steps(self, unit):
        """First step in K of a unit, and how many it has (at least one: the host sees to it)."""
        if self.SPLIT:
            return slice_of(self.K, self.splits, unit, self.BLOCK_K)
        else:
            return 0, gl.maximum(gl.cdiv(self.K, self.BLOCK_K), 1)

    @gluon.jit
    def keep(self):
        return kept(self.rows(), self.columns())

    @gluon.jit
    def inside(self, at, rows, SIZE: gl.constexpr):
        """Where a tile begins: in steps of 8, since TMA begins within a stored row only at multiples of 16 bytes."""
        last = gl.maximum(gl.cdiv(rows - SIZE, 8) * 8, 0)
        return gl.where(self.whole, gl.minimum(at, last), at)

    @gluon.jit
    def place(self, unit):
        """Where this block's tile of a unit begins."""
        if self.SPLIT:
            unit = quotient(unit, self.splits)
        BELOW: gl.constexpr = self.CLUSTER // self.ACROSS
        tile, column = place_of(unit, self.rows(), self.columns(), self.GROUP, self.CLUSTER == 1)
        tile *= BELOW
        if BELOW > 1:  # a block without a tile of its own does the last one again, or nothing where none is to be twice
            tile += gl.program_id(0) % BELOW
            if self.whole:
                tile = gl.minimum(tile, gl.cdiv(self.left_rows, self.LEFT) - 1)
        if self.ACROSS > 1:
            column = column * self.ACROSS + gl.program_id(0) % self.CLUSTER // BELOW
            if self.whole:
                column = gl.minimum(column, gl.cdiv(self.right_rows, self.RIGHT) - 1)
        left = self.inside(tile * self.LEFT, self.left_rows, self.LEFT)
        return left, self.inside(column * self.RIGHT, self.right_rows, self.RIGHT)
