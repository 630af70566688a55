"""Tensors where warpgroups run the same code (team.py): which thread has what. No kernel here.

As the compiler has it both warpgroups of a team have all of such a tensor, alike; here it is each one's own, with other
numbers. Whatever each thread does with what it has is right for both. Elements that go to memory are not: of several
threads that have one the compiler lets a single one write it. `of_all` makes one tensor of both for that.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.team import thread_number


@gluon.constexpr_function
def part_layout(rows, columns, warps):
    """Of a part of the accumulator (PTX ISA, wgmma.mma_async, "Register fragments"), of a warpgroup by itself or of
    each of a team of two."""
    if warps == 4:
        return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])
    registers = [[0, 1], [8, 0]] + [[0, 8 << i] for i in range((columns // 8).bit_length() - 1)]
    registers += [[64 << i, 0] for i in range((rows // 64).bit_length() - 1)]
    lanes = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout(registers, lanes, [[16, 0], [32, 0], [0, 0]], [], [rows, columns])


@gluon.constexpr_function
def row_layout(length, warps):
    """Of so many numbers, a power of two: one after the other over the threads of a warpgroup."""
    if warps <= 4:
        return gl.BlockedLayout([1], [32], [warps], [0])
    bases = [[1 << i] if 1 << i < length else [0] for i in range(max(7, length.bit_length() - 1))]
    return gl.DistributedLinearLayout(bases[7:], bases[:5], [*bases[5:7], [0]], [], [length])


@gluon.constexpr_function
def piece_layout(shape, step, warps):
    """Of rows and columns of a warpgroup: a thread has `step` columns at a time, and as many threads stand side by side
    as a row, or 32 of them, has room for."""
    rows, columns = shape
    across = min(columns // step, 32)
    registers = [[0, 1 << i] for i in range(step.bit_length() - 1)]
    lanes = [[0, step << i] for i in range(across.bit_length() - 1)]
    down = [[1 << i, 0] if 1 << i < rows else [0, 0] for i in range(max(rows.bit_length() - 1, 7 - len(lanes)))]
    more = 5 - len(lanes)
    own = [*down[more : more + 2], *[[0, 0]] * (warps // 8)]
    registers += down[more + 2 :] + [
        [0, step * across << i] for i in range((columns // step // across).bit_length() - 1)
    ]
    return gl.DistributedLinearLayout(registers, lanes + down[:more], own, [], [rows, columns])


@gluon.constexpr_function
def warps_of(kind):
    """Warps over which a tensor of this type is spread: of a team one warpgroup's."""
    return 4 if isinstance(kind.layout, gl.DistributedLinearLayout) else kind.layout.warps_per_cta[0]


@gluon.constexpr_function
def team_of(kind):
    """Warpgroups of which each has a tensor of this type for itself."""
    return 1 << len(kind.layout.warp_bases) - 2 if isinstance(kind.layout, gl.DistributedLinearLayout) else 1


@gluon.constexpr_function
def is_of_all(kind):
    return any(kind.layout.warp_bases[2])


@gluon.constexpr_function
def type_of_all(kind):
    """Of what two warpgroups have of a type, with the rows of one below those of the other."""
    layout, (rows, columns) = kind.layout, kind.shape
    warps = [*layout.warp_bases[:2], [rows, 0]]
    shape = [2 * rows, columns]
    whole = gl.DistributedLinearLayout(layout.reg_bases, layout.lane_bases, warps, [], shape)
    return gl.distributed_type(kind.element_ty, shape, whole)


@gluon.constexpr_function
def tied_numbers(kind):
    """Constraints: a tensor of this type, of 16 or 32 bits an element, goes in and comes out."""
    count = 1 << len(kind.layout.reg_bases)
    letter = "h" if kind.element_ty.primitive_bitwidth == 16 else "f" if str(kind.element_ty) == "fp32" else "r"
    return ",".join([f"={letter}"] * count + [str(i) for i in range(count)])


@gluon.jit
def of_all(own):
    """What a team's warpgroups have as one tensor, and how much further down this one's rows are there; what a
    warpgroup by itself has, or what is of all already, as it is."""
    if gl.num_warps() == 4 or is_of_all(own.type):
        return own, gl.to_tensor(0)
    else:
        whole = gl.inline_asm("", tied_numbers(own.type), (own,), (type_of_all(own.type),), is_pure=False)[0]
        number = gl.inline_asm("shr.u32 $0, $1, 7;", "=r,r", [thread_number()], gl.int32, is_pure=True)
        return whole, number * own.shape[0]
