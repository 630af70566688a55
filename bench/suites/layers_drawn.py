"""Grouped products drawn anew for each seed: layers of mixture-of-experts models. Nothing is tuned on what layers() and
whole_layers() draw; tuned_layer() draws for tuning, by seeds of its own, and what was measured they leave out.

A seed always gives the same layers, the first few of which are those of a shorter run. Standard library only.
"""

import collections
import random

from bench.suites.draws import LEAST_TRAINED, MOST_TOKENS, grouped_key, known_grouped, tokens
from bench.suites.packed import DISTRIBUTIONS, LONGEST_US, Packed
from bench.suites.roofline import aligned, floor_us

MODELS = {  # name -> hidden size, width of an expert, experts, how many a token goes to
    "Mixtral 8x7B": (4096, 14336, 8, 2),
    "Mixtral 8x22B": (6144, 16384, 8, 2),
    "DBRX": (6144, 10752, 16, 4),
    "Llama-4 Scout": (5120, 8192, 16, 1),
    "Qwen1.5-MoE-A2.7B": (2048, 1408, 60, 4),
    "Qwen2-57B-A14B": (3584, 2560, 64, 8),
    "Qwen3-30B-A3B": (2048, 768, 128, 8),
    "Qwen3-235B-A22B": (4096, 1536, 128, 8),
    "OLMoE-1B-7B": (2048, 1024, 64, 8),
    "DeepSeek-MoE-16B": (2048, 1408, 64, 6),
    "DeepSeek-V2": (5120, 1536, 160, 6),
    "DeepSeek-V3": (7168, 2048, 256, 8),
    "gpt-oss-120b": (2880, 2880, 128, 4),
}
CUTS = (1, 2, 4, 8)  # GPUs that share each expert
SPREADS = (1, 2, 4, 8, 16)  # GPUs that the experts are spread over
ALPHAS = (0.2, 0.5, 1.0, 4.0, 100.0)  # of the Dirichlet distribution: a few experts take nearly all, to even
LARGEST_BYTES = 8e9  # of one layer's weights: inputs are rotated, so they lie in memory several times
LARGEST_WORK = 2e13  # operations of a layer, forward or forward and back: 30 ms
WORDS = (
    f"layers of {len(MODELS)} mixture-of-experts models, their tensor- and expert-parallel cuts, 1 to {MOST_TOKENS:,} "
    f"tokens, gradients from {LEAST_TRAINED}, routed from evenly to very unevenly"
)


def routed(draw: random.Random, experts: int, top_k: int, count: int, alpha: float) -> list[int]:
    """Rows of each expert. A token goes to `top_k` different ones, so none has more rows than there are tokens."""
    weights = [draw.gammavariate(alpha, 1) + 1e-9 for _ in range(experts)]
    sizes, left = [0] * experts, count * top_k
    while left:
        free = [g for g in range(experts) if sizes[g] < count]
        for g, more in collections.Counter(draw.choices(free, [weights[g] for g in free], k=left)).items():
            sizes[g] += more
        left = sum(max(0, size - count) for size in sizes)
        sizes = [min(size, count) for size in sizes]
    return sizes


def weight(draw: random.Random, model: str) -> tuple[int, int, str]:
    """(outputs, inputs, name) of one expert on one of the GPUs that share it."""
    hidden, width, *_ = MODELS[model]
    width //= draw.choice(CUTS)
    return draw.choice(((2 * width, hidden, f"{model} up"), (hidden, width, f"{model} down")))


FORMS = {  # kind, how a weight is stored -> what cuts the groups; M, N, K as rows, outputs, inputs; the layout
    ("fwd", "[N][K]"): ("M", "roi", "NT"),
    ("fwd", "[K][N]"): ("M", "roi", "NN"),
    ("dgrad", "[N][K]"): ("M", "rio", "NN"),
    ("dgrad", "[K][N]"): ("M", "rio", "NT"),
    ("wgrad", "[N][K]"): ("K", "oir", "TN"),
    ("wgrad", "[K][N]"): ("K", "ior", "TN"),
}
STORED = ("[N][K]", "[K][N]")
TURNS = (("fwd", STORED[:1]), ("dgrad", STORED), ("wgrad", STORED), ("fwd", STORED[1:]))


def problem(draw: random.Random, kind: str, stored: tuple[str, ...]) -> dict:
    """A layer's product and the rows of its groups; it may have no rows, or be too large."""
    model = draw.choice(list(MODELS))
    outputs, inputs, note = weight(draw, model)
    *_, experts, top_k = MODELS[model]
    count, alpha = tokens(draw, 1 if kind == "fwd" else LEAST_TRAINED), draw.choice(ALPHAS)
    groups = experts // draw.choice([cut for cut in SPREADS if experts % cut == 0 and experts > cut])
    sizes = routed(draw, experts, top_k, count, alpha)[:groups]
    ragged, order, layout = FORMS[kind, draw.choice(stored)]
    m, n, k = ({"r": sum(sizes), "o": outputs, "i": inputs}[letter] for letter in order)
    routing = {"kind": "dirichlet", "alpha": alpha, "tokens": count, "experts": experts, "top_k": top_k}
    return {"kind": kind, "op": "grouped_mm", "ragged": ragged, "groups": groups, "m": m, "n": n, "k": k,
            "layout": layout, "distribution": routing, "note": note, "sizes": sizes}  # fmt: skip


def fits(layer: dict) -> bool:
    """Whether it can be measured, in a moment."""
    row = {**layer, "dtype": "bf16", "filled": sum(size > 0 for size in layer["sizes"])}
    weights = 2 * layer["groups"] * layer["n"] * layer["m" if layer["ragged"] == "K" else "k"]
    return row["filled"] > 0 and aligned(row) and floor_us(row) < LONGEST_US and weights < LARGEST_BYTES


def layers(seed: int, count: int) -> list[dict]:
    """So many, the kinds in turn. None twice, and none whose sizes tuning measured or the benchmark lists."""
    draw, taken, found = random.Random(f"drawn layers {seed}"), set(known_grouped()), []
    while len(found) < count:
        kind, stored = TURNS[len(found) % len(TURNS)]
        layer = {"id": f"grouped {kind} {len(found)}", **problem(draw, kind, stored)}
        if grouped_key(layer) not in taken and fits(layer):
            taken.add(grouped_key(layer))
            found.append(layer)
    return found


def tuned_layer(seed: int) -> Packed:
    """One for tuning to measure, which does not know how its rows are routed: they fall on groups by one of packed.py's
    distributions."""
    draw = random.Random(f"tune layers {seed}")
    while True:
        layer = problem(draw, *draw.choice(TURNS))
        if fits(layer):
            sizes = (layer[name] for name in ("ragged", "groups", "m", "n", "k"))
            return Packed(*sizes, layer["layout"].lower(), draw.choice(list(DISTRIBUTIONS)), seed)


def whole_layers(seed: int, count: int) -> list[dict]:
    """So many layers, not their products: a model's experts on one of the GPUs that share each, the tokens, and how
    unevenly these are routed. Every second one is trained. Of each the weights of the first product are twice those of
    the second."""
    draw, found = random.Random(f"whole layers {seed}"), []
    while len(found) < count:
        model = draw.choice(list(MODELS))
        hidden, width, experts, top_k = MODELS[model]
        width //= draw.choice(CUTS)
        what = ("forward", "train")[len(found) % 2]
        count_of_tokens = tokens(draw, LEAST_TRAINED if what == "train" else 1)
        layer = {"model": model, "what": what, "experts": experts, "top_k": top_k, "hidden": hidden, "inner": width,
                 "tokens": count_of_tokens, "alpha": draw.choice(ALPHAS)}  # fmt: skip
        work = 6 * count_of_tokens * top_k * hidden * width * (3 if what == "train" else 1)
        if width % 8 == 0 and 6 * experts * hidden * width < LARGEST_BYTES and work < LARGEST_WORK:
            found.append(layer)
    return found
