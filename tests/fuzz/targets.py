"""Compiles and runs the fuzz targets: with clang under libFuzzer, with gcc alone under standalone.c. Not for pytest.

A corpus is one file, of inputs with their lengths before them, so that it is one file to review, move and replay.
"""

import functools
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from build.link import CSRC
from tests.fuzz.table import generated

FUZZ = Path(__file__).resolve().parent
FAKECUDA = FUZZ.parent / "fakecuda"
CORPUS = FUZZ / "corpus"
MOST_BYTES = 400  # of one input that libFuzzer makes
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer"]
MEMORY = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
THREAD = ["-fsanitize=thread"]
ENGINE = ["-fsanitize=fuzzer"]
# The stand-in has one lock, by which threads would seem to wait for one another: the sanitizer is told not to look.
UNSEEN = "called_from_lib:libcuda.so.1\n"

# target -> its own files
FILES = {
    "calls": ("bytes.c", "world.c", "seen.c", "check.c", "check_pointers.c", "operations.c", "dense.c",
              "packed.c", "pointers.c", "layers.c", "queries.c", "calls.c"),
    "unpacked": ("unpacked.c",),
}  # fmt: skip


class FuzzError(RuntimeError):
    """A target that did not compile, or ended otherwise than by its time: has the program's own words."""


@dataclass(frozen=True)
class Outcome:
    inputs: int
    output: str


def compiles(compiler: str, *flags: str) -> bool:
    """Whether a compiler is there and can link a program with these flags."""
    program = "#include <stdint.h>\nint LLVMFuzzerTestOneInput(const uint8_t *d, unsigned long n) { return !d && n; }\n"
    main = "" if set(ENGINE) <= set(flags) else "int main(void) { return 0; }\n"
    command = [compiler, *flags, "-x", "c", "-", "-o", "/dev/null"]
    return (
        bool(shutil.which(compiler))
        and not subprocess.run(command, input=program + main, text=True, capture_output=True).returncode
    )


@functools.cache
def has_libfuzzer() -> bool:
    return compiles("clang", *MEMORY, *ENGINE)


def compile_c(compiler: str, flags: list[str], sources: Path, output: Path, *files) -> None:
    """In the folder of the core's sources, where its blobs are too."""
    command = [compiler, *FLAGS, *flags, f"-I{sources}", f"-I{FUZZ}", f"-I{FAKECUDA}", "-o", str(output)]
    done = subprocess.run(
        [*command, *map(str, files), "-ldl", "-lpthread"], cwd=sources, capture_output=True, text=True
    )
    if done.returncode:
        raise FuzzError(f"{output.name} does not compile:\n{done.stderr[-4000:]}")


def write_sources(folder: Path) -> Path:
    """The C core and what is generated for the made-up table."""
    shutil.copytree(CSRC, folder)
    for name, content in generated().items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def core(sources: Path) -> list[Path]:
    return sorted(path for path in sources.rglob("*.c") if path.name != "signatures.c")


def build_driver(compiler: str, flags: list[str], sources: Path, folder: Path) -> Path:
    """The stand-in in a folder that its program looks in."""
    folder.mkdir()
    shared = ["-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    compile_c(compiler, [*flags, *shared], sources, folder / "libcuda.so.1", *sorted(FAKECUDA.glob("*.c")))
    return folder / "libcuda.so.1"


def build(name: str, sources: Path, folder: Path, libfuzzer: bool) -> Path:
    """One target's program, beside the stand-in driver under the same sanitizers."""
    compiler, engine = ("clang", list(ENGINE)) if libfuzzer else ("cc", [])
    driver = build_driver(compiler, MEMORY, sources, folder)
    if libfuzzer:  # what the target itself does is nothing to search for
        (folder / "unsearched").write_text(f"src:{FUZZ}/*\n")
        engine.append(f"-fsanitize-coverage-ignorelist={folder / 'unsearched'}")
    own = [FUZZ / file for file in (*FILES[name], *(() if libfuzzer else ("standalone.c",)))]
    if name == "calls":
        own.append(sources / "signatures.c")
    flags = [*MEMORY, *engine, f"-Wl,-rpath,{folder}"]
    compile_c(compiler, flags, sources, folder / name, *core(sources), *own, driver)
    return folder / name


def build_threads(sources: Path, folder: Path) -> Path:
    """The program for the thread sanitizer; the stand-in beside it has none."""
    driver = build_driver("cc", [], sources, folder)
    flags = [*THREAD, f"-Wl,-rpath,{folder}"]
    compile_c("cc", flags, sources, folder / "threads", *core(sources), FUZZ / "threads.c", driver)
    (folder / "unseen").write_text(UNSEEN)
    return folder / "threads"


# ---- Corpora ----


def read_corpus(name: str) -> list[bytes]:
    data, inputs = (CORPUS / f"{name}.bin").read_bytes(), []
    while data:
        (size,) = struct.unpack_from("<H", data)
        inputs.append(data[2 : 2 + size])
        data = data[2 + size :]
    return inputs


def write_corpus(name: str, inputs: list[bytes]) -> None:
    ordered = sorted(set(inputs), key=lambda i: (len(i), i))
    (CORPUS / f"{name}.bin").write_bytes(b"".join(struct.pack("<H", len(i)) + i for i in ordered))


def spread(inputs: list[bytes], folder: Path) -> Path:
    """One file for each input, as libFuzzer wants them."""
    folder.mkdir()
    for i, data in enumerate(inputs):
        (folder / f"{i:05}").write_bytes(data)
    return folder


# ---- Running ----


def run(command: list, seconds: int, folder: Path, count: str, **environment: str) -> Outcome:
    """A program that ends after so many seconds; the first group of `count` in its output is the number of inputs."""
    slack = 300  # of a busy machine, and for the corpus
    done = subprocess.run(list(map(str, command)), cwd=folder, text=True, errors="replace", env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds + slack)  # fmt: skip
    found = re.search(count, done.stdout)
    if done.returncode or not found:
        raise FuzzError(f"{Path(command[0]).name} ended with {done.returncode}; it left files in {folder}:\n"
                        f"{done.stdout[-6000:]}")  # fmt: skip
    return Outcome(int(found[1]), done.stdout)


def fuzz(program: Path, seed: int, seconds: int, libfuzzer: bool) -> Outcome:
    """Replay the whole corpus, then go on with changed inputs. What is found stands in the program's folder."""
    folder, name = program.parent, program.name
    if not libfuzzer:
        return run([program, CORPUS / f"{name}.bin", seed, seconds], seconds, folder, r"(\d+) inputs")
    spread(read_corpus(name), folder / "corpus")
    (folder / "found").mkdir()
    options = [f"-seed={seed}", f"-max_total_time={max(seconds, 1)}", f"-max_len={MOST_BYTES}", "-entropic=0"]
    return run([program, *options, "found", "corpus"], seconds, folder, r"Done (\d+) runs")


def run_threads(program: Path, seed: int, seconds: int) -> Outcome:
    options = f"halt_on_error=1 suppressions={program.parent / 'unseen'}"
    return run([program, seed, seconds], seconds, program.parent, r"(\d+) calls", TSAN_OPTIONS=options)
