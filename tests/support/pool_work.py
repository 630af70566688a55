"""What compile workers do in test_build.py instead of compiling: spawned processes import it. No tests here."""

import dataclasses
import os
import time

from sample import sample_artifact

from aot.params import CompileError
from kernels.table.targets import TARGETS


def make(variant, min_driver):
    return sample_artifact(variant)


def greedy(variant, min_driver):
    """As much shared memory as the target that it is compiled for has."""
    return dataclasses.replace(sample_artifact(variant), shared_bytes=TARGETS[variant.target].shared_bytes)


def fail_one(variant, min_driver):
    if "_f16_" in variant.name:
        raise CompileError(f"{variant.name}: does not compile on purpose")
    return sample_artifact(variant)


def hang(variant, min_driver):
    time.sleep(600)


def swallow_memory(variant, min_driver):
    return bytearray(4 << 30)


def crash(variant, min_driver):
    os._exit(7)


def slow(variant, min_driver):
    time.sleep(0.3)
    return sample_artifact(variant)
