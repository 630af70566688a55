"""What torch.compile makes of libgemm's layers: numbers and times beside the same layers called one by one.

    python bench/measure/compiled.py

A multi-layer perceptron and a router with its experts, in bf16, each compiled whole (fullgraph) by inductor, which
needs Triton; eager calls one after the other, and both in CUDA graphs. Writes no report.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

import libgemm.torch  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from bench.measure.timing import alternate, alternate_launched  # noqa: E402

TOKENS, HIDDEN, INNER, EXPERTS, TOP_K = 2048, 1024, 4096, 32, 4


class Perceptron(torch.nn.Module):
    def __init__(self, **words):
        super().__init__()
        self.first, self.second = (
            libgemm.torch.Linear(HIDDEN, INNER, **words),
            libgemm.torch.Linear(INNER, HIDDEN, **words),
        )
        self.norm = torch.nn.RMSNorm(HIDDEN, **words)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(self.norm(x)), approximate="tanh"))


class Block(torch.nn.Module):
    def __init__(self, **words):
        super().__init__()
        self.norm, self.router = torch.nn.RMSNorm(HIDDEN, **words), libgemm.torch.Linear(HIDDEN, EXPERTS, **words)
        self.experts = libgemm.torch.Experts(EXPERTS, HIDDEN, INNER // 8, **words)

    def forward(self, x):
        seen = self.norm(x)
        weights, ids = self.router(seen).softmax(-1, dtype=torch.float32).topk(TOP_K)
        return x + self.experts(seen, ids, weights / weights.sum(-1, keepdim=True))


def main() -> int:
    torch.manual_seed(0)
    words = {"device": "cuda", "dtype": torch.bfloat16}
    print(f"{'us':12}{'eager':>10}{'compiled':>10}{'ratio':>7}{'graph':>10}{'compiled':>10}{'ratio':>7}{'apart':>9}")
    for kind in (Perceptron, Block):
        layer = kind(**words)
        given = [(torch.randn(TOKENS, HIDDEN, **words),) for _ in range(3)]
        with torch.no_grad():
            compiled = torch.compile(layer, fullgraph=True)
            made, wanted = compiled(*given[0]).float(), layer(*given[0]).float()
            apart = float((made - wanted).norm() / wanted.norm())
            if not apart < 1e-2:
                raise ArithmeticError(f"{kind.__name__}: compiled and eager differ by {apart:.1e}")
            calls = {"eager": layer, "compiled": compiled}
            launched, graph = alternate_launched(calls, given, 60), alternate(calls, given, 50.0)
        shown = [
            f"{us['eager']:10.1f}{us['compiled']:10.1f}{us['eager'] / us['compiled']:7.2f}" for us in (launched, graph)
        ]
        print(f"{kind.__name__:12}{''.join(shown)}{apart:9.1e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
