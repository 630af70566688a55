"""Routing and the final sum of a mixture of experts, against numpy, run by Triton's interpreter. No GPU, no torch."""

import importlib.util
import itertools
import zlib

import numpy as np
import pytest
from by_hand import BAND, POISON, SIZE, checks_of, element, guarded, launch, main, widened

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

EXPERTS = (1, 5, 128, 1000)
IDS = ("mixed", "valid", "one", "none")


def route_jobs():
    """Tokens, choices of each, experts, programs. Chunks are of 32 entries, or as many as the last number says."""
    few = [(67, 3, experts, programs, "mixed", programs == 3) for experts in EXPERTS for programs in (1, 3, 7)]
    more = [(41, 5, EXPERTS[i % 4], 1 + i % 3, ids, i // 4) for i, ids in enumerate(IDS * 2)]
    edges = [
        (1, 1, 3, 1, "valid", 0), (1, 1, 3, 3, "none", 1), (32, 2, 9, 2, "valid", 1), (33, 1, 9, 1, "mixed", 0),
        (31, 1, 255, 1, "mixed", 1), (40, 1, 256, 3, "mixed", 0), (40, 2, 257, 3, "mixed", 0),
        (9, 8, 4096, 2, "mixed", 0), (50, 2, 6, 16, "mixed", 0), (50, 2, 6, 17, "mixed", 0),
        (160, 8, 6, 40, "mixed", 0), (300, 1, 300, 2, "mixed", 1, 256), (0, 4, 6, 1, "none", 0),
    ]  # fmt: skip
    for job in [*few, *more, *edges]:
        yield {"id": "route-" + "-".join(map(str, job)), "route": job}
    yield {"id": "route-two-launches-of-one-program", "route": (30, 3, 7, 1, "mixed", 0), "phases": (1, 2)}
    pairs = [(tokens, top_k, EXPERTS[i % 4], 9, IDS[i // 2 % 4], i % 2) for i, (tokens, top_k) in
             enumerate(((1, 1), (1, 8), (33, 2), (41, 5), (51, 5), (128, 2), (256, 1), (9, 8)))]  # fmt: skip
    for job in [*pairs, (0, 4, 6, 1, "none", 0), (9, 8, 4096, 128, "mixed", 0), (5, 8, 4096, 3, "mixed", 1)]:
        yield {"id": "pairs-" + "-".join(map(str, job)), "route": job, "pairs": True}


def sum_jobs():
    """Tokens, columns, choices of each, columns of a tile, what leading dimensions have beyond columns."""
    shapes = ((5, 70, 32), (7, 33, 16), (3, 64, 64), (6, 40, 64))
    for i, (top_k, kind) in enumerate(itertools.product((*range(1, 10), 20), SIZE)):
        m, n, tile = shapes[i % 4]
        yield {"id": f"sum-{kind}-{top_k}", "sum": (m, n, top_k, tile, 3 * (i % 3)), "kind": kind, "weights": i % 4}
    for weights, kind in itertools.product(range(4), SIZE):
        fields = {"sum": (5, 72, 8, 32, 8), "kind": kind, "weights": weights, "align": 16 // SIZE[kind]}
        yield {"id": f"sum-aligned-{kind}-{weights}", **fields}
    yield {"id": "sum-no-place", "sum": (4, 30, 8, 32, 1), "kind": "fp32", "weights": 3, "missing": 1.0}


def faults():
    """Kernels told something false: what the comparison is worth."""
    plain = {"route": (40, 3, 7, 3, "mixed", 0)}
    for name, value in {"entries": 119, "groups": 6, "top_k": 4, "ids_wide": 1}.items():
        fewer = {"entries": 60} if name == "ids_wide" else {}  # there are no more of twice the size
        yield {**plain, "id": f"fault-route-{name}", "changed": {name: value, **fewer}}
        pairs = {"route": (40, 3, 7, 4, "mixed", 0), "pairs": True}
        yield {**pairs, "id": f"fault-pairs-{name}", "changed": {name: value, **fewer}}
    yield {**plain, "id": "fault-counts-alone", "phases": (1,)}
    yield {**plain, "id": "fault-tickets-kept", "tickets": 1, "changed": {"tickets_ptr": 0}}
    yield {**plain, "id": "fault-pairs-too-few-programs", "pairs": True}
    plain = {"sum": (5, 70, 6, 32, 5), "kind": "fp16", "weights": 1}
    wrong = {
        "M": (4,),
        "N": (69,),
        "top_k": (5,),
        "stored": (9,),
        "lda": (74,),
        "ldd": (74,),
        "weights_type": (0, 2),
        "ALIGN": (8,),
    }
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        yield {**plain, "id": f"fault-sum-{name}-{value}", "changed": {name: value}}


GOOD, FAULTS = [*route_jobs(), *sum_jobs()], list(faults())


def route(job: dict, rng) -> list[str]:
    from kernels.device.portable import moe, moe_few

    tokens, top_k, groups, programs, kind, wide, *block = job["route"]
    ids = rng.integers(0, groups, tokens * top_k) if kind != "one" else np.full(tokens * top_k, groups // 2)
    far = (-(2**63), 2**32, 2**32 + groups // 2, 2**63 - 1) if wide else (-(2**31), 2**31 - 1)
    skipped = rng.random(ids.size) < {"mixed": 0.3, "none": 1.0}.get(kind, 0.0)
    ids[skipped] = rng.choice([-1, -5, groups, groups + 1, *far], skipped.sum())
    ids = ids.astype(np.int64 if wide else np.int32)
    valid = (ids >= 0) & (ids < groups)
    count = valid.sum()
    order = np.argsort(np.where(valid, ids, groups), kind="stable")[:count]
    rows, places = np.full((2, ids.size), -1, dtype=np.int32)
    rows[:count] = order // top_k
    places[order] = np.arange(count)
    offs = np.cumsum(np.bincount(ids[valid], minlength=groups)).astype(np.int32)
    wanted = {"rows": rows, "places": places, "offs": offs, "ids": ids}
    memories = {name: guarded(x if name == "ids" else np.full_like(x, POISON[4])) for name, x in wanted.items()}
    memories["counts"] = guarded(rng.integers(-(2**31), 2**31, 2 * programs * groups).astype(np.int32))
    tickets = np.full(2, POISON[4], dtype=np.int32)
    memories["tickets"] = guarded(tickets)
    values = {f"{name}_ptr": address for name, (_, address) in memories.items()}
    asked = not job.get("pairs") and job.get("tickets", tokens % 2)
    values["tickets_ptr"] *= asked
    wanted["tickets"] = np.zeros_like(tickets) if asked else tickets
    values |= {"entries": ids.size, "groups": groups, "top_k": top_k, "ids_wide": wide, **job.get("changed", {})}
    if job.get("pairs"):
        constants = {"BLOCK_M": 256, "OVERLAP": 0}
        launch(moe_few.moe_route_pairs, "*i32 " * 4 + "i32 " * 4, values, programs, constants)
    for phase in () if job.get("pairs") else job.get("phases", (3,) if programs == 1 else (1, 2)):
        constants = {"BLOCK_M": (*block, 32)[0], "OVERLAP": 0}
        launch(moe.moe_route, "*i32 " * 6 + "i32 " * 5, {**values, "phase": phase}, programs, constants)
    wanted["counts"] = memories["counts"][0][BAND:-BAND]  # the kernel's own, but not what is around
    return [f"mismatch: {x}" for x, (memory, _) in memories.items() if (memory != guarded(wanted[x])[0]).any()]


def total(job: dict, rng) -> list[str]:
    from kernels.device.portable import moe

    tokens, n, top_k, block_n, more = job["sum"]
    kind, weighted = job["kind"], (None, "fp16", "bf16", "fp32")[job["weights"]]
    lda, ldd = n + more, n + 2 * more
    rows = tokens * top_k + 9
    places = rng.permutation(rows)[: tokens * top_k].astype(np.int32)
    unread = rng.random(places.size) < job.get("missing", 0.2)
    places[unread] = rng.choice([-1, -7, -(2**31), rows, 2**31 - 1], unread.sum())
    a = np.full((rows, lda), np.nan, dtype=np.float32)
    a[places[~unread], :n] = rng.standard_normal(((~unread).sum(), n)) * 8  # all that must not be read is NaN
    weights = np.where(unread, np.nan, rng.standard_normal(places.size)).astype(np.float32)
    a = element(a, kind).astype(f"u{SIZE[kind]}")
    weights = element(weights, weighted or "fp32").astype(f"u{SIZE[weighted or 'fp32']}")
    memories = {"a": guarded(a), "places": guarded(places), "weights": guarded(weights)}
    memories["d"] = guarded(np.full(tokens * ldd, POISON[a.itemsize], dtype=a.dtype))
    want, slack = memories["d"][0].copy(), np.zeros(memories["d"][0].size, dtype=np.int64)
    for token in range(tokens):
        sums = np.zeros(n, dtype=np.float32)
        for j in range(token * top_k, (token + 1) * top_k):
            if 0 <= places[j] < rows:
                weight = widened(weights[j : j + 1], weighted) if weighted else np.float32(1)
                sums += weight * widened(a[places[j], :n], kind)
        at = slice(BAND + token * ldd, BAND + token * ldd + n)
        want[at], slack[at] = element(sums, kind), kind == "bf16"  # to be rounded, once it does
    before = {name: memory.copy() for name, (memory, _) in memories.items()}
    values = {f"{name}_ptr": address for name, (_, address) in memories.items()}
    values["weights_ptr"] *= weighted is not None
    values |= {
        "M": tokens,
        "N": n,
        "top_k": top_k,
        "stored": rows,
        "lda": lda,
        "ldd": ldd,
        "weights_type": job["weights"],
    }
    changed = job.get("changed", {})
    align = changed.get("ALIGN", job.get("align", 1))
    constants = {"ALIGN": align, "BLOCK_N": block_n, "OVERLAP": 0}
    programs = tokens * -(-n // block_n)
    launch(
        moe.moe_sum, f"*{kind} *{kind} *fp32 *i32 i32 i32 i32 i32 i64 i64 i32", values | changed, programs, constants
    )
    apart = memories["d"][0].astype(np.int64) - want
    problems = [] if ((apart >= 0) & (apart <= slack)).all() else ["mismatch: d"]
    return problems + [f"{x} was written" for x in ("a", "places", "weights") if (before[x] != memories[x][0]).any()]


def check(job: dict) -> list[str]:
    rng = np.random.default_rng(zlib.crc32(job["id"].encode()))
    return (route if "route" in job else total)(job, rng)


found, *TESTS = checks_of(__file__, GOOD, FAULTS)
test_ids_are_unique, test_outputs_are_right_and_nothing_else_is_written, test_fault_is_noticed = TESTS

if __name__ == "__main__":
    main(GOOD + FAULTS, check)
