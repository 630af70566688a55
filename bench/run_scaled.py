"""8-bit products with scales beside torch's own, on one GPU: a table, and bench/results/<device>.fp8.json.

    python bench/run_scaled.py [--drawn 100] [--groups 60] [--gradients 20] [--seed NUMBER] [--out DIR]

`make bench` runs it. A fixed list and shapes drawn anew at each run (bench/suites/scaled.py), e4m3 operands, D in bf16.
Each shape runs with a number for each operand and with one for each row and column, with sums in float32 ("exact") and
without ("fast"), and with scales of blocks (1x128 and 128x128): libgemm.gemm beside torch.nn.functional.scaled_mm of
the same recipe, where that takes the shape, and beside libgemm's product of bf16 operands, from CUDA graphs over inputs
rotated past L2, in alternation. So do products of drawn layers of experts, packed groups of any sizes: grouped_mm
beside scaled_grouped_mm; and gradients of their weights, with scales of rows. Where DeepGEMM can be imported, its
products stand beside those with scales of blocks (bench/measure/peer_deep_gemm.py). Casts are not timed. Needs dist/
built and torch 2.10 or newer; Triton is not used.
"""

import argparse
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]
sys.modules["triton"] = None  # kernels must come from the library

from bench.measure import peer_deep_gemm, scaled_gradients, scaled_groups  # noqa: E402
from bench.measure.about import head, keep, path_of  # noqa: E402
from bench.measure.scaled import rows_of  # noqa: E402
from bench.report.drawn import text  # noqa: E402
from bench.report.scaled import lines, summarise  # noqa: E402
from bench.suites.scaled import drawn, drawn_groups, gradients, listed, listed_groups  # noqa: E402

RESULTS = ROOT / "bench" / "results"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drawn", type=int, default=100, metavar="SHAPES")
    parser.add_argument("--groups", type=int, default=60, metavar="LAYERS")
    parser.add_argument("--gradients", type=int, default=20, metavar="LAYERS")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), metavar="NUMBER")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    options = parser.parse_args()
    products = [*listed(), *drawn(options.seed, options.drawn)]
    layers = [*listed_groups(), *drawn_groups(options.seed, options.groups)]
    peer_deep_gemm.compile_all(products + layers)
    rows = [row for product in products for row in rows_of(product)]
    rows += [row for layer in layers for row in scaled_groups.rows_of(layer)]
    rows += [row for one in gradients(options.seed, options.gradients) for row in scaled_gradients.rows_of(one)]
    about = head()
    report = {**about, "seed": options.seed, "summary": summarise(rows), "rows": rows}
    print(*lines(report["summary"]), sep="\n")
    path = path_of(about, options.out, ".fp8.json")
    keep(path, text(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
