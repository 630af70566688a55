"""Layers of experts in torch, on the CPU with references in the operators' place: values, gradients, compilation, and
how transformers' modules are read. What the CUDA kernels compute is shown on a GPU.
"""

import sys
from types import ModuleType, SimpleNamespace

import libgemm.torch
import pytest
import torch
from libgemm.frameworks.torch import experts, operators
from torch_reference import reference

TOKENS, TOP_K, EXPERTS, K, INNER, N = 7, 2, 3, 4, 5, 6


@pytest.fixture(scope="module", autouse=True)
def on_cpu():
    for name, function in reference.items():
        getattr(operators, name).register_kernel("cpu")(function)


def layer(gate="halves", dtype=torch.float64, skipped=True) -> dict:
    torch.manual_seed(3)
    columns = 2 * INNER if gate else INNER
    grad = {"dtype": dtype, "requires_grad": True}
    return {
        "x": torch.randn(TOKENS, K, **grad), "w_in": torch.randn(EXPERTS, columns, K, **grad).mT,
        "w_out": torch.randn(EXPERTS, INNER, N, **grad),
        "expert_ids": torch.randint(-skipped, EXPERTS, (TOKENS, TOP_K)),
        "weights": torch.rand(TOKENS, TOP_K, **grad), "bias_in": torch.randn(EXPERTS, columns, **grad),
        "bias_out": torch.randn(EXPERTS, N, **grad),
    }  # fmt: skip


def plainly(x, w_in, w_out, expert_ids, weights, bias_in, bias_out, gate, limit=0.0):
    """Token by token, choice by choice."""
    out = []
    for t in range(TOKENS):
        total = torch.zeros(N, dtype=x.dtype)
        for j in range(TOP_K):
            e = int(expert_ids[t, j])
            if 0 <= e < EXPERTS:
                z = x[t] @ w_in[e] + bias_in[e]
                first, up = (z[:INNER], z[INNER:]) if gate == "halves" else (z[::2], z[1::2])
                if limit:
                    first, up = first.clamp(max=limit), up.clamp(-limit, limit)
                    h = first * torch.sigmoid(1.702 * first) * (up + 1)
                else:
                    h = torch.nn.functional.silu(first) * up if gate else torch.nn.functional.silu(z)
                total = total + weights[t, j] * (h @ w_out[e] + bias_out[e])
        out.append(total)
    return torch.stack(out)


@pytest.mark.parametrize(("gate", "limit"), [("halves", 0.0), ("pairs", 0.0), (None, 0.0), ("pairs", 0.8)])
def test_values_and_gradients_are_those_of_the_definition(gate, limit):
    given = layer(gate)
    wanted = plainly(**given, gate=gate, limit=limit)
    made = libgemm.torch.moe(**given, gate=gate, gate_limit=limit)
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)  # the sum is float32
    leaves = [x for x in given.values() if x.requires_grad]
    grad = torch.randn_like(made)
    for got, want in zip(
        torch.autograd.grad(made, leaves, grad), torch.autograd.grad(wanted, leaves, grad), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert not got.isnan().any()


def test_the_routing_operator_keeps_its_promises():
    torch.library.opcheck(operators.moe_route, (layer()["expert_ids"], EXPERTS))


def test_a_layer_compiles_whole():
    given = layer(skipped=False)
    compiled = torch.compile(libgemm.torch.moe, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(**given), libgemm.torch.moe(**given))


def test_the_module_is_the_function_on_its_parameters():
    module = libgemm.torch.Experts(EXPERTS, K, INNER, dtype=torch.float64)
    ids, x = layer()["expert_ids"], layer()["x"]
    wanted = libgemm.torch.moe(x, module.w_in.mT, module.w_out.mT, ids)
    assert torch.equal(module(x, ids), wanted) and wanted.shape == (TOKENS, K)
    assert set(module.state_dict()) == {"w_in", "w_out"}
    assert "experts=3, hidden=4, inner=5" in repr(module)


class Plain(torch.nn.Module):
    """As transformers' experts are."""

    def __init__(self, **changes):
        super().__init__()
        given = layer()
        self.gate_up_proj, self.down_proj = given["w_in"].mT, given["w_out"].mT
        self.act_fn = torch.nn.SiLU()
        for name, value in changes.items():
            setattr(self, name, value)


class WithOwnGate(Plain):
    def _apply_gate(self, gate_up):
        raise NotImplementedError


@pytest.fixture
def transformers(monkeypatch):
    """A stand-in for the module where transformers keeps its ways to run experts."""
    kept = {"grouped_mm": lambda *_: "its own"}
    found = ModuleType("transformers.integrations.moe")
    found.ALL_EXPERTS_FUNCTIONS = SimpleNamespace(
        register=lambda name, function: kept.update({name: function}), __getitem__=kept.__getitem__
    )
    found.ALL_EXPERTS_FUNCTIONS = type("Ways", (dict,), {"register": lambda self, k, v: self.update({k: v})})(kept)
    for name in ("transformers", "transformers.integrations"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, found.__name__, found)
    libgemm.torch.install_in_transformers()
    return found.ALL_EXPERTS_FUNCTIONS


def test_transformers_modules_run_as_what_they_are(transformers):
    run, given = transformers["libgemm"], layer()
    choices = (given["x"].float(), given["expert_ids"], given["weights"].float())
    words = {"x": choices[0], "expert_ids": choices[1], "weights": choices[2]}
    plain = Plain().float()
    plain.gate_up_proj, plain.down_proj = plain.gate_up_proj.float(), plain.down_proj.float()
    wanted = libgemm.torch.moe(w_in=plain.gate_up_proj.mT, w_out=plain.down_proj.mT, **words)
    assert torch.equal(run(plain, *choices), wanted)
    turned = Plain(gate_up_proj=plain.gate_up_proj.mT, down_proj=plain.down_proj.mT, is_transposed=True)
    assert torch.equal(run(turned, *choices), wanted)
    clamped = Plain(gate_up_proj=plain.gate_up_proj, down_proj=plain.down_proj, alpha=1.702, limit=0.8)
    assert torch.equal(
        run(clamped, *choices),
        libgemm.torch.moe(w_in=plain.gate_up_proj.mT, w_out=plain.down_proj.mT, gate="pairs", gate_limit=0.8, **words),
    )


def test_gates_that_libgemm_has_not_stay_transformers_own(transformers):
    given = layer()
    choices = (given["x"].float(), given["expert_ids"], given["weights"])
    for module in (WithOwnGate(), Plain(act_fn=torch.nn.Tanh()), Plain(act_fn=torch.nn.GELU(approximate="tanh"))):
        assert transformers["libgemm"](module, *choices) == "its own"
    assert experts.gate_of(Plain(act_fn=torch.nn.GELU())) == {"activation": "gelu", "gate": "halves"}
