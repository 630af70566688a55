"""Loading: what preload loads, first use inside stream capture, after fork, and on GPUs of two capabilities."""

import os

import pytest
from built import TARGET
from calls import Call, at, count, driver, last_error, launches, log, new_stream, ok, refused, values
from libgemm._library import lib, text
from libgemm.inspect import info, variants
from stand_in import in_stand_in


@in_stand_in(CAPTURING=1)
def test_a_first_use_inside_capture_points_to_preload():
    """The stand-in allocates no memory while it captures, so capturing is off for that."""
    driver().fakecuda_set_capturing(0)
    call = Call("gemm")
    driver().fakecuda_set_capturing(1)
    refused(call.run(), "DRIVER_ERROR", "cuLibraryLoadData", "900", "libgemm_preload")
    refused(lib.libgemm_preload(0), "DRIVER_ERROR", "900")
    assert launches() == []


@in_stand_in()
def test_after_preload_a_captured_call_loads_nothing_and_launches():
    calls = [Call("gemm"), Call("grouped_mm"), Call("grouped_gemm").device_tables()]
    stream = new_stream()
    ok(lib.libgemm_preload(0))
    loaded = count("cuLibraryLoadData")
    assert loaded == info()["targets"][TARGET]["variants"]
    chunk_of = {f"libgemm_{v.name}": v.chunk for v in variants()}
    names = [call["kernel"] for call in log("cuLibraryGetKernel")]
    chunks = [chunk_of[name] for name in names if name in chunk_of]  # another target's rows run its code by its name
    assert len(chunks) > loaded // 2 and chunks == sorted(chunks)  # so that each is unpacked once
    driver().fakecuda_set_capturing(1)
    for call in calls:
        ok(call.set(stream=stream).run())
    ok(lib.libgemm_preload(0))
    assert count("cuLibraryLoadData") == loaded and len(launches()) == 3
    assert {launch["stream"] for launch in launches()} == {hex(stream)}


@in_stand_in()
def test_a_child_forked_after_use_is_told_so():
    ok(Call("gemm").run())
    call, before = Call("gemm"), len(launches())
    read, write = os.pipe()
    if os.fork() == 0:
        status = call.run()
        os.write(write, f"{text(lib.libgemm_status_name(status))} {last_error()}".encode())
        os._exit(0)
    os.wait()
    answer = os.read(read, 4096).decode()
    assert answer.startswith("LIBGEMM_DRIVER_ERROR") and "CUDA_ERROR_NOT_INITIALIZED" in answer and "fork" in answer
    ok(call.run())
    assert len(launches()) == before + 1


@in_stand_in(SM="90,80")
def test_each_gpu_gets_kernels_of_its_own_capability():
    if 80 not in info()["targets"]:
        pytest.skip("this library has no kernels for sm_80")
    for device in (0, 1, 0, 1):
        ok(Call("gemm", gpu=device).run())
    assert [launch["device"] for launch in launches()] == [0, 1, 0, 1]
    assert [load["sm"] for load in log("cuLibraryLoadData")] == [90, 80]
    assert values(launches()[1])["d_ptr"] == at(3, 1)
