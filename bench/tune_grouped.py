"""Times every grouped kernel in the library on many packed products: material for choosing among them. Chooses nothing.

    python bench/tune_grouped.py [--problems 2000] [--seconds 480] [--library runtime] [--out bench/tuning]

Needs a GPU, torch and a built library (`--library` is the folder its Python package is in); Triton is not used. As in
bench/tune.py: CUDA graphs over rotated inputs, in turn, until the medians are steady; one whose result is off is left
out. Results are appended to <out>/<arch>_grouped.jsonl as they come: stop it, run it again, and it goes on. m, n, k of
a line are those of bench/grouped.json; Packed.sizes gives the sizes of its groups again.
"""

import argparse
import math
import random
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import tune  # noqa: E402
from bench.rows import floor_us, traffic  # noqa: E402
from bench.sizes import draw_sizes  # noqa: E402
from kernels.variants import variants  # noqa: E402

DISTRIBUTIONS = {  # name -> what bench/sizes.py draws for so many rows
    "uniform": lambda rows: {"kind": "equal"},
    "multinomial": lambda rows: {"kind": "top_k", "top_k": 1, "tokens": rows},
    "skewed": lambda rows: {"kind": "squares", "least": 0.02},
    "half": lambda rows: {"kind": "half"},
}
LONGEST_US = 3000  # floors above are not drawn


class Packed(NamedTuple):
    """One product to measure."""

    ragged: str
    groups: int
    m: int
    n: int
    k: int
    layout: str
    distribution: str
    seed: int

    @property
    def case(self) -> dict:
        return {**self._asdict(), "op": "grouped_mm"}

    def sizes(self) -> list[int]:
        rows = self.k if self.ragged == "K" else self.m
        return draw_sizes(self.groups, rows, DISTRIBUTIONS[self.distribution](rows), f"tune {self.seed}")


def draw_problem(seed: int) -> Packed:
    """Log-uniform sizes, one in five with groups along K; N and K (or M) multiples of 64, one in ten of 8."""
    draw = random.Random(f"tune grouped {seed}")

    def log_uniform(low: int, high: int) -> int:
        return round(math.exp(draw.uniform(math.log(low), math.log(high))))

    while True:
        groups, rows = log_uniform(1, 256), log_uniform(1, 65536)
        step = 64 if draw.random() < 0.9 else 8
        width, depth = (log_uniform(256, 8192) // step * step for _ in range(2))
        ragged = "K" if draw.random() < 0.2 else "M"
        layout = "tn" if ragged == "K" else draw.choice(("nt", "nn"))
        m, k = (depth, rows) if ragged == "K" else (rows, depth)
        found = Packed(ragged, groups, m, width, k, layout, draw.choice(list(DISTRIBUTIONS)), seed)
        if floor_us({**found.case, "dtype": "bf16"}) < LONGEST_US:
            return found


def shape_of(line: dict) -> Packed:
    return Packed(*(line[name] for name in Packed._fields))


class Worker(tune.Worker):
    """Measures packed products by every grouped kernel of the library."""

    def table(self, target: int, dtype: str) -> dict:
        shipped = {v.name for v in self.libgemm.variants()}
        rows = [v for v in variants((target,)) if v.problem.op == "grouped_mm" and v.name in shipped]
        return {v.name: v for v in rows if (v.problem.a, v.problem.d) == (dtype, dtype)}

    def measure(self, shape: Packed) -> dict:
        from bench import grouped

        case, sizes = {**shape.case, "layout": shape.layout.upper()}, shape.sizes()
        row = {**case, "dtype": self.dtype, "filled": sum(size > 0 for size in sizes)}
        count = self.timing.rotations(traffic(row))
        inputs = [(grouped.operands(case, self.dtype, sizes),) for _ in range(count)]
        one = inputs[0][0]
        expected = list(grouped.products(case, one, sizes))
        graphs, wrong = {}, []
        for name, variant in self.rows.items():
            if variant.problem.layout != shape.layout:
                continue
            one.out.fill_(math.nan)
            try:
                call = lambda x, n=name: grouped.call_grouped_mm(x, variant=n)  # noqa: E731
                graphs[name] = self.timing.capture(call, inputs)
            except self.libgemm.Error:
                continue  # its guard refuses this shape
            if not all((d - exact).norm() <= 1e-2 * exact.norm() for d, exact in expected):
                wrong.append(name)
                del graphs[name]
        return {**shape._asdict(), **self.outcome(graphs, count, wrong)}

    def key(self, name: str) -> str:
        return self.rows[name].shape_name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f16"))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--library", type=Path, default=ROOT / "runtime")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "tuning")
    options = parser.parse_args()
    target, head, gpus = tune.machine(options.library, options.dtype)
    path = options.out / f"sm{target}_grouped.jsonl"
    job = tune.Job(Worker, options.library, options.dtype, shape_of)
    tune.run([draw_problem(seed) for seed in range(options.problems)], set(), head, path, gpus, options.seconds, job)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
