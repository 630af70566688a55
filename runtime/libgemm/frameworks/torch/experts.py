"""Layers of experts in torch: libgemm's chain of calls, with gradients by a chain of their own.

`moe` is the function, `Experts` the module; `register_transformers` makes it one of that library's ways to run experts.
"""

import importlib
import math
from typing import Any

import torch
from torch import Tensor

from libgemm._library import invalid
from libgemm.frameworks.torch import functions, layer_kernels, layer_operators, operators

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


def moe(
    x: Tensor, w_in: Tensor, w_out: Tensor, expert_ids: Tensor, weights: Tensor | None = None, *,
    activation: str = "silu", gate: str | None = "halves", gate_alpha: float = 1.702, gate_limit: float = 0.0,
    bias_in: Tensor | None = None, bias_out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """libgemm.moe, with gradients to x, both weights, both biases and `weights`.

    Without them, in float16 or bfloat16, it is the library's chain of four calls; with them the first product and its
    gate are apart, and what the gate took, [tokens * top_k, I] or [.., 2 I], is kept for the backward pass. In float32
    it is made of libgemm's products and torch's own operators. Under torch.autocast("cuda") x, both weights and both
    biases are cast to its dtype.
    """
    ids = expert_ids if expert_ids.is_contiguous() else expert_ids.contiguous()
    share = weights if weights is None or weights.is_contiguous() else weights.contiguous()
    words = (activation, gate, float(gate_alpha), float(gate_limit))
    x, w_in, w_out, bias_in, bias_out = functions.autocast(x, w_in, w_out, bias_in, bias_out)
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


def activation_of(module: torch.nn.Module) -> str | None:
    """libgemm's name of a module's act_fn, None for one that it has not."""
    kinds = {"SiLU": "silu", "SiLUActivation": "silu", "ReLU": "relu", "GELU": "gelu", "GELUActivation": "gelu"}
    found = getattr(module, "act_fn", None)
    name = kinds.get(type(found).__name__)
    exact = getattr(found, "approximate", "none") == "none"
    return name if exact else None


def gate_of(module: torch.nn.Module) -> dict[str, Any] | None:
    """How a transformers module of experts gates, in moe()'s words; None for a way that libgemm has not: with a method
    of its own for it, that is not gpt-oss's."""
    if not getattr(module, "has_gate", True):
        name = activation_of(module)
        return name and {"activation": name, "gate": None}  # type: ignore[return-value]
    alpha, limit = getattr(module, "alpha", None), getattr(module, "limit", None)
    if isinstance(alpha, float) and isinstance(limit, (float, int)):  # gpt-oss
        return {"activation": "silu", "gate": "pairs", "gate_alpha": alpha, "gate_limit": float(limit)}
    if type(module).__dict__.get("_apply_gate") is not None and not getattr(
        type(module)._apply_gate, "_is_default", False
    ):
        own = getattr(type(module)._apply_gate, "__qualname__", "")
        if own.startswith(type(module).__name__):
            return None
    name = activation_of(module)
    return name and {"activation": name, "gate": "halves"}  # type: ignore[return-value]


def experts_forward(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """What transformers calls for experts_implementation="libgemm"."""
    words = gate_of(module)
    if words is None or hidden_states.dtype not in functions.DTYPES:
        other = importlib.import_module("transformers.integrations.moe").ALL_EXPERTS_FUNCTIONS["grouped_mm"]
        made: Tensor = other(module, hidden_states, top_k_index, top_k_weights)
        return made
    gated = words["gate"] is not None
    w_in = module.gate_up_proj if gated else module.up_proj
    w_out = module.down_proj
    transposed = getattr(module, "is_transposed", getattr(module, "experts_are_transposed", False))
    if not transposed:
        w_in, w_out = w_in.mT, w_out.mT
    if top_k_weights.shape != top_k_index.shape:  # one for each expert: DeepSeek-V2
        top_k_weights = top_k_weights.gather(1, top_k_index)
    bias_in = getattr(module, "gate_up_proj_bias" if gated else "up_proj_bias", None)
    return moe(
        hidden_states, w_in, w_out, top_k_index, top_k_weights, bias_in=bias_in,
        bias_out=getattr(module, "down_proj_bias", None), **words,
    )  # fmt: skip


def register_transformers() -> None:
    """Let transformers' models run their experts by libgemm: model.set_experts_implementation("libgemm"), or
    from_pretrained(..., experts_implementation="libgemm"). Experts whose gate libgemm has not run as "grouped_mm"."""
    found = importlib.import_module("transformers.integrations.moe")
    found.ALL_EXPERTS_FUNCTIONS.register("libgemm", experts_forward)
