"""Formatting and lint of all sources, by the pinned tools. Says nothing about behaviour."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
C_FOLDERS = ("aot/csrc", "bench", "examples", "tests")
C_SOURCES = sorted(p for f in C_FOLDERS for s in ("*.c", "*.h", "*.cpp") for p in (ROOT / f).rglob(s))


def run(*command: str) -> str:
    done = subprocess.run([str(Path(sys.executable).parent / command[0]), *command[1:]], cwd=ROOT,
                          capture_output=True, text=True)  # fmt: skip
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("command", [("ruff", "check", "."), ("ruff", "format", "--check", ".")], ids=" ".join)
def test_python_is_clean(command):
    assert run(*command) == ""


def test_the_package_and_a_caller_have_their_types():
    assert run("mypy") == ""


def test_a_caller_who_takes_it_wrong_is_told(tmp_path):
    wrong = tmp_path / "wrong.py"
    lines = (
        "variant, reason = libgemm.explain(8, 8, 8)",
        'libgemm.gemm(1, 2, activation="tanh")',
        "libgemm.info()['x']",
    )
    wrong.write_text("\n".join(("import libgemm", *lines)) + "\n")
    said = run("mypy", str(wrong))
    assert [f"wrong.py:{i}: error" in said for i in range(1, 5)] == [False, True, True, True], said


def test_c_is_formatted():
    handwritten = [str(p) for p in C_SOURCES if "golden" not in p.parts]
    assert len(handwritten) > 10
    assert run("clang-format", "--dry-run", "--Werror", *handwritten) == ""


def test_the_tree_has_its_licence_and_its_manuals():
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", ".ci/run"):
        assert (ROOT / name).stat().st_size > 100, name
