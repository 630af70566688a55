"""experts_scaled.py on the CPU, by a library that the tests compute: what it compares, refuses and writes."""

import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from bench.measure import experts, experts_scaled  # noqa: E402
from bench.report import layers  # noqa: E402
from tests.gpu.standin import StandIn  # noqa: E402

SMALL = {"plain": (5, 2, 144, 24), "gpt-oss small": (4, 3, 40, 136)}


@pytest.fixture
def on_cpu(monkeypatch, tmp_path):
    lib = StandIn()
    for module in (experts, experts_scaled):
        monkeypatch.setattr(module, "MODELS", SMALL)
    monkeypatch.setattr(experts_scaled, "PROMPT", 9)
    monkeypatch.setattr(experts_scaled, "DECODE", (2, 1))
    monkeypatch.setattr(experts_scaled, "libgemm", SimpleNamespace(cast=lib.cast, moe=lib.moe))
    monkeypatch.setattr(
        torch, "_grouped_mm", lambda a, b, offs: lib.moe_mm(a, b, offs, out=a.new_zeros(len(a), b.shape[2]))
    )
    for name in ("randn", "rand"):
        made = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *size, made=made, **words: made(*size, **words | {"device": "cpu"}))
    monkeypatch.setattr(
        experts_scaled, "alternate", lambda calls, given, _: {name: 100.0 / (1 + i) for i, name in enumerate(calls)}
    )
    own = {"build_id": "b" * 64, "device": "Some GPU", "date": "2026-01-01"}
    monkeypatch.setattr(experts_scaled.about, "head", lambda: own)
    monkeypatch.setattr("sys.argv", ["experts_scaled.py", "--out", str(tmp_path)])
    return tmp_path / "Some_GPU.moe_fp8.json", lib


def test_every_layer_is_beside_its_bf16_self(on_cpu, capsys):
    path, _ = on_cpu
    assert experts_scaled.main() == 0
    rows = json.loads(path.read_text())["rows"]
    assert [(row["model"], row["tokens"]) for row in rows] == [(m, t) for m in SMALL for t in (9, 2, 1)]
    for row in rows:
        assert list(row["us"]) == ["fp8", "bf16", "torch"]
        assert row["errors"]["bf16"] < 0.02 and row["errors"]["torch"] < 0.02 < row["errors"]["fp8"] < 0.1
    assert "0.50 of its bf16 self, 0.33 of torch" in capsys.readouterr().out


def test_a_layer_that_is_wrong_stops_it(on_cpu):
    path, lib = on_cpu
    lib.fault = "scales of the other weights"
    with pytest.raises(SystemExit, match="far from itself"):
        experts_scaled.main()
    assert not path.exists()


def test_the_readme_says_what_a_report_of_this_build_found(on_cpu):
    path, _ = on_cpu
    experts_scaled.main()
    beside = path.with_name("Some_GPU.json")
    words, table = layers.scaled_layer_words(beside, {"b" * 64}, lambda at, command, _: f"({at.name}, {command})")
    assert "(Some_GPU.moe_fp8.json, python bench/measure/experts_scaled.py)" in " ".join(words.split())
    lines = [line for line in table.splitlines() if line.startswith("| plain")]
    assert len(lines) == 3 and all("| 100.0 | 50.0 | 33.3 | 0.50 | 0.33 | 0.0" in line for line in lines)
    (stale,) = layers.scaled_layer_words(beside, {"other"}, lambda *_: "(here)")
    assert "**stale**" in stale and not layers.scaled_layer_words(path.with_name("None.json"), set(), str)
