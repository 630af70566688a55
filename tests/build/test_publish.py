"""Files put into place together: all or none, whatever step fails; a build that is stopped or killed; two at once."""

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import build_work
import pytest
from build_work import SECONDS, change, checkout, command, contents, environment, process
from sample import ROOT

import build.tune.library
from build.link import CSRC
from build.publish import NotPutBackError, files_in, publish, sweep

SOURCES = len(files_in(CSRC))


def full_disk(monkeypatch, where, name: str, nth: int) -> None:
    """Let the n-th call of a function find no space. Later ones work: what is put back must not need any."""
    work, seen = getattr(where, name), []

    def fail(*arguments, **options):
        seen.append(arguments)
        if len(seen) == nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))
        return work(*arguments, **options)

    monkeypatch.setattr(where, name, fail)


@pytest.fixture
def places(tmp_path):
    """Two old files, a link, and one that shall go; and the new files of the first three and of a fourth."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        for name in ("a", "b"):
            (folder / name).write_text(f"{name} of {folder.name}")
        (folder / "link").symlink_to("a" if folder == new else "b")
    (old / "gone").write_text("gone")
    (new / "more").write_text("more")
    return old, {old / name: new / name for name in ("a", "b", "link", "more")}


def state(folder: Path) -> dict:
    return {p.name: os.readlink(p) if p.is_symlink() else p.read_text() for p in folder.iterdir()}


def test_all_files_get_their_places(places):
    old, files = places
    publish(files, [old / "gone", old / "never was"])
    assert state(old) == {"a": "a of new", "b": "b of new", "link": "a", "more": "more"}


@pytest.mark.parametrize(
    ("where", "name", "nth"),
    [(shutil, "copyfile", nth) for nth in range(1, 9)]  # four new files, four old ones
    + [(os, "replace", nth) for nth in range(1, 5)]
    + [(Path, "unlink", 1)],
)
def test_a_full_disk_at_any_step_leaves_everything_as_it_was(places, monkeypatch, where, name, nth):
    old, files = places
    before = state(old)
    with monkeypatch.context() as patch:
        full_disk(patch, where, name, nth)
        with pytest.raises(OSError, match="No space left"):
            publish(files, [old / "gone"])
    assert state(old) == before


def test_what_cannot_be_put_back_is_named(places, monkeypatch):
    old, files = places
    with monkeypatch.context() as patch:
        full_disk(patch, os, "replace", 3)
        full_disk(patch, os, "replace", 4)  # then the first that is put back, whose rename had failed
        with pytest.raises(
            NotPutBackError, match=r"^not put back as it was is \S+/old/link \(No space left on device\)$"
        ):
            publish(files)
    assert state(old) == {"a": "a of old", "b": "b of old", "link": "b", "gone": "gone"}


def test_sweeping_removes_only_what_a_killed_publisher_left(tmp_path):
    (tmp_path / "lib").mkdir()
    for name in (".libgemm.so.1.0a0a0a0a-new.partial", ".kept", "kept.partial"):
        (tmp_path / "lib" / name).write_text("x")
    sweep(tmp_path)
    assert set(state(tmp_path / "lib")) == {".kept", "kept.partial"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A checkout that holds a build, and the output of that build."""
    root = checkout(tmp_path_factory.mktemp("built"))
    done = process(root)
    assert done.returncode == 0, done.stderr
    return root, done.stdout


@pytest.fixture
def root(built, tmp_path):
    return shutil.copytree(built[0], tmp_path / "root", symlinks=True)


def test_a_build_says_what_it_made_and_a_second_one_that_nothing_changed(built, root):
    lines = built[1].splitlines()
    assert re.fullmatch(r"dist/lib/libgemm\.so built: \d+ variants for sm 80, \d+\.\d MB, build [0-9a-f]{16}", lines[0])
    assert re.fullmatch(r"dist/libgemm-[\d.]+\+g[0-9a-f]{8}\.sm80-py3-none-\w+\.whl: \d+\.\d MB", lines[1])
    before = contents(root)
    assert process(root).stdout.splitlines() == [lines[0].replace("built", "unchanged"), lines[1]]
    assert contents(root) == before


def test_what_other_builds_left_in_dist_goes_and_the_users_own_files_stay(root):
    for name in ("libgemm.so", "libgemm-0.1.0-py3-none-any.whl", "mine.txt"):
        (root / "dist" / name).write_text("x")
    change(root)
    assert process(root).returncode == 0
    assert not (root / "dist" / "libgemm.so").exists() and (root / "dist" / "mine.txt").exists()
    assert len(list((root / "dist").glob("*.whl"))) == 1


@pytest.mark.parametrize(
    ("where", "name", "nth"),
    [
        (build_work.build_main.tempfile, "mkdtemp", 1),  # the build's folder
        (build_work.build_main.tempfile, "mkdtemp", 2),  # the linker's
        (Path, "write_bytes", 1),  # C text for the compiler
        (shutil, "copytree", 1),  # the Python package
        (shutil, "copyfile", 1),  # C sources for the compiler
        (shutil, "copyfile", SOURCES + 1),  # the library into the package
        (Path, "write_text", 3),  # its header or facts
        (Path, "symlink_to", 1),  # dist/lib/libgemm.so
        (shutil, "copyfile", SOURCES + 12),  # beside a place
        (os, "replace", 1),  # the first rename, and one after the library's
        (os, "replace", 9),
    ],
)
def test_a_full_disk_leaves_the_old_library_and_a_sentence(root, monkeypatch, capsys, where, name, nth):
    monkeypatch.setenv("TARGETS", "80")
    monkeypatch.setattr(sys, "argv", ["build"])
    monkeypatch.setattr(build_work.build_main, "compile_all", build_work.made_up)
    change(root)
    before = contents(root)
    with monkeypatch.context() as patch:
        full_disk(patch, where, name, nth)
        assert build_work.build_main.main(lambda: build_work.build_main.build(root)) == 1
    words = capsys.readouterr().err.strip()
    assert words.startswith("build failed: No space left on device: ")
    assert words.endswith("dist/ and the Python package are as they were") and "\n" not in words
    assert contents(root) == before


def test_a_wheel_that_cannot_be_written_leaves_the_old_one_and_a_sentence(root):
    hook = root / "runtime" / "hatch_build.py"
    raising = "    def initialize(self, version, build_data):\n        raise OSError(28, 'No space left on device')\n"
    hook.write_text(hook.read_text().replace("    def initialize(self, version, build_data):\n", raising))
    before = contents(root)
    done = process(root)
    words = "build failed: the wheel was not built: OSError: [Errno 28] No space left on device"
    assert (done.returncode, done.stderr.strip()) == (1, words)
    assert contents(root) == before


def test_a_build_killed_while_it_links_leaves_the_old_library(root, tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && exec cc --version\nkill -9 $PPID\n')
    compiler.chmod(0o755)
    before = contents(root)
    assert process(root, CC=str(compiler)).returncode == -9
    assert {name: data for name, data in contents(root).items() if "/making-" not in name} == before
    assert "dist/lib/libgemm.so built" in process(root, CFLAGS="-O1").stdout  # and clears what the killed one left
    assert set(contents(root)) == {re.sub(r"\+g\w{8}", wheel_word(root), name) for name in before}


def wheel_word(root: Path) -> str:
    (wheel,) = (root / "dist").glob("*.whl")
    return re.search(r"\+g\w{8}", wheel.name)[0]


@pytest.mark.parametrize("count", [2, 9])
def test_a_build_killed_between_renames_leaves_whole_files_and_the_next_one_mends_them(root, tmp_path, count):
    change(root)
    other = shutil.copytree(root, tmp_path / "other", symlinks=True)
    assert process(other).returncode == 0
    old, new = contents(root), contents(other)
    assert process(root, f"rename:{count}").returncode == -9
    for name, data in contents(root).items():
        assert "/making-" in name or name.endswith(".partial") or data in (old.get(name), new.get(name)), name
    assert "dist/lib/libgemm.so built" in process(root).stdout
    assert contents(root) == new


def test_a_second_build_waits_for_the_first_and_says_whom_it_waits_for(root):
    change(root)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen(command(root, "compile"), env=environment(), **pipes)
    assert first.stdout.readline() == "at compile\n"
    second = subprocess.Popen(command(root), env=environment(), **pipes)
    said = second.stderr.readline()
    assert re.search(
        rf"waiting .*build\.lock: process {first.pid} \(.*build_work\.py.*\), since \d{{4}}-\d\d-\d\d ", said
    )
    (root / "go").touch()
    ends = [build.communicate(timeout=SECONDS)[0] for build in (first, second)]
    assert [build.returncode for build in (first, second)] == [0, 0]
    assert "libgemm.so built" in ends[0] and "libgemm.so unchanged" in ends[1]


def test_the_lock_of_a_killed_build_does_not_hold_up_the_next(root):
    killed = subprocess.Popen(command(root, "compile"), env=environment(), stdout=subprocess.PIPE, text=True)
    assert killed.stdout.readline() == "at compile\n"
    killed.kill()
    killed.communicate()
    done = process(root)
    assert (done.returncode, done.stderr) == (0, "")


def test_candidates_are_published_as_a_whole_package(root, monkeypatch, capsys):
    monkeypatch.setattr(build.tune.library, "compile_all", build_work.made_up)
    package = root / ".cache" / "candidates" / "libgemm"
    package.mkdir(parents=True)
    (package / "of_another_build.py").write_text("")
    before = contents(root)
    build.tune.library.build(root)
    assert re.search(rf"{package}: \d+ candidates, build [0-9a-f]{{16}}$", capsys.readouterr().out.strip())
    names = {str(path.relative_to(package)) for path in files_in(package)}
    own = ROOT / "runtime/libgemm"
    sources = {str(path.relative_to(own)) for end in ("*.py", "*.typed") for path in own.rglob(end)}
    built = {"_ffi.py", "_lib/libgemm.so", "_lib/libgemm.h", "_lib/platform.json"}
    assert names == sources | built
    after = {name: data for name, data in contents(root).items() if "/candidates/" not in name}
    assert after == {name: data for name, data in before.items() if "/candidates/" not in name}
