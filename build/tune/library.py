"""python -m build.tune.library: the library that tuning measures, as a Python package of its own. Not what ships.

Needs no GPU. The package is written to .cache/candidates/libgemm, so that a GPU machine can be given just that folder;
`make tune` there finds it.
"""

import os
import sys
from pathlib import Path

from aot.manifest import make_manifest
from aot.render import in_table_order
from build.__main__ import main, make_library, toolchain, workplace
from build.cache import Cache
from build.compile_all import Limits, compile_all
from build.compiler import Compiler
from build.package import header_constant, make_project, unusual
from build.publish import files_in, publish
from build.tree import ROOT
from build.tune.candidates import candidates, grouped_candidates
from kernels.table.portable import sum_rows


def build(root: Path = ROOT) -> None:
    types = ("bf16", "e4m3", "e4m3_fast", "e4m3_blocks")
    table = [row for own in types for grid in (candidates, grouped_candidates) for row in grid(types=own)]
    table += sum_rows(90)
    with workplace(root) as scratch:
        artifacts = compile_all(table, Cache(root / ".cache" / "artifacts", None), Limits(len(os.sched_getaffinity(0))))
        rows = in_table_order(list(zip(table, artifacts, strict=True)))
        manifest = make_manifest(rows, header_constant("LIBGEMM_VERSION"), toolchain())
        linked = make_library(rows, manifest, scratch / "libgemm.so", Compiler.of_environment(), 1, None)
        make_project(linked, unusual(manifest), root / "runtime", scratch / "project")
        package, made = root / ".cache" / "candidates" / "libgemm", scratch / "project" / "libgemm"
        places = {package / path.relative_to(made): path for path in files_in(made)}
        publish(places, [path for path in files_in(package) if path not in places])
    print(f"{package}: {len(rows)} candidates, build {manifest['build_id'][:16]}")


if __name__ == "__main__":
    sys.exit(main(build, __doc__))
