"""What TMA moves at a time: boxes of operands and of D, by rows of the table. No GPU."""

import pytest

from kernels.table.boxes import box_of, shares_k, whole_rows
from kernels.table.sm90 import hopper_variant
from kernels.table.spec import Problem, SpecError, Variant


def flex(
    family: str = "flex_coop", layout: str = "nt", d: str = "bf16", tile=(128, 144, 64), cluster: int = 1,
    across: int = 1,
) -> Variant:  # fmt: skip
    row = hopper_variant(Problem("gemm", "bf16", d, "exact", layout), family, *tile, cluster, across)
    assert row is not None
    return row


@pytest.mark.parametrize(
    ("rows", "sharers", "box", "whole", "lines"),
    [
        (32, 1, 32, 32, None),  # one box
        (64, 1, 64, 64, None),
        (64, 4, 64, 64, 16),  # of one box each loads 16 steps of K
        (96, 1, 32, 96, None),  # two of 64 would bring 128
        (144, 1, 32, 160, None),
        (160, 1, 32, 160, None),
        (176, 1, 64, 192, None),  # three of 64 bring no more than six of 32
        (160, 2, 32, 160, 32),
        (192, 2, 64, 192, 32),
        (128, 2, 64, 128, None),  # each a box
        (256, 4, 64, 256, None),
        (256, 8, 64, 256, 8),
        (208, 1, 64, 256, None),  # more than 192 rows never come by 32
    ],
)
def test_an_operand_contiguous_along_its_rows_comes_in_boxes_that_waste_least(rows, sharers, box, whole, lines):
    assert (box_of(rows), whole_rows(rows, True, sharers)) == (box, whole)
    assert shares_k(rows, sharers) == (lines is not None)
    row = hopper_variant(Problem("gemm", "bf16", "bf16", "exact", "tn"), "flex_coop_swap", rows, 128, 64, sharers)
    assert row and row.box("a_desc") == ("bf16", 64, box)  # its A is on the instruction's right
    assert row.box_rows("a_desc") == lines
    row.check()


@pytest.mark.parametrize(
    ("rows", "sharers", "whole"), [(112, 4, 112), (136, 4, 136), (72, 4, 72), (80, 8, 80), (8, 1, 8)]
)
def test_rows_that_are_not_turned_are_shared_to_the_row(rows, sharers, whole):
    assert whole_rows(rows, False, sharers) == whole and whole % sharers == 0


@pytest.mark.parametrize(
    ("row", "boxes"),
    [
        # A and B by rows of K; D by 64 columns and by 16, since 144 = 64 + 64 + 16
        (flex(), {"a_desc": 128, "b_desc": 144, "d_desc": None, "d_desc_2": 0, "d_desc_4": None, "d_desc_8": 0}),
        (flex(cluster=2), {"a_desc": 128, "b_desc": 72}),  # each of two blocks loads half of the right operand
        (flex("flex_coop_swap", tile=(144, 128, 64), cluster=2), {"a_desc": 72, "b_desc": 128}),
        (flex("flex_pingpong_swap", tile=(136, 64, 64), cluster=4), {"a_desc": 34, "b_desc": 64}),
        (flex(layout="tt"), {"a_desc": None, "b_desc": 144}),  # contiguous along M: 64 x 64 as declared
        # What is contiguous along N is shared by boxes, or where these are too few by steps in K.
        (flex("pingpong", layout="nn", tile=(128, 128, 64), cluster=2), {"a_desc": 128, "b_desc": None}),
        (flex("pingpong", layout="nn", tile=(128, 64, 64), cluster=4), {"a_desc": 128, "b_desc": 16}),
        (flex("pingpong", layout="tn", tile=(64, 128, 64), cluster=4, across=4), {"a_desc": 16, "b_desc": None}),
        (flex(tile=(128, 88, 64)), {"d_desc": None, "d_desc_2": 0, "d_desc_4": None, "d_desc_8": None}),
        (flex(d="f32", tile=(128, 96, 64)), {"d_desc": None, "d_desc_2": 0, "d_desc_4": 0, "d_desc_8": 0}),
        (flex("coop", tile=(128, 256, 64)), {"a_desc": 128, "b_desc": 256, "d_desc": None}),
        (flex("pingpong_swap", tile=(8, 128, 128)), {"a_desc": 8, "b_desc": 128, "d_desc": None}),
    ],
)
def test_boxes_of_a_tile_of_any_width_are_those_of_its_rows_and_parts(row, boxes):
    """None: as the compiler declared them; 0: no part leaves that way."""
    assert {name: row.box_rows(name) for name in boxes} == boxes


ODD_TILES = [("coop", (128, 144, 64), 144), ("pingpong", (64, 48, 64), 48), ("pingpong_swap", (24, 64, 64), 24)]


@pytest.mark.parametrize(("family", "tile", "right"), ODD_TILES)
def test_a_tile_whose_parts_differ_is_refused_by_a_family_that_has_one_box(family, tile, right):
    with pytest.raises(SpecError, match=f"= {right}: allowed is 8, 16, 32 or a multiple of 64, the columns"):
        flex(family, tile=tile).check()
