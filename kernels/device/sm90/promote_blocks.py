"""The main loop of promote.py where operands have scales of blocks and two warpgroups share a tile. No kernel here.

While one warpgroup adds, the tensor cores make the other one's products: a step takes no longer than they do, if a
warpgroup is back with its next products in time. So sums stand in other banks than their products (paired_sums.py),
nothing is divided on the way (place.py), and scales are read while products are under way. Other tiles lose by it: in
those that a warpgroup has for itself, or whose columns are A's rows, what is carried costs more than what is divided.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.mainloop import element_of, part_types, registers_of, step_assembly, wait_for_parts
from kernels.device.sm90.paired_sums import add_to_pairs, constraints, pack, pair_types, ties, unpack
from kernels.device.sm90.place import places


@gluon.jit
def do(meanwhile):
    """What a caller has to do while products are under way, if anything: between two tiles it would be done while the
    tensor cores wait."""
    if len(meanwhile) > 0:
        return meanwhile[0].do()
    else:
        return ()


@gluon.jit
def begin(like, stages, at, WIDTH: gl.constexpr):
    """The products of a step by themselves, begun: sums of the types that `like` has."""
    left = stages.left
    right = stages.right
    ASSEMBLY: gl.constexpr = step_assembly(
        like, WIDTH, element_of(left.bufs.dtype), (left.LINES, left.ROWS, left.TURNED, left.BOX),
        (right.LINES, right.ROWS, right.TURNED, right.BOX), left.HALVES, 0, None, words=True,
    )  # fmt: skip
    KINDS: gl.constexpr = constraints(("=&f", registers_of(like)), ("r", 2), ("~{memory}", 1))
    return gl.inline_asm(ASSEMBLY, KINDS, (at.left, at.right), part_types(like), is_pure=False)


@gluon.constexpr_function
def kept_kinds(registers, more):
    """Two steps' products and a sum go in and come out, and `more` integers go in."""
    kept = constraints(("=f", 2 * registers), ("=l", registers // 2))
    return ",".join([kept, ties(2 * registers + registers // 2), *["r"] * more, "~{memory}"])


@gluon.jit
def begin_beside(pairs, own, before, stages, at, WIDTH: gl.constexpr):
    """The same in place of the products `own`, while those `before` may be under way. Both go in and come out, so that
    nothing moves what is being written to other registers; so do the sums, which must have had what `own` was."""
    left = stages.left
    right = stages.right
    REGISTERS: gl.constexpr = registers_of(own)
    ASSEMBLY: gl.constexpr = step_assembly(
        own, WIDTH, element_of(left.bufs.dtype), (left.LINES, left.ROWS, left.TURNED, left.BOX),
        (right.LINES, right.ROWS, right.TURNED, right.BOX), left.HALVES, 0, None, REGISTERS + REGISTERS // 2, True,
    )  # fmt: skip
    types: gl.constexpr = part_types(own) + part_types(own) + pair_types(own)
    given = own + before + pairs + (at.left, at.right)
    made = gl.inline_asm(ASSEMBLY, kept_kinds(REGISTERS, 2), given, types, is_pure=False)
    COUNT: gl.constexpr = len(own)
    return made[2 * COUNT :], made[:COUNT], made[COUNT : 2 * COUNT]


@gluon.jit
def wait_for_before(pairs, own, before):
    """All but the last step's products, done."""
    types: gl.constexpr = part_types(own) + part_types(own) + pair_types(own)
    KINDS: gl.constexpr = kept_kinds(registers_of(own), 0)
    made = gl.inline_asm("wgmma.wait_group.sync.aligned 1;", KINDS, own + before + pairs, types, is_pure=False)
    COUNT: gl.constexpr = len(own)
    return made[2 * COUNT :], made[:COUNT], made[COUNT : 2 * COUNT]


@gluon.jit
def meet_readers(stages):
    """Before a stage is released with no wait since its scales were read: in a cluster no warp waits there for another,
    which may still read them."""
    if stages.CLUSTER > 1:
        stages.team.meet()


@gluon.jit
def follow(pairs, own, before, of_before, stages, scales, parts, at, row, WIDTH: gl.constexpr):
    """A step begun, then the products of the step before added with its scales. Returns the sums, both steps' products,
    and the begun one's scales."""
    stages.wait_at(at.slot, at.parity, True)
    pairs, own, before = begin_beside(pairs, own, before, stages, at, WIDTH)
    of_own = scales.read(parts, at.slot, at.step, row)
    pairs, own, before = wait_for_before(pairs, own, before)
    stages.release_at(gl.where(at.slot == 0, stages.STAGES - 1, at.slot - 1))
    return add_to_pairs(pairs, before, scales.products(of_before)), own, before, of_own


@gluon.jit
def multiply_two(parts, stages, scales, step, end, meanwhile, row, WIDTH: gl.constexpr):
    """With two steps in flight, whose products take turns in two sets of registers. Written out for two steps, so that
    no loop moves one set to the other."""
    at, first = places(stages, step, row)
    count = end - step
    pairs = pack(parts)
    stages.wait_at(at.slot, at.parity, True)
    pairs, one, two = begin_beside(pairs, parts, parts, stages, at, WIDTH)
    of_one = scales.read(parts, at.slot, at.step, row)
    done = do(meanwhile)
    for _ in range((count - 1) // 2):
        at = at.after(stages, first)
        pairs, two, one, of_two = follow(pairs, two, one, of_one, stages, scales, parts, at, row, WIDTH)
        at = at.after(stages, first)
        pairs, one, two, of_one = follow(pairs, one, two, of_two, stages, scales, parts, at, row, WIDTH)
    if count % 2 == 0:
        at = at.after(stages, first)
        pairs, two, one, of_two = follow(pairs, two, one, of_one, stages, scales, parts, at, row, WIDTH)
        pairs = add_to_pairs(pairs, wait_for_parts(two, WIDTH), scales.products(of_two))
    else:
        pairs = add_to_pairs(pairs, wait_for_parts(one, WIDTH), scales.products(of_one))
    meet_readers(stages)
    stages.release_at(at.slot)
    return unpack(pairs, parts), done


@gluon.jit
def end_one(pairs, own, of_own, stages, scales, at, then, end, WIDTH: gl.constexpr):
    """A step's products added, once they are done. Meanwhile the next step is waited for, if it is one before `end`."""
    stages.wait_at(then.slot, then.parity, then.step < end)
    own = wait_for_parts(own, WIDTH)
    stages.release_at(at.slot)
    return add_to_pairs(pairs, own, scales.products(of_own))


@gluon.jit
def multiply_one(parts, stages, scales, step, end, meanwhile, row, WIDTH: gl.constexpr):
    """With one in flight: its scales are read meanwhile."""
    at, first = places(stages, step, row)
    stages.wait_at(at.slot, at.parity, True)
    own = begin(parts, stages, at, WIDTH)
    of_own = scales.read(parts, at.slot, at.step, row)
    done = do(meanwhile)
    then = at.after(stages, first)
    pairs = end_one(pack(parts), own, of_own, stages, scales, at, then, end, WIDTH)
    for _ in range(end - step - 1):
        at = then
        own = begin(parts, stages, at, WIDTH)
        of_own = scales.read(parts, at.slot, at.step, row)
        then = at.after(stages, first)
        pairs = end_one(pairs, own, of_own, stages, scales, at, then, end, WIDTH)
    return unpack(pairs, parts), done


@gluon.jit
def multiply_blocks(
    parts, stages, scales, step, end, meanwhile, row, WIDTH: gl.constexpr, TWO: gl.constexpr
):  # fmt: skip
    """The sum over the steps from number `step` on up to `end`, of one line each, times their scales; and what came of
    `meanwhile`."""
    if TWO:
        return multiply_two(parts, stages, scales, step, end, meanwhile, row, WIDTH)
    else:
        return multiply_one(parts, stages, scales, step, end, meanwhile, row, WIDTH)
