"""From measurements to what ships: fit.py on made-up times, and the file that make tune grows."""

import importlib.util
import json
import math
import random

import pytest

from build.tune.candidates import candidates, grouped_candidates
from kernels.table import model
from kernels.table.spec import LAYOUTS

if importlib.util.find_spec("numpy") is None:
    pytest.skip("needs numpy", allow_module_level=True)

import numpy as np

from build.tune import fit, sharpen, weights
from build.tune.record import KNOWN_WEIGHT, LATEST_WEIGHT, Run

TABLE = candidates()
BY_NAME = {v.fit_name: v for v in TABLE}
FAST, SLOW, THIN = "128x256x64_coop", "64x128x64_pingpong", "16x64x128_pingpong_swap"
ALWAYS = [name for name, v in BY_NAME.items() if v.family.full_name in fit.ALWAYS]
KNOWN = (4096, 4096, 4096, "nt")  # marked as a shape that people run


def test_behind_a_winner_that_other_types_lack_stands_the_best_that_they_have():
    found = measured(lambda name, i, _: {FAST: 10.0, SLOW: 11.0, THIN: 12.0}.get(name, 30.0))
    run, (fast, slow, thin) = np.isfinite(found.us), map(found.names.index, (FAST, SLOW, THIN))

    def known(*sets):
        return [tile for *_, tile in fit.winners(found, run, {KNOWN[3]: sets})]

    assert known({fast, slow}, {fast, thin}) == known() == [FAST]
    assert known({slow, thin}, {slow}) == [FAST, SLOW]
    assert known({slow, thin}, {thin}) == [FAST, SLOW, THIN]
    assert known({slow}, set()) == [FAST, SLOW]
    run[:, slow] = False  # it has no fit
    assert known({slow}) == [FAST] and known({slow, thin}) == [FAST, THIN]


def test_gradients_of_packed_groups_get_tiles_of_their_own_where_some_were_measured():
    table = grouped_candidates()
    names = [v.fit_name for v in table]
    usual, whole = "128x128x64_grouped_mm_pingpong_equal", "192x128x64_grouped_mm_whole_swap_equal"
    assert {usual, whole} <= {*names}
    shape = {"ragged": "K", "groups": 4, "m": 1024, "n": 1024, "layout": "tn", "known": False}
    old = [{**shape, "k": 1000 + i, "us": {usual: 10.0}} for i in range(200)]
    new = [{**shape, "k": 9000 + i, "us": {usual: 10.0, whole: 9.0}} for i in range(3)]
    for rows, tiles in ((old, {usual}), (old + new, {usual, whole})):
        found = fit.Measured(rows, table)
        (own,) = {tuple(own) for own in fit.chosen_tiles(found, "grouped_mm", 0.01, 12).values()}
        assert {found.names[i] for i in own} == tiles


def test_what_the_last_run_measured_counts_for_more_and_what_people_run_for_most():
    shape = {"m": 64, "n": 64, "k": 64, "layout": "nt", "us": {FAST: 1.0}}
    rows = [{**shape, "known": known, **build} for known in (False, True) for build in ({}, {"build": "b2"})]
    latest, old = [1.0, LATEST_WEIGHT, KNOWN_WEIGHT, KNOWN_WEIGHT], [1.0, 1.0, KNOWN_WEIGHT, KNOWN_WEIGHT]
    own = Run("b2", 0)
    for runs, wanted in (
        ([], old), ([own], latest), ([Run("b3", 0)], old), ([own, Run("b3", 0)], old), ([own, Run("b3", 64)], old),
        ([own, Run("b3", 65)], latest), ([Run("b3", 0), Run("b2", 64)], latest),
    ):  # fmt: skip
        assert fit.Measured(rows, TABLE, runs).weights.tolist() == wanted, runs


def shapes(count: int) -> list[tuple]:
    draw = random.Random(7)
    found = {KNOWN: None}
    while len(found) < count:
        m, n, k = (8 * round(2 ** draw.uniform(0, 9)) for _ in range(3))
        found[m, n, k, draw.choice(LAYOUTS)] = None
    return list(found)


def measured(us, count: int = 60) -> fit.Measured:
    """Made-up measurements: us(tile's name, shape's number, shape) microseconds, None for a tile that was not run."""
    rows = []
    for i, (m, n, k, layout) in enumerate(shapes(count)):
        times = {name: us(name, i, (m, n, k, layout)) for name in (FAST, SLOW, THIN, *ALWAYS)}
        times = {name: found for name, found in times.items() if found is not None}
        rows.append({"m": m, "n": n, "k": k, "layout": layout, "us": times, "known": (m, n, k, layout) == KNOWN})
    return fit.Measured(rows, TABLE)


def names(m: fit.Measured, tiles: list[int]) -> list[str]:
    return [m.names[i] for i in tiles]


def test_the_tile_that_is_best_everywhere_is_chosen_alone():
    found = measured(lambda name, i, _: 10.0 if name == FAST else 11.0 if name == SLOW else 30.0)
    assert names(found, fit.choose_tiles(found, 0.002, 10)) == [FAST]


def test_tiles_are_chosen_by_what_each_gains_until_little_is_lost():
    def us(name, i, _):
        best = FAST if i % 3 else THIN  # two shapes of three are FAST's
        return 10.0 if name == best else 10.5 if name == SLOW else 25.0

    found = measured(us)
    assert names(found, fit.choose_tiles(found, 0.002, 10)) == [SLOW, FAST, THIN]  # the one that is never far off first
    assert names(found, fit.choose_tiles(found, 0.002, 1)) == [SLOW]
    assert names(found, fit.choose_tiles(found, 0.06, 10)) == [SLOW]  # 5 % is allowed


def test_a_tile_that_was_not_run_counts_as_far_behind():
    def us(name, i, _):
        return (None if i % 2 else 10.0) if name == FAST else 12.0 if name == SLOW else 40.0

    found = measured(us)
    assert names(found, fit.choose_tiles(found, 0.002, 1)) == [SLOW]  # 1.2 times everywhere beats FAR half the time
    assert names(found, fit.choose_tiles(found, 0.002, 10))[1:] == [FAST]


def test_tiles_leave_by_what_the_others_miss_until_too_much_is_lost():
    us = np.array([[10.0, 10.1, 20.0], [20.0, 10.0, 10.2], [20.0, 20.0, 10.0]])
    even = np.ones(3)
    assert fit.missed_least(us, even, 0.001, set()) == []  # 1 % of a third is the least
    assert fit.missed_least(us, even, 0.004, set()) == [0]  # the second takes its shape, and then has two
    assert fit.missed_least(us, even, 0.004, {0}) == []  # the next costs 2 % of a third
    assert fit.missed_least(us, even, 0.008, {0}) == [1]
    assert fit.missed_least(us, even, 9.0, set()) == [0, 2]  # one is always left
    assert fit.missed_least(us, np.array([9.0, 1.0, 1.0]), 0.004, set()) == [1]  # where the first shape weighs most


def test_what_ships_with_other_types_or_was_run_on_few_shapes_is_not_dropped():
    rows = [v for v in TABLE if v.problem.layout == "nt" and v.config.cluster == 1 and v.family.persistent][:20]
    own = [v.fit_name for v in rows]
    first, never, seldom = own[0], own[16], own[18]
    made = []
    for i, (m, n, k, _) in enumerate(shapes(60)):
        us = {name: 10.0 if j == i % 20 else 12.0 for j, name in enumerate(own)}
        us |= dict.fromkeys((first, never), 30.0) | ({seldom: 30.0} if i == 3 else {})
        if i != 3:
            del us[seldom]
        made.append({"m": m, "n": n, "k": k, "layout": "nt", "us": us, "known": False})
    found = fit.Measured(made, rows)
    left = fit.dropped(found, {"nt": list(range(20))}, 0.001)["nt"]
    assert names(found, sorted(set(range(20)) - set(left))) == [never]


def test_a_shape_that_people_run_outweighs_one_that_was_drawn():
    found = measured(lambda name, i, _: {FAST: 10.0, SLOW: 20.0}.get(name, 40.0) if i == 0 else
                     {FAST: 12.0, SLOW: 10.0}.get(name, 40.0), 5)  # fmt: skip
    assert found.weights.tolist() == [KNOWN_WEIGHT] + [1.0] * 4
    assert names(found, fit.choose_tiles(found, 0.0, 1)) == [FAST]


def features_of(name: str, row: dict) -> list[float]:
    c = BY_NAME[name].config
    return model.features(
        c.block_m,
        c.block_n,
        c.block_k,
        BY_NAME[name].family,
        model.packed_work(row["m"], row["n"], row["k"], row["layout"], 132),
        c.below,
        c.across,
    )


def test_a_fit_recovers_times_that_follow_the_formula():
    draw = random.Random(3)
    terms = len(features_of(FAST, {"m": 8, "n": 8, "k": 8, "layout": "nn"}))
    common = [draw.uniform(-0.01, 0.01) for _ in range(terms - 1)]
    true = model.Fit(tuple((1.0 + i / 4, *(w + draw.uniform(-2e-3, 2e-3) for w in common)) for i in range(4)))

    def us(name, _, shape):
        m, n, k, layout = shape
        return true.us(LAYOUTS.index(layout), features_of(name, {"m": m, "n": n, "k": k, "layout": layout}))

    found = measured(us, 900)
    tile = found.names.index(FAST)
    fits, held_out = fit.fit_tiles(found, [tile], np.arange(900) % fit.FOLDS, np.isfinite(found.us))
    made, held_out = fits[FAST], held_out[:, tile]
    again = model.Fit(tuple(map(tuple, made)))
    ratios = [again.us(LAYOUTS.index(r["layout"]), features_of(FAST, r)) / r["us"][FAST] for r in found.rows]
    assert max(abs(math.log2(x)) for x in ratios) < 0.05 and np.median(np.abs(np.log2(ratios))) < 0.01
    assert np.median(np.abs(held_out - np.log2(found.us[:, tile]))) < 0.02  # of shapes the fit was not shown


def test_what_is_written_reads_back_and_names_the_winner():
    def us(name, i, shape):
        m, n, k, _ = shape
        own = {FAST: 1.0, SLOW: 1.2 if i else 0.8}.get(name, 2.0)  # SLOW wins the first shape, which people run
        return own * (3 + m * n * k / 4e8)

    found = measured(us, 200)
    made = fit.tune(found.rows, TABLE, {"device": "none"}, 0.002, 5)
    assert made["known"] == [[*KNOWN[:3], 1, KNOWN[3], SLOW]]
    for layout in LAYOUTS:  # each has its own set; the first shape's is the one that needs the second tile
        only = [["coop", 128, 256, 64], ["pingpong", 64, 128, 64]][: 2 if layout == KNOWN[3] else 1]
        assert sorted(made["tiles"][layout]) == only
    assert {FAST, SLOW} <= set(made["fits"]) <= {FAST, SLOW, *ALWAYS}
    assert all(BY_NAME[name].guard for name in made["fits"])  # the row for any memory keeps its rough model
    assert (made["origin"]["device"], made["origin"]["shapes"]) == ("none", 200)
    assert made["origin"]["regret_median"] == 0.0 <= made["origin"]["regret_p95"]
    text = fit.lines_of(made)
    assert json.loads(text) == json.loads(json.dumps(made))
    assert len(text.splitlines()) == 5 + len(made["fits"])  # a line for each fit


def test_tiles_in_clusters_count_only_where_the_library_weighs_them():
    name = "128x128x64_coop_c2"
    rows = [
        {"m": m, "n": 1024, "k": k, "layout": "nt", "us": {FAST: 20.0, name: 10.0}, "known": False}
        for m, k in ((2048, 512), (2048, 520), (2048, 528), (2304, 528), (model.SHARED_ROWS, 512))
    ]  # fmt: skip
    found = fit.Measured(rows, TABLE)
    assert BY_NAME[name].config.cluster == 2
    # Of rows of 1040 bytes, where tiles are few, of rows of 1056 bytes twice as many, and of so few rows of A.
    assert found.us[:, found.names.index(name)].tolist() == [math.inf, 10.0, 10.0, math.inf, 10.0]


def test_a_shape_measured_before_a_form_of_clusters_came_chooses_no_tile():
    """But one that people run, and one where clusters are not weighed."""
    old, new = "128x128x64_coop_c2", "128x128x64_coop_c2x2"
    us = {FAST: 20.0, old: 10.0}
    rows = [
        {"m": 2048, "n": 1024, "k": k, "layout": "nt", "us": {**us, **more}, "known": known}
        for k, more, known in ((520, {}, False), (536, {new: 8.0}, False), (552, {}, True), (512, {}, False))
    ]  # fmt: skip
    found = fit.Measured(rows, TABLE)
    assert found.knows.tolist() == [False, True, True, True]
    few = [{**row, "m": 64, "k": 512} for row in rows[:2]]
    assert fit.Measured(few, TABLE).knows.tolist() == [False, True]
    plain = fit.Measured([{**rows[0], "us": {FAST: 20.0}}], [BY_NAME[FAST]])  # a grid without clusters
    assert plain.knows.tolist() == [True]


def test_a_tile_that_few_shapes_know_keeps_near_its_like():
    """A cluster's tile with five samples, of noise, beside another with two hundred."""
    like, few = "128x128x64_coop_c2", "128x160x64_flex_coop_c2"
    draw = random.Random(5)
    rows = []
    for i in range(240):
        m, n, k = (8 + 16 * draw.randint(4, 200) for _ in range(3))
        true = 3 + m * n * k / 3e8
        us = {like: true} | ({few: true * draw.uniform(0.8, 1.25)} if i < 5 else {})
        rows.append({"m": m, "n": n, "k": k, "layout": "nt", "us": us, "known": False})
    found = fit.Measured(rows, TABLE)
    tiles = [found.names.index(name) for name in (like, few)]
    fits, _ = fit.fit_tiles(found, tiles, np.arange(240) % fit.FOLDS, np.isfinite(found.us))
    made = {name: model.Fit(tuple(map(tuple, fits[name]))) for name in (like, few)}
    off = [math.log2(made[few].us(1, features_of(few, row)) / made[like].us(1, features_of(like, row))) for row in rows]
    assert max(map(abs, off)) < 1.0  # alone, five samples of 99 features say anything elsewhere


def test_a_tile_is_not_taken_for_fast_where_it_ships_and_nobody_measured_it():
    """One that came later, measured on large shapes alone, by times with noise; on small ones it is as its like."""
    old, new = "128x128x64_coop", "152x128x64_flex_coop_swap"
    draw = random.Random(11)
    rows = []
    for _ in range(400):
        m, n, k = (8 * round(2 ** draw.uniform(0, 9)) for _ in range(3))
        true = 3 + m * n * k / 3e8
        us = {old: true} | ({new: true * draw.uniform(0.9, 1.1)} if min(m, n, k) > 256 else {})
        rows.append({"m": m, "n": n, "k": k, "layout": "nt", "us": us, "known": False})
    found = fit.Measured(rows, TABLE)
    tiles = [found.names.index(name) for name in (old, new)]
    ships = np.isin(np.arange(found.us.shape[1]), tiles) & np.ones((400, 1), bool)
    assert 20 < np.isfinite(found.us[:, tiles[1]]).sum() < 100

    def most_off(ships) -> float:
        fits, _ = fit.fit_tiles(found, tiles, np.arange(400) % fit.FOLDS, ships)
        made = {name: model.Fit(tuple(map(tuple, fits[name]))) for name in (old, new)}
        small = [row for row in rows if row["m"] < 64 and row["n"] < 64]
        return max(abs(math.log2(made[new].us(1, features_of(new, row)) / row["us"][old])) for row in small)

    assert most_off(ships) < 0.5 < most_off(np.isfinite(found.us))


def test_of_large_products_a_tile_that_asks_l2_for_nearly_all_it_gives_counts_as_slower():
    """And no other: not on small ones, nor one that uses longer what it loads."""
    asking, sparing = "128x128x64_pingpong", "128x256x64_coop"
    large, small = ({"m": m, "n": m, "k": m, "layout": "tn"} for m in (8192, 1024))
    risks = {
        (name, row["m"]): weights.l2_risk(np.array([features_of(name, row)]))[0]
        for name in (asking, sparing)
        for row in (large, small)
    }
    assert 0.02 < risks.pop((asking, 8192)) < 0.06  # in log2
    assert set(risks.values()) == {0.0}

    draw = random.Random(19)
    sizes = [
        tuple(8 * round(2 ** draw.uniform(low, low + 1)) for _ in range(3)) for low in (6, 9.5) for _ in range(150)
    ]
    rows = []
    for m, n, k in sizes:
        us = dict.fromkeys((asking, sparing), 5 + m * n * k / 3e8)  # as fast as each other
        rows.append({"m": m, "n": n, "k": k, "layout": "tn", "us": us, "known": False})
    found = fit.Measured(rows, TABLE)
    tiles = [found.names.index(name) for name in (asking, sparing)]
    _, expected = fit.fit_tiles(found, tiles, np.arange(300) % fit.FOLDS, np.isfinite(found.us))
    behind = expected[:, tiles[0]] - expected[:, tiles[1]]
    assert behind[150:].min() > 0.01 and abs(np.median(behind[:150])) < 0.005


def test_weights_move_where_choosing_by_them_loses_less_and_stay_where_it_does_not():
    """Two tiles of which one is ahead in the middle, as a curve says, but least squares draw it too high."""
    x = np.linspace(-1, 1, 60)
    x = np.stack([np.ones(60), x, x**2], axis=1)
    us = {0: np.zeros(60), 1: np.where(np.abs(x[:, 1]) < 0.5, -0.02, 0.5)}  # log2; the second is ahead in the middle
    curvature = x.T @ x + 0.1 * np.eye(3)
    weights = {tile: np.linalg.solve(curvature, x.T @ times) for tile, times in us.items()}
    best = np.minimum(us[0], us[1])
    contests = {tile: sharpen.Contest(np.arange(60), x, times - best) for tile, times in us.items()}
    curvatures = dict.fromkeys(us, curvature)

    def lost(weights) -> float:
        expected = np.stack([x @ weights[tile] for tile in (0, 1)])
        return float(np.stack([c.lost for c in contests.values()])[expected.argmin(axis=0), np.arange(60)].mean())

    moved = sharpen.sharpened(weights, curvatures, contests, np.ones(60))
    assert lost(moved) < 0.7 * lost(weights)
    apart = {tile: sharpen.Contest(np.arange(60), x, np.zeros(60)) for tile in us}  # equally fast: nothing to gain
    same = sharpen.sharpened(weights, curvatures, apart, np.ones(60))
    assert all(np.abs(same[tile] - weights[tile]).max() < 1e-6 for tile in us)


def test_what_is_expected_of_a_shape_held_out_is_not_from_its_own_times(monkeypatch):
    """In one pass: later ones take off what all fits miss of a shape, those of its own fold among them."""
    monkeypatch.setattr(weights, "PASSES", 1)
    folds = np.arange(120) % fit.FOLDS

    def expected(changed: int) -> np.ndarray:
        times = random.Random(17)
        found = measured(
            lambda name, i, _: (1 + i % 7) * times.uniform(8, 9) * (2 if (i, name) == (changed, FAST) else 1), 120
        )
        tiles = [found.names.index(name) for name in (FAST, SLOW)]
        return fit.fit_tiles(found, tiles, folds, np.isfinite(found.us))[1][:, tiles]

    before = expected(-1)
    close = np.abs(before[:, 0] - before[:, 1]).argsort()[:5]  # where a little more or less decides
    for i in close:
        off = np.abs(before - expected(i))
        assert off[folds == folds[i]].max() < 1e-6 < 1e-3 < np.median(off[folds != folds[i]])


def test_chances_of_the_tiles_of_a_shape_add_up_to_one():
    shapes, scores = np.array([0, 1, 1, 0, 2]), np.array([-900.0, 3.0, 1.0, -901.0, 1e5])
    found = sharpen.softmax_within(shapes, scores, 3)
    assert np.bincount(shapes, found, 3) == pytest.approx([1, 1, 1])
    assert found == pytest.approx([0.7311, 0.8808, 0.1192, 0.2689, 1.0], abs=1e-4)


def test_the_features_that_weights_reads_by_number_are_the_estimate_and_the_split():
    for name in ("128x128x64_cluster", FAST):
        c, family = BY_NAME[name].config, BY_NAME[name].family
        asked = (
            c.block_m,
            c.block_n,
            c.block_k,
            family,
            model.packed_work(128, 512, 8192, "nt", 132),
            c.below,
            c.across,
        )
        us, *_, split, _, _ = model.estimate(*asked)
        found = model.features(*asked)
        assert (found[weights.US], found[weights.SPLIT]) == (math.log2(us), math.log2(split))
        assert (split > 1) == (family.split == "cluster")


def test_tiles_are_alike_that_share_in_the_same_way():
    kinds = {name: weights.kind_of(BY_NAME[name]) for name in BY_NAME}
    assert set(kinds.values()) == {"own", "cooperative", "sharing", "cluster", "workspace", "stream"}
    assert (kinds[FAST], kinds[SLOW], kinds["128x128x64_cluster"]) == ("cooperative", "own", "cluster")


def test_shapes_that_no_chosen_tile_ran_count_as_far_behind():
    found = measured(lambda name, i, _: None if name in (FAST, *ALWAYS) and i % 2 else 9.0 if name == FAST else 10.0)
    made = fit.tune(found.rows, TABLE, {}, 1.0, 1)
    assert made["tiles"] == {layout: [] for layout in LAYOUTS}  # so much may be lost that none is chosen
    assert 0 <= made["origin"]["regret_median"] <= made["origin"]["regret_p95"] <= model.FAR - 1
