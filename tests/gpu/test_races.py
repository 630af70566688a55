"""What tests/gpu/races.py accepts and refuses, on small reports and made-up machine code. No GPU, no library."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.gpu.races import Pair, judge, of_stages, read_report, read_reports
from tests.gpu.sass import Program

# What warp_specialize with one worker comes to: default warps, the workers' loop, one partition.
DISPATCH = """
.text.gemm_ws:
 @P0 BRA `(.L_x_0) ;
 STS.64 [UR8+0x38160], R2 ;
 MOV R3, R4 ;
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
.L_x_10:
 BAR.SYNC.DEFER_BLOCKING 0x0, 0x80 ;
 STSM.16.M88.4 [R92+0x30000], R4 ;
 @!P1 BRA `(.L_x_10) ;
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 STS.64 [UR4+0x38160], R2 ;
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 EXIT ;
.L_x_0:
 S2UR UR4, SR_CgaCtaId ;
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 LDS.U8 R2, [R2+UR28+0x3815c] ;
 ISETP.GT.U32.AND P0, PT, R2, 0x4, PT ;
 @P0 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 @P0 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 @P0 BRA `(.L_x_0) ;
 BRX R2 -0x3c80 (*"BRANCH_TARGETS .L_x_13,.L_x_42"*);
.L_x_13:
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 LDS.U8 R15, [UR32+0x24880] ;
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 BRA `(.L_x_0) ;
.L_x_42:
 EXIT ;
"""


def numbered(text: str) -> str:
    """With an offset before each instruction, as nvdisasm prints them."""
    count = itertools.count(0, 16)
    return "\n".join(f"/*{next(count):04x}*/ {x}" if x.startswith(" ") else x for x in text.splitlines())


def places(text: str, opcode: str) -> list[int]:
    return [16 * i for i, x in enumerate(x for x in text.splitlines() if x.startswith(" ")) if f" {opcode} " in x]


FIRST, LAST = places(DISPATCH, "STS.64")
LOAD, OTHER_LOAD = places(DISPATCH, "LDS.U8")


def verdict(text: str, write: int, read: int) -> str | None:
    return Program(numbered(text)).not_dispatch(write, read)


def doctored(old: str, new: str, place: int = 0) -> str:
    """DISPATCH with the `place`th of these lines another."""
    parts = DISPATCH.split(old)
    return old.join(parts[: place + 1]) + new + old.join(parts[place + 1 :])


@pytest.mark.parametrize("write", [FIRST, LAST])
def test_the_dispatch_is_accepted(write):
    assert verdict(DISPATCH, write, LOAD) is None


BAR = " BAR.SYNC.DEFER_BLOCKING 0x1 ;\n"
# A division's rare cases, from where the default warps store their tile: a subroutine that returns below its call.
DIVISION = """
$__internal_0_$__cuda_div:
 MUFU.RCP R3, R4 ;
 @P0 BRA `(.L_x_60) ;
 FMUL R3, R3, R5 ;
.L_x_60:
 RET.REL.NODEC R20 `(gemm_ws) ;
"""


def dividing(subroutine: str = DIVISION, back: int = 32, call: str = "CALL.REL.NOINC", tell: str = "MOV") -> str:
    """DISPATCH with a call in its loop, told to return `back` bytes behind the instruction that tells it."""
    at = 16 * sum(x.startswith(" ") for x in DISPATCH.partition(" STSM")[0].splitlines())
    made = doctored(" STSM", f" {tell} R20, {at + back:#x} ;\n {call} `($__internal_0_$__cuda_div) ;\n STSM")
    return made + subroutine.lstrip("\n")


def followed(text: str) -> str | None:
    return verdict(text, places(text, "STS.64")[1], places(text, "LDS.U8")[0])


def test_a_call_of_what_only_computes_is_followed():
    assert followed(dividing()) is None


WRITES = " STS [R3], R3 ;\n"
RETURNS = " RET.REL.NODEC R20 `(gemm_ws) ;\n"


@pytest.mark.parametrize(
    "text",
    [
        dividing(back=48),  # it returns elsewhere
        dividing(DIVISION.replace("FMUL R3", "BAR.SYNC.DEFER_BLOCKING 0x1 ;\n FMUL R3")),
        dividing(DIVISION.replace(" FMUL", WRITES + " FMUL")),
        dividing(DIVISION.replace("FMUL R3, R3, R5", "EXIT")),
        dividing(DIVISION.replace("FMUL R3, R3, R5", "CALL.REL.NOINC `($__internal_0_$__cuda_div)")),
        dividing(DIVISION.replace("FMUL R3, R3, R5", "BSYNC B0")),
        dividing(DIVISION.replace(RETURNS, " NOP ;\n")),
        dividing(DIVISION.replace(RETURNS, " @P0" + RETURNS + WRITES + RETURNS)),
        dividing(DIVISION.replace(".L_x_60:", RETURNS + ".L_x_60:\n" + WRITES)),  # where only a jump leads
        dividing(call="@P0 CALL.REL.NOINC"),
        dividing(call="CALL.ABS.NOINC"),
        dividing(tell="POPC"),
        dividing(tell="@P0 MOV"),
        dividing().replace("$__internal_0_$__cuda_div:\n", ""),
        dividing().replace(" CALL", ".L_x_99:\n CALL"),  # something else leads there, and tells it nothing
    ],
)
def test_any_other_call_is_not(text):
    found = followed(text)
    assert found and "not understood: " in found


def test_a_call_may_change_what_was_known_of_a_predicate():
    """A meeting under P1 and one under its contrary are one, but for a call between them."""
    at = 16 * (sum(x.startswith(" ") for x in DISPATCH.partition(BAR + BAR)[0].splitlines()) + 2)
    call = f" MOV R20, {at + 32:#x} ;\n CALL.REL.NOINC `($__internal_0_$__cuda_div) ;\n"
    plain, calling = (doctored(BAR + BAR, f"{BAR} @P1{BAR}{between} @!P1{BAR}") for between in (" NOP ;\n", call))
    assert followed(plain + DIVISION.lstrip("\n")) is None
    found = followed(calling + DIVISION.lstrip("\n"))
    assert found and "the store after" in found


GROUP = " BAR.SYNC.DEFER_BLOCKING 0x2, 0x80 ;\n"
TARGETS = '(*"BRANCH_TARGETS .L_x_13,.L_x_42"*)'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (doctored(BAR, GROUP, 3), "no barrier 0x1 of all threads comes next after the store"),
        (doctored(BAR, " @P0" + BAR, 3), "comes next after the store"),
        (doctored(BAR, " @P2 BRA `(.L_x_42) ;\n" + BAR, 3), "comes next after the store"),
        (doctored(BAR, GROUP, 4), "no barrier 0x1 of all threads comes last before the load"),
        (doctored(" LDS.U8 R2, [", ".L_x_77:\n LDS.U8 R2, ["), "comes last before the load"),
        (doctored(" LDS.U8 R2, [", " LDS.U16 R2, ["), "no barrier 0x1 of all threads comes next after the load"),
        (doctored(" LDS.U8 R2, [", " LDSM.16 R2, ["), "STS.64 and LDSM.16, not STS and LDS"),
        (doctored(" STS.64 [UR4", " STSM.16 [UR4"), "STSM.16 and LDS.U8, not STS"),
        # both stand beside the barrier, but between the same two meetings
        (
            doctored(BAR + BAR, " NOP ;\n" + BAR).replace(BAR + " STS", " STS"),
            "the store after [1], the load after [1]",
        ),
        (doctored(" BRA `(.L_x_0)", BAR + " BRA `(.L_x_0)", 1), "the store after [0], the load after [0, 1, 2]"),
        (doctored(" EXIT ;", " BRA `(.L_x_10) ;").replace(BAR + ".L_x_10", ".L_x_10"), "the store after [0, 1, 2]"),
        (
            doctored(BAR, " BAR.SYNC.DEFER_BLOCKING 0x1, 0x80 ;\n", 1),
            "not understood: BAR.SYNC.DEFER_BLOCKING 0x1, 0x80",
        ),
        (doctored(BAR, " BAR.ARV 0x1 ;\n", 1), "not understood: BAR.ARV"),
        (doctored(BAR, " BAR.SYNC.DEFER_BLOCKING R3 ;\n", 1), "not understood: BAR.SYNC.DEFER_BLOCKING R3"),
        (doctored(" EXIT ;", " CALL.REL.NOINC `(.L_x_42) ;", 1), "not understood: CALL.REL.NOINC"),
        (doctored(TARGETS, ""), "not understood: BRX"),
    ],
)
def test_what_only_looks_like_it_is_refused(text, words):
    write = [*places(text, "STS.64"), *places(text, "STSM.16")][1]
    read = [*places(text, "LDS.U16"), *places(text, "LDSM.16"), *places(text, "LDS.U8")][0]
    assert words in (verdict(text, write, read) or "accepted")


def test_other_accesses_of_the_dispatching_kernel_are_refused():
    assert "the load after [2] meetings" in verdict(DISPATCH, LAST, OTHER_LOAD)
    assert "not STS and LDS" in verdict(DISPATCH, places(DISPATCH, "STSM.16.M88.4")[0], LOAD)


ARGUMENT = doctored(".L_x_13:\n", ".L_x_13:\n LDS.128 R4, [UR24+0x38000] ;\n")


def test_arguments_of_a_partition_are_handed_over_like_its_number():
    """The partition loads them before it meets the others for the first time."""
    (argument,) = places(ARGUMENT, "LDS.128")
    assert [verdict(ARGUMENT, write, argument) for write in places(ARGUMENT, "STS.64")] == [None, None]
    late = ARGUMENT.replace(" LDS.128 R4, [UR24+0x38000] ;\n" + BAR, BAR + " LDS.128 R4, [UR24+0x38000] ;\n")
    (argument,) = places(late, "LDS.128")
    assert "the load after [2] meetings" in verdict(late, LAST, argument)
    apart = ARGUMENT.replace("[UR24+0x38000] ;\n", "[UR24+0x38000] ;\n @P2 BRA `(.L_x_42) ;\n")
    (argument,) = places(apart, "LDS.128")
    assert "comes next after the load" in verdict(apart, LAST, argument)


# Two places of one register: a thread goes on where it was last told to meet the others.
TWICE = """\
 BSSY B0, `(.L_x_1) ;
 BSYNC B0 ;
.L_x_1:
 STS [R2], R3 ;
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 BSSY B0, `(.L_x_2) ;
 BSYNC B0 ;
.L_x_2:
 LDS R4, [R2] ;
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 BAR.SYNC.DEFER_BLOCKING 0x1 ;
 EXIT ;
"""


def test_a_convergence_barrier_leads_to_where_it_was_last_set():
    store, load = places(TWICE, "STS")[0], places(TWICE, "LDS")[0]
    assert verdict(TWICE, store, load) is None
    conditional = TWICE.replace(" BSSY B0, `(.L_x_2)", " @P0 BSSY B0, `(.L_x_2)")
    assert "not understood: BSSY" in verdict(conditional, store, load)
    nowhere = TWICE.replace(" BSSY B0, `(.L_x_2)", " BSSY B0, R2")
    assert "not understood: BSSY B0, R2" in verdict(nowhere, store, load)
    unset = TWICE.replace(" BSSY B0, `(.L_x_1) ;\n", " NOP ;\n")
    assert "not understood: BSYNC B0" in verdict(unset, store, load)


# A warpgroup that reads a stage, and a warp that fills it again.
RING = """
 @P0 BRA `(.L_x_4) ;
.L_x_1:
 SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR25+0x730], R7 ;
 @!P1 BRA `(.L_x_3) ;
.L_x_2:
 LDS R22, [R22+UR13] ;
 FMUL R23, R22, R21 ;
 BAR.SYNC.DEFER_BLOCKING 0x0, 0x80 ;
 @!P3 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR18+0x6f0], RZ ;
 @P2 BRA `(.L_x_1) ;
 EXIT ;
.L_x_3:
 SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR25+0x730], R7 ;
 @!P1 BRA `(.L_x_3) ;
 BRA `(.L_x_2) ;
.L_x_4:
 SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR35+0x6f0], R5 ;
 @!P1 BRA `(.L_x_6) ;
.L_x_5:
 LDGSTS.E [R7], desc[UR28][R4.64] ;
 SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [UR32], RZ ;
 ARRIVES.LDGSTSBAR.64.TRANSCNT [UR32] ;
 @P2 BRA `(.L_x_4) ;
 EXIT ;
.L_x_6:
 SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR35+0x6f0], R5 ;
 @P1 BRA `(.L_x_5) ;
 BRA `(.L_x_6) ;
"""
COPY, MEET = " LDGSTS.E [R7], desc[UR28][R4.64] ;\n", " BAR.SYNC.DEFER_BLOCKING 0x0, 0x80 ;\n"
ASKS = " SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR35+0x6f0], R5 ;\n"
READS = " LDS R22, [R22+UR13] ;\n"


def handed_on(text: str) -> str:
    write, read = places(text, "LDGSTS.E"), [*places(text, "LDS"), *places(text, "LDSM.16")]
    return Program(numbered(text)).unordered(write[-1], read[-1]) or "accepted"


def test_a_stage_that_one_thread_hands_on_is_accepted():
    assert handed_on(RING) == "accepted"
    program = Program(numbered(RING))
    (write,), (read,) = places(RING, "LDGSTS.E"), places(RING, "LDS")
    pair = Pair("ring", write, read, "v1")
    assert judge({pair}, {"ring": {"v1": program}}) == [] and of_stages({pair}, {"ring": {"v1": program}}) == 1
    other = Pair("gemm_ws", LAST, LOAD, "v1")
    assert of_stages({other}, {"gemm_ws": {"v1": Program(numbered(DISPATCH))}}) == 0


UNMET = "no barrier of the warpgroup comes between the load and the arrival"
UNASKED = "the store comes without a wait"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (MEET, "", UNMET),
        (MEET, " @P4" + MEET, UNMET),
        (MEET, MEET + READS, UNMET),  # read once more behind the barrier
        (MEET, " @P4 BRA `(.L_x_9) ;\n" + MEET + ".L_x_9:\n", UNMET),
        (MEET, " @!P3 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR18+0x6f0], RZ ;\n" + MEET, UNMET),
        (ASKS, " NOP ;\n", UNASKED),
        (" @!P1 BRA `(.L_x_6) ;\n", "", UNASKED),  # whatever the wait has found
        (" @!P1 BRA `(.L_x_6) ;\n", " @!P4 BRA `(.L_x_6) ;\n", UNASKED),
        (" @!P1 BRA `(.L_x_6) ;\n", " @P1 BRA `(.L_x_6) ;\n", UNASKED),
        (" @!P1 BRA `(.L_x_6) ;\n", " ISETP.GT.U32.AND P1, PT, R2, 0x4, PT ;\n @!P1 BRA `(.L_x_6) ;\n", UNASKED),
        (" @P1 BRA `(.L_x_5) ;\n", " BRA `(.L_x_5) ;\n", UNASKED),
        (" @P2 BRA `(.L_x_4) ;\n", " @P2 BRA `(.L_x_5) ;\n", UNASKED),  # the next one without another wait
        (" @P2 BRA `(.L_x_4) ;\n", COPY + " @P2 BRA `(.L_x_4) ;\n", UNASKED),
        (READS, " LDSM.16 R22, [R22+UR13] ;\n", "LDGSTS.E and LDSM.16, not LDGSTS and LDS"),
        (" FMUL R23, R22, R21 ;\n", " BRX R2 ;\n", "not understood: BRX"),
    ],
)
def test_a_stage_that_is_not_waited_for_is_refused(old, new, words):
    assert old in RING
    assert words in handed_on(RING.replace(old, new, 1))


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
    good, bad = Program(numbered(DISPATCH)), Program(numbered(doctored(BAR, GROUP, 3)))
    assert judge({pair}, {"gemm_ws": {"v1": good, "v2": bad}}) == []
    assert "of v1: no barrier" in judge({pair}, {"gemm_ws": {"v1": bad, "v2": good}})[0]


def test_a_pair_that_the_named_variant_cannot_have_is_held_against_every_other():
    pair = Pair("gemm_ws", LAST, LOAD, "v1")
    good, bad = Program(numbered(DISPATCH)), Program(numbered(doctored(BAR, GROUP, 3)))
    elsewhere = Program(numbered(" NOP ;\n" + DISPATCH))  # there these places hold other things
    assert judge({pair}, {"gemm_ws": {"v1": elsewhere, "v2": good}}) == []
    assert "of v3: no barrier" in judge({pair}, {"gemm_ws": {"v1": elsewhere, "v2": good, "v3": bad}})[0]
    assert "no such accesses of shared memory in any" in judge({pair}, {"gemm_ws": {"v1": elsewhere}})[0]
    assert judge({pair}, {}) == ["gemm_ws: write at 0x90, read at 0xe0: this library has no such kernel"]
