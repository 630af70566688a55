"""Times every candidate on many packed products, for kernels/table/tuned/<arch>_grouped_mm.json. Chooses nothing.

    python build/tune/grouped.py [--problems 2000 [--first 0]] [--ragged K none] [--seconds 480] [--shipped]
        [--out build/tune/measured]

As dense.py, of packed groups: a worker a GPU, CUDA graphs over rotated inputs, in turn, until the medians are steady;
one whose result is off is left out. Results are appended to <out>/<arch>_grouped_mm.jsonl as they come: stop it, run it
again, and it goes on. m, n, k of a line are those of bench/suites/grouped.json; bench/suites/packed.py gives the sizes
of its groups again.
"""

import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.suites.packed import Packed, draw_problem, suite  # noqa: E402
from bench.suites.records import MEASURED  # noqa: E402
from bench.suites.roofline import traffic  # noqa: E402
from build.tune import dense as tune  # noqa: E402
from build.tune.candidates import grouped_candidates  # noqa: E402
from kernels.table.model import tuned_name  # noqa: E402


def shape_of(line: dict) -> Packed:
    return Packed(*(line[name] for name in Packed._fields))


class Worker(tune.Worker):
    """Measures packed products by every candidate."""

    def table(self, target: int, dtype: str) -> dict:
        there = {v.name for v in self.libgemm.variants()}
        return {v.name: v for v in grouped_candidates(target, dtype) if v.name in there}

    def measure(self, shape: Packed) -> dict:
        from bench.measure import grouped

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first drawn problem")
    parser.add_argument("--ragged", nargs="*", choices=("M", "K", "none"), help="of the drawn ones, those alone")
    parser.add_argument("--shipped", action="store_true", help="the kernels that ship, in runtime/")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f16"))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=MEASURED)
    options = parser.parse_args()
    library = ROOT / "runtime" if options.shipped else tune.CANDIDATES
    target, head, gpus = tune.machine(library, options.dtype)
    path = options.out / f"{tuned_name(target, 'grouped_mm')}.jsonl"
    job, more = tune.Job(Worker, library, shape_of), {"shipped": True} if options.shipped else {}
    drawn = [draw_problem(seed) for seed in range(options.first, options.first + options.problems)]
    drawn = [problem for problem in drawn if not options.ragged or problem.ragged in options.ragged]
    known = [] if options.first else suite()  # later ones are more of the same
    tune.run([*known, *drawn], set(known), head, path, gpus, options.seconds, job, **more)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
