"""kernels/device/sm90/paired_sums.py: what its assembly adds to what. Runs the text in Python, no kernel.

Only a GPU of compute capability 9.0 runs the kernels; the text is the same for all of them.
"""

import random
import re
from types import SimpleNamespace

import pytest

from kernels.device.sm90.paired_sums import add_assembly, pack_assembly, scale_count, unpack_assembly

SHAPES = [[(64, 64)] * 3, [(64, 128)], [(128, 64)], [(64, 64), (64, 32), (64, 8)], [(64, 8)]]


def parts_of(shapes: list[tuple[int, int]]):
    layout = SimpleNamespace(warps_per_cta=(4, 1))
    return tuple(SimpleNamespace(type=SimpleNamespace(shape=list(shape), layout=layout)) for shape in shapes)


def places(shape: tuple[int, int]) -> list[tuple[int, int]]:
    """(row, column) of each number that the first thread has of a part: PTX ISA, wgmma.mma_async, "Register
    fragments", of 64 rows after 64 rows."""
    rows, columns = shape
    return [
        (block + half, column + one)
        for block in range(0, rows, 64) for column in range(0, columns, 8) for half in (0, 8) for one in (0, 1)
    ]  # fmt: skip


def run(text: str, registers: list) -> list:
    """The text's effect on its operands, numbers or pairs (lower, upper)."""
    named: dict[str, float] = {}

    def read(name: str):
        return registers[int(name[1:])] if name[0] == "$" else named[name]

    def write(name: str, value) -> None:
        if name[0] == "$":
            registers[int(name[1:])] = value
        else:
            named[name] = value

    for line in text.replace("{ .reg .f32 x, y;", "").rstrip("}").split("\n"):
        words = re.findall(r"\$?\w[\w.]*", line)
        if not words:
            continue
        match words[0], line.count("{"):
            case "mov.b64", 1 if line.index("{") > line.index(","):
                write(words[1], (read(words[2]), read(words[3])))
            case "mov.b64", 1:
                for name, value in zip(words[1:3], read(words[3]), strict=True):
                    write(name, value)
            case "fma.rn.f32", 0:
                write(words[1], read(words[2]) * read(words[3]) + read(words[4]))
            case _:
                raise AssertionError(line)
    return registers


@pytest.mark.parametrize("shapes", SHAPES)
def test_each_sum_gets_its_own_product_times_its_rows_scale(shapes):
    rng = random.Random(repr(shapes))
    stands = [(part, *place) for part, shape in enumerate(shapes) for place in places(shape)]
    sums, products = ([rng.randrange(1, 10**6) for _ in stands] for _ in range(2))
    # In order of parts, and of a part's rows, as a thread holds a vector along them.
    scales = {key: rng.randrange(1, 10**6) for key in sorted({(part, row) for part, row, _ in stands})}
    pairs = [(sums[i + 1], sums[i]) for i in range(0, len(sums), 2)]
    assert scale_count(parts_of(shapes)) == len(scales)
    # Pairs go out and in: where they come out they are already in, as tied operands are.
    found = run(add_assembly(parts_of(shapes)), [*pairs, *[None] * len(pairs), *products, *scales.values()])
    wanted = [
        total + product * scales[part, row]
        for (part, row, _), total, product in zip(stands, sums, products, strict=True)
    ]  # fmt: skip
    assert found[: len(pairs)] == [(wanted[i + 1], wanted[i]) for i in range(0, len(wanted), 2)]


def test_what_is_packed_comes_out_again_and_the_second_number_is_below():
    numbers = [3, 1, 4, 1, 5, 9]
    packed = run(pack_assembly(3), [None] * 3 + numbers)[:3]
    assert packed == [(1, 3), (1, 4), (9, 5)]
    assert run(unpack_assembly(3), [None] * 6 + packed)[:6] == numbers
