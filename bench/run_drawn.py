"""libgemm beside torch and cuBLASLt on shapes drawn at random: a table, and bench/results/<device>.drawn.json.

    python bench/run_drawn.py [--dense 300] [--grouped 160] [--seed NUMBER] [--best 0.5] [--f16 0.1] [--seconds S]
                              [--out DIR]

`make bench` runs it. Needs dist/ built and a Python with torch and cffi; Triton is not used. Every run draws anew: the
report holds its seed, and the same seed draws the same shapes again. For a share of the rows (--best) the library's
best kernel is looked for, which says the regret of the choice; a share (--f16) is measured in float16 too. Runs smaller
than the default write only where --out says. `make report` makes the README's figures of what this writes.

After --seconds, or SIGTERM, which `timeout` sends, no shape is begun. Products and layers come in turn, so that what
was measured until then is drawn as the whole is; its report says of how many, and is written only where --out says.
"""

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]
sys.modules["triton"] = None  # kernels must come from the library

import libgemm  # noqa: E402
import torch  # noqa: E402

from bench.measure import lt_peer  # noqa: E402
from bench.measure.about import head, keep, path_of  # noqa: E402
from bench.measure.cublaslt import CublasLt  # noqa: E402
from bench.measure.drawn import dense_row, grouped_row  # noqa: E402
from bench.report.drawn import lines, summarise, text  # noqa: E402
from bench.suites import dense_drawn, layers_drawn  # noqa: E402

RESULTS = ROOT / "bench" / "results"
DENSE, GROUPED = 300, 160


def count(words: str) -> int:
    if not words.isdecimal():
        raise argparse.ArgumentTypeError(f"{words!r} is not a whole number from 0")
    return int(words)


def share(words: str) -> float:
    try:
        found = float(words)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"{words!r} is not a share from 0 to 1")
    return found


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dense", type=count, default=DENSE, metavar="SHAPES")
    parser.add_argument("--grouped", type=count, default=GROUPED, metavar="LAYERS")
    parser.add_argument("--seed", type=count, default=random.SystemRandom().randrange(10**9), metavar="NUMBER")
    parser.add_argument("--best", type=share, default=0.5, metavar="SHARE")
    parser.add_argument("--f16", type=share, default=0.1, metavar="SHARE")
    parser.add_argument("--seconds", type=count, default=0, metavar="S", help="0: until all is measured")
    parser.add_argument("--out", type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    if not options.dense + options.grouped:
        parser.error("--dense 0 --grouped 0 leaves nothing to measure")
    return options


def some(products: list[dict], part: float, seed: str) -> set[str]:
    """The ids of such a part of them, by chance."""
    return {one["id"] for one in random.Random(seed).sample(products, round(part * len(products)))}


def line(row: dict) -> str:
    name = f"{row['id']:18} {row['dtype']:5}{row['m']:7}{row['n']:7}{row['k']:7} {row['layout']}"
    names = ("ours", "torch", "cublaslt", "best_variant", "floor")
    times = [f"{who} {row[f'{who}_us']:.1f}" for who in names if f"{who}_us" in row]
    return f"{name}  {', '.join(times)} us"


def in_turn(*lists: list) -> list:
    """All of them, each list spread evenly over the whole."""
    places = [(i / len(one), nth, entry) for nth, one in enumerate(lists) for i, entry in enumerate(one)]
    return [entry for _, _, entry in sorted(places, key=lambda place: place[:2])]


class Time:
    """Whether no other shape is to begin."""

    def __init__(self, seconds: int):
        self.start, self.limit = time.monotonic(), seconds or float("inf")

    @property
    def passed(self) -> float:
        return time.monotonic() - self.start

    def up(self) -> bool:
        return self.passed >= self.limit

    def end(self, *_) -> None:
        self.limit = 0


def measure(
    lists: list[list[dict]], options: argparse.Namespace, lt: CublasLt | None, over: Callable[[], bool] = bool
) -> tuple[list[dict], int]:
    """Rows, and of how many shapes they are. Types in turn at each, so that none is measured on a hotter card."""
    best = {name for one in lists for name in some(one, options.best, f"best {options.seed}")}
    f16 = {name for one in lists for name in some(one, options.f16, f"f16 {options.seed}")}
    rows, done = [], 0
    for one in in_turn(*lists):
        if over():
            break
        for dtype in ("bf16", "f16") if one["id"] in f16 else ("bf16",):
            with_best = one["id"] in best and dtype == "bf16"
            try:
                made = grouped_row(one, dtype, with_best) if "groups" in one else dense_row(one, dtype, lt, with_best)
            except Exception:
                print(f"failed on {one} in {dtype}", file=sys.stderr)
                raise
            rows.append(made)
            print(line(made), flush=True)
            torch.cuda.empty_cache()  # the next may need nearly all memory
        done += 1
    return rows, done


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    clock = Time(options.seconds)
    print(f"seed {options.seed}: {options.dense} dense shapes, {options.grouped} layers")
    shapes = dense_drawn.shapes(options.seed, options.dense), layers_drawn.layers(options.seed, options.grouped)
    about = head()
    torch.manual_seed(0)
    libgemm.preload(torch.cuda.current_device())
    lt, cublaslt = lt_peer.library()
    usual = signal.signal(signal.SIGTERM, clock.end)
    rows, done = measure(list(shapes), options, lt, clock.up)
    signal.signal(signal.SIGTERM, usual)
    drawn = sum(map(len, shapes))
    late = {"out_of_time": {"measured": done, "drawn": drawn}} if done < drawn else {}
    origin = {"gemm": dense_drawn.WORDS, "grouped_mm": layers_drawn.WORDS}
    report = {
        **about, "seed": options.seed, "drawn_from": origin, "cublaslt": cublaslt, **late,
        "summary": summarise(rows), "rows": rows,
    }  # fmt: skip
    print(*lines(report["summary"]), sep="\n")
    if "missing" in cublaslt:
        print(f"cuBLASLt was not measured: {cublaslt['missing']}")
    print(f"it took {clock.passed:.0f} s" + (f", out of time: {done} of {drawn} shapes" if late else ""))
    if options.out or (options.dense >= DENSE and options.grouped >= GROUPED and not late):
        path = path_of(about, options.out or RESULTS, ".drawn.json")
        keep(path, text(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
