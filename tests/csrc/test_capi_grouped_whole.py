"""Rows of whole tiles for packed groups: what they ask of groups, launches, and that they are chosen. No numerics."""

import pytest
from built import needs
from calls import GROUPS, K, at, last_launch, mixed_types, ok, refused, values
from libgemm._library import text
from libgemm.inspect import variants
from stand_in import in_stand_in
from test_capi_fast import MULTIPROCESSORS
from test_capi_grouped_fast import BYTES, INNER, NOTHING, PRECISIONS, TYPES, call

pytestmark = needs(90)  # these rows are Hopper's


def whole_rows() -> list:
    return [v for v in variants() if v.name.endswith("_whole")]


def is_narrow(v) -> bool:
    return BYTES.get(v.a_type) == 1


def packed(v, ragged: int = INNER, **fields):
    """A gradient for this row: of 8 bits with scales, and contiguous along K."""
    made = {
        "m": 512,
        "n": 320,
        "k": K,
        **{f"ld{x}": 512 for x in "abcd"},
        "a_type": TYPES[v.a_type],
        **mixed_types(v.name),
    }
    if is_narrow(v):
        made |= {"precision": PRECISIONS.get(v.precision, 0), "scaling": 2, "a_scale": at(6), "b_scale": at(7)}
    return call(ragged, "nt" if is_narrow(v) else "tn", **{**made, "d_type": TYPES[v.d_type], **fields})


def test_there_are_some_of_each_type_for_gradients():
    rows = whole_rows()
    assert {(v.a_type, v.d_type) for v in rows} == {("f16", "f16"), ("bf16", "bf16"), ("e4m3", "bf16")}
    assert {v.precision for v in rows if is_narrow(v)} == {"exact", "fast"}
    assert all((v.trans_a, v.trans_b) == ((False, True) if is_narrow(v) else (True, False)) for v in rows)
    assert all(v.single and v.linear for v in rows)
    tiles = {"bf16 exact": {(192, 128), (64, 128), (128, 192), (128, 128)}, "e4m3 exact": {(128, 192), (128, 128)},
             "e4m3 fast": {(192, 128), (128, 128)}}  # fmt: skip
    tiles["f16 exact"] = tiles["bf16 exact"]
    found = {(f"{v.a_type} {v.precision}", v.block_m, v.block_n) for v in rows}
    assert found == {(kind, *tile) for kind, own in tiles.items() for tile in own}


@in_stand_in()
def test_a_group_has_as_many_rows_as_a_tile_a_multiple_of_8():
    for v in whole_rows():
        for ragged in (INNER, NOTHING):
            for m in (v.block_m, v.block_m + 8, 504):
                ok(packed(v, ragged, m=m, variant=v.name).run())
                assert "whole" in last_launch()["kernel"].split("_") and last_launch()["variant"] == v.name
            for m in (v.block_m - 8, v.block_m + 4, 1):
                refused(packed(v, ragged, m=m, variant=v.name).run(), "UNSUPPORTED", v.name, "as many rows as a tile")


@in_stand_in()
def test_no_c_is_read():
    for v in whole_rows():
        made = packed(v, c=at(2), beta=1.0, variant=v.name)
        refused(made.run(), "UNSUPPORTED", v.name, "beta = 0")
        refused(packed(v, activation=2, variant=v.name).run(), "UNSUPPORTED", v.name, "no activation")


@in_stand_in()
def test_blocks_are_no_more_than_tiles_or_multiprocessors():
    for v in whole_rows():
        tiles = -(-512 // v.block_m) * -(-320 // v.block_n) * GROUPS
        ok(packed(v, variant=v.name).run())
        assert last_launch()["grid"][0] == min(tiles, MULTIPROCESSORS)
        assert (values(last_launch())["M"], values(last_launch())["groups"]) == (512, GROUPS)


@in_stand_in()
@pytest.mark.parametrize("m", [2048, 4096])
@pytest.mark.parametrize("kind", [("bf16", "exact"), ("e4m3", "exact"), ("e4m3", "fast")])
def test_large_gradients_choose_them(kind, m):
    """Of the bench's layers, but with rows shared out evenly."""
    row = next(v for v in whole_rows() if (v.a_type, v.precision) == kind)
    ld = {"lda": 4096, "ldb": 4096} if is_narrow(row) else {"lda": m, "ldb": 2048}
    made = packed(row, m=m, n=2048, k=16 * 256, groups=16, ldc=2048, ldd=2048, **ld)
    assert text(made.variant(90).name).endswith("_whole")
    assert not text(made.set(d_type=TYPES["f32"]).variant(90).name).endswith("_whole")
    made = packed(row, m=m, n=2048, k=16 * 256, groups=16, ldc=2048, ldd=2048, **ld)
    assert not text(made.set(c=at(2), beta=1.0).variant(90).name).endswith("_whole")
