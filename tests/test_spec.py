"""The table of variants and its vocabulary: every row checks, every bad row is refused with its reason."""

import dataclasses
from itertools import product

import pytest

from kernels.spec import DEFAULT_TARGETS, LAYOUTS, OPS, TARGETS, Config, Problem, SpecError, Variant
from kernels.variants import TYPES_16BIT, TYPES_F32, variants

GOOD = Variant(
    Problem("gemm", "bf16", "bf16", "exact", "nt"),
    Config(128, 128, 64, warps=8, stages=3),
    "gemm.gemm",
    90,
    ("align16",),
)


def changed(variant: Variant, part: str, **fields) -> Variant:
    if part:
        return dataclasses.replace(variant, **{part: dataclasses.replace(getattr(variant, part), **fields)})
    return dataclasses.replace(variant, **fields)


def test_names_are_unique_and_say_everything_that_differs():
    rows = variants(tuple(TARGETS))
    assert len({row.name for row in rows}) == len(rows) > 1000
    assert GOOD.name == "gemm_bf16_bf16_bf16_nt__sm90__128x128x64_w8_s3_align16"


@pytest.mark.parametrize("target", TARGETS)
def test_every_problem_has_a_row_without_guard_and_it_is_last(target):
    rows = variants((target,))
    for op, (a, d, precision), layout in product(OPS, TYPES_16BIT + TYPES_F32, LAYOUTS):
        own = [row for row in rows if row.problem == Problem(op, a, d, precision, layout)]
        assert own, (op, a, d, precision, layout)
        assert own[-1].guard == ()
        assert all(row.guard for row in own[:-1])


def test_default_targets_are_those_of_the_readme():
    assert DEFAULT_TARGETS == (80, 86, 89, 90, 100, 120)


@pytest.mark.parametrize(
    ("part", "fields", "words"),
    [
        ("problem", {"op": "gemv"}, ["op = 'gemv'", "gemm"]),
        ("problem", {"a": "f64"}, ["a = 'f64'", "bf16"]),
        ("problem", {"d": "f16"}, ["d = 'f16'", "bf16", "f32"]),
        ("problem", {"precision": "tf32"}, ["precision = 'tf32'", "exact"]),
        ("problem", {"a": "f32", "d": "f32"}, ["precision = 'exact'", "tf32x3"]),
        ("problem", {"layout": "xn"}, ["layout = 'xn'", "nt"]),
        ("config", {"block_m": 96}, ["block_m = 96", "power of two"]),
        ("config", {"block_k": 4}, ["block_k = 4", "at least 8"]),
        ("config", {"warps": 3}, ["warps = 3", "(4, 8)"]),
        ("config", {"stages": 0}, ["stages = 0", "1 to 8"]),
        ("config", {"ctas": 3}, ["ctas = 3", "(1, 2)"]),
        ("config", {"group_m": 0}, ["group_m = 0", "1 or more"]),
        ("", {"target": 70}, ["target = 70", "90"]),
        ("", {"kernel": "gemm"}, ["kernel = 'gemm'", "module.function"]),
        ("", {"guard": ("aligned",)}, ["guard = 'aligned'", "align16"]),
        ("", {"guard": ("linear", "align16")}, ["sorted"]),
        ("", {"rate": 0}, ["rate = 0", "1 to 1000"]),
    ],
)
def test_a_bad_row_is_refused_with_what_was_given_and_what_is_allowed(part, fields, words):
    row = changed(GOOD, part, **fields)
    with pytest.raises(SpecError) as caught:
        row.check()
    assert row.name in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


def test_clusters_need_hopper():
    with pytest.raises(SpecError, match="ctas = 2: allowed is 1 below sm_90"):
        changed(changed(GOOD, "config", ctas=2), "", target=80).check()


def test_the_good_row_passes_and_its_constants_follow_the_row():
    GOOD.check()
    constants = GOOD.constexprs()
    assert (constants["TRANS_A"], constants["TRANS_B"], constants["ALIGN"], constants["ACTIVATE"]) == (0, 1, 8, 1)
    assert all(isinstance(value, int) and not isinstance(value, bool) for value in constants.values())
    assert GOOD.argument_type("a_ptr") == "*bf16"
    assert GOOD.argument_type("lda") == "i64"
