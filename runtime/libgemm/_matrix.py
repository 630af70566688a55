"""A view's strides -> how the C interface names a stored matrix: leading dimension, transposed or not, batch stride."""

from dataclasses import dataclass

from libgemm._library import invalid
from libgemm._tensor import View


@dataclass
class Matrix:
    rows: int
    cols: int
    ld: int
    trans: int  # 1: stored [cols][rows]
    batch: int
    batch_stride: int
    pointer: int


def stored(rows: int, cols: int, row_stride: int, col_stride: int, prefer: int | None = None) -> tuple[int, int] | None:
    """(trans, ld), or None when neither stride walks elements. A vector fits both ways: `prefer` decides, else the
    way whose contiguous side is the long one, since that can be read in wide pieces."""
    if rows == 0 or cols == 0:  # nothing is read: strides mean nothing
        return (prefer or 0, max(rows if prefer else cols, 1))
    plain = (0, row_stride if rows > 1 else cols) if cols == 1 or col_stride == 1 else None
    turned = (1, col_stride if cols > 1 else rows) if rows == 1 or row_stride == 1 else None
    if plain and plain[1] < cols:
        plain = None
    if turned and turned[1] < rows:
        turned = None
    if plain and turned:
        return (plain, turned)[prefer if prefer is not None else int(rows > cols)]
    return plain or turned


def matrix(view: View, name: str, prefer: int | None = None, batched: bool = True) -> Matrix:
    """`view` as a matrix, or, with a third leading dimension, a batch of them."""
    allowed = (2, 3) if batched else (2,)
    if len(view.shape) not in allowed:
        raise invalid(f"{name} has shape {view.shape}: {' or '.join(map(str, allowed))} dimensions are needed")
    (rows, cols), (row_stride, col_stride) = view.shape[-2:], view.strides[-2:]
    way = stored(rows, cols, row_stride, col_stride, prefer)
    if way is None:
        raise invalid(
            f"{name} has shape {view.shape} and strides {view.strides} (elements): one of the last two strides must be "
            "1 and the other at least the size of that dimension"
        )
    batch, batch_stride = (view.shape[0], view.strides[0]) if len(view.shape) == 3 else (1, 0)
    return Matrix(rows, cols, way[1], way[0], batch, batch_stride, view.pointer)


def row_major(view: View, name: str, shape: tuple[int, ...], batched: bool = True) -> Matrix:
    """`view` as a row-major matrix of exactly `shape`: what C and D must be."""
    if view.shape != shape:
        raise invalid(f"{name} has shape {view.shape}: {shape} is needed")
    found = matrix(view, name, prefer=0, batched=batched)
    if found.trans:
        raise invalid(f"{name} has strides {view.strides}: row-major (last stride 1) is needed")
    return found


def vector(view: View, name: str, length: int) -> int:
    """Pointer of a contiguous vector of `length` elements."""
    if view.shape != (length,) or (length > 1 and view.strides != (1,)):
        raise invalid(f"{name} has shape {view.shape}, strides {view.strides}: {length} contiguous elements are needed")
    return view.pointer
