"""Packed groups whose ends cut what is contiguous, beside torch's, on one GPU: a table.

    python bench/measure/turned_groups.py [--layers 24] [--seed NUMBER]

Drawn layers of experts (bench/suites/layers_drawn.py), of which operands are stored the other way round: ends cut the
rows of a transposed A, the columns of D, or a contiguous K. libgemm turns A or B in the workspace first where its fast
kernels need it, and where that pays. The peer is torch._grouped_mm; both run from CUDA graphs over inputs rotated past
L2, in alternation. torch takes groups of multiples of 8 alone, so all are. Stops where the two are not alike. Needs
dist/ built and torch; writes nothing.
"""

import argparse
import itertools
import random
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

import libgemm  # noqa: E402
import torch  # noqa: E402

from bench.measure.grouped import DEVICE, matrix, running_sums  # noqa: E402
from bench.measure.timing import alternate, rotations  # noqa: E402
from bench.suites.layers_drawn import layers  # noqa: E402

STEP = 8  # elements of 16 bits of which torch's groups are multiples
NEAR = 1e-2
LAYOUTS = {"M": ("TN", "TT"), "N": ("NN", "TN", "NT", "TT"), "K": ("NN", "NT", "TT")}


def cases(seed: int, count: int) -> list[dict]:
    """So many of each: what ends cut and the layout in turn."""
    found: list[dict] = []
    turns = {cut: itertools.cycle(own) for cut, own in LAYOUTS.items()}
    for layer in layers(seed, 5 * count):
        sizes = [size // STEP * STEP for size in layer["sizes"]]
        for cut in ("K",) if layer["ragged"] == "K" else ("M", "N"):
            if any(sizes) and sum(one["ragged"] == cut for one in found) < count:
                found.append({**turned(layer, cut, sizes), "layout": next(turns[cut])})
    return found


def turned(layer: dict, cut: str, sizes: list[int]) -> dict:
    """A layer's product with groups of these sizes; of columns, D is the transpose of what the layer's is."""
    m, n, k = layer["m"], layer["n"], layer["k"]
    total = sum(sizes)
    m, n, k = {"M": (total, n, k), "N": (n, total, k), "K": (m, n, total)}[cut]
    return {"ragged": cut, "m": m, "n": n, "k": k, "groups": len(sizes), "sizes": sizes, "note": layer["note"]}


def operands(case: dict) -> tuple:
    """A, B, ends and D: what has all groups in two dimensions, the others in three."""
    m, n, k, groups, cut = (case[name] for name in ("m", "n", "k", "groups", "ragged"))
    bf16 = torch.bfloat16
    a = matrix((groups, m, k) if cut == "N" else (m, k), case["layout"][0] == "T", bf16)
    b = matrix((groups, k, n) if cut == "M" else (k, n), case["layout"][1] == "T", bf16)
    out = torch.empty((groups, m, n) if cut == "K" else (m, n), device=DEVICE, dtype=bf16)
    return a, b, running_sums(case["sizes"]), out


def ours(a, b, ends, out) -> None:
    libgemm.grouped_mm(a, b, ends, out=out)


def peer(a, b, ends, _):
    return torch._grouped_mm(a, b, offs=ends)


def measure(case: dict) -> dict:
    one = operands(case)
    inputs = [one, *(operands(case) for _ in range(rotations(sum(x.nbytes for x in one)) - 1))]
    one[3].fill_(float("nan"))
    ours(*one)
    want = peer(*one).float()
    if not (one[3].float() - want).norm() <= NEAR * want.norm():
        raise SystemExit(f"{case}: libgemm's product is not torch's")
    about_us = 2 * case["m"] * case["n"] * case["k"] / 8e8  # at 800 TFLOP/s
    return {**case, **alternate({"ours": ours, "torch": peer}, inputs, max(5.0, about_us))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24, help="of each: rows, columns, K")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), metavar="NUMBER")
    options = parser.parse_args()
    print(f"seed {options.seed}, build {libgemm.info()['build_id'][:16]}, {torch.cuda.get_device_name()}")
    rows = []
    for case in cases(options.seed, options.layers):
        rows.append(row := measure(case))
        sizes = " x ".join(str(row[name]) for name in ("m", "n", "k"))
        print(f"{row['ragged']} {row['layout']} {sizes} in {row['groups']}: {row['ours']:.1f} us, torch "
              f"{row['torch']:.1f}", flush=True)  # fmt: skip
        torch.cuda.empty_cache()
    for cut in LAYOUTS:
        ratios = [row["torch"] / row["ours"] for row in rows if row["ragged"] == cut]
        print(f"{cut}: {statistics.geometric_mean(ratios):.2f} of torch's time, at least {min(ratios):.2f}, "
              f"{len(ratios)} products")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
