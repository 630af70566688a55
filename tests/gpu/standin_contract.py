"""What the stand-in refuses, in the words of the C header's contract. Not the library's own checks."""

import torch

from .cases import ACTIVATIONS
from .reference import DTYPES, EIGHT_BITS


class Error(ValueError):
    """A refused call, like libgemm.Error."""

    def __init__(self, text: str, status: int = 1, name: str = "LIBGEMM_INVALID_ARGUMENT"):
        super().__init__(text)
        self.status, self.name = status, name


def require(ok: bool, text: str) -> None:
    if not ok:
        raise Error(text)


def check(a, b, c, beta, bias, activation, precision, out, variant, *, variants) -> None:
    """Refuse a product that breaks the contract."""
    for name, x in (("a", a), ("b", b), ("c", c), ("bias", bias), ("out", out)):
        if x is None and name not in "ab":
            continue
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is no tensor")
        require(x.device == a.device, f"{name} is on {x.device}, a on {a.device}")
        require(x.dtype in DTYPES.values(), f"{name} is {x.dtype}: allowed is {', '.join(DTYPES)}")
        require(x.dim() in ((1, 2) if name == "bias" else (2, 3)), f"{name} has {x.dim()} dimensions")
        wide = x.dim() >= 2 and min(x.shape) > 0 and max(x.stride()[-2:]) >= min(x.shape[-2:]) > 1
        require(not wide or 1 in x.stride()[-2:], f"{name}: no unit stride among {x.stride()}")
        require(not (x.dim() == 2 and min(x.shape) > 1) or wide, f"{name}: rows overlap, {x.stride()}")
    kinds = {a.dtype, b.dtype}
    require(len(kinds) == 1 or kinds == set(EIGHT_BITS), f"a is {a.dtype}, b is {b.dtype}")
    require(kinds != {DTYPES["e5m2"]}, "a and b are e5m2: one of them must be e4m3")
    require(a.shape[-1] == b.shape[-2], f"K: a has {a.shape[-1]}, b has {b.shape[-2]}")
    require(a.dim() + b.dim() < 6 or len(a) == len(b), f"a has {len(a)} batches, b {len(b)}")
    ways = {torch.float32: ("tf32", "tf32x3", "ieee"), **dict.fromkeys(EIGHT_BITS, (None, "exact", "fast"))}
    legal = ways.get(a.dtype, (None,))
    require(precision in legal, f"precision {precision!r}: allowed is {legal}")
    require(activation in ACTIVATIONS, f"activation {activation!r}")
    require(variant is None or variant in [v.name for v in variants], f"no variant {variant!r}")
    require(beta == 0 or c is not None or out is not None, "beta is not 0 and there is no C")
    require(bias is None or bias.shape[-1] == b.shape[-1], "bias has not N elements")
    require(c is None or c.shape[-2:] == (a.shape[-2], b.shape[-1]), "c has not D's shape")
