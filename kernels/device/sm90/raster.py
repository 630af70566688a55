"""The order in which blocks take tiles of D, so that what runs at a time reads little. No kernel here.

A tile's place stands before its first load, and a division of integers takes about 0.1 us: so it is done by a
reciprocal.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.portable.tiles import rasterise

EXACT = gl.constexpr(1 << 20)  # below this (a + 1/2) / b in float32 is nearer to the quotient than to the next number
# Blocks that are launched one after the other stand by eights in one half of a GPC, whose requests to L2 are gathered:
# what they ask for at the same time leaves it once (Nsight Compute, lrc__average_xbar2gpc_sectors_op_read). So few
# columns of tiles come row by row, and eight blocks read 8 / columns rows where eight in one column read eight.
FEW_COLUMNS = gl.constexpr(5)
MANY_ROWS = gl.constexpr(16)


@gluon.jit
def quotient_below(a, b):
    """a // b, of numbers from 0 on, below EXACT, and from 1 on."""
    return gl.inline_asm(
        "{ .reg .f32 x, y; cvt.rn.f32.u32 x, $1; add.f32 x, x, 0f3F000000; cvt.rn.f32.u32 y, $2;\n"
        "rcp.approx.ftz.f32 y, y; mul.f32 x, x, y; cvt.rzi.u32.f32 $0, x; }",
        "=r,r,r", [gl.to_tensor(a), gl.to_tensor(b)], gl.int32, is_pure=True,
    )  # fmt: skip


@gluon.jit
def quotient(a, b):
    """a // b, of numbers from 0 on and from 1 on."""
    if a < EXACT:  # noqa: SIM108  (a branch of the device's)
        found = quotient_below(a, b)
    else:
        found = a // b
    return found


@gluon.jit
def place_of(tile, rows, columns, GROUP: gl.constexpr, BY_ROWS: gl.constexpr = False):
    """Row and column of a tile, by its number, among so many rows and columns of tiles: GROUP rows at a time, column by
    column, so that what a whole wave of blocks reads stays in L2; or BY_ROWS, where there are few columns."""
    if BY_ROWS & (columns <= FEW_COLUMNS) & (rows >= MANY_ROWS) & (tile < EXACT):
        row = tile
        column = gl.to_tensor(0)
        if columns > 1:
            row = quotient_below(tile, columns)
            column = tile - row * columns
    elif (tile < EXACT) & (columns < EXACT):
        first = gl.to_tensor(0)
        inside = tile
        if rows > GROUP:
            band = quotient_below(tile, GROUP * columns)
            inside = tile - band * (GROUP * columns)
            first = band * GROUP
        height = gl.minimum(rows - first, GROUP)
        column = inside
        if height > 1:
            column = quotient_below(inside, height)
        row = first + inside - column * height
    else:
        row, column = rasterise(tile, rows, columns, GROUP)
    return row, column
