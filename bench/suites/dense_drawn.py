"""Dense shapes drawn anew for each seed: layers of real models, and log-uniform ones. Nothing is tuned on them.

A seed always gives the same shapes, the first few of which are those of a shorter run. Standard library only.
"""

import math
import random

from bench.suites.draws import LEAST_TRAINED, MOST_TOKENS, dense_key, known_dense, tokens
from bench.suites.packed import LONGEST_US
from bench.suites.roofline import aligned, floor_us

MODELS = {  # name -> hidden size, widths of Q and of K (or V), width of the MLP, matrices that go up in it
    "BERT large": (1024, 1024, 1024, 4096, 1),
    "GPT-2 XL": (1600, 1600, 1600, 6400, 1),
    "GPT-3 175B": (12288, 12288, 12288, 49152, 1),
    "Falcon 7B": (4544, 4544, 64, 18176, 1),
    "StarCoder2 15B": (6144, 6144, 512, 24576, 1),
    "Llama-2 7B": (4096, 4096, 4096, 11008, 2),
    "Llama-2 13B": (5120, 5120, 5120, 13824, 2),
    "Llama-3 8B": (4096, 4096, 1024, 14336, 2),
    "Llama-3 70B": (8192, 8192, 1024, 28672, 2),
    "Llama-3.1 405B": (16384, 16384, 1024, 53248, 2),
    "Llama-3.2 1B": (2048, 2048, 512, 8192, 2),
    "Llama-3.2 3B": (3072, 3072, 1024, 8192, 2),
    "Mistral Nemo 12B": (5120, 4096, 1024, 14336, 2),
    "Mistral Small 24B": (5120, 4096, 1024, 32768, 2),
    "Mistral Large 123B": (12288, 12288, 1024, 28672, 2),
    "Qwen2.5 0.5B": (896, 896, 128, 4864, 2),
    "Qwen2.5 1.5B": (1536, 1536, 256, 8960, 2),
    "Qwen2.5 3B": (2048, 2048, 256, 11008, 2),
    "Qwen2.5 7B": (3584, 3584, 512, 18944, 2),
    "Qwen2.5 14B": (5120, 5120, 1024, 13824, 2),
    "Qwen2.5 32B": (5120, 5120, 1024, 27648, 2),
    "Qwen2.5 72B": (8192, 8192, 1024, 29568, 2),
    "Qwen3 4B": (2560, 4096, 1024, 9728, 2),
    "Qwen3 8B": (4096, 4096, 1024, 12288, 2),
    "Qwen3 32B": (5120, 8192, 1024, 25600, 2),
    "Gemma-2 2B": (2304, 2048, 1024, 9216, 2),
    "Gemma-2 9B": (3584, 4096, 2048, 14336, 2),
    "Gemma-2 27B": (4608, 4096, 2048, 36864, 2),
    "Gemma-3 12B": (3840, 4096, 2048, 15360, 2),
    "Gemma-3 27B": (5376, 4096, 2048, 21504, 2),
    "Phi-3 mini": (3072, 3072, 3072, 8192, 2),
    "Phi-4 14B": (5120, 5120, 1280, 17920, 2),
    "Command R 35B": (8192, 8192, 8192, 22528, 2),
    "Command R+ 104B": (12288, 12288, 1024, 33792, 2),
    "Yi 34B": (7168, 7168, 1024, 20480, 2),
    "DeepSeek 67B": (8192, 8192, 1024, 22016, 2),
}
CUTS = (1, 2, 4, 8)  # GPUs that share a layer
WORDS = (
    f"layers of {len(MODELS)} models and their tensor-parallel cuts, 1 to {MOST_TOKENS:,} tokens, gradients from "
    f"{LEAST_TRAINED}, and log-uniform shapes in every layout"
)


def layer(draw: random.Random) -> tuple[int, int, str]:
    """(outputs, inputs, name) of one linear layer on one of the GPUs that share it."""
    model = draw.choice(list(MODELS))
    hidden, q, kv, width, ups = MODELS[model]
    name, outputs, inputs = draw.choice(
        (("qkv", q + 2 * kv, hidden), ("out", hidden, q), ("up", ups * width, hidden), ("down", hidden, width))
    )
    cut = draw.choice(CUTS)
    if name in ("qkv", "up"):  # these are cut by outputs, the two that follow them by inputs
        outputs //= cut
    else:
        inputs //= cut
    return outputs, inputs, f"{model} {name}" + f", 1 of {cut}" * (cut > 1)


def log_sizes(draw: random.Random) -> tuple[int, int, int, str]:
    """M, N, K up to 16384, N and K from 64, and any layout."""
    m, n, k = (round(math.exp(draw.uniform(math.log(low), math.log(16384)))) for low in (1, 64, 64))
    return m, n, k, draw.choice(("NN", "NT", "TN", "TT"))


def rounded(m: int, n: int, k: int, layout: str) -> tuple[int, int, int, str]:
    """To multiples of 8, so that every stored row is a multiple of 16 bytes."""
    return (m if layout[0] == "N" else max(8, m // 8 * 8)), n // 8 * 8, k // 8 * 8, layout


def forward(draw: random.Random) -> tuple:
    outputs, inputs, name = layer(draw)
    return tokens(draw), outputs, inputs, "NT", name


def data_gradient(draw: random.Random) -> tuple:
    outputs, inputs, name = layer(draw)
    return tokens(draw, LEAST_TRAINED), inputs, outputs, "NN", name


def weight_gradient(draw: random.Random) -> tuple:
    outputs, inputs, name = layer(draw)
    return outputs, inputs, tokens(draw, LEAST_TRAINED), "TN", name


def log_uniform(draw: random.Random) -> tuple:
    """Aligned ones only: libgemm's lead elsewhere would raise the mean."""
    return *rounded(*log_sizes(draw)), "log-uniform"


KINDS = {"fwd": forward, "dgrad": data_gradient, "wgrad": weight_gradient, "log": log_uniform}


def shapes(seed: int, count: int) -> list[dict]:
    """So many, the kinds in turn. None twice, and none that tuning measured or the benchmark lists."""
    draw, taken, found = random.Random(f"drawn dense {seed}"), set(known_dense()), []
    while len(found) < count:
        kind = list(KINDS)[len(found) % len(KINDS)]
        m, n, k, layout, note = KINDS[kind](draw)
        shape = {"id": f"{kind} {len(found)}", "kind": kind, "op": "gemm", "m": m, "n": n, "k": k, "layout": layout,
                 "beta": 0, "out": "same", "note": note}  # fmt: skip
        row = {**shape, "dtype": "bf16"}
        if aligned(row) and floor_us(row) < LONGEST_US and dense_key(shape) not in taken:
            taken.add(dense_key(shape))
            found.append(shape)
    return found
