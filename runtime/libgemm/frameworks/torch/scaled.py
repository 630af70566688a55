"""torch.nn.functional.scaled_mm by libgemm: products of 8-bit tensors with scales, as an operator and a function of
torch's name. No gradients: 8-bit tensors have none.
"""

from typing import Any

import torch
from torch import Tensor

from libgemm._library import invalid
from libgemm.frameworks.torch import functions, kernels

NAMES = {"TensorWise": "tensor", "RowWise": "row"}  # torch's ScalingType -> libgemm's scaling
TYPES = getattr(torch.nn.functional, "ScalingType", None)  # not in versions before 2.10: then by name
VALUES = {getattr(TYPES, name).value: scaling for name, scaling in NAMES.items()} if TYPES else {}


@torch.library.custom_op("libgemm::scaled_mm", mutates_args=(), device_types="cuda")
def operator(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, scaling: str, bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None, fast: bool = False,
) -> Tensor:  # fmt: skip
    """a @ b times the scales, plus bias, as libgemm.gemm."""
    made: Tensor = kernels.scaled_mm(a, b, a_scale, b_scale, scaling, bias, out_dtype, fast)
    return made


@operator.register_fake
def _(a, b, a_scale, b_scale, scaling, bias=None, out_dtype=None, fast=False):  # type: ignore[no-untyped-def]
    torch._check(a.dim() == b.dim() and a.dim() in (2, 3), lambda: f"a has {a.dim()} dimensions, b {b.dim()}")
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"a has shape {tuple(a.shape)}, b {tuple(b.shape)}")
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=out_dtype or torch.bfloat16)


def only(given: Any) -> Any:
    """torch takes a scale and its recipe, or lists of one or two."""
    if isinstance(given, (list, tuple)):
        if len(given) != 1:
            raise invalid(f"{len(given)} scales or recipes of one operand: libgemm takes one")
        return given[0]
    return given


def scaling_of(recipe_a: Any, recipe_b: Any) -> str:
    """Of two recipes, which must be the same: each one of torch's ScalingType, or its name."""
    given = only(recipe_a), only(recipe_b)
    found = [NAMES.get(x) if isinstance(x, str) else VALUES.get(x.value) for x in given]
    if found[0] is None or found[0] != found[1]:
        raise invalid(
            f"scale_recipe_a = {given[0]}, scale_recipe_b = {given[1]}: allowed are {' or '.join(NAMES)}, both"
        )
    return found[0]


def scaled_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any, scale_recipe_b: Any,
    swizzle_a: Any = None, swizzle_b: Any = None, bias: Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16, contraction_dim: Any = (), use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.scaled_mm for float8_e4m3fn: mat_a [M,K] @ mat_b [K,N] of any layout, where torch takes a
    row-major mat_a and a transposed mat_b alone. Recipes: TensorWise (a number each) and RowWise ([M,1] and [1,N]).
    output_dtype: bfloat16, float16 or float32; bias [N] has it too. use_fast_accum: libgemm's precision "fast".
    Raises libgemm.Error, naming what is allowed."""
    for name, given in (("swizzle_a", swizzle_a), ("swizzle_b", swizzle_b), ("contraction_dim", contraction_dim)):
        if given is not None and (not hasattr(given, "__len__") or len(given)):
            raise invalid(f"{name} = {given!r}: libgemm has none, leave it out")
    scaling, a_scale, b_scale = scaling_of(scale_recipe_a, scale_recipe_b), only(scale_a), only(scale_b)
    run: Any = kernels.scaled_mm if functions.is_eager(mat_a, mat_b, a_scale, b_scale, bias) else operator
    made: Tensor = run(mat_a, mat_b, a_scale, b_scale, scaling, bias, output_dtype, bool(use_fast_accum))
    return made
