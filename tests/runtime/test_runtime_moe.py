"""Layers of experts from Python: arrays to arguments, results, and what is refused before the library is asked."""

import gc
import weakref
from typing import NamedTuple

import libgemm
import pytest
from calls import at, launches, values
from libgemm import Error, _moe
from stand_in import in_stand_in
from torch_like import Tensor, install

TOKENS, TOP_K, EXPERTS, K, INNER, N = 24, 2, 3, 64, 80, 48
SWAPPED = {"w_in": (K * 2 * INNER, 1, K), "w_out": (INNER * N, 1, INNER)}


def layer(**changes) -> dict:
    plain = {
        "x": Tensor(at(0), (TOKENS, K)), "w_in": Tensor(at(1), (EXPERTS, K, 2 * INNER)),
        "w_out": Tensor(at(2), (EXPERTS, INNER, N)), "expert_ids": Tensor(at(5), (TOKENS, TOP_K), "int64"),
        "weights": Tensor(at(4), (TOKENS, TOP_K), "float32"),
    }  # fmt: skip
    return {**plain, **changes}


def product(**changes) -> dict:
    plain = {
        "a": Tensor(at(0), (TOKENS, K)), "b": Tensor(at(1), (EXPERTS, K, 2 * INNER)),
        "offs": Tensor(at(5), (EXPERTS,), "int32"), "rows": Tensor(at(7), (TOKENS * TOP_K,), "int32"),
        "gate": "halves", "activation": "silu",
    }  # fmt: skip
    return {**plain, **changes}


def gate(**changes) -> dict:
    return {"z": Tensor(at(0), (TOKENS * TOP_K, 2 * INNER)), **changes}


def cast_rows(**changes) -> dict:
    return {"a": Tensor(at(0), (48, 2 * INNER)), "gate": "halves", **changes}


def gate_grad(**changes) -> dict:
    plain = {"grad": Tensor(at(1), (TOKENS * TOP_K, INNER)), "places": Tensor(at(5), (TOKENS, TOP_K), "int32")}
    return {**gate(), **plain, **changes}


@in_stand_in()
def test_a_layer_makes_its_output():
    install()
    made = libgemm.moe(**layer())
    assert (made.shape, made.dtype.name) == ((TOKENS, N), "float16")
    route, first, second, total = (values(x) for x in launches())
    assert (route["entries"], route["groups"], route["ids_wide"]) == (TOKENS * TOP_K, EXPERTS, 1)
    assert (first["N"], first["K"], first["gate"], second["N"], second["K"]) == (INNER, K, 1, N, INNER)
    assert (total["d_ptr"], total["weights_type"]) == (made.pointer, 3)
    given = Tensor(at(3), (TOKENS, N))
    assert libgemm.moe(**layer(out=given, weights=None, gate=None, w_in=Tensor(at(1), (3, K, INNER)))) is given


def in_bf16(given: dict) -> dict:
    return {
        name: Tensor(x.pointer, x.shape, "bfloat16", x.strides)
        if isinstance(x, Tensor) and x.dtype.name == "float16"
        else x
        for name, x in given.items()
    }


def moving(launch: dict) -> dict:
    """A launch's arguments but for those that a call makes anew."""
    own = ("rows_ptr", "places_ptr", "counts_ptr", "offs_ptr", "a_ptr", "d_ptr")
    return {name: value for name, value in values(launch).items() if name not in own}


@in_stand_in()
def test_a_layer_like_one_before_takes_the_quick_way_and_launches_the_same():
    install()
    given = in_bf16(layer(bias_in=Tensor(at(7), (EXPERTS, 2 * INNER)), bias_out=Tensor(at(8), (EXPERTS, N))))
    libgemm.moe(**given, gate_limit=7.0)  # torch is learnt of
    first = libgemm.moe(**given, gate_limit=7.0)
    _moe.weights_of = None  # the general way would call it
    again = libgemm.moe(**given, gate_limit=7.0)
    once, twice = launches()[4:8], launches()[8:]
    assert [x["variant"] for x in once] == [x["variant"] for x in twice] and len(twice) == 4
    assert [moving(x) for x in once] == [moving(x) for x in twice]
    assert again.pointer != first.pointer and again.shape == first.shape
    assert values(twice[-1])["d_ptr"] == again.pointer
    given = {**given, "out": Tensor(at(3), (TOKENS, N), "bfloat16")}
    narrow = Tensor(at(4), (TOKENS, TOP_K), "bfloat16")
    for changed in (given, {**given, "gate_limit": 0.0}, {**given, "gate": "pairs"}, {**given, "weights": narrow}):
        with pytest.raises(TypeError):  # none of these is like the call before
            libgemm.moe(**changed)


@in_stand_in()
def test_a_layer_that_was_made_keeps_none_of_its_tensors_alive():
    """Weights of gigabytes must go with their model."""
    install()
    given = in_bf16(layer(bias_in=Tensor(at(7), (EXPERTS, 2 * INNER)), bias_out=Tensor(at(8), (EXPERTS, N))))
    for _ in range(3):
        libgemm.moe(**given)
    seen = [weakref.ref(x) for x in given.values()]
    del given
    gc.collect()
    assert [ref() for ref in seen if ref() is not None] == []


@in_stand_in()
def test_the_quick_way_moves_with_its_tensors():
    install()
    given = in_bf16(layer())
    libgemm.moe(**given)
    libgemm.moe(**given)
    _moe.weights_of = None
    places = {"x": 10, "w_in": 11, "w_out": 12, "expert_ids": 13, "weights": 14}
    moved = {name: Tensor(at(places[name]), x.shape, x.dtype.name) for name, x in given.items()}
    libgemm.moe(**moved)
    route, first, _, total = (values(x) for x in launches()[8:])
    assert (route["ids_ptr"], first["a_ptr"], total["weights_ptr"]) == (at(13), at(10), at(14))


@in_stand_in()
def test_weights_stored_by_columns_are_a_view():
    install()
    words = {name: Tensor(x.pointer, x.shape, strides=SWAPPED[name]) for name, x in layer().items() if name in SWAPPED}
    libgemm.moe(**layer(**words))
    _, first, second, _ = launches()
    assert "_nt__" in first["variant"] and "_nt__" in second["variant"]


@in_stand_in()
def test_parts_fit_one_another():
    install()
    ids = layer()["expert_ids"]
    rows, places, offs = libgemm.moe_route(ids, EXPERTS)
    assert (rows.shape, places.shape, offs.shape) == ((TOKENS * TOP_K,), (TOKENS, TOP_K), (EXPERTS,))
    hidden = libgemm.moe_mm(**product(rows=rows, offs=offs))
    assert hidden.shape == (TOKENS * TOP_K, INNER)
    assert libgemm.moe_sum(hidden, places).shape == (TOKENS, INNER)
    found = [values(x) for x in launches()]
    assert (found[1]["rows_ptr"], found[1]["offs_ptr"]) == (rows.pointer, offs.pointer)
    assert (found[2]["places_ptr"], found[2]["stored"], found[2]["a_ptr"]) == (
        places.pointer, TOKENS * TOP_K, hidden.pointer,
    )  # fmt: skip


@in_stand_in()
def test_a_gate_and_its_gradient_are_told_where_everything_is():
    install()
    z, places = Tensor(at(0), (48, 2 * INNER)), Tensor(at(5), (TOKENS, TOP_K), "int32")
    h = libgemm.moe_gate(z, gate="pairs", gate_limit=7.0)
    assert h.shape == (48, INNER) and libgemm.moe_gate(z, gate=None, out=(whole := Tensor(at(3), z.shape))) is whole
    grad, weights = Tensor(at(1), (48, INNER)), Tensor(at(4), (TOKENS, TOP_K), "bfloat16")
    dz, own, sums = libgemm.moe_gate_grad(z, grad, places, weights, gate="pairs", gate_limit=7.0)
    assert (dz.shape, own.shape, sums.shape, sums.dtype.name) == (z.shape, grad.shape, (TOKENS, TOP_K), "float32")
    first, second, third = (values(x) for x in launches())
    assert (first["N"], first["gate"], first["gate_limit"], first["d_ptr"]) == (INNER, 2, 7.0, h.pointer)
    assert (second["N"], second["gate"], second["d_ptr"], second["lda"]) == (2 * INNER, 0, at(3), 2 * INNER)
    found = [third[f"{x}_ptr"] for x in ("a", "b", "d", "h", "sums", "weights", "places")]
    assert found == [at(0), at(1), dz.pointer, own.pointer, sums.pointer, at(4), at(5)]
    assert (third["entries"], third["stored"], third["weights_type"], third["gate_shift"]) == (48, 48, 2, 1.0)


def scaled(**changes) -> dict:
    """Weights as torch's linear has them, in 8 bits."""
    plain = {
        "w_in": Tensor(at(1), (EXPERTS, K, 2 * INNER), "float8_e4m3fn", SWAPPED["w_in"]),
        "w_out": Tensor(at(2), (EXPERTS, INNER, N), "float8_e4m3fn", SWAPPED["w_out"]), "scaling": "1x128_128x128",
        "w_in_scale": Tensor(at(8), (EXPERTS, 1, 2), "float32", (2, 1, 1)),
        "w_out_scale": Tensor(at(9), (EXPERTS, 1, 1), "float32", (5, 3, 7)),
    }  # fmt: skip
    return layer(**{**plain, **changes})


@in_stand_in()
def test_a_layer_of_8_bit_weights_is_told_their_scales():
    install()
    made = libgemm.moe(**scaled())
    assert (made.shape, made.dtype.name) == ((TOKENS, N), "float16")
    spread, first, _, second, total = (values(x) for x in launches())
    told = ("b_scale", "batch_stride_b_scale", "b_scale_stride_k", "b_scale_stride_n")
    assert [first[x] for x in told] == [at(8), 2, 1, 1] and [second[x] for x in told] == [at(9), 5, 3, 7]
    assert (spread["a_ptr"], spread["N"], total["d_ptr"]) == (at(0), K, made.pointer)
    libgemm.moe(**in_bf16(scaled()))  # and again: what was seen before is another layer's
    libgemm.moe(**in_bf16(layer()))
    libgemm.moe(**in_bf16(scaled()))
    assert [len(launches()[i:j]) for i, j in ((5, 10), (10, 14), (14, 19))] == [5, 4, 5]
    assert [x["kernel"] for x in launches()[14:15]] == ["moe_spread"]


@in_stand_in()
def test_a_layer_of_8_bit_weights_like_one_before_takes_the_quick_way_too():
    install()
    given = in_bf16(scaled())
    libgemm.moe(**given)
    libgemm.moe(**given)
    own, _moe.weights_of = _moe.weights_of, None  # the general way would call it
    moved = {name: Tensor(x.pointer + 4096, x.shape, x.dtype.name, x.strides)
             for name, x in given.items() if name in ("x", "w_in", "w_out", "w_in_scale", "w_out_scale")}  # fmt: skip
    made = libgemm.moe(**{**given, **moved})
    before, after = launches()[5:10], launches()[10:]
    assert [x["variant"] for x in before] == [x["variant"] for x in after] and len(after) == 5
    assert [x["grid"] for x in before] == [x["grid"] for x in after]
    spread, first, _, second, total = (values(x) for x in after)
    assert (spread["a_ptr"], first["b_scale"], second["b_scale"]) == (at(0) + 4096, at(8) + 4096, at(9) + 4096)
    assert total["d_ptr"] == made.pointer
    turned = Tensor(at(8), (EXPERTS, 1, 2), "float32", (2, 2, 1))
    for changed in ({"w_in_scale": turned}, {"w_out_scale": Tensor(at(9), (EXPERTS, 1, 1), "float32", (4, 3, 7))}):
        with pytest.raises(TypeError):  # not like the call before
            libgemm.moe(**{**given, **changed})
    _moe.weights_of = own
    libgemm.moe(**{**given, "w_in_scale": turned})
    assert values(launches()[-4])["b_scale_stride_k"] == 2


@in_stand_in()
def test_scales_that_no_scaling_names_are_refused_of_a_known_layer_too():
    install()
    given = in_bf16(layer())
    libgemm.moe(**given)
    libgemm.moe(**given)
    with pytest.raises(libgemm.Error, match="w_in_scale without scaling"):
        libgemm.moe(**given, w_in_scale=Tensor(at(8), (EXPERTS, 1, 2), "float32"))


@in_stand_in()
def test_rows_are_cast_by_an_index():
    install()
    a, rows = Tensor(at(0), (TOKENS, 2 * INNER)), Tensor(at(7), (TOKENS * TOP_K,), "int32")
    made, scale = libgemm.moe_cast(a, rows=rows, activation="silu", gate="pairs", gate_limit=7.0)
    assert (made.shape, made.strides, made.dtype.name) == ((48, 80), (96, 1), "float8_e4m3fn")
    assert (scale.shape, scale.strides, scale.dtype.name) == ((48, 1), (1, 48), "float32")
    made, scale = libgemm.moe_cast(Tensor(at(0), (TOKENS, 300)))
    assert (made.shape, made.strides, scale.shape) == ((TOKENS, 300), (320, 1), (TOKENS, 3))
    first, second = (values(x) for x in launches())
    assert "_gated_paired_swish" in launches()[0]["variant"] and "_linear" in launches()[1]["variant"]
    assert [first[x] for x in ("rows_ptr", "stored", "M", "N")] == [at(7), TOKENS, 48, INNER]
    assert [second[x] for x in ("rows_ptr", "stored", "M", "N", "ldd")] == [0, TOKENS, TOKENS, 300, 320]


@in_stand_in()
def test_rows_of_d_are_those_of_out():
    install()
    out = Tensor(at(3), (99, INNER))
    words = {"to_rows": Tensor(at(8), (TOKENS * TOP_K,), "int32"),
             "row_weights": Tensor(at(4), (TOKENS * TOP_K,), "float32")}  # fmt: skip
    assert libgemm.moe_mm(**product(**words, out=out)) is out
    found = values(launches()[-1])
    assert (found["to_rows_ptr"], found["weights_ptr"], found["d_stored"]) == (at(8), at(4), 99)


class Made(NamedTuple):
    """A tensor that is to be made where the body runs."""

    shape: tuple
    dtype: str = "float16"


BAD = [
    ("moe", {"w_out": Made((EXPERTS, INNER + 8, N))}, ("w_out [3, 88, 48]", "[experts, K, 2 I]")),
    ("moe", {"w_in": Made((EXPERTS, K, 2 * INNER + 1))}, ("w_in [3, 64, 161]",)),
    ("moe", {"w_in": Made((K, 2 * INNER))}, ("w_in has shape (64, 160)",)),
    ("moe", {"w_out": Made((EXPERTS, INNER, N), "bfloat16")}, ("w_out has dtype bf16", "f16")),
    ("moe", {"expert_ids": Made((TOKENS, TOP_K), "float32")}, ("expert_ids is f32",)),
    ("moe", {"expert_ids": Made((TOKENS - 1, TOP_K), "int32")}, ("x has 24 rows", "(23, 2)")),
    ("moe", {"weights": Made((TOKENS, 3), "float32")}, ("weights is f32 of shape (24, 3)",)),
    ("moe", {"gate": "both"}, ("gate = 'both'", "'halves'")),
    ("moe", {"activation": "tanh"}, ("activation = 'tanh'",)),
    ("moe", {"bias_in": Made((2 * INNER,))}, ("bias_in is f16 of shape (160,)", "(3, 160)")),
    ("moe", {"out": Made((TOKENS, N + 1))}, ("out has shape (24, 49)",)),
    ("moe", {"scaling": "row"}, ("scaling = 'row'", "'1x128_128x128'")),
    ("moe", {"w_in_scale": Made((EXPERTS, 1, 2), "float32")}, ("w_in_scale without scaling",)),
    ("scaled", {"w_out_scale": None}, ("w_out_scale is needed",)),
    ("scaled", {"w_in_scale": Made((EXPERTS, 2, 1), "float32")}, ("w_in_scale has shape (3, 2, 1)", "(3, 1, 2)")),
    ("scaled", {"w_in_scale": Made((EXPERTS, 1, 2))}, ("w_in_scale has dtype f16", "f32")),
    ("scaled", {"w_in": Made((EXPERTS, K, 2 * INNER))}, ("w_in has dtype f16", "e4m3")),
    ("scaled", {"scaling": "tensor"}, ("scaling = 'tensor'",)),
    ("moe_cast", {"a": Made((48, 161))}, ("a has 161 columns", "'halves'")),
    ("moe_cast", {"a": Made((48, 160), "float32")}, ("a_type = 3", "LIBGEMM_BF16")),
    ("moe_cast", {"rows": Made((48, 1), "int32")}, ("rows has shape (48, 1)", "vector")),
    ("moe_cast", {"rows": Made((48,), "int64")}, ("rows has dtype i64", "i32")),
    ("moe_gate", {"z": Made((48, 2 * INNER + 1))}, ("z has 161 columns", "'halves'")),
    ("moe_gate", {"z": Made((48, 2 * INNER), "float32")}, ("a_type = 3", "LIBGEMM_BF16")),
    ("moe_gate", {"out": Made((48, INNER + 1))}, ("out has shape (48, 81)",)),
    ("moe_gate", {"out": Made((48, INNER), "bfloat16")}, ("out has dtype bf16", "f16")),
    ("moe_gate_grad", {"grad": Made((47, INNER))}, ("grad has shape (47, 80)", "(48, 80)")),
    ("moe_gate_grad", {"grad": Made((48, INNER), "bfloat16")}, ("grad has dtype bf16",)),
    ("moe_gate_grad", {"places": Made((TOKENS, TOP_K), "int64")}, ("places is i64",)),
    ("moe_gate_grad", {"weights": Made((TOKENS, 3), "float32")}, ("weights is f32 of shape (24, 3)",)),
    ("moe_gate_grad", {"gate": "both"}, ("gate = 'both'",)),
    ("moe_mm", {"offs": Made((EXPERTS + 1,), "int32")}, ("offs has shape (4,)", "3 contiguous")),
    ("moe_mm", {"offs": Made((EXPERTS,), "int64")}, ("offs is i64", "int32")),
    ("moe_mm", {"rows": Made((4,), "int64")}, ("rows is i64",)),
    ("moe_mm", {"b": Made((EXPERTS, K + 8, 8))}, ("a's columns must equal b's rows",)),
    ("moe_mm", {"to_rows": Made((48,), "int32")}, ("to_rows without out",)),
    ("moe_mm", {"row_weights": Made((48,))}, ("row_weights has dtype f16", "f32")),
    ("moe_mm", {"gate_limit": -1.0}, ("gate_limit = -1",)),
]


@pytest.mark.parametrize(("name", "bad", "parts"), BAD)
@in_stand_in()
def test_a_bad_call_says_what_is_wrong_and_launches_nothing(name, bad, parts):
    install()
    bad = {key: Tensor(at(9), *value) if isinstance(value, Made) else value for key, value in bad.items()}
    plain = {"moe": layer, "scaled": scaled, "moe_mm": product, "moe_gate": gate, "moe_gate_grad": gate_grad,
             "moe_cast": cast_rows}[name]  # fmt: skip
    with pytest.raises(Error) as caught:
        getattr(libgemm, {"scaled": "moe"}.get(name, name))(**plain(**bad))
    assert [part for part in parts if part not in str(caught.value)] == []
    assert launches() == []
