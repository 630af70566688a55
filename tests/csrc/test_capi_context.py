"""Contexts: which one a call makes current, what it retains, what becomes of it after a reset; memory of a peer."""

import ctypes

import pytest
from built import TARGET, needs
from calls import Call, allocate, at, context, current, current_context, driver, launches, log, memory, ok, refused
from libgemm._library import ffi, lib
from stand_in import in_stand_in


def is_active(gpu: int) -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    assert driver().cuDevicePrimaryCtxGetState(gpu, ctypes.byref(flags), ctypes.byref(active)) == 0
    return bool(active.value)


@pytest.mark.parametrize("op", ["gemm", "grouped_mm", "grouped_gemm"])
@in_stand_in()
def test_a_process_of_the_second_gpu_makes_no_context_on_the_first(op):
    """Each takes hundreds of megabytes there, of every rank of a job."""
    call = Call(op, gpu=1)
    call.workspace()
    ok(call.explain(TARGET)[0])
    ok(call.run())
    assert is_active(1) and not is_active(0)


@in_stand_in()
def test_to_explain_for_the_current_gpu_makes_no_context():
    ok(Call("gemm").explain(0)[0])
    assert [is_active(gpu) for gpu in (0, 1)] == [True, False]  # 0's is that of the operands
    assert all(record["retained"] == 1 for record in log("cuDevicePrimaryCtxRetain"))


@needs(80, 90)
@in_stand_in(SM="90,80")
def test_the_workspace_is_that_of_the_gpu_that_owns_d():
    """Only Hopper's rows split K through a workspace here."""
    few = {"m": 8, "n": 64, "k": 32768, "lda": 32768, "ldb": 32768, "ldc": 64, "ldd": 64, "trans_b": 1}
    split = {gpu: Call("gemm", gpu=gpu, **few).workspace() for gpu in (0, 1)}
    shared = {"shared_b": 1, "groups": 2, **few}
    assert split[0] > 0 == split[1]
    for outer in (None, 0, 1):
        for gpu in (0, 1):
            calls = Call("gemm", gpu=gpu, **few), Call("grouped_mm", gpu=gpu, **shared)
            if outer is None:
                assert [call.workspace() for call in calls] == [split[gpu]] * 2
                continue
            with current(outer):
                assert [call.workspace() for call in calls] == [split[gpu]] * 2
    with current(1):
        assert Call("gemm", d=0, **few).workspace() == split[1]  # no D yet: the current GPU
    refused(workspace_of(Call("gemm", d=4096, **few)), "INVALID_ARGUMENT", "d = 0x1000", "host memory")


def workspace_of(call: Call) -> int:
    return lib.libgemm_gemm_workspace(call.args, ffi.new("uint64_t *"))


@pytest.mark.parametrize("op", ["gemm", "grouped_mm"])
@in_stand_in()
def test_what_is_remembered_of_a_context_goes_with_it(op):
    """A function is of one context: of one made anew, whose handle is the same, it is no function any more."""
    used = []
    for _ in range(3):
        memory.cache_clear()  # what there was went with the context
        call = Call(op)
        for _ in range(3):
            ok(call.run())
            used.append(launches()[-1]["by"])
        assert driver().cuDevicePrimaryCtxReset_v2(0) == 0
        again = ctypes.c_void_p()
        assert driver().cuDevicePrimaryCtxRetain(ctypes.byref(again), 0) == 0 and again.value == context(0)
    assert used == ["kernel"] + ["function"] * 8


@in_stand_in()
def test_a_gpu_that_was_reset_serves_again():
    with current(0):
        ok(Call("gemm").run())
    kernels = len(log("cuLibraryLoadData"))
    assert driver().cuDevicePrimaryCtxReset_v2(0) == 0
    refused(Call("gemm").run(), "INVALID_ARGUMENT", "d = 0x", "(or freed)")  # its memory went with the context
    again = ctypes.c_void_p()
    assert driver().cuDevicePrimaryCtxRetain(ctypes.byref(again), 0) == 0 and again.value == context(0)
    places = {name: allocate(1 << 16) for name in "abcd"}
    ok(Call("gemm", **places).run())  # in a thread without a context
    with current(0):
        ok(Call("gemm", **places).run())
    assert len(launches()) == 3 and len(log("cuLibraryLoadData")) == kernels
    assert current_context() is None


@pytest.mark.parametrize("op", ["gemm", "grouped_mm"])
@in_stand_in()
def test_memory_of_a_peer_is_taken_where_access_is_enabled(op):
    for name in ("a", "b", "c", "bias"):
        foreign = Call(op, **{name: at(7, 1)}, beta=1.0)
        refused(foreign.run(), "INVALID_ARGUMENT", f"{name} is memory of GPU 1", "GPU 0", "peer access")
    with current(0):
        assert driver().cuCtxEnablePeerAccess(ctypes.c_void_p(context(1)), 0) == 0
    for name in ("a", "b", "c", "bias"):
        ok(Call(op, **{name: at(7, 1)}, beta=1.0).run())
    assert [launch["device"] for launch in launches()] == [0] * 4
    refused(Call(op, gpu=1, a=at(7, 0)).run(), "INVALID_ARGUMENT", "a is memory of GPU 0")  # not the other way round
