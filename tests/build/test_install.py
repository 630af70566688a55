"""dist/ and what `make install` copies of it: found by pkg-config and CMake wherever it stands. Runs no kernel."""

import errno
import os
import shutil
import subprocess

import pytest
from stand_in import ROOT, environment

from build import install
from build.publish import files_in
from build.tree import TEXTS

TREE = {"lib/libgemm.so", "lib/libgemm.so.1", "include/libgemm.h", *TEXTS.values()}


def make(*words: str) -> subprocess.CompletedProcess:
    """As from a shell: the `make` that runs these tests passes its own words down."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", "install", *words], cwd=ROOT, env=env, capture_output=True, text=True)


def names(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in files_in(folder)}


@pytest.fixture
def moved(dist, tmp_path):
    """What was installed for one prefix, and then moved to another place."""
    done = make("PREFIX=/opt/libgemm", f"DESTDIR={tmp_path}/stage")
    assert done.returncode == 0, done.stderr
    return (tmp_path / "stage/opt/libgemm").rename(tmp_path / "elsewhere")


def test_dist_is_an_install_tree(dist, manifest):
    assert names(dist) - {path.name for path in dist.glob("*.whl")} == TREE | {"manifest.json"}
    assert os.readlink(dist / "lib" / "libgemm.so") == "libgemm.so.1"
    for name in TEXTS.values():
        assert "@" not in (dist / name).read_text()


def test_make_install_copies_the_library_the_header_and_what_finds_them(dist, moved):
    assert names(moved) == TREE
    assert os.readlink(moved / "lib" / "libgemm.so") == "libgemm.so.1"
    for name in TREE:
        assert (moved / name).read_bytes() == (dist / name).read_bytes()
        assert (moved / name).stat().st_mode & 0o777 == 0o644
    assert set(make(f"PREFIX={moved}").stdout.split()) == {str(moved / name) for name in TREE}  # over the old one


def test_a_program_is_built_by_pkg_config_from_the_moved_tree(moved, manifest):
    if not shutil.which("pkg-config"):
        pytest.skip("pkg-config is not installed")
    words = environment(driver=False, PKG_CONFIG_PATH=moved / "lib" / "pkgconfig")
    ask = ["pkg-config", "--modversion", "libgemm"]
    assert subprocess.run(ask, env=words, capture_output=True, text=True).stdout.strip() == manifest["version"]
    line = (
        f"cc {ROOT}/examples/gemm.c $(pkg-config --cflags --libs libgemm) -ldl -Wl,-rpath,{moved}/lib -o {moved}/gemm"
    )
    subprocess.run(line, shell=True, env=words, check=True)
    done = subprocess.run([moved / "gemm"], env=environment(driver=False), capture_output=True, text=True)
    assert done.stdout.startswith("LIBGEMM_NO_DRIVER: ")


def test_a_bad_prefix_and_an_empty_dist_are_named(dist, tmp_path):
    done = make("PREFIX=opt/libgemm", f"DESTDIR={tmp_path}")
    assert "install failed: PREFIX = 'opt/libgemm': allowed is an absolute path" in done.stderr and done.returncode
    with pytest.raises(install.InstallError, match="holds no build: run `make build` first"):
        install.install(tmp_path, "/opt", str(tmp_path))
    assert not any(tmp_path.iterdir())


def test_a_full_disk_leaves_what_was_installed_and_a_sentence(dist, moved, monkeypatch, capsys):
    (moved / "lib" / "libgemm.so.1").write_text("old")
    before = {path: path.read_bytes() for path in files_in(moved)}
    replace, seen = os.replace, []

    def fail(source, to):
        seen.append(to)
        if len(seen) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(to))
        replace(source, to)

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr("sys.argv", ["install", str(moved), ""])
    assert install.main() == 1
    said = capsys.readouterr()
    assert said.err.startswith("install failed: No space left on device: ") and "nothing was installed" in said.err
    assert said.out == "" and {path: path.read_bytes() for path in files_in(moved)} == before


FIND = """\
cmake_minimum_required(VERSION 3.16)
project(find C)
find_package(libgemm {})
message(STATUS "found: ${{libgemm_FOUND}} ${{libgemm_VERSION}}")
if(libgemm_FOUND)
  find_package(libgemm REQUIRED)  # twice, as two parts of a project may
  get_target_property(place libgemm::libgemm IMPORTED_LOCATION)
  message(STATUS "place: ${{place}}")
endif()
"""


def find(folder, prefix, words: str) -> str:
    """What CMake says of find_package with these words."""
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(FIND.format(words))
    done = subprocess.run(["cmake", "-S", ".", "-B", "b", f"-DCMAKE_PREFIX_PATH={prefix}"], cwd=folder,
                          capture_output=True, text=True)  # fmt: skip
    return done.stdout + done.stderr


def test_cmake_finds_the_versions_that_this_one_serves(moved, tmp_path):
    major, minor, patch = map(
        int, (moved / TEXTS["libgemm.pc.in"]).read_text().split("Version: ")[1].split()[0].split(".")
    )
    this = f"{major}.{minor}.{patch}"
    served = [
        "",
        f"{major}.{minor}",
        this,
        f"{this} EXACT",
        f"{major}.{minor}...{major + 1}",
        f"{major}.{minor}...<{major}.{minor + 1}",
    ]
    refused = [
        f"{major}.{minor + 1}",
        f"{major + 1}",
        f"{major}.{minor} EXACT" if patch else f"{major}.{minor}.1",
        f"{major}.0...<{this}",
    ]
    for i, words in enumerate(served):
        said = find(tmp_path / f"served{i}", moved, words)
        assert f"found: 1 {this}" in said and f"place: {moved}/lib/libgemm.so.1" in said, (words, said)
    for i, words in enumerate(refused):
        assert "found: 0" in find(tmp_path / f"refused{i}", moved, words), words


def test_cmake_names_what_is_missing(moved, tmp_path):
    (moved / "lib" / "libgemm.so.1").unlink()
    said = find(tmp_path / "broken", moved, "")
    assert (
        f"{moved}/lib/libgemm.so.1 is missing: install libgemm again" in " ".join(said.split()) and "found: 0" in said
    )
