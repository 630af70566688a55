"""What a wheel is called: another name for other contents, so that pip installs it; the machine of its library."""

import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import cffi
import pytest
from build_work import change, checkout, process

from build.link import Linked
from build.package import header_constant, make_project, make_wheel, unusual
from kernels.table.targets import DEFAULT_TARGETS
from kernels.table.variants import variants

CROSS = "aarch64-linux-gnu-gcc"
VERSION = header_constant("LIBGEMM_VERSION")


@pytest.fixture
def runtime(tmp_path):
    return checkout(tmp_path) / "runtime"


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "libgemm.so"
    path.write_bytes(b"machine code")
    return Linked(path, (2, 17), "aarch64")


def version(library: Linked, runtime: Path, words=()) -> str:
    """The version of the wheel that would hold this library and these files."""
    project = runtime.parent / "project"
    make_project(library, list(words), runtime, project)
    text = (project / "libgemm" / "_lib" / "platform.json").read_text()
    shutil.rmtree(project)
    return re.search(r'"version": "(.*?)"', text)[1]


def test_the_version_changes_with_each_part_of_the_wheel(library, runtime):
    first = version(library, runtime)
    assert re.fullmatch(rf"{VERSION}\+g[0-9a-f]{{8}}", first) and version(library, runtime) == first
    seen = {first}
    for name in ("libgemm/_args.py", "libgemm/py.typed", "README.md", "pyproject.toml", "hatch_build.py"):
        with (runtime / name).open("a") as file:
            file.write("\n# changed\n")
        seen.add(version(library, runtime))
    library.library.write_bytes(b"other machine code")
    seen.add(version(library, runtime))
    assert len(seen) == 7


def told(targets=DEFAULT_TARGETS, **types) -> list[str]:
    rows = variants(targets, **types)
    return unusual({"targets": list(map(str, targets)), "variants": [row.to_dict() for row in rows]})


def test_the_version_names_targets_and_types_that_are_not_the_usual_ones(library, runtime):
    assert told() == []
    assert (told((90,)), told((80, 90))) == (["sm90"], ["sm80", "sm90"])
    assert told(types=("bf16",)) == ["bf16"] and told((90,), types=("f16", "e4m3")) == ["sm90", "f16", "e4m3"]
    assert version(library, runtime, told((90,), types=("bf16",))).endswith(".sm90.bf16")


def test_the_tag_is_that_of_the_library_and_not_of_this_machine(library, runtime, tmp_path):
    make_project(library, [], runtime, tmp_path / "project")
    name = make_wheel(tmp_path / "project", tmp_path).name
    assert re.fullmatch(rf"libgemm-{VERSION}\+g[0-9a-f]{{8}}-py3-none-manylinux_2_17_aarch64\.whl", name)


def test_a_build_with_a_cross_compiler_makes_a_wheel_for_its_machine(tmp_path):
    if not shutil.which(CROSS):
        pytest.skip(f"{CROSS} is not installed (Debian: gcc-aarch64-linux-gnu)")
    root = checkout(tmp_path)
    done = process(root, CC=CROSS)
    assert done.returncode == 0, done.stderr
    assert re.search(r"dist/libgemm-\S+\.sm80-py3-none-manylinux_2_17_aarch64\.whl: ", done.stdout)
    header = (root / "dist" / "lib" / "libgemm.so").read_bytes()[:20]
    assert header[:4] == b"\x7fELF" and header[18] == 183  # EM_AARCH64


def test_pip_installs_a_second_build_over_the_first(tmp_path):
    """Both are of one version of libgemm and of the same kernels; one line of Python is new."""
    root = checkout(tmp_path / "checkout")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    words = {**os.environ, "PYTHONPATH": str(Path(cffi.__file__).parent.parent)}
    ask = "import libgemm, importlib.metadata as m; print(m.version('libgemm'), libgemm.__version__, libgemm.CHANGED)"
    said = []
    for _ in range(2):
        change(root)
        assert process(root).returncode == 0
        subprocess.run([*install, *(root / "dist").glob("*.whl")], check=True)
        done = subprocess.run([python, "-c", ask], cwd=tmp_path, env=words, capture_output=True, text=True)
        said.append(done.stdout.split())
    changed = re.findall(r"CHANGED = (\d+)", (root / "runtime" / "libgemm" / "__init__.py").read_text())
    assert [found[2] for found in said] == changed, done.stderr
    assert said[0][1] == said[1][1] == VERSION and said[0][0] != said[1][0]
