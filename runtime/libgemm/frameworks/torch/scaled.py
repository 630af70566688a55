"""torch.nn.functional.scaled_mm and scaled_grouped_mm by libgemm: products of 8-bit tensors with scales, as operators
and functions of torch's names. No gradients: 8-bit tensors have none.
"""

from typing import Any

import torch
from torch import Tensor

from libgemm._library import invalid
from libgemm.frameworks.torch import functions, kernels

SCALINGS = {  # torch's ScalingType of A and B -> libgemm's scaling
    ("TensorWise", "TensorWise"): "tensor",
    ("RowWise", "RowWise"): "row",
    ("BlockWise1x128", "BlockWise128x128"): "1x128_128x128",
    ("BlockWise1x128", "BlockWise1x128"): "1x128_1x128",
    ("BlockWise128x128", "BlockWise1x128"): "128x128_1x128",
}
TURNED = [scaling for (_, b), scaling in SCALINGS.items() if b == "BlockWise1x128"]  # of B torch has N first here
TYPES = getattr(torch.nn.functional, "ScalingType", None)  # not in versions before 2.10: then by name
NAMES = {getattr(TYPES, name).value: name for names in SCALINGS for name in names} if TYPES else {}


@torch.library.custom_op("libgemm::scaled_mm", mutates_args=(), device_types="cuda")
def operator(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, scaling: str, bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None, fast: bool = False, d_scale: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """a @ b times the scales, plus bias, as libgemm.gemm."""
    made: Tensor = kernels.scaled_mm(a, b, a_scale, b_scale, scaling, bias, out_dtype, fast, d_scale)
    return made


@operator.register_fake
def _(  # type: ignore[no-untyped-def]
    a, b, a_scale, b_scale, scaling, bias=None, out_dtype=None, fast=False, d_scale=None
):
    torch._check(a.dim() == b.dim() and a.dim() in (2, 3), lambda: f"a has {a.dim()} dimensions, b {b.dim()}")
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"a has shape {tuple(a.shape)}, b {tuple(b.shape)}")
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=out_dtype or torch.bfloat16)


@torch.library.custom_op("libgemm::scaled_grouped_mm", mutates_args=(), device_types="cuda")
def grouped_operator(
    a: Tensor, b: Tensor, offs: Tensor | None, a_scale: Tensor, b_scale: Tensor, scaling: str,
    bias: Tensor | None = None, out_dtype: torch.dtype | None = None, fast: bool = False,
) -> Tensor:  # fmt: skip
    """a @ b of each group times the scales, plus bias, as libgemm.grouped_mm."""
    made: Tensor = kernels.scaled_grouped_mm(a, b, offs, a_scale, b_scale, scaling, bias, out_dtype, fast)
    return made


@grouped_operator.register_fake
def _(a, b, offs, a_scale, b_scale, scaling, bias=None, out_dtype=None, fast=False):  # type: ignore[no-untyped-def]
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"a has shape {tuple(a.shape)}, b {tuple(b.shape)}")
    lead = (offs.shape[0] if a.dim() == 2 else a.shape[0],) if a.dim() == b.dim() else ()  # K is cut, or nothing
    return a.new_empty((*lead, a.shape[-2], b.shape[-1]), dtype=out_dtype or torch.bfloat16)


def only(given: Any) -> Any:
    """torch takes a scale and its recipe, or lists of one or two."""
    if isinstance(given, (list, tuple)):
        if len(given) != 1:
            raise invalid(f"{len(given)} scales or recipes of one operand: libgemm takes one")
        return given[0]
    return given


def scaling_of(recipe_a: Any, recipe_b: Any) -> str:
    """Of two recipes, each one of torch's ScalingType, or its name."""
    given = only(recipe_a), only(recipe_b)
    a, b = (x if isinstance(x, str) else NAMES.get(x.value, "") for x in given)
    if (a, b) not in SCALINGS:
        allowed = "; ".join(f"{a} and {b}" for a, b in SCALINGS)
        raise invalid(f"scale_recipe_a = {given[0]}, scale_recipe_b = {given[1]}: allowed are {allowed}")
    return SCALINGS[a, b]


def refuse(swizzle_a: Any, swizzle_b: Any, contraction_dim: Any) -> None:
    """What torch's functions take for other types of scales."""
    for name, given in (("swizzle_a", swizzle_a), ("swizzle_b", swizzle_b), ("contraction_dim", contraction_dim)):
        if given is not None and (not hasattr(given, "__len__") or len(given)):
            raise invalid(f"{name} = {given!r}: libgemm has none, leave it out")


def scaled_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any, scale_recipe_b: Any,
    swizzle_a: Any = None, swizzle_b: Any = None, bias: Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16, contraction_dim: Any = (), use_fast_accum: bool = False,
    d_scale: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.scaled_mm for float8_e4m3fn, of which one operand may be float8_e5m2: mat_a [M,K] @ mat_b
    [K,N] of any layout, where torch takes a row-major mat_a and a transposed mat_b alone. Recipes: TensorWise (a number
    each), RowWise ([M,1] and [1,N]), and of blocks BlockWise1x128 ([M,K/128], of mat_b [N,K/128]) with it or with
    BlockWise128x128 ([M/128,K/128], of mat_b [K/128,N/128], rounded up; more along K are not read); scales of blocks
    may have any strides.
    output_dtype: bfloat16, float16 or float32; bias [N] has it too. Or float8_e4m3fn, whose bias is bfloat16: d_scale,
    which torch's function does not have, is a float32 tensor of one element then, by which the numbers are divided
    before they are rounded; what is beyond 448 becomes that. use_fast_accum: libgemm's precision "fast", which scales
    of blocks do not go with.
    Raises libgemm.Error, naming what is allowed."""
    refuse(swizzle_a, swizzle_b, contraction_dim)
    scaling, a_scale, b_scale = scaling_of(scale_recipe_a, scale_recipe_b), only(scale_a), only(scale_b)
    if scaling in TURNED:
        if not isinstance(b_scale, Tensor) or b_scale.dim() != 2:
            raise invalid(f"scale_b = {b_scale!r}: a matrix of N by K / 128 is needed with this recipe")
        b_scale = b_scale.t()
    run: Any = kernels.scaled_mm if functions.is_eager(mat_a, mat_b, a_scale, b_scale, bias, d_scale) else operator
    made: Tensor = run(mat_a, mat_b, a_scale, b_scale, scaling, bias, output_dtype, bool(use_fast_accum), d_scale)
    return made


def of_groups(scale: Any, cut_k: bool, groups: int) -> Any:
    """torch has the rows' scales of all groups in one vector where both matrices are cut along K."""
    if cut_k and isinstance(scale, Tensor) and scale.dim() == 1 and groups and scale.shape[0] % groups == 0:
        return scale.view(groups, -1)
    return scale


def scaled_grouped_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any, scale_recipe_b: Any,
    swizzle_a: Any = None, swizzle_b: Any = None, bias: Tensor | None = None, offs: Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16, contraction_dim: Any = (), use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.scaled_grouped_mm for float8_e4m3fn, of which one operand may be float8_e5m2, of any layouts:
    mat_a [M,K] or [G,M,K], mat_b [G,K,N] or [K,N], offs [G] the end of each group, int32 or int64, anywhere; as
    libgemm.grouped_mm has them. Recipes: RowWise (of mat_a [M] or [G,M], of mat_b [G,N] or [N]; of two 2-D matrices
    [G * M] and [G * N]), TensorWise, and, but for two 2-D matrices, of blocks: BlockWise1x128 of mat_a [M,K/128] and
    BlockWise128x128 of mat_b [G,K/128,N/128], of any strides.
    output_dtype, bias, use_fast_accum as in scaled_mm.
    Raises libgemm.Error, naming what is allowed."""
    refuse(swizzle_a, swizzle_b, contraction_dim)
    scaling, cut_k = scaling_of(scale_recipe_a, scale_recipe_b), mat_a.dim() == mat_b.dim() == 2
    if scaling in TURNED:
        raise invalid("scale_recipe_b = BlockWise1x128: of groups libgemm takes BlockWise1x128 with BlockWise128x128")
    groups = offs.shape[0] if offs is not None else 0
    a_scale, b_scale = (of_groups(only(scale), cut_k, groups) for scale in (scale_a, scale_b))
    run: Any = kernels.scaled_grouped_mm
    if not functions.is_eager(mat_a, mat_b, offs, a_scale, b_scale, bias):
        run = grouped_operator
    made: Tensor = run(mat_a, mat_b, offs, a_scale, b_scale, scaling, bias, output_dtype, bool(use_fast_accum))
    return made
