"""Grouped GEMM for Hopper where tiles are few and K is long: a tile's K is shared by the blocks of one cluster.

For groups of equal size, and for ends that cut K of an A stored [K][M] and a B stored [K][N]: weight gradients of a few
experts. The host sets how many blocks share a tile by what it knows; how long a group's K is, only the device does, so
a block may find that nothing of it is left, and then adds zeros.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue
from kernels.device.sm90.gemm_cluster import allocate_sums, multiply, reduce
from kernels.device.sm90.grouped_mm_pingpong import cut_operands
from kernels.device.sm90.groups import Groups
from kernels.device.sm90.loader import Shape, make_pipeline


@gluon.aggregate
class Piece:
    """Where a slice of a group's K stands in the matrices of all groups, and how much of K is left from there on."""

    a_row: gl.tensor
    a_k: gl.tensor
    b_col: gl.tensor
    b_k: gl.tensor
    left: gl.tensor
    BLOCK_K: gl.constexpr

    @gluon.jit
    def fetch(self, pipeline, step, pred):
        bar = pipeline.ready.index(step % pipeline.STAGES)
        mbarrier.expect(bar, pipeline.a_desc.nbytes_per_cta + pipeline.b_desc.nbytes_per_cta, pred=pred)
        pipeline.fetch_a(step, 0, self.a_row, self.a_k + step * self.BLOCK_K, pred)
        pipeline.fetch_b(step, self.b_col, self.b_k + step * self.BLOCK_K, pred)

    @gluon.jit
    def cut(self, pipeline, step):
        """The last step may reach into the next group."""
        last = self.left - step * self.BLOCK_K
        if last < self.BLOCK_K:
            cut_operands(pipeline, step, last)


@gluon.jit
def grouped_mm_cluster(
    a_desc, b_desc, c_ptr, d_ptr, bias_ptr, offs_ptr, splits, M, N, K, groups, a_step, b_step, d_step,
    ldc, ldd, batch_stride_bias, alpha, beta, activation, offs_wide,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """One tile of one group for each cluster of `splits` blocks."""
    WHOLE: gl.constexpr = 128 // d_ptr.dtype.element_ty.primitive_bitwidth  # N, ldc and ldd: the guard asks it
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, False,
    )  # fmt: skip
    pipeline = make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B)
    gdc_wait()  # what the kernel before this one writes may be our A, B, C or ends, what it reads our D
    unit = gl.program_id(0)
    index, row, col = groups_at.equal_tile(unit // splits)
    start, depth = groups_at.equal_cut(index, 0, gl.to_tensor(0))
    end = index * d_step + M  # of the group in D
    shape = Shape(end, N // WHOLE * WHOLE, depth, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, splits)
    buf = allocate_sums(shape)
    first, count = shape.steps(unit)  # of a short group none, or fewer
    first *= BLOCK_K
    a_row, a_k, b_col, b_k = groups_at.equal_operands(index, row, col, start, TRANS_A, TRANS_B)
    source = Piece(a_row, a_k + first, b_col, b_k + first, depth - first, BLOCK_K)
    acc = multiply(shape, pipeline, source, count, False)
    alpha = gl.where(depth > 0, alpha, 0.0)  # an empty group has no product that Inf could multiply
    epilogue = Epilogue(bias_ptr, shape.N, alpha, beta, activation, ACTIVATE, False).moved(
        index.to(gl.int64) * batch_stride_bias
    )
    reduce(
        shape, buf, acc, c_ptr, d_ptr, ldc // WHOLE * WHOLE, ldd // WHOLE * WHOLE, epilogue, unit % splits,
        index * d_step + row, col, False,
    )  # fmt: skip
