"""python -m build.candidates: the library that tuning measures, as a Python package of its own. Not what ships.

Needs no GPU. The package is written to .cache/candidates/libgemm, so that a GPU machine can be given just that folder;
`make tune` there finds it.
"""

import os
import shutil
import sys

from aot.manifest import make_manifest
from aot.render import in_table_order
from build.__main__ import CACHE, make_library, toolchain
from build.cache import Cache
from build.compile_all import BuildError, Limits, compile_all
from build.package import PACKAGE, header_constant, stage
from kernels.candidates import candidates, grouped_candidates

FOLDER = CACHE / "candidates"


def build() -> None:
    table = [*candidates(), *grouped_candidates()]
    artifacts = compile_all(table, Cache(CACHE / "artifacts", None), Limits(len(os.sched_getaffinity(0))))
    rows = in_table_order(list(zip(table, artifacts, strict=True)))
    manifest = make_manifest(rows, header_constant("LIBGEMM_VERSION"), toolchain())
    linked = make_library(rows, manifest, FOLDER / "libgemm.so")
    package = FOLDER / "libgemm"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("_lib", "_ffi.py", "__pycache__"))
    stage(linked, package)
    linked.library.unlink()
    print(f"{package}: {len(rows)} candidates, build {manifest['build_id'][:16]}")


def main() -> int:
    try:
        build()
    except BuildError as error:
        print(f"build failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
