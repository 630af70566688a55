"""Which GPUs the library in dist/ has kernels for, and marks for tests that need some of them. Holds no test.

`make test` must pass for every TARGETS: a test takes TARGET where any GPU will do, and says `needs(90)` where it is
about rows that only one has.
"""

import functools
import json
from pathlib import Path

import pytest

from kernels.table.targets import DEFAULT_TARGETS

MANIFEST = Path(__file__).resolve().parents[2] / "dist" / "manifest.json"


@functools.cache
def manifest() -> dict:
    """What the library says of itself (tests/csrc/test_capi.py compares), without asking it: that would use it."""
    return json.loads(MANIFEST.read_text())


# Before the first build: what it would have. Tests then fail for the want of it instead of being skipped.
BUILT = tuple(map(int, manifest()["targets"])) if MANIFEST.is_file() else DEFAULT_TARGETS
TARGET = 90 if 90 in BUILT else BUILT[0]  # the stand-in's GPU unless a test says otherwise


def needs(*targets: int):
    """Mark: the test is skipped, in words, where dist/ lacks kernels for one of these."""
    missing = ", ".join(f"sm_{target}" for target in targets if target not in BUILT)
    return pytest.mark.skipif(bool(missing), reason=f"dist/ has no kernels for {missing}: it was built with TARGETS")
