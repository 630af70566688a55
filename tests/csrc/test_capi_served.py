"""GPUs that the library has no kernels of their own for: which others serve them, and what is said."""

import pytest
from built import BUILT, needs
from calls import Call, allocate, launches, log, ok, refused
from libgemm._library import ffi, lib, text
from libgemm.inspect import variants
from stand_in import in_stand_in

from kernels.table.targets import TARGETS


@needs(100, 120)
@in_stand_in(SM="103,121")
def test_family_specific_code_serves_a_later_minor_revision():
    for gpu, (of, on) in enumerate((("10.0", "10.3"), ("12.0", "12.1"))):
        call = Call("gemm", gpu=gpu)
        ok(call.run())
        ok(Call("grouped_mm", gpu=gpu).run())
        status, choice = call.explain(int(on.replace(".", "")))
        ok(status)
        assert f"code of {of} on {on}" in text(choice.reason)
        ok(lib.libgemm_preload(gpu))
    assert {load["sm"] for load in log("cuLibraryLoadData")} == {100, 120}
    assert [launch["device"] for launch in launches()] == [0, 0, 1, 1]


@needs(80, 86)
@in_stand_in(SM="88")
def test_plain_code_serves_a_later_minor_revision_and_the_nearest_is_taken():
    ok(Call("gemm").run())
    assert "__sm86__" in launches()[0]["variant"]
    assert [load["sm"] for load in log("cuLibraryLoadData")] == [80]


@needs(80)
@in_stand_in(SM="82")
def test_rows_that_need_more_shared_memory_than_the_gpu_has_are_left_out():
    """A block has 163 KiB on 8.0; the stand-in's 8.2 has 48."""
    size = {"m": 4096, "n": 4096, "k": 4096, "lda": 4096, "ldb": 4096, "ldd": 4096}
    place = {x: allocate(1 << 20) for x in "abd"}
    ok(Call("gemm", **size, **place).run())
    large = max((v for v in variants() if v.target == 80 and v.op == "gemm"), key=lambda v: v.shared_bytes)
    assert launches()[0]["shared"] <= 49152 < large.shared_bytes
    refused(Call("gemm", variant=large.name, trans_a=large.trans_a, trans_b=large.trans_b, a_type=1, d_type=1,
                 **size, **place).run(), "UNSUPPORTED")  # fmt: skip
    ok(lib.libgemm_preload(0))
    assert len(log("cuLibraryLoadData")) > 10


# compute capability -> what the refusal tells to build, None for nothing
REFUSED = {75: None, 70: None, 87: 87, 91: None, 110: 110, 111: None, 130: None}


@pytest.mark.parametrize("number", REFUSED)
@in_stand_in()
def test_the_hint_names_what_the_build_takes(number):
    """No code runs from or to integrated GPUs (8.7, 11.0), nor Hopper's anywhere but on 9.0."""
    status, _ = Call("gemm").explain(number)
    kernels = "only those for " + ", ".join(f"sm_{target}" for target in BUILT) + ";"
    hint = f"TARGETS={REFUSED[number]}" if REFUSED[number] else "no version of libgemm builds them yet"
    refused(status, "UNSUPPORTED_DEVICE", f"target = {number}", kernels, hint)


@pytest.mark.parametrize("number", [83, 88, 89, 101, 103, 121])
@in_stand_in()
def test_a_revision_that_nothing_here_serves_is_told_what_would(number):
    lower = [target for target in BUILT if target // 10 == number // 10 and target <= number]
    status, choice = Call("gemm").explain(number)
    if lower:
        ok(status)
        assert (f"code of {max(lower) // 10}.{max(lower) % 10}" in text(choice.reason)) == (number not in BUILT)
    else:
        refused(status, "UNSUPPORTED_DEVICE", f"target = {number}", "build with TARGETS=")


def test_targets_say_whether_later_revisions_run_their_code():
    for i in range(lib.libgemm_target_count()):
        found = ffi.new("libgemm_target_info *", {"size": ffi.sizeof("libgemm_target_info")})
        ok(lib.libgemm_target_get(i, found))
        assert found.portable == (found.target != 90)
    for i in range(lib.libgemm_variant_count()):
        found = ffi.new("libgemm_variant_info *", {"size": ffi.sizeof("libgemm_variant_info")})
        ok(lib.libgemm_variant_get(i, found))
        target = TARGETS[found.target]
        # The tensor cores of 8.9 multiply 8-bit numbers, those of 8.0, whose code it runs elsewhere, do not.
        own = found.target == 89 and found.a_type == lib.LIBGEMM_E4M3 and text(found.op) in ("gemm", "grouped_mm")
        code = found.target if own else target.code or found.target
        assert text(found.architecture) == f"sm_{code}{target.suffix}"
