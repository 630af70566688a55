"""cuBLASLt as a peer: of all that its heuristic names for a product, the fastest. Proves no numerics, but that it
multiplied what torch.mm did.
"""

import functools
from collections.abc import Callable

from bench.measure.cublaslt import TYPES, CublasLt, Failed, Missing
from bench.measure.timing import alternate

NEAR = 1e-2  # of torch.mm's result: a candidate further off, which adds slices of K in D's type say, is no peer


class Differs(Exception):
    """What cuBLASLt, reached through numbers of its header, multiplies is not what torch.mm does."""


@functools.cache
def library() -> tuple[CublasLt | None, dict]:
    """cuBLASLt, and what a report says of it."""
    try:
        lt = CublasLt()
    except (Missing, Failed) as error:
        return None, {"missing": str(error)}
    return lt, {"version": lt.version, "near": NEAR}


def fastest(candidates: list[Callable], inputs: list[tuple], floor_us: float, peer: Callable) -> Callable | None:
    """The best of those that run and give what `peer` gives; None where none runs, Differs where only others do."""
    one, runs, others = inputs[0], {}, 0
    peer(*one)
    expected = one[-1].float()
    for nth, call in enumerate(candidates):
        one[-1].fill_(float("nan"))
        try:
            call(*one)
        except Failed:
            continue  # the heuristic names some that refuse
        if (one[-1].float() - expected).norm() <= NEAR * expected.norm():
            runs[nth] = call
        else:
            others += 1
    if not runs:
        if others:
            raise Differs(f"all {others} candidates of cuBLASLt that run and torch.mm differ")
        return None
    us = alternate(runs, inputs, floor_us)
    return runs[min(us, key=us.get)]


def best(lt: CublasLt | None, shape: dict, dtype: str, inputs: list[tuple], floor_us: float, peer: Callable) -> dict:
    """{"cublaslt": its fastest call} of D = A B in this type; {} where it has none. Differs as above."""
    if lt is None or dtype not in TYPES or shape.get("beta") or shape.get("out", "same") != "same":
        return {}
    try:
        found = fastest(lt.candidates(shape, dtype), inputs, floor_us, peer)
    except Failed:
        return {}
    return {"cublaslt": found} if found else {}
