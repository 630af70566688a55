"""Which stream a call is queued on, what it waits for there, and of which stream's memory its arrays are."""

import cupy_like
import libgemm
import pytest
import torch_like
from arrays import InterfaceArray, LentArray, VersionedArray
from built import needs
from calls import at, current, fail, launches, log, new_stream, values, write
from stand_in import in_stand_in
from torch_like import Tensor, torch, waits

M, N, K = 8, 64, 32768  # few tiles and a long K: the call has a workspace


def tensors(**changes) -> dict:
    return {"a": Tensor(at(0), (M, K)), "b": Tensor(at(1), (K, N), strides=(1, K)), **changes}


def cupy_arrays(**changes) -> dict:
    return {"a": cupy_like.ndarray(at(0), (M, K)), "b": cupy_like.ndarray(at(1), (K, N)), **changes}


@needs(90)  # whose rows have a workspace
@pytest.mark.parametrize("times", [1, 3])  # anew, and again
@in_stand_in()
def test_what_torch_allocates_for_another_stream_is_of_that_stream_s_memory(times):
    torch_like.install()
    mine, other = new_stream(), new_stream()
    torch_like.streams[0] = mine
    for _ in range(times):
        out = libgemm.gemm(**tensors(), stream=other)
    workspace = torch.made[-1]
    assert workspace.dtype is torch.uint8 and values(launches()[-1])["semaphores"] == workspace.data_ptr()
    assert (out.pool, workspace.pool) == (other, other)
    assert (out.recorded, workspace.recorded) == ([mine], [])  # the caller may use and drop it on his stream too
    assert torch_like.streams[0] == mine and launches()[-1]["stream"] == hex(other)


@in_stand_in()
def test_what_torch_allocates_for_its_own_stream_needs_no_mark():
    torch_like.install()
    torch_like.streams[0] = mine = new_stream()
    for stream in (None, mine, mine):
        out = libgemm.gemm(**tensors(), stream=stream)
        assert (out.pool, out.recorded, torch.made[-1].pool, waits) == (mine, [], mine, [])


@needs(90)  # whose rows have a workspace
@in_stand_in()
def test_what_cupy_allocates_for_another_stream_is_of_that_stream_s_memory():
    cupy = cupy_like.install()
    mine, other = new_stream(), new_stream()
    cupy_like.streams[0] = mine
    out = libgemm.gemm(**cupy_arrays(), stream=other)
    workspace = cupy.made[-1]
    assert out is cupy.made[0] and out is not workspace
    assert (out.pool, workspace.pool, cupy_like.streams[0]) == (other, other, mine)
    assert len(cupy_like.deprecated) == 2
    libgemm.gemm(**cupy_arrays())
    libgemm.gemm(**cupy_arrays(), stream=cupy.cuda.Stream(other, 0))
    assert [made.pool for made in cupy.made[2:]] == [mine, mine, other, other]
    assert len(cupy_like.deprecated) == 2  # CuPy's own streams are used as they are


@in_stand_in()
def test_cupy_s_stream_is_that_of_the_array_s_gpu():
    cupy = cupy_like.install()
    cupy_like.streams.update({0: new_stream(0), 1: new_stream(1)})
    arrays = {name: cupy_like.ndarray(at(i, 1), (64, 64), device=1) for i, name in enumerate("ab")}
    libgemm.gemm(**arrays)
    assert launches()[-1]["stream"] == hex(cupy_like.streams[1]) and cupy.made[0].device.id == 1


def packed(a: Tensor, **words):
    return libgemm.grouped_mm(a, Tensor(at(1), (2, 64, 64)), Tensor(at(5), (2,), "int32"), **words)


def lists(a: Tensor, **words):
    return libgemm.grouped_gemm([a, a], [Tensor(at(1), (64, 64))] * 2, **words)[1]


@pytest.mark.parametrize("call", [packed, lists])
@in_stand_in()
def test_grouped_calls_keep_to_the_stream_too(call):
    torch_like.install()
    torch_like.streams[0], other = new_stream(), new_stream()
    out = call(Tensor(at(0), (96, 64)), stream=other)
    assert {made.pool for made in torch.made} == {other} and out.recorded == [torch_like.streams[0]]
    assert waits == [(other, torch_like.streams[0], 0)]


@in_stand_in()
def test_a_call_waits_once_for_what_torch_has_queued_on_another_stream():
    torch_like.install()
    mine, other = new_stream(), new_stream()
    torch_like.streams[0] = mine
    out = Tensor(at(3), (M, N))
    for count in range(3):
        libgemm.gemm(**tensors(), out=out, stream=other)
        assert waits[count:] == [(other, mine, count)]
    libgemm.gemm(**tensors(), out=out, stream=0)
    libgemm.gemm(**tensors(), out=out, stream=1)  # CUDA's other name for the default stream
    assert [wait[:2] for wait in waits[3:]] == [(0, mine), (0, mine)]


@in_stand_in()
def test_a_call_on_cupy_s_stream_waits_for_torch_s():
    """a is being written by CuPy, b by torch: each on its own stream."""
    torch_like.install(), cupy_like.install()
    torch_like.streams[0], cupy_like.streams[0] = new_stream(), new_stream()
    a, b = cupy_like.ndarray(at(0), (96, 64)), Tensor(at(1), (64, 80))
    libgemm.gemm(a, b)
    assert launches()[0]["stream"] == hex(cupy_like.streams[0])
    assert waits == [(cupy_like.streams[0], torch_like.streams[0], 0)] and cupy_like.waits == []


@in_stand_in()
def test_a_call_on_torch_s_stream_waits_for_cupy_s():
    torch_like.install(), cupy_like.install()
    torch_like.streams[0], cupy_like.streams[0] = new_stream(), new_stream()
    libgemm.gemm(Tensor(at(0), (96, 64)), cupy_like.ndarray(at(1), (64, 80)))
    assert launches()[0]["stream"] == hex(torch_like.streams[0])
    assert cupy_like.waits == [(torch_like.streams[0], cupy_like.streams[0], 0)] and waits == []


@in_stand_in()
def test_the_bias_the_ends_and_the_output_are_waited_for_as_well():
    torch_like.install()
    torch_like.streams[0] = mine = new_stream()
    a, b = VersionedArray(at(0), (96, 64)), VersionedArray(at(1), (2, 64, 80))
    ends, out = VersionedArray(at(5), (2,), "i32"), VersionedArray(at(3), (96, 80))
    for name in ("bias", "ends", "out"):
        given = {"bias": None, "ends": ends, "out": out}
        given[name] = {"bias": Tensor(at(4), (80,)), "ends": Tensor(at(5), (2,), "int32"),
                       "out": Tensor(at(3), (96, 80))}[name]  # fmt: skip
        libgemm.grouped_mm(a, b, given["ends"], out=given["out"], bias=given["bias"])
        assert waits.pop() == (0, mine, len(launches()) - 1) and waits == [], name


@in_stand_in()
def test_a_stream_in_the_array_interface_is_waited_for():
    producer, mine = new_stream(), new_stream()
    words = {"out": VersionedArray(at(3), (96, 80)), "stream": mine}
    b = VersionedArray(at(1), (64, 80))

    def synchronised(**facts) -> list[str]:
        before = len(log("cuStreamSynchronize"))
        with current(0):
            libgemm.gemm(InterfaceArray(at(0), (96, 64), **facts), b, **words)
        assert log("cuStreamSynchronize", "cuLaunchKernelEx", "cuLaunchKernel")[-1]["call"] != "cuStreamSynchronize"
        return [record["stream"] for record in log("cuStreamSynchronize")[before:]]

    assert synchronised(stream=producer) == [hex(producer)]
    assert synchronised(stream=1) == ["0x1"] and synchronised(stream=2) == ["0x2"]
    assert synchronised(stream=None) == synchronised(stream=mine) == synchronised(stream=producer, version=2) == []
    fail("cuStreamSynchronize:*:700")
    with pytest.raises(libgemm.Error, match=f"a's stream {producer:#x} cannot be waited for: .*700") as caught:
        synchronised(stream=producer)
    assert caught.value.name == "LIBGEMM_DRIVER_ERROR"


def lent(deaths: list, place: int, *shape: int, **words) -> LentArray:
    return LentArray(at(place), shape, at_death=lambda: deaths.append((place, len(launches()))), **words)


def lent_gemm(deaths: list) -> None:
    a, b, c, out = lent(deaths, 0, 4, 6), lent(deaths, 1, 6, 8), lent(deaths, 2, 4, 8), lent(deaths, 3, 4, 8)
    libgemm.gemm(a, b, c, beta=1.0, bias=lent(deaths, 4, 8), out=out)


def lent_packed(deaths: list) -> None:
    write(at(5), "i", [4, 8])
    a, b, c, out = lent(deaths, 0, 8, 6), lent(deaths, 1, 2, 6, 8), lent(deaths, 2, 8, 8), lent(deaths, 3, 8, 8)
    offs, bias = lent(deaths, 5, 2, dtype="i32"), lent(deaths, 4, 2, 8)
    libgemm.grouped_mm(a, b, offs, c=c, beta=1.0, bias=bias, out=out)


def lent_tables(deaths: list) -> None:
    names = ("a", "b", "c", "d", "bias", "m", "n", "k", "lda", "ldb", "ldc", "ldd")
    given = {name: lent(deaths, 1 + i, 3, dtype="i64") for i, name in enumerate(names)}
    libgemm.grouped_gemm_tables(**given, dtype="f16", beta=1.0)


@pytest.mark.parametrize(("call", "count"), [(lent_gemm, 5), (lent_packed, 6), (lent_tables, 12)])
@in_stand_in()
def test_memory_that_a_capsule_lends_is_lent_until_the_launch(call, count):
    deaths = []
    call(deaths)
    assert [launched for _, launched in deaths] == [1] * count, deaths  # none before it, and none is left over
