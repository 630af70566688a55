"""What the operators of a layer of experts run on CUDA: chains of libgemm's calls, forward and back. Knows no autograd.

In words of libgemm.moe(): entries are choices of a token, tokens * top_k of them, and stand sorted by expert. What
training keeps of the forward pass is Z, the first product before its gate, and how entries were sorted.
"""

from typing import Any

import torch
from torch import Tensor

import libgemm
from libgemm._library import invalid
from libgemm._moe import inner_size
from libgemm.frameworks.torch.kernels import by_rows, packed, stored, with_copies

Gate = tuple[str, str | None, float, float]  # activation, gate, gate_alpha, gate_limit, as libgemm.moe() takes them


def words(gate: Gate) -> dict[str, Any]:
    return dict(zip(("activation", "gate", "gate_alpha", "gate_limit"), gate, strict=True))


# How libgemm takes x, w_in, w_out, bias_in and bias_out: what is stored otherwise is copied so.
WAYS = (by_rows, stored, stored, packed, packed)


def chain(operands: tuple[Tensor | None, ...], ids: Tensor, weights: Tensor | None, told: dict[str, Any]) -> Tensor:
    """libgemm.moe() of x, w_in, w_out, bias_in and bias_out, in this order."""

    def call(x: Any, w_in: Any, w_out: Any, bias_in: Any, bias_out: Any) -> Any:
        return libgemm.moe(x, w_in, w_out, ids, weights, bias_in=bias_in, bias_out=bias_out, **told)

    made: Tensor = with_copies(call, operands, WAYS)
    return made


def moe(
    x: Tensor, w_in: Tensor, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None, bias_in: Tensor | None,
    bias_out: Tensor | None, *gate: Any,
) -> Tensor:  # fmt: skip
    return chain((x, w_in, w_out, bias_in, bias_out), expert_ids, weights, words(gate))


def scaled_moe(
    x: Tensor, w_in: Tensor, w_out: Tensor, w_in_scale: Tensor, w_out_scale: Tensor, scaling: str, expert_ids: Tensor,
    weights: Tensor | None, bias_in: Tensor | None, bias_out: Tensor | None, *gate: Any,
) -> Tensor:  # fmt: skip
    told = {"scaling": scaling, "w_in_scale": w_in_scale, "w_out_scale": w_out_scale, **words(gate)}
    return chain((x, w_in, w_out, bias_in, bias_out), expert_ids, weights, told)


def check_sizes(
    x: Tensor, w_in: Tensor, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None, bias_in: Tensor | None,
    bias_out: Tensor | None, gated: bool,
) -> None:  # fmt: skip
    """What libgemm.moe() checks of a layer, before its parts are called one by one."""
    inner_size(tuple(x.shape), tuple(w_in.shape), tuple(w_out.shape), gated)
    if expert_ids.dim() != 2 or len(expert_ids) != len(x):
        raise invalid(f"x is {[*x.shape]}, expert_ids {[*expert_ids.shape]}: [{len(x)}, top_k] is needed")
    if weights is not None and weights.shape != expert_ids.shape:
        raise invalid(f"weights has shape {[*weights.shape]}: {[*expert_ids.shape]} is needed, as of expert_ids")
    for name, bias, w in (("bias_in", bias_in, w_in), ("bias_out", bias_out, w_out)):
        wanted = (w.shape[0], w.shape[2])
        if bias is not None and bias.shape != wanted:
            raise invalid(f"{name} has shape {[*bias.shape]}: {[*wanted]} is needed")


def forward(
    x: Tensor, w_in: Tensor, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None, bias_in: Tensor | None,
    bias_out: Tensor | None, *gate: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The layer, Z, and rows, places and offs of moe_route()."""
    check_sizes(x, w_in, w_out, expert_ids, weights, bias_in, bias_out, gate[1] is not None)
    given = (x, w_in, w_out, bias_in, bias_out)
    x, w_in, w_out, bias_in, bias_out = (way(t) for way, t in zip(WAYS, given, strict=True))
    rows, places, offs = libgemm.moe_route(expert_ids, w_in.shape[0])
    z = libgemm.moe_mm(x, w_in, offs, rows=rows, bias=bias_in)
    made = libgemm.grouped_mm(libgemm.moe_gate(z, **words(gate)), w_out, offs, bias=bias_out)
    return libgemm.moe_sum(made, places, weights), z, rows, places, offs


def weight_gradient(left: Tensor, right: Tensor, offs: Tensor, like: Tensor) -> Tensor:
    """left.T @ right of each expert's rows, in the layout of `like`."""
    swapped = like.stride(-2) == 1 and like.stride(-1) != 1
    made: Tensor = libgemm.grouped_mm(right.mT, left, offs) if swapped else libgemm.grouped_mm(left.mT, right, offs)
    return made.mT if swapped else made


def by_entry(weights: Tensor | None, places: Tensor, dtype: torch.dtype) -> Tensor:
    """[entries]: the weight of each sorted position."""
    made = torch.zeros(places.numel() + 1, dtype=dtype, device=places.device)
    at = torch.where(places < 0, places.numel(), places).flatten().long()
    share = torch.ones_like(at, dtype=dtype) if weights is None else weights.flatten().to(dtype)
    return made.scatter_(0, at, share)[:-1]


def sum_of_groups(rows: Tensor, share: Tensor, offs: Tensor) -> Tensor:
    """The sum of each expert's rows, each times its share: a product that ends cut along K. Of eight columns, alike:
    no fewer have rows that begin on 16 bytes."""
    left = share[:, None].expand(-1, 8).contiguous()
    made: Tensor = libgemm.grouped_mm(left.mT, rows, offs, out_dtype=torch.float32)
    return made[:, 0].to(rows.dtype)


def bias_share(grad: Tensor, bias: Tensor, expert_ids: Tensor) -> Tensor:
    """What weights' gradients owe to the second bias: of each choice, its expert's bias times the token's gradient."""
    of_all = libgemm.gemm(grad, bias.contiguous().mT, out_dtype=torch.float32)
    own = (expert_ids >= 0) & (expert_ids < bias.shape[0])
    return torch.where(own, of_all.gather(1, expert_ids.clamp(0, bias.shape[0] - 1).long()), 0.0)


def backward(
    grad: Tensor, x: Tensor | None, w_in: Tensor | None, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None,
    bias_out: Tensor | None, z: Tensor, rows: Tensor, places: Tensor, offs: Tensor, *rest: Any,
) -> list[Tensor]:  # fmt: skip
    """Gradients of x, w_in, w_out, weights, bias_in and bias_out, each an empty tensor where `wants` says no. x and
    w_in are there where a gradient needs them."""
    *gate, wants = rest
    wants_x, wants_in, wants_out, wants_weights, wants_bias_in, wants_bias_out = wants
    grad, turned = grad.contiguous(), stored(w_out).mT
    if wants_in or wants_out or wants_bias_out:  # a row for each entry; any for what is nobody's, behind the last end
        own = rows.clamp(min=0)
    if wants_out or wants_bias_out:
        of_rows = grad.index_select(0, own)
        dh = libgemm.grouped_mm(of_rows, turned, offs)
    else:
        dh = libgemm.moe_mm(grad, turned, offs, rows=rows)
    dz, h, sums = libgemm.moe_gate_grad(z, dh, places, weights, **words(tuple(gate)))
    made = [grad.new_empty(0) for _ in wants]
    if w_in is not None and wants_x:
        made[0] = libgemm.moe_sum(libgemm.grouped_mm(dz, stored(w_in).mT, offs), places)
    if x is not None and w_in is not None and wants_in:
        made[1] = weight_gradient(x.index_select(0, own), dz, offs, w_in)
    if wants_out:
        made[2] = weight_gradient(h, of_rows, offs, w_out)
    if weights is not None and wants_weights:
        made[3] = (sums if bias_out is None else sums + bias_share(grad, bias_out, expert_ids)).to(weights.dtype)
    if wants_bias_in:
        made[4] = sum_of_groups(dz, dz.new_ones(len(dz)), offs)
    if wants_bias_out:
        made[5] = sum_of_groups(of_rows, by_entry(weights, places, grad.dtype), offs)
    return made
