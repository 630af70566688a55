"""Whether dist/ is what a build would make: one digest of all that decides it, one of each file it left.

But for manifest.json, which names the commit and is written by every build.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

from build.cache import digest
from build.package import BUILT
from build.publish import files_in

SOURCES = ("aot", "build", "kernels", "runtime")
PACKAGES = ("triton", "cffi", "jinja2", "hatchling")


def is_source(path: Path) -> bool:
    """Not what a build or a tool made; `path` is relative to the checkout."""
    return not any(part in ("__pycache__", *BUILT) or part.startswith(".") for part in path.parts)


def inputs(build_id: str, compiler: list, root: Path) -> str:
    """Digest of all that decides dist/: kernels and their dispatch by build id, our sources, Compiler.identity()."""
    files = [p for name in SOURCES for p in files_in(root / name) if is_source(p.relative_to(root))]
    versions = [importlib.metadata.version(name) for name in PACKAGES]
    tools = json.dumps([sys.version, versions, compiler])
    return digest(build_id, tools, *(part for p in files for part in (str(p.relative_to(root)), p.read_bytes())))


def record(key: str, made: Path) -> str:
    """The stamp of a finished build, whose files are in `made` under the names that they have in the checkout."""
    files = [p for p in files_in(made) if p.name != "manifest.json"]
    return json.dumps({"key": key, "files": {str(p.relative_to(made)): digest(p.read_bytes()) for p in files}})


def up_to_date(stamp: Path, key: str, root: Path) -> bool:
    """Whether what stands under `root` is what `key` made; each file is compared with its recorded digest."""
    try:
        found = json.loads(stamp.read_text())
        return found["key"] == key and all(
            digest((root / name).read_bytes()) == sha for name, sha in found["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return False
