"""portable/gemm_sum.py, which adds up tiles whose K all blocks share, in Triton's interpreter. No GPU.

What is added is computed as sm90/gemm_stream.py describes what it leaves.
"""

import dataclasses
import itertools

import pytest
from numerics import interpret

from tests.gpu.cases import Case

TILES = ((16, 64), (24, 32), (40, 72))
SIZES = ((8, 8, 64), (41, 72, 520), (130, 200, 264))
CASE = {"entry": "gemm", "alpha": -0.5, "pads": (8, 8, 8, 8), "trans_b": True}
EPILOGUES = (
    {},
    {"beta": 2.0, "c": "separate", "bias": "each"},
    {"beta": -1.0, "c": "in_place", "activation": "gelu"},
    {"bias": "each", "activation": "relu"},
)


def jobs():
    forms = itertools.product(SIZES, TILES, (False, True), ((1, 1), (2, 1), (1, 2), (2, 2)))
    for i, ((m, n, k), tile, swap, cluster) in enumerate(forms):
        type_ = ("bf16", "f16")[i % 2]
        sizes = {"m": m, "n": n, "k": k}
        case = dataclasses.asdict(Case(**CASE, **EPILOGUES[i % 4], **sizes, a_type=type_, d_type=type_, seed=i))
        runs = (1, 2, 3, 7, 11)[i % 5]  # one: nobody shares; eleven: a tile has parts of several
        words = f"{m}x{n}x{k}-{tile[0]}x{tile[1]}-{swap:d}-{cluster[0]}x{cluster[1]}-{runs}"
        stream = {"tile": tile, "k": 16, "swap": swap, "cluster": cluster, "runs": runs}
        yield {"id": words, "case": case, "stream": stream}


def faults():
    """Kernels told something false: what the comparison is worth."""
    case = dataclasses.asdict(Case(**CASE, m=41, n=72, k=520))
    stream = {"tile": (24, 32), "k": 16, "swap": False, "cluster": (2, 1), "runs": 7}
    for name, value in (
        ("stream_steps", 28), ("stream_m", 16), ("stream_n", 64), ("stream_k", 32), ("stream_swap", 1),
        ("stream_below", 1), ("stream_across", 2), ("alpha", 1.0), ("ldd", 72),
    ):  # fmt: skip
        yield {"id": f"fault-{name}", "case": case, "stream": stream, "told": {name: value}}


GOOD, FAULTS = list(jobs()), list(faults())


@pytest.fixture(scope="module")
def found() -> dict:
    return interpret([*GOOD, *FAULTS])


@pytest.mark.parametrize("name", [job["id"] for job in GOOD])
def test_parts_of_each_tile_are_added_and_stored(found, name):
    assert found[name] == []


@pytest.mark.parametrize("name", [job["id"] for job in FAULTS])
def test_a_fault_is_noticed(found, name):
    assert found[name]
