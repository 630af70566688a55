"""What tuning measures: a grid of tiles for each family, pruned by rule. Larger than what ships; nothing here is built
by `make build`. Stdlib only.

One input type stands for all 16-bit ones: their kernels differ in nothing that takes time.
"""

from kernels.table.families import DENSE_SM90
from kernels.table.portable import reference_rows
from kernels.table.sm90 import hopper_variant
from kernels.table.sm90_grouped import grouped_variant
from kernels.table.spec import LAYOUTS, Problem, Variant

FAR = 3.0  # one whose estimate is this many times the best one's is not measured: it is taken to be as slow

# family -> (tile rows, tile columns, steps in K)
GRID = {
    "coop": ((128, 256), (128, 256), (64,)),
    "pingpong": ((64, 128), (16, 32, 64, 128, 256), (64, 128)),
    "swap": ((8, 16, 32, 64), (64, 128), (64, 128)),
    "cluster": ((64, 128), (32, 64, 128), (64, 128)),
    "swap_cluster": ((8, 16, 32), (64,), (128,)),
    "masked": ((64,), (128,), (64,)),
    "swap_split": ((8, 16, 32), (64,), (128,)),
}

# Of packed groups: (kernel, what is cut) -> (tile rows, tile columns)
GROUPED_GRID = {
    ("swap", "rows"): ((128, 128), (128, 64), (64, 128), (64, 64), (32, 128), (32, 64)),
    ("pingpong", "rows"): ((128, 128), (128, 64), (64, 256), (64, 128), (64, 64)),
    ("cluster", "equal"): ((128, 128), (64, 128), (64, 64)),
    ("pingpong", "equal"): ((128, 128), (64, 128), (64, 64), (64, 32)),
}


def is_sensible(family: str, m: int, n: int, k: int) -> bool:
    """The rules that prune the grid: a consumer's accumulator fits its registers, a narrow tile takes long steps."""
    cooperative = DENSE_SM90[family].cooperative
    warps = 8 if cooperative else 4
    accumulators = m * n // (warps * 32)
    if accumulators > 128 or (cooperative and accumulators < 128):
        return False
    return k == 128 or m * n >= 64 * 128


def candidates(target: int = 90, a: str = "bf16") -> list[Variant]:
    """Every sensible row of `a` -> `a` for a target, the reference rows of the same problems with them."""
    rows = []
    for layout in LAYOUTS:
        problem = Problem("gemm", a, a, "exact", layout)
        for family, (ms, ns, ks) in GRID.items():
            for m, n, k in ((m, n, k) for m in ms for n in ns for k in ks if is_sensible(family, m, n, k)):
                row = hopper_variant(problem, family, m, n, k)
                if row is not None:
                    rows.append(row)
        rows += [row for row in reference_rows(target) if row.problem == problem]
    for row in rows:
        row.check()
    return rows


def grouped_candidates(target: int = 90, a: str = "bf16") -> list[Variant]:
    """The same of packed groups, but for the reference rows: they are far behind."""
    rows = []
    for layout in LAYOUTS:
        problem = Problem("grouped_mm", a, a, "exact", layout)
        for (kernel, cut), tiles in GROUPED_GRID.items():
            if not (cut == "rows" and layout[0] == "t"):
                rows += [grouped_variant(problem, kernel, cut, *tile) for tile in tiles]
    for row in rows:
        row.check()
    return rows
