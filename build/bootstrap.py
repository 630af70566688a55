"""Makes .venv with pinned dependencies: `python3 build/bootstrap.py build|test|report`. Stdlib only; builds nothing.

Does nothing when .venv already holds what pyproject.toml asks for. PIP_CONSTRAINT and pip's own settings apply.
"""

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
NEEDED_PYTHON = (3, 10)
EXTRAS = {"build": "", "test": "[test]", "report": "[bench]"}


def missing_prerequisites() -> list[str]:
    """One line for each thing the machine lacks, with the package that has it."""
    missing = []
    if sys.version_info < NEEDED_PYTHON:
        found = ".".join(map(str, sys.version_info[:2]))
        missing.append(f"Python {'.'.join(map(str, NEEDED_PYTHON))} or newer; this is {found}: make PYTHON=python3.12")
    if not importlib.util.find_spec("venv") or not importlib.util.find_spec("ensurepip"):
        missing.append("Python's venv module: install python3-venv (Debian, Ubuntu) or python3-pip (Fedora)")
    if not shutil.which(shlex.split(os.environ.get("CC") or "cc")[0]):
        missing.append("a C compiler: install gcc (Debian, Ubuntu, Fedora), or set CC")
    return missing


def wanted(extra: str) -> str:
    """What the stamp of a finished installation says."""
    content = (ROOT / "pyproject.toml").read_bytes() + sys.version.encode() + extra.encode()
    return hashlib.sha256(content).hexdigest()


def stamp(extra: str) -> Path:
    return VENV / f".installed-{extra}"


def installed(extra: str) -> bool:
    return PYTHON.exists() and stamp(extra).exists() and stamp(extra).read_text() == wanted(extra)


def install(extra: str) -> None:
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", ""], check=False).returncode:
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
    packages = f"{ROOT}{EXTRAS[extra]}"
    command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", packages]
    subprocess.run(command, check=True)
    for done in ("build", extra):  # an installation for tests serves the build too
        stamp(done).write_text(wanted(done))


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in EXTRAS:
        print(f"usage: {sys.argv[0]} {'|'.join(EXTRAS)}", file=sys.stderr)
        return 2
    extra = sys.argv[1]
    if installed(extra):
        return 0
    missing = missing_prerequisites()
    for line in missing:
        print(f"libgemm cannot be built here: missing is {line}", file=sys.stderr)
    if missing:
        return 1
    print(f"installing what `make {extra}` needs into {VENV} ...", flush=True)
    try:
        install(extra)
    except subprocess.CalledProcessError as error:
        print(f"installing into {VENV} failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
