"""The times of packed groups, as kernels/table/model.py has them: rows that end anywhere. Needs no GPU."""

import math
import random
from typing import Any

import libgemm
import pytest
from built import needs

from kernels.table.model import expected_us, features, groups_work
from kernels.table.spec import LAYOUTS
from kernels.table.targets import TARGETS
from kernels.table.variants import variants as table

pytestmark = needs(90)  # these rows are Hopper's

ROWS = {row.name: row for row in table((90,)) if row.problem.op == "grouped_mm"}
SCALED: dict[str, Any] = {"scaling": "1x128_128x128", "target": 90}


def by_python(name: str, m: int, n: int, k: int, groups: int) -> float:
    """Microseconds; of 8-bit A and B, 16-bit D."""
    c, model, rows, used = ROWS[name].config, ROWS[name].model, math.ceil(m / groups), 1.0
    if step := ROWS[name].row_step:  # a group's rows are shared out evenly over its tiles
        used = math.ceil(math.ceil(rows / math.ceil(rows / c.block_m)) / step) * step / c.block_m
    filled = min(m, groups)
    tiles = filled * max(1.0, m / filled / c.block_m + 0.5) * math.ceil(n / c.block_n)
    waves, steps = math.ceil(tiles / TARGETS[90].multiprocessors), math.ceil(k / c.block_k)
    compute = model.fixed_ns + waves * (steps * model.step_ns * used + model.tile_ns)
    memory = model.fixed_ns + (m * k + filled * n * k + 2 * m * n) * model.byte_ps * 1e-3
    return (compute**4 + memory**4) ** 0.25 * 1e-3


@pytest.mark.parametrize(
    ("m", "n", "k", "groups"),
    [(32768, 4096, 7168, 8), (8193, 1536, 2048, 16), (3000, 7168, 2048, 8), (20000, 768, 2048, 31)],
)
def test_the_last_tile_of_a_group_is_half_full_in_the_mean(m, n, k, groups):
    choice = libgemm.explain_grouped_mm(m, n, k, groups, "e4m3", **SCALED)
    assert choice.expected_us == pytest.approx(by_python(choice.variant.name, m, n, k, groups), rel=2e-3)


def test_groups_of_a_few_rows_have_a_tile_each():
    choice = libgemm.explain_grouped_mm(64, 4096, 4096, 64, "e4m3", **SCALED)
    assert choice.expected_us == pytest.approx(by_python(choice.variant.name, 64, 4096, 4096, 64), rel=1e-4), (
        "the bytes' time hides all but this of the tiles'"
    )


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


@pytest.mark.parametrize("ragged", ["m", "k", "none"])
def test_of_16_bits_c_and_python_expect_the_same_time(ragged):
    draw, seen = random.Random(f"groups {ragged}"), set()
    for _ in range(120):
        groups, each = draw.choice((1, 2, 8, 60, 256)), draw.choice((0.3, 3, 40, 700, 5000))
        cut = max(1, round(groups * each * draw.uniform(0.5, 1.5)))
        n, k = (draw.choice((512, 768, 1536, 2880, 7168)) for _ in range(2))
        if ragged == "m":
            m, layout = cut, draw.choice(("nn", "nt"))
        elif ragged == "k":
            m, k, layout = draw.choice((512, 2048)), cut * 8, "tn"
        else:
            m, layout = groups * -(-cut // groups), draw.choice(("nn", "nt"))
        of_each = m // groups if ragged == "none" else m  # all groups' rows where ends cut them
        found = libgemm.explain_grouped_mm(of_each, n, k, groups, layout=layout, ragged=ragged, target=90)
        row = ROWS[found.variant.name]
        cut_by = ragged if ragged == "none" else ragged.upper()
        work, c = groups_work(m, n, k, groups, cut_by, layout, TARGETS[90].multiprocessors), row.config
        by = features(c.block_m, c.block_n, c.block_k, row.family, work, c.below, c.across)
        us = expected_us(row.fit, LAYOUTS.index(layout), by, work)
        assert found.expected_us == pytest.approx(us, rel=2e-3), (m, n, k, groups, layout)
        seen.add(row.fit_name)
    assert len(seen) > 2
