"""python -m build.tune.fit [build/tune/measured/sm90.jsonl.xz]: from measurements to kernels/table/tuned/, with no GPU.

With --keep no tile is chosen: those that ship get new weights alone, and nothing need be compiled anew. With --drop
LOSS besides, tiles of dense products that the others miss least go, as many as cost less than that together.

Without a file, from all that are there; the name says what they are of: sm90, or sm90_grouped_mm for packed groups, of
8-bit operands with their type and sums behind it.

Chooses the smallest set of tiles whose best is within `--loss` of the best candidate's time on average, on shapes that
were measured with clusters of every form, `--most` tiles or fewer: of dense products a set for each layout, of packed
groups one for all. Then fits each tile's time as kernels/table/model.py describes, what the last run measured counting
for more, and says the regret of choosing by those fits among the chosen tiles, on shapes that the fit was not shown.
Shapes that people are known to run get the tile that won; with --keep they keep theirs until another is 2 % faster.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bench.suites.records import files, name_of, read
from build.tune.candidates import candidates, grouped_candidates
from build.tune.record import Measured, Run
from build.tune.weights import FOLDS, fit_tiles, l2_risk
from kernels.table import model
from kernels.table.dtypes import DTYPES
from kernels.table.families import REFERENCE
from kernels.table.model import FAR
from kernels.table.sm90 import alone_and_shared, first_of, with_activation, with_more
from kernels.table.spec import CUTS, LAYOUTS, Variant

ALWAYS = ("gemm", "masked")  # families that ship anyway, for operands no other takes
NOISE = 0.03  # in log2: what one run of many kernels says of two, where a card's clocks are not those of a user's
MOST_LATE = 4  # tiles more for packed groups, where some that came late were measured
BEHIND = 10.0  # in log2: of what people run, a time that is not of the last run
KNOWN_SHARE = 0.1  # of a layout's shapes: a tile that was run on fewer is not dropped

# kind -> loss on average, most tiles
USUAL = {
    "gemm": (0.0027, 52), "grouped_mm": (0.0085, 12), "gemm_e4m3": (0.004, 52), "gemm_e4m3_fast": (0.004, 52),
    "gemm_e4m3_blocks": (0.004, 28), "grouped_mm_e4m3": (0.0, 6), "grouped_mm_e4m3_fast": (0.0, 5),
    "grouped_mm_e4m3_blocks": (0.0, 5),
}  # fmt: skip


def choose_tiles(
    measured: Measured, loss: float, most: int, shapes=slice(None), begun: Iterable[int] = ()
) -> list[int]:
    """Greedily: each time the tile that brings the set's best, of those `begun` with too, nearest to the best of all on
    these shapes."""
    best, weights = measured.us[shapes].min(axis=1), measured.weights[shapes]
    us = np.minimum(measured.us[shapes], FAR * best[:, None])  # what was not run is at least that slow
    chosen = [i for i, name in enumerate(measured.names) if measured.tiles[name].family.full_name in ALWAYS]
    chosen += begun
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


def for_other_types_and_activations(measured: Measured, chosen: dict[str, list[int]]) -> dict[str, list[set[int]]]:
    """layout -> of its tiles those that ship with other types as well, and those that ship with activations."""
    found = {}
    for layout, own in chosen.items():
        tiles = [tuple(tile_of(measured.tiles[measured.names[i]])) for i in own]
        sets = first_of(tiles), with_activation(alone_and_shared(tiles)[0])
        found[layout] = [{i for i, tile in zip(own, tiles, strict=True) if tile in some} for some in sets]
    return found


def winners(
    measured: Measured, fitted: np.ndarray, sets: dict[str, list[set[int]]], before: Iterable[tuple] = ()
) -> list[list]:
    """What people are known to run, as the host sees it, and the tile that won: on average where groups differ in what
    only the device knows. Behind it the best of each of its layout's `sets` that has none of these yet: the winner may
    not ship with the D, or the activation, that is asked for. A tile that asks L2 for nearly all it gives counts as
    slower here too. Where the last run measured the tile of `before`, those that it left out come behind those that it
    measured: they could win by a time of another day. `fitted`: [shape][tile], whether that tile ships for the shape
    and has a fit. `before`: what this gave the last time, which stays where no tile beats it by more than NOISE."""
    won = {tuple(shape): tile for *shape, tile in reversed(list(before))}  # of one shape the first
    found = {}
    for i, (row, work) in enumerate(zip(measured.rows, measured.work, strict=True)):
        if row["known"]:
            shape = (work.m, work.n, work.k, work.count, row["layout"])
            logs = np.full(len(measured.names), np.inf)
            last_run = row.get("latest", measured.names)
            if won.get(shape) not in last_run:  # a run of others says nothing of it
                last_run = measured.names
            for tile in np.flatnonzero(fitted[i] & np.isfinite(measured.us[i])):
                logs[tile] = np.log2(measured.us[i, tile]) + l2_risk(measured.design(tile, [i]))[0]
                if measured.names[tile] not in last_run:
                    logs[tile] += BEHIND
            found.setdefault(shape, []).append(logs)
    known = []
    for shape, logs in sorted(found.items()):
        us = np.mean(logs, axis=0)
        best = [int(us.argmin())]
        if won.get(shape) in measured.names and us[last := measured.names.index(won[shape])] <= us[best[0]] + NOISE:
            best = [last]
        for some in sets.get(shape[-1], []):
            if some.isdisjoint(best) and np.isfinite(us[list(some)]).any():
                best.append(min(some, key=us.__getitem__))
        known += [[*shape, measured.names[tile]] for tile in best]
    return known


def chosen_tiles(measured: Measured, op: str, loss: float, most: int) -> dict[str, list[int]]:
    """layout -> tiles in the order of what each gained."""
    if op != "gemm":
        own = choose_tiles(measured, loss, most)
        # Tiles that no group's end cuts are for gradients alone, and came late: of most shapes nobody knows their time.
        late = [i for i, name in enumerate(measured.names) if "whole" in measured.tiles[name].family.guards]
        there = np.isfinite(measured.us[:, late]).any(axis=1)
        if there.any():
            own += choose_tiles(measured, loss, MOST_LATE, there, own)
        return dict.fromkeys(LAYOUTS, own)
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


def missed_least(us: np.ndarray, weights: np.ndarray, loss: float, stay: set[int]) -> list[int]:
    """Columns of `us` ([shape][tile]) that can go, one after the other, each time the one whose shapes lose least by
    running what is left, while all lose less than `loss` on average. Those in `stay` do not."""
    left, gone, lost = list(range(us.shape[1])), [], 0.0
    while len(left) > 1:
        best, second = np.partition(us[:, left], 1, axis=1)[:, :2].T
        costs = np.bincount(us[:, left].argmin(axis=1), np.log(second / best) * weights, len(left)) / weights.sum()
        costs[[i for i, tile in enumerate(left) if tile in stay]] = np.inf
        least = int(costs.argmin())
        lost += costs[least]
        if lost > loss:
            break
        gone.append(left.pop(least))
    return gone


def dropped(measured: Measured, chosen: dict[str, list[int]], loss: float) -> dict[str, list[int]]:
    """The tiles of each layout without those that are missed least, on shapes that eight of them or more were run on.
    What ships with other types stays, and what was run on few shapes: nobody knows what others would lose by it."""
    found = {}
    for layout, own in chosen.items():
        there = np.equal(measured.layouts, LAYOUTS.index(layout))
        us, weights = measured.us[there][:, own], measured.weights[there]
        run = np.isfinite(us).sum(axis=1) >= 8
        us, weights = us[run], weights[run]
        tiles = [tuple(tile_of(measured.tiles[measured.names[i]])) for i in own]
        more, few = with_more(tiles), np.isfinite(us).mean(axis=0) < KNOWN_SHARE
        stay = {i for i, tile in enumerate(tiles) if tile in more or few[i]}
        gone = missed_least(np.minimum(us, FAR * us.min(axis=1, keepdims=True)), weights, loss, stay)
        print(f"of {layout} go {', '.join(measured.names[own[i]] for i in gone) or 'none'}")
        found[layout] = [tile for i, tile in enumerate(own) if i not in gone]
    return found


def runs_of(origin: dict) -> list[Run]:
    """This device's runs that were merged, in order."""
    notes = [note for note in origin.get("merged", []) if isinstance(note, dict) and "card" not in note]
    return [Run(note["build_id"], note.get("rows_from", 0)) for note in notes]


def tune(
    rows: list[dict], variants: list[Variant], origin: dict, loss: float, most: int, keep: bool = False,
    drop: float = 0.0,
) -> dict:  # fmt: skip
    measured, op = Measured(rows, variants, runs_of(origin)), variants[0].problem.op
    found = model.tuned(variants[0].target, variants[0].measured_as) if keep else None
    chosen = kept_tiles(measured, found) if found else chosen_tiles(measured, op, loss, most)
    if drop:
        chosen = dropped(measured, chosen, drop)
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
    fits, held_out = fit_tiles(measured, fitted, folds, ships)
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
    if op == "gemm":
        more = for_other_types_and_activations(measured, chosen)
    else:  # behind a tile that adds to no C stands one that does
        adds = {i for i, name in enumerate(measured.names) if "whole" not in measured.tiles[name].family.guards}
        more = {layout: [adds & {*own}] for layout, own in chosen.items()}
    return {
        "origin": origin,
        "tiles": tiles if op == "gemm" else tiles[LAYOUTS[0]],
        "known": winners(measured, with_fit, more, found.known if found else ()),
        "fits": fits,
    }


def lines_of(found: dict) -> str:
    """JSON with a line for each tile's fit, so that a change shows where it is."""
    fits = ",\n".join(f"{json.dumps(name)}: {json.dumps(fit)}" for name, fit in found["fits"].items())
    rest = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in ("origin", "tiles", "known")]
    return ",\n".join(["{" + rest[0], *rest[1:], f'"fits": {{\n{fits}\n}}}}'])


def fit_file(path: Path, loss: float | None, most: int | None, keep: bool, drop: float) -> None:
    head, rows = read(path)
    rows = [row for row in rows if row["us"]]  # some shapes no candidate takes
    target = int(name_of(path).split("_")[0].removeprefix("sm"))
    table = (grouped_candidates if "groups" in rows[0] else candidates)(target, head["dtype"])
    kind = table[0].measured_as
    usual_loss, usual_most = USUAL[kind]
    loss, most = usual_loss if loss is None else loss, usual_most if most is None else most
    found = tune(rows, table, head, loss, most, keep, drop if table[0].problem.op == "gemm" else 0.0)
    to = model.TUNED / f"{model.tuned_name(target, kind)}.json"
    to.write_text(lines_of(found) + "\n")
    print(f"wrote {to}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m build.tune.fit", description=__doc__)
    parser.add_argument("measurements", type=Path, nargs="*", default=files())
    parser.add_argument("--loss", type=float)
    parser.add_argument("--most", type=int, metavar="TILES")
    parser.add_argument("--keep", action="store_true", help="the tiles that ship; fit their weights alone")
    parser.add_argument("--drop", type=float, default=0.0, metavar="LOSS", help="tiles that cost less, as 0.0005")
    options = parser.parse_args()
    names = list(map(name_of, options.measurements))
    if twice := sorted({name for name in names if names.count(name) > 1}):
        parser.error(f"{', '.join(twice)}: measured in two files; `python -m build.tune.merge` makes them one")
    for path in options.measurements:
        fit_file(path, options.loss, options.most, options.keep, options.drop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
