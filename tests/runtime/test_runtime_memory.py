"""What an array says of its own memory: read-only, a copy, masked, shared, of a version unknown here. It is heeded."""

import libgemm
import pytest
from arrays import InterfaceArray, VersionedArray
from calls import at, launches
from stand_in import in_stand_in
from test_runtime_refusals import f16, gemm, grouped, refuse

REFUSED = {
    "newer capsule": (
        lambda: gemm(f16(0, 4, 6, version=(2, 1))), ("a's DLPack capsule has version 2.1", "1.x is needed")),
    "older capsule": (lambda: gemm(f16(0, 4, 6, version=(0, 8))), ("capsule has version 0.8",)),
    "masked": (lambda: gemm(InterfaceArray(at(0), (4, 6), mask=object())), ("a is masked",)),
    "old interface": (lambda: gemm(InterfaceArray(at(0), (4, 6), version=1)), ("a has version 1 of", "2 or 3")),
    "new interface": (lambda: gemm(InterfaceArray(at(0), (4, 6), version=4)), ("a has version 4 of", "2 or 3")),
    "stream 0": (lambda: gemm(InterfaceArray(at(0), (4, 6), stream=0)), ("a has stream 0", "1 or 2, a handle")),
    "negative bytes": (
        lambda: gemm(InterfaceArray(at(0), (2, 4, 6), strides=(-24, 6, 1)), out=f16(3, 2, 4, 8)),
        ("strides of (-48, 12, 2) bytes", "0 or more")),
    "read-only out": (lambda: gemm(out=f16(3, 4, 8, flags=1)), ("out is read-only", "DLPack")),
    "copied out": (lambda: gemm(out=f16(3, 4, 8, flags=2)), ("out came as a copy", "the array itself")),
    "read-only out, interface": (
        lambda: gemm(out=InterfaceArray(at(3), (4, 8), data=(at(3), True))), ("out is read-only", "cuda_array_inter")),
    "expanded rows of out": (lambda: gemm(out=f16(3, 4, 8, strides=(0, 1))), ("out has shape", "(0, 1)", "expanded")),
    "expanded columns of out": (
        lambda: gemm(b=f16(1, 6, 1), out=f16(3, 4, 1, strides=(0, 1))), ("out has shape (4, 1)", "expanded")),
    "overlapping out": (
        lambda: gemm(f16(0, 2, 4, 6), out=f16(3, 2, 4, 8, strides=(16, 8, 1))), ("batch_stride_d = 16", "overlap")),
    "read-only groups": (lambda: grouped(out=[f16(3, 4, 8), f16(3, 4, 8, flags=1)]), ("out[1] is read-only",)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@in_stand_in()
def test_memory_that_cannot_serve_is_refused(name):
    refuse(*REFUSED[name])


@in_stand_in()
def test_read_only_and_copied_memory_is_read():
    a, b = f16(0, 4, 6, flags=1), f16(1, 6, 8, flags=2)
    gemm(a, b)
    gemm(InterfaceArray(at(0), (4, 6), data=(at(0), True)), b, bias=f16(4, 8, flags=3))
    assert len(launches()) == 2


@in_stand_in()
def test_nothing_needs_no_address():
    for nothing in (InterfaceArray(0, (0, 6)), InterfaceArray(None, (0, 6), version=2), VersionedArray(0, (0, 6))):
        assert libgemm.gemm(nothing, f16(1, 6, 8), out=f16(3, 0, 8)).shape == (0, 8)
    assert launches() == []
