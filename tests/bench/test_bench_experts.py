"""experts.py on the CPU, by a library that the tests compute, and what README says of its report. Times nothing."""

import itertools
import json
import sys
from types import SimpleNamespace

import pytest
from conftest import ROOT

from bench.report import layers

torch = pytest.importorskip("torch")

from bench.measure import experts, experts_drawn, peer_triton_kernels  # noqa: E402
from bench.suites.layers_drawn import LEAST_TRAINED, MODELS, whole_layers  # noqa: E402
from tests.gpu.standin import StandIn  # noqa: E402


def small_layers(seed: int, count: int) -> list[dict]:
    words = {"model": "plain", "experts": 6, "top_k": 2, "hidden": 16, "inner": 8, "alpha": 0.5}
    return [{**words, "what": ("forward", "train")[i % 2], "tokens": seed + i} for i in range(count)]


@pytest.fixture
def on_cpu(monkeypatch, tmp_path):
    """Small models on the CPU, the stand-in's layers in the library's place, times made up."""
    lib = StandIn()
    own = torch.randn

    def run(module, x, ids, weights):
        words = experts.gate_of(module)
        w = [y if module.is_transposed else y.mT for y in (module.gate_up_proj, module.down_proj)]
        bias = [getattr(module, name, None) for name in ("gate_up_proj_bias", "down_proj_bias")]
        if torch.is_grad_enabled():
            return experts.by_torch(module, x, ids, weights)
        return lib.moe(x, *w, ids, weights, bias_in=bias[0], bias_out=bias[1], **words)

    def grouped_mm(a, b, offs, bias=None, out=None):
        return lib.moe_mm(a, b, offs, bias=bias, out=out)

    monkeypatch.setattr(experts, "MODELS", {"plain": (5, 2, 16, 8), "gpt-oss small": (4, 3, 8, 12)})
    monkeypatch.setattr(experts, "PROMPT", 9)
    monkeypatch.setattr(experts, "DECODE", (2, 1))
    monkeypatch.setattr(experts, "experts_forward", run)
    monkeypatch.setattr(
        experts, "libgemm",
        SimpleNamespace(moe_route=lib.moe_route, moe_mm=lib.moe_mm, moe_sum=lib.moe_sum, grouped_mm=grouped_mm),
    )  # fmt: skip
    monkeypatch.setattr(experts, "peer_of", lambda: ("torch", experts.by_torch))
    monkeypatch.setattr(
        experts.about, "head", lambda: {"build_id": "b" * 64, "device": "Some GPU", "date": "2026-01-01"}
    )
    monkeypatch.setattr(
        torch, "_grouped_mm", lambda a, b, offs: lib.moe_mm(a, b, offs, out=a.new_zeros(len(a), b.shape[2]))
    )
    for name in ("randn", "rand"):
        made = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *size, made=made, **words: made(*size, **words | {"device": "cpu"}))
    assert torch.randn is not own

    def alternate(calls, inputs, floor_us):
        for call in calls.values():
            for one in inputs:
                call(*one)
        return {name: 100.0 / (1 + i) for i, name in enumerate(calls)}

    monkeypatch.setattr(experts, "alternate", alternate)
    monkeypatch.setattr(experts, "alternate_launched", alternate)
    monkeypatch.setattr(experts_drawn, "whole_layers", small_layers)
    monkeypatch.setattr("sys.argv", ["experts.py", "--drawn", "3", "--seed", "5", "--out", str(tmp_path)])
    return tmp_path / "Some_GPU.moe.json"


def test_every_layer_is_compared_with_the_peer_and_reported(on_cpu, capsys):
    assert experts.main() == 0
    report = json.loads(on_cpu.read_text())
    ways = [("prefill", 9, "graph"), ("train", 9, "eager"), *itertools.product(("decode",), (2, 1), ("graph",)),
            *itertools.product(("decode",), (2, 1), ("eager",))]  # fmt: skip
    assert [(row["model"], row["what"], row["tokens"], row["mode"]) for row in report["rows"]] == [
        (model, *way) for model in ("plain", "gpt-oss small") for way in ways
    ]
    assert report["peer"] == "torch"
    for row in report["rows"]:
        assert row["difference"] < 3e-2 and row["libgemm_us"] == 2 * row["torch_us"]
        assert ("sum_us" in row) == (row["mode"] == "graph")
    drawn = report["drawn"]
    assert drawn["seed"] == 5 and [row["tokens"] for row in drawn["rows"]] == [5, 6, 7]
    assert all(row["difference"] < 3e-2 and row["libgemm_us"] == 100.0 for row in drawn["rows"])
    text = " ".join(capsys.readouterr().out.split())
    assert "plain train 6 tokens, 6 x 16 x 8, alpha 0.5 100.0 50.0 0.50" in text
    assert "plain prefill 9 graph 100.0 50.0 0.50" in text and "gpt-oss small train 9 eager 100.0" in text


def test_a_wrong_layer_is_no_measurement(on_cpu, monkeypatch):
    right = experts.experts_forward
    monkeypatch.setattr(experts, "experts_forward", lambda *given: right(*given) * 1.1)
    with pytest.raises(ArithmeticError, match=r"plain, prefill, 9 tokens: the results differ by"):
        experts.main()
    assert not on_cpu.exists()


def test_whole_layers_are_those_of_the_seed_and_none_is_too_large():
    found = whole_layers(7, 40)
    assert found[:12] == whole_layers(7, 12) and found[:12] != whole_layers(8, 12)
    assert {layer["model"] for layer in found} <= set(MODELS) and len({layer["model"] for layer in found}) > 6
    for layer in found:
        assert layer["inner"] % 8 == 0 and layer["top_k"] <= layer["experts"]
        assert 6 * layer["experts"] * layer["hidden"] * layer["inner"] < 8e9
        assert layer["tokens"] >= (LEAST_TRAINED if layer["what"] == "train" else 1)


def test_tokens_are_routed_to_different_experts(on_cpu):
    ids, weights = experts_drawn.routed({"experts": 6, "top_k": 4, "tokens": 50, "alpha": 0.2})
    assert ids.shape == weights.shape == (50, 4) and all(len(set(row)) == 4 for row in ids.tolist())
    assert int(ids.max()) < 6 and torch.allclose(weights.float().sum(1), torch.ones(50), atol=2e-2)


def test_a_peer_that_is_missing_is_not_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton_kernels", None)
    assert peer_triton_kernels.first_product(SimpleNamespace(), []) == {}


def test_the_first_product_is_measured_beside_triton_kernels(monkeypatch, on_cpu):
    """By a stand-in for it, which sees what it is given."""
    seen = []
    tensor = SimpleNamespace(make_ragged_tensor_metadata=lambda sizes, rows: (sizes.tolist(), rows))
    matmul = SimpleNamespace(
        FnSpecs=lambda *words, reduction_n: (words, reduction_n), FusedActivation=lambda specs, numbers: numbers,
        matmul=lambda *given, **words: seen.append((given, words)),
    )  # fmt: skip
    swiglu = SimpleNamespace(swiglu_fn=None)
    monkeypatch.setattr(peer_triton_kernels, "library", lambda: (matmul, swiglu, tensor))
    module = experts.Experts("gpt-oss small")
    one = experts.choices(module, 7)
    experts.parts_of(module, [one])
    peer_triton_kernels.first_product(module, [one])["triton_kernels"](one)
    (((x, weights, bias), words),) = seen
    assert x.shape == (7, 8) and weights.shape == (4, 8, 24) and bias.dtype == torch.float32
    sizes, rows = words["a_ragged_metadata"]
    assert sum(sizes) == rows == 21 and len(sizes) == 4 and words["fused_activation"] == (1.702, 7.0)
    assert torch.equal(words["gather_indx"], one.rows)


def report_at(folder, build: str) -> None:
    parts = {"route_us": 1.0, "first_us": 5.0, "second_us": 3.0, "sum_us": 1.0}
    ways = [("prefill", 4096, "graph", 25.0), ("train", 4096, "eager", 18.0)]
    ways += [("decode", 8, "graph", 17.0), ("decode", 1, "graph", 15.0), ("decode", 8, "eager", 14.0)]
    rows = [{"model": "A", "what": what, "tokens": tokens, "mode": mode, "libgemm_us": 10.0, "torch_us": us,
             **(parts if mode == "graph" else {})} for what, tokens, mode, us in ways]  # fmt: skip
    for row, us in zip([row for row in rows if row["mode"] == "graph"], (5.0, 7.2, 20.0), strict=True):
        row["peers"] = {"triton_kernels, first": us}
    drawn = [{"model": model, "what": what, "libgemm_us": 10.0, "torch_us": us}
             for model, what, us in (("A", "forward", 20.0), ("B", "forward", 45.0), ("B", "train", 15.0))]  # fmt: skip
    report = {
        "build_id": build,
        "date": "2026-01-03",
        "peer": "transformers 5",
        "rows": rows,
        "drawn": {"seed": 9, "rows": drawn},
    }
    (folder / "GPU.moe.json").write_text(json.dumps(report))


def test_the_readme_says_ratios_of_this_build_alone(tmp_path):
    report_at(tmp_path, "this")
    path = tmp_path / "GPU.json"
    words = " ".join(layers.layer_item(path, "this").split())
    assert "of A, against transformers 5's: a prompt of 4096 tokens 2.50 times as fast, a training step 1.80" in words
    assert "1 to 8 tokens 1.50 to 1.70 in a CUDA graph, 1.40 to 1.40 without" in words
    text = "\n".join(layers.layer_words(path, {"this"}, lambda *_: "(here)"))
    assert "| A | prefill | 4096 | graph | 10.0 | 25.0 | 2.50 | 1.0 | 5.0 | 3.0 | 1.0 |" in text
    assert "| A | train | 4096 | eager | 10.0 | 18.0 | 1.80 |  |  |  |  |" in text
    words = " ".join(text.split())
    assert "against that of triton_kernels: of more than one token 1.20 times as fast in the mean, 1.00 at" in words
    assert "at least; of one token 4.00." in words
    assert "Of 3 layers of 2 models drawn with seed 9" in words and "forward 3.00 times as fast in the mean" in words
    assert "2.00 at least; forward and back 1.50" in words
    assert layers.layer_item(path, "other") == ""
    assert "(build `this`) of A" in " ".join(layers.layer_item(path, "other", "this").split())
    (stale,) = layers.layer_words(path, {"other"}, lambda *_: "(here)")
    assert "**stale**" in stale and "2.50" not in stale
    assert layers.layer_item(tmp_path / "None.json", "this") == "" and not layers.layer_words(
        tmp_path / "None.json", set(), str
    )


def test_the_committed_report_is_read():
    (path,) = (ROOT / "bench" / "results").glob("*.moe.json")
    report = json.loads(path.read_text())
    main = path.with_name(path.name.replace(".moe", ""))
    assert len(report["rows"]) == len(experts.MODELS) * len(list(experts.cases()))
    assert "Qwen3-30B-A3B" in layers.layer_item(main, report["build_id"])
