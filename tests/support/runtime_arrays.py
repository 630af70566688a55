"""Arrays at the stand-in's places, and variants that a layout alone can have. Holds no test."""

import libgemm
from arrays import MAKERS, VERSIONED
from built import TARGET
from calls import at


def array(place: int, *shape: int, kind=VERSIONED, **facts):
    return MAKERS[kind](at(place), shape, **facts)


def general(op: str, layout: str) -> str:
    """Name of the variant that takes any alignment, for f16 and one layout: a call is refused if it asks another."""
    found = [v for v in libgemm.variants() if (v.target, v.op, v.a_type, v.d_type) == (TARGET, op, "f16", "f16")]
    return next(v.name for v in found if not v.align16 and "nt"[v.trans_a] + "nt"[v.trans_b] == layout)
