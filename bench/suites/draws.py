"""What the generators of drawn shapes share: how many tokens, and which shapes are left out. Draws no shape."""

import functools
import json
import math
import random

from bench.suites import SUITES
from bench.suites.packed import SUITE  # the benchmark's grouped cases
from bench.suites.records import measured

MOST_TOKENS = 16384
LEAST_TRAINED = 128  # tokens of a gradient: nobody trains on fewer


def tokens(draw: random.Random, least: int = 1) -> int:
    """Log-uniform: half of them a power of two or one and a half, as batches are cut, half any number, often odd."""
    if draw.random() < 0.5:
        return draw.choice([size for i in range(15) for size in (2**i, 3 * 2**i // 2) if least <= size <= MOST_TOKENS])
    return round(math.exp(draw.uniform(math.log(least), math.log(MOST_TOKENS))))


def dense_key(row: dict) -> tuple:
    return row["m"], row["n"], row["k"], row["layout"].upper()


def grouped_key(row: dict) -> tuple:
    """Whatever the routing, the layout and the type: a product of the same sizes is left out even if its rows fall on
    other groups."""
    return row["groups"], row["m"], row["n"], row["k"]


@functools.cache
def known_dense() -> frozenset:
    """Shapes that tuning measured, by itself or as that of all groups, or that the benchmark lists."""
    listed = json.loads((SUITES / "dense.json").read_text())["shapes"]
    return frozenset(map(dense_key, [*listed, *measured()]))


@functools.cache
def known_grouped() -> frozenset:
    rows = [row for row in measured() if "groups" in row]
    return frozenset(map(grouped_key, [*SUITE.values(), *rows]))
