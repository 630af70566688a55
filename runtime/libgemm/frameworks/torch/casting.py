"""Casts to 8 bits as a torch operator: libgemm.cast and cast_transpose under torch.compile. No gradients: what is cast
has none, and a layer's gradients are products of their own.
"""

from typing import Any

import torch
from torch import Tensor

from libgemm._cast import ALIGN
from libgemm.frameworks.torch import functions, kernels

E4M3 = getattr(torch, "float8_e4m3fn", None)  # not in versions before 2.1
OWN = ("row", "1x128")  # granularities of which the transposed matrix has scales of its own


@torch.library.custom_op("libgemm::cast", mutates_args=(), device_types="cuda")
def operator(
    x: Tensor, granularity: str, dtype: torch.dtype, scale: Tensor | None, power_of_two: bool, transposed: bool
) -> list[Tensor]:
    """Values, their scale unless it is given, and of the transposed matrix its values and, where it has its own, its
    scale: what is a view of none of the others."""
    with torch.no_grad():
        made: list[Tensor] = kernels.cast(x, granularity, dtype, scale, power_of_two, transposed)
    return made


def new_values(x: Tensor, dtype: torch.dtype, rows: int, cols: int) -> Tensor:
    made = x.new_empty((*x.shape[:-2], rows, (cols + ALIGN - 1) // ALIGN * ALIGN), dtype=dtype)
    return made if made.shape[-1] == cols else made[..., :cols]


def new_scale(x: Tensor, granularity: str, rows: int, cols: int) -> Tensor:
    steps, lead = (cols + 127) // 128, x.shape[:-2]
    if granularity == "1x128":
        return x.new_empty((*lead, steps, rows), dtype=torch.float32).swapaxes(-1, -2)
    shape = {"tensor": (), "row": (rows, 1), "128x128": ((rows + 127) // 128, steps)}[granularity]
    return x.new_empty((*lead, *shape), dtype=torch.float32)


@operator.register_fake
def _(x, granularity, dtype, scale, power_of_two, transposed):  # type: ignore[no-untyped-def]
    torch._check(x.dim() in (2, 3), lambda: f"x has {x.dim()} dimensions: 2 or 3 are needed")
    m, n = x.shape[-2:]
    made = [new_values(x, dtype, m, n)]
    if scale is None:
        made.append(new_scale(x, granularity, m, n))
    if transposed:
        made.append(new_values(x, dtype, n, m))
        if granularity in OWN:
            made.append(new_scale(x, granularity, n, m))
    return made


def run(
    x: Tensor, granularity: str, dtype: torch.dtype | None, scale: Tensor | None, power_of_two: bool, transposed: bool
) -> list[Tensor]:
    x, scale = x.detach(), None if scale is None else scale.detach()
    call: Any = kernels.cast if functions.is_eager(x, scale) else operator
    made: list[Tensor] = call(x, granularity, dtype or E4M3, scale, bool(power_of_two), transposed)
    return made if scale is None else [made[0], scale, *made[1:]]


def cast(
    x: Tensor, granularity: str, *, dtype: torch.dtype | None = None, scale: Tensor | None = None,
    power_of_two: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """libgemm.cast: (values, scale), x / scale in 8 bits. x [M,N] or [batch,M,N] of any strides; granularity "tensor",
    "row", "1x128" or "128x128"; dtype float8_e4m3fn (None) or float8_e5m2. What comes of it has no gradient. Raises
    libgemm.Error."""
    values, own = run(x, granularity, dtype, scale, power_of_two, False)
    return values, own


def cast_transpose(
    x: Tensor, granularity: str, *, dtype: torch.dtype | None = None, scale: Tensor | None = None,
    power_of_two: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """libgemm.cast_transpose: (values, scale, values_t, scale_t), of x and of x.mT in one pass. The rest as in cast."""
    values, own, values_t, *rest = run(x, granularity, dtype, scale, power_of_two, True)
    if rest:
        return values, own, values_t, rest[0]
    return values, own, values_t, own if granularity == "tensor" else own.mT
