"""Batches of dense products: matrices that stand whole rows apart, or do not, or are shared. Part of the GPU suite."""

import itertools
from dataclasses import replace

import torch

from .cases import TYPES, Case, aligned_pads
from .edge import Context

WORDS = (  # of a call of three products; where all are 128 wide, a gap of 256 is two rows more
    {},
    {"alpha": -0.5, "beta": 2.0, "c": "in_place", "bias": "each"},
    {"beta": 1.0, "c": "separate", "bias": "row"},
    {"beta": 1.0, "c": "separate", "shared": "c"},
    {"shared": "a", "bias": "each"},
    {"shared": "b", "beta": -1.0, "c": "out"},
    {"shared": "ab"},
    {"gap": 256, "beta": 2.0, "c": "separate"},
    {"gap": 8},
    {"gap": 1, "beta": 1.0, "c": "in_place"},
    {"values": "nan"},
    {"activation": "gelu", "shared": "b"},
    {"leads": (0, 1, 0, 0)},
)
SIZES = ({"m": 128, "n": 128, "k": 128}, {"m": 1, "n": 136, "k": 72}, {"m": 131, "n": 264, "k": 200}, {"k": 1})


def batches(ctx: Context):
    """Every type and layout, as the library chooses: aligned operands may run as groups, others may not."""
    sizes = SIZES[:2] if ctx.stand_in else SIZES
    for (a, d, precision), layout, size, words in itertools.product(TYPES, range(4), sizes, WORDS):
        case = Case(a_type=a, d_type=d, precision=precision, trans_a=layout > 1, trans_b=layout % 2 == 1, batch=3)
        case = replace(case, **size, **words)
        yield ctx.run(replace(case, pads=aligned_pads(case)))
    if not ctx.stand_in:
        large = Case(batch=5, m=1000, n=776, k=520, bias="each")  # many tiles for each block
        for words in ({}, {"trans_b": True}, {"trans_a": True, "beta": 2.0, "c": "separate"}):
            yield ctx.run(replace(large, **words))


def rows_in_batches(ctx: Context):
    """With batch_invariant, the first row of each product at M = 1, 8, 32, 256 and 2048; A's products stay where they
    are, or stand as close as M lets them."""
    if ctx.stand_in:
        return
    for dtype, (n, k), close, more in itertools.product(
        (torch.bfloat16, torch.float16), ((4096, 4096), (576, 7168)), (False, True), (False, True)
    ):
        new = {"device": ctx.device, "dtype": dtype}
        a, b, bias = torch.randn(3, 2048, k, **new), torch.randn(3, n, k, **new).mT, torch.randn(3, n, **new)
        rows = []
        for m in (1, 8, 32, 256, 2048):
            part = a[:, :m].contiguous() if close else a[:, :m]
            d = ctx.lib.gemm(part, b, batch_invariant=True, **({"alpha": 0.75, "bias": bias} if more else {}))
            rows.append(d[:, 0].view(torch.int16).clone())
        same = all(torch.equal(rows[0], row) for row in rows[1:])
        yield [] if same else [f"{dtype} N {n} K {k} close {close} bias {more}: a row's bits depend on M"]


def rows_in_groups(ctx: Context):
    """With batch_invariant, a row of packed groups and a weight gradient of one group, whatever the other groups hold
    and where they end: 16-bit and 8-bit operands."""
    if ctx.stand_in:
        return
    for e4m3, (n, k), turned in itertools.product((False, True), ((1536, 2048), (576, 7168)), (False, True)):
        words = {"scaling": "row"} if e4m3 else {}
        if e4m3 and not turned:
            continue  # of 8-bit operands K is contiguous, or reference rows run, which add alike
        new = {"device": ctx.device, "dtype": torch.bfloat16}
        narrow = (lambda x: x.to(torch.float8_e4m3fn)) if e4m3 else (lambda x: x)
        b = narrow(torch.randn(4, n, k, **new)).mT if turned else torch.randn(4, k, n, **new)
        row, rows, sums = narrow(torch.randn(1, k, **new)), [], []
        for sizes in ((0, 1, 0, 0), (7, 1, 3, 0), (300, 40, 0, 9), (1, 2000, 1, 1)):
            ends = torch.tensor(sizes, device=ctx.device).cumsum(0).int()
            a = narrow(torch.randn(sum(sizes), k, **new))
            a[sizes[0]] = row[0]
            if e4m3:
                words |= {"a_scale": torch.ones(sum(sizes), device=ctx.device)}
                words |= {"b_scale": torch.ones(4, n, device=ctx.device)}
            d = ctx.lib.grouped_mm(a, b, ends, batch_invariant=True, **words)
            rows.append(d[sizes[0]].view(torch.int16).clone())
        x, y = (narrow(torch.randn(200, size, **new).t().contiguous()) for size in (n, 512))
        for before, behind in ((0, 0), (3, 100), (1000, 7)):
            ends = torch.tensor([before, before + 200, before + 200 + behind], device=ctx.device, dtype=torch.int32)
            pad = -int(ends[-1]) % 16
            left, right = (
                torch.cat([narrow(torch.randn(one.shape[0], before, **new)).float(), one.float(),
                           narrow(torch.randn(one.shape[0], behind + pad, **new)).float()], 1).to(one.dtype)
                for one in (x, y)
            )  # fmt: skip
            left, right = (left, right.t()) if e4m3 else (left.t().contiguous().t(), right.t().contiguous())
            if e4m3:
                words |= {"a_scale": torch.ones(3, n, device=ctx.device)}
                words |= {"b_scale": torch.ones(3, 512, device=ctx.device)}
            d = ctx.lib.grouped_mm(left, right, ends, batch_invariant=True, **words)
            sums.append(d[1].view(torch.int16).clone())
        same = all(torch.equal(found[0], other) for found in (rows, sums) for other in found[1:])
        yield [] if same else [f"e4m3 {e4m3} N {n} K {k} B turned {turned}: a row's bits depend on other groups"]
