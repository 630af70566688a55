"""What all calls share: from names and arrays to a C struct. Shapes and dtypes are checked here, all else in C."""

import math
import operator
from typing import Any, Literal, TypeVar

from libgemm._framework import EIGHT_BITS, LaunchStream, address_of, framework_of, maker, out_name
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import Matrix, vector
from libgemm._tensor import View, view

T = TypeVar("T")
Activation = Literal["none", "relu", "gelu", "silu"]
Precision = Literal["exact", "tf32", "tf32x3", "ieee", "fast"]
Scaling = Literal["tensor", "row", "1x128_128x128", "1x128_1x128", "128x128_1x128"]

DTYPES = {
    "f16": lib.LIBGEMM_F16,
    "bf16": lib.LIBGEMM_BF16,
    "f32": lib.LIBGEMM_F32,
    "e4m3": lib.LIBGEMM_E4M3,
    "e5m2": lib.LIBGEMM_E5M2,
}
PRECISIONS = {"tf32": lib.LIBGEMM_TF32, "tf32x3": lib.LIBGEMM_TF32X3, "ieee": lib.LIBGEMM_IEEE}
SUMS = {None: lib.LIBGEMM_EXACT, "exact": lib.LIBGEMM_EXACT, "fast": lib.LIBGEMM_FAST}  # of 8-bit operands
SCALINGS = {
    "tensor": lib.LIBGEMM_SCALING_TENSOR,
    "row": lib.LIBGEMM_SCALING_ROW,
    "1x128_128x128": lib.LIBGEMM_SCALING_1X128_128X128,
    "1x128_1x128": lib.LIBGEMM_SCALING_1X128_1X128,
    "128x128_1x128": lib.LIBGEMM_SCALING_128X128_1X128,
}
SIDES = {  # of those of blocks: how many rows of A, and columns of B, share a scale
    "1x128_128x128": (1, 128),
    "1x128_1x128": (1, 1),
    "128x128_1x128": (128, 1),
}
ACTIVATIONS: dict[str | None, int] = {None: lib.LIBGEMM_ACTIVATION_NONE} | {
    name.rsplit("_", 1)[1].lower(): value for value, name in sorted(ffi.typeof("libgemm_activation").elements.items())
}


def pick(table: dict[Any, T], value: Any, name: str) -> T:
    try:
        return table[value]
    except (KeyError, TypeError):
        raise invalid(f"{name} = {value!r}: allowed are {', '.join(repr(k) for k in table)}") from None


BEYOND_FLOAT32 = 3.4028235677973366e38  # what is nearer to 2^128 than to the largest float32, and all above


def real(value: Any, name: str) -> float:
    """A number that C takes as a float32; NaN and Inf are some."""
    try:
        found = None if isinstance(value, (str, bytes, bytearray, memoryview)) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of torch, of a tensor without memory
        found = None
    if found is None or BEYOND_FLOAT32 <= abs(found) < math.inf:
        raise invalid(f"{name} = {value!r}: a number that float32 has is needed")
    return found


def integer(value: Any, name: str, bits: int = 64) -> int:
    """An integer that C takes in so many bits, of any sign: what it may be, C says."""
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or not -(1 << bits - 1) <= found < 1 << bits - 1:
        raise invalid(f"{name} = {value!r}: an integer of {bits} bits is needed")
    return found


def precision_of(dtype: str, precision: str | None) -> int:
    if dtype == "f32":
        if precision is None:
            raise invalid("precision is needed with float32 inputs: 'tf32', 'tf32x3' or 'ieee' (there is no default)")
        return int(pick(PRECISIONS, precision, "precision"))
    if dtype in EIGHT_BITS:
        return int(pick(SUMS, precision, "precision"))
    if precision not in (None, "exact"):
        raise invalid(f"precision = {precision!r} with {dtype} inputs: 16-bit products are exact, leave it out")
    return int(lib.LIBGEMM_EXACT)


def same_type(wanted: str, **views: View | None) -> None:
    for name, item in views.items():
        if item is not None and item.dtype != wanted:
            raise invalid(f"{name} has dtype {item.dtype}: {wanted} is needed")


def same_operands(a: str, b: View) -> None:
    """That b has a's type, or the other one of 8 bits: C says which of those go together."""
    pick(DTYPES, a, "dtype of a")
    if not {a, b.dtype} <= set(EIGHT_BITS):
        same_type(a, b=b)


def new(kind: str) -> Any:
    """A struct of `kind` with its defaults."""
    args = ffi.new(f"libgemm_{kind}_args *")
    getattr(lib, f"libgemm_{kind}_args_init")(args, ffi.sizeof(f"libgemm_{kind}_args"))
    return args


def new_args(
    kind: str, dtype: str, out_dtype: str, b_dtype: str | None = None, *, alpha: float, beta: float,
    activation: str | None, precision: str | None, variant: str | None, stream: int,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """A struct of `kind` with what every operation has, and what must stay alive while the call runs."""
    args = new(kind)
    args.a_type = pick(DTYPES, dtype, "dtype of a")
    if b_dtype not in (None, dtype):
        args.b_type = pick(DTYPES, b_dtype, "dtype of b")
    args.d_type = pick(DTYPES, out_dtype, "out_dtype")
    args.precision = precision_of(dtype, precision)
    args.activation = pick(ACTIVATIONS, activation, "activation")
    args.alpha, args.beta = real(alpha, "alpha"), real(beta, "beta")
    args.stream = ffi.cast("libgemm_stream", stream)
    alive: list[Any] = []
    if variant is not None:
        if not isinstance(variant, str) or "\0" in variant:
            raise invalid(f"variant = {variant!r}: a name of libgemm.variants() or None is needed")
        alive.append(ffi.new("char[]", variant.encode()))
        args.variant = alive[0]
    return args, alive


def expect(args: Any, sizes: tuple[int, int, int] | None) -> None:
    """The (m, n, k) that groups have on average; None where nobody knows."""
    if sizes is None:
        return
    try:
        args.expected_m, args.expected_n, args.expected_k = map(operator.index, sizes)
    except (TypeError, ValueError, OverflowError):
        raise invalid(f"expected = {sizes!r}: None or three integers (m, n, k) are needed") from None


def pointer(value: int) -> Any:
    return ffi.cast("void *", value)


def need_c(beta: float, c: Any, out: Any) -> None:
    beta = real(beta, "beta")
    if beta != 0 and c is None and out is None:
        raise invalid(f"beta = {beta} without c: pass c, or out, which then serves as c")


def output(
    out: Any, out_dtype: Any, shape: tuple[int, ...], like: Any, dtype: str, launch: LaunchStream, name: str = "out"
) -> tuple[Any, View]:
    """(array, what it is): `out`, or a new array of `like`'s framework."""
    if out is None:
        out = launch.new_out(maker(shape, out_name(out_dtype, dtype), like, "out"), like)
    found = view(out, name, launch, write=True)
    if out_dtype is not None and out_name(out_dtype, dtype) != found.dtype:
        raise invalid(f"{name} has dtype {found.dtype}, out_dtype is {out_dtype}")
    return out, found


def set_matrices(args: Any, **matrices: Matrix | None) -> None:
    """Pointer, leading dimension and batch stride of each of a, b, c, d that is given."""
    for name, item in matrices.items():
        if item is not None:
            setattr(args, name, pointer(item.pointer))
            setattr(args, f"ld{name}", item.ld)
            setattr(args, f"batch_stride_{name}", item.batch_stride)


def set_bias(args: Any, bias: View, n: int, count: int | None) -> None:
    """[n] for all, or [count, n] with one row each where there is a batch or groups."""
    if count is not None and len(bias.shape) == 2:
        if bias.shape != (count, n) or (n > 1 and bias.strides[1] != 1):
            raise invalid(f"bias has shape {bias.shape}, strides {bias.strides}: ({count}, {n}), packed, is needed")
        args.bias, args.batch_stride_bias = pointer(bias.pointer), bias.strides[0]
    else:
        args.bias = pointer(vector(bias, "bias", n))


def set_scales(
    args: Any, scaling: str | None, counts: tuple[int | None, int | None], launch: LaunchStream, a: Any, b: Any
) -> None:
    """Of a_scale and b_scale, for an args that has its sizes. `counts` are how many matrices there are of a and of b,
    each with scales of its own, or all with one; None: it is one matrix."""
    if scaling is None:
        given = "a_scale" if a is not None else "b_scale"
        raise invalid(f"{given} is given without scaling, which says what it is: {', '.join(map(repr, SCALINGS))}")
    args.scaling = pick(SCALINGS, scaling, "scaling")
    for place, (name, array, length) in enumerate((("a_scale", a, args.m), ("b_scale", b, args.n))):
        batch = counts[place]
        if array is None:
            raise invalid(f"{name} is needed with scaling = {scaling!r}")
        found = view(array, name, launch)
        same_type("f32", **{name: found})
        if scaling == "tensor":
            set_number(args, name, found, batch)
        elif scaling == "row":
            set_row_scales(args, name, found, length, place, batch)
        else:
            set_block_scales(args, name, found, -(-length // SIDES[str(scaling)][place]), place, batch)
        setattr(args, name, pointer(found.pointer))


def set_out_scale(args: Any, found: View) -> None:
    """Of d_scale, the one element that there is for all matrices."""
    same_type("f32", d_scale=found)
    if math.prod(found.shape) != 1:
        raise invalid(f"d_scale has shape {found.shape}: one element is needed")
    args.d_scale = pointer(found.pointer)


def set_row_sizes(args: Any, found: View, batch: int | None) -> None:
    """Of d_amax, a number for each row of D, of all matrices."""
    same_type("f32", d_amax=found)
    rows: int = args.m
    shape = (rows,) if batch is None else (batch, rows)
    steps = (rows, 1)[-len(shape) :]
    apart = rows > 0 and any(n > 1 and have != want for n, have, want in zip(shape, found.strides, steps, strict=False))
    if tuple(found.shape) != shape or apart:
        raise invalid(f"d_amax has shape {found.shape}, strides {found.strides}: {shape}, in one piece, is needed")
    args.d_amax = pointer(found.pointer)


def set_number(args: Any, name: str, found: View, batch: int | None) -> None:
    """One element for all matrices, or a vector of one for each."""
    if batch is not None and len(found.shape) == 1 and found.shape[0] == batch:
        setattr(args, f"batch_stride_{name}", found.strides[0])
    elif math.prod(found.shape) != 1:
        raise invalid(
            f"{name} has shape {found.shape}: one element is needed with scaling = 'tensor'"
            f"{'' if batch is None else f', or a vector of {batch}'}"
        )


def set_row_scales(args: Any, name: str, found: View, length: int, place: int, batch: int | None) -> None:
    """A vector, which may stand as a matrix of one column (place 0, A) or row (1, B)."""
    shape, strides = list(found.shape), list(found.strides)
    matrix = [length, 1] if place == 0 else [1, length]
    if len(shape) > 1 and shape[-2:] == matrix:
        del shape[-1 - place], strides[-1 - place]
    allowed = [[length]] if batch is None else [[length], [batch, length]]
    if shape not in allowed or (length > 1 and strides[-1] != 1):
        raise invalid(
            f"{name} has shape {found.shape}, strides {found.strides}: {length} contiguous elements are needed "
            f"with scaling = 'row'{'' if batch is None else f', or {batch} times so many'}"
        )
    if len(shape) == 2:
        setattr(args, f"batch_stride_{name}", strides[0])


def set_block_scales(args: Any, name: str, found: View, rows: int, place: int, batch: int | None) -> None:
    """A matrix that lies as A (place 0) or B (1) does, of any strides: `rows` scales by one for each 128 of K, or more,
    which are not read."""
    steps, shape = -(-args.k // 128), found.shape
    leads = [()] if batch is None else [(), (batch,)]
    if len(shape) < 2 or shape[:-2] not in leads or shape[-2 + place] != rows or shape[-1 - place] < steps:
        wanted = f"{rows}, {steps}" if place == 0 else f"{steps}, {rows}"
        raise invalid(
            f"{name} has shape {shape}: ({wanted}) is needed with this scaling, or more along K"
            f"{'' if batch is None else f', for all or for each of {batch}'}"
        )
    row, step = found.strides[-2 + place], found.strides[-1 - place]
    setattr(args, f"{name}_stride_{'mn'[place]}", row)
    setattr(args, f"{name}_stride_k", step)
    if len(shape) == 3:
        setattr(args, f"batch_stride_{name}", found.strides[0])


def run(kind: str, args: Any, like: Any, launch: LaunchStream, needed: str | None = None) -> None:
    """Make the call, with the workspace that it runs best with, of `like`'s framework. One that cannot allocate gives
    none, unless the call cannot go without: then `needed` says what it is for."""
    workspace = None  # freed at the end, into memory of the launch's stream: what comes after it there may have it
    if needed or framework_of(like) is not None:
        size = ffi.new("uint64_t *")
        check(getattr(lib, f"libgemm_{kind}_workspace")(args, size))
        if size[0]:
            workspace = launch.new(maker((size[0],), "u8", like, needed or "workspace"), like)
            args.workspace, args.workspace_bytes = pointer(address_of(workspace)), size[0]
    check(getattr(lib, f"libgemm_{kind}")(args))
