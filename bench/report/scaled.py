"""What README says of 8-bit products, from bench/run_scaled.py's report, and that report's summary. Measures
nothing, needs no torch.
"""

import json
from pathlib import Path

from bench.report.drawn import percentile
from bench.report.rows import geomean
from bench.report.words import Builds, Origin, listed, of_its_own, section, table, wrapped
from bench.suites.scaled import BLOCKS, DEEP_GEMM, GROUPS

COMMAND = "python bench/run_scaled.py"
# Rows (of groups that have some, on average) from which a product is held to be bound by multiplying, and up to which
# by the bytes of B; of gradients it is K that the groups have in rows.
LARGE = {"list": 2048, "drawn": 2048, "equal groups": 512, "uneven groups": 512, "groups": 512, "gradients": 2048}
FEW = {"list": 128, "drawn": 128, "equal groups": 16, "uneven groups": 16, "groups": 16, "gradients": 0}
LONG_US = 10  # of a floor that a share is stated of
NAMES = {
    ("tensor", "exact"): "tensor-wise, float32 sums",
    ("tensor", "fast"): "tensor-wise, fast sums",
    ("row", "exact"): "row-wise, float32 sums",
    ("row", "fast"): "row-wise, fast sums",
    (BLOCKS, "exact"): "block-wise (1x128, 128x128)",
}


def rows_of(row: dict) -> float:
    """Of a product, or of a group that has some, on average."""
    return float(row["k" if row["kind"] == "gradients" else "m"] / row.get("filled", 1))


def is_large(row: dict) -> bool:
    return rows_of(row) >= LARGE[row["kind"]]


def has_few(row: dict) -> bool:
    return rows_of(row) <= FEW[row["kind"]]


def summary(rows: list[dict]) -> dict:
    """Ratios are the other's time over libgemm's, where the other takes the shape: `beside` of them."""
    of_torch = [us / row["ours_us"] for row in rows for name, us in row["peers"].items() if name != DEEP_GEMM]
    deep = [row["peers"][DEEP_GEMM] / row["ours_us"] for row in rows if DEEP_GEMM in row["peers"]]
    found = {"shapes": len(rows), "beside": len(of_torch)}
    if deep:
        found |= {"deep": len(deep), "deep_mean": geomean(deep), "deep_least": min(deep)}
    if padded := [row["padded_us"] / row["ours_us"] for row in rows if "padded_us" in row]:
        found |= {"padded": geomean(padded)}
    if of_torch:
        found |= {"mean": geomean(of_torch), "low": percentile(of_torch, 5), "least": min(of_torch)}
    parts = {
        "large_rate": [2e-6 * row["m"] * row["n"] * row["k"] / row["ours_us"] for row in rows if is_large(row)],
        "large_bf16": [row["bf16_us"] / row["ours_us"] for row in rows if is_large(row)],
        "few_bf16": [row["bf16_us"] / row["ours_us"] for row in rows if has_few(row)],
        "few_share": [row["floor_us"] / row["ours_us"] for row in rows if has_few(row) and row["floor_us"] >= LONG_US],
    }
    return found | {name: geomean(values) for name, values in parts.items() if values}


def summarise(rows: list[dict]) -> dict[str, dict[str, dict]]:
    """kind -> what scales and sums -> figures."""
    found: dict[str, dict[str, dict]] = {}
    for kind in LARGE:
        for (recipe, sums), name in NAMES.items():
            own = [row for row in rows if (row["kind"], row["recipe"], row["accumulation"]) == (kind, recipe, sums)]
            if own:
                found.setdefault(kind, {})[name] = summary(own)
    return found


COLUMNS = {
    "mean": "mean", "low": "5th percentile", "least": "least", "deep_mean": "DeepGEMM, mean",
    "deep_least": "DeepGEMM, least", "padded": "of padded groups", "large_rate": "TFLOP/s, large",
    "large_bf16": "bf16 / fp8, large", "few_bf16": "bf16 / fp8, few rows", "few_share": "of the floor, few rows",
}  # fmt: skip


def columns(found: dict) -> dict[str, str]:
    """Those that some row has."""
    there = {key for own in found.values() for one in own.values() for key in one}
    return {key: words for key, words in COLUMNS.items() if key in there}


def cells(found: dict) -> list[list[str]]:
    shown = columns(found)
    return [
        [kind, name, f"{one['beside']} of {one['shapes']}",
         *(f"{one[key]:.{0 if key == 'large_rate' else 2}f}" if key in one else "-" for key in shown)]
        for kind, own in found.items() for name, one in own.items()
    ]  # fmt: skip


def lines(found: dict) -> list[str]:
    """For a terminal."""
    rows = [["", "scales and sums", "torch takes", *columns(found)], *cells(found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def means_of(found: dict[str, dict], blocks: str) -> str:
    """The mean ratios of one kind's recipes, those of a recipe from the least on; what stands for block-wise ones."""
    shapes, parts = next(iter(found.values()))["shapes"], []
    names = {BLOCKS: blocks, "row": "row-wise", "tensor": "tensor-wise"}
    for recipe, words in names.items():
        own = [found[name] for (of, _), name in NAMES.items() if of == recipe and name in found]
        means = dict.fromkeys(f"{one['mean']:.2f}" for one in sorted(own, key=lambda one: one["mean"]))
        beside = {one["beside"] for one in own} - {shapes}
        taken = f" (the {min(beside)} that torch takes)" if beside else ""
        if own:
            parts.append(f"{' to '.join(list(means)[:: max(len(means) - 1, 1)])} {words}{taken}")
    return listed(parts)


def scaled_item(path: Path, head: str, built: str | None = None) -> str:
    """An item of the first screen, where the report is of the same build as its head, or of the tree's."""
    report = path.with_suffix(".fp8.json")
    if not report.is_file() or (found := json.loads(report.read_text()))["build_id"] not in (head, built):
        return ""
    words = {
        "drawn": ("torch's `scaled_mm` over {} shapes drawn at random", "block-wise"),
        "groups": ("`scaled_grouped_mm` over {} drawn layers of experts", "block-wise (torch: row-wise)"),
    }
    parts = []
    for kind, (beside, blocks) in words.items():
        own = {name: one for name, one in summarise(found["rows"]).get(kind, {}).items() if "mean" in one}
        if own:
            parts.append(f"{beside.format(next(iter(own.values()))['shapes'])}: {means_of(own, blocks)}")
    about = f"- **fp8 (e4m3)**{of_its_own(found, head, built)} against"
    return wrapped(f"{about} {'; against '.join(parts)}.", "  ") if parts else ""


def own_words(found: dict) -> str:
    """Of what not every report has."""
    said = ""
    if "equal groups" in found:
        sizes = listed([f"{groups} of {rows} rows ({n} x {k})" for groups, rows, n, k in GROUPS])
        said += f"Listed groups: {sizes}; uneven ones are as many rows, in groups that begin and end anywhere. "
    if "deep_mean" in columns(found):
        said += "DeepGEMM has the same block-wise scales; its groups are padded to 128 rows. "
    if "padded" in columns(found):
        said += (
            "Uneven groups run a second time padded like that, by libgemm itself: their time over that of the groups "
            "as they are. "
        )
    return said


def scaled_words(path: Path, builds: Builds, origin: Origin) -> list[str]:
    """The section's table; `origin` says what a report is of."""
    report = path.with_suffix(".fp8.json")
    return section(report, builds, lambda found: f"8-bit products {origin(report, COMMAND, found)}", products_said)


def products_said(found: dict) -> tuple[str, str]:
    told = summarise(found["rows"])
    words = (
        f"e4m3 operands, bfloat16 D, against `torch.nn.functional.scaled_mm` of torch {found['torch']} with the same "
        "recipe, on a list, which the choice is fitted to among others, and on shapes drawn with seed "
        f"{found['seed']}; packed groups of drawn layers of experts "
        "against `scaled_grouped_mm`, whose scales are row-wise, also where libgemm's are block-wise; "
        "then gradients of experts' weights, whose ends cut K, three with large equal groups, the others drawn, "
        "against the same, which takes groups of multiples of 16 rows alone. "
        f"{own_words(told)}"
        f"Ratios are the other's time over libgemm's, of the shapes that torch takes. Large products have "
        f"{LARGE['drawn']} rows or more (gradients: of K in a group), few rows are {FEW['drawn']} at most, of groups "
        f"{LARGE['groups']} and "
        f"{FEW['groups']} on average; their share of the floor is of those that would take {LONG_US} us or more."
    )
    head = ["", "scales and sums", "torch takes", *columns(told).values()]
    return words, table(head, cells(told))
