"""The portable kernel of a layer of experts' products, against float64, run by Triton's interpreter. No GPU."""

import importlib.util
import itertools
import zlib

import numpy as np
import pytest
from by_hand import BAND, POISON, checks_of, guarded, launch, main

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

COUNTS = (19, 0, 40, 1, 33)
STORED = 70  # rows of A
TYPES = ("*fp16 *fp16 *fp16 *fp16 *i32 *i32 *fp32 *i32 " + "i32 " * 6 + "i64 " * 5
         + "fp32 i32 i32 fp32 fp32 fp32")  # fmt: skip
NONE, RELU, GELU, SILU = range(4)


def jobs():
    for gate, trans_b, activation in itertools.product((0, 1, 2), (0, 1), (NONE, SILU)):
        yield {"gate": gate, "trans_b": trans_b, "activation": activation, "bias": trans_b ^ (gate == 1)}
    for gate in (0, 1):
        yield {"gate": gate, "activation": RELU, "weighted": 1}
        yield {"gate": gate, "activation": GELU, "scattered": 1, "bias": 1}
        yield {"gate": gate, "activation": SILU, "gathered": 0, "programs": 1}
        yield {"gate": gate, "far": 1, "scattered": 1}
        yield {"gate": gate, "alpha": -0.5, "bias": 1, "aligned": 1, "trans_b": 1}
        yield {"gate": gate, "k": 0, "bias": 1}
    yield {"gate": 1, "activation": SILU, "limit": 0.7}
    yield {"gate": 2, "activation": SILU, "limit": 0.7, "trans_b": 1}
    for ends in ((30, 10, 200, 5, 93), (-4, 93, 93, -9, 2**31 - 1)):
        yield {"gate": 1, "activation": SILU, "ends": ends}


def faults():
    plain = {"gate": 1, "activation": SILU, "bias": 1, "weighted": 1, "scattered": 1}
    values = {"N": 21, "K": 24, "groups": 4, "stored": 9, "d_stored": 40, "lda": 24, "gate": 2, "alpha": 0.9,
              "gate_shift": 1.0, "activation": GELU, "batch_stride_bias": 3}  # fmt: skip
    for name, value in values.items():
        yield {**plain, "changed": {name: value}}


def named(job: dict) -> dict:
    return {"id": "-".join(f"{key}={value}" for key, value in job.items()).replace(" ", ""), **job}


GOOD, FAULTS = [named(job) for job in jobs()], [named(job) for job in faults()]


def activated(z: np.ndarray, kind: int) -> np.ndarray:
    if kind == RELU:
        return np.maximum(z, 0)
    if kind == GELU:
        from math import erfc

        return z * np.vectorize(lambda x: 0.5 * erfc(-x * 0.5**0.5), otypes=[float])(z)
    return z / (1 + np.exp(-z)) if kind == SILU else z


def joined(z: np.ndarray, job: dict) -> np.ndarray:
    if not job["gate"]:
        return activated(z, job.get("activation", NONE))
    gate, up = np.split(z, 2, 1) if job["gate"] == 1 else (z[:, ::2], z[:, 1::2])
    if limit := job.get("limit"):
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
    return activated(gate, job.get("activation", NONE)) * up


def check(job: dict) -> list[str]:
    from kernels.device.portable import moe_mm

    rng = np.random.default_rng(zlib.crc32(job["id"].encode()))
    align = 8 if job.get("aligned") else 1
    n, k, rows = (24, 32, sum(COUNTS)) if align > 1 else (22, job.get("k", 29), sum(COUNTS))
    columns, trans_b = n * (2 if job["gate"] else 1), job.get("trans_b", 0)
    a = np.full((STORED if job.get("gathered", 1) else rows, k + 8), np.nan, dtype=np.float16)
    a[:, :k] = rng.standard_normal((len(a), k))
    b = rng.standard_normal((len(COUNTS), columns, k)).astype(np.float16)
    stored_b = b if trans_b else b.transpose(0, 2, 1)
    bias = rng.standard_normal((len(COUNTS), columns)).astype(np.float16)
    index = rng.integers(0, STORED, rows).astype(np.int32) if job.get("gathered", 1) else np.arange(rows)
    to = rng.permutation(rows).astype(np.int32) if job.get("scattered") else np.arange(rows)
    if job.get("far"):
        index[::5], to[::7] = rng.choice([STORED, 2**31 - 1], len(index[::5])), rng.choice([-1, rows], len(to[::7]))
    weights = rng.random(rows).astype(np.float32)
    ends = np.array(job.get("ends", np.cumsum(COUNTS)), dtype=np.int32)
    memory = {"a": guarded(a), "b": guarded(np.ascontiguousarray(stored_b)), "bias": guarded(bias),
              "offs": guarded(ends),
              "rows": guarded(index.astype(np.int32)), "weights": guarded(weights),
              "to_rows": guarded(to.astype(np.int32))}  # fmt: skip
    memory["d"] = guarded(np.full((rows, n + 8), POISON[2], dtype=np.uint16))
    want, start = np.full((rows, n + 8), np.nan), 0
    for expert, end in enumerate(ends.astype(np.int64)):
        end = min(max(end, start), rows)
        place = np.arange(start, end)
        x = np.where((index[place] < len(a))[:, None], a[index[place] % len(a), :k].astype(np.float64), 0.0)
        z = job.get("alpha", 1.0) * x @ b[expert].T.astype(np.float64)
        d = joined(z + (bias[expert].astype(np.float64) if job.get("bias") else 0), job)
        d *= weights[place, None] if job.get("weighted") else 1
        there = (to[place] >= 0) & (to[place] < rows)
        want[to[place][there], :n] = d[there]
        start = end
    limit = job.get("limit")
    values = {
        "M": rows, "N": n, "K": k, "groups": len(COUNTS), "stored": len(a), "d_stored": rows, "lda": k + 8,
        "ldb": k if trans_b else columns, "ldd": n + 8, "batch_stride_b": columns * k, "batch_stride_bias": columns,
        "alpha": job.get("alpha", 1.0), "activation": job.get("activation", NONE), "gate": job["gate"],
        "gate_alpha": 1.702 if limit else 1.0, "gate_limit": limit or np.inf, "gate_shift": 1.0 if limit else 0.0,
    }  # fmt: skip
    absent = {"bias": "bias", "weights": "weighted", "to_rows": "scattered"}
    for name, (_, address) in memory.items():
        given = job.get(absent[name]) if name in absent else job.get("gathered", 1) if name == "rows" else True
        values[f"{name}_ptr"] = address if given else 0
    before = {name: x.copy() for name, (x, _) in memory.items()}
    constants = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "GROUP_M": 2, "TRANS_B": trans_b, "ALIGN": align,
                 "GATED": int(job["gate"] > 0)}  # fmt: skip
    launch(moe_mm.moe_mm, TYPES, values | job.get("changed", {}), job.get("programs", 3), constants)
    got = memory["d"][0][BAND:-BAND].view(np.float16).reshape(rows, n + 8).astype(np.float64)
    bound = 2.0**-10 * np.abs(want) + 2.0**-12 * (1 + np.abs(np.nan_to_num(want)).mean())
    here = ~np.isnan(want)
    problems = [] if (np.abs(got - want)[here] <= bound[here]).all() else ["mismatch: d"]
    untouched = memory["d"][0] != before["d"]
    untouched[BAND:-BAND] &= ~here.ravel()
    problems += ["mismatch: beside d"] * bool(untouched.any())
    return problems + [f"{x} was written" for x in before if x != "d" and (before[x] != memory[x][0]).any()]


found, *TESTS = checks_of(__file__, GOOD, FAULTS)
test_ids_are_unique, test_outputs_are_right_and_nothing_else_is_written, test_fault_is_noticed = TESTS

if __name__ == "__main__":
    main(GOOD + FAULTS, check)
