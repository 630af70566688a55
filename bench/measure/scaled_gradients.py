"""One weight gradient of packed groups of 8-bit operands, whose ends cut K: libgemm beside torch's scaled_grouped_mm
and libgemm's own product in bf16. Makes rows of the report; proves no more than that libgemm multiplied what torch did.

torch takes groups of multiples of 16 rows alone; of others libgemm stands by itself.
"""

import libgemm
import torch

from bench.measure.grouped import running_sums
from bench.measure.scaled import NEAR
from bench.measure.scaled_groups import MOST_BYTES, PEER
from bench.measure.timing import alternate, rotations
from bench.suites.roofline import floor_us, traffic
from bench.suites.scaled import SUMS

STEP = 16  # elements of 8 bits of which TMA reads whole pieces: a stored row has as many of them


def operands(product: dict) -> list[tuple]:
    """Rotated A [M][K] and B [N][K], ends, scales of each group's rows and columns, D; and A and B in bf16."""
    m, n, k, groups = (product[name] for name in ("m", "n", "k", "groups"))
    found, stored = [], -(-k // STEP) * STEP
    for _ in range(min(rotations(traffic(product)), max(2, int(MOST_BYTES // (5 * (m + n) * k + 2 * groups * m * n))))):
        a, b = (torch.randn((rows, stored), device="cuda", dtype=torch.bfloat16)[:, :k] for rows in (m, n))
        of_a, of_b = (torch.rand((groups, rows), device="cuda") + 0.5 for rows in (m, n))
        out = torch.empty(groups, m, n, device="cuda", dtype=torch.bfloat16)
        narrow = (
            torch.empty(x.shape[0], stored, device="cuda", dtype=torch.float8_e4m3fn)[:, :k].copy_(x) for x in (a, b)
        )
        by_rows = (x.t().contiguous() for x in (a, b))  # as a product in bf16 has them
        found.append((next(narrow), next(narrow).t(), running_sums(product["sizes"]), of_a, of_b, out,
                      next(by_rows).t(), next(by_rows)))  # fmt: skip
    return found


def calls(precision: str) -> dict:
    """The same product by libgemm, by torch, and by libgemm in bf16."""
    rows = torch.nn.functional.ScalingType.RowWise

    def ours(a, b, ends, of_a, of_b, out, *_) -> None:
        libgemm.grouped_mm(a, b, ends, out=out, scaling="row", a_scale=of_a, b_scale=of_b, precision=precision)

    def peer(a, b, ends, of_a, of_b, *_):
        fast = SUMS[precision]
        scales = of_a.view(-1), rows, of_b.view(-1), rows
        return torch.nn.functional.scaled_grouped_mm(a, b, *scales, offs=ends, use_fast_accum=fast)

    def bf16(_, __, ends, ___, ____, out, a, b) -> None:
        libgemm.grouped_mm(a, b, ends, out=out)

    return {"ours": ours, "torch": peer, "bf16": bf16}


def rows_of(product: dict) -> list[dict]:
    inputs, found = operands(product), []
    for precision in SUMS:
        three = calls(precision)
        if any(size % STEP for size in product["sizes"]):
            del three["torch"]
        else:
            out = inputs[0][5].fill_(float("nan"))
            three["ours"](*inputs[0])
            want = three["torch"](*inputs[0]).float()
            apart = float((out.float() - want).norm() / want.norm())
            if not apart <= NEAR:
                raise SystemExit(f"{product['id']}: libgemm's product and torch's are {apart:.1e} of its size apart")
        us = alternate(three, inputs, floor_us(product))
        sizes = (product[name] for name in ("m", "n", "k", "groups"))
        choice = libgemm.explain_grouped_mm(
            *sizes, "e4m3", ragged="k", layout="nt", precision=precision, scaling="row"
        )  # fmt: skip
        found.append({
            **{key: product[key] for key in ("id", "kind", "m", "n", "k", "groups", "filled", "dtype", "note")},
            "recipe": "row", "accumulation": precision, "ours_us": us["ours"], "bf16_us": us["bf16"],
            "peers": {PEER: us["torch"]} if "torch" in us else {}, "floor_us": floor_us(product),
            "variant": choice.variant.name,
        })  # fmt: skip
    return found
