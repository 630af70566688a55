"""The dense call: anew for arrays of any maker, again for torch tensors like those of a call before.

A call of torch tensors has a key: all that its C struct is made of but addresses and stream. The struct of a call that
went well is kept under its key, and a call of the same key sets just those. What has no known key goes the general way,
`gemm_anew`: so does all that must be refused, since only that way has the sentences.
"""

import ctypes
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from libgemm import ops
from libgemm._framework import LaunchStream, raw_stream, version_mover, written
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import matrix, row_major
from libgemm._tensor import view
from libgemm.ops import Activation, Precision, need_c, new_args, output, same_type, set_bias, set_matrices

ONE, ZERO = 1.0, 0.0  # as defaults the very same objects each time, so that `is` finds them
DEFAULTS = (ONE, ZERO, None, None, None, None, False)  # alpha, beta, ... of a key that has None for them
MOST = 1024  # keys; at one more all are dropped
FIELDS = ("a", "b", "c", "d", "bias", "workspace", "stream")
A, B, C, D, BIAS, WORKSPACE, STREAM = (ffi.offsetof("libgemm_gemm_args", name) // 8 for name in FIELDS)
run = lib.libgemm_gemm
T = TypeVar("T", bound=Any)


class Kept(NamedTuple):
    """A filled struct. One call at a time uses it: the GIL is released while that runs. A tuple, since a call takes it
    apart at once, which is quicker than by names."""

    args: Any
    words: Any  # the struct as a ctypes array of 64-bit numbers: the quickest way to set a pointer
    may_be_negated: bool  # a bit that no key shows; bfloat16, which no complex type is made of, never has it
    new_workspace: Callable[[], Any] | None  # None where the call needs none
    new_out: Callable[[], Any]
    alive: list[Any]


known: dict[tuple[Any, ...], list[Kept]] = {}
# Of torch, once it is imported and a call was made: its tensors' types that hide nothing, and functions of it.
Tensor: Any = None
Parameter: Any = None
grad_mode: Callable[[], bool] = bool
current_stream: Callable[[int], int] = int
move_version: Callable[[Iterable[Any]], Any] = tuple


def gemm(
    a: T, b: Any, c: Any = None, *, alpha: float = ONE, beta: float = ZERO, bias: Any = None,
    activation: Activation | None = None, precision: Precision | None = None, out: T | None = None,
    out_dtype: Any = None, variant: str | None = None, batch_invariant: bool = False, stream: Any = None,
) -> T:  # fmt: skip
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
    key = kept = None
    if (
        ((kind := type(a)) is Tensor or kind is Parameter)
        and (((kind := type(b)) is Tensor or kind is Parameter) and b.is_cuda)
        and (out is None or (((kind := type(out)) is Tensor or kind is Parameter) and out.is_cuda))
        and (bias is None or (((kind := type(bias)) is Tensor or kind is Parameter) and bias.is_cuda))
        and (c is None or (((kind := type(c)) is Tensor or kind is Parameter) and c.is_cuda))
        and not (
            (
                a.requires_grad or b.requires_grad or (out is not None and out.requires_grad)
                or (bias is not None and bias.requires_grad) or (c is not None and c.requires_grad)
            )
            and grad_mode()
        )
    ):  # fmt: skip
        try:
            at_a, at_b, device = a.data_ptr(), b.data_ptr(), a.get_device()
            at_d = at_a if out is None else out.data_ptr()
            places = at_a | at_b | at_d
            if c is not None:
                at_c = c.data_ptr()
                places |= at_c
            options = (
                None
                if alpha is ONE and beta is ZERO and activation is None and precision is None and out_dtype is None
                and variant is None and batch_invariant is False
                else (alpha, beta, activation, precision, out_dtype, variant, batch_invariant)
            )  # fmt: skip
            key = (
                a.dtype, a.shape, a.is_contiguous() or a.stride(), b.dtype, b.shape, b.stride(), device,
                places & 15, options,
                out is None or out.dtype, out is None or out.shape, out is None or out.is_contiguous() or out.stride(),
                None if c is None and bias is None else (
                    c is None or (c.dtype, c.shape, c.stride()),
                    bias is None or (bias.dtype, bias.shape, bias.stride(), (at_bias := bias.data_ptr()) == 0),
                ),
            )  # fmt: skip
            free = known[key]
            kept = free.pop()
        except (KeyError, IndexError, TypeError):  # not known, all in use by other threads, or not hashable
            pass
        except RuntimeError:  # a tensor without memory or strides: the general way says so
            key = None
    if kept is not None and kept[2] and (
        a.is_neg() or b.is_neg() or (out is not None and out.is_neg())
        or (bias is not None and bias.is_neg()) or (c is not None and c.is_neg())
    ):  # fmt: skip
        free.append(kept)
        key = kept = None
    if kept is None:
        return gemm_anew(  # type: ignore[no-any-return]
            a, b, c, alpha, beta, bias, activation, precision, out, out_dtype, variant, batch_invariant, stream, key
        )
    args, words, _, new_workspace, new_out, _ = kept
    launch = None
    if stream is None:
        handle = current_stream(device)
    else:
        launch = LaunchStream(stream, a)
        launch.wait_for_torch(sys.modules["torch"], device)
        handle = launch.handle
    made = out
    if made is None:
        made = new_out() if launch is None else launch.new_out(new_out, a)
        at_d = made.data_ptr()
    words[A] = at_a
    words[B] = at_b
    words[D] = at_d
    if beta != 0:
        words[C] = at_d if c is None else at_c
    if bias is not None:
        words[BIAS] = at_bias
    words[STREAM] = handle
    if new_workspace:
        workspace = new_workspace() if launch is None else launch.new(new_workspace, a)
        words[WORKSPACE] = workspace.data_ptr()
    status = run(args)
    free.append(kept)
    if status:
        if status == lib.LIBGEMM_INVALID_ARGUMENT:  # a pointer: only the general way knows why
            return gemm_anew(  # type: ignore[no-any-return]
                a, b, c, alpha, beta, bias, activation, precision, out, out_dtype, variant, batch_invariant, stream,
                None,
            )  # fmt: skip
        check(status)
    if out is not None:
        move_version((out,))
    return made  # type: ignore[no-any-return]


def gemm_anew(
    a: Any, b: Any, c: Any, alpha: float, beta: float, bias: Any, activation: str | None, precision: str | None,
    out: Any, out_dtype: Any, variant: str | None, batch_invariant: bool, stream: Any, key: tuple[Any, ...] | None,
) -> Any:  # fmt: skip
    """The general way. What went well is kept under `key`, if there is one."""
    learn_torch()
    launch = LaunchStream(stream, a)
    a_view, b_view = view(a, "a", launch), view(b, "b", launch)
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
    made, d_view = output(out, out_dtype, shape, a, a_view.dtype, launch)
    c_view = None if beta == 0 else d_view if c is None else view(c, "c", launch)
    bias_view = None if bias is None else view(bias, "bias", launch)
    same_type(d_view.dtype, c=c_view, bias=bias_view)
    d = row_major(d_view, "out", shape)
    c_matrix = None if c_view is None else row_major(c_view, "c", shape)
    args, alive = new_args(
        "gemm", a_view.dtype, d_view.dtype, alpha=alpha, beta=beta, activation=activation, precision=precision,
        variant=variant, stream=launch.handle,
    )  # fmt: skip
    args.m, args.n, args.k, args.batch = left.rows, right.cols, left.cols, batch
    args.trans_a, args.trans_b, args.batch_invariant = left.trans, right.trans, bool(batch_invariant)
    set_matrices(args, a=left, b=right, c=c_matrix, d=d)
    if bias_view is not None:
        set_bias(args, bias_view, right.cols, batch if batched else None)
    ops.run("gemm", args, a, launch)
    if out is not None:
        written([out])
    if key is not None:
        keep(key, args, alive, a, made)
    return made


def learn_torch() -> None:
    """What the quick way asks of torch, once somebody has imported it."""
    global Tensor, Parameter, grad_mode, current_stream, move_version
    torch = sys.modules.get("torch")
    if torch is not None and Tensor is None:
        move_version, grad_mode, current_stream = version_mover(torch), torch.is_grad_enabled, raw_stream(torch)
        Tensor, Parameter = torch.Tensor, torch.nn.Parameter


def keep(key: tuple[Any, ...], args: Any, alive: list[Any], a: Any, out: Any) -> None:
    """Keep a filled struct under its key, unless a part of that may change in place or equals what it is not."""
    low_bits, options = key[7:9]
    alpha, beta, *named, batch_invariant = options or DEFAULTS
    numbers = {type(alpha), type(beta)} <= {int, float} and alpha != 0  # a key would not tell 0.0 from -0.0
    torch = sys.modules["torch"]
    hashed = isinstance(batch_invariant, int) and all(isinstance(x, (str, torch.dtype, type(None))) for x in named)
    if low_bits or not numbers or not hashed:
        return
    if len(known) >= MOST:
        known.clear()
    new = partial(torch.empty, device=a.device)
    workspace = partial(new, args.workspace_bytes, dtype=torch.uint8) if args.workspace_bytes else None
    words = (ctypes.c_uint64 * (ffi.sizeof(args[0]) // 8)).from_buffer(ffi.buffer(args))
    new_out = partial(new, out.shape, dtype=out.dtype)
    may_be_negated = {a.dtype, out.dtype} != {torch.bfloat16}
    kept = Kept(args, words, may_be_negated, workspace, new_out, alive)
    known.setdefault(key, []).append(kept)
