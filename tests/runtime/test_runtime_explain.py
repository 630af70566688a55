"""explain for grouped calls: it names what the call itself launches, however groups lie, and refuses as that does."""

import functools
import sys

import libgemm
import libgemm.inspect
import pytest
from arrays import InterfaceArray, VersionedArray
from built import BUILT, TARGET, needs
from calls import PLACE, PLACES, allocate, at, current, launches
from stand_in import in_stand_in, run

M, N, K, GROUPS = 96, 80, 64, 4
SHAPES = {  # ragged -> a, b, out
    "m": ((M, K), (GROUPS, K, N), (M, N)),
    "n": ((GROUPS, M, K), (K, N), (M, N)),
    "k": ((M, K), (K, N), (GROUPS, M, N)),
    "none": ((GROUPS, M, K), (GROUPS, K, N), (GROUPS, M, N)),
}


@functools.cache
def room() -> int:
    """Memory for every group's matrices."""
    return allocate(PLACES * 8 * PLACE)


def array(place: int, shape: tuple, turned: bool = False, dtype: str = "bf16", odd: int = 0):
    *lead, rows, cols = shape
    strides = (*[rows * cols] * len(lead), 1, rows) if turned else None
    return VersionedArray(room() + place * 8 * PLACE + odd, shape, dtype=dtype, strides=strides)


def launched() -> tuple[str, int]:
    found = launches()[-1]
    return found["kernel"], found["shared"]


def kernel_of(variant: libgemm.Variant) -> tuple[str, int]:
    entry = next(v for v in libgemm.manifest()["variants"] if v["name"] == variant.name)
    return entry["kernel"].split(".")[-1], variant.shared_bytes


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("ragged", SHAPES)
@in_stand_in()
def test_packed_groups_are_explained_as_they_run(ragged, layout):
    a, b, out = SHAPES[ragged]
    offs = None if ragged == "none" else VersionedArray(at(5), (GROUPS,), "i32")
    with current(0):
        for out_dtype in ("bf16", "f32"):
            for odd in (0, 2):
                left, right = (array(i, x, layout[i] == "t", odd=odd) for i, x in enumerate((a, b)))
                libgemm.grouped_mm(left, right, offs, out=array(2, out, dtype=out_dtype, odd=2 * odd))
                words = {"ragged": ragged, "layout": layout, "out_dtype": out_dtype, "aligned": not odd}
                choice = libgemm.explain_grouped_mm(M, N, K, GROUPS, **words)
                variant, reason = choice.variant, choice.reason
                assert launched() == kernel_of(variant) and " us expected" in reason
                assert libgemm.explain_grouped_mm(M, N, K, GROUPS, **words, target=TARGET) == choice
                assert (variant.op, variant.d_type, variant.trans_a) == ("grouped_mm", out_dtype, layout[0] == "t")


@in_stand_in()
def test_pointer_arrays_are_explained_as_they_run():
    names = ("a", "b", "d", "m", "n", "k", "lda", "ldb", "ldd")
    tables = {name: InterfaceArray(at(7) + 256 * i, (3,), "i64") for i, name in enumerate(names)}
    for dtype, out_dtype, aligned in (("f16", None, True), ("f16", "f32", False), ("bf16", None, False)):
        libgemm.grouped_gemm_tables(**tables, dtype=dtype, out_dtype=out_dtype, trans_b=True, aligned=aligned)
        choice = libgemm.explain_grouped_gemm(3, dtype, out_dtype=out_dtype, aligned=aligned, target=TARGET)
        variant, reason = choice.variant, choice.reason
        assert launched() == kernel_of(variant) and variant.align16 == (aligned and TARGET == 90)
        assert ("aligned = 1" in reason) == (not aligned and TARGET == 90)  # what would be faster
    relu = libgemm.explain_grouped_gemm(3, activation="relu", target=TARGET).variant
    tf32 = libgemm.explain_grouped_gemm(3, "f32", precision="tf32", layout="tn", target=BUILT[0]).variant
    assert not relu.align16 and (tf32.target, tf32.precision, tf32.trans_a) == (BUILT[0], "tf32", True)


@needs(90)
def test_groups_that_are_done_before_their_descriptors_keep_the_small_tile():
    """As measured on an H200: bench/NOTES.md."""
    for groups, expected, is_large in (
        (4, (128, 128, 128), False), (4, (512, 512, 512), False), (128, (96, 96, 64), False), (1, (1, 1, 1), False),
        (4096, (128, 128, 64), True), (256, (128, 512, 512), True), (4, (1024, 1024, 1024), True),
        (16, (2048, 2048, 2048), True),
    ):  # fmt: skip
        chosen = libgemm.explain_grouped_gemm(groups, layout="nn", expected=expected, target=TARGET).variant
        assert (chosen.name.endswith("_scratch")) == is_large, (groups, expected)


def test_nothing_runs_without_groups_or_rows():
    for choice in (
        libgemm.explain_grouped_mm(M, N, K, 0, target=TARGET),
        libgemm.explain_grouped_mm(0, N, K, 3, target=TARGET),
        libgemm.explain_grouped_gemm(0, target=TARGET),
    ):
        assert choice.variant is None and "empty" in choice.reason


WRONG = [
    (lambda: libgemm.explain_grouped_mm(8, 8, 8, 2, ragged="rows", target=TARGET), "ragged = 'rows'"),
    (lambda: libgemm.explain_grouped_mm(8, 8, 8, 2, layout="xx", target=TARGET), "layout = 'xx'"),
    (lambda: libgemm.explain_grouped_mm(8, 8, 8, -1, target=TARGET), "groups = -1"),
    (lambda: libgemm.explain_grouped_mm(8, 8, 8, 2, "f32", target=TARGET), "precision is needed"),
    (lambda: libgemm.explain_grouped_gemm(2, "int8", target=TARGET), "dtype int8"),
    (lambda: libgemm.explain_grouped_gemm(65536, target=TARGET), "groups = 65536"),
    (lambda: libgemm.explain_grouped_gemm(2, target=75), "target = 75"),
]


@pytest.mark.parametrize(("ask", "part"), WRONG, ids=[part for _, part in WRONG])
def test_a_wrong_question_is_refused(ask, part):
    with pytest.raises(libgemm.Error, match=part):
        ask()


def test_the_command_explains_packed_groups():
    words = ["explain", "4096", "2048", "32768", "--groups", "8", "--target", str(TARGET), "--layout", "tn"]
    choice = libgemm.explain_grouped_mm(4096, 2048, 32768, 8, ragged="k", layout="tn", target=TARGET)
    variant, reason = choice.variant, choice.reason
    done = run(sys.executable, "-m", "libgemm", *words, "--ragged", "k", driver=False)
    assert (done.returncode, done.stdout) == (0, f"{variant.name}\n{reason}\n")
    done = run(sys.executable, "-m", "libgemm", *words, "--ragged", "x", driver=False)
    assert done.returncode == 1 and "ragged = 'x'" in done.stderr


NOT_NUMBERS = {
    "m": (lambda x: libgemm.explain(x, 8, 8, target=TARGET), 64),
    "n": (lambda x: libgemm.explain(8, x, 8, target=TARGET), 64),
    "k": (lambda x: libgemm.explain_grouped_mm(8, 8, x, 2, target=TARGET), 64),
    "batch": (lambda x: libgemm.explain(8, 8, 8, batch=x, target=TARGET), 64),
    "target": (lambda x: libgemm.explain(8, 8, 8, target=x), 32),
    "groups": (lambda x: libgemm.explain_grouped_gemm(x, target=TARGET), 64),
    "device": (libgemm.preload, 32),
    "index": (libgemm.inspect.cubin, 32),
}


@pytest.mark.parametrize("name", NOT_NUMBERS)
@pytest.mark.parametrize("value", ["8", 8.0, float("nan"), None, 10**30, -(10**30)])
def test_what_is_no_integer_of_c_is_refused_by_name(name, value):
    call, bits = NOT_NUMBERS[name]
    with pytest.raises(libgemm.Error) as caught:
        call(value)
    assert caught.value.text == f"{name} = {value!r}: an integer of {bits} bits is needed"


def test_sizes_whose_product_no_stride_holds_are_refused_as_sizes():
    with pytest.raises(libgemm.Error, match=f"m = {2**62}: allowed is 0 to"):
        libgemm.explain(2**62, 2**62, 2**62, target=TARGET)


def test_more_tiles_than_a_launch_takes_are_refused_as_the_call_refuses_them():
    with pytest.raises(libgemm.Error, match=r"\d{12,} tiles in each of 1 products: one launch takes 2147418112 in all"):
        libgemm.explain(2_000_000_000, 2_000_000_000, 64, target=TARGET)
    with pytest.raises(libgemm.Error, match="tiles in each of 2000000000 products"):
        libgemm.explain(4096, 4096, 64, batch=2_000_000_000, target=TARGET)


def test_where_nothing_is_read_no_other_operands_are_advised():
    assert "us with" in libgemm.explain(100, 100, 8, aligned=False, target=TARGET).reason
    assert "us with" not in libgemm.explain(100, 100, 0, target=TARGET).reason


def test_the_reason_says_from_how_many_kernels():
    choice = libgemm.explain(512, 512, 512, target=TARGET)
    assert f"{choice.expected_us:.4g} us expected, chosen from " in choice.reason
