"""The main loop: steps in K on the tensor cores, with a sum in parts, so that a tile may be any multiple of 8 wide. No
kernel here.

A tensor's extents are powers of two, an instruction's N is any multiple of 8 up to 256. So the accumulator is a tuple
of tensors, as wide as a store's box or half, a quarter, an eighth of it: together W / 2 registers a thread for 64 rows,
of which an instruction of N = W writes all, one of a lesser N the first N / 2 (PTX ISA, wgmma.mma_async, "Register
fragments"). In shared memory both operands are swizzled by lines of 128 bytes, or of a turned one with narrower boxes
by 64 or 32; eight rows, or of an operand that is contiguous along M or N eight elements of K, are eight such lines
(same chapter, "Matrix descriptor").

Assembly reads the buffers: of each view that a number indexes the compiler follows all bytes it may have, which took
half of its time. It knows no more than where they begin, so whoever reads or writes them waits and fences by itself.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from kernels.device.sm90.team_layouts import part_layout, warps_of


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
def outputs(registers, inputs):
    """Constraints: sums come out, `inputs` integers go in, which are read before all of them is written."""
    return ",".join(["=&f"] * registers + ["r"] * inputs + ["~{memory}"])


@gluon.constexpr_function
def registers_of(parts):
    """Of a thread, all parts together."""
    rows, warps = parts[0].type.shape[0], warps_of(parts[0].type)
    return sum(part.type.shape[1] for part in parts) * rows // (32 * warps)


@gluon.constexpr_function
def element_of(dtype):
    return {"fp32": "tf32", "bf16": "bf16", "fp16": "f16", "fp8e4nv": "e4m3"}[str(dtype)]


@gluon.constexpr_function
def step_assembly(
    parts, width, element, left, right, halves, alone=None, pending=1, kept=0, words=False, adds=True, piece=False
):  # fmt: skip
    """One step in K: all rows of the accumulator, by `width` columns of it; or the products of line number `alone` of
    the step by themselves. Then a wait until so many are `pending`, None: no wait. Left and right are (LINES, ROWS,
    TURNED, BOX) of the operands. The parts are those of all rows, or, one behind the other, those of the same rows of
    either half of the left operand. With what is multiplied alone `kept` registers go in and come out besides. Unless
    it `adds`, the accumulator only comes out. A `piece`: of the step one instruction's K alone, whose number is given
    last. An operand is given by its buffers and bytes from there on, or as `words`, the lower half of its descriptor.

    Registers are numbered part by part, within a part 64 rows by 64 rows. From one instruction's K to the next are 32
    bytes, or 16 lines of a box where an operand is turned; from one line of a row to the next all rows of a stage.
    """
    shapes = [part.type.shape for part in parts[: len(parts) // halves]]
    warpgroups = warps_of(parts[0].type) // 4
    rows_of_part = shapes[0][0] // warpgroups
    own_rows = rows_of_part * halves
    registers = sum(shape[1] for shape in shapes) * own_rows // 128
    k_step = {"bf16": 16, "f16": 16, "tf32": 8, "e4m3": 32}[element]
    turns = f", {int(left[2])}, {int(right[2])}" if k_step == 16 else ""  # of others none can be
    by_itself = alone is not None or not adds
    first_input = registers if by_itself and not kept else 2 * (registers + kept)

    def line(operand):
        """Bytes of a line, in which it is swizzled."""
        return operand[3] * 2 if operand[2] else 128

    def high(operand):
        """Of a descriptor: from eight lines to the next, and the swizzle's code, 1 for 128 bytes to 3 for 32."""
        return (line(operand) * 8 >> 4) | {128: 1, 64: 2, 32: 3}[line(operand)] << 30

    def box(operand):
        """From 64 rows to the next, of a turned operand from a box to the next."""
        return (line(operand) * 64 >> 4) * (operand[0] if operand[2] else 1)

    def at(operand, k):
        return k * line(operand) if operand[2] else k // 4 * (operand[1] * 128 >> 4) + k % 4 * 2

    address, from_left, from_right, number = (f"${first_input + i}" for i in (0, 1, 3, 4))
    lines = ["{ .reg .pred p; .reg .b32 l, r, x; .reg .b64 dl, dr;", "setp.ne.s32 p, 0, 0;" if by_itself else ""]
    if words:
        lines += [f"mov.b32 l, ${first_input};", f"mov.b32 r, ${first_input + 1};"]
    else:
        lines += [
            f"add.u32 l, {address}, {from_left};", "bfe.u32 l, l, 4, 14;",
            f"add.u32 r, ${first_input + 2}, {from_right};", "bfe.u32 r, r, 4, 14;",
            f"or.b32 r, r, {box(right) << 16 if right[2] else 65536};",
        ]  # fmt: skip
    if warpgroups > 1:
        lines += ["mov.u32 x, %tid.x;", "shr.u32 x, x, 7;", f"mad.lo.u32 l, x, {own_rows // 64 * box(left)}, l;"]
    lines += ["or.b32 l, l, 65536;"] * (not words)
    if piece:
        lines += [f"mad.lo.u32 l, {number}, {at(left, 1)}, l;", f"mad.lo.u32 r, {number}, {at(right, 1)}, r;"]
    lines += ["wgmma.fence.sync.aligned;"]
    steps = range(4 * left[0]) if alone is None else range(4 * alone, 4 * alone + 4)
    if piece:  # of the first line, in which they stand one behind the other
        steps = range(1)
    for k in steps:
        lines += [f"add.u32 x, r, {at(right, k)};", f"mov.b64 dr, {{x, {high(right)}}};"]
        for m in range(own_rows // 64):
            half, inside = divmod(m, rows_of_part // 64)
            row = inside * 64 + half * (left[1] // halves)
            owned, first = [], half * registers // halves
            for _, part in shapes:
                owned += [f"${first + inside * part // 2 + i}" for i in range(part // 2)]
                first += rows_of_part * part // 128
            adding = "p" if by_itself and k == steps[0] else "1"
            lines += [
                f"add.u32 x, l, {at(left, k) + row // 64 * box(left)};", f"mov.b64 dl, {{x, {high(left)}}};",
                f"wgmma.mma_async.sync.aligned.m64n{width}k{k_step}.f32.{element}.{element} "
                f"{{{', '.join(owned[: width // 2])}}}, dl, dr, {adding}, 1, 1{turns};",
            ]  # fmt: skip
    wait = "" if pending is None else f"wgmma.wait_group.sync.aligned {pending}; "
    return "\n".join([*lines, "wgmma.commit_group.sync.aligned;", f"{wait}}}"])


@gluon.jit
def zero_parts(
    ROWS: gl.constexpr, WIDTH: gl.constexpr, MOST: gl.constexpr, FIRST: gl.constexpr = 0, TOGETHER: gl.constexpr = False
):  # fmt: skip
    """The parts from number FIRST on, all zeros, of each warpgroup's accumulator, or of one that all warps here have
    TOGETHER."""
    PART: gl.constexpr = part_widths(WIDTH, MOST)[FIRST]
    if TOGETHER:
        layout: gl.constexpr = gl.NVMMADistributedLayout(
            version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, PART, 16]
        )
    else:
        layout: gl.constexpr = part_layout(ROWS, PART, gl.num_warps())
    own = (gl.zeros((ROWS, PART), gl.float32, layout),)
    if len(part_widths(WIDTH, MOST)) == FIRST + 1:
        return own
    else:
        return own + zero_parts(ROWS, WIDTH, MOST, FIRST + 1, TOGETHER)


@gluon.jit
def multiply_step(
    parts, stages, step, row, WIDTH: gl.constexpr, ADDS: gl.constexpr = True, number=None
):  # fmt: skip
    """The sum with one step more, begun: the left operand's rows from `row` on by WIDTH of the right one's. The step
    before this is done. Of one instruction's K alone, where its `number` in the step is given.

    Unless it ADDS, the sum begins here, of the types that `parts` have, in registers that may have held anything: to
    set them to zero would take the time of an instruction for each two, in which the tensor cores wait.
    """
    left = stages.left
    right = stages.right
    slot = step % stages.STAGES
    PIECE: gl.constexpr = number is not None
    ASSEMBLY: gl.constexpr = step_assembly(
        parts, WIDTH, element_of(left.bufs.dtype), (left.LINES, left.ROWS, left.TURNED, left.BOX),
        (right.LINES, right.ROWS, right.TURNED, right.BOX), left.HALVES, adds=ADDS, piece=PIECE,
    )  # fmt: skip
    given = (left.bufs, left.at(slot, row), right.bufs, right.at(slot, 0))
    if PIECE:
        given = given + (number,)  # noqa: RUF005
    if ADDS:
        given = parts + given
    CONSTRAINTS: gl.constexpr = (tied if ADDS else outputs)(registers_of(parts), 4 + PIECE)
    return gl.inline_asm(ASSEMBLY, CONSTRAINTS, given, part_types(parts), is_pure=False)


@gluon.jit
def wait_for_parts(parts, WIDTH: gl.constexpr):
    """The sum, once all its steps are done. Of one width alone: were the wait shared by the ends of several loops, the
    accumulator would move between registers while it is written."""
    return gl.inline_asm(
        f"wgmma.wait_group.sync.aligned 0; // for {WIDTH} columns", tied(registers_of(parts), 0), parts,
        part_types(parts), is_pure=False,
    )  # fmt: skip


@gluon.jit
def ready(stages, step, last, is_last, CLEAR: gl.constexpr, edges):
    """Once a step may be multiplied. What it brings of K from `last` on is not this tile's, if it is the last one."""
    stages.wait_ready(step)
    if len(edges) > 0:
        edges[0].trim(stages, step)
    if stages.BY_THREADS:
        fence_async_shared()  # the tensor cores read what threads wrote
    if CLEAR:  # noqa: SIM102  (this one is the compiler's, the other the device's)
        if is_last & (last < stages.BLOCK_K):
            stages.clear(step, last)


@gluon.constexpr_function
def pieces_of(stages):
    """Instructions' K in a step where K may end between two of them: of 16-bit operands and one line."""
    one_line = stages.left.LINES.value == 1 and not stages.BY_THREADS.value
    return 4 if one_line and stages.left.bufs.dtype.primitive_bitwidth == 16 else 1


@gluon.jit
def multiply(
    parts, stages, step, count, last, row, WIDTH: gl.constexpr, CLEAR: gl.constexpr = False,
    CUT: gl.constexpr = False, TO_ZEROS: gl.constexpr = False, edges=(),
):  # fmt: skip
    """The sum over `count` steps, at least one, begun, of the types that `parts` have; and the number after them. Of
    the last step K is `last` deep. CLEAR: what the step brings beyond is another tile's. CUT: no instruction is spent
    on what is beyond. TO_ZEROS: added to `parts`, which are zeros: where loops of several widths end in one place and
    each makes its sum anew, the assembler waits for every instruction. Edges: where K of the tile begins and ends
    within a line."""
    count = gl.maximum(count, 1)
    whole = count
    PIECES: gl.constexpr = pieces_of(stages) if CUT else 1
    if PIECES > 1:
        cut = (count > 1) & (last <= stages.BLOCK_K - stages.BLOCK_K // PIECES)
        whole -= cut.to(gl.int32)
    if not TO_ZEROS:
        ready(stages, step, last, count == 1, CLEAR, edges)
        parts = multiply_step(parts, stages, step, row, WIDTH, ADDS=False)
        if stages.CLUSTER == 1:
            stages.team.meet()  # all are past this step's barrier; from here on `release` has one, in clusters the wait
        step += 1
    BEGUN: gl.constexpr = 0 if TO_ZEROS else 1
    for i in range(BEGUN, whole):
        ready(stages, step, last, i == count - 1, CLEAR, edges)
        parts = multiply_step(parts, stages, step, row, WIDTH)
        stages.release(step + stages.STAGES - 1, i > 0)  # the one before this is done
        step += 1
    if PIECES > 1:
        for i in range(gl.where(cut, gl.cdiv(last, stages.BLOCK_K // PIECES), 0)):
            ready(stages, step, last, i == 0, CLEAR, edges)
            parts = multiply_step(parts, stages, step, row, WIDTH, number=i)
            stages.release(step + stages.STAGES - 1, i == 0)
        step += cut.to(gl.int32)
    return parts, step
