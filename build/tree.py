"""dist/ as an install tree: library, header, what pkg-config and CMake read of them, manifest and wheel."""

import json
import shutil
import subprocess
from pathlib import Path

from build.compiler import SONAME
from build.link import Linked, header_text
from build.package import BUILT, make_project, make_wheel, unusual

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = Path(__file__).resolve().parent / "templates"
# Text files of the tree that know the version, by the template of each.
TEXTS = {
    "libgemm.pc.in": "lib/pkgconfig/libgemm.pc",
    "libgemm-config.cmake.in": "lib/cmake/libgemm/libgemm-config.cmake",
    "libgemm-config-version.cmake.in": "lib/cmake/libgemm/libgemm-config-version.cmake",
}
LIBRARY = Path("lib") / SONAME
LINK = Path("lib/libgemm.so")  # what -lgemm finds; programs then ask for the SONAME


def commit() -> str:
    """The commit of this checkout, "-dirty" where files differ from it; "unknown" outside git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def write_manifest(manifest: dict, dist: Path) -> None:
    """dist/manifest.json: the library's own manifest and the commit, which the library does not carry."""
    dist.mkdir(parents=True, exist_ok=True)
    (dist / "manifest.json").write_text(json.dumps({**manifest, "commit": commit()}, indent=1) + "\n")


def write_install_tree(linked: Linked, version: str, dist: Path) -> None:
    """What `make install` copies: lib/ and include/."""
    for name in ("include", *{Path(place).parent for place in TEXTS.values()}):
        (dist / name).mkdir(parents=True)
    shutil.copyfile(linked.library, dist / LIBRARY)
    (dist / LINK).symlink_to(SONAME)
    (dist / "include" / "libgemm.h").write_text(header_text())
    for template, place in TEXTS.items():
        text = (TEMPLATES / template).read_text()
        (dist / place).write_text(text.replace("@VERSION@", version).replace("@SONAME@", SONAME))


def write_all(linked: Linked, manifest: dict, runtime: Path, scratch: Path) -> Path:
    """Everything a build leaves, in a folder with the checkout's layout: dist/ and the files added to runtime/."""
    project, made = scratch / "project", scratch / "made"
    make_project(linked, unusual(manifest), runtime, project)
    write_install_tree(linked, manifest["version"], made / "dist")
    write_manifest(manifest, made / "dist")
    make_wheel(project, made / "dist")
    package = made / "runtime" / "libgemm"
    package.mkdir(parents=True)
    for name in BUILT:
        (project / "libgemm" / name).rename(package / name)
    return made
