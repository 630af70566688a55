"""kernels/device/sm90/team_layouts.py: what a thread of each warpgroup holds. No kernel runs."""

import itertools
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")

from triton.experimental.gluon import language as gl

from kernels.device.sm90.moe_mm import paired_layout
from kernels.device.sm90.output_assembly import box_facts
from kernels.device.sm90.team_layouts import is_of_all, part_layout, piece_layout, row_layout, tied_numbers, type_of_all

SIZES = [(64, 8), (64, 64), (64, 128), (128, 16), (128, 128), (128, 256)]


def place(layout, register: int, lane: int, warp: int) -> tuple[int, ...]:
    """Of the element that a register holds: each bit of the three numbers adds its basis, by exclusive or."""
    at = [0] * len(layout.shape)
    for number, bases in (
        (register, layout.reg_bases), (lane, layout.lane_bases), (warp, layout.warp_bases)
    ):  # fmt: skip
        for bit, basis in enumerate(bases):
            if number >> bit & 1:
                at = [a ^ b for a, b in zip(at, basis, strict=True)]
    return tuple(at)


def held(layout, warp: int) -> list[tuple[int, ...]]:
    return [place(layout, r, lane, warp) for r in range(1 << len(layout.reg_bases)) for lane in range(32)]


def of_warpgroup(layout, number: int) -> list[tuple[int, ...]]:
    return list(itertools.chain(*(held(layout, 4 * number + warp) for warp in range(4))))


def everywhere(shape) -> list[tuple[int, ...]]:
    return sorted(itertools.product(*(range(extent) for extent in shape)))


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_a_warpgroup_of_a_team_has_its_part_where_one_by_itself_has_it(rows, columns):
    alone, of_team = part_layout.fn(rows, columns, 4), part_layout.fn(rows, columns, 8)
    assert alone == gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 16])
    # PTX ISA, wgmma.mma_async, "Register fragments": two columns, eight rows further on, eight columns, 64 rows.
    own = [(row + half, column + one) for row in range(0, rows, 64) for column in range(0, columns, 8)
           for half in (0, 8) for one in (0, 1)]  # fmt: skip
    assert [place(of_team, r, 0, 0) for r in range(len(own))] == own
    assert [place(of_team, 0, lane, 0) for lane in range(32)] == [(lane // 4, lane % 4 * 2) for lane in range(32)]
    assert [place(of_team, 0, 0, warp) for warp in range(8)] == [(16 * (warp % 4), 0) for warp in range(8)]


@pytest.mark.parametrize(
    "layout",
    [
        *(part_layout.fn(*size, 8) for size in SIZES),
        *(piece_layout.fn(size, 8, 8) for size in ((64, 64), (128, 64), (32, 64), (32, 128), (16, 64))),
        piece_layout.fn((64, 32), 4, 8),
        piece_layout.fn((128, 64), 4, 8),
        *(row_layout.fn(length, 8) for length in (8, 32, 64, 128, 256)),
    ],
    ids=lambda layout: f"{layout.shape} {len(layout.reg_bases)}",
)
def test_both_warpgroups_of_a_team_have_all_of_a_tensor(layout):
    for number in range(2):
        assert sorted(set(of_warpgroup(layout, number))) == everywhere(layout.shape)
        assert of_warpgroup(layout, number) == of_warpgroup(layout, 0)


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_as_one_tensor_the_second_one_has_the_rows_below(rows, columns):
    layout = part_layout.fn(rows, columns, 8)
    kind = type_of_all.fn(gl.distributed_type(gl.float32, [rows, columns], layout))
    whole = kind.layout
    assert list(kind.shape) == [2 * rows, columns] and kind.element_ty == gl.float32
    assert held(whole, 0) == held(layout, 0)
    assert held(whole, 6) == [(row + rows, column) for row, column in held(layout, 2)]
    assert is_of_all.fn(kind) and not is_of_all.fn(SimpleNamespace(layout=layout))


def test_as_one_tensor_each_register_goes_in_where_it_comes_out():
    layout = part_layout.fn(64, 8, 8)
    for element, letter in ((gl.float32, "f"), (gl.bfloat16, "h"), (gl.int32, "r")):
        words = tied_numbers.fn(gl.distributed_type(element, [64, 8], layout))
        assert words == ",".join([f"={letter}"] * 4 + ["0", "1", "2", "3"])


@pytest.mark.parametrize(
    ("element", "rows", "columns", "copies"),
    [
        (gl.bfloat16, 64, 64, ((0, 0),)), (gl.bfloat16, 64, 128, ((0, 0), (8192, 64))),
        (gl.float32, 64, 64, ((0, 0), (8192, 32))), (gl.float32, 128, 32, ((0, 0),)), (gl.bfloat16, 64, 8, ((0, 0),)),
        (gl.bfloat16, 8, 256, ((0, 0), (1024, 64), (2048, 128), (3072, 192))), (gl.float8e4nv, 16, 64, ((0, 0),)),
        (gl.bfloat16, 128, 16, ((0, 0),)),
    ],
)  # fmt: skip
def test_a_box_goes_in_copies_as_wide_as_a_swizzled_line(element, rows, columns, copies):
    layout = gl.NVMMASharedLayout.get_default_for([rows, columns], element)
    block = SimpleNamespace(shape=[rows, columns], element_ty=element)
    found = box_facts.fn(SimpleNamespace(type=SimpleNamespace(block_type=block, layout=layout)))
    assert found == (rows * columns * element.primitive_bitwidth // 8, copies)


@pytest.mark.parametrize(("blocks", "width"), [(1, 32), (2, 64)])
def test_gate_and_up_in_turn_are_a_warpgroups_own_in_a_team_too(blocks, width):
    alone, of_team = paired_layout.fn(blocks, width, 4), paired_layout.fn(blocks, width, 8)
    assert sorted(itertools.chain(*(held(alone, warp) for warp in range(4)))) == everywhere(alone.shape)
    assert of_warpgroup(of_team, 0) == of_warpgroup(of_team, 1) == of_warpgroup(alone, 0)
