"""Kernels in Triton's own language before Blackwell: the passes that are left out of their compilation find nothing to
do in them. Those in Gluon: test_synchronized.py."""

import contextlib
import random
from operator import attrgetter

import pytest
from shipped import rows_of_kernels, shipped

from aot import compile as aot_compile
from aot.compile import compile_variant, is_gluon, kernel_function
from aot.toolchain import IDLE_BEFORE_TENSOR_MEMORY, TENSOR_MEMORY, without_idle_tensor_passes
from kernels.table.targets import DEFAULT_TARGETS
from kernels.table.variants import variants

SEED = random.SystemRandom().randrange(1 << 32)


def runs_own_code(variant) -> bool:
    return variant.compiled.name == variant.name and not is_gluon(kernel_function(variant))


ROWS = rows_of_kernels(tuple(t for t in DEFAULT_TARGETS if t < TENSOR_MEMORY), runs_own_code)


@pytest.mark.parametrize("kernel", sorted(ROWS))
def test_a_row_of_each_kernel_drawn_anew_has_the_bytes_that_it_has_with_the_passes(monkeypatch, kernel):
    variant = random.Random(f"{SEED} {kernel}").choice(ROWS[kernel])
    monkeypatch.setattr(aot_compile, "without_idle_tensor_passes", lambda _: contextlib.nullcontext())
    assert compile_variant(variant).cubin == shipped(variant).cubin, f"{variant.name} needs one of them (seed {SEED})"


def test_they_are_left_out_in_that_context_and_before_blackwell_alone():
    from triton.backends.nvidia import compiler

    def now() -> list:
        idle = IDLE_BEFORE_TENSOR_MEMORY.items()
        return [getattr(attrgetter(module)(compiler), name) for module, names in idle for name in names]

    usual, old, new = now(), *(next(iter(variants((target,)))) for target in (80, 100))
    with without_idle_tensor_passes(old):
        assert not any(a is b for a, b in zip(now(), usual, strict=True))
    with without_idle_tensor_passes(new):
        assert now() == usual
    assert now() == usual
