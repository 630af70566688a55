"""What the rows of a benchmark report say: work, floor, kind of shape, ratio, means. A leaf; times nothing."""

import hashlib
import json
import math
from pathlib import Path

from bench.suites.roofline import WIDTH, aligned, filled, flops, out_width

CUBLAS = ("torch.mm", "torch.addmm", "torch.mm in a loop")  # the peers that are cuBLAS underneath
SHORT_US, SHORT_GROUPED_US = 5, 10  # below this a launch is most of the time, and the roofline says little


def read(path: Path) -> dict:
    """A report, and under "drawn" what was measured beside it on shapes drawn at random."""
    report, beside = json.loads(path.read_text()), path.with_suffix(".drawn.json")
    return {**report, "drawn": json.loads(beside.read_text())} if beside.is_file() else report


def ratio(row: dict) -> float:
    """Above 1 where libgemm is faster."""
    return row["peer_us"] / row["ours_us"]


def share(row: dict) -> float:
    return row["floor_us"] / row["ours_us"]


KINDS = {  # name -> what belongs to it; the first that takes a row. `least` is the shorter side of D (of one group)
    "unaligned": lambda row, least: not aligned(row),
    "C is added": lambda row, least: row.get("beta"),
    "up to 16 rows": lambda row, least: least <= 16,
    "up to 256 rows": lambda row, least: least <= 256,
    "small": lambda row, least: flops(row) <= 2.0 * 2048**3,
    "large": lambda row, least: True,
}
GROUPED_KINDS = {  # the same; `rows` of a group on average, empty ones not counted
    "pointer arrays": lambda row, rows: row["op"] == "grouped_gemm",
    "K-ragged": lambda row, rows: row.get("ragged") == "K",
    "decode": lambda row, rows: rows <= 32,
    "middle": lambda row, rows: rows <= 256,
    "large": lambda row, rows: True,
}
ORDER = list(dict.fromkeys([*reversed(KINDS), *reversed(GROUPED_KINDS)]))  # what people ask for first stands first


def kind(row: dict) -> str:
    if "groups" in row:
        kinds, size = GROUPED_KINDS, row["m"] / filled(row)
    else:
        kinds, size = KINDS, min(row["m"], row["n"])
    return next(name for name, takes in kinds.items() if takes(row, size))


DRAWN = {"half": "half in one", "squares": "uneven", "few": "most empty"}  # distributions worth a word


def label(row: dict) -> str:
    """The product in words: 4096 x 7168 x 2048 NN."""
    sizes = f"{row['m']} x {row['n']} x {row['k']}"
    if "problems" in row:
        sizes = f"{', '.join('x'.join(map(str, dict.fromkeys(one))) for one in row['problems'])} cubed"
    words = [f"{sizes} {row.get('layout', '')}".strip()]
    if "groups" in row:
        words += [f"{row['groups']} groups{' along K' * (row.get('ragged') == 'K')}"]
        words += ["one B"] * (row["op"] == "grouped_gemm_jagged")
        words += filter(None, [DRAWN.get(row.get("distribution", {}).get("kind"))])
    words += ["into float32"] * (out_width(row) > WIDTH[row["dtype"]])
    beta = row.get("beta", 0)
    words += ["alpha = beta = 2" if beta == 2 else f"beta = {beta:g}"] * bool(beta)
    return ", ".join(words)


def group(row: dict) -> str:
    """What a row is compared within: "gemm bf16"."""
    return f"{row['op']} {row['dtype']}"


def groups(rows: list[dict]) -> dict[str, list[dict]]:
    """Rows by operation and type, in the report's order."""
    found = {}
    for row in rows:
        found.setdefault(group(row), []).append(row)
    return found


def parts(rows: list[dict]) -> dict[str, list[dict]]:
    """The same, and the public suite's packed cases once more by the way their groups lie: "M-ragged bf16", of which
    those with one B for all groups stand apart too. Those along K are two kinds of work, added to a float32 D or into
    the inputs' type: "K-ragged bf16 into float32"."""
    found = groups(rows)
    ragged = [row for row in rows if row.get("ragged") in ("M", "K") and not row.get("own")]
    for row in ragged:
        found.setdefault(f"{row['ragged']}-ragged {row['dtype']}", []).append(row)
    for row in ragged:
        if row["ragged"] == "M" and row["op"] == "grouped_mm":
            found.setdefault(f"M-ragged {row['dtype']}, a B for each group", []).append(row)
    for row in ragged:
        if row["ragged"] == "K":
            into = "float32" if out_width(row) > WIDTH[row["dtype"]] else row["dtype"]
            found.setdefault(f"K-ragged {row['dtype']} into {into}", []).append(row)
    return found


def geomean(values) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def long_enough(row: dict) -> bool:
    return row["floor_us"] >= (SHORT_GROUPED_US if "groups" in row else SHORT_US)


def summary(rows: list[dict]) -> dict:
    worst = min(rows, key=ratio)
    return {
        "geomean": geomean(map(ratio, rows)), "worst": worst["id"], "worst_ratio": ratio(worst),
        "floor_share": geomean(share(row) for row in rows if long_enough(row)),
    }  # fmt: skip


def summarise(rows: list[dict]) -> dict:
    return {name: summary(own) for name, own in parts(rows).items()}


SHORT_K = 1024  # of large products: the end of a tile is as long as its products


def beside_cublaslt(rows: list[dict]) -> dict:
    """By type, the rows that cuBLASLt's best was measured beside, and by id the ratios of large ones of a short K."""
    found = {}
    for dtype in dict.fromkeys(row["dtype"] for row in rows if "cublaslt_us" in row):
        own = [row for row in rows if row["dtype"] == dtype and "cublaslt_us" in row]
        ratios = {row["id"]: row["cublaslt_us"] / row["ours_us"] for row in own}
        short = [row["id"] for row in own if row["k"] <= SHORT_K and kind(row) == "large"]
        worst = min(ratios, key=ratios.get)
        found[dtype] = {
            "shapes": len(ratios), "geomean": geomean(ratios.values()), "worst": worst, "worst_ratio": ratios[worst],
            "short": {name: ratios[name] for name in short},
        }  # fmt: skip
    return found


def balance(rows: list[dict]) -> dict:
    """For each pair, the share of the floor with half of the rows in one group over that with equal groups: 1 where
    balance costs nothing."""
    pairs = {}
    for row in rows:
        if "pair" in row:
            pairs.setdefault(f"{row['pair']} {row['dtype']}", {})[row["distribution"]["kind"]] = row
    return {
        name: {
            who: pair["half"]["floor_us"] / pair["half"][key] / (pair["equal"]["floor_us"] / pair["equal"][key])
            for who, key in (("ours", "ours_us"), ("peer", "peer_us"))
        } for name, pair in pairs.items() if len(pair) == 2
    }  # fmt: skip


def digest(report: dict) -> str:
    """What a picture of the report carries, so that one of other rows is known without drawing it."""
    drawn = {key: report[key] for key in ("build_id", "device", "rows", "drawn", "curves") if key in report}
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()
