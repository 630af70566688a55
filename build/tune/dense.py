"""Times every candidate on many shapes: what kernels/table/tuned/<arch>.json is fitted to. Chooses nothing itself.

    python build/tune/dense.py [--shapes 3000 [--first 0] | --file shapes.jsonl] [--seconds 480] [--shipped]
        [--out build/tune/measured]

`make tune` runs this, then merge.py and fit.py. Needs a GPU, torch and the candidates that `make candidates` built;
Triton is not used. Each shape's candidates run from CUDA graphs over rotated inputs, in turn, until the medians are
steady; one whose result is off is left out. One worker a GPU. Results are appended to <out>/<arch>.jsonl as they come:
stop it, run it again, and it goes on. merge.py takes them into the packed file that is kept. With --shipped the kernels
are those of dist/, which is enough for new weights (`fit.py --keep`), not for a new choice of tiles.
"""

import argparse
import datetime
import json
import math
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.measure.driver import driver  # noqa: E402
from bench.suites import SUITES  # noqa: E402
from bench.suites.dense_drawn import KINDS  # noqa: E402
from bench.suites.records import MEASURED  # noqa: E402
from bench.suites.roofline import aligned, floor_us  # noqa: E402
from bench.suites.scaled import BLOCKS, LIST  # noqa: E402
from build.tune.candidates import TYPES, candidates  # noqa: E402
from kernels.table import model  # noqa: E402
from kernels.table.dtypes import DTYPES  # noqa: E402

CANDIDATES = ROOT / ".cache" / "candidates"


def decoding(draw: random.Random) -> tuple:
    """Log-uniform sizes, half of them with the M of decoding, M any number below 128."""
    low, high = draw.choice(((1, 512), (1, 16384)))
    m, n, k = (math.exp(draw.uniform(math.log(x), math.log(y))) for x, y in ((low, high), (32, 65536), (32, 32768)))
    layout = draw.choice(("NN", "NT", "NT", "TN", "TT"))
    m = round(m) if layout[0] == "N" and m < 128 else max(8, round(m / 8) * 8)
    return m, round(n / 8) * 8, round(k / 8) * 8, layout


def draw_shape(seed: int, types: str) -> tuple[int, int, int, str]:
    """As the bench draws them, with seeds that it never has, or of decoding; floor below 3 ms. 8-bit operands have the
    one layout that tensor cores take."""
    dtype, _, _, layouts, _ = TYPES[types]
    draw = random.Random(f"tune {seed}")
    while True:
        m, n, k, layout = draw.choice((*KINDS.values(), decoding))(draw)[:4]
        if layouts == ("nt",):
            n, k, layout = n // 16 * 16, k // 16 * 16, "NT"
        row = {"m": m, "n": n, "k": k, "layout": layout, "dtype": dtype, "out": "same"}
        if aligned(row) and floor_us(row) < 3000:
            return m, n, k, layout.lower()


def suite(types: str) -> list[tuple[int, int, int, str]]:
    """The aligned shapes of the benchmark: what people run."""
    if DTYPES[TYPES[types][0]].scaled:
        return [(m, n, k, "nt") for m, n, k in LIST]
    shapes = json.loads((SUITES / "dense.json").read_text())["shapes"]
    return [(s["m"], s["n"], s["k"], s["layout"].lower()) for s in shapes if not (s["n"] % 8 or s["k"] % 8)]


def recorded_shapes(path: Path) -> list[tuple[int, int, int, str]]:
    """One JSON object a line: m, n, k, layout."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [(r["m"], r["n"], r["k"], r["layout"].lower()) for r in rows]


def library_and_torch(library: Path):
    sys.modules["triton"] = None  # kernels must come from the library
    sys.path.insert(0, str(library))
    import libgemm
    import torch

    return libgemm, torch


class Worker:
    """Measures on the one GPU this process sees."""

    def __init__(self, library: Path, dtype: str):
        self.libgemm, self.torch = libgemm, torch = library_and_torch(library)
        from bench.measure import timing

        self.timing, self.dtype = timing, dtype
        a, d, self.precision, _, self.blocks = TYPES[dtype]
        self.scaled = DTYPES[a].scaled
        types = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
        self.type, self.out_type = types[a], types[d]
        libgemm.preload(0)
        self.scales = torch.ones(1 << 25, device="cuda")
        major, minor = torch.cuda.get_device_capability()
        self.multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        self.rows = self.table(major * 10 + minor, dtype)

    def table(self, target: int, dtype: str) -> dict:
        """The kernels to measure, by name: candidates that the library has."""
        there = {v.name for v in self.libgemm.variants()}
        return {v.name: v for v in candidates(target, dtype) if v.name in there}

    def matrix(self, rows: int, cols: int, turned: bool):
        shape = (cols, rows) if turned else (rows, cols)
        made = self.torch.randn(shape, device="cuda").to(self.type)
        return made.t() if turned else made

    def near(self, m: int, n: int, k: int, layout: str) -> list[str]:
        """The candidates of a layout, without those that cannot win by the rates alone."""
        work = model.packed_work(m, n, k, layout, self.multiprocessors, self.type.itemsize)
        us = {}
        for name, v in self.rows.items():
            if v.problem.layout == layout and (v.form[0] == 1 or model.is_shared(work)):
                tile = v.config.block_m, v.config.block_n, v.config.block_k
                us[name] = model.estimate(*tile, v.family, work, v.config.below, v.config.across)[0]
        return [name for name in us if us[name] <= model.FAR * min(us.values())]

    def measure(self, shape: tuple[int, int, int, str]) -> dict:
        m, n, k, layout = shape
        torch, libgemm = self.torch, self.libgemm
        count = self.timing.rotations(self.type.itemsize * (m * k + n * k) + 2 * m * n)
        inputs = [
            (self.matrix(m, k, layout[0] == "t"), self.matrix(k, n, layout[1] == "t"),
             torch.empty(m, n, device="cuda", dtype=self.out_type)) for _ in range(count)
        ]  # fmt: skip
        a, b, out = inputs[0]
        exact = a.float() @ b.float()
        graphs, wrong = {}, []
        for name in self.near(m, n, k, layout):
            out.fill_(math.nan)
            try:
                graphs[name] = self.timing.capture(lambda a, b, o, n=name: self.call(a, b, o, n), inputs)
            except libgemm.Error:
                continue  # its guard refuses this shape
            if not (out - exact).norm() <= 1e-2 * exact.norm():
                wrong.append(name)
                del graphs[name]
        return {"m": m, "n": n, "k": k, "layout": layout, **self.outcome(graphs, count, wrong)}

    def call(self, a, b, out, name: str) -> None:
        """8-bit operands have scales of rows, which cost a tile's end the most, or of blocks, as torch strides them."""
        words = {}
        (m, k), n = a.shape, b.shape[1]
        if self.blocks:
            steps = -(-k // 128)
            of_a, of_b = (self.scales[: x * steps].view(shape).t() for x, shape in
                          ((m, (steps, m)), (-(-n // 128), (-1, steps))))  # fmt: skip
            words = {"scaling": BLOCKS, "a_scale": of_a, "b_scale": of_b}
        elif self.scaled:
            rows, cols = self.scales[:m], self.scales[:n]
            words = {"precision": self.precision, "scaling": "row", "a_scale": rows, "b_scale": cols}
        self.libgemm.gemm(a, b, out=out, variant=name, **words)

    def outcome(self, graphs: dict, count: int, wrong: list[str]) -> dict:
        """The times, by what a kernel is called in the record."""
        us, spread = self.settle(graphs, count)
        return {"spread": round(spread, 4), "us": {self.key(name): found for name, found in us.items()},
                "wrong": [self.key(name) for name in wrong]}  # fmt: skip

    def key(self, name: str) -> str:
        return self.rows[name].fit_name

    def settle(self, graphs: dict, count: int) -> tuple[dict, float]:
        """Medians of rounds that run each graph in turn, five at least, since a card that its power holds back is not
        as fast from one to the next, and until the middle half of the best one's is within 2 %."""
        times = {name: [] for name in graphs}
        if not graphs:
            return {}, 0.0
        order = list(graphs)
        for done in range(1, 16):
            random.shuffle(order)  # who comes after a kernel that draws little power finds higher clocks
            for name in order:
                times[name].append(self.timing.replay_us(graphs[name], count))
            medians = {name: sorted(values)[done // 2] for name, values in times.items()}
            best = sorted(times[min(medians, key=medians.get)])
            spread = (best[done * 3 // 4] - best[done // 4]) / best[done // 2]
            if done >= 5 and (spread < 0.02 or sum(map(sum, times.values())) * count > 5e5):
                break
        return {name: round(us, 2) for name, us in medians.items()}, spread


class Job(NamedTuple):
    worker: type[Worker]
    library: Path  # the folder that holds its Python package
    shape_of: Callable[[dict], tuple]  # of a line of the record


def shape_of(line: dict) -> tuple[int, int, int, str]:
    return line["m"], line["n"], line["k"], line["layout"]


DENSE = Job(Worker, CANDIDATES, shape_of)


def work(gpu: int, job: Job, dtype: str, waiting, results) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    worker = job.worker(job.library, dtype)
    for shape in iter(waiting.get, None):
        try:
            results.put(worker.measure(shape))
        except Exception as error:  # told to the parent, which stops
            results.put(f"{shape}: {type(error).__name__}: {error}")
            return


def read_done(path: Path, head: dict, shape_of: Callable[[dict], tuple] = shape_of) -> set:
    """Shapes already in the file; Error when they are another build's or device's."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(head) + "\n")
        return set()
    first, *lines = path.read_text().splitlines()
    found = json.loads(first)
    for key in ("build_id", "device", "dtype"):
        if found[key] != head[key]:
            raise SystemExit(f"{path} holds {key} {found[key]}, this is {head[key]}: move it away first")
    return {shape_of(line) for line in map(json.loads, lines)}


def run(shapes: list, known: set, head: dict, path: Path, gpus: int, seconds: float, job: Job = DENSE, **more) -> None:
    """Shapes that are `known` to be run are marked: they get the tile that won. `more` goes into each line."""
    done = read_done(path, head, job.shape_of)
    left = [shape for shape in shapes if shape not in done]
    context = multiprocessing.get_context("spawn")
    waiting, results = context.Queue(), context.Queue()
    waiting.cancel_join_thread()  # who stops early must not wait for workers to take what is left
    for item in [*left, *[None] * gpus]:
        waiting.put(item)
    workers = [context.Process(target=work, args=(gpu, job, head["dtype"], waiting, results)) for gpu in range(gpus)]
    for process in workers:
        process.start()
    start = time.monotonic()
    try:
        with path.open("a") as file:
            for i in range(len(left)):
                row = results.get(timeout=300)
                if isinstance(row, str):
                    raise SystemExit(row)
                row |= {"known": job.shape_of(row) in known, **more}
                file.write(json.dumps(row) + "\n")
                file.flush()
                passed = time.monotonic() - start
                if i % 50 == 49 or i + 1 == len(left):
                    print(f"{i + 1} of {len(left)} shapes, {passed:.0f} s, "
                          f"{passed / (i + 1) * (len(left) - i - 1):.0f} s to go", flush=True)  # fmt: skip
                if passed > seconds:
                    print(f"{seconds} s are over: run it again to go on")
                    break
    finally:
        for process in workers:
            process.kill()


def machine(library: Path, dtype: str) -> tuple[int, dict, int]:
    """The target, the head of its record, and how many GPUs there are."""
    libgemm, torch = library_and_torch(library)
    from libgemm.inspect import manifest

    major, minor = torch.cuda.get_device_capability()
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    head = {
        "build_id": libgemm.info()["build_id"], "toolchain": manifest()["toolchain"], "device":
        torch.cuda.get_device_name(), "driver": driver(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "dtype": dtype, "date": now,
    }  # fmt: skip
    return major * 10 + minor, head, torch.cuda.device_count()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first drawn shape")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--shipped", action="store_true", help="the kernels that ship, in runtime/")
    parser.add_argument("--dtype", default="bf16", choices=tuple(TYPES))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=MEASURED)
    options = parser.parse_args()
    library = ROOT / "runtime" if options.shipped else CANDIDATES
    if not library.is_dir():
        raise SystemExit(f"{CANDIDATES} is missing: run `make candidates` on a machine with Triton, and copy it here")
    target, head, gpus = machine(library, options.dtype)
    kind = candidates(target, options.dtype)[0].measured_as
    known = recorded_shapes(options.file) if options.file else suite(options.dtype)
    seeds = range(options.first, options.first + options.shapes)
    drawn = [] if options.file else [draw_shape(seed, options.dtype) for seed in seeds]
    shapes = drawn if options.first else [*known, *drawn]  # later ones are more of the same
    path = options.out / f"{model.tuned_name(target, kind)}.jsonl"
    job, more = DENSE._replace(library=library), {"shipped": True} if options.shipped else {}
    run(list(dict.fromkeys(shapes)), set(known), head, path, gpus, options.seconds, job, **more)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
