"""PyTorch's own tests of grouped_mm, through libgemm's drop-in. Not for pytest; has no tests of its own.

    python tests/gpu/torch_suite.py PYTORCH/test/test_matmul_cuda.py [-k grouped_gemm] [--not scaled]

The file comes with PyTorch's sources, of the version that is installed; nothing of it is in this project. Its tests run
as they are, with torch._grouped_mm and torch.nn.functional.grouped_mm replaced by libgemm.torch.grouped_mm.
"""

import argparse
import functools
import importlib.util
import sys
import unittest
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "runtime")]


def tests_of(suite: unittest.TestSuite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from tests_of(one)
        else:
            yield one


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"{path}: not a file of tests")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def replaced(owners, drop_in) -> list[None]:
    """Put the drop-in where those names are. The list grows by one with each call."""
    calls: list[None] = []

    @functools.wraps(drop_in)
    def counted(*args, **words):
        calls.append(None)
        return drop_in(*args, **words)

    for owner, name in owners:
        if hasattr(owner, name):
            setattr(owner, name, counted)
    return calls


def run(path: Path, wanted: str, unwanted: str, owners, drop_in) -> int:
    calls = replaced(owners, drop_in)
    found = unittest.defaultTestLoader.loadTestsFromModule(load(path))
    chosen = [one for one in tests_of(found) if wanted in one.id() and not (unwanted and unwanted in one.id())]
    result = unittest.TextTestRunner(verbosity=1).run(unittest.TestSuite(chosen))
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    print(f"{passed} passed, {failed} failed, {len(result.skipped)} skipped; {len(calls)} calls of libgemm")
    return 0 if passed and calls and not failed else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("-k", default="grouped_gemm", help="what a test's name has")
    parser.add_argument("--not", dest="unwanted", default="scaled", help="and what it has not")
    options = parser.parse_args()
    import libgemm.torch
    import torch

    owners = ((torch, "_grouped_mm"), (torch.nn.functional, "grouped_mm"))
    return run(options.file, options.k, options.unwanted, owners, libgemm.torch.grouped_mm)


if __name__ == "__main__":
    sys.exit(main())
