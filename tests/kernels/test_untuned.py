"""What is chosen where nobody has measured, and what those rows hold. The library alone: neither GPU nor stand-in."""

import dataclasses
import itertools
import re

import pytest
from libgemm.inspect import explain, info, variants

from kernels.table.model import Speed, reuse, rough
from kernels.table.spec import LAYOUTS, OPS, Problem
from kernels.table.targets import TARGETS
from kernels.table.untuned import untuned_rows
from kernels.table.variants import variants as table

UNTUNED = (80, 86, 89, 100, 120)


def chosen(target: int, m: int, n: int, k: int, **options):
    if target not in info()["targets"]:
        pytest.skip(f"this library has no kernels for sm_{target}")
    choice = explain(m, n, k, target=target, **options)
    variant, reason = choice.variant, choice.reason
    assert re.match(r"untuned: [\d.e+]+ us expected, chosen from \d+ kernels(;|,|$)", reason), reason
    return variant


@pytest.mark.parametrize("target", UNTUNED)
def test_few_rows_get_a_narrow_tile(target):
    for m, (n, k), layout in itertools.product((1, 2, 7, 16), ((4096, 4096), (14336, 4096), (256, 7168)), ("nn", "nt")):
        for options in ({}, {"activation": "silu"}, {"dtype": "f16"}):
            assert chosen(target, m, n, k, layout=layout, **options).block_m == 16, (m, n, k, layout, options)


@pytest.mark.parametrize("target", UNTUNED)
def test_many_tiles_get_a_large_one_and_few_a_small_one(target):
    for layout, options in itertools.product(LAYOUTS, ({}, {"out_dtype": "f32"}, {"dtype": "f16"})):
        for size, least, most in ((512, 0, 64 * 64), (8192, 128 * 128, 128 * 256)):
            v = chosen(target, size, size, size, layout=layout, **options)
            assert least <= v.block_m * v.block_n <= most, v.name
    assert chosen(target, 8192, 8192, 8192, activation="gelu").block_m >= 64
    assert "_align16" in chosen(target, 8192, 8192, 8192, batch=2).name


@pytest.mark.parametrize("target", UNTUNED)
def test_what_no_fast_row_takes_goes_to_the_reference_set(target):
    v = chosen(target, 4096, 4096, 4096, aligned=False)
    assert not v.align16 and not v.single


@pytest.mark.parametrize("target", UNTUNED)
def test_dense_rows_keep_to_registers_and_say_that_they_are_not_measured(target, manifest):
    found = [v for v in manifest["variants"] if v["target"] == target and v["problem"]["op"] == "gemm"]
    fast = [v for v in found if v["guard"] and v["problem"]["precision"] == "exact"]
    assert {v["origin"] for v in found} <= {"untuned"}
    # 8-bit operands are converted in registers, of which two may spill.
    spilled = [v["name"] for v in fast if v["local_bytes"] > 8 * (v["problem"]["a"] == "e4m3") or v["registers"] > 255]
    assert spilled == []
    assert {v["name"] for v in fast} <= {v.name for v in variants()}


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_beside_hopper_has_fast_rows(target):
    same = list(untuned_rows(Problem("gemm", "bf16", "bf16", "exact", "nt"), target))
    wide = list(untuned_rows(Problem("gemm", "bf16", "f32", "exact", "nt"), target))
    if target == 90:
        assert same == wide == []
    else:
        assert min(r.config.block_m for r in same) == 16 and len(same) > len(wide) > 0
        assert max(r.config.block_m * r.config.block_n for r in same) >= 128 * 128
        assert {len(r.guard) for r in same} == {1, 2}  # with an activation, and without


def test_rows_of_hopper_that_are_not_measured_keep_these_models():
    """Speeds of other targets are no business of its choices."""
    rows = [r for r in table((90,)) if not r.fit and r.problem.op in OPS]
    for r in rows:
        step = r.config.block_m * r.config.block_n * r.config.block_k * 0.05 / r.rate
        assert dataclasses.astuple(r.model) == (3000.0, step, float(r.tile_ns), 0.3 * r.byte_cost)
        assert (r.tile_ns, r.byte_cost) == (500, 1) or (r.problem.op, r.problem.a) == ("grouped_mm", "e4m3")
    assert len(rows) > 50


def test_a_tile_that_reuses_more_is_faster():
    sizes = [(16, 32), (16, 64), (64, 32), (64, 64), (64, 128), (128, 128), (128, 256)]
    found = [reuse(*size) for size in sizes]
    assert found == sorted(found) and len(set(found)) == len(found) and 0 < found[0] < found[-1] < 1
    slow, fast = (rough(64, 64, 64, 50, Speed(x, 1.0)) for x in (0.2, 0.1))
    assert slow.step_ns == pytest.approx(2 * fast.step_ns)
