"""Calls that must be refused with a sentence, and the good call that must work after each. No random cases."""

import torch

from .cases import Case
from .edge import Context


def maker(device):
    def new(*shape, dtype=torch.bfloat16):
        return torch.ones(shape, dtype=dtype, device=device)

    return new


def bad_inputs(gemm, new):
    """(what is wrong, call) of dense calls whose operands or words break the contract."""
    a, b, f = new(32, 16), new(16, 24), new(32, 16, dtype=torch.float32)
    yield "a is no tensor", lambda: gemm([[1.0]], b)
    yield "a is an int", lambda: gemm(4096, b)
    yield "a is None", lambda: gemm(None, b)
    yield "a is float64", lambda: gemm(a.double(), b.double())
    yield "a is int8", lambda: gemm(a.to(torch.int8), b.to(torch.int8))
    yield "a and b differ in type", lambda: gemm(a, b.half())
    yield "a has one dimension", lambda: gemm(a[0], b)
    yield "a has four dimensions", lambda: gemm(a[None, None], b)
    yield "K differs", lambda: gemm(a, b[:8])
    yield "batches differ", lambda: gemm(new(2, 32, 16), new(3, 16, 24))
    yield "no unit stride in a", lambda: gemm(new(64, 32)[::2, ::2], b)
    yield "rows of a overlap", lambda: gemm(new(256).as_strided((32, 16), (2, 1)), b)
    yield "float32 without a precision", lambda: gemm(f, b.float())
    yield "unknown precision", lambda: gemm(f, b.float(), precision="fp8")
    yield "tf32 of 16-bit operands", lambda: gemm(a, b, precision="tf32")
    yield "unknown activation", lambda: gemm(a, b, activation="softmax")
    yield "unknown variant", lambda: gemm(a, b, variant="no_such_variant")
    yield "f16 out of bf16 operands", lambda: gemm(a, b, out_dtype="f16")
    yield "unknown out type", lambda: gemm(a, b, out_dtype=torch.int32)


def bad_outputs(gemm, new):
    """The same for C, bias and out."""
    a, b, out = new(32, 16), new(16, 24), new(32, 24)
    yield "beta without C", lambda: gemm(a, b, beta=1.0)
    yield "C of another type", lambda: gemm(a, b, new(32, 24, dtype=torch.float32), beta=1.0)
    yield "C of another shape", lambda: gemm(a, b, new(32, 25), beta=1.0)
    yield "bias of another length", lambda: gemm(a, b, bias=new(23))
    yield "bias of another type", lambda: gemm(a, b, bias=new(24, dtype=torch.float32))
    yield "out of another shape", lambda: gemm(a, b, out=new(32, 25))
    yield "out of another type", lambda: gemm(a, b, out=new(32, 24, dtype=torch.float16))
    yield "out with transposed rows", lambda: gemm(a, b, out=new(24, 32).mT)
    yield "out with rows on one another", lambda: gemm(a, b, out=out[:1].expand(32, 24))


def bad_groups(lib, new):
    """The same for grouped calls."""
    a, b, g, grouped = new(32, 16), new(16, 24), new(3, 16, 24), lib.grouped_mm
    ends = torch.tensor([8, 16, 32], device=a.device)
    yield "ends of floats", lambda: grouped(a, g, ends.float())
    yield "ends of int16", lambda: grouped(a, g, ends.to(torch.int16))
    yield "ends with two dimensions", lambda: grouped(a, g, ends[None])
    yield "too few ends", lambda: grouped(a, g, ends[:2])
    yield "as many offsets as ends", lambda: lib.grouped_gemm_jagged(a, g, ends)
    yield "no ends of rows", lambda: grouped(a, g)
    yield "no ends of K", lambda: grouped(a, b)
    yield "ends of a batch", lambda: grouped(new(3, 32, 16), g, ends)
    yield "batches of different lengths", lambda: grouped(new(2, 32, 16), g)
    yield "too few ends of columns", lambda: grouped(new(3, 32, 16), b, ends[:2])
    yield "out of rows where K is cut", lambda: grouped(a, b, ends, out=new(32, 24))
    yield "out of a batch where columns are cut", lambda: grouped(new(3, 32, 16), b, ends, out=new(3, 32, 24))
    yield "unknown tail", lambda: grouped(a, g, ends, tail="clear")
    yield "four dimensions of a group", lambda: grouped(a, g[None], ends)
    yield "lists of different lengths", lambda: lib.grouped_gemm([a, a], [b])
    yield "K differs in one group", lambda: lib.grouped_gemm([a, a], [b, b[:8]])


def bad_cuda_calls(lib, device):
    """Those that need memory of another kind, or a second GPU."""
    a, b = torch.ones(32, 16, device=device).bfloat16(), torch.ones(16, 24, device=device).bfloat16()
    ends = torch.tensor([16, 32], dtype=torch.int32, device=device)
    table = torch.tensor([16], dtype=torch.int32, device=device)
    names = ("a", "b", "d", "m", "n", "k", "lda", "ldb", "ldd")
    yield "a in host memory", lambda: lib.gemm(a.cpu(), b)
    yield "all in host memory", lambda: lib.gemm(a.cpu(), b.cpu())
    yield "out in host memory", lambda: lib.gemm(a, b, out=torch.ones(32, 24).bfloat16())
    yield "bias in host memory", lambda: lib.gemm(a, b, bias=torch.ones(24).bfloat16())
    yield "ends in host memory", lambda: lib.grouped_mm(a, b.expand(2, 16, 24).contiguous(), ends.cpu())
    yield "one group in host memory", lambda: lib.grouped_gemm([a, a.cpu()], [b, b])
    yield "tables of int32", lambda: lib.grouped_gemm_tables(**dict.fromkeys(names, table), dtype="bf16")
    other = [v for v in lib.variants() if v.op == "grouped_mm"][:1]
    if other:
        yield "variant of another operation", lambda: lib.gemm(a, b, variant=other[0].name)
    guarded = [v for v in lib.variants() if v.op == "gemm" and v.align16 and v.a_type == v.d_type == "bf16"]
    guarded = [v.name for v in guarded if not v.trans_a and not v.trans_b]
    if guarded:
        yield "variant whose guard fails", lambda: lib.gemm(a[:, 1:], b[1:], variant=guarded[0])
    if torch.cuda.device_count() > 1:
        there = torch.device("cuda", (device.index or 0) + 1)
        yield "b on another GPU", lambda: lib.gemm(a, b.to(there))
        yield "out on another GPU", lambda: lib.gemm(a, b, out=torch.ones(32, 24, device=there).bfloat16())
        yield "ends on another GPU", lambda: lib.grouped_mm(a, b.expand(2, 16, 24).contiguous(), ends.to(there))


def refused(lib, what: str, attempt) -> list[str]:
    try:
        attempt()
    except (lib.Error, TypeError) as error:
        if len(str(error)) < 5:
            return [f"{what}: refused without a sentence: {error!r}"]
        if isinstance(error, lib.Error) and not (isinstance(error.status, int) and error.name.startswith("LIBGEMM_")):
            return [f"{what}: status {error.status!r} and name {error.name!r} say nothing"]
        return []
    except Exception as error:
        return [f"{what}: raised {type(error).__name__} ({error}), not the library's Error"]
    return [f"{what}: accepted"]


def errors(ctx: Context):
    """Each bad call is refused, and the next good one is right."""
    new = maker(ctx.device)
    calls = [*bad_inputs(ctx.lib.gemm, new), *bad_outputs(ctx.lib.gemm, new), *bad_groups(ctx.lib, new)]
    if ctx.cuda and not ctx.stand_in:
        calls += bad_cuda_calls(ctx.lib, ctx.device)
    for index, (what, attempt) in enumerate(calls):
        problems = refused(ctx.lib, what, attempt)
        yield problems + ctx.run(Case(seed=index, m=32, n=24, k=16))
