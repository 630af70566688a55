"""Named checks of training a layer of experts: its gate by itself, that gate's gradient, and whole layers' gradients.

Values are held against float64, whose gradients torch derives.
"""

import contextlib
import itertools
import random
from unittest import mock

import torch

from .edge import Context
from .edge_moe import ROUNDING, Layer, activated, compared, drawn_operands
from .guarded import Arena
from .reference import U_ACC

GATES = (
    ("halves", "silu", 0.0), ("pairs", "silu", 0.0), ("halves", "silu", 1.0), ("pairs", "silu", 1.0),
    ("halves", "gelu", 0.0), ("pairs", "relu", 0.0), ("halves", None, 0.0), (None, "silu", 0.0),
    (None, "gelu", 0.0), (None, "relu", 0.0),
)  # fmt: skip


def gates(ctx: Context):
    """Rows of any width and alignment, poisoned where nothing is asked; choices of no row, weights of any type."""
    sizes = ((7, 3, 72, 0), (5, 2, 77, 3), (40, 8, 1032, 0), (3, 1, 2500, 1), (1, 1, 8, 0))
    for seed, ((tokens, top_k, n, pad), (gate, activation, limit)) in enumerate(itertools.product(sizes, GATES)):
        dtype = (torch.bfloat16, torch.float16)[seed % 2]
        weights_type = (None, torch.float32, torch.bfloat16, torch.float16)[seed % 4]
        new = {"device": ctx.device, "generator": torch.Generator(ctx.device).manual_seed(seed)}
        layer = Layer(gate=gate, activation=activation, limit=limit)
        words = {"gate": gate, "activation": activation, "gate_limit": limit}
        count, columns = tokens * top_k + 4, n * (2 if gate else 1)
        given, out = Arena(dtype, ctx.device, "Z"), Arena(dtype, ctx.device, "H")
        given.place((count, columns), pad)
        given.place((count, n), pad)
        out.place((count, n), pad)
        (z, grad), (h,) = given.inputs(new["generator"]).views, out.outputs().views
        out.freeze()
        wide = z.double().requires_grad_()
        with torch.enable_grad():
            made = activated(wide, layer)
            (slopes,) = torch.autograd.grad(made, wide, grad.double())
        ctx.lib.moe_gate(z, **words, out=h)
        what = f"{tokens} x {top_k} x {n} {dtype} {words} weights {weights_type}"
        yield compared(h, made.detach(), what) + [f"{x} [{what}]" for x in out.problems()]

        places = torch.randperm(count, **new)[: tokens * top_k].view(tokens, top_k).int()
        places[torch.rand(places.shape, **new) < 0.2] = (-1, count)[seed % 2]
        there = (places >= 0) & (places < count)
        at = places[there].long()
        share = None if weights_type is None else torch.rand(places.shape, **new).to(weights_type)
        own = torch.ones(len(at), dtype=torch.float64, device=ctx.device) if share is None else share[there].double()
        dz, weighted, sums = ctx.lib.moe_gate_grad(z, grad, places, share, **words)
        problems = compared(dz[at], slopes[at] * own[:, None], f"dz {what}")
        problems += compared(weighted[at], made.detach()[at] * own[:, None], f"h {what}")
        exact = torch.zeros(places.shape, dtype=torch.float64, device=ctx.device)
        exact[there] = (made.detach() * grad.double()).sum(1)[at]
        close = torch.allclose(sums.double(), exact, rtol=1e-4, atol=1e-4 * n**0.5)
        yield problems + ([] if close else [f"sums are off by {(sums - exact).abs().max():.1e} [{what}]"])


@contextlib.contextmanager
def chain(ctx: Context):
    """The layer's forward and backward pass as torch runs them; by the stand-in's calls where that is the library."""
    from libgemm.frameworks.torch import layer_kernels

    with mock.patch.object(layer_kernels, "libgemm", ctx.lib) if ctx.stand_in else contextlib.nullcontext():
        yield layer_kernels


def gradients(ctx: Context, given: list, words: tuple, grad: torch.Tensor) -> list:
    """The layer, and its gradients to those of `given` that are tensors of floating point."""
    if ctx.stand_in:
        x, w_in, w_out, ids, weights, bias_in, bias_out = given
        with chain(ctx) as kernels:
            made, *kept = kernels.forward(*given, *words)
            wants = [True, True, True, weights is not None, bias_in is not None, bias_out is not None]
            found = kernels.backward(grad, x, w_in, w_out, ids, weights, bias_out, *kept, *words, wants)
        return [made, *(g for g, wanted in zip(found, wants, strict=True) if wanted)]
    import libgemm.torch

    x, w_in, w_out, ids, weights, bias_in, bias_out = given
    leaves = [t.requires_grad_() for t in (x, w_in, w_out, weights, bias_in, bias_out) if t is not None]
    with torch.enable_grad():
        made = libgemm.torch.moe(
            x, w_in, w_out, ids, weights, bias_in=bias_in, bias_out=bias_out,
            **dict(zip(("activation", "gate", "gate_alpha", "gate_limit"), words, strict=True)),
        )  # fmt: skip
        return [made.detach(), *torch.autograd.grad(made, leaves, grad)]


def exactly(given: list, layer: Layer, grad: torch.Tensor, kept: torch.Tensor) -> tuple[list, float, float]:
    """In float64, but for Z, which the layer keeps rounded ([tokens, top_k, columns]): at a limit slopes depend on its
    last bit, and so on how its sum was rounded. And the size of what adds up to the gradient of the weights, each a sum
    whose terms may cancel; and how far the kept Z is from the exact one, in units that rounding allows."""
    x, w_in, w_out, ids, weights, bias_in, bias_out = given
    dtype, far = x.dtype, 0.0
    leaves = [None if t is None else t.detach().double().requires_grad_()
              for t in (x, w_in, w_out, weights, bias_in, bias_out)]  # fmt: skip
    x, w_in, w_out, weights, bias_in, bias_out = leaves
    made, terms = torch.zeros(len(x), w_out.shape[2], dtype=torch.float64, device=x.device), 0.0
    with torch.enable_grad():
        for expert in range(len(w_in)):
            token, choice = (ids == expert).nonzero(as_tuple=True)
            z = x[token] @ w_in[expert] + (0 if bias_in is None else bias_in[expert])
            own = kept[token, choice]
            if len(token):
                terms_of_z = (
                    x[token].abs() @ w_in[expert].abs() + (0 if bias_in is None else bias_in[expert].abs())
                ).detach()
                # One rounding, and what reference.py allows a sum in float32.
                allowed = ROUNDING[dtype] * z.detach().abs() + 2 * (x.shape[1] + 4) * U_ACC * 1.01 * terms_of_z
                far = max(far, float(((own - z.detach()).abs() / allowed).max()))
            z = z + (own - z).detach()
            h = activated(z, layer)
            terms += float(((grad[token].double() @ w_out[expert].mT) * h).detach().square().sum())
            y = h @ w_out[expert] + (0 if bias_out is None else bias_out[expert])
            made = made.index_add(0, token, y * (1 if weights is None else weights[token, choice][:, None]))
        found = torch.autograd.grad(made, [t for t in leaves if t is not None], grad.double())
    return [made.detach(), *found], terms**0.5, far


def random_training(seed: int) -> dict:
    draw = random.Random(f"training of experts {seed}")
    return {
        "tokens": draw.choice((1, 5, 33, 150, 500)), "top_k": draw.choice((1, 2, 4, 8)),
        "experts": draw.choice((2, 4, 9, 30)), "k": draw.choice((64, 136, 256, 72)),
        "inner": draw.choice((64, 72, 128, 200)), "n": draw.choice((64, 136, 256)),
        "gate": draw.choice(GATES), "dtype": draw.choice((torch.bfloat16, torch.float16)),
        "turned": (draw.random() < 0.7, draw.random() < 0.7), "bias": draw.random() < 0.5,
        "skipped": draw.random() < 0.4, "weights": draw.choice((None, torch.float32, torch.bfloat16)),
    }  # fmt: skip


def trained_layers(ctx: Context):
    """Layers of any size: values and all gradients, which rounding in between may move by so much; and twice alike."""
    for seed in ctx.seeds(10 if ctx.stand_in else 300):
        case = random_training(seed)
        dtype, (gate, activation, limit) = case["dtype"], case["gate"]
        given = drawn_operands(ctx, case, gate, seed)
        weights = given[4]
        noise = torch.Generator(ctx.device).manual_seed(~seed & 0xFFFFFFFF)
        grad = torch.randn(case["tokens"], case["n"], device=ctx.device, generator=noise).to(dtype)
        words = (activation, gate, 1.702, limit)
        found = gradients(ctx, given, words, grad)
        names = ["out", "x", "w_in", "w_out", *["weights"] * (weights is not None),
                 *["bias_in", "bias_out"] * case["bias"]]  # fmt: skip
        with chain(ctx) as kernels:
            _, z, _, places, _ = kernels.forward(*(x if x is None else x.detach() for x in given), *words)
        kept = z[places.clamp(min=0).long()].double()
        wanted, terms, apart = exactly(given, Layer(gate=gate, activation=activation, limit=limit), grad, kept)
        problems = [] if apart <= 1 else [f"Z is {apart:.2f} roundings off [{case}]"]
        for name, got, want in zip(names, found, wanted, strict=True):
            size = want.norm().clamp_min(terms if name == "weights" else 1e-3)
            error = (got.double() - want).norm() / size.clamp_min(1e-30)
            if not error <= 4 * ROUNDING[dtype] + ROUNDING.get(got.dtype, 0.0):
                problems.append(f"{name} is off by {error:.2e} of its size [{case}]")
        again = gradients(ctx, given, words, grad)
        same = all(map(torch.equal, found, again))
        yield problems + ([] if same else [f"another result the second time [{case}]"])
