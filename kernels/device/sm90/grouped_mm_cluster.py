"""Grouped GEMM for Hopper where tiles are few and K is long: a tile's K is shared by the blocks of one cluster.

For groups of equal size, and for ends that cut K of an A stored [K][M] and a B stored [K][N]: weight gradients of a few
experts. The host sets how many blocks share a tile by what it knows; how long a group's K is, only the device does, so
a block may find that nothing of it is left, and then adds zeros.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue
from kernels.device.sm90.gemm_cluster import Slice, Sums, multiply_slice, sums_buffer
from kernels.device.sm90.groups import Groups
from kernels.device.sm90.loader import make_stages
from kernels.device.sm90.scheduler import slice_of


@gluon.jit
def grouped_mm_cluster(
    a_desc, b_desc, c_ptr, d_ptr, bias_ptr, offs_ptr, splits, M, N, K, groups, a_step, b_step, d_step,
    ldc, ldd, batch_stride_bias, alpha, beta, activation, offs_wide,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SYMBOL: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """One tile of one group for each cluster of `splits` blocks."""
    WHOLE: gl.constexpr = 128 // d_ptr.dtype.element_ty.primitive_bitwidth  # N, ldc and ldd: the guard asks it
    groups_at = Groups(
        offs_ptr, offs_wide, groups, M, N, K, a_step, b_step, d_step, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, False,
    )  # fmt: skip
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, False, RANK=3, IN_CLUSTER=True,
        BY_ALL=True,
    )  # fmt: skip
    gdc_wait()  # what the kernel before this one writes may be our A, B, C or ends, what it reads our D
    unit = gl.program_id(0)
    index, row, col = groups_at.equal_tile(unit // splits)
    start, depth = groups_at.equal_cut(index, 0, gl.to_tensor(0))
    buf = sums_buffer(stages)
    first, count = slice_of(depth, splits, unit, BLOCK_K)  # of a short group none, or fewer
    first *= BLOCK_K
    a_plane, b_plane = groups_at.planes(index)
    source = Slice(row, col, a_plane, b_plane, start + first, depth - first, (), TRANS_A and not TRANS_B)
    parts = multiply_slice(stages, source, count, BLOCK_M, BLOCK_N)
    alpha = gl.where(depth > 0, alpha, 0.0)  # an empty group has no product that Inf could multiply
    epilogue = Epilogue(bias_ptr, N // WHOLE * WHOLE, alpha, beta, activation, ACTIVATE, False, ()).moved(
        index.to(gl.int64) * batch_stride_bias
    )
    end = index * d_step + M  # of the group in D
    sums = Sums(
        buf, c_ptr, d_ptr, ldc // WHOLE * WHOLE, ldd // WHOLE * WHOLE, end, epilogue, splits, (), False, BLOCK_M,
        BLOCK_N,
    )  # fmt: skip
    sums.reduce(parts, unit % splits, index * d_step + row, col)
