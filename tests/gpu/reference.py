"""Float64 references of every operation and the error each element may have. Not a check: it compares and explains.

The bound is elementwise and worst case, after Higham, Accuracy and Stability of Numerical Algorithms (2nd ed.):
  inner products   theorem 3.1 and section 3.1: |fl(a.b) - a.b| <= gamma_K |a|.|b|, gamma_K = K u / (1 - K u), in any
                   order of summation. Tensor cores do not round each addition: they align the products of one
                   instruction to the largest and cut off bits below 2^-24 of it (2 ulp at worst with the cut after the
                   sum), so u is doubled. The sum is linear in K and not sqrt(K): cutting is biased, so the statistics
                   behind sqrt(K) (Higham and Mary 2019) do not hold.
  8-bit inputs     sums on tensor cores keep 14 bits: each of the 32 products of an instruction, and the sum so far, is
                   cut off below 2^-13 of the largest; of "fast" sums in all of K, of others in 128 of it, after which
                   sums go on in float32. A subnormal number counts as the least normal one there: products are
                   aligned by exponents alone (seen on an H200; in test_gpu_suite.py).
  rounded inputs   section 3.4 on perturbed data: operands rounded with relative error t give (2 t + t^2) |a|.|b|.
                   tf32 keeps 10 mantissa bits. Tensor cores given plain float32 cut the rest off: t = 2^-10 (it would
                   be 2^-11 rounded to nearest). tf32x3 rounds the large part to nearest and cuts the small one off:
                   t = 2^-21, and the product of the small parts, 2^-22, is left out.
  result           one rounding to D's type, u_out |D|, plus half the smallest number of that type. To 8 bits after one
                   over a scale was rounded, and multiplied by; what is beyond the largest number becomes that.
  activation       its Lipschitz constant (gelu 1.129, silu 1.0999) times the error before it, plus its own evaluation:
                   gelu |x| times 1.5e-7 (Abramowitz and Stegun 7.1.26) and the float32 roundings of that polynomial.
"""

import math

import torch

DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
EIGHT_BITS = (DTYPES["e4m3"], DTYPES["e5m2"])
U_OUT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "e4m3": 2.0**-4}
TINY = {"f16": 2.0**-25, "bf16": 2.0**-126, "f32": 2.0**-126, "e4m3": 2.0**-10}  # bf16, f32: may be flushed below
U_ACC = 2.0**-24
# Relative error that the precision adds to each product, on top of the summation.
INPUT_ERROR = {"exact": 0.0, "ieee": 0.0, "tf32": 2 * 2.0**-10 + 2.0**-20, "tf32x3": 2 * 2.0**-21 + 2.0**-22}
# 8-bit products on Hopper's tensor cores: an instruction adds K_STEP of them and the sum so far, each cut off below
# U_SUM of the largest. Sums of numbers of one sign lose the half of that which is to be expected (seen on an H200).
K_STEP, U_SUM = 32, 2.0**-13
LEAST_NORMAL = {DTYPES["e4m3"]: 2.0**-6, DTYPES["e5m2"]: 2.0**-14}
MOST = 448.0  # of e4m3
BLOCK = 128  # of K, in sums and scales of 8-bit operands
LIPSCHITZ = {None: 1.0, "relu": 1.0, "gelu": 1.13, "silu": 1.10}
EVALUATION = {None: 0.0, "relu": 0.0, "gelu": 1.5e-7 + 6 * U_ACC, "silu": 8 * U_ACC}  # times |x|


FUNCTIONS = {
    None: lambda x: x,
    "relu": lambda x: torch.where(x.isnan(), x, x.clamp(min=0)),
    "gelu": lambda x: x * (0.5 * torch.special.erfc(x * -math.sqrt(0.5))),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


def sum_error(precision: str, a_type: str, k: int) -> float:
    """Relative to |a|.|b|, beside what float32 sums may be off by."""
    if a_type != "e4m3":
        return INPUT_ERROR[precision]
    k = k if precision == "fast" else min(k, BLOCK)
    return (k + math.ceil(k / K_STEP)) * U_SUM


def sizes(x: torch.Tensor) -> torch.Tensor:
    """Magnitudes, in float64, as what is cut off a sum of products goes by them."""
    size, least = x.double().abs(), LEAST_NORMAL.get(x.dtype)
    return size if least is None else torch.where(size > 0, size.clamp_min(least), size)


def activate(x: torch.Tensor, name: str | None) -> torch.Tensor:
    return FUNCTIONS[name](x)


def parts_of_k(k: int, scale, factors):
    """(first, end, what their product is multiplied by) of the parts of K that are scaled as one."""
    if factors is None:
        yield 0, k, 1.0 if scale is None else scale
        return
    for i in range(-(-k // BLOCK)):
        yield i * BLOCK, min((i + 1) * BLOCK, k), factors[0][..., i, None] * factors[1][..., i, None, :]


def expected(
    a, b, c=None, bias=None, *, alpha=1.0, beta=0.0, activation=None, precision="exact", d_type="f32", a_type=None,
    scale=None, factors=None, d_scale=None,
):  # fmt: skip
    """(D, bound) in float64 of act(alpha * a @ b + beta * c + bias); leading dimensions broadcast.

    A and B are not read when alpha is 0, C is not read when beta is 0. `scale` is what the product is multiplied by,
    `factors` what each 128 of K is: for each row of A [..., M, K/128], and column of B [..., K/128, N]. `d_scale` is
    what an 8-bit D is divided by.
    """
    shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    x = torch.zeros(shape, dtype=torch.float64, device=a.device)
    error = torch.zeros_like(x)
    k = a.shape[-1]
    if alpha != 0 and k != 0:
        of_a, of_b = sizes(a), sizes(b)
        a, b = a.double(), b.double()
        gamma = 2 * (k + 4) * U_ACC / (1 - 2 * (k + 4) * U_ACC)
        for first, last, factor in parts_of_k(k, scale, factors):
            x = x + alpha * torch.matmul(a[..., first:last], b[..., first:last, :]) * factor
            error = error + torch.matmul(of_a[..., first:last], of_b[..., first:last, :]) * abs(factor)
        error = error * (abs(alpha) * (gamma + sum_error(precision, a_type, k)))
    for term in (beta * c.double() if beta != 0 else None, None if bias is None else bias.double().unsqueeze(-2)):
        if term is not None:
            x = x + term
            error = error + term.abs() * (8 * U_ACC)
    d = activate(x, activation)
    error = error * LIPSCHITZ[activation]
    if EVALUATION[activation]:
        error = error + x.abs() * EVALUATION[activation]
    if d_type == "e4m3":
        d, error = divided(d, error, d_scale)
    return d, error * (1 + U_OUT[d_type]) + d.abs() * U_OUT[d_type] + TINY[d_type]


def divided(d: torch.Tensor, error: torch.Tensor, d_scale) -> tuple[torch.Tensor, torch.Tensor]:
    """What is rounded to 8 bits, of which Inf is none, and its error."""
    is_number = d.isfinite()
    if d_scale is not None:
        d, error = d * (1 / d_scale.double()), error * (1 / d_scale.double().abs())
        error = error + d.abs() * (4 * U_ACC)
    return torch.where(is_number, d.clamp(-MOST, MOST), torch.nan), error


def excess(d: torch.Tensor, want: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """|d - want| / bound per element; infinite where NaN or Inf stand in one and not, or not alike, in the other.

    A bound that is not finite comes from Inf or NaN among the inputs: then the value must be matched exactly.
    """
    d = d.double()
    error = (d - want).abs()
    alike = (d == want) | (d.isnan() & want.isnan())
    ratio = torch.where(bound.isfinite(), error / bound, torch.inf)
    return torch.where(alike, 0.0, ratio.nan_to_num(nan=torch.inf, posinf=torch.inf))


def describe(d: torch.Tensor, want: torch.Tensor, ratio: torch.Tensor) -> str:
    """A sentence about the worst element of one output that has some ratio above 1."""
    bad, d = ratio > 1, d.double()
    place = tuple(int(i) for i in torch.unravel_index(ratio.argmax(), ratio.shape))
    unwritten = int((d.isnan() & ~want.isnan()).sum())
    text = f"{int(bad.sum())} of {d.numel()} elements outside the bound; worst at {place}: got {d[place].item():.9g}, "
    text += f"want {want[place].item():.9g}, error / bound {ratio[place].item():.3g}"
    return text + (f"; {unwritten} NaN left or made where a number belongs" if unwritten else "")
