"""Where blocks of a cluster leave a tile's sum: each number in its place, no two rows' in one bank at a time.

By the text of the assembly and what a thread of a warpgroup holds (PTX ISA, wgmma.mma_async, "Register fragments"). No
kernel runs: the GPU suite shows what they add up to.
"""

import re
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")

from kernels.device.sm90.epilogue import columns_before
from kernels.device.sm90.gemm_cluster import leave_part, sum_stride, widest_part
from kernels.device.sm90.mainloop import part_widths
from kernels.table.boxes import sum_bytes
from kernels.table.variants import variants


def held(thread: int, number: int, warps: int, width: int) -> tuple[int, int]:
    """Row and column of a part that register `number` of a thread has: fragments of 8 x 8, of which a thread has two
    neighbours; two of them below one another, then the next eight columns; a warpgroup's 64 rows, then the next."""
    fragments = [
        (64 * block + 8 * half, 8 * eight) for block in range(256 // width + 1) for eight in range(width // 8)
        for half in (0, 1)
    ]  # fmt: skip
    warpgroup, warp, lane = thread // 128, thread // 32 % 4, thread % 32
    row, column = fragments[number // 2]
    row = row // 64 * 64 * (warps // 4) + row % 64
    return 64 * warpgroup + 16 * warp + row + lane // 4, column + lane % 4 * 2 + number % 2


def stores(part, before: int, stride: int, swap: bool, warps: int):
    """(bytes from a thread's first number, registers) of each store, in order."""
    text = leave_part.fn(part, before, stride, swap, warps)
    found = re.findall(r"st\.shared(?:\.v2)?\.f32 \[at \+ (\d+)\], \{?([^;}]+)\}?;", text)
    assert len(found) == text.count("st.")
    return [(int(to), [int(word.strip()[1:]) - 2 for word in words.split(",")]) for to, words in found]


ROWS = {(row.config.block_m, row.config.block_n, row.family.swap_ab, row.config.warps): row for row in variants((90,))
        if row.family.split == "cluster"}  # fmt: skip


@pytest.mark.parametrize(("m", "n", "swap", "warps"), sorted(ROWS))
def test_each_number_of_a_tile_is_left_once_in_its_place(m, n, swap, warps):
    left, right = (n, m) if swap else (m, n)
    stride, places = sum_stride.fn(n, swap), {}
    widths = part_widths.fn(right, widest_part.fn(right))
    parts = [SimpleNamespace(type=SimpleNamespace(shape=(left, width))) for width in widths]
    assert sum(widths) == right
    for i, part in enumerate(parts):
        before = columns_before.fn(parts, i)
        for thread in range(32 * warps):
            row, col = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
            first = 4 * (col * stride + row if swap else row * stride + col)
            for to, numbers in stores(part, before, stride, swap, warps):
                for j, number in enumerate(numbers):
                    own_row, own_col = held(thread, number, warps, widths[i])
                    line, column = (before + own_col, own_row) if swap else (own_row, before + own_col)
                    assert first + to + 4 * j == 4 * (line * stride + column)
                    assert (line, column) not in places
                    places[line, column] = first + to + 4 * j
    assert places.keys() == {(line, column) for line in range(m) for column in range(n)}
    assert max(places.values()) < sum_bytes(m, n, swap) == ROWS[m, n, swap, warps].sum_bytes


def test_what_a_warp_stores_at_a_time_is_in_different_banks():
    """Two numbers a thread, half a warp at a time; with operands swapped one, of all threads."""
    for columns in range(8, 257, 8):
        for swap, threads in ((False, 16), (True, 32)):
            stride, banks = sum_stride.fn(columns, swap), set()
            for thread in range(threads):
                row, col = thread // 4, thread % 4 * 2
                at = col * stride + row if swap else row * stride + col
                banks |= {(at + i) % 32 for i in range(1 if swap else 2)}
            assert len(banks) == 32 and stride >= columns and stride % 4 == 0, (columns, swap)
