"""A layer of experts as torch operators, in 16-bit types: schema, CUDA kernel, meta kernel, gradients.

    libgemm::moe            the layer where nothing records: libgemm.moe
    libgemm::scaled_moe     the same of 8-bit weights with scales, which has no gradients
    libgemm::moe_forward    the same in parts, with gradients; what they need is among what it returns
    libgemm::moe_backward   those gradients, of which it has none itself

Their arguments are libgemm.moe()'s; the gate's words are activation, gate, gate_alpha and gate_limit.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from libgemm.frameworks.torch import layer_kernels

CUDA: dict[str, Any] = {"mutates_args": (), "device_types": "cuda"}


def same_tokens(x: Tensor, expert_ids: Tensor) -> None:
    torch._check(x.shape[0] == expert_ids.shape[0], lambda: f"x has shape {x.shape}, expert_ids {expert_ids.shape}")


@torch.library.custom_op("libgemm::moe", **CUDA)
def moe(
    x: Tensor, w_in: Tensor, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None, bias_in: Tensor | None,
    bias_out: Tensor | None, activation: str | None, gate: str | None, gate_alpha: float, gate_limit: float,
) -> Tensor:  # fmt: skip
    with torch.no_grad():
        return layer_kernels.moe(
            x, w_in, w_out, expert_ids, weights, bias_in, bias_out, activation, gate, gate_alpha, gate_limit
        )


def new_out(x: Tensor, w_in: Tensor, w_out: Tensor, expert_ids: Tensor) -> Tensor:
    torch._check(x.dim() == expert_ids.dim() == 2, lambda: f"x has {x.dim()} dimensions, ids {expert_ids.dim()}")
    torch._check(w_in.dim() == w_out.dim() == 3, lambda: f"w_in has {w_in.dim()} dimensions, w_out {w_out.dim()}")
    same_tokens(x, expert_ids)
    return x.new_empty(x.shape[0], w_out.shape[2])


@moe.register_fake
def _(x, w_in, w_out, expert_ids, *rest):  # type: ignore[no-untyped-def]
    return new_out(x, w_in, w_out, expert_ids)


@torch.library.custom_op("libgemm::scaled_moe", **CUDA)
def scaled_moe(
    x: Tensor, w_in: Tensor, w_out: Tensor, w_in_scale: Tensor, w_out_scale: Tensor, scaling: str, expert_ids: Tensor,
    weights: Tensor | None, bias_in: Tensor | None, bias_out: Tensor | None, activation: str | None, gate: str | None,
    gate_alpha: float, gate_limit: float,
) -> Tensor:  # fmt: skip
    with torch.no_grad():
        return layer_kernels.scaled_moe(
            x, w_in, w_out, w_in_scale, w_out_scale, scaling, expert_ids, weights, bias_in, bias_out, activation, gate,
            gate_alpha, gate_limit,
        )  # fmt: skip


@scaled_moe.register_fake
def _(x, w_in, w_out, w_in_scale, w_out_scale, scaling, expert_ids, *rest):  # type: ignore[no-untyped-def]
    return new_out(x, w_in, w_out, expert_ids)


@torch.library.custom_op("libgemm::moe_forward", **CUDA)
def moe_forward(
    x: Tensor, w_in: Tensor, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None, bias_in: Tensor | None,
    bias_out: Tensor | None, activation: str | None, gate: str | None, gate_alpha: float, gate_limit: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The layer, and for its gradients Z, rows, places and offs."""
    with torch.no_grad():
        return layer_kernels.forward(
            x, w_in, w_out, expert_ids, weights, bias_in, bias_out, activation, gate, gate_alpha, gate_limit
        )


@moe_forward.register_fake
def _(x, w_in, w_out, expert_ids, *rest):  # type: ignore[no-untyped-def]
    same_tokens(x, expert_ids)
    tokens, top_k = expert_ids.shape
    index = {"dtype": torch.int32}
    return (
        x.new_empty(tokens, w_out.shape[2]), x.new_empty(tokens * top_k, w_in.shape[2]),
        expert_ids.new_empty(tokens * top_k, **index), expert_ids.new_empty(tokens, top_k, **index),
        expert_ids.new_empty(w_in.shape[0], **index),
    )  # fmt: skip


@torch.library.custom_op("libgemm::moe_backward", **CUDA)
def moe_backward(
    grad: Tensor, x: Tensor | None, w_in: Tensor | None, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None,
    bias_out: Tensor | None, z: Tensor, rows: Tensor, places: Tensor, offs: Tensor, activation: str | None,
    gate: str | None, gate_alpha: float, gate_limit: float, wants: list[bool],
) -> list[Tensor]:  # fmt: skip
    """Gradients of x, w_in, w_out, weights, bias_in and bias_out; an empty tensor for one that `wants` has not. x and
    w_in are there where a gradient needs them."""
    with torch.no_grad():
        return layer_kernels.backward(
            grad, x, w_in, w_out, expert_ids, weights, bias_out, z, rows, places, offs, activation, gate, gate_alpha,
            gate_limit, wants,
        )  # fmt: skip


@moe_backward.register_fake
def _(grad, x, w_in, w_out, expert_ids, weights, bias_out, z, rows, places, offs, *rest):  # type: ignore[no-untyped-def]
    groups, share = w_out.shape[0], grad if weights is None else weights
    made = (
        None if w_in is None else grad.new_empty(places.shape[0], w_in.shape[1]), None if w_in is None else like(w_in),
        like(w_out), share.new_empty(places.shape), grad.new_empty(groups, z.shape[1]),
        grad.new_empty(groups, w_out.shape[2]),
    )  # fmt: skip
    return [one if wanted else grad.new_empty(0) for one, wanted in zip(made, rest[-1], strict=True)]


def like(weight: Tensor) -> Tensor:
    """A gradient in the layout of its operand: row-major, or transposed where that is."""
    if weight.stride(-2) == 1 and weight.stride(-1) != 1:
        return weight.new_empty(weight.mT.shape).mT
    return weight.new_empty(weight.shape)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, w_in, w_out, expert_ids, weights, _, bias_out, *ctx.gate = inputs
    ctx.set_materialize_grads(False)
    needed = ctx.needs_input_grad  # what no gradient needs is not kept
    ctx.save_for_backward(
        x if needed[1] else None, w_in if needed[0] or needed[1] else None, w_out, expert_ids, weights, bias_out,
        *output[1:],
    )  # fmt: skip


def from_backward(run: Callable[..., list[Tensor]]) -> Callable[..., tuple[Any, ...]]:
    """What autograd calls: gradients to moe_forward's arguments, of those that want one."""

    def gradients(ctx: Any, grad: Tensor | None, *unused: Tensor | None) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad
        if grad is None:
            return (None,) * len(needed)
        wants = [needed[0], needed[1], needed[2], needed[4], needed[5], needed[6]]
        made = run(grad, *ctx.saved_tensors, *ctx.gate, wants)
        x, w_in, w_out, weights, bias_in, bias_out = (g if w else None for g, w in zip(made, wants, strict=True))
        return (x, w_in, w_out, None, weights, bias_in, bias_out, None, None, None, None)

    return gradients


moe_forward.register_autograd(from_backward(torch.ops.libgemm.moe_backward), setup_context=save)


class Recorded(torch.autograd.Function):
    """moe_forward and its gradients past the dispatcher, which takes longer than the calls: for plain eager calls."""

    forward = staticmethod(layer_kernels.forward)
    setup_context = staticmethod(save)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Where gradients of gradients are to be had the operator says that it has none."""
        recorded = torch.is_grad_enabled()
        run = torch.ops.libgemm.moe_backward if recorded else layer_kernels.backward
        return from_backward(run)(ctx, *grads)
