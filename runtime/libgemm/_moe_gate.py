"""The gate of a layer of experts by itself, and its gradient: what training needs between the products."""

from typing import Any, TypeVar

from libgemm._args import ACTIVATIONS, DTYPES, Activation, new, pick, pointer, real, same_type
from libgemm._framework import LaunchStream, maker, written
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import Matrix, row_major
from libgemm._moe import packed, set_weights
from libgemm._moe_mm import GATES, Gate
from libgemm._tensor import View, view

T = TypeVar("T")


def set_gate(
    args: Any, z: View, activation: str | None, gate: str | None, gate_alpha: float, gate_limit: float
) -> tuple[Matrix, int]:
    """Z as a matrix, and the columns of H."""
    given = row_major(z, "z", z.shape, batched=False)
    args.a_type = pick(DTYPES, z.dtype, "dtype of z")
    args.activation, args.gate = pick(ACTIVATIONS, activation, "activation"), pick(GATES, gate, "gate")
    args.gate_alpha, args.gate_limit = real(gate_alpha, "gate_alpha"), real(gate_limit, "gate_limit")
    if gate and given.cols % 2:
        raise invalid(f"z has {given.cols} columns, gate = {gate!r}: an even number is needed, half of it the gate's")
    args.z, args.ldz = pointer(given.pointer), given.ld
    args.n = given.cols // 2 if gate else given.cols
    return given, int(args.n)


def place(
    array: Any, name: str, shape: tuple[int, int], dtype: str, launch: LaunchStream, write: bool
) -> tuple[Matrix, View]:
    """Its matrix, and what must stay alive until the launch."""
    found = view(array, name, launch, write=write)
    same_type(dtype, **{name: found})
    return row_major(found, name, shape, batched=False), found


def moe_gate(
    z: T, *, activation: Activation | None = "silu", gate: Gate | None = "halves", gate_alpha: float = 1.702,
    gate_limit: float = 0.0, out: T | None = None, stream: Any = None,
) -> T:  # fmt: skip
    """activation(gate) * up of rows of pre-activations, as moe_mm()'s epilogue does it to sums.

    z    [M, 2 N], float16 or bfloat16, its columns as `gate` says; [M, N] and activation(z) for a gate of None.
    Returns out, or a new [M, N]. Raises Error. Order, memory and autograd are as in gemm().
    """
    launch = LaunchStream(stream, z)
    args = new("moe_gate")
    source = view(z, "z", launch)
    given, columns = set_gate(args, source, activation, gate, gate_alpha, gate_limit)
    shape = (given.rows, columns)
    if out is None:
        out = launch.new_out(maker(shape, source.dtype, z, "out"), z)
    h, _ = place(out, "out", shape, source.dtype, launch, True)
    args.m, args.h, args.ldh = given.rows, pointer(h.pointer), h.ld
    args.stream = ffi.cast("libgemm_stream", launch.handle)
    check(lib.libgemm_moe_gate(args))
    written([out])
    return out


def moe_gate_grad(
    z: T, grad: Any, places: Any, weights: Any = None, *, activation: Activation | None = "silu",
    gate: Gate | None = "halves", gate_alpha: float = 1.702, gate_limit: float = 0.0, stream: Any = None,
) -> tuple[T, T, T]:  # fmt: skip
    """(dz, h, sums): what a layer's gradient needs of its gate, for each choice c of a token and its row i = places[c].

        dz[i]   = weights[c] * grad[i] * slopes of moe_gate(z)[i]
        h[i]    = weights[c] * moe_gate(z)[i]
        sums[c] = sum of grad[i] * moe_gate(z)[i] over columns: the gradient of weights[c]

    z        [M, 2 N], or [M, N] for a gate of None, as in moe_gate().
    grad     [M, N] of z's dtype: the gradient of h of weights of 1, grad of the layer's rows @ w_out.T.
    places   int32 [tokens, top_k], of moe_route(). One that is no row of z has a sum of 0.
    weights  [tokens, top_k], float32, bfloat16 or float16; None: 1.
    dz is as z, h [M, N], sums float32 [tokens, top_k]. Rows that no choice names are left as they are. Raises Error.
    Order, memory and autograd are as in gemm().
    """
    launch = LaunchStream(stream, z)
    args = new("moe_gate_grad")
    source = view(z, "z", launch)
    given, columns = set_gate(args, source, activation, gate, gate_alpha, gate_limit)
    shape = (given.rows, columns)
    dh, of_grad = place(grad, "grad", shape, source.dtype, launch, False)
    found = packed(view(places, "places", launch), "places", ("i32",))
    kept = set_weights(args, weights, found.shape, launch)
    made = [
        launch.new_out(maker(size, dtype, z, "out"), z)
        for size, dtype in (((given.rows, given.cols), source.dtype), (shape, source.dtype), (found.shape, "f32"))
    ]
    dz, _ = place(made[0], "dz", (given.rows, given.cols), source.dtype, launch, True)
    h, _ = place(made[1], "h", shape, source.dtype, launch, True)
    sums = packed(view(made[2], "sums", launch, write=True), "sums", ("f32",), found.shape)
    args.m, (args.tokens, args.top_k) = given.rows, found.shape
    args.dh, args.lddh = pointer(dh.pointer), dh.ld
    args.dz, args.lddz, args.h, args.ldh = pointer(dz.pointer), dz.ld, pointer(h.pointer), h.ld
    args.sums, args.places = ffi.cast("float *", sums.pointer), ffi.cast("int32_t *", found.pointer)
    args.stream = ffi.cast("libgemm_stream", launch.handle)
    check(lib.libgemm_moe_gate_grad(args))
    written(made)
    del kept, of_grad
    return made[0], made[1], made[2]
