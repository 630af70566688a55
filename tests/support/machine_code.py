"""Made-up machine code of four kinds that tests/gpu/orders.py tells from what only looks like it."""

import itertools

BAR = " BAR.SYNC.DEFER_BLOCKING 0x1 ;\n"  # of the whole block: the dispatch's
GROUP = " BAR.SYNC.DEFER_BLOCKING 0x2, 0x80 ;\n"  # of a warpgroup
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


# RING where bulk copies fill the stage, once an arrival has told of their bytes.
COPIED = RING.replace(
    """ LDGSTS.E [R7], desc[UR28][R4.64] ;
 SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [UR32], RZ ;
 ARRIVES.LDGSTSBAR.64.TRANSCNT [UR32] ;
""",
    """ @P4 SYNCS.ARRIVE.TRANS64 RZ, [UR7], R5 ;
 UBLKCP.S.G [UR6], [UR8], UR41 ;
 UBLKCP.S.G [UR9], [UR8], UR41 ;
""",
)


# RING where one thread of the warp stores, and arrives.
MESSAGE = RING.replace(
    """ LDGSTS.E [R7], desc[UR28][R4.64] ;
 SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [UR32], RZ ;
 ARRIVES.LDGSTSBAR.64.TRANSCNT [UR32] ;
""",
    """ BSSY B0, `(.L_x_8) ;
 @P5 BRA `(.L_x_7) ;
 STS.128 [UR8], R36 ;
.L_x_7:
 BSYNC B0 ;
.L_x_8:
 @!P5 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR32], RZ ;
""",
)


def doctored(old: str, new: str, place: int = 0) -> str:
    """DISPATCH with the `place`th of these lines another."""
    parts = DISPATCH.split(old)
    return old.join(parts[: place + 1]) + new + old.join(parts[place + 1 :])
