"""The Python calls: what they make of arrays' shapes, strides and streams, down to the launch. Refusals: _refusals."""

import libgemm
import pytest
from arrays import KINDS, DLPackArray, InterfaceArray, VersionedArray
from built import TARGET
from calls import at, current, launches, log, new_stream, values
from runtime_arrays import array, general
from stand_in import in_stand_in


@pytest.mark.parametrize("kind", KINDS)
@in_stand_in()
def test_each_protocol_gives_the_same_launch(kind):
    a, b, c = (array(i, 8, 16, 24, kind=kind) for i in range(3))
    b.shape, c.shape = (8, 24, 32), (8, 16, 32)
    out, bias = array(3, 8, 16, 32, kind=kind), array(4, 8, 32, kind=kind)
    words = {"alpha": 0.5, "beta": 2.0, "bias": bias, "activation": "gelu", "variant": general("gemm", "nn")}
    made = libgemm.gemm(a, b, c, **words, out=out, stream=0)
    assert made is out
    found = values(launches()[0])
    assert {f"{x}_ptr": at(i) for i, x in enumerate(("a", "b", "c", "d", "bias"))}.items() <= found.items()
    sizes = {"M": 16, "N": 32, "K": 24, "lda": 24, "ldb": 32, "ldc": 32, "ldd": 32, "activation": 2}
    strides = {"batch_stride_a": 384, "batch_stride_b": 768, "batch_stride_c": 512, "batch_stride_d": 512}
    assert (sizes | strides | {"batch_stride_bias": 32, "alpha": 0.5, "beta": 2.0}).items() <= found.items()


STORED = [  # shape, strides in elements -> letter, leading dimension
    ((4, 6), None, "n", 6),
    ((4, 6), (10, 1), "n", 10),
    ((4, 6), (1, 4), "t", 4),
    ((4, 6), (1, 9), "t", 9),
    ((4, 1), (1, 1), "t", 8),  # one stored row, as the next ones but one: whole pieces of 16 bytes to the core
    ((4, 1), (7, 1), "n", 7),
    ((1, 6), (6, 1), "n", 8),
    ((1, 6), (999, 1), "n", 8),
    ((1, 6), (1, 3), "t", 3),
    ((1, 1), (5, 9), "n", 8),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "strides", "letter", "ld"), STORED)
@in_stand_in()
def test_storage_is_read_from_the_strides(shape, strides, letter, ld, kind):
    rows, cols = shape
    a = array(0, *shape, strides=strides, kind=kind)
    b, out = array(1, cols, 8, kind=kind), array(3, rows, 8, kind=kind)
    libgemm.gemm(a, b, out=out, variant=general("gemm", letter + "n"))
    assert values(launches()[-1])["lda"] == ld
    b, out = array(1, 64, rows, kind=kind), array(3, 64, cols, kind=kind)
    libgemm.gemm(b, a, out=out, variant=general("gemm", ("t" if rows == 1 else "n") + letter))
    assert values(launches()[-1])["ldb"] == ld


@in_stand_in()
def test_a_padded_output_and_c_keep_their_leading_dimensions():
    out, c = array(3, 4, 8, strides=(16, 1)), array(2, 4, 8, strides=(24, 1))
    libgemm.gemm(array(0, 4, 6), array(1, 6, 8), c, beta=1.0, out=out)
    found = values(launches()[0])
    assert (found["ldd"], found["ldc"]) == (16, 24)


@in_stand_in()
def test_out_serves_as_c_and_c_is_not_looked_at_when_beta_is_zero():
    out = array(3, 4, 8)
    libgemm.gemm(array(0, 4, 6), array(1, 6, 8), beta=1.0, out=out)
    libgemm.gemm(array(0, 4, 6), array(1, 6, 8), "nonsense", out=out)
    first, second = map(values, launches())
    assert (first["c_ptr"], first["ldc"], second["beta"]) == (at(3), 8, 0.0)


@in_stand_in()
def test_a_matrix_is_shared_by_the_other_s_batch():
    out = array(3, 5, 4, 8)
    libgemm.gemm(array(0, 4, 6), array(1, 5, 6, 8), out=out)
    libgemm.gemm(array(0, 5, 4, 6), array(1, 6, 8), out=out, bias=array(4, 8))
    libgemm.gemm(array(0, 5, 4, 6, strides=(0, 6, 1)), array(1, 5, 6, 8), out=out)
    strides = [(x["batch_stride_a"], x["batch_stride_b"], x["batch_stride_d"]) for x in map(values, launches())]
    assert strides == [(0, 48, 32), (24, 0, 32), (0, 48, 32)]
    assert {x["grid"][0] for x in launches()} == {5} and values(launches()[1])["batch_stride_bias"] == 0


@pytest.mark.parametrize("shapes", [((0, 6), (6, 8)), ((4, 6), (6, 0)), ((0, 4, 6), (0, 6, 8))], ids=str)
@in_stand_in()
def test_an_empty_product_launches_nothing(shapes):
    a, b = shapes
    out = array(3, *a[:-1], b[-1])
    assert libgemm.gemm(array(0, *a), array(1, *b), out=out) is out
    assert launches() == []


@in_stand_in()
def test_a_product_over_nothing_still_writes():
    libgemm.gemm(array(0, 4, 0), array(1, 0, 8), out=array(3, 4, 8))
    assert values(launches()[0])["K"] == 0


class Stream:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class ProtocolStream:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


@in_stand_in()
def test_the_stream_reaches_the_launch_and_the_producers():
    handle = new_stream()
    forms = [handle, Stream(cuda_stream=handle), Stream(ptr=handle), ProtocolStream(handle)]
    for form in forms:
        a = array(0, 4, 6)
        libgemm.gemm(a, array(1, 6, 8), out=array(3, 4, 8), stream=form)
        assert a.streams and set(a.streams) == {handle}
    assert [launch["stream"] for launch in launches()] == [hex(handle)] * len(forms)
    a = array(0, 4, 6)
    libgemm.gemm(a, array(1, 6, 8), out=array(3, 4, 8))
    assert launches()[-1]["stream"] == "0x0" and set(a.streams) == {1}  # DLPack's name of the default stream


@in_stand_in()
def test_tables_on_the_device_are_passed_through():
    names = ("a", "b", "d", "m", "n", "k", "lda", "ldb", "ldd", "c", "ldc", "bias")
    tables = {name: InterfaceArray(at(7) + 256 * i, (3,), "i64") for i, name in enumerate(names)}
    libgemm.grouped_gemm_tables(**tables, dtype="float16", out_dtype="f32", trans_b=True, beta=1.0, activation="silu")
    found = values(launches()[0])
    for i, name in enumerate(names):
        field = f"group_{name}" if name in ("m", "n", "k") or name.startswith("ld") else f"{name}_ptrs"
        assert found[field] == at(7) + 256 * i, name
    assert (found["groups"], found["beta"], found["activation"]) == (3, 1.0, 3) and log("cuMemcpyHtoDAsync_v2") == []


@in_stand_in()
def test_arrays_of_another_gpu_run_there():
    a, b, out = (VersionedArray(at(i, 1), (8, 8), device=(2, 1)) for i in range(3))
    with current(0):
        libgemm.gemm(a, b, out=out)
    assert launches()[0]["device"] == 1


@in_stand_in()
def test_a_byte_offset_belongs_to_the_pointer_and_managed_memory_is_taken():
    a = VersionedArray(at(0) + 64, (4, 6), offset=64)
    libgemm.gemm(a, DLPackArray(at(1), (6, 8), device=(13, 0)), out=array(3, 4, 8))
    assert values(launches()[0])["a_ptr"] == at(0) + 64


@in_stand_in()
def test_preload_then_calls_load_nothing():
    libgemm.preload()
    loads = len(log("cuLibraryLoadData"))
    libgemm.gemm(array(0, 4, 6), array(1, 6, 8), out=array(3, 4, 8))
    assert len(log("cuLibraryLoadData")) == loads == libgemm.info()["targets"][TARGET]["variants"]
