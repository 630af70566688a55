"""Operands that the TMA cannot read: copied to the workspace first, then a descriptor row, on the stand-in."""

import random
import struct

import libgemm
import pytest
from built import needs
from calls import Call, at, last_launch, launches, ok, records, refused, values
from libgemm._library import ffi, text
from stand_in import in_stand_in
from test_capi_fast import fast_rows, maps

from kernels.table.model import MACHINE

M, N, K = 2001, 1504, 1111  # rows of D fill pieces of 16 bytes; else no multiples of anything
SPACE = 12  # the last places; a workspace may be longer than a place, for nothing is written here
LAYOUTS = {"nn": (0, 0), "nt": (0, 1), "tn": (1, 0), "tt": (1, 1)}
EVEN = {"lda": 2048, "ldb": 1536, "ldc": 1536, "ldd": 1536}


def up(value: int, step: int) -> int:
    return -(-value // step) * step


def big(layout: str = "nt", **fields) -> Call:
    """A 16-bit call that descriptors could take as it is, and what is changed of that."""
    trans_a, trans_b = LAYOUTS[layout]
    return Call("gemm", **{"m": M, "n": N, "k": K, **EVEN, "trans_a": trans_a, "trans_b": trans_b, **fields})


def with_space(call: Call, more: int = 0) -> Call:
    return call.set(workspace=at(SPACE), workspace_bytes=call.workspace() + more)


def stored(layout: str) -> dict:
    """Rows and columns of A and of B in memory."""
    trans_a, trans_b = LAYOUTS[layout]
    return {"a": (K, M) if trans_a else (M, K), "b": (N, K) if trans_b else (K, N)}


def two_launches(call: Call) -> tuple[dict, dict]:
    before = len(launches())
    ok(call.run())
    copy, product = launches()[before:]
    assert (copy["kernel"], copy["stream"], copy["programmatic"]) == ("align", product["stream"], 1)
    assert copy["cluster"] == 1 and product["kernel"].startswith("gemm_")
    return copy, product


def copy_blocks(copy: dict, shapes: list) -> int:
    """Those that a copying launch's kernel needs for matrices of such rows and columns."""
    c = records()[copy["variant"]]["config"]
    return sum(
        up(rows, c["block_m"]) // c["block_m"] * (up(cols, c["block_n"]) // c["block_n"]) for rows, cols in shapes
    )


def map_of(launch: dict, name: str) -> tuple:
    """(address, sizes, bytes from row to row) in a launch's tensor map."""
    data = maps(launch)[name][1]
    found = struct.unpack_from("<Q5Q4Q", data, 8)
    return found[0], found[1:3], found[6]


CHANGES = {
    "lda": ({"lda": 2049}, "a"),
    "lda of an even count": ({"lda": 2050}, "a"),
    "ldb": ({"ldb": 1507}, "b"),
    "both": ({"lda": 2003, "ldb": 1505}, "ab"),
    "address of a": ({"a": 2}, "a"),
    "address of b": ({"b": 8}, "b"),
    "addresses, with an activation": ({"a": 4, "b": 14, "activation": 2}, "ab"),
    "lda, d and c elsewhere": ({"lda": 2049, "d": 2, "c": 6, "ldd": 1507, "ldc": 1509, "beta": 1.0}, "a"),
    "batch_invariant": ({"lda": 2049, "batch_invariant": 1}, "a"),
}


def moved(change: dict) -> dict:
    """Of an address, what is added."""
    return {name: at("abcd".index(name)) + v if name in ("a", "b", "c", "d") else v for name, v in change.items()}


@needs(90)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CHANGES)
@in_stand_in()
def test_an_odd_operand_is_copied_then_read_through_descriptors(name, layout):
    change, odd = CHANGES[name]
    call = with_space(big(layout, **moved(change)))
    copy, product = two_launches(call)
    place, copied, found = at(SPACE), [], values(copy)
    for letter in "ab":
        rows, cols = stored(layout)[letter]
        ld = up(cols, 64)
        source = {"address": getattr(call.args, letter), "ld": getattr(call.args, f"ld{letter}")}
        if letter in odd:
            assert [found[f"{letter}_{x}"] for x in ("rows", "cols", "transpose", "copy")] == [rows, cols, 0, place]
            assert (found[f"copy_ld{letter}"], found[f"ld{letter}"]) == (ld, source["ld"])
            assert found[f"{letter}_ptr"] == int(ffi.cast("uintptr_t", source["address"]))
            assert map_of(product, letter) == (place, (cols, rows), 2 * ld)
            place += rows * ld * 2
            copied.append((rows, cols))
        else:
            assert found[f"{letter}_rows"] == 0
            assert map_of(product, letter) == (at("ab".index(letter)), (cols, rows), 2 * source["ld"])
    assert copy["grid"] == [copy_blocks(copy, copied), 1, 1]
    assert place == at(SPACE) + call.args.workspace_bytes  # all that was asked for, and no byte behind it
    if change.get("d"):
        assert sorted(maps(product)) == ["a", "b"] and values(product)["d_ptr"] == at(3) + 2


@needs(90)
@pytest.mark.parametrize("name", CHANGES)
@in_stand_in()
def test_with_less_workspace_the_row_for_any_memory_runs_alone(name):
    call = with_space(big(**moved(CHANGES[name][0])))
    needed = call.args.workspace_bytes
    for space in ({"workspace_bytes": needed - 1}, {"workspace_bytes": 0}, {"workspace": 0, "workspace_bytes": needed}):
        call.set(workspace=at(SPACE)).set(**space)
        ok(call.run())
        assert last_launch()["kernel"] == "gemm"
        assert "copied" not in text(call.explain(90)[1].reason)
    assert len(launches()) == 3
    two_launches(call.set(workspace=at(SPACE)))  # and it is back, after the same call was remembered without
    assert "after A or B is copied to aligned rows in the workspace" in text(call.explain(90)[1].reason)


@needs(90)
@in_stand_in()
def test_what_copies_cannot_help_is_not_copied():
    space = {"workspace": at(SPACE), "workspace_bytes": 1 << 40}
    for change in (
        {},
        {"lda": 2049, "alpha": 0.0},
        {"lda": 2049, "k": 0},
        {"lda": 2049, "batch": 2, "batch_stride_d": 1 << 24},
        {"lda": 2049, "m": 32, "n": 32, "k": 32},  # a launch more saves nothing: 3.2 us
    ):
        call = big(**change, **space)
        assert call.workspace() == 0, change
        before = len(launches())
        ok(call.run())
        assert len(launches()) == before + 1 and last_launch()["kernel"] != "align", change


@needs(90)
@in_stand_in()
def test_a_pinned_row_reads_the_operands_as_they_are_or_refuses():
    v = next(v for v in fast_rows() if "_pingpong" in v.name and not v.trans_a and v.trans_b)
    call = big(lda=2049, workspace=at(SPACE), workspace_bytes=1 << 30, variant=v.name)
    refused(call.run(), "UNSUPPORTED", v.name, "16-byte aligned")
    assert launches() == []


FLOAT = {"a_type": 3, "d_type": 3, "precision": 1}
# What tensor cores want of tf32: K last. layout -> operands copied, and whether each is turned
TURNED = {"nn": {"b": 1}, "tn": {"a": 1, "b": 1}, "tt": {"a": 1}, "nt": {}}


@needs(90)
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@in_stand_in()
def test_tf32_in_other_layouts_is_turned_first(layout, odd):
    call = with_space(big(layout, **FLOAT, **({"lda": 2049, "ldb": 1537} if odd else {})))
    wanted = {x: TURNED[layout].get(x, 0) for x in "ab"} if odd else TURNED[layout]
    if not wanted:
        assert call.args.workspace_bytes == 0
        return
    copy, product = two_launches(call)
    assert "_tf32_nt__" in text(call.variant().name)
    found, place = values(copy), at(SPACE)
    for letter, (rows, cols) in stored(layout).items():
        if letter not in wanted:
            assert found[f"{letter}_rows"] == 0
            assert map_of(product, letter) == (at("ab".index(letter)), (cols, rows), 4 * EVEN[f"ld{letter}"])
            continue
        assert [found[f"{letter}_{x}"] for x in ("rows", "cols", "transpose")] == [rows, cols, wanted[letter]]
        rows, cols = (cols, rows) if wanted[letter] else (rows, cols)
        assert cols == K
        assert (found[f"{letter}_copy"], found[f"copy_ld{letter}"]) == (place, up(K, 32))
        assert map_of(product, letter) == (place, (K, rows), 4 * up(K, 32))
        place += rows * up(K, 32) * 4
    assert place == at(SPACE) + call.args.workspace_bytes


@needs(90)
@in_stand_in()
def test_float32_that_must_be_exact_is_not_copied():
    for change in ({"precision": 2}, {"precision": 3}, {"precision": 1, "batch_invariant": 1}):
        for layout in LAYOUTS:
            call = big(layout, **{**FLOAT, **change}, workspace=at(SPACE), workspace_bytes=1 << 40)
            assert call.workspace() == 0
            ok(call.run())
            assert last_launch()["kernel"] == "gemm"


@needs(90)
@pytest.mark.parametrize("odd", ["a", "b", "ab"])
@in_stand_in()
def test_a_product_behind_copies_may_share_k_in_the_rest_of_the_workspace(odd):
    few = {"m": 8, "n": 64, "k": 32768, "lda": 32768, "ldb": 32768, "ldc": 64, "ldd": 64}
    call = with_space(big(**few).set(**{f"ld{letter}": 32769 for letter in odd}))
    _, product = two_launches(call)
    found, copies = values(product), sum({"a": 8, "b": 64}[letter] for letter in odd) * 32768 * 2
    assert found["splits"] >= 2 and found["semaphores"] == at(SPACE) + copies
    assert found["partials"] == found["semaphores"] + 128
    assert call.args.workspace_bytes == copies + 128 + 8 * 64 * 4 * found["splits"]
    _, whole = two_launches(call.set(workspace_bytes=copies))
    assert values(whole).get("semaphores", 0) == 0  # the copies fit, the parts do not


@in_stand_in(SM=100)
def test_untuned_targets_with_a_copy_engine_copy_too():
    call = with_space(big(lda=2049))
    copy, product = two_launches(call)
    assert values(copy)["a_copy"] == at(SPACE) == map_of(product, "a")[0]
    assert "__sm100__" in text(call.variant().name)
    assert big("nn", **FLOAT).workspace() == 0


@in_stand_in(SM=80)
def test_targets_without_one_do_not():
    assert big(lda=2049).workspace() == 0


@needs(90)
@pytest.mark.parametrize("layout", ["tn", "tt"])
@in_stand_in()
def test_few_rows_of_a_transposed_a_are_turned_first_where_that_is_expected_to_be_faster(layout):
    """TMA brings 64 rows of such an A at least. 16-bit: B stays where it is."""
    m, n, k, ldb = 8, 11592, 4488, 11592 if layout == "tn" else 4488
    sizes = {"m": m, "n": n, "k": k, "lda": 16, "ldb": ldb, "ldc": n, "ldd": n}
    call = with_space(big(layout, **sizes))
    assert call.args.workspace_bytes == m * up(k, 64) * 2
    copy, product = two_launches(call)
    assert f"_n{layout[1]}__" in text(call.variant().name)
    found = values(copy)
    assert [found[f"a_{x}"] for x in ("rows", "cols", "transpose")] == [k, m, 1] and found["b_rows"] == 0
    assert map_of(product, "a") == (at(SPACE), (k, m), 2 * up(k, 64))
    before = len(launches())
    ok(big(layout, **sizes).run())  # without a workspace there is one launch
    assert len(launches()) == before + 1


@needs(90)
@in_stand_in()
def test_some_hundred_rows_of_a_transposed_a_are_turned_too_but_not_with_a_copy_for_alignment():
    sizes = {"m": 264, "n": 12272, "k": 6416, "lda": 264, "ldb": 6416, "ldc": 12272, "ldd": 12272}
    call = with_space(big("tt", **sizes))
    copy, _ = two_launches(call)
    found = values(copy)
    assert [found[f"a_{x}"] for x in ("rows", "cols", "transpose")] == [6416, 264, 1] and found["b_rows"] == 0
    assert "_nt__" in text(call.variant().name)
    misaligned = with_space(big("tt", **{**sizes, "ldb": 6417}))
    assert values(two_launches(misaligned)[0])["a_rows"] == 0


@needs(90)
@pytest.mark.parametrize("layout", ["tn", "tt"])
def test_a_transposed_a_is_turned_where_copy_and_product_are_expected_to_take_less(layout):
    """Never left as it is where that takes longer than both: 2 us of a launch and A read and written, and the other
    layout's product. Rows of K are whole lines, as those of a copy."""
    draw, turned = random.Random(f"turned {layout}"), 0
    for _ in range(250):
        m, n, k = 8 * round(2 ** draw.uniform(0, 7)), 8 * round(2 ** draw.uniform(3, 11)), 64 * draw.randint(1, 256)
        found = libgemm.explain(m, n, k, layout=layout, target=90)
        product = libgemm.explain(m, n, k, layout="n" + layout[1], target=90)
        us = product.expected_us + 2 + 4 * m * k / MACHINE.memory * 1e-3
        assert found.expected_us <= us * 1.002, (m, n, k)
        if "copied" in found.reason:
            turned += 1
            assert found.variant.name == product.variant.name and found.expected_us == pytest.approx(us, rel=2e-3)
    assert turned > 10
    m, n, k = (1032, 6560, 5952) if layout == "tn" else (1032, 4712, 15808)  # it would pay there, but is not asked
    found = libgemm.explain(m, n, k, layout=layout, target=90)
    product = libgemm.explain(m, n, k, layout="n" + layout[1], target=90)
    us = product.expected_us + 2 + 4 * m * k / MACHINE.memory * 1e-3
    assert "copied" not in found.reason and found.expected_us > 1.05 * us
