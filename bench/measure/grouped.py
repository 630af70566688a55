"""libgemm beside torch on grouped products: the same operands, in turn. Proves no numerics.

The peer of packed rows is torch._grouped_mm, which allocates its output; where it would loop on the host (float16), it
multiplies the same numbers in bfloat16. It adds to no float32 D: there Tensor.add_ adds what it made. The peer of
pointer arrays is torch.mm in a loop, in one CUDA graph.
"""

import itertools
import json
from types import SimpleNamespace

import libgemm
import torch

from bench.measure.regret import regret
from bench.measure.timing import alternate, rotations
from bench.suites import SUITES
from bench.suites.packed import Packed
from bench.suites.roofline import floor_us, traffic
from bench.suites.sizes import sizes_of

CASES = json.loads((SUITES / "grouped.json").read_text())["cases"]
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
DEVICE = "cuda"
KEYS = (
    "id", "op", "m", "n", "k", "groups", "ragged", "layout", "distribution", "problems", "out", "beta",
    "pair", "own", "expected")  # fmt: skip


def row_of(case: dict, dtype: str, sizes: list[int]) -> dict:
    """What the case says, in this type, and its floor."""
    row = {**{key: case[key] for key in KEYS if key in case}, "dtype": dtype, "filled": sum(size > 0 for size in sizes)}
    if dtype == case.get("dtype", "bf16"):
        row |= {key: case[key] for key in ("reference_us", "reference") if key in case}
    return {**row, "floor_us": floor_us(row)}


def matrix(shape: tuple, turned: bool, dtype):
    """Random normal numbers; `turned`: the last two sizes are stored the other way round."""
    *lead, rows, cols = shape
    made = torch.randn((*lead, *((cols, rows) if turned else (rows, cols))), device=DEVICE, dtype=dtype)
    return made.transpose(-2, -1) if turned else made


def running_sums(sizes: list[int], *start: int):
    return torch.tensor([*start, *itertools.accumulate(sizes)], device=DEVICE, dtype=torch.int32)


def packed(case: dict, dtype, sizes: list[int]) -> SimpleNamespace:
    """Operands of packed rows, and the peer's: bf16, with a B for each group."""
    groups, m, n, k, ragged, layout = (case[key] for key in ("groups", "m", "n", "k", "ragged", "layout"))
    shared = case["op"] == "grouped_gemm_jagged"
    one = ragged == "K" or shared
    a = matrix((groups, m // groups, k) if ragged == "none" else (m, k), layout[0] == "T", dtype)
    b = matrix((k, n) if one else (groups, k, n), layout[1] == "T", dtype)
    out_type = torch.float32 if case.get("out") == "f32" else dtype
    out = torch.zeros((groups, m, n) if ragged == "K" else (*a.shape[:-1], n), device=DEVICE, dtype=out_type)
    offs = None if ragged == "none" else running_sums(sizes)
    bf16 = torch.bfloat16
    peer = (a.to(bf16), b.to(bf16).expand(groups, k, n).contiguous() if shared else b.to(bf16))
    return SimpleNamespace(a=a, b=b, out=out, offs=offs, offsets=running_sums(sizes, 0), peer=peer, kept=None)


def products(case: dict, one: SimpleNamespace, sizes: list[int]):
    """For each group that has one, its part of D and what that must be."""
    ends = list(itertools.accumulate(sizes))
    for g, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        rows = slice(end - size, end)
        if case["ragged"] == "K":
            a, b, d = one.a[:, rows], one.b[rows], one.out[g]
        elif case["ragged"] == "none":
            a, b, d = one.a[g], one.b[g], one.out[g]
        else:
            a, b, d = one.a[rows], one.b[g], one.out[rows]
        if d.numel():
            yield d, a.float() @ b.float()


def call_grouped_mm(one: SimpleNamespace, beta: float = 0.0, variant: str | None = None) -> None:
    libgemm.grouped_mm(one.a, one.b, one.offs, beta=beta, out=one.out, variant=variant)


def call_jagged(one: SimpleNamespace) -> None:
    libgemm.grouped_gemm_jagged(one.a, one.b, one.offsets, out=one.out)


def call_torch(one: SimpleNamespace) -> None:
    one.kept = torch._grouped_mm(*one.peer, offs=one.offs)  # kept, so that no two calls of a graph share an output


def call_torch_add(one: SimpleNamespace) -> None:
    call_torch(one)
    one.out.add_(one.kept)


def expected(case: dict) -> tuple[int, int, int] | None:
    """The sizes of one group, where the case says that the host knows them."""
    return (case["m"] // case["groups"], case["n"], case["k"]) if case.get("expected") else None


def pointers(case: dict, dtype, sizes: list[int]) -> SimpleNamespace:
    """Separate matrices, and libgemm's tables of them on the device. All sizes of the suite are multiples of 8."""
    problems = case.get("problems") or [(size, case["n"], case["k"]) for size in sizes]
    ta, tb = (letter == "T" for letter in case["layout"])
    a, b, d = [], [], []
    for m, n, k in problems:
        a.append(matrix((m, k), ta, dtype))
        b.append(matrix((k, n), tb, dtype))
        d.append(torch.empty((m, n), device=DEVICE, dtype=dtype))
    values = {
        **{name: [x.data_ptr() for x in arrays] for name, arrays in (("a", a), ("b", b), ("d", d))},
        **{name: [sizes[i] for sizes in problems] for i, name in enumerate("mnk")},
        **{f"ld{name}": [max(x.stride()) for x in arrays] for name, arrays in (("a", a), ("b", b), ("d", d))},
    }
    tables = {name: torch.tensor(value, device=DEVICE, dtype=torch.int64) for name, value in values.items()}
    words = {"dtype": dtype, "trans_a": ta, "trans_b": tb, "aligned": True, "expected": expected(case)}
    return SimpleNamespace(a=a, b=b, out=d, tables={**tables, **words})


def call_tables(one: SimpleNamespace) -> None:
    libgemm.grouped_gemm_tables(**one.tables)


def call_loop(one: SimpleNamespace) -> None:
    for a, b, out in zip(one.a, one.b, one.out, strict=True):
        torch.mm(a, b, out=out)


def operands(case: dict, dtype: str, sizes: list[int]) -> SimpleNamespace:
    return (pointers if case["op"] == "grouped_gemm" else packed)(case, DTYPES[dtype], sizes)


def calls(case: dict) -> dict:
    """The same product by libgemm and by its peer; C, where it is added, is D itself."""
    if case["op"] == "grouped_gemm":
        return {"ours": call_tables, "peer": call_loop}
    if case["op"] == "grouped_gemm_jagged":
        return {"ours": call_jagged, "peer": call_torch}
    beta = float(case.get("beta", 0))
    return {"ours": lambda one: call_grouped_mm(one, beta), "peer": call_torch_add if beta else call_torch}


def peer_of(case: dict, dtype: str) -> str:
    if case["op"] == "grouped_gemm":
        return "torch.mm in a loop"
    return "torch._grouped_mm" + " + add_" * bool(case.get("beta")) + " (bf16)" * (dtype != "bf16")


def variant_of(case: dict, dtype: str) -> str:
    """The name of what runs. One B for all groups is one dense product."""
    m, n, k, groups, ragged = (case[key] for key in ("m", "n", "k", "groups", "ragged"))
    words = {"layout": case["layout"].lower(), "out_dtype": case.get("out")}
    if case["op"] == "grouped_gemm":
        chosen = libgemm.explain_grouped_gemm(groups, dtype, expected=expected(case), **words).variant
    elif case["op"] == "grouped_gemm_jagged":
        chosen = libgemm.explain(m, n, k, dtype, **words).variant
    else:
        m = m // groups if ragged == "none" else m
        chosen = libgemm.explain_grouped_mm(m, n, k, groups, dtype, ragged=ragged.lower(), **words).variant
    return chosen.name


def regret_of(problem: Packed, dtype: str = "bf16") -> dict:
    case, sizes = {**problem.case, "layout": problem.layout.upper()}, problem.sizes()
    row = row_of(case, dtype, sizes)
    inputs = [(operands(case, dtype, sizes),) for _ in range(rotations(traffic(row)))]
    found = regret("grouped_mm", dtype, case["layout"], call_grouped_mm, inputs, row["floor_us"])
    return {**problem._asdict(), "chosen": variant_of(case, dtype), **found}


def compare(cases: list[dict], dtype: str) -> list[dict]:
    """A row for each. The cases are replayed in one alternation, so that what they say of each other holds though the
    card grows hot."""
    sizes = [sizes_of(case) for case in cases]
    rows = [row_of(case, dtype, own) for case, own in zip(cases, sizes, strict=True)]
    count = max(rotations(traffic(row)) for row in rows)
    inputs = [[operands(case, dtype, own) for case, own in zip(cases, sizes, strict=True)] for _ in range(count)]
    runs = {
        (i, who): lambda *ones, i=i, call=call: call(ones[i])
        for i, case in enumerate(cases)
        for who, call in calls(case).items()
    }
    us = alternate(runs, inputs, max(row["floor_us"] for row in rows))
    found = [{"ours_us": us[i, "ours"], "peer": peer_of(case, dtype), "peer_us": us[i, "peer"]}
             for i, case in enumerate(cases)]  # fmt: skip
    named = [{"variant": variant_of(case, dtype)} for case in cases]
    return [row | times | name for row, times, name in zip(rows, found, named, strict=True)]
