"""The figures on the README's first screen, from a report, the shapes drawn beside it, and dist/. Measures nothing."""

import json
from pathlib import Path

from bench.report.rows import CUBLAS, groups, summary
from bench.report.words import figure, listed, table, wrapped
from kernels.table.targets import DEFAULT_TARGETS

SHOWN = {"gemm bf16": "Dense bf16", "grouped_mm bf16": "Grouped bf16"}  # of the report's groups, by its name here
CUBLASLT = "cuBLASLt 13 alone is a library of 552 MB"  # libcublasLt.so.13 in NVIDIA's wheel of November 2026


def drawn_family(report: dict, name: str) -> dict | None:
    families = report.get("drawn", {}).get("families", [])
    return next((one for one in families if f"{one['op']} {one['dtype']}" == name), None)


def drawn_words(report: dict, name: str) -> str:
    """What the same operation gave on shapes nobody tuned for."""
    family = drawn_family(report, name)
    if family is None:
        return "On other shapes nothing was measured."
    count = sum(one["shapes"] for one in family["kinds"])
    means = [f"{figure(one['mean'])} ({one['kind']})" for one in family["kinds"]]
    drawn, other = report["drawn"], ""
    if is_stale(report):
        other = f" (**stale**: of build `{drawn['build_id'][:16]}`, {drawn['date']}, and not measured on this one)"
    return f"Over {count} shapes drawn at random{other}: {listed(means)}."


def is_stale(report: dict) -> bool:
    """Whether the drawn shapes were measured on another build than the report's."""
    return report["drawn"]["build_id"] != report["build_id"]


def figures(report: dict) -> str:
    """One item for each operation of SHOWN that the report has."""
    named = groups(report["rows"])
    about = f"Measured on an {report['device']}, {report['date'][:10]}, build `{report['build_id'][:16]}`:"
    found = [wrapped(about) + "\n"]
    for name in (name for name in SHOWN if name in named):
        rows, peer = named[name], named[name][0]["peer"]
        words = (
            f"- **{SHOWN[name]}: {summary(rows)['geomean']:.2f} times as fast as `{peer}`**"
            f"{' (cuBLAS)' * (peer in CUBLAS)}, geometric mean over the benchmark's {len(rows)} shapes, which it is "
            f"tuned for. {drawn_words(report, name)}"
        )
        found.append(wrapped(words, "  "))
    return "".join(found)


def drawn_table(report: dict) -> list[str]:
    """Shapes drawn at random, with what they are and how far down they go."""
    drawn = report.get("drawn")
    if not drawn:
        return []
    words = (
        f"Shapes drawn at random, none of them tuned for: {drawn['device']}, {drawn['date']}, build "
        f"`{drawn['build_id'][:16]}`. Ratios and shares as above; cuBLASLt's best is the fastest of all its candidates."
    )
    if is_stale(report):
        words += (
            f" These figures are **stale**: build `{report['build_id'][:16]}`, of the tables above, has not been "
            "measured on drawn shapes."
        )
    words += " They were measured by hand beside that build: no command here makes them yet."
    found = [wrapped(words)]
    for family in drawn["families"]:
        name, kinds = f"{family['op']} {family['dtype']}", family["kinds"]
        columns = {
            name: [one["kind"] for one in kinds],
            "shapes": [str(one["shapes"]) for one in kinds],
            f"`{family['peer']}`, mean": [figure(one["mean"]) for one in kinds],
            family["low"]: [figure(one["low"]) for one in kinds],
            "of the roofline": [f"{one['share']:.2f}" for one in kinds],
        }
        if "cublaslt" in kinds[0]:
            columns["cuBLASLt's best, mean"] = [figure(one["cublaslt"]) for one in kinds]
        lines = [list(line) for line in zip(*columns.values(), strict=True)]
        found += [wrapped(f"{name}: {family['from']}."), table(list(columns), lines)]
    return found


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
