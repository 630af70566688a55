"""What was measured, as numbers to fit to: times by shape and tile, and what the model sees of each. Fits nothing."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernels.table import model
from kernels.table.dtypes import DTYPES
from kernels.table.families import REFERENCE
from kernels.table.spec import LAYOUTS, Variant
from kernels.table.targets import TARGETS

FEATURES = len(model.features(8, 8, 8, REFERENCE["gemm"], model.packed_work(8, 8, 8, "nn", 1)))
OWN = 0.25  # of a layout's own columns beside the common ones
KNOWN_WEIGHT = 12.0  # of a shape that people are known to run, beside one that was drawn
LATEST_WEIGHT = 4.0  # of a drawn shape of the last run that drew such: kernels change, and old times stay


class Run(NamedTuple):
    """One that was merged."""

    build_id: str
    rows_from: int  # least rows of A that it drew


def work_of(row: dict, multiprocessors: int, a_bytes: int) -> model.Work:
    sizes = [row[name] for name in ("m", "n", "k", "groups", "ragged", "layout") if name in row]
    if "groups" in row:
        return model.groups_work(*sizes, multiprocessors, a_bytes)
    return model.packed_work(*sizes, multiprocessors, a_bytes)


class Measured:
    """Times [shape][tile], infinite where a tile was not run, and features on demand."""

    def __init__(self, rows: list[dict], variants: list[Variant], runs: Sequence[Run] = ()):
        """Of one product, or where a line has groups, of packed ones. `runs`: in order, those that were merged."""
        self.rows = rows
        self.tiles = {v.fit_name: v for v in variants}
        self.names = list(self.tiles)
        self.us = np.full((len(rows), len(self.names)), np.inf)
        for i, row in enumerate(rows):
            for name in self.tiles.keys() & row["us"].keys():  # others are candidates no more
                self.us[i, self.names.index(name)] = row["us"][name]
        self.weights = np.array([self.weight_of(row, runs) for row in rows])
        target = variants[0].target
        count = TARGETS[target].multiprocessors
        a_bytes = DTYPES[variants[0].problem.a].bytes
        self.work = [work_of(row, count, a_bytes) for row in rows]
        self.layouts = [LAYOUTS.index(row["layout"]) for row in rows]
        self.shared = shared = np.array([model.is_shared(work) for work in self.work])
        clusters, across = np.array([self.tiles[name].form for name in self.names]).T
        self.us[np.ix_(~shared, clusters > 1)] = np.inf  # select/rows.c does not weigh them there
        thin = [
            row.get("ragged") == "M" and work.m <= model.THIN_ROWS for row, work in zip(rows, self.work, strict=True)
        ]
        tall = np.array(["rows" in v.guard and not v.family.swap_ab for v in self.tiles.values()])
        self.us[np.ix_(thin, tall)] = np.inf  # nor those
        # Whether a shape was measured with clusters of every form, where they are weighed: of one that was measured
        # before a form came nobody knows how fast that would be. Where no cluster was ahead, none is taken to be; and
        # what people run counts anyway.
        forms = across > 1 if (across > 1).any() else clusters > 1
        known = np.array([row["known"] for row in rows])
        alone = clusters[self.us.argmin(axis=1)] == 1
        self.knows = ~shared | np.isfinite(self.us[:, forms]).any(axis=1) | alone | known
        self.knows &= ~np.array([row.get("shipped", False) for row in rows])  # with few tiles, of which all are chosen

    @staticmethod
    def weight_of(row: dict, runs: Sequence[Run]) -> float:
        if row["known"]:
            return KNOWN_WEIGHT
        last = [run.build_id for run in runs if row["m"] >= run.rows_from][-1:]
        return LATEST_WEIGHT if last and row.get("build") == last[0] else 1.0

    def design(self, tile: int, shapes) -> np.ndarray:
        """One line for each shape: its features, in common to all layouts, and again in its layout's own columns, where
        a weight costs four times as much: layouts differ only as far as the measurements say so."""
        c, family = self.tiles[self.names[tile]].config, self.tiles[self.names[tile]].family
        found = np.array(
            [model.features(c.block_m, c.block_n, c.block_k, family, self.work[i], c.below, c.across) for i in shapes],
            np.float32,
        ).reshape(len(shapes), FEATURES)
        own = np.array([np.equal(self.layouts[i], range(len(LAYOUTS))) for i in shapes]).reshape(-1, len(LAYOUTS))
        return np.hstack([found, *(OWN * found * own[:, [layout]] for layout in range(len(LAYOUTS)))])
