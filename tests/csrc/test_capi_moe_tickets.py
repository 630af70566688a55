"""Numbers by which blocks take tiles of a layer's products as they come free: which get one, and where it is."""

import pytest
from built import needs
from calls import allocate, launches, ok, values
from layers import EXPERTS, TOP_K, layer_call, one_launch, scaled_layer
from stand_in import in_stand_in

EIGHT = {"k": 256, "ldx": 256, "ldb1": 256, "inner": 192, "ldb2": 192}


def tickets(made) -> list:
    """Of each launch of a layer: where its number is, from that of the first product on; None, it takes none."""
    made.set(workspace=allocate(made.workspace()), workspace_bytes=made.workspace())
    before = len(launches())
    ok(made.run())
    found = [values(x) for x in launches()[before:]]
    (begin,) = {x["tickets_ptr"] for x in found if "phase" in x} or {0}
    if begin:
        names = ("rows_ptr", "places_ptr", "offs_ptr", "counts_ptr", "a_ptr", "d_ptr", "q_ptr", "scale_ptr")
        assert not any(
            begin <= x.get(name, 0) < begin + 8 for x in found for name in names
        )  # nothing else stands there
    products = [x for x in found if "K" in x]
    print([x["variant"] for x in launches()[before:]], [("tickets_ptr" in x, x.get("tickets_ptr")) for x in products])
    return [(x["tickets_ptr"] - begin if x["tickets_ptr"] else None) if "tickets_ptr" in x else None for x in products]


@pytest.mark.parametrize(
    ("tokens", "expected"), [(128, [None, None]), (129, [0, 4]), (5000, [0, 4])]
)  # 256 choices are sorted in one launch that makes no numbers
@needs(90)
@in_stand_in(SM=90)
def test_products_of_8_bits_take_tiles_as_they_come_free_where_choices_are_many(tokens, expected):
    assert tickets(scaled_layer(tokens=tokens, **EIGHT)) == expected


@needs(90)
@in_stand_in(SM=90)
def test_products_of_16_bits_do_not():
    """Measured: what they gain by it where groups are large, their longer loop loses elsewhere."""
    made = layer_call("moe", tokens=5000)
    assert tickets(made) == [None, None]


@needs(90)
@in_stand_in(SM=90)
def test_no_product_by_itself_has_one():
    route = layer_call("moe_route", tokens=5000)
    ok(route.set(workspace_bytes=route.workspace()).run())
    assert [values(x)["tickets_ptr"] for x in launches()] == [0, 0]
    product = values(one_launch("grouped_mm", a_type=4, b_type=4, scaling=2, **ROWS))
    assert product["tickets_ptr"] == 0
