"""Fast rows nobody has measured: dense products of 16-bit inputs on every target but Hopper.

Tiles are what such devices are known to like; rates, and so the choice among them, follow from each tile's reuse of
what it loads. Measured models in tuned/sm<target>.json take their place.
"""

from kernels.table.families import PIPELINED, REFERENCE, SPECIALIZED
from kernels.table.model import reuse
from kernels.table.spec import Config, Problem, Variant

POINTERS = REFERENCE["gemm"]
# What a tile gives: the inputs' type, float32, or either in a row of its own.
SAME, FLOAT, BOTH = ("16-bit",), ("f32",), ("16-bit", "f32")

# outputs, family, block_m, block_n, block_k, warps, stages, parts, guard
AMPERE_NARROW = (
    (SAME, POINTERS, 16, 64, 128, 4, 4, 1, ("align16",)),
    (SAME, POINTERS, 16, 32, 128, 4, 5, 1, ("align16",)),
)
SM80 = (
    (SAME, POINTERS, 128, 256, 64, 8, 3, 1, ("align16", "linear")),
    (SAME, POINTERS, 64, 128, 64, 4, 4, 1, ("align16",)),
    (FLOAT, POINTERS, 64, 128, 64, 4, 4, 1, ("align16", "linear")),
    *AMPERE_NARROW,
)
SM86 = (  # 99 KiB of shared memory
    (SAME, POINTERS, 128, 128, 64, 8, 3, 1, ("align16",)),
    (FLOAT, POINTERS, 128, 128, 64, 8, 3, 1, ("align16", "linear")),
    (SAME, POINTERS, 64, 128, 64, 4, 3, 1, ("align16", "linear")),
    *AMPERE_NARROW,
)
SM100 = (
    (SAME, SPECIALIZED, 128, 256, 64, 8, 4, 4, ("descriptor", "linear")),
    (SAME, SPECIALIZED, 128, 128, 64, 8, 5, 2, ("descriptor",)),
    (FLOAT, SPECIALIZED, 128, 128, 64, 8, 5, 2, ("descriptor", "linear")),
    (BOTH, PIPELINED, 64, 64, 128, 4, 4, 1, ("descriptor", "linear")),
    (BOTH, PIPELINED, 16, 64, 128, 4, 5, 1, ("descriptor",)),
    (SAME, PIPELINED, 16, 32, 128, 4, 8, 1, ("descriptor",)),
)
SM120 = (  # 99 KiB
    (SAME, PIPELINED, 128, 128, 64, 8, 4, 1, ("descriptor",)),
    (FLOAT, PIPELINED, 128, 128, 64, 8, 4, 1, ("descriptor", "linear")),
    (SAME, PIPELINED, 64, 128, 64, 4, 4, 1, ("descriptor", "linear")),
    (BOTH, PIPELINED, 64, 64, 64, 4, 4, 1, ("descriptor", "linear")),
    (BOTH, PIPELINED, 16, 64, 128, 4, 5, 1, ("descriptor",)),
    (SAME, PIPELINED, 16, 32, 128, 4, 8, 1, ("descriptor",)),
)
# target -> its tiles, and the rate of an endless one beside the reference set's large tile, which has 100. The
# reference set does not use TMA, and so falls behind most where the tensor cores are fastest.
SETS = {
    80: (SM80, 260), 86: (SM86, 260), 87: (SM80, 260), 89: (SM86, 260),
    100: (SM100, 520), 103: (SM100, 520), 110: (SM100, 520), 120: (SM120, 310), 121: (SM120, 310),
}  # fmt: skip


def untuned_rows(problem: Problem, target: int):
    """The fast rows of one dense problem, largest tile first; none where a target's set is measured."""
    tiles, most = SETS.get(target, ((), 0))
    output = "f32" if problem.d == "f32" else "16-bit"
    for outputs, family, m, n, k, warps, stages, parts, guard in tiles:
        if output in outputs:
            config = Config(m, n, k, warps, stages, parts=parts, persistent=family.persistent)
            yield Variant(problem, config, family.kernel, target, guard, round(most * reuse(m, n)))
