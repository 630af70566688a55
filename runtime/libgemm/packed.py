"""Grouped calls over packed rows: group ends on the device, one b for each group or one shared by all."""

from libgemm._framework import stream_handle
from libgemm._library import check, invalid, lib
from libgemm._matrix import matrix, row_major
from libgemm._tensor import View, view
from libgemm.ops import need_c, new_args, output, pointer, same_type, set_bias, set_matrices


def offsets_format(offs: View, name: str, leading_zero: bool) -> int:
    formats = {
        ("i32", False): lib.LIBGEMM_ENDS_I32,
        ("i64", False): lib.LIBGEMM_ENDS_I64,
        ("i32", True): lib.LIBGEMM_OFFSETS_I32,
        ("i64", True): lib.LIBGEMM_OFFSETS_I64,
    }
    if len(offs.shape) != 1 or offs.dtype not in ("i32", "i64") or (offs.shape[0] > 1 and offs.strides != (1,)):
        raise invalid(f"{name} is {offs.dtype} of shape {offs.shape}: contiguous 1-D int32 or int64 is needed")
    return formats[offs.dtype, leading_zero]


def packed_rows(
    a, b, offs, name: str, leading_zero: bool, shared: bool, c, alpha, beta, bias, activation, precision, out,
    out_dtype, variant, stream,
):  # fmt: skip
    """Both calls over packed rows."""
    handle = stream_handle(stream, a)
    a_view, b_view, offs_view = view(a, "a", handle), view(b, "b", handle), view(offs, name, handle)
    same_type(a_view.dtype, b=b_view)
    left, right = matrix(a_view, "a", batched=False), matrix(b_view, "b")
    if left.cols != right.rows:
        raise invalid(f"a has shape {a_view.shape}, b has shape {b_view.shape}: a's columns must equal b's rows")
    groups = max(offs_view.shape[0] - leading_zero, 0) if offs_view.shape else 0
    if not shared and groups != right.batch:
        raise invalid(f"{name} speaks of {groups} groups, b has shape {b_view.shape}: one matrix per group is needed")
    shape = (left.rows, right.cols)
    need_c(beta, c, out)
    out, d_type = output(out, out_dtype, shape, a, a_view.dtype)
    d_view = view(out, "out", handle)
    c_view = None if beta == 0 else d_view if c is None else view(c, "c", handle)
    same_type(d_type, c=c_view)
    args, alive = new_args(
        "grouped_mm", a_view.dtype, d_type, alpha=alpha, beta=beta, activation=activation, precision=precision,
        variant=variant, stream=handle,
    )  # fmt: skip
    args.m, args.n, args.k, args.groups = left.rows, right.cols, left.cols, groups
    args.trans_a, args.trans_b = left.trans, right.trans
    args.offs, args.offs_format = pointer(offs_view.pointer), offsets_format(offs_view, name, leading_zero)
    args.batch_stride_b, args.shared_b = right.batch_stride, shared
    set_matrices(args, a=left, b=right, c=c_view and row_major(c_view, "c", shape), d=row_major(d_view, "out", shape))
    if bias is not None:
        set_bias(args, view(bias, "bias", handle), d_type, right.cols, None if shared else groups)
    check(lib.libgemm_grouped_mm(args))
    del alive
    return out


def grouped_mm(
    a, b, offs, *, c=None, alpha=1.0, beta=0.0, bias=None, activation=None, precision=None, out=None, out_dtype=None,
    variant=None, stream=None,
):  # fmt: skip
    """out[s:e] = act(alpha * a[s:e] @ b[g] + beta * c[s:e] + bias[g]) for each group g of packed rows.

    a [rows,K], b [G,K,N], out and c [rows,N]; offs [G], int32 or int64, on the device: the end of each group, the
    first of which starts at row 0 (as torch's grouped_mm has it). bias [N] or [G,N]. Rows past the last end are left
    as they were. The ends are read on the device: nothing waits. Other arguments as in gemm().
    """
    if len(getattr(b, "shape", ())) == 2:
        raise invalid(
            "b has 2 dimensions: grouped_mm with a 2-D b (groups along K or N) is not in this version; for one b "
            "shared by all groups call grouped_gemm_jagged"
        )
    return packed_rows(
        a, b, offs, "offs", False, False, c, alpha, beta, bias, activation, precision, out, out_dtype, variant, stream
    )


def grouped_gemm_jagged(
    a_packed, b, group_offsets, *, c=None, alpha=1.0, beta=0.0, bias=None, activation=None, precision=None, out=None,
    out_dtype=None, variant=None, stream=None,
):  # fmt: skip
    """grouped_mm with offsets that start with 0: rows of group g are group_offsets[g] to group_offsets[g + 1] - 1.

    b [K,N] is shared by all groups (then one dense GEMM over all rows is what runs), or [G,K,N] has one each.
    """
    shared = len(getattr(b, "shape", ())) == 2
    return packed_rows(
        a_packed, b, group_offsets, "group_offsets", True, shared, c, alpha, beta, bias, activation, precision, out,
        out_dtype, variant, stream,
    )  # fmt: skip
