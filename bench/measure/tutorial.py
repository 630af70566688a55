"""libgemm beside the kernels of Triton's tutorial on grouped GEMM, on one GPU: a table and a report.

    python bench/measure/tutorial.py PATH/08-grouped-gemm.py [--out FOLDER]

The file is the reader's own copy (Triton's python/tutorials); it needs the Triton it was written for, which libgemm
does not use. Only its functions that launch a kernel over arrays of pointers run, and what those name. On the
tutorial's benchmark, four float16 products of N x N x N, each is replayed in alternation with libgemm and a loop of
torch.mm; its kernels tune themselves anew at each N. Writes bench/results/<device>.tutorial.json.
"""

import argparse
import ast
import hashlib
import inspect
import json
import math
import sys
import types
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

import torch  # noqa: E402

from bench.measure import about, grouped, newer_triton  # noqa: E402
from bench.measure.timing import alternate, capture, rotations  # noqa: E402
from bench.suites.roofline import traffic  # noqa: E402
from bench.suites.sizes import sizes_of  # noqa: E402

CASES = [case for case in grouped.CASES if case["op"] == "grouped_gemm" and not {"problems", "own"} & set(case)]
PLAIN, TMA, TMA_WHOLE = "triton_perf_fn", "triton_tma_perf_fn", "group_gemm_tma_fn"
LAUNCHES = {"tutorial": PLAIN, "tutorial_tma": TMA}  # who -> the function that launches, given tables on the device


def binds(node: ast.stmt) -> set[str]:
    """Names that a statement at the top of a file defines, where it is an import, a definition or an assignment."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)}


def asks(node: ast.stmt) -> set[str]:
    """Names that it takes from elsewhere."""
    names = [x for x in ast.walk(node) if isinstance(x, ast.Name)]
    own = {x.arg for x in ast.walk(node) if isinstance(x, ast.arg)}
    own |= {x.id for x in names if isinstance(x.ctx, ast.Store)}
    return {x.id for x in names} - own


def load(path: Path) -> types.ModuleType:
    """The functions of LAUNCHES with all that they name: checks and benchmarks, which a tutorial runs, do not run."""
    if not path.is_file():
        raise SystemExit(f"there is no file {path}: name your copy of Triton's python/tutorials/08-grouped-gemm.py")
    tree = ast.parse(path.read_text(), str(path))
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if PLAIN not in defined:
        raise SystemExit(f"{path} defines no function {PLAIN}: it has {', '.join(defined) or 'none'}")
    wanted, size = {*LAUNCHES.values(), TMA_WHOLE}, 0
    while len(wanted) > size:
        size = len(wanted)
        for node in tree.body:
            if binds(node) & wanted:
                wanted |= asks(node)
    tree.body = [node for node in tree.body if binds(node) & wanted]
    made = types.ModuleType("grouped_gemm_tutorial")
    made.__file__ = str(path)
    sys.modules[made.__name__] = made  # Triton looks there for a kernel's source
    exec(compile(tree, str(path), "exec"), vars(made))
    return made


class Peer:
    """One of the tutorial's launchers, and its operands made of ours."""

    def __init__(self, module: types.ModuleType, who: str):
        self.module, self.launch = module, getattr(module, LAUNCHES[who])
        self.turned = who == "tutorial_tma"  # it takes B stored [N][K]
        self.words = {"dtype": torch.float16} if "dtype" in inspect.signature(self.launch).parameters else {}

    def tables(self, one: SimpleNamespace) -> SimpleNamespace:
        b = [x.t().contiguous() for x in one.b] if self.turned else one.b
        sizes = [[*d.shape, a.shape[1]] for a, d in zip(one.a, one.out, strict=True)]
        lds = [[x.stride(0) for x in three] for three in zip(one.a, b, one.out, strict=True)]

        def on_device(values, dtype):
            return torch.tensor(values, device=grouped.DEVICE, dtype=dtype)

        return SimpleNamespace(
            a=one.tables["a"], b=on_device([x.data_ptr() for x in b], torch.int64), d=one.tables["d"],
            sizes=on_device(sizes, torch.int32), lds=on_device(lds, torch.int32), kept=b,
        )  # fmt: skip

    def prepare(self, one: SimpleNamespace) -> None:
        """The TMA kernel's descriptors need memory, for which only the function around its launch cares."""
        if self.turned and hasattr(self.module, TMA_WHOLE):
            getattr(self.module, TMA_WHOLE)(one.a, self.tables(one).kept)

    def __call__(self, tables: SimpleNamespace, groups: int) -> None:
        self.launch(tables.a, tables.b, tables.d, tables.sizes, tables.lds, groups, **self.words)


class Tuners:
    """The kernels of a module that tune themselves: a list of configurations, the best one after a call."""

    def __init__(self, module: types.ModuleType):
        found = [x for x in vars(module).values() if hasattr(x, "configs") and hasattr(x, "cache")]
        self.kernels = [(kernel, list(kernel.configs)) for kernel in found]

    def forget(self) -> None:
        for kernel, configs in self.kernels:
            kernel.configs = configs
            kernel.cache.clear()

    def keep_best(self) -> None:
        """Without this one that keys by tensors would tune itself again at every table."""
        for kernel, _ in self.kernels:
            if kernel.cache:  # it has tuned itself since forget()
                kernel.configs = [kernel.best_config]


def check(case: dict, one: SimpleNamespace, call) -> None:
    for out in one.out:
        out.fill_(math.nan)
    call()
    for g, (a, b, out) in enumerate(zip(one.a, one.b, one.out, strict=True)):
        exact = a.float() @ b.float()
        if not (out.float() - exact).norm() <= 1e-2 * exact.norm():
            raise ArithmeticError(f"{case['id']}: group {g} is wrong")


def compare(case: dict, peers: dict[str, Peer], tuners: Tuners) -> dict:
    sizes = sizes_of(case)
    row = grouped.row_of(case, "f16", sizes)
    ones = [grouped.operands(case, "f16", sizes) for _ in range(rotations(traffic(row)))]
    runs = {"ours": lambda i: grouped.call_tables(ones[i]), "loop": lambda i: grouped.call_loop(ones[i])}
    for call in runs.values():
        check(case, ones[0], lambda call=call: call(0))
    found, inputs = {}, [(i,) for i in range(len(ones))]
    tuners.forget()
    for who, peer in peers.items():
        found |= {f"{who}_us": None}
        try:
            peer.prepare(ones[0])
            tables = [peer.tables(one) for one in ones]
            call = lambda i, peer=peer, tables=tables: peer(tables[i], case["groups"])  # noqa: E731
            check(case, ones[0], lambda call=call: call(0))
            tuners.keep_best()
            capture(call, inputs)
        except Exception as error:  # whatever the reader's Triton says of it is what the report says
            found |= {f"{who}_error": f"{type(error).__name__}: {error}"}
        else:
            runs[who] = call
    us = alternate(runs, inputs, row["floor_us"])
    return {"id": case["id"], "n": case["n"], **found, **{f"{who}_us": time for who, time in us.items()}}


def line(row: dict) -> str:
    times = [f"{row[key]:9.1f}" if row.get(key) else f"{'-':>9}" for key in keys_of(row)]
    errors = [f"  {key}: {value}" for key, value in row.items() if key.endswith("_error")]
    return "\n".join([f"{row['n']:6}{''.join(times)}", *errors])


def keys_of(row: dict) -> list[str]:
    return [f"{who}_us" for who in ("ours", "loop", *LAUNCHES)]


def triton_version() -> str:
    names = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return next((names[name] for name in ("triton", "pytorch-triton") if name in names), "unknown")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutorial", type=Path, metavar="PATH/08-grouped-gemm.py")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    newer_triton.lend_names()
    module = load(options.tutorial)
    peers = {who: Peer(module, who) for who, name in LAUNCHES.items() if hasattr(module, name)}
    tuners, head = Tuners(module), about.head()
    torch.manual_seed(0)
    rows = []
    print(f"{'N':>6}{'libgemm':>9}{'torch.mm':>9}{'tutorial':>9}{'its TMA':>9}  us")
    for case in CASES:
        rows.append(compare(case, peers, tuners))
        print(line(rows[-1]), flush=True)
    head |= {"triton": triton_version(), "tutorial_sha256": hashlib.sha256(options.tutorial.read_bytes()).hexdigest()}
    about.keep(about.path_of(head, options.out, ".tutorial.json"), json.dumps({**head, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
