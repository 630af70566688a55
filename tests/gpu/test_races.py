"""What tests/gpu/races.py accepts and refuses, on small reports and made-up machine code. No GPU, no library."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from machine_code import BAR, DISPATCH, GROUP, MESSAGE, RING, doctored, numbered, places

from tests.gpu.orders import Orders
from tests.gpu.races import Pair, handed_on, judge, read_report, read_reports

LAST = places(DISPATCH, "STS.64")[1]
(LOAD, _) = places(DISPATCH, "LDS.U8")

RACES = """\
========= COMPUTE-SANITIZER
build 77aa on NVIDIA H200, sm_90: once, part 1/2
now v1
========= Error: Race reported between Write access at gemm_ws+0x90
=========     and Read access at gemm_ws+0xe0 [512 hazards]
=========
   4 s  100 done, 0 failed, now once 100
now v2
========= Warning: Race reported between Read access at gemm_ws+0xe0
=========     and Write access at gemm_ws+0x10 [4 hazards]
=========     and Write access at gemm_ws+0x90 in kernel.py:12 [1 hazard]
=========
300 passed, 0 failed in 250.1 s on NVIDIA H200; wrote /tmp/gpu_NVIDIA_H200.json
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
HAZARDS = """\
========= Error: Potential RAW hazard detected at __shared__ 0x38160 in block (0,0,0) :
=========     Write Thread (0,0,0) at gemm_ws+0x90
=========     Read Thread (128,0,0) at gemm_ws+0xe0
=========     Current Value : 4, Incoming Value : 0
=========
"""
CLEAN = """\
========= COMPUTE-SANITIZER
build 77aa on NVIDIA H200, sm_90: once, part 2/2
299 passed, 0 failed in 240.0 s on NVIDIA H200; wrote /tmp/gpu_NVIDIA_H200.json
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""


def test_a_report_gives_its_pairs():
    report = read_report(RACES)
    first = Pair("gemm_ws", 0x90, 0xE0, "v1")
    assert report.pairs == {first, Pair("gemm_ws", 0x90, 0xE0, "v2"), Pair("gemm_ws", 0x10, 0xE0, "v2")}
    assert (report.build, report.device, report.target) == ("77aa", "NVIDIA H200", 90)
    assert (report.check, report.passed, report.unfinished) == ("once", 300, False)
    hazards = RACES[: RACES.index("now v2")] + HAZARDS + CLEAN[CLEAN.index("299") :].replace(": 0 h", ": 2 h")
    assert read_report(hazards).pairs == {first}
    assert read_reports({"one": RACES, "two": CLEAN})[1] == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (RACES, "", "the suite's first line stands 0 times"),
        ("========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n", "", "0 lines RACECHECK SUMMARY"),
        ("SUMMARY: 2", "SUMMARY: 3", "speak of 3 hazards, 2 are printed"),
        ("0 failed in", "1 failed in", "the suite did not pass"),
        ("H200; wrote", "H200, out of time; wrote", "the suite did not pass"),
        ("300 passed, 0 failed in", "", "the suite's last line stands 0 times"),
        ("once, part", "once; part", "the suite's first line stands 0 times"),
        ("=========     and Read access at gemm_ws+0xe0 [512 hazards]\n", "", "whose accesses cannot be read"),
        ("Write access at gemm_ws+0x90\n", "Write access at 0x90 in gemm_ws\n", "whose accesses cannot be read"),
        ("Error: Race reported", "Error: Something else", "the tool said: Error: Something else"),
        ("=========\n300", "========= 1 error was not printed\n300", "the tool said: 1 error was not printed"),
    ],
)
def test_a_report_that_is_not_whole_or_says_more_is_refused(old, new, words):
    assert old in RACES
    (problem,) = read_reports({"file": RACES.replace(old, new), "two": CLEAN})[1][:1]
    assert problem.startswith("file: ") and words in problem


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("and Write access at gemm_ws", "gemm_ws: write at 0x90 and write at 0xe0"),
        ("and Read access at gemm", "gemm_ws and gemm: write at 0x90 and read at 0xe0"),
    ],
)
def test_a_race_of_other_accesses_is_kept_beside_the_pairs(new, words):
    changed = RACES.replace("and Read access at gemm_ws", new, 1)
    report = read_report(changed)
    assert report.others == (f"{words} are not a write and a read of one kernel",)
    assert read_report(RACES).others == () and len(report.pairs) == len(read_report(RACES).pairs) - 1


def test_all_parts_of_one_run_are_wanted():
    assert read_reports({"one": RACES})[1] == ["once: part 2/2 is missing"]
    other = CLEAN.replace("build 77aa", "build 88bb")
    assert any("different runs" in problem for problem in read_reports({"one": RACES, "two": other})[1])


def test_each_check_has_parts_of_its_own():
    layers = CLEAN.replace("once, part 2/2", "whole_layers, part 1/1")
    assert read_reports({"one": RACES, "two": CLEAN, "three": layers})[1] == []
    assert read_reports({"one": RACES, "three": layers})[1] == ["once: part 2/2 is missing"]
    thirds = CLEAN.replace("part 2/2", "part 2/3")
    assert read_reports({"one": RACES, "two": thirds})[1][0] == "once: part 2/2 is missing"


def test_a_check_whose_time_was_up_counts_where_that_is_asked_for():
    late = RACES.replace("H200; wrote", "H200, out of time; wrote")
    reports, problems = read_reports({"one": late, "two": CLEAN}, unfinished=True)
    assert problems == [] and [r.unfinished for r in reports] == [True, False]
    failed = late.replace("0 failed in", "1 failed in")
    assert "did not pass" in read_reports({"one": failed, "two": CLEAN}, unfinished=True)[1][0]


def test_a_pair_is_held_against_the_variant_named_before_it():
    pair = Pair("gemm_ws", LAST, LOAD, "v1")
    good, bad = Orders(numbered(DISPATCH)), Orders(numbered(doctored(BAR, GROUP, 3)))
    assert judge({pair}, {"gemm_ws": {"v1": good, "v2": bad}}) == []
    assert "of v1: no barrier" in judge({pair}, {"gemm_ws": {"v1": bad, "v2": good}})[0]


def test_a_pair_that_the_named_variant_cannot_have_is_held_against_every_other():
    pair = Pair("gemm_ws", LAST, LOAD, "v1")
    good, bad = Orders(numbered(DISPATCH)), Orders(numbered(doctored(BAR, GROUP, 3)))
    elsewhere = Orders(numbered(" NOP ;\n" + DISPATCH))  # there these places hold other things
    assert judge({pair}, {"gemm_ws": {"v1": elsewhere, "v2": good}}) == []
    assert "of v3: no barrier" in judge({pair}, {"gemm_ws": {"v1": elsewhere, "v2": good, "v3": bad}})[0]
    assert "no such accesses of shared memory in any" in judge({pair}, {"gemm_ws": {"v1": elsewhere}})[0]
    assert judge({pair}, {}) == ["gemm_ws: write at 0x90, read at 0xe0: this library has no such kernel"]


def test_stages_and_messages_that_one_thread_hands_on_are_accepted_and_counted():
    (write,), (read,) = places(RING, "LDGSTS.E"), places(RING, "LDS")
    stage, other = Pair("ring", write, read, "v1"), Pair("gemm_ws", LAST, LOAD, "v1")
    programs = {"ring": {"v1": Orders(numbered(RING))}, "gemm_ws": {"v1": Orders(numbered(DISPATCH))}}
    assert judge({stage, other}, programs) == [] and handed_on({stage, other}, programs) == 1
    (write,), (read,) = places(MESSAGE, "STS.128"), places(MESSAGE, "LDS")
    programs["queue"] = {"v1": Orders(numbered(MESSAGE))}
    assert judge({Pair("queue", write, read, "v1")}, programs) == []
    assert handed_on({stage, other, Pair("queue", write, read, "v1")}, programs) == 2
