"""Named checks of 8-bit operands and their scales: random products, scales that are no numbers, what sums lose, torch's
function of the same name. Part of the GPU suite.
"""

import itertools
from dataclasses import replace

import torch

from .cases import BLOCK_SCALINGS, SCALINGS, Case, aligned_pads, random_case, whole
from .checks import run_problem
from .edge import Context
from .problem import Problem
from .reference import DTYPES

E4M3 = DTYPES["e4m3"]


def scaled_products(ctx: Context):
    """Random products by seed: types of D, sums, recipes, layouts, alignments, batches, epilogues. And of each recipe
    of blocks one with several of them, the last one short, in each layout."""
    named = itertools.product(enumerate(BLOCK_SCALINGS), range(4))
    for (seed, scaling), layout in named if ctx.part == 1 else ():
        words = {"a_type": "e4m3", "d_type": "f32", "trans_a": layout > 1, "trans_b": layout % 2 == 1}
        for e5m2 in ("", "a", "b"):
            yield ctx.run(Case(seed=3 * seed + layout, m=160, n=144, k=304, scaling=scaling, e5m2=e5m2, **words))
    for seed in ctx.seeds(60 if ctx.stand_in else 3000):
        case = random_case(seed, 150 if ctx.stand_in else 2000, "e4m3")
        yield ctx.run(case)
        # Mostly what fast kernels take: K is contiguous, and every stored row whole pieces of 16 bytes.
        plain = {"trans_a": False, "trans_b": True, "leads": (0, 0, 0, 0), "batch": -1, "shared": ""}
        case = replace(case, **plain, n=whole(case.n), pads=(0, 0, 0, 0))
        yield ctx.run(case)
        yield ctx.run(replace(case, pads=aligned_pads(case)))


def long_block_scales(ctx: Context):
    """Scales of blocks for a K of more blocks than a kernel brings at once, in rows and columns that it gathers or
    copies whole: as a seed stores them, from any address on. Small tiles and large ones, and groups that begin
    anywhere."""
    words = {"a_type": "e4m3", "trans_b": True, "scaling": BLOCK_SCALINGS[0]}
    for seed in range(4 if ctx.stand_in else 30):
        k, lead = 16 * (260 + 67 * seed % 400), seed % 5
        for m, n in ((16, 144), (96, 208), (300, 528)):
            case = Case(seed=seed, m=m, n=n, k=k, leads=(0, 0, 0, lead), d_type=("bf16", "f32")[seed % 2], **words)
            yield ctx.run(replace(case, pads=aligned_pads(case)))
        for m in (21, 150):
            case = Case(seed=seed, entry="grouped_mm", groups=5, spread="uniform", m=m, n=208, k=k, **words)
            yield ctx.run(replace(case, pads=aligned_pads(case), leads=(0, 0, 0, lead)))


def scaled_groups(ctx: Context):
    """The same of packed groups: what the ends cut, tails, scales of each group or of all."""
    for seed in ctx.seeds(60 if ctx.stand_in else 500):
        case = random_case(seed, 150 if ctx.stand_in else 2000, "e4m3", "grouped_mm")
        yield ctx.run(case)
        # What fast kernels take: ends that cut the rows, K contiguous, D in bfloat16.
        plain = {"trans_a": False, "trans_b": True, "leads": (0, 0, 0, 0), "ragged": "m", "d_type": "bf16"}
        case = replace(case, **plain, activation=None, n=whole(case.n), pads=(0, 0, 0, 0))
        yield ctx.run(replace(case, pads=aligned_pads(case)))
        # And ends that cut K, which begin anywhere in a line, or none.
        whole_k = replace(case, scaling=case.scaling if case.scaling in ("tensor", "row") else "row")
        for ragged, d_type in (("k", "f32" if seed % 2 else "bf16"), ("none", "bf16")):
            other = replace(whole_k, ragged=ragged, d_type=d_type, zero=False)
            yield ctx.run(replace(other, pads=aligned_pads(other)))


def scales_of_no_size(ctx: Context):
    """Scales of 0, Inf and NaN are factors like others. Operands are positive: the sign of a sum near 0 is anyone's."""
    for seed, (scaling, layout, fast) in enumerate(itertools.product(SCALINGS[1:], range(4), (False, True))):
        if fast and scaling in BLOCK_SCALINGS:
            continue
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
            arena.views[0][(0,) * arena.views[0].dim()] = value
            arena.freeze()
            yield [f"{x} [{name} of {value} in {case!r}]" for x in run_problem(ctx.lib, p)]


def scales_of_d_of_no_size(ctx: Context):
    """The same of D's own, in every layout, from fast kernels and from those for any memory."""
    for layout, fast, lead in itertools.product(range(4), (False, True), (0, 1)):
        case = Case(
            a_type="e4m3", d_type="e4m3", precision="fast" if fast else "exact", d_scale=True, trans_a=layout > 1,
            trans_b=layout % 2 == 1, m=96, n=160, k=176, leads=(lead, 0, 0, lead),
        )  # fmt: skip
        for value in (0.0, torch.inf, -torch.inf, torch.nan, 1e-38, -3e38):
            p = Problem(case, ctx.device)
            for operand in (p.a_arena, p.b_arena):
                operand.flat.view(torch.int8).bitwise_and_(0x7F)
                operand.freeze()
            p.d_scale.fill_(value)
            p.scale_arenas[-1].freeze()
            yield [f"{x} [d_scale of {value} in {case!r}]" for x in run_problem(ctx.lib, p)]


def scales_of_empty_groups(ctx: Context):
    """Of a group without any K there is no product: its scales, which nobody may have written, are no factors."""
    case = Case(entry="grouped_mm", a_type="e4m3", ragged="k", groups=4, cuts=(128, 0, 131, 0), m=96, n=160, seed=1)
    drawn = itertools.product(SCALINGS[1:3], ("exact", "fast"), ("bf16", "f32"), range(4), (torch.inf, torch.nan))
    for scaling, precision, d_type, layout, value in drawn:
        words = {"scaling": scaling, "precision": precision, "d_type": d_type, "beta": 1.0, "c": "separate"}
        own = replace(case, trans_a=layout > 1, trans_b=layout % 2 == 1, **words)
        p = Problem(replace(own, pads=aligned_pads(own)), ctx.device)
        for arena in p.scale_arenas:
            arena.views[0][1::2] = value
            arena.freeze()
        yield [f"{x} [scales of {value} in {own!r}]" for x in run_problem(ctx.lib, p)]


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


def scaled_grouped_operator(ctx: Context):
    """libgemm.torch.scaled_grouped_mm beside torch's own, compiled, and with a row-major B."""
    if not ctx.cuda:
        return
    import libgemm.torch

    rows = torch.nn.functional.ScalingType.RowWise
    for (groups, m, n, k), fast, cut_k in itertools.product(((3, 192, 256, 512), (5, 320, 512, 256)), (0, 1), (0, 1)):
        each = k // groups // 16 * 16 if cut_k else 64
        ends = torch.arange(each, each * groups + 1, each, device=ctx.device, dtype=torch.int32)
        shapes = ((m, k), (n, k)) if cut_k else ((m, k), (groups, n, k))
        a, b = (torch.randn(shape, device=ctx.device).to(E4M3) for shape in shapes)
        of_a, of_b = ((m * groups,), (n * groups,)) if cut_k else ((m,), (groups, n))
        a_scale, b_scale = (torch.rand(shape, device=ctx.device) + 0.5 for shape in (of_a, of_b))
        given = {"scale_a": a_scale, "scale_recipe_a": rows, "scale_b": b_scale, "scale_recipe_b": rows, "offs": ends}
        want = torch.nn.functional.scaled_grouped_mm(a, b.mT, **given, use_fast_accum=bool(fast)).double()
        torch._dynamo.reset()
        call = torch.compile(libgemm.torch.scaled_grouped_mm, fullgraph=True, backend="aot_eager")
        for how, made in (
            ("as torch's", libgemm.torch.scaled_grouped_mm(a, b.mT, **given, use_fast_accum=bool(fast))),
            ("compiled", call(a, b.mT, **given, use_fast_accum=bool(fast))),
            ("row-major b", libgemm.torch.scaled_grouped_mm(a, b.mT.contiguous(), **given)),
        ):
            error = float((made.double() - want).norm() / want.norm())
            yield (
                []
                if error < 6e-3
                else [f"{how}, {groups} of {m} x {n} x {k}, fast {fast}, K {cut_k}: off by {error:.1e}"]
            )


def scaled_operator(ctx: Context):
    """libgemm.torch.scaled_mm beside torch's own where that takes the call, compiled, and in layouts of its own."""
    if not ctx.cuda:
        return
    import libgemm.torch

    one_by_128 = "BlockWise1x128"
    recipes = ("TensorWise",) * 2, ("RowWise",) * 2, (one_by_128, "BlockWise128x128"), (one_by_128,) * 2
    for (m, n, k), fast, names in itertools.product(((16, 512, 1024), (300, 256, 512)), (False, True), recipes):
        if fast and names[0] == one_by_128:
            continue
        a = torch.randn(m, k, device=ctx.device).to(E4M3)
        b = torch.randn(n, k, device=ctx.device).to(E4M3).t()
        # Of blocks transposed, as torch strides them: of B [N, K/128], or K/128 in fours and N/128.
        blocks = (k // 128, m), ((k // 128, n) if names[1] == one_by_128 else (n // 128, -(-k // 512) * 4))
        shapes = {"TensorWise": ((), ()), "RowWise": ((m, 1), (1, n))}.get(names[0], blocks)
        a_scale, b_scale = (torch.rand(shape, device=ctx.device) + 0.5 for shape in shapes)
        if shapes is blocks:
            a_scale, b_scale = a_scale.t(), b_scale.t()
        types = [getattr(torch.nn.functional.ScalingType, name) for name in names]
        given = {"scale_a": a_scale, "scale_recipe_a": types[0], "scale_b": b_scale, "scale_recipe_b": types[1]}
        want = torch.nn.functional.scaled_mm(a, b, **given, use_fast_accum=fast).double()
        torch._dynamo.reset()  # each recipe is another graph, and torch gives up after eight
        call = torch.compile(libgemm.torch.scaled_mm, fullgraph=True, backend="aot_eager")
        by_columns, by_rows = a.t().contiguous().t(), b.contiguous()
        for how, made in (
            ("as torch's", libgemm.torch.scaled_mm(a, b, **given, use_fast_accum=fast)),
            ("compiled", call(a, b, **given, use_fast_accum=fast)),
            ("row-major b", libgemm.torch.scaled_mm(a, by_rows, **given, use_fast_accum=fast)),
            ("both turned", libgemm.torch.scaled_mm(by_columns, by_rows, **given, use_fast_accum=fast)),
        ):
            error = float((made.double() - want).norm() / want.norm())
            yield [] if error < 6e-3 else [f"{how}, {m} x {n} x {k}, fast {fast}, {names}: off by {error:.1e}"]
