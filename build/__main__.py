"""python -m build: plan, compile, render, link, pack. Not PyPA's build: for wheels and sdists run `pyproject-build`.

Options come from the environment, so that `make build TARGETS=90` works:
  TARGETS     compute capabilities * 10, by comma or space (default: kernels.spec.DEFAULT_TARGETS)
  MIN_DRIVER  driver release that every kernel must load on, 525 or 580 (default: aot.compile.DEFAULT_MIN_DRIVERS)
  JOBS        compile processes (default: the cores this process may use)
"""

import importlib.metadata
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from aot.compile import MIN_DRIVERS
from aot.manifest import make_manifest
from aot.pack import pack
from aot.render import in_table_order, render
from build.cache import Cache, digest
from build.compile_all import BuildError, Limits, compile_all
from build.link import CFLAGS, CSRC, LDFLAGS, LIBRARIES, Linked, link
from build.package import ROOT, header_constant, package, write_manifest
from kernels.spec import DEFAULT_TARGETS, TARGETS, SpecError
from kernels.variants import variants

CACHE = ROOT / ".cache"
DIST = ROOT / "dist"


@dataclass(frozen=True)
class Plan:
    targets: tuple[int, ...]
    min_driver: int | None  # None: each target's own
    limits: Limits


def number(name: str, default: int | None, allowed) -> int | None:
    word = os.environ.get(name)
    if not word:
        return default
    if not word.isdigit() or int(word) not in allowed:
        raise BuildError(f"{name} = {word!r}: allowed are {', '.join(map(str, allowed))}")
    return int(word)


def make_plan() -> Plan:
    words = os.environ.get("TARGETS", "").replace(",", " ").split() or [str(t) for t in DEFAULT_TARGETS]
    for word in words:
        if not word.isdigit() or int(word) not in TARGETS:
            raise BuildError(f"TARGETS has {word!r}: allowed are {', '.join(map(str, TARGETS))}")
    jobs = number("JOBS", len(os.sched_getaffinity(0)), range(1, 513))
    return Plan(tuple(sorted({int(word) for word in words})), number("MIN_DRIVER", None, MIN_DRIVERS), Limits(jobs))


def toolchain() -> dict:
    return {name: importlib.metadata.version(name) for name in ("triton", "lz4")}


def generator_digest() -> str:
    """Everything beside artifacts and variants that decides dist/: our sources, templates, flags and packages."""
    folders = (ROOT / "aot", ROOT / "build", ROOT / "kernels", ROOT / "runtime")
    files = [p for f in folders for p in sorted(f.rglob("*")) if p.is_file() and is_source(p)]
    versions = [importlib.metadata.version(name) for name in ("triton", "lz4", "cffi", "jinja2", "hatchling")]
    flags = json.dumps([CFLAGS, LDFLAGS, LIBRARIES, versions])
    return digest(flags, *(part for p in files for part in (str(p.relative_to(ROOT)), p.read_bytes())))


def is_source(path: Path) -> bool:
    return "__pycache__" not in path.parts and "_lib" not in path.parts and path.name != "_ffi.py"


def up_to_date(stamp: Path, key: str) -> bool:
    """Whether dist/ and the staged package are what `key` made; each file is compared with its recorded hash."""
    try:
        record = json.loads(stamp.read_text())
        return record["key"] == key and all(
            digest((ROOT / name).read_bytes()) == sha for name, sha in record["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def products(wheel: Path) -> list[Path]:
    staged = ROOT / "runtime" / "libgemm"
    return [DIST / "libgemm.so", DIST / "libgemm.h", DIST / "libgemm.pc", wheel, staged / "_ffi.py",
            *sorted((staged / "_lib").iterdir())]  # fmt: skip


def make_library(rows, manifest: dict, output: Path) -> Linked:
    packed = pack([artifact for _, artifact in rows])
    return link(render(rows, packed, manifest), output, CSRC, os.environ.get("CC", "cc"))


def build() -> None:
    plan = make_plan()
    table = variants(plan.targets)
    artifacts = compile_all(table, Cache(CACHE / "artifacts", plan.min_driver), plan.limits)
    rows = in_table_order(list(zip(table, artifacts, strict=True)))
    manifest = make_manifest(rows, header_constant("LIBGEMM_VERSION"), toolchain())
    stamp, key = CACHE / "dist.json", digest(manifest["build_id"], generator_digest())
    if up_to_date(stamp, key):
        write_manifest(manifest, DIST)  # the commit may have moved
        state = "unchanged"
    else:
        wheel = package(make_library(rows, manifest, DIST / "libgemm.so"), manifest, DIST)
        files = {str(p.relative_to(ROOT)): digest(p.read_bytes()) for p in products(wheel)}
        stamp.write_text(json.dumps({"key": key, "files": files}))
        state = "built"
    size = (DIST / "libgemm.so").stat().st_size
    print(f"dist/libgemm.so {state}: {len(rows)} variants for sm {', '.join(map(str, plan.targets))}, "
          f"{size / 1e6:.1f} MB, build {manifest['build_id'][:16]}")  # fmt: skip


def main() -> int:
    if sys.argv[1:]:
        print(f"{__doc__.splitlines()[0]}\nThis command takes no arguments; given: {sys.argv[1:]}", file=sys.stderr)
        return 2
    try:
        build()
    except (BuildError, SpecError) as error:
        print(f"build failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("build stopped; finished kernels are kept, run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
