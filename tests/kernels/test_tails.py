"""What is cleared where ends cut K of operands that are contiguous along it, by running the assembly. No GPU."""

import random

import pytest
from ptx import Thread

pytest.importorskip("triton")
from kernels.device.sm90.edges import keep_assembly
from kernels.device.sm90.tails import trim_assembly

LINE, PIECE = 128, 16
BEFORE = 1024  # bytes of something else


def cleared(assembly: str, threads: int, left_rows: int, right_rows: int, low: int, high: int) -> None:
    """A stage in which both operands' rows keep what is from `low` to `high`, and all around is as it was."""
    draw = random.Random(f"{low} {high} {left_rows} {right_rows}")
    rows, gap = left_rows + right_rows, BEFORE
    places = BEFORE, BEFORE + left_rows * LINE + gap
    memory = bytearray(draw.randbytes(places[1] + right_rows * LINE + BEFORE))
    want = bytearray(memory)
    for row in range(rows):
        first = places[0] + row * LINE if row < left_rows else places[1] + (row - left_rows) * LINE
        for k in (*range(low), *range(high, LINE)):
            piece, inside = divmod(k, PIECE)
            want[first + (piece ^ row % 8) * PIECE + inside] = 0  # as TMA swizzles by 128 bytes
    thread = Thread(assembly, memory)
    for number in range(threads):
        thread.run(places[0] - 512, 512, places[1] - 256, 256, low, high, number)
    assert memory == want, (low, high)


CUTS = [
    (0, 0), (0, 1), (0, 15), (0, 16), (0, 17), (0, 127), (1, 128), (15, 128), (16, 128), (17, 128), (31, 128), (3, 4),
    (3, 16), (3, 17), (16, 17), (17, 18), (17, 33), (31, 32), (31, 33), (20, 100), (0, 112), (0, 113),
]  # fmt: skip


@pytest.mark.parametrize(("low", "high"), [*CUTS, *((low, 64 + low) for low in range(0, 32, 5))])
def test_warps_of_their_own_clear_what_another_group_has_of_a_step(low, high):
    cleared(trim_assembly(64, 128, 64), 64, 64, 128, low, high)


def test_they_clear_the_rows_of_the_tiles_that_ship():
    for left, right in ((128, 192), (128, 128)):
        cleared(trim_assembly(left, right, 64), 64, left, right, 9, 77)


@pytest.mark.parametrize(("low", "high"), CUTS)
def test_warpgroups_clear_the_same_of_half_the_rows_each(low, high):
    cleared(keep_assembly(64), 128, 64, 64, low, high)


@pytest.mark.parametrize(
    ("old", "new", "high"),
    [
        ("setp.le.or.s32 gone3, $5, 48", "setp.lt.or.s32 gone3, $5, 48", 48), ("not.b32 kept4", "mov.b32 kept4", 50),
        ("and.b32 key, $6, 7", "and.b32 key, $6, 3", 50), ("xor.b32 place1", "add.u32 place1", 50),
    ],
)  # fmt: skip
def test_a_piece_that_keeps_too_much_or_too_little_is_noticed(old, new, high):
    assembly = trim_assembly(64, 64, 64)
    assert assembly.count(old) == 1
    with pytest.raises(AssertionError):
        cleared(assembly.replace(old, new), 64, 64, 64, 0, high)
