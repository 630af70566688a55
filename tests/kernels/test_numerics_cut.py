"""Packed groups whose ends cut N or K, or nothing, against float64 in Triton's interpreter; and what is past the ends.

Ends that cut rows: tests/kernels/test_numerics.py, which says what the interpreter can show.
"""

import itertools

from numerics import EVEN, ODD, checks, job

from tests.gpu.cases import ACTIVATIONS, RAGGED, TYPES

FEW = {"m": 38, "n": 35, "k": 20, "groups": 4, "pads": (3, 1, 2, 5)}
EACH = {"alpha": 0.75, "beta": -0.5, "bias": "each"}


def cut_jobs():
    """Every layout, with empty groups, C and bias."""
    for ragged, layout in itertools.product(RAGGED[1:], ("nn", "nt", "tn", "tt")):
        for i, spread in enumerate(("uniform", "empty", "one")[: 1 if ragged == "none" else 3]):
            fields = {**FEW, **EACH, "c": ("separate", "in_place", "out")[i], "spread": spread, "tail": 3 * i}
            fields |= {"ragged": ragged, "wide": i == 1, "activation": ACTIVATIONS[i], "zero": i == 2}
            yield job(f"{ragged}-{layout}-{spread}", "grouped_mm", layout=layout, extra={"programs": [1, 3]}, **fields)
    tiny = {"m": 9, "n": 6, "k": 5, "bias": "each", "zero": True, "tail": 4, "spread": "empty"}
    for ragged, groups in itertools.product(RAGGED[1:], (1, 127, 128, 129, 257)):  # 128 are scanned at a time
        extra = {"programs": [1, 2] if groups == 129 else [2]}
        yield job(f"{ragged}-groups-{groups}", "grouped_mm", extra=extra, **tiny, groups=groups, ragged=ragged)


def tail_jobs():
    """What is past the last end knows no bias, no C, and no alpha, which may be infinite."""
    for ragged, zero, tail in itertools.product("mnk", (False, True), (0, 37)):
        name, fields = f"tail-{ragged}-{zero}-{tail}", {**FEW, "ragged": ragged, "zero": zero, "tail": tail}
        empty = {**fields, **EACH, "spread": "empty", "c": "in_place", "activation": "gelu"}
        yield job(name, "grouped_mm", extra={"programs": [1, 4]}, **empty)
        yield job(f"{name}-inf", "grouped_mm", **fields, alpha=float("inf"), spread="one")
        yield job(f"{name}-no-groups", "grouped_mm", **{**fields, "groups": 0}, beta=2.0, c="in_place")
        yield job(f"{name}-alpha0", "grouped_mm", **fields, alpha=0.0, beta=2.0, c="separate", values="nan_ab")


def edge_jobs():
    for ragged, c in itertools.product(RAGGED[1:], ("none", "in_place")):
        fields = {**FEW, "k": 0, "ragged": ragged, "c": c, "beta": 0.0 if c == "none" else 2.0, "bias": "row"}
        yield job(f"{ragged}-k0-{c}", "grouped_mm", **fields, activation="silu")
    for ragged in RAGGED[1:]:
        yield job(f"{ragged}-beta0-nan-c", "grouped_mm", **FEW, c="separate", nan_c=True, ragged=ragged)
    for ragged, values, types in itertools.product(RAGGED[1:], ("inf", "nan"), (TYPES[1], TYPES[3], TYPES[6])):
        yield job(f"{ragged}-{values}-{types[0]}", "grouped_mm", types, **FEW, values=values, ragged=ragged, bias="row")


def aligned_jobs():
    """The rows for aligned operands, where those can be: with rows cut, and in a batch."""
    fields = {**EVEN, **EACH, "c": "separate", "spread": "uniform", "zero": True}
    for guard, layout in itertools.product((("align16",), ("align16", "linear")), ("nn", "nt")):
        for ragged, tail in (("m", 41), ("none", 0)):
            name = f"aligned-{'-'.join(guard)}-{layout}-{ragged}"
            yield job(name, "grouped_mm", layout=layout, guard=guard, **fields, ragged=ragged, tail=tail)


def lying_jobs():
    """C is added in place, so a row, a column or a product that is computed twice would show."""
    lies = ([50, 20, 400, 12], [-5, -1, 60, 30], [10**6, 0, 15, 16], [0, -(2**31), 2**31 - 1, 7], [70, 60, 50, 40])
    for (i, ends), ragged, wide in itertools.product(enumerate(lies), "mnk", (False, True)):
        extra = {"ends": [x * 2**20 if wide and i else x for x in ends], "programs": [3]}
        fields = {**FEW, "ragged": ragged, "wide": wide, "tail": 30, "zero": i % 2 == 0, "c": "in_place", "beta": 0.5}
        yield job(f"lying-{ragged}-{i}-{'i64' if wide else 'i32'}", "grouped_mm", extra=extra, **fields)
    for ragged in "mnk":  # ends are scanned 128 at a time, and the largest before a chunk counts in it
        sizes = {"m": 4, "n": 4, "k": 4, ragged: 1, "groups": 300}
        size = 300 + 5  # with the tail
        extra = {"ends": [size * (i % 2) for i in range(300)], "programs": [3]}
        yield job(
            f"back-and-forth-{ragged}",
            "grouped_mm",
            extra=extra,
            **sizes,
            ragged=ragged,
            tail=5,
            c="in_place",
            beta=0.5,
        )
    for ragged, end in (("n", 35), ("k", 20)):
        extra = {"ends": [end, 2 * end, 3 * end, 10**9]}
        yield job(f"last-end-past-{ragged}", "grouped_mm", extra=extra, **FEW, ragged=ragged)


def fault_jobs():
    """Tables that say something else than the reference knows: what the checks are worth."""
    for ragged, ends in (("n", [40, 82, 123]), ("k", [36, 74, 111])):
        yield job(f"fault-{ragged}", "grouped_mm", extra={"fault": ends}, **ODD, ragged=ragged)


GOOD = [*cut_jobs(), *tail_jobs(), *edge_jobs(), *aligned_jobs(), *lying_jobs()]
FAULTS = list(fault_jobs())


found, test_ids_are_unique, test_kernel, test_fault_is_noticed = checks(GOOD, FAULTS)
