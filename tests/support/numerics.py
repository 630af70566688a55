"""Jobs for interpret.py: what a job is, which of the table's rows it runs, and a run of many. Holds no test."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.table.families import REFERENCE
from kernels.table.spec import OPS
from kernels.table.variants import variants
from tests.gpu.cases import Case

if any(importlib.util.find_spec(name) is None for name in ("numpy", "torch", "triton")):
    pytest.skip("needs numpy, torch and triton", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
ENTRY = {"gemm": "gemm", "grouped_mm": "grouped_mm", "grouped_gemm": "grouped_gemm_tables"}
# One row for each kernel, problem and guard: the tile sizes, which the targets differ in, are made small for speed.
# Gluon kernels have no interpreter: the GPU suite runs them, and tests/aot/test_compile.py their compilation. What
# copies operands ahead of a product is tested in tests/kernels/test_align.py.
TABLE = [row for row in variants() if row.problem.op in OPS and not row.kernel.startswith("sm90.")]
ROWS = {(row.kernel, row.problem, row.guard): row for row in reversed(TABLE)}
BY_NAME = {(kernel, p.op, p.a, p.d, p.precision, p.layout, guard): row for (kernel, p, guard), row in ROWS.items()}
HALF = ("bf16", "bf16", "exact")
ODD = {"m": 67, "n": 41, "k": 37, "pads": (1, 3, 0, 5), "leads": (1, 2, 3, 5)}
EVEN = {"m": 72, "n": 56, "k": 40, "pads": (8, 0, 16, 8)}
EPILOGUE = {"alpha": 0.75, "beta": -0.5, "c": "separate", "bias": "each"}


def job(name: str, op: str, types=HALF, layout: str = "nn", guard=(), kernel="", extra=None, **fields) -> dict:
    """What tests/support/interpret.py runs: a case, the table's row for it, and what a case cannot say (`extra`)."""
    row = BY_NAME[(kernel or REFERENCE[op].kernel, op, *types, layout, guard)]
    # The interpreter multiplies float32 in full, so the tightest bound holds for every way to multiply it.
    precision = {"f32": "ieee", "e4m3": types[2]}.get(types[0], "exact")
    words = {"entry": ENTRY[op], "a_type": types[0], "d_type": types[1], "precision": precision}
    words |= {"trans_a": layout[0] == "t", "trans_b": layout[1] == "t", "groups": 0 if op == "gemm" else 3}
    case = Case(**{**words, **fields})
    return {"id": f"{op}-{name}", "row": row.name, "case": dataclasses.asdict(case), **(extra or {})}


def interpret(jobs) -> dict:
    """What is wrong with each job, by id. A job that ends the process is named, and the rest run without it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests" / "support" / "interpret.py")]
    results = {}
    while jobs:
        # The limit is for a kernel that never ends, as a scan of its groups may when broken.
        done = subprocess.run(
            command, input=json.dumps(jobs), capture_output=True, text=True, env=environment, check=False, timeout=900
        )
        results |= dict(json.loads(line) for line in done.stdout.splitlines())
        jobs = [x for x in jobs if x["id"] not in results]
        if jobs:
            results[jobs.pop(0)["id"]] = [f"the interpreter ended with {done.returncode}: {done.stderr[-2000:]}"]
    return results


def results(request, jobs) -> dict:
    """Results of those jobs that the tests chosen from a file are about. All run in one process, as importing torch and
    Triton takes long."""
    chosen = {item.name for item in request.session.items if item.path == request.path}
    return interpret([x for x in jobs if any(f"[{x['id']}]" in name for name in chosen)])


def names(jobs) -> list[str]:
    return [x["id"] for x in jobs]


def checks(good: list[dict], faults: list[dict]) -> tuple:
    """The fixture and the tests of a file: good jobs find nothing, and each fault is noticed."""

    @pytest.fixture(scope="module")
    def found(request) -> dict:
        return results(request, good + faults)

    def test_ids_are_unique():
        assert len(set(names(good + faults))) == len(good + faults)

    @pytest.mark.parametrize("name", names(good))
    def test_kernel(found, name):
        assert found[name] == [], found[name]

    @pytest.mark.parametrize("name", names(faults))
    def test_fault_is_noticed(found, name):
        assert found[name] and found[name][0].startswith("mismatch"), found[name]

    return found, test_ids_are_unique, test_kernel, test_fault_is_noticed
