"""Packed groups whose ends cut what is contiguous: A or B copied, or turned, in the workspace first, then a row that
reads through tensor maps; on the stand-in. Proves no numerics."""

import pytest
from built import needs
from calls import Call, at, launches, ok, records, refused, values
from libgemm._library import ffi, text
from stand_in import in_stand_in
from test_capi_align import SPACE, copy_blocks, map_of, up

pytestmark = needs(90)  # these rows are Hopper's

ROWS, COLUMNS, INNER, NOTHING = range(4)  # libgemm_ragged
M, N, K, GROUPS = 1003, 1504, 1208, 5
SIZES = {"m": M, "n": N, "k": K, "groups": GROUPS, "lda": 1536, "ldb": 1536, "ldc": 1504, "ldd": 1504}
LAYOUTS = {"nn": (0, 0), "nt": (0, 1), "tn": (1, 0), "tt": (1, 1)}
EIGHT_BITS = {"a_type": 4, "d_type": 2}
# What ends cut, layout -> operands that are copied, each turned; their rows and columns as stored.
TURNED = {
    (ROWS, "tn"): {"a": (K, M)},
    (ROWS, "tt"): {"a": (K, M)},
    (COLUMNS, "nn"): {"b": (K, N)},
    (COLUMNS, "tn"): {"b": (K, N)},
    (INNER, "nn"): {"a": (M, K)},
    (INNER, "tt"): {"b": (N, K)},
    (INNER, "nt"): {"a": (M, K), "b": (N, K)},
}
AS_THEY_ARE = [(ROWS, "nn"), (ROWS, "nt"), (INNER, "tn"), (NOTHING, "tn"), (COLUMNS, "nt"), (COLUMNS, "tt")]


def big(ragged: int, layout: str, **fields) -> Call:
    """A call whose groups stand one behind the other, at leading dimensions that TMA takes."""
    trans_a, trans_b = LAYOUTS[layout]
    made = {**SIZES, "ragged": ragged, "trans_a": trans_a, "trans_b": trans_b, "d": at(8), **fields}
    rows = {"a": K if trans_a else M, "b": N if trans_b else K}
    strides = {f"batch_stride_{x}": rows.get(x, M) * made[f"ld{x}"] for x in "abcd"}
    return Call("grouped_mm", **{**strides, **made})


def with_space(call: Call) -> Call:
    return call.set(workspace=at(SPACE), workspace_bytes=call.workspace())


def two_launches(call: Call) -> tuple[dict, dict]:
    before = len(launches())
    ok(call.run())
    copy, product = launches()[before:]
    assert (copy["kernel"], copy["stream"], copy["programmatic"]) == ("align", product["stream"], 1)
    assert product["kernel"].startswith("grouped_mm_")
    return copy, product


def check_copies(call: Call, wanted: dict, turned: bool, bytes_: int = 2) -> None:
    """That just these are copied, and what reads them is told where; all the workspace is used."""
    copy, product = two_launches(call)
    found, place = values(copy), at(SPACE)
    for letter in "ab":
        if letter not in wanted:
            assert found[f"{letter}_rows"] == 0
            assert map_of(product, letter)[0] == at("ab".index(letter))
            continue
        rows, cols = wanted[letter]
        assert [found[f"{letter}_{x}"] for x in ("rows", "cols", "transpose", "copy")] == [rows, cols, turned, place]
        assert found[f"{letter}_ptr"] == int(ffi.cast("uintptr_t", getattr(call.args, letter)))
        assert found[f"ld{letter}"] == getattr(call.args, f"ld{letter}")
        rows, cols = (cols, rows) if turned else (rows, cols)
        ld = up(cols, 128 // bytes_)
        assert found[f"copy_ld{letter}"] == ld
        assert map_of(product, letter) == (place, (cols, rows), bytes_ * ld)
        place += rows * ld * bytes_
    row, aligned = records()[copy["variant"]], all(cols * bytes_ % 16 == 0 for _, cols in wanted.values())
    assert (row["config"]["block_m"] == row["config"]["block_n"]) == turned  # whole lines are read and written
    assert ("align16" in row["guard"]) == (turned and aligned)
    assert copy["grid"] == [copy_blocks(copy, list(wanted.values())), 1, 1]
    assert place == at(SPACE) + call.args.workspace_bytes


@pytest.mark.parametrize(("ragged", "layout"), TURNED)
@in_stand_in()
def test_what_ends_cut_is_turned_where_it_is_contiguous(ragged, layout):
    for words in ({}, {"beta": 1.0, "bias": at(4)}, {"a_type": 1, "d_type": 1}, {"d_type": 3}):
        call = with_space(big(ragged, layout, **words))
        check_copies(call, TURNED[ragged, layout], turned=True)
        found = call.variant(90)
        as_it_is = LAYOUTS[layout]
        assert (found.trans_a, found.trans_b) == {
            ROWS: (0, as_it_is[1]), COLUMNS: (as_it_is[0], 1), INNER: (1, 0),
        }[ragged]  # fmt: skip
        assert "after A or B is copied to aligned rows in the workspace" in text(call.explain(90)[1].reason)


@pytest.mark.parametrize(("ragged", "layout"), AS_THEY_ARE)
@in_stand_in()
def test_nothing_is_copied_where_rows_take_it_as_it_is_or_not_at_all(ragged, layout):
    for words in ({}, {"alpha": 0.0}, {"k": 0}):
        assert big(ragged, layout, **words).workspace() == 0
    call = big(ragged, layout, workspace=at(SPACE) + 3, workspace_bytes=1 << 30)  # nor is the workspace looked at
    ok(call.run())
    assert len(launches()) == 1


@pytest.mark.parametrize(("ragged", "layout"), [(ROWS, "nn"), (ROWS, "nt"), (INNER, "tn")])
@in_stand_in()
def test_odd_leading_dimensions_are_mended_of_what_is_one_matrix(ragged, layout):
    a = (K, M) if LAYOUTS[layout][0] else (M, K)
    check_copies(with_space(big(ragged, layout, lda=1537)), {"a": a}, turned=False)
    both = big(ragged, layout, lda=1537, ldb=1539)
    if ragged == ROWS:  # each group has its own B
        assert both.workspace() == 0
    else:
        check_copies(with_space(both), {"a": a, "b": (K, N)}, turned=False)


@pytest.mark.parametrize(("layout", "wanted"), [
    ("nn", {"b": (K, N)}), ("tt", {"a": (K, M)}), ("tn", {"a": (K, M), "b": (K, N)}), ("nt", {}),
])  # fmt: skip
@in_stand_in()
def test_8_bit_operands_are_turned_until_k_is_contiguous(layout, wanted):
    call = with_space(big(INNER, layout, **EIGHT_BITS))
    if not wanted:
        assert call.args.workspace_bytes == 0
        return
    check_copies(call, wanted, turned=True, bytes_=1)
    # How sums of 128 of K are cut depends on where a group begins: no such row is batch-invariant.
    assert big(INNER, layout, **EIGHT_BITS, batch_invariant=1).workspace() == 0
    of_rows = big(ROWS, layout, **EIGHT_BITS).workspace()
    assert (of_rows > 0) == (layout == "tt")  # a B of each group stays as it is


@in_stand_in()
def test_what_no_row_takes_even_turned_is_not_copied():
    """Tensor cores want K last of float32, where ends that cut it would begin inside a line. A row for whole groups of
    that layout must not be taken for one of these."""
    tf32 = {"a_type": 3, "d_type": 3, "precision": 1}
    unserved = [(INNER, layout, tf32) for layout in LAYOUTS] + [(COLUMNS, layout, tf32) for layout in LAYOUTS]
    unserved += [(COLUMNS, layout, EIGHT_BITS) for layout in LAYOUTS]
    for ragged, layout, words in unserved:
        call = big(ragged, layout, **words, workspace=at(SPACE), workspace_bytes=1 << 40)
        before = len(launches())
        ok(call.run())
        assert [launch["kernel"] for launch in launches()[before:]] == ["grouped_mm"], (ragged, layout, words)


@in_stand_in()
def test_with_less_workspace_the_row_for_any_memory_runs_alone():
    for (ragged, layout), _ in TURNED.items():
        call = with_space(big(ragged, layout))
        needed = call.args.workspace_bytes
        for space in ({"workspace_bytes": needed - 1}, {"workspace_bytes": 0}, {"workspace": 0}):
            call.set(workspace=at(SPACE), workspace_bytes=needed).set(**space)
            before = len(launches())
            ok(call.run())
            assert [launch["kernel"] for launch in launches()[before:]] == ["grouped_mm"]
        two_launches(call.set(workspace=at(SPACE), workspace_bytes=needed))  # after the same one without was remembered


@in_stand_in()
def test_a_workspace_that_cannot_be_used_is_refused_before_anything_runs():
    call = with_space(big(*next(iter(TURNED))))
    refused(call.set(workspace=at(SPACE) + 8).run(), "INVALID_ARGUMENT", "workspace", "a multiple of 16")
    refused(call.set(workspace=at(SPACE, 1)).run(), "INVALID_ARGUMENT", "workspace")
    assert launches() == []


@in_stand_in()
def test_a_row_whose_bits_depend_on_no_other_is_not_copied_since_that_pays_for_many_alone():
    for ragged, layout in TURNED:
        call = big(ragged, layout, batch_invariant=1, workspace=at(SPACE), workspace_bytes=1 << 40)
        assert call.workspace() == 0
        before = len(launches())
        ok(call.run())
        assert [launch["kernel"] for launch in launches()[before:]] == ["grouped_mm"]


@in_stand_in()
def test_small_groups_are_not_worth_a_launch_more():
    for ragged, layout in TURNED:
        assert big(ragged, layout, m=64, n=64, k=64, groups=2).workspace() == 0
