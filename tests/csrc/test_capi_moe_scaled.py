"""Layers of experts with 8-bit weights, and what casts their rows, in C: what each call launches, and bad scales."""

import re
from pathlib import Path

import pytest
from built import TARGET
from calls import allocate, at, ffi, launches, ok, refused, values
from layers import EXPERTS, INNER, SCALED, TOKENS, TOP_K, K, N, layer_call, one_launch, scaled_layer
from stand_in import in_stand_in

ROOT = Path(__file__).resolve().parents[2]


@in_stand_in()
def test_rows_for_8_bits_are_gathered_gated_and_cast():
    made = one_launch("moe_cast", gate_limit=7.0)
    found = values(made)
    assert made["kernel"] == "moe_cast" and "align16" in made["variant"]
    assert made["grid"] == [3, 1, 1]  # 48 rows by 16, 80 columns by 128
    told = ("a_ptr", "rows_ptr", "q_ptr", "scale_ptr", "M", "N", "stored", "lda", "ldd")
    assert [found[x] for x in told] == [
        at(0), at(7), at(3), at(4), TOKENS * TOP_K, INNER, TOKENS, 2 * INNER, INNER,
    ]  # fmt: skip
    assert [found[x] for x in ("scale_stride_m", "scale_stride_n", "gate_limit")] == [1, 48, 7.0]
    found = values(one_launch("moe_cast", rows=0, a_count=0))
    assert (found["rows_ptr"], found["stored"]) == (0, TOKENS * TOP_K)
    for odd in ({"a": at(0) + 2}, {"d": at(3) + 8}, {"lda": 2 * INNER + 1}, {"ldd": INNER + 1}, {"n": INNER - 1}):
        assert "align16" not in one_launch("moe_cast", **odd)["variant"], odd
    assert one_launch("moe_cast", n=300, lda=600, ldd=300)["grid"] == [9, 1, 1]


@pytest.mark.parametrize(
    ("words", "guards"),
    [
        ({}, "gated_halved_swish"), ({"activation": 2}, "gated_halved"), ({"gate": 2}, "gated_paired_swish"),
        ({"gate": 2, "activation": 0}, "gated_paired"), ({"gate": 0, "activation": 0}, "linear"),
        ({"gate": 0, "activation": 3}, ""),
    ],
)  # fmt: skip
@in_stand_in()
def test_rows_for_8_bits_have_a_kernel_for_each_gate(words, guards):
    for odd, aligned in (({}, "align16"), ({"a": at(0) + 2}, "")):
        made = one_launch("moe_cast", **words, **odd)
        assert made["variant"].endswith("_".join(x for x in ("s1", aligned, guards) if x))
        assert values(made).get("activation", 0) == words.get("activation", 3)


FEW, MANY = TOKENS, 40  # tokens: 48 choices, which find their places by themselves, and 80


@pytest.mark.parametrize(("tokens", "k", "inner"), [(FEW, K, INNER), (FEW, 304, 528), (MANY, 304, INNER)])
@in_stand_in()
def test_a_layer_of_8_bit_weights_casts_its_rows_twice(tokens, k, inner):
    made = scaled_layer(
        tokens=tokens, k=k, ldx=k, ldb1=k, inner=inner, ldb2=inner, bias1=at(10), batch_stride_bias1=2 * inner,
        bias2=at(11), batch_stride_bias2=N, ids_wide=1,
    )  # fmt: skip
    made.set(workspace=allocate(made.workspace()))
    ok(made.run())
    *route, spread, first, gate, second, total = launches()
    assert [x["kernel"] for x in route] == ([] if tokens == FEW else ["moe_route_pairs"])
    assert [x["kernel"] for x in (spread, gate, total)] == ["moe_spread", "moe_cast", "moe_sum"]
    assert "grouped_mm" in first["kernel"] and "grouped_mm_e4m3" in second["variant"]
    assert spread["grid"] == [tokens * -(-k // 2048), 1, 1] and "align16" in spread["variant"]
    spread, first, gate, second, total = (values(x) for x in (spread, first, gate, second, total))
    begin, entries = int(ffi.cast("uintptr_t", made.args.workspace)), tokens * TOP_K
    of_x, of_h = (4 * entries * -(-width // 128) for width in (k, inner))
    places = [  # of the workspace, and their bytes; the first is for rows
        (begin, 4 * entries), (spread["places_ptr"], 4 * entries), (first["offs_ptr"], 4 * EXPERTS),
        (spread["q_ptr"], entries * k), (spread["scale_ptr"], of_x),
        (gate["a_ptr"], 2 * entries * 2 * inner), (gate["q_ptr"], entries * inner), (gate["scale_ptr"], of_h),
        (total["a_ptr"], 2 * entries * N),
    ]  # fmt: skip
    ends = [place + size for place, size in places]
    assert all(a <= b for a, (b, _) in zip(ends, places[1:], strict=False))
    assert ends[-1] <= begin + made.workspace() and all(place % 16 == 0 for place, _ in places)
    told = ("a_ptr", "N", "entries", "top_k", "lda", "ldd")
    assert [spread[x] for x in told] == [at(0), k, entries, TOP_K, k, k]
    by_itself = [at(5), first["offs_ptr"], EXPERTS, 1] if tokens == FEW else [0, 0, 0, 0]
    assert [spread[x] for x in ("ids_ptr", "offs_ptr", "groups", "ids_wide")] == by_itself
    if route:
        told = ("ids_ptr", "rows_ptr", "places_ptr", "offs_ptr", "ids_wide")
        of_route = values(route[0])
        assert [of_route[x] for x in told] == [at(5), begin, spread["places_ptr"], first["offs_ptr"], 1]
    assert (gate["rows_ptr"], gate["N"], gate["lda"]) == (0, inner, 2 * inner)
    for product, cast, weights, number, width in ((first, spread, at(1), 1, k), (second, gate, at(2), 2, inner)):
        assert product["a_scale"] == cast["scale_ptr"] and product["b_scale"] == at(7 + number)
        assert product["offs_ptr"] == first["offs_ptr"] and product.get("b_ptr", weights) == weights
        strides = (-(-width // 128), 1) if tokens == FEW else (1, entries)
        assert (product["a_scale_stride_m"], product["a_scale_stride_k"]) == strides
        assert (cast["scale_stride_m"], cast["scale_stride_n"]) == strides
        names = (f"batch_stride_b{number}_scale", f"b{number}_scale_stride_n", f"b{number}_scale_stride_k")
        told = ("batch_stride_b_scale", "b_scale_stride_n", "b_scale_stride_k")
        assert [product[x] for x in told] == [SCALED[x] for x in names]
    assert (first["bias_ptr"], second["bias_ptr"]) == (at(10), at(11))
    assert (first["N"], second["N"], total["places_ptr"]) == (2 * inner, N, spread["places_ptr"])


@in_stand_in()
def test_rows_of_8_bits_begin_on_16_bytes_whatever_their_width():
    made = scaled_layer(k=70, inner=83, ldx=70, ldb1=70, ldb2=83)
    ok(made.run())
    spread, _, gate, _, _ = launches()
    assert (values(spread)["ldd"], values(gate)["ldd"]) == (80, 96)
    assert "align16" not in spread["variant"]  # X's rows do not begin there


def constant(module: str, name: str) -> int:
    text = (ROOT / "kernels" / "device" / "portable" / f"{module}.py").read_text()
    return int(re.search(rf"^{name} = tl\.constexpr\((\d+)\)", text, re.M)[1])


@in_stand_in()
def test_as_many_choices_find_their_places_as_kernels_look_at():
    few, part = constant("moe_cast", "FEW"), constant("moe_few", "PART")
    for tokens, sorted_before in ((few, False), (few + 1, True)):
        made = scaled_layer(tokens=tokens, top_k=1)
        ok(made.set(workspace=allocate(made.workspace())).run())
        kernels = [x["kernel"] for x in launches()[-6:]]
        assert ("moe_route_pairs" in kernels) == sorted_before and "moe_spread" in kernels
    for tokens, groups in ((part, part + 1), (part + 1, part)):
        made = one_launch("moe_route", tokens=tokens, top_k=1, groups=groups)
        assert (made["kernel"], made["grid"]) == ("moe_route_pairs", [2, 1, 1])
    pairs = one_launch("moe_route", tokens=256, top_k=1)
    assert "__256x8x8_" in pairs["variant"] and layer_call("moe_route", tokens=257, top_k=1).workspace()


@in_stand_in()
def test_few_choices_are_sorted_where_there_is_nothing_of_x_to_cast():
    made = scaled_layer(k=0)
    ok(made.run())
    route, *others = [x["kernel"] for x in launches()]
    assert route == "moe_route_pairs" and "moe_spread" not in others


@in_stand_in(SM=f"{TARGET},{TARGET}")
def test_bad_scales_of_a_layer_are_refused_by_its_products():
    for changes, words in (
        ({"b1_scale": 0}, "b_scale is NULL"), ({"b2_scale": 0}, "b_scale is NULL"),
        ({"b1_scale": at(8) + 2}, "b_scale = 0x"), ({"b1_scale": at(0, 1)}, "b_scale is memory of GPU 1"),
    ):  # fmt: skip
        refused(scaled_layer(**changes).run(), "INVALID_ARGUMENT", words)
    huge = scaled_layer().set(tokens=2**30 - 400, k=2**31 - 300, inner=2**30 - 200, n=2**30 - 200)
    refused(huge.run(), "UNSUPPORTED", f"tokens = {2**30 - 400}", "no memory holds that")
