"""The main loop of 8-bit operands whose sums are kept in float32: tensor cores keep about 14 bits of a sum of 8-bit
products, so those of 128 of K, a line of a stage, are multiplied by themselves and then added to the accumulator. There
each may be multiplied by the scales of its block. No kernel here.

Where registers hold three sums of a tile, the next line's products are begun before this one's are added: in a
warpgroup that multiplies alone the tensor cores would else wait.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.edges import wait_trimmed
from kernels.device.sm90.mainloop import (
    element_of,
    outputs,
    part_types,
    registers_of,
    step_assembly,
    tied,
    wait_for_parts,
)
from kernels.device.sm90.promote_blocks import do, meet_readers, multiply_blocks


@gluon.jit
def read(scales, parts, stages, step, LINE: gl.constexpr, row):
    if len(scales) > 0:
        LINES: gl.constexpr = stages.left.LINES
        return scales[0].read(parts, step % stages.STAGES * LINES + LINE, step * LINES + LINE, row)
    else:
        return ()


@gluon.jit
def add_parts(parts, more, FIRST: gl.constexpr = 0):
    """Part by part from number FIRST on."""
    if len(parts) == FIRST + 1:
        return (parts[FIRST] + more[FIRST],)
    else:
        return (parts[FIRST] + more[FIRST],) + add_parts(parts, more, FIRST + 1)  # noqa: RUF005


@gluon.jit
def add(scales, parts, own, read):
    if len(scales) > 0:
        return scales[0].add(parts, own, read)
    else:
        return add_parts(parts, own)


@gluon.jit
def multiply_line(
    like, stages, step, LINE: gl.constexpr, row, WIDTH: gl.constexpr, PENDING: gl.constexpr = 0
):  # fmt: skip
    """The products of one line of a step by themselves, of the types that `like` has: done, or with PENDING None only
    begun."""
    left = stages.left
    right = stages.right
    slot = step % stages.STAGES
    ASSEMBLY: gl.constexpr = step_assembly(
        like, WIDTH, element_of(left.bufs.dtype), (left.LINES, left.ROWS, left.TURNED, left.BOX),
        (right.LINES, right.ROWS, right.TURNED, right.BOX), left.HALVES, LINE, PENDING,
    )  # fmt: skip
    given = (left.bufs, left.at(slot, row), right.bufs, right.at(slot, 0))
    return gl.inline_asm(ASSEMBLY, outputs(registers_of(like), 4), given, part_types(like), is_pure=False)


@gluon.jit
def begin_line(parts, own, before, stages, step, row, WIDTH: gl.constexpr):
    """The same begun, of a step of one line, in place of the sums `own`, and those of the line `before` waited for.
    Both go in and come out, so that nothing moves what is being written to other registers; so does the accumulator,
    which must have had what `own` was before."""
    left = stages.left
    right = stages.right
    slot = step % stages.STAGES
    REGISTERS: gl.constexpr = registers_of(own)
    ASSEMBLY: gl.constexpr = step_assembly(
        own, WIDTH, element_of(left.bufs.dtype), (left.LINES, left.ROWS, left.TURNED, left.BOX),
        (right.LINES, right.ROWS, right.TURNED, right.BOX), left.HALVES, 0, 1, 2 * REGISTERS,
    )  # fmt: skip
    given = own + before + parts + (left.bufs, left.at(slot, row), right.bufs, right.at(slot, 0))
    types: gl.constexpr = part_types(own) + part_types(before) + part_types(parts)
    made = gl.inline_asm(ASSEMBLY, tied(3 * REGISTERS, 4), given, types, is_pure=False)
    COUNT: gl.constexpr = len(own)
    return made[2 * COUNT :], made[:COUNT], made[COUNT : 2 * COUNT]


@gluon.constexpr_function
def runs_ahead(parts, lines, scales, registers):
    """Whether steps have one line (of two the assembler would wait for every instruction), and so many registers of a
    thread hold the sum and, for two lines, products and scales."""
    wanted = 3 * registers_of(parts) + 40
    if len(scales) and scales[0].ring.SWAP:
        wanted += sum(part.type.shape[1] for part in parts) // 2
    return lines == 1 and wanted <= registers


@gluon.jit
def follow(
    parts, own, before, of_before, stages, scales, step, edges, row, WIDTH: gl.constexpr
):  # fmt: skip
    """A step of one line begun, then the products of the step before added with its scales. Returns the sum, both
    steps' products, and the begun one's scales."""
    wait_trimmed(stages, step, edges)
    of_own = read(scales, parts, stages, step, 0, row)
    parts, own, before = begin_line(parts, own, before, stages, step, row, WIDTH)
    stages.release(step - 1)
    return add(scales, parts, before, of_before), own, before, of_own


@gluon.jit
def multiply_ahead(
    parts, stages, scales, step, count, edges, meanwhile, row, WIDTH: gl.constexpr
):  # fmt: skip
    """`multiply_promoted` of steps of one line, with two in flight, whose products take turns in two sets of registers.
    Written out for two steps, so that no loop moves one set to the other."""
    wait_trimmed(stages, step, edges)
    of_one = read(scales, parts, stages, step, 0, row)
    parts, one, two = begin_line(parts, parts, parts, stages, step, row, WIDTH)
    stages.team.meet()  # all are past this step's barrier; from here on `release` has one
    done = do(meanwhile)
    for _ in range((count - 1) // 2):
        parts, two, one, of_two = follow(parts, two, one, of_one, stages, scales, step + 1, edges, row, WIDTH)
        parts, one, two, of_one = follow(parts, one, two, of_two, stages, scales, step + 2, edges, row, WIDTH)
        step += 2
    if count % 2 == 0:
        step += 1
        parts, two, one, of_two = follow(parts, two, one, of_one, stages, scales, step, edges, row, WIDTH)
        parts = add(scales, parts, wait_for_parts(two, WIDTH), of_two)
    else:
        parts = add(scales, parts, wait_for_parts(one, WIDTH), of_one)
    if len(scales) > 0:
        meet_readers(stages)
    stages.release(step)
    return parts, step + 1, done


@gluon.jit
def multiply_shared(parts, stages, step, count, meanwhile, row, WIDTH: gl.constexpr):
    """The same with one in flight, of a tile that warpgroups share, without scales and edges. The first step's products
    are added to zeros: were they the sum, it would stand in the register banks of all other products, and each addition
    wait."""
    stages.wait_ready(step)
    own = multiply_line(parts, stages, step, 0, row, WIDTH, None)
    done = do(meanwhile)
    own = wait_for_parts(own, WIDTH)
    stages.release(step)
    parts = add_parts(parts, own)
    for i in range(1, count):
        stages.wait_ready(step + i)
        own = multiply_line(parts, stages, step + i, 0, row, WIDTH)
        stages.release(step + i)
        parts = add_parts(parts, own)
    return parts, step + count, done


@gluon.constexpr_function
def is_of_blocks(lines, scales, shared):
    """Whether promote_blocks.py has the loop."""
    return lines == 1 and len(scales) > 0 and shared and not scales[0].ring.SWAP


@gluon.jit
def multiply_promoted(
    parts, stages, scales, step, count, row, WIDTH: gl.constexpr, REGISTERS: gl.constexpr,
    SHARED: gl.constexpr, edges=(), meanwhile=(),
):  # fmt: skip
    """The sum over `count` steps from number `step` on, added up in float32 line by line, each times its scales; the
    number after them; and what came of `meanwhile`, which is done while the first step's products are under way, or
    before them by the loop for the tiles that no other serves. A thread has so many registers. SHARED: with another
    warpgroup, which has the tile's other rows. Edges: where K of the tile begins and ends within a line."""
    LINES: gl.constexpr = stages.left.LINES
    count = gl.maximum(count, 1)
    if is_of_blocks(LINES, scales, SHARED):
        TWO: gl.constexpr = runs_ahead(parts, LINES, scales, REGISTERS)
        parts, done = multiply_blocks(parts, stages, scales[0], step, step + count, meanwhile, row, WIDTH, TWO)
        return parts, step + count, done
    elif runs_ahead(parts, LINES, scales, REGISTERS):
        return multiply_ahead(parts, stages, scales, step, count, edges, meanwhile, row, WIDTH)
    elif LINES == 1 and SHARED and len(scales) == 0 and len(edges) == 0:
        return multiply_shared(parts, stages, step, count, meanwhile, row, WIDTH)
    else:
        done = do(meanwhile)
        for _ in range(count):
            wait_trimmed(stages, step, edges)
            for line in gl.static_range(LINES):
                of_own = read(scales, parts, stages, step, line, row)
                own = multiply_line(parts, stages, step, line, row, WIDTH)
                if line == LINES - 1:
                    if len(scales) > 0:
                        meet_readers(stages)
                    stages.release(step)
                parts = add(scales, parts, own, of_own)
            step += 1
        return parts, step, done
