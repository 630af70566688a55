"""This library beside another build of libgemm and torch, in one alternation: a table and JSON.

    python bench/measure/beside.py OTHER/runtime [--suite dense,grouped,drawn,layers] [--alone] [--only ID,ID]
                                   [--seed N] [--shapes N] [--seconds S] [--out FOLDER]

OTHER/runtime is the folder of the other build's Python package. Operands, peers and floors are those of bench/run.py,
in bfloat16, on the public list or, of "drawn", on dense shapes drawn anew; "layers" are those of experts_scaled.py, in
bfloat16 and in 8 bits. With --alone the two builds have no peer, so that more shapes fit into a minute. Says where the
two do not write the same bytes. Needs dist/ built, a GPU, and a Python with torch and cffi; Triton is not used. Proves
no numerics.
"""

import argparse
import importlib
import itertools
import json
import math
import pkgutil
import random
import sys
import time
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]
sys.modules["triton"] = None  # kernels must come from the libraries

NAME = "libgemm"


def own_modules() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] == NAME]


def other_build(runtime: Path) -> ModuleType:
    """The package of another build, whole, under no name: what is imported as libgemm next is this one's."""
    if not (runtime / NAME / "__init__.py").is_file():
        raise SystemExit(f"{runtime}: there is no {NAME}/__init__.py; build the other commit there first")
    sys.path.insert(0, str(runtime))
    package = importlib.import_module(NAME)
    for found in pkgutil.iter_modules(package.__path__):
        if found.name not in ("__main__", "torch", "frameworks"):
            importlib.import_module(f"{NAME}.{found.name}")  # else a call would import this one's later
    sys.path.remove(str(runtime))
    for name in own_modules():
        del sys.modules[name]
    return package


def by(package: ModuleType, module: ModuleType, call):
    """A call of a module of bench/measure, made by another package than the one it imported."""

    def made(*inputs):
        usual, module.libgemm = module.libgemm, package
        try:
            return call(*inputs)
        finally:
            module.libgemm = usual

    return made


def takes(call, one: tuple, name: str) -> bool:
    """Whether the other build knows such a call: an older one may lack a word of it. Says so where not."""
    try:
        call(*one)
    except (TypeError, ValueError, RuntimeError) as error:
        print(f"{name}: not a call of the other build: {error}")
        return False
    return True


def bytes_of(made: list) -> list:
    import torch

    return [part.contiguous().view(torch.uint8).clone() for part in made]


def writes_the_same(calls: tuple, one: tuple, out: list) -> bool:
    """Whether these calls leave the same bytes in `out`, from what is there now."""
    import torch

    before, made = [part.clone() for part in out], []
    for call in calls:
        for part, own in zip(out, before, strict=True):
            part.copy_(own)
        call(*one)
        made.append(bytes_of(out))
    return all(map(torch.equal, *made))


def timed(ours, others, peer, alone: bool) -> dict:
    """The calls to be timed."""
    return {"ours": ours, "other": others} | ({} if alone else {"peer": peer})


def dense_rows(other: ModuleType, suite: str, options: argparse.Namespace):
    from bench.measure import dense
    from bench.measure.timing import alternate
    from bench.suites import dense_drawn

    for shape in dense.SHAPES if suite == "dense" else dense_drawn.shapes(options.seed, options.shapes):
        if options.only and shape["id"] not in options.only:
            continue
        inputs, floor = dense.operands(shape, "bf16")
        runs = dense.calls(shape, "bf16")
        others = by(other, dense, runs["ours"])
        if not takes(others, inputs[0], shape["id"]):
            continue
        us = alternate(timed(runs["ours"], others, runs["peer"], options.alone), inputs, floor)
        sizes = {name: shape[name] for name in ("m", "n", "k", "layout")}
        same = writes_the_same((runs["ours"], others), inputs[0], [inputs[0][3]])
        times = {f"{who}_us": own for who, own in us.items()}
        yield {"id": shape["id"], "kind": shape.get("kind", suite), **sizes, "floor_us": floor, **times, "same": same}


def grouped_rows(other: ModuleType, suite: str, options: argparse.Namespace):
    from bench.measure import grouped
    from bench.measure.timing import alternate, rotations
    from bench.suites.roofline import traffic

    for case in grouped.CASES:
        if case.get("dtype", "bf16") != "bf16" or (options.only and case["id"] not in options.only):
            continue
        sizes = grouped.sizes_of(case)
        row = grouped.row_of(case, "bf16", sizes)
        inputs = [(grouped.operands(case, "bf16", sizes),) for _ in range(rotations(traffic(row)))]
        runs = grouped.calls(case)
        others = by(other, grouped, runs["ours"])
        if not takes(others, inputs[0], case["id"]):
            continue
        us = alternate(timed(runs["ours"], others, runs["peer"], options.alone), inputs, row["floor_us"])
        times = {f"{who}_us": own for who, own in us.items()}
        out = inputs[0][0].out
        same = writes_the_same(
            (runs["ours"], others), inputs[0], list(out) if isinstance(out, (list, tuple)) else [out]
        )
        yield {"id": case["id"], "kind": suite, "floor_us": row["floor_us"], **times, "same": same}


def layer_rows(other: ModuleType, suite: str, options: argparse.Namespace):
    import torch

    from bench.measure import experts_scaled
    from bench.measure.experts import DECODE, MODELS, PROMPT, Experts, choices
    from bench.measure.timing import alternate

    for model, tokens in itertools.product(MODELS, (PROMPT, *DECODE)):
        if tokens == PROMPT:
            module = Experts(model)
            runs = experts_scaled.calls(module)
        given = [(choices(module, tokens),) for _ in range(experts_scaled.ROTATED)]
        for kind in ("fp8", "bf16"):
            name = f"{model} {tokens} {kind}"
            others = by(other, experts_scaled, runs[kind])
            if (options.only and name not in options.only) or not takes(others, given[0], name):
                continue
            calls = timed(runs[kind], others, runs["torch"], options.alone)
            us = alternate(calls, given, experts_scaled.GUESS_US)
            ours, theirs = (bytes_of([calls[who](*given[0])]) for who in ("ours", "other"))
            times = {f"{who}_us": own for who, own in us.items()}
            yield {"id": name, "kind": f"layers in {kind}", **times, "same": torch.equal(*ours, *theirs)}


SUITES = {"dense": dense_rows, "grouped": grouped_rows, "drawn": dense_rows, "layers": layer_rows}


def line(row: dict) -> str:
    times = "".join(f"{row[f'{who}_us']:10.1f}" for who in ("ours", "other", "peer") if f"{who}_us" in row)
    return f"{row['id']:10}{times} us  {row['other_us'] / row['ours_us']:.3f}{'' if row['same'] else '  other bytes'}"


def summary(rows: list[dict], name: str) -> str:
    beside_torch = ""
    if "peer_us" in rows[0]:
        ours, others = (mean_ratio(rows, "peer_us", who) for who in ("ours_us", "other_us"))
        beside_torch = f"{ours:.4f} of torch, the other build {others:.4f}; "
    different = sum(not row["same"] for row in rows)
    words = f", {different} of {len(rows)} with other bytes" if different else f", the same bytes in all {len(rows)}"
    return f"{name}: {beside_torch}{mean_ratio(rows, 'other_us', 'ours_us'):.4f} of it{words}"


def mean_ratio(rows: list[dict], over: str, under: str) -> float:
    """Geometric mean of one time over another."""
    return math.exp(sum(math.log(row[over] / row[under]) for row in rows) / len(rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, metavar="OTHER/runtime")
    parser.add_argument("--suite", default="dense,grouped")
    parser.add_argument("--only", default=[], type=lambda word: word.split(","), metavar="ID,ID")
    parser.add_argument("--alone", action="store_true", help="without torch")
    parser.add_argument(
        "--seconds", type=float, default=0, help="of each suite nothing new begins after so long in all"
    )
    parser.add_argument("--shapes", type=int, default=150, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of what is drawn")
    parser.add_argument("--out", type=Path, help="where to write beside.json")
    options = parser.parse_args()
    wanted = options.suite.split(",")
    if unknown := [name for name in wanted if name not in SUITES]:
        raise SystemExit(f"there is no suite {', '.join(unknown)}: allowed are {', '.join(SUITES)}")
    other = other_build(options.other)
    import libgemm
    import torch

    builds = {"build_id": libgemm.info()["build_id"], "other_build_id": other.info()["build_id"]}
    if builds["build_id"] == builds["other_build_id"]:
        raise SystemExit(f"{options.other} is this build too: {builds['build_id']}")
    start = time.monotonic()
    torch.manual_seed(0)
    for package in (libgemm, other):
        package.preload(torch.cuda.current_device())
    rows = []
    for name in wanted:
        for row in SUITES[name](other, name, options):
            rows.append({**row, "suite": name})
            print(line(row), flush=True)
            torch.cuda.empty_cache()
            if options.seconds and time.monotonic() - start > options.seconds:
                break
    for kind in dict.fromkeys(row["kind"] for row in rows):
        print(summary([row for row in rows if row["kind"] == kind], kind))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        about = {
            **builds,
            "seed": options.seed,
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "rows": rows,
        }
        (options.out / "beside.json").write_text(json.dumps(about, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
