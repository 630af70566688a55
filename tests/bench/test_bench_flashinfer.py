"""bench/measure/flashinfer_layers.py by a stand-in for the peer: what it compares and says. No GPU, no time."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from bench.measure import experts, flashinfer_layers  # noqa: E402
from bench.report.layers import peer_layer_words  # noqa: E402


@pytest.fixture
def on_cpu(monkeypatch):
    usual = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, **words: usual(*shape, **{**words, "device": "cpu"}))
    monkeypatch.setattr(experts, "MODELS", {"A small": (4, 2, 8, 6)})
    monkeypatch.setattr(flashinfer_layers, "alternate", lambda calls, inputs, floor: {
        name: 10.0 + i for i, name in enumerate(calls) if all(call is not None for call in calls.values())
    })  # fmt: skip

    def moe(x, w_in, w_out, ids, weights, out):
        out.zero_()
        for token in range(len(x)):
            for expert, share in zip(ids[token].tolist(), weights[token].tolist(), strict=True):
                gate, up = (x[token].float() @ w_in[expert].float()).chunk(2)
                hidden = torch.nn.functional.silu(gate) * up
                out[token] += (share * (hidden @ w_out[expert].float())).to(out.dtype)

    monkeypatch.setattr(flashinfer_layers, "libgemm", SimpleNamespace(moe=moe))
    return moe


def test_a_layer_is_measured_by_the_tuned_peer(on_cpu, monkeypatch):
    module = experts.Experts("A small")
    calls = []

    def peer(x, ids, weights, out, in_order, tactic=None):
        assert ids.dtype == torch.int32 and weights.dtype == torch.float32
        calls.append((in_order, tactic))
        on_cpu(x, module.gate_up_proj.mT, module.down_proj.mT, ids, weights, out)

    def tuned(call, tokens):
        call()
        return f"best of {tokens}, {'in order' if calls[-1][0] else 'by atomics'}"

    monkeypatch.setattr(flashinfer_layers, "tuned", tuned)
    row = flashinfer_layers.compare("A small", module, 5, peer)
    best = {order: f"best of 5, {how}" for order, how in ((False, "by atomics"), (True, "in order"))}
    assert calls == [(False, None), (True, None), *best.items()]
    assert (row["libgemm_us"], row["flashinfer_us"], row["flashinfer_ordered_us"]) == (10.0, 11.0, 12.0)
    assert row["flashinfer_difference"] == row["flashinfer_ordered_difference"] == 0
    assert (row["flashinfer_tactic"], row["flashinfer_ordered_tactic"]) == tuple(best.values())
    assert flashinfer_layers.line(row).split() == ["A", "small", "5", "10.0", "11.0", "1.10", "12.0", "1.20"]


@pytest.mark.parametrize(("who", "wrong"), [("flashinfer", False), ("flashinfer_ordered", True)])
def test_another_result_stops_the_run(on_cpu, monkeypatch, who, wrong):
    monkeypatch.setattr(flashinfer_layers, "tuned", lambda call, tokens: None)
    module = experts.Experts("A small")

    def peer(x, ids, weights, out, in_order, tactic):
        on_cpu(x, module.gate_up_proj.mT, module.down_proj.mT, ids, weights, out)
        if in_order == wrong:
            out.fill_(1.0)

    with pytest.raises(SystemExit, match=rf"A small, 5 tokens, {who}: the results are .* of their size apart"):
        flashinfer_layers.compare("A small", module, 5, peer)


def test_the_tuners_default_is_no_tactic(monkeypatch):
    seen = []
    cache = {"first": ((1, 2),), "last": (-1,)}
    tuner = SimpleNamespace(_winner_cache=lambda: cache)

    class Tuning:
        def __init__(self, tune, tuning_buckets):
            seen.append((tune, tuning_buckets))

        def __enter__(self):
            seen.append("tuning")

        def __exit__(self, *_):
            seen.append("done")

    made = ModuleType("flashinfer.autotuner")
    made.AutoTuner, made.autotune = SimpleNamespace(get=lambda: tuner), Tuning
    monkeypatch.setitem(sys.modules, "flashinfer", ModuleType("flashinfer"))
    monkeypatch.setitem(sys.modules, "flashinfer.autotuner", made)
    assert flashinfer_layers.tuned(lambda: seen.append("call"), 64) is None
    assert seen == [(True, (64,)), "tuning", "call", "done"]
    del cache["last"]
    assert flashinfer_layers.tuned(lambda: None, 64) == (1, 2)
    cache.clear()
    with pytest.raises(SystemExit, match="no tactic for 64 tokens that runs: FLASHINFER_LOGGING_LEVEL=DEBUG says why"):
        flashinfer_layers.tuned(lambda: None, 64)


def test_the_readme_says_times_of_this_build_alone(tmp_path):
    rows = [
        {"model": "A", "tokens": 64, "libgemm_us": 10.0, "flashinfer_us": us, "flashinfer_ordered_us": us + 3.0}
        for us in (12.0, 27.0)
    ]
    report = {"build_id": "this", "flashinfer": "0.7", "rows": rows}

    def origin(at, command, _):
        return f"({at.name}, {command})"

    assert peer_layer_words(tmp_path / "GPU.json", {"this"}, origin) == []
    (tmp_path / "GPU.flashinfer.json").write_text(json.dumps(report))
    words, table = peer_layer_words(tmp_path / "GPU.json", {"this"}, origin)
    assert "1.80 times as fast in the mean, 1.20 at least" in " ".join(words.split()) and "| 2.70 " in table
    assert "2.12 and 1.50" in " ".join(words.split()) and "| 3.00 " in table
    assert "2.70" not in "".join(peer_layer_words(tmp_path / "GPU.json", {"another"}, origin))
