"""The figures on the README's first screen, from a report, the shapes drawn beside it, and dist/. Measures nothing."""

import json
from pathlib import Path

from bench.report.drawn_words import drawn_words
from bench.report.rows import CUBLAS, groups, summary
from bench.report.words import listed, wrapped
from kernels.table.targets import DEFAULT_TARGETS

SHOWN = {"gemm bf16": "Dense bf16", "grouped_mm bf16": "Grouped bf16"}  # of the report's groups, by its name here
CUBLASLT = "cuBLASLt 13 alone is a library of 552 MB"  # libcublasLt.so.13 in NVIDIA's wheel of November 2026


def figures(report: dict, built: str | None = None) -> str:
    """One item for each operation of SHOWN that the report has. `built`: the tree's build, where that is known."""
    named = groups(report["rows"])
    other = "" if built in (None, report["build_id"]) else f" (**stale**: the tree's is `{built[:16]}`)"
    about = f"Measured on an {report['device']}, {report['date'][:10]}, build `{report['build_id'][:16]}`{other}:"
    found = [wrapped(about) + "\n"]
    for name in (name for name in SHOWN if name in named):
        rows = named[name]
        words = (
            f"- **{SHOWN[name]}: {beside(rows)}, geometric mean over the benchmark's {len(rows)} shapes, which it is "
            f"tuned for. {drawn_words(report, name, built)}"
        )
        found.append(wrapped(words, "  "))
    return "".join(found)


def beside(rows: list[dict]) -> str:
    """How fast on average, and where rows have several peers beside each: the mean of all is of no one of them."""
    of_peer: dict[str, list[dict]] = {}
    for row in rows:
        of_peer.setdefault(row["peer"], []).append(row)
    whose, of_each = f"`{rows[0]['peer']}`", ""
    if len(of_peer) > 1:
        means = [f"{summary(own)['geomean']:.2f} against `{peer}` ({len(own)})" for peer, own in of_peer.items()]
        whose, of_each = "torch", f", {listed(means)}"
    cublas = " (cuBLAS)" if of_peer.keys() <= {*CUBLAS} else ""
    return f"{summary(rows)['geomean']:.2f} times as fast as {whose}**{cublas}{of_each}"


def library(dist: Path) -> str | None:
    """What dist/ holds, in a line; None where it holds another set of targets than `make build` gives."""
    path = dist / "manifest.json"
    manifest = json.loads(path.read_text()) if path.is_file() else {"targets": {}}
    targets = tuple(map(int, manifest["targets"]))
    if targets != DEFAULT_TARGETS:
        return None
    size = (dist / "lib" / "libgemm.so").stat().st_size / 1e6
    served = listed([f"sm_{targets[0]}", *map(str, targets[1:])])
    return wrapped(
        f"- **{size:.1f} MB hold it all**: {len(manifest['variants']):,} variants for {served}, beside which a machine "
        f"needs the NVIDIA driver and nothing else. {CUBLASLT}.", "  ",
    )  # fmt: skip
