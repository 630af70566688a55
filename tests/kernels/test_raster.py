"""The order of tiles: each comes once, and a quotient by a reciprocal is the quotient. By the functions' own text, with
float32 of numpy in place of the GPU's; no kernel runs.
"""

import inspect
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("triton")

from kernels.device.portable import tiles
from kernels.device.sm90 import raster

SEED = random.SystemRandom().randrange(1 << 32)
EXACT = raster.EXACT.value


TEXT = " ".join(re.findall(r'"([^"]*)"', inspect.getsource(raster.quotient_below.fn))).replace("\\n", " ")


def by_reciprocal(a: int, b: int, off: int) -> int:
    """What quotient_below's instructions make of a and b; the reciprocal is `off` by so many of its last places (PTX
    ISA, rcp.approx: by one at most)."""
    found = {"$1": a, "$2": b}
    for operation, words in re.findall(r"\b([a-z]+\.[\w.]+) ([^;]+);", TEXT):
        to, *names = words.split(", ")
        given = [np.uint32(int(x[2:], 16)).view(np.float32) if x.startswith("0f") else found[x] for x in names]
        if operation == "cvt.rn.f32.u32":
            found[to] = np.float32(given[0])
        elif operation == "cvt.rzi.u32.f32":
            found[to] = int(given[0])
        elif operation == "rcp.approx.ftz.f32":
            found[to] = np.float32(1) / given[0]
            for _ in range(abs(off)):
                found[to] = np.nextafter(found[to], np.float32(np.inf * off))
        else:
            found[to] = {"add.f32": np.add, "mul.f32": np.multiply}[operation](*given)
    return found["$0"]


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_quotient_by_a_reciprocal_is_exact_below_its_limit(off):
    draw = random.Random(f"{SEED} {off}")
    for _ in range(20_000):
        b = min(round(2 ** draw.uniform(0, 21)), EXACT)
        q = draw.randrange(EXACT // b)
        for a in (q * b, q * b + b - 1, EXACT // b * b - 1, EXACT - 1):
            assert by_reciprocal(a, b, off) == a // b, f"{a} // {b} (seed {SEED})"


@pytest.fixture
def order(monkeypatch):
    """place_of, on plain numbers."""
    plain = SimpleNamespace(minimum=min, to_tensor=int)
    monkeypatch.setattr(raster, "gl", plain)
    monkeypatch.setattr(tiles, "tl", plain)
    monkeypatch.setattr(raster, "rasterise", tiles.rasterise.fn)
    monkeypatch.setattr(raster, "quotient_below", lambda a, b: by_reciprocal(a, b, 0))
    for name in ("EXACT", "FEW_COLUMNS", "MANY_ROWS"):
        monkeypatch.setattr(raster, name, getattr(raster, name).value)
    return raster.place_of.fn


def drawn_sizes(count: int):
    draw = random.Random(SEED)
    for _ in range(count):
        rows, columns = (draw.choice((1, 2, 5, 16, draw.randint(1, 90))) for _ in "mn")
        yield rows, columns, draw.randint(1, 20)


@pytest.mark.parametrize("by_rows", [False, True])
def test_each_tile_comes_once(order, by_rows):
    for rows, columns, group in drawn_sizes(200):
        places = {order(tile, rows, columns, group, by_rows) for tile in range(rows * columns)}
        assert places == {(row, column) for row in range(rows) for column in range(columns)}, f"seed {SEED}"


def test_tiles_beyond_what_a_reciprocal_divides_come_once_too(order, monkeypatch):
    monkeypatch.setattr(raster, "EXACT", 40)
    for rows, columns, group in drawn_sizes(50):
        places = {order(tile, rows, columns, group, False) for tile in range(rows * columns)}
        assert len(places) == rows * columns, f"seed {SEED}"


def test_eight_tiles_of_few_columns_read_few_rows(order):
    for columns in (2, 3, 4, 5):
        for first in range(16 * columns - 8):
            rows = {order(tile, 16, columns, 11, True)[0] for tile in range(first, first + 8)}
            assert len(rows) <= -(-8 // columns) + 1
