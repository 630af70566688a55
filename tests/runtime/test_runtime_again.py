"""Dense calls of torch tensors like one before: they skip the general way and launch what it would have launched."""

import ctypes
import threading

import libgemm
import pytest
from built import TARGET, needs
from calls import at, context, current, driver, fail, last_launch, launches, log, new_stream, values
from libgemm import _gemm, _known
from stand_in import in_stand_in
from test_capi_fast import maps
from torch_like import Tensor, install, streams, torch, waits

# Tensors are read by DLPack's exchange API where torch has it, else by their attributes.
by_both = pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "attributes"])
KEYS = ("handle", "kernel", "grid", "block", "cluster", "shared", "stream", "device")


def operands(**changes) -> dict:
    plain = {"a": Tensor(at(0), (96, 64)), "b": Tensor(at(1), (64, 80)), "out": Tensor(at(3), (96, 80))}
    return {**plain, **changes}


def few(m: int, n: int, k: int) -> dict:
    return {"a": Tensor(at(0), (m, k)), "b": Tensor(at(1), (k, n), strides=(1, k)), "out": Tensor(at(3), (m, n))}


def bytewise(**changes) -> dict:
    """8-bit operands, as fast kernels take them."""
    plain = {"a": Tensor(at(0), (96, 64), "float8_e4m3fn"), "out": Tensor(at(3), (96, 80), "bfloat16")}
    return {**plain, "b": Tensor(at(1), (64, 80), "float8_e4m3fn", strides=(1, 64)), **changes}


def of_rows(**changes) -> dict:
    """The same with scales of rows and columns."""
    rows, cols = Tensor(at(9), (96, 1), "float32"), Tensor(at(10), (1, 80), "float32")
    return bytewise(**{"scaling": "row", "a_scale": rows, "b_scale": cols, **changes})


def of_blocks(a_strides: tuple, b_strides: tuple, **changes) -> dict:
    """With scales of blocks, which are strided so."""
    of_a = Tensor(at(9), (96, 3), "float32", strides=a_strides)
    of_b = Tensor(at(10), (3, 1), "float32", strides=b_strides)
    a, b = Tensor(at(0), (96, 272), "float8_e4m3fn"), Tensor(at(1), (272, 80), "float8_e4m3fn", strides=(1, 272))
    scales = {"scaling": "1x128_128x128", "a_scale": of_a, "b_scale": of_b}
    return bytewise(**{"a": a, "b": b, **scales, **changes})


def of_tensors(**changes) -> dict:
    one = {name: Tensor(at(place), (), "float32") for name, place in (("a_scale", 9), ("b_scale", 10))}
    return bytewise(**{"scaling": "tensor", **one, **changes})


def to_e4m3(**changes) -> dict:
    """Those of rows and columns into 8 bits, over a scale."""
    out, bias = Tensor(at(3), (96, 80), "float8_e4m3fn"), Tensor(at(4), (80,), "bfloat16")
    return of_rows(**{"out": out, "bias": bias, "d_scale": Tensor(at(11), (), "float32"), **changes})


# What names an output that the call allocates: D, and a C that is not read, by each of their boxes.
NEW_OUT = ("d_ptr", *(f"{operand}{part}" for operand in "cd" for part in ("", "_2", "_4", "_8")))


def launched(call: dict, function=libgemm.gemm) -> dict:
    """What a call launches, less what each launch or allocation has of its own."""
    before = len(launches())
    made = function(**call)
    assert any(made is one for one in (torch.made if call["out"] is None else [call["out"]]))
    assert made.index == call["a"].index
    launch, count = last_launch(), len(launches()) - before
    assert count > 0
    own = ("epoch", "semaphores", "partials") + (NEW_OUT if call.get("out") is None else ())
    own += ("a", "b") * (count > 1)  # a copy of one, in a workspace
    found = values(launch) | maps(launch)
    return {"launches": count} | {k: launch[k] for k in KEYS} | {k: v for k, v in found.items() if k not in own}


def launched_anew(call: dict) -> dict:
    _gemm.known.forget()
    return launched(call)


def forbid_general_way(monkeypatch) -> None:
    def general(*_):
        raise AssertionError("the general way")

    monkeypatch.setattr(_gemm, "gemm_anew", general)


def biased(strides: tuple) -> dict:
    """A batch of two, with a row of bias each."""
    batch = {"a": Tensor(at(0), (2, 96, 64)), "out": Tensor(at(3), (2, 96, 80))}
    return operands(**batch, bias=Tensor(at(4), (2, 80), strides=strides))


CALLS = {
    "plain": lambda: operands(),
    "other addresses": lambda: operands(a=Tensor(at(7), (96, 64)), out=Tensor(at(8), (96, 80))),
    "b by columns": lambda: operands(b=Tensor(at(1), (64, 80), strides=(1, 64))),
    "padded a": lambda: operands(a=Tensor(at(0), (96, 64), strides=(72, 1))),
    "padded out": lambda: operands(out=Tensor(at(3), (96, 80), strides=(88, 1))),
    "other shape": lambda: operands(a=Tensor(at(0), (48, 64)), out=Tensor(at(3), (48, 80))),
    "bf16": lambda: {k: Tensor(v.pointer, v.shape, "bfloat16") for k, v in operands().items()},
    "f32 out": lambda: operands(out=Tensor(at(3), (96, 80), "float32")),
    "f32": lambda: {k: Tensor(v.pointer, v.shape, "float32") for k, v in operands().items()} | {"precision": "tf32"},
    "f32 exactly": lambda: CALLS["f32"]() | {"precision": "ieee"},
    "e4m3": lambda: bytewise(),
    "e5m2 by e4m3": lambda: bytewise(a=Tensor(at(0), (96, 64), "float8_e5m2")),
    "e4m3 by e5m2": lambda: bytewise(b=Tensor(at(1), (64, 80), "float8_e5m2", strides=(1, 64))),
    "e4m3 by e5m2 of another size": lambda: bytewise(
        a=Tensor(at(0), (48, 64), "float8_e4m3fn"), out=None, b=Tensor(at(1), (64, 80), "float8_e5m2", strides=(1, 64))
    ),
    "e4m3 fast": lambda: bytewise(precision="fast"),
    "e4m3 scaled": lambda: of_tensors(),
    "e4m3 scaled by rows": lambda: of_rows(),
    "e4m3 scaled by rows, new out": lambda: of_rows(out=None),
    "e4m3 scaled by rows, fast": lambda: of_rows(precision="fast", bias=Tensor(at(4), (80,), "bfloat16")),
    "e4m3 scaled by blocks": lambda: of_blocks((3, 1), (1, 1)),
    "e4m3 scaled by blocks, by columns": lambda: of_blocks((1, 96), (1, 3)),
    "e4m3 scaled by rows and blocks of 128": lambda: of_blocks(
        (3, 1), (80, 1), scaling="1x128_1x128", b_scale=Tensor(at(10), (3, 80), "float32")
    ),
    "scales elsewhere": lambda: of_rows(
        a_scale=Tensor(at(11), (96, 1), "float32"), b_scale=Tensor(at(12), (1, 80), "float32")
    ),
    "other scales": lambda: of_rows(a_scale=Tensor(at(11), (96,), "float32"), b_scale=Tensor(at(12), (80,), "float32")),
    "to e4m3": lambda: of_rows(out=Tensor(at(3), (96, 80), "float8_e4m3fn")),
    "to e4m3 over a scale": lambda: to_e4m3(),
    "to e4m3 over a scale elsewhere": lambda: to_e4m3(d_scale=Tensor(at(12), (1,), "float32")),
    "to e4m3 over a scale, of scales elsewhere": lambda: to_e4m3(
        a_scale=Tensor(at(5), (96, 1), "float32"), b_scale=Tensor(at(6), (1, 80), "float32")
    ),
    "to e4m3 over a scale, new out": lambda: to_e4m3(out=None, out_dtype="e4m3"),
    "to e4m3 and magnitudes": lambda: to_e4m3(d_amax=Tensor(at(6), (96,), "float32")),
    "to e4m3 and magnitudes elsewhere": lambda: to_e4m3(
        d_amax=Tensor(at(5), (96,), "float32"), d_scale=Tensor(at(12), (1,), "float32")
    ),
    "to e4m3 and magnitudes over no scale": lambda: to_e4m3(d_amax=Tensor(at(6), (96,), "float32"), d_scale=None),
    "to e4m3 over a scale, of plain operands": lambda: to_e4m3(scaling=None, a_scale=None, b_scale=None),
    "alpha": lambda: operands(alpha=0.5),
    "integer alpha": lambda: operands(alpha=2),
    "alpha 0": lambda: operands(alpha=0.0),
    "alpha -0": lambda: operands(alpha=-0.0),
    "out as c": lambda: operands(beta=1.0),
    "c": lambda: operands(beta=1.0, c=Tensor(at(2), (96, 80))),
    "padded c": lambda: operands(beta=1.0, c=Tensor(at(2), (96, 80), strides=(96, 1))),
    "c elsewhere": lambda: operands(beta=1.0, c=Tensor(at(7), (96, 80))),
    "out elsewhere as c": lambda: operands(beta=1.0, out=Tensor(at(7), (96, 80))),
    "unread c": lambda: operands(c=Tensor(at(2), (96, 80))),
    "unread nonsense": lambda: operands(c="nonsense"),
    "bias": lambda: operands(bias=Tensor(at(4), (80,))),
    "bias elsewhere": lambda: operands(bias=Tensor(at(7), (80,))),
    "bias of a batch": lambda: biased((80, 1)),
    "padded bias of a batch": lambda: biased((88, 1)),
    "shared bias of a batch": lambda: biased((0, 1)),
    "activation": lambda: operands(activation="silu"),
    "other activation": lambda: operands(activation="gelu"),
    "no out": lambda: operands(out=None),
    "no out, f32": lambda: operands(out=None, out_dtype="f32"),
    "batch": lambda: operands(a=Tensor(at(0), (2, 96, 64)), out=Tensor(at(3), (2, 96, 80))),
    "batch of one": lambda: operands(a=Tensor(at(0), (1, 96, 64)), out=Tensor(at(3), (1, 96, 80))),
    "unaligned a": lambda: operands(a=Tensor(at(0) + 2, (96, 64))),
    "unaligned out": lambda: operands(out=Tensor(at(3) + 2, (96, 80))),
    "unaligned c": lambda: operands(beta=1.0, c=Tensor(at(2) + 2, (96, 80))),
    "stream": lambda: operands(stream=2),
    "gpu 1": lambda: {k: Tensor(at(i, 1), v.shape, device=1) for i, (k, v) in enumerate(operands().items())},
    "gpu 1, no out": lambda: CALLS["gpu 1"]() | {"out": None},
    "split": lambda: few(64, 64, 32768),
    "split, batch invariant": lambda: CALLS["split"]() | {"batch_invariant": True},
    "unaligned split": lambda: (call := few(64, 64, 32768)) | {"a": Tensor(at(0) + 2, call["a"].shape)},
    "cluster": lambda: few(8, 256, 8192),
    "unaligned cluster": lambda: (call := few(8, 256, 8192)) | {"a": Tensor(at(0) + 2, call["a"].shape)},
    "cluster, batch invariant": lambda: CALLS["cluster"]() | {"batch_invariant": True},
}
# Always the general way:
GENERAL = ("alpha 0", "alpha -0", "unread nonsense", "to e4m3 over a scale, of plain operands")
GENERAL += ("to e4m3 and magnitudes over no scale",)
GENERAL += tuple(name for name in CALLS if name.startswith("unaligned"))


@by_both
@pytest.mark.parametrize("name", CALLS)
@in_stand_in()
def test_a_call_again_launches_what_it_did_anew(name, exchange):
    install(exchange)
    wanted = launched_anew(CALLS[name]())
    launched(CALLS["plain"]())
    assert [launched(CALLS[name]()) for _ in range(3)] == [wanted] * 3
    with pytest.MonkeyPatch.context() as monkeypatch:
        forbid_general_way(monkeypatch)
        if name in GENERAL:
            with pytest.raises(AssertionError, match="the general way"):
                launched(CALLS[name]())
        else:
            assert launched(CALLS[name]()) == wanted


@by_both
@in_stand_in()
def test_calls_in_any_order_are_not_taken_for_each_other(exchange):
    install(exchange)
    streams[1] = new_stream(1)
    wanted = {name: launched_anew(make()) for name, make in CALLS.items()}
    for name in (*CALLS, *reversed(CALLS), *CALLS):
        got = launched(CALLS[name]())
        assert got == wanted[name], (name, {k: (got.get(k), v) for k, v in wanted[name].items() if got.get(k) != v})


@by_both
@in_stand_in()
def test_a_call_with_memory_of_another_gpu_waits_for_that_one_each_time(exchange):
    install(exchange)
    other = new_stream(1)
    streams[1] = other
    with current(0):
        assert driver().cuCtxEnablePeerAccess(ctypes.c_void_p(context(1)), 0) == 0
    for count in range(1, 4):
        launched(operands(b=Tensor(at(1, 1), (64, 80), device=1)))
        assert [wait[:2] for wait in waits] == [(0, other)] * count


@in_stand_in()
def test_the_current_stream_is_asked_on_each_call():
    install()
    handles = [new_stream() for _ in range(3)]
    for short in (torch._C._cuda_getCurrentRawStream, None):
        torch._C._cuda_getCurrentRawStream = short
        _gemm.known.forget()
        for streams[0] in (*handles, *handles):
            libgemm.gemm(**operands())
            assert last_launch()["stream"] == hex(streams[0])
        libgemm.gemm(**operands(stream=handles[0]))
        assert last_launch()["stream"] == hex(handles[0])
        del torch._C._cuda_getCurrentRawStream


@needs(90)
@in_stand_in()
def test_each_call_has_a_workspace_of_its_own_that_outlives_it():
    install()
    for _ in range(4):
        libgemm.gemm(**CALLS["split"]())
    spaces = [made for made in torch.made if made.dtype is torch.uint8]
    semaphores = [values(launch)["semaphores"] for launch in launches()]
    assert semaphores == [space.pointer for space in spaces] and len(set(semaphores)) == 4
    assert {space.pool for space in spaces} == {0}
    other = new_stream()
    for _ in range(2):
        libgemm.gemm(**CALLS["split"](), stream=other)
    assert {space.pool for space in torch.made[-2:]} == {other}  # what comes after it there may have its memory


def refusal(call: dict) -> str:
    with pytest.raises(libgemm.Error) as caught:
        libgemm.gemm(**call)
    return f"{caught.value.status} {caught.value}"


@in_stand_in()
def test_a_driver_s_failure_is_told_once_and_the_next_call_works():
    install()
    wanted = [launched(operands()) for _ in range(2)][-1]
    fail("cuLaunchKernelEx:1:719")
    assert "CUDA_ERROR_LAUNCH_FAILED" in refusal(operands())
    fail(None)
    assert launched(operands()) == wanted


@in_stand_in()
def test_a_number_that_can_change_in_place_is_read_on_each_call():
    install()

    class Number:
        value = 1.0

        def __float__(self):
            return self.value

    alpha = Number()
    for alpha.value in (1.0, 2.0, 3.0):
        libgemm.gemm(**operands(alpha=alpha))
        assert values(last_launch())["alpha"] == alpha.value


@by_both
@in_stand_in()
def test_threads_share_no_struct(exchange):
    install(exchange)
    plain = [v for v in libgemm.variants() if (v.target, v.op, v.a_type, v.d_type) == (TARGET, "gemm", "f16", "f16")]
    pinned = {"variant": next(v.name for v in plain if v.align16 and not v.single and not v.trans_a and not v.trans_b)}
    libgemm.gemm(**operands(**pinned))
    places, barrier = range(4, 12), threading.Barrier(8)

    def work(place: int):
        barrier.wait()
        for _ in range(200):
            libgemm.gemm(**operands(a=Tensor(at(place), (96, 64)), out=Tensor(at(place) + 1024, (96, 80)), **pinned))

    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [(v["a_ptr"], v["d_ptr"]) for v in map(values, launches()[1:])]
    assert sorted(found) == sorted((at(place), at(place) + 1024) for place in places for _ in range(200))
    assert 1 <= len(next(iter(_gemm.known.calls.values()))) <= 9


@in_stand_in()
def test_what_is_kept_has_a_limit():
    install()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_known, "MOST", 5)
        for rows in range(1, 40):
            libgemm.gemm(**operands(a=Tensor(at(0), (rows, 64)), out=Tensor(at(3), (rows, 80))))
            assert len(_gemm.known.calls) <= 5
    assert len(log("cuLaunchKernelEx")) == 39
