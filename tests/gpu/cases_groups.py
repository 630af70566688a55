"""Problems for the rows that see packed groups as whole matrices: sizes at which a tile could go wrong. Data alone."""

import re
from dataclasses import replace

from .cases import ACTIVATIONS, BLOCK_SCALINGS, Case, aligned_pads, e5m2_of, step_of, whole

# Groups of rows. Tiles have 128 rows, swapped ones a multiple of 16, which leave in runs of 32.
FEW = (0, 130, 1, 17, 0, 72)
SMALL = (0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 500, 1000, 0)
AROUND_A_TILE = tuple(range(111, 130))
AROUND_TWO = (255, 256, 257)
MOSTLY_EMPTY = tuple(g * 37 % 41 if g % 7 == 3 else 0 for g in range(300))
FULL = tuple(g * 37 % 41 + 1 for g in range(300))
# Ends that cut K at odd places. A step is 64 deep, 32 in float32.
ODD_K = (0, 1, 63, 0, 64, 65, 7, 130, 31, 200, 0)
NEIGHBOURS = ("nan_odd", "inf_odd")
# With an infinite alpha, which K = 0 does not know. Of numbers of both signs a sum may be all but 0, and 0 in what
# tensor cores keep of it, which is times Inf a NaN.
INFINITE = {"alpha": float("inf"), "values": "positive", "bias": "each"}
# Ends that cut a long K: 260 of each on average, so that five blocks share each tile, of which some find nothing left.
LONG_K = (0, 1000, 63, 0, 64, 65, 900, 1, 200, 567, 0)


def is_fast(v) -> bool:
    """Whether a variant of packed groups reads through descriptors."""
    return v.op == "grouped_mm" and bool(v.single)


def fit(case: Case, **fields) -> Case:
    """The case with these fields, aligned as descriptors need it; `pads` come on top."""
    case = replace(case, **fields)
    return replace(case, pads=aligned_pads(case, case.pads))


def cut(case: Case, sizes: tuple, **fields) -> Case:
    """The same with groups of these sizes."""
    return fit(case, groups=len(sizes), cuts=sizes, **fields)


def rows_cases(case: Case, activations, large: bool):
    """Ends that cut the rows. The last step in K of a row-major B would reach into the next group's."""
    deep = {"k": 200}
    epilogue = {"alpha": -0.5, "beta": 2.0, "bias": "each", "activation": activations[-1]}
    yield cut(case, FEW, n=136, **deep, **epilogue, c="separate", tail=9, zero=True, pads=(8, 16, 0, 8))
    for i, sizes in enumerate((SMALL, AROUND_A_TILE, AROUND_TWO, (500,), MOSTLY_EMPTY, FULL, (0,) * 130)):
        words = {"wide": i % 2 == 1, "tail": (0, 70)[i % 3 == 0], "zero": i % 2 == 0, "pads": (0, 0, 0, 0)}
        n, k = (136, 128, 1000, 8, 120, 8, 24)[i], (64, 512)[i % 2]
        yield cut(case, sizes, n=n, k=k, **words)
        more = {**words, **epilogue, "activation": activations[i % len(activations)], "zero": i % 2 == 1}
        c, bias = ("in_place", "separate", "out")[i % 3], ("row", "each")[i % 2]
        yield cut(case, sizes, n=n, **deep, **{**more, "c": c, "bias": bias, "pads": (8, 16, 24, 8)})
    for k in (8, 64, 72, 200, 512):
        yield cut(case, FEW, n=120, k=k, bias="row")
        for rows in (1, 130):  # a single row of A is as long as it is wide, whatever stood behind it
            yield cut(case, (rows,), n=128, k=whole(k, step_of(case.a_type)), beta=1.0, c="in_place")
    neighbours = neighbours_of(case)
    for values in neighbours:
        yield cut(case, (70, 33, 1, 130, 16, 8, 64), n=136, **deep, values=values, beta=1.0, c="separate")
    if not case.scaling:  # which that entry does not take
        yield cut(replace(case, entry="grouped_gemm_jagged"), (0, *AROUND_TWO, 0), n=136, **deep, wide=True, tail=3)
    yield cut(case, SMALL, n=1000, **deep, alpha=0.75, bias="each")
    for k in (8, 63, 65, 120):  # of which A's rows alone must be aligned
        yield cut(case, (70, 33, 1, 130), n=136, k=k, values=neighbours[k % len(neighbours)])
    if large:
        yield cut(case, (5000, 1, 0, 3000), n=2056, k=448, tail=300, zero=True)  # many tiles for each block


def neighbours_of(case: Case) -> tuple:
    """What may stand beside a group's numbers; e4m3 has no infinity."""
    return NEIGHBOURS[:1] if case.a_type == "e4m3" else NEIGHBOURS


def columns_cases(case: Case, activations, large: bool):
    """Ends that cut the columns of a B that has K last; C and D may stand anywhere."""
    epilogue = {"alpha": -0.5, "beta": 2.0, "bias": "each", "activation": activations[-1]}
    case = replace(case, ragged="n")
    odd = {"pads": (8, 16, 5, 3), "leads": (0, 0, 1, 3)}
    yield cut(case, FEW, m=136, k=200, **epilogue, c="separate", tail=9, zero=True, **odd)
    for i, sizes in enumerate((SMALL, AROUND_A_TILE, AROUND_TWO, (500,), MOSTLY_EMPTY, FULL, (0,) * 130)):
        words = {"wide": i % 2 == 1, "tail": (0, 70)[i % 3 == 0], "zero": i % 2 == 0}
        m, k = (136, 128, 1000, 8, 120, 1, 24)[i], (64, 512)[i % 2]
        yield cut(case, sizes, m=m, k=k, **words)
        more = {**words, **epilogue, "activation": activations[i % len(activations)], "zero": i % 2 == 1}
        c, bias = ("in_place", "separate", "out")[i % 3], ("row", "each")[i % 2]
        yield cut(case, sizes, m=m, k=200, **{**more, "c": c, "bias": bias, **odd})
    for k in (8, 64, 72, 200, 512):
        for m in (1, 7, 130):
            yield cut(case, (70, 33, 1, 130), m=m, k=k, bias="row")
    for values in neighbours_of(case):
        yield cut(case, (70, 33, 1, 130, 16, 8, 64), m=136, k=200, values=values, beta=1.0, c="separate")
        yield cut(case, (1, 1, 64, 1, 63, 2, 0, 5), m=64, k=72, values=values, tail=5)
    if large:
        yield cut(case, (5000, 1, 0, 3000), m=2056, k=448, tail=300, zero=True)  # many tiles for each block


def inner_cases(case: Case, activations, large: bool):
    """Ends that cut K, of an A and a B that are not contiguous in it, or of 8-bit ones, which are."""
    epilogue = {"alpha": -0.5, "beta": 2.0, "bias": "each", "activation": activations[-1]}
    case = replace(case, ragged="k")
    yield cut(case, ODD_K, m=72, n=136, **epilogue, c="separate", tail=9, pads=(8, 16, 0, 8))
    for i, m in enumerate((1, 7, 64, 130, 200)):
        n = (8, 120, 128, 136, 1000)[i]
        yield cut(case, ODD_K, m=m, n=n, wide=i % 2 == 1, tail=i % 3 * 20)
        more = {"c": ("in_place", "separate", "out")[i % 3], "bias": ("row", "each")[i % 2]}
        yield cut(case, ODD_K[::-1], m=m, n=n, **{**epilogue, **more}, pads=(8, 16, 24, 8))
    for values in neighbours_of(case):
        yield cut(case, ODD_K, m=130, n=136, values=values, tail=5)
        yield cut(case, (1, 1, 64, 1, 63, 2, 0, 5), m=64, n=128, values=values, beta=1.0, c="separate")
    for sizes in ((1000,), (0,), (0, 0, 0), MOSTLY_EMPTY, (1000, 3, 0, 512)):
        tail = 0 if any(sizes) else 9  # a K of 0 in all reads nothing, and no such row runs
        yield cut(case, sizes, m=70, n=24, beta=1.0, c="in_place", bias="each", tail=tail)
    yield cut(case, (0, 64, 3, 0), m=64, n=64, **INFINITE)
    if large:
        yield cut(case, (700, 0, 65, 1999), m=2000, n=2056)  # many tiles for each block


def whole_cases(case: Case, activations, large: bool):
    """Ends that cut K, or none, of groups of as many rows as a tile, a multiple of 8, and no C: rows of whole tiles
    take no others."""
    inner, batch = replace(case, ragged="k"), replace(case, ragged="none")
    epilogue = {"alpha": -0.5, "bias": "each"}
    for i, m in enumerate((192, 200, 256, 328, 584)):
        n = (8, 120, 128, 136, 1000)[i]
        yield cut(inner, ODD_K, m=m, n=n, wide=i % 2 == 1, tail=i % 3 * 20)
        yield cut(inner, ODD_K[::-1], m=m, n=n, **epilogue, pads=(8, 16, 0, 8))
        yield fit(batch, groups=5, m=m, n=n, k=(8, 72, 200)[i % 3], bias=("", "row")[i % 2])
    least = int(re.search(r"__sm\d+__(\d+)x", case.variant)[1]) if "__" in case.variant else 192
    for m in (least, least + 8):
        yield cut(inner, ODD_K, m=m, n=264, bias="row")
        yield cut(inner, FULL, m=m, n=136, wide=True)
    for m, n in ((320, 2056), (2056, 320)):  # few rows of tiles, and few columns
        yield cut(inner, (200, 0, 77), m=m, n=n)
    for values in neighbours_of(case):
        yield cut(inner, ODD_K, m=200, n=136, values=values, tail=5)
        yield cut(inner, (1, 1, 64, 1, 63, 2, 0, 5), m=192, n=128, values=values, bias="each")
        yield fit(batch, groups=4, m=216, n=136, k=64, values=values)
    for sizes in ((1000,), (0,), (0, 0, 0), MOSTLY_EMPTY, FULL, (1000, 3, 0, 512), LONG_K):
        tail = 0 if any(sizes) else 9  # a K of 0 in all reads nothing, and no such row runs
        yield cut(inner, sizes, m=264, n=24, **epilogue, tail=tail)
    yield cut(inner, (0, 64, 3, 0), m=192, n=64, **INFINITE)
    yield fit(batch, groups=1, m=192, n=136, k=200)
    if large:
        yield cut(inner, (700, 0, 65, 1999), m=2000, n=2056)  # many tiles for each block


def batch_cases(case: Case, activations, large: bool):
    """Groups of equal size."""
    epilogue = {"alpha": -0.5, "beta": 2.0, "bias": "each", "activation": activations[-1]}
    case = replace(case, ragged="none")
    for i, m in enumerate((1, 7, 64, 130, 200)):
        n = (8, 120, 128, 136, 1000)[i]
        more = {"c": ("in_place", "separate", "out")[i % 3], "bias": ("row", "each")[i % 2]}
        for k in (8, 72, 200):
            yield fit(case, groups=5, m=m, n=n, k=k)
        yield fit(case, groups=3, m=m, n=n, k=72, **{**epilogue, **more}, pads=(8, 16, 24, 8))
    for values in neighbours_of(case):
        yield fit(case, groups=4, m=7, n=120, k=72, values=values, bias="row")
        yield fit(case, groups=4, m=130, n=136, k=64, values=values)
    yield fit(case, groups=300, m=9, n=16, k=512, bias="each")
    yield fit(case, groups=1, m=130, n=136, k=200)
    dense = replace(case, entry="gemm", batch=4)  # the same by the other call
    for m, shared in ((1, "b"), (130, ""), (70, "a")):
        yield fit(dense, m=m, n=136, k=72, shared=shared, **{**epilogue, "c": "separate"})
    if large:
        yield fit(case, groups=3, m=2000, n=1032, k=448, bias="each")


def shared_inner_cases(case: Case, activations, large: bool):
    """Ends that cut K where blocks share it: few tiles, and on average two steps in K or more, or the row refuses."""
    epilogue = {"alpha": -0.5, "beta": 2.0, "bias": "each", "activation": activations[-1]}
    case = replace(case, ragged="k")
    yield cut(case, LONG_K, m=56, n=136, **epilogue, c="separate", tail=9, pads=(8, 16, 0, 8))
    for steps in range(2, 10):  # of 64, so many on average: as many blocks, up to 8
        sizes = ((128 * steps - 70, 70), (0, 128 * steps), (128 * steps - 1, 1))[steps % 3]
        more = {"c": ("in_place", "separate", "out")[steps % 3], "bias": ("row", "each")[steps % 2]}
        words = {**epilogue, **more, "activation": activations[steps % len(activations)]}
        yield cut(case, sizes, m=100, n=136, wide=steps % 2 == 1)
        yield cut(case, sizes[::-1], m=100, n=136, **words, wide=steps % 2 == 0, pads=(8, 16, 24, 8))
    for i, (m, n) in enumerate(((1, 8), (7, 120), (64, 128), (63, 256))):
        yield cut(case, LONG_K, m=m, n=n, wide=i % 2 == 1, tail=i % 3 * 20)
    for values in NEIGHBOURS:
        yield cut(case, LONG_K, m=64, n=128, values=values, tail=5)
        yield cut(case, (1, 1, 64, 1, 63, 2, 1200, 5), m=130, n=72, values=values, beta=1.0, c="separate")
    for sizes in ((1000,), (0,), (0, 0, 0), (0, 0, 2100, 0), tuple(g * 37 % 410 for g in range(60))):
        tail = 0 if any(sizes) else 700
        yield cut(case, sizes, m=60, n=24, beta=1.0, c="in_place", bias="each", tail=tail)
    yield cut(case, (0, 640, 3, 0), m=64, n=64, **INFINITE)
    if large:
        yield cut(case, (7000, 0, 65, 19999), m=250, n=200)
        yield cut(case, (50001, 3), m=256, n=256, beta=1.0, c="in_place")


def shared_batch_cases(case: Case, activations, large: bool):
    """Groups of equal size of which blocks share K."""
    epilogue = {"alpha": -0.5, "beta": 2.0, "bias": "each", "activation": activations[-1]}
    case = replace(case, ragged="none")
    for i, (m, n) in enumerate(((1, 8), (7, 120), (64, 128), (130, 136))):
        more = {"c": ("in_place", "separate", "out")[i % 3], "bias": ("row", "each")[i % 2]}
        for k in (72, 200, 999):
            yield fit(case, groups=5, m=m, n=n, k=k)
        words = {**epilogue, **more, "activation": activations[i % len(activations)]}
        yield fit(case, groups=3, m=m, n=n, k=456, **words, pads=(8, 16, 24, 8))
    for values in NEIGHBOURS:
        yield fit(case, groups=4, m=7, n=120, k=200, values=values, bias="row")
        yield fit(case, groups=4, m=130, n=136, k=520, values=values)
    yield fit(case, groups=60, m=9, n=16, k=512, bias="each")
    yield fit(case, groups=1, m=130, n=136, k=200)
    if large:
        yield fit(case, groups=2, m=256, n=264, k=20000, bias="each")


def group_cases(v):
    """Legal calls of one such variant, by name; some for a GPU alone, which the stand-in's target, 0, is not."""
    types = {"a_type": v.a_type, "d_type": v.d_type, "precision": v.precision or "exact"}
    case = Case(entry="grouped_mm", trans_a=bool(v.trans_a), trans_b=bool(v.trans_b), variant=v.name, **types)
    if v.a_type == "e4m3":
        case = replace(case, scaling=BLOCK_SCALINGS[0] if "_blocks" in v.name else "row", e5m2=e5m2_of(v))
    fits_k = v.a_type == "e4m3" or (v.trans_a and not v.trans_b)
    inner, batch = (shared_inner_cases, shared_batch_cases) if "_cluster" in v.name else (inner_cases, batch_cases)
    kinds = (inner, batch) if fits_k else (batch,)
    if "_whole" in v.name:
        kinds = (whole_cases,)
    if "_rows" in v.name or "_columns" in v.name:
        kinds = (rows_cases,) if "_rows" in v.name else (columns_cases,)
    for cases in kinds:
        yield from cases(case, (None,) if v.linear else ACTIVATIONS, large=v.target != 0)


def many_tiles(v) -> Case | None:
    """One call of such a variant that has several tiles for each block, of few steps in K; None of those that blocks of
    a cluster share, which are for few tiles."""
    if "_cluster" in v.name:
        return None
    case, sizes = next(group_cases(v)), (1500, 1, 0, 1100)
    if case.ragged == "none":
        return fit(case, groups=3, m=2056, n=1032)
    if case.ragged == "k":
        return fit(case, m=2056, n=2056)
    return cut(case, sizes, **{"m": {"n": 2056}, "n": {"m": 2056}}[case.ragged])
