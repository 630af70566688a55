"""What the README says of shapes drawn at random: a sentence on the first screen, tables, regret. Measures nothing."""

from bench.report.drawn import TORCH, families, figure, regret, summarise
from bench.report.words import listed, of_its_own, stale, table, wrapped


def drawn_words(report: dict, name: str, built: str | None = None) -> str:
    """What the same operation gave on shapes nobody tuned for. `built`: the tree's build, where that is known."""
    kinds = summarise(report.get("drawn", {}).get("rows", [])).get(name)
    if kinds is None:
        return "On other shapes nothing was measured."
    count = sum(one["shapes"] for one in kinds.values())
    means = [f"{one['torch']['mean']:.2f} ({kind})" for kind, one in kinds.items()]
    other = of_its_own(report["drawn"], report["build_id"], built)
    return f"Over {count} shapes drawn at random{other}: {listed(means)}."


def family_table(op: str, rows: list[dict]) -> str:
    """One operation's kinds, and its sample in f16. cuBLASLt has columns where it was measured."""
    kinds = {name: one for found in summarise(rows).values() for name, one in found.items()}
    columns = {f"`{TORCH[op]}`, mean": ("torch", "mean"), "5th percentile": ("torch", "low")}
    if lt := any("cublaslt" in one for one in kinds.values()):
        columns |= {"cuBLASLt's best, mean": ("cublaslt", "mean"), "its 5th percentile": ("cublaslt", "low")}
    columns |= {"of the roofline": ("share",)} | ({"cuBLASLt's": ("cublaslt", "share")} if lt else {})
    lines = [[name, str(one["shapes"]), *(figure(one, *at) for at in columns.values())] for name, one in kinds.items()]
    return table([f"{op} bf16", "shapes", *columns], lines)


def regret_words(rows: list[dict]) -> list[str]:
    """Of the choice, over all kinds of an operation."""
    words = []
    for family, kinds in families(rows).items():
        found = regret([row for own in kinds.values() for row in own])
        if found["shapes"]:
            median, p95 = (f"{found[key] * 100:.0f} %" for key in ("median", "p95"))
            words.append(f"on {found['shapes']} of {family}, median {median}, 95th percentile {p95}")
    what = "Regret of the choice on drawn shapes, against the best kernel in the library:"
    return [wrapped(f"{what} {'; '.join(words)}.")] if words else []


def drawn_table(report: dict, where: str, built: str | None = None) -> list[str]:
    """Shapes drawn at random, with what they are and how far down they go. `where`: their file; `built`: the tree's
    build, where that is known."""
    drawn = report.get("drawn")
    if not drawn:
        return []
    near = drawn["cublaslt"].get("near")  # reports from before there was a bound have none
    whose = f" of those whose result is within {near:.0%} of torch.mm's" if near else ""
    words = (
        f"Shapes drawn at random (`{where}`, `make bench`), none of them tuned for: {drawn['device']}, "
        f"{drawn['date'][:10]}, build `{drawn['build_id'][:16]}`, seed {drawn['seed']}; each run draws anew. Ratios "
        "and shares as above; cuBLASLt's best is the fastest of all algorithms that its heuristic names"
        f"{whose}.{stale(drawn['build_id'], built)}"
    )
    if drawn["build_id"] not in (report["build_id"], built):
        words += (
            f" These figures are **stale**: build `{report['build_id'][:16]}`, of the tables above, has not been "
            "measured on drawn shapes."
        )
    if missing := drawn["cublaslt"].get("missing"):
        words += f" cuBLASLt was not measured: {missing}."
    found = [wrapped(words)]
    for op, origin in drawn["drawn_from"].items():
        if own := [row for row in drawn["rows"] if row["op"] == op]:
            found += [wrapped(f"{op}: {origin}."), family_table(op, own)]
    return found + regret_words(drawn["rows"])
