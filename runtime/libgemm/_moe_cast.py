"""Rows for a product of experts in 8 bits: by an index, gated, and cast with a scale for each 128."""

from typing import Any, TypeVar

from libgemm._args import ACTIVATIONS, DTYPES, Activation, new, pick, pointer, real, same_type
from libgemm._cast import ALIGN
from libgemm._framework import LaunchStream, maker, written
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import row_major
from libgemm._moe_mm import GATES, Gate
from libgemm._tensor import view

T = TypeVar("T")


def moe_cast(
    a: T, *, rows: Any = None, activation: Activation | None = None, gate: Gate | None = None,
    gate_alpha: float = 1.702, gate_limit: float = 0.0, stream: Any = None,
) -> tuple[T, T]:  # fmt: skip
    """(values, scale): rows of a by an index, gated, and cast as cast(x, "1x128") does.

        values[i] = activation(a[rows[i]]) / scale              with a gate activation(gate) * up

    a     [count, N], with a gate [count, 2 N], its columns as `gate` says; float16 or bfloat16, row-major.
    rows  None, for rows as they stand, or int32 [M]; one that is no row of a gives zeros.
    values is float8_e4m3fn [M, N], rows beginning on 32 bytes; scale float32 [M, N/128], rounded up, those of a column
    one behind the other. Raises Error. Order, memory and autograd are as in gemm().
    """
    launch = LaunchStream(stream, a)
    args = new("moe_cast")
    source = view(a, "a", launch)
    given = row_major(source, "a", source.shape, batched=False)
    if gate and given.cols % 2:
        raise invalid(f"a has {given.cols} columns, gate = {gate!r}: an even number is needed, half of it the gate's")
    args.a_type = pick(DTYPES, source.dtype, "dtype of a")
    args.activation, args.gate = pick(ACTIVATIONS, activation, "activation"), pick(GATES, gate, "gate")
    args.gate_alpha, args.gate_limit = real(gate_alpha, "gate_alpha"), real(gate_limit, "gate_limit")
    args.a, args.lda, args.a_count = pointer(given.pointer), given.ld, given.rows
    m, n = given.rows, given.cols // 2 if gate else given.cols
    index = None
    if rows is not None:
        index = view(rows, "rows", launch)
        same_type("i32", rows=index)
        if len(index.shape) != 1 or (index.shape[0] > 1 and index.strides != (1,)):
            raise invalid(f"rows has shape {index.shape}, strides {index.strides}: a contiguous vector is needed")
        (m,) = index.shape
        args.rows = ffi.cast("int32_t *", index.pointer)
    ld, blocks = -(-n // ALIGN) * ALIGN, -(-n // 128)
    values = launch.new_out(maker((m, ld), "e4m3", a, "out"), a)
    scale = launch.new_out(maker((blocks, m), "f32", a, "out"), a)
    places = [view(made, "out", launch, write=True) for made in (values, scale)]
    args.m, args.n, args.ldd = m, n, ld
    args.d, args.scale = (pointer(place.pointer) for place in places)
    args.scale_stride_m, args.scale_stride_n = 1, m
    args.stream = ffi.cast("libgemm_stream", launch.handle)
    check(lib.libgemm_moe_cast(args))
    written([values, scale])
    return values if ld == n else values[..., :n], scale.swapaxes(-1, -2)
