"""Where a call runs: GPU, context, thread, stream; and what it copies there first. Shapes are test_capi_launch's."""

import ctypes
import struct
import threading

import pytest
from built import TARGET
from calls import (
    GROUPS,
    OPS,
    Call,
    K,
    M,
    N,
    at,
    context,
    current,
    current_context,
    last_launch,
    launches,
    log,
    new_stream,
    ok,
    refused,
    values,
)
from libgemm._library import lib
from stand_in import in_stand_in

TABLES = ("a", "b", "c", "d", "bias", "m", "n", "k", "lda", "ldb", "ldc", "ldd")


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_the_gpu_that_owns_d_runs_the_call_whatever_is_current(op):
    calls = {gpu: Call(op, gpu=gpu) for gpu in (0, 1)}
    for outer in (None, 0, 1):
        for call in calls.values():
            if outer is None:
                ok(call.run())
                assert current_context() is None
                continue
            with current(outer):
                ok(call.run())
                assert current_context() == context(outer)
    assert [launch["device"] for launch in launches()] == [0, 1] * 3
    assert current_context() is None


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_a_failed_call_leaves_the_context_stack_as_it_was(op):
    call = Call(op, gpu=1, variant="no_such")
    with current(0):
        refused(call.run(), "UNSUPPORTED")
        assert current_context() == context(0)
    refused(call.run(), "UNSUPPORTED")
    assert current_context() is None


@in_stand_in()
def test_the_caller_s_own_context_is_used_when_it_is_the_right_one():
    call = Call("gemm")
    with current(0):
        before = len(log("cuCtxPushCurrent_v2"))
        ok(call.run())
        assert len(log("cuCtxPushCurrent_v2")) == before


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_a_thread_that_never_used_cuda_can_call(op):
    call, seen = Call(op), []

    def work():
        seen.extend((current_context(), call.run(), current_context()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, 0, None] and len(launches()) == 1


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_the_stream_is_passed_on(op):
    streams = [new_stream(), 0, new_stream(), 2]
    for stream in streams:
        ok(Call(op, stream=stream).run())
    assert [launch["stream"] for launch in launches()] == [hex(stream) for stream in streams]
    copies = log("cuMemcpyHtoDAsync_v2")
    assert [copy["stream"] for copy in copies] == [hex(stream) for stream in streams] * (op == "grouped_gemm")


@in_stand_in()
def test_a_stream_of_another_gpu_is_the_driver_s_error():
    refused(Call("gemm", stream=new_stream(1)).run(), "DRIVER_ERROR", "cuLaunchKernelEx", "400")
    ok(Call("gemm").run())


def mixed_tables() -> dict:
    """Three groups, all of other sizes, the middle one empty."""
    return {
        "m": [M, 0, 8], "n": [N, 16, 24], "k": [K, 8, 0], "lda": [K + 8, 8, -5], "ldb": [N + 16, 16, 0],
        "ldd": [N + 24, 0, 24], "ldc": [N + 32, 0, 32],
        **{x: [at(i), 0, at(i) + 2] for i, x in enumerate(("a", "b", "c", "d", "bias"))},
    }  # fmt: skip


def copied_tables() -> dict[str, list[int]]:
    data = ctypes.string_at(at(6), len(TABLES) * GROUPS * 8)
    numbers = struct.unpack(f"<{len(TABLES) * GROUPS}q", data)
    return {name: list(numbers[i * GROUPS : (i + 1) * GROUPS]) for i, name in enumerate(TABLES)}


@pytest.mark.parametrize("stream", ["default", "own"])
@in_stand_in()
def test_host_tables_reach_the_workspace_as_they_are(stream):
    tables, handle = mixed_tables(), new_stream() if stream == "own" else 0
    ok(Call("grouped_gemm", **tables, beta=1.0, stream=handle).run())
    assert copied_tables() == tables
    copy, launched = log("cuMemcpyHtoDAsync_v2", "cuLaunchKernelEx")
    assert (copy["call"], copy["address"], copy["bytes"]) == ("cuMemcpyHtoDAsync_v2", hex(at(6)), GROUPS * 96)
    assert launched["kernel"] == f"libgemm_{last_launch()['variant']}"  # what a profiler shows
    found = values(last_launch())
    assert found["groups"] == GROUPS
    for i, name in enumerate(TABLES):
        field = f"group_{name}" if name in ("m", "n", "k") or name.startswith("ld") else f"{name}_ptrs"
        assert found[field] == at(6) + i * GROUPS * 8, name


@in_stand_in()
def test_tables_that_are_not_given_reach_the_kernel_as_null():
    ok(Call("grouped_gemm", c=0, ldc=0).run())
    found = values(launches()[0])
    assert (found["bias_ptrs"], found["c_ptrs"], found["group_ldc"]) == (0, 0, 0)


@in_stand_in()
def test_device_tables_go_to_the_kernel_as_they_are():
    call = Call("grouped_gemm", alpha=0.25, beta=0.5, activation=3).device_tables()
    ok(call.set(workspace=0, workspace_bytes=0).run())
    found = values(launches()[0])
    assert log("cuMemcpyHtoDAsync_v2") == [] and (found["alpha"], found["beta"], found["activation"]) == (0.25, 0.5, 3)
    given = [name for name in TABLES if name != "bias"]
    for i, name in enumerate(given):
        field = f"group_{name}" if name in ("m", "n", "k") or name.startswith("ld") else f"{name}_ptrs"
        assert found[field] == at(7) + 256 * i, name
    assert found["bias_ptrs"] == 0


@in_stand_in()
def test_a_wrong_device_table_is_refused_by_name():
    for name in TABLES:
        if name != "bias":
            wrong = Call("grouped_gemm", beta=1.0).device_tables().set(**{name: 4096})
            refused(wrong.run(), "INVALID_ARGUMENT", f"{name} = 0x1000", "host memory")
            wrong = Call("grouped_gemm", beta=1.0, device=0).device_tables().set(**{name: at(0, 1)})
            refused(wrong.run(), "INVALID_ARGUMENT", f"{name} is memory of GPU 1", "GPU 0")
    assert launches() == []


@in_stand_in()
def test_the_device_field_names_the_gpu_of_a_grouped_call():
    ok(Call("grouped_gemm", gpu=1, device=1).run())
    refused(Call("grouped_gemm", gpu=1, device=0).run(), "INVALID_ARGUMENT", "GPU 1", "GPU 0")
    assert [launch["device"] for launch in launches()] == [1]


@in_stand_in()
def test_explain_for_the_current_gpu_follows_the_context():
    with current(1):
        ok(Call("gemm").explain(0)[0])
    assert Call("gemm").explain(0)[1].variant == Call("gemm").explain(TARGET)[1].variant >= 0
    assert launches() == [] and lib.libgemm_variant_count() > 0
