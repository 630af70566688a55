"""Numbers by which blocks take tiles of a layer's products as they come free: which get one, and where it is."""

import pytest
from built import needs
from calls import allocate, launches, ok, values
from layers import layer_call, scaled_layer
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


@needs(90)
@in_stand_in(SM=90)
def test_products_of_16_bits_have_none():
    """What they gain by it where groups are large they lose elsewhere: bench/NOTES.md."""
    assert tickets(layer_call("moe", tokens=5000)) == [None, None]


@needs(90)
@in_stand_in(SM=90)
def test_calls_of_a_part_alone_have_none():
    route = layer_call("moe_route", tokens=5000)
    ok(route.set(workspace_bytes=route.workspace()).run())
    ok(packed(3).run())
    assert [values(x)["tickets_ptr"] for x in launches()] == [0, 0, 0]
