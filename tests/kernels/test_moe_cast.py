"""Rows of experts cast to e4m3, by an index and gated or to their choices' places, against numpy, run by Triton's
interpreter. No GPU.

Without an activation bit for bit; else float32's exponentials are a few units apart, and numbers near the middle of two
of e4m3's may be either.
"""

import importlib.util
import itertools
import math
import zlib

import numpy as np
import pytest
from activations import GELU, NONE, RELU, SILU, activated
from by_hand import BAND, POISON, checks_of, element, guarded, launch, main, widened
from eight_bits import TABLES, rounded, scales

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

HALVES, PAIRS = 1, 2
PART = 16  # rows of a tile
GROUPS = 5  # experts


def jobs():
    """Rows of q and of A, columns of q, what leading dimensions have beyond columns."""
    sizes = ((40, 9, 200, 3), (33, 50, 128, 0), (5, 5, 257, 1))
    ways = [*itertools.product((0, HALVES, PAIRS), (NONE, RELU, GELU, SILU), (0.0,))]
    ways += [(HALVES, SILU, 0.7), (PAIRS, SILU, 0.7)]
    for i, (gate, activation, limit) in enumerate(ways):
        fields = {"gate": gate, "activation": activation, "limit": limit, "kind": ("bf16", "fp16")[i % 2]}
        yield {"id": f"{gate}-{activation}-{limit}", **fields, "size": sizes[i % 3], "indexed": i % 3 < 2}
        if activation == SILU and gate:  # of rows that know no other gate
            yield {"id": f"{gate}-swish-{limit}", **fields, "size": sizes[i % 3], "indexed": True, "swish": 1}
        if i % 3 == 0:
            yield {"id": f"{gate}-{activation}-aligned", **fields, "size": (40, 9, 264, 8), "align": 8, "indexed": True}
    plain = {"gate": 0, "activation": NONE, "limit": 0.0, "kind": "bf16", "size": (5, 5, 257, 1)}
    yield {"id": "rows-as-they-stand", **plain, "indexed": False}
    yield {"id": "numbers-that-are-none", **plain, "indexed": True, "none": True}
    spreads = (((20, 3), 208, 8), ((33, 9), 136, 0), ((17, 8), 77, 3), ((5, 20), 264, 24), ((1, 1), 16, 0))
    few = (((1, 8), 208, 8), ((8, 8), 136, 0), ((64, 1), 77, 3), ((5, 9), 264, 24), ((1, 64), 16, 0))
    told = [*((0, x) for x in spreads), *((1 + i % 2, x) for i, x in enumerate(few))]
    for i, (ids, (choices, n, more)) in enumerate(told):
        fields = {"spread": choices, "kind": ("bf16", "fp16")[i % 2], "size": (n, more), "ids": ids}
        yield {"id": f"spread-{ids}-{choices}", **fields, "align": 1 if n % 8 else 8}
    yield {"id": "spread-numbers-that-are-none", **fields, "none": True, "align": 8}


def faults():
    plain = {"gate": HALVES, "activation": SILU, "limit": 0.7, "kind": "fp16", "size": (40, 9, 200, 3), "indexed": True}
    wrong = {
        "M": 39, "N": 199, "stored": 8, "lda": 404, "ldd": 201, "scale_stride_m": 1, "scale_stride_n": 2,
        "activation": GELU, "gate_alpha": 1.0, "gate_limit": math.inf, "gate_shift": 0.0, "rows_ptr": 0,
    }  # fmt: skip
    for name, value in wrong.items():
        yield {"id": f"fault-{name}", **plain, "changed": {name: value}}
    for name, value in (("PAIRED", 1), ("GATED", 0)):
        yield {"id": f"fault-{name}", **plain, "constants": {name: value}}
    for ids in (0, 1):
        plain = {"spread": (9, 7), "kind": "bf16", "size": (272, 16), "ids": ids, "align": 8}
        wrong = {"N": 256, "lda": 280, "ldd": 288, "scale_stride_m": 2, "scale_stride_n": 1, "top_k": 6}
        wrong |= {"groups": 3, "ids_wide": 1, "entries": 60} if ids else {"entries": 40}
        for name, value in wrong.items():
            yield {"id": f"fault-spread-{ids}-{name}", **plain, "changed": {name: value}}


GOOD, FAULTS = list(jobs()), list(faults())


def made(a: np.ndarray, job: dict) -> np.ndarray:
    """H in float64, of A's rows."""
    if not job["gate"]:
        return activated(a, job["activation"])
    half = a.shape[1] // 2
    first, up = (a[:, ::2], a[:, 1::2]) if job["gate"] == PAIRS else (a[:, :half], a[:, half:])
    if job["limit"]:
        first, up = np.minimum(first, job["limit"]), np.clip(up, -job["limit"], job["limit"])
        return first / (1 + np.exp(-1.702 * first)) * (up + 1)
    return activated(first, job["activation"]) * up


def number(code: np.ndarray) -> np.ndarray:
    """What bytes of e4m3 stand for."""
    size = np.append(TABLES["e4m3"], np.nan)[code & 0x7F]
    return np.where(code & 0x80, -size, size)


def indices(rng, m: int, stored: int, indexed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which of `stored` rows each of m is, some none of them; and whether it is one."""
    index = rng.integers(0, stored, m).astype(np.int32)
    index[rng.random(m) < 0.2] = -1
    index[0] = stored  # one behind the last
    if not indexed:
        index = np.where(np.arange(m) < stored, np.arange(m), -1).astype(np.int32)
    return index, (index >= 0) & (index < stored)


def choices_of(job: dict, rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expert ids of a few experts, the sorted place of each choice, and the ends; where the sort was before, places
    that are in no order, some none."""
    tokens, top_k = job["spread"]
    entries = tokens * top_k
    ids = rng.integers(-1, GROUPS + 1, entries)
    there = (ids >= 0) & (ids < GROUPS)
    order = np.argsort(np.where(there, ids, GROUPS), kind="stable")[: there.sum()]
    places = np.full(entries, -1, np.int32)
    places[order] = np.arange(len(order))
    ends = np.cumsum(np.bincount(ids[there], minlength=GROUPS)).astype(np.int32)
    if not job["ids"]:
        places = np.where(there, rng.permutation(entries), -1).astype(np.int32)
    return ids.astype(np.int64 if job["ids"] == 2 else np.int32), places, ends


def check_spread(job: dict) -> list[str]:
    """Each row's bytes and scales at its choices' places, to the bit; the latter of a column lie one behind the other.
    Rows of nobody are as they were."""
    from kernels.device.portable.moe_cast import moe_spread

    rng = np.random.default_rng(zlib.crc32(job["id"].encode()))
    (tokens, top_k), (n, more), kind = job["spread"], job["size"], job["kind"]
    entries, lda, ldd, blocks = tokens * top_k, n + more, n + 2 * more, -(-n // 128)
    ids, places, ends = choices_of(job, rng)
    values = rng.standard_normal((tokens, lda)).astype(np.float32)
    if job.get("none"):
        values[rng.random(values.shape) < 0.2] = np.inf
    bits = element(values, kind)
    a = widened(bits, kind).reshape(tokens, lda)[:, :n]
    size = np.where(np.isfinite(a), np.abs(a), 0)
    own = scales(np.maximum.reduceat(size, np.arange(0, n, 128), 1), 0)
    code = rounded(a, own.repeat(128, 1)[:, :n])
    wanted = {
        "a": bits.astype(np.uint16), "ids": ids, "places": places, "offs": ends,
        "q": np.full((entries, ldd), POISON[1], np.uint8), "scale": np.full((blocks, entries), POISON[4], np.uint32),
    }  # fmt: skip
    made = ("places", "offs") if job["ids"] else ()
    memories = {
        name: guarded(np.full_like(x, POISON[4]) if name in made else x)
        for name, x in wanted.items() if name != "offs" or made
    }  # fmt: skip
    for entry in np.flatnonzero(places >= 0):
        wanted["q"][places[entry], :n] = code[entry // top_k]
        wanted["scale"][:, places[entry]] = own[entry // top_k].astype(np.float32).view(np.uint32)
    told = {f"{name}_ptr": at for name, (_, at) in memories.items()} | {
        "N": n, "entries": entries, "groups": GROUPS, "top_k": top_k, "ids_wide": job["ids"] == 2,
        "lda": lda, "ldd": ldd, "scale_stride_m": 1, "scale_stride_n": entries,
    }  # fmt: skip
    if not job["ids"]:
        told |= {"ids_ptr": 0, "offs_ptr": 0}
    aligned = job["align"] > 1
    packed = aligned * {"fp16": 1, "bf16": 2}[kind]
    constants = {"ALIGN": job["align"], "PACKED": packed, "BLOCK_N": 256, "HARDWARE": 0, "OVERLAP": 0}
    types = f"*{kind} *u8 *fp32 *i32 *i32 *i32 {'i32 ' * 5}{'i64 ' * 4}"
    launch(moe_spread, types, told | job.get("changed", {}), tokens * -(-n // 256), constants)
    return [f"mismatch: {x}" for x, (memory, _) in memories.items() if (memory != guarded(wanted[x])[0]).any()]


def check(job: dict) -> list[str]:
    from kernels.device.portable import moe_cast

    if "spread" in job:
        return check_spread(job)
    rng = np.random.default_rng(zlib.crc32(job["id"].encode()))
    m, stored, n, more = job["size"]
    kind, gate = job["kind"], job["gate"]
    columns, blocks = 2 * n if gate else n, -(-n // 128)
    lda, ldd, strides = columns + more, n + 2 * more, (blocks + 1, 1)
    values = rng.standard_normal((stored, lda)).astype(np.float32)
    if job.get("none"):
        values[rng.random(values.shape) < 0.01] = np.inf
        values[rng.random(values.shape) < 0.01] = np.nan
    bits = element(values, kind)
    a = widened(bits, kind).reshape(stored, lda)[:, :columns].astype(np.float64)
    index, there = indices(rng, m, stored, job["indexed"])
    h = np.where(there[:, None], made(a, job)[np.where(there, index, 0)], 0)
    memories = {
        "a": guarded(bits.astype(np.uint16)), "rows": guarded(index),
        "q": guarded(np.full((m, ldd), POISON[1], np.uint8)),
        "scale": guarded(np.full((m, strides[0]), POISON[4], np.uint32)),
    }  # fmt: skip
    before = {name: memory.copy() for name, (memory, _) in memories.items()}
    clamped = job["limit"] > 0
    told = {f"{name}_ptr": at for name, (_, at) in memories.items()} | {
        "M": m, "N": n, "stored": stored, "lda": lda, "ldd": ldd, "scale_stride_m": strides[0],
        "scale_stride_n": strides[1], "activation": job["activation"],
        "gate_alpha": 1.702 if clamped else 1.0, "gate_limit": job["limit"] if clamped else math.inf,
        "gate_shift": float(clamped),
    }  # fmt: skip
    told["rows_ptr"] *= job["indexed"]
    types = f"*{kind} *u8 *fp32 *i32 i32 i32 i32 i64 i64 i64 i64 i32 fp32 fp32 fp32"
    constants = {
        "ALIGN": job.get("align", 1), "BLOCK_M": PART, "HARDWARE": 0, "OVERLAP": 0, "GATED": int(gate > 0),
        "PAIRED": int(gate == PAIRS), "SWISH": job.get("swish", 0), "ACTIVATE": int(job["activation"] != NONE),
    } | job.get("constants", {})  # fmt: skip
    launch(moe_cast.moe_cast, types, told | job.get("changed", {}), -(-m // PART) * blocks, constants)
    q = memories["q"][0][BAND:-BAND].reshape(m, ldd)
    scale = memories["scale"][0][BAND:-BAND].reshape(m, strides[0])
    size = np.where(np.isfinite(h), np.abs(h), 0).astype(np.float32)
    wanted = scales(np.maximum.reduceat(size, np.arange(0, n, 128), 1), 0)
    got, code = scale[:, :blocks].copy().view(np.float32), q[:, :n].copy()
    problems = []
    each = wanted.repeat(128, 1)[:, :n]
    if job["activation"] == NONE and not gate:
        off = (got != wanted).sum(), (code != rounded(h.astype(np.float32), each)).sum()
    else:  # one of e4m3's numbers next to it
        apart = np.abs(number(code) - h / each)
        step = np.maximum(np.abs(h / each) * 2.0**-3, 2.0**-9)
        off = (~(np.abs(got - wanted) <= 1e-5 * wanted)).sum(), (~(apart <= 0.51 * step)).sum()
    if any(off):
        problems.append(f"mismatch: {off[0]} scales, {off[1]} of {code.size} values")
    q[:, :n], scale[:, :blocks] = POISON[1], POISON[4]
    return problems + [f"mismatch: written beyond {x}" for x in memories if (memories[x][0] != before[x]).any()]


found, *TESTS = checks_of(__file__, GOOD, FAULTS)
test_ids_are_unique, test_outputs_are_right_and_nothing_else_is_written, test_fault_is_noticed = TESTS

if __name__ == "__main__":
    main(GOOD + FAULTS, check)
