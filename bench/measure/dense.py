"""libgemm beside torch.mm and addmm (cuBLAS), and cuBLASLt's best, on one dense product, and the regret of its choice.
Proves no numerics."""

import json
import random

import libgemm
import torch

from bench.measure import lt_peer
from bench.measure.regret import regret
from bench.measure.timing import alternate, rotations
from bench.suites import SUITES
from bench.suites.dense_drawn import log_sizes, rounded
from bench.suites.roofline import floor_us, traffic

SHAPES = json.loads((SUITES / "dense.json").read_text())["shapes"]
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}  # the last as tf32


def operands(shape: dict, name: str) -> tuple[list, float]:
    """Rotated (a, b, c, out) of random normal numbers, and the floor in microseconds."""
    m, n, k, dtype = shape["m"], shape["n"], shape["k"], DTYPES[name]
    out_type = torch.float32 if shape["out"] == "f32" else dtype
    row = {**shape, "dtype": name}

    def matrix(rows: int, cols: int, turned: bool):
        if turned:
            return torch.randn(cols, rows, device="cuda").to(dtype).t()
        return torch.randn(rows, cols, device="cuda").to(dtype)

    layout = shape["layout"]
    inputs = [
        (matrix(m, k, layout[0] == "T"), matrix(k, n, layout[1] == "T"),
         torch.randn(m, n, device="cuda").to(out_type), torch.empty(m, n, device="cuda", dtype=out_type))
        for _ in range(rotations(traffic(row)))
    ]  # fmt: skip
    return inputs, floor_us(row)


def calls(shape: dict, dtype: str) -> dict:
    """The same product by libgemm and by its peer; alpha is 2 where beta is, as in the alpha/beta benchmark."""
    precision = "tf32" if dtype == "f32" else None
    beta = float(shape["beta"])
    alpha = 2.0 if beta == 2 else 1.0

    def ours(a, b, c, out):
        libgemm.gemm(a, b, c if beta else None, alpha=alpha, beta=beta, out=out, precision=precision)

    def peer(a, b, c, out):
        if beta and out.dtype != a.dtype:
            torch.addmm(c, a, b, out_dtype=out.dtype, beta=beta, alpha=alpha)
        elif beta:
            torch.addmm(c, a, b, beta=beta, alpha=alpha, out=out)
        elif out.dtype != a.dtype:
            torch.mm(a, b, out_dtype=out.dtype)
        else:
            torch.mm(a, b, out=out)

    return {"ours": ours, "peer": peer}


def variant_of(shape: dict, dtype: str, **more) -> str:
    choice = libgemm.explain(
        shape["m"], shape["n"], shape["k"], dtype, layout=shape["layout"].lower(),
        out_dtype="f32" if shape["out"] == "f32" else None, precision="tf32" if dtype == "f32" else None,
        **more,
    )  # fmt: skip
    return choice.variant.name


def compare(shape: dict, dtype: str) -> dict:
    inputs, floor = operands(shape, dtype)
    made = calls(shape, dtype)
    try:
        made |= lt_peer.best(lt_peer.library()[0], shape, dtype, inputs, floor, made["peer"])
    except lt_peer.Differs as error:  # the rest of the list is worth having
        print(f"{error} on {shape}: what is said to cublasLtMatmul is wrong")
    us = alternate(made, inputs, floor)
    peer = "torch.addmm" if shape["beta"] else "torch.mm"
    more = {"cublaslt_us": us["cublaslt"]} if "cublaslt" in us else {}
    keys = ("id", "m", "n", "k", "layout", "beta", "out")
    return {
        **{key: shape[key] for key in keys}, "op": "gemm", "dtype": dtype, "ours_us": us["ours"], "peer": peer,
        "peer_us": us["peer"], **more, "floor_us": floor, "variant": variant_of(shape, dtype),
    }  # fmt: skip


def random_shape(seed: int) -> dict:
    """Log-uniform sizes, nine in ten a multiple of 8; not shapes of the suite."""
    draw = random.Random(seed)
    sizes = log_sizes(draw)
    m, n, k, layout = rounded(*sizes) if draw.random() < 0.9 else sizes
    return {"id": f"random {seed}", "m": m, "n": n, "k": k, "layout": layout, "beta": 0, "out": "same"}


def regret_of(shape: dict, dtype: str = "bf16") -> dict:
    inputs, floor = operands(shape, dtype)

    def call(a, b, c, out, variant: str | None = None) -> None:
        libgemm.gemm(a, b, out=out, variant=variant)

    found = regret("gemm", dtype, shape["layout"], call, inputs, floor)
    return {**shape, "chosen": variant_of(shape, dtype), **found}
