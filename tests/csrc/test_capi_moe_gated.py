"""Layers of experts with 8-bit weights in C, whose first product gates and casts by itself: which ones have such a row,
and what it is launched with.
"""

import itertools
import re
from pathlib import Path

import pytest
from built import needs
from calls import allocate, at, launches, ok, refused, values
from layers import EXPERTS, TOKENS, TOP_K, scaled_layer
from stand_in import in_stand_in

LARGE = {"tokens": 200, "inner": 192, "ldb2": 192, "k": 256, "ldx": 256, "ldb1": 256}  # a group has 133 rows


@pytest.mark.parametrize(("gate", "limit"), [(1, 0.0), (2, 7.0), (1, float("inf"))])
@needs(90)
@in_stand_in(SM=90)
def test_large_groups_are_multiplied_gated_and_cast_in_one_launch(gate, limit):
    made = scaled_layer(**LARGE, gate=gate, gate_limit=limit, bias1=at(10), batch_stride_bias1=384)
    ok(made.set(workspace=allocate(made.workspace())).run())
    route, spread, first, second, _ = launches()[-5:]
    assert first["kernel"] == "moe_mm_scaled_coop" and "grouped_mm" in second["kernel"]
    assert first["grid"][0] == (400 // 128 + EXPERTS) * 2  # tiles of 128 x 128 of H, at most
    route, spread, first, second = (values(x) for x in (route, spread, first, second))
    entries = 200 * TOP_K
    assert [first[x] for x in ("M", "N", "K", "groups", "ldd", "gate")] == [entries, 192, 256, EXPERTS, 192, gate]
    assert [first[x] for x in ("gate_limit", "gate_shift")] == ([limit, 1.0] if limit else [float("inf"), 0.0])
    assert (first["bias_ptr"], first["batch_stride_bias"], first["offs_ptr"]) == (at(10), 384, route["offs_ptr"])
    told = ("a_scale", "a_scale_stride_m", "a_scale_stride_k", "b_scale", "batch_stride_b_scale", "b_scale_stride_n")
    assert [first[x] for x in told] == [spread["scale_ptr"], 1, entries, at(8), 2, 1]
    assert (first["scale_stride_m"], first["scale_stride_n"], first["b_scale_stride_k"]) == (1, entries, 7)
    assert (second["a_scale"], second["a_scale_stride_k"]) == (first["scale_ptr"], entries)
    assert first["q_ptr"] + entries * 192 <= first["scale_ptr"]


@pytest.mark.parametrize(
    ("tokens", "rows"), [(2, 8), (6, 8), (7, 16), (12, 16), (13, 32), (24, 32), (25, 0), (95, 0), (96, 128)]
)
@needs(90)
@in_stand_in(SM=90)
def test_groups_of_few_rows_are_multiplied_gated_and_cast_in_one_launch_by_pairs_of_blocks(tokens, rows):
    """Up to half of a tile's rows in the mean of three experts; two choices a token."""
    for inner in (192, 256):  # three tiles of 64, and none beside the last one, or four
        sizes = {"tokens": tokens, "inner": inner, "ldb2": inner, "bias1": at(10), "batch_stride_bias1": 2 * inner}
        made = scaled_layer(**{**LARGE, **sizes}, gate_limit=float("inf"))  # which still adds 1 to up
        ok(made.set(workspace=allocate(made.workspace())).run())
        *_, first, second, _ = launches()
        if rows == 0:
            assert first["kernel"] == "moe_cast"
            continue
        few = rows < 64
        assert first["kernel"] == ("moe_mm_scaled_few" if few else "moe_mm_scaled_coop")
        assert f"__sm90__{rows}x" in first["variant"] and first["cluster"] == (2 if few else 1)
        if not few:
            continue
        entries = 2 * tokens
        assert first["grid"] == [min(132, (entries // rows + EXPERTS) * 4), 1, 1]
        first, second = values(first), values(second)
        strides = (2, 1) if entries <= 64 else (1, entries)
        assert [first[x] for x in ("M", "N", "K", "groups", "ldd", "gate")] == [entries, inner, 256, EXPERTS, inner, 1]
        assert (first["a_scale_stride_m"], first["a_scale_stride_k"]) == strides
        assert (first["scale_stride_m"], first["scale_stride_n"]) == strides
        assert (second["a_scale"], second["early"]) == (first["scale_ptr"], entries <= 64)
        assert (first["bias_ptr"], first["b_scale"], first["batch_stride_b_scale"]) == (at(10), at(8), 2)
        assert (first["gate_limit"], first["gate_shift"]) == (float("inf"), 1.0)


@needs(90)
@in_stand_in(SM=90, SMS=7)
def test_blocks_of_a_pair_are_never_alone():
    made = scaled_layer(**{**LARGE, "tokens": 24})
    ok(made.set(workspace=allocate(made.workspace())).run())
    assert (launches()[-3]["kernel"], launches()[-3]["grid"]) == ("moe_mm_scaled_few", [6, 1, 1])


@pytest.mark.parametrize("tokens", [TOKENS, 60])  # 48 choices, which find their places by themselves, and 120
@needs(90)
@in_stand_in(SM=90)
def test_weights_of_few_choices_come_before_their_rows_are_gated(tokens):
    made = scaled_layer(**{**LARGE, "tokens": tokens, "inner": 160, "ldb2": 160})
    ok(made.set(workspace=allocate(made.workspace())).run())
    first, gate, second = launches()[-4:-1]
    assert gate["kernel"] == "moe_cast" and "swap_blocks" in first["variant"] and "swap_blocks" in second["variant"]
    assert [values(x)["early"] for x in (first, second)] == [0, tokens == TOKENS]


@needs(90)
@in_stand_in(SM=90)
def test_other_layers_are_gated_and_cast_by_a_launch_of_their_own():
    for change in (
        {"tokens": 95}, {"inner": 160, "ldb2": 160}, {"activation": 2}, {"gate": 0, "activation": 0},
        {"trans_b1": 0, "ldb1": 384}, {"ldb1": 264}, {"b1": at(1) + 8}, {"batch_stride_b1": 256 * 384 + 8}, {"k": 0},
        {"batch_stride_b1": 0}, {"inner": 160, "ldb2": 160, "gate_limit": float("inf")},
    ):  # fmt: skip
        made = scaled_layer(**{**LARGE, **change})
        ok(made.set(workspace=allocate(made.workspace())).run())
        kernels = [x["kernel"] for x in launches()[-6:]]
        shifts = [values(x)["gate_shift"] for x in launches()[-6:] if x["kernel"] == "moe_cast"]
        assert shifts[-1] == ("gate_limit" in change), change
        assert "moe_cast" in kernels and not any("moe_mm" in x for x in kernels), (change, kernels)


ONE = LARGE | {"tokens": 1}
OF_CHOICES = Path(__file__).resolve().parents[2] / "kernels" / "device" / "sm90" / "choices.py"
CHOICES = int(re.search(r"^CHOICES = gl\.constexpr\((\d+)\)", OF_CHOICES.read_text(), re.M)[1])  # that a warp sorts


@pytest.mark.parametrize("top_k", [1, 2, CHOICES])
@needs(90)
@in_stand_in(SM=90)
def test_a_layer_of_one_token_casts_its_row_in_the_first_product(top_k):
    limit = {"gate_limit": float("inf")}  # which still adds 1 to up
    made = scaled_layer(**ONE, **limit, top_k=top_k, ids_wide=1, gate=2, bias1=at(10), batch_stride_bias1=384)
    ok(made.set(workspace=allocate(made.workspace())).run())
    first, second, total = launches()
    assert (first["kernel"], first["cluster"]) == ("moe_mm_scaled_one", 2) and "__8x128x128_" in first["variant"]
    assert first["grid"] == [min(132, top_k * 4), 1, 1]  # three tiles of 64 columns, and none beside the last one
    first, second, total = (values(x) for x in (first, second, total))
    told = ("x_ptr", "ids_ptr", "ids_wide", "entries", "groups", "N", "K", "gate", "bias_ptr", "b_scale")
    assert [first[x] for x in told] == [at(0), at(5), 1, top_k, EXPERTS, 192, 256, 2, at(10), at(8)]
    assert (first["gate_limit"], first["gate_shift"]) == (float("inf"), 1.0)
    assert (first["places_ptr"], first["offs_ptr"]) == (total["places_ptr"], second["offs_ptr"])
    assert (second["a_scale"], second["early"]) == (first["scale_ptr"], 1)
    assert (first["scale_stride_m"], first["scale_stride_n"]) == (2, 1)


@needs(90)
@in_stand_in(SM=90)
def test_rows_of_other_layers_are_cast_before_the_first_product():
    for change in (
        {"tokens": 2}, {"top_k": CHOICES + 1}, {"x": at(0) + 8}, {"k": 264, "ldb1": 272, "ldx": 264}, {"activation": 2},
        {"inner": 160, "ldb2": 160}, {"ldb1": 264},
    ):  # fmt: skip
        made = scaled_layer(**{**ONE, **change})
        before = len(launches())
        ok(made.set(workspace=allocate(made.workspace())).run())
        assert launches()[before]["kernel"] == "moe_spread", change


@needs(90)
@in_stand_in(SM="90,90")
def test_what_is_wrong_with_a_large_layer_or_a_token_is_said_before_its_product():
    of_token = (
        ({"x": 0}, "x is NULL"), ({"x": at(0, 1)}, "x is memory of GPU 1"), ({"ids": 0}, "ids is NULL"),
        ({"ids": at(5) + 2}, "ids = 0x"), ({"ldx": 255}, "ldx = 255"),
    )  # fmt: skip
    of_both = (
        ({"b1_scale": 0}, "b_scale is NULL"), ({"b1_scale": at(8) + 2}, "b_scale = 0x"),
        ({"b1": at(0, 1)}, "b is memory of GPU 1"), ({"ldb1": 255}, "ldb = 255"), ({"gate": 3}, "gate = 3"),
        ({"gate_limit": -1.0}, "gate_limit = -1"), ({"bias1": at(4, 1)}, "bias is memory of GPU 1"),
        ({"activation": 4}, "activation = 4"),
    )  # fmt: skip
    for sizes, (change, words) in (
        *itertools.product((LARGE, ONE), of_both), *itertools.product((ONE,), of_token),
    ):  # fmt: skip
        made = scaled_layer(**{**sizes, **change})
        before = len(launches())
        refused(made.set(workspace=allocate(made.workspace())).run(), "INVALID_ARGUMENT", words)
        assert not any("_mm" in x["kernel"] for x in launches()[before:]), change
