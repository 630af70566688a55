"""What each legal call asks the driver to launch: shape, arguments, device, stream. No numerics: nothing executes."""

import struct

import pytest
from built import TARGET
from calls import (
    GROUPS,
    OPS,
    Arguments,
    Call,
    K,
    M,
    N,
    at,
    last_launch,
    launches,
    log,
    ok,
    parameters,
    values,
    write,
)
from libgemm._library import ffi, lib
from libgemm.inspect import variants
from stand_in import in_stand_in

MULTIPROCESSORS = 132  # the stand-in's
SHARED = {90: 232448 + 1024, 80: 166912 + 1024}  # bytes of one of its multiprocessors


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def resident(variant) -> int:
    """Blocks of a variant that one multiprocessor holds, by threads, registers and shared memory."""
    threads = 32 * variant.warps
    by_registers = 65536 // (threads * variant.registers)
    return max(1, min(2048 // threads, by_registers, SHARED[variant.target] // (variant.shared_bytes + 1024)))


def expected_grid(op: str, variant, m: int, n: int, batch: int) -> int:
    if op == "gemm":
        return ceil_div(m, variant.block_m) * ceil_div(n, variant.block_n) * batch
    persistent = MULTIPROCESSORS * resident(variant)
    if op == "grouped_gemm":
        return persistent
    return min((m // variant.block_m + GROUPS) * ceil_div(n, variant.block_n), persistent)


def only_launch() -> dict:
    found = launches()
    assert len(found) == 1
    return found[0]


def pinned(variant, gpu: int, m: int, n: int, k: int) -> Call:
    """A legal call of exactly this variant, with leading dimensions a little longer than needed."""
    types = {"f16": lib.LIBGEMM_F16, "bf16": lib.LIBGEMM_BF16, "f32": lib.LIBGEMM_F32, "e4m3": lib.LIBGEMM_E4M3}
    lds = {"lda": (m if variant.trans_a else k) + 16, "ldb": (k if variant.trans_b else n) + 16, "ldd": n + 16}
    sizes = {"m": m, "n": n, "k": k, **lds, "ldc": n + 16}
    call = Call(variant.op, gpu, a_type=types[variant.a_type], d_type=types[variant.d_type], variant=variant.name)
    call.set(trans_a=int(variant.trans_a), trans_b=int(variant.trans_b))
    call.set(precision=("exact", "tf32", "tf32x3", "ieee", "fast").index(variant.precision))
    if variant.op == "grouped_gemm":
        room = {"workspace_bytes": 1 << 17}  # with which every row may run
        return call.set(**{name: [value] * GROUPS for name, value in sizes.items()}, **room, aligned=variant.align16)
    return call.set(**sizes, **({"batch_stride_b": K * N + 64} if variant.op == "grouped_mm" else {}))


@pytest.mark.parametrize(("gpu", "target", "op"), [*[(0, 90, op) for op in OPS], (1, 80, "grouped_mm")])
@in_stand_in(SM="90,80")
def test_every_variant_launches_with_its_own_shape(gpu, target, op):
    """The stand-in refuses a block that the cubin does not require and shared memory nobody opted in to."""
    own = [v for v in variants() if (v.target, v.op) == (target, op)]
    own = [v for v in own if not v.single]  # those: test_capi_fast.py, test_capi_grouped_fast.py
    for v in own:
        step = 16 if v.a_type == "e4m3" else 8  # elements in 16 bytes
        for m, n, k in ((129 * step, 33 * step, 9 * step), (step, step, step)):
            ok(pinned(v, gpu, m, n, k).run())
            launch = last_launch()
            assert launch["block"] == [32 * v.warps, 1, 1] and launch["shared"] == v.shared_bytes, v.name
            assert launch["grid"] == [expected_grid(op, v, m, n, 1) * v.ctas, 1, 1], v.name
            assert launch["kernel"].startswith(op) and launch["cluster"] == v.ctas and launch["device"] == gpu, v.name
    assert len(launches()) == 2 * len(own) > 0


@in_stand_in()
def test_gemm_passes_every_argument_in_its_place():
    fields = {"lda": 72, "ldb": 88, "ldc": 96, "ldd": 104, "alpha": 1.1, "beta": -2.5, "activation": 2, "batch": 3}
    strides = {f"batch_stride_{x}": 10000 + 8 * i for i, x in enumerate(("a", "b", "c", "d", "bias"))}
    call = Call("gemm", bias=at(4), **fields, **strides)
    ok(call.run())
    launch = only_launch()
    assert launch["grid"][0] == expected_grid("gemm", call.variant(), M, N, 3)
    found = values(launch)
    assert found.pop("scratch") == 0
    alpha = struct.unpack("<f", struct.pack("<f", 1.1))[0]
    expected = {**fields, **strides, "alpha": alpha, "M": M, "N": N, "K": K}
    expected |= {f"{x}_ptr": at(i) for i, x in enumerate(("a", "b", "c", "d", "bias"))}
    del expected["batch"]
    assert found == expected


@in_stand_in()
def test_alpha_has_four_bytes_with_the_bits_of_the_float():
    for bits in (0x3F8CCCCD, 0x7F800000, 0x7FC00000, 0x00000001, 0x80000000):
        value = struct.unpack("<f", struct.pack("<I", bits))[0]
        ok(Call("gemm", alpha=value).run())
        launch = launches()[-1]
        given = [given for param, given in parameters(launch) if param["name"] == "alpha"]
        assert given == [{"size": 4, "hex": struct.pack("<I", bits).hex()}]


@in_stand_in()
def test_operands_that_are_not_read_get_no_strides():
    for change in ({"alpha": 0.0}, {"k": 0}):
        ok(Call("gemm", **change, lda=-3, ldb=-4).run())
        found = values(launches()[-1])
        assert [found[x] for x in ("K", "lda", "ldb", "ldc")] == [0, 0, 0, 0]


@pytest.mark.parametrize(("form", "kind", "skip"), [(1, "i", 0), (2, "q", 0), (3, "i", 4), (4, "q", 8)])
@in_stand_in(SM=80)
def test_the_ends_pointer_skips_the_leading_zero(form, kind, skip):
    offs = write(at(5), kind, [0] * bool(skip) + [10, 40, M])
    ok(Call("grouped_mm", offs_format=form, offs=offs, bias=at(4), batch_stride_bias=96, batch_stride_b=K * N).run())
    found = values(only_launch())
    assert (found["offs_ptr"], found["offs_wide"], found["groups"]) == (offs + skip, int(kind == "q"), GROUPS)
    assert (found["M"], found["N"], found["K"]) == (M, N, K)
    assert (found["batch_stride_b"], found["batch_stride_bias"], found["bias_ptr"]) == (K * N, 96, at(4))
    assert [found[f"{x}_ptr"] for x in "abd"] == [at(0), at(1), at(3)]


@in_stand_in()
def test_a_shared_b_becomes_one_dense_gemm():
    shared = {"shared_b": 1, "offs": 0, "batch_stride_b": 12345, "batch_stride_bias": 777}
    ok(Call("grouped_mm", bias=at(4), activation=1, alpha=0.5, **shared).run())
    ok(Call("gemm", bias=at(4), activation=1, alpha=0.5).run())
    first, second = launches()
    assert first["kernel"] == "gemm" or first["kernel"].startswith("gemm_")  # and not grouped_mm
    assert [first.pop("by"), second.pop("by")] == ["kernel", "function"]  # the second is remembered: one plan of both
    assert first == second
    assert Call("grouped_mm", **shared).explain(TARGET)[1].variant == Call("gemm").explain(TARGET)[1].variant


EMPTY = [{"m": 0}, {"n": 0}, {"m": 0, "a": 0, "b": 0, "d": 0}, {"n": 0, "d": 0, "lda": -1, "ldd": -1}]


@in_stand_in(NO_DEVICE=1)
def test_an_empty_problem_succeeds_without_a_driver():
    none = {f"ld{x}": -1 for x in "abcd"}
    sizes = {"m": 8, "n": 8, "k": 8, "beta": 1.0, "a_type": 1, "d_type": 1, **none}
    for empty in ({"batch": 0}, {"m": 0}, {"n": 0}):
        ok(Arguments("gemm", **{**sizes, **empty}).run())
    for empty in ({"groups": 0}, {"m": 0, "groups": 2}, {"n": 0, "groups": 2}):
        for shared in (0, 1):
            ok(Arguments("grouped_mm", **{**sizes, **empty}, shared_b=shared).run())
    for host in (0, 1):
        ok(Arguments("grouped_gemm", groups=0, a_type=1, d_type=1, host_tables=host).run())
    assert log("cuInit") == []


@pytest.mark.parametrize("fields", EMPTY, ids=str)
@in_stand_in()
def test_an_empty_problem_launches_nothing(fields):
    for op in ("gemm", "grouped_mm"):
        ok(Call(op, **fields).run())
        assert Call(op, **fields).explain(TARGET)[1].variant == -1
    ok(Call("grouped_gemm", **{name: [value] * GROUPS for name, value in fields.items()}).run())
    assert launches() == [] and log("cuMemcpyHtoDAsync_v2", "cuLibraryLoadData") == []
    assert b"empty" in ffi.string(Call("gemm", **fields).explain(TARGET)[1].reason)


@pytest.mark.parametrize("fields", [{}, {"batch": 3, "batch_stride_d": 10000}, {"batch": 3, "batch_stride_d": M * N}])
@in_stand_in()
def test_without_a_bias_its_stride_reaches_no_kernel(fields):
    """Kernels add the stride to the pointer and ask whether that is NULL: they would read what is at the stride."""
    ok(Call("gemm", **fields, bias=0, batch_stride_bias=12345).run())
    ok(Call("grouped_mm", bias=0, batch_stride_bias=12345).run())
    for launch in launches():
        assert (values(launch)["bias_ptr"], values(launch).get("batch_stride_bias", 0)) == (0, 0)


@pytest.mark.parametrize("alpha", [2.0, float("inf"), float("nan")])
@in_stand_in()
def test_without_a_product_alpha_makes_nothing_of_it(alpha):
    """Inf times a sum of nothing, which is 0, would be NaN."""
    ok(Call("gemm", k=0, alpha=alpha, beta=1.0).run())
    ok(Call("gemm", k=0, alpha=alpha, beta=1.0, batch=3, batch_stride_c=M * N, batch_stride_d=M * N).run())
    assert [(values(launch)["alpha"], values(launch)["K"]) for launch in launches()] == [(0.0, 0)] * 2
