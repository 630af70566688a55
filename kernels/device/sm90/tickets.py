"""Tiles in the order in which blocks come free: a number in memory says how many have been taken. No kernel here.

Where tiles take unlike times, blocks that have each as many drift apart: the last ones end late, and what one brought
to L2 is gone before its neighbour wants it. The warps that load take numbers, and tell those who multiply or bring
scales (tile_queue.py). Of a layer of more than 256 choices the first launch sets the number to 0 (portable/moe.py);
other calls have none. Products of 16 bits have rows of their own for it, guard "counted": one kernel for both would
cost small groups more than large ones gain (bench/NOTES.md).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.team import thread_number

AHEAD = gl.constexpr(4)  # steps before a tile's end at which the next one is asked for: the answer takes as long


@gluon.aggregate
class Tickets:
    """How many tiles have been asked for, besides each block's first one."""

    taken: gl.tensor  # pointer; null: tiles are dealt out in rounds
    seen: gl.tuple  # (memory of two numbers, by which several warps that load tell each other,) or ()

    @gluon.jit
    def ask(self):
        """A number, on its way to the first thread. Not by atom.add, nor by atom.inc with a bound of all ones, which is
        the same: that the assembler does for all threads of a warp together, and has them wait for what comes back."""
        return gl.inline_asm(
            "{ .reg .pred p;\nsetp.ne.u64 p, $1, 0;\nsetp.eq.and.u32 p, $2, 0, p;\nmov.u32 $0, 0;\n"
            "@p atom.relaxed.gpu.global.inc.u32 $0, [$1], 0x7fffffff; }",
            "=&r,l,r,~{memory}", [self.taken.to(gl.int64), thread_number()], gl.int32, is_pure=False,
        )  # fmt: skip

    @gluon.jit
    def told(self, asked, sent):
        """The first thread's, of this block's tile number `sent`, to all."""
        if len(self.seen) == 0:
            return gl.inline_asm(
                "shfl.sync.idx.b32 $0, $1, 0, 31, 0xffffffff;", "=r,r", [asked], gl.int32, is_pure=False
            )
        else:
            # Places in turn: before one is written again all threads have met since they read it, at the other one's.
            at = sent % 2 * 4
            gl.inline_asm(
                "{ .reg .pred p; .reg .b32 to;\nsetp.eq.u32 p, $3, 0;\nadd.u32 to, $0, $1;\n"
                "@p st.shared.b32 [to], $2; }",
                "r,r,r,r,~{memory}", [self.seen[0], at, asked, thread_number()], [], is_pure=False,
            )  # fmt: skip
            gl.barrier()
            return gl.inline_asm(
                "{ .reg .b32 to;\nadd.u32 to, $1, $2;\nld.shared.b32 $0, [to]; }", "=r,r,r,~{memory}",
                [self.seen[0], at], gl.int32, is_pure=False,
            )  # fmt: skip


@gluon.jit
def make_tickets(taken, WARPS: gl.constexpr = 1):
    """For so many warps that load."""
    if WARPS == 1:
        return (Tickets(taken, ()),)
    else:
        plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        return (Tickets(taken, (gl.allocate_shared_memory(gl.int32, [2], plain),)),)
