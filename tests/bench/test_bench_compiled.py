"""compiled.py on the CPU: references in the kernels' place, torch.compile that changes nothing, or something."""

import pytest

torch = pytest.importorskip("torch")

from libgemm.frameworks.torch import layer_kernels, layer_operators, operators  # noqa: E402

from bench.measure import compiled  # noqa: E402
from tests.gpu.standin import StandIn  # noqa: E402
from tests.support.torch_reference import reference  # noqa: E402


@pytest.fixture
def on_cpu(monkeypatch):
    for name, function in reference.items():
        getattr(operators, name).register_kernel("cpu")(function)
    layer_operators.moe.register_kernel("cpu")(layer_kernels.moe)
    monkeypatch.setattr(layer_kernels, "libgemm", StandIn())
    for name, value in {"TOKENS": 12, "HIDDEN": 16, "INNER": 64, "EXPERTS": 4, "TOP_K": 2}.items():
        monkeypatch.setattr(compiled, name, value)
    for owner, name in ((torch, "randn"), (torch, "empty")):
        made = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *size, made=made, **words: made(*size, **words | {"device": "cpu"}))
    for name in ("alternate", "alternate_launched"):
        monkeypatch.setattr(compiled, name, lambda calls, *_: {name: call and 10.0 for name, call in calls.items()})


def test_each_layer_is_compiled_whole_and_compared(on_cpu, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda layer, **words: asked.append(words) or layer)
    assert compiled.main() == 0 and asked == [{"fullgraph": True}] * 2
    text = " ".join(capsys.readouterr().out.split())
    assert "Perceptron 10.0 10.0 1.00 10.0 10.0 1.00 0.0e+00 Block 10.0" in text


def test_other_numbers_are_no_measurement(on_cpu, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda layer, **_: lambda x: layer(x) * 1.1)
    with pytest.raises(ArithmeticError, match="Perceptron: compiled and eager differ by"):
        compiled.main()
