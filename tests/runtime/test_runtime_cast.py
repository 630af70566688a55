"""Casts to 8 bits from Python: what is made, in which shapes and strides, and what is refused. On the stand-in."""

from typing import NamedTuple

import libgemm
import pytest
from calls import at, launches, operand_types, values
from libgemm import Error
from stand_in import in_stand_in
from torch_like import Tensor, install

M, N, BATCH = 130, 384, 3
STEPS, BLOCKS = N // 128, -(-M // 128)
# granularity, shape and strides of the scale of [M, N], and of that of the transposed matrix
SCALES = [
    ("tensor", (), (), (), ()),
    ("row", (M, 1), (1, 1), (N, 1), (1, 1)),
    ("1x128", (M, STEPS), (1, M), (N, BLOCKS), (1, N)),
    ("128x128", (BLOCKS, STEPS), (STEPS, 1), (STEPS, BLOCKS), (1, STEPS)),
]


def facts(made) -> tuple:
    return made.shape, made.strides, made.dtype.name


@pytest.mark.parametrize(("granularity", "shape", "strides", "shape_t", "strides_t"), SCALES, ids=str)
@in_stand_in()
def test_values_and_scales_have_the_shapes_that_products_take(granularity, shape, strides, shape_t, strides_t):
    install()
    x = Tensor(at(0), (M, N), "bfloat16")
    made, scale = libgemm.cast(x, granularity)
    assert facts(made) == ((M, N), (N, 1), "float8_e4m3fn")
    assert facts(scale) == (shape, strides, "float32")
    made, scale, turned, scale_t = libgemm.cast_transpose(x, granularity)
    padded = -(-M // 32) * 32  # rows of the transposed values begin on 32 bytes
    assert facts(made)[:2] == ((M, N), (N, 1)) and facts(turned) == ((N, M), (padded, 1), "float8_e4m3fn")
    assert facts(scale) == (shape, strides, "float32") and facts(scale_t) == (shape_t, strides_t, "float32")
    found = values(launches()[-1])
    pointers = [found[x] for x in ("a_ptr", "q_ptr", "q_t_ptr", "scale_ptr")]
    assert pointers == [x.pointer, made.pointer, turned.pointer, scale.pointer]
    own = granularity in ("row", "1x128")
    assert found.get("scale_t_ptr") == (scale_t.pointer if own else None)
    assert own or scale_t.pointer == scale.pointer
    assert (found["ldd"], found["ldd_t"]) == (N, padded)


@pytest.mark.parametrize(("granularity", "shape", "strides", "shape_t", "strides_t"), SCALES, ids=str)
@in_stand_in()
def test_a_batch_has_scales_of_each_matrix(granularity, shape, strides, shape_t, strides_t):
    install()
    made, scale, turned, scale_t = libgemm.cast_transpose(Tensor(at(0), (BATCH, M, N), "float32"), granularity)
    assert (made.shape, turned.shape) == ((BATCH, M, N), (BATCH, N, M))
    assert (scale.shape, scale_t.shape) == ((BATCH, *shape), (BATCH, *shape_t))
    found = values(launches()[-1])
    assert (found["batch_stride_a"], found["batch_stride_d"], found["batch_stride_d_t"]) == (
        M * N, M * N, N * turned.strides[1],
    )  # fmt: skip
    assert found["batch_stride_scale"] == scale.strides[0] and launches()[-1]["grid"][0] == BATCH * 2 * STEPS


@in_stand_in()
def test_what_a_cast_makes_a_product_takes():
    install()
    x, w = Tensor(at(0), (M, N), "bfloat16"), Tensor(at(1), (96, N), "bfloat16")
    for granularities, scaling in (
        (("tensor", "tensor"), "tensor"), (("row", "row"), "row"), (("1x128", "128x128"), "1x128_128x128"),
        (("1x128", "1x128"), "1x128_1x128"), (("128x128", "1x128"), "128x128_1x128"),
    ):  # fmt: skip
        (a, a_scale), (b, b_scale) = (libgemm.cast(t, g) for t, g in zip((x, w), granularities, strict=True))
        turned = [t if t.shape == () else t.swapaxes(-1, -2) for t in (b, b_scale)]
        out = Tensor(at(3), (M, 96), "bfloat16")
        libgemm.gemm(a, turned[0], scaling=scaling, a_scale=a_scale, b_scale=turned[1], out=out)
        found = values(launches()[-1])
        assert (found["a_scale"], found["b_scale"]) == (a_scale.pointer, b_scale.pointer)


@pytest.mark.parametrize("dtype", ["e5m2", "float8_e5m2"])
@in_stand_in()
def test_values_may_be_e5m2(dtype):
    install()
    x = Tensor(at(0), (M, N), "bfloat16")
    made, scale = libgemm.cast(x, "row", dtype=dtype)
    assert facts(made) == ((M, N), (N, 1), "float8_e5m2") and "_e5m2_" in launches()[-1]["variant"]
    made, _, turned, _ = libgemm.cast_transpose(x, "1x128", dtype=dtype)
    assert made.dtype.name == turned.dtype.name == "float8_e5m2" and "_e5m2_" in launches()[-1]["variant"]
    out = Tensor(at(1), (M, N), "float8_e5m2"), None
    assert libgemm.cast(x, "row", dtype=dtype, out=out)[0] is out[0]
    b = Tensor(at(2), (N, 96), "float8_e4m3fn")
    words = {"scaling": "row", "a_scale": scale, "b_scale": Tensor(at(4), (96,), "float32")}
    libgemm.gemm(made, b, **words, out=Tensor(at(3), (M, 96), "bfloat16"))
    assert operand_types(launches()[-1]) == ("e5m2", "e4m3")


@in_stand_in()
def test_a_scale_that_is_given_is_divided_by_and_returned():
    install()
    for shape, x in (((), (M, N)), ((1,), (M, N)), ((BATCH,), (BATCH, M, N))):
        scale = Tensor(at(7), shape, "float32")
        made = libgemm.cast(Tensor(at(0), x), "tensor", scale=scale)
        assert made[1] is scale and [x["kernel"] for x in launches()[-1:]] == ["cast_tensor"]
        found = values(launches()[-1])
        assert (found["scale_given"], found["scale_ptr"], found["batch_stride_scale"]) == (1, at(7), int(len(x) == 3))
        assert libgemm.cast_transpose(Tensor(at(0), x), "tensor", scale=scale)[3] is scale


@in_stand_in()
def test_out_is_written_at_its_own_strides():
    install()
    x = Tensor(at(0), (M, N))
    to = Tensor(at(1), (M, N), "float8_e4m3fn", (N + 32, 1)), Tensor(at(2), (M, STEPS), "float32", (STEPS + 1, 1))
    versions = [t.version for t in to]
    made = libgemm.cast(x, "1x128", out=to, power_of_two=True)
    assert made[0] is to[0] and made[1] is to[1] and [t.version for t in to] == [v + 1 for v in versions]
    found = values(launches()[-1])
    assert [found[x] for x in ("ldd", "scale_stride_m", "scale_stride_n", "scale_power_of_two")] == [
        N + 32, STEPS + 1, 1, 1,
    ]  # fmt: skip
    turned = Tensor(at(3), (N, M), "float8_e4m3fn", (M + 14, 1))
    made = libgemm.cast_transpose(x, "1x128", out=(None, to[1], turned, None))
    assert made[1] is to[1] and made[2] is turned and values(launches()[-1])["ldd_t"] == M + 14


class Made(NamedTuple):
    """A tensor that is to be made where the body runs."""

    shape: tuple
    dtype: str = "float16"
    strides: tuple | None = None


V, S = "float8_e4m3fn", "float32"
BAD = [
    ("cast", {"x": Made((M,))}, ("x has shape (130,)",)),
    ("cast", {"x": Made((M, N), "int32")}, ("dtype of x = 'i32'",)),
    ("cast", {"x": Made((M, N), V)}, ("a_type = 4", "LIBGEMM_F32")),
    ("cast", {"x": Made((M, N), "float16", (1, M))}, ("x has strides (1, 130)", "row-major")),
    ("cast", {"dtype": "bf16"}, ("dtype bf16 is not one of e4m3, e5m2",)),
    ("cast", {"dtype": "e5m2", "out": (Made((M, N), V), None)}, ("d has dtype e4m3", "e5m2")),
    ("cast", {"granularity": "block"}, ("granularity = 'block'", "'1x128'")),
    ("cast", {"scale": Made((), S)}, ("scale with granularity = 'row'", "'tensor'")),
    ("cast", {"granularity": "tensor", "scale": Made((2,), S)}, ("scale has shape (2,)", "() or (1,)")),
    ("cast", {"granularity": "tensor", "scale": Made(())}, ("scale has dtype f16", "f32")),
    ("cast", {"granularity": "tensor", "scale": Made((), S), "power_of_two": True}, ("scale_power_of_two = 1",)),
    ("cast", {"out": Made((M, N), V)}, ("out is Tensor", "a tuple of 2")),
    ("cast", {"out": (None,)}, ("out is tuple", "a tuple of 2")),
    ("cast", {"out": (Made((M, N + 1), V), None)}, ("d has shape (130, 385)", "(130, 384)")),
    ("cast", {"out": (Made((M, N)), None)}, ("d has dtype f16", "e4m3")),
    ("cast", {"out": (Made((M, N), V, (1, M)), None)}, ("d has strides (1, 130)",)),
    ("cast", {"out": (None, Made((M,), S))}, ("scale has shape (130,)", "(130, 1) is needed")),
    ("cast", {"out": (None, Made((M, 1), S, (2, 1)))}, ("scale has shape (130, 1), strides (2, 1)", "contiguous")),
    ("cast", {"out": (None, Made((M, 1), "float16"))}, ("scale has dtype f16",)),
    ("cast", {"granularity": "1x128", "out": (None, Made((M, STEPS), S, (1, 1)))}, ("scale_stride_m = 1", "share")),
    ("cast", {"granularity": "tensor", "scale": Made((), S), "out": (None, Made((), S))}, ("a scale, which is given",)),
    ("cast_transpose", {"out": (None, None)}, ("a tuple of 4",)),
    ("cast_transpose", {"out": (None, None, Made((N, M + 1), V), None)}, ("d_t has shape (384, 131)",)),
    ("cast_transpose", {"granularity": "128x128", "out": (None, None, None, Made((STEPS, BLOCKS), S))},
     ("scale_t", "'128x128'", "pass None")),
    ("cast_transpose", {"out": (None, None, None, Made((M, 1), S))}, ("scale_t has shape (130, 1)", "(384, 1)")),
]  # fmt: skip


def put(given):
    if isinstance(given, Made):
        return Tensor(at(9), *given)
    return tuple(put(x) for x in given) if isinstance(given, tuple) else given


@pytest.mark.parametrize(("name", "bad", "parts"), BAD, ids=str)
@in_stand_in()
def test_a_bad_call_says_what_is_wrong_and_launches_nothing(name, bad, parts):
    install()
    given = {"x": Tensor(at(0), (M, N)), "granularity": "row", **{key: put(value) for key, value in bad.items()}}
    with pytest.raises(Error) as caught:
        getattr(libgemm, name)(**given)
    assert [part for part in parts if part not in str(caught.value)] == []
    assert launches() == []
