"""The fast set for grouped calls on Hopper: which tiles there are, and for which problems each ships."""

from kernels.spec import DTYPES, TARGETS, Config, Problem, Variant

PINGPONG, SWAP = "grouped_sm90.grouped_mm_pingpong", "grouped_swap_sm90.grouped_mm_swap"
RATE = 125  # of both kernels, beside the reference set's large tile


def config(problem: Problem, m: int, n: int, group_m: int, parts: int, a_boxes: int = 1) -> Config:
    """The deepest ring that fits beside the output buffers in 227 KiB."""
    spare = 2048  # barriers, the queue, and what the compiler aligns
    room = TARGETS[90].shared_bytes - spare - 2 * m * n // parts * DTYPES[problem.d][1]
    k = 128 // DTYPES[problem.a][1]
    stages = min(8, room // ((m + n) * 128))
    return Config(m, n, k, 4, stages, group_m, parts=parts, persistent=True, a_boxes=a_boxes)


def row(problem: Problem, kernel: str, made: Config, *guard: str) -> Variant:
    return Variant(problem, made, kernel, 90, tuple(sorted(("descriptor", *guard))), RATE)


def cut_rows(problem: Problem):
    """Ends cut the rows. A has its rows one after the other: within a stored row the copy engine begins only at
    multiples of 16 bytes, and a group begins anywhere."""
    wide = problem.d == "f32"
    if problem.layout[0] == "t":
        return
    if problem.a != "f32":
        swap = config(problem, 128, 128, 16, parts=4, a_boxes=4)
        yield row(problem, SWAP, swap, "rows", "linear")
        if not wide:
            yield row(problem, SWAP, swap, "rows")
    else:
        yield row(problem, PINGPONG, config(problem, 128, 128, 8, parts=1 + wide), "rows", "linear")


def cut_k_or_none(problem: Problem):
    """Ends cut K, or groups are of equal size."""
    large = config(problem, 128, 128, 16, parts=1 + (problem.d == "f32"))
    small = config(problem, 64, 128, 16, parts=1)
    usual = problem.layout in ("nt", "tn")  # a batch with a Linear layer's weights; a weight gradient
    for made in (large, small) if usual or problem.d != "f32" else (large,):
        yield row(problem, PINGPONG, made, "equal", "linear")


def grouped_rows(problem: Problem):
    """The rows that ship for one problem of packed groups. Tensor cores take float32 (as tf32) only where K is
    contiguous."""
    if problem.a == "f32" and (problem.precision != "tf32" or problem.layout != "nt"):
        return
    yield from cut_rows(problem)
    yield from cut_k_or_none(problem)
