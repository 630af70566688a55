"""The dense call: again for torch tensors like those of a call before, anew for arrays of any maker."""

from typing import Any, TypeVar

from libgemm import _args
from libgemm._args import (
    Activation,
    Precision,
    Scaling,
    need_c,
    new_args,
    output,
    same_operands,
    same_type,
    set_bias,
    set_matrices,
    set_out_scale,
    set_row_sizes,
    set_scales,
)
from libgemm._framework import LaunchStream, written
from libgemm._known import ONE, ZERO, Key, Known, learn_torch
from libgemm._library import invalid
from libgemm._matrix import matrix, row_major
from libgemm._tensor import view

known = Known("gemm")
T = TypeVar("T", bound=Any)


def gemm(
    a: T, b: Any, c: Any = None, *, alpha: float = ONE, beta: float = ZERO, bias: Any = None,
    activation: Activation | None = None, precision: Precision | None = None, out: T | None = None,
    out_dtype: Any = None, variant: str | None = None, batch_invariant: bool = False, stream: Any = None,
    scaling: Scaling | None = None, a_scale: Any = None, b_scale: Any = None, d_scale: Any = None,
    d_amax: Any = None,
) -> T:  # fmt: skip
    """D = act(alpha * a @ b + beta * c + bias), accumulated in float32.

    a [M,K] or [batch,M,K], b [K,N] or [batch,K,N], of one dtype: float16, bfloat16, float32 or float8_e4m3fn;
    one of two float8_e4m3fn may be float8_e5m2 instead, fast on Hopper without activation.
    Row-major or transposed views both work (one of the last two strides is 1; 8-bit ones are fastest, and need no
    copy, where K is contiguous: a row-major, b transposed). A 2-D operand is shared by the batch.
    c      [M,N] (or batched), D's dtype; read only when beta is not 0, then `out` serves where c is None.
    bias   [N], or [batch,N]; D's dtype, or bfloat16 where D has 8 bits.
    activation "relu", "gelu" (exact), "silu" or None.
    precision  float32 inputs must name one: "tf32", "tf32x3" or "ieee". 8-bit ones may: "exact" adds up each 128 of
           K on tensor cores, which keep about 14 bits, and those sums in float32; "fast" all of K on tensor cores, but
           not with scales of blocks.
    scaling  of 8-bit inputs: what a_scale and b_scale, float32, are, by which a @ b is multiplied. "tensor": a number
           each. "row": one for each row of a, [M] or [M,1], and column of b, [N] or [1,N], or batched. None: none.
           Of blocks of 128 of K, of a and b: "1x128_128x128" (a_scale [M,K/128], b_scale [K/128,N/128], of any
           strides, rounded up), "1x128_1x128" (b_scale [K/128,N]), "128x128_1x128" (a_scale [M/128,K/128]).
    out    [M,N] row-major (or batched) to write to; may be c. out_dtype: a's dtype (default) or float32;
           of 8-bit inputs bfloat16 (default), float16, float32 or float8_e4m3fn, rounded to the nearest, beyond
           448 to that; no c then.
    d_scale  None, or of an output in float8_e4m3fn a float32 tensor of one element, by which D is divided before it is
           rounded: what the next product takes as a_scale.
    d_amax   None, or of such an output float32 [M] or [batch,M], in one piece, of which each number is raised to the
           largest magnitude of its row of D before that division; Inf and NaN count for nothing. Set it to 0 first:
           several calls may raise the same.
    variant  name of the one variant to use (see variants()); None lets the library choose.
    batch_invariant  True: a row's bits depend on neither M nor the other rows (some problems then run slower).
    stream   handle or stream object; None is the current stream of a's framework.
    Returns out, or a new array of a's framework. Raises Error: nothing was launched then.

    Order      The call waits, on the device, for what the maker of each array has queued so far: torch and CuPy on
               their current streams, others as __dlpack__ does; for a stream named by a __cuda_array_interface__ the
               host waits. After the call the numbers are there for work on `stream`; any other stream, also another
               framework's, must be made to wait for it.
    Memory     Keep arrays that you pass, or tell their allocator (torch: record_stream), until `stream` is past the
               call. New arrays and workspaces are of the framework's memory of `stream`: a new torch tensor may also
               be used on, and dropped after, the stream that was current; other streams' use of it, and any other of
               a CuPy array than on `stream`, must be over before it is dropped.
    Autograd   Nothing is recorded: in grad mode, tensors that require grad are refused. Versions of `out` move.
    """
    options = (
        None
        if alpha is ONE and beta is ZERO and activation is None and precision is None and out_dtype is None
        and variant is None and batch_invariant is False and scaling is None
        else (alpha, beta, activation, precision, out_dtype, variant, batch_invariant, scaling)
    )  # fmt: skip
    scales: Any = None if scaling is None and a_scale is None and b_scale is None else (a_scale, b_scale)
    if d_amax is not None:
        scales = (a_scale, b_scale, d_scale, d_amax)
    elif d_scale is not None:
        scales = (a_scale, b_scale, d_scale)
    made, key = known.again(a, b, c, out, bias, None, options, stream, scales)
    if made is None:
        made = gemm_anew(
            a, b, c, alpha, beta, bias, activation, precision, out, out_dtype, variant, batch_invariant, stream, key,
            scaling, scales,
        )  # fmt: skip
    return made  # type: ignore[no-any-return]


def gemm_anew(
    a: Any, b: Any, c: Any, alpha: float, beta: float, bias: Any, activation: str | None, precision: str | None,
    out: Any, out_dtype: Any, variant: str | None, batch_invariant: bool, stream: Any, key: Key | None,
    scaling: str | None = None, scales: tuple[Any, ...] | None = None,
) -> Any:  # fmt: skip
    """The general way. What went well is kept under `key`, if there is one."""
    learn_torch()
    launch = LaunchStream(stream, a)
    a_view, b_view = view(a, "a", launch), view(b, "b", launch)
    same_operands(a_view.dtype, b_view)
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
    made, d_view = output(out, out_dtype, shape, a, a_view.dtype, launch)
    c_view = None if beta == 0 else d_view if c is None else view(c, "c", launch)
    bias_view = None if bias is None else view(bias, "bias", launch)
    same_type(d_view.dtype, c=c_view)
    same_type("bf16" if d_view.dtype == "e4m3" else d_view.dtype, bias=bias_view)
    d = row_major(d_view, "out", shape)
    c_matrix = None if c_view is None else row_major(c_view, "c", shape)
    args, alive = new_args(
        "gemm", a_view.dtype, d_view.dtype, b_view.dtype, alpha=alpha, beta=beta, activation=activation,
        precision=precision, variant=variant, stream=launch.handle,
    )  # fmt: skip
    args.m, args.n, args.k, args.batch = left.rows, right.cols, left.cols, batch
    args.trans_a, args.trans_b, args.batch_invariant = left.trans, right.trans, bool(batch_invariant)
    set_matrices(args, a=left, b=right, c=c_matrix, d=d)
    if bias_view is not None:
        set_bias(args, bias_view, right.cols, batch if batched else None)
    if scales is not None:
        a_scale, b_scale, d_scale, d_amax = (*scales, None, None)[:4]
        if not (scaling is None and a_scale is None and b_scale is None):
            set_scales(args, scaling, (batch, batch) if batched else (None, None), launch, a_scale, b_scale)
        if d_scale is not None:
            set_out_scale(args, view(d_scale, "d_scale", launch))
        if d_amax is not None:
            set_row_sizes(args, view(d_amax, "d_amax", launch), batch if batched else None)
    _args.run("gemm", args, a, launch)
    changed = [x for x in (out, *(scales or ())[3:]) if x is not None]
    if changed:
        written(changed)
    if key is not None:
        options = (alpha, beta, activation, precision, out_dtype, variant, batch_invariant, scaling)
        known.keep(key, args, alive, options, a, b, c, made, bias, scales=scales or ())
    return made
