"""Which tile what people run gets, by fit.py: noise, times of another day, the risk of L2. On made-up times."""

import importlib.util

import pytest

from build.tune.candidates import candidates
from kernels.table import model

if importlib.util.find_spec("numpy") is None:
    pytest.skip("needs numpy", allow_module_level=True)

import numpy as np

from build.tune import fit, weights

TABLE = candidates()
BY_NAME = {v.fit_name: v for v in TABLE}
FAST, SLOW, THIN = "128x256x64_coop", "64x128x64_pingpong", "16x64x128_pingpong_swap"


def winner(size: tuple[int, int, int], slow_us: float, before=()) -> str:
    """Of a known product, which FAST takes 10 us for, where `before` are the tiles that it had."""
    m, n, k = size
    row = {"m": m, "n": n, "k": k, "layout": "nt", "us": {FAST: 10.0, SLOW: slow_us}, "known": True}
    found = fit.Measured([row], TABLE)
    last = [(*size, 1, "nt", tile) for tile in before]
    ((*_, tile),) = fit.winners(found, np.isfinite(found.us), {}, last)
    return tile


def test_a_large_product_is_not_won_by_little_by_a_tile_that_asks_l2_for_more_than_it_gives():
    assert winner((4096,) * 3, 9.9) == SLOW
    assert winner((8192,) * 3, 9.9) == FAST
    assert winner((8192,) * 3, 8.0) == SLOW


def test_a_known_products_tile_stays_until_another_beats_it_by_more_than_noise():
    size = 64, 4096, 4096
    assert winner(size, 9.9) == winner(size, 9.9, [SLOW, FAST]) == SLOW
    assert winner(size, 9.9, [FAST]) == winner(size, 9.9, [FAST, SLOW]) == FAST
    assert winner(size, 9.7, [FAST]) == SLOW
    assert winner(size, 9.9, ["a tile that is none any more"]) == SLOW


def test_of_a_known_product_what_the_last_run_measured_wins_over_a_time_of_another_day():
    size = 64, 4096, 4096
    us = {FAST: 10.0, SLOW: 9.0, THIN: 9.5}
    row = {**dict(zip("mnk", size, strict=True)), "layout": "nt", "us": us, "known": True}
    for latest, before, sets, tiles in (
        (None, FAST, [], [SLOW]),
        ([FAST, THIN], FAST, [], [THIN]),
        ([FAST, THIN], SLOW, [], [SLOW]),  # which that run left out
        ([FAST], FAST, [], [FAST]),
        ([FAST], FAST, [{SLOW, THIN}], [FAST, SLOW]),  # of those that other types have none was measured
        ([FAST, THIN], FAST, [{SLOW, FAST}], [THIN, FAST]),
    ):
        found = fit.Measured([row | ({"latest": latest} if latest else {})], TABLE)
        numbers = [set(map(found.names.index, some)) for some in sets]
        last = [(*size, 1, "nt", before)]
        known = fit.winners(found, np.isfinite(found.us), {"nt": numbers}, last)
        assert [tile for *_, tile in known] == tiles, (latest, before, sets)


def test_what_waits_for_memory_bears_no_risk_of_l2():
    def risk(m, n, k, tile):
        v, w = BY_NAME[tile], model.packed_work(m, n, k, "nt", 132)
        c = v.config
        found = model.features(c.block_m, c.block_n, c.block_k, v.family, w, c.below, c.across)
        return weights.l2_risk(np.array([found]))[0]

    assert risk(128, 129280, 7168, "64x144x64_flex_pingpong") == 0
    assert risk(8192, 8192, 8192, SLOW) > 0
