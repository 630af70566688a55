"""The table of variants. C weighs all rows of a problem that may run; of rows that tie, the first wins.

To add a variant, add a row to the set it belongs to. One that fails `Variant.check()` or does not compile fails the
build by name.
"""

import itertools

from kernels.table.dtypes import DTYPES, TYPES
from kernels.table.portable import (
    CASTS,
    cast_rows,
    expert_cast_rows,
    expert_reference_rows,
    gate_rows,
    helper_rows,
    reference_rows,
    routing_rows,
    small_groups_row,
    sum_rows,
)
from kernels.table.sm90 import hopper_rows
from kernels.table.sm90_grouped import (
    column_rows,
    expert_rows,
    grouped_rows,
    pointer_rows,
    scaled_expert_rows,
    scaled_rows,
)
from kernels.table.spec import LAYOUTS, Problem, Variant
from kernels.table.targets import DEFAULT_TARGETS
from kernels.table.untuned import untuned_rows


def fast_rows(target: int):
    """Dense products of 16-bit inputs; on Hopper packed groups and pointer arrays too, and float32 as tf32."""
    for (a, d, precision), layout in itertools.product(TYPES, LAYOUTS):
        problem = Problem("gemm", a, d, precision, layout)
        if target == 90:
            yield from hopper_rows(problem)
            if d == "e4m3":
                continue
            if DTYPES[a].scaled:
                yield from scaled_rows(Problem("grouped_mm", a, d, precision, layout))
                yield from scaled_expert_rows(Problem("moe_mm", a, d, precision, layout))
                continue
            yield from grouped_rows(Problem("grouped_mm", a, d, precision, layout))
            yield from column_rows(Problem("grouped_mm", a, d, precision, layout))
            if a == d != "f32" and layout[0] == "n":
                yield from expert_rows(Problem("moe_mm", a, d, precision, layout))
            if a != "f32":
                pointers = Problem("grouped_gemm", a, d, precision, layout)
                yield small_groups_row(pointers, target)
                yield from pointer_rows(pointers)
        elif DTYPES[a].bytes == 2:
            yield from untuned_rows(problem, target)


# Types of A and B for which rows of another one stand: an operation that moves elements, or looks at none.
STANDS_FOR = {("align", "bf16"): ("f16", "bf16"), ("moe_route", "bf16"): tuple(DTYPES)}
STANDS_FOR |= {("moe_sum", a): (a, "e4m3") for a in ("f16", "bf16")}  # behind products of 8-bit weights


def serves(row: Variant, types) -> bool:
    """Whether a row is needed where A and B have one of these types. Casts make 8-bit ones, of any other."""
    if row.problem.op in (*CASTS, "moe_cast", "moe_spread"):
        return "e4m3" in types
    own = STANDS_FOR.get((row.problem.op, row.problem.a), (row.problem.a,))
    return any(a in types for a in own)


def variants(targets=DEFAULT_TARGETS, types=tuple(DTYPES)) -> list[Variant]:
    """All rows for these targets and types of A and B, checked, in table order."""
    sets = (
        fast_rows, reference_rows, expert_reference_rows, helper_rows, sum_rows, routing_rows, gate_rows, cast_rows,
        expert_cast_rows,
    )  # fmt: skip
    rows = [row for target in targets for rows_of in sets for row in rows_of(target) if serves(row, types)]
    for row in rows:
        row.check()
    return rows
