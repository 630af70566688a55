"""One step of K on the tensor cores with an N that need not be a power of two: what Gluon has no word for. No kernel.

The instruction multiplies 64 x 16 by 16 x N for any N that is a multiple of 8, and the first N / 2 registers of each
thread hold its part of the sum whatever N is (PTX ISA, wgmma.mma_async, "Register fragments" and "Matrix descriptor").
So one accumulator of full width serves all widths, its columns from N on left as they were.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def constraints(registers):
    """The accumulator goes in and out; two buffers and a flag go in."""
    return ",".join(["=f"] * registers + [str(i) for i in range(registers)] + ["r", "r", "r", "~{memory}"])


@gluon.constexpr_function
def own_constraints(registers):
    return ",".join(["=f"] * registers + [str(i) for i in range(registers)] + ["~{memory}"])


@gluon.constexpr_function
def wait_of(width):
    return f"wgmma.wait_group.sync.aligned 0; // for {width} columns"


@gluon.constexpr_function
def step_of(registers, width, rows, element, trans):
    """128 bytes of K: `rows` rows of the left operand by `width` of the right one, which has K in order. Both buffers
    are swizzled by 128 bytes; eight rows are 1024 bytes. `trans`: the left one has its rows in order, 64 at a time."""
    left, right, adds = (f"${2 * registers + i}" for i in range(3))
    each = registers * 64 // rows
    high = (1024 >> 4) | (1 << 30)  # from eight rows to the next; swizzle by 128 bytes
    lines = [
        "{ .reg .pred p; .reg .b32 l, r, x; .reg .b64 dl, dr;", f"setp.ne.s32 p, {adds}, 0;",
        f"bfe.u32 l, {left}, 4, 14;", "or.b32 l, l, 65536;",
        f"bfe.u32 r, {right}, 4, 14;", "or.b32 r, r, 65536;",
        "wgmma.fence.sync.aligned;",
    ]  # fmt: skip
    for k in range(4):
        lines += [f"add.u32 x, r, {k * 2};", f"mov.b64 dr, {{x, {high}}};"]
        for m in range(rows // 64):
            part = ", ".join(f"${i}" for i in range(m * each, m * each + width // 2))
            lines += [
                f"add.u32 x, l, {k * (128 if trans else 2) + m * 512};", f"mov.b64 dl, {{x, {high}}};",
                f"wgmma.mma_async.sync.aligned.m64n{width}k16.f32.{element}.{element} "
                f"{{{part}}}, dl, dr, {'1' if k else 'p'}, 1, 1, {int(trans)}, 0;",
            ]  # fmt: skip
    return "\n".join([*lines, "wgmma.commit_group.sync.aligned; }"])


@gluon.jit
def multiply_step(acc, left, right, adds, WIDTH: gl.constexpr, TRANS: gl.constexpr):
    """acc[:, :WIDTH] + left @ right[:WIDTH]^T, begun; unless `adds`, acc counts as zero. The sum counts as written only
    after warpgroup_mma_wait."""
    REGISTERS: gl.constexpr = acc.shape[0] * acc.shape[1] // 128
    ELEMENT: gl.constexpr = "bf16" if left.dtype == gl.bfloat16 else "f16"
    return gl.inline_asm(
        step_of(REGISTERS, WIDTH, acc.shape[0], ELEMENT, TRANS), constraints(REGISTERS),
        [acc, left, right, adds.to(gl.int32)], acc.type, is_pure=False,
    )  # fmt: skip


@gluon.jit
def wait_all(acc, WIDTH: gl.constexpr):
    """warpgroup_mma_wait(0), of one width alone: were it shared by the ends of several loops, the accumulator would
    move between registers while it is written."""
    REGISTERS: gl.constexpr = acc.shape[0] * acc.shape[1] // 128
    return gl.inline_asm(wait_of(WIDTH), own_constraints(REGISTERS), [acc], acc.type, is_pure=False)
