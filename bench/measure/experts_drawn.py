"""Whole layers of experts drawn anew, beside torch's steps: a part of experts.py's report. Proves no numerics.

The experts alone, without a router: who goes where is drawn from a Dirichlet distribution over the experts, each token
to different ones.
"""

from types import SimpleNamespace

import torch

from bench.suites.layers_drawn import whole_layers

WEIGHTS = ("gate_up_proj", "down_proj")


def routed(layer: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and weights [tokens, top_k]: the largest of each token's random numbers around the experts' shares."""
    share = torch.distributions.Dirichlet(torch.full((layer["experts"],), layer["alpha"])).sample().clamp(min=1e-9)
    uniform = torch.rand(layer["tokens"], layer["experts"], device="cuda").clamp(min=1e-9)
    scores = share.log().to(uniform.device) - (-uniform.log()).log()
    weights, ids = scores.topk(layer["top_k"], 1)
    return ids, weights.softmax(1).to(torch.bfloat16)


def given(layer: dict) -> SimpleNamespace:
    x, grad = (torch.randn(layer["tokens"], layer["hidden"], device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ids, weights = routed(layer)
    return SimpleNamespace(x=x, ids=ids, weights=weights, grad=grad)


def forward(module, way, one: SimpleNamespace) -> list[torch.Tensor]:
    return [way(module, one.x, one.ids, one.weights)]


def step(module, run, one: SimpleNamespace, weights: tuple[str, ...]) -> list[torch.Tensor]:
    """Forward and back: what `run` makes of the tokens one.x, and gradients to these and to those of the weights that
    the module has."""
    leaves = [one.x, *(getattr(module, name) for name in weights if hasattr(module, name))]
    for leaf in leaves:
        leaf.requires_grad_()
    with torch.enable_grad():
        made = run()
        found = [made.detach(), *torch.autograd.grad(made, leaves, one.grad)]
    for leaf in leaves:
        leaf.requires_grad_(False)
    return found


def trained(module, way, one: SimpleNamespace) -> list[torch.Tensor]:
    return step(module, lambda: way(module, one.x, one.ids, one.weights), one, WEIGHTS)


def compare(layer: dict, make_module, ways: dict, timers: dict, apart) -> dict:
    """One row: the layer, and microseconds of each way, in CUDA graphs or, trained, in eager calls."""
    module = make_module(layer["model"], tuple(layer[name] for name in ("experts", "top_k", "hidden", "inner")))
    inputs = [(given(layer),) for _ in range(2)]
    run = trained if layer["what"] == "train" else forward
    calls = {name: lambda one, way=way: run(module, way, one) for name, way in ways.items()}
    with torch.no_grad():
        ours, theirs = (call(*inputs[0]) for call in calls.values())
        difference = max(apart(x, y) for x, y in zip(ours, theirs, strict=True))
        del ours, theirs
        if not difference < 3e-2:
            raise ArithmeticError(f"{layer}: the results differ by {difference:.2e}")
        us = timers[layer["what"]](calls, inputs)
    return {**layer, "difference": difference, **{f"{name}_us": value for name, value in us.items()}}


def drawn(seed: int, count: int, make_module, ways: dict, timers: dict, apart) -> dict:
    """{seed, rows}, a line printed for each. `timers` say how a layer is timed, by what is done with it."""
    rows = []
    torch.manual_seed(seed)
    for layer in whole_layers(seed, count):
        row = compare(layer, make_module, ways, timers, apart)
        rows.append(row)
        sizes = f"{row['tokens']} tokens, {row['experts']} x {row['hidden']} x {row['inner']}, alpha {row['alpha']}"
        print(f"{row['model']:20}{row['what']:>8} {sizes:42}{row['libgemm_us']:9.1f}{row['torch_us']:9.1f}"
              f"{row['torch_us'] / row['libgemm_us']:7.2f}", flush=True)  # fmt: skip
        torch.cuda.empty_cache()
    return {"seed": seed, "rows": rows}
