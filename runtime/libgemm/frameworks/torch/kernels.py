"""What the operators run on CUDA: libgemm's calls, with torch's dtypes. Knows no gradients."""

from typing import Any, cast

import libgemm


def gemm(a: Any, b: Any, c: Any, bias: Any, alpha: float, beta: float, precision: str | None, out_dtype: Any) -> Any:
    return libgemm.gemm(a, b, c, alpha=alpha, beta=beta, bias=bias, precision=cast(Any, precision), out_dtype=out_dtype)


def grouped_mm(a: Any, b: Any, offs: Any, bias: Any, precision: str | None, out_dtype: Any, zero_tail: bool) -> Any:
    return libgemm.grouped_mm(
        a, b, offs, bias=bias, precision=cast(Any, precision), out_dtype=out_dtype,
        tail="zero" if zero_tail else "leave",
    )  # fmt: skip


def moe_route(expert_ids: Any, groups: int) -> Any:
    return libgemm.moe_route(expert_ids.contiguous(), groups)
