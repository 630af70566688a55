"""Times every candidate on many packed products, for kernels/table/tuned/<arch>_grouped_mm.json. Chooses nothing.

    python build/tune/grouped.py [--problems 2000 [--first 0]] [--layers] [--ragged K none] [--dtype bf16]
        [--seconds 480] [--shipped] [--out build/tune/measured]

As dense.py, of packed groups: a worker a GPU, CUDA graphs over rotated inputs, in turn, until the medians are steady;
one whose result is off is left out. Results are appended to <out>/<arch>_grouped_mm.jsonl as they come: stop it, run it
again, and it goes on. m, n, k of a line are those of bench/suites/grouped.json; bench/suites/packed.py gives the sizes
of its groups again, where the line has none. Of 8-bit operands those problems whose ends cut the rows are measured,
with all scales 1.
"""

import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.suites.layers_drawn import tuned_layer  # noqa: E402
from bench.suites.packed import Packed, draw_problem, suite  # noqa: E402
from bench.suites.records import MEASURED  # noqa: E402
from bench.suites.roofline import traffic  # noqa: E402
from bench.suites.scaled import BLOCKS  # noqa: E402
from build.tune import dense as tune  # noqa: E402
from build.tune.candidates import TYPES, grouped_candidates  # noqa: E402
from kernels.table.dtypes import DTYPES  # noqa: E402
from kernels.table.model import tuned_name  # noqa: E402

BLOCK = 128  # of K, and columns of B, that share a scale


def is_scaled(dtype: str) -> bool:
    """Of a key of TYPES, whether operands have scales."""
    return DTYPES[TYPES[dtype][0]].scaled


def takes(problem: Packed, dtype: str) -> bool:
    """Whether kernels of these types have rows of their own for a problem."""
    rows_cut = (problem.ragged, problem.layout) == ("M", "nt")
    return not is_scaled(dtype) or (rows_cut and problem.k % 16 == 0)


def shape_of(line: dict) -> Packed:
    return Packed(*(line[name] for name in Packed._fields))


class Worker(tune.Worker):
    """Measures packed products by every candidate."""

    def table(self, target: int, dtype: str) -> dict:
        there = {v.name for v in self.libgemm.variants()}
        return {v.name: v for v in grouped_candidates(target, dtype) if v.name in there}

    def operands(self, case: dict, sizes: list[int]):
        """Those of bench/measure/grouped.py; of 8 bits cast from bfloat16, into which D is computed."""
        from bench.measure import grouped

        if not is_scaled(self.dtype):
            return grouped.operands(case, self.dtype, sizes)
        one = grouped.operands(case, "bf16", sizes)
        one.a, one.b, one.peer = one.a.to(self.type), one.b.to(self.type), None
        return one

    def words(self, shape: Packed) -> dict:
        """What a call of 8-bit operands has besides: scales of rows, or of blocks, as torch strides them."""
        from bench.measure.grouped import DEVICE

        _, _, precision, _, blocks = TYPES[self.dtype]
        if not is_scaled(self.dtype):
            return {"beta": 0.0}
        ones, steps = self.torch.ones, -(-shape.k // BLOCK)
        sizes = ((shape.m,), (shape.groups, shape.n))
        if blocks:
            sizes = ((steps, shape.m), (shape.groups, steps, -(-shape.n // BLOCK)))
        of_a, of_b = (ones(size, device=DEVICE) for size in sizes)
        scales = {"scaling": BLOCKS if blocks else "row", "a_scale": of_a.t() if blocks else of_a, "b_scale": of_b}
        return {"precision": precision, **scales}

    def measure(self, shape: Packed) -> dict:
        from bench.measure import grouped

        case, sizes = {**shape.case, "layout": shape.layout.upper()}, shape.sizes()
        row = {**case, "dtype": TYPES[self.dtype][0], "filled": sum(size > 0 for size in sizes)}
        count = self.timing.rotations(traffic(row))
        inputs, words = [(self.operands(case, sizes),) for _ in range(count)], self.words(shape)
        one = inputs[0][0]
        expected = list(grouped.products(case, one, sizes))
        graphs, wrong = {}, []
        for name, variant in self.rows.items():
            if variant.problem.layout != shape.layout:
                continue
            one.out.fill_(math.nan)
            try:
                call = lambda x, n=name: self.libgemm.grouped_mm(x.a, x.b, x.offs, out=x.out, variant=n, **words)  # noqa: E731
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
    parser.add_argument("--layers", action="store_true", help="draw products of layers of experts, not any sizes")
    parser.add_argument("--ragged", nargs="*", choices=("M", "K", "none"), help="of the drawn ones, those alone")
    parser.add_argument("--shipped", action="store_true", help="the kernels that ship, in runtime/")
    parser.add_argument("--dtype", default="bf16", choices=tuple(TYPES))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=MEASURED)
    options = parser.parse_args()
    library = ROOT / "runtime" if options.shipped else tune.CANDIDATES
    target, head, gpus = tune.machine(library, options.dtype)
    kind = grouped_candidates(target, options.dtype)[0].measured_as
    path = options.out / f"{tuned_name(target, kind)}.jsonl"
    job, more = tune.Job(Worker, library, shape_of), {"shipped": True} if options.shipped else {}
    draw = tuned_layer if options.layers else draw_problem
    drawn = [draw(seed) for seed in range(options.first, options.first + options.problems)]
    drawn = [problem for problem in drawn if not options.ragged or problem.ragged in options.ragged]
    drawn = [problem for problem in drawn if takes(problem, options.dtype)]
    # Later ones are more of the same, and of 8-bit operands nothing is known.
    known = [] if options.first or options.layers or is_scaled(options.dtype) else suite()
    tune.run([*known, *drawn], set(known), head, path, gpus, options.seconds, job, **more)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
