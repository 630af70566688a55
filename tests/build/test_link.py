"""C text -> library: what the checks on the linked file refuse; two links give the same bytes. Compiles no kernel."""

import functools
import itertools
import platform
import shutil
import struct
import subprocess

import pytest
from sample import sample_rows

import build.compiler
from aot.manifest import make_manifest
from aot.pack import checksum, pack
from aot.render import in_table_order, render
from build.compile_all import BuildError
from build.compiler import Compiler
from build.link import CSRC, check_library, header_functions, link
from build.package import header_constant

QUICK = Compiler(cflags=("-O0", "-U_FORTIFY_SOURCE"))  # where it does not matter how fast the code is


@functools.cache
def generated():
    rows = in_table_order(sample_rows())
    return render(rows, pack([a for _, a in rows]), make_manifest(rows, "1.2.3", {}))


@pytest.fixture
def csrc(tmp_path):
    """A copy of the C core that a test may doctor."""
    return shutil.copytree(CSRC, tmp_path / "csrc")


def doctor(path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
    path.write_text(text.replace(old, new))


def test_the_library_links_and_passes_its_own_checks(tmp_path):
    linked = link(generated(), tmp_path / "out" / "libgemm.so")
    assert check_library(linked.library).glibc == (2, 17)
    assert linked.machine == platform.machine()
    assert len(header_functions()) > 20
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["libgemm.so"]


def test_a_cubin_that_rows_of_two_targets_run_is_packed_once():
    one = [artifact for _, artifact in sample_rows(80)]
    again = [artifact.of_row(artifact.variant.replace("sm80", "sm89"), 89) for artifact in one]
    alone, both = pack(one), pack([*again, *one])
    assert (both.blob, both.chunks) == (alone.blob, alone.chunks)
    assert {a.variant: both.places[a.variant] for a in one} == alone.places
    assert [both.places[a.variant] for a in again] == [alone.places[a.variant] for a in one]


def test_no_pattern_of_changed_words_leaves_the_checksum_as_it_was():
    """Among them those that leave both sums, of words and of places times words: damaged LZ4 data once held one."""
    words = (7, 0, 2**63, 2**64 - 1, 5, 5, 5, 0)
    patterns = [(1, -2, 1), (1, -1, -1, 1), (2**63, 2**63), (1, 0, -2, 0, 1), (1,), (2**32, -(2**33), 2**32)]
    found = [checksum(struct.pack("<8Q", *words)), checksum(struct.pack("<8Q", *words) + bytes(8))]
    for pattern, at in itertools.product(patterns, range(4)):
        changed = [0] * at + list(pattern) + [0] * 8
        found.append(checksum(struct.pack("<8Q", *((w + d) % 2**64 for w, d in zip(words, changed, strict=False)))))
    assert len(set(found)) == len(found)


def test_two_folders_give_the_same_bytes(tmp_path):
    one = link(generated(), tmp_path / "one" / "libgemm.so").library
    generated.cache_clear()  # so that the text is made twice too
    other = link(generated(), tmp_path / "quite another folder" / "libgemm.so").library
    assert one.read_bytes() == other.read_bytes()


def test_a_launcher_doctored_to_pass_alpha_as_double_does_not_build(tmp_path, csrc):
    doctor(csrc / "launch" / "call.h", "  float alpha, beta;\n", "  double alpha;\n  float beta;\n")
    with pytest.raises(BuildError, match="alpha has 4 bytes in the cubin"):
        link(generated(), tmp_path / "libgemm.so", csrc, QUICK)
    assert not (tmp_path / "libgemm.so").exists()


def test_a_leaked_symbol_fails_the_link(tmp_path, csrc):
    leak = '__attribute__((visibility("default"))) int libgemm_leak(void);\nint libgemm_leak(void) { return 1; }\n'
    (csrc / "leak.c").write_text(leak)
    with pytest.raises(BuildError, match=r"leaked symbols \['libgemm_leak'\]"):
        link(generated(), tmp_path / "libgemm.so", csrc, QUICK)


def test_a_missing_symbol_fails_the_link(tmp_path, csrc):
    doctor(csrc / "api" / "info.c", "int32_t libgemm_abi(void) { return LIBGEMM_ABI; }\n", "")
    with pytest.raises(BuildError, match=r"missing \['libgemm_abi'\]"):
        link(generated(), tmp_path / "libgemm.so", csrc, QUICK)


def test_a_symbol_newer_than_glibc_2_17_fails_the_link(tmp_path, csrc):
    # arc4random came with glibc 2.36, getentropy with 2.25
    (csrc / "new.c").write_text(
        "#include <stddef.h>\nint getentropy(void *, size_t);\nint taste(void *p);\n"
        "int taste(void *p) { return getentropy(p, 1); }\n"
        "void *volatile keep = (void *)taste;\n"
    )
    with pytest.raises(BuildError, match=r"needs glibc 2\.\d+; at most 2\.17 is allowed"):
        link(generated(), tmp_path / "libgemm.so", csrc, QUICK)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,-z,relro,-z,now,-z,execstack", "executable stack"),
        ("-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,-z,norelro,-z,now", "no RELRO"),
        ("-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,-z,relro,-z,lazy", "not linked with -z now"),
        ("-Wl,-Bsymbolic", "-Wl,-rpath,/tmp", "has DT_RUNPATH|has DT_RPATH"),
        ("-Wl,-Bsymbolic", "-Wl,--no-as-needed,-l:libm.so.6", "needs \\['libm.so.6'\\]"),
    ],
)
def test_a_library_that_is_not_hardened_fails_the_link(tmp_path, monkeypatch, old, new, words):
    flags = [new if flag == old else flag for flag in build.compiler.LDFLAGS]
    monkeypatch.setattr(build.compiler, "LDFLAGS", flags)
    with pytest.raises(BuildError, match=words):
        link(generated(), tmp_path / "libgemm.so", compiler=QUICK)


def test_a_missing_compiler_is_named_with_its_package(tmp_path):
    with pytest.raises(BuildError, match="no C compiler 'no-such-cc -m64': install gcc"):
        link(generated(), tmp_path / "libgemm.so", compiler=Compiler(("no-such-cc", "-m64")))


def test_a_failed_link_leaves_the_old_library(tmp_path, csrc):
    path = tmp_path / "libgemm.so"
    path.write_bytes(b"old")
    doctor(csrc / "api" / "error.c", "return last_error; }", "return last_error }")
    with pytest.raises(BuildError, match=r"error\.c"):
        link(generated(), path, csrc, QUICK)
    assert path.read_bytes() == b"old"


def test_the_users_flags_come_after_ours(tmp_path, monkeypatch):
    for name, value in (("CC", "cc -pipe"), ("CFLAGS", "-O1 '-DWORDS=two words'"), ("LDFLAGS", "-Wl,-z,lazy")):
        monkeypatch.setenv(name, value)
    compiler = Compiler.of_environment()
    assert compiler == Compiler(("cc", "-pipe"), ("-O1", "-DWORDS=two words"), ("-Wl,-z,lazy",))
    with pytest.raises(BuildError, match="is not linked with -z now"):
        link(generated(), tmp_path / "libgemm.so", compiler=compiler)
    monkeypatch.delenv("LDFLAGS")
    assert link(generated(), tmp_path / "libgemm.so", compiler=Compiler.of_environment()).glibc == (2, 17)
    monkeypatch.setenv("CFLAGS", "'-O1")
    with pytest.raises(BuildError, match='CFLAGS = "\'-O1": No closing quotation'):
        Compiler.of_environment()


CROSS = "aarch64-linux-gnu-gcc"
PROGRAM = """\
#include <libgemm.h>
#include <stdio.h>
int main(void) { return puts(libgemm_version()) < 0 || printf("%d %s", libgemm_preload(0), libgemm_last_error()) < 0; }
"""


@pytest.fixture
def arm(tmp_path):
    """The library as a cross compiler makes it."""
    if not shutil.which(CROSS):
        pytest.skip(f"{CROSS} is not installed (Debian: gcc-aarch64-linux-gnu)")
    return link(generated(), tmp_path / "libgemm.so.1", compiler=Compiler((CROSS,)))


def test_a_cross_compiler_makes_a_library_for_its_machine(arm):
    assert (arm.machine, arm.glibc) == ("aarch64", (2, 17))
    assert check_library(arm.library) == arm


def test_the_library_for_aarch64_runs(arm, tmp_path):
    if not shutil.which("qemu-aarch64"):
        pytest.skip("qemu-aarch64 is not installed (Debian: qemu-user)")
    (tmp_path / "main.c").write_text(PROGRAM)
    line = [CROSS, "main.c", f"-I{CSRC}", str(arm.library), f"-Wl,-rpath,{tmp_path}", "-o", "main"]
    subprocess.run(line, cwd=tmp_path, check=True)
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(tmp_path / "main")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{header_constant('LIBGEMM_VERSION')}\n3 NVIDIA driver library not found: libcuda.so.1")
