"""What compile workers do in test_build.py instead of compiling: spawned processes import it. No tests here."""

import dataclasses
import os
import time

from sample import sample_artifact

from aot.params import CompileError
from kernels.table.targets import TARGETS


def make(unit, min_driver):
    return [sample_artifact(variant) for variant in unit]


def greedy(unit, min_driver):
    """As much shared memory as the target that it is compiled for has."""
    return [dataclasses.replace(sample_artifact(v), shared_bytes=TARGETS[v.target].shared_bytes) for v in unit]


def fail_one(unit, min_driver):
    for variant in unit:
        if "_f16_" in variant.name:
            raise CompileError(f"{variant.name}: does not compile on purpose")
    return [sample_artifact(variant) for variant in unit]


def hang(unit, min_driver):
    time.sleep(600)


def swallow_memory(unit, min_driver):
    return bytearray(4 << 30)


def crash(unit, min_driver):
    os._exit(7)


def slow(unit, min_driver):
    time.sleep(0.3 * len(unit))
    return [sample_artifact(variant) for variant in unit]


class Unsendable:
    """What takes more memory to send than there is."""

    def __reduce__(self):
        raise MemoryError


def unsendable(unit, min_driver):
    return Unsendable()
