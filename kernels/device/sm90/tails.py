"""Ends that cut K of operands stored along M and N: what a tile's last step brings of the next group. No kernel here.

TMA brings BLOCK_K rows of K, of which the last ones may be the next group's, whose numbers may be no numbers. Warps of
their own set them to zero between TMA and the tensor cores, so that no warpgroup does it while it is its turn.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from kernels.device.sm90.loader import barriers


@gluon.jit
def make_tails(STAGES: gl.constexpr):
    """Barriers, used in turn, of the steps that are not whole: TMA tells these, and who clears a step its own."""
    return barriers(STAGES)


@gluon.jit
def is_cut(work, BLOCK_K: gl.constexpr):
    """Whether a tile's last step is not whole."""
    return work.last < BLOCK_K


@gluon.jit
def clear_partition(stages, queue, tails):
    """Two warps: every tile's last step, where it is not whole."""
    number = 0
    n = 0
    work = queue.receive(n)
    while work.count >= 0:
        if is_cut(work, stages.BLOCK_K):
            mbarrier.wait(tails.index(number % stages.STAGES), number // stages.STAGES & 1)
            step = work.step + work.count - 1
            stages.clear(step, work.last)
            mbarrier.arrive(stages.ready.index(step % stages.STAGES), count=1)
            number += 1
        n += 1
        work = queue.receive(n)
