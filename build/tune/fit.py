"""python -m build.tune.fit [build/tune/measured/sm90.jsonl.xz]: from measurements to kernels/table/tuned/, with no GPU.

With --keep no tile is chosen: those that ship get new weights alone, and nothing need be compiled anew.

Without a file, from all that are there; the name says what they are of: sm90, or sm90_grouped_mm for packed groups.

Chooses the smallest set of tiles whose best is within `--loss` of the best candidate's time on average, on shapes that
were measured with clusters of every form, `--most` tiles or fewer: of dense products a set for each layout, of packed
groups one for all. Then fits each tile's time as kernels/table/model.py describes, and says the regret of choosing by
those fits among the chosen tiles, on shapes that the fit was not shown. Shapes that people are known to run get the
tile that won.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.suites.records import files, name_of, read
from build.tune.candidates import candidates, grouped_candidates
from kernels.table import model
from kernels.table.dtypes import DTYPES
from kernels.table.families import REFERENCE
from kernels.table.model import FAR
from kernels.table.spec import CUTS, LAYOUTS, Variant
from kernels.table.targets import TARGETS

RIDGE = 0.1
FOLDS = 10
PASSES = 3
OWN = 0.25  # of a layout's own columns beside the common ones
ALWAYS = ("gemm", "masked")  # families that ship anyway, for operands no other takes

# kind -> loss on average, most tiles
USUAL = {
    "gemm": (0.0027, 52), "grouped_mm": (0.0085, 12), "gemm_e4m3": (0.004, 34), "gemm_e4m3_fast": (0.004, 34),
    "gemm_e4m3_blocks": (0.004, 28),
}  # fmt: skip
KNOWN_WEIGHT = 12.0  # of a shape that people are known to run, beside one that was drawn


def work_of(row: dict, multiprocessors: int, a_bytes: int) -> model.Work:
    sizes = [row[name] for name in ("m", "n", "k", "groups", "ragged", "layout") if name in row]
    if "groups" in row:
        return model.groups_work(*sizes, multiprocessors)
    return model.packed_work(*sizes, multiprocessors, a_bytes)


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
        a_bytes = DTYPES[variants[0].problem.a].bytes
        self.work = [work_of(row, count, a_bytes) for row in rows]
        self.layouts = [LAYOUTS.index(row["layout"]) for row in rows]
        shared = np.array([model.is_shared(work) for work in self.work])
        clusters, across = np.array([self.tiles[name].form for name in self.names]).T
        self.us[np.ix_(~shared, clusters > 1)] = np.inf  # select/rows.c does not weigh them there
        # Whether a shape was measured with clusters of every form, where they are weighed: of one that was measured
        # before a form came nobody knows how fast that would be. Where no cluster was ahead, none is taken to be; and
        # what people run counts anyway.
        forms = across > 1 if (across > 1).any() else clusters > 1
        known = np.array([row["known"] for row in rows])
        alone = clusters[self.us.argmin(axis=1)] == 1
        self.knows = ~shared | np.isfinite(self.us[:, forms]).any(axis=1) | alone | known
        self.knows &= ~np.array([row.get("shipped", False) for row in rows])  # with few tiles, of which all are chosen

    def design(self, tile: int, shapes) -> np.ndarray:
        """One line for each shape: its features, in common to all layouts, and again in its layout's own columns, where
        a weight costs four times as much: layouts differ only as far as the measurements say so."""
        c, family = self.tiles[self.names[tile]].config, self.tiles[self.names[tile]].family
        found = np.array(
            [model.features(c.block_m, c.block_n, c.block_k, family, self.work[i], c.below, c.across) for i in shapes]
        )
        own = np.array([np.equal(self.layouts[i], range(len(LAYOUTS))) for i in shapes])
        return np.hstack([found, *(OWN * found * own[:, [layout]] for layout in range(len(LAYOUTS)))])


def choose_tiles(measured: Measured, loss: float, most: int, shapes=slice(None)) -> list[int]:
    """Greedily: each time the tile that brings the set's best nearest to the best of all on these shapes."""
    best, weights = measured.us[shapes].min(axis=1), measured.weights[shapes]
    us = np.minimum(measured.us[shapes], FAR * best[:, None])  # what was not run is at least that slow
    chosen = [i for i, name in enumerate(measured.names) if measured.tiles[name].family.full_name in ALWAYS]
    reached = np.minimum(us[:, chosen].min(axis=1, initial=np.inf), FAR * best)
    added: list[int] = []
    while len(added) < most and np.average(np.log(reached / best), weights=weights) > loss:
        left = [i for i in range(len(measured.names)) if i not in chosen]
        after = {i: np.log(np.minimum(reached, us[:, i]) / best) for i in left}
        gains = {i: np.average(lost, weights=weights) for i, lost in after.items()}
        tile = min(gains, key=gains.get)
        added.append(tile)
        chosen.append(tile)
        reached = np.minimum(reached, us[:, tile])
        print(f"{len(added):3} {measured.names[tile]:26} {gains[tile]:.4f} lost on average, "
              f"{np.quantile(reached / best, 0.95) - 1:.3f} at the 95th percentile")  # fmt: skip
    return added


@dataclass
class Sample:
    """What is known of a tile, or of several: features, microseconds, the best tile's, and what each shape counts."""

    x: np.ndarray
    us: np.ndarray
    best: np.ndarray
    weights: np.ndarray

    def where(self, kept: np.ndarray) -> "Sample":
        return Sample(self.x[kept], self.us[kept], self.best[kept], self.weights[kept])


def solve(s: Sample, prior: np.ndarray | float = 0.0) -> np.ndarray:
    """Weights of log2 us, near `prior` where little is known; shapes where the tile is near the best count most."""
    weight = np.clip(s.best / s.us, 0.3, 1) ** 2 * np.sqrt(s.weights)
    a, y = s.x * weight[:, None], np.log2(s.us) * weight
    prior = np.broadcast_to(prior, s.x.shape[1])
    return prior + np.linalg.solve(a.T @ a + RIDGE * np.eye(s.x.shape[1]), a.T @ (y - a @ prior))


def pooled(samples: list[Sample]) -> np.ndarray:
    """Weights that serve all of these tiles."""
    names = ("x", "us", "best", "weights")
    return solve(Sample(*(np.concatenate([getattr(one, name) for one in samples]) for name in names)))


def to_fit(weights: np.ndarray) -> list[list[float]]:
    common, *own = weights.reshape(1 + len(LAYOUTS), -1)
    return [[float(f"{w:.6g}") for w in common + OWN * more] for more in own]


def fit_tiles(measured: Measured, tiles: list[int], folds: np.ndarray) -> tuple[dict, np.ndarray]:
    """Each tile's fit, and for each shape and tile the log2 microseconds by a fit that has not seen the shape.

    What moves all tiles of a shape alike (empty groups, the card's clock) tells nothing about which is best: after a
    first pass, the mean over the tiles of what their fits miss is taken off the shape's times, and all is fitted anew.
    Tiles in clusters are few people's: their weights stay near those of all of them together.
    """
    clustered = [tile for tile in tiles if measured.tiles[measured.names[tile]].form[0] > 1]
    shapes = {tile: np.flatnonzero(np.isfinite(measured.us[:, tile])) for tile in tiles}
    designs = {tile: measured.design(tile, own) for tile, own in shapes.items()}
    best, shared = measured.us.min(axis=1), np.zeros(len(measured.rows))
    held_out = np.full(measured.us.shape, np.inf)
    for _ in range(PASSES):
        missed, counts = np.zeros(len(best)), np.zeros(len(best))
        fits, samples = {}, {}
        for tile, own in shapes.items():
            us = measured.us[own, tile] / 2 ** shared[own]
            samples[tile] = Sample(designs[tile], us, best[own] / 2 ** shared[own], measured.weights[own])

        priors = {fold: pooled([samples[tile].where(folds[shapes[tile]] != fold) for tile in clustered])
                  for fold in range(-1, FOLDS) if clustered}  # fmt: skip
        for tile, own in shapes.items():
            near = priors if tile in clustered else dict.fromkeys(range(-1, FOLDS), 0.0)
            for fold in range(FOLDS):
                out = folds[own] == fold
                held_out[own[out], tile] = designs[tile][out] @ solve(samples[tile].where(~out), near[fold])
            fits[measured.names[tile]] = to_fit(solve(samples[tile], near[-1]))
            nearness = np.clip(samples[tile].best / samples[tile].us, 0.3, 1) ** 2
            missed[own] += nearness * (np.log2(measured.us[own, tile]) - held_out[own, tile])
            counts[own] += nearness
        shared = missed / np.maximum(counts, 1e-9)
    return fits, held_out


def tile_of(v: Variant) -> list:
    """What kernels/table/sm90.py, or of packed groups kernels/table/sm90_grouped.py, makes rows of: K counts elements
    of 16 bits."""
    if v.problem.op == "gemm":
        c = v.config
        cluster = [c.cluster, c.across] if c.across > 1 else [c.cluster] if c.cluster > 1 else []
        block_k = v.config.block_k * DTYPES[v.problem.a].bytes // 2
        return [v.family.full_name, v.config.block_m, v.config.block_n, block_k, *cluster]
    (cut,) = (guard for guard in v.guard if guard in CUTS)
    return [v.family.name, cut, v.config.block_m, v.config.block_n]


def winners(measured: Measured, fitted: np.ndarray) -> list[list]:
    """What people are known to run, as the host sees it, and the tile that won: on average where groups differ in what
    only the device knows. `fitted`: [shape][tile], whether that tile ships for the shape and has a fit."""
    found = {}
    for i, (row, work) in enumerate(zip(measured.rows, measured.work, strict=True)):
        if row["known"]:
            shape = (work.m, work.n, work.k, work.count, row["layout"])
            found.setdefault(shape, []).append(np.log(np.where(fitted[i], measured.us[i], np.inf)))
    best = {shape: int(np.mean(us, axis=0).argmin()) for shape, us in found.items()}
    return [[*shape, measured.names[tile]] for shape, tile in sorted(best.items())]


def chosen_tiles(measured: Measured, op: str, loss: float, most: int) -> dict[str, list[int]]:
    """layout -> tiles in the order of what each gained."""
    if op != "gemm":
        return dict.fromkeys(LAYOUTS, choose_tiles(measured, loss, most))
    found = {}
    for index in sorted(set(measured.layouts)):
        print(f"of {LAYOUTS[index]}:")
        own = np.equal(measured.layouts, index)
        knowing = own & measured.knows
        found[LAYOUTS[index]] = choose_tiles(measured, loss, most, knowing if knowing.any() else own)
    return found


def kept_tiles(measured: Measured, found: model.Tuned) -> dict[str, list[int]]:
    """What ships already."""
    at = {tuple(tile_of(v)): measured.names.index(name) for name, v in measured.tiles.items()}
    return {layout: [at[tile] for tile in tiles if tile in at] for layout, tiles in found.tiles.items()}


def tune(rows: list[dict], variants: list[Variant], origin: dict, loss: float, most: int, keep: bool = False) -> dict:
    measured, op = Measured(rows, variants), variants[0].problem.op
    found = model.tuned(variants[0].target, variants[0].measured_as) if keep else None
    chosen = kept_tiles(measured, found) if found else chosen_tiles(measured, op, loss, most)
    always = [i for i, name in enumerate(measured.names) if measured.tiles[name].family.full_name in ALWAYS]
    ships = np.zeros(measured.us.shape, bool)
    for i, layout in enumerate(measured.layouts):
        ships[i, [*chosen[LAYOUTS[layout]], *always]] = True
    folds = np.random.default_rng(0).integers(0, FOLDS, len(rows))
    # The reference rows won 4 of 4,755 shapes, by 5 % at most, and by their fits some that they lost: they keep their
    # rough models, and so run where nothing else does.
    fitted = [
        i
        for i in np.flatnonzero(ships.any(axis=0))
        if measured.tiles[measured.names[i]].family not in REFERENCE.values()
    ]
    fits, held_out = fit_tiles(measured, fitted, folds)
    us = np.where(ships, np.minimum(measured.us, FAR * measured.us.min(axis=1, keepdims=True)), np.inf)
    expected = np.where(ships, np.minimum(held_out, np.finfo(float).max), np.inf)  # one of those that ship, always
    picked = us[np.arange(len(rows)), expected.argmin(axis=1)]
    regret = np.sort(picked / us.min(axis=1) - 1)
    origin = {**origin, "shapes": len(rows), "regret_median": round(float(np.median(regret)), 4),
              "regret_p95": round(float(np.quantile(regret, 0.95)), 4)}  # fmt: skip
    print(f"regret on held-out shapes: median {origin['regret_median']}, 95th percentile {origin['regret_p95']}, "
          f"mean {regret.mean():.4f}, most {regret[-1]:.2f}")  # fmt: skip
    tiles = {layout: [tile_of(measured.tiles[measured.names[i]]) for i in own] for layout, own in chosen.items()}
    with_fit = ships & np.isin(np.arange(len(measured.names)), fitted)
    return {
        "origin": origin,
        "tiles": tiles if op == "gemm" else tiles[LAYOUTS[0]],
        "known": winners(measured, with_fit),
        "fits": fits,
    }


def lines_of(found: dict) -> str:
    """JSON with a line for each tile's fit, so that a change shows where it is."""
    fits = ",\n".join(f"{json.dumps(name)}: {json.dumps(fit)}" for name, fit in found["fits"].items())
    rest = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in ("origin", "tiles", "known")]
    return ",\n".join(["{" + rest[0], *rest[1:], f'"fits": {{\n{fits}\n}}}}'])


def fit_file(path: Path, loss: float | None, most: int | None, keep: bool) -> None:
    head, rows = read(path)
    rows = [row for row in rows if row["us"]]  # some shapes no candidate takes
    target = int(name_of(path).split("_")[0].removeprefix("sm"))
    table = (grouped_candidates if "groups" in rows[0] else candidates)(target, head["dtype"])
    kind = table[0].measured_as
    usual_loss, usual_most = USUAL[kind]
    loss, most = usual_loss if loss is None else loss, usual_most if most is None else most
    found = tune(rows, table, head, loss, most, keep)
    to = model.TUNED / f"{model.tuned_name(target, kind)}.json"
    to.write_text(lines_of(found) + "\n")
    print(f"wrote {to}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m build.tune.fit", description=__doc__)
    parser.add_argument("measurements", type=Path, nargs="*", default=files())
    parser.add_argument("--loss", type=float)
    parser.add_argument("--most", type=int, metavar="TILES")
    parser.add_argument("--keep", action="store_true", help="the tiles that ship; fit their weights alone")
    options = parser.parse_args()
    names = list(map(name_of, options.measurements))
    if twice := sorted({name for name in names if names.count(name) > 1}):
        parser.error(f"{', '.join(twice)}: measured in two files; `python -m build.tune.merge` makes them one")
    for path in options.measurements:
        fit_file(path, options.loss, options.most, options.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
