"""python -m build: plan, compile, render, link, pack. Not PyPA's build: for wheels and sdists run `pyproject-build`.

Options come from the environment, so that `make build TARGETS=90` works:
  TARGETS     compute capabilities * 10, by comma or space (default: kernels.table.spec.DEFAULT_TARGETS)
  TYPES       types of A and B that products may have, by comma or space (default: all, f16 bf16 f32 e4m3)
  MIN_DRIVER  driver release that every kernel must load on, 525 or 580 (default: aot.toolchain.DEFAULT_MIN_DRIVERS)
  JOBS        compile processes (default: the cores this process may use)
  CC          C compiler, which may be a cross compiler for aarch64 (default: cc)
  CFLAGS, LDFLAGS   flags for it, after ours
  HOSTCC      C compiler for programs that the build runs, where CC is a cross compiler (default: CC)
"""

import contextlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aot.manifest import make_manifest
from aot.pack import pack
from aot.render import in_table_order, render
from aot.toolchain import MIN_DRIVERS
from build.cache import Cache
from build.compile_all import BuildError, Limits, compile_all
from build.compiler import Compiler
from build.link import Linked, link
from build.lock import only_build
from build.package import header_constant
from build.publish import NotPutBackError, files_in, publish, sweep
from build.shortlist import shortlists
from build.stamp import inputs, record, up_to_date
from build.tree import LINK, ROOT, write_all, write_manifest
from kernels.table.dtypes import DTYPES
from kernels.table.spec import SpecError
from kernels.table.targets import DEFAULT_TARGETS, TARGETS
from kernels.table.variants import variants

STAMP = Path(".cache/dist.json")


@dataclass(frozen=True)
class Plan:
    targets: tuple[int, ...]
    types: tuple[str, ...]
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
    types = os.environ.get("TYPES", "").replace(",", " ").split() or list(DTYPES)
    for word in types:
        if word not in DTYPES:
            raise BuildError(f"TYPES has {word!r}: allowed are {', '.join(DTYPES)}")
    jobs = number("JOBS", len(os.sched_getaffinity(0)), range(1, 513))
    targets = tuple(sorted({int(word) for word in words}))
    own = tuple(name for name in DTYPES if name in types)
    return Plan(targets, own, number("MIN_DRIVER", None, MIN_DRIVERS), Limits(jobs))


def toolchain() -> dict:
    return {name: importlib.metadata.version(name) for name in ("triton",)}


@contextlib.contextmanager
def workplace(root: Path) -> Iterator[Path]:
    """An empty folder for what a build makes, and the checkout's products to itself. Clears what killed builds left."""
    cache = root / ".cache"
    with only_build(cache / "build.lock"):
        for left in cache.glob("making-*"):
            shutil.rmtree(left)
        for folder in (root / "dist", root / "runtime" / "libgemm", cache / "candidates"):
            sweep(folder)
        sweep(cache, deep=False)  # not through thousands of kernels
        with tempfile.TemporaryDirectory(prefix="making-", dir=cache) as scratch:
            yield Path(scratch)


def make_library(rows, manifest: dict, output: Path, compiler: Compiler, jobs: int, kept: Path | None) -> Linked:
    """With shortlists, which are kept in a folder; without one, a library that weighs all rows."""
    files = render(rows, pack([artifact for _, artifact in rows]), manifest)
    if kept:
        files["shortlists.c"] = shortlists(rows, files, kept, jobs)
    return link(files, output, compiler=compiler)


def strangers(dist: Path) -> list[Path]:
    """What other builds left: `pip install dist/*.whl` takes one wheel, and Python takes libgemm.so for a module."""
    return [*dist.glob("libgemm-*.whl"), *(dist / f"libgemm.{end}" for end in ("so", "h", "pc"))]


def build(root: Path = ROOT) -> None:
    plan, compiler = make_plan(), Compiler.of_environment()
    tools = compiler.identity()  # now, so that a bad CC is told before minutes of compiling
    with workplace(root) as scratch:
        table = variants(plan.targets, plan.types)
        artifacts = compile_all(table, Cache(root / ".cache" / "artifacts", plan.min_driver), plan.limits)
        rows = in_table_order(list(zip(table, artifacts, strict=True)))
        manifest = make_manifest(rows, header_constant("LIBGEMM_VERSION"), toolchain())
        stamp, key = root / STAMP, inputs(manifest["build_id"], tools, root)
        if up_to_date(stamp, key, root):
            write_manifest(manifest, scratch)  # the commit may have moved
            publish({root / "dist" / "manifest.json": scratch / "manifest.json"})
            state = "unchanged"
        else:
            kept = root / ".cache" / "shortlists"
            linked = make_library(rows, manifest, scratch / "libgemm.so", compiler, plan.limits.jobs, kept)
            made = write_all(linked, manifest, root / "runtime", scratch)
            (scratch / "stamp").write_text(record(key, made))
            places = {root / path.relative_to(made): path for path in files_in(made)}
            gone = [path for path in strangers(root / "dist") if path not in places]
            publish({**places, stamp: scratch / "stamp"}, gone)  # the stamp last: it says that all the others stand
            state = "built"
    only = f" of {', '.join(plan.types)}" if len(plan.types) < len(DTYPES) else ""
    print(f"dist/{LINK} {state}: {len(rows)} variants{only} for sm {', '.join(map(str, plan.targets))}, "
          f"{megabytes(root / 'dist' / LINK)}, build {manifest['build_id'][:16]}")  # fmt: skip
    for wheel in (root / "dist").glob("libgemm-*.whl"):
        print(f"dist/{wheel.name}: {megabytes(wheel)}")


def megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def reason_of(error: OSError) -> str:
    """What stopped it, and at which file; shutil tells of a whole tree of files in a list."""
    if isinstance(error, shutil.Error):
        _, place, words = error.args[0][0]
        return f"{words.split('] ', 1)[-1].split(':')[0]}: {place}"
    return f"{error.strerror or error}: {error.filename}"


def main(work=build, about: str = __doc__) -> int:
    """Run a build that takes no arguments, and turn what stops it into a sentence."""
    if sys.argv[1:]:
        print(f"{about.splitlines()[0]}\nThis command takes no arguments; given: {sys.argv[1:]}", file=sys.stderr)
        return 2
    try:
        work()
    except (BuildError, SpecError, NotPutBackError) as error:
        print(f"build failed: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"build failed: {reason_of(error)}; dist/ and the Python package are as they were", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("build stopped; finished kernels are kept, run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
