"""The dense call: anew for arrays of any maker, again for torch tensors like those of a call before.

A call of torch tensors has a key: all that its C struct is made of but addresses and stream. The struct of a call that
went well is kept under its key, and a call of the same key sets just those. What has no known key goes the general way,
`gemm_anew`: so does all that must be refused, since only that way has the sentences.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from libgemm import ops
from libgemm._framework import keep_until, raw_stream, stream_handle
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import matrix, row_major
from libgemm._tensor import view
from libgemm.ops import need_c, new_args, output, same_type, set_bias, set_matrices

MOST = 1024  # keys; at one more all are dropped
FIELDS = ("a", "b", "c", "d", "bias", "workspace", "stream")
A, B, C, D, BIAS, WORKSPACE, STREAM = (ffi.offsetof("libgemm_gemm_args", name) // 8 for name in FIELDS)
run = lib.libgemm_gemm


@dataclass
class Kept:
    """A filled struct. One call at a time uses it: the GIL is released while that runs."""

    args: Any
    words: memoryview  # of the struct, as 64-bit numbers: the quickest way to set a pointer
    alive: list
    device: int
    current_stream: Callable[[int], int]
    new_workspace: Callable | None  # None where the call needs none
    new_out: Callable


known: dict[tuple, list[Kept]] = {}
Tensor: Any = ()  # torch's, once it is imported and a call was made; nothing is an instance of ()


def gemm(
    a, b, c=None, *, alpha=1.0, beta=0.0, bias=None, activation=None, precision=None,
    out=None, out_dtype=None, variant=None, batch_invariant=False, stream=None,
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
    batch_invariant  True: a row's bits depend on neither M nor the other rows (some problems then run slower).
    stream   handle or stream object; None is the current stream of the inputs' framework.
    Returns out, or a new array of the inputs' framework. Raises Error.
    """
    key = None
    if (
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and a.is_cuda
        and b.is_cuda
        and (out is None or (isinstance(out, Tensor) and out.is_cuda))
        and (bias is None or (isinstance(bias, Tensor) and bias.is_cuda))
        and (c is None or (isinstance(c, Tensor) and c.is_cuda))
    ):
        at_a, at_b = a.data_ptr(), b.data_ptr()
        at_d = 0 if out is None else out.data_ptr()
        at_c = at_d if c is None else c.data_ptr()
        key = (
            a.dtype, a.shape, a.stride(), b.dtype, b.shape, b.stride(), a.get_device(),
            (at_a | at_b | at_c | at_d) & 15, alpha, beta, activation, precision, out_dtype, variant,
            out is None or (out.dtype, out.shape, out.stride()),
            bias is None or (bias.dtype, bias.shape, bias.stride()),
            c is None or (c.dtype, c.shape, c.stride()), bool(batch_invariant),
        )  # fmt: skip
        try:
            free = known[key]
            kept = free.pop()
        except (KeyError, IndexError, TypeError):  # not known, all in use by other threads, or not hashable
            kept = None
    if key is None or kept is None:
        return gemm_anew(
            a, b, c, alpha, beta, bias, activation, precision, out, out_dtype, variant, batch_invariant, stream, key
        )
    if out is None:
        out = kept.new_out()
        at_d = out.data_ptr()
    words = kept.words
    words[A] = at_a
    words[B] = at_b
    words[D] = at_d
    if beta != 0:
        words[C] = at_c
    if bias is not None:
        words[BIAS] = bias.data_ptr()
    handle = kept.current_stream(kept.device) if stream is None else stream_handle(stream, a)
    words[STREAM] = handle & 0xFFFFFFFFFFFFFFFF
    workspace = None
    if kept.new_workspace:
        workspace = kept.new_workspace()
        words[WORKSPACE] = workspace.data_ptr()
    status = run(kept.args)
    free.append(kept)
    if status:
        check(status)
    if workspace is not None and stream is not None:
        keep_until(workspace, handle)
    return out


def gemm_anew(
    a, b, c, alpha, beta, bias, activation, precision, out, out_dtype, variant, batch_invariant, stream, key
):  # fmt: skip
    """The general way. What went well is kept under `key`, if there is one."""
    global Tensor
    Tensor = getattr(sys.modules.get("torch"), "Tensor", ())
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
    args.trans_a, args.trans_b, args.batch_invariant = left.trans, right.trans, bool(batch_invariant)
    set_matrices(args, a=left, b=right, c=c_matrix, d=d)
    if bias is not None:
        set_bias(args, view(bias, "bias", handle), d_type, right.cols, batch if batched else None)
    ops.run("gemm", args, a, handle)
    if key is not None:
        keep(key, args, alive, a, out)
    return out


def keep(key: tuple, args, alive: list, a, out) -> None:
    """Keep a filled struct under its key, unless a part of that may change in place or equals what it is not."""
    low_bits, alpha, beta, *words = key[7:14]
    numbers = {type(alpha), type(beta)} <= {int, float} and alpha != 0  # a key would not tell 0.0 from -0.0
    torch = sys.modules["torch"]
    if low_bits or not numbers or not all(isinstance(word, (str, torch.dtype, type(None))) for word in words):
        return
    if len(known) >= MOST:
        known.clear()
    new = partial(torch.empty, device=a.device)
    workspace = partial(new, args.workspace_bytes, dtype=torch.uint8) if args.workspace_bytes else None
    words = memoryview(ffi.buffer(args)).cast("Q")
    new_out = partial(new, out.shape, dtype=out.dtype)
    kept = Kept(args, words, alive, a.get_device(), raw_stream(torch), workspace, new_out)
    known.setdefault(key, []).append(kept)
