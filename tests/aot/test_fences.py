"""Kernels in Gluon have all fences that they need: Triton's pass that adds what lacks changes no byte of them."""

import contextlib
import random

import pytest
from shipped import shipped

from aot import compile as aot_compile
from aot.compile import compile_variant, is_gluon, kernel_function
from aot.toolchain import fences_as_written, offline
from kernels.table.variants import variants

SEED = random.SystemRandom().randrange(1 << 32)


def gluon_rows(makes_descriptors: bool) -> dict[str, list]:
    """kernel -> its rows; those that make descriptors on the device, or all others."""
    found: dict[str, list] = {}
    for variant in variants((90,)):
        if is_gluon(kernel_function(variant)) and ("scratch" in variant.guard) == makes_descriptors:
            found.setdefault(variant.kernel, []).append(variant)
    return found


ROWS = gluon_rows(makes_descriptors=False)


@pytest.mark.parametrize("kernel", sorted(ROWS))
def test_a_row_of_each_kernel_drawn_anew_has_the_bytes_that_it_has_with_the_pass(monkeypatch, kernel):
    variant = random.Random(f"{SEED} {kernel}").choice(ROWS[kernel])
    own = shipped(variant)
    monkeypatch.setattr(aot_compile, "fences_as_written", contextlib.nullcontext)
    assert compile_variant(variant).cubin == own.cubin, f"{variant.name} lacks a fence (seed {SEED})"


def test_where_descriptors_are_made_on_the_device_the_pass_runs_since_it_adds_a_fence(monkeypatch):
    for rows in gluon_rows(makes_descriptors=True).values():
        variant = min(rows, key=lambda v: v.config.block_m * v.config.block_n)
        own = compile_variant(variant)
        with monkeypatch.context() as patch:
            patch.setattr(aot_compile, "offline", without_the_pass)
            assert compile_variant(variant).cubin != own.cubin, f"{variant.name} could do without"


@contextlib.contextmanager
def without_the_pass(*words):
    with offline(*words) as found, fences_as_written():
        yield found


def test_the_pass_is_left_out_in_that_context_alone():
    from triton.backends.nvidia import compiler

    passes = compiler.nvidia.passes.ttnvgpuir
    usual = passes.add_proxy_fence_insertion
    with fences_as_written():
        assert passes.add_proxy_fence_insertion is not usual
    assert passes.add_proxy_fence_insertion is usual
