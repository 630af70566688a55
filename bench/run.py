"""libgemm beside torch on one GPU: a table, and bench/results/<device>.json. Proves no numerics.

    python bench/run.py [--suite dense,grouped] [--dtype bf16,f16,f32] [--regret 40] [--only ID,ID] [--out FOLDER]

Needs dist/ built and a Python with torch and cffi; Triton is not used. bench/measure/dense.py and grouped.py say who is
compared with whom, bench/suites/roofline.py what the floor of a row is. Rows of a suite that is not run stay in the
report that is there, if it is of this build, device and torch. `--only` writes a report only where `--out` says.
`make report` makes pictures and the README's section of what this writes.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]
sys.modules["triton"] = None  # kernels must come from the library

import libgemm  # noqa: E402
import torch  # noqa: E402

from bench.measure import dense, grouped, host, lt_peer  # noqa: E402
from bench.measure.about import head, keep, path_of  # noqa: E402
from bench.report.drawn import percentile  # noqa: E402
from bench.report.rows import balance, beside_cublaslt, ratio, share, summarise  # noqa: E402
from bench.suites.packed import draw_problem  # noqa: E402

RESULTS = ROOT / "bench" / "results"
SUITES = {  # name -> its cases, how some are measured together, the types it has
    "dense": (
        dense.SHAPES,
        lambda shapes, dtype: [dense.compare(one, dtype) for one in shapes],
        ("bf16", "f16", "f32"),
    ),
    "grouped": (grouped.CASES, grouped.compare, ("bf16", "f16")),
}

KEYS = {"dense": ("host", "regret", "regret_rows"), "grouped": ("regret_grouped", "regret_grouped_rows")}


def suite_of(row: dict) -> str:
    return "grouped" if "groups" in row else "dense"


def line(row: dict) -> str:
    along = f"{row['ragged']}-ragged" if row.get("ragged", "none") != "none" else ""
    name = f"{row['id']:5} {row['dtype']:5}{row['m']:7}{row['n']:7}{row['k']:6} {row['layout']} {along:9}"
    times = f"{row['ours_us']:9.1f}{row['peer_us']:9.1f} us  x{ratio(row):.2f}"
    return f"{name}{times}  {share(row):.2f} of the floor"


def together(cases: list[dict]) -> list[list[dict]]:
    """Cases that are measured in one alternation: those of a pair, which stand one after the other."""
    return [list(own) for _, own in itertools.groupby(cases, key=lambda case: case.get("pair", case["id"]))]


def measure(suites: list[str], dtypes: list[str], only: set[str]) -> list[dict]:
    """Types in turn at each case, so that none is measured on a hotter card; the rows come back type by type."""
    rows = []
    for suite in suites:
        cases, compare, types = SUITES[suite]
        found = {dtype: [] for dtype in dtypes if dtype in types}
        for few in together([case for case in cases if not only or case["id"] in only]):
            for dtype, own in found.items():
                own += compare(few, dtype)
                torch.cuda.empty_cache()  # the next case may need nearly all memory
                print(*map(line, own[-len(few) :]), sep="\n", flush=True)
        rows += itertools.chain(*found.values())
    return rows


NOT_TUNED = 1_000_000  # the first seed of packed products that tuning does not draw


def regret_of(suite: str, seed: int) -> dict:
    if suite == "dense":
        return dense.regret_of(dense.random_shape(seed))
    return grouped.regret_of(draw_problem(NOT_TUNED + seed))


def regrets_of(suite: str, count: int) -> tuple[dict, list[dict]]:
    """Over shapes that were not tuned on."""
    rows = [regret_of(suite, seed) for seed in range(count)]
    found = [row["regret"] for row in rows]
    if not found:
        return {}, []
    return {"shapes": len(found), "median": percentile(found, 50), "p95": percentile(found, 95)}, rows


def kept(path: Path, about: dict, suites: list[str]) -> dict:
    """What the report that is there says of the suites that are not run, where it speaks of the same."""
    found = json.loads(path.read_text()) if path.is_file() else {}
    if any(found.get(key) != about[key] for key in ("build_id", "device", "torch")):
        found = {}
    rows = [row for row in found.get("rows", []) if suite_of(row) not in suites]
    others = {key: found[key] for suite in SUITES if suite not in suites for key in KEYS[suite] if key in found}
    return {**{key: [] if "rows" in key else {} for key in itertools.chain(*KEYS.values())}, **others, "rows": rows}


def report(about: dict, old: dict, rows: list[dict], measured: dict) -> dict:
    rows = sorted([*old["rows"], *rows], key=lambda row: list(SUITES).index(suite_of(row)))
    found = {**old, **measured}
    return {
        **about, "summary": summarise(rows), "cublaslt": beside_cublaslt(rows), "balance": balance(rows),
        **{key: found[key] for key in ("host", "regret", "regret_grouped")}, "rows": rows,
        **{key: found[key] for key in ("regret_rows", "regret_grouped_rows")},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default=",".join(SUITES))
    parser.add_argument("--dtype", default="bf16,f16,f32")
    parser.add_argument("--regret", type=int, default=40, metavar="SHAPES")
    parser.add_argument("--only", default="", metavar="ID,ID")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    suites, only = options.suite.split(","), set(filter(None, options.only.split(",")))
    known = {case["id"] for suite in suites if suite in SUITES for case in SUITES[suite][0]}
    if unknown := [*(set(suites) - set(SUITES)), *(only - known)]:
        raise SystemExit(
            f"there is no {', '.join(sorted(unknown))}: suites are {', '.join(SUITES)}, ids {sorted(known)}"
        )
    about = {**head(), "cublaslt_library": lt_peer.library()[1]}
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    libgemm.preload(torch.cuda.current_device())
    measured = {}
    if "dense" in suites and not only:
        measured["host"] = host.all_times()
        print(*host.lines(measured["host"]), sep="\n", flush=True)
    rows = measure(suites, options.dtype.split(","), only)
    for suite in SUITES:
        if suite in suites and not only:
            *_, regret, regret_rows = KEYS[suite]
            measured[regret], measured[regret_rows] = regrets_of(suite, options.regret)
    path = path_of(about, options.out or RESULTS)
    old = kept(path, about, list(SUITES) if only else suites)
    found = report(about, old, rows, measured)
    for name, s in found["summary"].items():
        print(f"{name}: geometric mean {s['geomean']:.3f} of the peer, worst {s['worst']} {s['worst_ratio']:.2f}, "
              f"{s['floor_share']:.3f} of the floor")  # fmt: skip
    if "missing" in about["cublaslt_library"]:
        print(f"cuBLASLt was not measured: {about['cublaslt_library']['missing']}")
    for dtype, s in found["cublaslt"].items():
        short = ", ".join(f"{name} {value:.2f}" for name, value in s["short"].items())
        print(f"{dtype} beside cuBLASLt's best: {s['geomean']:.3f}, worst {s['worst']} {s['worst_ratio']:.2f}; {short}")
    for name, s in found["balance"].items():
        print(f"{name}: with half in one group {s['ours']:.2f} of the share of the floor with equal ones, the peer "
              f"{s['peer']:.2f}")  # fmt: skip
    if options.out or not only:
        keep(path, json.dumps(found, indent=1) + "\n")
    print(f"regret {found['regret']}, of packed products {found['regret_grouped']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
