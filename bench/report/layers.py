"""What README says of layers of experts, from bench/measure/experts.py's report. Measures nothing."""

import json
from collections.abc import Callable
from pathlib import Path

from bench.report.words import OTHER_BUILD, listed, table, wrapped

COMMAND = "python bench/measure/experts.py"
PARTS = ("route", "first", "second", "sum")


def beside(path: Path) -> Path:
    """The report of layers on the same device as this one."""
    return path.with_suffix(".experts.json")


def ratio(row: dict) -> float:
    return row["peer_us"] / row["ours_us"]


def layer_item(path: Path, build: str) -> str:
    """An item of the first screen, where the layers' report is of the same build."""
    if not beside(path).is_file() or (found := json.loads(beside(path).read_text()))["build_id"] != build:
        return ""
    counts = sorted({row["tokens"] for row in found["rows"]})
    prompt = [f"{ratio(row):.2f} ({row['model']})" for row in found["rows"] if row["tokens"] == counts[-1]]
    few = sorted(ratio(row) for row in found["rows"] if row["tokens"] < counts[-1])
    words = (
        f"- **Layers of experts in bf16**, beside {found['peer']}'s: a prompt of {counts[-1]} tokens {listed(prompt)} "
        f"times as fast; {counts[0]} to {counts[-2]} tokens, in a CUDA graph, {few[0]:.2f} to {few[-1]:.2f}."
    )
    return wrapped(words, "  ")


def layer_words(path: Path, build: str, origin: Callable[[Path, str, dict], str]) -> list[str]:
    """The section's table; `origin` says what a report is of. One of another build than `build` shows no times."""
    if not beside(path).is_file():
        return []
    found = json.loads(beside(path).read_text())
    where = f"Layers of experts {origin(beside(path), COMMAND, found)}"
    if found["build_id"] != build:
        return [wrapped(f"{where} {OTHER_BUILD}")]
    lines = [
        [row["model"], str(row["tokens"]), f"{row['ours_us']:.1f}", f"{row['peer_us']:.1f}", f"{ratio(row):.2f}",
         *(f"{row[f'{part}_us']:.1f}" for part in PARTS)] for row in found["rows"]
    ]  # fmt: skip
    words = (
        f"From a router's choices to the sum, in bf16, beside {found['peer']}'s experts on the same module (torch's "
        "grouped_mm and what it needs around it), in CUDA graphs, in microseconds; then libgemm's four calls by "
        "themselves: sorting by expert, the gathered and gated product, the second product, the sum."
    )
    head = ["", "tokens", "libgemm", "peer", "ratio", "route", "first", "second", "sum"]
    return [wrapped(f"{where} {words}"), table(head, lines)]
