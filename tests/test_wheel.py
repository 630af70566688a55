"""The wheel, proven from outside: reproducible, manylinux_2_17, and at work in a clean venv with cffi alone. No GPU."""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from build.link import check_library
from build.package import make_wheel

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("libgemm-*.whl")
    return path


@pytest.fixture(scope="module")
def clean_python(wheel, tmp_path_factory):
    """The Python of a new venv that holds the wheel and what pip fetched for it."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel], check=True)
    return python


def run(python, code: str, **env):
    plain = {"PATH": "/usr/bin:/bin", **env}
    return subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, cwd="/", env=plain)


def test_the_library_in_dist_is_within_its_limits(dist):
    assert (dist / "libgemm.so").stat().st_size <= 16 << 20
    linked = check_library(dist / "libgemm.so")
    assert linked.glibc == (2, 17)


def test_auditwheel_says_manylinux_2_17(wheel):
    done = subprocess.run([BIN / "auditwheel", "show", wheel], capture_output=True, text=True)
    assert '"manylinux_2_17_' in done.stdout, done.stdout + done.stderr
    assert wheel.name.startswith("libgemm-")
    assert "-py3-none-manylinux_2_17_" in wheel.name


def test_the_wheel_holds_the_library_and_no_stranger(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"libgemm/_lib/libgemm.so", "libgemm/_lib/libgemm.h", "libgemm/_ffi.py", "libgemm/__init__.py"} <= set(names)
    assert [n for n in names if not n.startswith(("libgemm/", "libgemm-"))] == []


def test_the_wheel_is_byte_reproducible(wheel, tmp_path):
    assert make_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_a_clean_venv_has_cffi_alone_and_imports_without_a_driver(clean_python, manifest):
    done = subprocess.run([clean_python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True)
    installed = {p["name"].lower() for p in json.loads(done.stdout)}
    assert installed <= {"libgemm", "cffi", "pycparser", "pip", "setuptools"}
    done = run(clean_python, "import libgemm; print(libgemm.info()['build_id'], len(libgemm.variants()))")
    assert done.stdout.split() == [manifest["build_id"], str(len(manifest["variants"]))], done.stderr


def test_a_call_without_a_driver_says_so(clean_python):
    code = "import libgemm\ntry: libgemm.preload(0)\nexcept libgemm.Error as e: print(e.status, e)"
    done = run(clean_python, code)
    assert done.stdout.startswith("3 LIBGEMM_NO_DRIVER: NVIDIA driver library not found: libcuda.so.1"), done.stderr


def test_the_commands_run_from_the_wheel(clean_python, manifest):
    done = subprocess.run([clean_python, "-I", "-m", "libgemm", "verify"], capture_output=True, text=True, cwd="/")
    assert done.stdout.strip() == f"{len(manifest['variants'])} variants, 0 damaged", done.stderr


def test_the_manifest_in_the_library_is_the_one_in_dist(clean_python, manifest):
    done = run(clean_python, "import libgemm, json; print(json.dumps(libgemm.manifest()))")
    assert {**json.loads(done.stdout), "commit": manifest["commit"]} == manifest


FACTS = ("name", "sha256", "registers", "shared_bytes", "warps", "local_bytes", "cubin_bytes")


def test_the_manifest_agrees_with_what_the_library_says(clean_python, manifest):
    code = "import libgemm, json; print(json.dumps([[getattr(v, f) for f in {}] for v in libgemm.variants()]))"
    said = json.loads(run(clean_python, code.format(FACTS)).stdout)
    assert said == [[variant[fact] for fact in FACTS] for variant in manifest["variants"]]


def test_a_missing_library_stops_the_wheel(tmp_path):
    runtime = Path(__file__).resolve().parent.parent / "runtime"
    copy = shutil.copytree(runtime, tmp_path / "runtime")
    (copy / "libgemm" / "_lib" / "libgemm.so").unlink()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode != 0
    assert "libgemm.so missing" in done.stderr
    assert not list(tmp_path.glob("*.whl"))
