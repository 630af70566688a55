"""torch's products by libgemm: mm, addmm, bmm, linear and grouped_mm, with torch's names and arguments.

Each is a plain call of the library where nobody records anything (no gradient, no torch.compile, no mode): that costs
the host least. Else it is an operator (operators.py). float32 follows torch.get_float32_matmul_precision(): "highest"
is ieee, others are tf32. Under torch.autocast("cuda") floating-point operands are cast to its dtype, as torch.mm's are.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from libgemm.frameworks.torch import kernels, operators

PLAIN = (torch.Tensor, torch.nn.Parameter)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def is_covered(*tensors: Any) -> bool:
    """Whether libgemm computes products of these: dense, all on a CUDA device, of one type that it knows, and not
    inside torch.func, for whose transforms the operators have no rules."""
    first = tensors[0]
    return (
        all(isinstance(x, Tensor) and x.is_cuda and x.dtype == first.dtype for x in tensors)
        and first.dtype in DTYPES
        and all(x.layout is torch.strided for x in tensors)
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def is_plain(*tensors: Any) -> bool:
    """Whether a call may go past torch's dispatcher: nothing but gradients watches it."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cuda") or torch._C._len_torch_dispatch_stack():
        return False
    for x in tensors:
        if x is not None and (type(x) not in PLAIN or not x.is_cuda):
            return False
    return torch._C._functorch.peek_interpreter_stack() is None


def is_recorded(*tensors: Any) -> bool:
    """Whether gradients are to be had."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def is_eager(*tensors: Any) -> bool:
    """Whether a call may go past torch's dispatcher: nothing watches it."""
    return is_plain(*tensors) and not is_recorded(*tensors)


def autocast(*tensors: Any) -> tuple[Any, ...]:
    """The operands as torch's own products would take them."""
    if not torch.is_autocast_enabled("cuda"):
        return tensors
    dtype = torch.get_autocast_dtype("cuda")
    return tuple(x.to(dtype) if x is not None and x.dtype in DTYPES else x for x in tensors)


def precision_of(x: Tensor) -> str | None:
    if x.dtype != torch.float32:
        return None
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, bias: Tensor | None = None, alpha: float = 1.0,
    beta: float = 0.0, precision: str | None = None, out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """alpha * a @ b + beta * c + bias: a [M,K] or [batch,M,K], b alike, c as the result, bias [N] or [batch,N]."""
    a, b, c, bias = autocast(a, b, c, bias)
    precision = precision or precision_of(a)
    run: Callable[..., Any] = kernels.gemm if is_eager(a, b, c, bias) else operators.gemm
    made: Tensor = run(a, b, c, bias, float(alpha), float(beta), precision, out_dtype)
    return made


def mm(a: Tensor, b: Tensor, *, out_dtype: torch.dtype | None = None) -> Tensor:
    """torch.mm: [M,K] x [K,N]."""
    return gemm(a, b, out_dtype=out_dtype)


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """torch.bmm: [batch,M,K] x [batch,K,N]."""
    return gemm(a, b)


def addmm(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """torch.addmm: beta * c + alpha * a @ b. A row [N] that is added to all is a bias, in the same launch."""
    if c.dim() == 1 and c.shape[0] == b.shape[-1] and beta == 1:
        return gemm(a, b, bias=c, alpha=alpha)
    if beta == 0 and not c.requires_grad:
        return gemm(a, b, alpha=alpha)
    return gemm(a, b, c.expand(a.shape[0], b.shape[1]).contiguous(), alpha=alpha, beta=beta)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """torch.nn.functional.linear: x [..., K], weight [N,K], bias [N]."""
    if x.dim() == 2:
        return gemm(x, weight.t(), bias=bias)
    made = gemm(x.reshape(-1, x.shape[-1]), weight.t(), bias=bias)
    return made.view(*x.shape[:-1], weight.shape[0])


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.grouped_mm: 2-D operands are packed and cut at `offs`, 3-D ones have a matrix for each
    group. bias, of which torch takes none: [N], or [groups,N]."""
    mat_a, mat_b, bias = autocast(mat_a, mat_b, bias)
    run: Callable[..., Any] = kernels.grouped_mm if is_eager(mat_a, mat_b, offs, bias) else operators.grouped_mm
    made: Tensor = run(mat_a, mat_b, offs, bias, precision_of(mat_a), out_dtype, False)
    return made
