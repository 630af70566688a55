"""Rows that take tensor descriptors: what their launches and tensor maps hold, on the stand-in. Proves no numerics."""

import struct

from built import needs
from calls import Call as LegalCall
from calls import K, at, last_launch, launches, ok, parameters, records, refused, values
from libgemm._library import text
from libgemm.inspect import variants
from stand_in import in_stand_in

pytestmark = needs(90)  # these rows are Hopper's

MULTIPROCESSORS = 132
BIG = {"m": 1000, "n": 776, "k": 520, "ldc": 784, "ldd": 792}


def fast_rows(d_type: str = "bf16"):
    found = [v for v in variants() if (v.target, v.op, v.a_type, v.d_type) == (90, "gemm", "bf16", d_type)]
    return [v for v in found if v.single]


def call_of(v, **fields) -> LegalCall:
    lds = {"lda": BIG["m" if v.trans_a else "k"] + 8, "ldb": BIG["k" if v.trans_b else "n"] + 16}
    sizes = {**BIG, **lds, **fields}
    return LegalCall("gemm", variant=v.name, trans_a=int(v.trans_a), trans_b=int(v.trans_b), **sizes)


def pingpong_rows() -> list:
    """That load each for itself, and whose tiles leave by boxes all alike."""
    return [v for v in fast_rows() if v.family == "pingpong" and v.ctas == 1]


def tiles(v, m: int, n: int) -> int:
    return -(-m // v.block_m) * -(-n // v.block_n)


def maps(launch: dict) -> dict[str, tuple]:
    """name -> (address, rank, bytes of the map) of each descriptor, as the stand-in wrote it."""
    found = {}
    used = {box["name"] for box in records()[launch["variant"]]["boxes"]}
    for known, parameter in parameters(launch):
        name = known["name"].removesuffix(".map")
        if name in used:  # a part of D as wide as that box leaves by it
            data = bytes.fromhex(parameter["hex"])
            assert data.startswith(b"FAKETMAP"), name
            found[name.replace("_desc", "")] = (struct.unpack_from("<Q", data, 8)[0], data)
    return found


@in_stand_in()
def test_every_fast_row_launches_as_many_blocks_as_fit():
    rows = [v for v in fast_rows() if "_workspace" not in v.name and "_cluster" not in v.name]  # test_capi_cluster.py
    assert len(rows) > 30
    for v in rows:
        ok(call_of(v).run())
        launch = last_launch()
        # That find place: clusters on neighbours.
        blocks = {1: MULTIPROCESSORS, 2: 66 * 2, 4: 30 * 4, 8: 15 * 8}[v.ctas]
        assert launch["grid"] == [min(tiles(v, 1000, 776) * v.ctas, blocks), 1, 1], v.name
        assert launch["cluster"] == v.ctas, v.name
        assert (launch["block"], launch["shared"]) == ([32 * v.warps, 1, 1], v.shared_bytes), v.name
    assert len(launches()) == len(rows)


@in_stand_in(SMS=7)
def test_a_slice_of_a_gpu_too_small_for_its_share_of_clusters_launches_one():
    for v in fast_rows():
        if v.ctas > 4:
            ok(call_of(v).run())
            assert (last_launch()["grid"], last_launch()["cluster"]) == ([v.ctas, 1, 1], v.ctas), v.name
    assert len(launches()) > 0


@in_stand_in()
def test_tiles_are_counted_a_whole_grid_further_than_the_last():
    """Blocks go on by the grid from tile to tile: near 2^31 the next number would be negative, and never the last."""
    along_m, along_n = 149_943, 14_322  # their product is 2^31 - 2
    v = next(v for v in pingpong_rows() if v.trans_b and not v.trans_a and v.linear)
    m, n = along_m * v.block_m, along_n * v.block_n
    call = LegalCall("gemm", variant=v.name, trans_b=1, m=m, n=n, ldb=K, ldd=n)
    refused(call.run(), "UNSUPPORTED", f"{along_m * along_n} tiles", str(2**31 - 1 - 65535))
    ok(call.set(m=m - 5 * v.block_m).run())
    assert last_launch()["grid"][0] == MULTIPROCESSORS


@in_stand_in()
def test_tensor_maps_name_the_operands():
    v = next(v for v in pingpong_rows() if v.linear)
    ok(call_of(v, beta=1.0).run())
    found = maps(last_launch())
    assert {name: address for name, (address, _) in found.items()} == {x: at(i) for i, x in enumerate("abcd")}
    ok(call_of(v, c=0).run())
    assert maps(last_launch())["c"][0] == at(3)  # a C that is not read may not exist


@in_stand_in()
def test_rows_with_masked_stores_take_any_d():
    v = next(v for v in fast_rows() if "_masked" in v.name and not v.trans_a and not v.trans_b)
    ok(call_of(v, d=at(3) + 2, ldd=777).run())
    assert sorted(maps(last_launch())) == ["a", "b"]
    plain = next(v for v in pingpong_rows() if not v.trans_a and not v.trans_b)
    refused(call_of(plain, d=at(3) + 2, ldd=777).run(), "UNSUPPORTED", plain.name, "16-byte aligned")


@in_stand_in()
def test_a_split_row_shares_k_and_uses_the_workspace():
    v = next(v for v in fast_rows() if "_split_swap" in v.name and v.block_m == 8 and v.trans_b)
    few = {"m": 8, "n": 256, "k": 8192, "lda": 8192, "ldb": 8192, "ldc": 256, "ldd": 256}
    needed = call_of(v, **few).workspace()
    assert needed > 4 * 8 * 64 * 4
    refused(call_of(v, **few).run(), "UNSUPPORTED", v.name, "workspace")
    refused(call_of(v, **few, workspace=at(6), workspace_bytes=needed - 1).run(), "UNSUPPORTED", "workspace")
    assert launches() == []
    seen = set()
    for _ in range(3):
        ok(call_of(v, **few, workspace=at(6), workspace_bytes=needed).run())
        found = values(last_launch())
        assert found["splits"] >= 2
        assert last_launch()["grid"][0] == 4 * found["splits"] <= MULTIPROCESSORS
        assert (found["semaphores"], found["partials"]) == (at(6), at(6) + 128)
        assert needed == 128 + 4 * found["splits"] * 8 * 64 * 4
        seen.add(found["epoch"])
    assert len(seen) == 3
    assert all(0 <= epoch < 1 << 54 for epoch in seen)


@in_stand_in()
def test_without_a_workspace_the_same_problem_runs_unsplit():
    call = LegalCall("gemm", m=64, n=64, k=32768, lda=32768, ldb=32768, ldc=64, ldd=64, trans_b=1)
    assert call.workspace() > 0
    assert "_workspace" not in text(call.variant().name)
    ok(call.run())
    assert "semaphores" not in values(last_launch())
    ok(call.set(workspace=at(6), workspace_bytes=call.workspace()).run())
    assert "_workspace" in text(call.variant().name) and values(last_launch())["semaphores"] == at(6)
    refused(call.set(workspace=at(6) + 4, workspace_bytes=1 << 12).run(), "INVALID_ARGUMENT", "multiple of 16")


@in_stand_in()
def test_what_the_copy_engine_cannot_address_goes_to_the_reference_set():
    large = {"m": 4096, "n": 4096, "k": 4096, "lda": 4096, "ldb": 4096, "ldc": 4096, "ldd": 4096}

    def is_fast(**change) -> bool:
        return bool(LegalCall("gemm", **{**large, **change}).variant(90).single)

    for change in ({"a": at(0) + 2}, {"lda": 4097}, {"batch": 2, "batch_stride_d": (1 << 24) + 8}, {"alpha": 0.0}):
        assert not is_fast(**change), change
    assert not is_fast(lda=1 << 39)  # a stride of 2^40 bytes
    assert is_fast(lda=1 << 38)
    assert is_fast(n=4095, k=4093, m=4091)  # odd extents are fine


@in_stand_in()
def test_the_leading_dimension_of_a_single_row_is_nobodys():
    """A row of A of any length, and what its caller says of the row behind it, does not keep the copy engine away."""
    for k, lda in ((561, 561), (561, 563), (560, 1 << 62)):
        call = LegalCall("gemm", m=1, n=1024, k=k, lda=lda, ldb=1024, ldc=1024, ldd=1025)
        found = call.variant(90)
        assert found.single or "_cluster" in text(found.name), k
        ok(call.run())
        of_a = maps(last_launch())["a"][1]
        columns, rows, stride = (struct.unpack_from("<Q", of_a, at)[0] for at in (16, 24, 56))
        assert (columns, rows) == (k, 1) and stride == -(-2 * k // 16) * 16
    for m, invariant in ((2, 0), (2, 1), (1, 1)):  # a promise about any M takes them as they are given
        sizes = {"m": m, "n": 1024, "k": 561, "lda": 561, "ldb": 1024, "ldc": 1024, "ldd": 1024}
        assert not LegalCall("gemm", **sizes, batch_invariant=invariant).variant(90).single


@in_stand_in()
def test_how_a_single_row_is_strided_changes_no_choice():
    sizes = {"m": 1, "n": 57344, "k": 8192, "ldb": 8192, "ldc": 57344, "ldd": 57344, "trans_b": 1}
    made = {text(LegalCall("gemm", **sizes, lda=8192 + more).variant(90).name) for more in (0, 3, 16, 32, 64)}
    assert len(made) == 1
