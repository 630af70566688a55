"""A layer of experts, and what is beside its products: sorting tokens by expert, and adding up what experts made."""

from typing import Any, TypeVar

from libgemm._args import (
    ACTIVATIONS,
    DTYPES,
    SCALINGS,
    Activation,
    Scaling,
    integer,
    new,
    pick,
    pointer,
    real,
    run,
    same_type,
)
from libgemm._framework import LaunchStream, maker, written
from libgemm._known import learn_torch
from libgemm._known_moe import again, keep
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import Matrix, matrix, row_major
from libgemm._moe_mm import GATES, Gate
from libgemm._tensor import View, view

T = TypeVar("T")


def packed(view: View, name: str, kinds: tuple[str, ...], shape: tuple[int, ...] | None = None) -> View:
    """A contiguous matrix of these dtypes, and of this shape unless it is None."""
    wanted = shape or view.shape
    contiguous = len(view.shape) == 2 and (view.shape[0] < 2 or view.strides[0] == view.shape[1])
    if view.dtype not in kinds or view.shape != wanted or not contiguous or (wanted[1] > 1 and view.strides[1] != 1):
        given = f"{name} is {view.dtype} of shape {view.shape}, strides {view.strides}"
        raise invalid(f"{given}: contiguous {' or '.join(kinds)} of shape {shape or '[tokens, top_k]'} is needed")
    return view


def set_choices(args: Any, ids: Any, launch: LaunchStream) -> View:
    found = packed(view(ids, "expert_ids", launch), "expert_ids", ("i32", "i64"))
    args.tokens, args.top_k = found.shape
    args.ids, args.ids_wide = pointer(found.pointer), found.dtype == "i64"
    return found


def set_weights(args: Any, weights: Any, shape: tuple[int, ...], launch: LaunchStream) -> View | None:
    if weights is None:
        return None
    found = packed(view(weights, "weights", launch), "weights", ("f32", "bf16", "f16"), shape)
    args.weights, args.weights_type = pointer(found.pointer), DTYPES[found.dtype]
    return found


def moe_route(expert_ids: T, groups: int, *, stream: Any = None) -> tuple[T, T, T]:
    """(rows, places, offs) of a router's choices, sorted by expert: what moe_mm() and moe_sum() take.

    expert_ids   [tokens, top_k], int32 or int64, contiguous. One that is none of `groups` experts is skipped.
    rows         int32 [tokens * top_k]: the token of each sorted position, in the order of the choices within an
                 expert; -1 behind the last.
    places       int32 [tokens, top_k]: the sorted position of each choice; -1 where it is skipped.
    offs         int32 [groups]: the end of each expert's positions.
    """
    launch = LaunchStream(stream, expert_ids)
    args = new("moe_route")
    ids = set_choices(args, expert_ids, launch)
    args.groups = integer(groups, "groups")
    check(lib.libgemm_moe_route_workspace(args, ffi.new("uint64_t *")))  # C says what is allowed, before `offs` is made
    made = [launch.new_out(maker(shape, "i32", expert_ids, "out"), expert_ids)
            for shape in ((ids.shape[0] * ids.shape[1],), ids.shape, (groups,))]  # fmt: skip
    views = [view(x, "out", launch, write=True) for x in made]
    args.rows, args.places, args.offs = (ffi.cast("int32_t *", x.pointer) for x in views)
    args.stream = ffi.cast("libgemm_stream", launch.handle)
    run("moe_route", args, expert_ids, launch, "counts of each expert")
    written(made)
    return made[0], made[1], made[2]


def moe_sum(a: T, places: Any, weights: Any = None, *, out: T | None = None, stream: Any = None) -> T:
    """out[t] = sum of weights[t, j] * a[places[t, j]] over j from 0 on, in this order and in float32.

    a        [rows, N], float16, bfloat16 or float32; row-major at any leading dimension.
    places   int32 [tokens, top_k]; one that is no row of a adds nothing.
    weights  [tokens, top_k], float32, bfloat16 or float16; None: 1.
    Returns out, or a new [tokens, N] of a's dtype. Raises Error. Order, memory and autograd are as in gemm().
    """
    launch = LaunchStream(stream, a)
    args = new("moe_sum")
    source = view(a, "a", launch)
    given = row_major(source, "a", source.shape, batched=False)
    found = packed(view(places, "places", launch), "places", ("i32",))
    args.tokens, args.top_k, args.n, args.a_count = *found.shape, given.cols, given.rows
    args.places = ffi.cast("int32_t *", found.pointer)
    kept = set_weights(args, weights, found.shape, launch)
    shape = (found.shape[0], given.cols)
    if out is None:
        out = launch.new_out(maker(shape, source.dtype, a, "out"), a)
    d_view = view(out, "out", launch, write=True)
    same_type(source.dtype, out=d_view)
    d = row_major(d_view, "out", shape, batched=False)
    args.a, args.lda, args.d, args.ldd = pointer(given.pointer), given.ld, pointer(d.pointer), d.ld
    args.a_type = pick(DTYPES, source.dtype, "dtype of a")
    args.stream = ffi.cast("libgemm_stream", launch.handle)
    check(lib.libgemm_moe_sum(args))
    written([out])
    del kept
    return out


def weights_of(array: Any, name: str, dtype: str, launch: LaunchStream) -> tuple[Matrix, View]:
    found = view(array, name, launch)
    same_type(dtype, **{name: found})
    if len(found.shape) != 3:
        raise invalid(f"{name} has shape {found.shape}: one matrix for each expert, 3 dimensions, is needed")
    return matrix(found, name), found


def inner_size(x: tuple[int, ...], w_in: tuple[int, ...], w_out: tuple[int, ...], gated: bool) -> int:
    """I of a layer of these shapes, where they fit together."""
    if len(x) == 2 and len(w_in) == len(w_out) == 3:
        inner = w_in[2] // 2 if gated else w_in[2]
        if (*w_in[:2], w_out[1]) == (w_out[0], x[1], inner) and not (gated and w_in[2] % 2):
            return inner
    raise invalid(
        f"x is {[*x]}, w_in {[*w_in]}, w_out {[*w_out]}: [tokens, K], [experts, K, {'2 I' if gated else 'I'}] and "
        "[experts, I, N] are needed"
    )


def set_weight_scales(
    args: Any, scaling: str | None, scales: dict[int, Any], weights: tuple[Matrix, Matrix], launch: LaunchStream
) -> list[View]:
    """Of w_in and w_out, 8-bit ones: one for each 128 x 128, lying as these do."""
    names = {1: "w_in_scale", 2: "w_out_scale"}
    if scaling is None:
        for number, array in scales.items():
            if array is not None:
                raise invalid(f"{names[number]} without scaling: pass scaling = '1x128_128x128', or no scale")
        return []
    args.b_type, args.scaling = DTYPES["e4m3"], SCALINGS[scaling]
    alive = []
    for (number, array), matrix_of in zip(scales.items(), weights, strict=True):
        name = names[number]
        if array is None:
            raise invalid(f"{name} is needed with scaling = {scaling!r}")
        found = view(array, name, launch)
        same_type("f32", **{name: found})
        wanted = (matrix_of.batch, -(-matrix_of.rows // 128), -(-matrix_of.cols // 128))
        if found.shape != wanted:
            raise invalid(f"{name} has shape {found.shape}: {wanted} is needed")
        setattr(args, f"b{number}_scale", pointer(found.pointer))
        names_of = (f"batch_stride_b{number}_scale", f"b{number}_scale_stride_k", f"b{number}_scale_stride_n")
        for field, stride in zip(names_of, found.strides, strict=True):
            setattr(args, field, stride)
        alive.append(found)
    return alive


def moe(
    x: T, w_in: Any, w_out: Any, expert_ids: Any, weights: Any = None, *, activation: Activation | None = "silu",
    gate: Gate | None = "halves", gate_alpha: float = 1.702, gate_limit: float = 0.0, bias_in: Any = None,
    bias_out: Any = None, out: T | None = None, stream: Any = None, scaling: Scaling | None = None,
    w_in_scale: Any = None, w_out_scale: Any = None,
) -> T:  # fmt: skip
    """A layer of experts: out[t] = sum over j of weights[t, j] * expert(x[t]), of expert g = expert_ids[t, j].

        h = activation(x @ w_in[g] + bias_in[g])                or, with a gate, activation(gate) * up
        expert(x) = h @ w_out[g] + bias_out[g]                  both rounded to x's dtype

    x            [tokens, K], float16 or bfloat16.
    w_in         [experts, K, I], with a gate [experts, K, 2 I]: its columns as `gate` says, as in moe_mm().
    w_out        [experts, I, N]. Weights stored with rows and columns exchanged, as torch's linear has them, are
                 given as a view: w.transpose(1, 2).
    expert_ids   [tokens, top_k], int32 or int64, contiguous; one that is no expert is skipped.
    weights      [tokens, top_k], float32, bfloat16 or float16; None: 1.
    bias_in      [experts, I] or [experts, 2 I], bias_out [experts, N], of x's dtype.
    scaling      "1x128_128x128": w_in and w_out are float8_e4m3fn, with float32 scales w_in_scale [experts, K/128,
                 2 I/128] and w_out_scale [experts, I/128, N/128], rounded up, of any strides. Rows of x, and h, are
                 cast to 8 bits with a scale for each 128, and both products are of 8-bit operands. Of weights as linear
                 has them: w8, scale = cast(w, "128x128"), then w8.mT and scale.mT.
    The host reads nothing of the device: it can be captured in a CUDA graph. Returns out, or a new [tokens, N]. Raises
    Error. Order, memory and autograd are as in gemm().
    """
    if scaling not in (None, "1x128_128x128"):
        raise invalid(f"scaling = {scaling!r}: allowed are None and '1x128_128x128'")
    tensors = (x, w_in, w_out, out, bias_in, bias_out, expert_ids, weights)
    scales = (w_in_scale, w_out_scale) if scaling is not None else ()
    key = None
    if scales or w_in_scale is w_out_scale is None:
        made, key = again(tensors, (activation, gate, gate_alpha, gate_limit), stream, scales)
        if made is not None:
            return made  # type: ignore[no-any-return]
    learn_torch()
    launch = LaunchStream(stream, x)
    args = new("moe")
    source = view(x, "x", launch)
    given = row_major(source, "x", source.shape, batched=False)
    kind = source.dtype if scaling is None else "e4m3"
    first, of_first = weights_of(w_in, "w_in", kind, launch)
    second, of_second = weights_of(w_out, "w_out", kind, launch)
    inner = inner_size(source.shape, of_first.shape, of_second.shape, gate is not None)
    ids = set_choices(args, expert_ids, launch)
    if ids.shape[0] != given.rows:
        raise invalid(f"x has {given.rows} rows, expert_ids has shape {ids.shape}: a row for each token is needed")
    alive: list[Any] = [of_first, of_second, ids, set_weights(args, weights, ids.shape, launch)]
    shape = (given.rows, second.cols)
    if out is None:
        out = launch.new_out(maker(shape, source.dtype, x, "out"), x)
    d_view = view(out, "out", launch, write=True)
    same_type(source.dtype, out=d_view)
    d = row_major(d_view, "out", shape, batched=False)
    args.k, args.inner, args.n, args.groups = given.cols, inner, second.cols, first.batch
    args.a_type = pick(DTYPES, source.dtype, "dtype of x")
    args.x, args.ldx, args.d, args.ldd = pointer(given.pointer), given.ld, pointer(d.pointer), d.ld
    args.b1, args.ldb1, args.trans_b1 = pointer(first.pointer), first.ld, first.trans
    args.b2, args.ldb2, args.trans_b2 = pointer(second.pointer), second.ld, second.trans
    args.batch_stride_b1, args.batch_stride_b2 = first.batch_stride, second.batch_stride
    args.activation, args.gate = pick(ACTIVATIONS, activation, "activation"), pick(GATES, gate, "gate")
    args.gate_alpha, args.gate_limit = real(gate_alpha, "gate_alpha"), real(gate_limit, "gate_limit")
    for number, bias, name, columns in ((1, bias_in, "bias_in", first.cols), (2, bias_out, "bias_out", second.cols)):
        if bias is not None:
            found = packed(view(bias, name, launch), name, (source.dtype,), (first.batch, columns))
            alive.append(found)
            setattr(args, f"bias{number}", pointer(found.pointer))
            setattr(args, f"batch_stride_bias{number}", columns)
    alive += set_weight_scales(args, scaling, {1: w_in_scale, 2: w_out_scale}, (first, second), launch)
    args.stream = ffi.cast("libgemm_stream", launch.handle)
    run("moe", args, x, launch, "what is between the parts of a layer")
    written([out])
    if key is not None and args.workspace_bytes:
        keep(key, args, (*tensors, *scales), out)
    return out
