"""losses.py on the CPU, torch's steps in libgemm's place, and what README and its picture make of the report."""

import json

import pytest
from conftest import ROOT

from bench.report import layers, pictures

torch = pytest.importorskip("torch")

from bench.measure import losses  # noqa: E402
from tests.support.torch_reference import grouped_mm  # noqa: E402

SMALL = {"LAYERS": 2, "HIDDEN": 32, "HEADS": 2, "EXPERTS": 4, "INNER": 16, "WORDS": 24, "LENGTH": 12, "BATCH": 4}


@pytest.fixture
def on_cpu(monkeypatch, tmp_path):
    for name, value in {**SMALL, "DEVICE": "cpu"}.items():
        monkeypatch.setattr(losses, name, value)
    monkeypatch.setattr(torch, "_grouped_mm", lambda a, b, offs: grouped_mm(a, b, offs), raising=False)
    own = {"build_id": "b" * 64, "device": "Some GPU", "date": "2026-01-01"}
    monkeypatch.setattr(losses.about, "head", lambda: own)
    calls = []

    def moe(x, w_in, w_out, ids, weights):
        calls.append(len(x))
        module = losses.Experts(False)
        module.gate_up_proj, module.down_proj = (torch.nn.Parameter(w.mT.detach()) for w in (w_in, w_out))
        z = (x[:, None, None] @ w_in[ids]).squeeze(2)
        rows = (module._apply_gate(z)[:, :, None] @ w_out[ids]).squeeze(2)
        return (rows * weights[..., None]).sum(1).to(x.dtype)

    monkeypatch.setattr(losses.libgemm.torch, "moe", moe)
    monkeypatch.setattr("sys.argv", ["losses.py", "--steps", "20", "--out", str(tmp_path)])
    return tmp_path / "Some_GPU.losses.json", calls


def test_the_same_seed_learns_the_same_by_either(on_cpu, capsys):
    path, calls = on_cpu
    assert losses.main() == 0 and len(calls) == 20 * SMALL["LAYERS"]
    report = json.loads(path.read_text())
    assert list(report["curves"]) == ["libgemm", "torch", "torch, another seed"] and report["steps"] == 20
    ours, same, other = report["curves"].values()
    assert report["ends"]["libgemm"] == pytest.approx(sum(ours[-2:]) / 2, abs=1e-4)
    assert max(abs(x - y) for x, y in zip(ours, same, strict=True)) < 0.1 and ours[0] != other[0]
    assert sum(same[-5:]) < sum(same[:5])
    assert "ends at" in capsys.readouterr().out


def test_texts_are_the_same_each_time_and_can_be_learnt():
    made = losses.texts(2)
    assert torch.equal(made, losses.texts(2)) and made.shape == (2, losses.BATCH, losses.LENGTH + 1)
    assert int(made.min()) >= 0 and int(made.max()) < losses.WORDS


def test_the_readme_tells_where_curves_end(tmp_path):
    ends = {"libgemm": 2.0, "torch": 2.1, "torch, another seed": 2.2}
    (tmp_path / "GPU.losses.json").write_text(json.dumps({"steps": 2, "build_id": "b", "ends": ends}))
    words, picture = layers.loss_words(tmp_path / "GPU.json", lambda *_: "(here).")
    text = " ".join(words.split())
    assert "ends at 2.0000 with libgemm's layers of experts, 2.1000 with torch's, and 2.2000" in text
    assert "GPU.losses.svg" in picture
    assert layers.loss_words(tmp_path / "None.json", str) == []


@pytest.mark.parametrize("path", sorted((ROOT / "bench" / "results").glob("*.losses.json")), ids=lambda path: path.name)
def test_the_committed_picture_is_that_of_its_report(path, tmp_path):
    pytest.importorskip("matplotlib")
    pictures.draw(json.loads(path.read_text()), "losses", tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == path.with_suffix(".svg").read_bytes()
