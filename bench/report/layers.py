"""What README says of layers of experts, from the reports of bench/measure/. Measures nothing."""

import json
import math
from collections.abc import Callable
from pathlib import Path

from bench.report.words import Builds, Origin, listed, of_its_own, section, table, wrapped

COMMAND = "python bench/measure/experts.py"
PARTS = ("route", "first", "second", "sum")


def beside(path: Path) -> Path:
    """The report of layers on the same device as this one."""
    return path.with_suffix(".moe.json")


def ratio(row: dict) -> float:
    return row["torch_us"] / row["libgemm_us"]


def listed_ratios(rows: list[dict]) -> str:
    return listed([f"{ratio(row):.2f}" for row in rows])


def span(rows: list[dict]) -> str:
    found = sorted(map(ratio, rows))
    return f"{found[0]:.2f} to {found[-1]:.2f}"


def of(rows: list[dict], what: str, mode: str | None = None) -> list[dict]:
    return [row for row in rows if row["what"] == what and mode in (None, row.get("mode"))]


def layer_item(path: Path, head: str, built: str | None = None) -> str:
    """An item of the first screen, where the layers' report is of the same build as its head, or of the tree's."""
    if not beside(path).is_file() or (found := json.loads(beside(path).read_text()))["build_id"] not in (head, built):
        return ""
    rows = found["rows"]
    prompt, train, decode = of(rows, "prefill"), of(rows, "train"), of(rows, "decode")
    tokens = sorted({row["tokens"] for row in decode})
    models = listed([row["model"] for row in prompt])
    words = (
        f"- **Mixture-of-experts blocks in bf16**{of_its_own(found, head, built)} of {models}, against "
        f"{found['peer']}'s: a prompt of {prompt[0]['tokens']} tokens {listed_ratios(prompt)} times as fast, a "
        f"training step {listed_ratios(train)}; {tokens[0]} to {tokens[-1]} tokens "
        f"{span(of(rows, 'decode', 'graph'))} in a CUDA graph, {span(of(rows, 'decode', 'eager'))} without."
    )
    return wrapped(words, "  ")


def loss_words(path: Path, origin: Callable[[Path, str, dict], str]) -> list[str]:
    """Where training by libgemm's layers ended, and its picture."""
    report = path.with_suffix(".losses.json")
    if not report.is_file():
        return []
    found = json.loads(report.read_text())
    ends = found["ends"]
    where = f"Training {origin(report, 'python bench/measure/losses.py', found)}"
    words = (
        f"Four layers of attention and experts in bf16, {found['steps']} steps from one seed: the loss ends at "
        f"{ends['libgemm']:.4f} with libgemm's layers of experts, {ends['torch']:.4f} with torch's, and "
        f"{ends['torch, another seed']:.4f} with torch's and other first weights (means of the last tenth)."
    )
    picture = report.with_suffix(".svg")
    return [
        wrapped(f"{where} {words}"),
        f"![Losses by libgemm's layers and by torch's](bench/results/{picture.name})\n",
    ]


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def first_words(rows: list[dict]) -> str:
    """Of the first product beside another library's, where that was measured."""
    said = ""
    for peer in dict.fromkeys(name for row in rows for name in row.get("peers", {})):
        own = [row for row in rows if peer in row.get("peers", {})]
        many = [row["peers"][peer] / row["first_us"] for row in own if row["tokens"] > 1]
        one = [row["peers"][peer] / row["first_us"] for row in own if row["tokens"] == 1]
        said += f" The gathered and gated product against that of {peer.split(',')[0]}: of more than one token "
        said += f"{mean(many):.2f} times as fast in the mean, {min(many):.2f} at least" if many else "not measured"
        said += f"; of one token {mean(one):.2f}." if one else "."
    return said


def drawn_words(drawn: dict) -> str:
    """Of layers drawn with a seed of the run's own: how many times as fast, in the mean and at least."""
    rows = drawn.get("rows", [])
    if not rows:
        return ""
    said = []
    for what, words in (("forward", "forward"), ("train", "forward and back")):
        found = list(map(ratio, of(rows, what)))
        if not found:
            continue
        said.append(f"{words} {mean(found):.2f} times as fast in the mean, {min(found):.2f} at least")
    return (
        f" Of {len(rows)} layers of {len({row['model'] for row in rows})} models drawn with seed {drawn['seed']} (1 to "
        f"16384 tokens, evenly and unevenly routed, no router): {'; '.join(said)}."
    )


def layer_words(path: Path, builds: Builds, origin: Origin) -> list[str]:
    """The section's table; `origin` says what a report is of."""
    report = beside(path)
    return section(
        report, builds, lambda found: f"Mixture-of-experts blocks {origin(report, COMMAND, found)}", blocks_said
    )  # fmt: skip


def blocks_said(found: dict) -> tuple[str, str]:
    lines = [
        [row["model"], row["what"], str(row["tokens"]), row["mode"], f"{row['libgemm_us']:.1f}",
         f"{row['torch_us']:.1f}", f"{ratio(row):.2f}",
         *(f"{row[f'{part}_us']:.1f}" if f"{part}_us" in row else "" for part in PARTS)]
        for row in found["rows"]
    ]  # fmt: skip
    words = (
        f"Router and experts, in bf16, against {found['peer']}'s experts on the same module (torch's grouped_mm and "
        "what it needs around it), in microseconds: in a CUDA graph, or in eager calls one after the other. A training "
        "step is forward and back, with all gradients. Then libgemm's four calls by themselves: sorting by expert, the "
        "gathered and gated product, the second product, the sum. The choice among the first product's tiles was set "
        "by layers of these models too, not by those that are drawn."
    )
    words += first_words(found["rows"]) + drawn_words(found.get("drawn", {}))
    head = ["", "", "tokens", "", "libgemm", "peer", "ratio", "route", "first", "second", "sum"]
    return words, table(head, lines)


def peer_layer_words(path: Path, builds: Builds, origin: Origin) -> list[str]:
    """Whole layers beside FlashInfer's, where that was measured."""
    report, command = path.with_suffix(".flashinfer.json"), "python bench/measure/flashinfer_layers.py"
    return section(report, builds, lambda found: f"Whole layers {origin(report, command, found)}", peer_layers_said)


def peer_layers_said(found: dict) -> tuple[str, str]:
    rows = found["rows"]
    loose, ordered = (
        [row[f"{who}_us"] / row["libgemm_us"] for row in rows] for who in ("flashinfer", "flashinfer_ordered")
    )
    words = (
        f"`moe` against the layer of FlashInfer {found['flashinfer']} for this GPU, tuned for each number of tokens, "
        "without the router, in CUDA graphs, in microseconds. By default that one adds a token's rows up by atomics, "
        f"in another order at each call: libgemm is {mean(loose):.2f} times as fast in the mean, {min(loose):.2f} at "
        "least. Against its layer that adds them in order, as libgemm does, "
        f"{mean(ordered):.2f} and {min(ordered):.2f}."
    )
    lines = [
        [
            row["model"], str(row["tokens"]), f"{row['libgemm_us']:.1f}", f"{row['flashinfer_us']:.1f}", f"{one:.2f}",
            f"{row['flashinfer_ordered_us']:.1f}", f"{other:.2f}",
        ]
        for row, one, other in zip(rows, loose, ordered, strict=True)
    ]  # fmt: skip
    return words, table(
        ["", "tokens", "libgemm", "FlashInfer, atomics", "ratio", "FlashInfer, in order", "ratio"], lines
    )


def scaled_layer_words(path: Path, builds: Builds, origin: Origin) -> list[str]:
    """The same of layers with 8-bit weights, beside themselves in bf16, and how far each way is from float32."""
    report, command = path.with_suffix(".moe_fp8.json"), "python bench/measure/experts_scaled.py"
    return section(
        report, builds, lambda found: f"Experts with 8-bit weights {origin(report, command, found)}", scaled_layers_said
    )  # fmt: skip


def scaled_layers_said(found: dict) -> tuple[str, str]:
    ways = ("fp8", "bf16", "torch")
    lines = [
        [row["model"], str(row["tokens"]), *(f"{row['us'][way]:.1f}" for way in ways),
         *(f"{row['us'][way] / row['us']['fp8']:.2f}" for way in ways[1:]),
         *(f"{row['errors'][way]:.4f}" for way in ways)]
        for row in found["rows"]
    ]  # fmt: skip
    words = (
        "`moe` with e4m3 weights and scales of 128 x 128 against itself and torch's steps in bf16, in CUDA graphs, in "
        "microseconds; the ratios of bf16's times to it; and the norm of each way's difference from the layer in "
        "float32, as a share of that."
    )
    head = ["", "tokens", "fp8", "bf16", "torch, bf16", "of bf16", "of torch", "fp8 off by", "bf16", "torch"]
    return words, table(head, lines)
