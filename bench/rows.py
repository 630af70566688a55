"""What the rows of a benchmark report say: work, floor, kind of shape, ratio. A leaf; times nothing."""

import hashlib
import json
import math

FLOPS = {"bf16": 800e12, "f16": 800e12, "f32": 400e12}  # what an H200 gave cuBLAS at best; tf32 has half the rate
BYTES = 4.3e12  # what it gave a device copy
WIDTH = {"bf16": 2, "f16": 2, "f32": 4}
SHORT_US = 5  # below this a launch is most of the time, and the floor says little


def out_width(row: dict) -> int:
    return 4 if row.get("out") == "f32" else WIDTH[row["dtype"]]


def flops(row: dict) -> float:
    return 2.0 * row["m"] * row["n"] * row["k"]


def traffic(row: dict) -> float:
    """Bytes that must move once: A, the B of each group, D, and C where it is read."""
    m, n, k = row["m"], row["n"], row["k"]
    inputs = WIDTH[row["dtype"]] * (m * k + row.get("groups", 1) * n * k)
    return inputs + out_width(row) * m * n * (2 if row.get("beta") else 1)


def floor_us(row: dict) -> float:
    return max(flops(row) / FLOPS[row["dtype"]], traffic(row) / BYTES) * 1e6


def ratio(row: dict) -> float:
    """Above 1 where libgemm is faster."""
    return row["peer_us"] / row["ours_us"]


def share(row: dict) -> float:
    return row["floor_us"] / row["ours_us"]


def aligned(row: dict) -> bool:
    """Whether every row of A, B and D can start at a multiple of 16 bytes, which the copy engine asks for."""
    m, n, k, layout = row["m"], row["n"], row["k"], row.get("layout", "NT")
    inner = (k if layout[0] == "N" else m, n if layout[1] == "N" else k)
    return all(size * WIDTH[row["dtype"]] % 16 == 0 for size in inner) and n * out_width(row) % 16 == 0


KINDS = {  # name -> what belongs to it; the first that takes a row. `least` is the shorter side of D (of one group)
    "unaligned": lambda row, least: not aligned(row),
    "C is added": lambda row, least: row.get("beta"),
    "up to 16 rows": lambda row, least: least <= 16,
    "up to 256 rows": lambda row, least: least <= 256,
    "small": lambda row, least: flops(row) <= 2.0 * 2048**3,
    "large": lambda row, least: True,
}


def kind(row: dict) -> str:
    least = min(row["m"] / row.get("groups", 1), row["n"])
    return next(name for name, takes in KINDS.items() if takes(row, least))


def label(row: dict) -> str:
    """The product in words: 4096 x 7168 x 2048 NN."""
    words = [f"{row['m']} x {row['n']} x {row['k']} {row.get('layout', '')}".strip()]
    words += [f"{row.get('groups')} groups"] * ("groups" in row)
    words += ["into float32"] * (out_width(row) > WIDTH[row["dtype"]])
    beta = row.get("beta", 0)
    words += ["alpha = beta = 2" if beta == 2 else f"beta = {beta:g}"] * bool(beta)
    return ", ".join(words)


def groups(rows: list[dict]) -> dict[str, list[dict]]:
    """Rows by operation and type: "gemm bf16" and so on, in the report's order."""
    found = {}
    for row in rows:
        found.setdefault(f"{row['op']} {row['dtype']}", []).append(row)
    return found


def geomean(values) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summarise(rows: list[dict]) -> dict:
    found = {}
    for name, own in groups(rows).items():
        worst = min(own, key=ratio)
        found[name] = {
            "geomean": geomean(map(ratio, own)), "worst": worst["id"], "worst_ratio": ratio(worst),
            "floor_share": geomean(share(row) for row in own if row["floor_us"] >= SHORT_US),
        }  # fmt: skip
    return found


def digest(report: dict) -> str:
    """What a picture of the report carries, so that one of other rows is known without drawing it."""
    drawn = {key: report[key] for key in ("build_id", "device", "rows")}
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()
