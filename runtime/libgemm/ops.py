"""What all calls share: from names and arrays to a C struct. Shapes and dtypes are checked here, all else in C."""

import operator

from libgemm._framework import address_of, dtype_name, empty, framework_of, keep_until
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import vector
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


def expect(args, sizes) -> None:
    """The (m, n, k) that groups have on average; None where nobody knows."""
    if sizes is None:
        return
    try:
        args.expected_m, args.expected_n, args.expected_k = map(operator.index, sizes)
    except (TypeError, ValueError, OverflowError):
        raise invalid(f"expected = {sizes!r}: None or three integers (m, n, k) are needed") from None


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
    """Pointer, leading dimension and batch stride of each of a, b, c, d that is given."""
    for name, item in matrices.items():
        if item is not None:
            setattr(args, name, pointer(item.pointer))
            setattr(args, f"ld{name}", item.ld)
            setattr(args, f"batch_stride_{name}", item.batch_stride)


def set_bias(args, bias: View, dtype: str, n: int, count: int | None) -> None:
    """[n] for all, or [count, n] with one row each where there is a batch or groups."""
    same_type(dtype, bias=bias)
    if count is not None and len(bias.shape) == 2:
        if bias.shape != (count, n) or (n > 1 and bias.strides[1] != 1):
            raise invalid(f"bias has shape {bias.shape}, strides {bias.strides}: ({count}, {n}), packed, is needed")
        args.bias, args.batch_stride_bias = pointer(bias.pointer), bias.strides[0]
    else:
        args.bias = pointer(vector(bias, "bias", n))


def run(kind: str, args, like, stream: int, needed: str | None = None) -> None:
    """Make the call, in order with `stream`, with the workspace that it runs best with, of `like`'s framework. One that
    cannot allocate gives none, unless the call cannot go without: then `needed` says what it is for."""
    workspace = None
    if needed or framework_of(like) is not None:
        size = ffi.new("uint64_t *")
        check(getattr(lib, f"libgemm_{kind}_workspace")(args, size))
        if size[0]:
            workspace = empty((size[0],), "u8", like, needed or "workspace")
            args.workspace, args.workspace_bytes = pointer(address_of(workspace)), size[0]
    check(getattr(lib, f"libgemm_{kind}")(args))
    if workspace is not None:
        keep_until(workspace, stream)
