"""The weights of each tile's fit, as kernels/table/model.py takes them, from measured times. Chooses no tile.

Least squares on the logarithms, with what moves all tiles of a shape alike taken off, and near the weights of all tiles
of a kind where a tile was not measured; then moved by sharpen.py.
"""

import numpy as np

from build.tune.record import OWN, Measured
from build.tune.sharpen import Contest, sharpened
from kernels.table.model import FAR
from kernels.table.spec import LAYOUTS, Variant

RIDGE = 0.1
ALIKE = 300  # shapes, at most, by which a tile's kind holds it where it is weighed unmeasured
FOLDS = 5
# Of model.features: the estimate, what multiplying takes, memory, and L2, and in how many ways K is shared.
US, MULTIPLY, MEMORY, L2, SPLIT = 1, 3, 4, 5, 12
PASSES = 3

# By the rates alone: products that multiply for longer, tiles for which L2 takes more than this part of that, or of
# what memory takes, and what such a tile counts as slower for each part beyond.
LONG_US, L2_SHARE, L2_RISK = 150, 0.92, 0.15


class Squares:
    """Least squares of one tile: its lines, weighed, and their normal equations, fold by fold, so that those without a
    fold are a subtraction away."""

    def __init__(self, x: np.ndarray, nearness: np.ndarray, counts: np.ndarray, folds: np.ndarray):
        """`nearness`: of the best tile's time to this one's. Shapes where that is near 1 count most."""
        self.x, self.weight, self.folds = x, nearness * np.sqrt(counts), folds
        self.of_fold = np.stack([self.own(fold).T @ self.own(fold) for fold in range(FOLDS)])

    def own(self, fold: int) -> np.ndarray:
        there = self.folds == fold
        return self.x[there] * self.weight[there, None]

    def curvature(self, fold: int) -> np.ndarray:
        """Without a fold; -1: of all."""
        return self.of_fold.sum(axis=0) - (self.of_fold[fold] if fold >= 0 else 0)

    def slope(self, y: np.ndarray) -> np.ndarray:
        """[fold]: of its lines on `y`."""
        y = y * self.weight
        return np.stack([self.own(fold).T @ y[self.folds == fold] for fold in range(FOLDS)])


def solve(curvature: np.ndarray, slope: np.ndarray, hold: np.ndarray, prior: np.ndarray | float = 0.0) -> np.ndarray:
    """Weights of log2 us; near `prior` where little is known, as `hold` weighs what is far from it."""
    prior = np.broadcast_to(prior, slope.shape)
    return prior + np.linalg.solve(curvature + hold, slope - curvature @ prior)


def kind_of(v: Variant) -> str:
    """Tiles that are alike: how their blocks share loads, or K, or how their warpgroups share a tile."""
    return "sharing" if v.form[0] > 1 else v.family.split or ("cooperative" if v.family.cooperative else "own")


def l2_risk(x: np.ndarray) -> np.ndarray:
    """What is added to log2 us of tiles that ask L2 for nearly all it gives, on large products; `x`: their features.

    Where a card reaches 700 TFLOP/s, as most did that were measured, they are as fast as others. One that reaches 800
    multiplies faster than L2 delivers: then blocks no longer ask for the same rows at the same time, and with what they
    share less L2 delivers still less; these tiles ran at 400 to 600 there (bench/NOTES.md). So one that is a little
    slower where nobody waits for L2 is the better choice.
    """
    multiply, l2, memory = (2.0 ** x[:, i] - 2 for i in (MULTIPLY, L2, MEMORY))
    slowest = np.maximum(multiply, memory)  # what waits for memory anyway waits for L2 no longer
    beyond = np.where(multiply > LONG_US, np.maximum(0, l2 / np.maximum(slowest, 1) - L2_SHARE), 0)
    return np.log2(1 + L2_RISK * beyond)


def to_fit(weights: np.ndarray) -> list[list[float]]:
    common, *own = weights.reshape(1 + len(LAYOUTS), -1)
    return [[float(f"{w:.6g}") for w in common + OWN * more] for more in own]


def least_estimates(designs: dict, shapes: dict, ships: np.ndarray) -> np.ndarray:
    """log2 us by the rates alone, of the tile that is least among those measured on a shape."""
    least = np.full(len(ships), np.inf)
    for tile, own in shapes.items():
        least[own] = np.where(ships[own, tile], np.minimum(least[own], designs[tile][:, US]), least[own])
    return least


def unmeasured(measured: Measured, tile: int, ships: np.ndarray, least: np.ndarray, draw: np.random.Generator):
    """Some shapes where a tile is weighed and nobody measured it, ALIKE at most: its features there."""
    v = measured.tiles[measured.names[tile]]
    if "groups" in measured.rows[0]:
        return np.zeros((0, 0))  # grouped.py measures whatever tile a problem's guards take
    may = ships[:, tile] & np.isfinite(least) & ~np.isfinite(measured.us[:, tile])
    may &= measured.shared | (v.form[0] == 1)
    some = draw.permutation(np.flatnonzero(may))[: 3 * ALIKE]
    if not len(some):
        return np.zeros((0, 0))
    x = measured.design(tile, some)
    weighed = x[:, US] <= least[some] + np.log2(FAR)
    if v.family.split:
        weighed &= x[:, SPLIT] > 0  # else its guard refuses
    return x[weighed][:ALIKE].astype(float)


def contests_of(
    designs: dict, shapes: dict, ships: np.ndarray, times: dict, best: np.ndarray, least: np.ndarray
) -> dict[int, Contest]:
    """Where each tile is weighed against others: where it ships, and is not far by the rates alone. `times`: of a tile,
    log2 of its time on each of its shapes; `best`: of each shape, log2 of the time of the fastest that ships."""
    found = {}
    for tile, own in shapes.items():
        weighed = ships[own, tile] & (designs[tile][:, US] <= least[own] + np.log2(FAR))
        found[tile] = Contest(own[weighed], designs[tile][weighed], (times[tile] - best[own])[weighed])
    return found


def fit_tiles(measured: Measured, tiles: list[int], folds: np.ndarray, ships: np.ndarray) -> tuple[dict, np.ndarray]:
    """Each tile's fit, and for each shape and tile the log2 microseconds by a fit that has not seen the shape. `ships`:
    [shape][tile], whether that tile is weighed for the shape.

    What moves all tiles of a shape alike (empty groups, the card's clock) tells nothing about which is best: after a
    first pass, the mean over the tiles of what their fits miss is taken off the shape's times, and all is fitted anew.
    Each tile's weights stay near those of all of its kind together, above all on shapes where it would be weighed and
    was not measured. What is alone in its kind has nothing to stay near.
    """
    kinds = {tile: kind_of(measured.tiles[measured.names[tile]]) for tile in tiles}
    shapes = {tile: np.flatnonzero(np.isfinite(measured.us[:, tile])) for tile in tiles}
    designs = {tile: measured.design(tile, own) for tile, own in shapes.items()}
    times = {tile: np.log2(measured.us[own, tile]) + l2_risk(designs[tile]) for tile, own in shapes.items()}
    best, shift = measured.us.min(axis=1), np.zeros(len(measured.rows))  # of a shape, in log2
    nearness = {tile: np.clip(best[own] / measured.us[own, tile], 0.3, 1) ** 2 for tile, own in shapes.items()}
    squares = {tile: Squares(designs[tile], nearness[tile], measured.weights[own], folds[own]) for tile, own in
               shapes.items()}  # fmt: skip
    alike = {kind: [tile for tile in tiles if kinds[tile] == kind] for kind in kinds.values()}
    least, draw = least_estimates(designs, shapes, ships), np.random.default_rng(0)
    beyond = {tile: unmeasured(measured, tile, ships, least, draw) for tile in tiles}
    ridge = RIDGE * np.eye(designs[tiles[0]].shape[1])
    hold = {tile: ridge + x.T @ x if len(x) else ridge for tile, x in beyond.items()}
    weights: dict[tuple[int, int], np.ndarray] = {}  # (the fold left out or -1, tile) ->
    for _ in range(PASSES):
        missed, near = np.zeros(len(best)), np.zeros(len(best))
        slopes = {tile: squares[tile].slope(times[tile] - shift[own]) for tile, own in shapes.items()}
        for fold in range(-1, FOLDS):
            curvatures = {tile: squares[tile].curvature(fold) for tile in tiles}
            sums = {tile: slope.sum(axis=0) - (slope[fold] if fold >= 0 else 0) for tile, slope in slopes.items()}
            for own in alike.values():
                together = solve(sum(curvatures[tile] for tile in own), sum(sums[tile] for tile in own), ridge)
                for tile in own:
                    weights[fold, tile] = solve(curvatures[tile], sums[tile], hold[tile], together)
        for tile, own in shapes.items():
            unseen = np.stack([weights[fold, tile] for fold in range(FOLDS)])[folds[own]]
            expected = np.einsum("ij,ij->i", designs[tile], unseen)
            missed[own] += nearness[tile] * (times[tile] - expected)
            near[own] += nearness[tile]
        shift = missed / np.maximum(near, 1e-9)

    fastest = np.log2(np.where(ships, measured.us, np.inf).min(axis=1))
    contests = contests_of(designs, shapes, ships, times, fastest, least)
    counts = np.sqrt(measured.weights)  # what people run has a table of its own, and counts less here
    held_out = np.full(measured.us.shape, np.inf)
    for fold in range(-1, FOLDS):
        curvatures = {tile: squares[tile].curvature(fold) + hold[tile] for tile in tiles}
        seen = {tile: contest.where(folds[contest.shapes] != fold) for tile, contest in contests.items()}
        moved = sharpened({tile: weights[fold, tile] for tile in tiles}, curvatures, seen, counts)
        for tile, own in shapes.items():
            weights[fold, tile] = moved[tile]
            out = folds[own] == fold
            held_out[own[out], tile] = designs[tile][out] @ moved[tile]
    return {measured.names[tile]: to_fit(weights[-1, tile]) for tile in tiles}, held_out
