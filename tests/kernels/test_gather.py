"""How threads copy the rows that an index gathers, read from the assembly. No GPU, no numerics."""

import re

import pytest

from kernels.device.sm90.gather import AT_ONCE, copy_assembly, copy_constraints, largest_power

LINE = 128


def runs(rows: int) -> list[int]:
    """Those of a tile's rows whose addresses are in one tensor."""
    found: list[int] = []
    while sum(found) < rows:
        found.append(largest_power(rows - sum(found)))
    return found


def test_a_tiles_rows_are_runs_of_powers_of_two():
    assert [runs(rows) for rows in (32, 64, 128, 192)] == [[32], [64], [128], [128, 64]]


@pytest.mark.parametrize("rows", [32, 64, 128, 192])
@pytest.mark.parametrize("lines", [1, 2])
def test_each_row_of_a_step_is_copied_once_from_its_own_address(rows, lines):
    count = rows // AT_ONCE.value
    text = copy_assembly(count, lines)
    found = re.findall(r"\[to \+ (\d+)\], \[\$(\d+) \+ (\d+)\], 16, size(\d);", text)
    places, addresses, *_ = zip(*[tuple(map(int, one)) for one in found], strict=True)
    assert sorted(places) == [i * AT_ONCE.value * LINE for i in range(count * lines)]
    assert sorted(addresses) == sorted([5 + i for i in range(count)] * lines)
    for place, address, offset, line in [tuple(map(int, one)) for one in found]:
        assert (offset, place) == (line * LINE, (line * count + address - 5) * AT_ONCE.value * LINE)
    assert copy_constraints(count).split(",").count("l") == count
    # Rows that the tile has not are not copied, and their addresses not read.
    assert [int(x) for x in re.findall(r"setp\.gt\.s32 here, \$4, (\d+);", text)] == [i * 16 for i in range(count)]
