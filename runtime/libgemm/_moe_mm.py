"""Grouped products as a layer of experts asks for them: rows of A by index, a gate, rows of D weighted and by index."""

from typing import Any, Literal, TypeVar

from libgemm._args import ACTIVATIONS, DTYPES, Activation, new, pick, pointer, real, same_type, set_bias
from libgemm._framework import LaunchStream, maker, written
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import matrix, row_major, vector
from libgemm._tensor import View, view

T = TypeVar("T")
Gate = Literal["halves", "pairs"]
GATES = {None: lib.LIBGEMM_GATE_NONE, "halves": lib.LIBGEMM_GATE_HALVES, "pairs": lib.LIBGEMM_GATE_PAIRS}


def index_of(array: Any, name: str, length: int | None, launch: LaunchStream) -> View:
    """A contiguous vector of int32, of this length unless it is None."""
    found = view(array, name, launch)
    if found.dtype != "i32" or len(found.shape) != 1:
        raise invalid(f"{name} is {found.dtype} of shape {found.shape}: contiguous 1-D int32 is needed")
    vector(found, name, found.shape[0] if length is None else length)
    return found


def moe_mm(
    a: T, b: Any, offs: Any, *, rows: Any = None, alpha: float = 1.0, bias: Any = None,
    activation: Activation | None = None, gate: Gate | None = None, gate_alpha: float = 1.702, gate_limit: float = 0.0,
    row_weights: Any = None, to_rows: Any = None, out: T | None = None, variant: str | None = None, stream: Any = None,
) -> T:  # fmt: skip
    """The products of a layer of experts: rows s to e - 1 are expert g's, with the end e of g in offs [G], s of g - 1.

        z[i] = alpha * a[rows[i]] @ b[g] + bias[g]
        out[to_rows[i]] = row_weights[i] * activation(z[i])                 without a gate
        out[to_rows[i]] = row_weights[i] * activation(gate) * up            with one: halves of z[i], or its pairs

    a            [rows of A, K], float16 or bfloat16; row-major at any leading dimension.
    b            [G, K, N], row-major or transposed, of a's dtype.
    offs         int32 [G], contiguous, on the device, where it is read; ends are clamped as in grouped_mm().
    rows         int32 [M], which row of a; None: a's rows as they stand. One that is no row of a: wrong numbers.
    gate         "halves": the gate's N/2 columns of b before up's (torch's); "pairs": in turn (gpt-oss). None: no gate.
    gate_limit   above 0, with activation "silu": gpt-oss's clamped form, with gate_alpha.
    row_weights  float32 [M]; None: 1.
    to_rows      int32 [M], which row of out; then out must be given. One that is no row of out is not stored.
    bias         [N], or [G, N]; a's dtype.
    Returns out, or a new [M, N], or with a gate [M, N/2]. Rows past the last end are not written. Raises Error. Order,
    memory and autograd are as in gemm().
    """
    launch = LaunchStream(stream, a)
    left, right = view(a, "a", launch), view(b, "b", launch)
    if len(right.shape) != 3 or len(left.shape) != 2:
        raise invalid(f"a has shape {left.shape}, b has shape {right.shape}: [rows, K] and [G, K, N] are needed")
    same_type(left.dtype, b=right)
    given, weights = row_major(left, "a", left.shape), matrix(right, "b")
    if given.cols != weights.rows:
        raise invalid(f"a has shape {left.shape}, b has shape {right.shape}: a's columns must equal b's rows")
    args = new("moe_mm")
    args.a_type = pick(DTYPES, left.dtype, "dtype of a")
    args.gate, args.activation = pick(GATES, gate, "gate"), pick(ACTIVATIONS, activation, "activation")
    args.alpha = real(alpha, "alpha")
    args.gate_alpha, args.gate_limit = real(gate_alpha, "gate_alpha"), real(gate_limit, "gate_limit")
    alive: list[Any] = [index_of(offs, "offs", weights.batch, launch)]
    args.offs = ffi.cast("int32_t *", alive[0].pointer)
    args.m = args.a_count = given.rows
    if rows is not None:
        alive.append(index_of(rows, "rows", None, launch))
        args.m, args.rows = alive[-1].shape[0], ffi.cast("int32_t *", alive[-1].pointer)
    args.n, args.k, args.groups = weights.cols, given.cols, weights.batch
    args.trans_b, args.batch_stride_b = weights.trans, weights.batch_stride
    shape = (int(args.m), weights.cols // 2 if gate else weights.cols)
    if to_rows is not None:
        if out is None:
            raise invalid("to_rows without out: rows of which array they are is not known")
        alive.append(index_of(to_rows, "to_rows", shape[0], launch))
        args.to_rows = ffi.cast("int32_t *", alive[-1].pointer)
    if out is None:
        out = launch.new_out(maker(shape, left.dtype, a, "out"), a)
    d_view = view(out, "out", launch, write=True)
    same_type(left.dtype, out=d_view)
    if to_rows is not None:
        shape = (d_view.shape[0] if d_view.shape else 0, shape[1])
    d = row_major(d_view, "out", shape)
    args.d_count = shape[0]
    for name, item in (("a", given), ("b", weights), ("d", d)):
        setattr(args, name, pointer(item.pointer))
        setattr(args, f"ld{name}", item.ld)
    if row_weights is not None:
        found = view(row_weights, "row_weights", launch)
        same_type("f32", row_weights=found)
        alive.append(found)
        args.row_weights = ffi.cast("float *", vector(found, "row_weights", int(args.m)))
    if bias is not None:
        alive.append(view(bias, "bias", launch))
        same_type(left.dtype, bias=alive[-1])
        set_bias(args, alive[-1], weights.cols, weights.batch)
    if variant is not None:
        alive.append(ffi.new("char[]", variant.encode()))
        args.variant = alive[-1]
    args.stream = ffi.cast("libgemm_stream", launch.handle)
    check(lib.libgemm_moe_mm(args))
    written([out])
    return out
