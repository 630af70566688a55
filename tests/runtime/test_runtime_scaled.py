"""libgemm.gemm and grouped_mm of 8-bit arrays: what scales may look like, and what is refused. On the stand-in."""

import libgemm
import pytest
from built import TARGET
from calls import at, last_launch, launches, operand_types, values
from runtime_arrays import array
from stand_in import in_stand_in

M, N, K, BATCH = 96, 80, 64, 3


def operands(**changes) -> dict:
    plain = {"a": array(0, M, K, dtype="e4m3"), "b": array(1, K, N, dtype="e4m3", strides=(1, K))}
    return {**plain, "out": array(3, M, N, dtype="bf16"), **changes}


def batch(**changes) -> dict:
    """Of products that stand one behind the other."""
    a, out = array(0, BATCH, M, K, dtype="e4m3"), array(3, BATCH, M, N, dtype="bf16")
    return operands(a=a, b=array(1, BATCH, K, N, dtype="e4m3", strides=(N * K, 1, K)), out=out, **changes)


def scale(place: int, *shape: int, **facts):
    return array(place, *shape, **{"dtype": "f32", **facts})


# scaling, shapes of a_scale and b_scale
GOOD = [
    ("tensor", (), ()),
    ("tensor", (1,), (1, 1)),
    ("row", (M,), (N,)),
    ("row", (M, 1), (1, N)),
]


@pytest.mark.parametrize(("scaling", "of_a", "of_b"), GOOD, ids=str)
@in_stand_in()
def test_scales_may_be_vectors_or_matrices_of_one_row_or_column(scaling, of_a, of_b):
    libgemm.gemm(**operands(scaling=scaling, a_scale=scale(7, *of_a), b_scale=scale(8, *of_b)))
    found = values(last_launch())
    kind = {"tensor": 1, "row": 2}[scaling]
    assert [found["scaling"], found["a_scale"], found["b_scale"]] == [kind, at(7), at(8)]


# scaling, a_scale's shape and strides, b_scale's, and what C is told: strides along rows and K of either
BLOCKS = [
    ("1x128_128x128", (M, 3), None, (3, 1), None, (3, 1, 1, 1)),
    ("1x128_128x128", (M, 3), (1, M), (4, 1), (1, 4), (1, M, 4, 1)),  # as torch strides them, with more along K
    ("1x128_1x128", (M, 3), (1, M), (3, N), None, (1, M, 1, N)),
    ("128x128_1x128", (1, 3), None, (3, N), (1, 3), (3, 1, 3, 1)),
]


@pytest.mark.parametrize(("scaling", "of_a", "a_strides", "of_b", "b_strides", "told"), BLOCKS, ids=str)
@in_stand_in()
def test_scales_of_blocks_may_have_any_strides(scaling, of_a, a_strides, of_b, b_strides, told):
    a, b = array(0, M, 272, dtype="e4m3"), array(1, 272, N, dtype="e4m3", strides=(1, 272))
    a_scale = scale(7, *of_a, **({"strides": a_strides} if a_strides else {}))
    b_scale = scale(8, *of_b, **({"strides": b_strides} if b_strides else {}))
    libgemm.gemm(**operands(a=a, b=b, scaling=scaling, a_scale=a_scale, b_scale=b_scale))
    found = values(last_launch())
    names = ("a_scale_stride_m", "a_scale_stride_k", "b_scale_stride_n", "b_scale_stride_k")
    assert tuple(found[name] for name in names) == told and [found["a_scale"], found["b_scale"]] == [at(7), at(8)]


@in_stand_in()
def test_scales_of_blocks_of_another_shape_are_refused():
    good = {"a_scale": scale(7, M, 1), "b_scale": scale(8, 1, 1)}
    for change, part in (
        ({"a_scale": scale(7, M)}, "a_scale has shape (96,): (96, 1) is needed"),
        (
            {"a_scale": scale(7, 1, M)},
            "a_scale has shape (1, 96): (96, 1) is needed with this scaling, or more along K",
        ),
        ({"a_scale": scale(7, M, 0)}, "a_scale has shape (96, 0)"),
        ({"b_scale": scale(8, 1, N)}, "b_scale has shape (1, 80): (1, 1) is needed"),
        ({"a_scale": scale(7, 2, M, 1)}, "a_scale has shape (2, 96, 1)"),
        ({"precision": "fast"}, "precision = 4 with scaling = 3"),
    ):
        with pytest.raises(libgemm.Error) as error:
            libgemm.gemm(**operands(scaling="1x128_128x128", **{**good, **change}))
        assert part in str(error.value), str(error.value)
    words = {"scaling": "1x128_128x128", "b_scale": scale(8, 1, 1)}
    with pytest.raises(libgemm.Error, match=r"with this scaling, or more along K, for all or for each of 3"):
        libgemm.gemm(**batch(a_scale=scale(7, 2, M, 1), **words))
    assert launches() == []
    libgemm.gemm(**batch(a_scale=scale(7, BATCH, M, 1), **words))
    found = values(last_launch())
    assert [found["batch_stride_a_scale"], found["batch_stride_b_scale"]] == [M, 0]


BAD = [
    ({"a_scale": ("row", M - 1)}, "a_scale has shape (95,)"),
    ({"b_scale": ("row", N, 1)}, "b_scale has shape (80, 1)"),
    ({"a_scale": ("row", 1, M)}, "a_scale has shape (1, 96)"),
    ({"a_scale": ("tensor", 2)}, "one element is needed with scaling = 'tensor'"),
    ({"a_scale": None}, "a_scale is needed with scaling = 'row'"),
    ({"b_scale": None}, "b_scale is needed with scaling = 'row'"),
]


@pytest.mark.parametrize(("change", "part"), BAD, ids=str)
@in_stand_in()
def test_scales_of_another_shape_are_refused(change, part):
    ((name, given),) = change.items()
    scaling, *shape = given or ("row",)
    whole = {
        "a_scale": scale(7, *((M,) if scaling == "row" else ())),
        "b_scale": scale(8, *((N,) if scaling == "row" else ())),
    }
    whole[name] = scale(7, *shape) if given else None
    with pytest.raises(libgemm.Error) as error:
        libgemm.gemm(**operands(scaling=scaling, **whole))
    assert part in str(error.value) and launches() == []


@in_stand_in()
def test_one_of_two_operands_may_be_e5m2():
    b = {"dtype": "e5m2", "strides": (1, K)}
    mixed = {"e5m2 e4m3": {"a": array(0, M, K, dtype="e5m2")}, "e4m3 e5m2": {"b": array(1, K, N, **b)}}
    for types, operand in mixed.items():
        libgemm.gemm(**operands(**operand, scaling="tensor", a_scale=scale(7), b_scale=scale(8)))
        assert operand_types(last_launch()) == tuple(types.split())
    made = libgemm.explain(512, 512, 512, "e5m2", b_dtype="e4m3", target=TARGET)
    assert made.variant is not None  # the reference set's rows are for both types, others for one
    assert ("_e5m2_e4m3_bf16" if "descriptor" in made.variant.name else "_e4m3_e4m3_bf16") in made.variant.name
    with pytest.raises(libgemm.Error, match="a_type e5m2 with b_type e5m2"):
        libgemm.gemm(**operands(a=array(0, M, K, dtype="e5m2"), b=array(1, K, N, **b)))
    with pytest.raises(libgemm.Error, match="b has dtype e5m2: f16 is needed"):
        libgemm.gemm(**operands(a=array(0, M, K), b=array(1, K, N, **b), out=array(3, M, N)))


@in_stand_in()
def test_other_words_that_do_not_go_together_are_refused():
    rows = {"a_scale": scale(7, M), "b_scale": scale(8, N)}
    for change, part in (
        (
            {**rows},
            "a_scale is given without scaling, which says what it is: 'tensor', 'row', '1x128_128x128', "
            "'1x128_1x128', '128x128_1x128'",
        ),
        ({**rows, "scaling": "block"}, "scaling = 'block'"),
        ({**rows, "scaling": "row", "a_scale": scale(7, M, dtype="bf16")}, "a_scale has dtype bf16: f32 is needed"),
        ({**rows, "scaling": "row", "a_scale": scale(7, M, strides=(2,))}, "strides (2,)"),
        ({**rows, "scaling": "row", "precision": "tf32"}, "precision = 'tf32': allowed are None, 'exact', 'fast'"),
        ({"out": array(3, M, N, dtype="e5m2")}, "d_type = 5"),
        ({"out": None, "out_dtype": "e5m2"}, "dtype e5m2 is not one of f16, bf16, f32, e4m3"),
        ({"d_scale": scale(9)}, "d_scale = 0x"),
        ({"d_amax": scale(9, M)}, "d_amax = 0x"),
        ({"b": array(1, K, N, dtype="bf16")}, "b has dtype bf16: e4m3 is needed"),
    ):
        with pytest.raises(libgemm.Error) as error:
            libgemm.gemm(**operands(**change))
        assert part in str(error.value), str(error.value)
    halves = {
        name: array(place, *shape) for name, place, shape in (("a", 0, (M, K)), ("b", 1, (K, N)), ("out", 3, (M, N)))
    }
    with pytest.raises(libgemm.Error, match="a_type f16: no variant takes scales"):
        libgemm.gemm(**halves, **rows, scaling="row")
    assert launches() == []


@in_stand_in()
def test_an_output_of_8_bits_may_have_a_scale():
    to_e4m3 = {"out": array(3, M, N, dtype="e4m3"), "bias": array(4, N, dtype="bf16")}
    rows = {"scaling": "row", "a_scale": scale(7, M), "b_scale": scale(8, N)}
    for words in ({}, rows):
        for place, given in ((0, None), (at(9), scale(9)), (at(9), scale(9, 1, 1))):
            libgemm.gemm(**operands(**to_e4m3, **words, d_scale=given))
            found = values(last_launch())
            assert [found["d_scale"], found["a_scale"]] == [place, at(7) if words else 0]
    for words, given in ((rows, None), (rows, scale(9)), ({}, None)):
        libgemm.gemm(**operands(**to_e4m3, **words, d_scale=given, d_amax=scale(10, M)))
        found = values(last_launch())
        assert [found["d_scale"], found["d_amax"]] == [0 if given is None else at(9), at(10)]
    for empty in ((3, 0), (0, M)):
        nothing = operands(a=array(0, *empty, K, dtype="e4m3"), out=array(3, *empty, N, dtype="e4m3"))
        libgemm.gemm(**nothing, d_amax=scale(10, *empty, strides=(1, 1)))
    batched = operands(a=array(0, 3, M, K, dtype="e4m3"), out=array(3, 3, M, N, dtype="e4m3"))
    libgemm.gemm(**batched, d_amax=scale(10, 3, M))
    assert values(last_launch())["d_amax"] == at(10)
    count = len(launches())
    with pytest.raises(libgemm.Error, match=rf"d_amax has shape \({M},\)"):
        libgemm.gemm(**batched, d_amax=scale(10, M))
    for change, part in (
        ({"d_amax": scale(10, M + 1)}, f"d_amax has shape ({M + 1},), strides (1,): ({M},), in one piece, is needed"),
        ({"d_amax": scale(10, M, strides=(2,))}, f"d_amax has shape ({M},), strides (2,)"),
        ({"d_amax": scale(10, M, 1)}, "d_amax has shape"),
        ({"d_amax": scale(10, M, dtype="bf16")}, "d_amax has dtype bf16: f32 is needed"),
        ({"d_scale": scale(9, 2)}, "d_scale has shape (2,): one element is needed"),
        ({"d_scale": scale(9, dtype="bf16")}, "d_scale has dtype bf16: f32 is needed"),
        ({"bias": array(4, N, dtype="f32")}, "bias has dtype f32: bf16 is needed"),
        ({"bias": array(4, N, dtype="e4m3")}, "bias has dtype e4m3: bf16 is needed"),
        ({"beta": 1.0, "c": array(3, M, N, dtype="e4m3")}, "beta = 1 with d_type e4m3"),
        ({"out_dtype": "bf16"}, "out has dtype e4m3, out_dtype is bf16"),
    ):
        with pytest.raises(libgemm.Error) as error:
            libgemm.gemm(**operands(**{**to_e4m3, **rows, **change}))
        assert part in str(error.value), str(error.value)
    with pytest.raises(libgemm.Error, match="d_type = 4 with 8-bit operands"):
        libgemm.grouped_mm(**groups(out=array(3, M, N, dtype="e4m3")))
    assert len(launches()) == count


@in_stand_in()
def test_scales_of_arrays_that_compare_by_element_are_refused_without_a_scaling():
    class ByElement(type(scale(7, M))):
        """As CuPy's arrays."""

        def __eq__(self, other):
            raise ValueError("the truth value of an array is ambiguous")

        __hash__ = None

    a_scale = scale(7, M)
    a_scale.__class__ = ByElement
    with pytest.raises(libgemm.Error, match="scaling"):
        libgemm.gemm(**operands(a_scale=a_scale, b_scale=scale(8, N)))
    assert launches() == []


@in_stand_in()
def test_products_of_a_batch_have_scales_of_their_own_or_share_them():
    for of_a, of_b, strides in (
        ((BATCH, M), (BATCH, N), [M, N]),
        ((M,), (BATCH, 1, N), [0, N]),
        ((M, 1), (N,), [0, 0]),
    ):
        libgemm.gemm(**batch(scaling="row", a_scale=scale(7, *of_a), b_scale=scale(8, *of_b)))
        found = values(last_launch())
        assert [found["batch_stride_a_scale"], found["batch_stride_b_scale"]] == strides
    with pytest.raises(libgemm.Error, match="or 3 times so many"):
        libgemm.gemm(**batch(scaling="row", a_scale=scale(7, 2, M), b_scale=scale(8, N)))


GROUPS = 3


def groups(**changes) -> dict:
    """Packed rows of GROUPS groups, each with a matrix of its own."""
    b = array(1, GROUPS, K, N, dtype="e4m3", strides=(N * K, 1, K))
    return operands(b=b, offs=array(5, GROUPS, dtype="i32"), **changes)


# scaling, shapes of a_scale and b_scale, elements from one group's scales of b to the next
OF_GROUPS = [
    ("tensor", (), (), 0),
    ("tensor", (1,), (GROUPS,), 1),
    ("row", (M,), (GROUPS, N), N),
    ("row", (M, 1), (GROUPS, 1, N), N),
    ("row", (M,), (N,), 0),
    ("1x128_128x128", (M, 1), (GROUPS, 1, 1), 1),
    ("1x128_128x128", (M, 1), (1, 1), 0),
]


@pytest.mark.parametrize(("scaling", "of_a", "of_b", "apart"), OF_GROUPS, ids=str)
@in_stand_in()
def test_groups_have_scales_of_their_own_or_share_them(scaling, of_a, of_b, apart):
    libgemm.grouped_mm(**groups(scaling=scaling, a_scale=scale(7, *of_a), b_scale=scale(8, *of_b)))
    found = values(last_launch())
    assert [found["a_scale"], found["b_scale"], found["batch_stride_b_scale"]] == [at(7), at(8), apart]


@in_stand_in()
def test_where_k_is_cut_each_group_has_scales_of_both():
    a, b, out = array(0, M, K, dtype="e4m3"), array(1, K, N, dtype="e4m3"), array(3, GROUPS, M, N, dtype="bf16")
    words = {"a": a, "b": b, "offs": array(5, GROUPS, dtype="i32"), "out": out, "scaling": "row"}
    libgemm.grouped_mm(**words, a_scale=scale(7, GROUPS, M), b_scale=scale(8, GROUPS, N))
    found = values(last_launch())
    assert [found["batch_stride_a_scale"], found["batch_stride_b_scale"]] == [M, N]
    blocks = {**words, "scaling": "1x128_128x128", "a_scale": scale(7, M, 1), "b_scale": scale(8, 1, 1)}
    with pytest.raises(libgemm.Error, match="scaling = 3, of blocks, with ragged = 2"):
        libgemm.grouped_mm(**blocks)


@in_stand_in()
def test_scales_of_groups_of_another_shape_are_refused():
    good = {"scaling": "row", "a_scale": scale(7, M), "b_scale": scale(8, GROUPS, N)}
    for change, part in (
        ({"a_scale": scale(7, GROUPS, M)}, "a_scale has shape (3, 96)"),
        ({"b_scale": scale(8, GROUPS + 1, N)}, "80 contiguous elements are needed with scaling = 'row', or 3 times"),
        ({"scaling": "tensor", "a_scale": scale(7), "b_scale": scale(8, 2)}, "or a vector of 3"),
        ({"scaling": None}, "a_scale is given without scaling"),
        ({"b_scale": None}, "b_scale is needed with scaling = 'row'"),
    ):
        with pytest.raises(libgemm.Error) as error:
            libgemm.grouped_mm(**groups(**{**good, **change}))
        assert part in str(error.value), str(error.value)
    assert launches() == []
