"""Layers of experts in torch: libgemm's chain of calls, with gradients by a chain of their own.

`moe` is the function, `Experts` the module, `ScaledExperts` the same with 8-bit weights.
"""

import math
from typing import Any

import torch
from torch import Tensor

from libgemm._library import invalid
from libgemm.frameworks.torch import functions, layer_kernels, layer_operators, operators
from libgemm.frameworks.torch.casting import cast

HALVES = (torch.float16, torch.bfloat16)
FUNCTIONS = {
    "none": lambda x: x, "relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
}  # fmt: skip


def joined(z: Tensor, activation: str, gate: str | None, gate_alpha: float, gate_limit: float) -> Tensor:
    """What the first product's epilogue does, by torch."""
    if gate is None:
        return FUNCTIONS[activation or "none"](z)
    first, up = z.chunk(2, -1) if gate == "halves" else (z[..., ::2], z[..., 1::2])
    if gate_limit > 0:
        first, up = first.clamp(max=gate_limit), up.clamp(-gate_limit, gate_limit)
        return (up + 1) * (first * torch.sigmoid(first * gate_alpha))
    return FUNCTIONS[activation or "none"](first) * up


def from_products(
    x: Tensor, w_in: Tensor, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None, activation: str,
    gate: str | None, gate_alpha: float, gate_limit: float, bias_in: Tensor | None, bias_out: Tensor | None,
) -> Tensor:  # fmt: skip
    """The layer from operators that have gradients, with torch's own between them: for types that the chain has not."""
    rows, places, offs = operators.moe_route(expert_ids, w_in.shape[0])
    there = places >= 0

    def product(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:  # what is past the last end stays out of it
        made: Tensor = operators.grouped_mm(a, b, offs, bias, functions.precision_of(a), None, True)
        return made

    z = product(x[rows.clamp(min=0)], w_in, bias_in)
    made = product(joined(z, activation, gate, gate_alpha, gate_limit), w_out, bias_out)
    own = made[places.clamp(min=0)].float()
    share = there.to(own.dtype) if weights is None else torch.where(there, weights.float(), 0.0)
    return (own * share[..., None]).sum(1).to(x.dtype)


def check_words(activation: str | None, gate: str | None, gate_alpha: float, gate_limit: float) -> None:
    """What libgemm.moe() checks of them, for ways that do not call it: before anything is launched."""
    if (activation or "none") not in FUNCTIONS or gate not in (None, "halves", "pairs"):
        allowed = f"activations are {', '.join(FUNCTIONS)}; gates 'halves', 'pairs' and None"
        raise invalid(f"activation = {activation!r}, gate = {gate!r}: {allowed}")
    if not gate_limit >= 0 or (gate_limit > 0 and (gate is None or activation != "silu")):
        raise invalid(f"gate_limit = {gate_limit} with gate = {gate!r}, activation = {activation!r}: 0 for none, or "
                      "more with a gate of silu, is needed")  # fmt: skip


def checked_scales(scaling: str | None, first: Tensor | None, second: Tensor | None) -> tuple[Tensor, Tensor, str]:
    """The words of 8-bit weights, of which an operator takes all or none."""
    if scaling is None or first is None or second is None:
        given = ", ".join(name for name, x in (("w_in_scale", first), ("w_out_scale", second)) if x is not None)
        needed = "8-bit weights need scaling = '1x128_128x128', w_in_scale and w_out_scale, others none of them"
        raise invalid(f"scaling = {scaling!r} with {given or 'no scales'}: {needed}")
    return first, second, scaling


def moe(
    x: Tensor, w_in: Tensor, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None = None, *,
    activation: str = "silu", gate: str | None = "halves", gate_alpha: float = 1.702, gate_limit: float = 0.0,
    bias_in: Tensor | None = None, bias_out: Tensor | None = None, scaling: str | None = None,
    w_in_scale: Tensor | None = None, w_out_scale: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """libgemm.moe, with gradients to x, both weights, both biases and `weights`.

    Without them, in float16 or bfloat16, it is the library's chain of four calls; with them the first product and its
    gate are apart, and what the gate took, [tokens * top_k, I] or [.., 2 I], is kept for the backward pass. In float32
    it is made of libgemm's products and torch's own operators. Under torch.autocast("cuda") x, both weights and both
    biases are cast to its dtype. Of 8-bit weights (`scaling` and their scales) there are no gradients: a backward
    pass through the layer raises.
    """
    ids = expert_ids if expert_ids.is_contiguous() else expert_ids.contiguous()
    share = weights if weights is None or weights.is_contiguous() else weights.contiguous()
    words = (activation, gate, float(gate_alpha), float(gate_limit))
    x, w_in, w_out, bias_in, bias_out = functions.autocast(x, w_in, w_out, bias_in, bias_out)
    if scaling is not None or w_in_scale is not None or w_out_scale is not None:
        scales = checked_scales(scaling, w_in_scale, w_out_scale)
        eager = functions.is_eager(x, w_in, w_out, *scales[:2], ids, share, bias_in, bias_out)
        own: Any = layer_kernels.scaled_moe if eager else layer_operators.scaled_moe
        scaled: Tensor = own(x, w_in, w_out, *scales, ids, share, bias_in, bias_out, *words)
        return scaled
    if x.dtype not in HALVES:
        check_words(*words)
        return from_products(x, w_in, w_out, ids, share, *words, bias_in, bias_out)
    given = (x, w_in, w_out, ids, share, bias_in, bias_out)
    run: Any = layer_kernels if functions.is_plain(*given) else layer_operators
    if functions.is_recorded(*given):
        check_words(*words)
        record = layer_operators.Recorded.apply if run is layer_kernels else layer_operators.moe_forward
        made: Tensor = record(*given, *words)[0]
        return made
    return run.moe(*given, *words)


class Experts(torch.nn.Module):
    """Experts with a gate, for a router's choices: forward(x [tokens, hidden], expert_ids, weights [tokens, top_k]).

    Weights are stored as torch's linear stores them: w_in [experts, 2 * inner, hidden], the gate's rows first, and
    w_out [experts, hidden, inner].
    """

    def __init__(
        self, experts: int, hidden: int, inner: int, activation: str = "silu", device: Any = None, dtype: Any = None
    ):
        super().__init__()
        self.activation = activation
        words = {"device": device, "dtype": dtype}
        self.w_in = torch.nn.Parameter(torch.empty(experts, 2 * inner, hidden, **words))
        self.w_out = torch.nn.Parameter(torch.empty(experts, hidden, inner, **words))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch.nn.Linear, expert by expert."""
        for parameter in self.parameters():
            bound = 1 / math.sqrt(parameter.shape[2]) if parameter.shape[2] else 0.0
            torch.nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor, expert_ids: Tensor, weights: Tensor | None = None) -> Tensor:
        return moe(x, self.w_in.mT, self.w_out.mT, expert_ids, weights, activation=self.activation)

    def extra_repr(self) -> str:
        experts, hidden, inner = self.w_out.shape
        return f"experts={experts}, hidden={hidden}, inner={inner}, activation={self.activation!r}"


class ScaledExperts(torch.nn.Module):
    """Experts whose weights are float8_e4m3fn with a scale for each 128 x 128, for inference: half the bytes.

    ScaledExperts.of(experts) casts those of an Experts. The state is w_in and w_out, shaped as there, and w_in_scale
    and w_out_scale, float32, of [rows / 128, columns / 128] for each expert, rounded up.
    """

    w_in: Tensor
    w_out: Tensor
    w_in_scale: Tensor
    w_out_scale: Tensor

    def __init__(self, w_in: Tensor, w_in_scale: Tensor, w_out: Tensor, w_out_scale: Tensor, activation: str = "silu"):
        super().__init__()
        self.activation = activation
        given = {"w_in": w_in, "w_in_scale": w_in_scale, "w_out": w_out, "w_out_scale": w_out_scale}
        for name, value in given.items():
            self.register_buffer(name, value)

    @classmethod
    def of(cls, experts: Experts) -> "ScaledExperts":
        """Its weights cast, on their own device."""
        with torch.no_grad():
            first, second = (cast(w.detach(), "128x128") for w in (experts.w_in, experts.w_out))
        return cls(*first, *second, activation=experts.activation)

    def forward(self, x: Tensor, expert_ids: Tensor, weights: Tensor | None = None) -> Tensor:
        return moe(
            x, self.w_in.mT, self.w_out.mT, expert_ids, weights, activation=self.activation, scaling="1x128_128x128",
            w_in_scale=self.w_in_scale.mT, w_out_scale=self.w_out_scale.mT,
        )  # fmt: skip

    extra_repr = Experts.extra_repr
