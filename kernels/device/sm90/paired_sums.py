"""Accumulators in pairs of registers, and how products are added to them. No kernel here.

A multiprocessor's registers are in two banks, the even and the odd ones, and a multiplication and addition that finds
the product and the sum in one bank waits. The tensor cores write number i of a fragment to an even register where i is
even. So numbers 2j and 2j + 1 of a sum share a register of 64 bits, the second one in its lower half, which is an even
register. Left alone, the assembler put up to two thirds of a tile's sums into the banks of their products.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.mainloop import part_types, registers_of
from kernels.device.sm90.team_layouts import team_of, warps_of


@gluon.constexpr_function
def pair_types(parts):
    """Of any layout that gives each thread half as many numbers."""
    made = []
    for part in parts:
        rows, columns = part.type.shape
        team = team_of(part.type)
        layout = gl.BlockedLayout([1, columns // 4], [16, 2], [4 * team, 1], [1, 0])
        made.append(gl.distributed_type(gl.int64, [rows * team, columns // 2], layout))
    return tuple(made)


@gluon.constexpr_function
def constraints(*runs):
    """Of ("=f", 2), ("l", 1) for instance: two numbers out, a pair in."""
    return ",".join(kind for kind, count in runs for _ in range(count))


@gluon.constexpr_function
def ties(registers):
    """Constraints: the first so many operands, which come out, go in too."""
    return ",".join(str(i) for i in range(registers))


@gluon.constexpr_function
def pack_assembly(pairs):
    return "\n".join(f"mov.b64 ${j}, {{${pairs + 2 * j + 1}, ${pairs + 2 * j}}};" for j in range(pairs))


@gluon.constexpr_function
def unpack_assembly(pairs):
    return "\n".join(f"mov.b64 {{${2 * j + 1}, ${2 * j}}}, ${2 * pairs + j};" for j in range(pairs))


@gluon.constexpr_function
def add_assembly(parts):
    """To pair j the products 2j and 2j + 1, times the scale of their row, of which a thread has two in each 64 of a
    part (PTX ISA, wgmma.mma_async, "Register fragments")."""
    pairs = registers_of(parts) // 2
    own, scale, j = 2 * pairs, 4 * pairs, 0
    lines = ["{ .reg .f32 x, y;"]
    for part in parts:
        rows, columns = part.type.shape
        in_run = columns // 2  # of 64 rows
        runs = rows * 4 // (64 * warps_of(part.type))
        for i in range(0, runs * in_run, 2):
            by = f"${scale + i // in_run * 2 + i % 4 // 2}"
            lines += [
                f"mov.b64 {{y, x}}, ${j};", f"fma.rn.f32 x, ${own + 2 * j}, {by}, x;",
                f"fma.rn.f32 y, ${own + 2 * j + 1}, {by}, y;", f"mov.b64 ${j}, {{y, x}};",
            ]  # fmt: skip
            j += 1
        scale += 2 * runs
    return "\n".join([*lines, "}"])


@gluon.constexpr_function
def scale_count(parts):
    """Registers that hold scales of all parts' rows."""
    return sum(2 * part.type.shape[0] * 4 // (64 * warps_of(part.type)) for part in parts)


@gluon.jit
def pack(parts):
    PAIRS: gl.constexpr = registers_of(parts) // 2
    KINDS: gl.constexpr = constraints(("=l", PAIRS), ("f", 2 * PAIRS))
    return gl.inline_asm(pack_assembly(PAIRS), KINDS, parts, pair_types(parts), is_pure=False)


@gluon.jit
def unpack(pairs, parts):
    """The sums, of the types that `parts` have."""
    PAIRS: gl.constexpr = registers_of(parts) // 2
    KINDS: gl.constexpr = constraints(("=f", 2 * PAIRS), ("l", PAIRS))
    return gl.inline_asm(unpack_assembly(PAIRS), KINDS, pairs, part_types(parts), is_pure=False)


@gluon.jit
def add_to_pairs(pairs, own, scales):
    """Pairs with a line's products, times the scales of each part's rows."""
    PAIRS: gl.constexpr = registers_of(own) // 2
    KINDS: gl.constexpr = (
        constraints(("=l", PAIRS)) + "," + ties(PAIRS) + "," + constraints(("f", 2 * PAIRS + scale_count(own)))
    )
    return gl.inline_asm(add_assembly(own), KINDS, pairs + own + scales, pair_types(own), is_pure=False)
