"""Fuzz for as long as is wanted: `make fuzz SECONDS=3600`. Prints how many inputs ran; stops at the first finding.

`python tests/fuzz/run.py SECONDS keep` then adds the inputs that reached more to the corpus, the fewest that do
(libFuzzer's merge). Not for pytest.
"""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.fuzz.targets import (  # noqa: E402
    FILES,
    FuzzError,
    build,
    build_threads,
    fuzz,
    has_libfuzzer,
    read_corpus,
    run_threads,
    spread,
    write_corpus,
    write_sources,
)

THREAD_SECONDS = 60  # at most: all that differs from round to round is how threads meet


def keep(program: Path) -> None:
    """Make the corpus the fewest of old and new inputs that reach all that either did."""
    folder = program.parent
    old, merged = spread(read_corpus(program.name), folder / "old"), folder / "merged"
    merged.mkdir()
    subprocess.run([program, "-merge=1", merged, old, folder / "found"], check=True, capture_output=True, cwd=folder)
    write_corpus(program.name, [path.read_bytes() for path in merged.iterdir()])


def run(folder: Path, seconds: int, kept: bool) -> None:
    seed, libfuzzer = int(time.time()), has_libfuzzer()
    sources = write_sources(folder / "sources")
    programs = [build(name, sources, folder / name, libfuzzer) for name in FILES]
    threads = build_threads(sources, folder / "threads")
    print(f"seed {seed}, {'libFuzzer' if libfuzzer else 'standalone.c'}, {seconds} s each, in {folder}", flush=True)
    with ThreadPoolExecutor(len(programs)) as pool:
        running = {p.name: pool.submit(fuzz, p, seed, seconds, libfuzzer) for p in programs}
    failures = [error for future in running.values() if (error := future.exception())]
    for name, future in running.items():
        if not future.exception():
            print(f"{name}: {future.result().inputs} inputs, nothing found")
    if failures:
        raise failures[0]
    print(f"threads: {run_threads(threads, seed, min(seconds, THREAD_SECONDS)).inputs} calls, no race found")
    if kept:
        for program in programs:
            keep(program)


def main() -> int:
    words = sys.argv[1:]
    if not words or not words[0].isdigit() or words[1:] not in ([], ["keep"]):
        print(f"{__doc__.splitlines()[0]}\nusage: run.py SECONDS [keep]; given: {words}", file=sys.stderr)
        return 2
    if words[1:] and not has_libfuzzer():
        print("keep needs libFuzzer's merge: install clang", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="libgemm-fuzz-"))  # stays: it has what is found
    try:
        run(folder, int(words[0]), bool(words[1:]))
    except FuzzError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
