"""The committed pictures are those of their reports, legible at README's width, one colour for one thing."""

import importlib.util
import re
import sys
from importlib import metadata

import pytest
from conftest import ROOT
from made_report import DRAWN, made_report

from bench.report import pictures, plots
from bench.report.rows import digest, read

PINNED = importlib.util.find_spec("matplotlib") and f"matplotlib=={metadata.version('matplotlib')}" == pictures.PIN
draws = pytest.mark.skipif(not PINNED, reason=f"draws with {pictures.PIN}, which `make report` installs")
SHOWN = 800  # pixels across, in a README
WIDEST, TALLEST = 800, 900  # pixels, of a picture that fits a screen
REPORTS = pictures.reports(ROOT / "bench" / "results")
CASES = [(path, name) for path in REPORTS for name in pictures.PICTURES]
drawn = pytest.mark.parametrize(("path", "name"), CASES, ids=lambda value: getattr(value, "name", value))


@drawn
def test_a_committed_report_has_its_pictures(path, name):
    report = read(path)
    svg = pictures.picture_path(path, name).read_text()
    assert f"<dc:description>rows {digest(report)}</dc:description>" in svg, "run `make report`"
    assert f"{report['device']}, build {report['build_id'][:16]}</text>" in svg


@drawn
def test_a_committed_picture_is_legible_and_fits_a_screen(path, name):
    svg = pictures.picture_path(path, name).read_text()
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
    sizes = {float(size) for size in re.findall(r"(?:font|font-size): [^;]*?([\d.]+)px", svg)}
    assert sizes and min(sizes) * SHOWN / width >= 9
    assert width * 96 / 72 <= WIDEST and height * SHOWN / width <= TALLEST


@drawn
def test_a_colour_means_a_type_or_the_peer(path, name):
    svg = pictures.picture_path(path, name).read_text()
    colours = set(re.findall(r"#[0-9a-f]{6}", svg))
    assert colours <= {*plots.TYPES.values(), plots.PEER, "#cccccc", "#000000", "#ffffff"}
    assert colours >= {plots.TYPES["bf16"], plots.PEER}
    for peer in (
        {row["peer"] for row in read(path)["rows"]} if name != "roofline" else {"torch.mm", "torch._grouped_mm"}
    ):
        assert peer.removesuffix(" (bf16)") in svg


@draws
@drawn
def test_the_committed_pictures_are_drawn_again_byte_for_byte(path, name, tmp_path):
    pictures.draw(read(path), name, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == pictures.picture_path(path, name).read_bytes()


@draws
@pytest.mark.parametrize("name", pictures.PICTURES)
def test_nothing_is_cut_at_the_edge(name):
    for report in (made_report(), {**made_report(), "drawn": DRAWN}, *map(read, REPORTS)):
        with pictures.style():
            figure = pictures.make_figure(report, name)
            box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert min(box.x0, box.y0) >= 0 and box.x1 <= width and box.y1 <= height


@draws
def test_the_summary_marks_shapes_that_were_drawn(tmp_path):
    for report, marked in ((made_report(), False), ({**made_report(), "drawn": DRAWN}, True)):
        pictures.draw(report, "summary", tmp_path / "made.svg")
        assert ("means of shapes drawn" in (tmp_path / "made.svg").read_text()) == marked


def test_without_matplotlib_it_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(sys, "argv", ["pictures.py", "--results", str(tmp_path)])
    assert pictures.main() == 1
    assert f"-m pip install {pictures.PIN}" in capsys.readouterr().err
