"""transformers' experts by libgemm: reads its modules, and registers libgemm among its ways to run experts.

No product is here; transformers is imported when something is registered, never before.
"""

import importlib
from typing import Any

import torch
from torch import Tensor

from libgemm.frameworks.torch import functions
from libgemm.frameworks.torch.experts import HALVES, moe


def activation_of(module: torch.nn.Module) -> str | None:
    """libgemm's name of a module's act_fn, None for one that it has not."""
    kinds = {"SiLU": "silu", "SiLUActivation": "silu", "ReLU": "relu", "GELU": "gelu", "GELUActivation": "gelu"}
    found = getattr(module, "act_fn", None)
    name = kinds.get(type(found).__name__)
    exact = getattr(found, "approximate", "none") == "none"
    return name if exact else None


def own_method(module: torch.nn.Module) -> str:
    """The name of its class's method for the gate; "" where that is transformers' default, or there is none."""
    found = getattr(getattr(type(module), "_apply_gate", None), "__qualname__", "")
    return "" if found == "_default_apply_gate" else found


def gate_of(module: torch.nn.Module) -> dict[str, Any] | None:
    """How a transformers module of experts gates, in moe()'s words; None for a way that libgemm has not: with a method
    of its own for it, that is not gpt-oss's, or with a norm behind each expert."""
    if getattr(module, "has_post_expert_norm", False):  # from 5.23 on
        return None
    if not getattr(module, "has_gate", True):
        name = activation_of(module)
        return name and {"activation": name, "gate": None}  # type: ignore[return-value]
    gate = "halves" if getattr(module, "is_concatenated", False) else "pairs"
    alpha, limit = getattr(module, "alpha", None), getattr(module, "limit", None)
    if isinstance(alpha, float) and isinstance(limit, (float, int)):  # gpt-oss, and its like with halves
        return {"activation": "silu", "gate": gate, "gate_alpha": alpha, "gate_limit": float(limit)}
    if own_method(module) or not getattr(module, "is_concatenated", True):
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
    first = first_name(words)
    w_in, w_out = getattr(module, first), module.down_proj
    transposed = getattr(module, "is_transposed", getattr(module, "experts_are_transposed", False))
    if not transposed:
        w_in, w_out = w_in.mT, w_out.mT
    if top_k_weights.shape != top_k_index.shape:  # one for each expert: DeepSeek-V2
        top_k_weights = top_k_weights.gather(1, top_k_index)
    return moe(
        hidden_states, w_in, w_out, top_k_index, top_k_weights, bias_in=getattr(module, f"{first}_bias", None),
        bias_out=getattr(module, "down_proj_bias", None), **words,
    )  # fmt: skip


def first_name(words: dict[str, Any]) -> str:
    return "up_proj" if words["gate"] is None else "gate_up_proj"


def scaled_gate_of(module: torch.nn.Module) -> dict[str, Any] | None:
    """gate_of() for FP8Experts, whose method for the gate has more than one of them in it."""
    if not getattr(module, "has_gate", True) or getattr(module, "has_post_expert_norm", False):
        return gate_of(module)
    softcaps = (getattr(module, name, None) for name in ("gate_softcap", "up_softcap"))  # from 5.23 on
    if own_method(module) != "FP8Experts._apply_gate" or any(x is not None for x in softcaps):
        return None
    alpha, limit = getattr(module, "swiglu_alpha", None), getattr(module, "limit", None)
    if alpha is not None:
        return limit and {
            "activation": "silu",
            "gate": "halves",
            "gate_alpha": float(alpha),
            "gate_limit": float(limit),
        }
    name = activation_of(module)
    return {"activation": name, "gate": "halves"} if name and limit is None else None


def scales_of(module: Any, first: str) -> tuple[Tensor, Tensor] | None:
    """Of both weights, float32 and a scale for each 128 x 128; None where the module has others."""
    if getattr(module, "activation_scheme", None) != "dynamic" or tuple(module.block_size or ()) != (128, 128):
        return None
    found = []
    for name in (first, "down_proj"):
        w, scale = getattr(module, name), getattr(module, f"{name}_scale_inv")
        groups, rows, cols = w.shape
        if w.dtype != torch.float8_e4m3fn or scale.shape != (groups, -(-rows // 128), -(-cols // 128)):
            return None
        found.append(scale.detach().float())
    return found[0], found[1]


def scaled_experts_forward(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """What transformers calls for it of a model whose weights it holds in 8 bits: a FineGrainedFP8Config's. Those have
    no gradients; where transformers gives them to what goes in (from 5.23 on), its own way runs."""
    own = importlib.import_module("transformers.integrations.finegrained_fp8")
    words = scaled_gate_of(module)
    scales = words and scales_of(module, first_name(words))
    trains = hasattr(own, "FP8GroupedMatmulFunction") and functions.is_recorded(hidden_states, top_k_weights)
    if not words or not scales or trains or hidden_states.dtype not in HALVES:
        made: Tensor = own.ALL_FP8_EXPERTS_FUNCTIONS["grouped_mm"](module, hidden_states, top_k_index, top_k_weights)
        return made
    first = first_name(words)
    return moe(
        hidden_states, getattr(module, first).detach().mT, module.down_proj.detach().mT, top_k_index, top_k_weights,
        bias_in=getattr(module, f"{first}_bias", None), bias_out=getattr(module, "down_proj_bias", None),
        scaling="1x128_128x128", w_in_scale=scales[0].mT, w_out_scale=scales[1].mT, **words,
    )  # fmt: skip


def register_transformers() -> None:
    """Let transformers' models run their experts by libgemm: model.set_experts_implementation("libgemm"), or
    from_pretrained(..., experts_implementation="libgemm"); of weights in 8 bits too, where a FineGrainedFP8Config has
    blocks of 128 x 128 and dynamic scales, without gradients. Experts whose gate or scales libgemm has not run as
    transformers' "grouped_mm", which refuses static scales."""
    found = importlib.import_module("transformers.integrations.moe")
    found.ALL_EXPERTS_FUNCTIONS.register("libgemm", experts_forward)
    try:
        own = importlib.import_module("transformers.integrations.finegrained_fp8").ALL_FP8_EXPERTS_FUNCTIONS
    except (ImportError, AttributeError):  # a version, or an installation, that has no experts of 8 bits
        return
    own.register("libgemm", scaled_experts_forward)
