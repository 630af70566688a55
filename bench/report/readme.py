"""Writes the README's figures and its section "Measured" from the committed reports and dist/. Measures nothing.

    python bench/report/readme.py

What stands between marks in README.md is this file's; the words around them are people's. Needs no GPU, no package.
"""

import json
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from bench.report.drawn_words import drawn_table  # noqa: E402
from bench.report.layers import layer_item, layer_words, loss_words, peer_layer_words, scaled_layer_words  # noqa: E402
from bench.report.opening import figures, library  # noqa: E402
from bench.report.pictures import RESULTS, picture_path, reports  # noqa: E402
from bench.report.rows import (  # noqa: E402
    CUBLAS,
    ORDER,
    SHORT_GROUPED_US,
    SHORT_K,
    SHORT_US,
    balance,
    kind,
    label,
    parts,
    ratio,
    read,
    share,
    summarise,
    summary,
)
from bench.report.scaled import scaled_item, scaled_words  # noqa: E402
from bench.report.words import NOT_SHOWN, OTHER_BUILD, listed, parts_of, stale, table, wrapped  # noqa: E402
from bench.suites.roofline import BYTES, FLOPS  # noqa: E402

ANCHORS = ("D33", "D32")  # the squares of 8192 and 4096, which people ask for first
STAND_INS = {  # what a peer's name has in it -> what to say of that
    "(bf16)": " A peer marked (bf16) multiplies the same numbers in bf16: torch loops on the host in other types.",
    "add_": " One with add_ adds its product, in bf16, to the float32 D afterwards: torch's grouped call adds to no D.",
}
ABOUT = {
    "ratios": "Time of the peer over time of libgemm for each shape and type, by kind of shape",
    "roofline": "TFLOP/s of libgemm and its peer against flops per byte, under the roofline",
}


def telling(rows: list[dict]) -> list[dict]:
    """By rule, so that none is picked for its looks: the anchors, and of each kind of shape the best and the worst."""
    found = [row for anchor in ANCHORS for row in rows if row["id"] == anchor]
    for name in ORDER:
        own = sorted((row for row in rows if kind(row) == name), key=ratio, reverse=True)
        found += own[:1] + own[1:][-1:]
    return list({row["id"]: row for row in found}.values())


def shapes_table(rows: list[dict]) -> str:
    lines = [
        [row["id"], kind(row), label(row), f"{row['ours_us']:.1f}", f"{row['peer_us']:.1f}", f"{ratio(row):.2f}",
         f"{share(row):.2f}"] for row in telling(rows)
    ]  # fmt: skip
    return table(["", "kind", "M x N x K", "libgemm, us", "peer, us", "ratio", "of the roofline"], lines)


def summary_line(name: str, rows: list[dict], found: dict) -> list[str]:
    floor = "-" if math.isnan(found["floor_share"]) else f"{found['floor_share']:.2f}"
    return [name, str(len(rows)), f"{found['geomean']:.3f}", f"{found['worst_ratio']:.2f}, {found['worst']}", floor]


def summary_table(rows: list[dict]) -> str:
    named = parts(rows)
    lines = [summary_line(name, named[name], found) for name, found in summarise(rows).items()]
    return table(["", "shapes", "geometric mean", "worst", "of the roofline"], lines)


def cublaslt_words(found: dict) -> list[str]:
    """What a report says of its public list beside cuBLASLt's best; nothing where that was not measured."""
    told = []
    for dtype, one in found.items():
        short = " and ".join(f"{value:.2f} ({name})" for name, value in one["short"].items())
        told.append(f"{one['geomean']:.3f} in {dtype} ({one['shapes']} shapes, the least {one['worst_ratio']:.2f}, "
                    f"{one['worst']}{f'; large ones with K up to {SHORT_K:,}: {short}' if short else ''})")  # fmt: skip
    if not told:
        return []
    peer = (
        "cuBLASLt's best, the fastest of all algorithms that its heuristic names with 64 MiB of workspace and that "
        "come within 1 % of torch.mm's result, where D is A B in their own type"
    )
    return [wrapped(f"Geometric mean against {peer}: {listed(told)}.")]


def kinds_table(rows: list[dict]) -> str:
    by_kind = {name: [row for row in rows if kind(row) == name] for name in ORDER}
    lines = [summary_line(name, own, summary(own)) for name, own in by_kind.items() if own]
    return table(["kind", "products", "geometric mean", "worst", "of the roofline"], lines)


def floor_words(rows: list[dict]) -> str:
    """The roofline, with the types that share a rate named together."""
    rates = {}
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        rates.setdefault(FLOPS[dtype], []).append(dtype)
    words = " or ".join(f"{rate / 1e12:g} TFLOP/s ({', '.join(dtypes)})" for rate, dtypes in rates.items())
    of_copy = f"bytes / {BYTES / 1e12:g} TB/s, which a device copy reached and who mostly reads may pass"
    return f"max(flops / {words}, {of_copy})"


def host_table(host: dict) -> str:
    def figure(row: dict, key: str) -> str:
        return f"{row[key]:.2f}" if key in row else "-"

    keys = ("c_us", "bare_us", "c_ratio", "python_us", "torch_us", "python_ratio")
    lines = [[name, *(figure(row, key) for key in keys)] for name, row in host["rows"].items()]
    return table(["bf16", "C", "bare launch", "ratio", "Python", "torch.mm", "ratio"], lines)


def origin(path: Path, command: str, report: dict, built: str | None) -> str:
    where, driver = path.relative_to(ROOT).as_posix(), ", driver " + report["driver"] if "driver" in report else ""
    return (
        f"(`{where}`, `{command}`): build `{report['build_id'][:16]}`, {report['device']}{driver}, "
        f"{report['date'][:10]}.{stale(report['build_id'], built)}"
    )


def correctness(path: Path, report: dict, built: str | None) -> str:
    late = " Its time was up before the last checks were done." if report["out_of_time"] else ""
    drawn = f" {report['checks']['random']:,} random problems against float64," if "random" in report["checks"] else ""
    return wrapped(
        f"Correctness {origin(path, 'make gpu-test', report, built)} Every kernel that a call can name, edge rules, "
        f"the three programs that the library grew from,{drawn} Triton {report['triton']}: {report['passed']} passed, "
        f"{report['failed']} failed.{late}"
    )


def method(path: Path, report: dict, built: str | None) -> str:
    peers = dict.fromkeys(row["peer"] for row in report["rows"])
    words = listed([f"`{peer}`{' (cuBLAS)' * (peer in CUBLAS)}" for peer in peers])
    grouped = any("groups" in row for row in report["rows"])
    of_peers = "".join(text for mark, text in STAND_INS.items() if any(mark in peer for peer in peers))
    short = f"{SHORT_US} us" + f", of grouped ones {SHORT_GROUPED_US} us" * grouped
    return wrapped(
        f"Speed {origin(path, 'make bench', report, built)} CUDA graphs, inputs rotated past L2, in alternation with "
        f"{words} of torch {report['torch']}. A ratio is the peer's time over libgemm's, so above 1 libgemm is faster; "
        f"{'float32 is multiplied as tf32 by both; ' * any(row['dtype'] == 'f32' for row in report['rows'])}"
        f"the roofline is {floor_words(report['rows'])}; its share, a mean, "
        f"leaves out shapes that would take less than {short}, there.{of_peers}"
    )


def regret_words(report: dict) -> list[str]:
    kinds = {"dense products": report.get("regret"), "packed products": report.get("regret_grouped")}
    words = [
        f"on {regret['shapes']} random {kind}, median {regret['median'] * 100:.0f} %, 95th percentile "
        f"{regret['p95'] * 100:.0f} %" for kind, regret in kinds.items() if regret
    ]  # fmt: skip
    what = "Regret of the choice, against the best kernel in the library, on shapes that were not tuned on:"
    return [wrapped(f"{what} {'; '.join(words)}.")] if words else []


def host_words(host: dict) -> list[str]:
    words = (
        "Host time of a call, in microseconds: from C against a bare launch of the same kernel, from Python against "
        "`torch.mm(out=)` (`bench/measure/host.py` says how)."
    )
    return [wrapped(words), host_table(host)] + [wrapped(host["note"])] * bool(host["note"])


def families(rows: list[dict]) -> dict[str, list[dict]]:
    """Rows that one table of shapes shows: of a dense operation or of all grouped ones, in bf16 if there is some."""
    named, found = {}, {}
    for row in rows:
        named.setdefault(("grouped" if "groups" in row else row["op"], row["dtype"]), []).append(row)
    for (name, dtype), own in named.items():
        if name not in found or dtype == "bf16":
            found[name] = (f"{name} {dtype}", own)
    return dict(found.values())


def balance_words(rows: list[dict]) -> str:
    pairs = balance(rows)
    ours, peers = (listed([f"{pair[who]:.2f}" for pair in pairs.values()]) for who in ("ours", "peer"))
    return wrapped(
        f"With half of all rows in one group ({listed([name.split()[0] for name in pairs])}) libgemm has {ours} of the "
        f"share of the roofline that it has with equal groups, the peer {peers}."
    )


def shapes_words(name: str, rows: list[dict]) -> list[str]:
    squares = "Two squares, then " * any(row["id"] in ANCHORS for row in rows)
    words = f"{squares}the best and the worst of each kind of shape; {name}:\n"
    found = [f"<details><summary>{words[0].upper() + words[1:-2]}</summary>\n", shapes_table(rows), "</details>\n"]
    if "groups" not in rows[0]:
        return found
    return [f"{name} by kind:\n".capitalize(), kinds_table(rows), *[balance_words(rows)] * bool(balance(rows)), *found]


def tutorial_words(path: Path, report: dict, built: str | None) -> list[str]:
    """Of bench/measure/tutorial.py's report on the same device, where there is one."""
    beside = path.with_suffix(".tutorial.json")
    if not beside.is_file():
        return []
    found = json.loads(beside.read_text())
    other = found["build_id"] not in (report["build_id"], built)
    where = origin(beside, "python bench/measure/tutorial.py PATH/08-grouped-gemm.py", found, None if other else built)
    what = f"Triton's tutorial on grouped GEMM {where}"
    if other:
        return [wrapped(f"{what} {OTHER_BUILD}{NOT_SHOWN}")]
    keys = ("ours_us", "loop_us", "tutorial_us", "tutorial_tma_us")
    lines = [[str(row["n"]), *(f"{row[key]:.1f}" if row.get(key) else "-" for key in keys)] for row in found["rows"]]
    words = f"Four float16 products of N x N x N by pointers on the device, Triton {found['triton']}, in microseconds:"
    return [wrapped(f"{what} {words}"), table(["N", "libgemm", "torch.mm in a loop", "tutorial", "its TMA"], lines)]


def speed(path: Path, report: dict, built: str | None) -> list[str]:
    found = [method(path, report, built), summary_table(report["rows"]), *cublaslt_words(report.get("cublaslt", {}))]
    beside = path.with_suffix(".drawn.json").relative_to(ROOT).as_posix()
    found += [*drawn_table(report, beside, built), *regret_words(report)]
    found += [f"![{ABOUT[name]}]({picture_path(path, name).relative_to(ROOT).as_posix()})\n" for name in ABOUT]
    for name, rows in families(report["rows"]).items():
        found += shapes_words(name, rows)
    builds = {report["build_id"], built}
    for words in (layer_words, peer_layer_words, scaled_words, scaled_layer_words):
        found += words(path, builds, lambda at, command, own: origin(at, command, own, built))
    found += loss_words(path, lambda at, command, own: origin(at, command, own, built))
    found += tutorial_words(path, report, built)
    return found + (host_words(report["host"]) if report.get("host") else [])


def measured(built: str | None) -> str:
    """The section of that name. `built` is the build in dist/, if there is one."""
    tests = (ROOT / "tests" / "results").glob("gpu_*.json")
    parts = [correctness(path, json.loads(path.read_text()), built) for path in sorted(tests)]
    for path in reports(RESULTS):
        parts += speed(path, read(path), built)
    parts.append(wrapped("`make test` says whether these reports speak of the library in `dist/`."))
    return "\n" + "\n".join(parts) + "\n"


def first_screen(path: Path, built: str | None) -> str:
    report = read(path)
    items = (item(path, report["build_id"], built) for item in (scaled_item, layer_item))
    return figures(report, built) + "".join(items)


def sections(dist: Path) -> dict[str, str]:
    """What can be written, by name; the library's line only where dist/ has what `make build` gives."""
    manifest = dist / "manifest.json"
    built = json.loads(manifest.read_text())["build_id"] if manifest.is_file() else None
    found = {"figures": "".join(first_screen(path, built) for path in reports(RESULTS)), "library": library(dist)}
    return {name: text for name, text in {**found, "measured": measured(built)}.items() if text}


def main() -> int:
    path = ROOT / "README.md"
    text = path.read_text()
    for name, own in sections(ROOT / "dist").items():
        before, _, after = parts_of(text, name)
        text = before + own + after
    path.write_text(text)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
