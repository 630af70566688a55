"""The gate of a layer of experts and its gradient, against numpy in float64, run by Triton's interpreter. No GPU.

Slopes are not those of a formula again: each is the quotient of differences of what the gate gives.
"""

import importlib.util
import itertools
import math
import zlib

import numpy as np
import pytest
from activations import GELU, NONE, RELU, SILU, activated
from by_hand import BAND, POISON, SIZE, checks_of, element, guarded, launch, main, widened

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

HALVES, PAIRS = 1, 2
STEP = 1e-5


def jobs():
    """Rows, columns of H, columns of a tile, what leading dimensions have beyond columns; gate, activation, limit."""
    sizes = ((5, 40, 32, 0), (3, 33, 16, 3), (4, 64, 64, 8))
    ways = [
        *itertools.product((0, HALVES, PAIRS), (NONE, RELU, GELU, SILU), (0.0,)),
        (HALVES, SILU, 0.7),
        (PAIRS, SILU, 0.7),
    ]
    for i, ((gate, activation, limit), op) in enumerate(itertools.product(ways, ("gate", "grad"))):
        size, kind = sizes[i // 2 % 3], ("fp16", "bf16")[i // 4 % 2]
        fields = {"op": op, "size": size, "kind": kind, "gate": gate, "activation": activation, "limit": limit}
        yield {"id": f"{op}-{gate}-{activation}-{limit}", "weights": i // 2 % 4, **fields}
        if activation == SILU:
            yield {"id": f"{op}-{gate}-{limit}-aligned", "weights": 3, **fields, "size": (4, 48, 32, 8), "align": 8}
    yield {"id": "grad-h-and-sums-not-asked", "op": "grad", "size": (5, 40, 32, 0), "kind": "bf16", "gate": HALVES,
           "activation": SILU, "limit": 0.0, "weights": 3, "without": ("h", "sums")}  # fmt: skip


def faults():
    plain = {"size": (5, 40, 32, 3), "kind": "fp16", "gate": HALVES, "activation": SILU, "limit": 0.7, "weights": 3}
    wrong = {
        "N": 39, "lda": 84, "activation": GELU, "gate": 2, "gate_alpha": 1.0, "gate_limit": math.inf, "gate_shift": 0.0,
    }  # fmt: skip
    for op, (name, value) in itertools.product(("gate", "grad"), wrong.items()):
        yield {"id": f"fault-{op}-{name}", "op": op, **plain, "changed": {name: value}}
    for name, value in (("ldb", 41), ("ldd", 90), ("ldh", 41), ("stored", 9), ("entries", 9), ("weights_type", 0)):
        yield {"id": f"fault-grad-{name}", "op": "grad", **plain, "changed": {name: value}}
    yield {"id": "fault-gate-M", "op": "gate", **plain, "changed": {"M": 4}}


GOOD, FAULTS = list(jobs()), list(faults())


def joined(first: np.ndarray, up: np.ndarray, job: dict) -> np.ndarray:
    """H, in float64."""
    if not job["gate"]:
        return activated(first, job["activation"])
    if job["limit"]:
        first, up = np.minimum(first, job["limit"]), np.clip(up, -job["limit"], job["limit"])
        return first / (1 + np.exp(-1.702 * first)) * (up + 1)
    return activated(first, job["activation"]) * up


def parted(z: np.ndarray, gate: int) -> tuple[np.ndarray, np.ndarray]:
    if gate == PAIRS:
        return z[:, ::2], z[:, 1::2]
    half = z.shape[1] // 2 if gate else z.shape[1]
    return z[:, :half], z[:, half:] if gate else np.ones_like(z)


def wrong(got: np.ndarray, want: np.ndarray, what: str, kind: str) -> list[str]:
    """Beyond one rounding, or where the interpreter cuts off a whole unit."""
    unit = {"bf16": 2.0**-7, "fp16": 2.0**-10, "fp32": 2.0**-16}[kind]
    off = ~(np.abs(got - want) <= unit * np.abs(want) + 1e-4)
    return [f"mismatch: {off.sum()} of {off.size} elements of {what}"] if off.any() else []


def check(job: dict) -> list[str]:
    from kernels.device.portable import moe_gate

    rng = np.random.default_rng(zlib.crc32(job["id"].encode()))
    rows, n, block_n, more = job["size"]
    kind, gate, align = job["kind"], job["gate"], job.get("align", 1)
    columns = 2 * n if gate else n
    weighted = (None, "fp16", "bf16", "fp32")[job["weights"]]
    entries = rows * 2
    stored = entries + 4
    lds = {"lda": columns + more, "ldb": n + 2 * more, "ldd": columns + 3 * more, "ldh": n + more}
    z = element(rng.standard_normal((stored, lds["lda"])).astype(np.float32), kind)
    dh = element(rng.standard_normal((stored, lds["ldb"])).astype(np.float32), kind)
    places = rng.permutation(stored)[:entries].astype(np.int32)
    places[rng.random(entries) < 0.2] = -1
    places[0] = stored  # one behind the last
    weights = element(rng.uniform(0.5, 1.5, entries).astype(np.float32), weighted or "fp32")
    first, up = parted(widened(z[:, :columns], kind).astype(np.float64), gate)
    made = joined(first, up, job)
    grad = widened(dh[:, :n], kind).astype(np.float64)
    there = (places >= 0) & (places < stored)
    share = np.zeros((stored, 1))
    share[places[there], 0] = widened(weights, weighted)[there] if weighted else 1
    of_first = (joined(first + STEP, up, job) - joined(first - STEP, up, job)) / (2 * STEP)
    of_up = (joined(first, up + STEP, job) - joined(first, up - STEP, job)) / (2 * STEP)
    poison = POISON[SIZE[kind]]
    memories = {
        "a": guarded(z.astype(np.uint16)), "b": guarded(dh.astype(np.uint16)), "places": guarded(places),
        "weights": guarded(weights.astype(f"u{SIZE[weighted or 'fp32']}")),
        "d": guarded(np.full((stored, lds["ldd"] if job["op"] == "grad" else lds["ldh"]), poison, np.uint16)),
        "h": guarded(np.full((stored, lds["ldh"]), poison, np.uint16)),
        "sums": guarded(np.full(entries, POISON[4], np.uint32)),
    }  # fmt: skip
    before = {name: memory.copy() for name, (memory, _) in memories.items()}
    values = {f"{name}_ptr": 0 if name in job.get("without", ()) else at for name, (_, at) in memories.items()}
    values["weights_ptr"] *= weighted is not None
    clamped = job["limit"] > 0
    values |= {
        **lds, "N": n, "activation": job["activation"], "gate": gate, "gate_alpha": 1.702 if clamped else 1.0,
        "gate_limit": job["limit"] if clamped else math.inf, "gate_shift": float(clamped), "entries": entries,
        "stored": stored, "weights_type": job["weights"], "M": stored,
    }  # fmt: skip
    constants = {"ALIGN": align, "BLOCK_N": block_n, "OVERLAP": 0}
    tail = "i32 i32 fp32 fp32 fp32"
    if job["op"] == "gate":
        values["ldd"] = lds["ldh"]
        types, programs = f"*{kind} *{kind} i32 i32 i64 i64 {tail}", stored * -(-n // block_n)
        launch(moe_gate.moe_gate, types, values | job.get("changed", {}), programs, constants)
        wanted = {"d": (made, n, lds["ldh"], np.ones(stored, bool))}
    else:
        types = f"*{kind} *{kind} *{kind} *{kind} *fp32 *fp32 *i32 i32 i32 i32 i64 i64 i64 i64 i32 {tail}"
        launch(moe_gate.moe_gate_grad, types, values | job.get("changed", {}), entries, constants)
        slopes = np.empty((stored, columns))
        parts = parted(slopes, gate)
        parts[0][:] = share * grad * of_first
        if gate:
            parts[1][:] = share * grad * of_up
        named = np.zeros(stored, bool)
        named[places[there]] = True
        wanted = {"d": (slopes, columns, lds["ldd"], named), "h": (share * made, n, lds["ldh"], named)}
    problems = []
    for name, (want, width, ld, own) in wanted.items():
        memory = memories[name][0]
        got = memory[BAND:-BAND].reshape(stored, ld)
        if name not in job.get("without", ()):
            problems += wrong(widened(got[own, :width], kind), want[own], name, kind)
            got[own, :width] = poison
        problems += [] if (memory == before[name]).all() else [f"mismatch: written beyond {name}"]
    if job["op"] == "grad" and "sums" not in job.get("without", ()):
        exact = np.where(there, (grad * made).sum(1)[np.where(there, places, 0)], 0)
        problems += wrong(memories["sums"][0][BAND:-BAND].view(np.float32), exact, "sums", "fp32")
        memories["sums"][0][BAND:-BAND] = POISON[4]
    read = ("a", "b", "places", "weights", "sums")
    return problems + [f"mismatch: {x} was written" for x in read if (before[x] != memories[x][0]).any()]


found, *TESTS = checks_of(__file__, GOOD, FAULTS)
test_ids_are_unique, test_outputs_are_right_and_nothing_else_is_written, test_fault_is_noticed = TESTS

if __name__ == "__main__":
    main(GOOD + FAULTS, check)
