"""The C interface as a file: its header, its symbols, its driver declarations, what it says of itself. No launches."""

import ctypes
import hashlib
import json
import re
import shutil
import subprocess

import built
import pytest
from calls import Call, last_error, ok, refused
from elftools.elf.elffile import ELFFile
from exchange_like import API, Exchange
from layers import LAYERS, layer_call
from libgemm._library import ffi, lib, text
from stand_in import ROOT, in_stand_in, run

from build.link import CSRC, exported_symbols, header_functions

DIST = ROOT / "dist"
CUDA_HEADERS = next(ROOT.glob(".venv/lib/python*/site-packages/triton/backends/nvidia/include"), None)
STRICT = ["-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
PROGRAM = """\
#include <libgemm.h>
#include <stdio.h>
int main(void) { return puts(libgemm_version()) < 0 || libgemm_abi() != LIBGEMM_ABI; }
"""


def compile_text(compiler: str, folder, source: str, *options: str) -> str:
    """The compiler's complaints about a source text."""
    file = folder / ("main.cpp" if compiler == "g++" else "main.c")
    file.write_text(source)
    done = subprocess.run([compiler, *STRICT, str(file), *options], capture_output=True, text=True, cwd=folder)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c99"), ("gcc", "c11"), ("g++", "c++17")])
@pytest.mark.parametrize("beside", ["alone", "before cuda.h", "after cuda.h"])
def test_the_header_compiles(tmp_path, compiler, standard, beside):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    if beside != "alone" and not CUDA_HEADERS:
        pytest.skip("triton's cuda.h is not installed")
    ours, cuda = "#include <libgemm.h>\n", "#include <cuda.h>\n"
    source = {"alone": ours, "before cuda.h": ours + cuda, "after cuda.h": cuda + ours}[beside]
    use = "void use(CUstream s) { libgemm_stream t = s; (void)t; }\n" if beside != "alone" else ""
    options = [f"-std={standard}", "-c", f"-I{CSRC}"]
    options += [f"-isystem{CUDA_HEADERS}"] if beside != "alone" else []
    assert compile_text(compiler, tmp_path, source + use, *options) == ""


def test_a_c_program_needs_only_the_header_and_the_library(tmp_path):
    where = (f"-I{DIST}/include", f"-L{DIST}/lib", "-lgemm")
    assert compile_text("gcc", tmp_path, PROGRAM, "-std=c99", *where, "-omain") == ""
    done = run(tmp_path / "main", driver=False, LD_LIBRARY_PATH=DIST / "lib")
    assert (done.returncode, done.stdout.strip()) == (0, text(lib.libgemm_version()))


def driver_probe() -> str:
    """C expressions about the driver's interface that both our driver.h and cuda.h can answer."""
    source = (CSRC / "launch" / "driver.h").read_text()
    constants = re.findall(r"\b(CUDA_\w+|CU_[A-Z_0-9]+) = \d+", source)
    assert len(constants) >= 20
    own = {"grid_x": "gridDimX", "block_z": "blockDimZ", "shared_bytes": "sharedMemBytes", "stream": "hStream",
           "attributes": "attrs", "attribute_count": "numAttrs"}  # fmt: skip
    lines = [f'P("{name}", {name})' for name in constants]
    types = "result device deviceptr context function library kernel stream launchConfig launchAttribute"
    lines += [f'P("{name}", sizeof(CU{name}))' for name in types.split()]
    lines += [f'P("{n}", offsetof(CUlaunchConfig, F({n}, {theirs})))' for n, theirs in own.items()]
    lines += ['P("value", offsetof(CUlaunchAttribute, value))']
    lines += ['P("value size", sizeof(((CUlaunchAttribute *)0)->value))']
    lines += ['P("cluster z", offsetof(CUlaunchAttribute, F(value.cluster.z, value.clusterDim.z)))']
    return "\n".join(line + ";" for line in lines)


def probe(folder, include: str, choose: str, *options: str) -> str:
    source = f"""#include <stddef.h>\n#include <stdio.h>\n#include <{include}>
#define F(ours, theirs) {choose}
#define P(name, value) printf("%s %lld\\n", name, (long long)(value))
int main(void) {{ {driver_probe()} return 0; }}"""
    assert compile_text("gcc", folder, source, "-std=c11", *options, "-oprobe") == ""
    return subprocess.run([str(folder / "probe")], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not CUDA_HEADERS, reason="triton's cuda.h is not installed")
def test_our_driver_declarations_agree_with_cuda_h(tmp_path):
    ours = probe(tmp_path, "launch/driver.h", "ours", f"-I{CSRC}")
    assert ours == probe(tmp_path, "cuda.h", "theirs", f"-isystem{CUDA_HEADERS}")


@pytest.mark.skipif(not CUDA_HEADERS, reason="triton's cuda.h is not installed")
def test_every_driver_function_has_the_name_that_cuda_h_gives_it(tmp_path):
    """cuda.h renames functions with a newer ABI by macros; the suffixed name is the one to look up."""
    symbols = re.findall(r'X\(\w+, "(\w+)"', (CSRC / "launch" / "driver.h").read_text())
    plain = [re.sub(r"_v\d+$", "", s) for s in symbols]
    (tmp_path / "names.c").write_text("#include <cuda.h>\n" + "".join(f"NAME {name}\n" for name in plain))
    done = subprocess.run(["gcc", "-E", f"-I{CUDA_HEADERS}", "names.c"], cwd=tmp_path, capture_output=True, text=True)
    expanded = re.findall(r"^NAME (\w+)", done.stdout, re.M)
    # cuInit(0) of CUDA 12.0 and of every later one take the same arguments, and so do all that have no suffix there.
    assert expanded == symbols


def test_the_library_exports_the_header_and_nothing_else():
    with (DIST / "lib" / "libgemm.so").open("rb") as file:
        assert exported_symbols(ELFFile(file)) == header_functions()


def test_the_copies_of_the_header_are_the_header():
    for copy in (DIST / "include" / "libgemm.h", ROOT / "runtime" / "libgemm" / "_lib" / "libgemm.h"):
        assert copy.read_bytes() == (CSRC / "libgemm.h").read_bytes()


def info_of(name: str, index: int, getter):
    found = ffi.new(f"{name} *", {"size": ffi.sizeof(name)})
    ok(getter(index, found))
    return found


# Instead of Python's functions callbacks that make no objects.
NEW_BYTES = ffi.callback("void *(*)(const char *, int64_t)", lambda *_: ffi.NULL)
RELEASE = ffi.callback("void (*)(void *)", lambda _: None)


def init_python(**changes) -> int:
    facts = {
        "exchange": ffi.cast("void *", ctypes.addressof(API)),
        "none": ffi.cast("void *", 1),
        "new_bytes": NEW_BYTES,
        "new_tuple": ffi.cast("void *(*)(int64_t, ...)", 1),
        "release": RELEASE,
    }
    return lib.libgemm_python_init(*(facts | changes).values())


def call_everything() -> dict:
    """One plain use of each function of the header, by name; args_init, explain and workspace come with Call."""
    calls = {}
    for op in ("gemm", "grouped_gemm", "grouped_mm"):
        calls[f"libgemm_{op}_args_init"] = calls[f"libgemm_{op}"] = lambda op=op: ok(Call(op).run())
        calls[f"libgemm_{op}_workspace"] = lambda op=op: Call(op).workspace()
        calls[f"libgemm_{op}_explain"] = lambda op=op: Call(op).variant()
    for op in LAYERS:
        calls[f"libgemm_{op}_args_init"] = calls[f"libgemm_{op}"] = lambda op=op: ok(layer_call(op).run())
    for op in ("moe", "moe_route", "cast"):
        calls[f"libgemm_{op}_workspace"] = lambda op=op: layer_call(op).workspace()
    calls["libgemm_moe_mm_explain"] = lambda: layer_call("moe_mm").variant()
    variant = info_of("libgemm_variant_info", 0, lib.libgemm_variant_get)
    buffer = ffi.new("char[]", variant.cubin_bytes)
    return calls | {
        "libgemm_preload": lambda: ok(lib.libgemm_preload(0)),
        "libgemm_version": lambda: text(lib.libgemm_version()),
        "libgemm_abi": lib.libgemm_abi,
        "libgemm_build_id": lambda: text(lib.libgemm_build_id()),
        "libgemm_status_name": lambda: text(lib.libgemm_status_name(0)),
        "libgemm_status_text": lambda: text(lib.libgemm_status_text(0)),
        "libgemm_last_error": last_error,
        "libgemm_variant_count": lib.libgemm_variant_count,
        "libgemm_variant_get": lambda: text(variant.name),
        "libgemm_variant_cubin": lambda: ok(lib.libgemm_variant_cubin(0, buffer, len(buffer))),
        "libgemm_target_count": lib.libgemm_target_count,
        "libgemm_target_get": lambda: info_of("libgemm_target_info", 0, lib.libgemm_target_get).target,
        "libgemm_manifest": lambda: text(lib.libgemm_manifest(ffi.NULL)),
        "libgemm_python_init": lambda: ok(init_python()),
        "libgemm_python_describe": lambda: lib.libgemm_python_describe(ffi.NULL, ffi.NULL, 0),
        "libgemm_python_resize_gemm": lambda: lib.libgemm_python_resize_gemm(Call("gemm").args, b"", b"", 0),
        "libgemm_python_resize_grouped_mm": lambda: lib.libgemm_python_resize_grouped_mm(
            Call("grouped_mm").args, b"", b"", 0
        ),
    }


@in_stand_in()
def test_every_function_of_the_header_can_be_called():
    calls = call_everything()
    assert set(calls) == header_functions()
    for call in calls.values():
        call()


@pytest.mark.parametrize("name", ["exchange", "none", "new_bytes", "new_tuple", "release"])
def test_what_tensors_are_read_with_must_be_there(name):
    assert init_python(**{name: ffi.NULL}) == lib.LIBGEMM_INVALID_ARGUMENT and "is NULL" in last_error()


def test_tensors_of_a_version_of_dlpack_that_is_not_known_are_not_read():
    older = Exchange(0, 9, read=API.read)
    other = Exchange(2, 0, ctypes.addressof(older), read=API.read)
    assert init_python(exchange=ffi.cast("void *", ctypes.addressof(other))) == lib.LIBGEMM_UNSUPPORTED
    assert "version 1 of DLPack" in last_error()


def test_the_manifest_tells_what_the_functions_tell():
    size = ffi.new("uint64_t *")
    document = ffi.string(lib.libgemm_manifest(size))
    assert len(document) == size[0]
    manifest = json.loads(document)
    # What other tests read, whose commit may be a later one with the same library.
    assert {**manifest, "commit": ""} == {**built.manifest(), "commit": ""}
    assert manifest["build_id"] == text(lib.libgemm_build_id()) and re.fullmatch("[0-9a-f]{64}", manifest["build_id"])
    assert len(manifest["variants"]) == lib.libgemm_variant_count()
    for index, record in enumerate(manifest["variants"]):
        found = info_of("libgemm_variant_info", index, lib.libgemm_variant_get)
        same = [record[f] == getattr(found, f) for f in ("target", "warps", "ctas", "registers", "shared_bytes")]
        same += [record[f] == text(getattr(found, f)) for f in ("name", "sha256")]
        descriptors = any(guard.startswith("descriptor") for guard in record["guard"])
        same += [record["problem"]["op"] == text(found.op), descriptors == found.single]
        same += [("align16" in record["guard"] or descriptors) == found.align16]
        assert all(same), record["name"]
    targets = [info_of("libgemm_target_info", i, lib.libgemm_target_get) for i in range(lib.libgemm_target_count())]
    told = {str(t.target): (t.variants, t.min_cuda, text(t.min_driver)) for t in targets}
    assert told == {k: (t["variants"], t["min_cuda"], t["min_driver"]) for k, t in manifest["targets"].items()}


def test_a_cubin_is_an_elf_file_with_the_sha256_of_its_row():
    for index in (0, lib.libgemm_variant_count() - 1):
        found = info_of("libgemm_variant_info", index, lib.libgemm_variant_get)
        buffer = ffi.new("char[]", found.cubin_bytes)
        ok(lib.libgemm_variant_cubin(index, buffer, found.cubin_bytes))
        data = bytes(ffi.buffer(buffer))
        assert data[:4] == b"\x7fELF" and hashlib.sha256(data).hexdigest() == text(found.sha256)


def test_queries_out_of_range_are_refused():
    count, targets = lib.libgemm_variant_count(), lib.libgemm_target_count()
    info = ffi.new("libgemm_variant_info *", {"size": ffi.sizeof("libgemm_variant_info")})
    target = ffi.new("libgemm_target_info *", {"size": ffi.sizeof("libgemm_target_info")})
    buffer = ffi.new("char[]", 8)
    for index in (-1, count, 2**31 - 1):
        refused(lib.libgemm_variant_get(index, info), "INVALID_ARGUMENT", f"index = {index}", f"0 to {count - 1}")
        refused(lib.libgemm_variant_cubin(index, buffer, 8), "INVALID_ARGUMENT", f"index = {index}", f"{count - 1}")
    refused(lib.libgemm_target_get(targets, target), "INVALID_ARGUMENT", f"0 to {targets - 1}")
    refused(lib.libgemm_variant_cubin(0, buffer, 8), "INVALID_ARGUMENT", "bytes = 8")
    right = info_of("libgemm_variant_info", 0, lib.libgemm_variant_get).cubin_bytes
    refused(lib.libgemm_variant_cubin(0, ffi.NULL, right), "INVALID_ARGUMENT", "buffer")
    refused(lib.libgemm_variant_get(0, ffi.NULL), "INVALID_ARGUMENT", "NULL")


@pytest.mark.parametrize(
    ("name", "getter", "first_new"),
    [("libgemm_variant_info", "libgemm_variant_get", "architecture"),
     ("libgemm_target_info", "libgemm_target_get", "portable")],
)  # fmt: skip
def test_callers_with_an_older_or_a_newer_header_are_told_what_theirs_has(name, getter, first_new):
    """As the argument structs are judged: by their size."""
    get, whole, oldest = getattr(lib, getter), ffi.sizeof(name), ffi.offsetof(name, first_new)
    known = bytes(ffi.buffer(info_of(name, 0, get)))
    for size in (oldest, whole, whole + 64):
        room = ffi.new("unsigned char[]", b"\xee" * (whole + 128))
        struct = ffi.cast(f"{name} *", room)
        struct.size = size
        ok(get(0, struct))
        found = bytes(ffi.buffer(room))
        assert struct.size == size and found[8 : min(size, whole)] == known[8 : min(size, whole)]
        assert set(found[min(size, whole) : size]) <= {0} and set(found[size : whole + 128]) == {0xEE}
    for size in (0, 8, oldest - 1, 5000):
        wrong = ffi.new("unsigned char[]", whole)
        ffi.cast(f"{name} *", wrong).size = size
        refused(get(0, ffi.cast(f"{name} *", wrong)), "INVALID_ARGUMENT", f"size = {size}")
