"""Kernels against float64, run by Triton's interpreter (tests/support/interpret.py). No word on compiled code.

Bounds and guard bands are the GPU suite's: see tests/gpu/reference.py for the formula, tests/gpu/guarded.py for bands.
"""

import dataclasses
import itertools

from numerics import ENTRY, EPILOGUE, EVEN, HALF, ODD, ROWS, TABLE, checks, job

from kernels.table.spec import LAYOUTS, OPS
from tests.gpu.cases import ACTIVATIONS, BLOCK_SCALINGS, SCALINGS, TYPES, random_case

STEPS = {"m": 72, "n": 72, "k": 48, "spread": "steps"}  # of groups, in each of which every size is a multiple of 8
EVEN_8_BIT = {"m": 80, "n": 48, "k": 48, "pads": (16, 0, 16, 16)}  # whole pieces of 16 bytes of 8-bit operands
FAR = [0.0, -0.0, 1e-3, -1e-3, 0.7, -0.7, 4.0, -5.5, 11.0, -20.0, -100.0, 100.0, 3e4, -3e4]


def sizes_for(guard, layout: str, op: str = "gemm") -> dict:
    """Extents of no tile's multiple, and leading dimensions such as the guard asks."""
    if "align16" in guard:
        return {**EVEN, **STEPS} if op == "grouped_gemm" else EVEN
    if "descriptor" not in guard:
        return ODD
    m, n, k = (ODD[x] for x in "mnk")
    stored = (m if layout[0] == "t" else k, k if layout[1] == "t" else n, n, n)
    return {"m": m, "n": n, "k": k, "pads": tuple(-x % 8 + 8 * i for i, x in enumerate(stored))}


def table_jobs():
    """Each row, with partial tiles, gaps, C and bias, and every activation in turn."""
    for i, ((kernel, p, guard), row) in enumerate(sorted(ROWS.items(), key=lambda item: item[1].name)):
        fields = {**EPILOGUE, "spread": "uniform", "vary": "mnk0", "seed": i, **sizes_for(guard, p.layout, p.op)}
        fields["activation"] = None if "linear" in guard else ACTIVATIONS[i // 3 % len(ACTIVATIONS)]
        types = (p.a, p.d, p.precision)
        if p.a == "e4m3":
            some = SCALINGS[:3] if p.precision == "fast" else SCALINGS
            fields |= {"scaling": some[i % len(some)], **(EVEN_8_BIT if "align16" in guard else {})}
            fields |= {"d_scale": p.d == "e4m3", "d_amax": p.d == "e4m3"}
        name = "-".join((*types, p.layout, *guard)) + kernel.split(".")[-1].removeprefix(p.op)
        yield job(name, p.op, types, p.layout, guard, kernel, **fields)
        assert row.problem == p


def tile_jobs():
    """Each tile as it is in the table, on a problem it does not divide; layouts in turn."""
    tiles = {}
    for row in TABLE:
        if row.problem.a == row.problem.d == "bf16":
            tiles.setdefault((row.problem.op, row.shape_name, row.guard), []).append(row)
    for i, ((op, shape, guard), rows) in enumerate(tiles.items()):
        row = rows[i % len(rows)]
        layout = row.problem.layout
        fields = {**sizes_for(guard, layout), **EPILOGUE, "seed": i}
        name = "-".join(("as-in-table", shape, layout, *guard))
        yield {**job(name, op, HALF, layout, guard, row.kernel, {"small": False}, **fields), "row": row.name}


def hardware_jobs():
    """8-bit rows of a target whose tensor cores multiply bytes: e4m3 by e4m3, and with e5m2 on either side."""
    rows = [row for row in TABLE if row.target == 89 and row.multiplies_bytes and row.problem.precision == "exact"]
    assert len(rows) == (3 * 3 + 2) * len(LAYOUTS)
    for i, (row, e5m2) in enumerate(itertools.product(rows, ("", "a", "b"))):
        p = row.problem
        some = SCALINGS[:3] if p.op == "grouped_mm" and i % 2 else SCALINGS
        fields = {**sizes_for(row.guard, p.layout, p.op), **EPILOGUE, "seed": i, "scaling": some[i // 3 % len(some)]}
        fields |= EVEN_8_BIT if "align16" in row.guard else {}
        fields |= {"spread": "uniform"} if p.op == "grouped_mm" else {}
        fields |= {"k": 304, "values": ("normal", "nan")[i % 2], "e5m2": e5m2}
        types = (p.a, p.d, p.precision)
        name = "-".join(("hardware", p.d, p.layout, e5m2, *row.guard))
        extra = {"changed": {"HARDWARE": 0}} if p.d == "e4m3" else {}  # the interpreter rounds to 8 bits otherwise
        yield {**job(name, p.op, types, p.layout, row.guard, row.kernel, **fields), "row": row.name, **extra}


def descriptor_jobs():
    """Edges of the rules that products through descriptors have: A and B are read, there is one product."""
    for kernel, guard in (("pipelined", ("descriptor",)), ("specialized", ("descriptor", "linear"))):
        for name, fields in {
            "one-row": {"m": 1, "n": 72, "k": 40, "bias": "row", "beta": 1.0, "c": "separate"},
            "one-element": {"m": 1, "n": 1, "k": 1, "pads": (7, 7, 7, 7)},
            "whole-tiles": {"m": 64, "n": 64, "k": 32, "alpha": -0.5},
            "in-place": {"m": 40, "n": 32, "k": 24, "pads": (0, 8, 8, 8), "c": "in_place", "beta": 2.0},
            "beta0-nan-c": {"m": 40, "n": 32, "k": 24, "c": "separate", "nan_c": True, "bias": "row"},
            "inf": {"m": 40, "n": 32, "k": 24, "values": "inf"},
            "nan": {"m": 40, "n": 32, "k": 24, "values": "nan"},
        }.items():
            full = f"sm100.gemm.gemm_{kernel}"
            yield job(f"{kernel}-{name}", "gemm", HALF, "nn", guard, full, {"programs": [1, 3]}, **fields)


def edge_jobs(op: str):
    """The rules at the edges, which every operation has."""
    few = {"m": 40, "n": 35, "k": 20, "spread": "uniform"}
    yield job("one-element", op, **{**few, "m": 1, "n": 1, "k": 1, "spread": "full"}, bias="row")
    yield job("whole-tiles", op, m=64, n=64, k=32)
    row = {**few, "m": 1, "n": 70, "spread": "full", "pads": (9, 1, 3, 30)}
    yield job("one-row", op, **row, beta=1.0, c="separate")
    for c in ("none", "separate", "in_place"):
        fields = {**few, "c": c, "beta": 0.0 if c == "none" else 2.0, "bias": "each"}
        yield job(f"k0-c-{c}", op, **{**fields, "k": 0}, activation="silu")
        yield job(f"alpha0-nan-ab-c-{c}", op, **fields, alpha=0.0, values="nan_ab")
        yield job(f"in-place-or-not-{c}", op, **fields, alpha=-0.5, pads=(0, 0, 4, 4))
    yield job("beta0-nan-c", op, **few, c="separate", nan_c=True, bias="row", activation="gelu")
    for activation, values, types in itertools.product(ACTIVATIONS, ("inf", "nan"), (TYPES[0], TYPES[3], TYPES[6])):
        name = f"{values}-{activation}-{types[0]}-{types[1]}"
        fields = {**few, "m": 20, "spread": "full", "bias": "row"}
        yield job(name, op, types, **fields, activation=activation, values=values)


def dense_jobs():
    few = {"m": 40, "n": 35, "k": 20, "batch": 3, "bias": "each", "beta": 0.5}
    for layout, shared in itertools.product(("nt", "tn"), ("", "a", "b", "c", "ab", "abc")):
        for pads in ((0, 0, 0, 0), (3, 1, 2, 5)):
            name = f"batch-{layout}-shared-{shared or 'none'}-pads-{max(pads)}"
            yield job(name, "gemm", layout=layout, **few, shared=shared, pads=pads, c="separate")
    for scaling, seed in itertools.product(SCALINGS, (0, 1)):  # of the latter each product has its own
        types, words = ("e4m3", "f32", "exact"), {**few, "c": "separate", "scaling": scaling, "seed": seed}
        yield job(f"batch-scaled-{scaling or 'not'}-{seed}", "gemm", types, "nt", **words)
        for values in ("nan", "nan_ab"):
            more = {**words, "values": values, "alpha": 0.0 if values == "nan_ab" else 1.0}
            yield job(f"batch-scaled-{scaling or 'not'}-{seed}-{values}", "gemm", types, "nt", **more)
    # K of several blocks, one of them short, and more rows and columns than a block has.
    for (i, scaling), layout in itertools.product(enumerate(BLOCK_SCALINGS), LAYOUTS):
        words = {"m": 150, "n": 140, "k": 300, "bias": "row", "scaling": scaling, "seed": i + 3}
        yield job(f"blocks-{scaling}-{layout}", "gemm", ("e4m3", "f32", "exact"), layout, **words)
    # One of two 8-bit types each: Inf and NaN, which one of them has, and each way to scale.
    for e5m2, (i, scaling) in itertools.product("ab", enumerate(SCALINGS)):
        words = {"m": 45, "n": 40, "k": 150, "bias": "row", "scaling": scaling, "seed": i, "e5m2": e5m2}
        for values in ("normal", "inf", "nan"):
            name, layout = f"e5m2-{e5m2}-{scaling or 'not'}-{values}", LAYOUTS[i % 4]
            yield job(name, "gemm", ("e4m3", "f32", "exact"), layout, **words, values=values)
            if scaling in ("", "row"):
                groups = {"groups": 3, "spread": "uniform", "tail": 3, "values": values}
                yield job(name, "grouped_mm", ("e4m3", "f32", "exact"), layout, **words, **groups)
    yield job("batch-in-place", "gemm", **{**few, "bias": "row"}, c="in_place", seed=1)
    # D in 8 bits: what is too large, too small or no number, with a scale of its own and without, one for a batch.
    for (i, scaling), values in itertools.product(enumerate(SCALINGS), ("normal", "inf", "nan")):
        words = {"m": 45, "n": 40, "k": 150, "scaling": scaling, "e5m2": "a" if values == "inf" else "", "batch": 2}
        for d_scale, activation in ((False, None), (True, None), (True, "gelu")):
            more = {**words, "bias": "each", "seed": i, "d_scale": d_scale, "d_amax": True, "activation": activation,
                    "values": values}  # fmt: skip
            name = f"to-e4m3-{scaling or 'not'}-{values}-{d_scale}-{activation}"
            yield job(name, "gemm", ("e4m3", "e4m3", "exact"), LAYOUTS[i % 4], **more)
    for activation in ACTIVATIONS:
        values = [*FAR, 447.9, 448.0, 463.9, 464.0, 480.0, 2.0**-9, 2.0**-10, 1.1 * 2.0**-10, 0.0, 3e38, -3e38]
        values += [float("inf"), float("-inf"), float("nan")]
        fields = {"m": 2, "n": len(values), "k": 0, "bias": "row", "activation": activation}
        types = ("e4m3", "e4m3", "exact")
        yield job(f"far-out-e4m3-{activation}", "gemm", types, extra={"bias": values}, **fields)
    # K = 0 leaves D = act(bias): values far out, and those that are no numbers.
    for (a, d, precision), activation in itertools.product((TYPES[0], TYPES[2], TYPES[6]), ACTIVATIONS[1:]):
        huge = [] if d == "f16" else [3e38, -3e38]
        values = [*FAR, *huge, float("inf"), float("-inf"), float("nan")]
        fields = {"m": 2, "n": len(values), "k": 0, "bias": "row", "activation": activation}
        yield job(f"far-out-{d}-{activation}", "gemm", (a, d, precision), extra={"bias": values}, **fields)


def many_groups(op: str):
    """Sizes are scanned 128 groups at a time, tables of pointers 32 or, passed over, 1024: counts on both sides of one
    and two scans."""
    tiny = {"m": 9, "n": 6, "k": 5, "bias": "each", "vary": "mn"}
    pointers = (31, 32, 33, 64, 65, 1023, 1024, 1025) if op == "grouped_gemm" else ()
    for groups, spread in itertools.product((1, 127, 128, 129, 256, 257, 300, *pointers), ("empty", "full")):
        if spread == "empty" or groups in (33, 129, 257):
            yield job(f"groups-{groups}-{spread}", op, extra={"programs": [2]}, **tiny, groups=groups, spread=spread)
    yield job("groups-131-programs", op, extra={"programs": [1, 3, 7]}, **tiny, groups=131, spread="empty")
    for spread in ("uniform", "empty", "one"):
        extra = {"programs": [1, 3, 7]}
        fields = {**ODD, **EPILOGUE, "spread": spread, "vary": "mnk", "activation": "gelu"}
        yield job(f"{spread}-programs", op, layout="nt", extra=extra, **{**fields, "groups": 7, "c": "in_place"})


def two_tiles_jobs():
    """Hopper's tile for aligned pointers, 64x128, is half as wide where there are no more such than programs."""
    guard, fields = ("align16", "linear"), {"alpha": 0.75, "beta": -0.5, "c": "separate", "bias": "each", "m": 136}
    for (groups, spread), programs in itertools.product(((5, "steps"), (31, "empty"), (32, "steps")), (1, 12, 400)):
        extra = {"programs": [programs], "small": False}
        sizes = {"n": 264, "k": 72, "groups": groups, "spread": spread, "pads": (8, 0, 16, 8)}
        yield job(f"two-tiles-{groups}-{programs}", "grouped_gemm", HALF, "nn", guard, extra=extra, **fields, **sizes)
    # M counts for alignment where A is read from its columns, and only there.
    for layout, m, alpha in itertools.product(("tn", "tt"), (40, 3), (0.75, 0.0)):
        if m % 8 == 0 or alpha == 0:
            unread = {**fields, "m": m, "alpha": alpha, "n": 40, "k": 24, "groups": 3, "pads": (-m % 8, 0, 8, 0)}
            yield job(f"rows-across-{layout}-{m}-{alpha}", "grouped_gemm", HALF, layout, guard, **unread)


def packed_jobs():
    few = {"m": 30, "n": 35, "k": 20, "groups": 4}
    for wide, spread, layout in itertools.product((False, True), ("uniform", "one"), ("nn", "tt")):
        name = f"{'i64' if wide else 'i32'}-{spread}-{layout}"
        yield job(name, "grouped_mm", layout=layout, **{**few, **EPILOGUE}, wide=wide, spread=spread, tail=37)
    # Scales for each group, or one for all; of blocks some that are short.
    for ragged, scaling, seed in itertools.product("mnk", SCALINGS, (0, 1)):
        if ragged == "k" and scaling in BLOCK_SCALINGS:
            continue
        words = {
            "m": 40,
            "n": 150,
            "k": 150,
            "groups": 3,
            "ragged": ragged,
            "spread": "uniform",
            "tail": 9,
            "seed": seed,
        }
        words |= {"scaling": scaling, "zero": ragged != "k", "bias": "each"}
        yield job(f"scaled-{ragged}-{scaling or 'not'}-{seed}", "grouped_mm", ("e4m3", "f32", "exact"), "nt", **words)
    for layout, scaling in itertools.product(LAYOUTS, ("row", "1x128_128x128")):
        words = {"m": 35, "n": 70, "k": 200, "groups": 3, "scaling": scaling, "seed": 5, "spread": "empty"}
        yield job(f"scaled-{layout}-{scaling}", "grouped_mm", ("e4m3", "bf16", "exact"), layout, **words)
    # C is added in place, so a row that two groups compute would show.
    lies = ([50, 20, 400, 120], [-5, -1, 60, 30], [10**6, 0, 150, 151], [0, -(2**31), 2**31 - 1, 7], [70, 60, 50, 40])
    for (i, ends), wide in itertools.product(enumerate(lies), (False, True)):
        extra = {"ends": [x * 2**20 if wide and i else x for x in ends], "programs": [3]}
        fields = {**few, "wide": wide, "tail": 30, "pads": (8, 0, 0, 8), "c": "in_place", "beta": 0.5}
        yield job(f"lying-ends-{i}-{'i64' if wide else 'i32'}", "grouped_mm", extra=extra, **fields)
    # Only the last end lies: clamped, it gives the answer of a table that does not.
    extra = {"ends": [30, 60, 90, 10**9]}
    yield job("last-end-past-m", "grouped_mm", extra=extra, **few)


def pointer_jobs():
    fields = {**ODD, "n": 30, "groups": 30, "vary": "mn", "c": "separate", "beta": 0.5, "bias": "each"}
    for name in "mn":
        extra = {"zeros": {name: [-1, -1000, -(2**32) + 5]}}
        yield job(f"negative-{name}", "grouped_gemm", extra=extra, **fields, spread="empty")
    extra = {"zeros": {"k": [-1, -1000, -(2**32) + 5]}}
    yield job("negative-k", "grouped_gemm", extra=extra, **{**fields, "vary": "mn0"}, spread="log")
    yield job("all-empty", "grouped_gemm", m=0, n=9, k=9, groups=3)


def random_jobs():
    for seed in range(60):
        case = random_case(seed, 70)
        layout = "nt"[case.trans_a] + "nt"[case.trans_b]
        fields = dataclasses.asdict(case) | {"fresh": False, "entry": ENTRY[case.op]}
        fields["shared"] = "" if case.op != "gemm" else case.shared  # one B for all groups is a dense call
        fields = {k: v for k, v in fields.items() if k not in ("a_type", "d_type", "precision", "trans_a", "trans_b")}
        yield job(f"random-{seed}", case.op, (case.a_type, case.d_type, case.precision), layout, **fields)


def fault_jobs():
    """Kernels told something false: what the checks are worth."""
    yield job("fault-rows-of-8", "gemm", extra={"changed": {"ALIGN": 8}}, **ODD)
    yield job("fault-layout", "gemm", layout="nt", extra={"changed": {"TRANS_B": 0}}, **{**ODD, "n": 37})
    wrong = {"guard": ("descriptor",), "kernel": "sm100.gemm.gemm_pipelined", **sizes_for(("descriptor",), "nn")}
    yield job("fault-box", "gemm", extra={"changed": {"BLOCK_K": 32}}, **wrong)
    e4m3 = ("e4m3", "bf16", "exact")
    yield job("fault-scales", "gemm", e4m3, extra={"changed": {"SCALED": 0}}, **ODD, scaling="row")
    yield job("fault-scale", "gemm", e4m3, extra={"changed": {"SCALED": 0}}, **ODD, scaling="tensor")
    yield job("fault-scales-of-groups", "grouped_mm", e4m3, "nt", extra={"changed": {"SCALED": 0}}, **ODD, groups=3,
              scaling="row")  # fmt: skip
    blocks = {"m": 150, "n": 140, "k": 300, "scaling": "1x128_128x128"}
    yield job("fault-blocks", "gemm", e4m3, extra={"changed": {"SCALED": 0}}, **blocks)
    to_e4m3 = {**ODD, "d_scale": True}
    yield job("fault-d-scale", "gemm", ("e4m3", "e4m3", "exact"), extra={"told": {"d_scale": 0}}, **to_e4m3)
    sizes = {**ODD, "d_amax": True}
    yield job("fault-d-amax", "gemm", ("e4m3", "e4m3", "exact"), extra={"told": {"d_amax": 0}}, **sizes)
    for name in ("a_type", "b_type"):
        yield job(f"fault-{name}", "gemm", e4m3, extra={"told": {name: 5}}, **ODD)
    hardware = next(row for row in TABLE if row.multiplies_bytes and row.problem.op == "gemm" and not row.guard)
    words = {"extra": {"told": {"b_type": 5}}, **ODD}
    yield {**job("fault-hardware", "gemm", ("e4m3", hardware.problem.d, "exact"), hardware.problem.layout, **words),
           "row": hardware.name}  # fmt: skip
    yield job("fault-activation", "grouped_mm", extra={"changed": {"ACTIVATE": 0}}, **ODD, activation="silu")
    yield job("fault-groups-of-8", "grouped_gemm", extra={"changed": {"ALIGN": 8}}, **ODD)
    yield job("fault-groups", "grouped_gemm", extra={"changed": {"TRANS_A": 1}}, **ODD)
    yield job("fault-ends", "grouped_mm", extra={"fault": [60, 134, 201]}, **ODD)


GOOD = [*table_jobs(), *tile_jobs(), *descriptor_jobs(), *dense_jobs(), *packed_jobs(), *pointer_jobs(), *random_jobs()]
GOOD += [*two_tiles_jobs(), *hardware_jobs()]
GOOD += [x for op in OPS for x in edge_jobs(op)] + [x for op in OPS[1:] for x in many_groups(op)]
SIDES = (1, 2, 3, 5, 8, 9, 16, 33)
GOOD.append({"id": "tile-order", "shapes": list(itertools.product(SIDES, SIDES, (1, 2, 3, 8)))})
FAULTS = list(fault_jobs())


found, test_ids_are_unique, test_kernel, test_fault_is_noticed = checks(GOOD, FAULTS)
