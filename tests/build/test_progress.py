"""What the build says while it compiles where there is no terminal, and how long `make` says it took."""

import io
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

from build.progress import Bar, Lines, in_words, progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_seconds_in_words():
    known = {0.4: "0 s", 59.6: "1 min 0 s", 130: "2 min 10 s", 594: "9 min 54 s", 3725: "1 h 2 min"}
    assert {seconds: in_words(seconds) for seconds in known} == known


def test_a_log_gets_a_line_now_and_then_and_the_last_one():
    clock, log = Clock(), io.StringIO()
    lines = Lines(1574, log, clock)
    for second in (1, 9, 130, 131, 139.9):
        clock.now = 100.0 + second
        lines.advance(1, failed=0)
    assert log.getvalue() == "compiled 3 of 1574 kernels, 2 min 10 s, about 18 h 54 min left\n"
    while lines.finished < 1574:
        lines.advance(1, failed=2)
    assert log.getvalue().splitlines()[1:] == ["compiled 1574 of 1574 kernels, 2 min 20 s, 2 failed"]


def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines():
    terminal, pipe = Terminal(), io.StringIO()
    for stream, kind in ((terminal, Bar), (pipe, Lines)):
        shown = progress(1, stream)
        assert isinstance(shown, kind)
        shown.advance(1, failed=0)
        shown.close()
    assert "1/1" in terminal.getvalue() and pipe.getvalue() == "compiled 1 of 1 kernels, 0 s\n"


@pytest.mark.parametrize(("target", "commands"), [("build", 1), ("test", 2)])
@pytest.mark.parametrize("status", [0, 3])
def test_make_says_how_long_it_took_whether_it_worked_or_not(tmp_path, target, commands, status):
    """With the repository's Makefile, and a .venv whose Python does nothing."""
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho ran $2\nexit {status}\n")
    python.chmod(0o755)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "bootstrap.py").touch()
    done = subprocess.run(["make", target, f"PYTHON={sys.executable}"], cwd=tmp_path, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    ran = [line for line in lines if line.startswith("ran ")]
    assert ran == (["ran build"] if status else ["ran build", "ran pytest"][:commands])
    assert any(line.startswith(f"make {target} took 0 min ") for line in lines)
    assert (done.returncode == 0) == (status == 0)
