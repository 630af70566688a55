"""casts.py on the CPU, torch's casts in libgemm's place: what it draws, checks, sums up and writes."""

import json

import pytest

torch = pytest.importorskip("torch")

from bench.measure import casts  # noqa: E402


def ours(x, granularity):
    return casts.torch_cast(x, granularity)


@pytest.fixture
def on_cpu(monkeypatch, tmp_path):
    monkeypatch.setattr(casts, "DEVICE", "cpu")
    monkeypatch.setattr(casts, "WIDTHS", (128, 272))
    monkeypatch.setattr(casts, "rotations", lambda _: 1)
    monkeypatch.setattr(casts, "alternate", lambda calls, inputs, floor: dict.fromkeys(calls, 2 * floor))
    monkeypatch.setattr(casts.torch, "compile", lambda call, **_: call)
    monkeypatch.setattr(casts.libgemm, "cast", ours)
    monkeypatch.setattr(casts.libgemm, "cast_transpose", lambda x, g: (*ours(x, g), *ours(x.t().contiguous(), g)))
    own = {"build_id": "b" * 64, "device": "Some GPU", "date": "2026-01-01"}
    monkeypatch.setattr(casts.about, "head", lambda: own)
    monkeypatch.setattr("sys.argv", ["casts.py", "--seed", "5", "--count", "3", "--out", str(tmp_path)])
    return tmp_path / "Some_GPU.casts.json"


def test_every_kind_is_measured_and_told(on_cpu, monkeypatch, capsys):
    monkeypatch.setattr(casts, "FLOOR_US", 0)
    assert casts.main() == 0
    report = json.loads(on_cpu.read_text())
    assert report["seed"] == 5 and len(report["rows"]) == 3 * 4 * 2
    for row in report["rows"]:
        values = row["m"] * row["n"]
        twice = row["granularity"] == "tensor" or (row["granularity"] == "row" and row["transposed"])
        assert row["floor_us"] == pytest.approx(values * ((4 if twice else 2) + 1 + row["transposed"]) / 4.3e12 * 1e6)
    assert [x["share"] for x in report["summary"]] == [pytest.approx(0.5)] * 8
    assert [x["torch"] for x in report["summary"]] == [pytest.approx(1.0)] * 8
    said = capsys.readouterr().out
    assert "1x128 and transposed" in said and "seed 5" in said


def test_draws_follow_the_seed():
    assert casts.draw(7, 20) == casts.draw(7, 20) != casts.draw(8, 20)
    assert all(
        256 <= row["m"] <= 32768 and row["m"] % 16 == 0 and row["n"] in casts.WIDTHS for row in casts.draw(7, 200)
    )


@pytest.mark.parametrize("granularity", casts.GRANULARITIES)
def test_torchs_scales_are_of_what_they_say(granularity):
    x = torch.randn(130, 200, dtype=torch.bfloat16)
    values, scale = casts.torch_cast(x, granularity)
    down, across = {"tensor": (130, 200), "row": (1, 200), "1x128": (1, 128), "128x128": (128, 128)}[granularity]
    tiles = [[x[i : i + down, j : j + across] for j in range(0, 200, across)] for i in range(0, 130, down)]
    wanted = torch.tensor([[float(tile.float().abs().max()) / 448 for tile in row] for row in tiles])
    assert torch.allclose(scale.reshape(wanted.shape), wanted) and values.shape == x.shape


@pytest.mark.parametrize("place", [0, 1])
def test_a_cast_that_is_wrong_stops_it(on_cpu, monkeypatch, place):
    def wrong(x, granularity):
        made = list(ours(x, granularity))
        made[place] = (made[place].float() * 1.5).to(made[place].dtype)
        return made

    monkeypatch.setattr(casts.libgemm, "cast", wrong)
    with pytest.raises(SystemExit, match="are apart"):
        casts.main()
    assert not on_cpu.exists()
