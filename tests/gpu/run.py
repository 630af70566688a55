"""Run the GPU suite and write what it found as JSON: `python tests/gpu/run.py`. Not for pytest; allows no triton.

SIGTERM, which `timeout` sends, ends it after the check that runs: what was found so far is written, out of time.
"""

import argparse
import datetime
import json
import re
import signal
import sys
import time
from pathlib import Path

sys.modules["triton"] = None  # libgemm must work where triton is absent: from here on `import triton` fails
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

import torch  # noqa: E402

from bench.measure.driver import driver  # noqa: E402
from tests.gpu import (  # noqa: E402
    edge,
    edge_batch,
    edge_bits,
    edge_cast,
    edge_contexts,
    edge_cuda,
    edge_errors,
    edge_frameworks,
    edge_moe,
    edge_moe_scaled,
    edge_moe_training,
    edge_scaled,
    edge_torch,
    edge_torch_contract,
)
from tests.gpu.cases import random_case  # noqa: E402
from tests.gpu.standin import FAULTS, StandIn  # noqa: E402

CUDA_CHECKS = ("graphs", "chained", "streams", "large_offsets", "other_gpu", "stream_memory", "stream_memory_cupy",
               "unfinished_inputs", "two_frameworks", "contexts")  # fmt: skip
# Can be done in parts, by variant or by seed; the first part does the others whole.
IN_PARTS = ("variants", "once", "several_tiles", "runs_of_variants", "lying_ends_of_groups", "expert_products",
            "casts", "whole_layers", "layers_of_many_rows", "trained_layers", "scaled_products", "scaled_groups",
            "scaled_layers", "one_token", "random")  # fmt: skip
ON_REQUEST = ("once", "several_tiles")  # others do the same work
# Graph capture comes first: it must be the first use of the kernels.
EDGE = (
    edge_cuda.graphs,
    edge.seeds,
    edge.variants,
    edge.ragged_rows,
    edge_batch.batches,
    edge.specials,
    edge.empty,
    edge.many,
    edge_cuda.large_offsets,
    edge.turned_groups,
    edge.lying_ends,
    edge.lying_ends_of_groups,
    edge.repeatable,
    edge_bits.once,
    edge_bits.several_tiles,
    edge_bits.runs_of_variants,
    edge_bits.rows_of_any_batch,
    edge_bits.bytes_of_any_batch,
    edge_batch.rows_in_batches,
    edge_batch.rows_in_groups,
    edge_cuda.chained,
    edge_cuda.streams,
    edge_frameworks.stream_memory,
    edge_frameworks.stream_memory_cupy,
    edge_frameworks.unfinished_inputs,
    edge_frameworks.two_frameworks,
    edge_cuda.threads,
    edge_cuda.other_gpu,
    edge_contexts.contexts,
    edge_errors.errors,
    edge_moe.expert_products,
    edge_moe.lying_indices,
    edge_moe.routes,
    edge_moe.sums,
    edge_moe.whole_layers,
    edge_moe.layers_of_many_rows,
    edge_moe_training.gates,
    edge_moe_training.trained_layers,
    edge_scaled.scaled_products,
    edge_scaled.long_block_scales,
    edge_scaled.scaled_groups,
    edge_scaled.scales_of_no_size,
    edge_scaled.scales_of_d_of_no_size,
    edge_scaled.scales_of_empty_groups,
    edge_scaled.sums_of_bytes,
    edge_scaled.scaled_operator,
    edge_scaled.scaled_grouped_operator,
    edge_cast.casts,
    edge_cast.cast_products,
    edge_moe_scaled.cast_rows,
    edge_moe_scaled.scaled_layers,
    edge_moe_scaled.weights_just_written,
    edge_moe_scaled.one_token,
    edge_torch.dense_operators,
    edge_torch.grouped_operators,
    edge_torch.watched_operators,
    edge_torch_contract.grouped_contract,
    edge_torch_contract.any_strides,
    edge_torch_contract.operators_promises,
    edge_torch_contract.gradients_of_differences,
    edge_torch_contract.compiled_and_exported,
)


class Run:
    """Counts, problems and progress of one run."""

    def __init__(self, ctx: edge.Context, seconds: float):
        self.ctx = ctx
        self.start = self.said = time.monotonic()
        self.limit = seconds or float("inf")
        self.checks, self.failures, self.problems = {}, {}, []
        self.dead = self.out_of_time = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    @property
    def over(self) -> bool:
        self.out_of_time = self.out_of_time or self.seconds > self.limit
        return self.dead or self.out_of_time

    def end(self, *_) -> None:
        """Nothing new begins."""
        self.limit = 0

    def add(self, name: str, problems: list[str]) -> None:
        if not problems:
            self.leave_memory()
        self.checks[name] = self.checks.get(name, 0) + 1
        self.failures[name] = self.failures.get(name, 0) + bool(problems)
        self.problems += [f"{name}: {x}" for x in problems]
        if problems and len(self.problems) <= 10:
            print(f"FAILED {self.problems[-1]}", flush=True)
        if time.monotonic() - self.said > 4:
            self.said = time.monotonic()
            done, bad = sum(self.checks.values()), sum(self.failures.values())
            print(f"{self.seconds:6.0f} s  {done} done, {bad} failed, now {name} {self.checks[name]}", flush=True)

    def leave_memory(self) -> None:
        """What torch holds of the GPU's memory and no tensor uses goes back where it is a quarter of a part's share:
        other processes do the other parts on the same GPU (together.py). Not after a failure: the GPU's, it may be."""
        if self.ctx.cuda and self.ctx.parts > 1:
            share = torch.cuda.get_device_properties(self.ctx.device).total_memory / self.ctx.parts
            held = torch.cuda.memory_reserved(self.ctx.device) - torch.cuda.memory_allocated(self.ctx.device)
            if held > share / 4:
                torch.cuda.empty_cache()

    def crashed(self, name: str, error: Exception, what: str = "") -> None:
        self.add(name, [f"{type(error).__name__}: {error} {what}".strip()])
        if self.ctx.cuda:
            try:
                torch.cuda.synchronize(self.ctx.device)
            except Exception as now:
                self.dead = True
                self.problems.append(f"{name}: the GPU context is dead ({now}); the rest did not run")

    def edge(self, check) -> None:
        self.checks.setdefault(check.__name__, 0)
        try:
            for problems in check(self.ctx):
                self.add(check.__name__, problems)
                if self.over:
                    return
        except Exception as error:
            self.crashed(check.__name__, error)

    def random(self, count: int, largest: int) -> None:
        for number in self.ctx.seeds(count):
            if self.over:
                return
            case = random_case(number, largest)
            try:
                self.add("random", self.ctx.run(case))
            except Exception as error:
                self.crashed("random", error, f"[{case!r}]")


def speed(ctx: edge.Context) -> dict:
    """Median microseconds of 4096^3 in bf16, libgemm and torch.mm in turn. Information, not a check."""
    new = {"dtype": torch.bfloat16, "device": ctx.device}
    a, b, out = torch.randn(4096, 4096, **new), torch.randn(4096, 4096, **new), torch.empty(4096, 4096, **new)
    calls = {"ours_us": lambda: ctx.lib.gemm(a, b, out=out), "torch_us": lambda: torch.mm(a, b, out=out)}
    times = {name: [] for name in calls}
    for turn in range(60):
        for name, work in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            if turn >= 10:
                times[name].append(begin.elapsed_time(end) * 1000)
    return {name: round(sorted(values)[len(values) // 2], 1) for name, values in times.items()}


def triton_state() -> str:
    try:
        import triton  # noqa: F401
    except ImportError:
        return "not importable"
    return "importable"


def report(run: Run, args, name: str, timing: dict | None) -> dict:
    manifest = ROOT / "dist" / "manifest.json"
    built = json.loads(manifest.read_text()) if manifest.exists() and not args.stand_in else {}
    failed = sum(run.failures.values())
    found = {
        "build_id": run.ctx.lib.info()["build_id"],
        "commit": built.get("commit", "unknown"),
        "device": name,
        "driver": driver() if run.ctx.cuda else "none",
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "seed": args.seed,
        "part": args.part,
        "triton": triton_state(),
        "passed": sum(run.checks.values()) - failed,
        "failed": failed,
        "problems": run.problems[:50],
        "seconds": round(run.seconds, 1),
        "out_of_time": run.out_of_time,
        "checks": run.checks,
    }
    if built.get("build_id") not in (None, found["build_id"]):
        found["problems"].insert(0, f"dist/manifest.json is of build {built['build_id']}, the library another")
        found["failed"] += 1
    return found | ({"speed_4096_bf16": timing} if timing else {})


def read_part(word: str) -> tuple[int, int]:
    part, _, parts = word.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{word!r}: one part of several is wanted, such as 2/3")
    return int(part), int(parts)


def arguments(argv) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=1000, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=0, help="of the first random case; the next ones count up")
    parser.add_argument("--seconds", type=float, default=0, help="start nothing new after this long")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "results")
    parser.add_argument("--only", help="one check by name, or 'random'")
    parser.add_argument("--part", type=read_part, default=(1, 1), metavar="I/N", help="tests/gpu/join.py joins them")
    parser.add_argument("--stand-in", action="store_true", help="rehearse with torch on the CPU in libgemm's place")
    parser.add_argument("--break-it", choices=FAULTS, help="a fault for the stand-in")
    args = parser.parse_args(argv)
    names = [check.__name__ for check in EDGE] + ["random"]
    if args.only and args.only not in names:
        parser.error(f"--only {args.only}: allowed is {', '.join(names)}")
    if args.part != (1, 1) and args.only and args.only not in IN_PARTS:
        parser.error(f"--only {args.only} has no parts: --part goes with {', '.join(IN_PARTS)}, or with all")
    return args


def wanted(args, check) -> bool:
    name = check.__name__
    if args.only:
        return args.only == name
    return name not in ON_REQUEST and (args.part[0] == 1 or name in IN_PARTS)


def main(argv=None) -> int:
    args = arguments(argv)
    if args.stand_in:
        lib, device, name = StandIn(args.break_it), torch.device("cpu"), "stand-in"
    else:
        import libgemm as lib

        device = torch.device("cuda", torch.cuda.current_device())
        name = torch.cuda.get_device_name(device)
    ctx = edge.Context(lib, device, args.stand_in, *args.part, args.seed)
    part = f"part {ctx.part}/{ctx.parts}"  # tests/gpu/races.py reads this line and the last
    print(f"build {lib.info()['build_id']} on {name}, sm_{ctx.target}: {args.only or 'all'}, {part}", flush=True)
    run = Run(ctx, args.seconds)
    usual = signal.signal(signal.SIGTERM, run.end)
    for check in EDGE:
        cuda_only = check.__name__ in CUDA_CHECKS
        if wanted(args, check) and not run.over and (run.ctx.cuda or not cuda_only):
            run.edge(check)
    if args.only in (None, "random"):
        run.random(args.random, 300 if args.stand_in else 3000)
    timing = speed(run.ctx) if run.ctx.cuda and not (run.dead or run.out_of_time or args.only) else None
    found = report(run, args, name, timing)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"gpu_{re.sub(r'[^A-Za-z0-9.-]+', '_', name)}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    signal.signal(signal.SIGTERM, usual)
    print(f"\n{'check':16}{'run':>8}{'failed':>8}")
    for check, count in run.checks.items():
        print(f"{check:16}{count:8}{run.failures.get(check, 0):8}")
    late = ", out of time" if run.out_of_time else ""
    print(f"{found['passed']} passed, {found['failed']} failed in {found['seconds']} s on {name}{late}; wrote {path}")
    return 0 if found["passed"] and not found["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
