"""Layers of experts with 8-bit weights in torch, on the CPU with libgemm's stand-in: words, values, compilation, and
that nobody takes them for trainable. What the CUDA kernels compute is shown on a GPU (tests/gpu/edge_moe_scaled.py).
"""

from types import SimpleNamespace

import libgemm.torch
import pytest
import torch
from libgemm.frameworks.torch import casting, functions, layer_kernels, layer_operators
from torch_reference import cast as cast_reference

from tests.gpu.standin import StandIn

TOKENS, TOP_K, EXPERTS, K, INNER, N = 7, 2, 3, 160, 136, 48
ORDER = ("x", "w_in", "w_out", "w_in_scale", "w_out_scale", "scaling", "expert_ids", "weights", "bias_in", "bias_out")
GATE = ("silu", "halves", 1.702, 0.0)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    layer_operators.scaled_moe.register_kernel("cpu")(layer_kernels.scaled_moe)
    casting.operator.register_kernel("cpu")(cast_reference)
    monkeypatch.setattr(layer_kernels, "libgemm", StandIn())


def layer() -> dict:
    torch.manual_seed(4)
    half = {"dtype": torch.bfloat16}
    w_in, w_out = torch.randn(EXPERTS, 2 * INNER, K, **half), torch.randn(EXPERTS, N, INNER, **half)
    (first, first_scale), (second, second_scale) = (StandIn().cast(w, "128x128") for w in (w_in, w_out))
    return {
        "x": torch.randn(TOKENS, K, **half), "w_in": first.mT, "w_out": second.mT, "w_in_scale": first_scale.mT,
        "w_out_scale": second_scale.mT, "scaling": "1x128_128x128",
        "expert_ids": torch.randint(-1, EXPERTS, (TOKENS, TOP_K)), "weights": torch.rand(TOKENS, TOP_K),
        "bias_in": torch.randn(EXPERTS, 2 * INNER, **half), "bias_out": torch.randn(EXPERTS, N, **half),
    }  # fmt: skip


def wide(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """What [groups, rows, columns] in 8 bits stand for, in bfloat16."""
    _, rows, cols = values.shape
    of_all = scale.repeat_interleave(128, 1)[:, :rows].repeat_interleave(128, 2)[..., :cols]
    return (values.float() * of_all).to(torch.bfloat16)


@pytest.mark.parametrize("eager", [False, True], ids=["dispatched", "plain"])
def test_the_layer_is_that_of_the_weights_it_stands_for(monkeypatch, eager):
    monkeypatch.setattr(functions, "is_plain", lambda *_: eager)
    given = layer()
    made = libgemm.torch.moe(**given)
    plain = {name: value for name, value in given.items() if name not in ("scaling", "w_in_scale", "w_out_scale")}
    plain |= {name: wide(given[name], given[f"{name}_scale"]) for name in ("w_in", "w_out")}
    exact = StandIn().moe(**plain).float()
    assert made.dtype == torch.bfloat16 and made.shape == (TOKENS, N)
    assert 0 < (made.float() - exact).norm() < 0.1 * exact.norm()  # rows of x and h are cast


def test_the_operator_keeps_its_promises():
    given = layer()
    told = (*(given[name] for name in ORDER), *GATE)  # other checks multiply 8-bit tensors, which torch cannot
    checks = ("test_faketensor", "test_aot_dispatch_static", "test_autograd_registration")
    torch.library.opcheck(layer_operators.scaled_moe, told, test_utils=checks)


def test_it_compiles_whole_and_exports():
    given = layer()
    compiled = torch.compile(libgemm.torch.moe, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(**given), libgemm.torch.moe(**given))
    module = scaled_module()
    exported = torch.export.export(module, (given["x"], given["expert_ids"], given["weights"]))
    assert "libgemm.scaled_moe.default" in {str(node.target) for node in exported.graph.nodes}


def test_words_of_the_gate_and_biases_reach_the_layer():
    given = layer()
    plain = libgemm.torch.moe(**given)
    changes = (
        {"gate": "pairs"}, {"activation": "relu"}, {"gate_limit": 0.5}, {"gate_limit": 0.5, "gate_alpha": 1.0},
        {"bias_in": None}, {"bias_out": None}, {"weights": None},
    )  # fmt: skip
    made = [libgemm.torch.moe(**{**given, **change}) for change in changes]
    assert all(not torch.equal(one, other) for one, other in zip(made, [plain, *made], strict=False))
    assert all(not torch.equal(one, plain) for one in made)


def test_a_backward_pass_through_it_raises():
    given = layer()
    made = libgemm.torch.moe(**{**given, "x": given["x"].requires_grad_()})
    with pytest.raises(RuntimeError, match="scaled_moe"):
        made.float().sum().backward()


def test_what_is_stored_in_ways_that_the_library_refuses_is_copied(monkeypatch):
    given, asked = layer(), []
    lib = StandIn()

    def moe(x, *rest, **words):
        asked.append(x.stride())
        if not x.is_contiguous():
            raise libgemm.Error(1, "LIBGEMM_INVALID_ARGUMENT", "x has strides")
        return lib.moe(x, *rest, **words)

    monkeypatch.setattr(layer_kernels, "libgemm", SimpleNamespace(moe=moe, Error=libgemm.Error))
    wanted = libgemm.torch.moe(**given)
    assert torch.equal(libgemm.torch.moe(**{**given, "x": given["x"].t().contiguous().t()}), wanted)
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"w_in_scale": None}, "scaling = '1x128_128x128' with w_out_scale"),
        ({"w_out_scale": None}, "scaling = '1x128_128x128' with w_in_scale"),
        ({"scaling": None}, "scaling = None with w_in_scale, w_out_scale"),
        ({"w_in_scale": None, "w_out_scale": None}, "with no scales"),
    ],
)  # fmt: skip
def test_words_that_do_not_go_together_are_refused(changes, words):
    with pytest.raises(libgemm.Error) as caught:
        libgemm.torch.moe(**{**layer(), **changes})
    assert words in str(caught.value) and "w_in_scale and w_out_scale" in str(caught.value)


def scaled_module() -> torch.nn.Module:
    return libgemm.torch.ScaledExperts.of(libgemm.torch.Experts(EXPERTS, K, INNER, dtype=torch.bfloat16))


def test_the_module_is_the_function_on_cast_weights():
    torch.manual_seed(9)
    experts = libgemm.torch.Experts(EXPERTS, K, INNER, activation="gelu", dtype=torch.bfloat16)
    module, given = libgemm.torch.ScaledExperts.of(experts), layer()
    x, ids, weights = given["x"], given["expert_ids"], given["weights"]
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    assert shapes == {
        "w_in": (EXPERTS, 2 * INNER, K), "w_in_scale": (EXPERTS, 3, 2), "w_out": (EXPERTS, K, INNER),
        "w_out_scale": (EXPERTS, 2, 2),
    }  # fmt: skip
    assert module.w_in.dtype == torch.float8_e4m3fn and not list(module.parameters())
    wanted = StandIn().moe(x, experts.w_in.mT.detach(), experts.w_out.mT.detach(), ids, weights, activation="gelu")
    made = module(x, ids, weights)
    assert (made.float() - wanted.float()).norm() < 0.1 * wanted.float().norm()
    assert "experts=3, hidden=160, inner=136" in repr(module) and "activation='gelu'" in repr(module)
    again = scaled_module()
    again.load_state_dict(module.state_dict())
    again.activation = "gelu"
    assert torch.equal(again(x, ids, weights), made)
