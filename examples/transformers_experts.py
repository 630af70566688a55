"""A mixture-of-experts model of transformers, run and trained by three ways to compute its experts.

    python examples/transformers_experts.py [--layers 4] [--tokens 2048] [--device cuda]

The model is Qwen3-30B-A3B's, cut to a few layers, with random weights: nothing is downloaded. Needs torch, transformers
5.17 or newer and libgemm. Prints for each way the logits' distance from the first's, and milliseconds of a forward pass
and of a training step.
"""

import argparse
import time

import libgemm.torch
import torch
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

WAYS = ("eager", "grouped_mm", "libgemm")


def make_model(layers: int, device: str, hidden: int = 2048, inner: int = 768, experts: int = 128):
    config = Qwen3MoeConfig(
        vocab_size=32000, hidden_size=hidden, moe_intermediate_size=inner, num_experts=experts, num_experts_per_tok=8,
        num_hidden_layers=layers, num_attention_heads=16, num_key_value_heads=4, norm_topk_prob=True,
    )  # fmt: skip
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).to(device)


def milliseconds(call, device: str, times: int = 5) -> float:
    """The median of a few calls, one after the other."""
    found = []
    for _ in range(times + 1):
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append((time.perf_counter() - start) * 1e3)
    return sorted(found[1:])[times // 2]  # the first one warms up


def compare(model, ids: torch.Tensor, ways=WAYS) -> dict[str, dict[str, float]]:
    """Of each way: its logits' distance from the first's, relative to their size, and its times."""
    device, first, found = ids.device.type, None, {}
    for way in ways:
        model.set_experts_implementation(way)
        with torch.no_grad():
            logits = model(ids).logits.float()
            forward = milliseconds(lambda: model(ids), device)
        first = logits if first is None else first
        step = milliseconds(lambda: model(ids, labels=ids).loss.backward(), device)
        model.zero_grad()
        apart = float((logits - first).norm() / first.norm())
        found[way] = {"apart": apart, "forward_ms": forward, "step_ms": step}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    libgemm.torch.register_transformers()
    model = make_model(options.layers, options.device)
    ids = torch.randint(32000, (1, options.tokens), device=options.device)
    print(f"{'experts':12}{'apart':>10}{'forward, ms':>13}{'step, ms':>10}")
    for way, row in compare(model, ids).items():
        print(f"{way:12}{row['apart']:10.1e}{row['forward_ms']:13.2f}{row['step_ms']:10.2f}")


if __name__ == "__main__":
    main()
