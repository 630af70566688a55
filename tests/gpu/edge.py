"""Named checks that are not random: the seeds' problems, every variant, special values, lying tables, repeatability.

A check takes a `Context` and yields, for each thing it tried, the list of its problems (empty: passed).
"""

import itertools
import random
from dataclasses import dataclass, replace

import torch

from kernels.table.families import DENSE_SM90

from .cases import (
    ACTIVATIONS,
    BLOCK_SCALINGS,
    ENTRIES,
    RAGGED,
    SCALINGS,
    TYPES,
    Case,
    aligned_pads,
    e5m2_of,
    step_of,
    types_of,
    whole,
)
from .cases_groups import group_cases, is_fast
from .checks import call, run_case, run_problem
from .guarded import INTS
from .problem import Problem
from .reference import DTYPES

# Families of dense kernels whose blocks take many tiles, but for those that split K and refuse so many.
MANY_ROWS = 2056  # of problems with more tiles than a GPU has multiprocessors
PERSISTENT = {name for name, family in DENSE_SM90.items() if family.store == "tma" and not family.split}


@dataclass
class Context:
    lib: object
    device: torch.device
    stand_in: bool = False  # no GPU: sizes are kept small
    part: int = 1  # of so many `parts`, in which checks of every variant, and of what is drawn, can be done
    parts: int = 1
    seed: int = 0  # of what is drawn

    def seeds(self, count: int) -> range:
        """This part's of so many."""
        return range(self.seed, self.seed + count)[self.part - 1 :: self.parts]

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def target(self) -> int:
        """Compute capability * 10 of the GPU; 0 where there is none, which is the stand-in's."""
        major, minor = torch.cuda.get_device_capability(self.device) if self.cuda else (0, 0)
        return major * 10 + minor

    def run(self, case: Case) -> list[str]:
        return run_case(self.lib, case, self.device)


def seeds(ctx: Context):
    """The three problems this library grew from."""
    cubes = Case(a_type="f16", d_type="f16", groups=4, m=1024, n=1024, k=1024, spread="halves", vary="mnk")
    for entry in ("grouped_gemm", "grouped_gemm_tables"):
        yield ctx.run(replace(cubes, entry=entry))
    for total in (1024,) if ctx.stand_in else (1024, 2048, 4096, 8192, 16384):
        m = total // 2
        case = Case(a_type="f16", d_type="f16", m=m, k=m // 2, n=total - m - m // 2, alpha=2.0, beta=2.0)
        for c in ("separate", "in_place"):
            yield ctx.run(replace(case, c=c))
    jagged = Case(entry="grouped_gemm_jagged", groups=4, spread="steps", m=256, k=256, n=128)
    for shared, wide in itertools.product(("", "b"), (False, True)):
        yield ctx.run(replace(jagged, shared=shared, wide=wide))


def chosen_of(ctx: Context, *ops: str) -> list:
    """This part's variants of these operations for the present GPU."""
    found = [v for v in ctx.lib.variants() if v.target == ctx.target and v.op in ops]
    return found[ctx.part - 1 :: ctx.parts]


def chosen(ctx: Context) -> list:
    """Those of products; edge_moe.py has those of layers of experts."""
    return chosen_of(ctx, *ENTRIES.values())


def scalings_of(v) -> tuple:
    """What a variant's operands may be scaled by."""
    if v.a_type != "e4m3":
        return ("",)
    if "_blocks" in v.name:
        return BLOCK_SCALINGS[:1]
    return SCALINGS if not is_fast(v) and not v.single and v.precision == "exact" else SCALINGS[:3]


def stream_cases(v, case: Case):
    """Few tiles and a long K, which rows demand whose blocks share all tiles evenly: one step in K that is not whole,
    rows and columns that no tile fills, and more tiles than one cluster has on either side."""
    epilogue = {"alpha": -0.5, "beta": 2.0, "c": "in_place", "bias": "each", "activation": "gelu"}
    for down, along, k, more in (
        (4, 4, 8200, {}),
        (3, 6, 16392, epilogue),
        (7, 2, 12296, {"beta": 1.0, "c": "separate"}),
    ):
        sizes = {"m": down * v.block_m + 8, "n": along * v.block_n + 8, "k": k}
        yield replace(case, **sizes, **more, pads=aligned_pads(replace(case, **sizes), (8, 0, 8, 16)))


def variant_cases(v):
    """Problems that satisfy a variant's guard: all operands moved off alignment unless the guard forbids it."""
    if is_fast(v):
        yield from group_cases(v)
        return
    entry = "grouped_gemm_tables" if v.op == "grouped_gemm" else v.op
    types = {"a_type": v.a_type, "d_type": v.d_type, "precision": v.precision or "exact"}
    case = Case(entry=entry, trans_a=bool(v.trans_a), trans_b=bool(v.trans_b), variant=v.name, **types)
    scalings = scalings_of(v)
    case = replace(case, scaling=scalings[0], e5m2=e5m2_of(v))
    if "_stream_" in v.name:
        yield from stream_cases(v, case)
        return
    # A few tiles and part of one: rows that split K refuse more than half as many as there are multiprocessors.
    step = step_of(v.a_type)
    sizes = {"m": 200 if v.op != "gemm" else 2 * v.block_m + step, "n": whole(136, step), "k": whole(264, step)}
    sizes["pads"] = (0, step, 2 * step, step)
    if not v.align16:
        sizes = {"m": 131, "n": 77, "k": 201, "pads": (1, 3, 0, 5), "leads": (1, 2, 3, 5)}
    if v.op != "gemm":
        sizes |= {"groups": 5, "spread": "steps", "vary": "m" if v.align16 else "mnk"}
    activation = None if v.linear else "gelu"
    promise = {"aligned": v.op == "grouped_gemm" and bool(v.align16)}
    yield replace(case, **sizes, **promise)
    epilogue = {"alpha": -0.5, "beta": 2.0, "c": "in_place", "bias": "each", "activation": activation}
    epilogue["d_scale"] = epilogue["d_amax"] = v.d_type == "e4m3"
    for scaling in scalings[1:]:
        yield replace(case, **sizes, scaling=scaling)
        epilogue["scaling"] = scaling
    yield replace(case, **sizes, **epilogue, **promise)
    if promise["aligned"]:
        uneven = {"groups": 4, "spread": "halves", "vary": "mnk0", "m": 256, "n": 128, "k": 512, "pads": (8, 16, 24, 8)}
        for entry in ("grouped_gemm_tables", "grouped_gemm"):  # the library looks at lists itself
            yield replace(case, **uneven, **epilogue, entry=entry, aligned=entry == "grouped_gemm_tables")
        yield replace(case, **uneven, alpha=0.0, values="nan_ab", beta=1.0, c="separate", aligned=True)
        # Several tiles for each block, of one group and of many, and more groups than are looked at together.
        for groups, m, n, k in ((3, 1800, 1608, 1000), (70, 300, 264, 136), (600, 72, 40, 24)):
            many = {"groups": groups, "m": m, "n": n, "k": k, "spread": "full" if groups == 3 else "empty"}
            yield replace(case, **many, vary="mn", pads=(8, 16, 24, 8), aligned=True)
    if v.op == "gemm" and v.single and v.family in PERSISTENT:
        # Several tiles for each block, after few steps in K: what one tile leaves in its buffers the next one meets. Of
        # the last 64 of K there are 8 above, here 32, below 40: one, two and three instructions of 16 bits.
        few = 16 if v.d_type == "e4m3" else 8  # columns that are whole pieces of 16 bytes
        columns = 200 // -(-MANY_ROWS // v.block_m) * v.block_n
        many = {"m": MANY_ROWS, "n": (max(columns, 2304) + 8) // few * few, "k": 96}
        many["pads"] = aligned_pads(replace(case, **many), (0, 8, 16, 8))
        yield replace(case, **many, activation=activation)
        yield replace(case, **many, **epilogue)
        # Fewer rows and columns than a tile has, and one more than tiles hold.
        tiny = {"m": 5, "n": few, "k": 24}
        yield replace(case, **tiny, pads=aligned_pads(replace(case, **tiny), (0, 8, 0, 8)), bias="each")
        edge = {"m": v.block_m + 1, "n": v.block_n // few * few + few, "k": 232}
        yield replace(case, **edge, pads=aligned_pads(replace(case, **edge), (8, 0, 8, 0)), beta=-1.0, c="out")
    if v.op == "grouped_mm":  # groups of aligned operands can be cut along their rows alone
        for ragged in ("none",) if v.align16 else RAGGED[1:]:
            if ragged == "k" and epilogue.get("scaling") in BLOCK_SCALINGS:
                epilogue["scaling"] = "row"
            yield replace(case, **sizes, **epilogue, ragged=ragged, tail=0 if ragged == "none" else 9, zero=True)
    if v.op == "gemm" and not v.single:
        yield replace(case, **sizes, batch=3, shared="b", bias="each", activation=activation)


def variants(ctx: Context):
    """Every variant of this GPU by name, then the same problem with the library's own choice."""
    found = chosen(ctx)
    if not found:
        yield ["the library has no variant for this GPU"]
    for v in found:
        for case in variant_cases(v):
            yield ctx.run(case)
            yield ctx.run(replace(case, variant=None))


def ragged_rows(ctx: Context):
    """Rows of D that end inside 16 bytes while its leading dimension is aligned: nothing may be written behind them."""
    for (a, d, precision), n, layout in itertools.product(TYPES, (1, 2, 7, 131, 250), range(4)):
        pad = -n % step_of(a)
        case = Case(a_type=a, d_type=d, precision=precision, trans_a=layout > 1, trans_b=layout % 2 == 1)
        for m, k in ((8, 1024), (96, 264), (700, 136)):
            pads = (0, 0 if layout % 2 else pad, pad, pad)
            yield ctx.run(replace(case, m=m, n=n, k=k, pads=pads))
            yield ctx.run(replace(case, m=m, n=n, k=k, pads=pads, beta=2.0, c="separate", bias="row"))


def typed(*entries: str) -> list[tuple]:
    """Entries, each with all types that it takes."""
    return [(entry, types) for entry in entries for types in types_of(entry)]


def specials(ctx: Context):
    """Inf and NaN in A and B, and sums far out on both sides, through every activation."""
    for entry, (a, d, precision) in typed("gemm", "grouped_mm"):
        case = Case(entry=entry, a_type=a, d_type=d, precision=precision, m=40, n=48, k=24, groups=2)
        for seed, (activation, values) in enumerate(itertools.product(ACTIVATIONS, ("inf", "nan"))):
            yield ctx.run(replace(case, seed=seed, activation=activation, values=values))
        for activation in ACTIVATIONS[1:]:
            yield ctx.run(replace(case, activation=activation, alpha=64.0))


def empty(ctx: Context):
    """Sizes of zero in every position, with C, bias and activation on and off; calls of no group at all."""
    words = ({}, {"beta": 2.0, "c": "in_place", "bias": "row"}, {"alpha": 0.0, "values": "nan_ab", "bias": "each"})
    for entry, zero, more in itertools.product(ENTRIES, ("m", "n", "k", "mk", "mnk"), words):
        case = Case(entry=entry, m=40, n=24, k=32, groups=0 if entry == "gemm" else 3, vary="mnk")
        yield ctx.run(replace(case, **dict.fromkeys(zero, 0), **more))
    for batch in (0, 1):
        yield ctx.run(Case(batch=batch))
    for entry in ("grouped_mm", "grouped_gemm_jagged"):
        yield ctx.run(Case(entry=entry, groups=0, tail=5))
    for ragged, zero in itertools.product(RAGGED, (False, True)):
        tail = 0 if ragged == "none" else 5
        case = Case(entry="grouped_mm", m=40, n=24, k=32, ragged=ragged, zero=zero, tail=tail, bias="each")
        yield ctx.run(replace(case, groups=0))
        for size, more in itertools.product("mnk", words):
            yield ctx.run(replace(case, groups=3, **{**more, "bias": "row", size: 0}))


def many(ctx: Context):
    """Counts past 65535 (batches, row tiles, column tiles) and the largest number of groups."""
    batch = Case(batch=70000, m=5, n=6, k=3, beta=-0.5, c="in_place", bias="row")
    yield ctx.run(batch)
    yield ctx.run(replace(batch, shared="b", m=8, n=8, k=16, bias="each"))
    long = 300_000 if ctx.stand_in else 9_000_000
    yield ctx.run(Case(m=long, n=8, k=8))
    yield ctx.run(Case(m=8, n=long, k=8))
    yield ctx.run(Case(m=16, n=16, k=200_000 if ctx.stand_in else 4_000_000, d_type="f32"))
    for entry, spread in (("grouped_mm", "one"), ("grouped_mm", "empty"), ("grouped_gemm_tables", "one")):
        groups = 65535 if spread == "one" else 3000
        yield ctx.run(Case(entry=entry, groups=groups, spread=spread, vary="mn", m=70, n=8, k=8, tail=3))
    for ragged, spread in (("n", "one"), ("n", "empty"), ("k", "empty"), ("none", "full")):
        groups = 65535 if spread == "one" else 3000
        tail = 0 if ragged == "none" else 3
        sizes = {"m": 8, "n": 8, "k": 8, **({ragged: 70} if ragged in "nk" else {})}
        yield ctx.run(
            Case(entry="grouped_mm", groups=groups, spread=spread, ragged=ragged, zero=True, tail=tail, **sizes)
        )


def turned_groups(ctx: Context):
    """Packed groups whose ends cut what is contiguous, at odd places and of a matrix whose rows are odd: A or B is
    turned in the workspace, where that pays."""
    sizes, (m, n, k) = (300, 0, 1, 513, 77, 200), (520, 1008, 1104)
    if ctx.stand_in:  # which turns nothing
        sizes, (m, n, k) = (30, 0, 1, 51, 7, 20), (72, 112, 104)
    cases = (("m", True, False), ("m", True, True), ("k", False, True), ("k", False, False), ("k", True, True))
    epilogue = {"alpha": -0.5, "beta": 2.0, "c": "separate", "bias": "each"}
    for (a, d, precision), (ragged, trans_a, trans_b) in itertools.product(types_of("grouped_mm"), cases):
        case = Case(
            entry="grouped_mm", a_type=a, d_type=d, precision=precision, trans_a=trans_a, trans_b=trans_b,
            ragged=ragged, groups=len(sizes), cuts=sizes, m=m, n=n, k=k,
        )  # fmt: skip
        for i, words in enumerate(({}, epilogue, {"pads": (3, 5, 0, 0)}, {"values": "nan_odd"}, {"values": "inf_odd"})):
            if words.get("values") == "inf_odd" and a == "e4m3":
                continue  # which has no infinity
            yield ctx.run(replace(case, seed=i, tail=i % 3 * 20, zero=i % 2 == 1, wide=i % 2 == 0, **words))


def lying_ends(ctx: Context):
    """Ends that fall, are negative or run past the rows: no access outside the buffers, and each row in one group."""
    tables = ([50, 20, 400, 120], [-5, -1, 60, 30], [10**6, 0, 150, 151], [0, -(2**31), 2**31 - 1, 7], [0, 30, 0, 30])
    kinds = (("grouped_mm", "m"), ("grouped_gemm_jagged", "m"), ("grouped_mm", "n"), ("grouped_mm", "k"))
    for table, wide, (entry, ragged), zero in itertools.product(tables, (False, True), kinds, (False, True)):
        sizes = {"m": 72, "n": 72, "k": 40, ragged: 30}
        case = Case(entry=entry, groups=4, tail=30, wide=wide, pads=(8, 0, 0, 8), ragged=ragged, **sizes)
        case = replace(case, zero=zero and entry == "grouped_mm")
        yield lie(ctx, case, [x * 2**20 if wide else x for x in table])
    for ragged, groups in itertools.product("mnk", (3, 300)):
        case = Case(entry="grouped_mm", groups=groups, m=50, n=50, k=50, ragged=ragged)
        size = case.totals()["mnk".index(ragged)]
        # C is added in place: what is computed twice shows.
        yield lie(ctx, replace(case, c="in_place", beta=0.5), [size * (i % 2) for i in range(groups)])
        p = Problem(case, ctx.device)
        p.ends[-1] = 10**9  # the last end runs past: clamped, so the answer is as without
        yield run_problem(ctx.lib, p)


def lie(ctx: Context, case: Case, table: list[int]) -> list[str]:
    """What is wrong with a call with these ends."""
    p = Problem(case, ctx.device)
    p.tell(table)
    return [f"{problem} with ends {table[:20]} [{case!r}]" for problem in run_problem(ctx.lib, p)]


def lying_ends_of_groups(ctx: Context):
    """The same for each row that sees all groups as one matrix: tables as long as its first problem's."""
    rng = random.Random("lying ends")
    for v in (v for v in chosen(ctx) if is_fast(v)):
        case = next((c for c in group_cases(v) if c.ragged != "none"), None)
        if case is None:
            continue  # it reads no table
        size = case.totals()["mnk".index(case.ragged)]
        falling = [size - 7 * i for i in range(case.groups)]
        back_and_forth = [size * (i % 2) for i in range(case.groups)]
        for wide, bits in ((False, 31), (True, 63)):
            garbage = [rng.randrange(-(2**bits), 2**bits) for _ in falling]
            far = [(-1) ** i * (2**bits - 1 - i) for i in range(case.groups)]
            near = [rng.randrange(-200, size + 200) for _ in falling]
            for table in (falling, back_and_forth, garbage, far, near):
                yield lie(ctx, replace(case, wide=wide), table)
        past = replace(case, tail=0)
        p = Problem(replace(past, pads=aligned_pads(past)), ctx.device)
        p.ends[-1] = 2**31 - 1  # the last end alone runs past: clamped, so the answer is as without
        yield run_problem(ctx.lib, p)


def repeatable(ctx: Context):
    """Five runs of one call give the same bits."""
    shapes = ({"m": 333, "n": 257, "k": 1999}, {"m": 16, "n": 512, "k": 2048}, {"m": 512, "n": 512, "k": 512})
    for (entry, (a, d, precision)), shape in itertools.product(typed("gemm", "grouped_mm", "grouped_gemm"), shapes):
        if ctx.stand_in and shape["k"] > 512:
            continue
        case = Case(entry=entry, a_type=a, d_type=d, precision=precision, bias="row", **shape)
        case = replace(case, groups=0 if entry == "gemm" else 4, spread="steps", activation="silu")
        case = replace(case, ragged=RAGGED[shape["m"] % 4] if entry == "grouped_mm" else "m")
        p = Problem(case, ctx.device)
        bits = INTS[DTYPES[d].itemsize]
        runs = []
        for _ in range(5):
            p.d_arena.flat.fill_(torch.nan)
            runs.append([x.view(bits).clone() for x in call(ctx.lib, p)])
        same = all(torch.equal(x, y) for run in runs[1:] for x, y in zip(runs[0], run, strict=True))
        yield [] if same else [f"five runs did not give the same bits [{case!r}]"]
