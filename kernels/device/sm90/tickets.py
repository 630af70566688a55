"""Tiles in the order in which blocks come free: a number in memory says how many have been taken. No kernel here.

Where tiles take unlike times, blocks that have each as many drift apart: the last ones end late, and what one brought
to L2 is gone before its neighbour wants it. The warp that loads takes numbers, and tells those who multiply or bring
scales (tile_queue.py). Of a layer in 8 bits of more than 256 choices the first launch sets the number to 0
(portable/moe.py); other calls have none.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.loader import thread_number

AHEAD = gl.constexpr(4)  # steps before a tile's end at which the next one is asked for: the answer takes as long


@gluon.aggregate
class Tickets:
    """For a warp that loads by itself: how many tiles have been asked for, besides each block's first one."""

    taken: gl.tensor  # pointer; null: tiles are dealt out in rounds

    @gluon.jit
    def ask(self):
        """A number, on its way to the first thread. Not by atom.add, nor by atom.inc with a bound of all ones, which is
        the same: that the assembler does for all threads of a warp together, and has them wait for what comes back."""
        gl.static_assert(gl.num_warps() == 1)
        return gl.inline_asm(
            "{ .reg .pred p;\nsetp.ne.u64 p, $1, 0;\nsetp.eq.and.u32 p, $2, 0, p;\nmov.u32 $0, 0;\n"
            "@p atom.relaxed.gpu.global.inc.u32 $0, [$1], 0x7fffffff; }",
            "=&r,l,r,~{memory}", [self.taken.to(gl.int64), thread_number()], gl.int32, is_pure=False,
        )  # fmt: skip

    @gluon.jit
    def told(self, asked):
        """The first thread's, to all."""
        return gl.inline_asm(
            "shfl.sync.idx.b32 $0, $1, 0, 31, 0xffffffff;", "=r,r", [asked], gl.int32, is_pure=False
        )  # fmt: skip
