"""Moves the weights of fits so that choosing by them loses less; no file is read or written here.

Least squares make each tile's expected time near its measured one wherever it was measured. But only which tile comes
first counts. So the weights go on from there, down the gradient of what choosing loses: each tile taken with a
probability that falls with its expected time (a softmax, as in policy gradients), times how much slower than the best
one it was. What keeps them from learning the measurements by heart is a cost on how far expected times move, by the
curvature of the least squares: 4 was the best of 0.2 to 12 on shapes held out.
"""

from dataclasses import dataclass

import numpy as np

TEMPERATURE = 0.03  # in log2 of microseconds: tiles within 2 % of each other are as good as equal
HOLD = 4.0
ROUNDS, STEP = 100, 0.003  # of Adam (Kingma and Ba, 2015), with its usual averages
LOST = 1.0  # in log2: more than twice the time counts as twice


@dataclass
class Contest:
    """What a tile says of the shapes for which it is weighed against others."""

    shapes: np.ndarray  # their numbers
    x: np.ndarray  # a line of features for each
    lost: np.ndarray  # log2 of its time over the best tile's

    def where(self, kept: np.ndarray) -> "Contest":
        return Contest(self.shapes[kept], self.x[kept], self.lost[kept])


def softmax_within(shapes: np.ndarray, scores: np.ndarray, count: int) -> np.ndarray:
    """Each score's share among those of the same shape, of `count` shapes."""
    highest = np.full(count, -np.inf)
    np.maximum.at(highest, shapes, scores)
    powers = np.exp(scores - highest[shapes])
    return powers / np.bincount(shapes, powers, count)[shapes]


def sharpened(
    weights: dict[int, np.ndarray], curvatures: dict[int, np.ndarray], contests: dict[int, Contest], counts: np.ndarray
) -> dict[int, np.ndarray]:
    """The weights of each tile, moved. `curvatures`: of the squares that `weights` are the least of. `counts`: of each
    shape, what it counts."""
    tiles = [tile for tile in weights if len(contests[tile].shapes)]
    if not tiles:
        return weights
    shapes = np.concatenate([contests[tile].shapes for tile in tiles])
    lost = np.minimum(np.concatenate([contests[tile].lost for tile in tiles]), LOST)
    expected = np.concatenate([contests[tile].x @ weights[tile] for tile in tiles])
    ends = np.cumsum([len(contests[tile].shapes) for tile in tiles])[:-1]
    # In columns by which the curvature is one: a step in any direction moves expected times as far.
    inverse = {tile: np.linalg.inv(np.linalg.cholesky(curvatures[tile])) for tile in tiles}
    columns = {tile: (contests[tile].x @ inverse[tile].T).astype(np.float32) for tile in tiles}
    moves = {tile: np.zeros(len(weights[tile]), np.float32) for tile in tiles}
    means, squares = ({tile: np.zeros_like(move) for tile, move in moves.items()} for _ in range(2))
    for done in range(1, ROUNDS + 1):
        moved = expected + np.concatenate([columns[tile] @ moves[tile] for tile in tiles])
        chances = softmax_within(shapes, -moved / TEMPERATURE, len(counts))
        loss = np.bincount(shapes, chances * lost, len(counts))
        pull = -chances * (lost - loss[shapes]) / TEMPERATURE * counts[shapes]
        for tile, own in zip(tiles, np.split(pull.astype(np.float32), ends), strict=True):
            slope = own @ columns[tile] + HOLD * moves[tile]
            means[tile] = 0.9 * means[tile] + 0.1 * slope
            squares[tile] = 0.999 * squares[tile] + 0.001 * slope**2
            rate = STEP * np.sqrt(1 - 0.999**done) / (1 - 0.9**done)
            moves[tile] -= rate * means[tile] / (np.sqrt(squares[tile]) + 1e-8)
    return {tile: found + (moves[tile] @ inverse[tile] if tile in moves else 0) for tile, found in weights.items()}
