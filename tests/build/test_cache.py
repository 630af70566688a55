"""What decides a cubin is in its cache key, and nothing else is; the compiler sees a known environment."""

import dataclasses
import importlib.metadata
import os
import shutil
import subprocess
import sys

import pytest
from sample import ROOT, sample_rows

import build.cache
from aot import compile as aot_compile
from aot.compile import CompileError, compile_variant
from build.cache import Cache
from kernels.table.families import FAMILIES
from kernels.table.spec import Config
from kernels.table.targets import TARGETS
from kernels.table.variants import variants

VARIANT = sample_rows()[0][0]
SMALL = dataclasses.replace(
    VARIANT, config=Config(16, 16, 16, warps=4, stages=1), kernel="portable.gemm.gemm", guard=()
)


def key(folder, variant=VARIANT) -> str:
    return Cache(folder, 580).key(variant)


def test_the_key_follows_everything_of_a_variant_that_decides_its_cubin(tmp_path):
    config = dataclasses.replace(VARIANT.config, stages=VARIANT.config.stages + 1)
    changed = [
        dataclasses.replace(VARIANT, **change) for change in ({"config": config}, {"target": 100}, {"guard": ()})
    ]
    keys = {key(tmp_path), Cache(tmp_path, 525).key(VARIANT), *(key(tmp_path, variant) for variant in changed)}
    assert len(keys) == 5
    assert key(tmp_path, dataclasses.replace(VARIANT, rate=1)) == key(tmp_path)  # dispatch data is not in a cubin


def test_the_key_follows_the_registers_that_a_family_may_take(tmp_path, monkeypatch):
    before = key(tmp_path)
    monkeypatch.setitem(FAMILIES, VARIANT.kernel, dataclasses.replace(VARIANT.family, registers=80))
    assert key(tmp_path) != before


def test_the_key_follows_the_assembler_of_the_target(tmp_path):
    by_default, new, old = (Cache(tmp_path, release) for release in (None, 580, 525))
    for target, like in ((90, old), (100, new)):
        variant = variants((target,))[0]
        assert [c.key(variant) == by_default.key(variant) for c in (old, new)] == [c is like for c in (old, new)]


def test_the_key_follows_the_assembler_of_the_target_whose_text_is_taken(tmp_path):
    """A build that was asked for another driver must not leave its kernels to one that was not."""
    taken = next(v for v in variants((100,)) if v.problem.op == "cast_rows")
    assert len({Cache(tmp_path, release).key(taken) for release in (None, 580, 525)}) == 3


def test_the_key_follows_the_architecture_that_the_assembler_is_told(tmp_path, monkeypatch):
    before = key(tmp_path)
    monkeypatch.setitem(TARGETS, 90, dataclasses.replace(TARGETS[90], suffix=""))
    assert key(tmp_path) != before


@pytest.mark.parametrize("name", ["sm90/gemm.py", "sm90/loader.py", "sm90/epilogue.py", "portable/tiles.py"])
def test_the_key_follows_the_text_of_the_kernel_and_of_what_it_imports(tmp_path, monkeypatch, name):
    variant = next(v for v in variants((90,)) if v.kernel == "sm90.gemm.gemm_coop")
    device = tmp_path / "device"
    shutil.copytree(ROOT / "kernels" / "device", device)
    for module in (aot_compile, build.cache):
        monkeypatch.setattr(module, "DEVICE", device)
    before = key(tmp_path, variant)
    (device / "sm90" / "gemm_cluster.py").write_text("# no part of it\n")
    assert key(tmp_path, variant) == before
    with (device / name).open("a") as text:
        text.write("# one more line\n")
    assert key(tmp_path, variant) != before


def test_the_key_follows_triton_its_environment_and_the_files_that_drive_it(tmp_path, monkeypatch):
    keys = {key(tmp_path)}
    version = importlib.metadata.version
    with monkeypatch.context() as m:
        m.setattr(importlib.metadata, "version", lambda name: "3.9.1" if name == "triton" else version(name))
        keys.add(key(tmp_path))
    with monkeypatch.context() as m:
        m.setitem(build.cache.ENVIRONMENT, "TRITON_DEFAULT_FP_FUSION", "0")
        keys.add(key(tmp_path))
    for name in build.cache.DRIVERS:
        folder = tmp_path / name
        (folder / "aot").mkdir(parents=True)
        for other in build.cache.DRIVERS:
            text = (ROOT / "aot" / other).read_text() + ("# changed\n" if other == name else "")
            (folder / "aot" / other).write_text(text)
        with monkeypatch.context() as m:
            m.setattr(build.cache, "ROOT", folder)
            keys.add(key(tmp_path))
    assert len(keys) == 3 + len(build.cache.DRIVERS)


# Each changes the cubin, or stops the compiler, where it is seen.
LEFT_OVER = {
    "DISABLE_PTXAS_OPT": "1", "DISABLE_LLVM_OPT": "1", "PTXAS_OPTIONS": "--opt-level 0", "TRITON_DEBUG": "1",
    "TRITON_DEFAULT_FP_FUSION": "0", "TRITON_DISABLE_LINE_INFO": "0", "TRITON_OVERRIDE_ARCH": "sm80",
    "TRITON_PTXAS_PATH": "/nonexistent/ptxas",
}  # fmt: skip
SCRIPT = """
import dataclasses, os, sys
from aot.compile import compile_variant
from kernels.table.spec import Config, Problem, Variant
problem = Problem("gemm", "f16", "f16", "exact", "nt")
before = dict(os.environ)
print(compile_variant(Variant(problem, Config(16, 16, 16, warps=4, stages=1), "portable.gemm.gemm", 90)).sha256)
assert dict(os.environ) == before
"""


def sha256_under(tmp_path, **variables: str) -> str:
    home = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=home | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_is_left_over_from_debugging_does_not_reach_the_compiler(tmp_path):
    assert sha256_under(tmp_path, **LEFT_OVER) == sha256_under(tmp_path)


@pytest.mark.parametrize(
    ("place", "field", "value", "name"),
    [("runtime", "debug", True, "TRITON_DEBUG"),
     ("compilation", "instrumentation_mode", "consan", "TRITON_INSTRUMENTATION_MODE")],
)  # fmt: skip
def test_what_triton_read_when_it_was_imported_is_refused_by_name(monkeypatch, place, field, value, name):
    import triton

    monkeypatch.setattr(getattr(triton.knobs, place), field, value)
    with pytest.raises(CompileError, match=f"{name} = {value!r} when Triton was imported"):
        compile_variant(SMALL)


def test_the_environment_is_put_back_also_after_a_failure(monkeypatch):
    monkeypatch.setenv("LIBGEMM_TEST_WORD", "kept")
    before = dict(os.environ)
    with pytest.raises(CompileError):
        compile_variant(dataclasses.replace(SMALL, config=Config(16, 16, 8, warps=4, stages=1)))
    assert dict(os.environ) == before
