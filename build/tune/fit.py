"""python -m build.tune.fit [build/tune/measured/sm90.jsonl]: from measurements to kernels/table/tuned/, without a GPU.

Without a file, from all that are there; the name says what they are of: sm90, or sm90_grouped_mm for packed groups.

Chooses the smallest set of tiles whose best is within `--loss` of the best candidate's time on average, `--most` tiles
or fewer; then fits each tile's time as kernels/table/model.py describes, and says the regret of choosing by those
fits among the chosen tiles, on shapes that the fit was not shown. Shapes that people are known to run get the tile
that won.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from build.tune.candidates import FAR, candidates, grouped_candidates
from kernels.table import model
from kernels.table.spec import CUTS, LAYOUTS, Variant
from kernels.table.targets import TARGETS

RIDGE = 0.05
FOLDS = 10
PASSES = 3
OWN = 0.5  # of a layout's own columns beside the common ones
ALWAYS = ("gemm", "masked")  # families that ship anyway, for operands no other takes

MEASURED = Path(__file__).parent / "measured"
USUAL = {"gemm": (0.0016, 24), "grouped_mm": (0.0085, 12)}  # operation -> loss on average, most tiles
KNOWN_WEIGHT = 12.0  # of a shape that people are known to run, beside one that was drawn


def work_of(row: dict, multiprocessors: int) -> model.Work:
    sizes = [row[name] for name in ("m", "n", "k", "groups", "ragged", "layout") if name in row]
    return (model.groups_work if "groups" in row else model.packed_work)(*sizes, multiprocessors)


class Measured:
    """Times [shape][tile], infinite where a tile was not run, and features on demand."""

    def __init__(self, rows: list[dict], variants: list[Variant]):
        """Of one product, or where a line has groups, of packed ones."""
        self.rows = rows
        self.tiles = {v.fit_name: v for v in variants}
        self.names = list(self.tiles)
        self.us = np.full((len(rows), len(self.names)), np.inf)
        for i, row in enumerate(rows):
            for name in self.tiles.keys() & row["us"].keys():  # others are candidates no more
                self.us[i, self.names.index(name)] = row["us"][name]
        self.weights = np.array([KNOWN_WEIGHT if row["known"] else 1.0 for row in rows])
        target = variants[0].target
        count = TARGETS[target].multiprocessors
        self.work = [work_of(row, count) for row in rows]
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
    chosen = [i for i, name in enumerate(measured.names) if measured.tiles[name].family.full_name in ALWAYS]
    reached = np.minimum(us[:, chosen].min(axis=1, initial=np.inf), FAR * best)
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


def scale_of(measured: Measured, tile: int, shapes: np.ndarray) -> float:
    """Of a tile's estimate to what was measured, where it is near the best."""
    v = measured.tiles[measured.names[tile]]
    c, us, best = v.config, measured.us[shapes, tile], measured.us[shapes].min(axis=1)
    plain = np.array([model.estimate(c.block_m, c.block_n, c.block_k, v.family, measured.work[i])[0] for i in shapes])
    near = us < 1.5 * best
    return float(np.median((us / plain)[near if near.any() else slice(None)]))


def fit_tiles(measured: Measured, tiles: list[int], folds: np.ndarray) -> tuple[dict, np.ndarray]:
    """Each tile's fit, and for each shape and tile the log2 microseconds by a fit that has not seen the shape.

    What moves all tiles of a shape alike (empty groups, the card's clock) tells nothing about which is best: after a
    first pass, the mean over the tiles of what their fits miss is taken off the shape's times, and all is fitted anew.
    """
    shapes = {tile: np.flatnonzero(np.isfinite(measured.us[:, tile])) for tile in tiles}
    designs = {tile: measured.design(tile, own) for tile, own in shapes.items()}
    best, shared = measured.us.min(axis=1), np.zeros(len(measured.rows))
    held_out = np.full(measured.us.shape, np.inf)
    for _ in range(PASSES):
        missed, counts = np.zeros(len(best)), np.zeros(len(best))
        fits = {}
        for tile, own in shapes.items():
            x, us, weights = designs[tile], measured.us[own, tile] / 2 ** shared[own], measured.weights[own]
            least = best[own] / 2 ** shared[own]
            for fold in range(FOLDS):
                seen = folds[own] != fold
                held_out[own[~seen], tile] = x[~seen] @ solve(x[seen], us[seen], least[seen], weights[seen])
            fits[measured.names[tile]] = to_fit(solve(x, us, least, weights), scale_of(measured, tile, own))
            nearness = np.clip(least / us, 0.3, 1) ** 2
            missed[own] += nearness * (np.log2(measured.us[own, tile]) - held_out[own, tile])
            counts[own] += nearness
        shared = missed / np.maximum(counts, 1e-9)
    return fits, held_out


def tile_of(v: Variant) -> list:
    """What kernels/table/sm90.py, or of packed groups kernels/table/sm90_grouped.py, makes rows of."""
    if v.problem.op == "gemm":
        return [v.family.full_name, v.config.block_m, v.config.block_n, v.config.block_k]
    (cut,) = (guard for guard in v.guard if guard in CUTS)
    return [v.family.name, cut, v.config.block_m, v.config.block_n]


def winners(measured: Measured, fitted: list[int]) -> list[list]:
    """What people are known to run, as the host sees it, and the tile that won: on average where groups differ in what
    only the device knows."""
    found = {}
    for i, (row, work) in enumerate(zip(measured.rows, measured.work, strict=True)):
        if row["known"]:
            shape = (work.m, work.n, work.k, work.count, row["layout"])
            found.setdefault(shape, []).append(np.log(measured.us[i, fitted]))
    best = {shape: fitted[int(np.mean(us, axis=0).argmin())] for shape, us in found.items()}
    return [[*shape, measured.names[tile]] for shape, tile in sorted(best.items())]


def tune(rows: list[dict], variants: list[Variant], origin: dict, loss: float, most: int) -> dict:
    measured = Measured(rows, variants)
    added = choose_tiles(measured, loss, most)
    shipped = [*added, *(i for i, name in enumerate(measured.names) if measured.tiles[name].family.full_name in ALWAYS)]
    folds = np.random.default_rng(0).integers(0, FOLDS, len(rows))
    # The row for any memory is slower there than here: its model stays a rough one.
    fits, held_out = fit_tiles(measured, [i for i in shipped if measured.tiles[measured.names[i]].guard], folds)
    us = np.minimum(measured.us[:, shipped], FAR * measured.us.min(axis=1, keepdims=True))
    picked = us[np.arange(len(rows)), held_out[:, shipped].argmin(axis=1)]
    regret = np.sort(picked / us.min(axis=1) - 1)
    origin = {**origin, "shapes": len(rows), "regret_median": round(float(np.median(regret)), 4),
              "regret_p95": round(float(np.quantile(regret, 0.95)), 4)}  # fmt: skip
    print(f"regret on held-out shapes: median {origin['regret_median']}, 95th percentile {origin['regret_p95']}, "
          f"mean {regret.mean():.4f}, most {regret[-1]:.2f}")  # fmt: skip
    tiles = [measured.tiles[measured.names[i]] for i in added]
    fitted = [tile for tile in shipped if measured.names[tile] in fits]
    return {
        "origin": origin,
        "tiles": [tile_of(variant) for variant in tiles],
        "known": winners(measured, fitted),
        "fits": fits,
    }


def lines_of(found: dict) -> str:
    """JSON with a line for each tile's fit, so that a change shows where it is."""
    fits = ",\n".join(f"{json.dumps(name)}: {json.dumps(fit)}" for name, fit in found["fits"].items())
    rest = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in ("origin", "tiles", "known")]
    return ",\n".join(["{" + rest[0], *rest[1:], f'"fits": {{\n{fits}\n}}}}'])


def fit_file(path: Path, loss: float | None, most: int | None) -> None:
    head, *rows = map(json.loads, path.read_text().splitlines())
    rows = [row for row in rows if row["us"]]  # some shapes no candidate takes
    target = int(path.stem.split("_")[0].removeprefix("sm"))
    op = "grouped_mm" if "groups" in rows[0] else "gemm"
    table = {"gemm": candidates, "grouped_mm": grouped_candidates}[op](target, head["dtype"])
    usual_loss, usual_most = USUAL[op]
    found = tune(rows, table, head, usual_loss if loss is None else loss, usual_most if most is None else most)
    to = model.TUNED / f"{model.tuned_name(target, op)}.json"
    to.write_text(lines_of(found) + "\n")
    print(f"wrote {to}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m build.tune.fit", description=__doc__)
    parser.add_argument("measurements", type=Path, nargs="*", default=sorted(MEASURED.glob("*.jsonl")))
    parser.add_argument("--loss", type=float)
    parser.add_argument("--most", type=int, metavar="TILES")
    options = parser.parse_args()
    for path in options.measurements:
        fit_file(path, options.loss, options.most)
    return 0


if __name__ == "__main__":
    sys.exit(main())
