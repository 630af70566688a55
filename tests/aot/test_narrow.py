"""Where columns of B end within a tile of 8-bit groups with scales of blocks, fewer are multiplied. No kernel runs."""

import re

from test_counted import ptx_of

from kernels.table.variants import variants

WIDTHS = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k32")


def widths(kernel: str, m: int, n: int) -> list[set[str]]:
    rows = [
        v for v in variants((90,))
        if v.name.startswith("grouped_mm_e4m3_e4m3_bf16") and v.family.own_name == kernel
        and (v.config.block_m, v.config.block_n) == (m, n)
    ]  # fmt: skip
    return [set(WIDTHS.findall(ptx_of(v))) for v in rows if "rows" in v.guard and "blocks" in v.guard]


def test_a_tile_of_three_parts_is_multiplied_in_as_many_as_have_columns():
    assert widths("grouped_mm_scaled_coop", 128, 192) == [{"64", "128", "192"}]


def test_a_tile_of_two_parts_is_multiplied_as_it_is():
    assert widths("grouped_mm_scaled_coop", 128, 128) == [{"128"}]
