"""python -m build.compare OLD NEW: what differs between the manifests of two builds. Builds and loads nothing.

OLD and NEW are files like dist/manifest.json. Compared are each variant's cubin and launch facts, and what the library
chooses by: the rows of each problem in their order, their guards and models, the fits and the exact-match tables. Exit
status 0: nothing differs, so whatever was changed between the two is a move; 1: the differences are listed, by the fact
that differs; 2: a file cannot be read. Where a build comes from (commit, build id, version) is not compared.
"""

import json
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

SHOWN, WIDTH = 3, 200  # examples of each difference, and characters of one
SOURCE = ("kernel", "signature")  # where a kernel's source stands: no fact of the launch
WHOLE = ("schema", "toolchain", "targets", "tuning", "known", "families")


def by_name(manifest: dict) -> dict[str, dict]:
    """Each variant's record, with its kernel's parameters in it. Older manifests have those by kernel."""
    parameters = manifest.get("signatures") or manifest["kernels"]
    rows = manifest["variants"]
    return {row["name"]: {**row, "params": parameters[row.get("signature", row["kernel"])]} for row in rows}


def order(rows: dict[str, dict]) -> dict[str, list[str]]:
    """The names of each problem's rows on each target in the table's order, which settles ties."""
    found = defaultdict(list)
    for name, row in rows.items():
        found[f"sm_{row['target']} {' '.join(value for _, value in sorted(row['problem'].items()))}"].append(name)
    return found


def differences(old: dict, new: dict) -> dict[str, list[str]]:
    """What differs -> where; empty for two builds that compute and choose the same."""
    found = defaultdict(list)
    for key in WHOLE:
        if old.get(key) != new.get(key):
            found[key].append(f"{old.get(key)} -> {new.get(key)}")
    before, after = by_name(old), by_name(new)
    found["removed"] += [name for name in before if name not in after]
    found["added"] += [name for name in after if name not in before]
    for name in (name for name in before if name in after):
        one, other = before[name], after[name]
        for fact in dict.fromkeys([*one, *other]):
            if fact not in SOURCE and one.get(fact) != other.get(fact):
                found[fact].append(f"{name}: {one.get(fact)} -> {other.get(fact)}")
    both = [{name: row for name, row in rows.items() if name in before and name in after} for rows in (before, after)]
    orders = [order(rows) for rows in both]
    found["order"] += [problem for problem in orders[0] if orders[0][problem] != orders[1].get(problem)]
    return {what: where for what, where in found.items() if where}


def lines(found: dict[str, list[str]]) -> list[str]:
    shown = []
    for what, where in found.items():
        shown.append(f"{what}: {len(where)}")
        shown += [f"  {textwrap.shorten(one, WIDTH)}" for one in where[:SHOWN]]
        shown += [f"  and {len(where) - SHOWN} more"] * (len(where) > SHOWN)
    return shown


def main(words: list[str]) -> int:
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        old, new = (json.loads(Path(word).read_text()) for word in words)
        found = differences(old, new)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"not the manifest of a build: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(*lines(found) or [f"nothing differs: {len(new['variants'])} variants"], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
