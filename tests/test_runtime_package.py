"""The Python package as files: importing it, what it says of itself, its command line, a damaged or foreign library."""

import json
import re
import shutil
import subprocess
import sys

import libgemm
import pytest
from built import TARGET, needs
from elftools.elf.elffile import ELFFile
from libgemm.inspect import manifest
from stand_in import ROOT, in_stand_in, python, run

PACKAGE = ROOT / "runtime" / "libgemm"
IMPORT = "try:\n    import libgemm\nexcept ImportError as error:\n    print(error)\nelse:\n    print('imported')\n"


def command(*words, driver: bool = False, **settings) -> subprocess.CompletedProcess:
    return run(sys.executable, "-m", "libgemm", *words, driver=driver, **settings)


@pytest.fixture
def package(tmp_path):
    """A copy of the package that a test may doctor; PYTHONPATH is its parent."""
    return shutil.copytree(PACKAGE, tmp_path / "libgemm", ignore=shutil.ignore_patterns("__pycache__"))


def stub(package, source: str) -> None:
    """Put another shared library in libgemm's place."""
    library = package / "_lib" / "libgemm.so"
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


def test_info_and_variants_tell_what_the_library_has():
    facts = libgemm.info()
    done = command("info")
    assert done.returncode == 0 and f"libgemm {facts['version']}, ABI 1, build {facts['build_id']}" in done.stdout
    for target, t in facts["targets"].items():
        assert f"sm_{target}: {t['variants']} variants, NVIDIA driver {t['min_driver']} or newer" in done.stdout
    names = [v.name for v in libgemm.variants()]
    assert len(names) == len(set(names)) == facts["variants"]
    assert [line.split()[0] for line in command("variants").stdout.splitlines()] == names
    listed = command("variants", "--target", str(TARGET)).stdout.splitlines()
    assert [line.split()[0] for line in listed] == [v.name for v in libgemm.variants() if v.target == TARGET]
    assert command("variants", "--target", "12").stdout == ""


def test_the_manifest_command_prints_the_manifest():
    done = command("manifest")
    assert done.returncode == 0 and json.loads(done.stdout) == manifest()


def test_explain_names_a_variant_and_why():
    done = command("explain", "4096", "4096", "4096", "--dtype", "f16", "--layout", "nt", "--target", str(TARGET))
    variant, reason = libgemm.explain(4096, 4096, 4096, "f16", layout="nt", target=TARGET)
    assert (done.returncode, done.stdout) == (0, f"{variant.name}\n{reason}\n")
    assert (variant.target, variant.a_type, variant.trans_a, variant.trans_b) == (TARGET, "f16", False, True)
    done = command("explain", "0", "8", "8", "--target", str(TARGET))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "-") and "empty" in done.stdout
    unaligned, reason = libgemm.explain(64, 64, 64, "f16", aligned=False, target=TARGET)
    assert not unaligned.align16 and not unaligned.single
    assert re.fullmatch(r"untuned: [\d.]+ us expected, one of \d+ rows; [\d.]+ us with .*16-byte aligned.*", reason)


@needs(90)
def test_explain_tells_what_copies_make_possible():
    large, reason = libgemm.explain(4096, 4096, 4096, "f16", aligned=False, target=90)
    assert large.single and ", after A or B is copied to aligned rows in the workspace" in reason


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--target", "75"], "target = 75"),
        (["--dtype", "int8", "--target", str(TARGET)], "dtype int8"),
        (["--layout", "xx", "--target", str(TARGET)], "layout = 'xx'"),
        (["--dtype", "f32", "--target", str(TARGET)], "precision is needed"),
        (["--activation", "tanh", "--target", str(TARGET)], "activation = 'tanh'"),
        ([], "LIBGEMM_NO_DRIVER"),
    ],
)
def test_explain_refuses_by_name(words, part):
    done = command("explain", "8", "8", "8", *words)
    assert done.returncode == 1 and part in done.stderr and done.stdout == ""


def test_explain_without_a_target_asks_the_gpu():
    done = command("explain", "8", "8", "8", driver=True)
    assert done.returncode == 0 and f"__sm{TARGET}__" in done.stdout


def test_a_word_that_is_no_command_is_refused():
    assert command("nonsense").returncode == 2 and command().returncode == 2


def test_verify_passes_a_sound_library():
    done = command("verify")
    assert (done.returncode, done.stdout) == (0, f"{libgemm.info()['variants']} variants, 0 damaged\n")


def cubin_span(library) -> tuple[int, int]:
    """Where the packed kernels are in the file: all of .rodata before or after the manifest, whichever is longer."""
    data = library.read_bytes()
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".rodata")
    begin, end = section["sh_offset"], section["sh_offset"] + section["sh_size"]
    first = data.index(b'{"build_id":"')
    last = data.index(b"\0", first)
    assert begin < first < last < end
    spans = ((begin, first), (last, end))
    return max(spans, key=lambda span: span[1] - span[0])


@pytest.mark.parametrize("part", [0.15, 0.3, 0.45, 0.6, 0.75, 0.9])
def test_verify_names_what_a_flipped_byte_damaged(package, part):
    library = package / "_lib" / "libgemm.so"
    begin, end = cubin_span(library)
    data = bytearray(library.read_bytes())
    for place in range(begin + int((end - begin) * part), end, 1 << 20)[:2]:
        data[place] ^= 0x55
    library.write_bytes(data)
    done = command("verify", PYTHONPATH=package.parent)
    damaged = [line.removeprefix("damaged: ") for line in done.stdout.splitlines() if line.startswith("damaged: ")]
    assert done.returncode == 1 and damaged, done.stdout + done.stderr
    assert set(damaged) <= {v.name for v in libgemm.variants()} and len(damaged) < libgemm.info()["variants"]
    assert done.stdout.endswith(f"{libgemm.info()['variants']} variants, {len(damaged)} damaged\n")


@in_stand_in()
def test_an_error_carries_its_status():
    with pytest.raises(libgemm.Error) as caught:
        libgemm.preload(7)
    assert (caught.value.status, caught.value.name) == (1, "LIBGEMM_INVALID_ARGUMENT")
    assert isinstance(caught.value, RuntimeError) and "device = 7" in str(caught.value)
