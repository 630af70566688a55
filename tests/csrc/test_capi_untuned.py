"""Fast rows of targets nobody has measured, on stand-in GPUs: launches, tensor maps, fallbacks. Proves no numerics."""

import struct

import pytest
from calls import Call, at, last_launch, log, ok, records, refused, values
from libgemm._library import text
from libgemm.inspect import info, variants
from stand_in import in_stand_in
from test_capi_fast import BIG, MULTIPROCESSORS, call_of, maps, tiles

from kernels.table.targets import TARGETS

LARGE = {"m": 4096, "n": 4096, "k": 4096, "lda": 4096, "ldb": 4096, "ldc": 4096, "ldd": 4096}


def rows_of(target: int) -> list:
    """The target's dense rows for bf16 that need something of their operands."""
    if target not in info()["targets"]:
        pytest.skip(f"this library has no kernels for sm_{target}")
    found = [v for v in variants() if (v.target, v.op, v.a_type, v.d_type) == (target, "gemm", "bf16", "bf16")]
    return [v for v in found if v.align16 or v.single]


def every_row_launches(target: int) -> None:
    for v in rows_of(target):
        ok(call_of(v, beta=1.0).run())
        launch, blocks = last_launch(), tiles(v, BIG["m"], BIG["n"])
        blocks = min(blocks, MULTIPROCESSORS) if "_specialized" in v.name else blocks
        assert launch["grid"] == [blocks, 1, 1], v.name
        assert (launch["block"], launch["shared"]) == ([32 * v.warps, 1, 1], v.shared_bytes), v.name
        found = values(launch)
        assert (found["M"], found["N"], found["K"], found["beta"]) == (BIG["m"], BIG["n"], BIG["k"], 1.0)
    assert {load["sm"] for load in log("cuLibraryLoadData")} == {TARGETS[target].code or target}


def maps_are_those_of_the_kernel(target: int) -> None:
    for v in (v for v in rows_of(target) if v.single):
        ok(call_of(v, beta=1.0).run())
        found = maps(last_launch())
        assert sorted(found) == ["a", "b", "c", "d"]
        a, b = ("mk", "km")[v.trans_a], ("kn", "nk")[v.trans_b]
        for i, (box, (rows, cols)) in enumerate(zip(records()[v.name]["boxes"], (a, b, "mn", "mn"), strict=True)):
            # as the stand-in writes a map: sizes, strides, box, strides of elements; rank, type, interleave, swizzle
            address, *words = struct.unpack_from("<Q5Q4Q5H5B4B", found["abcd"[i]][1], 8)
            assert address == at(i)
            assert (words[0:2], words[9:11]) == ([BIG[cols], BIG[rows]], [box["cols"], box["rows"]]), v.name
            assert (words[19], words[20], words[22]) == (2, box["element"], box["swizzle"]), v.name


def the_reference_set_takes_the_rest(target: int) -> None:
    def kernel(**change) -> str:
        call = Call("gemm", **{**LARGE, **change})
        ok(call.run())
        assert f"__sm{target}__" in text(call.variant().name)
        return last_launch()["kernel"]

    for change in ({"a": at(0) + 2}, {"ldb": 4097}, {"batch": 2, "batch_stride_d": 1 << 24}, {"alpha": 0.0}, {"k": 0}):
        assert kernel(**change) == "gemm", change
    assert kernel() != "gemm" and kernel(k=4093, m=4091) != "gemm"  # odd extents are fine
    assert kernel(n=4095) == "gemm"  # but a row of D must not end inside 16 bytes
    v = next(v for v in rows_of(target) if v.single)
    refused(call_of(v, d=at(3) + 2).run(), "UNSUPPORTED", v.name, "16-byte aligned")


@in_stand_in(SM=80)
def test_every_row_of_sm80_launches():
    every_row_launches(80)


@in_stand_in(SM=86)
def test_every_row_of_sm86_launches():
    every_row_launches(86)


@in_stand_in(SM=89)
def test_every_row_of_sm89_launches():
    every_row_launches(89)


@in_stand_in(SM=100)
def test_every_row_of_sm100_launches():
    every_row_launches(100)
    maps_are_those_of_the_kernel(100)


@in_stand_in(SM=120)
def test_every_row_of_sm120_launches():
    every_row_launches(120)
    maps_are_those_of_the_kernel(120)


@in_stand_in(SM=100)
def test_what_sm100_cannot_copy_goes_to_its_reference_set():
    the_reference_set_takes_the_rest(100)


@in_stand_in(SM=120)
def test_what_sm120_cannot_copy_goes_to_its_reference_set():
    the_reference_set_takes_the_rest(120)
