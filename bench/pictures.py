"""Two pictures of each benchmark report: ratios to the peer, and the roofline. Needs matplotlib, no GPU; times nothing.

    python bench/pictures.py [--results bench/results]

One report gives the same bytes wherever the pinned matplotlib draws it: no date, fixed ids, text left as text.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from bench.rows import BYTES, FLOPS, ORDER, digest, flops, geomean, group, groups, kind, label, ratio, traffic  # noqa: E402

RESULTS = ROOT / "bench" / "results"
PIN = re.search(r'"(matplotlib==.*?)"', (ROOT / "pyproject.toml").read_text()).group(1)
COLOURS = ("#0b6fa4", "#d1495b", "#3a7d44", "#8d5ab5", "#b7791f", "#555555")  # of the groups, in the report's order
RATIOS = (0.7, 1.5)  # what the axis shows; a ratio outside stands at the edge, with its number
STYLE = {
    "svg.hashsalt": "libgemm", "svg.fonttype": "none", "font.size": 8, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "axes.titlesize": 8, "legend.frameon": False,
}  # fmt: skip


def title(figure, report: dict, words: str) -> None:
    figure.suptitle(f"{words}: {report['device']}, build {report['build_id'][:16]}", fontsize=10)


def lines_of(rows: list[dict]) -> list:
    """Of one operation, from the top: a kind of shape (text), then its shapes (rows with one id), best ratio first."""
    by_id = {}
    for row in rows:
        by_id.setdefault(row["id"], []).append(row)
    lines = []
    for name in ORDER:
        own = [shape for shape in by_id.values() if kind(shape[0]) == name]
        lines += [name] * bool(own) + sorted(own, key=lambda shape: -ratio(shape[0]))
    return lines


def place(axes, value: float, y: float, style: dict, nth: int) -> None:
    """One point; a number at the edge steps aside for those of the types before it."""
    low, high = RATIOS
    if low <= value <= high:
        axes.plot(value, y, "o", clip_on=False, **style)
        return
    edge, marker, step = (high, ">", -1) if value > high else (low, "<", 1)
    axes.plot(edge, y, marker, clip_on=False, **style)
    away = (step * (14 + 18 * nth), 0)
    axes.annotate(f"{value:.2f}", (edge, y), away, textcoords="offset points", ha="center", va="center", fontsize=6,
                  color=style["color"])  # fmt: skip


def ratios(figure, report: dict) -> None:
    """For each operation a panel, for each shape a line, for each type a point."""
    shown = report["rows"]
    named = groups(shown)
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(named)}
    ops = {row["op"]: lines_of([r for r in shown if r["op"] == row["op"]]) for row in shown}
    figure.set_size_inches(8, 0.4 + sum(0.9 + 0.16 * len(lines) for lines in ops.values()))
    panels = figure.subplots(len(ops), 1, squeeze=False, height_ratios=[len(lines) for lines in ops.values()])[:, 0]
    for axes, (op, lines) in zip(panels, ops.items(), strict=True):
        axes.axvline(1, color="black", linewidth=1)
        own = {name: rows for name, rows in named.items() if rows[0]["op"] == op}
        for name, rows in own.items():
            mean = geomean(map(ratio, rows))
            axes.axvline(mean, color=colours[name], linestyle="--", linewidth=1)
            axes.plot([], [], "o", color=colours[name], label=f"{name}: {mean:.3f}")
        for y, line in enumerate(lines):
            for row in [] if isinstance(line, str) else line:
                nth = list(own).index(name := group(row))
                shift = 0.36 * (nth / max(len(own) - 1, 1) - 0.5)  # types of one ratio must not hide each other
                place(axes, ratio(row), y + shift, {"color": colours[name], "markersize": 3.5}, nth)
        words = [line if isinstance(line, str) else f"{line[0]['id']}: {label(line[0])}" for line in lines]
        for text, line in zip(axes.set_yticks(range(len(lines)), words), lines, strict=True):
            text.label1.set(fontsize=7, fontweight="bold" if isinstance(line, str) else "normal")
        ticks = [step / 10 for step in range(round(RATIOS[0] * 10), round(RATIOS[1] * 10) + 1)]
        axes.set(xscale="log", xlim=RATIOS, ylim=(len(lines) - 0.4, -0.6))
        axes.set_xticks(ticks, [f"{tick:.1f}" for tick in ticks])
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
        axes.grid(linewidth=0.3, color="#cccccc")
        axes.set_xlabel("time of the peer / time of libgemm (right of 1.0: libgemm is faster)")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2, alignment="left",
                    title="geometric mean (dashed line)", title_fontsize=8)  # fmt: skip
    title(figure, report, "libgemm beside its peer")


def roofline(figure, report: dict) -> None:
    """For each operation and type a panel: the floor as lines, libgemm as dots, the peer as circles."""
    shown = report["rows"]
    named = groups(shown)
    down = -(-len(named) // 2)
    figure.set_size_inches(8, 0.8 + 3 * down)
    panels = figure.subplots(down, 2, squeeze=False, sharex=True, sharey=True).flat
    ends = [flops(row) / traffic(row) for row in shown]
    ends = (min(ends) / 1.5, max(ends) * 1.5)
    for axes, (name, rows) in zip(panels, named.items(), strict=False):
        peak = FLOPS[rows[0]["dtype"]]
        roof = [ends[0], peak / BYTES, ends[1]]
        axes.plot(roof, [min(peak, BYTES * x) / 1e12 for x in roof], "-", color="black", linewidth=1)
        x = [flops(row) / traffic(row) for row in rows]
        for key, who, style in (
            ("peer_us", "peer", {"markerfacecolor": "none", "markersize": 5, "markeredgewidth": 0.8}),
            ("ours_us", "libgemm", {"markersize": 2.5}),
        ):
            colour = COLOURS[key == "peer_us"]
            axes.plot(x, [flops(row) / row[key] / 1e6 for row in rows], "o", color=colour, label=who, **style)
        axes.set(xscale="log", yscale="log", xlim=ends)
        axes.grid(linewidth=0.3, color="#cccccc")
        axes.set_title(f"{name}; floor {peak / 1e12:g} TFLOP/s, {BYTES / 1e12:g} TB/s")
        axes.legend(loc="lower right")
    for axes in panels:
        axes.set_axis_off()
    figure.supxlabel("flops / byte", fontsize=8)
    figure.supylabel("TFLOP/s", fontsize=8)
    title(figure, report, "Roofline")


PICTURES = {"ratios": ratios, "roofline": roofline}


def reports(folder: Path) -> list[Path]:
    """Of bench/run.py; what else is measured on a device stands beside them."""
    return sorted(path for path in folder.glob("*.json") if "." not in path.stem)


def picture_path(report: Path, name: str) -> Path:
    return report.with_suffix(f".{name}.svg")


def settle(figure) -> None:
    """Panels where the solver put them, but for the last digits: those depend on where its objects lie in memory."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(x, 4) for x in axes.get_position().bounds])


def draw(report: dict, name: str, path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    about = {"Date": None, "Creator": "bench/pictures.py", "Description": f"rows {digest(report)}"}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own settings must not show
        matplotlib.rcParams.update(STYLE)
        figure = Figure(layout="constrained")
        PICTURES[name](figure, report)
        settle(figure)
        figure.savefig(path, format="svg", metadata=about)


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
            draw(json.loads(report.read_text()), name, picture_path(report, name))
            print(f"wrote {picture_path(report, name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
