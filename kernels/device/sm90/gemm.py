"""Dense GEMM for Hopper in Gluon: tensor descriptors, one loading warp, multiplying warpgroups. sm_90a only.

Two ways to share the same work. `gemm_coop`: eight warps own one large tile together. `gemm_pingpong`: two warpgroups
own a tile each and take turns on the tensor cores, so that one stores while the other multiplies.

`gemm_swap` is the second with operands swapped (swap-AB), for few rows of A; `gemm_masked` is the second for a C or D
TMA cannot address. What each needs is stated once, as a guard in spec.py.

A kernel may be started before the one ahead of it in the stream has ended (programmatic dependent launch): it lets its
own successor come as soon as it runs, and each of its warps waits for its predecessor before it touches memory.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue, MaskedOutput, Output, SplitOutput
from kernels.device.sm90.loader import Shape, barriers, buffers, load_partition, make_pipeline


@gluon.jit
def consume(shape, pipeline, out, turns, FIRST: gl.constexpr, CONSUMERS: gl.constexpr, WARPS: gl.constexpr):
    """WARPS warps multiply and store every CONSUMERS-th unit of this program, beginning with unit FIRST."""
    K_BITS: gl.constexpr = 256  # of K, one instruction takes 32 bytes
    SWAP: gl.constexpr = out.epilogue.SWAP
    ROWS: gl.constexpr = shape.BLOCK_N if SWAP else shape.BLOCK_M
    COLS: gl.constexpr = shape.BLOCK_M if SWAP else shape.BLOCK_N
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[WARPS, 1],
        instr_shape=[16, COLS, K_BITS // pipeline.a_desc.dtype.primitive_bitwidth],
    )
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    programs = gl.num_programs(0)
    step = 0
    if FIRST == 1:
        _, step = shape.steps(gl.program_id(0))  # those of the other consumer's first unit
    phase = 0
    turn = 1 - FIRST  # the first consumer need not wait for its first turn
    for unit in range(gl.program_id(0) + FIRST * programs, shape.work(), CONSUMERS * programs):
        row, col = shape.rasterise(unit // shape.splits)
        _, count = shape.steps(unit)
        out.begin(unit)
        acc = gl.zeros((ROWS, COLS), gl.float32, layout)
        if CONSUMERS == 2:
            mbarrier.wait(turns.index(FIRST), turn)
            turn ^= 1
        for i in range(count):
            a, b = pipeline.operands(step)
            if SWAP:
                acc = warpgroup_mma(b.permute((1, 0)), a.permute((1, 0)), acc, is_async=True, use_acc=i > 0)
            else:
                acc = warpgroup_mma(a, b, acc, is_async=True, use_acc=i > 0)
            acc = warpgroup_mma_wait(1, deps=(acc,))
            pipeline.release(step + pipeline.STAGES - 1, i > 0)  # the one before this is done
            step += 1
        if CONSUMERS == 2:
            mbarrier.arrive(turns.index(1 - FIRST), count=1)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        pipeline.release(step + pipeline.STAGES - 1)
        if CONSUMERS == 2:
            _, others = shape.steps(unit + programs)
            step += others
        phase = out.store(acc, FIRST, phase, row, col, unit)
    out.drain()


@gluon.jit
def only_consumer(shape, pipeline, out, turns):
    consume(shape, pipeline, out, turns, 0, 1, 8)


@gluon.jit
def first_consumer(shape, pipeline, out, turns):
    consume(shape, pipeline, out, turns, 0, 2, 4)


@gluon.jit
def second_consumer(shape, pipeline, out, turns):
    consume(shape, pipeline, out, turns, 1, 2, 4)


@gluon.jit
def run_coop(shape, pipeline, out):
    turns = barriers(1)  # not used: there is one consumer
    gl.warp_specialize([(only_consumer, (shape, pipeline, out, turns)), (load_partition, (shape, pipeline))], [1], [24])


@gluon.jit
def run_pingpong(shape, pipeline, out):
    turns = barriers(2)
    gl.warp_specialize(
        [
            (first_consumer, (shape, pipeline, out, turns)),
            (second_consumer, (shape, pipeline, out, turns)),
            (load_partition, (shape, pipeline)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def gemm_coop(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, PARTS: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    out = Output(c_desc, d_desc, buffers(d_desc, 1), barriers(1), epilogue, PARTS)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, gl.to_tensor(1))
    run_coop(shape, make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B), out)


@gluon.jit
def gemm_pingpong(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, PARTS: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    out = Output(c_desc, d_desc, buffers(d_desc, 2), barriers(2), epilogue, PARTS)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, gl.to_tensor(1))
    run_pingpong(shape, make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B), out)


@gluon.jit
def gemm_swap(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """gemm_pingpong with operands swapped (swap-AB): for few rows of A, which fill the narrow side, 8 at least."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, True)
    out = Output(c_desc, d_desc, buffers(d_desc, 2), barriers(2), epilogue, 1)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, gl.to_tensor(1))
    run_pingpong(shape, make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B), out)


@gluon.jit
def gemm_masked(
    a_desc, b_desc, c_ptr, d_ptr, bias_ptr, M, N, K, ldc, ldd, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """gemm_pingpong for a C or D of any alignment and leading dimension."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    out = MaskedOutput(c_ptr, d_ptr, ldc, ldd, M, epilogue)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, gl.to_tensor(1))
    run_pingpong(shape, make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B), out)


@gluon.jit
def gemm_swap_split(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, partials, semaphores, epoch, splits, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """gemm_swap with K shared by `splits` blocks a tile, more than a cluster has: they reduce in the workspace."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, True)
    out = Output(c_desc, d_desc, buffers(d_desc, 2), barriers(2), epilogue, 1)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, splits)
    pipeline = make_pipeline(a_desc, b_desc, STAGES, TRANS_A, TRANS_B)
    run_pingpong(shape, pipeline, SplitOutput(out, epilogue, partials, semaphores, epoch, splits))
