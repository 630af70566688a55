"""Tuning's measurements on disk: a JSON line about the machine, then one for each shape. Measures nothing.

<arch>.jsonl.xz is what is kept, packed; <arch>.jsonl is what a GPU machine appends to, until build/tune/merge.py takes
it into the packed one.
"""

import json
import lzma
import os
from pathlib import Path

MEASURED = Path(__file__).resolve().parents[2] / "build" / "tune" / "measured"
ENDINGS = (".jsonl", ".jsonl.xz")


def name_of(path: Path) -> str:
    """ "sm90" of sm90.jsonl.xz."""
    for ending in ENDINGS:
        if path.name.endswith(ending):
            return path.name.removesuffix(ending)
    raise ValueError(f"{path}: measurements end in {' or '.join(ENDINGS)}")


def packed_path(path: Path) -> Path:
    """Where the measurements of this name are kept, in the same folder."""
    return path.with_name(f"{name_of(path)}.jsonl.xz")


def read(path: Path) -> tuple[dict, list[dict]]:
    """What is said of the machine, and of each shape."""
    data = path.read_bytes()
    head, *rows = map(json.loads, (lzma.decompress(data) if path.name.endswith(".xz") else data).splitlines())
    return head, rows


def write_packed(path: Path, head: dict, rows: list[dict]) -> None:
    """The whole file, or the old one stays."""
    text = "".join(json.dumps(row) + "\n" for row in (head, *rows))
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_bytes(lzma.compress(text.encode(), preset=9))
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def files(folder: Path = MEASURED) -> list[Path]:
    return sorted(path for path in folder.glob("*.jsonl*") if path.name.endswith(ENDINGS))


def measured(folder: Path = MEASURED) -> list[dict]:
    """What tuning recorded, a dict for each shape."""
    return [row for path in files(folder) for row in read(path)[1]]
