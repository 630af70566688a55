"""Batches of dense products that rows for groups of one size serve: which, what is launched. Proves no numerics."""

import itertools

import libgemm
import pytest
from built import needs
from calls import Call, at, last_error, last_launch, mixed_types, ok, refused, values
from libgemm._library import text
from libgemm.inspect import info, variants
from stand_in import in_stand_in
from test_capi_fast import maps

pytestmark = needs(90)  # these rows are Hopper's

M, N, K, LD, BATCH = 96, 80, 64, 128, 3
NONE = 3  # LIBGEMM_RAGGED_NONE
TYPES = {"f16": 1, "bf16": 2, "f32": 3, "e4m3": 4}
PRECISIONS = {"tf32": 1, "fast": 4}
LAYOUTS = ("nn", "nt", "tn", "tt")
FACTS = ("handle", "kernel", "grid", "block", "cluster", "shared", "programmatic", "device")


def fields(layout: str = "nt", **changes) -> dict:
    """Of a batch whose matrices stand one behind the other, by the names that both calls have."""
    made = {"m": M, "n": N, "k": K, **{f"ld{x}": LD for x in "abcd"}, **changes}
    turned = {"trans_a": int(layout[0] == "t"), "trans_b": int(layout[1] == "t")}
    rows = {"a": made["k" if turned["trans_a"] else "m"], "b": made["n" if turned["trans_b"] else "k"]}
    strides = {f"batch_stride_{x}": rows.get(x, made["m"]) * made[f"ld{x}"] for x in "abcd"}
    return {**turned, **strides, "d": at(8), **made}


def batch(layout: str = "nt", **changes) -> Call:
    return Call("gemm", **{"batch": BATCH, **fields(layout, **changes)})


def large(layout: str = "nt", **changes) -> Call:
    """One whose fast row is far ahead of the reference set."""
    return batch(layout, **{"m": 2048, "n": 2048, "k": 2048, **{f"ld{x}": 2048 for x in "abcd"}, **changes})


def name_of(call: Call) -> str:
    return text(call.variant(90).name)


def is_equal(call: Call) -> bool:
    """Whether a row for groups would run; if none, it is one of the reference set."""
    found = call.variant(90)
    name, op = text(found.name), text(found.op)
    assert (op == "grouped_mm") == ("_equal" in name) == bool(found.single)
    return op == "grouped_mm"


def launched(call: Call) -> dict:
    ok(call.run())
    found = last_launch()
    return {k: found[k] for k in FACTS} | {"values": values(found), "maps": maps(found)}


def equal_rows() -> list:
    """But those of whole tiles, which no dense call runs."""
    found = [v for v in variants() if v.op == "grouped_mm" and v.target == 90 and "_equal" in v.name]
    return [v for v in found if "_whole" not in v.name]


def row_for(layout: str, a_type: str = "bf16", d_type: str = "bf16"):
    found = [v for v in equal_rows() if (v.a_type, v.d_type) == (a_type, d_type)]
    return next(v for v in found if "nt"[v.trans_a] + "nt"[v.trans_b] == layout and "_cluster" not in v.name)


TAKEN = [
    {},
    {"m": 91, "k": 57},
    {"m": 1, "n": 8},
    {"k": 1},
    {"batch_stride_a": 0},
    {"batch_stride_a": 0, "batch_stride_b": 0},
    {"beta": -0.5, "alpha": 2.0, "c": at},
    {"beta": 1.0, "c": at, "ldc": 2 * LD, "batch_stride_c": 2 * M * LD},
    {"bias": at, "batch_stride_bias": N},
    {"m": 1, "batch_stride_a": 1000, "batch_stride_d": 1008, "lda": 64},
    {"batch_stride_c": M * LD + 1},  # not read
    {"batch_stride_a": 500 * LD, "batch_stride_b": 700 * LD, "batch_stride_d": 900 * LD},
]


def placed(changes: dict) -> dict:
    """C and the bias where the others' places leave them."""
    return {x: at({"c": 2, "bias": 4}[x]) if v is at else v for x, v in changes.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
@in_stand_in()
def test_a_batch_is_launched_as_groups_of_one_size(layout):
    for changes in TAKEN:
        words = placed(changes)
        if "t" in layout and "lda" in words:
            continue  # one stored row is another matrix there
        words["variant"] = row_for(layout).name
        dense = launched(batch(layout, **words))
        groups = Call("grouped_mm", groups=BATCH, ragged=NONE, **fields(layout, **words))
        assert dense == launched(groups), changes
        found = dense["values"]
        assert (found["groups"], found["offs_ptr"]) == (BATCH, 0) and len(dense["maps"]) == 4
    call = large(layout, batch_stride_a=0, batch_stride_b=0)
    assert is_equal(large(layout)) and is_equal(call) and call.workspace() == 0
    shared = launched(call)["values"]
    assert [shared[f"{x}_step"] for x in "abd"] == [0, 0, 2048]


@in_stand_in()
def test_every_such_row_serves_batches_by_name():
    assert len(equal_rows()) > 20 and {v.a_type for v in equal_rows()} == set(TYPES)
    for v in equal_rows():
        types = {"a_type": TYPES[v.a_type], "d_type": TYPES[v.d_type], "precision": PRECISIONS.get(v.precision, 0)}
        if v.a_type == "e4m3":
            scales = {"batch_stride_a_scale": 2 * M, "batch_stride_b_scale": 2 * N}
            types |= {"scaling": 2, "a_scale": at(9), "b_scale": at(10), **scales, **mixed_types(v.name)}
        if "_cluster" in v.name:  # it needs some K to share
            types |= {"k": 4096, **{f"ld{x}": 4096 for x in "abcd"}}
        call = batch("nt"[v.trans_a] + "nt"[v.trans_b], **types, variant=v.name)
        assert name_of(call) == v.name and "pinned by name" in text(call.explain(90)[1].reason)
        groups = fields("nt"[v.trans_a] + "nt"[v.trans_b], **types, variant=v.name)
        assert launched(call) == launched(Call("grouped_mm", groups=BATCH, ragged=NONE, **groups)), v.name


@in_stand_in()
def test_single_rows_are_as_far_apart_as_their_batch_says():
    strides = {"batch_stride_a": LD, "batch_stride_d": 2 * LD, "batch_stride_b": N * LD}
    for change in ({}, {"lda": 5 * LD + 1}, {"lda": 1 << 50}, {"ldd": 7 * LD}):
        call = batch("nt", **{"m": 1, **strides, **change})
        assert is_equal(call), change
        found = launched(call)["values"]
        assert [found[f"{x}_step"] for x in "ad"] == [1, 1], change


STEPS = "groups that stand whole rows apart"
ALIGNED = "16-byte aligned pointers, leading dimensions and rows of D, k > 0, alpha != 0"
REFUSED = [
    *[({f"batch_stride_{x}": 96 * LD + 8}, STEPS) for x in "abd"],
    *[({f"batch_stride_{x}": -96 * LD}, STEPS) for x in "ab"],
    ({"beta": 1.0, "c": at, "batch_stride_c": 97 * LD}, STEPS),
    ({"beta": 1.0, "c": at, "batch_stride_c": 0}, STEPS),  # one C for all, but not one D
    ({"batch_stride_d": N, "ldd": BATCH * N}, STEPS),  # rows of the products take turns
    ({"lda": LD + 4, "batch_stride_a": 96 * (LD + 4)}, ALIGNED),
    ({"n": 76}, ALIGNED),
    ({"alpha": 0.0}, ALIGNED),
    ({"k": 0}, ALIGNED),
]


@in_stand_in()
def test_what_is_no_whole_matrix_goes_to_the_reference_set():
    for layout, (changes, words) in itertools.product(LAYOUTS, REFUSED):
        call, name = batch(layout, **placed(changes)), row_for(layout).name
        assert not is_equal(call), changes
        found = launched(call)
        assert found["kernel"] == "gemm" and found["maps"] == {}
        given = {f"batch_stride_{x}": getattr(call.args, f"batch_stride_{x}") for x in "ab"}
        if call.args.k and call.args.alpha:
            assert {x: found["values"][x] for x in given} == given
        call.set(variant=name)
        refused(call.run(), "UNSUPPORTED", name, words)
        refused(call.explain(90)[0], "UNSUPPORTED", name, words)
        if words is ALIGNED:
            assert "batch = 1" not in last_error()
    for layout in LAYOUTS:  # another row for groups, which is longer
        assert is_equal(large(layout, activation=1)) and "_linear" not in name_of(large(layout, activation=1))
        name = row_for(layout).name
        refused(large(layout, activation=1, variant=name).run(), "UNSUPPORTED", name, "no activation")
    assert not is_equal(batch(d=at(8) + 2)) and not is_equal(batch(a=at(0) + 2))


@in_stand_in()
def test_other_rows_of_groups_are_none_of_a_batch_nor_these_of_one_product():
    others = [v for v in variants() if (v.target, v.op, v.a_type, v.d_type) == (90, "grouped_mm", "bf16", "bf16")]
    others = [v for v in others if v.trans_b and not v.trans_a and "_equal" not in v.name]
    assert any("_rows" in v.name for v in others) and any(not v.single for v in others)
    for v in others:
        refused(batch(variant=v.name).run(), "UNSUPPORTED", v.name, "no such variant computes")
    refused(batch(batch=1, variant=row_for("nt").name).run(), "UNSUPPORTED", "no such variant computes gemm")
    single = [v for v in variants() if v.op == "gemm" and v.target == 90 and v.single and v.trans_b and not v.trans_a]
    for v in [v for v in single if (v.a_type, v.d_type) == ("bf16", "bf16")]:
        refused(batch(variant=v.name).run(), "UNSUPPORTED", v.name, "needs")
    plain = next(v for v in single if (v.a_type, v.d_type) == ("bf16", "bf16") and "_pingpong" in v.name)
    refused(batch(variant=plain.name).run(), "UNSUPPORTED", plain.name, "batch = 1")


@in_stand_in()
def test_explain_says_what_would_be_faster():
    assert "with" not in text(large().explain(90)[1].reason)
    odd = text(large(a=at(0) + 2).explain(90)[1].reason)
    assert f"us with A, B, C and D with {ALIGNED}" in odd and "batch = 1" not in odd
    assert "with" not in text(large(a=at(0) + 2, alpha=0.0).explain(90)[1].reason)  # A is not read
    assert STEPS in text(large(batch_stride_b=2048 * 2048 + 8).explain(90)[1].reason)
    whole = libgemm.explain(2048, 2048, 2048, batch=4, target=90).variant
    assert whole.op == "grouped_mm" and "_equal" in whole.name
    for target in {80, 100} & set(info()["targets"]):
        assert libgemm.explain(2048, 2048, 2048, batch=4, target=target).variant.op == "gemm"


@in_stand_in()
def test_batch_invariant_takes_what_adds_in_one_order():
    for m, k, (a_type, d_type) in itertools.product((1, 8, 96, 2048), (64, 8192), ((1, 1), (2, 2), (2, 3))):
        wide = {f"ld{x}": 8192 for x in "abcd"}
        call = large(m=m, k=k, **wide, a_type=a_type, d_type=d_type, batch_invariant=1)
        assert "_cluster" not in name_of(call) and "_workspace" not in name_of(call)
        assert is_equal(call) or (m, k) != (2048, 8192)
        ok(call.run())
        assert values(last_launch()).get("splits", 1) == 1 == last_launch()["cluster"]
    tf32 = {"a_type": 3, "d_type": 3, "precision": 1}
    assert is_equal(large(**tf32)) and not is_equal(large(**tf32, batch_invariant=1))
    call = batch(**tf32, batch_invariant=1, variant=row_for("nt", "f32", "f32").name)
    refused(call.run(), "UNSUPPORTED", "needs batch_invariant = 0")


@in_stand_in()
def test_a_remembered_batch_is_not_taken_for_another():
    kinds = [
        {}, {"batch": 2}, {"batch_stride_a": 2048 * 2048 + 8}, {"batch_stride_a": 0}, {"activation": 2}, {"batch": 1},
        {"beta": 1.0, "c": at(2)}, {"beta": 1.0, "c": at(2), "batch_stride_c": 2049 * 2048}, {"a": at(7)},
        {"variant": row_for("nt").name}, {"batch_invariant": 1}, {"m": 1, "batch_stride_d": 4096},
    ]  # fmt: skip
    calls = [large(**kind) for kind in kinds]
    first = [launched(call) for call in calls]
    for order in (calls, calls[::-1]):
        assert [launched(call) for call in order] == (first if order is calls else first[::-1])
    assert len({str(one) for one in first}) >= len(kinds) - 2  # the name and the wish may change nothing
