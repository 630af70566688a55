"""The reports of all parts of a run of the GPU suite, as one: python tests/gpu/join.py REPORT REPORT [--out FOLDER]

For a machine with several GPUs, each of which does a part at the same time:

    CUDA_VISIBLE_DEVICES=0 python tests/gpu/run.py --part 1/2 --seed 7 --out /tmp/1 &
    CUDA_VISIBLE_DEVICES=1 python tests/gpu/run.py --part 2/2 --seed 7 --out /tmp/2; wait
    python tests/gpu/join.py /tmp/1/gpu_*.json /tmp/2/gpu_*.json

Exit status 0: they are all the parts of one run, and nothing failed. Reports that are not are refused, and nothing is
written. Standard library only.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAME = ("build_id", "commit", "device", "driver", "torch", "seed", "triton")


def joined(parts: list[dict]) -> dict:
    """One report. ValueError where they are not all the parts of one run."""
    for name in SAME:
        if len(values := {str(part[name]) for part in parts}) > 1:
            raise ValueError(f"these are of several runs: {name} is {' and '.join(sorted(values))}")
    there, counts = sorted(part["part"][0] for part in parts), sorted({part["part"][1] for part in parts})
    if len(counts) > 1 or there != list(range(1, counts[0] + 1)):
        raise ValueError(f"parts {there} are there, of {' and '.join(map(str, counts))} each is wanted once")
    first = min(parts, key=lambda part: part["part"][0])
    names = list(dict.fromkeys(name for part in (first, *parts) for name in part["checks"]))
    return {
        **first,
        "part": [1, 1],
        "date": max(part["date"] for part in parts),
        **{name: sum(part[name] for part in parts) for name in ("passed", "failed")},
        "problems": [problem for part in parts for problem in part["problems"]][:50],
        "seconds": max(part["seconds"] for part in parts),
        "out_of_time": any(part["out_of_time"] for part in parts),
        "checks": {name: sum(part["checks"].get(name, 0) for part in parts) for name in names},
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "results", metavar="FOLDER")
    args = parser.parse_args(argv)
    try:
        found = joined([json.loads(path.read_text()) for path in args.reports])
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"{error}")
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / args.reports[0].name
    path.write_text(json.dumps(found, indent=1) + "\n")
    done = f"{found['passed']} passed, {found['failed']} failed in {found['seconds']} s on {found['device']}"
    print(f"{done}{', out of time' if found['out_of_time'] else ''}; wrote {path}")
    return 0 if found["passed"] and not found["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
