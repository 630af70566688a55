"""What tuning measures: that every candidate is a row, named once, and that what ships was one. Fits nothing."""

import pytest

from build.tune.candidates import candidates, grouped_candidates
from kernels.table import model
from kernels.table.families import REFERENCE
from kernels.table.sm90 import hopper_variant
from kernels.table.spec import LAYOUTS, Problem
from kernels.table.variants import variants

TABLE = candidates()


def test_every_candidate_checks_and_is_named_once_a_layout():
    assert len({v.name for v in TABLE}) == len(TABLE) > 100
    for v in TABLE:
        v.check()
        assert (v.problem.a, v.problem.d, v.problem.op, v.target) == ("bf16", "bf16", "gemm", 90)
    for layout in LAYOUTS:
        own = [v.fit_name for v in TABLE if v.problem.layout == layout]
        assert len(set(own)) == len(own) > 20
    assert [v.fit_name for v in candidates(types="f16")] == [v.fit_name for v in TABLE]  # one type stands for all


def test_candidates_of_bytes_are_those_whose_kernels_take_scales_and_hold_two_sums():
    fast, exact = (candidates(types=types) for types in ("e4m3_fast", "e4m3"))
    for rows, precision in ((fast, "fast"), (exact, "exact")):
        for v in rows:
            v.check()
            assert (v.problem.a, v.problem.precision, v.problem.layout) == ("e4m3", precision, "nt")
        assert {(v.config.below, v.config.across) for v in rows} == {
            (1, 1), (2, 1), (1, 2), (4, 1), (1, 4), (2, 2), (4, 2), (8, 1)
        }  # fmt: skip
        reduced = [v for v in rows if v.family.split == "cluster"]
        most = max(v.left * v.right // (v.config.warps // 4) for v in reduced)
        assert most == 64 * (192 if precision == "exact" else 256) and {v.config.warps for v in reduced} == {4, 8}
    tiles = [{v.fit_name for v in rows} for rows in (fast, exact)]
    assert tiles[1] < tiles[0] and {"128x256x64_coop", "128x192x64_pingpong"} <= tiles[0] - tiles[1]
    blocks = candidates(types="e4m3_blocks")
    assert {v.config.cluster for v in blocks} == {1, 2, 4, 8} and not any(v.family.split == "cluster" for v in blocks)
    assert {v.measured_as for v in (*fast, *exact, *blocks)} == {"gemm_e4m3", "gemm_e4m3_fast", "gemm_e4m3_blocks"}
    assert all(v.lies_in_blocks for v in blocks) and not all(v.lies_in_blocks for v in exact)


@pytest.mark.parametrize("types", ["e4m3", "e4m3_fast", "e4m3_blocks"])
def test_what_ships_for_groups_of_8_bits_was_a_candidate_and_measured(types):
    table = grouped_candidates(types=types)
    (kind,) = {v.measured_as for v in table}
    own = [v for v in variants((90,)) if v.measured_as == kind and "rows" in v.guard]
    shipped = {v.fit_name for v in own if v.family not in REFERENCE.values()}
    assert kind == f"grouped_mm_{types}" and shipped == set(model.tuned(90, kind).fits) == {v.fit_name for v in table}
    ways = {("blocks" in v.guard, v.problem.precision) for v in table}
    assert ways == {(types == "e4m3_blocks", "fast" if types == "e4m3_fast" else "exact")}


def test_what_ships_for_hopper_was_a_candidate():
    found = model.tuned(90)
    shipped = {
        hopper_variant(Problem("gemm", "bf16", "bf16", "exact", layout), *tile).fit_name
        for layout, own in found.tiles.items() for tile in own
    }  # fmt: skip
    assert {name.rpartition("_")[2] for name in shipped} >= {"c2", "c4", "c1x2", "c2x2", "c4x2"}
    assert set(found.tiles) == set(LAYOUTS) and len(shipped) > 40
    assert shipped <= {v.fit_name for v in TABLE} and set(found.fits) <= {v.fit_name for v in TABLE}
    assert {tile for *_, tile in found.known} <= set(found.fits)
    terms = len(model.features(8, 8, 8, REFERENCE["gemm"], model.packed_work(8, 8, 8, "nn", 1)))
    for made in found.fits.values():
        assert [len(row) for row in made.weights] == [terms] * 4
