"""The words about GPU reports, and the shape of the committed ones. Whether a report is stale fails nothing here."""

import json

import conftest
import pytest
from conftest import ROOT, bench_words, report_words, unproven_words

REPORT = {"build_id": "a" * 64, "passed": 10, "failed": 0, "device": "NVIDIA H200", "date": "2026-01-01"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"build_id": "a" * 64}))
    (tmp_path / "results").mkdir()
    return tmp_path


def words(folder):
    return report_words(folder / "results", folder / "manifest.json")


def test_a_report_of_this_build_is_said_to_be_current(folder):
    (folder / "results" / "gpu_x.json").write_text(json.dumps(REPORT))
    assert words(folder) == [
        "GPU report gpu_x.json speaks of this build aaaaaaaaaaaaaaaa: 10 passed, 0 failed on NVIDIA H200, 2026-01-01"
    ]


def test_a_report_of_another_build_is_said_to_be_stale(folder):
    (folder / "results" / "gpu_x.json").write_text(json.dumps({**REPORT, "build_id": "b" * 64}))
    (line,) = words(folder)
    assert "STALE" in line
    assert "bbbbbbbbbbbbbbbb" in line
    assert "make gpu-test" in line


def test_a_benchmark_is_said_to_be_current_or_stale(folder):
    for name, build in (("a.json", "a"), ("b.json", "b"), ("c.tutorial.json", "b")):
        (folder / "results" / name).write_text(json.dumps({"build_id": build * 64}))
    current, stale, tutorial = bench_words(folder / "results", folder / "manifest.json")
    assert current == "benchmark a.json speaks of this build aaaaaaaaaaaaaaaa"
    assert stale.startswith("benchmark b.json is STALE (run `make bench`)")
    assert tutorial.startswith("benchmark c.tutorial.json is STALE (run `python bench/measure/tutorial.py`)")


def test_a_missing_report_is_said_to_be_missing(folder):
    (line,) = words(folder)
    assert line.startswith("no GPU report")


@pytest.mark.parametrize("builds", ["", "b", "bc"])
def test_fast_kernels_that_no_report_speaks_of_are_said_to_run_nowhere(folder, builds):
    for build in builds:
        (folder / "results" / f"gpu_{build}.json").write_text(json.dumps({**REPORT, "build_id": build * 64}))
    (line,) = unproven_words(folder / "results", folder / "manifest.json")
    assert line.startswith("NOT RUN: `make test` runs no fast kernel") and "build aaaaaaaaaaaaaaaa" in line
    assert "make gpu-test" in line


def test_of_a_build_that_a_report_speaks_of_nothing_more_is_said(folder):
    for build in "ab":
        (folder / "results" / f"gpu_{build}.json").write_text(json.dumps({**REPORT, "build_id": build * 64}))
    assert unproven_words(folder / "results", folder / "manifest.json") == []
    assert unproven_words(folder / "results", folder / "no such file") == []


class Terminal:
    """What pytest's terminal reporter is told to write."""

    def __init__(self):
        self.lines = []

    def write_line(self, line: str, **markup):
        self.lines.append(line)


@pytest.mark.parametrize(("build", "is_last"), [("a", False), ("b", True)])
def test_the_last_line_of_the_suite_is_that_sentence(folder, monkeypatch, build, is_last):
    monkeypatch.setattr(conftest, "ROOT", folder)
    for name in ("dist", "tests", "bench"):
        (folder / name / "results").mkdir(parents=True)
    (folder / "dist" / "manifest.json").write_text(json.dumps({"build_id": "a" * 64}))
    (folder / "tests" / "results" / "gpu_x.json").write_text(json.dumps({**REPORT, "build_id": build * 64}))
    (folder / "bench" / "results" / "x.json").write_text(json.dumps({"build_id": "a" * 64}))
    terminal = Terminal()
    conftest.pytest_terminal_summary(terminal)
    assert terminal.lines[-1].startswith("NOT RUN:") == is_last and len(terminal.lines) == 2 + is_last


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "results").glob("gpu_*.json")), ids=lambda p: p.name)
def test_a_committed_report_passed_and_names_what_it_ran(path):
    report = json.loads(path.read_text())
    assert report["failed"] == 0
    assert report["problems"] == []
    assert report["passed"] > 1000
    assert report["triton"] == "not importable"
    assert len(report["build_id"]) == 64
    assert len(report["commit"]) >= 40
