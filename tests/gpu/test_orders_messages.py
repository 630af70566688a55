"""What tests/gpu/orders.py shows on made-up stages and messages that one thread hands on, and what it refuses."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from machine_code import COPIED, MESSAGE, RING, numbered, places

from tests.gpu.orders import Orders

COPY, MEET = " LDGSTS.E [R7], desc[UR28][R4.64] ;\n", " BAR.SYNC.DEFER_BLOCKING 0x0, 0x80 ;\n"
ASKS = " SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR35+0x6f0], R5 ;\n"
READS = " LDS R22, [R22+UR13] ;\n"


def handed_on(text: str) -> str:
    write, read = places(text, "LDGSTS.E"), [*places(text, "LDS"), *places(text, "LDSM.16")]
    return Orders(numbered(text)).unordered(write[-1], read[-1]) or "accepted"


@pytest.mark.parametrize("number", ["0x0, 0x80", "R44, 0x80"])  # of a team: the warpgroup's own
def test_a_stage_that_one_thread_hands_on_is_accepted(number):
    text = RING.replace("0x0, 0x80", number)
    assert number in text and handed_on(text) == "accepted"


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
        (ASKS, " @P4" + ASKS, UNASKED),  # or what the predicate was before
        (ASKS, ASKS.replace("P1", "PT"), UNASKED),
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


TELLS, BULK = " @P4 SYNCS.ARRIVE.TRANS64 RZ, [UR7], R5 ;\n", " UBLKCP.S.G [UR6], [UR8], UR41 ;\n"
HANDS_ON = " @!P3 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR18+0x6f0], RZ ;\n"
AHEAD = " SYNCS.PHASECHK.TRANS64.TRYWAIT P6, [UR25+0x738], R7 ;\n @!P6 EXIT ;\n"
WAITS = " SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR25+0x730], R7 ;\n @!P1 BRA `(.L_x_3) ;\n"
UNREADY = "the load comes without a wait"


def copied(text: str) -> str:
    return Orders(numbered(text)).unordered(places(text, "UBLKCP.S.G")[-1], places(text, "LDS")[-1]) or "accepted"


@pytest.mark.parametrize(
    "text",
    [
        COPIED, COPIED.replace(BULK, ""), COPIED.replace(TELLS, TELLS.replace(" @P4", "")),
        # What is read is waited for before a stage read earlier is handed on.
        COPIED.replace(HANDS_ON, AHEAD + HANDS_ON, 1).replace("@P2 BRA `(.L_x_1)", "@P6 BRA `(.L_x_2)"),
    ],
)  # fmt: skip
def test_a_stage_that_bulk_copies_fill_is_accepted(text):
    assert copied(text) == "accepted"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (MEET, "", UNMET), (ASKS, " NOP ;\n", UNASKED), (" @P1 BRA `(.L_x_5) ;\n", " BRA `(.L_x_5) ;\n", UNASKED),
        (" @P2 BRA `(.L_x_4) ;\n", " @P2 BRA `(.L_x_5) ;\n", UNASKED),  # the next one told of without a wait
        (BULK, TELLS + BULK, UNASKED), (BULK, TELLS.replace("TRANS64 ", "TRANS64.A1T0 ") + BULK, UNASKED),
        (" @!P1 BRA `(.L_x_3) ;\n", "", UNREADY), (" @P2 BRA `(.L_x_1) ;\n", " @P2 BRA `(.L_x_2) ;\n", UNREADY),
        (" SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR25+0x730], R7 ;\n", " NOP ;\n", UNREADY),
        (READS, MEET + HANDS_ON + READS, UNREADY),  # handed on before it is read
        (WAITS, AHEAD + MEET + HANDS_ON, UNREADY),  # what was waited for is a message
    ],
)  # fmt: skip
def test_a_copy_or_a_load_of_it_that_is_not_waited_for_is_refused(old, new, words):
    assert old in COPIED
    assert words in copied(COPIED.replace(old, new, 1))


STORES, ARRIVES = " STS.128 [UR8], R36 ;\n", " @!P5 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR32], RZ ;\n"
JOINS, LATE = " BSYNC B0 ;\n", "who stores may arrive at no mbarrier after it"
GUARDED = MESSAGE.replace(" @P5 BRA `(.L_x_7) ;\n", "").replace(STORES, " @!P5" + STORES)


def told(text: str) -> str:
    return Orders(numbered(text)).unordered(places(text, "STS.128")[-1], places(text, "LDS")[-1]) or "accepted"


# A warp of its own reads, is together, and its first lane tells so.
LANE = " S2R R2, SR_TID.X ;\n LOP3.LUT P3, RZ, R2, 0x1f, RZ, 0xc0, !PT ;\n"
TOGETHER = " NOP ;\n"
BACK = " @!P3 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR18+0x6f0], RZ ;\n"


def of_one_warp(*between: str) -> str:
    """The stage above, where what stands between the load and the barrier is of a warp that needs none."""
    assert READS in RING and MEET in RING
    return handed_on(RING.replace(MEET, "").replace(READS, READS + "".join(between), 1))


def from_the_first_lines(lines: str = LANE, later: str = "", one_way: str = "") -> str:
    """The same where `lines` come first of all, `later` with the arrival; `one_way`: on one of two ways to the load."""
    text = RING.replace(MEET, "").replace(READS, READS + later + TOGETHER + BACK, 1)
    return handed_on(text.replace("\n", "\n" + lines, 1).replace(".L_x_3:\n", ".L_x_3:\n" + one_way))


def test_what_a_warp_reads_its_first_lane_hands_on():
    assert of_one_warp(LANE, TOGETHER, BACK) == "accepted"
    told, lane = LANE.splitlines(keepends=True)
    before = RING.replace(MEET, "").replace(READS, told + READS + lane + TOGETHER + BACK, 1)
    assert handed_on(before) == "accepted"
    # The predicate may be from the code's first lines, which more than one way leads from.
    assert from_the_first_lines() == from_the_first_lines(LANE.replace("R2", "R40")) == "accepted"
    assert from_the_first_lines(LANE.replace("P3, RZ", "P3, R10")) == "accepted"
    assert from_the_first_lines(LANE + " P2R R16, PR, RZ, 0x1 ;\n", lane) == "accepted"
    assert of_one_warp(TOGETHER, LANE, BACK) == of_one_warp(LANE, " WARPSYNC 0xffffffff ;\n", BACK) == "accepted"


@pytest.mark.parametrize(
    "between",
    [
        (LANE, BACK), (TOGETHER, BACK), (LANE.replace("0x1f", "0x7f"), TOGETHER, BACK), (LANE, BACK, TOGETHER),
        (LANE, TOGETHER, BACK.replace("@!P3", "@P3")), (LANE, TOGETHER, BACK.replace("@!P3 ", "")),
        (LANE, TOGETHER, BACK.replace("P3", "P4")), (LANE.replace(" LOP3", " @P4 LOP3"), TOGETHER, BACK),
        (LANE, " @P4" + TOGETHER, BACK), (LANE, " @P4 WARPSYNC 0xffffffff ;\n", BACK),
        (LANE, " WARPSYNC 0x1 ;\n", BACK), (LANE.replace(" LOP3", " LDS.128 R0, [R9] ;\n LOP3"), TOGETHER, BACK),
        (LANE, " R2P PR, R5, 0x7f ;\n", TOGETHER, BACK), (LANE.replace("RZ, R2", "RZ, R77"), TOGETHER, BACK),
        (LANE.replace(" LOP3", " MOV R2, 0x20 ;\n LOP3"), TOGETHER, BACK),
        (LANE.replace("SR_TID.X", "SR_CTAID.X"), TOGETHER, BACK), (LANE.replace(" S2R", " @P4 S2R"), TOGETHER, BACK),
        (LANE, " ISETP.GT.U32.AND P3, PT, R2, 0x4, PT ;\n", TOGETHER, BACK),
        (LANE, TOGETHER, ".L_x_9:\n", BACK), (LANE, TOGETHER, " @P4 EXIT ;\n", BACK),
        (LANE, TOGETHER, BACK.replace("A1T0", "A0T1")),
    ],
)  # fmt: skip
def test_what_another_lane_may_still_read_is_refused(between):
    assert UNMET in of_one_warp(*between)


@pytest.mark.parametrize(
    ("lines", "one_way"),
    [
        (LANE, " ISETP.GT.U32.AND P3, PT, R2, 0x4, PT ;\n"), (LANE, " R2P PR, R5, 0x7f ;\n"),
        (LANE.replace(" LOP3", " @P4 BRA `(.L_x_2) ;\n LOP3"), ""),  # a way around it
        (LANE.replace("R2", "R40").replace(" LOP3", " HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, gsb0 ;\n LOP3"), ""),
        *(
            (LANE.replace("R2", "R40").replace(" LOP3", f" {writes} ;\n LOP3"), "") for writes in (
                "LDTM.x32 R40, tmem[UR4]", "LDTM.x64 R8, tmem[UR4]", "DMMA.8x8x4 R40, R2, R4, R6", "MOV.64 R39, R6",
                "SEL.64 R39, R6, R8, P1", "IMAD.WIDE R39, R6, R8, R10", "LDG.E.ENL2.256 R12, R40, desc[UR4][R2.64]",
                "LDS.128 R37, [UR4]")
        ),
        (LANE.replace(" LOP3", " SHFL.IDX PT, R2, R2, RZ, 0x1f ;\n LOP3"), ""),
        (LANE, " CALL.REL.NOINC `($leaf) ;\n"), (LANE.replace("P3, RZ", "P3, R2") + LANE.splitlines()[1] + "\n", ""),
    ],
)  # fmt: skip
def test_a_predicate_that_may_be_another_one_by_then_is_refused(lines, one_way):
    assert from_the_first_lines(lines, "", one_way) != "accepted"


@pytest.mark.parametrize(
    "text",
    [
        MESSAGE, GUARDED, MESSAGE.replace(ARRIVES, ARRIVES.replace("@!P5", "@!P3")),  # by a lane of the same warp
        GUARDED.replace(JOINS, ""), GUARDED.replace(JOINS, MEET).replace(ARRIVES, ARRIVES.replace("@!P5", "@!P3")),
        MESSAGE.replace(ARRIVES, ARRIVES.replace(" @!P5", "")),
    ],
)  # fmt: skip
def test_a_message_by_a_thread_that_arrives_is_accepted(text):
    assert told(text) == "accepted"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (MEET, "", UNMET),
        (ASKS, " NOP ;\n", UNASKED),
        (ARRIVES, "", LATE),
        (ARRIVES, " SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [UR32], RZ ;\n", LATE),  # of copies alone
        (JOINS, "", LATE),  # by a lane that need not have waited for the one that stores
        (" SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR25+0x730], R7 ;\n", " NOP ;\n", "the load comes without a wait"),
    ],
)
def test_a_message_that_nobody_waits_for_is_refused(old, new, words):
    text = MESSAGE.replace(ARRIVES, ARRIVES.replace("@!P5", "@!P3")) if old == JOINS else MESSAGE
    assert old in text
    assert words in told(text.replace(old, new, 1))
