"""The public calls: arrays in, one C call, arrays out. Thin: shapes and dtypes are checked here, all else in C."""

from libgemm._framework import address_of, dtype_name, empty, framework_of, keep_until, stream_handle
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import matrix, row_major, vector
from libgemm._tensor import View, view

DTYPES = {"f16": lib.LIBGEMM_F16, "bf16": lib.LIBGEMM_BF16, "f32": lib.LIBGEMM_F32}
PRECISIONS = {"tf32": lib.LIBGEMM_TF32, "tf32x3": lib.LIBGEMM_TF32X3, "ieee": lib.LIBGEMM_IEEE}
ACTIVATIONS = {
    None: lib.LIBGEMM_ACTIVATION_NONE,
    "none": lib.LIBGEMM_ACTIVATION_NONE,
    "relu": lib.LIBGEMM_RELU,
    "gelu": lib.LIBGEMM_GELU,
    "silu": lib.LIBGEMM_SILU,
}


def pick(table: dict, value, name: str) -> int:
    try:
        return table[value]
    except (KeyError, TypeError):
        raise invalid(f"{name} = {value!r}: allowed are {', '.join(repr(k) for k in table)}") from None


def precision_of(dtype: str, precision) -> int:
    if dtype == "f32":
        if precision is None:
            raise invalid("precision is needed with float32 inputs: 'tf32', 'tf32x3' or 'ieee' (there is no default)")
        return pick(PRECISIONS, precision, "precision")
    if precision not in (None, "exact"):
        raise invalid(f"precision = {precision!r} with {dtype} inputs: 16-bit products are exact, leave it out")
    return lib.LIBGEMM_EXACT


def same_type(wanted: str, **views: View | None) -> None:
    for name, item in views.items():
        if item is not None and item.dtype != wanted:
            raise invalid(f"{name} has dtype {item.dtype}: {wanted} is needed")


def new_args(kind: str, dtype: str, out_dtype: str, *, alpha, beta, activation, precision, variant, stream):
    """A struct of `kind` with what every operation has, and what must stay alive while the call runs."""
    args = ffi.new(f"libgemm_{kind}_args *")
    getattr(lib, f"libgemm_{kind}_args_init")(args, ffi.sizeof(f"libgemm_{kind}_args"))
    args.a_type = pick(DTYPES, dtype, "dtype of a")
    args.d_type = pick(DTYPES, out_dtype, "out_dtype")
    args.precision = precision_of(dtype, precision)
    args.activation = pick(ACTIVATIONS, activation, "activation")
    args.alpha, args.beta = alpha, beta
    args.stream = ffi.cast("libgemm_stream", stream)
    alive = []
    if variant is not None:
        alive.append(ffi.new("char[]", variant.encode()))
        args.variant = alive[0]
    return args, alive


def pointer(value: int):
    return ffi.cast("void *", value)


def need_c(beta, c, out) -> None:
    if beta != 0 and c is None and out is None:
        raise invalid(f"beta = {beta} without c: pass c, or out, which then serves as c")


def output(out, out_dtype, shape, like, dtype: str):
    """(array, its dtype name): `out`, or a new array of `like`'s framework."""
    if out is None:
        name = dtype if out_dtype is None else dtype_name(out_dtype)
        return empty(shape, name, like, "out"), name
    name = view(out, "out").dtype
    if out_dtype is not None and dtype_name(out_dtype) != name:
        raise invalid(f"out has dtype {name}, out_dtype is {out_dtype}")
    return out, name


def set_matrices(args, **matrices) -> None:
    """Pointer and leading dimension of each of a, b, c, d that is given."""
    for name, item in matrices.items():
        if item is not None:
            setattr(args, name, pointer(item.pointer))
            setattr(args, f"ld{name}", item.ld)


def gemm(
    a, b, c=None, *, alpha=1.0, beta=0.0, bias=None, activation=None, precision=None,
    out=None, out_dtype=None, variant=None, stream=None,
):  # fmt: skip
    """D = act(alpha * a @ b + beta * c + bias), accumulated in float32.

    a [M,K] or [batch,M,K], b [K,N] or [batch,K,N], of one dtype: float16, bfloat16 or float32. Row-major or
    transposed views both work (one of the last two strides is 1). A 2-D operand is shared by the batch.
    c      [M,N] (or batched), D's dtype; read only when beta is not 0, then `out` serves where c is None.
    bias   [N], or [batch,N]; D's dtype.
    activation "relu", "gelu" (exact), "silu" or None.
    precision  float32 inputs must name one: "tf32", "tf32x3" or "ieee".
    out    [M,N] row-major (or batched) to write to; may be c. out_dtype: a's dtype (default) or float32.
    variant  name of the one variant to use (see variants()); None lets the library choose.
    stream   handle or stream object; None is the current stream of the inputs' framework.
    Returns out, or a new array of the inputs' framework. Raises Error.
    """
    handle = stream_handle(stream, a)
    a_view, b_view = view(a, "a", handle), view(b, "b", handle)
    same_type(a_view.dtype, b=b_view)
    left, right = matrix(a_view, "a"), matrix(b_view, "b")
    if left.cols != right.rows:
        raise invalid(f"a has shape {a_view.shape}, b has shape {b_view.shape}: a's columns must equal b's rows")
    batched = len(a_view.shape) == 3 or len(b_view.shape) == 3
    counts = {m.batch for m, v in ((left, a_view), (right, b_view)) if len(v.shape) == 3}
    if len(counts) > 1:
        raise invalid(f"a has shape {a_view.shape}, b has shape {b_view.shape}: batch sizes differ")
    batch = counts.pop() if counts else 1
    shape = (batch, left.rows, right.cols) if batched else (left.rows, right.cols)
    need_c(beta, c, out)
    out, d_type = output(out, out_dtype, shape, a, a_view.dtype)
    d_view = view(out, "out", handle)
    c_view = None if beta == 0 else d_view if c is None else view(c, "c", handle)
    same_type(d_type, c=c_view)
    d = row_major(d_view, "out", shape)
    c_matrix = c_view and row_major(c_view, "c", shape)
    args, alive = new_args(
        "gemm", a_view.dtype, d_type, alpha=alpha, beta=beta, activation=activation, precision=precision,
        variant=variant, stream=handle,
    )  # fmt: skip
    args.m, args.n, args.k, args.batch = left.rows, right.cols, left.cols, batch
    args.trans_a, args.trans_b = left.trans, right.trans
    set_matrices(args, a=left, b=right, c=c_matrix, d=d)
    args.batch_stride_a, args.batch_stride_b = left.batch_stride, right.batch_stride
    args.batch_stride_d = d.batch_stride
    if c_matrix:
        args.batch_stride_c = c_matrix.batch_stride
    if bias is not None:
        set_bias(args, view(bias, "bias", handle), d_type, right.cols, batch if batched else None)
    workspace = give_workspace(args, a)
    check(lib.libgemm_gemm(args))
    if workspace is not None:
        keep_until(workspace, handle)
    del alive
    return out


def give_workspace(args, like):
    """Memory for a dense call that runs better with some, of a framework that can allocate it; None otherwise."""
    if framework_of(like) is None:
        return None
    size = ffi.new("uint64_t *")
    check(lib.libgemm_gemm_workspace(args, size))
    if size[0] == 0:
        return None
    array = empty((size[0],), "u8", like, "workspace")
    args.workspace, args.workspace_bytes = pointer(address_of(array)), size[0]
    return array


def set_bias(args, bias: View, dtype: str, n: int, count: int | None) -> None:
    """[n] for all, or [count, n] with one row each where there is a batch or groups."""
    same_type(dtype, bias=bias)
    if count is not None and len(bias.shape) == 2:
        if bias.shape != (count, n) or (n > 1 and bias.strides[1] != 1):
            raise invalid(f"bias has shape {bias.shape}, strides {bias.strides}: ({count}, {n}), packed, is needed")
        args.bias, args.batch_stride_bias = pointer(bias.pointer), bias.strides[0]
    else:
        args.bias = pointer(vector(bias, "bias", n))


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
