"""What rows of drawn shapes say: means and percentiles by kind, regret, shares of the roofline; and their file.

Times nothing, and needs no torch. A ratio is a peer's time over libgemm's: above 1 libgemm is faster.
"""

import json

from bench.report.rows import geomean, group, long_enough

KINDS = {  # operation, kind and, where two are told apart, layout -> what people read; tables have this order
    ("gemm", "fwd"): "forward, NT",
    ("gemm", "dgrad"): "data gradient, NN",
    ("gemm", "wgrad"): "weight gradient, TN",
    ("gemm", "log"): "log-uniform",
    ("gemm", "f16"): "a sample in f16",  # too few shapes for each kind to have a mean
    ("grouped_mm", "fwd", "NT"): "forward, B stored [N][K]",
    ("grouped_mm", "fwd", "NN"): "forward, B stored [K][N]",
    ("grouped_mm", "dgrad"): "data gradient",
    ("grouped_mm", "wgrad"): "weight gradient",
    ("grouped_mm", "f16"): "a sample in f16 (torch in bf16)",
}
PEERS = {"torch": "torch_us", "cublaslt": "cublaslt_us"}
TORCH = {"gemm": "torch.mm", "grouped_mm": "torch._grouped_mm"}


def kind(row: dict) -> str:
    op, kind, layout = row["op"], "f16" if row["dtype"] == "f16" else row["kind"], row["layout"]
    return KINDS.get((op, kind)) or KINDS[op, kind, layout]


def families(rows: list[dict]) -> dict[str, dict[str, list[dict]]]:
    """Rows by operation and type, "gemm bf16", and then by kind."""
    found = {}
    for row in sorted(rows, key=lambda row: list(KINDS.values()).index(kind(row))):
        found.setdefault(group(row), {}).setdefault(kind(row), []).append(row)
    return found


def percentile(values, of: int) -> float:
    """The value that so many of a hundred are below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * of // 100)]


def beside(rows: list[dict], key: str) -> dict:
    """One peer's mean ratio, its 5th percentile, and the peer's own share of the roofline."""
    ratios = [row[key] / row["ours_us"] for row in rows]
    long = [row["floor_us"] / row[key] for row in rows if long_enough(row)]
    return {"shapes": len(rows), "mean": geomean(ratios), "low": percentile(ratios, 5)} | (
        {"share": geomean(long)} if long else {}
    )


def regret(rows: list[dict]) -> dict:
    """Over rows beside which the library's best kernel was measured."""
    values = [row["ours_us"] / row["best_variant_us"] - 1 for row in rows if "best_variant_us" in row]
    found = {"shapes": len(values)}
    return found | ({"median": percentile(values, 50), "p95": percentile(values, 95)} if values else {})


def summary(rows: list[dict]) -> dict:
    """Of rows of one kind. What was not measured is not in it."""
    found = {"shapes": len(rows)}
    for name, key in PEERS.items():
        if own := [row for row in rows if key in row]:
            found[name] = beside(own, key)
    if long := [row["floor_us"] / row["ours_us"] for row in rows if long_enough(row)]:
        found["share"] = geomean(long)
    return found | {"regret": regret(rows)}


def summarise(rows: list[dict]) -> dict[str, dict[str, dict]]:
    return {family: {name: summary(own) for name, own in kinds.items()} for family, kinds in families(rows).items()}


def text(report: dict) -> str:
    """As JSON with one line a row, so that a new run is a readable diff."""
    head = json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in report["rows"])
    return f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def figure(kind: dict, *path: str) -> str:
    """A number of a summary, or a dash where it was not measured."""
    for name in path:
        kind = kind.get(name, {})
    return f"{kind:.2f}" if isinstance(kind, float) else "-"


def lines(found: dict[str, dict[str, dict]]) -> list[str]:
    """The summary as a table for a terminal."""
    columns = {
        "shapes": (), "torch": ("torch", "mean"), "5th": ("torch", "low"), "cuBLASLt": ("cublaslt", "mean"),
        "its 5th": ("cublaslt", "low"), "share": ("share",), "its": ("cublaslt", "share"),
        "regret": ("regret", "median"), "95th": ("regret", "p95"),
    }  # fmt: skip
    shown = [f"{'':48}" + "".join(f"{name:>9}" for name in columns)]
    for family, kinds in found.items():
        for name, one in kinds.items():
            figures = [str(one["shapes"]), *(figure(one, *path) for path in columns.values() if path)]
            shown.append(f"{f'{family}, {name}':48}" + "".join(f"{words:>9}" for words in figures))
    return shown
