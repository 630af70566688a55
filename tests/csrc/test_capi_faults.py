"""Every driver call libgemm makes fails once, with many codes: what is said, nothing launched, the next call works."""

import re

import pytest
from built import TARGET, needs
from calls import (
    OPS,
    Call,
    at,
    context,
    count,
    current,
    driver,
    fail,
    last_error,
    launches,
    log,
    ok,
    refused,
)
from libgemm._library import lib, text
from stand_in import in_stand_in

from build.link import CSRC

CODES = {
    1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 3: "CUDA_ERROR_NOT_INITIALIZED",
    100: "CUDA_ERROR_NO_DEVICE", 201: "CUDA_ERROR_INVALID_CONTEXT", 700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    719: "CUDA_ERROR_LAUNCH_FAILED", 900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", 999: "CUDA_ERROR_UNKNOWN",
}  # fmt: skip
# What a first call asks once a process: each code needs a process whose library has not asked yet.
FIRST = ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
         "cuDevicePrimaryCtxRetain")  # fmt: skip
LOADING = ("cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelSetAttribute", "cuKernelGetFunction")
ALWAYS = ("cuPointerGetAttribute", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuLaunchKernelEx")
SPECIAL = ("cuTensorMapEncodeTiled", "cuCtxGetDevice", "cuStreamIsCapturing", "cuMemcpyHtoDAsync_v2", "cuLibraryUnload",
           "cuCtxPopCurrent_v2", "cuDevicePrimaryCtxGetState", "cuCtxGetId",
           "cuGetErrorName", "cuGetErrorString")  # fmt: skip


def status_of(function: str, code: int) -> str:
    if function == "cuInit" and code == 100:
        return "NO_DRIVER"
    return "OUT_OF_MEMORY" if code == 2 else "DRIVER_ERROR"


def fails_once_then_works(call, function: str, code: int, nth: int = 1) -> None:
    before, copies = len(launches()), count("cuMemcpyHtoDAsync_v2")
    fail(f"{function}:{nth}:{code}")
    refused(call.run(), status_of(function, code), function.removesuffix("_v2"), CODES[code], f"({code})")
    assert len(launches()) == before
    if function not in ("cuLaunchKernelEx", "cuMemcpyHtoDAsync_v2"):
        assert count("cuMemcpyHtoDAsync_v2") == copies  # tables are copied last, so that a refusal queues nothing
    fail("cuMemAlloc_v2:1:0")  # a rule that never bites: counts go on
    ok(call.run())
    assert len(launches()) == before + 1


def test_every_driver_function_is_in_one_of_the_lists():
    used = re.findall(r'X\(\w+, "(\w+)"', (CSRC / "launch" / "driver.h").read_text())
    assert sorted(used) == sorted(FIRST + LOADING + ALWAYS + SPECIAL)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("function", FIRST)
@in_stand_in()
def test_a_failure_while_starting_is_told_and_not_remembered(function, code):
    fails_once_then_works(Call("gemm"), function, code)


@pytest.mark.parametrize("nth", [2, 3, 4, 5, 6])
@in_stand_in()
def test_each_device_fact_is_needed(nth):
    fails_once_then_works(Call("gemm"), "cuDeviceGetAttribute", 999, nth)


def own_variants(op: str) -> list[str]:
    """Names of variants for one problem, so that each is loaded for the first time."""
    from libgemm.inspect import variants

    alike = [v for v in variants() if (v.target, v.op, v.a_type, v.precision) == (TARGET, op, "bf16", "exact")]
    plain = [v for v in alike if v.d_type == "bf16" and not v.trans_a and not v.trans_b]
    # The call has one step in K, of which there is nothing to share, and ends that cut rows.
    refusing = ("_workspace", "_cluster", "_equal")
    return [v.name for v in plain if not any(guard in v.name for guard in refusing)]


def promised(op: str, variant: str) -> Call:
    """By name; tables are the caller's word to name aligned matrices."""
    return Call(op, variant=variant, **({"aligned": 1, "workspace_bytes": 1 << 17} if op == "grouped_gemm" else {}))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("function", LOADING)
@in_stand_in()
def test_a_failure_while_loading_is_told_and_leaves_nothing_half_done(function, code):
    for op in OPS:
        for name in own_variants(op):
            fails_once_then_works(promised(op, name), function, code)
    loaded, kernels = count("cuLibraryLoadData"), count("cuLibraryUnload")
    for op in OPS:
        for name in own_variants(op):
            ok(promised(op, name).run())
    assert (count("cuLibraryLoadData"), count("cuLibraryUnload")) == (loaded, kernels)


@in_stand_in()
def test_a_library_without_its_kernel_is_unloaded():
    fails_once_then_works(Call("gemm"), "cuLibraryGetKernel", 999)
    assert [record["result"] for record in log("cuLibraryUnload")] == [0]
    fail("cuLibraryGetKernel:1:999,cuLibraryUnload:1:719")
    other = Call("gemm", trans_b=1, ldb=64)
    refused(other.run(), "DRIVER_ERROR", "cuLibraryGetKernel", "999")
    fail(None)
    ok(other.run())


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_a_failure_of_a_warm_call_is_told_and_passes(op):
    call = Call(op)
    ok(call.run())
    for function in ALWAYS:
        for code in CODES:
            if function != "cuPointerGetAttribute" or code != 1:  # 1 is how the driver says "host memory"
                fails_once_then_works(call, function, code)


@in_stand_in()
def test_a_failure_on_any_pointer_of_a_call_is_told():
    call = Call("gemm", beta=1.0)
    for nth in (1, 2, 3, 4):
        fails_once_then_works(call, "cuPointerGetAttribute", 700, nth)


@needs(90)
@in_stand_in()
def test_a_tensor_map_that_cannot_be_made_is_told():
    """For each of A, B, C and D, in places no map was made for yet."""
    call = Call("gemm", m=4096, n=4096, k=4096, lda=4096, ldb=4096, ldc=4096, ldd=4096, beta=1.0)
    assert call.variant().single
    ok(call.run())
    for i, code in enumerate(CODES):
        for nth in (1, 2, 3, 4):
            call.set(**{x: at(place) + 16 * (4 * i + nth) for place, x in enumerate("abcd")})
            fails_once_then_works(call, "cuTensorMapEncodeTiled", code, nth)


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_a_failure_to_read_the_current_device_is_told(op):
    call = Call(op)
    with current(1):
        for code in CODES:
            fails_once_then_works(call, "cuCtxGetDevice", code)


@pytest.mark.parametrize("function", ["cuStreamIsCapturing", "cuMemcpyHtoDAsync_v2"])
@in_stand_in()
def test_a_failure_over_host_tables_is_told(function):
    for code in CODES:
        fails_once_then_works(Call("grouped_gemm"), function, code)


@in_stand_in()
def test_a_failed_pop_does_not_take_the_launch_back():
    call = Call("gemm")
    for number, code in enumerate(CODES):
        fail(f"cuCtxPopCurrent_v2:1:{code}")
        ok(call.run())
        fail(None)
        assert len(launches()) == number + 1 and driver().cuCtxPopCurrent_v2(None) == 0


def launched_by(call) -> str:
    ok(call.run())
    return launches()[-1]["by"]


@pytest.mark.parametrize("function", ["cuCtxGetId", "cuKernelGetFunction"])
@in_stand_in()
def test_a_kernel_whose_function_cannot_be_had_is_launched_by_its_own_handle(function):
    call = Call("gemm")
    assert launched_by(call) == "kernel"  # the first: nothing is remembered yet
    for code in CODES:
        fail(f"{function}:1:{code}")
        assert launched_by(call) == "kernel"
    fail(None)
    assert [launched_by(call) for _ in range(2)] == ["function"] * 2


@in_stand_in()
def test_an_error_the_driver_cannot_name_still_has_its_number():
    for rules in ("cuGetErrorName:*:1", "cuGetErrorString:*:1", "cuGetErrorName:*:1,cuGetErrorString:*:1"):
        fail(f"cuLaunchKernelEx:1:719,{rules}")
        refused(Call("gemm").run(), "DRIVER_ERROR", "cuLaunchKernelEx", "719")
    fail("cuLaunchKernelEx:1:12345")
    refused(Call("gemm").run(), "DRIVER_ERROR", "cuLaunchKernelEx", "12345")
    fail(None)
    ok(Call("gemm").run())


@pytest.mark.parametrize("function", [*FIRST, *LOADING, "cuCtxGetCurrent", "cuCtxPushCurrent_v2"])
@in_stand_in()
def test_preload_tells_failures_and_can_be_repeated(function):
    context(0)
    for code in CODES if function in LOADING else [719]:
        fail(f"{function}:1:{code}")
        refused(lib.libgemm_preload(0), status_of(function, code), function.removesuffix("_v2"), CODES[code])
    fail("cuMemAlloc_v2:1:0")
    ok(lib.libgemm_preload(0))
    loads = count("cuLibraryLoadData")
    ok(lib.libgemm_preload(0))
    assert count("cuLibraryLoadData") == loads > 0


@in_stand_in()
def test_failures_of_every_kind_leave_the_last_error_readable():
    fail("cuLaunchKernelEx:*:700")
    for op in OPS:
        assert text(lib.libgemm_status_name(Call(op).run())) == "LIBGEMM_DRIVER_ERROR"
        assert last_error().isprintable() and "cuLaunchKernelEx failed" in last_error()
