"""`use()`: within it torch's own products of covered types are libgemm's. Changes nothing outside it."""

import functools
import inspect
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from libgemm.frameworks.torch import functions

F = torch.nn.functional


def fits(given: dict[str, Any], allowed: tuple[str, ...]) -> bool:
    """Whether only these words were given, others at most as None."""
    return all(name in allowed or value is None for name, value in given.items())


signature_of = functools.cache(inspect.signature)  # taking it apart costs more than the call


def takes(route: Any, args: tuple[Any, ...], words: dict[str, Any]) -> bool:
    """Whether a route has these arguments: torch alone knows some."""
    try:
        signature_of(route).bind(*args, **words)
    except TypeError:
        return False
    return True


def mm(a: Any, b: Any, **words: Any) -> Any:
    if not fits(words, ()) or not functions.is_covered(a, b) or not a.dim() == b.dim() == 2:
        return NotImplemented
    return functions.mm(a, b)


def bmm(a: Any, b: Any, **words: Any) -> Any:
    if not fits(words, ()) or not functions.is_covered(a, b) or not a.dim() == b.dim() == 3:
        return NotImplemented
    return functions.bmm(a, b)


def matmul(a: Any, b: Any, **words: Any) -> Any:
    if not fits(words, ()) or not functions.is_covered(a, b) or b.dim() != 2 or a.dim() < 2:
        return NotImplemented
    return functions.linear(a, b.t())


def addmm(c: Any, a: Any, b: Any, **words: Any) -> Any:
    if not fits(words, ("beta", "alpha")) or not functions.is_covered(a, b, c):
        return NotImplemented
    return functions.addmm(c, a, b, **words)


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    given = (x, weight) if bias is None else (x, weight, bias)
    if not functions.is_covered(*given) or weight.dim() != 2 or x.dim() < 2:
        return NotImplemented
    return functions.linear(x, weight, bias)


def grouped_mm(mat_a: Any, mat_b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if not functions.is_covered(mat_a, mat_b):
        return NotImplemented
    return functions.grouped_mm(mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)


ROUTES: dict[Any, Any] = {
    torch.mm: mm, torch.Tensor.mm: mm, torch.bmm: bmm, torch.Tensor.bmm: bmm, torch.addmm: addmm,
    torch.Tensor.addmm: addmm, torch.matmul: matmul, torch.Tensor.matmul: matmul, torch.Tensor.__matmul__: matmul,
    F.linear: linear,
}  # fmt: skip
for owner, name in ((F, "grouped_mm"), (torch, "_grouped_mm")):
    if hasattr(owner, name):
        ROUTES[getattr(owner, name)] = grouped_mm


class use(TorchFunctionMode):
    """A context in which torch.mm, bmm, addmm, matmul, linear and grouped_mm of CUDA tensors of float16, bfloat16 and
    float32 run libgemm; what it does not cover runs as ever."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        words = kwargs or {}
        route = ROUTES.get(func)
        if route is not None:
            made = route(*args, **words) if takes(route, args, words) else NotImplemented
            if made is not NotImplemented:
                return made
        return func(*args, **words)
