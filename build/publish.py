"""Files put into their places together: copied beside them, then renamed. Standard library alone; knows no library.

After an error every place is as it was. A kill leaves each file whole, old or new, and copies that sweep() removes.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

SUFFIX = ".partial"


class NotPutBackError(RuntimeError):
    """A place that is neither as it was nor as it should be: its message names it."""


def beside(place: Path, word: str) -> Path:
    return place.with_name(f".{place.name}.{word}{SUFFIX}")


def copy(source: Path, to: Path) -> None:
    """A file, or a symbolic link as a link."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, to, follow_symlinks=False)


def put_back(places: list[Path], old: dict[Path, Path]) -> None:
    """Each place as it was; what cannot be is named when all others have been."""
    failed = []
    for place in places:
        try:
            if os.path.lexists(old[place]):
                os.replace(old[place], place)
            else:
                place.unlink(missing_ok=True)
        except OSError as error:
            failed.append(f"{place} ({error.strerror})")
    if failed:
        raise NotPutBackError(f"not put back as it was is {', '.join(failed)}")


def swap(new: dict[Path, Path], old: dict[Path, Path], gone: list[Path]) -> None:
    """Renames alone, so that a full disk cannot stop here."""
    begun = []
    try:
        for place in gone:
            begun.append(place)
            place.unlink()
        for place in new:
            begun.append(place)
            os.replace(new[place], place)
    except BaseException:
        put_back(begun[::-1], old)
        raise


def publish(files: dict[Path, Path], gone: Iterable[Path] = ()) -> None:
    """Remove those that are `gone`, then give each place (the keys, in this order) its file: all of it or nothing."""
    gone = [place for place in gone if os.path.lexists(place)]
    token = secrets.token_hex(4)  # another publisher of the same places has another
    new = {place: beside(place, f"{token}-new") for place in files}
    old = {place: beside(place, f"{token}-old") for place in [*files, *gone]}
    try:
        for place, source in files.items():
            copy(source, new[place])
        for place in old:
            if os.path.lexists(place):
                copy(place, old[place])
        swap(new, old, gone)
    finally:
        for path in [*new.values(), *old.values()]:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def sweep(folder: Path, deep: bool = True) -> None:
    """Remove what a killed publisher left. Only for a folder that nobody else publishes to now."""
    for path in folder.rglob(f".*{SUFFIX}") if deep else folder.glob(f".*{SUFFIX}"):
        path.unlink()
