"""What tiles the kernels can have, and the sentence for one they cannot; a part of spec.py. Stdlib only."""

import math
from typing import TYPE_CHECKING

from kernels.table.boxes import part_columns
from kernels.table.dtypes import DTYPES

if TYPE_CHECKING:
    from kernels.table.spec import Variant


class SpecError(ValueError):
    """A row of the table that cannot be built: names the row's field, its value and what is allowed."""


def require(ok: bool, field: str, given, allowed) -> None:
    if not ok:
        raise SpecError(f"{field} = {given!r}: allowed is {allowed}")


def check_tile(row: "Variant") -> None:
    """Raise SpecError where no kernel of the row's family could have its tile."""
    c = row.config
    if "blocks" in row.guard:
        require(row.lies_in_blocks, "block_n", c.block_n, "a multiple of 64 or a divisor of 128, with blocks")
    if row.family.by_units and row.family.whole_tiles:
        lefts = (128, 192, 256) if row.family.cooperative else (64, 128)
        require(row.left in lefts, "block_n" if row.family.swap_ab else "block_m", row.left, lefts)
        for name, field, rows in (("a_desc", "block_m", c.block_m), ("b_desc", "block_n", c.block_n)):
            if row.turned(name):  # one box
                whole = rows >= 64 or rows & (rows - 1) == 0
                require(whole, field, rows, "a power of two below 64, of an operand contiguous along it")
        line = 128 // DTYPES[row.problem.a].bytes
        require(c.block_k % line == 0, "block_k", c.block_k, f"a multiple of {line}, 128 bytes")
        require(row.right <= 256, "block_m" if row.family.swap_ab else "block_n", row.right, "256 or less")
    else:
        for field in ("block_m", "block_n", "block_k"):
            size, allowed = getattr(c, field), "a power of two of at least 8"
            # Of packed groups the right side is in parts, as many as there are.
            in_parts = row.family.by_units and field == ("block_m" if row.family.swap_ab else "block_n")
            allowed += ", or a multiple of 64" if in_parts else ""
            require((in_parts and size % 64 == 0) or size & (size - 1) == 0, field, size, allowed)
    if not (row.family.by_units and row.family.persistent and not row.family.grouped):
        require(c.cluster == 1, "cluster", c.cluster, "1, but in a persistent family of dense products")
    if row.family.store == "reduce":
        rows = max(row.whole_rows("a_desc"), row.whole_rows("b_desc"))
        least = math.ceil(row.sum_bytes / (rows * c.block_k * DTYPES[row.problem.a].bytes))
        require(c.stages >= least, "stages", c.stages, f"{least} or more: the sum goes where A or B came")
    if row.family.by_units and not row.family.any_width and row.family.store == "tma" and row.family.whole_tiles:
        columns = part_columns(row.problem.d)
        whole = row.right % columns == 0 or row.right in (8, 16, 32)
        field = "block_m" if row.family.swap_ab else "block_n"
        require(whole, field, row.right, f"8, 16, 32 or a multiple of {columns}, the columns of a part")
    if row.family.store == "tma" and row.family.by_units and not row.family.swap_ab:
        least = 16 // DTYPES[row.problem.d].bytes  # elements that TMA moves at least
        require(row.right % least == 0, "block_n", row.right, f"a multiple of {least}, 16 bytes of D")
