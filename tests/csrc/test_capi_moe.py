"""Layers of experts in C: what each call launches, what it leaves alone, and every field wrong in turn."""

import pytest
from built import TARGET, needs
from calls import HOST, Arguments, at, launches, log, ok, refused, values
from layers import BF16, EXPERTS, INNER, LAYERS, TOKENS, TOP_K, K, N, layer_call, one_launch
from libgemm._library import ffi, lib
from stand_in import in_stand_in

MAX = 2147483391
OTHER_GPU, HOST_POINTER = "other GPU", "host"
GATED = ("moe_gate", "moe_gate_grad")


@in_stand_in()
def test_a_gated_product_is_told_where_everything_is():
    made = one_launch("moe_mm", bias=at(4), batch_stride_bias=2 * INNER, gate_alpha=9.0)
    found = values(made)
    assert made["kernel"].startswith("moe_mm") and "_gated" in made["variant"]
    sizes = {"M": TOKENS * TOP_K, "N": INNER, "K": K, "groups": EXPERTS, "stored": TOKENS, "gate": 1}
    assert {name: found[name] for name in sizes} == sizes
    assert (found["rows_ptr"], found["offs_ptr"], found["bias_ptr"]) == (at(7), at(5), at(4))
    assert (found["lda"], found["ldd"], found["batch_stride_bias"]) == (K, INNER, 2 * INNER)
    # Without a limit the gate is silu's own, whatever gate_alpha says.
    assert (found["gate_alpha"], found["gate_limit"], found["gate_shift"]) == (1.0, float("inf"), 0.0)
    clamped = values(one_launch("moe_mm", gate_limit=7.0))
    given = (clamped["gate_alpha"], clamped["gate_limit"], clamped["gate_shift"])
    assert given == (pytest.approx(1.702), 7.0, 1.0)


@in_stand_in()
def test_rows_as_they_stand_are_no_index():
    found = values(one_launch("moe_mm", rows=0, a_count=0))
    assert (found["rows_ptr"], found["stored"]) == (0, TOKENS * TOP_K)
    plain = one_launch("moe_mm", gate=0, activation=0, n=INNER, ldb=INNER, batch_stride_b=K * INNER)
    assert "_gated" not in plain["variant"] and values(plain)["N"] == INNER


@in_stand_in()
def test_one_row_that_an_index_names_is_one_of_many():
    found = values(one_launch("moe_mm", m=1, lda=K + 3, ldd=INNER + 5, to_rows=at(8), d_count=99))
    assert (found["lda"], found["ldd"]) == (K + 3, INNER + 5)


@in_stand_in()
def test_a_gate_of_one_column_has_two_stored_rows_of_b():
    for ldb, stride in ((K, 2 * K), (K + 16, 4 * K), (K + 3, 2 * K + 6)):
        found = values(one_launch("moe_mm", n=2, trans_b=1, ldb=ldb, batch_stride_b=stride, ldd=1, bias=0))
        assert (found["N"], found["ldb"], found["batch_stride_b"]) == (1, ldb, stride)


# K of B's matrices, and whether they are stored [N][K], to the rows of tiles for so many rows of each expert.
ROWS = (1, 8, 64, 256, 1024)
TILES = {(7168, 0): [32, 32, 128, 192, 192], (7168, 1): [32, 32, 128, 128, 128], (2048, 1): [32, 32, 128, 192, 192]}


@needs(90)
@in_stand_in(SM=90)
@pytest.mark.parametrize(("k", "trans_b"), TILES)
def test_a_tile_for_many_rows_of_each_expert_is_left_to_those(k, trans_b):
    """As measured on layers of experts: memory gives B fastest to the lower tiles, while they have few rows each; the
    tall one hides its end, which counts where K is short."""
    experts, inner = 64, 2048
    sizes = {"groups": experts, "k": k, "lda": k, "n": 2 * inner, "ldd": inner, "bias": 0, "batch_stride_bias": 0}
    b = {"trans_b": trans_b, "ldb": k if trans_b else 2 * inner, "batch_stride_b": 2 * inner * k}

    def block_m(rows: int) -> int:
        call = layer_call("moe_mm", m=rows * experts, a_count=rows * experts, **sizes, **b)
        return call.variant(90).block_m

    assert [block_m(rows) for rows in ROWS] == TILES[k, trans_b]


@needs(90)
@in_stand_in(SM=90)
def test_the_fast_rows_are_left_where_they_cannot_run():
    """What they ask: silu, rows in order, aligned operands, and halves that TMA can step to."""
    fast = layer_call("moe_mm").variant(90)
    assert "swap" in ffi.string(fast.family).decode() and "_halved" in ffi.string(fast.name).decode()
    found = layer_call("moe_mm", gate=2).variant(90)
    assert "swap" in ffi.string(found.family).decode() and "_paired" in ffi.string(found.name).decode()
    found = layer_call("moe_mm", gate=2, trans_b=1, ldb=K).variant(90)
    assert "swap" in ffi.string(found.family).decode() and "_halved" in ffi.string(found.name).decode()
    for other in (
        {"activation": 2}, {"row_weights": at(4)}, {"to_rows": at(8), "d_count": 99}, {"a": at(0) + 2},
        {"ldd": INNER + 1}, {"alpha": 0.0}, {"k": 0},
    ):  # fmt: skip
        found = layer_call("moe_mm", **other).variant(90)
        assert "swap" not in ffi.string(found.family).decode(), other
        ok(layer_call("moe_mm", **other).run())


@in_stand_in()
def test_few_choices_are_sorted_in_one_launch_many_in_two():
    few = one_launch("moe_route", workspace=0, workspace_bytes=0)
    assert (few["kernel"], few["grid"], values(few)["entries"]) == ("moe_route_pairs", [2, 1, 1], TOKENS * TOP_K)
    assert one_launch("moe_route", groups=100)["grid"] == [4, 1, 1]  # 32 experts each
    assert layer_call("moe_route", tokens=128).workspace() == 0
    chunk = layer_call("moe_route", tokens=129)
    assert chunk.workspace() == 2 * EXPERTS * 4
    ok(chunk.run())
    assert (launches()[-1]["grid"], values(launches()[-1])["phase"]) == ([1, 1, 1], 3)
    many = layer_call("moe_route", tokens=5000, ids_wide=1)
    many.set(workspace_bytes=many.workspace())
    assert many.workspace() == 2 * 10 * EXPERTS * 4
    ok(many.run())
    first, second = launches()[-2:]
    assert [values(x)["phase"] for x in (first, second)] == [1, 2]
    assert first["grid"] == second["grid"] == [10, 1, 1]
    assert values(second)["ids_wide"] == 1
    huge = layer_call("moe_route", tokens=2**30, top_k=1)
    assert huge.workspace() == 2 * 64 * EXPERTS * 4


@in_stand_in()
def test_no_tokens_still_write_the_ends():
    made = one_launch("moe_route", tokens=0, ids=0, rows=0, places=0)
    assert (values(made)["entries"], made["grid"]) == (0, [1, 1, 1])


@in_stand_in()
def test_a_sum_has_a_block_for_each_token_and_run_of_columns():
    made = one_launch("moe_sum")
    found = values(made)
    assert made["kernel"] == "moe_sum" and "align16" in made["variant"]
    assert (found["M"], found["N"], found["top_k"], found["stored"]) == (TOKENS, N, TOP_K, TOKENS * TOP_K)
    assert (found["weights_type"], made["grid"]) == (3, [TOKENS, 1, 1])
    for odd in ({"a": at(0) + 2}, {"lda": N + 1}, {"n": N - 1}):
        assert "align16" not in one_launch("moe_sum", **odd)["variant"]
    assert one_launch("moe_sum", n=5000, lda=5000, ldd=5000)["grid"] == [TOKENS * 5, 1, 1]
    assert one_launch("moe_sum", n=4999, lda=5000, ldd=5000)["grid"] == [TOKENS * 10, 1, 1]  # of any alignment
    none = values(one_launch("moe_sum", weights=0, weights_type=0))
    assert (none["weights_ptr"], none["weights_type"]) == (0, 0)


@in_stand_in()
def test_a_gate_by_itself_has_a_block_for_each_row_and_run_of_columns():
    made = one_launch("moe_gate", gate_limit=7.0)
    found = values(made)
    assert made["kernel"] == "moe_gate" and "align16" in made["variant"] and made["grid"] == [TOKENS, 1, 1]
    assert [found[x] for x in ("M", "N", "lda", "ldd", "gate")] == [TOKENS, INNER, 2 * INNER, INNER, 1]
    assert [found[x] for x in ("gate_alpha", "gate_limit", "gate_shift")] == [pytest.approx(1.702), 7.0, 1.0]
    for odd in ({"z": at(0) + 2}, {"ldh": INNER + 1}, {"n": INNER - 1}):
        assert "align16" not in one_launch("moe_gate", **odd)["variant"]
    assert one_launch("moe_gate", n=5000, ldz=10000, ldh=5000)["grid"] == [TOKENS * 5, 1, 1]


@in_stand_in()
def test_a_gates_gradient_has_a_block_for_each_choice():
    made = one_launch("moe_gate_grad")
    found = values(made)
    assert made["kernel"] == "moe_gate_grad" and made["grid"] == [TOKENS * TOP_K, 1, 1]
    pointers = {"a": 0, "b": 1, "d": 3, "h": 4, "places": 5, "sums": 7, "weights": 8}
    assert {name: found[f"{name}_ptr"] for name in pointers} == {name: at(place) for name, place in pointers.items()}
    assert [found[x] for x in ("lda", "ldb", "ldd", "ldh")] == [2 * INNER, INNER, 2 * INNER, INNER]
    assert (found["entries"], found["stored"], found["N"], found["weights_type"]) == (48, 48, INNER, 2)
    assert (found["gate_alpha"], found["gate_limit"], found["gate_shift"]) == (1.0, float("inf"), 0.0)
    less = values(one_launch("moe_gate_grad", h=0, ldh=0, sums=0, weights=0, weights_type=0))
    assert (less["h_ptr"], less["sums_ptr"], less["weights_ptr"]) == (0, 0, 0)
    for odd in ({"dz": at(3) + 2}, {"lddh": INNER + 1}, {"ldh": INNER + 4}):
        assert "align16" not in one_launch("moe_gate_grad", **odd)["variant"]
    only = values(one_launch("moe_gate_grad", m=0, z=0, dh=0, dz=0, h=0))  # sums are 0 then
    assert (only["stored"], only["sums_ptr"]) == (0, at(7))


@in_stand_in()
def test_a_layer_is_its_parts_one_behind_the_other():
    made = layer_call("moe", bias1=at(8), batch_stride_bias1=2 * INNER, bias2=at(9), batch_stride_bias2=N)
    made.set(workspace_bytes=made.workspace())
    ok(made.run())
    route, first, second, total = launches()
    kernels = [x["kernel"] for x in (route, first, total)]
    assert [x.removesuffix("_coop_swap").removesuffix("_swap") for x in kernels] == [
        "moe_route_pairs", "moe_mm", "moe_sum",
    ]  # fmt: skip
    assert "grouped_mm" in second["kernel"]
    parts = [values(x) for x in (route, first, second, total)]
    begin, end = at(6), at(6) + made.workspace()
    places = {name: parts[0][f"{name}_ptr"] for name in ("rows", "places", "offs")}
    hidden, summed = parts[1]["d_ptr"], parts[3]["a_ptr"]
    everything = [*places.values(), hidden, summed]
    assert len(set(everything)) == 5 and all(begin <= x < end and x % 16 == 0 for x in everything)
    assert (parts[1]["rows_ptr"], parts[1]["offs_ptr"], parts[2]["offs_ptr"]) == (places["rows"], *[places["offs"]] * 2)
    assert parts[3]["places_ptr"] == places["places"] and parts[3]["d_ptr"] == at(3)
    assert summed + TOKENS * TOP_K * N * 2 <= end and hidden + TOKENS * TOP_K * INNER * 2 <= summed
    assert (parts[1]["bias_ptr"], parts[2]["bias_ptr"]) == (at(8), at(9))


@pytest.mark.parametrize(
    ("op", "empty"),
    [
        ("moe_mm", {"m": 0}), ("moe_mm", {"n": 0}), ("moe_mm", {"groups": 0}), ("moe_sum", {"tokens": 0}),
        ("moe_sum", {"n": 0}), ("moe", {"tokens": 0}), ("moe", {"n": 0}), ("moe_gate", {"m": 0}),
        ("moe_gate", {"n": 0}), ("moe_gate_grad", {"tokens": 0}), ("moe_gate_grad", {"m": 0}),
        ("moe_gate_grad", {"n": 0}), ("moe_cast", {"m": 0}), ("moe_cast", {"n": 0}),
    ],
)  # fmt: skip
@in_stand_in(driver=False)
def test_empty_calls_need_nothing(op, empty):
    pointers = [f for f, kind in ffi.typeof(f"libgemm_{op}_args").fields if kind.type.kind == "pointer"]
    fields = {name: value for name, value in FIELDS_WITHOUT_MEMORY[op].items() if name not in pointers}
    ok(Arguments(op, **{**fields, **empty}).run())


FIELDS_WITHOUT_MEMORY = {
    "moe_cast": {"m": 4, "n": 8, "lda": 8, "ldd": 8, "a_type": BF16},
    "moe_mm": {"m": 4, "n": 8, "k": 8, "groups": 2, "lda": 8, "ldb": 8, "ldd": 8, "a_type": BF16},
    "moe_sum": {"tokens": 3, "n": 8, "top_k": 2, "a_count": 6, "lda": 8, "ldd": 8, "a_type": BF16},
    "moe_gate": {"m": 3, "n": 8, "ldz": 16, "ldh": 8, "a_type": BF16, "gate": 1},
    "moe_gate_grad": {
        "tokens": 3,
        "top_k": 2,
        "m": 6,
        "n": 8,
        "ldz": 16,
        "lddh": 8,
        "lddz": 16,
        "a_type": BF16,
        "gate": 1,
    },
    "moe": {"tokens": 3, "k": 8, "inner": 8, "n": 8, "groups": 2, "top_k": 2, "a_type": BF16},
}

BAD = [
    *[("moe_mm", {x: -1}, (f"{x} = -1", f"0 to {MAX}")) for x in "mnk"],
    ("moe_mm", {"n": 2 * INNER - 1}, (f"n = {2 * INNER - 1}", "gate = 1", "even")),
    ("moe_mm", {"gate": 3}, ("gate = 3", "0 to 2")),
    ("moe_mm", {"gate_limit": -1.0}, ("gate_limit = -1",)),
    ("moe_mm", {"gate_limit": float("nan")}, ("gate_limit = ",)),
    ("moe_mm", {"gate_limit": 1.0, "activation": 1}, ("gate_limit = 1", "LIBGEMM_SILU")),
    ("moe_mm", {"gate_limit": 1.0, "gate": 0, "ldd": 2 * INNER}, ("gate_limit = 1", "gate = 0")),
    ("moe_mm", {"groups": 65536}, ("groups = 65536", "0 to 65535")),
    ("moe_mm", {"activation": 4}, ("activation = 4", "0 to 3")),
    ("moe_mm", {"trans_b": 2}, ("trans_b = 2", "0 to 1")),
    *[("moe_mm", {"a_type": v}, (f"a_type = {v}", "LIBGEMM_F16 (1) and LIBGEMM_BF16 (2)")) for v in (0, 3, 4)],
    ("moe_mm", {"a_count": -1}, ("a_count = -1",)),
    ("moe_mm", {"rows": 0}, (f"a_count = {TOKENS}", "rows = NULL", f"m = {TOKENS * TOP_K}")),
    ("moe_mm", {"d_count": 7}, ("d_count = 7", "to_rows = NULL")),
    ("moe_mm", {"lda": K - 1}, (f"lda = {K - 1}", f"k = {K}")),
    ("moe_mm", {"ldb": 2 * INNER - 1}, (f"ldb = {2 * INNER - 1}", f"n = {2 * INNER}")),
    ("moe_mm", {"ldd": INNER - 1}, (f"ldd = {INNER - 1}", f"n = {INNER}")),
    *[("moe_mm", {x: 0}, (f"{x} is NULL",)) for x in ("a", "b", "d", "offs")],
    *[("moe_mm", {x: HOST_POINTER}, (f"{x} = 0x", "host memory"))
      for x in ("a", "b", "d", "offs", "rows", "bias", "row_weights", "to_rows")],
    *[("moe_mm", {x: OTHER_GPU}, (f"{x} is memory of GPU 1",)) for x in ("a", "b", "offs", "rows", "bias")],
    ("moe_mm", {"rows": "odd"}, ("rows = 0x", "multiple of 4")),
    *[("moe_route", {"top_k": v}, (f"top_k = {v}", "1 to 1024")) for v in (0, 1025)],
    ("moe_route", {"tokens": -1}, ("tokens = -1",)),
    ("moe_route", {"tokens": 2**30, "top_k": 4}, (f"tokens = {2**30}", "top_k = 4", str(MAX))),
    *[("moe_route", {"groups": v}, (f"groups = {v}", "1 to 4096")) for v in (0, 4097)],
    ("moe_route", {"ids_wide": 2}, ("ids_wide = 2", "0 to 1")),
    *[("moe_route", {x: 0}, (f"{x} is NULL",)) for x in ("ids", "rows", "places", "offs")],
    ("moe_route", {"workspace": 0, "tokens": 200}, ("workspace = ", "libgemm_moe_route_workspace")),
    ("moe_route", {"workspace": "odd", "tokens": 200}, ("workspace = ", "multiple of 16")),
    *[("moe_route", {x: HOST_POINTER}, (f"{x} = 0x", "host memory")) for x in ("ids", "rows", "places", "offs")],
    ("moe_route", {"workspace": HOST_POINTER, "tokens": 200}, ("workspace = 0x", "host memory")),
    ("moe_route", {"workspace_bytes": 2 * EXPERTS * 4 - 1, "tokens": 200},
     (f"of {2 * EXPERTS * 4 - 1} bytes", f"{2 * EXPERTS * 4} are needed")),
    *[(op, {"a_type": v}, (f"a_type = {v}", "LIBGEMM_F16 (1)")) for op in GATED for v in (0, 3, 4)],
    *[(op, {"n": v}, (f"n = {v}", f"0 to {MAX // 2}")) for op in GATED for v in (-1, MAX // 2 + 1)],
    *[(op, {"m": v}, (f"m = {v}",)) for op in GATED for v in (-1, MAX + 1)],
    *[(op, {"activation": v}, (f"activation = {v}", "0 to 3")) for op in GATED for v in (-1, 4)],
    *[(op, {"gate": v}, (f"gate = {v}", "libgemm_gate")) for op in GATED for v in (-1, 3)],
    *[(op, {"gate_limit": -1.0}, ("gate_limit = -1",)) for op in GATED],
    *[(op, {"gate_limit": 1.0, "activation": 2}, ("gate_limit = 1", "LIBGEMM_SILU")) for op in GATED],
    *[(op, {"ldz": 2 * INNER - 1}, (f"ldz = {2 * INNER - 1}", "2 * n")) for op in GATED],
    *[(op, {"ldh": INNER - 1}, (f"ldh = {INNER - 1}",)) for op in GATED],
    *[(op, {"z": v}, (word,)) for op in GATED for v, word in ((0, "z is NULL"), ("odd by 1", "z = 0x"))],
    *[(op, {x: HOST_POINTER}, (f"{x} = 0x", "host memory")) for op in GATED for x in ("z", "h")],
    *[("moe_cast", {"a_type": v}, (f"a_type = {v}", "LIBGEMM_BF16 (2)")) for v in (0, 3, 4)],
    ("moe_cast", {"d_type": 2}, ("d_type = 2", "LIBGEMM_E4M3 (4)")),
    *[("moe_cast", {x: v}, (f"{x} = {v}", f"0 to {MAX // 2}")) for x in "mn" for v in (-1, MAX // 2 + 1)],
    ("moe_cast", {"activation": 4}, ("activation = 4", "0 to 3")),
    ("moe_cast", {"gate": 3}, ("gate = 3",)),
    ("moe_cast", {"gate_limit": 1.0, "activation": 2}, ("gate_limit = 1", "LIBGEMM_SILU")),
    ("moe_cast", {"rows": 0}, (f"a_count = {TOKENS}", "rows = NULL")),
    ("moe_cast", {"lda": 2 * INNER - 1}, (f"lda = {2 * INNER - 1}", "2 * n")),
    ("moe_cast", {"ldd": INNER - 1}, (f"ldd = {INNER - 1}",)),
    ("moe_cast", {"scale_stride_m": 0}, ("scale_stride_m = 0", "share their memory")),
    *[("moe_cast", {x: 0}, (f"{x} is NULL",)) for x in ("a", "d", "scale")],
    *[("moe_cast", {x: HOST_POINTER}, (f"{x} = 0x", "host memory")) for x in ("a", "d", "scale", "rows")],
    *[("moe_cast", {x: OTHER_GPU}, (f"{x} is memory of GPU 1",)) for x in ("a", "scale", "rows")],
    ("moe_cast", {"d": "z"}, ("a == d",)),
    ("moe", {"b_type": 3}, ("b_type = 3", "LIBGEMM_E4M3 (4)")),
    ("moe", {"b_type": 4}, ("scaling = 0 with b_type = 4", "LIBGEMM_SCALING_1X128_128X128 (3)")),
    *[("moe", {"b_type": 4, "scaling": v}, (f"scaling = {v}", "1X128_128X128")) for v in (1, 2, 4, 5, 9)],
    ("moe", {"scaling": 3}, ("scaling = 3 with b_type = 0",)),
    *[("moe", {x: "d"}, (f"{x} = 0x", "scaling = 0", "NULL is needed")) for x in ("b1_scale", "b2_scale")],
    ("moe_gate", {"h": 0}, ("h is NULL",)),
    ("moe_gate", {"h": "z"}, ("z == h",)),
    ("moe_gate_grad", {"lddz": 2 * INNER - 1}, (f"lddz = {2 * INNER - 1}",)),
    ("moe_gate_grad", {"lddh": INNER - 1}, (f"lddh = {INNER - 1}",)),
    *[("moe_gate_grad", {x: 0}, (f"{x} is NULL",)) for x in ("dh", "dz", "places")],
    *[("moe_gate_grad", {x: HOST_POINTER}, (f"{x} = 0x", "host memory"))
      for x in ("dh", "dz", "places", "weights", "sums")],
    *[("moe_gate_grad", {x: name}, (f"{x} == {name}",)) for x in ("dz", "h") for name in ("z", "dh")],
    ("moe_gate_grad", {"h": "d"}, ("h == dz",)),
    *[("moe_gate_grad", {x: OTHER_GPU}, (f"{x} is memory of GPU 1",)) for x in ("places", "z", "sums")],
    *[(op, {"n": MAX // 2 + 1}, (f"n = {MAX // 2 + 1}", f"0 to {MAX // 2}")) for op in ("moe_sum", "moe")],
    ("moe_gate_grad", {"weights_type": 4}, ("weights_type = 4",)),
    ("moe_gate_grad", {"weights": 0}, ("weights_type = 2",)),
    *[("moe_gate_grad", {"top_k": v}, (f"top_k = {v}", "1 to 1024")) for v in (0, 1025)],
    ("moe_gate_grad", {"tokens": -1}, ("tokens = -1",)),
    ("moe_sum", {"a_type": 0}, ("a_type = 0",)),
    *[("moe_sum", {"weights_type": v}, (f"weights_type = {v}", "LIBGEMM_F16, _BF16 or _F32")) for v in (0, 4)],
    ("moe_sum", {"weights": 0}, ("weights_type = 3",)),
    ("moe_sum", {"lda": N - 1}, (f"lda = {N - 1}",)),
    ("moe_sum", {"ldd": N - 1}, (f"ldd = {N - 1}",)),
    ("moe_sum", {"a": "d"}, ("a == d",)),
    *[("moe_sum", {x: 0}, (f"{x} is NULL",)) for x in ("a", "d", "places")],
    *[("moe_sum", {x: OTHER_GPU}, (f"{x} is memory of GPU 1",)) for x in ("a", "weights", "places")],
    *[("moe", {x: -1}, (f"{x} = -1",)) for x in ("k", "inner", "n", "tokens")],
    ("moe", {"a_type": 3}, ("a_type = 3", "LIBGEMM_BF16")),
    ("moe", {"workspace": 0}, ("workspace = ", "libgemm_moe_workspace")),
    ("moe", {"workspace_bytes": 100}, ("workspace = ", "100 bytes")),
    ("moe", {"workspace": "odd"}, ("workspace = ", "multiple of 16")),
    ("moe", {"gate": 5}, ("gate = 5",)),
    ("moe", {"ldb2": N - 1}, (f"ldb = {N - 1}",)),
    *[("moe", {x: 0}, (" is NULL",)) for x in ("x", "b1", "b2", "d", "ids")],
]  # fmt: skip


@pytest.mark.parametrize(("op", "bad", "parts"), BAD)
@in_stand_in(SM=f"{TARGET},{TARGET}")
def test_a_bad_call_says_what_is_wrong_and_launches_nothing(op, bad, parts):
    words = {HOST_POINTER: int(ffi.cast("uintptr_t", ffi.from_buffer(HOST))), OTHER_GPU: at(0, 1), "odd": at(9) + 2,
             "odd by 1": at(9) + 1, "d": at(3), "z": at(0), "dh": at(1)}  # fmt: skip
    made = layer_call(op, **{name: words.get(value, value) for name, value in bad.items()})
    refused(made.run(), "INVALID_ARGUMENT", *parts)
    if op != "moe":  # whose first parts may have been queued when a later one is refused
        assert log("cuLaunchKernelEx") == []


@in_stand_in()
def test_structs_of_another_size_are_refused():
    for op in LAYERS:
        made = layer_call(op)
        made.args.size = ffi.offsetof("libgemm_moe_args", "b_type") if op == "moe" else made.args.size
        made.args.size -= 8
        refused(getattr(lib, f"libgemm_{op}")(made.args), "INVALID_ARGUMENT", f"libgemm_{op}_args")


@in_stand_in()
def test_a_layers_struct_of_an_older_header_has_weights_of_xs_type():
    made = layer_call("moe")
    made.args.size = ffi.offsetof("libgemm_moe_args", "b_type")
    ok(made.run())
    assert len(launches()) == 4
