"""python -m build.fit bench/tuning/sm90.jsonl: from measurements to kernels/tuned/sm90.json, without a GPU.

Chooses the smallest set of tiles whose best is within `--loss` of the best candidate's time on average, `--most` tiles
or fewer; then fits each tile's time as kernels/model.py describes, and says the regret of choosing by those fits among
the chosen tiles, on shapes that the fit was not shown. Shapes that people are known to run get the tile that won.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from kernels import model
from kernels.candidates import FAR, candidates
from kernels.spec import LAYOUTS, TARGETS, Variant

RIDGE = 0.05
FOLDS = 10
OWN = 0.5  # of a layout's own columns beside the common ones
ALWAYS = ("gemm", "masked")  # families that ship anyway, for operands no other takes

MEASURED = Path(__file__).parent.parent / "bench" / "tuning"
KNOWN_WEIGHT = 12.0  # of a shape that people are known to run, beside one that was drawn


class Measured:
    """Times [shape][tile], infinite where a tile was not run, and features on demand."""

    def __init__(self, rows: list[dict], variants: list[Variant]):
        self.rows = rows
        self.tiles = {v.fit_name: v for v in variants}
        self.names = list(self.tiles)
        self.us = np.full((len(rows), len(self.names)), np.inf)
        for i, row in enumerate(rows):
            for name, us in row["us"].items():
                self.us[i, self.names.index(name)] = us
        self.weights = np.array([KNOWN_WEIGHT if row["known"] else 1.0 for row in rows])
        target = variants[0].target
        count = TARGETS[target].multiprocessors
        self.work = [model.packed_work(r["m"], r["n"], r["k"], r["layout"], count) for r in rows]
        self.layouts = [LAYOUTS.index(row["layout"]) for row in rows]

    def design(self, tile: int, shapes) -> np.ndarray:
        """One line for each shape: its features, in common to all layouts, and again in its layout's own columns, where
        a weight costs four times as much: layouts differ only as far as the measurements say so."""
        c, family = self.tiles[self.names[tile]].config, self.tiles[self.names[tile]].family
        found = np.array([model.features(c.block_m, c.block_n, c.block_k, family, self.work[i]) for i in shapes])
        own = np.array([np.equal(self.layouts[i], range(len(LAYOUTS))) for i in shapes])
        return np.hstack([found, *(OWN * found * own[:, [layout]] for layout in range(len(LAYOUTS)))])


def choose_tiles(measured: Measured, loss: float, most: int) -> list[int]:
    """Greedily: each time the tile that brings the set's best nearest to the best of all."""
    best = measured.us.min(axis=1)
    us = np.minimum(measured.us, FAR * best[:, None])  # what was not run is at least that slow
    chosen = [i for i, name in enumerate(measured.names) if measured.tiles[name].family in ALWAYS]
    reached = us[:, chosen].min(axis=1)
    added: list[int] = []
    while len(added) < most and np.average(np.log(reached / best), weights=measured.weights) > loss:
        left = [i for i in range(len(measured.names)) if i not in chosen]
        after = {i: np.log(np.minimum(reached, us[:, i]) / best) for i in left}
        gains = {i: np.average(lost, weights=measured.weights) for i, lost in after.items()}
        tile = min(gains, key=gains.get)
        added.append(tile)
        chosen.append(tile)
        reached = np.minimum(reached, us[:, tile])
        print(f"{len(added):3} {measured.names[tile]:26} {gains[tile]:.4f} lost on average, "
              f"{np.quantile(reached / best, 0.95) - 1:.3f} at the 95th percentile")  # fmt: skip
    return added


def solve(x: np.ndarray, us: np.ndarray, best: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights of log2 us; shapes where the tile is near the best count most."""
    weight = np.clip(best / us, 0.3, 1) ** 2 * np.sqrt(weights)
    a, y = x * weight[:, None], np.log2(us) * weight
    return np.linalg.solve(a.T @ a + RIDGE * np.eye(x.shape[1]), a.T @ y)


def to_fit(weights: np.ndarray, scale: float) -> dict:
    common, *own = weights.reshape(1 + len(LAYOUTS), -1)
    return {"scale": round(scale, 4), "weights": [[float(f"{w:.6g}") for w in common + OWN * more] for more in own]}


def fit_tile(measured: Measured, tile: int, folds: np.ndarray) -> tuple[dict, np.ndarray]:
    """The tile's fit, and for each shape the log2 microseconds by a fit that has not seen it."""
    shapes = np.flatnonzero(np.isfinite(measured.us[:, tile]))
    x, us, best = measured.design(tile, shapes), measured.us[shapes, tile], measured.us[shapes].min(axis=1)
    own = measured.weights[shapes]
    held_out = np.full(len(measured.rows), np.inf)
    for fold in range(FOLDS):
        seen = folds[shapes] != fold
        held_out[shapes[~seen]] = x[~seen] @ solve(x[seen], us[seen], best[seen], own[seen])
    v = measured.tiles[measured.names[tile]]
    c = v.config
    plain = np.array([model.estimate(c.block_m, c.block_n, c.block_k, v.family, measured.work[i])[0] for i in shapes])
    near = us < 1.5 * best
    scale = float(np.median((us / plain)[near])) if near.any() else float(np.median(us / plain))
    return to_fit(solve(x, us, best, own), scale), held_out


def tune(rows: list[dict], variants: list[Variant], origin: dict, loss: float, most: int) -> dict:
    measured = Measured(rows, variants)
    added = choose_tiles(measured, loss, most)
    shipped = [*added, *(i for i, name in enumerate(measured.names) if measured.tiles[name].family in ALWAYS)]
    folds = np.random.default_rng(0).integers(0, FOLDS, len(rows))
    fits, held_out = {}, np.full(measured.us.shape, np.inf)
    for tile in shipped:
        if not measured.tiles[measured.names[tile]].guard:
            continue  # the row for any memory is slower there than here: its model stays a rough one
        fits[measured.names[tile]], held_out[:, tile] = fit_tile(measured, tile, folds)
    us = np.minimum(measured.us[:, shipped], FAR * measured.us.min(axis=1, keepdims=True))
    picked = us[np.arange(len(rows)), held_out[:, shipped].argmin(axis=1)]
    regret = np.sort(picked / us.min(axis=1) - 1)
    origin = {**origin, "shapes": len(rows), "regret_median": round(float(np.median(regret)), 4),
              "regret_p95": round(float(np.quantile(regret, 0.95)), 4)}  # fmt: skip
    print(f"regret on held-out shapes: median {origin['regret_median']}, 95th percentile {origin['regret_p95']}, "
          f"mean {regret.mean():.4f}, most {regret[-1]:.2f}")  # fmt: skip
    tiles = [measured.tiles[measured.names[i]] for i in added]
    fitted = [tile for tile in shipped if measured.names[tile] in fits]
    winners = [measured.names[fitted[i]] for i in measured.us[:, fitted].argmin(axis=1)]
    known = [[r["m"], r["n"], r["k"], r["layout"], winner]
             for r, winner in zip(rows, winners, strict=True) if r["known"]]  # fmt: skip
    return {
        "origin": origin,
        "tiles": [[v.family, v.config.block_m, v.config.block_n, v.config.block_k] for v in tiles],
        "known": sorted(known),
        "fits": fits,
    }


def lines_of(found: dict) -> str:
    """JSON with a line for each tile's fit, so that a change shows where it is."""
    fits = ",\n".join(f"{json.dumps(name)}: {json.dumps(fit)}" for name, fit in found["fits"].items())
    rest = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in ("origin", "tiles", "known")]
    return ",\n".join(["{" + rest[0], *rest[1:], f'"fits": {{\n{fits}\n}}}}'])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m build.fit", description=__doc__)
    parser.add_argument("measurements", type=Path, nargs="?", default=MEASURED / "sm90.jsonl")
    parser.add_argument("--loss", type=float, default=0.0016)
    parser.add_argument("--most", type=int, default=24, metavar="TILES")
    options = parser.parse_args()
    head, *rows = map(json.loads, options.measurements.read_text().splitlines())
    target = int(options.measurements.stem.removeprefix("sm"))
    found = tune(rows, candidates(target, head["dtype"]), head, options.loss, options.most)
    path = model.TUNED / f"sm{target}.json"
    path.write_text(lines_of(found) + "\n")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
