"""Grouped calls over packed operands: group ends on the device cut the rows, the columns or K of one matrix.

Whether an operand is 2-D (packed) or 3-D (one matrix for each group) says what the ends cut, as in torch's grouped_mm.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from libgemm._args import (
    Activation,
    Precision,
    Scaling,
    need_c,
    new_args,
    output,
    pick,
    pointer,
    run,
    same_operands,
    same_type,
    set_bias,
    set_matrices,
    set_scales,
)
from libgemm._framework import LaunchStream, written
from libgemm._known import ONE, ZERO, Key, Known, learn_torch
from libgemm._library import invalid, lib
from libgemm._matrix import matrix, row_major
from libgemm._tensor import View, view

T = TypeVar("T")
known = Known("grouped_mm")

# (dimensions of a, of b) -> libgemm_ragged
RAGGED = {
    (2, 3): lib.LIBGEMM_RAGGED_M,
    (3, 2): lib.LIBGEMM_RAGGED_N,
    (2, 2): lib.LIBGEMM_RAGGED_K,
    (3, 3): lib.LIBGEMM_RAGGED_NONE,
}
TAILS = {"leave": 0, "zero": 1}
OFFS_FORMATS = {
    ("i32", False): lib.LIBGEMM_ENDS_I32,
    ("i64", False): lib.LIBGEMM_ENDS_I64,
    ("i32", True): lib.LIBGEMM_OFFSETS_I32,
    ("i64", True): lib.LIBGEMM_OFFSETS_I64,
}


@dataclass
class Ends:
    """Where groups end, as the caller names and writes it."""

    array: Any
    name: str
    leading_zero: bool  # as grouped_gemm_jagged has them, which cuts nothing but rows

    def view(self, launch: LaunchStream) -> View:
        found = view(self.array, self.name, launch)
        packed = len(found.shape) == 1 and (found.shape[0] < 2 or found.strides == (1,))
        if found.dtype not in ("i32", "i64") or not packed:
            raise invalid(
                f"{self.name} is {found.dtype} of shape {found.shape}: contiguous 1-D int32 or int64 is needed"
            )
        return found


def ragged_of(a: View, b: View, ends: Ends) -> int:
    """What the ends cut; they must be there unless nothing is cut."""
    for name, item, allowed in (("a", a, (2,) if ends.leading_zero else (2, 3)), ("b", b, (2, 3))):
        if len(item.shape) not in allowed:
            raise invalid(f"{name} has shape {item.shape}: {' or '.join(map(str, allowed))} dimensions are needed")
    if ends.leading_zero:
        return int(lib.LIBGEMM_RAGGED_M)
    ragged: int = RAGGED[len(a.shape), len(b.shape)]
    given = (
        f"{ends.name} is {'None' if ends.array is None else 'given'} with a of shape {a.shape}, b of shape {b.shape}"
    )
    if ragged == lib.LIBGEMM_RAGGED_NONE and ends.array is not None:
        raise invalid(f"{given}: between two 3-D operands there is nothing to cut, leave it out")
    if ragged != lib.LIBGEMM_RAGGED_NONE and ends.array is None:
        raise invalid(f"{given}: the end of each group is needed unless both are 3-D")
    return ragged


def packed(
    a: Any, b: Any, ends: Any, leading_zero: bool, c: Any, alpha: float, beta: float, bias: Any, activation: str | None,
    precision: str | None, out: Any, out_dtype: Any, tail: str, variant: str | None, stream: Any,
    scaling: str | None = None, scales: tuple[Any, Any] | None = None, batch_invariant: bool = False,
) -> Any:  # fmt: skip
    """Both calls over packed operands: again for torch tensors like those of a call before, else anew."""
    options = (
        None
        if alpha is ONE and beta is ZERO and activation is None and precision is None and out_dtype is None
        and tail == "leave" and variant is None and leading_zero is False and scaling is None
        and batch_invariant is False
        else (alpha, beta, activation, precision, out_dtype, tail, variant, leading_zero, scaling, batch_invariant)
    )  # fmt: skip
    made, key = known.again(a, b, c, out, bias, ends, options, stream, scales)
    if made is None:
        made = packed_anew(
            a, b, Ends(ends, "group_offsets" if leading_zero else "offs", leading_zero), c, alpha, beta, bias,
            activation, precision, out, out_dtype, tail, variant, stream, key, scaling, scales, batch_invariant,
        )  # fmt: skip
    return made


def packed_anew(
    a: Any, b: Any, ends: Ends, c: Any, alpha: float, beta: float, bias: Any, activation: str | None,
    precision: str | None, out: Any, out_dtype: Any, tail: str, variant: str | None, stream: Any, key: Key | None,
    scaling: str | None, scales: tuple[Any, Any] | None, batch_invariant: bool,
) -> Any:  # fmt: skip
    """The general way. What went well is kept under `key`, if there is one."""
    learn_torch()
    launch = LaunchStream(stream, a)
    a_view, b_view = view(a, "a", launch), view(b, "b", launch)
    same_operands(a_view.dtype, b_view)
    ragged = ragged_of(a_view, b_view, ends)
    shared = ragged == lib.LIBGEMM_RAGGED_M and len(b_view.shape) == 2
    left, right = matrix(a_view, "a"), matrix(b_view, "b")
    if left.cols != right.rows:
        raise invalid(f"a has shape {a_view.shape}, b has shape {b_view.shape}: a's columns must equal b's rows")
    offs = None if ragged == lib.LIBGEMM_RAGGED_NONE else ends.view(launch)
    groups = left.batch if offs is None else max(offs.shape[0] - ends.leading_zero, 0)
    for name, item, operand in (("a", a_view, left), ("b", b_view, right)):
        if len(item.shape) == 3 and operand.batch != groups:
            given = f"a has {groups} matrices" if offs is None else f"{ends.name} speaks of {groups} groups"
            raise invalid(f"{given}, {name} has shape {item.shape}: one matrix per group is needed")
    shape: tuple[int, ...] = (left.rows, right.cols)
    if ragged in (lib.LIBGEMM_RAGGED_K, lib.LIBGEMM_RAGGED_NONE):
        shape = (groups, *shape)
    need_c(beta, c, out)
    out, d_view = output(out, out_dtype, shape, a, a_view.dtype, launch)
    c_view = None if beta == 0 else d_view if c is None else view(c, "c", launch)
    bias_view = None if bias is None else view(bias, "bias", launch)
    same_type(d_view.dtype, c=c_view, bias=bias_view)
    args, alive = new_args(
        "grouped_mm", a_view.dtype, d_view.dtype, b_view.dtype, alpha=alpha, beta=beta, activation=activation,
        precision=precision, variant=variant, stream=launch.handle,
    )  # fmt: skip
    args.m, args.n, args.k, args.groups = left.rows, right.cols, left.cols, groups
    args.trans_a, args.trans_b, args.batch_invariant = left.trans, right.trans, bool(batch_invariant)
    args.ragged, args.zero_tail, args.shared_b = ragged, pick(TAILS, tail, "tail"), shared
    if offs is not None:
        args.offs, args.offs_format = pointer(offs.pointer), OFFS_FORMATS[offs.dtype, ends.leading_zero]
    d, c_matrix = row_major(d_view, "out", shape), None if c_view is None else row_major(c_view, "c", shape)
    set_matrices(args, a=left, b=right, c=c_matrix, d=d)
    if bias_view is not None:
        set_bias(args, bias_view, right.cols, None if shared else groups)
    if scales:
        cut = {lib.LIBGEMM_RAGGED_M: 0, lib.LIBGEMM_RAGGED_N: 1}.get(ragged)  # the operand that is one matrix
        counts = None if cut == 0 else groups, None if cut == 1 or shared else groups
        set_scales(args, scaling, counts, launch, *scales)
    run("grouped_mm", args, a, launch)
    written([out])
    if key is not None:
        options = (
            alpha, beta, activation, precision, out_dtype, tail, variant, ends.leading_zero, scaling, batch_invariant,
        )  # fmt: skip
        known.keep(key, args, alive, options, a, b, c, out, bias, ends.array, scales or ())
    return out


def grouped_mm(
    a: T, b: Any, offs: Any = None, *, c: Any = None, alpha: float = ONE, beta: float = ZERO, bias: Any = None,
    activation: Activation | None = None, precision: Precision | None = None, out: T | None = None,
    out_dtype: Any = None, tail: Literal["leave", "zero"] = "leave", scaling: Scaling | None = None,
    a_scale: Any = None, b_scale: Any = None, variant: str | None = None, batch_invariant: bool = False,
    stream: Any = None,
) -> T:  # fmt: skip
    """act(alpha * a @ b + beta * c + bias) for each group g; offs [G] has the end e of each, s is the end before, or 0.

        a [M,K]    b [G,K,N]  out [M,N]    out[s:e]    = a[s:e] @ b[g]         rows are cut
        a [G,M,K]  b [K,N]    out [M,N]    out[:, s:e] = a[g] @ b[:, s:e]      columns are cut
        a [M,K]    b [K,N]    out [G,M,N]  out[g]      = a[:, s:e] @ b[s:e]    K is cut; an empty group's product is 0
        a [G,M,K]  b [G,K,N]  out [G,M,N]  out[g]      = a[g] @ b[g]           nothing is cut: offs must be None

    This is torch's grouped_mm, with ends that may be int64 and with what gemm() has beside the product.

    a, b   of one dtype: float16, bfloat16, float32 or float8_e4m3fn; one of two float8_e4m3fn may be float8_e5m2
           instead. Each row-major or transposed (one of the last two strides is 1), at any leading dimension, alignment
           and group stride. One that has all groups is copied first where kernels are then faster: where what ends cut
           is contiguous in it, or it is odd. 8-bit ones are fast where columns are not cut and there is no activation,
           b [G,K,N] transposed: into bfloat16, where rows are not cut into float32 too, without scales of blocks.
    offs   int32 or int64, contiguous, on the device, where it is read: nothing waits for it. Ends that fall or run past
           what they cut give wrong numbers, but no access outside the arrays.
    c      shape and dtype of out; read only when beta is not 0, then `out` serves where c is None.
    bias   [N], or [G,N] with a row for each group; out's dtype.
    out    row-major to write to; may be c. out_dtype: a's dtype (default) or float32.
    scaling, a_scale, b_scale
           of 8-bit inputs, float32, as in gemm(): a 3-D operand has scales for each of its matrices, in one dimension
           more ([G,N] of b's columns, say), or those of one for all; a 2-D one for all its rows, or columns, as it
           stands. Where both are 2-D each group has scales of its own, or all the same; none of blocks.
    tail   what becomes of rows or columns of out past the last end: "leave" them as they were, or "zero".
    batch_invariant
           True: a row's bits depend on no other row, nor on where groups end (some problems then run slower).
    activation, precision, variant, stream as in gemm().
    Returns out, or a new array of a's framework. Raises Error. Order, memory and autograd are as in gemm().
    """
    made: T = packed(
        a, b, offs, False, c, alpha, beta, bias, activation, precision, out, out_dtype, tail, variant, stream, scaling,
        None if scaling is None and a_scale is None and b_scale is None else (a_scale, b_scale), batch_invariant,
    )  # fmt: skip
    return made


def grouped_gemm_jagged(
    a_packed: T, b: Any, group_offsets: Any, *, c: Any = None, alpha: float = ONE, beta: float = ZERO, bias: Any = None,
    activation: Activation | None = None, precision: Precision | None = None, out: T | None = None,
    out_dtype: Any = None, variant: str | None = None, stream: Any = None,
) -> T:  # fmt: skip
    """Packed rows with offsets that start with 0: those of group g are group_offsets[g] to group_offsets[g + 1] - 1.

    b [K,N] is shared by all groups (then one dense GEMM over all rows is what runs), or [G,K,N] has one each. All else
    as in grouped_mm().
    """
    made: T = packed(
        a_packed, b, group_offsets, True, c, alpha, beta, bias, activation, precision, out, out_dtype, "leave", variant,
        stream,
    )  # fmt: skip
    return made
