"""Copies of A and B to aligned rows, bit by bit, by Triton's interpreter (tests/support/interpret.py). No GPU."""

import itertools

import pytest
from numerics import interpret

# rows, columns, leading dimension and elements before the first, as stored: tiles are 16 x 64, or 64 x 64
SHAPES = {
    "odd ld": (40, 70, 71, 0),
    "odd start": (33, 65, 80, 1),
    "odd both": (67, 129, 131, 3),
    "one element": (1, 1, 1, 5),
    "one row": (1, 200, 333, 1),
    "one column": (70, 1, 3, 1),
    "whole tiles": (64, 128, 129, 1),
    "packed": (31, 63, 63, 0),
}
WHOLE = {
    "one tile": (64, 64, 64, 0),
    "parts of tiles": (70, 136, 144, 0),
    "one row": (1, 8, 8, 0),
    "tall": (200, 16, 72, 8),
}
NONE = (0, 70, 71, 0)  # an operand that needs no copy


def jobs():
    for type_, turned in itertools.product(("bf16", "f32"), (False, True)):
        for name, shape in SHAPES.items():
            for which, a, b in (("a", shape, NONE), ("b", NONE, shape), ("both", shape, SHAPES["odd both"])):
                turn = {"a": turned, "b": turned != (which == "both")}
                yield {"id": f"{type_}-{name}-{which}-{turned:d}", "type": type_, "a": a, "b": b, "turn": turn}
    turn = {"a": True, "b": True}
    for type_, (guard, shapes) in itertools.product(("bf16", "f32"), (((), SHAPES), (("align16",), WHOLE))):
        for name, shape in shapes.items():
            for which, a, b in (("a", shape, NONE), ("both", shape, next(iter(shapes.values())))):
                job_id = f"square-{type_}-{name}-{which}-{len(guard)}"
                yield {"id": job_id, "type": type_, "a": a, "b": b, "turn": turn, "square": True, "guard": guard}


def faults():
    """Kernels told something false: what the comparison is worth."""
    plain = {"type": "bf16", "a": SHAPES["odd ld"], "b": SHAPES["odd start"], "turn": {"a": False, "b": False}}
    changes = ({"a_transpose": 1}, {"a_rows": 39}, {"b_rows": 31}, {"a_cols": 69}, {"ldb": 81}, {"copy_lda": 64})
    for change in changes:
        yield {**plain, "id": f"fault-{next(iter(change))}", "changed": change}


GOOD, FAULTS = list(jobs()), list(faults())


@pytest.fixture(scope="module")
def found() -> dict:
    return interpret([*GOOD, *FAULTS])


@pytest.mark.parametrize("name", [job["id"] for job in GOOD])
def test_copies_have_the_operands_bits_and_nothing_else_is_written(found, name):
    assert found[name] == []


@pytest.mark.parametrize("name", [job["id"] for job in FAULTS])
def test_a_fault_is_noticed(found, name):
    assert found[name] and "elements of the workspace differ" in found[name][0]
