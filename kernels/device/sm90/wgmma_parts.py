"""A main loop's accumulator in parts, so that a tile may be any multiple of 8 wide. No kernel here.

A tensor's extents are powers of two, an instruction's N is any multiple of 8 up to 256. So the accumulator is a tuple
of tensors, as wide as a store's box or half, a quarter, an eighth of it: together W / 2 registers a thread for 64 rows,
of which one instruction of N = W writes all (PTX ISA, wgmma.mma_async, "Register fragments"). In shared memory both
operands are swizzled by 128 bytes; eight rows, or of an operand that is contiguous along M or N eight steps in K, are
1024 bytes (same chapter, "Matrix descriptor").
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def part_widths(width, most):
    """What `width` columns are cut into: runs of `most`, then what is left by halves."""
    return [most] * (width // most) + [p for p in (most // 2, most // 4, most // 8) if width % most & p]


@gluon.constexpr_function
def part_types(parts):
    return tuple(part.type for part in parts)


@gluon.constexpr_function
def tied(registers, more):
    """Constraints: the accumulator goes in and out, `more` integers go in."""
    return ",".join(["=f"] * registers + [str(i) for i in range(registers)] + ["r"] * more + ["~{memory}"])


@gluon.constexpr_function
def step_assembly(rows, width, most, element, left_turned, right_turned):
    """128 bytes of K: `rows` rows of the left operand by `width` of the right one, then a wait for the step before.
    `turned`: that operand is contiguous along its rows, and comes in boxes of 64 of them.

    Registers are numbered part by part, within a part 64 rows by 64 rows. From one instruction's K to the next are 32
    bytes, or 16 lines of 128 bytes where an operand is turned.
    """
    registers = rows * width // 128
    left, right, adds = (f"${2 * registers + i}" for i in range(3))
    high = (1024 >> 4) | (1 << 30)  # from eight lines to the next; swizzle by 128 bytes
    box = (8192 >> 4) << 16  # from 64 columns to the next, where the right one is turned
    k_step = {"bf16": 16, "f16": 16, "tf32": 8}[element]
    turns = f", {left_turned}, {right_turned}" if k_step == 16 else ""  # of tf32 none can be
    lines = [
        "{ .reg .pred p; .reg .b32 l, r, x; .reg .b64 dl, dr;", f"setp.ne.s32 p, {adds}, 0;",
        f"bfe.u32 l, {left}, 4, 14;", "or.b32 l, l, 65536;",
        f"bfe.u32 r, {right}, 4, 14;", f"or.b32 r, r, {box if right_turned else 65536};",
        "wgmma.fence.sync.aligned;",
    ]  # fmt: skip
    for k in range(4):
        lines += [f"add.u32 x, r, {k * (128 if right_turned else 2)};", f"mov.b64 dr, {{x, {high}}};"]
        for m in range(rows // 64):
            owned, first = [], 0
            for part in part_widths(width, most):
                owned += [f"${first + m * part // 2 + i}" for i in range(part // 2)]
                first += rows * part // 128
            lines += [
                f"add.u32 x, l, {k * (128 if left_turned else 2) + m * 512};", f"mov.b64 dl, {{x, {high}}};",
                f"wgmma.mma_async.sync.aligned.m64n{width}k{k_step}.f32.{element}.{element} "
                f"{{{', '.join(owned)}}}, dl, dr, {'1' if k else 'p'}, 1, 1{turns};",
            ]  # fmt: skip
    return "\n".join([*lines, "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 1; }"])


@gluon.jit
def zero_parts(ROWS: gl.constexpr, WIDTH: gl.constexpr, MOST: gl.constexpr, FIRST: gl.constexpr = 0):
    """The parts from number FIRST on, all zeros, of a warpgroup's accumulator."""
    PART: gl.constexpr = part_widths(WIDTH, MOST)[FIRST]
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, PART, 16])
    if len(part_widths(WIDTH, MOST)) == FIRST + 1:
        return (gl.zeros((ROWS, PART), gl.float32, layout),)
    else:
        return (gl.zeros((ROWS, PART), gl.float32, layout),) + zero_parts(ROWS, WIDTH, MOST, FIRST + 1)  # noqa: RUF005


@gluon.jit
def multiply_step(
    parts, left, right, adds, ROWS: gl.constexpr, WIDTH: gl.constexpr, MOST: gl.constexpr,
    LEFT_TURNED: gl.constexpr, RIGHT_TURNED: gl.constexpr,
):  # fmt: skip
    """The sum with one step more, begun; unless `adds`, it counts as zero before. The step before this is done."""
    REGISTERS: gl.constexpr = ROWS * WIDTH // 128
    ELEMENT: gl.constexpr = "tf32" if left.dtype == gl.float32 else ("bf16" if left.dtype == gl.bfloat16 else "f16")
    given = parts + (left, right, adds.to(gl.int32))  # noqa: RUF005
    return gl.inline_asm(
        step_assembly(ROWS, WIDTH, MOST, ELEMENT, int(LEFT_TURNED), int(RIGHT_TURNED)), tied(REGISTERS, 3), given,
        part_types(parts), is_pure=False,
    )  # fmt: skip


@gluon.jit
def wait_for_parts(parts, ROWS: gl.constexpr, WIDTH: gl.constexpr):
    """The sum, once all its steps are done."""
    return gl.inline_asm(
        "wgmma.wait_group.sync.aligned 0;", tied(ROWS * WIDTH // 128, 0), parts, part_types(parts), is_pure=False
    )
