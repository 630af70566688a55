"""What TMA moves at a time for a variant: boxes of its operands and of D, as its kernel and the host know them. Stdlib
only; a part of spec.py's Variant.
"""

import math
from typing import TYPE_CHECKING

from kernels.table.dtypes import DTYPES

if TYPE_CHECKING:
    from kernels.table.families import Family
    from kernels.table.spec import Config, Problem


def consumers(family: "Family", left: int) -> int:
    """Warpgroups that multiply, in a persistent kernel for Hopper."""
    return 3 if family.cooperative and left == 192 else 2


def box_of(rows: int) -> int:
    """Rows of each box of an operand that is contiguous along them: 64, in lines of 128 bytes, or 32 where less of what
    comes is beyond the tile then; of more than 192 rows that was measured to be slower."""
    if rows < 64:
        return rows
    if rows > 192:
        return 64
    return min((64, 32), key=lambda box: math.ceil(rows / box) * box)


def whole_rows(rows: int, turned: bool, sharers: int = 1) -> int:
    """Rows that a stage has of an operand: in whole units of 8, or turned in whole boxes. One that is not turned is
    shared by the row, as many for each sharer: TMA swizzles by the address, so a box may begin within a unit."""
    unit = box_of(rows) if turned else math.lcm(8, sharers)
    return math.ceil(rows / unit) * unit


def shares_k(rows: int, sharers: int) -> bool:
    """Whether blocks that share a turned operand load a part of K of each of its boxes, and not some of the boxes:
    where there are not as many for each."""
    return whole_rows(rows, True) % (box_of(rows) * sharers) != 0


def part_columns(d: str) -> int:
    """Columns of the widest part that a D of this type leaves by: 128 bytes of them, and no more than an accumulator is
    cut into."""
    return min(64, 128 // DTYPES[d].bytes)


def sum_bytes(m: int, n: int, swap_ab: bool) -> int:
    """Of the sum of a tile that a cluster reduces, in shared memory, with what stands between its rows so that a warp's
    stores are in different banks: kernels/device/sm90/gemm_cluster.py, sum_stride."""
    return 4 * m * (n + (4 if swap_ab else 8 - n % 16))


class Boxes:
    """Of a variant, by the names of its kernel's descriptors."""

    if TYPE_CHECKING:
        guard: tuple[str, ...]
        problem: Problem
        config: Config
        family: Family

    def box(self, name: str) -> tuple[str, int, int]:
        """(element type, rows, columns) of what one copy through the descriptor `name` moves, as stored."""
        c = self.config
        if self.family.by_units and (name in ("a_desc", "b_desc") or self.family.whole_tiles):
            return self.unit(name)
        rows, cols = c.block_m, c.block_n // c.parts
        sharers = 2 if self.family.cooperative and self.family.grouped else 1  # warpgroups, each with its left rows
        if self.family.swap_ab:
            rows, cols = c.block_m // c.parts, c.block_n // self.halves // sharers
        elif sharers == 2:
            rows = c.block_m // sharers
        boxes = {
            "a_desc": (self.problem.a, c.block_m // c.a_boxes, c.block_k),
            "b_desc": (self.problem.a, c.block_k, c.block_n),
            "c_desc": (self.problem.d, rows, cols),
            "d_desc": (self.problem.d, rows, cols),
        }
        element, rows, cols = boxes[name]
        turned = {"a_desc": self.problem.layout[0] == "t", "b_desc": self.problem.layout[1] == "t"}.get(name, False)
        return (element, cols, rows) if turned else (element, rows, cols)

    @property
    def left(self) -> int:
        """Rows of a tile on the side of the instruction's M, which is that of B with operands swapped."""
        return self.config.block_n if self.family.swap_ab else self.config.block_m

    @property
    def right(self) -> int:
        return self.config.block_m if self.family.swap_ab else self.config.block_n

    @property
    def consumers(self) -> int:
        return consumers(self.family, self.left)

    @property
    def halves(self) -> int:
        """Columns of B in a tile for each of D."""
        return 2 if "gated" in self.guard else 1

    def turned(self, name: str) -> bool:
        """Whether A, or B, is contiguous along M, or N."""
        return self.problem.layout[0] == "t" if name == "a_desc" else self.problem.layout[1] == "n"

    def whole_rows(self, name: str) -> int:
        """Rows that a stage has of A, or B, which no blocks share."""
        return whole_rows(self.config.block_m if name == "a_desc" else self.config.block_n, self.turned(name))

    @property
    def sum_bytes(self) -> int:
        return sum_bytes(self.config.block_m, self.config.block_n, self.family.swap_ab)

    def unit(self, name: str) -> tuple[str, int, int]:
        """`box` where the kernel knows units: what a buffer is counted in, and what a part of D leaves by."""
        if name in ("a_desc", "b_desc"):
            rows = self.config.block_m if name == "a_desc" else self.config.block_n
            if self.turned(name):
                return self.problem.a, self.config.block_k, box_of(rows)
            return self.problem.a, 8, 128 // DTYPES[self.problem.a].bytes
        part = part_columns(self.problem.d) // int(name[7:] or 1)
        if not self.family.any_width:
            part = min(part, self.right)
        rows = self.left // self.consumers if self.family.cooperative else self.left
        return (self.problem.d, part, rows) if self.family.swap_ab else (self.problem.d, rows, part)

    def box_rows(self, name: str) -> int | None:
        """Rows that the host encodes where they are not those of `box`; 0 where nothing comes that way."""
        if not self.family.by_units:
            return None
        if name in ("a_desc", "b_desc"):
            rows, is_right = self.config.block_m // self.config.a_boxes, self.family.swap_ab
            if name == "b_desc":
                rows, is_right = self.config.block_n // self.halves, not self.family.swap_ab
            sharers = self.config.below if is_right else self.config.across
            if self.turned(name):
                return self.config.block_k // sharers if shares_k(rows, sharers) else None
            return whole_rows(rows, False, sharers) // sharers
        if not self.family.any_width:
            return None
        most, share = part_columns(self.problem.d), int(name[7:] or 1)
        here = self.right // most if share == 1 else self.right % most & most // share
        return None if here else 0

    def box_rank(self, name: str) -> int:
        """Dimensions of what the host encodes: of packed groups A and B have a third, the group, and before it a gated
        B the half."""
        grouped = self.problem.op in ("grouped_mm", "moe_mm") and name in ("a_desc", "b_desc")
        return 2 + grouped + (name == "b_desc" and grouped and "halved" in self.guard)
