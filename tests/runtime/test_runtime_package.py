"""The Python package as files: importing it, what it says of itself, its command line, a damaged or foreign library."""

import hashlib
import json
import multiprocessing
import pickle
import shutil
import subprocess

import libgemm
import pytest
from blobs import kernels_at
from built import TARGET
from stand_in import ROOT, in_stand_in, python
from test_runtime_command import command

PACKAGE = ROOT / "runtime" / "libgemm"
IMPORT = "try:\n    import libgemm\nexcept ImportError as error:\n    print(error)\nelse:\n    print('imported')\n"


@pytest.fixture
def package(tmp_path):
    """A copy of the package that a test may doctor; PYTHONPATH is its parent."""
    return shutil.copytree(PACKAGE, tmp_path / "libgemm", ignore=shutil.ignore_patterns("__pycache__"))


def stub(package, source: str) -> None:
    """Put another shared library in libgemm's place."""
    library = package / "_lib" / "libgemm.so"
    (package / "_lib" / "platform.json").unlink()  # it speaks of the library that was there
    done = subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", str(library)], input=source, text=True)
    assert done.returncode == 0


def test_the_package_works_without_a_driver_and_without_frameworks():
    blocked = "import sys\nfor name in ('torch', 'cupy', 'numpy', 'triton'): sys.modules[name] = None\n"
    use = f"""import libgemm
print(libgemm.info()['version'], len(libgemm.variants()), libgemm.explain(8, 8, 8, target={TARGET}))"""
    assert python(blocked + use, driver=False).startswith(libgemm.__version__)
    names = "import sys, libgemm\nprint({'torch', 'cupy', 'numpy', 'triton'} & set(sys.modules))"
    assert python(names, driver=False).strip() == "set()"


def test_a_call_without_a_driver_is_a_clear_error():
    call = "import libgemm\ntry:\n    libgemm.preload()\nexcept libgemm.Error as e:\n    print(e.name, e.status, e)"
    assert python(call, driver=False).startswith(
        "LIBGEMM_NO_DRIVER 3 LIBGEMM_NO_DRIVER: NVIDIA driver library not found"
    )


def test_the_doctored_copies_start_from_a_package_that_works(package):
    assert python(IMPORT + "print(libgemm.__file__)", driver=False, PYTHONPATH=package.parent).split() == [
        "imported",
        str(package / "__init__.py"),
    ]


def test_a_missing_library_is_named(package):
    (package / "_lib" / "libgemm.so").unlink()
    said = python(IMPORT, driver=False, PYTHONPATH=package.parent)
    assert "library is missing" in said and str(package / "_lib" / "libgemm.so") in said


def test_a_file_that_is_no_library_is_named(package):
    (package / "_lib" / "libgemm.so").write_text("not a library")
    (package / "_lib" / "platform.json").unlink()  # its size alone would tell
    said = python(IMPORT, driver=False, PYTHONPATH=package.parent)
    assert "cannot be loaded" in said and str(package / "_lib" / "libgemm.so") in said


def test_a_library_of_another_abi_is_named(package):
    stub(package, "int libgemm_abi(void) { return 7; }")
    said = python(IMPORT, driver=False, PYTHONPATH=package.parent)
    assert str(package / "_lib" / "libgemm.so") in said and "ABI 7" in said and "ABI 1" in said


def test_a_library_that_is_not_libgemm_is_named(package):
    stub(package, "int something_else;")
    said = python(IMPORT, driver=False, PYTHONPATH=package.parent)
    assert str(package / "_lib" / "libgemm.so") in said and "is no libgemm" in said


def test_a_package_that_was_never_built_says_so(package):
    (package / "_ffi.py").unlink()
    assert "is not built" in python(IMPORT, driver=False, PYTHONPATH=package.parent)


def test_verify_passes_a_sound_library():
    done = command("verify")
    assert (done.returncode, done.stdout) == (0, f"{libgemm.info()['variants']} variants, 0 damaged\n")


@pytest.mark.parametrize("part", [0.15, 0.3, 0.45, 0.6, 0.75, 0.9])
def test_verify_names_what_a_flipped_byte_damaged(package, part):
    library = package / "_lib" / "libgemm.so"
    kernels, data = kernels_at(library), bytearray(library.read_bytes())
    for place in kernels[int(len(kernels) * part) :: 1 << 20][:2]:
        data[place] ^= 0x55
    library.write_bytes(data)
    done = command("verify", PYTHONPATH=package.parent)
    damaged = [line.removeprefix("damaged: ") for line in done.stdout.splitlines() if line.startswith("damaged: ")]
    assert done.returncode == 1 and damaged, done.stdout + done.stderr
    assert set(damaged) <= {"libgemm.so", *(v.name for v in libgemm.variants())}
    assert "libgemm.so" in damaged and len(damaged) < libgemm.info()["variants"]
    assert done.stdout.endswith(f"{libgemm.info()['variants']} variants, {len(damaged)} damaged\n")


@pytest.mark.parametrize("part", [0.0001, 0.5, 0.999])
def test_a_library_that_is_cut_is_named_before_it_is_loaded(package, part):
    library = package / "_lib" / "libgemm.so"
    whole = library.read_bytes()
    kept = int(len(whole) * part)
    library.write_bytes(whole[:kept])
    (package / "_lib" / "platform.json").unlink()  # what the file says of itself is enough
    said = python(IMPORT, driver=False, PYTHONPATH=package.parent)
    assert said.startswith(f"libgemm's library {library} is cut: {kept} bytes, ") and "install it again" in said
    done = command("verify", PYTHONPATH=package.parent)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("ImportError: libgemm's library ")


def record(package, **facts) -> None:
    """Have the build have written this down of the library."""
    path = package / "_lib" / "platform.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def test_a_recorded_size_is_compared(package):
    size = (package / "_lib" / "libgemm.so").stat().st_size
    record(package, bytes=size)
    assert python(IMPORT, driver=False, PYTHONPATH=package.parent) == "imported\n"
    record(package, bytes=size + 1)
    assert f"{size} bytes, {size + 1} expected" in python(IMPORT, driver=False, PYTHONPATH=package.parent)


def test_verify_compares_the_whole_file_where_its_hash_is_recorded(package):
    library = package / "_lib" / "libgemm.so"
    record(package, sha256=hashlib.sha256(library.read_bytes()).hexdigest())
    assert command("verify", PYTHONPATH=package.parent).returncode == 0
    with library.open("ab") as file:
        file.write(b"more")
    done = command("verify", PYTHONPATH=package.parent)
    assert done.returncode == 1 and done.stdout.startswith("damaged: libgemm.so\n")


@in_stand_in()
def test_an_error_carries_its_status():
    with pytest.raises(libgemm.Error) as caught:
        libgemm.preload(7)
    assert (caught.value.status, caught.value.name) == (1, "LIBGEMM_INVALID_ARGUMENT")
    assert isinstance(caught.value, RuntimeError) and "device = 7" in str(caught.value)


def fail_in_another_process(_):
    libgemm.explain(8, 8, 8, "bf16", layout="xx")


def test_an_error_comes_back_from_a_pool():
    with (
        multiprocessing.get_context("spawn").Pool(1) as pool,
        pytest.raises(libgemm.Error, match="layout = 'xx'") as caught,
    ):
        pool.map_async(fail_in_another_process, [0]).get(timeout=100)
    assert (caught.value.status, caught.value.name) == (1, "LIBGEMM_INVALID_ARGUMENT")


def test_a_copy_of_an_error_says_the_same():
    with pytest.raises(libgemm.Error) as caught:
        libgemm.explain(8, 8, 8, target=75)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value) and copy.__dict__ == caught.value.__dict__
