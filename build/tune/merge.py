"""python -m build.tune.merge [NEW.jsonl ...] [--card WORDS] [--drawn] [--rows-from M]: new measurements into those that
fit.py reads.

By default all <arch>.jsonl of build/tune/measured, which go once they are taken in; files named stay where they are.
A card's clock differs from day to day, so times are compared only within a run: a shape's new times are multiplied by
what makes the tiles that both runs measured as fast as they were (the median of their ratios; on a shape without such
tiles, the median over all shapes; where all shapes are new, 1). Of a tile in both, the new time counts, and a line says
what `build` this device last ran it with. Of what people run a line says which times are of that run (`latest`): where
the tile that they had is among those, fit.py has the winner be one of them.

Another device's are refused but with --card, which says what card it was and what ran: an H100 is an H200 but for its
memory, and fits take off what moves all tiles of a shape alike. With --drawn their shapes count as drawn: dense.py
takes all that it reads from a file for what people run. --rows-from M: the run has only shapes of M rows of A or more;
for fewer fit.py goes on taking the run before for the last.
"""

import argparse
import statistics
import sys
from pathlib import Path

from bench.suites.records import MEASURED, packed_path, read, write_packed

SHAPE = ("ragged", "groups", "m", "n", "k", "layout", "distribution", "seed")
SAME = ("device", "dtype")  # of two runs that can be one file


class MergeError(ValueError):
    """These measurements do not belong together: says what differs."""


def shape_of(row: dict) -> tuple:
    return tuple(row.get(name) for name in SHAPE)


def scale_of(old: dict, new: dict) -> float | None:
    """Old time over new, by the tiles that both have; None without any."""
    ratios = [old[name] / new[name] for name in old.keys() & new.keys()]
    return statistics.median(ratios) if ratios else None


def merged(
    kept: tuple[dict, list[dict]], added: tuple[dict, list[dict]], card: str | None = None, rows_from: int = 0
) -> tuple[dict, list[dict]]:
    """Head and rows of both. Shapes keep their order, new ones follow. `card`: words for what another device ran."""
    (head, rows), (new_head, new_rows) = kept, added
    for name in SAME:
        if head[name] != new_head[name] and not (card and name == "device"):
            raise MergeError(f"{name} = {new_head[name]!r}, the kept measurements' is {head[name]!r}")
    fewest = min((row["m"] for row in new_rows), default=rows_from)
    if fewest < rows_from:
        raise MergeError(f"rows from {rows_from} on were said, but there is a shape of {fewest}")
    found = {shape_of(row): row for row in rows}
    scales = {
        shape: scale
        for row in new_rows
        if (shape := shape_of(row)) in found and (scale := scale_of(found[shape]["us"], row["us"])) is not None
    }
    if not scales and any(shape_of(row) in found for row in new_rows):
        raise MergeError(f"none of {len(new_rows)} shapes has a tile that was measured before: no scale to compare by")
    usual = statistics.median(scales.values()) if scales else 1.0  # of shapes all new: a fit takes off what they share
    for row in new_rows:
        shape = shape_of(row)
        old = found.get(shape, {"us": {}})
        scale = scales.get(shape, usual)
        us = {name: round(value * scale, 3) for name, value in row["us"].items()}
        is_known = row["known"] or old.get("known", False)
        made = {**row, **old, "us": {**old["us"], **us}, "known": is_known}
        if not card:
            made["build"] = new_head["build_id"]
        is_ours = made["known"] and old["us"] and not card
        found[shape] = {**made, "latest": sorted(us)} if is_ours else made
    before = head.get("merged", [])
    note = {
        **{name: new_head[name] for name in ("build_id", "date")},
        "shapes": len(new_rows),
        "scale": round(usual, 4),
        **({"card": card} if card else {}),
        **({"rows_from": rows_from} if rows_from else {}),
    }
    return {**head, "merged": [*([before] if isinstance(before, str) else before), note]}, list(found.values())


def take_in(
    path: Path, folder: Path = MEASURED, card: str | None = None, drawn: bool = False, rows_from: int = 0
) -> Path:
    """Merge one file into the packed one of its name in `folder`, which is made where there is none."""
    to = packed_path(folder / path.name)
    head, rows = read(path)
    if drawn:
        rows = [{**row, "known": False} for row in rows]
    made = merged(read(to), (head, rows), card, rows_from) if to.exists() else (head, rows)
    write_packed(to, *made)
    return to


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m build.tune.merge", description=__doc__)
    parser.add_argument("measurements", type=Path, nargs="*")
    parser.add_argument("--card", metavar="WORDS", help="of another device: which, and what it ran")
    parser.add_argument("--drawn", action="store_true", help="nobody is known to run their shapes")
    parser.add_argument("--rows-from", type=int, default=0, metavar="M", help="they have no fewer rows of A")
    options = parser.parse_args()
    own = [] if options.measurements else sorted(MEASURED.glob("*.jsonl"))
    for path in [*options.measurements, *own]:
        try:
            print(f"{path} is in {take_in(path, card=options.card, drawn=options.drawn, rows_from=options.rows_from)}")
        except (MergeError, OSError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 1
    for path in own:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
