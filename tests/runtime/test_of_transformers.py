"""How transformers' modules of experts are read, on modules made like its, on the CPU: which words and weights reach
libgemm's layer, and which modules stay transformers' own. test_transformers.py has that library's own models.
"""

import sys
from types import ModuleType, SimpleNamespace

import libgemm.torch
import pytest
import torch
from libgemm.frameworks.torch import layer_kernels, layer_operators, of_transformers, operators
from torch_reference import reference

from tests.gpu.standin import StandIn

TOKENS, TOP_K, EXPERTS = 7, 2, 3
K, INNER = 160, 192  # rounded up, blocks of 128 are two of each
MODULES = ("transformers", "transformers.integrations")


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    for name, function in reference.items():
        getattr(operators, name).register_kernel("cpu")(function)
    for name in ("moe", "scaled_moe"):
        getattr(layer_operators, name).register_kernel("cpu")(getattr(layer_kernels, name))
    monkeypatch.setattr(layer_kernels, "libgemm", StandIn())


class Ways(dict):
    """As transformers keeps its ways to run experts."""

    def register(self, name, function):
        self[name] = function


def module_of(monkeypatch, name: str, **contents) -> ModuleType:
    found = ModuleType(f"transformers.integrations.{name}")
    found.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, found.__name__, found)
    return found


@pytest.fixture
def transformers(monkeypatch):
    """A stand-in for the modules where transformers keeps them: of all experts, and of those with 8-bit weights."""
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    plain = module_of(monkeypatch, "moe", ALL_EXPERTS_FUNCTIONS=Ways(grouped_mm=lambda *_: "its own"))
    own = Ways(grouped_mm=lambda *_: "its own of 8 bits")
    scaled = module_of(monkeypatch, "finegrained_fp8", ALL_FP8_EXPERTS_FUNCTIONS=own)
    libgemm.torch.register_transformers()
    return SimpleNamespace(plain=plain.ALL_EXPERTS_FUNCTIONS, scaled=scaled.ALL_FP8_EXPERTS_FUNCTIONS)


def choices(dtype=torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    ids = torch.randint(-1, EXPERTS, (TOKENS, TOP_K))
    return torch.randn(TOKENS, K).to(dtype), ids, torch.rand(TOKENS, TOP_K)


class Plain(torch.nn.Module):
    """As transformers' experts are."""

    def __init__(self, **changes):
        super().__init__()
        torch.manual_seed(6)
        self.gate_up_proj = torch.randn(EXPERTS, 2 * INNER, K).to(torch.bfloat16)
        self.down_proj = torch.randn(EXPERTS, K, INNER).to(torch.bfloat16)
        self.act_fn, self.is_concatenated = torch.nn.SiLU(), True
        for name, value in changes.items():
            setattr(self, name, value)


class WithOwnGate(Plain):
    def _apply_gate(self, gate_up):
        raise NotImplementedError


class Inherits(WithOwnGate):
    pass


def _default_apply_gate(self, gate_up):
    raise NotImplementedError


class WithDefault(Plain):
    _apply_gate = _default_apply_gate


def test_modules_run_as_what_they_are(transformers):
    run, (x, ids, weights) = transformers.plain["libgemm"], choices()
    plain = Plain()
    words = {"w_in": plain.gate_up_proj.mT, "w_out": plain.down_proj.mT, "expert_ids": ids, "weights": weights}
    wanted = libgemm.torch.moe(x, **words)
    assert torch.equal(run(plain, x, ids, weights), wanted)
    turned = Plain(gate_up_proj=plain.gate_up_proj.mT, down_proj=plain.down_proj.mT, is_transposed=True)
    assert torch.equal(run(turned, x, ids, weights), wanted)
    for concatenated, gate in ((False, "pairs"), (True, "halves")):
        clamped = Plain(alpha=1.702, limit=0.8, is_concatenated=concatenated)
        made = libgemm.torch.moe(x, **words, gate=gate, gate_limit=0.8)
        assert torch.equal(run(clamped, x, ids, weights), made)
    biased = {"gate_up_proj_bias": torch.randn(EXPERTS, 2 * INNER), "down_proj_bias": torch.randn(EXPERTS, K)}
    biased = {name: bias.to(torch.bfloat16) for name, bias in biased.items()}
    told = {"bias_in": biased["gate_up_proj_bias"], "bias_out": biased["down_proj_bias"]}
    assert torch.equal(run(Plain(**biased), x, ids, weights), libgemm.torch.moe(x, **words, **told))
    assert not torch.equal(run(Plain(**biased), x, ids, weights), wanted)
    straight = Plain(has_gate=False, up_proj=plain.gate_up_proj[:, :INNER])
    ungated = {**words, "w_in": straight.up_proj.mT, "gate": None}
    assert torch.equal(run(straight, x, ids, weights), libgemm.torch.moe(x, **ungated))


def test_gates_that_libgemm_has_not_stay_transformers_own(transformers):
    norm, turns = Plain(has_post_expert_norm=True), Plain(is_concatenated=False)
    for module in (
        WithOwnGate(),
        Inherits(),
        norm,
        turns,
        Plain(act_fn=torch.nn.Tanh()),
        Plain(act_fn=torch.nn.GELU(approximate="tanh")),
    ):
        assert transformers.plain["libgemm"](module, *choices()) == "its own"
    assert transformers.plain["libgemm"](Plain(), *choices(torch.float64)) == "its own"
    assert of_transformers.gate_of(WithDefault(act_fn=torch.nn.GELU())) == {"activation": "gelu", "gate": "halves"}


class FP8Experts(Plain):
    """As transformers' experts with 8-bit weights are: their gate has several forms in one method."""

    def __init__(self, **changes):
        super().__init__()
        for name in ("gate_up_proj", "down_proj"):
            values, scale = StandIn().cast(getattr(self, name), "128x128")
            setattr(self, name, values)
            setattr(self, f"{name}_scale_inv", scale)
        self.has_gate, self.block_size, self.activation_scheme = True, [128, 128], "dynamic"
        self.swiglu_alpha = self.limit = None
        for name, value in changes.items():
            setattr(self, name, value)

    def _apply_gate(self, gate_up):
        raise NotImplementedError


class Derived(FP8Experts):
    def _apply_gate(self, gate_up):
        raise NotImplementedError


def words_of(module: FP8Experts) -> dict:
    return {
        "w_in": module.gate_up_proj.mT, "w_out": module.down_proj.mT, "scaling": "1x128_128x128",
        "w_in_scale": module.gate_up_proj_scale_inv.mT, "w_out_scale": module.down_proj_scale_inv.mT,
    }  # fmt: skip


def test_modules_of_8_bits_run_with_their_scales(transformers):
    run, (x, ids, weights) = transformers.scaled["libgemm"], choices()
    module = FP8Experts()
    wanted = libgemm.torch.moe(x, expert_ids=ids, weights=weights, **words_of(module))
    assert torch.equal(run(module, x, ids, weights), wanted)
    exact = transformers.plain["libgemm"](Plain(), x, ids, weights).float()
    assert (wanted.float() - exact).norm() < 0.1 * exact.norm()
    clamped = FP8Experts(swiglu_alpha=1.5, swiglu_limit=0.8, limit=0.8)
    told = {"gate_alpha": 1.5, "gate_limit": 0.8}
    assert torch.equal(
        run(clamped, x, ids, weights),
        libgemm.torch.moe(x, expert_ids=ids, weights=weights, **words_of(module), **told),
    )
    assert not torch.equal(run(clamped, x, ids, weights), wanted)
    straight = FP8Experts(has_gate=False)
    straight.up_proj, straight.up_proj_scale_inv = StandIn().cast(Plain().gate_up_proj[:, :INNER], "128x128")
    own = {**words_of(straight), "w_in": straight.up_proj.mT, "w_in_scale": straight.up_proj_scale_inv.mT}
    assert torch.equal(
        run(straight, x, ids, weights),
        libgemm.torch.moe(x, expert_ids=ids, weights=weights, gate=None, **own),
    )


def test_what_no_gradient_can_reach_asks_for_none(transformers):
    """Their weights are parameters; those of a version whose own way has gradients run by that where one is wanted."""
    run, (x, ids, weights) = transformers.scaled["libgemm"], choices()
    module = FP8Experts()
    for name in ("gate_up_proj", "down_proj", "gate_up_proj_scale_inv", "down_proj_scale_inv"):
        setattr(module, name, torch.nn.Parameter(getattr(module, name)))
    assert not run(module, x, ids, weights).requires_grad
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="scaled_moe"):
        run(module, x, ids, weights).float().sum().backward()
    sys.modules["transformers.integrations.finegrained_fp8"].FP8GroupedMatmulFunction = object
    assert run(module, x, ids, weights) == "its own of 8 bits"
    assert not run(module, x.detach(), ids, weights).requires_grad
    with torch.no_grad():
        assert run(module, x, ids, weights) is not None


def test_scales_that_are_powers_of_two_may_be_of_8_bits(transformers):
    module, given = FP8Experts(), choices()
    for name in ("gate_up_proj_scale_inv", "down_proj_scale_inv"):
        setattr(module, name, torch.full_like(getattr(module, name), 2.0**-6))
    wanted = transformers.scaled["libgemm"](module, *given)
    for name in ("gate_up_proj_scale_inv", "down_proj_scale_inv"):
        setattr(module, name, getattr(module, name).to(torch.float8_e8m0fnu))
    assert torch.equal(transformers.scaled["libgemm"](module, *given), wanted)


OTHERS = {
    "a gate of its own": lambda: Derived(),
    "a limit without alpha": lambda: FP8Experts(limit=7.0),
    "a norm behind each expert": lambda: FP8Experts(has_post_expert_norm=True),
    "a soft bound": lambda: FP8Experts(gate_softcap=7.0, up_softcap=7.0),
    "an activation that libgemm has not": lambda: FP8Experts(act_fn=torch.nn.Tanh()),
    "static scales": lambda: FP8Experts(activation_scheme="static"),
    "a scale for each expert": lambda: FP8Experts(block_size=None),
    "blocks of another size": lambda: FP8Experts(block_size=[64, 128]),
    "scales of another shape": lambda: FP8Experts(down_proj_scale_inv=torch.ones(EXPERTS, 2, 1)),
    "weights of 4 bits": lambda: FP8Experts(down_proj=torch.zeros(EXPERTS, K, INNER, dtype=torch.int8)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_modules_of_8_bits_that_libgemm_has_not_stay_transformers_own(transformers, what):
    assert transformers.scaled["libgemm"](OTHERS[what](), *choices()) == "its own of 8 bits"


def test_float32_with_8_bits_stays_transformers_own(transformers):
    assert transformers.scaled["libgemm"](FP8Experts(), *choices(torch.float32)) == "its own of 8 bits"


@pytest.mark.parametrize("there", [False, True], ids=["no module", "no way"])
def test_a_version_without_experts_of_8_bits_is_registered_as_well(transformers, monkeypatch, there):
    if there:
        module_of(monkeypatch, "finegrained_fp8")
    else:
        monkeypatch.setitem(sys.modules, "transformers.integrations.finegrained_fp8", None)
    transformers.plain.pop("libgemm")
    libgemm.torch.register_transformers()
    assert "libgemm" in transformers.plain
