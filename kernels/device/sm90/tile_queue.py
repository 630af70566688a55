"""How a warp of a grouped kernel tells others which tile comes next: the one that loads tells those that multiply, and
where warpgroups share a tile the one that brings its scales of blocks; or one that does nothing else tells all, those
that load and clear too. No kernel here.

Looking a tile's group up takes a warp's reductions over the table of ends: one warp, which runs ahead, does it once,
and the others read eight numbers.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from kernels.device.sm90.loader import barriers
from kernels.device.sm90.team import thread_number

SLOTS = gl.constexpr(4)  # tiles that the telling warp may be ahead: more than the pipeline holds


@gluon.jit
def own(place):
    """The address of what assembly is given: the compiler passes it without the block's rank, as if it were the first
    one's of the cluster, which a store to it then writes. Asked for where it is used: memory that no partition is given
    the compiler gives to others."""
    return gl.inline_asm(
        "{ .reg .b32 x; mov.u32 x, %cluster_ctarank; mapa.shared::cluster.u32 $0, $1, x; }", "=r,r", [place], gl.int32,
        is_pure=False,
    )  # fmt: skip


@gluon.aggregate
class WorkTile:
    """One tile: where its D stands, and which steps of the pipeline hold its A and B. Of a tile that lies whole in its
    group row and col are the first of the right and of the left operand, end is where K begins, and height how deep it
    is (grouped_mm_whole.py)."""

    row: gl.tensor  # of D, first of the tile
    end: gl.tensor  # of D, one past the last row of the tile's group
    col: gl.tensor
    group: gl.tensor
    step: gl.tensor  # first in the pipeline
    count: gl.tensor  # steps; -1: there is no tile any more
    last: gl.tensor  # of K, what the last step has; and, times 65536, what the first one has before it
    height: gl.tensor  # of A, rows that the tile has; or more, as many as its group has left, or as a tile may have

    @gluon.jit
    def beside(self, columns):
        """The part of the tile that begins so many columns further on."""
        return WorkTile(
            self.row, self.end, self.col + columns, self.group, self.step, self.count, self.last, self.height
        )


@gluon.aggregate
class Queue:
    """SLOTS places in shared memory. Consumers that take turns read every second one; those that share a tile, and all
    other readers, read each."""

    slots: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    free: gl.shared_memory_descriptor
    IN_CLUSTER: gl.constexpr

    @gluon.jit
    def place(self, slot):
        return own(self.slots.index(slot)) if self.IN_CLUSTER else self.slots.index(slot)

    @gluon.jit
    def send(self, n, work):
        """Number `n` of all tiles of this program."""
        slot = n % SLOTS
        mbarrier.wait(self.free.index(slot), (n // SLOTS & 1) ^ 1)
        gl.inline_asm(
            "{ .reg .pred first;\nsetp.eq.u32 first, $9, 0;\n"
            "@first st.shared.v4.b32 [$0], {$1, $2, $3, $4};\n"
            "@first st.shared.v4.b32 [$0 + 16], {$5, $6, $7, $8}; }",
            "r,r,r,r,r,r,r,r,r,r,~{memory}",
            [self.place(slot), work.row, work.end, work.col, work.group, work.step, work.count, work.last,
             work.height, thread_number()],
            [],
            is_pure=False,
        )  # fmt: skip
        mbarrier.arrive(self.full.index(slot), count=1)

    @gluon.jit
    def receive(self, n, team=None):
        """By all warps of a partition, or of a team each warpgroup by itself."""
        slot = n % SLOTS
        if team is None:
            mbarrier.wait(self.full.index(slot), n // SLOTS & 1)
        else:
            team.wait(self.full.index(slot), n // SLOTS & 1)
        row, end, col, group, step, count, last, height = gl.inline_asm(
            "ld.shared.v4.b32 {$0, $1, $2, $3}, [$8];\nld.shared.v4.b32 {$4, $5, $6, $7}, [$8 + 16];",
            "=r,=r,=r,=r,=r,=r,=r,=r,r,~{memory}",
            [self.place(slot)],
            [gl.int32] * 8,
            is_pure=False,
        )
        if team is None:
            gl.barrier()  # every warp has read it
            mbarrier.arrive(self.free.index(slot), count=1)
        else:
            team.tell(self.free.index(slot))
        return WorkTile(row, end, col, group, step, count, last, height)


@gluon.aggregate
class NoQueue:
    """Of a second loading warp, which tells nobody."""

    nothing: gl.constexpr

    @gluon.jit
    def send(self, n, work):
        pass


@gluon.jit
def make_queue(READERS: gl.constexpr = 1, IN_CLUSTER: gl.constexpr = False):
    """READERS: of each place: the consumers that work on a tile, and who else must know of it."""
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    slots = gl.allocate_shared_memory(gl.int32, [SLOTS, 8], plain)
    return Queue(slots, barriers(SLOTS, 1, IN_CLUSTER), barriers(SLOTS, READERS, IN_CLUSTER), IN_CLUSTER)
