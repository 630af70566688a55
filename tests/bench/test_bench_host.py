"""The measure of host time, rehearsed on the stand-in: what it launches, in which order, and what it says."""

import argparse
import contextlib
import ctypes
import io
import sys

import pytest
from calls import Call, at, count, current, fail, launches, new_stream, ok, values
from libgemm._library import LIBRARY, ffi
from stand_in import in_stand_in
from torch_like import Tensor, install, torch

from bench.measure import host, host_beside
from bench.measure.host_python import fresh_rows
from bench.measure.relaunch import Driver, captured

FACTS = ("handle", "kernel", "grid", "block", "cluster", "shared", "stream", "device", "params")
BIG = {"m": 1000, "n": 776, "k": 520, "lda": 520, "ldb": 776, "ldc": 776, "ldd": 776}


def facts(launch: dict) -> dict:
    return {key: launch[key] for key in FACTS}


def address(call: Call) -> int:
    return int(ffi.cast("uintptr_t", call.args))


def gemm_address() -> int:
    return ctypes.cast(ctypes.CDLL(str(LIBRARY)).libgemm_gemm, ctypes.c_void_p).value


@in_stand_in()
def test_a_captured_launch_is_launched_again_as_it_was():
    stream, driver = new_stream(), Driver()
    with current(0):
        call = Call("gemm", **BIG, beta=1.0, stream=stream)
        ok(call.run())
        again = captured(driver, stream, call.run)
        function, parameters = map(ctypes.c_void_p, (again.function, again.parameters))
        driver.cuLaunchKernelEx(again.config, function, parameters, None)
    plain, caught, bare = launches()
    assert facts(plain) == facts(caught) == facts(bare)
    assert [launch["captured"] for launch in launches()] == [0, 1, 0]
    assert len(plain["params"]) > 5


@in_stand_in()
def test_the_loops_call_what_they_are_given_in_turn():
    stream, loops, driver = new_stream(), host.Loops(), Driver()
    calls = [Call("gemm", stream=stream), Call("gemm", **BIG, stream=stream), Call("gemm", a=at(7), stream=stream)]
    with current(0):
        runs = host.c_runs(loops, driver, gemm_address(), stream, [address(call) for call in calls])
        start = len(launches())
        times = [runs["c"](), runs["bare"]()]
    found = [facts(launch) for launch in launches()[start:]]
    assert len(found) == 2 * host.CALLS
    assert found[: host.CALLS] == found[host.CALLS :]
    assert [found[i]["params"] for i in range(6)] == [facts(launches()[i % 3])["params"] for i in range(6)]
    assert all(time > 0 for time in times)


@in_stand_in()
def test_a_call_that_fails_is_not_timed():
    stream, call = new_stream(), Call("gemm")
    with current(0):
        runs = host.c_runs(host.Loops(), Driver(), gemm_address(), stream, [address(call.set(stream=stream))])
        call.set(lda=1)
        with pytest.raises(RuntimeError, match="host_gemm: a call failed with status 1"):
            runs["c"]()
        with pytest.raises(RuntimeError, match="cuStreamBeginCapture_v2 failed with CUDA error 1"):
            captured(Driver(), 0, call.run)


def rehearsal_torch() -> list:
    """A torch that has what the measure asks; returns the sizes mm was called with."""
    install()
    seen = []

    def matrix(*shape, device="cuda", dtype=None):
        return torch.empty(shape, dtype=dtype or torch.bfloat16, device="cuda:0")

    def turned(self):
        (rows, cols), (down, right) = self.shape, self.strides
        return Tensor(self.pointer, (cols, rows), self.dtype.name, (right, down))

    Tensor.to = lambda self, dtype: self
    Tensor.t = turned
    torch.randn = matrix
    empty = torch.empty
    torch.empty = lambda *shape, dtype, device: empty(
        shape[0] if len(shape) == 1 else shape, dtype=dtype, device="cuda:0" if device == "cuda" else device
    )
    torch.mm = lambda a, b, out: seen.append((*a.shape, b.shape[1]))
    handle = new_stream()
    torch.cuda.Stream = lambda: type("Stream", (), {"cuda_stream": handle})
    torch.cuda.synchronize = lambda: seen.append("wait")
    return seen


@in_stand_in()
def test_the_whole_measure():
    seen = rehearsal_torch()
    host.CALLS, host.MANY = 16, 40
    with current(0):
        found = host.host_times(repeats=3)
    many = "m x 512 x 512 NN in turn, m from 1 to 40"
    assert list(found["rows"]) == [*host.SHAPES, many] and found["note"] == ""
    from_c, from_python = {"c_us", "bare_us", "c_ratio"}, {"python_us", "torch_us", "python_ratio"}
    for name, row in found["rows"].items():
        assert set(row) == (from_c if name == many else from_c | from_python) and all(us > 0 for us in row.values())
        assert row["c_ratio"] == row["c_us"] / row["bare_us"]
        assert name == many or row["python_ratio"] == row["python_us"] / row["torch_us"]
    assert found["pointer_query_us"] > 0
    in_turn = [one for one in seen if one != "wait"][-16:]
    assert in_turn == [(512, 512, 512), (1, 8192, 1280)] * 8
    assert seen.count("wait") >= 2 * (3 + 2) * 2 * len(host.SHAPES)
    table = host.lines(found)
    assert len(table) == len(found["rows"]) + 2 and all(len(line) <= 120 for line in table)
    splits = {launch["grid"][0] for launch in launches() if launch["captured"]}
    assert len(splits) >= 3 and count("cuStreamBeginCapture_v2") == 4 * 5 + 40
    assert sorted({values(launch)["M"] for launch in launches()[-2 * 40 :]}) == [*range(1, 41)]  # all of them in turn


@in_stand_in()
def test_calls_of_new_sizes_never_repeat_one():
    seen = rehearsal_torch()
    at = Tensor.__getitem__
    Tensor.__getitem__ = lambda self, place: (
        Tensor(self.pointer, (place.stop, *self.shape[1:]), self.dtype.name, self.strides)
        if isinstance(place, slice)
        else at(self, place)
    )
    torch.tensor = lambda ends, device, dtype: torch.empty(len(ends), dtype=dtype, device=device)
    torch._grouped_mm = lambda a, b, offs: seen.append((len(a), *b.shape))
    with current(0):
        found = fresh_rows(12, repeats=3)
    assert all(set(row) == {"python_us", "torch_us", "python_ratio"} for row in found.values()) and len(found) == 3
    asked = [one for one in seen if one != "wait"]
    assert asked[:60] == [(m, 512, 512) for m in range(1, 61)]
    assert asked[-60:] == [(m, 8, 512, 512) for m in range(401, 461)]  # of rows that hold all groups
    assert set(asked[60:-60]) == {(400, 8, 512, 512)}
    own = [values(launch)["M"] for launch in launches()]
    assert own[:60] == [*range(1, 61)] and own[-60:] == [*range(401, 461)]
    assert all(len(line) <= 120 for line in host.lines({"rows": found, "pointer_query_us": None, "note": ""}))


@in_stand_in()
def test_without_a_compiler_the_report_says_so():
    rehearsal_torch()
    host.CALLS = 8
    host.shutil.which = lambda name: None
    with current(0):
        found = host.host_times(repeats=3)
    assert "no C compiler" in found["note"] and found["pointer_query_us"] is None
    assert all(set(row) == {"python_us", "torch_us", "python_ratio"} for row in found["rows"].values())
    assert "no C compiler" in host.lines(found)[-1]


@in_stand_in()
def test_a_driver_that_refuses_the_graph_costs_the_figures_for_c_alone():
    rehearsal_torch()
    host.CALLS = 8
    fail("cuGraphKernelNodeGetParams_v2:6:801")
    with current(0):
        found = host.host_times(repeats=3)
    assert "512 x 512 x 512 NN on: cuGraphKernelNodeGetParams_v2 failed with CUDA error 801" in found["note"]
    assert ["c_us" in row for row in found["rows"].values()] == [True, False, False, False]
    assert all("python_us" in row for row in found["rows"].values())


@in_stand_in()
def test_libraries_are_timed_beside_each_other_on_the_same_calls():
    rehearsal_torch()
    dist = LIBRARY.parents[3] / "dist"
    words = [f"{name}={dist}/include,{place}" for name, place in (("old", dist / "lib/libgemm.so"), ("new", LIBRARY))]
    sys.argv = ["host_beside.py", *words, "--repeats", "3"]
    with current(0), contextlib.redirect_stdout(io.StringIO()) as printed:
        assert host_beside.main() == 0
    head, *rows = printed.getvalue().splitlines()
    assert head.split()[-4:] == ["old", "ratio", "new", "ratio"] and len(rows) == len(host.SHAPES)
    for row, name in zip(rows, host.SHAPES, strict=True):
        us, first, other, ratio = map(float, row.removeprefix(name).split())
        assert min(us, other) > 0 and first == 1 and ratio == pytest.approx(other / us, abs=0.01 + 1 / us)
    found = [values(launch) for launch in launches()]
    batches = (1 + 3 + 2) * host.CALLS  # of each library on each line; the first loads kernels
    assert len(found) == 2 * len(host.SHAPES) * batches
    sizes = [(one["M"], one["N"], one["K"]) for one in found[-2 * batches :]]
    assert set(sizes) == {(512, 512, 512), (1, 1280, 8192)} and sizes[:batches] == sizes[batches:]
    assert len({launch["handle"] for launch in launches()[-2 * batches :]}) == 4  # two kernels of each library


@pytest.mark.parametrize("word", ["dist/include,lib.so", "new=dist/include", "new=,lib.so"])
def test_a_library_to_time_is_named_in_full(word):
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=INCLUDE,LIBRARY is needed"):
        host_beside.parse(word)
