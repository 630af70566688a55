"""The words about GPU reports, and the shape of the committed ones. Whether a report is stale fails nothing here."""

import json

import pytest
from conftest import ROOT, bench_words, report_words

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
    for name, build in (("a.json", "a"), ("b.json", "b")):
        (folder / "results" / name).write_text(json.dumps({"build_id": build * 64}))
    current, stale = bench_words(folder / "results", folder / "manifest.json")
    assert current == "benchmark a.json speaks of this build aaaaaaaaaaaaaaaa"
    assert stale.startswith("benchmark b.json is STALE")


def test_a_missing_report_is_said_to_be_missing(folder):
    (line,) = words(folder)
    assert line.startswith("no GPU report")


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "results").glob("gpu_*.json")), ids=lambda p: p.name)
def test_a_committed_report_passed_and_names_what_it_ran(path):
    report = json.loads(path.read_text())
    assert report["failed"] == 0
    assert report["problems"] == []
    assert report["passed"] > 1000
    assert report["triton"] == "not importable"
    assert len(report["build_id"]) == 64
    assert len(report["commit"]) >= 40
