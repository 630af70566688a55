"""Named checks of 8-bit operands and their scales: random products, scales that are no numbers, what sums lose, torch's
function of the same name. Part of the GPU suite.
"""

import itertools
from dataclasses import replace

import torch

from .cases import Case, aligned_pads, random_case, whole
from .checks import run_problem
from .edge import Context
from .problem import Problem
from .reference import DTYPES

E4M3 = DTYPES["e4m3"]


def scaled_products(ctx: Context):
    """Random products by seed: types of D, sums, recipes, layouts, alignments, batches, epilogues."""
    for seed in ctx.seeds(60 if ctx.stand_in else 3000):
        case = random_case(seed, 150 if ctx.stand_in else 2000, "e4m3")
        yield ctx.run(case)
        # Mostly what fast kernels take: K is contiguous, and every stored row whole pieces of 16 bytes.
        plain = {"trans_a": False, "trans_b": True, "leads": (0, 0, 0, 0), "batch": -1, "shared": ""}
        case = replace(case, **plain, n=whole(case.n), pads=(0, 0, 0, 0))
        yield ctx.run(case)
        yield ctx.run(replace(case, pads=aligned_pads(case)))


def scales_of_no_size(ctx: Context):
    """Scales of 0, Inf and NaN are factors like others. Operands are positive: the sign of a sum near 0 is anyone's."""
    for seed, (scaling, layout, fast) in enumerate(itertools.product(("tensor", "row"), range(4), (False, True))):
        case = Case(
            seed=2 * seed, a_type="e4m3", d_type="bf16", precision="fast" if fast else "exact", scaling=scaling,
            trans_a=layout > 1, trans_b=layout % 2 == 1, m=96, n=160, k=176, beta=1.0, c="separate",
        )  # fmt: skip
        for value, name in itertools.product((0.0, torch.inf, -torch.inf, torch.nan), ("a_scale", "b_scale")):
            p = Problem(case, ctx.device)
            for operand in (p.a_arena, p.b_arena):
                operand.flat.view(torch.int8).bitwise_and_(0x7F)
                operand.freeze()
            arena = p.scale_arenas[name == "b_scale"]
            arena.views[0].view(-1)[0] = value
            arena.freeze()
            yield [f"{x} [{name} of {value} in {case!r}]" for x in run_problem(ctx.lib, p)]


def sums_of_bytes(ctx: Context):
    """1 - 2 <d, x> / (<d, d> + <x, x>), by which others of the field tell 8-bit products apart: below 1e-3, and of fast
    sums of one sign, which only grow, below what libgemm.h says."""
    for k, fast, positive in itertools.product((128, 4096, 32768), (False, True), (False, True)):
        if ctx.stand_in and k > 4096:
            continue
        most = {4096: 3e-3, 32768: 1e-1}.get(k, 1e-3) if fast and positive else 1e-3
        left, right = (torch.randn(shape, device=ctx.device) for shape in ((192, k), (256, k)))
        a, b = (x.abs().to(E4M3) if positive else x.to(E4M3) for x in (left, right))  # sums of one sign only grow
        made = ctx.lib.gemm(a, b.t(), precision="fast" if fast else None, out_dtype=torch.float32).double()
        exact = a.double() @ b.double().t()
        apart = float(1 - 2 * (made * exact).sum() / ((made * made).sum() + (exact * exact).sum()))
        yield [] if apart < most else [f"K {k}, fast {fast}, positive {positive}: {apart:.1e} apart"]


def scaled_operator(ctx: Context):
    """libgemm.torch.scaled_mm beside torch's own where that takes the call, compiled, and in layouts of its own."""
    if not ctx.cuda:
        return
    import libgemm.torch

    types = torch.nn.functional.ScalingType
    for (m, n, k), fast, rows in itertools.product(((16, 512, 1024), (300, 256, 512)), (False, True), (False, True)):
        a = torch.randn(m, k, device=ctx.device).to(E4M3)
        b = torch.randn(n, k, device=ctx.device).to(E4M3).t()
        shapes = ((m, 1), (1, n)) if rows else ((), ())
        a_scale, b_scale = (torch.rand(shape, device=ctx.device) + 0.5 for shape in shapes)
        recipe = types.RowWise if rows else types.TensorWise
        given = {"scale_a": a_scale, "scale_recipe_a": recipe, "scale_b": b_scale, "scale_recipe_b": recipe}
        want = torch.nn.functional.scaled_mm(a, b, **given, use_fast_accum=fast).double()
        call = torch.compile(libgemm.torch.scaled_mm, fullgraph=True, backend="aot_eager")
        by_columns, by_rows = a.t().contiguous().t(), b.contiguous()
        for how, made in (
            ("as torch's", libgemm.torch.scaled_mm(a, b, **given, use_fast_accum=fast)),
            ("compiled", call(a, b, **given, use_fast_accum=fast)),
            ("row-major b", libgemm.torch.scaled_mm(a, by_rows, **given, use_fast_accum=fast)),
            ("both turned", libgemm.torch.scaled_mm(by_columns, by_rows, **given, use_fast_accum=fast)),
        ):
            error = float((made.double() - want).norm() / want.norm())
            yield [] if error < 6e-3 else [f"{how}, {m} x {n} x {k}, fast {fast}, rows {rows}: off by {error:.1e}"]
