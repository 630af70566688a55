"""What the operators run on CUDA: libgemm's calls, with torch's dtypes. Knows no gradients."""

from collections.abc import Callable
from typing import Any

import libgemm


def stored(x: Any) -> Any:
    """x, or a copy by rows where neither its rows nor its columns lie one behind the other: an expanded gradient."""
    if x is None or x.dim() < 2:
        return x
    (rows, cols), (row, col) = x.shape[-2:], x.stride()[-2:]
    return x if (col == 1 and row >= cols) or (row == 1 and col >= rows) else x.contiguous()


def by_rows(x: Any) -> Any:
    """x, or a copy where its rows do not lie one behind the other."""
    if x is None or x.dim() < 2:
        return x
    return x if x.stride(-1) == 1 and x.stride(-2) >= x.shape[-1] else x.contiguous()


def packed(x: Any) -> Any:
    return x if x is None else x.contiguous()


def with_copies(call: Callable[..., Any], given: tuple[Any, ...], ways: tuple[Callable[[Any], Any], ...]) -> Any:
    """The call, as torch makes it of operands with any strides: where libgemm refuses, of each as its way stores it.
    What libgemm takes is looked at no further."""
    try:
        return call(*given)
    except libgemm.Error:
        copies = tuple(way(x) for way, x in zip(ways, given, strict=True))
        if all(x is y for x, y in zip(copies, given, strict=True)):
            raise
    return call(*copies)


def gemm(a: Any, b: Any, c: Any, bias: Any, alpha: float, beta: float, precision: str | None, out_dtype: Any) -> Any:
    words: dict[str, Any] = {"alpha": alpha, "beta": beta, "precision": precision, "out_dtype": out_dtype}

    def call(a: Any, b: Any, c: Any, bias: Any) -> Any:
        return libgemm.gemm(a, b, c, bias=bias, **words)

    return with_copies(call, (a, b, c, bias), (stored, stored, by_rows, packed))


def grouped_mm(a: Any, b: Any, offs: Any, bias: Any, precision: str | None, out_dtype: Any, zero_tail: bool) -> Any:
    words: dict[str, Any] = {"precision": precision, "out_dtype": out_dtype, "tail": "zero" if zero_tail else "leave"}

    def call(a: Any, b: Any, bias: Any) -> Any:
        return libgemm.grouped_mm(a, b, offs, bias=bias, **words)

    return with_copies(call, (a, b, bias), (stored, stored, packed))


def scaled_grouped_mm(
    a: Any, b: Any, offs: Any, a_scale: Any, b_scale: Any, scaling: str, bias: Any, out_dtype: Any, fast: bool
) -> Any:
    words: dict[str, Any] = {"scaling": scaling, "out_dtype": out_dtype, "precision": "fast" if fast else None}

    def call(a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any) -> Any:
        return libgemm.grouped_mm(a, b, offs, bias=bias, a_scale=a_scale, b_scale=b_scale, **words)

    return with_copies(call, (a, b, a_scale, b_scale, bias), (stored, stored, packed, packed, packed))


def moe_route(expert_ids: Any, groups: int) -> Any:
    return libgemm.moe_route(expert_ids.contiguous(), groups)


def scaled_mm(
    a: Any, b: Any, a_scale: Any, b_scale: Any, scaling: str, bias: Any, out_dtype: Any, fast: bool, d_scale: Any
) -> Any:
    words: dict[str, Any] = {"scaling": scaling, "out_dtype": out_dtype, "precision": "fast" if fast else None}

    def call(a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any) -> Any:
        return libgemm.gemm(a, b, bias=bias, a_scale=a_scale, b_scale=b_scale, d_scale=d_scale, **words)

    return with_copies(call, (a, b, a_scale, b_scale, bias), (stored, stored, packed, packed, packed))


def cast(x: Any, granularity: str, dtype: Any, scale: Any, power_of_two: bool, transposed: bool) -> list[Any]:
    """What is a view of none of the others: casting.py says which."""
    words: dict[str, Any] = {"dtype": dtype, "scale": scale, "power_of_two": power_of_two}
    call: Any = libgemm.cast_transpose if transposed else libgemm.cast
    made = list(call(by_rows(x), granularity, **words))
    if transposed and granularity not in ("row", "1x128"):
        made.pop()
    if scale is not None:
        made.pop(1)
    return made
