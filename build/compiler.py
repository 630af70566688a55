"""The C compiler and its flags: ours, then those that the environment adds. Runs it only to ask for its version."""

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass

from build.compile_all import BuildError

SONAME = "libgemm.so.1"
CFLAGS = [
    "-O2", "-std=c11", "-fPIC", "-fvisibility=hidden", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2",
    "-Wall", "-Wextra", "-Werror", "-Wdate-time", "-g0", "-I.",
]  # fmt: skip
LDFLAGS = [
    "-shared", "-s", f"-Wl,-soname,{SONAME}", "-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,--no-undefined",
    "-Wl,--build-id=sha1", "-Wl,-Bsymbolic", "-Wl,--version-script=exports.map",
]  # fmt: skip
# In glibc < 2.34 these functions live in libraries of their own; name those, so that the file runs there too.
LIBRARIES = ["-Wl,--no-as-needed", "-l:libdl.so.2", "-l:libpthread.so.0"]


def words_of(name: str, otherwise: str = "") -> tuple[str, ...]:
    """An environment variable as the shell would split it."""
    text = os.environ.get(name) or otherwise
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BuildError(f"{name} = {text!r}: {error}") from error


@dataclass(frozen=True)
class Compiler:
    """CC, and the user's CFLAGS and LDFLAGS, which come after ours and so have the last word."""

    words: tuple[str, ...] = ("cc",)
    cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()

    @staticmethod
    def of_environment() -> "Compiler":
        return Compiler(words_of("CC", "cc"), words_of("CFLAGS"), words_of("LDFLAGS"))

    def command(self, output: str, sources: list[str]) -> list[str]:
        """The line that makes a shared library of C sources, in their folder."""
        if not self.words or not shutil.which(self.words[0]):
            raise BuildError(f"no C compiler '{' '.join(self.words)}': install gcc (Debian: gcc, Fedora: gcc)")
        flags = [*CFLAGS, *self.cflags, *LDFLAGS, *self.ldflags]
        return [*self.words, *flags, "-o", output, *sources, *LIBRARIES]

    def identity(self) -> list:
        """All that decides what it makes of the same sources."""
        command = self.command("", [])
        done = subprocess.run([*self.words, "--version"], capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"{' '.join(self.words)} --version failed: {done.stderr.strip() or done.returncode}")
        return [command, done.stdout]
