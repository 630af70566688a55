"""`make lock`: writes the requirements.lock files from pyproject.toml. Needs uv and a network; run by hand only.

Each file is whole: what one `make` needs, for every Python that pyproject.toml allows, on x86-64 and aarch64. Versions
already there are kept; to move one, delete its lines, or the file.
"""

import subprocess
import sys

from build.bootstrap import LOCKS, ROOT

EXTRAS = {"build": (), "test": ("--extra", "test"), "report": ("--extra", "bench")}
COMMAND = ("uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-config",
           "--default-index", "https://pypi.org/simple", "--custom-compile-command", "make lock")  # fmt: skip


def main() -> int:
    for extra, lock in LOCKS.items():
        agree = () if extra == "build" else ("-c", LOCKS["build"].relative_to(ROOT))
        command = [*COMMAND, *EXTRAS[extra], *agree, "-o", lock.relative_to(ROOT), "pyproject.toml"]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            print(f"{lock.relative_to(ROOT)} was not written: {' '.join(map(str, command))} failed", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FileNotFoundError:
        sys.exit("no uv here: pip install uv")
