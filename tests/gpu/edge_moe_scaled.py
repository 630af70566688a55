"""Named checks of layers of experts with 8-bit weights: their rows by an index, gated and cast, and whole layers.

Part of the GPU suite. Values are held against float64 of what 8 bits hold.
"""

import itertools
import random

import torch

from .edge import Context
from .edge_cast import largest, scale_of
from .edge_moe import Layer, activated, compared, drawn_operands, random_layer
from .guarded import Arena
from .reference import DTYPES, TINY, U_ACC, U_OUT, describe, excess, expected

GATES = (
    (None, None, 0.0),
    ("halves", "silu", 0.0),
    ("pairs", "silu", 1.0),
    ("halves", "gelu", 0.0),
    (None, "relu", 0.0),
    ("pairs", "relu", 0.0),
    ("pairs", None, 0.0),
)
E4M3 = DTYPES["e4m3"]
NAMES = {dtype: name for name, dtype in DTYPES.items()}
# Tokens, choices, experts, K, inner, N: few choices; one tile a block, more steps than stages, more tiles than blocks.
FEW = ((1, 8, 16, 512, 768, 1024), (8, 8, 9, 256, 1536, 512), (3, 4, 12, 128, 1664, 2880))
SIZES = ((5, 9, 200, 0), (64, 40, 256, 0), (33, 1, 77, 3), (300, 700, 1032, 0), (1, 7, 16, 0))


def spread(of_blocks: torch.Tensor, down: int, m: int, n: int) -> torch.Tensor:
    """What down x 128 elements each share, for each of [.., m, n]."""
    return of_blocks.repeat_interleave(down, -2)[..., :m, :].repeat_interleave(128, -1)[..., :n]


def held(x: torch.Tensor, each: torch.Tensor) -> torch.Tensor:
    """x in float64, as 8 bits hold it with these scales."""
    return (x.float() * (1.0 / each)).clamp(-448, 448).to(E4M3).double() * each.double()


def cast(x: torch.Tensor, down: int) -> torch.Tensor:
    """x [.., M, N] in float64, as 8 bits with a scale for each down x 128 hold it."""
    return held(x, spread(scale_of(largest(x.float(), down, 128), E4M3, False), down, *x.shape[-2:]))


def cast_near(h: torch.Tensor, off: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """cast(h, 1), and how far from it that of numbers may be that are no more than `off` from those of h: to e4m3's
    next number where one of them is nearer to that, else not at all; and as a row's largest moves its scale."""
    most = largest(h.float(), 1, 128).double().clamp_min(1e-30)
    share = spread(largest(off.float(), 1, 128).double() / most, 1, *h.shape)
    each = spread(scale_of(largest(h.float(), 1, 128), E4M3, False), 1, *h.shape)
    off = off + share * h.abs()
    own, less, more = (held(x, each) for x in (h, h.sign() * (h.abs() - off).clamp_min(0), h + h.sign() * off))
    step = (own.abs() * 2.0**-3).clamp_min(2.0**-9 * each)
    return own, torch.minimum(torch.maximum((less - own).abs(), (more - own).abs()) + share * own.abs(), step)


def cast_problems(values: torch.Tensor, scale: torch.Tensor, h: torch.Tensor) -> list[str]:
    """What is wrong with 8 bits of h [M, N], float64, and their scales [M, N/128]."""
    wanted = scale_of(largest(h.float(), 1, 128), E4M3, False)
    each = spread(wanted.double(), 1, *h.shape)
    # Half of the distance to e4m3's next number, and what float32's exponentials are off by.
    bound = (h.abs() * 2.0**-4).clamp_min(2.0**-10 * each) * 1.01 + 1e-5 * h.abs()
    off = ~((values.double() * each - h).abs() <= bound)
    problems = [f"{int(off.sum())} values are off"] if bool(off.any()) else []
    if not torch.allclose(scale, wanted, rtol=1e-5, atol=0):
        problems.append(f"scales are off by {float((scale / wanted - 1).abs().max()):.1e}")
    return problems


def cast_rows(ctx: Context):
    """Of any width and alignment, gates, an index that names rows that are none; what is beside operands is kept."""
    for seed, ((m, stored, n, pad), (gate, activation, limit)) in enumerate(itertools.product(SIZES, GATES)):
        generator = torch.Generator(ctx.device).manual_seed(seed)
        given = Arena((torch.bfloat16, torch.float16)[seed % 2], ctx.device, "A")
        given.place((stored, 2 * n if gate else n), pad, seed % 2 * (pad > 0))
        (a,) = given.inputs(generator).views
        given.freeze()
        rows = None
        if seed % 3:
            rows = torch.randint(-1, stored + 1, (m,), generator=generator, device=ctx.device).int()
        index = torch.arange(stored, device=ctx.device) if rows is None else rows.long()
        there = (index >= 0) & (index < stored)
        layer = Layer(gate=gate, activation=activation, limit=limit)
        h = activated(a.double()[index.clamp(0, stored - 1)], layer) * there[:, None]
        values, scale = ctx.lib.moe_cast(a, rows=rows, activation=activation, gate=gate, gate_limit=limit)
        what = f"{m} of {stored} x {n} {gate} {activation} {limit} index {rows is not None}"
        yield [f"{x} [{what}]" for x in cast_problems(values, scale, h) + given.problems()]


def product_problems(d: torch.Tensor, a: tuple, b: tuple, bias: torch.Tensor | None, ends: list[int]) -> list[str]:
    """What is wrong with a product of experts; a and b are (values, scale), b as torch's linear has its weights."""
    start = 0
    for expert, end in enumerate(ends):
        factors = a[1][start:end], b[1][expert].mT.repeat_interleave(128, -1)[:, : d.shape[1]]
        want, bound = expected(
            a[0][start:end], b[0][expert].mT, bias=None if bias is None else bias[expert], factors=factors,
            a_type="e4m3", d_type=NAMES[d.dtype],
        )  # fmt: skip
        ratio = excess(d[start:end], want, bound)
        if bool((ratio > 1).any()):
            return [f"{describe(d[start:end], want, ratio)} [expert {expert}]"]
        start = end
    return []


def by_parts(ctx: Context, drawn: list, eight: tuple, layer: Layer) -> tuple[torch.Tensor, list[str]]:
    """What the layer's calls make one after the other, and what is wrong with each beside float64 of what it got."""
    x, _, _, ids, weights, *biases = drawn
    rows, places, offs = ctx.lib.moe_route(ids, len(eight[0][0]))
    ends, problems, given = offs.tolist(), [], x
    for part, (weight, bias) in enumerate(zip(eight, biases, strict=True)):
        if part:
            words = {"activation": layer.activation, "gate": layer.gate, "gate_limit": layer.limit}
            h = activated(given[: ends[-1]].double(), layer)
        else:
            words = {"rows": rows}
            h = x.double()[rows[: ends[-1]].long()]
        cast8 = ctx.lib.moe_cast(given, **words)
        problems += [f"{what} [cast {part}]" for what in cast_problems(*(t[: ends[-1]] for t in cast8), h)]
        given = ctx.lib.grouped_mm(
            cast8[0], weight[0].mT, offs, scaling="1x128_128x128", a_scale=cast8[1], b_scale=weight[1].mT, bias=bias,
            out_dtype=x.dtype,
        )  # fmt: skip
        problems += [f"{what} [product {part}]" for what in product_problems(given, cast8, weight, bias, ends)]
    made = ctx.lib.moe_sum(given, places, weights)
    there = (places >= 0)[..., None]
    of_choices = torch.where(there, given[places.clamp_min(0).long()].double(), 0.0)
    shares = 1 if weights is None else weights.double()[..., None]
    return made, problems + compared(made, (of_choices * shares).sum(1), "sum")


def activated_near(z: torch.Tensor, off: torch.Tensor, layer: Layer) -> tuple[torch.Tensor, torch.Tensor]:
    """H of a gated layer, and how far from it that of numbers may be that are `off` from those of z."""
    h, most = activated(z, layer), torch.zeros(1, dtype=z.dtype, device=z.device)
    columns = torch.arange(z.shape[1], device=z.device)
    is_up = columns >= z.shape[1] // 2 if layer.gate == "halves" else columns % 2 == 1
    for gate, up in itertools.product((-1, 1), (-1, 1)):
        most = torch.maximum(most, (activated(z + torch.where(is_up, up, gate) * off, layer) - h).abs())
    return h, most + 1e-5 * h.abs()  # what float32's exponentials are off by


def layer_problems(got: torch.Tensor, x: torch.Tensor, drawn: list, layer: Layer) -> list[str]:
    """What is wrong with a gated layer whose H was made in one launch, which leaves no Z to hold it against. In float64
    it is one of what 8 bits hold of X, of the weights and of H, which Z is not rounded for. What Z's sums are off by
    moves some of H to e4m3's next number, 2^-3 of itself. The whole of D is held against 2 % of its size, which no more
    than some of these moves come to, and beside that the largest by itself: of few rows it may be more. Each element is
    held against six times what moves of all that may move come to, were they independent: a fault that the size of the
    others hides is more."""
    _, w_in, w_out, ids, weights, bias_in, bias_out = drawn
    narrow = cast(x, 1)
    want, bound, sizes = torch.zeros(3, len(x), w_out.shape[2], dtype=torch.float64, device=x.device)
    to, largest_move = NAMES[x.dtype], 0.0
    for expert in range(len(w_in)):
        token, choice = (ids == expert).nonzero(as_tuple=True)
        if not len(token):
            continue
        wide = [cast(w[expert].mT.contiguous(), 128).mT for w in (w_in, w_out)]  # of others nothing is asked
        biases = [None if bias is None else bias[expert] for bias in (bias_in, bias_out)]
        z, off = expected(narrow[token], wide[0], bias=biases[0], a_type="e4m3")
        h, off = cast_near(*activated_near(z, off, layer))
        y, y_off = expected(h, wide[1], bias=biases[1], a_type="e4m3", d_type=to)
        y_off = y_off + 6 * (off.square() @ wide[1].square()).sqrt() * (1 + U_OUT[to])
        share = torch.ones(1, device=x.device) if weights is None else weights[token, choice][:, None]
        want.index_add_(0, token, y * share.double())
        bound.index_add_(0, token, y_off * share.double().abs())
        sizes.index_add_(0, token, y.abs() * share.double().abs())
        moves = off * share.double().abs() * wide[1].norm(dim=1)
        largest_move = max(largest_move, float(moves.max()))
    bound += ids.shape[1] * U_ACC * sizes
    ratio = excess(got, want, bound * (1 + U_OUT[to]) + U_OUT[to] * want.abs() + TINY[to])
    problems = [f"not what float64 makes: {describe(got, want, ratio)}"] if bool((ratio > 1).any()) else []
    error, size = float((got.double() - want).norm()), float(want.norm())
    if not error <= 2e-2 * size + largest_move:
        problems.append(f"off by {error / max(size, 1e-30):.2e} of its size, one move by {largest_move:.1e}")
    return problems


def scaled_layers(ctx: Context):
    """Layers of any size with weights in 8 bits, cast as the library casts them; and twice alike. A few are of so many
    tokens that X is cast before it is gathered.

    A layer is what its parts make, to the bit, and each part is held against float64 of what it was given. Only where
    experts have many rows or few, H may be made in one launch, which leaves no Z to hold it against: then the whole
    layer is.
    """
    for seed in ctx.seeds(4 if ctx.stand_in else 600):
        case = random_layer(seed)
        if seed % 20 == 0 and not ctx.stand_in:
            case["tokens"] = 2**24 // (case["k"] * case["top_k"]) + seed % 1000
        if seed % 20 == 10 and not ctx.stand_in:  # more tiles than blocks, of many steps
            case |= {"tokens": 4096 // case["top_k"] + seed % 100, "experts": min(case["experts"], 16)}
            case |= {"k": 1024 + 16 * (seed % 3), "inner": 1088 + 64 * (seed % 3)}
        gate = case["gate"]
        drawn = drawn_operands(ctx, case, gate, seed)
        x, w_in, w_out, ids, weights, bias_in, bias_out = drawn
        eight = tuple(ctx.lib.cast(w.mT.contiguous(), "128x128") for w in (w_in, w_out))  # as torch's linear has them
        layer = Layer(gate=gate, activation="silu", limit=case["limit"] if gate else 0.0)
        (in8, in_scale), (out8, out_scale) = eight
        words = {
            "gate": gate, "gate_limit": layer.limit, "bias_in": bias_in, "bias_out": bias_out,
            "scaling": "1x128_128x128", "w_in_scale": in_scale.mT, "w_out_scale": out_scale.mT,
        }  # fmt: skip
        got = ctx.lib.moe(x, in8.mT, out8.mT, ids, weights, **words)
        made, problems = by_parts(ctx, drawn, eight, layer)
        suited = ids.numel() >= 64 * case["experts"] or ids.numel() <= 16 * case["experts"]
        may_differ = bool(gate) and suited and case["inner"] % 64 == 0
        if not torch.equal(got, made):
            problems += layer_problems(got, x, drawn, layer) if may_differ else ["not what its parts make"]
        if not torch.equal(got, ctx.lib.moe(x, in8.mT, out8.mT, ids, weights, **words)):
            problems.append("another result the second time")
        yield [f"{what} [{case}]" for what in problems]


def weights_just_written(ctx: Context):
    """Layers of few choices whose rows, experts and weights are what the kernels just before them write. Their second
    product loads weights while the launch ahead of it still runs."""
    names = ("tokens", "top_k", "experts", "k", "inner", "n")
    for sizes in FEW:
        case = dict(zip(names, sizes, strict=True)) | {
            "turned": (True, True), "bias": False, "skipped": False, "dtype": torch.bfloat16, "weights": torch.float32,
        }  # fmt: skip
        given = []
        for seed in range(2):
            x, w_in, w_out, ids, weights, *_ = drawn_operands(ctx, case, "halves", seed)
            eight = [ctx.lib.cast(w.mT.contiguous(), "128x128") for w in (w_in, w_out)]
            given.append([x, ids, weights, *eight[0], *eight[1]])

        def layer(x, ids, weights, in8, in_scale, out8, out_scale):
            scales = {"scaling": "1x128_128x128", "w_in_scale": in_scale.mT, "w_out_scale": out_scale.mT}
            return ctx.lib.moe(x, in8.mT, out8.mT, ids, weights, gate="halves", **scales)

        wants = [layer(*one) for one in given]
        at, made = [one.clone() for one in given[0]], []
        for turn in range(2 if ctx.stand_in else 40):
            for to, new in zip(at, given[turn % 2], strict=True):
                to.copy_(new)
            made.append(layer(*at))
        same = all(torch.equal(d, wants[turn % 2]) for turn, d in enumerate(made))
        yield [] if same else [f"weights of another turn were read [{case}]"]


def one_token(ctx: Context):
    """Layers of one token, whose row the first product casts by itself where it begins on 16 bytes: to the bit what
    they are where it begins on 8, and is cast by a launch of its own. Of as many choices as a warp has lanes, less or
    more, of 32 or 64 bits, some of no expert, and some of one that another has too."""
    for seed in ctx.seeds(3 if ctx.stand_in else 200):
        draw = random.Random(f"one token {seed}")
        case = {
            "tokens": 1, "top_k": draw.choice((1, 2, 4, 8, 8, 31, 32, 33)), "experts": draw.choice((3, 8, 33, 130)),
            "k": draw.choice((16, 64, 136, 256, 400, 2048, 2064)), "inner": draw.choice((64, 128, 192, 256, 1664)),
            "n": draw.choice((64, 136, 100)), "dtype": draw.choice((torch.bfloat16, torch.float16)),
            "turned": (True, True), "bias": draw.random() < 0.5, "skipped": draw.random() < 0.5,
            "weights": draw.choice((None, torch.float32)),
        }  # fmt: skip
        gate, limit = draw.choice(("halves", "pairs")), draw.choice((0.0, 2.0, float("inf")))
        drawn = drawn_operands(ctx, case, gate, seed)
        x, w_in, w_out, ids, weights, bias_in, bias_out = drawn
        x[0, draw.randrange(case["k"])] *= draw.choice((1, 0, 30, float("nan"), float("inf")))
        ids = ids.to(draw.choice((torch.int32, torch.int64)))
        (in8, in_scale), (out8, out_scale) = (ctx.lib.cast(w.mT.contiguous(), "128x128") for w in (w_in, w_out))
        words = {
            "gate": gate, "gate_limit": limit, "bias_in": bias_in, "bias_out": bias_out, "scaling": "1x128_128x128",
            "w_in_scale": in_scale.mT, "w_out_scale": out_scale.mT,
        }  # fmt: skip
        moved = torch.empty(case["k"] + 4, dtype=x.dtype, device=x.device)[4:].copy_(x[0])[None]
        got, want = (ctx.lib.moe(one, in8.mT, out8.mT, ids, weights, **words) for one in (x, moved))
        same = torch.equal(got.view(torch.int16), want.view(torch.int16))
        problems = [] if same else ["not what it is where the row is cast before"]
        if x.isfinite().all():
            layer = Layer(gate=gate, activation="silu", limit=limit)
            problems += layer_problems(got, x, [x, w_in, w_out, ids, weights, bias_in, bias_out], layer)
        yield [f"{what} [{gate} {limit} {ids.dtype} {case}]" for what in problems]
