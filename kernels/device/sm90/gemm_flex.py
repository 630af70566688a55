"""Dense GEMM for Hopper with tiles of any width that is a multiple of 8: for whole waves. sm_90a only.

A tile has `left` rows, those of the tensor-core instruction's M, by `right` ones of its N. Left is op(A) and right
op(B); with operands swapped (swap-AB) left is op(B)^T. How many multiprocessors the last wave leaves idle depends on
how many tiles there are: a width of 144 may give 129 tiles where 128 or 256 give 144 or 72.

`gemm_flex_coop`: two or three warpgroups share a tile, 64 or 128 rows each. `gemm_flex_pingpong`: two warpgroups own a
tile each and take turns on the tensor cores, so that one stores while the other multiplies.

CLUSTER is 2 or 4 where so many blocks side by side along the left operand's rows share one right tile: each loads its
part of it for all (multicast). That pays where rows of an operand begin on 16 but not on 32 bytes, so that a line of
128 bytes takes TMA twice the time; elsewhere it costs a little.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import Epilogue
from kernels.device.sm90.flex import Stages, Store, Tiles, load_partition, make_barriers, make_operand, meet
from kernels.device.sm90.wgmma_parts import multiply_step, wait_for_parts, zero_parts


@gluon.jit
def consume(tiles, stages, out, turns, NUMBER: gl.constexpr, ROWS: gl.constexpr, PINGPONG: gl.constexpr):
    """A warpgroup: multiply and store its ROWS rows of every tile or, with pingpong, of every second one."""
    FIRST: gl.constexpr = 0 if PINGPONG else NUMBER * ROWS
    WIDTH: gl.constexpr = out.WIDTH
    meet(tiles.CLUSTER)
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    count = gl.maximum(gl.cdiv(tiles.K, tiles.BLOCK_K), 1)  # one at least: a loop that may be skipped costs registers
    first = tiles.first()
    stride = tiles.stride()
    step = 0
    if PINGPONG:
        first += NUMBER * stride
        stride *= 2
        step = NUMBER * count
    phase = 0
    turn = 1 - NUMBER  # the first consumer need not wait for its first turn
    for unit in range(first, tiles.count(), stride):
        left, right = tiles.place(unit)
        parts = zero_parts(ROWS, WIDTH, out.MOST)
        if PINGPONG:
            mbarrier.wait(turns.index(NUMBER), turn)
            turn ^= 1
        for i in range(count):
            stages.wait_ready(step)
            slot = step % stages.STAGES
            parts = multiply_step(
                parts, stages.left.at(slot, FIRST), stages.right.at(slot, 0), i > 0, ROWS, WIDTH, out.MOST,
                stages.left.TURNED, stages.right.TURNED,
            )  # fmt: skip
            stages.release(step + stages.STAGES - 1, i > 0)  # the one before this is done
            step += 1
        if PINGPONG:
            mbarrier.arrive(turns.index(1 - NUMBER), count=1)
        parts = wait_for_parts(parts, ROWS, WIDTH)
        stages.release(step + stages.STAGES - 1)
        if PINGPONG:
            step += count
        phase = out.store(parts, NUMBER, phase, left + FIRST, right)
    out.drain()


@gluon.jit
def run(
    a_desc, b_desc, c_descs, d_descs, bias_ptr, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr, BUFFERS: gl.constexpr,
    CLUSTER: gl.constexpr, SYMBOL: gl.constexpr, SWAP: gl.constexpr, PINGPONG: gl.constexpr,
):  # fmt: skip
    """All kernels here: which operand is left, and who multiplies."""
    LEFT: gl.constexpr = BLOCK_N if SWAP else BLOCK_M
    RIGHT: gl.constexpr = BLOCK_M if SWAP else BLOCK_N
    CONSUMERS: gl.constexpr = 3 if not PINGPONG and LEFT == 192 else 2
    ROWS: gl.constexpr = LEFT if PINGPONG else LEFT // CONSUMERS
    MOST: gl.constexpr = d_descs[0].block_type.shape[0 if SWAP else 1]
    # Parameters of the entry point: a descriptor is five of them, of which the first is its tensor map.
    A: gl.constexpr = SYMBOL + "_param_0"
    B: gl.constexpr = SYMBOL + "_param_5"
    if SWAP:
        tiles = Tiles(N, M, K, beta == 0.0, LEFT, RIGHT, BLOCK_K, GROUP_M, CLUSTER)
        left = make_operand(b_desc, STAGES, LEFT, not TRANS_B, 1, B)
        right = make_operand(a_desc, STAGES, RIGHT, TRANS_A, CLUSTER, A)
    else:
        tiles = Tiles(M, N, K, beta == 0.0, LEFT, RIGHT, BLOCK_K, GROUP_M, CLUSTER)
        left = make_operand(a_desc, STAGES, LEFT, TRANS_A, 1, A)
        right = make_operand(b_desc, STAGES, RIGHT, not TRANS_B, CLUSTER, B)
    OWNERS: gl.constexpr = 1 if PINGPONG else CONSUMERS  # of a tile
    RELEASES: gl.constexpr = OWNERS if CLUSTER == 1 else OWNERS * 4 * CLUSTER  # of a cluster each warp tells
    stages = Stages(left, right, make_barriers(STAGES, RELEASES), make_barriers(STAGES, 1), STAGES, CLUSTER)
    SHAPE: gl.constexpr = [CONSUMERS * BUFFERS] + d_descs[0].block_type.shape  # noqa: RUF005
    bufs = gl.allocate_shared_memory(d_descs[0].dtype, SHAPE, d_descs[0].layout)
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, SWAP)
    out = Store(c_descs, d_descs, bufs, make_barriers(CONSUMERS, 1), epilogue, RIGHT, MOST, BUFFERS)
    turns = make_barriers(2, 1)
    # The last two are three warps that only meet: a cluster's barrier counts those that the compiler fills up with.
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consume, (tiles, stages, out, turns, 0, ROWS, PINGPONG)),
                (consume, (tiles, stages, out, turns, 1, ROWS, PINGPONG)),
                (load_partition, (tiles, stages)),
                (meet, (CLUSTER,)),
                (meet, (CLUSTER,)),
            ],
            [4, 1, 1, 2],
            [232, 40, 40, 40],
        )
    else:
        gl.warp_specialize(
            [
                (consume, (tiles, stages, out, turns, 0, ROWS, PINGPONG)),
                (consume, (tiles, stages, out, turns, 1, ROWS, PINGPONG)),
                (consume, (tiles, stages, out, turns, 2, ROWS, PINGPONG)),
                (load_partition, (tiles, stages)),
                (meet, (CLUSTER,)),
                (meet, (CLUSTER,)),
            ],
            [4, 4, 1, 1, 2],
            [152, 152, 40, 40, 40],
        )


@gluon.jit
def gemm_flex_coop(
    a_desc, b_desc, c_desc, c_desc_2, c_desc_4, c_desc_8, d_desc, d_desc_2, d_desc_4, d_desc_8, bias_ptr, M, N, K,
    alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, CLUSTER: gl.constexpr, SYMBOL: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """Warpgroups that share a tile; left is op(A)."""
    run(
        a_desc, b_desc, (c_desc, c_desc_2, c_desc_4, c_desc_8), (d_desc, d_desc_2, d_desc_4, d_desc_8), bias_ptr,
        M, N, K, alpha, beta, activation, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, TRANS_A, TRANS_B, ACTIVATE,
        BUFFERS, CLUSTER, SYMBOL, False, False,
    )  # fmt: skip


@gluon.jit
def gemm_flex_pingpong(
    a_desc, b_desc, c_desc, c_desc_2, c_desc_4, c_desc_8, d_desc, d_desc_2, d_desc_4, d_desc_8, bias_ptr, M, N, K,
    alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, CLUSTER: gl.constexpr, SYMBOL: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """Two warpgroups in turns; left is op(A)."""
    run(
        a_desc, b_desc, (c_desc, c_desc_2, c_desc_4, c_desc_8), (d_desc, d_desc_2, d_desc_4, d_desc_8), bias_ptr,
        M, N, K, alpha, beta, activation, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, TRANS_A, TRANS_B, ACTIVATE,
        BUFFERS, CLUSTER, SYMBOL, False, True,
    )  # fmt: skip


@gluon.jit
def gemm_flex_coop_swap(
    a_desc, b_desc, c_desc, c_desc_2, c_desc_4, c_desc_8, d_desc, d_desc_2, d_desc_4, d_desc_8, bias_ptr, M, N, K,
    alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, CLUSTER: gl.constexpr, SYMBOL: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """Warpgroups that share a tile; left is op(B)^T."""
    run(
        a_desc, b_desc, (c_desc, c_desc_2, c_desc_4, c_desc_8), (d_desc, d_desc_2, d_desc_4, d_desc_8), bias_ptr,
        M, N, K, alpha, beta, activation, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, TRANS_A, TRANS_B, ACTIVATE,
        BUFFERS, CLUSTER, SYMBOL, True, False,
    )  # fmt: skip


@gluon.jit
def gemm_flex_pingpong_swap(
    a_desc, b_desc, c_desc, c_desc_2, c_desc_4, c_desc_8, d_desc, d_desc_2, d_desc_4, d_desc_8, bias_ptr, M, N, K,
    alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, CLUSTER: gl.constexpr, SYMBOL: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """Two warpgroups in turns; left is op(B)^T."""
    run(
        a_desc, b_desc, (c_desc, c_desc_2, c_desc_4, c_desc_8), (d_desc, d_desc_2, d_desc_4, d_desc_8), bias_ptr,
        M, N, K, alpha, beta, activation, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, TRANS_A, TRANS_B, ACTIVATE,
        BUFFERS, CLUSTER, SYMBOL, True, True,
    )  # fmt: skip
