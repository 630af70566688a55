"""Named checks of layers of experts: routing, gathered and gated products by every variant, sums, whole layers.

Values are held against float64; operands stand in arenas, whose bands show stray reads and writes.
"""

import itertools
import random
from dataclasses import dataclass, replace

import torch

from .edge import Context, chosen_of
from .guarded import Arena
from .reference import DTYPES

ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


@dataclass(frozen=True)
class Layer:
    """The rows of experts, and what a product does with them."""

    counts: tuple[int, ...] = (37, 0, 130, 1, 64)
    k: int = 136
    columns: int = 144  # of D
    dtype: torch.dtype = torch.bfloat16
    trans_b: bool = False
    gate: str | None = None
    activation: str | None = None
    limit: float = 0.0
    bias: bool = False
    gathered: bool = True
    weighted: bool = False
    scattered: bool = False
    pad: int = 0  # elements behind each stored row
    lead: int = 0  # elements that operands are off alignment
    variant: str | None = None

    @property
    def rows(self) -> int:
        return sum(self.counts)


def activated(z: torch.Tensor, layer: Layer) -> torch.Tensor:
    """float64, after the header."""
    functions = {None: lambda x: x, "relu": torch.relu, "silu": lambda x: x * torch.sigmoid(x),
                 "gelu": lambda x: x * 0.5 * torch.erfc(-x * 0.5**0.5)}  # fmt: skip
    if not layer.gate:
        return functions[layer.activation](z)
    gate, up = z.chunk(2, 1) if layer.gate == "halves" else (z[:, ::2], z[:, 1::2])
    if layer.limit:
        # Not by clamp: at the limit its slope is that of within in some versions of torch, half of it in others.
        most = torch.full_like(gate, layer.limit)
        gate = torch.where(gate > most, most, gate)
        up = torch.where(up > most, most, torch.where(up < -most, -most, up))
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    return functions[layer.activation](gate) * up


def operands(ctx: Context, layer: Layer, seed: int) -> dict:
    generator = torch.Generator(ctx.device).manual_seed(seed)
    experts, n = len(layer.counts), layer.columns * (2 if layer.gate else 1)
    stored = layer.rows + 5
    arena = Arena(layer.dtype, ctx.device, "input")
    arena.place((stored, layer.k), layer.pad, layer.lead)
    arena.place((experts, n, layer.k) if layer.trans_b else (experts, layer.k, n), layer.pad, layer.lead)
    arena.place((experts, n), 3 if layer.lead else 0, layer.lead)
    a, b, bias = arena.inputs(generator).views
    b *= layer.k**-0.5
    new = {"device": ctx.device, "generator": generator}
    pick = torch.randperm(stored, **new)[: layer.rows].int() if layer.gathered else None
    return {
        "a": a, "b": b.mT if layer.trans_b else b, "bias": bias if layer.bias else None, "rows": pick,
        "offs": torch.tensor(list(itertools.accumulate(layer.counts)), device=ctx.device, dtype=torch.int32),
        "row_weights": torch.rand(layer.rows, **new) if layer.weighted else None,
        "to_rows": torch.randperm(layer.rows, **new).int() if layer.scattered else None,
    }  # fmt: skip


def expected(layer: Layer, given: dict) -> torch.Tensor:
    a = given["a"][given["rows"].long()] if layer.gathered else given["a"][: layer.rows]
    made, start = [], 0
    for expert, count in enumerate(layer.counts):
        z = a[start : start + count].double() @ given["b"][expert].double()
        made.append(activated(z + (given["bias"][expert].double() if layer.bias else 0), layer))
        start += count
    d = torch.cat(made)
    d = d * given["row_weights"].double()[:, None] if layer.weighted else d
    if layer.scattered:
        d = torch.empty_like(d).index_copy_(0, given["to_rows"].long(), d)
    return d


def compared(got: torch.Tensor, want: torch.Tensor, what: str) -> list[str]:
    """An element may be off by the rounding of D, and of sums as large as others of its row."""
    unit = ROUNDING[got.dtype]
    bound = unit * want.abs() + unit * want.abs().mean() + 1e-30
    off = ~((got.double() - want).abs() <= bound)
    return [f"{int(off.sum())} of {off.numel()} elements are off [{what}]"] if off.any() else []


def run_layer(ctx: Context, layer: Layer, seed: int = 0) -> list[str]:
    given = operands(ctx, layer, seed)
    out = Arena(layer.dtype, ctx.device, "D")
    out.place((layer.rows, layer.columns), layer.pad, layer.lead)
    (d,) = out.outputs().views
    out.freeze()
    a = given.pop("a")
    ctx.lib.moe_mm(
        a if layer.gathered else a[: layer.rows], **given, gate=layer.gate, activation=layer.activation,
        gate_limit=layer.limit, out=d, variant=layer.variant,
    )  # fmt: skip
    problems = compared(d, expected(layer, {**given, "a": a}), repr(layer))
    return problems + [f"{x} [{layer!r}]" for x in out.problems()]


def expert_products(ctx: Context):
    """Every variant by name, on what its guard allows, then the library's own choice on all the rest."""
    for v in chosen_of(ctx, "moe_mm"):
        if v.a_type == "e4m3":  # of a whole layer alone: edge_moe_scaled.py
            continue
        gated, fast = "_gated" in v.name, "_in_order" in v.name
        layer = Layer(dtype=DTYPES[v.a_type], trans_b=bool(v.trans_b), variant=v.name)
        if not v.align16:
            layer = replace(layer, k=131, columns=77, pad=3, lead=1)
        ways = ("halves", "pairs") if gated else (None,)
        if gated and fast and not v.trans_b:  # TMA takes no second element of each
            ways = ("pairs",) if "_paired" in v.name else ("halves",)
        for gate, bias in itertools.product(ways, (False, True)):
            own = replace(layer, gate=gate, bias=bias, activation="silu" if gated else None)
            yield run_layer(ctx, own)
            yield run_layer(ctx, replace(own, gathered=False, limit=0.5 if gated else 0.0, counts=(3,) * 40, k=264))
            if fast:  # more steps than the pipeline has stages, and more tiles than blocks
                yield run_layer(ctx, replace(own, counts=(90, 1, 200), k=1048, columns=520))
            if not fast:
                yield run_layer(ctx, replace(own, activation="gelu", weighted=True, scattered=True))
    if ctx.part != 1:
        return
    for gate, activation, trans_b in itertools.product((None, "halves", "pairs"), (None, "relu", "gelu"), (0, 1)):
        yield run_layer(ctx, Layer(gate=gate, activation=activation, trans_b=bool(trans_b), bias=True))
    many = Layer(counts=(300, 0, 513, 7) * (1 if ctx.stand_in else 40), k=520, columns=264, gate="halves")
    yield run_layer(ctx, replace(many, activation="silu", trans_b=True))
    yield run_layer(ctx, replace(many, gate=None))


def lying_indices(ctx: Context):
    """Ends that fall or run past the rows, indices that point outside: wrong rows, but nothing else is touched."""
    for gate, fast in itertools.product((None, "halves"), (True, False)):
        layer = Layer(gate=gate, activation="silu" if gate else None, trans_b=True, scattered=not fast)
        given = operands(ctx, layer, 1)
        far = torch.tensor([-1, -(2**31), 2**31 - 1, layer.rows + 5], device=ctx.device, dtype=torch.int32)
        for name in ("rows", "to_rows") if layer.scattered else ("rows",):
            given[name][::3] = far[torch.arange(len(given[name][::3]), device=ctx.device) % 4]
        for offs in ([50, 20, 2**31 - 1, 7, 9], [-5, 600, -1, 3, 2**30], given["offs"].tolist()):
            out = Arena(layer.dtype, ctx.device, "D")
            out.place((layer.rows, layer.columns))
            (d,) = out.outputs().views
            out.freeze()
            given["offs"] = torch.tensor(offs, device=ctx.device, dtype=torch.int32)
            ctx.lib.moe_mm(**given, gate=gate, activation=layer.activation, out=d)
            yield [f"{x} [{offs}]" for x in out.problems()]


def routes(ctx: Context):
    """Choices of any number, some of no expert, against a stable sort by torch."""
    sizes = ((0, 4, 3), (1, 1, 1), (1, 8, 128), (33, 2, 5), (200, 4, 4096), (700, 8, 60))
    sizes += () if ctx.stand_in else ((4096, 8, 128), (65536, 8, 256), (70000, 1, 2))
    for (tokens, top_k, experts), dtype in itertools.product(sizes, (torch.int32, torch.int64)):
        generator = torch.Generator(ctx.device).manual_seed(tokens)
        ids = torch.randint(-1, experts + 1, (tokens, top_k), device=ctx.device, generator=generator).to(dtype)
        flat = ids.flatten().long()
        own = (flat >= 0) & (flat < experts)
        order = torch.sort(torch.where(own, flat, experts), stable=True).indices[: int(own.sum())]
        rows, places = (torch.full_like(flat, -1) for _ in range(2))
        rows[: len(order)] = order // top_k
        places[order] = torch.arange(len(order), device=ctx.device)
        ends = torch.bincount(flat[own], minlength=experts).cumsum(0)
        found = ctx.lib.moe_route(ids, experts)
        wanted = (rows, places.view(tokens, top_k), ends)
        names = zip(("rows", "places", "offs"), found, wanted, strict=True)
        yield [
            f"{name} differ [{tokens} x {top_k} of {experts}]" for name, x, y in names if not torch.equal(x.long(), y)
        ]


def sums(ctx: Context):
    """Rows by place, weights of any type, some places nowhere, whose rows' NaN must not show."""
    for seed, (tokens, top_k, n) in enumerate(((5, 3, 70), (64, 8, 256), (7, 9, 1032), (300, 1, 33), (1, 20, 2048))):
        for dtype, weights in itertools.product((torch.bfloat16, torch.float16), (None, torch.float32, torch.bfloat16)):
            generator = torch.Generator(ctx.device).manual_seed(seed)
            new = {"device": ctx.device, "generator": generator}
            given, out = Arena(dtype, ctx.device, "A"), Arena(dtype, ctx.device, "D")
            given.place((tokens * top_k + 9, n), seed % 2 * 3)
            out.place((tokens, n), seed % 2)
            (a,), (d,) = given.inputs(generator).views, out.outputs().views
            out.freeze()
            places = torch.randperm(len(a), **new)[: tokens * top_k].view(tokens, top_k).int()
            nowhere = torch.rand(places.shape, **new) < 0.2
            a[places[nowhere].long()] = torch.nan
            places[nowhere] = torch.where(torch.rand(int(nowhere.sum()), **new) < 0.5, -1, len(a)).int()
            share = None if weights is None else torch.rand(places.shape, **new).to(weights)
            want = torch.where(nowhere[..., None], 0.0, a[places.clamp(0, len(a) - 1).long()].double())
            want = (want * (1 if share is None else share.double()[..., None])).nan_to_num().sum(1)
            ctx.lib.moe_sum(a, places, share, out=d)
            what = f"{tokens} x {top_k} x {n} {dtype} weights {weights}"
            yield compared(d, want, what) + [f"{x} [{what}]" for x in out.problems()]


def random_layer(seed: int) -> dict:
    draw = random.Random(f"layer of experts {seed}")
    return {
        "tokens": draw.choice((1, 3, 17, 64, 200, 700)), "top_k": draw.choice((1, 2, 4, 8)),
        "experts": draw.choice((2, 4, 9, 16, 60)), "k": draw.choice((64, 136, 256, 72)),
        "inner": draw.choice((64, 72, 128, 192, 200)), "n": draw.choice((64, 136, 256, 100)),
        "gate": draw.choice(("halves", "pairs", None)), "dtype": draw.choice((torch.bfloat16, torch.float16)),
        "turned": (draw.random() < 0.5, draw.random() < 0.5), "bias": draw.random() < 0.5,
        "limit": draw.choice((0.0, 0.0, 2.0, float("inf"))), "skipped": draw.random() < 0.4,
        "weights": draw.choice((None, torch.float32, torch.bfloat16, torch.float16)),
    }  # fmt: skip


def drawn_operands(ctx: Context, case: dict, gate: str | None, seed: int) -> list:
    """x, w_in, w_out, ids, weights, bias_in and bias_out of a drawn layer."""
    dtype, experts = case["dtype"], case["experts"]
    new = {"device": ctx.device, "generator": torch.Generator(ctx.device).manual_seed(seed)}
    sizes = ((case["k"], case["inner"] * (2 if gate else 1)), (case["inner"], case["n"]))
    made = []
    for (rows, cols), turned in zip(sizes, case["turned"], strict=True):
        w = torch.randn((experts, cols, rows) if turned else (experts, rows, cols), **new) * rows**-0.5
        made.append(w.to(dtype).mT if turned else w.to(dtype))
    x = torch.randn(case["tokens"], case["k"], **new).to(dtype)
    ids = torch.randint(-1 if case["skipped"] else 0, experts, (case["tokens"], case["top_k"]), **new)
    weights = None if case["weights"] is None else torch.rand(ids.shape, **new).to(case["weights"])
    bias = [torch.randn(experts, w.shape[2], **new).to(dtype) if case["bias"] else None for w in made]
    return [x, *made, ids, weights, *bias]


def whole_layer(ctx: Context, case: dict, seed: int) -> list[str]:
    """A layer beside float64, which rounds where the header says that the layer does; and twice alike, some twenty
    times."""
    dtype, gate, experts = case["dtype"], case["gate"], case["experts"]
    x, *made, ids, weights, bias_in, bias_out = drawn_operands(ctx, case, gate, seed)
    layer = Layer(gate=gate, activation="silu", limit=case["limit"] if gate else 0.0)
    words = {"gate": gate, "gate_limit": layer.limit, "bias_in": bias_in, "bias_out": bias_out}
    got = ctx.lib.moe(x, *made, ids, weights, **words)
    want = torch.zeros(case["tokens"], case["n"], dtype=torch.float64, device=ctx.device)
    for expert in range(experts):
        token, choice = (ids == expert).nonzero(as_tuple=True)
        z = x[token].double() @ made[0][expert].double() + (bias_in[expert].double() if case["bias"] else 0)
        h = activated(z, layer).to(dtype).double()
        y = (h @ made[1][expert].double() + (bias_out[expert].double() if case["bias"] else 0)).to(dtype).double()
        want.index_add_(0, token, y * (1 if weights is None else weights[token, choice].double()[:, None]))
    error = (got.double() - want).norm() / want.norm().clamp_min(1e-30)
    problems = [] if error <= 3 * ROUNDING[dtype] else [f"off by {error:.2e} of its size [{case}]"]
    times = 20 if seed % 50 == 0 else 2
    same = all(torch.equal(got, ctx.lib.moe(x, *made, ids, weights, **words)) for _ in range(times - 1))
    return problems + [f"another result in {times} times [{case}]"] * (not same)


def whole_layers(ctx: Context):
    """Of any size."""
    for seed in ctx.seeds(12 if ctx.stand_in else 3000):
        yield whole_layer(ctx, random_layer(seed), seed)


def layers_of_many_rows(ctx: Context):
    """Whose products take tiles by a counter: 256 rows of an expert or more in the mean, and K of 1,024 or more in
    either product, both or neither; one row less; and more experts than have their ends read at once."""
    for seed in ctx.seeds(2 if ctx.stand_in else 200):
        draw = random.Random(f"layer of many rows {seed}")
        experts = draw.choice((1, 3, 5, 8))
        rows = draw.choice((256 * experts - 1, 256 * experts, 700 * experts, 1500 * experts))
        sizes = {"tokens": rows, "k": draw.choice((520, 1024, 1160)), "inner": draw.choice((1024, 1096, 520))}
        sizes["n"] = draw.choice((264, 2056))
        if seed % 50 == 0:
            experts, sizes = 130, {"tokens": 256 * 130, "k": 1024, "inner": 64, "n": 64}
        if ctx.stand_in:
            experts, sizes = 3, {"tokens": 40, "k": 64, "inner": 64, "n": 64}
        yield whole_layer(ctx, {**random_layer(seed), "experts": experts, "top_k": 1, **sizes}, seed)
