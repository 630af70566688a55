"""Ends that cut K of 8-bit operands, which are contiguous along K: what grouped_mm_scaled.py does about them. Of tiles
that lie whole in their group, tails.py does it. No kernel here.

A group begins inside a line. So the first line of a tile may have numbers of the group before its own (groups.py,
grain_of), and the last line some of the next one's: they are set to zero in shared memory. The warpgroups
that share a tile have a part of its rows each, and meet before one multiplies what another has cleared; one that has a
tile for itself clears all of it.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from kernels.device.sm90.loader import LINE
from kernels.device.sm90.team import thread_number


@gluon.constexpr_function
def keep_assembly(left_rows):
    """Of rows of a line each, swizzled by 128 bytes, a thread's one keeps its bytes from $4 to $5, and else has zeros:
    `left_rows` of them from $0 + $1 on, then others from $2 + $3 on, one for each thread; $6 is the thread's number."""
    lines = [
        "{ .reg .pred right, cut; .reg .b32 t, at, key, low, high, mask, x, w0, w1, w2, w3;",
        "mov.u32 t, $6;", f"setp.ge.u32 right, t, {left_rows};",
        "add.u32 at, $0, $1;\nadd.u32 x, $2, $3;\nselp.b32 at, x, at, right;",
        f"sub.u32 x, t, {left_rows};\nselp.b32 t, x, t, right;", f"mad.lo.u32 at, t, {LINE.value}, at;",
        "and.b32 key, t, 7;\nshl.b32 key, key, 4;",
    ]  # fmt: skip
    for first in range(0, LINE.value, 16):
        lines += [
            f"setp.gt.s32 cut, $4, {first};", f"setp.lt.or.s32 cut, $5, {first + 16}, cut;", f"@!cut bra kept{first};",
            f"xor.b32 x, key, {first};\nadd.u32 x, at, x;\nld.shared.v4.b32 {{w0, w1, w2, w3}}, [x];",
        ]  # fmt: skip
        for i in range(4):
            # What is shifted by 32 bits or more is 0 (PTX ISA, shl).
            place = 8 * (first + 4 * i)
            lines += [
                f"shl.b32 low, $4, 3;\nsub.s32 low, low, {place};\nmax.s32 low, low, 0;\nmov.b32 mask, -1;",
                f"shl.b32 mask, mask, low;\nand.b32 w{i}, w{i}, mask;",
                f"shl.b32 high, $5, 3;\nsub.s32 high, high, {place};\nmax.s32 high, high, 0;\nmov.b32 mask, -1;",
                f"shl.b32 mask, mask, high;\nnot.b32 mask, mask;\nand.b32 w{i}, w{i}, mask;",
            ]  # fmt: skip
        lines += ["st.shared.v4.b32 [x], {w0, w1, w2, w3};", f"kept{first}:"]
    return "\n".join([*lines, "}"])


@gluon.aggregate
class Edges:
    """Where K of a tile begins and ends within its lines; a step has one."""

    first: gl.tensor  # step of the pipeline
    final: gl.tensor
    head: gl.tensor  # bytes of the first line that are another group's
    tail: gl.tensor  # bytes of the last line up to the group's end
    phase: gl.tensor  # of the barrier, at the first step
    meeting: gl.shared_memory_descriptor
    number: gl.tensor  # of this warpgroup
    SHARERS: gl.constexpr  # warpgroups of the tile

    @gluon.jit
    def keep(self, stages, step, low, high, half):
        """Of either half of the rows of both operands, each thread of a warpgroup has one."""
        LEFT: gl.constexpr = stages.left.ROWS // 2
        RIGHT: gl.constexpr = stages.right.ROWS // 2
        gl.static_assert(LEFT + RIGHT == 128)
        slot = step % stages.STAGES
        gl.inline_asm(
            keep_assembly(LEFT), "r,r,r,r,r,r,r,~{memory}",
            [stages.left.bufs, stages.left.at(slot, half * LEFT), stages.right.bufs,
             stages.right.at(slot, half * RIGHT), low, high, thread_number() % 128],
            [], is_pure=False,
        )  # fmt: skip

    @gluon.jit
    def trim(self, stages, step):
        """A step that is there, before it is multiplied."""
        if (step == self.first) | (step == self.final):
            low = gl.where(step == self.first, self.head, 0)
            high = gl.where(step == self.final, self.tail, LINE)
            if self.SHARERS == 2:
                self.keep(stages, step, low, high, self.number)
            else:
                self.keep(stages, step, low, high, 0)
                self.keep(stages, step, low, high, 1)
            fence_async_shared()  # the tensor cores read what was written here
            if self.SHARERS == 1:
                stages.team.meet()
            else:
                bar = self.meeting.index(0)
                stages.team.tell(bar)
                stages.team.wait(bar, self.phase ^ (step != self.first).to(gl.int32))


@gluon.jit
def edges_of(work, met, meeting, number, SHARERS: gl.constexpr):
    """Those of a tile before which its warpgroups met so many times; and how many times they have met behind it."""
    final = work.step + gl.maximum(work.count, 1) - 1
    edges = Edges(
        work.step, final, work.last >> 16, work.last & 0xFFFF, met & 1, meeting, number, SHARERS
    )  # fmt: skip
    return edges, met + gl.minimum(work.count, 2)


@gluon.jit
def wait_trimmed(stages, step, edges):
    """Until a step is there, and of a tile with edges what it multiplies and nothing else."""
    stages.wait_ready(step)
    if len(edges) > 0:
        edges[0].trim(stages, step)
