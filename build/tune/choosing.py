"""How long the choice of a kernel takes for a problem that was not seen before, and what shortlists lose.

`python -m build.tune.choosing` draws problems anew and prints a line for each kind of them. It needs no GPU. The
library's own choosing code is compiled with choosing.c, which does nothing else.
"""

import argparse
import random
import secrets
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from aot.manifest import make_manifest
from aot.pack import pack
from aot.render import in_table_order, render
from bench.suites.dense_drawn import KINDS
from build.__main__ import make_plan
from build.cache import Cache
from build.compile_all import compile_all
from build.shortlist import make_program, shortlists
from build.tree import ROOT
from kernels.table.dtypes import DTYPES, PRECISIONS
from kernels.table.variants import variants

PROGRAM = Path(__file__).with_suffix(".c")
FIELDS = ("listed_ns", "all_ns", "differ", "mean_loss", "largest_loss")
# What each kind is multiplied in: types of A and D, precision, and its shapes' generator.
CASES = {
    **{kind: ("bf16", "bf16", "exact", make) for kind, make in KINDS.items()},
    "log into float32": ("bf16", "f32", "exact", KINDS["log"]),
    "fwd in 8 bits": ("e4m3", "bf16", "exact", KINDS["fwd"]),
    "fwd in 8 bits, fast": ("e4m3", "bf16", "fast", KINDS["fwd"]),
    "fwd in TF32": ("f32", "f32", "tf32", KINDS["fwd"]),
}


def files() -> dict[str, str | bytes]:
    """The generated C of the build in .cache for sm_90; what is not there is compiled."""
    plan = make_plan()
    table = variants((90,), plan.types)
    artifacts = compile_all(table, Cache(ROOT / ".cache" / "artifacts", plan.min_driver), plan.limits)
    rows = in_table_order(list(zip(table, artifacts, strict=True)))
    found = render(rows, pack(artifacts), make_manifest(rows, "0", {}))
    return found | {"shortlists.c": shortlists(rows, found, ROOT / ".cache" / "shortlists", plan.limits.jobs)}


def line(a: str, d: str, precision: str, m: int, n: int, k: int, layout: str) -> str:
    """A problem for choosing.c."""
    facts = DTYPES[a].c_enum, DTYPES[d].c_enum, PRECISIONS[precision], *(int(x == "T") for x in layout), m, n, k
    return " ".join(map(str, facts))


def lines(a: str, d: str, precision: str, make: Callable, draw: random.Random, count: int) -> str:
    """Problems for choosing.c."""
    return "\n".join(line(a, d, precision, *make(draw)[:4]) for _ in range(count))


def times(choosing: Path, problems: str) -> list[tuple[float, float]]:
    """Of problems as lines() has them, the microseconds of the choice, and of that among all rows."""
    done = subprocess.run([choosing, "each"], input=problems, capture_output=True, text=True, check=True)
    return [tuple(map(float, line.split())) for line in done.stdout.splitlines()]


def measure(choosing: Path, case: tuple, draw: random.Random, count: int) -> dict:
    done = subprocess.run([choosing], input=lines(*case, draw, count), capture_output=True, text=True, check=True)
    return dict(zip(FIELDS, map(float, done.stdout.split()), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--count", type=int, default=20000, help="problems of each kind")
    options = parser.parse_args()
    draw = random.Random(f"choosing {options.seed}")
    print(f"seed {options.seed}: nanoseconds a choice, among a shortlist and among all rows; choices that differ, and "
          "how much longer they are expected to take")  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        choosing = make_program(files(), PROGRAM, Path(name), "choosing")
        for kind, case in CASES.items():
            found = measure(choosing, case, draw, options.count)
            print(f"{kind:20} {found['listed_ns']:6.0f} {found['all_ns']:6.0f}   {found['differ']:.2%} differ, "
                  f"{found['mean_loss']:.4%} in the mean, {found['largest_loss']:.1%} at most")  # fmt: skip


if __name__ == "__main__":
    main()
