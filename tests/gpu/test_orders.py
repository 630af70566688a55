"""What tests/gpu/orders.py shows on made-up machine code, and what it refuses. No GPU, no library."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from machine_code import BAR, DISPATCH, GROUP, doctored, numbered, places

from tests.gpu.orders import Orders

FIRST, LAST = places(DISPATCH, "STS.64")
LOAD, OTHER_LOAD = places(DISPATCH, "LDS.U8")


def verdict(text: str, write: int, read: int) -> str | None:
    return Orders(numbered(text)).not_dispatch(write, read)


@pytest.mark.parametrize("write", [FIRST, LAST])
def test_the_dispatch_is_accepted(write):
    assert verdict(DISPATCH, write, LOAD) is None


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
