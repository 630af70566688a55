"""What the pictures of a benchmark report show, drawn into matplotlib figures that pictures.py makes and keeps.

A colour means a type, grey the peer, in every picture. Text is 7 points or more: a picture is 8 inches wide and a
README shows it about 800 pixels wide.
"""

from bench.report.drawn import summarise
from bench.report.rows import CUBLAS, ORDER, geomean, group, groups, kind, ratio
from bench.suites.roofline import BYTES, FLOPS, WIDTH, flops, traffic

WIDE = 8.0  # inches
TYPES = {"bf16": "#0b6fa4", "f16": "#b7791f", "f32": "#3a7d44"}
PEER = "#777777"
TICKS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
SLOWER = 0.97  # the slowest shape is named where it is below


def title(figure, report: dict, words: str) -> None:
    figure.suptitle(f"{words}: {report['device']}, build {report['build_id'][:16]}", fontsize=9)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.06)  # fonts differ: a wider one is not cut either


def peers(rows: list[dict]) -> list[str]:
    """Who the rows are compared with, a line each. One that knows no f16 multiplies the same numbers in bf16."""
    names = dict.fromkeys(row["peer"].removesuffix(" (bf16)") for row in rows)
    lines = [name + " (cuBLAS)" * (name in CUBLAS) for name in names]
    return lines + ["(f16 beside its bf16)"] * any(row["peer"].endswith(" (bf16)") for row in rows)


def by_type(rows: list[dict]) -> dict[str, list[dict]]:
    return {name: own for name in WIDTH if (own := [row for row in rows if row["dtype"] == name])}


def by_kind(rows: list[dict]) -> dict[str, list[dict]]:
    return {name: own for name in ORDER if (own := [row for row in rows if kind(row) == name])}


def limits(rows: list[dict]) -> tuple[float, float]:
    """Of the ratios' axis: all of the rows, and room beside them for a name and a number."""
    found = [ratio(row) for row in rows]
    return min(0.9, *found) / 1.15, max(1.2, *found) * 1.25


def rule(axes, bands: dict[str, list[dict]], ends: tuple[float, float], height: float) -> None:
    """The ratios' axis, a band for each label, its peers at the right."""
    ticks = [tick for tick in TICKS if ends[0] <= tick <= ends[1]]
    tops = [height * i for i in range(len(bands))]
    axes.set(xscale="log", xlim=ends, ylim=(tops[-1] + 0.5 * height, -0.5 * height))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(tops, list(bands))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", linewidth=0.3, color="#cccccc")
    axes.axvline(1, color=PEER, linewidth=1.2)
    for y in tops[1:]:
        axes.axhline(y - 0.5 * height, color="#cccccc", linewidth=0.3)
    names = axes.secondary_yaxis("right")
    names.set_yticks(tops, ["\n".join(peers(rows)) for rows in bands.values()], color=PEER)
    names.tick_params(length=0)
    names.spines[:].set_visible(False)


def lines(bands: dict[str, list[dict]], height: float):
    """Of each band and type: its place, its type and its rows."""
    for i, rows in enumerate(bands.values()):
        types = by_type(rows)
        for nth, (dtype, own) in enumerate(types.items()):
            yield height * i + nth - (len(types) - 1) / 2, dtype, own


def number(axes, y: float, dtype: str, rows: list[dict]) -> None:
    """The mean in figures, right of all shapes."""
    axes.annotate(f"{geomean(map(ratio, rows)):.2f}", (max(map(ratio, rows)), y), (6, 0), textcoords="offset points",
                  va="center", fontsize=7, color=TYPES[dtype])  # fmt: skip


def legend(figure, rows: list[dict], more: list) -> None:
    """What colours and marks mean, under the picture."""
    from matplotlib.lines import Line2D

    own = [Line2D([], [], linestyle="", marker="s", color=TYPES[name], label=name) for name in by_type(rows)]
    own += [Line2D([], [], label=words, **style) for words, style in more]
    figure.legend(handles=own, loc="outside lower center", ncols=len(own), columnspacing=1.2, handletextpad=0.4)


RIGHT = "time of the peer (named at the right) / time of libgemm; right of 1 libgemm is faster"
DRAWN = {"linestyle": "", "marker": "D", "markerfacecolor": "none", "markersize": 4.5}
MEAN = {"linestyle": "", "marker": "o", "markersize": 5}


def summary(figure, report: dict) -> None:
    """For each operation a band, for each type the mean and the range of its shapes; diamonds for drawn shapes."""
    rows, height = report["rows"], 4.6
    bands = {op: [row for row in rows if row["op"] == op] for op in dict.fromkeys(row["op"] for row in rows)}
    figure.set_size_inches(WIDE, 1.1 + 0.5 * len(bands))
    axes = figure.subplots()
    rule(axes, bands, limits(rows), height)
    drawn = report.get("drawn", {}).get("rows", [])
    drawn = summarise([row for row in drawn if row["dtype"] == "bf16"])  # of f16 there is only a sample
    for y, dtype, own in lines(bands, height):
        found, colour = [ratio(row) for row in own], TYPES[dtype]
        axes.plot([min(found), max(found)], [y, y], "-", color=colour, linewidth=1.2)
        axes.plot(geomean(found), y, color=colour, **MEAN)
        number(axes, y, dtype, own)
        for one in drawn.get(group(own[0]), {}).values():
            axes.plot(one["torch"]["mean"], y - 0.9, color=colour, **DRAWN)
    axes.set_xlabel(RIGHT)
    more = [("mean and range of the benchmark", {"color": "black", "marker": "o"})]
    build = report["drawn"]["build_id"] if drawn else ""
    whose = f" (build {build[:16]})" * (build != report["build_id"])
    more += [(f"means of shapes drawn, by kind{whose}", {"color": "black", **DRAWN})] * bool(drawn)
    legend(figure, rows, more)
    title(figure, report, "libgemm beside its peers")


def ratios(figure, report: dict) -> None:
    """For each kind of shape a band, for each type a line of dots, one for each shape, and their mean."""
    rows, height = report["rows"], 3.6
    parts = {"dense products": [], "grouped products": []}
    for row in rows:
        parts["grouped products" if "groups" in row else "dense products"].append(row)
    shown = {name: by_kind(own) for name, own in parts.items() if own}
    counts = [len(bands) for bands in shown.values()]
    figure.set_size_inches(WIDE, 0.9 + sum(0.55 + 0.45 * count for count in counts))
    panels = figure.subplots(len(shown), 1, squeeze=False, height_ratios=counts)[:, 0]
    for axes, (name, bands) in zip(panels, shown.items(), strict=True):
        rule(axes, bands, limits(parts[name]), height)
        for y, dtype, own in lines(bands, height):
            axes.plot([ratio(row) for row in own], [y] * len(own), "o", color=TYPES[dtype], markersize=3, alpha=0.7)
            axes.plot(geomean(map(ratio, own)), y, "|", color=TYPES[dtype], markersize=9, markeredgewidth=1.6)
            number(axes, y, dtype, own)
            worst = min(own, key=ratio)
            if ratio(worst) < SLOWER:
                axes.annotate(worst["id"], (ratio(worst), y), (-5, 0), textcoords="offset points", ha="right",
                              va="center", fontsize=7, color=TYPES[dtype])  # fmt: skip
        axes.set_title(name, loc="left", fontweight="bold")
    panels[-1].set_xlabel(RIGHT)
    dot = {"linestyle": "", "marker": "o", "markersize": 3, "color": "black"}
    mean = {"linestyle": "", "marker": "|", "markersize": 9, "markeredgewidth": 1.6, "color": "black"}
    legend(figure, rows, [("a shape", dot), ("geometric mean, in figures at the right", mean)])
    title(figure, report, "Each shape beside its peer")


def roofline(figure, report: dict) -> None:
    """For each operation and type a panel: the roofline, libgemm as dots, the peer as circles."""
    rows, named = report["rows"], groups(report["rows"])
    across = min(3, len(named))
    down = -(-len(named) // across)
    figure.set_size_inches(WIDE, 0.8 + 2.05 * down)
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel()
    ends = [flops(row) / traffic(row) for row in rows]
    ends = (min(ends) / 1.5, max(ends) * 1.5)
    circle = {"linestyle": "", "marker": "o", "markerfacecolor": "none", "markeredgewidth": 0.8, "color": PEER}
    for axes, (name, own) in zip(panels, named.items(), strict=False):
        peak, peer = FLOPS[own[0]["dtype"]], own[0]["peer"]
        roof = [ends[0], peak / BYTES, ends[1]]
        axes.plot(roof, [min(peak, BYTES * x) / 1e12 for x in roof], "-", color="black", linewidth=1)
        x = [flops(row) / traffic(row) for row in own]
        axes.plot(x, [flops(row) / row["peer_us"] / 1e6 for row in own], markersize=5, **circle)
        colour = TYPES[own[0]["dtype"]]
        axes.plot(x, [flops(row) / row["ours_us"] / 1e6 for row in own], "o", color=colour, markersize=2.5)
        axes.set_title(f"{name}\nbeside {peer}{' (cuBLAS)' * (peer in CUBLAS)}")
        axes.set(xscale="log", yscale="log", xlim=ends)
        axes.grid(linewidth=0.3, color="#cccccc")
        axes.xaxis.set_major_formatter("{x:g}")  # powers would be set in small type
        axes.yaxis.set_major_formatter("{x:g}")
    for axes in panels[len(named) :]:
        axes.set_axis_off()
    for axes in panels[max(len(named) - across, 0) :]:
        axes.set_xlabel("flops / byte")
    figure.supylabel("TFLOP/s", fontsize=8)
    rates = [f"{FLOPS[dtype] / 1e12:g} ({dtype})" for dtype in by_type(rows)]
    roof = f"roofline: {', '.join(rates)} TFLOP/s, {BYTES / 1e12:g} TB/s"
    legend(figure, rows, [("the peer", circle), (roof, {"color": "black", "linewidth": 1})])
    title(figure, report, "Roofline")


def losses(figure, report: dict) -> None:
    """Training losses by libgemm's layers and by torch's, and what they are apart at each step."""
    figure.set_size_inches(WIDE, 2.6)
    axes, apart = figure.subplots(1, 2, width_ratios=[3, 2])
    ours, same, other = report["curves"].values()
    styles = zip(report["curves"], (TYPES["bf16"], PEER, PEER), ("-", "--", ":"), strict=True)
    for name, colour, line in styles:
        axes.plot(report["curves"][name], line, color=colour, linewidth=1, label=name)
    axes.set(xlabel="step", ylabel="loss", title="cross entropy, nats a token")
    axes.legend()
    apart.plot([abs(x - y) for x, y in zip(other, same, strict=True)], ":", color=PEER, linewidth=1,
               label="torch, another seed")  # fmt: skip
    apart.plot([abs(x - y) for x, y in zip(ours, same, strict=True)], color=TYPES["bf16"], linewidth=1, label="libgemm")
    apart.set(xlabel="step", yscale="log", title="distance from torch of the same seed")
    apart.legend()
    title(figure, report, "Four layers with experts, trained from one seed")


PICTURES = {"summary": summary, "ratios": ratios, "roofline": roofline}
BESIDE = {"losses": losses}  # of the report of that name, which stands beside the main one
