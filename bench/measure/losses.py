"""Trains a small mixture of experts by libgemm's layers and by torch's, from the same seed: how far losses part.

    python bench/measure/losses.py [--steps 300] [--out FOLDER]

Four layers of attention and experts in bf16 (torch.autocast, float32 weights, AdamW) learn to tell the next token of
texts that a random machine of two states writes. The curves: torch's grouped_mm and what it needs around it, as in
experts.py, and libgemm.torch.moe, both from one seed; and torch's from another seed for its weights, which shows what
chance does. No speed is measured. Writes bench/results/<device>.losses.json.
"""

import argparse
import json
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

import libgemm.torch  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from bench.measure import about  # noqa: E402
from bench.measure.experts import by_torch  # noqa: E402

WORDS, LENGTH, BATCH = 512, 128, 16
LAYERS, HIDDEN, HEADS, EXPERTS, TOP_K, INNER = 4, 256, 4, 16, 2, 384
DEVICE = "cuda"


class Experts(torch.nn.Module):
    """A router and its experts, by libgemm or by torch."""

    def __init__(self, ours: bool):
        super().__init__()
        self.ours, self.num_experts, self.has_bias, self.is_transposed = ours, EXPERTS, False, False
        self.router = torch.nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.gate_up_proj = torch.nn.Parameter(torch.randn(EXPERTS, 2 * INNER, HIDDEN) * HIDDEN**-0.5)
        self.down_proj = torch.nn.Parameter(torch.randn(EXPERTS, HIDDEN, INNER) * INNER**-0.5)

    def _apply_gate(self, z: torch.Tensor) -> torch.Tensor:
        gate, up = z.chunk(2, -1)
        return F.silu(gate) * up

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, HIDDEN)
        weights, ids = self.router(flat).float().softmax(-1).topk(TOP_K)
        weights = weights / weights.sum(-1, keepdim=True)
        if self.ours:
            made = libgemm.torch.moe(flat, self.gate_up_proj.mT, self.down_proj.mT, ids, weights)
        else:
            narrow = {name: getattr(self, name).to(torch.bfloat16) for name in ("gate_up_proj", "down_proj")}
            own = SimpleNamespace(num_experts=EXPERTS, has_bias=False, is_transposed=False, **narrow)
            own._apply_gate = self._apply_gate
            made = by_torch(own, flat.to(torch.bfloat16), ids, weights)
        return made.view(x.shape)


class Layer(torch.nn.Module):
    def __init__(self, ours: bool):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(HIDDEN) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(HIDDEN, 3 * HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)
        self.experts = Experts(ours)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.experts(self.norms[1](x))


class Model(torch.nn.Module):
    def __init__(self, ours: bool):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, HIDDEN), torch.nn.Embedding(LENGTH, HIDDEN)
        self.layers = torch.nn.Sequential(*(Layer(ours) for _ in range(LAYERS)))
        self.norm, self.head = torch.nn.LayerNorm(HIDDEN), torch.nn.Linear(HIDDEN, WORDS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.layers(x)))


def texts(steps: int) -> torch.Tensor:
    """[steps, BATCH, LENGTH + 1] words: the next one hangs on this one and on a state that turns at some of them."""
    chance = torch.Generator().manual_seed(7)
    follows = torch.rand(2, WORDS, WORDS, generator=chance).pow(12)
    turns = torch.rand(WORDS, generator=chance) < 0.2
    word = torch.randint(WORDS, (steps * BATCH,), generator=chance)
    state, made = torch.zeros_like(word), [word]
    for _ in range(LENGTH):
        word = torch.multinomial(follows[state, word], 1, generator=chance)[:, 0]
        state = state ^ turns[word].long()
        made.append(word)
    return torch.stack(made, 1).view(steps, BATCH, LENGTH + 1)


def train(ours: bool, seed: int, data: torch.Tensor) -> list[float]:
    torch.manual_seed(seed)
    model = Model(ours).to(DEVICE)
    steps = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    losses = []
    for ids in data.to(DEVICE):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            told = model(ids[:, :-1])
        loss = F.cross_entropy(told.float().flatten(0, 1), ids[:, 1:].flatten())
        steps.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def last(losses: list[float]) -> float:
    """The mean of the last tenth: where a curve ends."""
    own = losses[-max(len(losses) // 10, 1) :]
    return sum(own) / len(own)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    data = texts(options.steps)
    curves = {"libgemm": train(True, 1, data), "torch": train(False, 1, data),
              "torch, another seed": train(False, 2, data)}  # fmt: skip
    for name, losses in curves.items():
        print(f"{name:22} first {losses[0]:.4f}, ends at {last(losses):.4f}")
    head = {**about.head(), "steps": options.steps}
    path = about.path_of(head, options.out, ".losses.json")
    rounded = {name: [round(x, 4) for x in losses] for name, losses in curves.items()}
    ends = {name: round(last(losses), 4) for name, losses in curves.items()}
    about.keep(path, json.dumps({**head, "ends": ends, "curves": rounded}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
