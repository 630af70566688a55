"""The regret of a choice: a call that is left to choose beside every kernel of the library that takes its problem."""

from collections.abc import Callable
from functools import partial

import libgemm
import torch

from bench.measure.timing import alternate

CHOSEN = "chosen"  # beside variants by name
FINALISTS = 5


def target() -> int:
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


def finalists(op: str, dtype: str, layout: str, call: Callable, inputs: list[tuple], floor_us: float) -> dict:
    """`call` left to choose, and the best few of the library's variants in a first round, by name. `call` takes one of
    the inputs and `variant`."""
    wanted = (op, target(), dtype, dtype, *(letter == "T" for letter in layout))
    runs = {CHOSEN: call}
    for v in libgemm.variants():
        if (v.op, v.target, v.a_type, v.d_type, v.trans_a, v.trans_b) != wanted:
            continue
        named = partial(call, variant=v.name)
        try:
            named(*inputs[0])
        except libgemm.Error:
            continue  # its guard refuses this shape
        runs[v.name] = named
    us = alternate(runs, inputs, floor_us)
    return {name: runs[name] for name in (CHOSEN, *sorted(us, key=us.get)[:FINALISTS])}


def regret(op: str, dtype: str, layout: str, call: Callable, inputs: list[tuple], floor_us: float) -> dict:
    """Time of `call` over that of the best variant in the library, less 1, and that variant's name. The finalists are
    measured again beside it, since the least of many noisy times is too small."""
    us = alternate(finalists(op, dtype, layout, call, inputs, floor_us), inputs, floor_us)
    best = min(us, key=us.get)
    return {"best": best, "regret": us[CHOSEN] / us[best] - 1}
