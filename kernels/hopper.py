"""The fast set for Hopper: which families and tiles there are, and which of them ship (tuned/sm90.json says)."""

from kernels.model import tuned
from kernels.spec import DTYPES, TARGETS, Config, Problem, Variant

# family -> guards; "linear" is added to rows without activation where one with it would cost a larger kernel
GUARDS = {
    "coop": ("descriptor",),
    "pingpong": ("descriptor",),
    "swap": ("descriptor",),
    "swap_split": ("descriptor", "workspace"),
    "cluster": ("cluster", "descriptor_ab"),
    "swap_cluster": ("cluster", "descriptor_ab"),
    "masked": ("descriptor_ab",),
}
SMALL_EPILOGUE = ("swap_split", "cluster", "swap_cluster")  # these apply activations in every row
# Those that also come with an activation, whose code makes a large tile's epilogue several times longer.
MASKED = ("masked", 64, 128, 64)  # for a C or D that the copy engine cannot address
ACTIVATED = {("coop", 128, 256, 64), ("pingpong", 64, 128, 64), ("swap", 16, 64, 128), ("swap", 32, 64, 128), MASKED}
FIRST = 14  # of the tiles in order of what each gained: those that also come with float32 inputs or output


def out_bytes(problem: Problem, family: str, m: int, n: int, parts: int) -> int:
    """Shared memory in which tiles leave."""
    if family == "masked":
        return 0
    if family.endswith("cluster"):
        return m * n * 4
    return (1 if family == "coop" else 2) * m * n // parts * DTYPES[problem.d][1]


def hopper_config(problem: Problem, family: str, m: int, n: int, k: int) -> Config | None:
    """The deepest ring that fits beside the output buffers in 227 KiB; None when three stages do not."""
    parts = 2 if family == "coop" else 1
    if problem.d == "f32" and family in ("coop", "pingpong") and n >= 64:
        parts *= 2  # so that a wide tile's buffer is no larger
    spare = 1024  # barriers, and what the compiler aligns
    room = TARGETS[90].shared_bytes - spare - out_bytes(problem, family, m, n, parts)
    stages = min(8, room // ((m + n) * k * DTYPES[problem.a][1]))
    if stages < 3:
        return None
    warps = 8 if family == "coop" or (family == "cluster" and m == 128) else 4
    return Config(m, n, k, warps, stages, parts=parts, persistent=not family.endswith("cluster"))


def hopper_variant(problem: Problem, family: str, m: int, n: int, k: int, activated: bool = False) -> Variant | None:
    """One row, or None where the family cannot compute the problem or does not fit. `k` counts elements of 16 bits, so
    that a tile of float32 inputs moves as many bytes."""
    k = k * 2 // DTYPES[problem.a][1]
    config = hopper_config(problem, family, m, n, k)
    if config is None or (family.startswith("swap") and problem.layout[0] == "t"):
        return None  # a narrow tile of a transposed A is no operand of the tensor cores
    guard = GUARDS[family]
    if family not in SMALL_EPILOGUE and not activated:
        guard = (*guard, "linear")
    module = "cluster_sm90" if family.endswith("cluster") else "gemm_sm90"
    return Variant(problem, config, f"{module}.gemm_{family}", 90, guard, rate=40)


def hopper_rows(problem: Problem):
    """The rows that ship for one dense problem. Tensor cores take float32 (as tf32) only where K is contiguous."""
    if problem.a == "f32" and (problem.precision != "tf32" or problem.layout != "nt"):
        return
    tiles = tuned(90).tiles if problem.d != "f32" else tuned(90).tiles[:FIRST]
    for family, m, n, k in (*tiles, MASKED):
        for activated in (False, True):
            wide = problem.a == "f32" or (family == "coop" and problem.d == "f32")
            if activated and ((family, m, n, k) not in ACTIVATED or wide):
                continue
            row = hopper_variant(problem, family, m, n, k, activated)
            if row is not None:
                yield row
