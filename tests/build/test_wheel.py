"""The wheel, proven from outside: reproducible, manylinux_2_17, and at work in a clean venv with cffi alone. No GPU."""

import email
import hashlib
import json
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from build.compile_all import BuildError
from build.link import check_library
from build.package import make_wheel
from build.publish import files_in

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime"


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
    assert (dist / "lib" / "libgemm.so").stat().st_size <= 28e6
    linked = check_library(dist / "lib" / "libgemm.so")
    assert linked.glibc == (2, 17)


def test_auditwheel_says_manylinux_2_17(wheel):
    done = subprocess.run([BIN / "auditwheel", "show", wheel], capture_output=True, text=True)
    assert '"manylinux_2_17_' in done.stdout, done.stdout + done.stderr
    assert "-py3-none-manylinux_2_17_" in wheel.name


def test_the_wheel_holds_the_whole_package_and_no_stranger(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    package = {str(p.relative_to(RUNTIME)) for p in files_in(RUNTIME / "libgemm") if "__pycache__" not in p.parts}
    assert {"libgemm/_lib/libgemm.so", "libgemm/_lib/platform.json", "libgemm/_ffi.py"} <= package
    assert {name for name in names if name.startswith("libgemm/")} == package
    assert [name for name in names if not name.startswith(("libgemm/", "libgemm-"))] == []


def test_the_wheel_is_byte_reproducible(wheel, tmp_path):
    assert make_wheel(shutil.copytree(RUNTIME, tmp_path / "project"), tmp_path).read_bytes() == wheel.read_bytes()


def test_the_package_says_which_library_it_holds(wheel):
    archive = zipfile.ZipFile(wheel)
    library, facts = (archive.read(f"libgemm/_lib/{name}") for name in ("libgemm.so", "platform.json"))
    found = json.loads(facts)
    assert (found["bytes"], found["sha256"]) == (len(library), hashlib.sha256(library).hexdigest())
    assert found["version"] == wheel.name.split("-")[1]
    assert f"_{found['machine']}.whl" in wheel.name and found["glibc"] == [2, 17]


def test_the_wheel_has_licence_description_and_classifiers(wheel, manifest):
    archive = zipfile.ZipFile(wheel)
    (place,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    metadata = email.message_from_bytes(archive.read(place))
    assert archive.read(place.replace("METADATA", "licenses/LICENSE")) == (ROOT / "LICENSE").read_bytes()
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert metadata["Version"].startswith(manifest["version"] + "+g")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().startswith("# libgemm\n") and metadata["Requires-Dist"] == "cffi>=1.15"
    assert "Environment :: GPU :: NVIDIA CUDA" in metadata.get_all("Classifier")


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


def test_in_dist_the_command_finds_the_package_and_takes_no_library_for_it(clean_python, dist, manifest):
    done = subprocess.run([clean_python, "-m", "libgemm", "info"], capture_output=True, text=True, cwd=dist)
    assert manifest["build_id"] in done.stdout, done.stderr


def test_the_manifest_in_the_library_is_the_one_in_dist(clean_python, manifest):
    done = run(clean_python, "import libgemm, json; print(json.dumps(libgemm.manifest()))")
    assert {**json.loads(done.stdout), "commit": manifest["commit"]} == manifest


FACTS = ("name", "sha256", "registers", "shared_bytes", "warps", "local_bytes", "cubin_bytes")


def test_the_manifest_agrees_with_what_the_library_says(clean_python, manifest):
    code = "import libgemm, json; print(json.dumps([[getattr(v, f) for f in {}] for v in libgemm.variants()]))"
    said = json.loads(run(clean_python, code.format(FACTS)).stdout)
    assert said == [[variant[fact] for fact in FACTS] for variant in manifest["variants"]]


@pytest.mark.parametrize(
    ("doctor", "words"),
    [
        (lambda library: library.unlink(), "libgemm.so missing"),
        (lambda library: library.write_bytes(library.read_bytes()[:-1]), "is not the library of platform.json"),
    ],
)
def test_a_missing_or_other_library_stops_the_wheel(tmp_path, doctor, words):
    project = shutil.copytree(RUNTIME, tmp_path / "project")
    doctor(project / "libgemm" / "_lib" / "libgemm.so")
    with pytest.raises(BuildError, match=f"the wheel was not built: .*{words}"):
        make_wheel(project, tmp_path)
    assert not list(tmp_path.glob("*.whl"))
