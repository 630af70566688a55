"""What must give the same bits: every variant run after run, and a row of D whatever M is. Part of the GPU suite."""

import itertools

import torch

from .cases_groups import is_fast, many_tiles
from .checks import call
from .edge import MANY_ROWS, Context, chosen, variant_cases
from .guarded import INTS
from .problem import Problem
from .reference import DTYPES

RUNS = 20


def bits_of(ctx: Context, p: Problem, d_type: str) -> list:
    bits = INTS[DTYPES[d_type].itemsize]
    p.d_arena.flat.fill_(torch.nan)
    return [x.view(bits).clone() for x in call(ctx.lib, p)]


def once(ctx: Context):
    """Each variant on one problem: short enough for compute-sanitizer's slow tools, and less than `variants` does."""
    for v in chosen(ctx):
        print(f"now {v.name}", flush=True)  # for whom a tool's words between the lines are about
        yield ctx.run(next(variant_cases(v)))


def several_tiles(ctx: Context):
    """Each variant whose blocks take several tiles, on a problem that has them, with C and a bias where it takes them:
    for compute-sanitizer too, to which `once` shows one tile of each block."""
    for v in chosen(ctx):
        cases = [many_tiles(v)] if is_fast(v) else [c for c in variant_cases(v) if c.m == MANY_ROWS][-1:]
        for case in filter(None, cases):
            print(f"now {v.name}", flush=True)
            yield ctx.run(case)


def runs_of_variants(ctx: Context):
    """Twenty runs of each variant by name."""
    for v in chosen(ctx):
        case = next(variant_cases(v))
        p = Problem(case, ctx.device)
        first = bits_of(ctx, p, case.d_type)
        for _ in range(2 if ctx.stand_in else RUNS - 1):
            again = bits_of(ctx, p, case.d_type)
            if not all(torch.equal(x, y) for x, y in zip(first, again, strict=True)):
                yield [f"{v.name}: runs did not give the same bits"]
                break
        else:
            yield []


def rows_of_any_batch(ctx: Context):
    """With batch_invariant, the first row at M = 1, 8, 32, 256 and 2048; alpha, beta, bias and layouts with it."""
    if ctx.stand_in:
        return
    for dtype, (n, k), turned, more in itertools.product(
        (torch.bfloat16, torch.float16), ((4096, 4096), (1280, 8192), (576, 7168)), (False, True), (False, True)
    ):
        new = {"device": ctx.device, "dtype": dtype}
        a = torch.randn(2048, k, **new)
        b = torch.randn(n, k, **new).t() if turned else torch.randn(k, n, **new)
        c, bias = torch.randn(2048, n, **new), torch.randn(n, **new)
        rows = []
        for m in (1, 8, 32, 256, 2048):
            extra = {"c": c[:m], "alpha": 0.75, "beta": -1.5, "bias": bias} if more else {}
            rows.append(ctx.lib.gemm(a[:m], b, batch_invariant=True, **extra)[0].view(torch.int16).clone())
        same = all(torch.equal(rows[0], row) for row in rows[1:])
        yield [] if same else [f"{dtype} N {n} K {k} B turned {turned} C {more}: a row's bits depend on M"]


def bytes_of_any_batch(ctx: Context):
    """The same of 8-bit operands, whose rows and reference rows add up differently: one of both serves every M, also
    where no row but the first begins on 16 bytes."""
    if ctx.stand_in:
        return
    for k, precision, batched in itertools.product((4096, 4097), ("exact", "fast"), (False, True)):
        lead = (2,) if batched else ()
        a, b = (torch.randn(*lead, rows, k, device=ctx.device).to(DTYPES["e4m3"]) for rows in (2048, 512))
        words = {"precision": precision, "out_dtype": torch.float32, "batch_invariant": True}
        rows = []
        for m in (1, 2, 8, 32, 256, 2048):
            made = ctx.lib.gemm(a[..., :m, :].contiguous(), b.mT, **words)
            rows.append(made[..., 0, :].view(torch.int32).clone())
        same = all(torch.equal(rows[0], row) for row in rows[1:])
        yield [] if same else [f"K {k} {precision} batched {batched}: a row's bits depend on M"]
