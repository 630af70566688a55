"""8-bit operands and their scales: what a call refuses, what a kernel is told, and copies for other layouts. On the
stand-in."""

import ctypes
import itertools

import pytest
from built import TARGET, needs
from calls import HOST, Call, at, last_launch, launches, ok, records, refused, values
from layers import layer_call
from libgemm._library import ffi, lib, text
from libgemm.inspect import variants
from stand_in import in_stand_in
from test_capi_fast import maps

NAMES = {4: "e4m3", 5: "e5m2"}
E5M2 = lib.LIBGEMM_E5M2
E4M3 = {"a_type": lib.LIBGEMM_E4M3, "d_type": lib.LIBGEMM_BF16}
SIZES = {"m": 1000, "n": 784, "k": 528, "lda": 528, "ldb": 528, "ldc": 784, "ldd": 784, "trans_b": 1}


def scaled(kind: int = 2, **fields) -> Call:
    """A product that Hopper's fast kernels take, with scales of this kind (libgemm_scaling)."""
    scales = {"scaling": kind, "a_scale": at(7), "b_scale": at(8)} if kind else {}
    return Call("gemm", **{**E4M3, **SIZES, **scales, **fields})


REFUSED = [
    ({"a_scale": 0}, ("a_scale is NULL",)),
    ({"b_scale": 0}, ("b_scale is NULL",)),
    ({"b_scale": "host"}, ("b_scale = 0x", "host memory")),
    ({"a_scale": "odd"}, ("a_scale = 0x", "multiple of 4")),
    ({"scaling": 6}, ("scaling = 6", "0 to 5")),
    *[({"scaling": v, "precision": 4}, (f"precision = 4 with scaling = {v}", "LIBGEMM_EXACT (0)")) for v in (3, 4, 5)],
    ({"scaling": 0}, ("a_scale = 0x", "scaling = 0", "NULL")),
    ({"d_type": E5M2}, ("d_type = 5 with 8-bit", "LIBGEMM_BF16 (2)", "LIBGEMM_E4M3 (4)")),
    ({"d_type": 0}, ("d_type = 0",)),
    ({"d_scale": "place"}, ("d_scale = 0x", "d_type bf16", "NULL")),
    ({"d_type": lib.LIBGEMM_E4M3, "d_scale": "host"}, ("d_scale = 0x", "host memory")),
    ({"d_type": lib.LIBGEMM_E4M3, "d_scale": "odd"}, ("d_scale = 0x", "multiple of 4")),
    ({"d_amax": "place"}, ("d_amax = 0x", "d_type bf16", "NULL")),
    ({"d_type": lib.LIBGEMM_E4M3, "d_amax": "host"}, ("d_amax = 0x", "host memory")),
    ({"d_type": lib.LIBGEMM_E4M3, "d_amax": "odd"}, ("d_amax = 0x", "multiple of 4")),
    ({"d_type": lib.LIBGEMM_E4M3, "bias": "byte"}, ("bias = 0x", "multiple of 2")),
    *[({"precision": v}, (f"precision = {v} with 8-bit", "LIBGEMM_FAST (4)")) for v in (-1, 1, 3, 5)],
    ({"lda": 527}, ("lda = 527", "k = 528")),
]


@pytest.mark.parametrize(("fields", "parts"), REFUSED, ids=str)
@in_stand_in()
def test_words_that_do_not_go_together_are_refused(fields, parts):
    places = {"host": ctypes.addressof(HOST), "odd": at(7) + 2, "place": at(9), "byte": at(4) + 1}
    refused(scaled(**{k: places.get(v, v) for k, v in fields.items()}).run(), "INVALID_ARGUMENT", *parts)
    assert launches() == []


@in_stand_in()
def test_what_no_kernel_takes_is_refused_by_name():
    refused(scaled(b_type=lib.LIBGEMM_BF16).run(), "UNSUPPORTED", "b_type = 2 (bf16)", "a_type e4m3")
    to_e4m3 = {"d_type": lib.LIBGEMM_E4M3}
    refused(scaled(**to_e4m3, beta=0.5).run(), "UNSUPPORTED", "beta = 0.5 with d_type e4m3", "0")
    refused(packed(2, **to_e4m3).run(), "INVALID_ARGUMENT", "d_type = 4 with 8-bit operands", "LIBGEMM_F32 (3)")
    halves = {"a_type": lib.LIBGEMM_BF16, **to_e4m3}
    refused(scaled(0, **halves).run(), "INVALID_ARGUMENT", "d_type = 4 (e4m3) with a_type bf16")
    refused(Call("grouped_gemm", **E4M3).run(), "UNSUPPORTED", "no variant computes grouped_gemm e4m3 -> bf16")
    refused(Call("grouped_gemm", **E4M3, b_type=E5M2).run(), "UNSUPPORTED", "b_type = 5 (e5m2) with a_type e4m3")
    for b_type in (0, lib.LIBGEMM_E4M3, E5M2):
        told = {**E4M3, "a_type": E5M2, "b_type": b_type}
        refused(Call("grouped_gemm", **told).run(), "UNSUPPORTED", "a_type e5m2: no variant computes grouped_gemm")
    refused(scaled(a_type=E5M2).run(), "UNSUPPORTED", "a_type e5m2 with b_type e5m2", "LIBGEMM_E4M3 (4)")
    refused(scaled(a_type=E5M2, b_type=2).run(), "UNSUPPORTED", "b_type = 2 (bf16) with a_type e5m2")
    refused(scaled(b_type=6).run(), "INVALID_ARGUMENT", "b_type = 6", "LIBGEMM_E5M2 (5) the other one")
    for op in ("moe_mm", "moe_sum", "moe_cast", "cast"):
        assert layer_call(op, a_type=E5M2).run() != lib.LIBGEMM_OK, op
    assert "e5m2" in text(lib.libgemm_last_error()) or "a_type = 5" in text(lib.libgemm_last_error())
    blocks = {"scaling": 3, "a_scale": at(7), "b_scale": at(8), "ragged": 2, "trans_a": 1}
    refused(Call("grouped_mm", **E4M3, **blocks).run(), "UNSUPPORTED", "scaling = 3, of blocks, with ragged = 2")
    assert launches() == []


@pytest.mark.parametrize("d_type", [1, 2, 3])
@pytest.mark.parametrize("precision", [0, 4])
@in_stand_in()
def test_a_kernel_is_told_where_scales_are_and_what_they_are(precision, d_type):
    for kind in (0, 1, 2):
        ok(scaled(kind, precision=precision, d_type=d_type, b_type=lib.LIBGEMM_E4M3 if kind else 0).run())
        found = values(last_launch())
        places = [at(7), at(8)] if kind else [0, 0]
        assert [found["scaling"], found["a_scale"], found["b_scale"]] == [kind, *places]


@pytest.mark.parametrize("precision", [0, 4])
@in_stand_in()
def test_a_d_of_8_bits_has_a_scale_of_its_own_or_none_and_a_bias_of_16(precision):
    for kind, place, odd in itertools.product(range(3 if precision else 6), (0, at(9)), ({}, {"lda": 529})):
        call = scaled(kind, precision=precision, d_type=lib.LIBGEMM_E4M3, d_scale=place, bias=at(4) + 2, **odd)
        ok(call.run())
        found, name = values(last_launch()), last_launch()["variant"]
        assert [found["d_scale"], found["bias_ptr"]] == [place, at(4) + 2] and "_e4m3_e4m3_e4m3" in name
    for unread in ({"k": 0}, {"alpha": 0.0}):  # bias alone, over the scale
        ok(scaled(1, d_type=lib.LIBGEMM_E4M3, d_scale=at(9), **unread).run())
        assert values(last_launch())["d_scale"] == at(9)
    batch = {"batch": 3, "batch_stride_a": 1 << 20, "batch_stride_b": 1 << 20, "batch_stride_d": 1 << 20}
    ok(scaled(2, d_type=lib.LIBGEMM_E4M3, d_scale=at(9), precision=precision, **batch).run())
    assert values(last_launch())["d_scale"] == at(9)


@pytest.mark.parametrize("precision", [0, 4])
@in_stand_in()
def test_a_kernel_of_a_d_of_8_bits_is_told_where_its_rows_magnitudes_go(precision):
    batch = {"batch": 3, "batch_stride_a": 1 << 20, "batch_stride_b": 1 << 20, "batch_stride_d": 1 << 20}
    for more, place in itertools.product(({}, {"lda": 529}, {"k": 0}, batch), (0, at(10))):
        ok(scaled(1, precision=precision, d_type=lib.LIBGEMM_E4M3, d_scale=at(9), d_amax=place, **more).run())
        assert [values(last_launch())[name] for name in ("d_scale", "d_amax")] == [at(9), place]


@needs(90)
@in_stand_in()
def test_a_d_of_8_bits_leaves_by_boxes_of_whole_16_bytes_or_element_by_element():
    to_e4m3 = {"d_type": lib.LIBGEMM_E4M3, "d_scale": at(9)}
    for n, ldd, how in ((784, 784, "_descriptor_"), (776, 784, "_masked_"), (784, 785, "_masked_")):
        ok(scaled(2, **to_e4m3, n=n, ldd=ldd).run())
        assert how in last_launch()["variant"], (n, ldd)
    boxes = [box for r in records().values() if "_e4m3_e4m3_e4m3" in r["name"] for box in r["boxes"]]
    stored = [box for box in boxes if box["name"].startswith("d_desc") and box["rows"]]
    assert len(stored) > 20 and all(box["cols"] % 16 == 0 for box in stored)


@pytest.mark.parametrize("op", ["gemm", "grouped_mm"])
@in_stand_in()
def test_one_operand_of_e5m2_runs_rows_that_are_told_of_it_or_are_for_it(op):
    make = scaled if op == "gemm" else packed
    for a, b, kind in itertools.product((lib.LIBGEMM_E4M3, E5M2), (lib.LIBGEMM_E4M3, E5M2), range(6)):
        call = make(kind, a_type=a, b_type=b)
        if a == b == E5M2:
            refused(call.run(), "UNSUPPORTED", "e5m2")
            continue
        ok(call.run())
        found, name = values(last_launch()), last_launch()["variant"]
        if "portable" in records()[name]["kernel"]:
            assert (found["a_type"], found["b_type"], found["scaling"]) == (a, b, kind)
        else:
            assert f"_{NAMES[a]}_{NAMES[b]}_" in name
    ok(make(2, a_type=lib.LIBGEMM_E4M3).run())  # b_type 0; and on reference rows it is said, too
    ok(make(2, lda=529).run())
    assert [values(last_launch())[f"{x}_type"] for x in "ab"] == [lib.LIBGEMM_E4M3] * 2


@needs(90)
@in_stand_in()
def test_mixed_operands_are_copied_as_those_of_one_type_are_where_rows_take_them():
    """Where TMA cannot read them or K comes first; into float16 no fast row takes them."""
    for odd in ({"lda": 529}, {"trans_a": 1, "lda": 1000}, {"trans_b": 0, "ldb": 784}, {"b": at(1) + 3}):
        alike, mixed = (scaled(**odd, b_type=b).set(workspace=at(6)) for b in (lib.LIBGEMM_E4M3, E5M2))
        half = scaled(**odd, b_type=E5M2, d_type=1).set(workspace=at(6))
        needed = alike.workspace()
        assert needed == mixed.workspace() > 0 == half.workspace()
        for call, count in ((alike, 2), (mixed, 2), (half, 1)):
            before = len(launches())
            ok(call.set(workspace_bytes=needed).run())
            assert len(launches()) - before == count, odd


@needs(90)
@in_stand_in()
def test_a_mixed_product_is_no_known_one_of_equal_types():
    fast, mixed = scaled(), scaled(b_type=E5M2)
    names = []
    for call in (fast, mixed, fast, mixed):
        ok(call.run())
        names.append(last_launch()["variant"])
    assert names[0] == names[2] != names[1] == names[3] and all("descriptor" in name for name in names)
    words = "an A and a B of the two 8-bit types that its name has"
    for types, name in (({"b_type": E5M2}, names[0]), ({}, names[1]), ({"a_type": E5M2, "b_type": 4}, names[1])):
        refused(scaled(**types, variant=name).run(), "UNSUPPORTED", words)
    ok(scaled(b_type=E5M2, variant=names[1]).run())


def packed(kind: int, **fields) -> Call:
    """Groups that Hopper's fast kernels take, with scales of this kind."""
    sizes = {"m": 96, "n": 784, "k": 528, "lda": 528, "ldb": 528, "ldd": 784, "trans_b": 1, "batch_stride_b": 784 * 528}
    scales = {"scaling": kind, "a_scale": at(7), "b_scale": at(8)} if kind else {}
    return Call("grouped_mm", **{**E4M3, **sizes, **scales, **fields})


SHARED = {"batch_stride_a_scale": 11, "batch_stride_b_scale": 13}


@pytest.mark.parametrize("precision", [0, 4])
@in_stand_in()
def test_groups_have_scales_of_their_own_but_of_what_is_packed(precision):
    for ragged, kind in itertools.product(range(4), (0, 1, 2, 3, 4, 5)):
        if kind > 2 and (precision == 4 or ragged == 2):
            continue
        stacked = {"batch_stride_a": 96 * 528, "batch_stride_d": 96 * 784}
        ok(packed(kind, precision=precision, ragged=ragged, **stacked, **SHARED, **STRIDES).run())
        found = values(last_launch())
        assert [found["a_scale"], found["b_scale"]] == ([at(7), at(8)] if kind else [0, 0])
        if kind == 0:
            continue
        assert found.get("batch_stride_a_scale", 0) == (0 if ragged == 0 else 11)
        assert found["batch_stride_b_scale"] == (0 if ragged == 1 else 13)
        if "a_scale_stride_m" in found:
            assert {name: found[name] for name in STRIDES} == STRIDES


@needs(90)
@in_stand_in()
def test_hopper_has_fast_kernels_for_packed_rows_and_their_scales():
    for precision, kind, fast in ((0, 1, 1), (0, 2, 1), (0, 3, 1), (4, 2, 1), (0, 4, 0), (0, 5, 0)):
        ok(packed(kind, precision=precision, **STRIDES).run())
        name = last_launch()["variant"]
        assert ("_scaled_" in name) == fast and ("_blocks" in name) == (kind == 3), name
    stacked = {"batch_stride_a": 96 * 528, "batch_stride_d": 96 * 784}
    ok(packed(2, **stacked, ragged=3).run())
    assert "_scaled_" in last_launch()["variant"]
    for change in ({"activation": 1}, {"d_type": 1}, {"trans_b": 0, "ldb": 784}):
        ok(packed(2, **stacked, **change).run())
        assert "_scaled_" not in last_launch()["variant"]


@in_stand_in()
def test_scales_of_groups_are_refused_as_those_of_one_product_are():
    refused(packed(2, a_scale=0).run(), "INVALID_ARGUMENT", "a_scale is NULL")
    refused(packed(2, b_scale=at(8) + 2).run(), "INVALID_ARGUMENT", "b_scale = 0x", "multiple of 4")
    refused(packed(0, a_scale=at(7)).run(), "INVALID_ARGUMENT", "a_scale = 0x", "scaling = 0")
    refused(packed(3, precision=4).run(), "INVALID_ARGUMENT", "precision = 4 with scaling = 3")
    assert launches() == []
    ok(packed(2, a_scale=16, b_scale=16, alpha=0.0).run())  # nobody's memory: not read
    assert values(last_launch())["scaling"] == 0


@in_stand_in()
def test_a_shared_b_takes_its_scales_along():
    shared = {"shared_b": 1, "offs": 0, **STRIDES}
    ok(packed(3, **shared).run())
    found = values(last_launch())
    assert [found["a_scale"], found["b_scale"], *(found[name] for name in STRIDES)] == [at(7), at(8), *STRIDES.values()]


STRIDES = {"a_scale_stride_m": 5, "a_scale_stride_k": 1, "b_scale_stride_n": 7, "b_scale_stride_k": 2}


@pytest.mark.parametrize("kind", [3, 4, 5])
@in_stand_in()
def test_a_kernel_is_told_how_scales_of_blocks_are_strided(kind):
    for change in ({}, {"batch": 2, "batch_stride_a": 1 << 20, "batch_stride_b": 1 << 20, "batch_stride_d": 1 << 20}):
        ok(scaled(kind, **STRIDES, **change).run())
        found = values(last_launch())
        assert {name: found[name] for name in STRIDES} == STRIDES
        assert [found["a_scale"], found["b_scale"]] == [at(7), at(8)]
        if "scaling" in found:  # rows that take one kind of scales need not be told which
            assert found["scaling"] == kind


@needs(90)
@in_stand_in()
def test_hopper_has_fast_kernels_for_blocks_of_activations_and_weights():
    for kind, fast in ((2, True), (3, True), (4, False), (5, False)):
        ok(scaled(kind, **STRIDES if kind > 2 else {}).run())
        name = last_launch()["variant"]
        assert ("_descriptor" in name) == fast and ("_blocks" in name) == (kind == 3), name
    blocks = next(v for v in variants_of("gemm", "e4m3") if "_blocks" in v)
    refused(scaled(2, variant=blocks).run(), "UNSUPPORTED", blocks, "LIBGEMM_SCALING_1X128_128X128")
    other = next(v for v in variants_of("gemm", "e4m3") if "_unblocked" in v)
    refused(scaled(3, **STRIDES, variant=other).run(), "UNSUPPORTED", other, "no scales of blocks")


def variants_of(op: str, a: str) -> list[str]:
    return [v.name for v in variants() if v.op == op and v.a_type == a and v.precision == "exact" and v.linear]


@in_stand_in()
def test_where_a_and_b_are_not_read_scales_are_not_either():
    for change in ({"alpha": 0.0}, {"k": 0}):
        ok(scaled(**change, a_scale=16, b_scale=16).run())  # nobody's memory
        found = values(last_launch())
        assert [found["scaling"], found["a_scale"], found["b_scale"]] == [0, 0, 0]


@in_stand_in()
def test_products_of_a_batch_have_scales_of_their_own_or_share_them():
    strides = {"batch": 3, "batch_stride_a": 1 << 20, "batch_stride_b": 1 << 20, "batch_stride_d": 1 << 20}
    for a, b in ((1000, 784), (0, 784), (0, 0)):
        ok(scaled(**strides, batch_stride_a_scale=a, batch_stride_b_scale=b).run())
        found = values(last_launch())
        assert [found["batch_stride_a_scale"], found["batch_stride_b_scale"]] == [a, b]


@in_stand_in()
def test_an_older_callers_struct_has_no_scales():
    call = Call("gemm", **E4M3, **SIZES)
    call.args.size = ffi.offsetof("libgemm_gemm_args", "b_type")
    call.args.scaling, call.args.a_scale = 2, ffi.cast("void *", at(7))  # behind its end
    ok(call.run())
    assert values(last_launch())["scaling"] == 0
    call = scaled(2, d_type=lib.LIBGEMM_E4M3, d_scale=at(9))
    call.args.size = ffi.offsetof("libgemm_gemm_args", "d_scale")
    ok(call.run())
    assert [values(last_launch())[name] for name in ("a_scale", "d_scale")] == [at(7), 0]
    call = scaled(2, d_type=lib.LIBGEMM_E4M3, d_scale=at(9), d_amax=at(10))
    call.args.size = ffi.offsetof("libgemm_gemm_args", "d_amax")
    ok(call.run())
    assert [values(last_launch())[name] for name in ("d_scale", "d_amax")] == [at(9), 0]


@needs(90)
@pytest.mark.parametrize("precision", ["", "_fast"])
@in_stand_in()
def test_hopper_runs_a_fast_kernel_on_operands_along_k_as_they_are(precision):
    call = scaled(precision=4 if precision else 0)
    assert f"_e4m3_e4m3_bf16{precision}_nt__sm90" in text(call.variant(90).name)
    ok(call.run())
    launch = last_launch()
    assert "_descriptor" in launch["variant"] and f"bf16{precision}_nt" in launch["variant"]
    assert {name: maps(launch)[name][0] for name in "ab"} == {"a": at(0), "b": at(1)}


@needs(90)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (1, 1), (1, 0)])
@in_stand_in()
def test_other_layouts_are_turned_first_in_a_workspace(trans_a, trans_b):
    layout = {"trans_a": trans_a, "trans_b": trans_b, "lda": 1008 if trans_a else 528, "ldb": 528 if trans_b else 784}
    call = scaled(**{**layout, "m": 4000, "lda": 4000 if trans_a else 528})
    needed = call.workspace()
    assert needed == (4000 * 640 if trans_a else 0) + (784 * 640 if not trans_b else 0)
    ok(call.set(workspace=at(9), workspace_bytes=needed).run())
    copy, product = launches()
    assert copy["kernel"] == "align" and "_nt__" in product["variant"]
    assert [values(copy)[x] for x in ("a_transpose", "b_transpose")] == [trans_a, 1 - trans_b]
    found = maps(product)
    assert found["a"][0] == (at(9) if trans_a else at(0))
    assert found["b"][0] == (at(1) if trans_b else at(9) + (4000 * 640 if trans_a else 0))
    ok(call.set(workspace_bytes=0).run())  # without: by the row for any memory
    assert last_launch()["kernel"] == "gemm"


@needs(90)
@in_stand_in()
def test_whether_a_copy_pays_depends_on_m_so_batch_invariant_calls_have_none():
    call = scaled(trans_b=0, ldb=784, batch_invariant=1, workspace=at(9), workspace_bytes=1 << 30)
    assert call.workspace() == 0
    ok(call.run())
    assert last_launch()["kernel"] == "gemm" and len(launches()) == 1


@in_stand_in()
def test_explain_says_what_would_run():
    status, choice = scaled().explain(TARGET)
    ok(status)
    assert choice.variant >= 0 and choice.expected_us > 0
