"""Layers of experts in torch, on the CPU with references in the operators' place: values, gradients, compilation. What
the CUDA kernels compute is shown on a GPU.
"""

import shutil
from types import SimpleNamespace

import libgemm.torch
import pytest
import torch
from libgemm.frameworks.torch import functions, layer_kernels, layer_operators, operators
from torch_reference import reference

from tests.gpu.edge_torch_contract import Block
from tests.gpu.standin import StandIn

TOKENS, TOP_K, EXPERTS, K, INNER, N = 7, 2, 3, 4, 5, 6


@pytest.fixture(scope="module", autouse=True)
def on_cpu():
    for name, function in reference.items():
        getattr(operators, name).register_kernel("cpu")(function)
    for name in ("moe", "forward", "backward"):
        operator = getattr(layer_operators, name if name == "moe" else f"moe_{name}")
        operator.register_kernel("cpu")(getattr(layer_kernels, name))


@pytest.fixture
def halves(monkeypatch):
    """Chains of calls that the stand-in computes, and layers of bfloat16 that take them."""
    monkeypatch.setattr(layer_kernels, "libgemm", StandIn())

    def given(**changes) -> dict:
        made = layer(dtype=torch.float32, **changes)
        return {
            name: x if name == "expert_ids" else x.detach().to(torch.bfloat16).requires_grad_()
            for name, x in made.items()
        }

    return given


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


NAMES = ("x", "w_in", "w_out", "expert_ids", "weights", "bias_in", "bias_out")
WORDS = ("silu", "halves", 1.702, 0.0)


def test_the_layers_operators_keep_their_promises(halves):
    given = [halves(skipped=False)[name] for name in NAMES]  # rows that are nobody's hold any number
    kept = layer_kernels.forward(*given, *WORDS)[1:]
    with torch.no_grad():
        torch.library.opcheck(layer_operators.moe, (*given, *WORDS))
    torch.library.opcheck(layer_operators.moe_forward, (*given, *WORDS))
    x, w_in, w_out, ids, weights, _, bias_out = (y.detach() for y in given)
    grad = torch.randn(TOKENS, N).to(torch.bfloat16)
    for wants in ([True] * 6, [False] * 6, [True, False, True, False, True, False]):
        some = (grad, x, w_in, w_out, ids, weights, bias_out, *(y.detach() for y in kept), *WORDS, wants)
        torch.library.opcheck(layer_operators.moe_backward, some)


@pytest.mark.parametrize("recorded", [False, True], ids=["dispatched", "plain"])
def test_gradients_of_the_chain_are_those_of_products(halves, monkeypatch, recorded):
    """By the operator, and by the function that takes its place in plain eager calls."""
    monkeypatch.setattr(functions, "is_plain", lambda *_: recorded)
    given = halves()
    made = libgemm.torch.moe(**given)
    leaves = [given[name] for name in NAMES if name != "expert_ids"]
    wide = {name: x if name == "expert_ids" else x.detach().float().requires_grad_() for name, x in given.items()}
    wanted = libgemm.torch.moe(**wide)
    grad = torch.randn_like(wanted).to(torch.bfloat16)
    found = torch.autograd.grad(made, leaves, grad)
    exact = torch.autograd.grad(wanted, [wide[name] for name in NAMES if name != "expert_ids"], grad.float())
    for name, got, want in zip([n for n in NAMES if n != "expert_ids"], (*found, made), (*exact, wanted), strict=False):
        assert got.dtype == torch.bfloat16 and (got.float() - want).norm() < 2e-2 * want.norm(), name
    assert found[1].stride() == given["w_in"].stride()  # in its operand's layout


def test_gradients_that_nobody_wants_cost_nothing(halves, monkeypatch):
    monkeypatch.setattr(functions, "is_plain", lambda *_: True)
    given = {name: x if name == "weights" or x.dtype == torch.int64 else x.detach() for name, x in halves().items()}
    called = []
    monkeypatch.setattr(layer_kernels, "weight_gradient", lambda *_: called.append("weights"))
    own = torch.Tensor.index_select
    monkeypatch.setattr(torch.Tensor, "index_select", lambda *a: called.append("gathered") or own(*a))
    torch.autograd.grad(libgemm.torch.moe(**given).sum(), given["weights"])
    assert called == []


def test_a_layer_of_shapes_that_do_not_fit_is_refused(halves):
    given = halves()
    with pytest.raises(libgemm.Error, match=r"w_in \[3, 4, 10\], w_out \[3, 6, 6\]"):
        libgemm.torch.moe(**{**given, "w_out": torch.zeros(EXPERTS, INNER + 1, N, dtype=torch.bfloat16)})


def test_gradients_of_gradients_are_refused_not_wrong(halves, monkeypatch):
    monkeypatch.setattr(functions, "is_plain", lambda *_: True)
    given = halves()
    (first,) = torch.autograd.grad(libgemm.torch.moe(**given).float().sum(), given["x"], create_graph=True)
    with pytest.raises(RuntimeError):
        first.float().pow(2).sum().backward()


def test_what_no_gradient_needs_may_change(halves, monkeypatch):
    monkeypatch.setattr(functions, "is_plain", lambda *_: True)
    given = {name: y if name in ("weights", "expert_ids") else y.detach() for name, y in halves().items()}
    made = libgemm.torch.moe(**given)
    given["x"].add_(1), given["w_in"].mul_(2)
    torch.autograd.grad(made.sum(), given["weights"])
    given = halves()
    made = libgemm.torch.moe(**{**given, "x": given["x"].detach().clone().requires_grad_(False)})
    torch.autograd.grad(made.sum(), (given["w_in"], given["bias_out"]))


def test_operands_of_a_layer_have_any_strides(halves, monkeypatch):
    """Trained, and by the library's own chain, which refuses what it cannot address."""
    given = halves()
    odd = {
        "x": given["x"].detach().t().contiguous().t(), "w_in": given["w_in"].detach()[:, :1].expand(-1, K, -1),
        "bias_out": given["bias_out"].detach()[:1].expand(EXPERTS, -1),
    }  # fmt: skip
    plain = {name: y.contiguous().requires_grad_() for name, y in odd.items()}
    odd = {name: y.requires_grad_() for name, y in odd.items()}
    results = []
    for own in (odd, plain):
        made = libgemm.torch.moe(**{**given, **own})
        results.append((made, *torch.autograd.grad(made.sum(), list(own.values()))))
    assert all(map(torch.equal, *results))
    lib, asked = StandIn(), []

    def moe(x, *rest, **words):
        asked.append(x.stride())
        if not x.is_contiguous():
            raise libgemm.Error(1, "LIBGEMM_INVALID_ARGUMENT", "x has strides")
        return lib.moe(x, *rest, **words)

    monkeypatch.setattr(layer_kernels, "libgemm", SimpleNamespace(moe=moe, Error=libgemm.Error))
    with torch.no_grad():
        torch.testing.assert_close(libgemm.torch.moe(**{**given, **odd}), results[0][0].detach(), rtol=2e-2, atol=2e-2)
    assert len(asked) == 2


WRONG = {
    "activation": ("tanh", "activation = 'tanh'"), "gate": ("both", "gate = 'both'"),
    "gate_limit": (-1.0, "gate_limit = -1.0"),
    "expert_ids": (torch.zeros(TOKENS + 1, TOP_K, dtype=torch.int64), "expert_ids [8, 2]"),
    "weights": (torch.ones(TOKENS, TOP_K + 1), "weights has shape [7, 3]"),
    "bias_in": (torch.zeros(2 * INNER, dtype=torch.bfloat16), "bias_in has shape [10]"),
    "bias_out": (torch.zeros(N, dtype=torch.bfloat16), "bias_out has shape [6]"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_bad_layer_is_refused_before_its_first_part(halves, monkeypatch, name):
    monkeypatch.setattr(functions, "is_plain", lambda *_: True)
    monkeypatch.setattr(layer_kernels.libgemm, "moe_route", None)
    value, words = WRONG[name]
    with pytest.raises(libgemm.Error) as caught:
        libgemm.torch.moe(**{**halves(), name: value})
    assert words in str(caught.value)


def test_a_limit_is_silus_in_float32_too():
    with pytest.raises(libgemm.Error, match="with a gate of silu"):
        libgemm.torch.moe(**layer(), activation="gelu", gate_limit=7.0)


def test_a_layer_of_halves_compiles_whole(halves):
    given = halves(skipped=False)
    compiled = torch.compile(libgemm.torch.moe, backend="aot_eager", fullgraph=True)
    leaves = [given[name] for name in NAMES if name != "expert_ids"]
    made, wanted = compiled(**given), libgemm.torch.moe(**given)
    assert torch.equal(made, wanted)
    for got, want in zip(
        torch.autograd.grad(made.sum(), leaves), torch.autograd.grad(wanted.sum(), leaves), strict=True
    ):
        assert torch.equal(got, want)
    with torch.no_grad():
        assert torch.equal(compiled(**given), libgemm.torch.moe(**given))


@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles C++")
def test_a_package_by_aotinductor_is_made_loaded_and_run(halves, monkeypatch, tmp_path):
    """In a process that has imported libgemm.torch: the package calls its operators."""
    halves()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    block = Block(libgemm.torch, SimpleNamespace(device=torch.device("cpu")))
    x = torch.randn(40, 64).to(torch.bfloat16)
    with torch.no_grad():
        exported = torch.export.export(block, (x,))
        assert {"libgemm.gemm.default", "libgemm.moe.default"} <= {str(node.target) for node in exported.graph.nodes}
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "block.pt2"))
        made = torch._inductor.aoti_load_package(package)(x)
        torch.testing.assert_close(made, block(x), rtol=2e-2, atol=2e-2)


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
