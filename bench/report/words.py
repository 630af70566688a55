"""Markdown of the README's written sections: paragraphs, lists, tables, and the marks around them. A leaf."""

import json
import textwrap
from collections.abc import Callable, Container
from pathlib import Path

WIDTH = 118
Builds = Container[str | None]  # whose figures are shown: of the report above, and of the tree, where that is known
Origin = Callable[[Path, str, dict], str]  # what a report is of: its file, the command that writes it, and itself
OTHER_BUILD = "It is **stale**: of another build than the report above. "
NOT_SHOWN = "Its times are not shown until it is run again."


def wrapped(text: str, indent: str = "") -> str:
    lines = textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines + "\n"


def listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])


def table(head: list[str], lines: list[list[str]]) -> str:
    rows = ["| " + " | ".join(line) + " |\n" for line in (head, *lines)]
    return "".join([rows[0], "|---" * len(head) + "|\n", *rows[1:]])


def section(
    report: Path, builds: Builds, where: Callable[[dict], str], say: Callable[[dict], tuple[str, str]]
) -> list[str]:  # fmt: skip
    """What `say` says of a report, words and a table, behind `where` it is of; nothing where there is none. One of
    another build than these shows no times."""
    if not report.is_file():
        return []
    found = json.loads(report.read_text())
    if found["build_id"] not in builds:
        said = where(found)  # which may have said so
        return [wrapped(f"{said} {'' if '**stale**' in said else OTHER_BUILD}{NOT_SHOWN}")]
    words, lines = say(found)
    return [wrapped(f"{where(found)} {words}"), lines]


def of_its_own(report: dict, head: str, built: str | None) -> str:
    """What stands behind figures of a report below a `head` that speaks of that build: nothing, or of which they are;
    where that is not the tree's either, they are stale."""
    build = report["build_id"]
    if build == head:
        return ""
    if build == built:
        return f" (build `{build[:8]}`)"
    return f" (**stale**: of build `{build[:16]}`, {report['date'][:10]})"


def stale(build: str, built: str | None) -> str:
    """Words for a report of another build than the tree's; none where dist/ is empty and nobody can say."""
    if built in (None, build):
        return ""
    return f" It is **stale**: the tree's library is build `{built[:16]}`, of which it says nothing."


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by bench/report/readme.py -->\n", f"<!-- end of {name} -->\n"


def parts_of(readme: str, name: str) -> tuple[str, str, str]:
    """What stands before a section's marks, between them and after them."""
    begin, end = marks(name)
    before, found_begin, rest = readme.partition(begin)
    between, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"README.md lacks its marks: {begin.strip()} and, below it, {end.strip()}")
    return before + begin, between, end + after
