"""Rows that see packed groups as whole matrices: what operands they take, launches, tensor maps. Proves no numerics."""

import itertools
import struct

import pytest
from built import needs
from calls import GROUPS, Call, K, M, N, at, last_launch, launches, mixed_types, ok, records, refused, values, write
from libgemm._library import text
from libgemm.inspect import variants
from stand_in import in_stand_in
from test_capi_fast import MULTIPROCESSORS, maps

pytestmark = needs(90)  # these rows are Hopper's

ROWS, COLUMNS, INNER, NOTHING = range(4)  # libgemm_ragged
LD = 128  # of every operand
MOST = 2**31 - 257  # LIBGEMM_MAX_SIZE
TYPES = {"f16": 1, "bf16": 2, "f32": 3, "e4m3": 4}
BYTES = {"f32": 4, "e4m3": 1}  # others have 2
PRECISIONS = {"tf32": 1, "fast": 4}
LAYOUTS = ("nn", "nt", "tn", "tt")
OWN = {ROWS: "b", COLUMNS: "a", INNER: "cd", NOTHING: "abcd"}  # what each group has one of its own of


def call(ragged: int, layout: str = "nt", **fields) -> Call:
    """A legal call that such a row takes: groups stand one behind the other."""
    made = {"m": M, "n": N, "k": K, **{f"ld{x}": LD for x in "abcd"}, **fields}
    turned = {"trans_a": int(layout[0] == "t"), "trans_b": int(layout[1] == "t")}
    rows = {"a": made["k" if turned["trans_a"] else "m"], "b": made["n" if turned["trans_b"] else "k"]}
    strides = {f"batch_stride_{x}": rows.get(x, made["m"]) * made[f"ld{x}"] for x in "abcd"}
    return Call("grouped_mm", **{"ragged": ragged, **turned, **strides, "d": at(8), **made})


def kind(made: Call) -> str:
    """What ends the row that would run asks for; "" where it asks for none: a reference row."""
    found = made.variant(90)
    words = text(found.name).split("_")
    assert found.single == ("descriptor" in words) and found.align16 == (found.single or "align16" in words)
    return next((word for word in words if word in ("rows", "equal")), "")


def fast_rows(*guards: str) -> list:
    """But those whose blocks share K: test_capi_grouped_cluster.py."""
    found = [v for v in variants() if v.op == "grouped_mm" and v.target == 90 and v.single]
    found = [v for v in found if "_cluster" not in v.name]
    return [v for v in found if all(f"_{guard}" in v.name for guard in guards)]


def row_for(ragged: int, layout: str):
    """One for the types of a call; linear."""
    guard = "rows" if ragged == ROWS else "equal"
    found = [v for v in fast_rows("linear", guard) if (v.a_type, v.d_type) == ("bf16", "bf16")]
    return next(v for v in found if "nt"[v.trans_a] + "nt"[v.trans_b] == layout)


# What is cut must not be what is contiguous: TMA begins only at multiples of 16 bytes within a stored row.
CUTS = [(ROWS, "nn"), (ROWS, "nt"), (INNER, "tn"), *((NOTHING, layout) for layout in LAYOUTS)]
ALIGNED = "16-byte aligned"
STEPS = "whole rows apart"
# fields -> words of the refusal; a pointer's number is its place, moved by one element
REFUSED = [
    *[({x: place}, ALIGNED) for x, place in (("a", 0), ("b", 1), ("d", 8))],
    *[({f"ld{x}": LD + 4}, ALIGNED) for x in "abd"],
    ({"c": 2, "beta": 1.0}, ALIGNED),
    ({"ldc": LD + 4, "beta": 1.0}, ALIGNED),
    ({"lda": 2**39}, ALIGNED),  # 2^40 bytes
    ({"n": N - 4}, ALIGNED),
    ({"n": 9}, ALIGNED),
    ({"alpha": 0.0}, "alpha != 0"),
    ({"k": 0}, "k > 0"),
    ({"activation": 2}, "no activation"),
]
TAKEN = [
    {"m": M - 5},
    {"m": 1},
    {"n": 8},
    {"c": 2, "ldc": LD + 4},  # not read
    {"bias": 4, "batch_stride_bias": 3},
    {"alpha": -0.5, "beta": 2.0},
    {"groups": 1, **{f"batch_stride_{x}": 2**40 + 3 for x in "abcd"}},
    {"offs_format": 4, "zero_tail": 1},
]


def changed(ragged: int, layout: str, fields: dict) -> Call:
    return call(ragged, layout, **{x: at(v) + 2 if x in ("a", "b", "c", "d", "bias") else v for x, v in fields.items()})


def falls_back(made: Call, ragged: int, layout: str, words: str) -> None:
    """The call runs a reference row; the fast one, by name, is refused."""
    before, name = len(launches()), row_for(ragged, layout).name
    if "activation" not in words:
        assert kind(made) == ""
        ok(made.run())
        assert last_launch()["kernel"] == "grouped_mm" and len(launches()) == before + 1
    made.set(variant=name)
    refused(made.run(), "UNSUPPORTED", name, words)
    refused(made.explain(90)[0], "UNSUPPORTED", name, words)


@pytest.mark.parametrize(("ragged", "layout"), CUTS)
@in_stand_in()
def test_what_the_copy_engine_cannot_address_goes_to_a_reference_row(ragged, layout):
    for fields, words in REFUSED:
        falls_back(changed(ragged, layout, fields), ragged, layout, words)


@pytest.mark.parametrize(("ragged", "layout"), CUTS)
@in_stand_in()
def test_odd_extents_and_what_is_not_read_are_fine(ragged, layout):
    for fields in TAKEN:
        made = changed(ragged, layout, fields)
        assert kind(made) == ("rows" if ragged == ROWS else "equal"), fields
        ok(made.run())
        ok(made.set(variant=row_for(ragged, layout).name).run())
    assert {launch["grid"][0] for launch in launches()} <= set(range(1, MULTIPROCESSORS + 1))


@pytest.mark.parametrize(("ragged", "layout"), CUTS)
@in_stand_in()
def test_groups_must_stand_whole_rows_apart(ragged, layout):
    for x in set(OWN[ragged]) - {"c"}:
        names = [f"batch_stride_{y}" for y in ("cd" if x == "d" else x)]
        rows = getattr(call(ragged, layout).args, names[0]) // LD
        most = (MOST - rows) // (GROUPS - 1)

        def apart(elements: int, names=names) -> Call:
            return call(ragged, layout, beta=1.0, **dict.fromkeys(names, elements))

        for step in (rows if x == "d" else 0, rows, rows + 7, most):  # all groups may share an A or B
            assert kind(apart(step * LD)) != "", (x, step)
        for elements in (rows * LD + 8, -rows * LD, (most + 1) * LD):
            falls_back(apart(elements), ragged, layout, STEPS)
    if "d" in OWN[ragged]:
        other = {"batch_stride_c": (M + 1) * LD}
        falls_back(call(ragged, layout, **other, beta=1.0), ragged, layout, STEPS)
        assert kind(call(ragged, layout, **other)) == "equal"  # C is not read


@in_stand_in()
def test_a_row_major_b_of_several_groups_may_have_any_k():
    """What its last step in K would read of the next group's B, TMA sets to zero: maps have a plane for each group."""
    for layout, k in itertools.product(("nn", "nt"), (8, 63, 72, 96)):
        for groups in (1, GROUPS):
            assert kind(call(ROWS, layout, k=k, groups=groups)) == "rows"
        assert kind(call(INNER, "tn", k=k)) == kind(call(NOTHING, layout, k=k)) == "equal"
    tf32 = {"a_type": 3, "d_type": 3, "precision": 1}
    assert kind(call(ROWS, "nt", k=36, **tf32)) == "rows" and kind(call(ROWS, "nn", k=64, **tf32)) == ""


@in_stand_in()
def test_rows_are_for_what_their_ends_cut():
    for layout in LAYOUTS:
        assert kind(call(COLUMNS, layout)) == ""
        equal = row_for(NOTHING, layout).name
        refused(call(ROWS, layout, variant=equal).run(), "UNSUPPORTED", "ends that cut K of")
        refused(call(COLUMNS, layout, variant=equal).run(), "UNSUPPORTED", "ends that cut K of")
        if layout[0] == "t":
            assert kind(call(ROWS, layout)) == ""  # its rows are what is contiguous
        else:
            rows = row_for(ROWS, layout).name
            refused(call(COLUMNS, layout, variant=rows).run(), "UNSUPPORTED", "ends that cut the rows")
            refused(call(NOTHING, layout, variant=rows).run(), "UNSUPPORTED", "ends that cut the rows")
        if layout != "tn":
            assert kind(call(INNER, layout)) == ""  # K is contiguous in A or in B
            refused(call(INNER, layout, variant=equal).run(), "UNSUPPORTED", "ends that cut K of a transposed A")
    for n, guard in ((84, "rows"), (82, "")):  # 16 bytes of D's type
        assert kind(call(ROWS, d_type=3, n=n)) == guard


@in_stand_in()
def test_tiles_must_be_countable():
    far = {"lda": 2**31, "ldb": 2**31, "ldc": 2**31, "ldd": 2**31}
    for n, guard in ((4095 * 64, "rows"), (4095 * 64 + 8, "")):  # 128 groups of all rows, in tiles of 32 x 64
        assert kind(call(ROWS, m=4096 * 32, n=n, batch_stride_b=0, **far)) == guard
    strides = {"batch_stride_a": 2**31, "batch_stride_b": 0, "batch_stride_d": 2**31}
    for tiles, guard in ((2**15 - 1, "equal"), (2**15, "")):  # of each group, and a grid of blocks below 2^31 in all
        n = tiles * 64
        assert kind(call(NOTHING, "nn", m=1, n=n, groups=65535, **far, **strides)) == guard


@in_stand_in()
def test_an_empty_product_is_explained_whatever_its_leading_dimensions():
    for ragged, size in itertools.product(range(4), "mn"):
        made = call(ragged, **{size: 0}, lda=0, ldb=0, ldc=0, ldd=0)
        ok(made.run())
        assert made.explain(90)[1].variant == -1
    assert launches() == []


def pinned(v, ragged: int, **fields) -> Call:
    types = {"a_type": TYPES[v.a_type], "d_type": TYPES[v.d_type], "precision": PRECISIONS.get(v.precision, 0)}
    if "_scaled_" in v.name:
        types |= {"scaling": 3 if "_blocks" in v.name else 2, "a_scale": at(9), "b_scale": at(10)}
        types |= mixed_types(v.name)
    return call(ragged, "nt"[v.trans_a] + "nt"[v.trans_b], variant=v.name, **types, **fields)


@in_stand_in()
def test_of_8_bit_operands_ends_cut_a_contiguous_k():
    """A group begins anywhere in a line; loads begin before it, at 16 bytes, which the kernel sees to."""
    e4m3 = {"a_type": 4, "d_type": 2, "scaling": 2, "a_scale": at(9), "b_scale": at(10)}
    strides = {"batch_stride_a_scale": M, "batch_stride_b_scale": N}
    for ragged, fields in itertools.product(
        (INNER, NOTHING), ({}, {"scaling": 1}, {"precision": 4}, {"d_type": 3}, {"b_type": 5})
    ):
        made = call(ragged, "nt", **{**e4m3, **strides, **fields})
        assert kind(made) == "equal", (ragged, fields)
        ok(made.run())
        found = values(last_launch())
        assert [found[f"batch_stride_{x}_scale"] for x in "ab"] == [M, N] and found["d_step"] == M
    for layout in LAYOUTS:
        if layout != "nt":
            assert kind(call(INNER, layout, **e4m3)) == kind(call(NOTHING, layout, **e4m3)) == ""
    for fields in ({"d_type": 1}, {"activation": 1}, {"lda": LD + 8}, {"k": 0}):
        assert kind(call(INNER, "nt", **{**e4m3, **fields})) == "", fields
    assert kind(call(NOTHING, "nt", **{**e4m3, "scaling": 3})) == ""  # blocks
    assert kind(call(INNER, "nt")) == ""  # 16-bit operands: not within a stored row


def most_tiles(v, ragged: int, m: int, n: int) -> int:
    if ragged == COLUMNS:
        return -(-m // v.block_m) * (n // v.block_n + GROUPS)
    rows = m // v.block_m + GROUPS if ragged == ROWS else GROUPS * -(-m // v.block_m)
    return rows * -(-n // v.block_n)


def cuts_of(v) -> tuple:
    """What the ends may cut of a row's operands."""
    if "_rows" in v.name:
        return (ROWS,)
    if "_columns" in v.name:
        return (COLUMNS,)
    cuts_k = v.a_type == "e4m3" or (v.trans_a and not v.trans_b)
    return (INNER, NOTHING) if cuts_k else (NOTHING,)


@in_stand_in()
def test_every_row_launches_as_many_blocks_as_fit_and_describes_matrices_group_by_group():
    seen = fast_rows()
    assert len(seen) > 40 and sum(len(fast_rows(cut)) for cut in ("rows", "columns", "equal")) == len(seen)
    for v in seen:
        element, d_bytes = (BYTES.get(x, 2) for x in (v.a_type, v.d_type))
        for ragged in cuts_of(v):
            whole = "_whole" in v.name  # test_capi_grouped_whole.py
            for m, n in ((2 * M if whole else M, N), (3000, 128)):
                made = pinned(v, ragged, m=m, n=n, beta=float(not whole), lda=4096)
                ok(made.set(batch_stride_a=4096 * 5000).run())
                launch = last_launch()
                assert launch["grid"] == [min(most_tiles(v, ragged, m, n), MULTIPROCESSORS), 1, 1], v.name
                assert (launch["block"], launch["shared"]) == ([32 * v.warps, 1, 1], v.shared_bytes), v.name
                assert (launch["cluster"], launch["programmatic"]) == (1, 1), v.name
                steps = {"a": 5000, "b": n if v.trans_b else K, "d": m}
                steps = {x: step if x in OWN[ragged] else 0 for x, step in steps.items()}
                found = values(launch)
                told = {x: found[f"{x}_step"] for x in "abd" if f"{x}_step" in found}
                assert told == ({"a": 5000} if ragged == COLUMNS else steps), v.name
                assert (found["M"], found["N"], found["K"], found["groups"]) == (m, n, K, GROUPS), v.name
                shapes = {"a": (m, K)[:: -1 if v.trans_a else 1], "b": (K, n)[:: -1 if v.trans_b else 1]}
                boxes = {box["name"][0]: box for box in records()[v.name]["boxes"]}
                assert "".join(sorted(boxes)) == ("ab" if ragged == COLUMNS else "abcd"), v.name
                for x, box in boxes.items():
                    rows, cols = shapes.get(x, (m, n))
                    ld = (4096 if x == "a" else LD) * (element if x in "ab" else d_bytes)
                    sizes, strides, extents = [cols, rows + (GROUPS - 1) * steps["d"]], [ld], [box["cols"], box["rows"]]
                    if x in "ab":  # the third dimension is the group, of an operand of which each has its own
                        sizes = [cols, rows, GROUPS if steps[x] else 1]
                        strides, extents = [ld, ld * (steps[x] or 1)], [*extents, 1]
                    # as the stand-in writes a map: sizes, strides, box, strides of elements; rank, type, ..., swizzle
                    address, *words = struct.unpack_from("<Q5Q4Q5H5B4B", maps(launch)[x][1], 8)
                    rank = len(sizes)
                    place = "d" if whole and x == "c" else x  # of a C that is not read they are D's
                    assert address == (at(8) if place == "d" else at("abc".index(x))), v.name
                    assert (words[:rank], words[5 : 4 + rank]) == (sizes, strides), (v.name, x)
                    assert (words[9 : 9 + rank], words[19], words[20], words[22]) == (
                        extents, rank, box["element"], box["swizzle"],
                    ), v.name  # fmt: skip


@pytest.mark.parametrize(("form", "letter", "skip"), [(1, "i", 0), (2, "q", 0), (3, "i", 4), (4, "q", 8)])
@in_stand_in()
def test_ends_bias_and_tail_reach_the_kernel(form, letter, skip):
    offs = write(at(5), letter, [0] * bool(skip) + [10, 40, 64])
    for ragged, zero_tail in itertools.product((ROWS, INNER, NOTHING), (0, 1)):
        words = {"offs": offs, "offs_format": form, "bias": at(4), "batch_stride_bias": 96, "alpha": 0.5}
        layout = "tn" if ragged == INNER else "nt"
        ok(call(ragged, layout, **words, zero_tail=zero_tail, variant=row_for(ragged, layout).name).run())
        found = values(last_launch())
        assert found["offs_ptr"] == (0 if ragged == NOTHING else offs + skip)
        assert (found["offs_wide"], found["zero_tail"]) == (int(letter == "q"), zero_tail * (ragged == ROWS))
        assert (found["bias_ptr"], found["batch_stride_bias"]) == (at(4), 96)
        assert (found["d_ptr"], found["ldd"], found["alpha"], found["beta"]) == (at(8), LD, 0.5, 0.0)
    assert maps(last_launch())["c"][0] == at(8)  # a C that is not read may not exist


@in_stand_in()
def test_explain_tells_what_alignment_would_bring():
    sizes = {"m": 8192, "n": 4096, "k": 4096, **{f"ld{x}": 4096 for x in "abcd"}, "batch_stride_b": 4096 * 4096}
    made = call(ROWS, **sizes)
    assert made.explain(90)[1].expected_us > 0 and kind(made) == "rows"
    reason = text(call(ROWS, **sizes, a=at(0) + 2).explain(90)[1].reason)
    assert "with A, B, C and D with 16-byte aligned pointers" in reason
    assert "_rows" in text(call(ROWS, **sizes, activation=2).variant(90).name)  # the row that takes activations
    assert kind(call(ROWS, "tn", **{**sizes, "lda": 8192}, activation=2)) == ""
