"""Run one case against the library and list what is wrong with it (nothing: it passed). Not a collection of cases."""

import torch

from .cases import Case
from .problem import Problem
from .reference import DTYPES, describe, excess, expected


def keywords(case: Case) -> dict:
    return {
        "alpha": case.alpha,
        "beta": case.beta,
        "activation": case.activation,
        "precision": None if case.precision == "exact" else case.precision,
        "variant": case.variant,
    }


def call(lib, p: Problem) -> list[torch.Tensor]:
    """Make the call a case describes; the matrices of D, in the order of `p.d`."""
    case = p.case
    words = keywords(case)
    if case.entry == "grouped_gemm_tables":
        dtypes = {"dtype": DTYPES[case.a_type], "out_dtype": DTYPES[case.d_type]}
        turned = {"trans_a": case.trans_a, "trans_b": case.trans_b, "aligned": case.aligned}
        lib.grouped_gemm_tables(**p.tables, **dtypes, **turned, expected=case.expected or None, **words)
        return p.d
    listed = case.entry == "grouped_gemm"
    if p.bias is not None:
        words["bias"] = p.bias if listed else p.bias[0]
    if p.scales:
        words |= {"scaling": case.scaling, **p.scales}
    if p.d_scale is not None:
        words["d_scale"] = p.d_scale
    if p.d_amax is not None:
        words["d_amax"] = p.d_amax
    if p.c is not None and case.c != "out":
        words["c"] = p.c if listed else p.c[0]
    if case.fresh:
        words["out_dtype"] = case.d_type if case.seed % 2 else DTYPES[case.d_type]
    else:
        words["out"] = p.d if listed else p.d[0]
    if listed:
        return list(lib.grouped_gemm(p.a, p.b, **words))
    if case.entry == "gemm":
        return [lib.gemm(p.a[0], p.b[0], **words)]
    if case.entry == "grouped_gemm_jagged":
        return [lib.grouped_gemm_jagged(p.a[0], p.b[0], p.ends, **words)]
    return [lib.grouped_mm(p.a[0], p.b[0], p.ends, tail="zero" if case.zero else "leave", **words)]


def products(p: Problem, d: list[torch.Tensor]):
    """(name, D, A, B, C, bias, number of a packed group) of each product of a call."""
    c = p.c_values if p.case.beta != 0 else None
    if p.case.op == "gemm" or p.one_b:
        yield "D", d[0], p.a[0], p.b[0], c and c[0], p.bias and p.bias[0], None
        return
    if p.case.pointers:
        for i in range(len(d)):
            if d[i].numel():
                yield f"group {i}", d[i], p.a[i], p.b[i], c and c[i], p.bias and p.bias[i], None
        return
    yield from packed_products(p, d[0], c and c[0])


def packed_products(p: Problem, d: torch.Tensor, c: torch.Tensor | None):
    """Of each packed group that has some of D: one that is empty in K does."""
    ragged = p.case.ragged
    for i in range(p.case.groups):
        if ragged in "mn" and p.host_ends[i] >= p.host_ends[i + 1]:
            continue
        rows, cols, _ = p.place(i)
        a, b = p.group_inputs(i)
        own = (i,) if p.case.has_groups("d") else ()
        got, old = (x if x is None else x[(*own, rows, cols)] for x in (d, c))
        bias = p.bias and (p.bias[0][i] if p.bias[0].dim() == 2 else p.bias[0])[cols]
        yield f"group {i}", got, a, b, old, bias, i


def mismatches(p: Problem, d: list[torch.Tensor]) -> list[str]:
    """Compare every product with its reference; a message for the worst. One question to the device if all pass."""
    case = p.case
    scalars = {name: getattr(case, name) for name in ("alpha", "beta", "activation", "precision", "d_type", "a_type")}

    def compare(product) -> tuple[torch.Tensor, torch.Tensor]:
        _, got, a, b, c, bias, group = product
        scales = {"scale": p.scale(group), "factors": p.block_factors(group), "d_scale": p.d_scale}
        want, bound = expected(a, b, c, bias, **scalars, **scales)
        return want, excess(got, want, bound)

    found = list(products(p, d))
    worst = [ratio.amax() for _, ratio in map(compare, found) if ratio.numel()]
    if not worst or float(torch.stack(worst).amax()) <= 1:
        return []
    found = [product for product in found if product[1].numel()]
    index = int(torch.stack(worst).argmax())
    want, ratio = compare(found[index])
    return [f"mismatch in {found[index][0]} {tuple(want.shape)}: {describe(found[index][1], want, ratio)}"]


NEARLY_INF = 1e38


def amax_problems(p: Problem) -> list[str]:
    """Largest magnitudes of rows as far from those of the reference as their elements may be. Of Inf and NaN there are
    none; a row with a number that may or may not be Inf in float32 is let pass."""
    case = p.case
    if p.d_amax is None or not p.d_amax.numel():
        return []
    scalars = {name: getattr(case, name) for name in ("alpha", "beta", "activation", "precision", "a_type")}
    bias = p.bias and p.bias[0]
    d, bound = expected(p.a[0], p.b[0], None, bias, **scalars, scale=p.scale(), factors=p.block_factors())
    counts = d.isfinite() & bound.isfinite()
    sizes, errors = (torch.nn.functional.pad(torch.where(counts, x, 0.0), (0, 1)) for x in (d.abs(), bound))
    want = torch.maximum(sizes.amax(-1), p.amax_before.double())
    allowed = errors.amax(-1)  # what was appended is the 0 of a row without columns
    got = p.d_amax.double()
    wrong = ((got - want).abs() > allowed) | got.isnan()
    wrong &= (sizes < NEARLY_INF).all(-1)
    if not bool(wrong.any()):
        return []
    place = tuple(wrong.nonzero()[0].tolist())
    return [f"mismatch in d_amax at {place}: {float(got[place])} for {float(want[place])}"]


def tail_problems(p: Problem, d: list[torch.Tensor]) -> list[str]:
    """Rows or columns past the last end are 0 where that was asked, else keep their bits (NaN, or what C = D held)."""
    case = p.case
    if not case.tail_of_d or (case.fresh and not case.zero):
        return []
    place = (slice(None),) * "mn".index(case.ragged) + (slice(p.host_ends[-1], None),)
    what = f"{case.ragged} past the last end {p.host_ends[-1]} of D"
    if case.zero:
        return [] if bool((d[0][place] == 0).all()) else [f"mismatch: {what} is not 0"]
    kept = d[0][place] == p.c_values[0][place] if case.c in ("in_place", "out") else d[0][place].isnan()
    return [] if bool(kept.all()) else [f"stray write: {what} was written"]


def shape_problems(p: Problem, d: list[torch.Tensor]) -> list[str]:
    if len(d) != len(p.d):
        return [f"{len(d)} results for {len(p.d)} outputs"]
    for i, (got, want) in enumerate(zip(d, p.d, strict=True)):
        if got.shape != want.shape or got.dtype != want.dtype:
            return [f"result {i} is {got.dtype} {tuple(got.shape)}, not {want.dtype} {tuple(want.shape)}"]
        if not p.case.fresh and want.numel() and got.data_ptr() != want.data_ptr():
            return [f"result {i} is not the out that was given"]
    return []


def run_problem(lib, p: Problem) -> list[str]:
    """What is wrong after one call on these operands."""
    d = call(lib, p)
    problems = shape_problems(p, d)
    if not problems:
        problems = mismatches(p, d) + amax_problems(p) + tail_problems(p, d)
    for arena in (*p.inputs, *p.outputs):
        problems += arena.problems()
    return problems


def run_case(lib, case: Case, device) -> list[str]:
    """What is wrong with one case, each sentence ending with the case that repeats it."""
    return [f"{problem} [{case!r}]" for problem in run_problem(lib, Problem(case, device))]
