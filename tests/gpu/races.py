"""Says whether racecheck found races, given what it printed: `python tests/gpu/races.py REPORT...`. Needs no GPU.

The REPORTs are the output of all parts of a check of the suite, or of several, on the library that is now in dist/. The
check `once` runs each variant:

    compute-sanitizer --tool racecheck --kernel-name kns=libgemm_ --print-limit 100000 \\
        python3 tests/gpu/run.py --only once --part 1/2 --out /tmp > REPORT

Without the name it looks at torch's kernels too, and takes twice as long.

racecheck reports the dispatch of Triton's warp_specialize, though a barrier of the whole block orders its accesses, and
what threads store for a warpgroup, a pipeline's stages and which tile is next, where one thread says for all that it is
read. Each pair of instructions it names is accepted only where tests/gpu/orders.py shows on the machine code that it is
one of these, and ordered. The tool names a kernel's entry, which many variants share. The suite names the variant
before it runs it, and waits for it, so a race is held against the one named last above it; should that be of another
entry, or have no write and read of shared memory at the two places, against every variant of the entry that has.
Checks of layers (`--only scaled_layers`, `whole_layers`, `routes`, `sums`) name no variants, and take no parts unless
they are told to. With --unfinished a check may have ended because its time was up (run.py --seconds), which is told.
Exit status 0: every part is there, and nothing else was reported. Anything else is printed, each kernel's races by
themselves, with exit status 1.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

from tests.gpu.orders import Orders  # noqa: E402

MARK = "========="  # begins each line of the tool; those that belong to the one above are indented
RACE = re.compile(r"(?:Error|Warning|Info): (?:Race reported between (.*)|Potential \w+ hazard detected at .*)")
ACCESS = re.compile(r"(\w+) (?:access|Thread \([\d, ]+\)) at (\S+)\+0x([0-9a-f]+)(?: in \S+)?(?: \[\d+ hazards?\])?")
SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed \(\d+ errors?, \d+ warnings?\)")
# What the suite prints: first, before each variant, and last.
BEGUN = re.compile(r"^build (\S+) on (.+), sm_(\d+): (\w+), part (\d+)/(\d+)$", re.M)
NOW = re.compile(r"now (\S+)")
ENDED = re.compile(r"^(\d+) passed, (\d+) failed in .*$", re.M)


class Unreadable(ValueError):
    """The text is not the whole output of a part of the check under racecheck, or has what cannot be judged."""


@dataclass(frozen=True, order=True)
class Pair:
    """Two instructions that racecheck saw race, by their offsets from the kernel's entry."""

    entry: str
    write: int
    read: int
    variant: str  # that the suite had named last; "" before the first

    def __str__(self) -> str:
        return f"{self.entry}: write at {self.write:#x}, read at {self.read:#x}"


@dataclass(frozen=True)
class Report:
    build: str
    device: str
    target: int
    check: str
    part: int
    parts: int
    passed: int  # of `once` variants
    unfinished: bool
    pairs: frozenset[Pair]
    others: tuple[str, ...]  # races that are not of a write and a read of one kernel


def one(pattern: re.Pattern, text: str, what: str) -> re.Match:
    found = list(pattern.finditer(text))
    if len(found) != 1:
        raise Unreadable(f"{what} stands {len(found)} times in it")
    return found[0]


def records(text: str) -> list[list[str]]:
    """What the tool said: each the variant named last above it, a first line, and the indented ones below that."""
    found, variant = [], ""
    for line in text.splitlines():
        said = line.removeprefix(MARK)
        if now := NOW.fullmatch(line):
            variant = now[1]
        elif said.startswith("  ") and found and said != line:
            found[-1].append(said.strip())
        elif said.strip() and said != line:
            found.append([variant, said.strip()])
    return found


def pairs_of(variant: str, race: re.Match, below: list[str]) -> tuple[set[Pair], list[str]]:
    """The first access of a race with each of the others, and what of it is no pair."""
    said = [words for words in (race[1], *below) if words and re.search(r"\b(access|Thread)\b", words)]
    accesses = [ACCESS.fullmatch(words.removeprefix("and ")) for words in said]
    if None in accesses or len(accesses) < 2:
        raise Unreadable(f"a race whose accesses cannot be read: {[race[0], *below]}")
    pairs, others = set(), []
    for other in accesses[1:]:
        places = {access[1]: int(access[3], 16) for access in (accesses[0], other)}
        if set(places) != {"Write", "Read"} or accesses[0][2] != other[2]:
            first, second = (f"{x[1].lower()} at 0x{x[3]}" for x in (accesses[0], other))
            names = accesses[0][2] if accesses[0][2] == other[2] else f"{accesses[0][2]} and {other[2]}"
            others.append(f"{names}: {first} and {second} are not a write and a read of one kernel")
        else:
            pairs.add(Pair(other[2], places["Write"], places["Read"], variant))
    return pairs, others


def read_report(text: str, unfinished: bool = False) -> Report:
    begun, ended = one(BEGUN, text, "the suite's first line"), one(ENDED, text, "the suite's last line")
    late = "out of time" in ended[0]
    if int(ended[2]) or (late and not unfinished):
        raise Unreadable(f"the suite did not pass: {ended[0]}")
    races, displayed, summaries, pairs, others = 0, 0, 0, set(), {}
    for variant, first, *below in records(text):
        if race := RACE.fullmatch(first):
            races += 1
            of_two, rest = pairs_of(variant, race, below)
            pairs |= of_two
            others |= dict.fromkeys(rest)
        elif summary := SUMMARY.fullmatch(first):
            summaries, displayed = summaries + 1, displayed + int(summary[1])
        elif first != "COMPUTE-SANITIZER" or below:
            raise Unreadable(f"the tool said: {first}")
    if not summaries or displayed != races:
        raise Unreadable(f"{summaries} lines RACECHECK SUMMARY speak of {displayed} hazards, {races} are printed")
    build, device, target, check, part, parts = begun.groups()
    return Report(
        build, device, int(target), check, int(part), int(parts), int(ended[1]), late, frozenset(pairs), tuple(others)
    )


def read_reports(texts: dict[str, str], unfinished: bool = False) -> tuple[list[Report], list[str]]:
    """The reports, and what is wrong with them, each and together."""
    reports, problems = [], []
    for name, text in texts.items():
        try:
            reports.append(read_report(text, unfinished))
        except Unreadable as error:
            problems.append(f"{name}: {error}")
    runs = {(r.build, r.device, r.target) for r in reports}
    if len(runs) > 1:
        problems.append(f"the reports are of different runs: {sorted(runs)}")
    for check, parts in sorted({(r.check, r.parts) for r in reports}):
        missing = set(range(1, parts + 1)) - {r.part for r in reports if (r.check, r.parts) == (check, parts)}
        problems += [f"{check}: part {part}/{parts} is missing" for part in sorted(missing)]
    return reports, problems


def judge(pairs: set[Pair], programs: dict[str, dict[str, Orders]]) -> list[str]:
    """What speaks against each pair; `programs` has the variants of each entry."""
    problems = []
    for pair in sorted(pairs):
        variants = programs.get(pair.entry, {})
        able = {name: p for name, p in variants.items() if p.may_be(pair.write, pair.read)}
        if pair.variant in able:
            able = {pair.variant: able[pair.variant]}
        if not variants:
            problems.append(f"{pair}: this library has no such kernel")
        elif not able:
            problems.append(f"{pair}: no such accesses of shared memory in any of its {len(variants)} variants")
        reasons = {name: p.unordered(pair.write, pair.read) for name, p in able.items()}
        problems += [f"{pair}, of {name}: {reason}" for name, reason in reasons.items() if reason]
    return problems


def handed_on(pairs: set[Pair], programs: dict[str, dict[str, Orders]]) -> int:
    """How many of these, which are ordered, are a stage's or a message's."""
    return sum(any(p.may_be(pair.write, pair.read) and p.not_dispatch(pair.write, pair.read)
                   for p in programs[pair.entry].values()) for pair in pairs)  # fmt: skip


def find_nvdisasm() -> str:
    """Triton's own, or a CUDA toolkit's."""
    found = sorted(ROOT.glob(".venv/lib/python*/site-packages/triton/backends/nvidia/bin/nvdisasm"))
    tool = str(found[0]) if found else shutil.which("nvdisasm")
    if not tool:
        raise SystemExit("no nvdisasm: `make build` installs one with Triton, a CUDA toolkit has one")
    return tool


def disassemble(tool: str, cubin: bytes) -> Orders:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return Orders(subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True).stdout)


def read_programs(library, entries: set[str], target: int) -> dict[str, dict[str, Orders]]:
    """The machine code of each of the library's variants with these entries; `library` is libgemm.inspect."""
    known = {v["name"]: v["entry"] for v in library.manifest()["variants"] if v["target"] == target}
    found = [v for v in library.variants() if known.get(v.name) in entries]
    tool = find_nvdisasm()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda v: disassemble(tool, library.cubin(v.index)), found)
        programs = {entry: {} for entry in entries & set(known.values())}
        for v, program in zip(found, made, strict=True):
            programs[known[v.name]][v.name] = program
    return programs


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, nargs="+")
    parser.add_argument("--unfinished", action="store_true", help="accept checks that ended because their time was up")
    args = parser.parse_args(argv)
    texts = {str(path): path.read_text(errors="replace") for path in args.report}
    import libgemm.inspect

    reports, problems = read_reports(texts, args.unfinished)
    here = libgemm.info()["build_id"]
    problems += [f"a report is of build {r.build}, the library of {here}" for r in reports if r.build != here]
    pairs = {pair for report in reports for pair in report.pairs}
    if not problems:
        programs = read_programs(libgemm.inspect, {pair.entry for pair in pairs}, reports[0].target)
        problems = judge(pairs, programs)
        problems += sorted({race for report in reports for race in report.others})
    for problem in problems:
        print(problem)
    if problems:
        print(f"not clean: {len(problems)} problems, {len(pairs)} pairs in {len(texts)} reports")
        return 1
    but = ""
    if pairs:
        stages = handed_on(pairs, programs)
        but = f" but for what the machine code orders ({len(pairs) - stages} of the warp_specialize dispatch"
        but += f", {stages} of stages and messages that one thread hands on)" if stages else ")"
    passed: Counter[str] = Counter()
    for report in reports:
        passed[report.check] += report.passed
    ran = ", ".join(f"{count} of {check}" for check, count in passed.items())
    late = ", not all of them: time was up" if any(r.unfinished for r in reports) else ""
    print(f"racecheck clean{but}: {ran}{late}, on {reports[0].device}, build {here[:16]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
