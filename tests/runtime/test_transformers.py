"""transformers' own models with experts by libgemm, on the CPU: references in the kernels' place, tiny random models.

Skipped where transformers is not installed; test_torch_moe.py holds the same function on modules made like its.
"""

import importlib
import sys

import libgemm.torch
import pytest
import torch
from conftest import ROOT
from libgemm.frameworks.torch import layer_kernels, layer_operators, operators
from torch_reference import reference

from tests.gpu.standin import StandIn

transformers = pytest.importorskip("transformers", minversion="5.17")
SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CONFIGS = {
    "Qwen3Moe": {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2},
    "GptOss": {"intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16},
    "Mixtral": {"intermediate_size": 32, "num_local_experts": 8},
    "DeepseekV3": {
        "intermediate_size": 32, "moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "n_group": 2, "topk_group": 1, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16,
        "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "first_k_dense_replace": 1,
    },
}  # fmt: skip


@pytest.fixture
def calls(monkeypatch):
    """What the layers call, on the CPU."""
    for name, function in reference.items():
        getattr(operators, name).register_kernel("cpu")(function)
    for name in ("moe", "scaled_moe", "forward", "backward"):
        operator = getattr(layer_operators, name if "moe" in name else f"moe_{name}")
        operator.register_kernel("cpu")(getattr(layer_kernels, name))
    lib, found = StandIn(), []
    for name in ("moe", "moe_route", "moe_gate_grad"):
        own = getattr(lib, name)
        monkeypatch.setattr(
            lib, name, lambda *a, own=own, name=name, **words: (found.append(name), own(*a, **words))[1]
        )
    monkeypatch.setattr(layer_kernels, "libgemm", lib)
    libgemm.torch.register_transformers()
    return found


def model_of(name: str):
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**{**SMALL, **CONFIGS[name]})
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def outcome(model, way: str, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    model.set_experts_implementation(way)
    with torch.no_grad():
        found = {"logits": model(ids).logits}
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    return found | {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_runs_and_trains_as_by_its_own_experts(calls, name):
    model, ids = model_of(name), torch.randint(64, (1, 24))
    wanted = outcome(model, "grouped_mm", ids)
    assert calls == []
    found = outcome(model, "libgemm", ids)
    assert {"moe", "moe_gate_grad"} <= set(calls) and set(found) == set(wanted)
    for key, want in wanted.items():
        assert (found[key].float() - want.float()).norm() <= 5e-2 * want.float().norm() + 1e-6, key


def test_experts_of_8_bits_run_with_their_scales(calls):
    """The class that a checkpoint in 8 bits gets, as its loading dresses it."""
    scaled = importlib.import_module("transformers.integrations.finegrained_fp8")
    dress = importlib.import_module("transformers.integrations.moe").use_experts_implementation
    config = transformers.Qwen3MoeConfig(hidden_size=160, moe_intermediate_size=192, num_experts=4)
    config._experts_implementation = "libgemm"
    kind = dress(scaled.FP8Experts, experts_interface=scaled.ALL_FP8_EXPERTS_FUNCTIONS)
    module, plain = kind(config=config, block_size=(128, 128)), {}
    for name in ("gate_up_proj", "down_proj"):
        plain[name] = torch.randn(getattr(module, name).shape).to(torch.bfloat16)
        values, scale = StandIn().cast(plain[name], "128x128")
        assert getattr(module, name).dtype == values.dtype and getattr(module, f"{name}_scale_inv").shape == scale.shape
        getattr(module, name).data, getattr(module, f"{name}_scale_inv").data = values, scale
    x, ids, weights = torch.randn(9, 160).to(torch.bfloat16), torch.randint(5, (9, 2)), torch.rand(9, 2)
    wanted = StandIn().moe(x, plain["gate_up_proj"].mT, plain["down_proj"].mT, ids, weights).float()
    with torch.no_grad():
        made = module(x, ids, weights).float()
    assert "moe" in calls and (made - wanted).norm() < 0.1 * wanted.norm()


def test_the_example_runs_by_three_ways(calls, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import transformers_experts

    model = transformers_experts.make_model(1, "cpu", hidden=64, inner=32, experts=8)
    monkeypatch.setattr(transformers_experts, "milliseconds", lambda call, device: call() and 1.0)
    found = transformers_experts.compare(model, torch.randint(32000, (1, 20)))
    assert list(found) == ["eager", "grouped_mm", "libgemm"] and "moe_gate_grad" in calls
    assert found["eager"]["apart"] == 0 and max(row["apart"] for row in found.values()) < 3e-2
    sys.modules.pop("transformers_experts")
