"""Numbers by which blocks take tiles of a layer's products as they come free: which get one, and where it is."""

import pytest
from built import needs
from calls import Arguments, allocate, at, launches, ok, values
from layers import BF16, TOP_K, layer_call, scaled_layer
from libgemm._library import text
from stand_in import in_stand_in
from test_capi_scaled import packed

SIZES = {"k": 256, "ldx": 256, "ldb1": 256, "inner": 192, "ldb2": 192}
POINTERS = ("rows_ptr", "places_ptr", "offs_ptr", "counts_ptr", "a_ptr", "d_ptr", "q_ptr", "scale_ptr", "a_scale")


def tickets(made) -> list:
    """Of each product of a layer, in bytes from the first number on, where its own is; None: it has none."""
    made.set(workspace=allocate(made.workspace()), workspace_bytes=made.workspace())
    before = len(launches())
    ok(made.run())
    found = [values(x) for x in launches()[before:]]
    (begin,) = {x["tickets_ptr"] for x in found if "phase" in x} or {0}
    if begin:  # nothing else stands there
        assert not any(begin <= x.get(name, 0) < begin + 8 for x in found for name in POINTERS)
    given = [x.get("tickets_ptr", 0) for x in found if "K" in x]
    return [x - begin if x else None for x in given]


# 256 choices are sorted in a launch that sets no numbers to 0.
@pytest.mark.parametrize(("tokens", "expected"), [(128, [None, None]), (129, [0, 4]), (5000, [0, 4])])
@needs(90)
@in_stand_in(SM=90)
def test_products_of_8_bits_have_them_where_choices_are_many(tokens, expected):
    assert tickets(scaled_layer(tokens=tokens, **SIZES)) == expected
    if tokens == 5000:  # by kernels that look at them
        first, second = (x["variant"] for x in launches() if "_mm" in x["kernel"])
        assert "_scaled_coop_" in first and "_scaled_coop_" in second
    gated = tickets(scaled_layer(tokens=tokens, **SIZES, activation=2))  # of a launch of its own
    assert gated == expected


@needs(90)
@in_stand_in(SM=90)
def test_nothing_of_x_leaves_the_products_theirs():
    assert tickets(scaled_layer(tokens=5000, **{**SIZES, "k": 0}))[1] == 4


GROUPS = 24


def layer_of(tokens: int, k: int = 1024, inner: int = 1024):
    return layer_call(
        "moe", groups=GROUPS, tokens=tokens, k=k, inner=inner, n=4096, ldx=k, ldb1=2 * inner, ldb2=4096, ldd=4096,
        batch_stride_b1=2 * k * inner, batch_stride_b2=inner * 4096,
    )  # fmt: skip


# With 256 rows an expert in the mean, and 1,024 of K: what is gained by it there is lost elsewhere (bench/NOTES.md).
@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"tokens": 3072}, [0, 4]), ({"tokens": 3071}, [None, None]), ({"tokens": 5000}, [0, 4]),
        ({"tokens": 3072, "k": 1016}, [None, 4]), ({"tokens": 3072, "inner": 1016}, [0, None]),
        ({"tokens": 3072, "k": 0}, [None, 4]),
    ],
)  # fmt: skip
@needs(90)
@in_stand_in(SM=90)
def test_products_of_16_bits_have_them_where_groups_are_large_by_rows_of_their_own(sizes, expected):
    assert TOP_K * 3072 == 256 * GROUPS
    assert tickets(layer_of(**sizes)) == expected
    rows = [x["variant"] for x in launches() if "_mm" in x["kernel"]]
    assert ["_counted_" in x for x in rows[-2:]] == [x is not None for x in expected]


@needs(90)
@in_stand_in(SM=90)
def test_a_product_alone_has_a_row_that_counts_by_its_name_only_and_without_a_counter():
    tickets(layer_of(3072))
    first, second = (x["variant"] for x in launches() if "_mm" in x["kernel"])
    sizes = {"m": 6144, "n": 2048, "k": 1024, "lda": 1024, "ldb": 2048, "ldd": 1024, "batch_stride_b": 2 << 20}
    sizes["groups"] = GROUPS
    rows = {"a": at(0), "b": at(1), "d": at(3), "offs": at(5), "a_type": BF16, "d_type": BF16}
    wide = {"n": 4096, "ldb": 4096, "ldd": 4096, "batch_stride_b": 4 << 20}
    alone = Arguments("grouped_mm", **{**sizes, **rows, **wide, "ragged": 0})
    for call, counting in ((layer_call("moe_mm", **sizes), first), (alone, second)):
        for variant in (counting, None):
            chosen = text(call.set(variant=variant).variant(90).name)
            ok(call.run())
            made = launches()[-1]
            assert ("_counted_" in made["variant"]) == (variant is not None)
            assert chosen == made["variant"]
            assert values(made).get("tickets_ptr", 0) == 0


@needs(90)
@in_stand_in(SM=90)
def test_calls_of_a_part_alone_have_none():
    route = layer_call("moe_route", tokens=5000)
    ok(route.set(workspace_bytes=route.workspace()).run())
    ok(packed(3).run())
    assert [values(x)["tickets_ptr"] for x in launches()] == [0, 0, 0]
