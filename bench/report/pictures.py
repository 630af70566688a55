"""Draws the pictures of each benchmark report that plots.py describes. Needs matplotlib, no GPU; times nothing.

    python bench/report/pictures.py [--results bench/results]

One report gives the same bytes wherever the pinned matplotlib draws it: no date, fixed ids, text left as text.
"""

import argparse
import contextlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from bench.report.plots import BESIDE, PICTURES  # noqa: E402
from bench.report.rows import digest, read  # noqa: E402

RESULTS = ROOT / "bench" / "results"
PIN = re.search(r'"(matplotlib==.*?)"', (ROOT / "pyproject.toml").read_text()).group(1)
STYLE = {
    "svg.hashsalt": "libgemm", "svg.fonttype": "none", "font.size": 8, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "axes.titlesize": 8, "legend.frameon": False,
}  # fmt: skip


def reports(folder: Path) -> list[Path]:
    """Of bench/run.py; what else is measured on a device stands beside them."""
    return sorted(path for path in folder.glob("*.json") if "." not in path.stem)


def beside(folder: Path) -> list[tuple[Path, str]]:
    """Reports that have one picture each, and its name."""
    return [(path, name) for name in BESIDE for path in sorted(folder.glob(f"*.{name}.json"))]


def picture_path(report: Path, name: str) -> Path:
    return report.with_suffix(f".{name}.svg")


def settle(figure) -> None:
    """Panels where the solver put them, but for the last digits: those depend on where its objects lie in memory."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(x, 4) for x in axes.get_position().bounds])


def make_figure(report: dict, name: str):
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    (PICTURES | BESIDE)[name](figure, report)
    settle(figure)
    return figure


@contextlib.contextmanager
def style():
    """The settings of every picture; a reader's own must not show."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def draw(report: dict, name: str, path: Path) -> None:
    about = {"Date": None, "Creator": "bench/report/pictures.py", "Description": f"rows {digest(report)}"}
    with style():
        make_figure(report, name).savefig(path, format="svg", metadata=about)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    try:
        import matplotlib
    except ImportError:
        print(f"pictures need {PIN}, which this Python lacks: run `make report`, or `{sys.executable} -m pip install "
              f"{PIN}` and this again", file=sys.stderr)  # fmt: skip
        return 1
    if matplotlib.__version__ != PIN.partition("==")[2]:
        print(f"drawn by matplotlib {matplotlib.__version__}; the repository's pictures are by {PIN}", file=sys.stderr)
    for report in reports(options.results):
        for name in PICTURES:
            draw(read(report), name, picture_path(report, name))
            print(f"wrote {picture_path(report, name)}")
    for report, name in beside(options.results):
        draw(json.loads(report.read_text()), name, report.with_suffix(".svg"))
        print(f"wrote {report.with_suffix('.svg')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
