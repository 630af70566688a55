"""Which rows are worth weighing where: runs aot/shortlist.c, compiled with a library's own table, on this machine."""

import concurrent.futures
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from aot.artifact import Artifact
from aot.manifest import PROGRAM, SELECT, blocks_together, canonical, code_of
from aot.render import render_shortlists
from build.cache import digest
from build.compile_all import BuildError
from build.compiler import words_of
from build.link import CSRC, run
from build.publish import files_in
from kernels.table.model import CONSTANTS
from kernels.table.spec import Variant

DRAWS = 1 << 21  # problems of each bucket: 18 s on two cores in all. Of half as many, choices lose some four times more
FLAGS = ["-O2", "-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-no-pie", "-I."]
UNRESOLVED = "-Wl,--unresolved-symbols=ignore-all"  # launchers and the driver, which choosing does not call
PARTS = ("cost.c", "rows.c", "shortlist.c", "split.c")  # of select/

Row = tuple[Variant, Artifact]


def host_compiler() -> tuple[str, ...]:
    """What makes programs that run here: HOSTCC, else CC."""
    words = words_of("HOSTCC") or words_of("CC", "cc")
    if not words or not shutil.which(words[0]):
        raise BuildError(f"no C compiler '{' '.join(words)}' for programs of the build: set HOSTCC")
    return words


def make_program(files: dict[str, str | bytes], main: Path, folder: Path, name: str = "shortlist") -> Path:
    """`main` compiled with the generated `files` and what chooses among their rows, in an empty folder."""
    for source in files_in(CSRC):
        (folder / source.relative_to(CSRC)).parent.mkdir(exist_ok=True, parents=True)
        shutil.copyfile(source, folder / source.relative_to(CSRC))
    for file in ("table.c", "types.h", "shortlists.c"):
        (folder / file).write_text(files[file])
    shutil.copyfile(PROGRAM, folder / PROGRAM.name)
    shutil.copyfile(main, folder / f"main_{name}.c")
    sources = [f"main_{name}.c", "table.c", "shortlists.c", *(f"select/{part}" for part in PARTS)]
    run([*host_compiler(), *FLAGS, UNRESOLVED, "-o", name, *sources], folder)
    return folder / name


def printed_by(program: Path, draws: int, jobs: int) -> str:
    """What the program says, in as many processes as jobs; each does buckets of its own."""

    def part(number: int) -> str:
        words = [str(program), str(draws), str(number), str(jobs)]
        try:
            done = subprocess.run(words, capture_output=True, text=True)
        except OSError as error:
            raise BuildError(f"{program.name} does not run here ({error.strerror}): set HOSTCC to a compiler for "
                             "this machine") from error  # fmt: skip
        if done.returncode:
            raise BuildError(f"{program.name} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return "".join(pool.map(part, range(jobs)))


def key_of(rows: list[Row]) -> str:
    """Of all that decides which row is chosen: not of kernels."""
    facts = [
        [v.to_dict(), vars(v.fit) if v.fit else None, a.shared_bytes, a.scratch_bytes, blocks_together(v, a)]
        for v, a in rows
    ]
    sources = [code_of(path.read_text()) for path in (*sorted(SELECT.iterdir()), PROGRAM, CSRC / "table.h")]
    return digest(canonical(facts), canonical(CONSTANTS), str(DRAWS), *sources)


def shortlists(rows: list[Row], files: dict[str, str | bytes], cache: Path, jobs: int) -> str:
    """C text of the shortlists of rendered rows, which are in the table's order; as the cache has it, or made now."""
    if not any(v.fit for v, _ in rows):
        return files["shortlists.c"]
    kept = cache / key_of(rows)
    if not kept.exists():
        with tempfile.TemporaryDirectory(prefix="shortlist-") as name:
            printed = printed_by(make_program(files, PROGRAM, Path(name)), DRAWS, jobs)
        cache.mkdir(parents=True, exist_ok=True)
        writing = kept.with_name(f"{kept.name}.{os.getpid()}")
        writing.write_text(printed)
        writing.rename(kept)
    return render_shortlists(kept.read_text())
