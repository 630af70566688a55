"""One 8-bit product with scales: libgemm beside torch's scaled_mm and libgemm's own product in bf16. Makes rows of the
report; proves no more than that libgemm multiplied what torch did.
"""

import libgemm
import torch

from bench.measure import peer_deep_gemm
from bench.measure.timing import alternate, rotations
from bench.suites.roofline import floor_us, traffic
from bench.suites.scaled import BLOCKS, DEEP_GEMM, KINDS, RECIPES, SUMS

NEAR = 1e-2  # of torch's result: bfloat16's rounding, and what sums of 14 bits are apart


def operands(row: dict) -> list[tuple]:
    """Rotated A, B, scales of rows and columns, D; and A and B in bf16."""
    m, n, k = row["m"], row["n"], row["k"]
    found = []
    for _ in range(rotations(traffic(row))):
        a, b = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (n, k)))
        of_a, of_b = (torch.rand(shape, device="cuda") + 0.5 for shape in ((m, 1), (1, n)))
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        narrow = (x.to(torch.float8_e4m3fn) for x in (a, b))
        found.append((next(narrow), next(narrow).t(), of_a, of_b, out, a, b.t()))
    return found


def scales_of(scaling: str, product: dict) -> tuple:
    """Of A and B, or None where `operands` has them; of blocks as torch strides them, whose K of B is in fours."""
    if scaling == "row":
        return None
    if scaling == "tensor":
        return (torch.ones((), device="cuda"),) * 2
    steps, blocks = -(-product["k"] // 128), -(-product["n"] // 128)
    of_a = torch.rand(steps, product["m"], device="cuda") + 0.5
    of_b = torch.rand(blocks, -(-steps // 4) * 4, device="cuda") + 0.5
    return of_a.t(), of_b.t()


def calls(scaling: str, precision: str, product: dict) -> dict:
    """The same product by libgemm, by torch, and by libgemm in bf16."""
    common = scales_of(scaling, product)
    of_type = [getattr(torch.nn.functional.ScalingType, name) for name in RECIPES[scaling]]

    def ours(a, b, of_a, of_b, out, *_) -> None:
        a_scale, b_scale = common or (of_a, of_b)
        libgemm.gemm(a, b, out=out, precision=precision, scaling=scaling, a_scale=a_scale, b_scale=b_scale)

    def peer(a, b, of_a, of_b, *_):
        a_scale, b_scale = common or (of_a, of_b)
        fast = SUMS[precision]
        return torch.nn.functional.scaled_mm(a, b, a_scale, of_type[0], b_scale, of_type[1], use_fast_accum=fast)

    def bf16(_, __, ___, ____, out, a, b) -> None:
        libgemm.gemm(a, b, out=out)

    found = {"ours": ours, "torch.scaled_mm": peer, "bf16": bf16}
    deep = peer_deep_gemm.dense(*common, product["k"]) if scaling == BLOCKS else None
    return found if deep is None else {**found, DEEP_GEMM: deep}


def peers_of(given: dict) -> dict:
    """Of calls or their times, those that are not libgemm's."""
    return {name: one for name, one in given.items() if name not in ("ours", "bf16")}


def check(calls: dict, one: tuple, what: str, may_refuse: bool) -> None:
    """Stop where libgemm's product is not that of another. With scales of blocks others refuse some shapes, torch such
    as those whose M is no multiple of 4: then they are left out."""
    out = one[4]
    out.fill_(float("nan"))
    calls["ours"](*one)
    ours = out.float()
    for name in peers_of(calls):
        try:
            out.fill_(float("nan"))
            made = calls[name](*one)
            torch.cuda.synchronize()
        except (RuntimeError, ValueError) as error:
            if not may_refuse or isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError)):
                raise
            del calls[name]
            continue
        want = (out if made is None else made).float()
        apart = float((ours - want).norm() / want.norm())
        if not apart <= NEAR:
            raise SystemExit(f"{what}: libgemm's product and {name}'s are {apart:.1e} of its size apart")


def rows_of(product: dict) -> list[dict]:
    inputs, found = operands(product), []
    sizes = product["m"], product["n"], product["k"]
    for scaling, precision in KINDS:
        both = calls(scaling, precision, product)
        check(both, inputs[0], f"{product['id']} {scaling} {precision}", scaling == BLOCKS)
        us = alternate(both, inputs, floor_us(product))
        choice = libgemm.explain(*sizes, "e4m3", layout="nt", precision=precision, scaling=scaling)
        found.append({
            **{key: product[key] for key in ("id", "kind", "m", "n", "k", "dtype", "note")},
            "recipe": scaling, "accumulation": precision, "ours_us": us["ours"], "bf16_us": us["bf16"],
            "peers": peers_of(us), "floor_us": floor_us(product),
            "variant": choice.variant.name,
        })  # fmt: skip
    return found
