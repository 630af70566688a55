"""One drawn product: libgemm, torch, cuBLASLt's best and the library's best kernels in one alternation.

Makes a row of the report. Proves no numerics.
"""

import libgemm

from bench.measure import dense, grouped, lt_peer
from bench.measure.cublaslt import CublasLt
from bench.measure.regret import CHOSEN, finalists
from bench.measure.timing import alternate, rotations
from bench.suites.roofline import traffic

KEYS = ("id", "kind", "op", "dtype", "m", "n", "k", "layout", "groups", "ragged", "filled", "distribution", "note")


def gemm(a, b, c, out, variant: str | None = None) -> None:
    libgemm.gemm(a, b, out=out, variant=variant)


def timed(calls: dict, best: dict, inputs: list[tuple], floor_us: float) -> dict:
    """The row's times. `best` are the finalists among the library's own kernels, if they were looked for."""
    best = {name: call for name, call in best.items() if name != CHOSEN}
    us = alternate({**calls, **best}, inputs, floor_us)
    found = {f"{name}_us": us[name] for name in calls}
    if best:
        found["best_variant_us"] = min(us[name] for name in ("ours", *best))
    return {name: float(f"{value:.5g}") for name, value in [*found.items(), ("floor_us", floor_us)]}


def row(product: dict, times: dict, variant: str) -> dict:
    return {**{key: product[key] for key in KEYS if key in product}, **times, "variant": variant}


def dense_row(shape: dict, dtype: str, lt: CublasLt | None, with_best: bool) -> dict:
    """`with_best`: the library's best kernel is looked for too, which takes many times as long."""
    inputs, floor = dense.operands(shape, dtype)
    calls = {"ours": gemm, "torch": dense.calls(shape, dtype)["peer"]}
    try:
        calls |= lt_peer.best(lt, shape, dtype, inputs, floor, calls["torch"])
    except lt_peer.Differs as error:
        raise SystemExit(f"{error} on {shape}: what is said to cublasLtMatmul is wrong") from None
    few = finalists("gemm", dtype, shape["layout"], gemm, inputs, floor) if with_best else {}
    times = timed(calls, few, inputs, floor)
    return row({**shape, "dtype": dtype}, times, dense.variant_of(shape, dtype))


def grouped_row(layer: dict, dtype: str, with_best: bool) -> dict:
    sizes = layer["sizes"]
    about = grouped.row_of(layer, dtype, sizes)
    inputs = [(grouped.operands(layer, dtype, sizes),) for _ in range(rotations(traffic(about)))]
    calls = {"ours": grouped.call_grouped_mm, "torch": grouped.call_torch}
    few = {}
    if with_best:
        few = finalists("grouped_mm", dtype, layer["layout"], grouped.call_grouped_mm, inputs, about["floor_us"])
    times = timed(calls, few, inputs, about["floor_us"])
    return row({**layer, **about}, times, grouped.variant_of(layer, dtype))
