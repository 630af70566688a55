"""Python's calls over arrays of pointers: lists see for themselves whether groups are aligned, tables are told."""

import libgemm
from arrays import InterfaceArray
from built import needs
from calls import at, current, launches, values
from stand_in import in_stand_in
from torch_like import install
from torch_like import torch as like

pytestmark = needs(90)  # rows for aligned groups are Hopper's

NAMES = ("a", "b", "d", "m", "n", "k", "lda", "ldb", "ldd")


def named(align16: bool) -> libgemm.Variant:
    own = [v for v in libgemm.variants() if (v.target, v.op, v.a_type, v.d_type) == (90, "grouped_gemm", "f16", "f16")]
    return next(v for v in own if v.align16 == align16 and not v.trans_a and not v.trans_b)


def tables(**words) -> None:
    given = {name: InterfaceArray(at(7) + 256 * i, (3,), "i64") for i, name in enumerate(NAMES)}
    libgemm.grouped_gemm_tables(**{"dtype": "f16", **given, **words})


@in_stand_in()
def test_tables_take_the_caller_s_word():
    tables()
    tables(aligned=True)
    assert [launch["block"][0] for launch in launches()] == [32 * named(align).warps for align in (False, True)]
    assert values(launches()[0])["a_ptrs"] == values(launches()[1])["a_ptrs"] == at(7)
    tables(aligned=True, variant=named(True).name)


@in_stand_in()
def test_tables_say_what_to_expect():
    install()
    with current(0):
        for expected, is_large in ((None, 0), ((16, 256, 4096), 0), ((4096, 4096, 4096), 1), ((0, 0, 0), 0)):
            made = len(like.made)
            tables(d=like.Tensor(at(7) + 512, (3,), "int64"), aligned=True, expected=expected)
            chosen = libgemm.explain_grouped_gemm(3, "f16", layout="nn", expected=expected, target=90).variant
            assert launches()[-1]["block"][0] == 32 * chosen.warps == 32 * (12 if is_large else 4)
            assert len(like.made) == made + is_large
    workspace = like.made[-1]
    scratch = values(launches()[-2])["scratch"]
    assert 0 <= scratch - workspace.data_ptr() < 128


@in_stand_in()
def test_tables_of_a_framework_that_cannot_allocate_run_in_small_tiles():
    tables(aligned=True, expected=(4096, 4096, 4096))
    assert launches()[-1]["block"][0] == 32 * named(True).warps and values(launches()[-1])["scratch"] == 0


def tensor(place: int, *shape: int, moved: int = 0, **words):
    return like.Tensor(at(place) + moved, shape, **words)


def lists(second: int = 64, moved: int = 0, **words) -> int:
    """A product of two groups, the second of them perhaps not aligned; the warps of what ran."""
    a = [tensor(0, 32, 64), tensor(1, 32, second, moved=moved)]
    b = [tensor(2, 64, 48), tensor(3, second, 48)]
    libgemm.grouped_gemm(a, b, out=[tensor(8, 32, 48), tensor(9, 32, 48)], **words)
    return launches()[-1]["block"][0] // 32


@in_stand_in()
def test_lists_see_for_themselves():
    install()
    with current(0):
        assert lists() == lists(0) == named(True).warps
        assert lists(60) == lists(moved=2) == lists(activation="relu") == named(False).warps
        assert lists(alpha=0.0, moved=2) == named(True).warps  # A is not read


@in_stand_in()
def test_an_array_of_three_dimensions_is_a_sequence_of_matrices():
    install()
    a, b, out = tensor(0, 2, 32, 64), tensor(1, 2, 64, 48), tensor(3, 2, 32, 48)
    c, bias = tensor(4, 2, 32, 48), tensor(5, 2, 48)
    made = libgemm.grouped_gemm(a, b, c, beta=1.0, bias=bias, out=out)
    assert [x.data_ptr() for x in made] == [at(3), at(3) + 2 * 32 * 48]
    assert libgemm.grouped_gemm((x for x in (a[0], a[1])), b, out=made) == made  # any other iterable, too
    assert [libgemm.grouped_gemm(tensor(0, 0, 32, 64), [], out=[])] == [[]]
    assert len(launches()) == 2
