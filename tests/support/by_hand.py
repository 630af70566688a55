"""Kernels launched by hand in Triton's interpreter: memory with guard bands, and the tests of a file of jobs. No test.

A file of jobs is a program, too: it prints what is wrong with each of its jobs, in a process of its own, since Triton
decides at its import whether kernels are compiled or interpreted. No torch.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BAND = 64  # elements around every array
SIZE = {"fp32": 4, "fp16": 2, "bf16": 2}
POISON = {1: 0xFF, 2: 0x7FC1, 4: 0x7FC00001, 8: 0x7FC0000000000001}  # a NaN: of e4m3, of bf16 and fp16, of float32


def guarded(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Memory with these values in it and poison around them, and their address."""
    memory = np.full(values.size + 2 * BAND, POISON[values.itemsize], dtype=f"u{values.itemsize}")
    memory[BAND : BAND + values.size] = values.ravel().view(memory.dtype)
    return memory, memory.ctypes.data + BAND * memory.itemsize


def launch(kernel, types: str, values: dict, programs: int, constants: dict) -> None:
    """Arguments of exactly the types the compiled kernel takes; plain numbers would be typed by value."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    arguments = {}
    for name, kind in zip((n for n in kernel.arg_names if n not in constants), types.split(), strict=True):
        dtype = {"i32": np.int32, "i64": np.int64, "fp32": np.float32}.get(kind, np.uint64)
        ty = tl.str_to_ty(kind, None)
        arguments[name] = tl.tensor(TensorHandle(np.array([values[name]], dtype=dtype), ty), ty)
    kernel[(programs,)](**arguments, **constants)


def element(values: np.ndarray, kind: str) -> np.ndarray:
    """float32 as this type's bits, cut off where it is bf16, as the interpreter does."""
    return values.view(np.uint32) >> 16 if kind == "bf16" else values.astype(f"f{SIZE[kind]}").view(f"u{SIZE[kind]}")


def widened(bits: np.ndarray, kind: str) -> np.ndarray:
    bits = bits.astype(np.uint32) << 16 if kind == "bf16" else bits
    return bits.view(f"f{bits.itemsize}").astype(np.float32)


def checks_of(file: str, good: list[dict], faults: list[dict]) -> tuple:
    """A file's fixture and tests: good jobs find nothing, and each fault is noticed."""
    names, wrong = [job["id"] for job in good], [job["id"] for job in faults]

    @pytest.fixture(scope="module")
    def found() -> dict:
        path = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
        own = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, file], capture_output=True, text=True, env=own, timeout=900)
        assert done.returncode == 0, done.stderr[-2000:]
        return dict(json.loads(line) for line in done.stdout.splitlines())

    def test_ids_are_unique():
        assert len({*names, *wrong}) == len(good) + len(faults)

    @pytest.mark.parametrize("name", names)
    def test_outputs_are_right_and_nothing_else_is_written(found, name):
        assert found[name] == []

    @pytest.mark.parametrize("name", wrong)
    def test_fault_is_noticed(found, name):
        assert found[name] and found[name][0].startswith("mismatch")

    return found, test_ids_are_unique, test_outputs_are_right_and_nothing_else_is_written, test_fault_is_noticed


def main(jobs: list[dict], check: Callable[[dict], list[str]]) -> None:
    import quick_interpreter

    quick_interpreter.install()
    for job in jobs:
        with np.errstate(all="ignore"):
            print(json.dumps([job["id"], check(job)]), flush=True)
