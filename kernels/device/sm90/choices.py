"""The router's choices for one token, in a warp's lanes: each warp sorts them by itself, in a loop of few instructions,
since a launch finds none in the cache, and reading one takes longer than repeating it. No kernel here.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

CHOICES = gl.constexpr(32)  # aot/csrc/select/gated.h asks no more


@gluon.constexpr_function
def count_assembly():
    """How many of the first $3 lanes' keys $1 are less than $2."""
    return """{ .reg .pred p; .reg .b32 lane, key; mov.u32 lane, 0; mov.u32 $0, 0;
        next: shfl.sync.idx.b32 key, $1, lane, 31, 0xffffffff; setp.lt.s32 p, key, $2; @p add.u32 $0, $0, 1;
        add.u32 lane, lane, 1; setp.lt.u32 p, lane, $3; @p bra next; }"""


@gluon.aggregate
class Choices:
    """The router's, one a lane, and where their tiles are."""

    expert: gl.tensor  # the number of groups where the choice is skipped
    place: gl.tensor  # where it stands once all are sorted by expert, -1 of one that is skipped
    key: gl.tensor  # by which they are sorted
    entries: gl.tensor

    @gluon.jit
    def below(self, key):
        """How many have a lower one."""
        return gl.inline_asm(
            count_assembly(), "=&r,r,r,r", [self.key, key, self.entries], self.key.type, is_pure=False
        )  # fmt: skip

    @gluon.jit
    def tiles(self, across):
        return gl.sum((self.place >= 0).to(gl.int32), 0) * across

    @gluon.jit
    def tile(self, number, across, COLS: gl.constexpr):
        """Row of D, expert and column of a tile."""
        row = number // across
        return row, gl.sum(gl.where(self.place == row, self.expert, 0), 0), number % across * COLS


@gluon.aggregate
class Token:
    """Where the choices are in memory, and how many tiles a row of D has."""

    ids_ptr: gl.tensor
    ids_wide: gl.tensor
    entries: gl.tensor
    groups: gl.tensor
    across: gl.tensor
    COLS: gl.constexpr

    @gluon.jit
    def choices(self):
        lane = gl.arange(0, CHOICES, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
        at = self.ids_ptr + lane * (1 + self.ids_wide)
        expert = gl.load(at, mask=lane < self.entries, other=-1)
        upper = gl.load(at + 1, mask=(lane < self.entries) & (self.ids_wide != 0), other=0)
        expert = gl.where((expert >= 0) & (expert < self.groups) & (upper == 0), expert, self.groups)
        key = expert * CHOICES + lane
        found = Choices(expert, lane, key, self.entries)
        return Choices(expert, gl.where(expert < self.groups, found.below(key), -1), key, self.entries)
