"""Named check of casts to 8 bits: random matrices, granularities, layouts and numbers that are none. Part of the GPU
suite.

Bit for bit: the header says each step, and torch takes the same ones in float32.
"""

import random
from dataclasses import dataclass, field

import torch

from .edge import Context
from .guarded import Arena
from .reference import DTYPES

GRANULARITIES = ("tensor", "row", "1x128", "128x128")
SIZES = (1, 2, 7, 16, 33, 127, 128, 129, 200, 256, 384)
LONG = (2048, 2056, 2049, 7168, 8192, 8200, 16385)


@dataclass
class Cast:
    """What one call is to do."""

    seed: int
    m: int
    n: int
    batch: int  # 0: a matrix
    dtype: torch.dtype
    granularity: str
    transposed: bool
    power_of_two: bool = False
    given: bool = False
    pads: tuple = (0, 0, 0)  # of x, of values, of values_t
    lead: int = 0
    swapped: bool = False  # scales of blocks by the other of their two sides
    to: str = "e4m3"
    words: dict = field(init=False)

    def __post_init__(self):
        self.words = {"power_of_two": self.power_of_two, "dtype": self.to}

    @property
    def outer(self) -> tuple:
        return (self.batch,) if self.batch else ()


def random_cast(seed: int, small: bool) -> Cast:
    draw = random.Random(f"cast {seed}")
    granularity = draw.choice(GRANULARITIES)
    m, n = draw.choice(SIZES), draw.choice(SIZES if small else SIZES + LONG)
    if draw.random() < 0.5:
        m, n = -(-m // 16) * 16, -(-n // 16) * 16
    given = granularity == "tensor" and draw.random() < 0.3
    return Cast(
        seed, m, n, draw.choice((0, 0, 1, 3)), draw.choice((torch.float16, torch.bfloat16, torch.float32)),
        granularity, draw.random() < 0.5, not given and draw.random() < 0.3, given,
        draw.choice(((0, 0, 0), (16, 32, 16), (3, 1, 5))), draw.choice((0, 0, 1)), draw.random() < 0.5,
        draw.choice(("e4m3", "e4m3", "e5m2")),
    )  # fmt: skip


def numbers(case: Cast, x: torch.Tensor, generator: torch.Generator) -> None:
    """Of many sizes, to where float32 has no normal ones; rows of zeros; Inf and NaN here and there, and a row, a
    column and a tile of nothing else."""
    size = torch.rand((*x.shape[:-1], 1), generator=generator, device=x.device)
    wide = {torch.float16: 12, torch.bfloat16: 140, torch.float32: 140}[case.dtype]
    x.mul_(torch.exp2((size - 0.5) * wide * (case.seed % 3)).to(x.dtype))
    drawn = torch.rand(x.shape, generator=generator, device=x.device)
    x[drawn < 0.01] = 0
    if case.seed % 2:
        for value, share in ((torch.inf, 0.001), (-torch.inf, 0.002), (torch.nan, 0.003)):
            x[(drawn > 0.5) & (drawn < 0.5 + share)] = value
        x[..., -1, :], x[..., :, -1] = -torch.inf, torch.nan
    x[..., : case.m // 3, : case.n // 2] = 0
    if case.seed % 4 == 1 and min(case.m, case.n) > 128:
        x[..., :128, :128] = torch.nan


def largest(x: torch.Tensor, down: int, across: int) -> torch.Tensor:
    """Of each down x across elements, Inf and NaN not counted."""
    size = torch.where(x.isfinite(), x.abs(), 0.0)
    m, n = x.shape[-2:]
    size = torch.nn.functional.pad(size, (0, -n % across, 0, -m % down))
    return size.unflatten(-1, (-1, across)).amax(-1).unflatten(-2, (-1, down)).amax(-2)


def scale_of(most: torch.Tensor, to: torch.dtype, power_of_two: bool) -> torch.Tensor:
    scale = most / torch.full_like(most, torch.finfo(to).max)  # not by a number: torch multiplies by 1 / 448
    scale = scale.clamp(min=torch.finfo(torch.float32).tiny)
    if power_of_two:  # its exponent, one less where it is one
        mantissa, exponent = torch.frexp(scale)
        scale = ((exponent.int() - (mantissa == 0.5).int() + 127) << 23).view(torch.float32)
    return torch.where(most > 0, scale, 1.0)


def expected(case: Cast, x: torch.Tensor, given: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, scale) of x, [batch, M, N] in float32; scale [batch, M', N']."""
    m, n = x.shape[-2:]
    down, across = {"tensor": (m, n), "row": (1, n), "1x128": (1, 128), "128x128": (128, 128)}[case.granularity]
    scale = (
        scale_of(largest(x, down, across), DTYPES[case.to], case.power_of_two)
        if given is None
        else given.view(-1, 1, 1)
    )
    each = scale.repeat_interleave(down, -2)[..., :m, :].repeat_interleave(across, -1)[..., :n]
    to = DTYPES[case.to]
    values = (x * (1.0 / each)).clamp(torch.finfo(to).min, torch.finfo(to).max)
    return torch.where(x.isfinite(), values, torch.nan).to(to), scale


def apart(what: str, got: torch.Tensor, want: torch.Tensor, case: Cast) -> list[str]:
    """NaN is one, whatever its sign."""
    got, want = got.float().reshape(want.shape), want.float()
    off = ~((got == want) | (got.isnan() & want.isnan()))
    if not bool(off.any()):
        return []
    place = tuple(off.nonzero()[0].tolist())
    return [f"{int(off.sum())} of {off.numel()} {what}, first at {place}: {got[place]} for {want[place]} [{case!r}]"]


def arrays(case: Cast, shape: tuple, granular: tuple, name: str, pad: int, device) -> tuple[Arena, Arena]:
    """Memory of values and of their scales, which of blocks may lie by columns."""
    values, scale = Arena(DTYPES[case.to], device, name), Arena(torch.float32, device, f"scale of {name}")
    values.place((*case.outer, *shape), pad, case.lead)
    swapped = case.swapped and case.granularity in ("1x128", "128x128")
    shape = (*case.outer, *(granular[::-1] if swapped else granular))
    scale.place(shape or (1,), 3 if swapped else 0)
    for arena in (values, scale):
        arena.outputs()
        arena.freeze()
    if swapped:
        scale.views[0] = scale.views[0].mT
    elif not shape:
        scale.views[0] = scale.views[0][0]
    return values, scale


def scale_shape(case: Cast, rows: int, cols: int) -> tuple:
    steps = -(-cols // 128)
    return {"tensor": (), "row": (rows, 1), "1x128": (rows, steps), "128x128": (-(-rows // 128), steps)}[
        case.granularity
    ]


def run_cast(ctx: Context, case: Cast) -> list[str]:
    generator = torch.Generator(ctx.device).manual_seed(case.seed)
    source = Arena(case.dtype, ctx.device, "x")
    source.place((*case.outer, case.m, case.n), case.pads[0], case.lead)
    (x,) = source.inputs(generator).views
    numbers(case, x, generator)
    source.freeze()
    given = None
    if case.given:
        given = torch.rand(case.outer, generator=generator, device=ctx.device) + 0.01
    arenas = [
        source,
        *arrays(case, (case.m, case.n), scale_shape(case, case.m, case.n), "values", case.pads[1], ctx.device),
    ]
    out = [arenas[1].views[0], None if case.given else arenas[2].views[0]]
    wide = x.float().reshape(-1, case.m, case.n)
    values, scale = expected(case, wide, given)
    own = case.granularity in ("row", "1x128")  # scales of D^T
    if case.transposed:
        more = arrays(case, (case.n, case.m), scale_shape(case, case.n, case.m), "values_t", case.pads[2], ctx.device)
        arenas += more
        out += [more[0].views[0], more[1].views[0] if own else None]
        made = ctx.lib.cast_transpose(x, case.granularity, scale=given, **case.words, out=tuple(out))
        values_t, scale_t = expected(case, wide.mT, given) if own else (values.mT, scale.mT)
        problems = apart("values_t", made[2], values_t, case) + apart("scale_t", made[3], scale_t, case)
    else:
        made = ctx.lib.cast(x, case.granularity, scale=given, **case.words, out=tuple(out))
        problems = []
    problems += apart("values", made[0], values, case) + apart("scale", made[1], scale, case)
    return problems + [f"{x} [{case!r}]" for arena in arenas for x in arena.problems()]


def casts(ctx: Context):
    for seed in ctx.seeds(60 if ctx.stand_in else 1500):
        yield run_cast(ctx, random_cast(seed, ctx.stand_in))


def cast_products(ctx: Context):
    """What a cast makes is what a product takes: beside the product of what was cast, in float64."""
    shapes = ((40, 64, 272), (130, 256, 512)) if ctx.stand_in else ((40, 64, 272), (130, 256, 512), (300, 520, 1048))
    for m, n, k in shapes:
        for granularities, scaling in (
            (("tensor", "tensor"), "tensor"), (("row", "row"), "row"), (("1x128", "128x128"), "1x128_128x128"),
            (("1x128", "1x128"), "1x128_1x128"), (("128x128", "1x128"), "128x128_1x128"),
        ):  # fmt: skip
            generator = torch.Generator(ctx.device).manual_seed(m)
            new = {"device": ctx.device, "generator": generator}
            x, w = (torch.randn(shape, **new).to(torch.bfloat16) for shape in ((m, k), (n, k)))
            b, b_scale = ctx.lib.cast(w, granularities[1])
            turned = b_scale.mT if b_scale.dim() == 2 else b_scale
            exact = x.double() @ w.double().mT
            # Each operand is off by up to 2^-4 of itself, or 2^-3, by less than half of that in the mean.
            for to, most in (("e4m3", 0.045), ("e5m2", 0.07)):
                a, a_scale = ctx.lib.cast(x, granularities[0], dtype=to)
                made = ctx.lib.gemm(a, b.mT, scaling=scaling, a_scale=a_scale, b_scale=turned, out_dtype=torch.float32)
                error = float((made.double() - exact).norm() / exact.norm())
                right = most / 3 < error < most
                yield [] if right else [f"{to}, {scaling} of {m} x {n} x {k}: off by {error:.3f}"]
