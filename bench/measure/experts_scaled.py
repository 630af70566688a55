"""Layers of experts with 8-bit weights beside the same in bf16, on one GPU: a table and a report.

    python bench/measure/experts_scaled.py [--out FOLDER]

Layers are those of experts.py, of a prompt of 4096 tokens and of few, in CUDA graphs over rotated tokens, in
alternation: libgemm.moe with weights cast by 128 x 128, libgemm.moe in bf16, and torch's steps in bf16. How far each is
from the layer in float32 is told. Writes bench/results/<device>.moe_fp8.json.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

import libgemm  # noqa: E402
import torch  # noqa: E402

from bench.measure import about  # noqa: E402
from bench.measure.experts import DECODE, MODELS, PROMPT, Experts, by_torch, choices  # noqa: E402
from bench.measure.timing import alternate  # noqa: E402

GUESS_US = 50  # for how often a graph is replayed
ROTATED = 4  # tokens; the weights of most layers are past L2 by themselves
FAR = 0.1  # of the layer's size: no rounding to 8 bits is that far off


def weights_of(module: Experts) -> tuple[list, list]:
    """w_in and w_out in bf16 as moe() takes them, and in 8 bits with their scales, K one behind the other."""
    wide = [w if module.is_transposed else w.mT for w in (module.gate_up_proj, module.down_proj)]
    narrow = [libgemm.cast(w.mT.contiguous(), "128x128") for w in wide]
    return wide, [(values.mT, scale.mT) for values, scale in narrow]


def words_of(module: Experts) -> dict:
    own = module.has_bias
    return {
        "gate": "pairs" if own else "halves", "gate_limit": module.limit if own else 0.0,
        "bias_in": getattr(module, "gate_up_proj_bias", None), "bias_out": getattr(module, "down_proj_bias", None),
    }  # fmt: skip


def calls(module: Experts) -> dict:
    wide, ((in8, in_scale), (out8, out_scale)) = weights_of(module)
    words = words_of(module)
    scaled = words | {"scaling": "1x128_128x128", "w_in_scale": in_scale, "w_out_scale": out_scale}
    return {
        "fp8": lambda one: libgemm.moe(one.x, in8, out8, one.ids, one.weights, **scaled),
        "bf16": lambda one: libgemm.moe(one.x, *wide, one.ids, one.weights, **words),
        "torch": lambda one: by_torch(module, one.x, one.ids, one.weights),
    }


def exactly(module: Experts, one) -> torch.Tensor:
    """The layer in float32, of the bf16 weights."""
    wide = [w if module.is_transposed else w.mT for w in (module.gate_up_proj, module.down_proj)]
    made = torch.zeros(one.x.shape, device=one.x.device)
    for expert in one.ids.unique().tolist():
        token, choice = (one.ids == expert).nonzero(as_tuple=True)
        z = one.x[token].float() @ wide[0][expert].float()
        z = z + module.gate_up_proj_bias[expert].float() if module.has_bias else z
        y = module._apply_gate(z) @ wide[1][expert].float()
        y = y + module.down_proj_bias[expert].float() if module.has_bias else y
        made.index_add_(0, token, y * one.weights[token, choice].float()[:, None])
    return made


def errors(module: Experts, ways: dict, one) -> dict:
    exact = exactly(module, one)
    found = {name: float((way(one).float() - exact).norm() / exact.norm()) for name, way in ways.items()}
    if not max(found.values()) <= FAR:
        raise SystemExit(f"a layer is far from itself in float32: {found}")
    return found


def measure(model: str) -> list[dict]:
    module = Experts(model)
    ways, rows = calls(module), []
    for tokens in (PROMPT, *DECODE):
        given = [(choices(module, tokens),) for _ in range(ROTATED)]
        off = errors(module, ways, given[0][0])
        us = alternate(ways, given, GUESS_US)
        rows.append({"model": model, "tokens": tokens, "us": us, "errors": off})
        ratios = f"{us['bf16'] / us['fp8']:.2f} of its bf16 self, {us['torch'] / us['fp8']:.2f} of torch"
        far = f"off by {off['fp8']:.4f} (bf16 {off['bf16']:.4f}, torch {off['torch']:.4f})"
        print(f"{model:24} {tokens:5} tokens: {ratios}; {far}")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    with torch.no_grad():
        for model in MODELS:
            rows += measure(model)
    head = about.head()
    about.keep(about.path_of(head, options.out, ".moe_fp8.json"), json.dumps({**head, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
