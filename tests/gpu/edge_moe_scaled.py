"""Named checks of layers of experts with 8-bit weights: their rows by an index, gated and cast, and whole layers.

Part of the GPU suite. Values are held against float64 of what 8 bits hold.
"""

import itertools

import torch

from .edge import Context
from .edge_cast import largest, scale_of
from .edge_moe import Layer, activated, drawn_operands, random_layer
from .guarded import Arena
from .reference import DTYPES

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
SIZES = ((5, 9, 200, 0), (64, 40, 256, 0), (33, 1, 77, 3), (300, 700, 1032, 0), (1, 7, 16, 0))


def cast(x: torch.Tensor, down: int) -> torch.Tensor:
    """x [.., M, N] in float64, as 8 bits with a scale for each down x 128 hold it."""
    m, n = x.shape[-2:]
    scale = scale_of(largest(x.float(), down, 128), E4M3, False)
    each = scale.repeat_interleave(down, -2)[..., :m, :].repeat_interleave(128, -1)[..., :n]
    return (x.float() * (1.0 / each)).clamp(-448, 448).to(E4M3).double() * each.double()


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
        wanted = scale_of(largest(h.float(), 1, 128), E4M3, False)
        each = wanted.double().repeat_interleave(128, 1)[:, :n]
        # Half of the distance to e4m3's next number, and what float32's exponentials are off by.
        bound = (h.abs() * 2.0**-4).clamp_min(2.0**-10 * each) * 1.01 + 1e-5 * h.abs()
        off = ~((values.double() * each - h).abs() <= bound)
        what = f"{m} of {stored} x {n} {gate} {activation} {limit} index {rows is not None}"
        problems = [f"{int(off.sum())} values are off [{what}]"] if bool(off.any()) else []
        if not torch.allclose(scale, wanted, rtol=1e-5, atol=0):
            problems.append(f"scales are off by {float((scale / wanted - 1).abs().max()):.1e} [{what}]")
        yield problems + [f"{x} [{what}]" for x in given.problems()]


def scaled_layers(ctx: Context):
    """Layers of any size with weights in 8 bits, cast as the library casts them; and twice alike. A few are of so many
    tokens that X is cast before it is gathered."""
    for seed in ctx.seeds(4 if ctx.stand_in else 600):
        case = random_layer(seed)
        if seed % 20 == 0 and not ctx.stand_in:
            case["tokens"] = 2**24 // (case["k"] * case["top_k"]) + seed % 1000
        dtype, gate = case["dtype"], case["gate"]
        x, w_in, w_out, ids, weights, bias_in, bias_out = drawn_operands(ctx, case, gate, seed)
        turned = [w.mT.contiguous() for w in (w_in, w_out)]  # as torch's linear has them
        (in8, in_scale), (out8, out_scale) = (ctx.lib.cast(w, "128x128") for w in turned)
        layer = Layer(gate=gate, activation="silu", limit=case["limit"] if gate else 0.0)
        words = {
            "gate": gate, "gate_limit": layer.limit, "bias_in": bias_in, "bias_out": bias_out,
            "scaling": "1x128_128x128", "w_in_scale": in_scale.mT, "w_out_scale": out_scale.mT,
        }  # fmt: skip
        got = ctx.lib.moe(x, in8.mT, out8.mT, ids, weights, **words)
        narrow = cast(x, 1)
        wide = [cast(w, 128).mT for w in turned]
        want = torch.zeros(case["tokens"], case["n"], dtype=torch.float64, device=ctx.device)
        for expert in range(case["experts"]):
            token, choice = (ids == expert).nonzero(as_tuple=True)
            if not len(token):
                continue
            z = narrow[token] @ wide[0][expert] + (bias_in[expert].double() if case["bias"] else 0)
            h = cast(activated(z.to(dtype).double(), layer), 1)
            y = (h @ wide[1][expert] + (bias_out[expert].double() if case["bias"] else 0)).to(dtype).double()
            want.index_add_(0, token, y * (1 if weights is None else weights[token, choice].double()[:, None]))
        error = (got.double() - want).norm() / want.norm().clamp_min(1e-30)
        # Z's last bit moves some of H to e4m3's next number: 2^-3 of itself, of one in a hundred or so.
        problems = [] if error <= 2e-2 else [f"off by {error:.2e} of its size [{case}]"]
        same = torch.equal(got, ctx.lib.moe(x, in8.mT, out8.mT, ids, weights, **words))
        yield problems + [f"another result the second time [{case}]"] * (not same)
