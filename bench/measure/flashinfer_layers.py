"""Layers of experts beside FlashInfer's, whole, on one GPU: a table and a report.

    python bench/measure/flashinfer_layers.py [--models Qwen3,Mixtral] [--tokens 4096,64] [--out FOLDER]

The peer is FlashInfer's layer of CuTe kernels for this GPU (cute_dsl_fused_moe_bf16), tuned by its own tuner for each
number of tokens, where it can be imported. It takes gated layers without biases, its gate's and up's columns in turn
by 32. It adds up a token's rows by atomics in D's type, which is its default, or in float32 and in order, as
libgemm.moe does: both are tuned and told. All run from CUDA graphs over rotated tokens, in alternation, behind the same
choices of experts. Writes bench/results/<device>.flashinfer.json. What is compared of the results is that all
multiplied the same.
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
from bench.measure.experts import MODELS, Experts, apart, choices  # noqa: E402
from bench.measure.timing import alternate  # noqa: E402

NEAR = 3e-2
PEERS = {"flashinfer": False, "flashinfer_ordered": True}  # who -> whether a token's rows are added up in order
GATED = [name for name in MODELS if not name.startswith("gpt-oss")]  # which has biases and pairs


def tuned(call, tokens: int):
    """The call by the tactic that the peer's tuner prefers."""
    from flashinfer.autotuner import AutoTuner, autotune

    with autotune(True, tuning_buckets=(tokens,)):
        call()
    winners = list(AutoTuner.get()._winner_cache().values())
    if not winners:  # it passes over what fails without a word
        raise SystemExit(
            f"FlashInfer's tuner found no tactic for {tokens} tokens that runs: FLASHINFER_LOGGING_LEVEL=DEBUG says "
            "why (it builds a kernel of its own with nvcc to time others)"
        )
    return None if winners[-1][0] == -1 else winners[-1][0]


def peer_layer(module: Experts):
    """(x, ids, weights, out, in_order, tactic) -> the peer's layer."""
    from flashinfer.fused_moe.cute_dsl import cute_dsl_fused_moe_bf16 as fused
    from flashinfer.fused_moe.cute_dsl import sm90_contiguous_gather_grouped_gemm_act_fusion as first

    turned = first.interleave_up_gate_sm90(module.gate_up_proj).contiguous()

    def call(x, ids, weights, out, in_order, tactic=None):
        return fused(
            x, ids, weights, turned, module.down_proj, module.num_experts, module.top_k,
            moe_output=out, use_fused_finalize=not in_order, tactic=tactic,
        )  # fmt: skip

    return call


def compare(name: str, module: Experts, tokens: int, peer) -> dict:
    given = [choices(module, tokens) for _ in range(3)]
    for one in given:
        one.ids, one.weights = one.ids.int().contiguous(), one.weights.float().contiguous()
        one.out, one.other = torch.empty_like(one.x), torch.empty_like(one.x)
    w_in, w_out = module.gate_up_proj.mT, module.down_proj.mT
    first = given[0]
    tactics = {
        who: tuned(lambda order=order: peer(first.x, first.ids, first.weights, first.other, order), tokens)
        for who, order in PEERS.items()
    }
    calls = {"libgemm": lambda one: libgemm.moe(one.x, w_in, w_out, one.ids, one.weights, out=one.out)} | {
        who: lambda one, who=who: peer(one.x, one.ids, one.weights, one.other, PEERS[who], tactics[who])
        for who in PEERS
    }
    row = {"model": name, "tokens": tokens}
    calls["libgemm"](first)
    for who in PEERS:
        first.other.fill_(float("nan"))
        calls[who](first)
        difference = apart(first.out, first.other)
        if not difference <= NEAR:
            raise SystemExit(f"{name}, {tokens} tokens, {who}: the results are {difference:.1e} of their size apart")
        row |= {f"{who}_difference": difference, f"{who}_tactic": str(tactics[who])}
    us = alternate(calls, [(one,) for one in given], 50.0)
    return row | {f"{who}_us": time for who, time in us.items()}


def line(row: dict) -> str:
    peers = "".join(f"{row[f'{who}_us']:10.1f}{row[f'{who}_us'] / row['libgemm_us']:7.2f}" for who in PEERS)
    return f"{row['model']:26}{row['tokens']:6}{row['libgemm_us']:10.1f}{peers}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="beginnings of their names; all by default")
    parser.add_argument("--tokens", default="4096,64")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    import flashinfer

    head = {**about.head(), "flashinfer": flashinfer.__version__}
    rows = []
    for name in GATED:
        if not name.startswith(tuple(options.models.split(","))):
            continue
        module = Experts(name)
        with torch.no_grad():
            peer = peer_layer(module)
            for tokens in map(int, options.tokens.split(",")):
                row = compare(name, module, tokens, peer)
                rows.append(row)
                print(line(row), flush=True)
        del module, peer
        torch.cuda.empty_cache()
    about.keep(
        about.path_of(head, options.out, ".flashinfer.json"), json.dumps({**head, "rows": rows}, indent=1) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
