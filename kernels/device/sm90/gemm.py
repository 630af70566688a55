"""Dense GEMM for Hopper in Gluon, persistent: one loading warp, and warpgroups that multiply and store. sm_90a only.

Two ways to share the same work. Cooperative: two or three warpgroups own 64 or 128 rows each of one tile. Pingpong: two
warpgroups own a tile each and take turns on the tensor cores, so that one stores while the other multiplies. The left
side of a tile is 64 or 128 rows a warpgroup, its right side any multiple of 8: op(A) and op(B), or with operands
swapped (swap-AB) op(B)^T and op(A)^T. What each needs is stated once, as a guard in spec.py.

In a cluster (CLUSTER > 1) the blocks have tiles below one another that share one right tile, and ACROSS of them
side by side, that share one left tile: each loads its part of what it shares for all (multicast). That pays where rows
of an operand begin on 16 but not on 32 bytes, so that a line of 128 bytes takes TMA twice the time; elsewhere it costs
a little.

With PROMOTE 8-bit products of 128 of K are added to a sum in registers, in float32 (promote.py), with BLOCKS times the
scales of their blocks; without it they go on to the end of K on the tensor cores.

A kernel may be started before the one ahead of it in the stream has ended (programmatic dependent launch): it lets its
own successor come once all that it reads of A and B is read or on its way, and each of its warps waits for its
predecessor before it touches memory.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.block_scales import arrivals, bring_partition, make_block_scales, tile_scales
from kernels.device.sm90.epilogue import Epilogue, MaskedOutput, make_output
from kernels.device.sm90.loader import barriers, begin_first, load_partition, make_stages, meet, prefetch_maps
from kernels.device.sm90.mainloop import multiply, wait_for_parts, zero_parts
from kernels.device.sm90.promote import multiply_promoted
from kernels.device.sm90.scales import make_scales
from kernels.device.sm90.scheduler import Tiles
from kernels.device.sm90.split_output import make_split_output
from kernels.device.sm90.team import Team, make_team


@gluon.aggregate
class Ahead:
    """What warpgroups that share a tile do while its first products are under way: ask for what its end wants, and look
    up where the next tile stands, which takes some 300 cycles."""

    out: gl.base_value
    tiles: Tiles
    unit: gl.tensor
    left: gl.tensor
    right: gl.tensor
    ahead: gl.tensor  # the next unit, or the last of all where there is none
    team: Team

    @gluon.jit
    def do(self):
        asked = self.out.begin(self.unit, self.left, self.right, self.team)
        left, right = self.tiles.place(self.ahead)
        return asked, left, right


@gluon.jit
def consume(
    tiles, stages, out, turns, blocks, FIRST: gl.constexpr, ROWS: gl.constexpr, PINGPONG: gl.constexpr,
    PROMOTE: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """All warpgroups here, from number FIRST on: each multiplies and stores its ROWS rows of every unit or, with
    pingpong, of every second one."""
    team = make_team(tiles.CLUSTER > 1)
    number = FIRST + team.number
    own = 0 if PINGPONG else number * ROWS  # its first row of the left operand
    meet(tiles.CLUSTER)
    stages = stages.of_consumer(team)
    first = tiles.first()
    stride = tiles.stride()
    step = 0
    if PINGPONG:
        if number == 1:
            _, step = tiles.steps(first)  # those of the other consumer's first unit
        first += number * stride
        stride *= 2
    phase = 0
    turn = 1 - number  # the first consumer need not wait for its first turn
    next_left, next_right = tiles.place(first)
    gdc_wait()  # what the kernel before this one reads may be our D, what it writes our C
    for unit in range(first, tiles.count(), stride):
        left = next_left
        right = next_right
        start, count = tiles.steps(unit)
        if PROMOTE and not PINGPONG:
            parts = zero_parts(ROWS, tiles.RIGHT, out.MOST)
            scales = tile_scales(blocks, left, right, start * stages.left.LINES)
            ahead = Ahead(out, tiles, unit, left + own, right, gl.minimum(unit + stride, tiles.count() - 1), team)
            parts, step, done = multiply_promoted(
                parts, stages, scales, step, count, own, tiles.RIGHT, REGISTERS, True, (), (ahead,)
            )
            asked, next_left, next_right = done
        else:
            asked = out.begin(unit, left + own, right, team)
            parts = zero_parts(ROWS, tiles.RIGHT, out.MOST)
            if PINGPONG:
                team.wait(turns.index(number), turn)
                turn ^= 1
            if PROMOTE:
                scales = tile_scales(blocks, left, right, start * stages.left.LINES)
                parts, step, _ = multiply_promoted(
                    parts, stages, scales, step, count, own, tiles.RIGHT, REGISTERS, False
                )  # fmt: skip
            else:
                last = stages.BLOCK_K
                if not tiles.SPLIT:
                    last = tiles.K - (start + count - 1) * stages.BLOCK_K
                parts, step = multiply(parts, stages, step, count, last, own, tiles.RIGHT, CUT=not tiles.SPLIT)
            if PINGPONG:
                team.tell(turns.index(1 - number))
            if unit + stride < tiles.count():
                next_left, next_right = tiles.place(unit + stride)  # other products are under way
        if not PROMOTE:
            parts = wait_for_parts(parts, tiles.RIGHT)
            stages.release(step + stages.STAGES - 1)
        if PINGPONG:
            _, others = tiles.steps(unit + stride // 2)
            step += others
        phase = out.store(parts, number, phase, left + own, right, unit, asked, team)
    out.drain()


@gluon.jit
def make_tiles(
    M, N, K, beta, splits, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    CLUSTER: gl.constexpr, ACROSS: gl.constexpr, SWAP: gl.constexpr, SPLIT: gl.constexpr, BLOCKS: gl.constexpr,
):  # fmt: skip
    # A tile moved inside would lie across two blocks of 128 columns.
    whole = gl.to_tensor(False) if BLOCKS else beta == 0.0
    if SWAP:
        return Tiles(N, M, K, whole, splits, BLOCK_N, BLOCK_M, BLOCK_K, GROUP_M, CLUSTER, ACROSS, SPLIT)
    else:
        return Tiles(M, N, K, whole, splits, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, CLUSTER, ACROSS, SPLIT)


@gluon.jit
def run(
    tiles, stages, out, blocks, CONSUMERS: gl.constexpr, ROWS: gl.constexpr, PINGPONG: gl.constexpr,
    PROMOTE: gl.constexpr,
):  # fmt: skip
    turns = stages.empty  # a barrier that nobody waits at would lie where others write
    if PINGPONG:
        turns = barriers(2, 1, tiles.CLUSTER > 1)
    if tiles.CLUSTER == 1:
        begin_first(tiles, stages)
    gl.barrier()  # barriers are made before anybody waits for one
    # Warps that only meet are there for a cluster's barrier, which counts all: the compiler fills up to four.
    # A thread's registers: what two or three warpgroups that multiply leave to each.
    MANY: gl.constexpr = 232
    FEW: gl.constexpr = 152
    if CONSUMERS == 3:
        gl.warp_specialize(
            [
                (consume, (tiles, stages, out, turns, blocks, 0, ROWS, PINGPONG, PROMOTE, FEW)),
                (consume, (tiles, stages, out, turns, blocks, 2, ROWS, PINGPONG, PROMOTE, FEW)),
                (load_partition, (tiles, stages)),
                (bring_partition, (tiles, stages, blocks[0])) if len(blocks) > 0 else (meet, (tiles.CLUSTER,)),
                (meet, (tiles.CLUSTER,)),
            ],
            [4, 1, 1, 2],
            [FEW, 40, 40, 40],
        )
    elif tiles.CLUSTER > 1:
        gl.warp_specialize(
            [
                (consume, (tiles, stages, out, turns, blocks, 0, ROWS, PINGPONG, PROMOTE, MANY)),
                (load_partition, (tiles, stages)),
                (bring_partition, (tiles, stages, blocks[0])) if len(blocks) > 0 else (meet, (tiles.CLUSTER,)),
                (meet, (tiles.CLUSTER,)),
            ],
            [1, 1, 2],
            [40, 40, 40],
        )
    elif len(blocks) > 0:
        gl.warp_specialize(
            [
                (consume, (tiles, stages, out, turns, blocks, 0, ROWS, PINGPONG, PROMOTE, MANY)),
                (load_partition, (tiles, stages)),
                (bring_partition, (tiles, stages, blocks[0])),
            ],
            [1, 1],
            [40, 40],
        )
    else:
        gl.warp_specialize(
            [
                (consume, (tiles, stages, out, turns, blocks, 0, ROWS, PINGPONG, PROMOTE, MANY)),
                (load_partition, (tiles, stages)),
            ],
            [1],
            [40],
        )


@gluon.jit
def store_by_tma(
    a_desc, b_desc, c_descs, d_descs, bias_ptr, M, N, K, alpha, beta, activation, a_scale, b_scale, scaling,
    a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, d_scale, d_amax,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, CLUSTER: gl.constexpr, ACROSS: gl.constexpr, SYMBOL: gl.constexpr, SWAP: gl.constexpr,
    PINGPONG: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr, SCALED: gl.constexpr,
    PROMOTE: gl.constexpr, BLOCKS: gl.constexpr, TO_E4M3: gl.constexpr,
):  # fmt: skip
    LEFT: gl.constexpr = BLOCK_N if SWAP else BLOCK_M
    CONSUMERS: gl.constexpr = 3 if not PINGPONG and LEFT == 192 else 2
    OWNERS: gl.constexpr = 1 if PINGPONG else CONSUMERS  # of a tile
    tiles = make_tiles(
        M, N, K, beta, gl.to_tensor(1), BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, CLUSTER, ACROSS, SWAP, False, BLOCKS
    )
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, SWAP, OWNERS, CLUSTER,
        ARRIVALS=arrivals(BLOCKS), ACROSS=ACROSS,
    )  # fmt: skip
    prefetch_maps(SYMBOL, (10 + 5 * len(c_descs),))  # D's, of the widest box
    scales = make_scales(
        a_scale, b_scale, scaling, M, N, CONSUMERS, LEFT // OWNERS, tiles.RIGHT, SWAP, SCALED, d_scale, d_amax, TO_E4M3
    )
    blocks = make_block_scales(
        a_scale, b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, M, N, K, tiles,
        stages, SWAP, BLOCKS,
    )  # fmt: skip
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, SWAP, scales)
    out = make_output(SYMBOL, c_descs, d_descs, epilogue, CONSUMERS, BUFFERS, CLUSTER > 1)
    run(tiles, stages, out, blocks, CONSUMERS, LEFT // OWNERS, PINGPONG, PROMOTE)


@gluon.jit
def gemm_tma(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, M, N, K, alpha, beta, activation,
    a_scale, b_scale, scaling, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, d_scale, d_amax,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, CLUSTER: gl.constexpr, ACROSS: gl.constexpr, SYMBOL: gl.constexpr, SWAP: gl.constexpr,
    PINGPONG: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr, SCALED: gl.constexpr,
    PROMOTE: gl.constexpr, BLOCKS: gl.constexpr, TO_E4M3: gl.constexpr,
):  # fmt: skip
    """D leaves by TMA, in boxes all alike."""
    store_by_tma(
        a_desc, b_desc, (c_desc,), (d_desc,), bias_ptr, M, N, K, alpha, beta, activation, a_scale, b_scale, scaling,
        a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, d_scale, d_amax,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, BUFFERS, CLUSTER, ACROSS, SYMBOL, SWAP, PINGPONG, TRANS_A, TRANS_B,
        ACTIVATE, SCALED, PROMOTE, BLOCKS, TO_E4M3,
    )  # fmt: skip


@gluon.jit
def gemm_tma_parts(
    a_desc, b_desc, c_desc, c_desc_2, c_desc_4, c_desc_8, d_desc, d_desc_2, d_desc_4, d_desc_8, bias_ptr, M, N, K,
    alpha, beta, activation,
    a_scale, b_scale, scaling, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, d_scale, d_amax,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, CLUSTER: gl.constexpr, ACROSS: gl.constexpr, SYMBOL: gl.constexpr, SWAP: gl.constexpr,
    PINGPONG: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr, SCALED: gl.constexpr,
    PROMOTE: gl.constexpr, BLOCKS: gl.constexpr, TO_E4M3: gl.constexpr,
):  # fmt: skip
    """The same of any width: what is left of it by boxes of a half, a quarter, an eighth of the columns."""
    store_by_tma(
        a_desc, b_desc, (c_desc, c_desc_2, c_desc_4, c_desc_8), (d_desc, d_desc_2, d_desc_4, d_desc_8), bias_ptr,
        M, N, K, alpha, beta, activation, a_scale, b_scale, scaling,
        a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, d_scale, d_amax,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, BUFFERS, CLUSTER, ACROSS, SYMBOL, SWAP, PINGPONG, TRANS_A, TRANS_B,
        ACTIVATE, SCALED, PROMOTE, BLOCKS, TO_E4M3,
    )  # fmt: skip


@gluon.jit
def gemm_split(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, partials, semaphores, epoch, splits, M, N, K, alpha, beta, activation,
    a_scale, b_scale, scaling, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, d_scale, d_amax,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    BUFFERS: gl.constexpr, SYMBOL: gl.constexpr, SWAP: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr, SCALED: gl.constexpr, PROMOTE: gl.constexpr,
    BLOCKS: gl.constexpr, TO_E4M3: gl.constexpr,
):  # fmt: skip
    """Pingpong, and K shared by `splits` units a tile, more than a cluster has: they reduce in the workspace."""
    tiles = make_tiles(M, N, K, beta, splits, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, 1, 1, SWAP, True, BLOCKS)
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, SWAP, ARRIVALS=arrivals(BLOCKS)
    )
    LEFT: gl.constexpr = BLOCK_N if SWAP else BLOCK_M
    scales = make_scales(a_scale, b_scale, scaling, M, N, 2, LEFT, tiles.RIGHT, SWAP, SCALED, d_scale, d_amax, TO_E4M3)
    blocks = make_block_scales(
        a_scale, b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, M, N, K, tiles,
        stages, SWAP, BLOCKS,
    )  # fmt: skip
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, SWAP, scales)
    out = make_output(SYMBOL, (c_desc,), (d_desc,), epilogue, 2, BUFFERS)
    split = make_split_output(out, partials, semaphores, epoch, splits)
    run(tiles, stages, split, blocks, 2, LEFT, True, PROMOTE)


@gluon.jit
def gemm_masked(
    a_desc, b_desc, c_ptr, d_ptr, bias_ptr, M, N, K, ldc, ldd, alpha, beta, activation,
    a_scale, b_scale, scaling, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, d_scale, d_amax,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SYMBOL: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
    SCALED: gl.constexpr, PROMOTE: gl.constexpr, BLOCKS: gl.constexpr, TO_E4M3: gl.constexpr,
):  # fmt: skip
    """Pingpong, for a C or D of any alignment and leading dimension."""
    tiles = make_tiles(M, N, K, beta, gl.to_tensor(1), BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, 1, 1, False, False, BLOCKS)
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, False, ARRIVALS=arrivals(BLOCKS)
    )
    scales = make_scales(a_scale, b_scale, scaling, M, N, 2, BLOCK_M, BLOCK_N, False, SCALED, d_scale, d_amax, TO_E4M3)
    blocks = make_block_scales(
        a_scale, b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, M, N, K, tiles,
        stages, False, BLOCKS,
    )  # fmt: skip
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False, scales)
    out = MaskedOutput(c_ptr, d_ptr, ldc, ldd, M, epilogue, BLOCK_N)
    run(tiles, stages, out, blocks, 2, BLOCK_M, True, PROMOTE)
