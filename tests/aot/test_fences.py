"""Kernels in Gluon have all fences that they need: Triton's pass that adds what lacks changes no byte of them."""

import contextlib
import random

import pytest

from aot import compile as aot_compile
from aot.compile import compile_variant, is_gluon, kernel_function
from aot.toolchain import fences_as_written
from kernels.table.variants import variants

SEED = random.SystemRandom().randrange(1 << 32)


def gluon_rows() -> dict[str, list]:
    """kernel -> its rows, also those that make descriptors, for which the pass runs."""
    found: dict[str, list] = {}
    for variant in variants((90,)):
        if is_gluon(kernel_function(variant)):
            found.setdefault(variant.kernel, []).append(variant)
    return found


ROWS = gluon_rows()


@pytest.mark.parametrize("kernel", sorted(ROWS))
def test_a_row_of_each_kernel_drawn_anew_has_the_bytes_that_it_has_with_the_pass(monkeypatch, kernel):
    variant = random.Random(f"{SEED} {kernel}").choice(ROWS[kernel])
    own = compile_variant(variant)
    monkeypatch.setattr(aot_compile, "fences_as_written", contextlib.nullcontext)
    assert compile_variant(variant).cubin == own.cubin, f"{variant.name} lacks a fence (seed {SEED})"


def test_the_pass_is_left_out_in_that_context_alone():
    from triton.backends.nvidia import compiler

    passes = compiler.nvidia.passes.ttnvgpuir
    usual = passes.add_proxy_fence_insertion
    with fences_as_written():
        assert passes.add_proxy_fence_insertion is not usual
    assert passes.add_proxy_fence_insertion is usual
