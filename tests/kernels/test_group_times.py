"""The times of packed groups, as kernels/table/model.py has them: rows that end anywhere. Needs no GPU."""

import math
import random
from typing import Any

import libgemm
import pytest
from built import needs

from kernels.table.dtypes import DTYPES
from kernels.table.model import expected_us, features, groups_work
from kernels.table.spec import LAYOUTS
from kernels.table.targets import TARGETS
from kernels.table.variants import variants as table

pytestmark = needs(90)  # these rows are Hopper's

ROWS = {row.name: row for row in table((90,)) if row.problem.op == "grouped_mm"}
SCALED: dict[str, Any] = {"scaling": "1x128_128x128", "target": 90}


def by_python(name: str, m: int, n: int, k: int, groups: int) -> float:
    """Microseconds by the rough formula, of 16-bit A, B and D."""
    c, model = ROWS[name].config, ROWS[name].model
    filled = min(m, groups)
    tiles = filled * max(1.0, m / filled / c.block_m + 0.5) * math.ceil(n / c.block_n)
    waves, steps = math.ceil(tiles / TARGETS[90].multiprocessors), math.ceil(k / c.block_k)
    compute = model.fixed_ns + waves * (steps * model.step_ns + model.tile_ns)
    memory = model.fixed_ns + 2 * (m * k + filled * n * k + m * n) * model.byte_ps * 1e-3
    return (compute**4 + memory**4) ** 0.25 * 1e-3


@pytest.mark.parametrize(
    ("m", "n", "k", "groups"),
    [(32768, 4096, 7167, 8), (8193, 1536, 2047, 16), (3000, 7168, 2047, 8), (20000, 768, 2047, 31)],
)
def test_the_last_tile_of_a_group_is_half_full_in_the_mean(m, n, k, groups):
    """Of rows that nobody has tuned: operands that no tuned row takes."""
    choice = libgemm.explain_grouped_mm(m, n, k, groups, layout="nt", target=90)
    assert not ROWS[choice.variant.name].fit
    assert choice.expected_us == pytest.approx(by_python(choice.variant.name, m, n, k, groups), rel=2e-3)


def test_groups_of_a_few_rows_have_a_tile_each():
    choice = libgemm.explain_grouped_mm(64, 4096, 4095, 64, layout="nt", target=90)
    assert choice.expected_us == pytest.approx(by_python(choice.variant.name, 64, 4096, 4095, 64), rel=1e-4)


def test_no_more_groups_than_rows_have_any():
    few, as_many = (libgemm.explain_grouped_mm(2, 4096, 4096, groups, "e4m3", **SCALED) for groups in (128, 2))
    assert few.variant.name == as_many.variant.name
    assert few.expected_us == pytest.approx(as_many.expected_us, rel=1e-5)


def test_groups_without_rows_are_no_time_that_is_not_a_number():
    choice = libgemm.explain_grouped_mm(0, 4096, 4096, 8, "e4m3", **SCALED)
    assert choice.variant is None or choice.expected_us >= 0


def test_whole_matrices_have_no_half_tiles():
    """Ends that cut K: each group's D is a matrix of M rows, whatever its K."""
    m, n, k, groups = 256, 256, 4096 * 132, 132
    choice = libgemm.explain_grouped_mm(m, n, k, groups, "e4m3", ragged="k", out_dtype="f32", target=90)
    c, model = ROWS[choice.variant.name].config, ROWS[choice.variant.name].model
    waves, steps = m * n // (c.block_m * c.block_n), 4096 // c.block_k
    compute = model.fixed_ns + waves * (steps * model.step_ns + model.tile_ns)
    memory = model.fixed_ns + ((m + n) * k + 4 * groups * m * n) * model.byte_ps * 1e-3
    assert choice.expected_us == pytest.approx((compute**4 + memory**4) ** 0.25 * 1e-3, rel=2e-3)


def same_time(m: int, n: int, k: int, groups: int, ragged: str, layout: str, **words) -> str:
    """That C expects what Python does of the row that it chooses; and the name of that row's fit."""
    of_each = m // groups if ragged == "none" else m  # all groups' rows where ends cut them
    found = libgemm.explain_grouped_mm(of_each, n, k, groups, layout=layout, ragged=ragged, target=90, **words)
    row, cut_by = ROWS[found.variant.name], ragged if ragged == "none" else ragged.upper()
    a_bytes, c = DTYPES[row.problem.a].bytes, row.config
    work = groups_work(m, n, k, groups, cut_by, layout, TARGETS[90].multiprocessors, a_bytes)
    by = features(c.block_m, c.block_n, c.block_k, row.family, work, c.below, c.across)
    us = expected_us(row.fit, LAYOUTS.index(layout), by, work)
    assert found.expected_us == pytest.approx(us, rel=2e-3), (m, n, k, groups, layout, words)
    return row.fit_name


def drawn(draw: random.Random) -> tuple[int, int, int, int]:
    """Groups, rows of all, N and K."""
    groups, each = draw.choice((1, 2, 8, 60, 256)), draw.choice((0.3, 3, 40, 700, 5000))
    n, k = (draw.choice((512, 768, 1536, 2880, 7168)) for _ in range(2))
    return groups, max(1, round(groups * each * draw.uniform(0.5, 1.5))), n, k


@pytest.mark.parametrize("ragged", ["m", "k", "none"])
def test_of_16_bits_c_and_python_expect_the_same_time(ragged):
    draw, seen = random.Random(f"groups {ragged}"), set()
    for _ in range(120):
        groups, cut, n, k = drawn(draw)
        if ragged == "m":
            m, layout = cut, draw.choice(("nn", "nt"))
        elif ragged == "k":
            m, k, layout = draw.choice((512, 2048)), cut * 8, "tn"
        else:
            m, layout = groups * -(-cut // groups), draw.choice(("nn", "nt"))
        seen.add(same_time(m, n, k, groups, ragged, layout))
    assert len(seen) > 2


@pytest.mark.parametrize(
    ("scaling", "precision"), [("row", None), ("tensor", "fast"), ("row", "fast"), ("1x128_128x128", None)]
)
def test_of_8_bits_c_and_python_expect_the_same_time(scaling, precision):
    draw, seen = random.Random(f"groups {scaling} {precision}"), set()
    for _ in range(120):
        groups, m, n, k = drawn(draw)
        words = {"dtype": "e4m3", "scaling": scaling, "precision": precision}
        seen.add(same_time(m, n, k, groups, "m", "nt", **words))
    assert len(seen) > 3
