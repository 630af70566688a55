"""A small checkout and builds of made-up kernels in it, also as a process: `python build_work.py ROOT [STEP]`. No test.

With a STEP the build first says "at STEP" when it gets there, and goes on when a file ROOT/go exists; at "rename:3" it
is killed instead, before its third rename.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from sample import ROOT, sample_artifact

import build.__main__ as build_main
import build.publish
from build.publish import files_in

SECONDS = 600  # after which a build counts as hanging, on a machine that is slow and busy too
PRODUCTS = ("dist", "runtime", ".cache")


def checkout(folder: Path) -> Path:
    """What a build reads, with the Python package as a copy that a test may doctor."""
    folder.mkdir(exist_ok=True)
    for name in ("aot", "build", "kernels"):
        (folder / name).symlink_to(ROOT / name)
    unmade = shutil.ignore_patterns("_lib", "_ffi.py", "__pycache__")
    shutil.copytree(ROOT / "runtime", folder / "runtime", ignore=unmade)
    return folder


def change(root: Path) -> None:
    """Let the next build make another wheel."""
    with (root / "runtime" / "libgemm" / "__init__.py").open("a") as file:
        file.write(f"CHANGED = {time.time_ns()}\n")


def contents(root: Path) -> dict[str, bytes]:
    """Every file a build leaves, but the lock, which says nothing after a build."""
    paths = [path for name in PRODUCTS for path in files_in(root / name)]
    return {str(p.relative_to(root)): p.read_bytes() for p in paths if p.name != "build.lock"}


def command(root: Path, *steps: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), str(root), *steps]


def environment(**words) -> dict:
    """Of a build whose C core nobody runs for its speed."""
    found = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    return {**os.environ, "TARGETS": "80", "PYTHONPATH": found, "CFLAGS": "-O0 -U_FORTIFY_SOURCE", **words}


def process(root: Path, *steps: str, **words) -> subprocess.CompletedProcess:
    """A build as a process; its output and exit status are the caller's to check."""
    return subprocess.run(
        command(root, *steps), env=environment(**words), capture_output=True, text=True, timeout=SECONDS
    )


def made_up(table, cache, limits):
    return [sample_artifact(variant) for variant in table]


def run(root: Path, artifacts=made_up) -> int:
    build_main.compile_all = artifacts
    return build_main.main(lambda: build_main.build(root))


def wait_then_make(root: Path):
    def artifacts(*arguments):
        print("at compile", flush=True)
        while not (root / "go").exists():
            time.sleep(0.02)
        return made_up(*arguments)

    return artifacts


def kill_before(count: int):
    rename, seen = os.replace, []

    def replace(source, to):
        seen.append(to)
        if len(seen) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, to)

    build.publish.os.replace = replace


if __name__ == "__main__":
    _, place, *steps = sys.argv
    sys.argv = sys.argv[:1]
    for step in steps:
        if step.startswith("rename:"):
            kill_before(int(step.removeprefix("rename:")))
    sys.exit(run(Path(place), wait_then_make(Path(place)) if "compile" in steps else made_up))
