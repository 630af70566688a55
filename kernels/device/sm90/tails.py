"""Ends that cut K: what a tile's steps bring of other groups. No kernel here.

Warps of their own set it to zero between TMA and the tensor cores, so that no warpgroup does it while it is its turn.

Of operands stored along M and N, TMA brings BLOCK_K rows of K, of which the last ones may be the next group's, whose
numbers may be no numbers. Of operands contiguous ALONG K a group begins inside a line: the first line too may have
numbers of the group before (groups.py, grain_of).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from kernels.device.sm90.loader import LINE, barriers
from kernels.device.sm90.team import thread_number


@gluon.jit
def make_tails(STAGES: gl.constexpr):
    """Barriers, used in turn, of the steps that are not whole: TMA tells these, and who clears a step its own."""
    return barriers(STAGES)


@gluon.jit
def begins_inside(work):
    """Whether a tile begins inside its first line."""
    return work.last >> 16 > 0


@gluon.jit
def is_cut(work, BLOCK_K: gl.constexpr, ALONG: gl.constexpr = False):
    """Whether a tile's last step is not whole."""
    if ALONG:
        return (work.last & 0xFFFF < BLOCK_K) | ((work.count == 1) & begins_inside(work))
    else:
        return work.last < BLOCK_K


@gluon.constexpr_function
def trim_assembly(left_rows, right_rows, threads):
    """Of rows of a line each, swizzled by 128 bytes, those bytes stay that are from $4 to $5, and the others are set to
    zero: `left_rows` of them from $0 + $1 on, then `right_rows` from $2 + $3 on. Of so many threads number $6 has row
    $6 and each so many rows further on, of either operand. Pieces of 16 bytes that keep nothing are written, the two in
    which what stays begins and ends are read before, and no other is touched."""
    assert threads % 8 == 0 and left_rows % threads == 0 and right_rows % threads == 0
    pieces = range(0, LINE.value, 16)
    lines = [
        "{ .reg .pred none, some<2>, gone<8>; .reg .b32 first, at, key, bits, x, y, place<2>, w<4>, kept<8>;",
        "and.b32 key, $6, 7;\nshl.b32 key, key, 4;",
    ]  # fmt: skip
    for end, given in enumerate(("$4", "$5")):
        lines += [f"and.b32 x, {given}, 15;\nsetp.ne.s32 some{end}, x, 0;\nand.b32 y, {given}, -16;"]
        lines += [f"xor.b32 place{end}, y, key;\nshl.b32 x, x, 3;"]
        for i in range(4):
            # What is shifted by 32 bits or more is 0 (PTX ISA, shl).
            word = f"kept{4 * end + i}"
            lines += [f"sub.s32 bits, x, {32 * i};\nmax.s32 bits, bits, 0;\nmov.b32 {word}, -1;"]
            lines += [f"shl.b32 {word}, {word}, bits;", f"not.b32 {word}, {word};" if end else ""]
    for i, piece in enumerate(pieces):
        lines += [f"setp.ge.s32 none, $4, {piece + 16};\nsetp.le.or.s32 gone{i}, $5, {piece}, none;"]
    for base, rows in ((0, left_rows), (2, right_rows)):
        lines += [f"add.u32 first, ${base}, ${base + 1};\nmad.lo.u32 first, $6, {LINE.value}, first;"]
        for row in range(0, rows, threads):
            lines += [f"add.u32 at, first, {row * LINE.value};"]
            for i, piece in enumerate(pieces):
                lines += [f"xor.b32 x, key, {piece};\nadd.u32 x, x, at;"]
                lines += [f"@gone{i} st.shared.v4.b32 [x], {{0, 0, 0, 0}};"]
            for end in range(2):
                lines += [f"add.u32 x, at, place{end};", f"@some{end} ld.shared.v4.b32 {{w0, w1, w2, w3}}, [x];"]
                lines += [f"and.b32 w{i}, w{i}, kept{4 * end + i};" for i in range(4)]
                lines += [f"@some{end} st.shared.v4.b32 [x], {{w0, w1, w2, w3}};"]
    return "\n".join([*lines, "}"])


@gluon.jit
def trim(stages, step, low, high):
    """Of K of a step, what stands from `low` to `high` stays, and the rest counts as zero."""
    gl.static_assert(stages.left.LINES == 1 and stages.right.LINES == 1)
    slot = step % stages.STAGES
    ASSEMBLY: gl.constexpr = trim_assembly(stages.left.ROWS, stages.right.ROWS, gl.num_warps() * 32)
    gl.inline_asm(
        ASSEMBLY, "r,r,r,r,r,r,r,~{memory}",
        [stages.left.bufs, stages.left.at(slot, 0), stages.right.bufs, stages.right.at(slot, 0), low, high,
         thread_number()],
        [], is_pure=False,
    )  # fmt: skip
    fence_async_shared()  # the tensor cores read what was written here
    gl.barrier()


@gluon.jit
def clear_partition(stages, queue, tails, ALONG: gl.constexpr = False):
    """Two warps: every tile's last step, where it is not whole, and ALONG K its first one."""
    number = 0
    n = 0
    work = queue.receive(n)
    while work.count >= 0:
        if ALONG:  # noqa: SIM102  (this one is the compiler's, the other the device's)
            if begins_inside(work) & (work.count > 1):
                mbarrier.wait(tails.index(number % stages.STAGES), number // stages.STAGES & 1)
                trim(stages, work.step, work.last >> 16, LINE)
                mbarrier.arrive(stages.ready.index(work.step % stages.STAGES), count=1)
                number += 1
        if is_cut(work, stages.BLOCK_K, ALONG):
            mbarrier.wait(tails.index(number % stages.STAGES), number // stages.STAGES & 1)
            step = work.step + work.count - 1
            if ALONG:
                trim(stages, step, gl.where(work.count == 1, work.last >> 16, 0), work.last & 0xFFFF)
            else:
                stages.clear(step, work.last)
            mbarrier.arrive(stages.ready.index(step % stages.STAGES), count=1)
            number += 1
        n += 1
        work = queue.receive(n)
