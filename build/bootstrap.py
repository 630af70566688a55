"""Makes .venv with pinned dependencies: `python3 build/bootstrap.py build|test|report`. Stdlib only; builds nothing.

Does nothing when .venv already holds what is asked for. What to install is in requirements.lock files, with hashes, so
that two machines get the same bytes; only the tests' torch is in none. PIP_CONSTRAINT and pip's own settings apply.
"""

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
OLDEST, NEWEST = (3, 11), (3, 15)  # Python, by Triton's choice
LOCKS = {name: ROOT / folder / "requirements.lock" for name, folder in
         (("build", "build"), ("test", "tests"), ("report", "bench"))}  # fmt: skip
TORCH_CPU = "https://download.pytorch.org/whl/cpu"


def missing_prerequisites() -> list[str]:
    """One line for each thing the machine lacks, with the package that has it."""
    missing = []
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
        found = platform.python_version()
        missing.append(f"a Python from {oldest} to {newest}; this is {found}: make PYTHON=python3.12")
    if not importlib.util.find_spec("venv") or not importlib.util.find_spec("ensurepip"):
        missing.append("Python's venv module: install python3-venv (Debian, Ubuntu) or python3-pip (Fedora)")
    if not importlib.util.find_spec("_lzma"):
        missing.append(
            "Python's lzma module: this Python was built without liblzma; take another, or build it with that"
        )
    if not shutil.which(shlex.split(os.environ.get("CC") or "cc")[0]):
        missing.append("a C compiler: install gcc (Debian, Ubuntu, Fedora), or set CC")
    return missing


def interpreter() -> Path:
    """The Python that runs this; of a virtual environment, the one it was made from."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def wanted(extra: str) -> str:
    """What the stamp of a finished installation says."""
    made_by = f"{interpreter()} {sys.version}".encode()
    parts = (LOCKS[extra].read_bytes(), (ROOT / "pyproject.toml").read_bytes(), made_by)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def stamp(extra: str) -> Path:
    return VENV / f".installed-{extra}"


def settings() -> dict[str, str]:
    """What the venv module wrote about the environment it made; empty where there is none."""
    try:
        lines = (VENV / "pyvenv.cfg").read_text().splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def why_anew() -> str:
    """Why the environment must be made, in words; "" where the one that is there can stay."""
    if not VENV.exists():
        return "there is none yet"
    made, here = settings(), VENV.resolve()
    if not made or not PYTHON.exists():
        return "the one there is broken: its pyvenv.cfg or its interpreter is gone"
    if (made.get("executable"), made.get("version")) != (str(interpreter()), platform.python_version()):
        by = f"{made.get('executable', made.get('home'))}, Python {made.get('version')}"
        return f"the one there was made by {by}; this is {interpreter()}, Python {platform.python_version()}"
    if not made.get("command", "").endswith(f" {here}"):
        return f"the one there was moved; it was made by: {made.get('command')}"
    if subprocess.run([PYTHON, "-c", ""], capture_output=True, check=False).returncode:
        return "the one there is broken: its interpreter does not start"
    return ""


def installed(extra: str) -> bool:
    return not why_anew() and stamp(extra).exists() and stamp(extra).read_text() == wanted(extra)


def pip(*words: str, quiet: bool = False) -> None:
    """pip install; of what it says, only what it downloads is passed on, and its errors unless `quiet`."""
    command = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", *words]
    errors = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        for line in process.stdout:
            if line.lstrip().startswith("Downloading"):
                print(f"  {line.strip()}", flush=True)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def install_torch() -> None:
    """The CPU build, some 200 MB, where its index answers; else what pip's settings give, CUDA's gigabytes perhaps."""
    import tomllib  # only now: an older Python gets a sentence first

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (torch,) = project["optional-dependencies"]["torch"]
    try:
        # Only torch from there, and one short try: behind a firewall nothing answers until the time is up.
        pip("--index-url", TORCH_CPU, "--retries", "1", "--timeout", "15", "--no-deps", torch, quiet=True)
    except subprocess.CalledProcessError:
        print(f"  no {torch} from {TORCH_CPU}: taking it from where pip takes all else", flush=True)
    pip(torch, *project["dependencies"])  # what torch needs; our pins go along, so that it moves none of them


def install(extra: str) -> None:
    reason = why_anew()
    if reason:
        print(f"making {VENV}: {reason}", flush=True)
        subprocess.run([interpreter(), "-m", "venv", "--clear", VENV.resolve()], check=True)
    pip("--require-hashes", "--no-deps", "-r", str(LOCKS[extra]))
    if extra == "test":
        install_torch()
    for done in {"build", extra}:  # an installation for tests serves the build too
        stamp(done).write_text(wanted(done))


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in LOCKS:
        print(f"usage: {sys.argv[0]} {'|'.join(LOCKS)}", file=sys.stderr)
        return 2
    extra = sys.argv[1]
    if installed(extra):
        return 0
    missing = missing_prerequisites()
    for line in missing:
        print(f"libgemm cannot be built here: missing is {line}", file=sys.stderr)
    if missing:
        return 1
    print(f"installing what `make {extra}` needs into {VENV} (Triton is 290 MB of it) ...", flush=True)
    started = time.monotonic()
    try:
        install(extra)
    except subprocess.CalledProcessError as error:
        print(f"installing into {VENV} failed: {error}", file=sys.stderr)
        return 1
    print(f"installed in {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
