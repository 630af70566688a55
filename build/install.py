"""make install PREFIX=/usr/local [DESTDIR=]: lib/ and include/ of dist/ to PREFIX. Builds nothing; any Python does.

DESTDIR is put before PREFIX, for those who make packages. The files hold no absolute path, so PREFIX may be moved.
"""

import os
import sys
from pathlib import Path

from build.publish import NotPutBackError, files_in, publish

DIST = Path(__file__).resolve().parent.parent / "dist"


class InstallError(RuntimeError):
    """Nothing was installed: the message says why."""


def install(dist: Path, prefix: str, destdir: str) -> list[Path]:
    """Copy the install tree, all of it or nothing, and return the places."""
    if not os.path.isabs(prefix):
        raise InstallError(f"PREFIX = {prefix!r}: allowed is an absolute path")
    if not (dist / "manifest.json").is_file():
        raise InstallError(f"{dist} holds no build: run `make build` first")
    root = Path(destdir + prefix)
    places = {root / p.relative_to(dist): p for folder in ("lib", "include") for p in files_in(dist / folder)}
    publish(places)
    return list(places)


def main() -> int:
    if len(sys.argv) != 3:
        print(f"usage: make install PREFIX=/usr/local DESTDIR=; given: {sys.argv[1:]}", file=sys.stderr)
        return 2
    os.umask(0o022)  # everybody may read what is installed
    try:
        places = install(DIST, *sys.argv[1:])
    except (InstallError, NotPutBackError) as error:
        print(f"install failed: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"install failed: {error.strerror}: {error.filename}; nothing was installed", file=sys.stderr)
        return 1
    for place in places:
        print(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
