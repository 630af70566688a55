"""Each status of the C interface provoked: its sentence, and that the next call works. Not the table of bad fields."""

import re
import threading

import pytest
from built import TARGET, needs
from calls import OPS, Call, at, count, driver, fail, last_error, launches, ok, refused
from libgemm._library import lib, text
from libgemm.inspect import info
from stand_in import driver_folder, in_stand_in, python, run, scratch

from build.link import header_text

# One call without a driver, in a process that has none.
BARE = """
from calls import *
args = ffi.new("libgemm_gemm_args *", {"m": 8, "n": 8, "k": 8, "lda": 8, "ldb": 8, "ldd": 8, "batch": 1})
args.size, args.a_type, args.d_type = ffi.sizeof("libgemm_gemm_args"), lib.LIBGEMM_F16, lib.LIBGEMM_F16
args.d = ffi.cast("void *", 16)
for call in (lambda: lib.libgemm_gemm(args), lambda: lib.libgemm_preload(0)):
    print(text(lib.libgemm_status_name(call())), last_error())
"""


def statuses() -> dict[str, int]:
    listed = header_text().split("typedef enum libgemm_status")[1].split("}")[0]
    return {name: int(value) for name, value in re.findall(r"(LIBGEMM_\w+) = (\d+)", listed)}


def test_every_status_has_a_name_and_a_text_of_its_own():
    found = {name: value for name, value in statuses().items() if text(lib.libgemm_status_name(value)) == name}
    assert sorted(found.values()) == list(range(8))
    assert len({text(lib.libgemm_status_text(value)) for value in found.values()}) == 8


@pytest.mark.parametrize("number", [-1, 8, 1000, 2**31 - 1, -(2**31)])
def test_a_number_that_is_no_status_has_words_too(number):
    assert "unknown" in text(lib.libgemm_status_name(number))
    assert "not a status" in text(lib.libgemm_status_text(number))


@in_stand_in()
def test_the_last_error_starts_empty_and_belongs_to_its_thread():
    assert last_error() == ""
    refused(Call("gemm", m=-5).run(), "INVALID_ARGUMENT", "m = -5")
    seen = []

    def other():
        seen.append(last_error())
        refused(Call("gemm", n=-6).run(), "INVALID_ARGUMENT", "n = -6")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [""] and "m = -5" in last_error()
    ok(Call("gemm").run())
    assert "m = -5" in last_error()


def test_without_a_driver_library_a_call_says_so():
    lines = python(BARE, driver=False).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("LIBGEMM_NO_DRIVER") and "libcuda.so.1" in line and "install the driver" in line


def test_an_old_driver_library_without_a_function_is_named():
    folder = scratch() / "empty-driver"
    folder.mkdir()
    built = run("cc", "-shared", "-Wl,-soname,libcuda.so.1", "-x", "c", "/dev/null", "-o", folder / "libcuda.so.1")
    assert built.returncode == 0
    for line in python(BARE, driver=False, LD_LIBRARY_PATH=folder).splitlines():
        assert line.startswith("LIBGEMM_NO_DRIVER") and "libcuda.so.1 has no cu" in line and "525" in line


def test_a_driver_that_appears_later_is_found():
    late = f"import ctypes; ctypes.CDLL({str(driver_folder() / 'libcuda.so.1')!r})\nok(lib.libgemm_preload(0))\n"
    assert "LIBGEMM_NO_DRIVER" in python(BARE + late, driver=False, FAKECUDA_SM=TARGET)


@in_stand_in(NO_DEVICE=1)
def test_a_driver_without_a_gpu_is_no_driver():
    refused(lib.libgemm_preload(0), "NO_DRIVER", "cuInit", "CUDA_ERROR_NO_DEVICE", "100")


@in_stand_in(VERSION=11080, SM="90,100")
def test_a_driver_too_old_is_told_what_it_needs():
    for device, (target, floor) in enumerate((t, f) for t, f in info()["targets"].items() if t in (90, 100)):
        major, minor = divmod(floor["min_cuda"], 1000)
        words = ("CUDA 11.8", f"CUDA {major}.{minor // 10}", floor["min_driver"], f"Fake GPU sm_{target}")
        refused(lib.libgemm_preload(device), "DRIVER_TOO_OLD", *words)
        assert ("MIN_DRIVER=525" in text(lib.libgemm_last_error())) == (floor["min_driver"] != "525")
    refused(Call("gemm").run(), "DRIVER_TOO_OLD", "CUDA 11.8", "update the driver")
    assert launches() == []


@in_stand_in(SM="75,90")
def test_a_gpu_without_kernels_is_named_and_others_work():
    allowed = ", ".join(f"sm_{t}" for t in info()["targets"])
    for op in OPS:
        refused(Call(op).run(), "UNSUPPORTED_DEVICE", "Fake GPU sm_75", "7.5", allowed, "no version of libgemm")
    assert launches() == []
    ok(Call("gemm", gpu=1).run())
    assert [launch["device"] for launch in launches()] == [1]


@in_stand_in()
def test_explain_refuses_a_target_without_kernels():
    status, _ = Call("gemm").explain(75)
    refused(status, "UNSUPPORTED_DEVICE", "target = 75")
    for number in (-1, 1, 2**31 - 1):
        refused(Call("gemm").explain(number)[0], "UNSUPPORTED_DEVICE", f"target = {number}")
    ok(Call("gemm").explain(TARGET)[0])


@in_stand_in()
def test_preload_refuses_a_gpu_that_is_not_there():
    for device in (-1, 2, 64, 2**31 - 1):
        refused(lib.libgemm_preload(device), "INVALID_ARGUMENT", f"device = {device}", "0 to 1")
    ok(lib.libgemm_preload(1))


@in_stand_in()
def test_an_unknown_variant_is_unsupported():
    for op in OPS:
        refused(Call(op, variant="no_such").run(), "UNSUPPORTED", "variant = no_such", op, "bf16", f"sm_{TARGET}")
        refused(Call(op, variant="no_such").explain(TARGET)[0], "UNSUPPORTED", "variant = no_such")
        ok(Call(op).run())
    assert len(launches()) == len(OPS)


@in_stand_in()
def test_a_variant_of_another_problem_is_unsupported():
    name = text(Call("gemm", trans_b=1, ldb=64).variant().name)
    ok(Call("gemm", trans_b=1, ldb=64, variant=name).run())
    refused(Call("gemm", variant=name).run(), "UNSUPPORTED", name, "trans_a 0 trans_b 0")


@needs(90)
@in_stand_in()
def test_a_pinned_variant_whose_guard_is_not_met_is_unsupported():
    name = "gemm_bf16_bf16_bf16_nn__sm90__128x128x64_w8_s3_align16_linear"
    ok(Call("gemm", variant=name).run())
    unaligned = ({"a": at(0) + 2}, {"d": at(3) + 2}, {"lda": 65}, {"k": 63}, {"n": 79}, {"ldd": 81})
    for change in (*unaligned, {"c": at(2) + 2, "beta": 1}, {"ldc": 81, "beta": 1}):
        refused(Call("gemm", variant=name, **change).run(), "UNSUPPORTED", name, "16-byte aligned")
        ok(Call("gemm", **change).run())
    refused(Call("gemm", variant=name, activation=2).run(), "UNSUPPORTED", name, "needs no activation")
    ok(Call("gemm", variant=name, c=at(2) + 2, ldc=81).run())
    assert len(launches()) == 10


@in_stand_in()
def test_host_tables_are_refused_while_the_stream_is_captured():
    call = Call("grouped_gemm")
    driver().fakecuda_set_capturing(1)
    refused(call.run(), "UNSUPPORTED", "host_tables = 1", "captured", "device memory")
    driver().fakecuda_set_capturing(0)
    ok(call.run())
    assert len(launches()) == 1 and count("cuMemcpyHtoDAsync_v2") == 1


@in_stand_in()
def test_memory_running_out_while_loading_is_told_apart():
    fail("cuLibraryLoadData:1:2")
    refused(Call("gemm").run(), "OUT_OF_MEMORY", "cuLibraryLoadData", "CUDA_ERROR_OUT_OF_MEMORY", "(2)")
    ok(Call("gemm").run())
    assert len(launches()) == 1


@in_stand_in()
def test_a_failed_driver_call_is_a_driver_error():
    fail("cuLaunchKernelEx:1:719")
    refused(Call("gemm").run(), "DRIVER_ERROR", "cuLaunchKernelEx", "CUDA_ERROR_LAUNCH_FAILED", "719", "unspecified")
    ok(Call("gemm").run())
    assert len(launches()) == 1


@in_stand_in()
def test_a_gpu_fault_is_not_blamed_on_the_pointers():
    """After a fault every driver call returns its code; the arguments are fine."""
    call = Call("gemm")
    fail("cuPointerGetAttribute:*:700")
    refused(call.run(), "DRIVER_ERROR", "cuPointerGetAttribute", "CUDA_ERROR_ILLEGAL_ADDRESS", "700")
