"""README's section of measurements and the pictures are those of the committed reports. Measures nothing."""

import importlib.util
import json
import sys
from importlib import metadata

import pytest
from conftest import ROOT

from bench import pictures, readme
from bench.rows import digest, floor_us, flops, groups, kind, label, summarise, traffic

REPORTS = pictures.reports(ROOT / "bench" / "results")
PINNED = importlib.util.find_spec("matplotlib") and f"matplotlib=={metadata.version('matplotlib')}" == pictures.PIN
A, B = "a" * 64, "b" * 64


def row(op: str = "gemm", dtype: str = "bf16", **more) -> dict:
    made = {
        "id": "X1", "m": 4096, "n": 4096, "k": 4096, "layout": "NT", "beta": 0, "out": "same", "op": op, "dtype": dtype,
        "ours_us": 200.0, "peer": "torch.mm", "peer_us": 220.0, **more,
    }  # fmt: skip
    return {**made, "floor_us": floor_us(made)}


HOST = {
    "rows": {
        "64 x 64 x 64 NN": {
            "python_us": 3.0, "torch_us": 6.0, "python_ratio": 0.5, "c_us": 2.2, "bare_us": 2.0, "c_ratio": 1.1,
        },
        "512 x 512 x 512 NN": {"python_us": 3.5, "torch_us": 7.0, "python_ratio": 0.5},
    },
    "pointer_query_us": 0.02,
    "note": "C was not timed from 512 x 512 x 512 NN on: why",
}  # fmt: skip


def made_report() -> dict:
    rows = [
        row(), row(id="X2", n=4095, peer_us=800.0), row(dtype="f32", ours_us=500.0),
        row("grouped_mm", groups=4, peer="torch._grouped_mm", peer_us=100.0),
    ]  # fmt: skip
    regret = {"shapes": 10, "median": 0.0, "p95": 0.125}
    return {"build_id": A, "device": "Some GPU", "torch": "2", "date": "2026-01-02T03:04:05", "rows": rows,
            "regret": regret, "regret_grouped": {"shapes": 20, "median": 0.01, "p95": 0.07}, "host": HOST}  # fmt: skip


def made_section(built: str | None = A) -> str:
    return "\n".join(readme.speed(ROOT / "bench" / "results" / "Some_GPU.json", made_report(), built))


def test_the_readme_says_what_the_reports_say():
    _, between, _ = readme.parts_of((ROOT / "README.md").read_text())
    # whether a report is stale fails nothing: the words about it may be those of any build in dist/
    builds = [json.loads(path.read_text())["build_id"] for path in [*REPORTS, *ROOT.glob("tests/results/gpu_*.json")]]
    assert between in [readme.section(built) for built in (None, B, *builds)], "run `make report`"


def test_regret_is_told_of_what_was_asked():
    words = " ".join(made_section().split())
    assert "on 10 random dense products, median 0 %, 95th percentile 12 %; on 20 random packed products" in words
    assert readme.regret_words({"regret": {}, "regret_grouped": {}}) == []


def test_a_readme_without_its_marks_is_refused():
    with pytest.raises(SystemExit, match="lacks its marks: <!-- measured"):
        readme.parts_of("# libgemm\n")


def test_a_report_of_another_build_is_said_to_be_one():
    words = "The tree built another library when this was written"
    assert words not in made_section(A) and words not in made_section(None)
    assert words in made_section(B).replace("\n", " ")


def test_operations_and_types_are_told_apart():
    found = made_section()
    assert list(groups(made_report()["rows"])) == ["gemm bf16", "gemm f32", "grouped_mm bf16"]
    assert "| gemm bf16 | 2 | 2.098 | 1.10, X1 |" in found
    assert "| grouped_mm bf16 | 1 | 0.500 | 0.50, X1 |" in found
    assert "800 TFLOP/s (bf16) or 400 TFLOP/s (f32)" in found.replace("\n", " ")
    assert "| X1 | large | 4096 x 4096 x 4096 NT, 4 groups | 200.0 | 100.0 | 0.50 |" in found
    assert "`torch._grouped_mm` of torch 2" in found.replace("\n", " ")
    assert "95th percentile 12 %" in found.replace("\n", " ")


def test_what_the_host_report_holds_is_shown_and_what_it_lacks_is_a_dash():
    found = made_section()
    assert "| 64 x 64 x 64 NN | 2.20 | 2.00 | 1.10 | 3.00 | 6.00 | 0.50 |" in found
    assert "| 512 x 512 x 512 NN | - | - | - | 3.50 | 7.00 | 0.50 |" in found
    assert HOST["note"] in found


def test_rows_say_their_work_and_their_kind():
    one = row(m=8, n=16, k=32, out="f32", beta=1)
    assert (flops(one), traffic(one)) == (2 * 8 * 16 * 32, 2 * (8 * 32 + 16 * 32) + 4 * 8 * 16 * 2)
    assert label(one) == "8 x 16 x 32 NT, into float32, beta = 1"
    assert traffic(row(groups=4)) == 2 * 6 * 4096**2
    shapes = {
        "large": {}, "small": {"m": 512, "n": 512}, "up to 256 rows": {"m": 256}, "up to 16 rows": {"n": 16},
        "C is added": {"m": 1, "beta": 2}, "unaligned": {"k": 4097, "beta": 1},
    }  # fmt: skip
    assert {name: kind(row(**shape)) for name, shape in shapes.items()} == {name: name for name in shapes}
    assert kind(row(m=1001)) == "large" and kind(row(m=1001, layout="TN")) == "unaligned"
    assert kind(row(n=4)) == "unaligned" and kind(row(n=4, dtype="f32")) == "up to 16 rows"


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_a_committed_report_has_its_pictures(path):
    report = json.loads(path.read_text())
    for name in pictures.PICTURES:
        svg = pictures.picture_path(path, name).read_text()
        assert f"<dc:description>rows {digest(report)}</dc:description>" in svg, "run `make report`"
        assert f"{report['device']}, build {report['build_id'][:16]}</text>" in svg


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_a_committed_report_has_the_floor_and_the_summary_of_its_rows(path):
    report = json.loads(path.read_text())
    assert [r["floor_us"] for r in report["rows"]] == pytest.approx([floor_us(r) for r in report["rows"]])
    assert all(found["geomean"] > 0 for found in summarise(report["rows"]).values())


@pytest.mark.skipif(not PINNED, reason=f"draws with {pictures.PIN}, which `make report` installs")
@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_committed_pictures_are_drawn_again_byte_for_byte(name, tmp_path):
    for path in REPORTS:
        pictures.draw(json.loads(path.read_text()), name, tmp_path / "again.svg")
        assert (tmp_path / "again.svg").read_bytes() == pictures.picture_path(path, name).read_bytes()
    pictures.draw(made_report(), name, tmp_path / "made.svg")
    assert "grouped_mm bf16" in (tmp_path / "made.svg").read_text()


def test_without_matplotlib_it_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(sys, "argv", ["pictures.py", "--results", str(tmp_path)])
    assert pictures.main() == 1
    assert f"-m pip install {pictures.PIN}" in capsys.readouterr().err
