"""What is installed to build and test: locks with hashes, the right Python, the CPU build of torch. No network."""

import re
import shutil
import subprocess
import sys

import pytest
import tomllib
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from build import bootstrap

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
ASKED = {
    "build": PROJECT["dependencies"],
    "test": PROJECT["dependencies"] + OPTIONAL["test"],
    "report": PROJECT["dependencies"] + OPTIONAL["bench"],
}


def locked(extra: str) -> dict[str, set[tuple[str, str]]]:
    """name -> versions, each with the machines it is for: one, or one for each of some Pythons."""
    found = {}
    for line in re.findall(r"^[a-z0-9][^#\n]+", bootstrap.LOCKS[extra].read_text(), re.M):
        requirement = Requirement(line.removesuffix(" \\"))
        (pin,) = requirement.specifier
        assert pin.operator == "==", line
        found.setdefault(canonicalize_name(requirement.name), set()).add((pin.version, str(requirement.marker or "")))
    return found


@pytest.mark.parametrize("extra", ASKED)
def test_a_lock_has_what_pyproject_asks_for(extra):
    pins = locked(extra)
    for requirement in map(Requirement, ASKED[extra]):
        versions = {version for version, _ in pins.get(canonicalize_name(requirement.name), ())}
        assert versions, f"{requirement} is not in {bootstrap.LOCKS[extra]}: run `make lock`"
        wrong = [version for version in versions if not requirement.specifier.contains(version)]
        assert not wrong, f"{requirement} is locked as {wrong}: run `make lock`"


@pytest.mark.parametrize("extra", ASKED)
def test_every_file_of_a_lock_has_its_hash(extra):
    blocks = re.split(r"\n(?=[a-z0-9])", bootstrap.LOCKS[extra].read_text())[1:]
    assert len(blocks) == sum(map(len, locked(extra).values())) >= 15
    for block in blocks:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", block), block.splitlines()[0]


def test_locks_agree_and_none_has_torch():
    pins = {extra: locked(extra) for extra in ASKED}
    for extra in ASKED:
        assert pins["build"].items() <= pins[extra].items()
        assert "torch" not in pins[extra]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project that asks for nothing, with an environment as this Python makes it, but for pip."""
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    (tmp_path / "build").mkdir()
    shutil.copy(ROOT / "build" / "bootstrap.py", tmp_path / "build")
    (tmp_path / "build" / "requirements.lock").touch()
    (tmp_path / "pyproject.toml").touch()
    command = [bootstrap.interpreter(), "-m", "venv", "--without-pip", tmp_path / ".venv"]
    subprocess.run(command, check=True)
    return tmp_path


def test_an_environment_that_fits_stays(folder):
    assert bootstrap.why_anew() == ""


def test_an_environment_of_another_python_is_made_anew(folder):
    config = folder / ".venv" / "pyvenv.cfg"
    config.write_text(re.sub(r"^version = .*$", "version = 3.10.4", config.read_text(), flags=re.M))
    assert "was made by" in bootstrap.why_anew() and "Python 3.10.4; this is" in bootstrap.why_anew()
    config.write_text(re.sub(r"^(executable|version) = .*\n", "", config.read_text(), flags=re.M))
    assert "was made by" in bootstrap.why_anew()


def test_a_moved_or_broken_environment_is_made_anew(folder, monkeypatch):
    moved = folder / "moved"
    (folder / ".venv").rename(moved)
    assert bootstrap.why_anew() == "there is none yet"
    (folder / ".venv").symlink_to(moved)
    assert "was moved" in bootstrap.why_anew()
    (moved / "bin" / "python").unlink()
    assert "is broken" in bootstrap.why_anew()


def run(folder) -> str:
    command = [sys.executable, "build/bootstrap.py", "build"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_another_python_says_so_and_makes_the_environment_anew_once(folder):
    """As `make PYTHON=...` finds an environment that an older Python made."""
    config = folder / ".venv" / "pyvenv.cfg"
    fits = config.read_text()
    config.write_text(re.sub(r"^version = .*$", "version = 3.10.4", fits, flags=re.M))
    (folder / ".venv" / "old").touch()
    said = run(folder)
    assert "the one there was made by" in said and "Python 3.10.4; this is" in said and "installed in " in said
    assert not (folder / ".venv" / "old").exists() and "version = 3.10.4" not in config.read_text()
    assert run(folder) == ""
    (folder / "build" / "requirements.lock").write_text("# changed\n")
    said = run(folder)
    assert "installed in " in said and "making" not in said


@pytest.mark.parametrize("version", [(3, 10, 9), (3, 16, 0)])
def test_a_python_that_triton_does_not_support_is_refused(monkeypatch, version):
    monkeypatch.setattr(bootstrap.sys, "version_info", version)
    (line,) = bootstrap.missing_prerequisites()
    assert "a Python from 3.11 to 3.15" in line and "make PYTHON=" in line
    oldest, newest = (".".join(map(str, v)) for v in (bootstrap.OLDEST, (3, bootstrap.NEWEST[1] + 1)))
    assert PROJECT["requires-python"] == f">={oldest},<{newest}"


def test_a_python_without_what_packs_kernels_is_refused(monkeypatch):
    find = bootstrap.importlib.util.find_spec
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None if name == "_lzma" else find(name))
    (line,) = bootstrap.missing_prerequisites()
    assert "lzma module" in line


@pytest.mark.parametrize("answers", [True, False])
def test_torch_comes_from_the_index_of_cpu_builds_where_that_answers(monkeypatch, capsys, answers):
    asked = []

    def pip(*words, quiet=False):
        asked.append(words)
        if bootstrap.TORCH_CPU in words and not answers:
            raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(bootstrap, "pip", pip)
    bootstrap.install_torch()
    (first, second), torch = asked, OPTIONAL["torch"][0]
    assert torch in first and "--timeout" in first and "--retries" in first
    assert second == (torch, *PROJECT["dependencies"])  # no index of its own, and Triton where it is
    assert (bootstrap.TORCH_CPU in capsys.readouterr().out) == (not answers)
