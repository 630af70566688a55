"""Layers of experts beside transformers' own way to run them, on one GPU: a table and a report.

    python bench/measure/experts.py [--drawn 40] [--seed N] [--out FOLDER]

Layers are those of public models, in bf16, behind a router that is the same for both ways: from prompts of 4096 tokens
to one token, in CUDA graphs and, of few tokens, as eager calls; and a training step of 4096 tokens, forward and back,
with gradients to the tokens, the router and all weights. The peer is transformers' experts_implementation="grouped_mm"
(torch's grouped_mm and what it needs around it) where that is installed, else the same steps by torch. The same module
runs both ways, over rotated tokens, in alternation; libgemm's parts run so too, and beside its first product, with the
gather and the gate, triton_kernels' where that is installed (peer_triton_kernels.py). Each layer's numbers and
gradients are held against the peer's. Then layers drawn with a new seed (experts_drawn.py). Writes
bench/results/<device>.moe.json.
"""

import argparse
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

import libgemm  # noqa: E402
import libgemm.torch  # noqa: E402
import torch  # noqa: E402
from libgemm.frameworks.torch.of_transformers import experts_forward, gate_of  # noqa: E402

from bench.measure import about, peer_triton_kernels  # noqa: E402
from bench.measure.experts_drawn import drawn, step  # noqa: E402
from bench.measure.timing import alternate, alternate_launched  # noqa: E402
from bench.suites.roofline import BYTES  # noqa: E402

# model -> experts, choices of a token, hidden size, inner size; gpt-oss has biases, pairs, and weights by columns
MODELS = {
    "Qwen3-30B-A3B": (128, 8, 2048, 768),
    "gpt-oss-20b": (32, 4, 2880, 2880),
    "Mixtral 8x7B": (8, 2, 4096, 14336),
    "DeepSeek-V3, 64 experts": (64, 8, 7168, 2048),
}
PROMPT, DECODE = 4096, (64, 8, 1)  # tokens
PARTS = ("route", "first", "second", "sum")
ROUNDS = 3  # over the inputs, in a graph of one part: its start, some microseconds, is nobody's work


class Experts(torch.nn.Module):
    """As transformers' modules of experts are: their names, their layouts."""

    def __init__(self, model: str, sizes: tuple[int, int, int, int] | None = None):
        super().__init__()
        self.num_experts, self.top_k, hidden, inner = sizes or MODELS[model]
        own = model.startswith("gpt-oss")
        new = {"device": "cuda", "dtype": torch.bfloat16}
        shapes = ((hidden, 2 * inner), (inner, hidden))
        made = [torch.randn(self.num_experts, *(s if own else s[::-1]), **new) * s[0] ** -0.5 for s in shapes]
        self.gate_up_proj, self.down_proj = made
        self.has_gate, self.has_bias, self.is_transposed = True, own, own
        self.hidden, self.inner = hidden, inner
        self.router = torch.randn(hidden, self.num_experts, **new) * hidden**-0.5
        self.act_fn = torch.nn.SiLU()
        if own:
            self.alpha, self.limit = 1.702, 7.0
            self.gate_up_proj_bias = torch.randn(self.num_experts, 2 * inner, **new)
            self.down_proj_bias = torch.randn(self.num_experts, hidden, **new)


def _default_apply_gate(module: Experts, z: torch.Tensor) -> torch.Tensor:
    if not module.has_bias:
        gate, up = z.chunk(2, -1)
        return module.act_fn(gate) * up
    gate, up = z[..., ::2].clamp(max=module.limit), z[..., 1::2].clamp(-module.limit, module.limit)
    return (up + 1) * (gate * torch.sigmoid(gate * module.alpha))


# Its name, transformers' own, says that it is no class's own way: libgemm reads of a module's fields how it gates.
Experts._apply_gate = _default_apply_gate


def by_torch(module, x, ids, weights):
    """The steps of transformers' "grouped_mm", for a machine without it."""
    flat = ids.reshape(-1)
    order = torch.argsort(flat, stable=True)
    ends = torch.histc(flat.float(), module.num_experts, 0, module.num_experts - 1).cumsum(0, dtype=torch.int32)
    w = [y if module.is_transposed else y.mT for y in (module.gate_up_proj, module.down_proj)]
    expert = flat[order]
    z = torch._grouped_mm(x[order // ids.shape[1]], w[0], offs=ends)
    z = z + module.gate_up_proj_bias[expert] if module.has_bias else z
    y = torch._grouped_mm(module._apply_gate(z), w[1], offs=ends)
    y = y + module.down_proj_bias[expert] if module.has_bias else y
    y = y * weights.reshape(-1)[order, None].to(y.dtype)
    return torch.empty_like(y).index_copy_(0, order, y).view(*ids.shape, -1).sum(1)


def peer_of() -> tuple[str, object]:
    try:
        import transformers
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    except ImportError:
        return "torch", by_torch
    return f"transformers {transformers.__version__}", ALL_EXPERTS_FUNCTIONS["grouped_mm"]


LEAVES = ("router", "gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")


def route(module: Experts, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A router as Qwen3's and Mixtral's is: the best by softmax, weights that add up to 1."""
    weights, ids = (x @ module.router).float().softmax(1).topk(module.top_k, 1)
    return ids, (weights / weights.sum(1, keepdim=True)).to(x.dtype)


def choices(module: Experts, tokens: int) -> SimpleNamespace:
    x = torch.randn(tokens, module.hidden, device="cuda", dtype=torch.bfloat16)
    ids, weights = route(module, x)
    return SimpleNamespace(x=x, ids=ids, weights=weights)


def block(module: Experts, way, x: torch.Tensor) -> torch.Tensor:
    ids, weights = route(module, x)
    made: torch.Tensor = way(module, x, ids, weights)
    return made


def parts_of(module: Experts, given: list[SimpleNamespace]) -> dict:
    """libgemm's four calls, each on what those before it left."""
    w = [y if module.is_transposed else y.mT for y in (module.gate_up_proj, module.down_proj)]
    bias = [getattr(module, name, None) for name in ("gate_up_proj_bias", "down_proj_bias")]
    for one in given:
        one.rows, one.places, one.offs = libgemm.moe_route(one.ids, module.num_experts)
        one.hidden = one.x.new_empty(one.ids.numel(), module.inner)
        one.made = one.x.new_empty(one.ids.numel(), module.hidden)
        one.out = torch.empty_like(one.x)
    words = gate_of(module)
    return {
        "route": lambda x: libgemm.moe_route(x.ids, module.num_experts),
        "first": lambda x: libgemm.moe_mm(x.x, w[0], x.offs, rows=x.rows, bias=bias[0], out=x.hidden, **words),
        "second": lambda x: libgemm.grouped_mm(x.hidden, w[1], x.offs, bias=bias[1], out=x.made),
        "sum": lambda x: libgemm.moe_sum(x.made, x.places, x.weights, out=x.out),
    }


def apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm())


def compare(model: str, module: Experts, what: str, tokens: int, mode: str, peer) -> dict:
    """One row of the report."""
    given = [choices(module, tokens) for _ in range(2 if what == "train" else 3)]
    ways = {"libgemm": experts_forward, "torch": peer}
    row = {"model": model, "what": what, "tokens": tokens, "mode": mode}
    if what == "train":
        for one in given:
            one.grad = torch.randn(tokens, module.hidden, device="cuda", dtype=torch.bfloat16)
        calls = {
            name: lambda one, way=way: step(module, lambda: block(module, way, one.x), one, LEAVES)
            for name, way in ways.items()
        }
    else:
        calls = {name: lambda one, way=way: block(module, way, one.x) for name, way in ways.items()}
    with torch.no_grad():
        ours, theirs = (call(given[0]) for call in calls.values())
        pairs = zip(ours, theirs, strict=True) if what == "train" else [(ours, theirs)]
        row["difference"] = max(apart(x, y) for x, y in pairs)
        del ours, theirs, pairs
        if not row["difference"] < 3e-2:
            raise ArithmeticError(f"{model}, {what}, {tokens} tokens: the results differ by {row['difference']:.2e}")
        inputs = [(one,) for one in given]
        if mode == "eager":
            us = alternate_launched(calls, inputs, 6 if what == "train" else 40)
        else:
            parts = parts_of(module, given)
            peers = peer_triton_kernels.first_product(module, given)
            us = alternate(calls, inputs, 50.0) | alternate(parts | peers, inputs * ROUNDS, 50.0)
            row["peers"] = {f"{name}, first": us.pop(name) for name in peers}
            bytes_of_sum = (tokens * module.top_k + tokens) * module.hidden * 2
            row["sum_floor_us"] = bytes_of_sum / BYTES * 1e6
    return row | {f"{name}_us": value for name, value in us.items()}


def cases():
    """What is measured of each model: (what, tokens, mode)."""
    yield "prefill", PROMPT, "graph"
    yield "train", PROMPT, "eager"
    for mode in ("graph", "eager"):
        for tokens in DECODE:
            yield "decode", tokens, mode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drawn", type=int, default=40, metavar="LAYERS")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    name, peer = peer_of()
    head = {**about.head(), "peer": name}
    rows = []
    print(f"peer: {name}")
    print(f"{'layer of experts, us':26}{'':>22}{'libgemm':>9}{'peer':>9}{'ratio':>7}   route, first, second, sum")
    for model in MODELS:
        module = Experts(model)
        for what, tokens, mode in cases():
            row = compare(model, module, what, tokens, mode, peer)
            rows.append(row)
            parts = ", ".join(f"{row[f'{part}_us']:.1f}" for part in PARTS if f"{part}_us" in row)
            ratio = row["torch_us"] / row["libgemm_us"]
            for peer_name, peer_us in row.get("peers", {}).items():
                parts += f"; {peer_name} {peer_us:.1f}: {peer_us / row['first_us']:.2f}"
            where = f"{what} {tokens} {mode}"
            print(
                f"{model:26}{where:>22}{row['libgemm_us']:9.1f}{row['torch_us']:9.1f}{ratio:7.2f}   {parts}", flush=True
            )
        del module
        torch.cuda.empty_cache()
    timers = {
        "forward": lambda calls, inputs: alternate(calls, inputs, 50.0),
        "train": lambda calls, inputs: alternate_launched(calls, inputs, 6),
    }
    ways = {"libgemm": experts_forward, "torch": peer}
    others = drawn(options.seed, options.drawn, Experts, ways, timers, apart)
    found = {**head, "rows": rows, "drawn": others}
    about.keep(about.path_of(head, options.out, ".moe.json"), json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
