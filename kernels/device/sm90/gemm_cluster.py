"""Dense GEMM for Hopper where tiles are few: the blocks of one cluster share a tile's K, and reduce in shared memory.

No workspace and no atomics: each block leaves its sum of products in its own shared memory, and after a barrier of the
cluster each reads its share of the tile from all of them, in order of K, so that the same call gives the same bits.
All warps load, multiply and store; a barrier of the cluster wants every thread, so no warp is set apart.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.device.sm90.epilogue import Epilogue
from kernels.device.sm90.loader import Shape, make_pipeline

MOST = gl.constexpr(8)  # blocks in a cluster that every device can hold


@gluon.jit
def cluster_arrive():
    gl.inline_asm("barrier.cluster.arrive.release.aligned;", "~{memory}", [], [], is_pure=False)


@gluon.jit
def cluster_wait():
    gl.inline_asm("barrier.cluster.wait.acquire.aligned;", "~{memory}", [], [], is_pure=False)


@gluon.constexpr_function
def load_from_peer(outputs, inputs):
    """Four floats at the first of these byte offsets in block `rank`'s buffer; zeros where that block is not there."""
    (to,) = outputs
    base, rank, ranks, offsets = inputs
    return (
        "{ .reg .pred here; .reg .b32 address;\n"
        f"setp.lt.s32 here, {rank[0]}, {ranks[0]};\n"
        f"mapa.shared::cluster.u32 address, {base[0]}, {rank[0]};\n"
        f"add.s32 address, address, {offsets[0]};\n"
        + "".join(f"mov.b32 {x}, 0;\n" for x in to)
        + f"@here ld.shared::cluster.v4.f32 {{{', '.join(to)}}}, [address];\n}}"
    )


@gluon.aggregate
class Whole:
    """Where a slice of a tile's K stands in matrices of one product."""

    row: gl.tensor
    col: gl.tensor
    first: gl.tensor  # step in K
    BLOCK_K: gl.constexpr

    @gluon.jit
    def fetch(self, pipeline, step, pred):
        pipeline.fetch(step, self.row, self.col, (self.first + step) * self.BLOCK_K, pred)

    @gluon.jit
    def cut(self, pipeline, step):
        pass  # TMA brings zeros from beyond the end of K


@gluon.jit
def multiply(shape, pipeline, source, count, SWAP: gl.constexpr):
    """The tile's sum over `count` steps in K; loads run STAGES - 1 steps ahead."""
    ROWS: gl.constexpr = shape.BLOCK_N if SWAP else shape.BLOCK_M
    COLS: gl.constexpr = shape.BLOCK_M if SWAP else shape.BLOCK_N
    K_BITS: gl.constexpr = 256  # of K, one instruction takes 32 bytes
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[gl.num_warps(), 1],
        instr_shape=[16, COLS, K_BITS // pipeline.a_desc.dtype.primitive_bitwidth],
    )
    for step in gl.static_range(pipeline.STAGES - 1):
        source.fetch(pipeline, step, step < count)
    acc = gl.zeros((ROWS, COLS), gl.float32, layout)
    for step in range(count):
        a, b = pipeline.operands(step)
        source.cut(pipeline, step)
        if SWAP:
            acc = warpgroup_mma(b.permute((1, 0)), a.permute((1, 0)), acc, is_async=True, use_acc=step > 0)
        else:
            acc = warpgroup_mma(a, b, acc, is_async=True, use_acc=step > 0)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        gl.barrier()  # every warp is done with the buffers of the step before this one
        ahead = step + pipeline.STAGES - 1
        source.fetch(pipeline, ahead, ahead < count)
    gdc_launch_dependents()  # all is read: the next kernel may come
    return warpgroup_mma_wait(0, deps=(acc,))


@gluon.jit
def add_and_store(shape, buf, c_ptr, d_ptr, ldc, ldd, epilogue, rank, row, col):
    """This block's units of the tile: the sum over the cluster, the epilogue, D."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    UNIT: gl.constexpr = 128 * gl.num_warps()  # elements added and stored at a time, four a thread
    UNITS: gl.constexpr = shape.BLOCK_M * shape.BLOCK_N // UNIT
    for unit in range(rank, UNITS, shape.splits):
        inside = unit * UNIT + gl.arange(0, UNIT, layout)
        total = gl.zeros([UNIT], gl.float32, layout)
        for peer in gl.static_range(MOST):
            total += gl.inline_asm(
                load_from_peer, ("=f", "r", "r", "r", "r"), [buf, peer, shape.splits, inside * 4], total.type,
                is_pure=False,
            )  # fmt: skip
        rows = row + inside // shape.BLOCK_N
        cols = col + inside % shape.BLOCK_N
        here = (rows < shape.M) & (cols < shape.N)
        total *= epilogue.alpha
        if epilogue.beta != 0.0:
            c = gl.load(c_ptr + (rows.to(gl.int64) * ldc + cols), mask=here, other=0.0)
            total += epilogue.beta * c.to(gl.float32)
        total = epilogue.finish_flat(total, cols)
        gl.store(d_ptr + (rows.to(gl.int64) * ldd + cols), total.to(d_ptr.dtype.element_ty), mask=here)


@gluon.jit
def allocate_sums(shape):
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    return gl.allocate_shared_memory(gl.float32, [shape.BLOCK_M, shape.BLOCK_N], plain)


@gluon.jit
def reduce(shape, buf, acc, c_ptr, d_ptr, ldc, ldd, epilogue, rank, row, col, SWAP: gl.constexpr):
    """Leave this block's sum where the others of its cluster find it, and store a share of what all of them have."""
    if SWAP:
        buf.permute((1, 0)).store(acc)
    else:
        buf.store(acc)
    cluster_arrive()
    cluster_wait()
    add_and_store(shape, buf, c_ptr, d_ptr, ldc, ldd, epilogue, rank, row, col)
    cluster_arrive()  # no block leaves while another may read its shared memory
    cluster_wait()


@gluon.jit
def run_cluster(shape, pipeline, c_ptr, d_ptr, ldc, ldd, epilogue, SWAP: gl.constexpr):
    """This block's unit of its cluster's tile, and its share of the sum."""
    buf = allocate_sums(shape)
    unit = gl.program_id(0)
    row, col = shape.rasterise(unit // shape.splits)
    first, count = shape.steps(unit)
    gdc_wait()  # what the kernel before this one writes may be our A, B or C, what it reads our D
    acc = multiply(shape, pipeline, Whole(row, col, first, shape.BLOCK_K), count, SWAP)
    reduce(shape, buf, acc, c_ptr, d_ptr, ldc, ldd, epilogue, unit % shape.splits, row, col, SWAP)


@gluon.jit
def gemm_cluster(
    a_desc, b_desc, c_ptr, d_ptr, bias_ptr, splits, M, N, K, ldc, ldd, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """K shared by the `splits` blocks of a cluster, one tile a cluster."""
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, splits)
    pipeline = make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B)
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    run_cluster(shape, pipeline, c_ptr, d_ptr, ldc, ldd, epilogue, False)


@gluon.jit
def gemm_swap_cluster(
    a_desc, b_desc, c_ptr, d_ptr, bias_ptr, splits, M, N, K, ldc, ldd, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """gemm_cluster with operands swapped (swap-AB): for few rows of A, which fill the narrow side, 8 at least."""
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, splits)
    pipeline = make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B)
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    run_cluster(shape, pipeline, c_ptr, d_ptr, ldc, ldd, epilogue, True)
