"""Named checks of streams that are still busy: whose memory a call gets, and what of torch and CuPy it waits for.

A kernel that spins keeps a stream busy, so that what is ordered wrongly meets memory too early or too late each time.
"""

import torch

from .edge import Context
from .reference import excess, expected

try:
    import cupy
except ImportError:  # its checks then count 0
    cupy = None

SPIN = 200_000_000  # cycles: about a tenth of a second
M, N, K = 64, 64, 32768  # few tiles and a long K: the call has a workspace


def operands(ctx: Context, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    new = {"dtype": dtype, "device": ctx.device}
    return torch.randn(M, K, **new), torch.randn(N, K, **new).T


def differs(d: torch.Tensor, a: torch.Tensor, b: torch.Tensor, what: str) -> list[str]:
    torch.cuda.synchronize(d.device)
    d_type = {torch.float16: "f16", torch.bfloat16: "bf16"}[d.dtype]
    worst = float(excess(d, *expected(a, b, d_type=d_type)).amax())
    return [] if worst <= 1 else [f"{what}: error / bound {worst:.3g}"]


def overwritten(bits: torch.Tensor, what: str) -> list[str]:
    torch.cuda.synchronize(bits.device)
    wrong = int((bits != 7).sum())
    return [f"{what}: {wrong} of {bits.numel()} bytes were written by a call before"] if wrong else []


def new_bytes(count: int, ctx: Context) -> torch.Tensor:
    """Memory as large as what was dropped just now, filled on the current stream."""
    return torch.empty(count, dtype=torch.uint8, device=ctx.device).fill_(7)


def stream_memory(ctx: Context):
    """torch: a call on a busy stream, whose output is dropped while others allocate, and the other way round."""
    a, b = operands(ctx, torch.bfloat16)
    side = torch.cuda.Stream(ctx.device)
    for turn in ("anew", "again", "again"):
        torch.cuda.synchronize(ctx.device)
        torch.cuda.empty_cache()
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
        out = ctx.lib.gemm(a, b, stream=side)
        count = out.numel() * out.element_size()
        del out
        yield overwritten(new_bytes(count, ctx), f"memory of an output that was dropped, {turn}")
        old = torch.empty(M, N, dtype=torch.bfloat16, device=ctx.device)
        torch.cuda._sleep(SPIN)
        old.fill_(3)  # still to come when the call gets its memory
        del old
        out = ctx.lib.gemm(a, b, stream=side)
        yield differs(out, a, b, f"an output where other numbers are still to be written, {turn}")
        given = torch.empty(M, N, dtype=torch.bfloat16, device=ctx.device)
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
        ctx.lib.gemm(a, b, out=given, stream=side)
        others = [new_bytes(size, ctx) for size in (1 << 12, 1 << 15, 1 << 18, 1 << 21) for _ in range(4)]
        yield overwritten(torch.cat(others), f"memory of a workspace, {turn}")
        yield differs(given, a, b, f"a product beside others' memory, {turn}")


def cupy_bytes(count: int):
    """The same from CuPy's memory of its current stream."""
    made = cupy.empty(count, dtype="uint8")
    made.data.memset_async(7, count, cupy.cuda.get_current_stream())
    return made


def stream_memory_cupy(ctx: Context):
    """CuPy: outputs and workspaces of calls on a busy stream go back to its pool while others allocate."""
    if cupy is None:
        return
    a, b = operands(ctx, torch.float16)
    left, right = cupy.from_dlpack(a), cupy.from_dlpack(b)
    with cupy.cuda.Device(torch.cuda.current_device()):
        own, side = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        spinning = torch.cuda.ExternalStream(side.ptr, device=ctx.device)
        torch.cuda.synchronize(ctx.device)
        with own:
            for turn in range(3):
                cupy.get_default_memory_pool().free_all_blocks()
                with torch.cuda.stream(spinning):
                    torch.cuda._sleep(SPIN)
                out = ctx.lib.gemm(left, right, stream=side)
                count = out.nbytes
                del out
                yield overwritten(torch.from_dlpack(cupy_bytes(count)), f"memory of a dropped CuPy output, {turn}")
                given = cupy.empty((M, N), dtype="float16")
                with torch.cuda.stream(spinning):
                    torch.cuda._sleep(SPIN)
                ctx.lib.gemm(left, right, out=given, stream=side)
                others = [cupy_bytes(size) for size in (1 << 12, 1 << 15, 1 << 18, 1 << 21) for _ in range(4)]
                yield overwritten(torch.cat([torch.from_dlpack(x) for x in others]), f"CuPy's workspace, {turn}")
                yield differs(torch.from_dlpack(given), a, b, f"a CuPy product beside others' memory, {turn}")


class Interface:
    """A tensor by __cuda_array_interface__ alone, with the stream that it is being written on."""

    def __init__(self, tensor: torch.Tensor, stream: torch.cuda.Stream):
        facts = {"shape": tuple(tensor.shape), "typestr": "<f2", "data": (tensor.data_ptr(), False), "version": 3}
        strides = tuple(step * tensor.element_size() for step in tensor.stride())
        self.__cuda_array_interface__ = {**facts, "strides": strides, "stream": stream.cuda_stream}


def late(target: torch.Tensor, source: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
    """`target`, which gets its numbers only after a while; until then they are 0."""
    target.zero_()
    torch.cuda.synchronize(target.device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SPIN)
        target.copy_(source)
    return target


def unfinished_inputs(ctx: Context):
    """Operands that are still being written: by torch with stream=, and behind an array interface."""
    a, b = operands(ctx, torch.float16)
    side, busy = torch.cuda.Stream(ctx.device), torch.cuda.Stream(ctx.device)
    x, y = torch.empty_like(a), torch.empty(N, K, dtype=b.dtype, device=ctx.device).T
    ends = torch.tensor([M // 2, M], dtype=torch.int32, device=ctx.device)
    for turn in range(2):
        with torch.cuda.stream(busy):
            late(x, a, busy)
            yield differs(ctx.lib.gemm(x, b, stream=side), a, b, f"a written on torch's stream, {turn}")
            late(y, b, busy)
            out = ctx.lib.grouped_mm(a, y.expand(2, K, N), ends, stream=side)
            yield differs(out, a, b, f"b of groups written on torch's stream, {turn}")
            late(x, a, busy)
            yield differs(ctx.lib.grouped_gemm([x], [b], stream=side)[0], a, b, f"a of a list, {turn}")
        out = torch.empty(M, N, dtype=a.dtype, device=ctx.device)
        ctx.lib.gemm(Interface(late(x, a, busy), busy), b, out=out)
        yield differs(out, a, b, f"a behind an array interface, {turn}")


def two_frameworks(ctx: Context):
    """One operand of CuPy and one of torch, each being written on its framework's current stream."""
    if cupy is None:
        return
    a, b = operands(ctx, torch.float16)
    x, y = torch.empty_like(a), torch.empty(N, K, dtype=b.dtype, device=ctx.device).T
    with cupy.cuda.Device(torch.cuda.current_device()):
        theirs, ours = cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream(ctx.device)
        left, right = cupy.from_dlpack(x), cupy.from_dlpack(y)
        written = torch.cuda.ExternalStream(theirs.ptr, device=ctx.device)
        with theirs, torch.cuda.stream(ours):
            for turn in range(2):
                late(x, a, written)
                y.copy_(b)
                torch.cuda.current_stream(ctx.device).synchronize()
                yield differs(ctx.lib.gemm(y.T, left.T), b.T, a.T, f"torch a, CuPy b still written, {turn}")
                x.copy_(a)
                late(y, b, ours)
                d = ctx.lib.gemm(left, y)
                yield differs(torch.from_dlpack(d), a, b, f"CuPy a, torch b still written, {turn}")
                late(y, b, ours)
                late(x, a, written)
                d = ctx.lib.gemm(left, y)
                yield differs(torch.from_dlpack(d), a, b, f"CuPy a and torch b still written, {turn}")
                late(y, b, written)
                x.copy_(a)
                torch.cuda.current_stream(ctx.device).synchronize()
                d = ctx.lib.gemm(x, right)
                yield differs(d, a, b, f"torch a, CuPy b still written, {turn}")
