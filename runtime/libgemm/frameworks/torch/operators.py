"""libgemm's products as torch operators: schema, CUDA kernel, meta kernel, gradients. Chooses no path, casts nothing.

    libgemm::gemm(a, b, c, bias, alpha, beta, precision, out_dtype)    a [M,K] or [batch,M,K], b alike
    libgemm::grouped_mm(a, b, offs, bias, precision, out_dtype)        torch's grouped_mm, all four cases
    libgemm::moe_route(expert_ids, groups)                             rows, places, offs: no gradient

All allocate their output. A gradient has the layout of its operand: row-major, or transposed where that is.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from libgemm.frameworks.torch import kernels


def is_transposed(x: Tensor) -> bool:
    """Whether the rows of `x` are stored one behind the other by columns, and only so."""
    return bool(x.stride(-2) == 1 and x.stride(-1) != 1)


def wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def like_operand(x: Tensor, row_major: Any) -> Tensor:
    """A gradient in the layout of `x`: `row_major(swapped)` computes it as it is, or its transpose where `swapped`."""
    swapped = is_transposed(x)
    made: Tensor = row_major(swapped)
    return made.mT if swapped else made


def wanted(ctx: Any) -> tuple[bool, ...]:
    """Whether each of the four first arguments, which are the tensors, wants a gradient: torch speaks of those that
    were given."""
    found: tuple[bool, ...] = (*ctx.needs_input_grad, False, False)[:4]
    return found


def as_many_as_given(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    count = len(ctx.needs_input_grad)
    return (*gradients, *[None] * count)[:count]


# ---- Dense ----


@torch.library.custom_op("libgemm::gemm", mutates_args=(), device_types="cuda")
def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, bias: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0,
    precision: str | None = None, out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """alpha * a @ b + beta * c + bias, as libgemm.gemm."""
    with torch.no_grad():  # what is to be recorded is
        made: Tensor = kernels.gemm(a, b, c, bias, alpha, beta, precision, out_dtype)
    return made


@gemm.register_fake
def _(a, b, c=None, bias=None, alpha=1.0, beta=0.0, precision=None, out_dtype=None):  # type: ignore[no-untyped-def]
    torch._check(a.dim() == b.dim() and a.dim() in (2, 3), lambda: f"a has {a.dim()} dimensions, b {b.dim()}")
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"a has shape {tuple(a.shape)}, b {tuple(b.shape)}")
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=out_dtype or a.dtype)


def save_gemm(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, c, bias, ctx.alpha, ctx.beta, ctx.precision, _ = inputs
    ctx.save_for_backward(a, b)
    ctx.shapes = [None if x is None else (x.shape, x.dtype) for x in (c, bias)]


def operand_gradients(
    product: Callable[[Tensor, Tensor], Tensor], grad: Tensor, a: Tensor, b: Tensor, wants_a: bool, wants_b: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Those of A and B that are wanted, each in its operand's layout."""

    def of_a(swapped: bool) -> Tensor:
        return product(b, grad.mT) if swapped else product(grad, b.mT)

    def of_b(swapped: bool) -> Tensor:
        return product(grad.mT, a) if swapped else product(a.mT, grad)

    return like_operand(a, of_a) if wants_a else None, like_operand(b, of_b) if wants_b else None


def gemm_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    narrow = grad.to(a.dtype)  # of a float32 output; the products are of the operands' type, as in torch.mm

    def product(x: Tensor, y: Tensor) -> Tensor:
        made: Tensor = torch.ops.libgemm.gemm(x, y, None, None, ctx.alpha, 0.0, ctx.precision, None)
        return made

    wants_a, wants_b, wants_c, wants_bias = wanted(ctx)
    c, bias = ctx.shapes
    return as_many_as_given(
        ctx,
        *operand_gradients(product, narrow, a, b, wants_a, wants_b),
        (ctx.beta * grad).to(c[1]).expand(c[0]) if wants_c else None,
        sum_rows(grad, bias) if wants_bias else None,
    )


def sum_rows(grad: Tensor, bias: Any) -> Tensor:
    """The gradient of a bias of (shape, dtype): [N], or [batch,N]; summed in float32 at least."""
    shape, dtype = bias
    rows = grad.flatten(0, -2) if len(shape) == 1 else grad
    return rows.sum(dim=-2, dtype=wide(grad)).to(dtype)


gemm.register_autograd(gemm_gradients, setup_context=save_gemm)


# ---- Groups ----


@torch.library.custom_op("libgemm::grouped_mm", mutates_args=(), device_types="cuda")
def grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, precision: str | None = None,
    out_dtype: torch.dtype | None = None, zero_tail: bool = False,
) -> Tensor:  # fmt: skip
    """libgemm.grouped_mm: 2-D operands are packed and cut at the ends `offs`, 3-D ones have a matrix for each group."""
    with torch.no_grad():
        made: Tensor = kernels.grouped_mm(a, b, offs, bias, precision, out_dtype, zero_tail)
    return made


@grouped_mm.register_fake
def _(a, b, offs=None, bias=None, precision=None, out_dtype=None, zero_tail=False):  # type: ignore[no-untyped-def]
    torch._check(a.dim() in (2, 3) and b.dim() in (2, 3), lambda: f"a has {a.dim()} dimensions, b {b.dim()}")
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"a has shape {tuple(a.shape)}, b {tuple(b.shape)}")
    torch._check((offs is None) == (a.dim() == b.dim() == 3), lambda: "offs is needed unless a and b have 3 dimensions")
    groups = () if a.dim() != b.dim() else ((offs if a.dim() == 2 else a).shape[0],)
    return a.new_empty((*groups, a.shape[-2], b.shape[-1]), dtype=out_dtype or a.dtype)


def save_grouped_mm(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, offs, bias, ctx.precision, _, _ = inputs
    ctx.save_for_backward(a, b, offs)
    ctx.bias = None if bias is None else (bias.shape, bias.dtype)


def grouped_mm_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """Each gradient is a grouped product with the same ends, of another case: cut rows and cut K give each other, cut
    columns themselves and cut K."""
    a, b, offs = ctx.saved_tensors
    narrow = grad.to(a.dtype)

    def product(x: Tensor, y: Tensor) -> Tensor:  # what is past the last end has no gradient
        made: Tensor = torch.ops.libgemm.grouped_mm(x, y, offs, None, ctx.precision, None, True)
        return made

    wants_a, wants_b, _, wants_bias = wanted(ctx)
    return as_many_as_given(
        ctx,
        *operand_gradients(product, narrow, a, b, wants_a, wants_b),
        None,
        sum_groups(narrow, offs, a.dim() == 2 and b.dim() == 3, ctx) if wants_bias else None,
    )


def sum_groups(grad: Tensor, offs: Tensor | None, cuts_rows: bool, ctx: Any) -> Tensor:
    """The gradient of a bias [N] or [groups,N]. Where ends cut the rows, a product of ones that they cut along K."""
    shape, dtype = ctx.bias
    if not cuts_rows:
        return sum_rows(grad, ctx.bias)
    ones = grad.new_ones((1, grad.shape[0]))
    sums = torch.ops.libgemm.grouped_mm(ones, grad, offs, None, ctx.precision, wide(grad), False).squeeze(1)
    return (sums if len(shape) == 2 else sums.sum(dim=0)).to(dtype)


grouped_mm.register_autograd(grouped_mm_gradients, setup_context=save_grouped_mm)


# ---- Routing ----


@torch.library.custom_op("libgemm::moe_route", mutates_args=(), device_types="cuda")
def moe_route(expert_ids: Tensor, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """libgemm.moe_route: choices [tokens, top_k] sorted by expert."""
    rows, places, offs = kernels.moe_route(expert_ids, groups)
    return rows, places, offs


@moe_route.register_fake
def _(expert_ids, groups):  # type: ignore[no-untyped-def]
    torch._check(expert_ids.dim() == 2, lambda: f"expert_ids has {expert_ids.dim()} dimensions: 2 are needed")
    new = {"dtype": torch.int32}
    tokens, top_k = expert_ids.shape
    return (
        expert_ids.new_empty(tokens * top_k, **new),
        expert_ids.new_empty(tokens, top_k, **new),
        expert_ids.new_empty(groups, **new),
    )
