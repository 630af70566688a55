"""When a build finds dist/ unchanged: every input counts, every product is looked at. Builds nothing."""

import json
import sys

import pytest
from build_work import checkout

import build.compiler
import build.stamp
from build.compile_all import BuildError
from build.compiler import Compiler
from build.stamp import inputs, record, up_to_date


def append(name: str):
    """A change of one of our lists of flags."""
    return lambda patch, root: patch.setattr(build.compiler, name, [*getattr(build.compiler, name), "-DNEW"])


def variable(name: str, value: str):
    return lambda patch, root: patch.setenv(name, value)


def upgraded(patch, root) -> None:
    """The same compiler command, of another version."""
    (root / "cc").write_text("#!/bin/sh\necho gcc 99\n")


def edited(patch, root) -> None:
    (root / "runtime" / "libgemm" / "_args.py").write_text("")


def other_package(patch, root) -> None:
    patch.setattr(build.stamp.importlib.metadata, "version", lambda name: "99" if name == "hatchling" else "1")


CHANGES = {
    "our CFLAGS": append("CFLAGS"),
    "our LDFLAGS": append("LDFLAGS"),
    "our LIBRARIES": append("LIBRARIES"),
    "CC": variable("CC", "cc"),
    "CFLAGS": variable("CFLAGS", "-O3"),
    "LDFLAGS": variable("LDFLAGS", "-Wl,-O2"),
    "CFLAGS as LDFLAGS": lambda patch, root: (
        variable("CFLAGS", "")(patch, root),
        variable("LDFLAGS", "-g")(patch, root),
    ),
    "the compiler's version": upgraded,
    "Python's version": lambda patch, root: patch.setattr(sys, "version", "3.99"),
    "a package's version": other_package,
    "a source file": edited,
    "a new file": lambda patch, root: (root / "runtime" / "libgemm" / "new.py").write_text(""),
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout, a compiler in it that tells its version, and flags that the user set."""
    (tmp_path / "cc").write_text("#!/bin/sh\necho gcc 98\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setenv("CFLAGS", "-g")
    monkeypatch.delenv("LDFLAGS", raising=False)
    return checkout(tmp_path)


def key(root, build_id: str = "0") -> str:
    return inputs(build_id, Compiler.of_environment().identity(), root)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_input_makes_the_build_run_again(root, monkeypatch, change):
    before = key(root)
    assert key(root) == before
    CHANGES[change](monkeypatch, root)
    assert key(root) != before


def test_other_kernels_make_the_build_run_again_and_what_tools_leave_does_not(root):
    before = key(root)
    assert key(root, "1") != before
    for name in ("libgemm/_lib/libgemm.so", "libgemm/_ffi.py", "libgemm/__pycache__/ops.pyc", ".mypy_cache/ops.json"):
        (root / "runtime" / name).parent.mkdir(exist_ok=True)
        (root / "runtime" / name).write_text("x")
    assert key(root) == before


def test_a_compiler_that_cannot_tell_its_version_is_named(root):
    (root / "cc").write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    with pytest.raises(BuildError, match=r"/cc --version failed: broken"):
        key(root)


def test_a_changed_product_makes_the_build_run_again(tmp_path):
    product, stamp = tmp_path / "dist" / "libgemm.so", tmp_path / "stamp.json"
    product.parent.mkdir()
    product.write_bytes(b"library")
    (product.parent / "manifest.json").write_text("of one commit")
    stamp.write_text(record("k", tmp_path))
    assert list(json.loads(stamp.read_text())["files"]) == ["dist/libgemm.so"]
    (product.parent / "manifest.json").write_text("of another")
    assert up_to_date(stamp, "k", tmp_path)
    assert not up_to_date(stamp, "other", tmp_path)
    product.write_bytes(b"doctored")
    assert not up_to_date(stamp, "k", tmp_path)
    product.unlink()
    assert not up_to_date(stamp, "k", tmp_path)
    stamp.write_text("{")
    assert not up_to_date(stamp, "k", tmp_path)
