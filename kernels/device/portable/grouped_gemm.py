"""Grouped GEMM over arrays of pointers: each group its own A, B, C, D and sizes, read on the device. Reference set."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.device.portable.tiles import multiply_tile, rasterise, store_tile

MAX_SIZE = tl.constexpr(2147483391)  # LIBGEMM_MAX_SIZE of libgemm.h
CHUNK = tl.constexpr(32)  # groups whose tables are read at once: as many as a warp has lanes
MANY = tl.constexpr(1024)  # groups that are passed over together
MAX_TILES = tl.constexpr((1 << 26) - 1)  # of a group: more than fit in memory, and CHUNK times as many in 32 bits


@triton.jit
def size(sizes, group, groups, STEP: tl.constexpr = 1):
    """Of each of these groups, 0 to the largest that there is, in whole steps; 0 past the last group."""
    found = tl.load(sizes + group, mask=group < groups, other=0)
    return tl.minimum(tl.maximum(found, 0), MAX_SIZE).to(tl.int32) // STEP * STEP


@triton.jit
def tile_count(m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    return tl.minimum(tl.cdiv(m, BLOCK_M).to(tl.int64) * tl.cdiv(n, BLOCK_N), MAX_TILES).to(tl.int32)


@triton.jit
def pick(values, lane):
    """The value of one lane, whose number is the one element of `lane`."""
    return tl.sum(tl.gather(values, lane, 0), 0)


@triton.jit
def read_tables(
    group_m, group_n, group_k, a_ptrs, b_ptrs, d_ptrs, group_lda, group_ldb, group_ldd, group, groups,
    STEP_N: tl.constexpr,
):  # fmt: skip
    """What these groups' tables say, all at once."""
    here = group < groups
    m = size(group_m, group, groups)
    n = size(group_n, group, groups, STEP_N)
    k = size(group_k, group, groups)
    a = tl.load(a_ptrs + group, mask=here, other=0)
    b = tl.load(b_ptrs + group, mask=here, other=0)
    d = tl.load(d_ptrs + group, mask=here, other=0)
    lda = tl.load(group_lda + group, mask=here, other=0)
    ldb = tl.load(group_ldb + group, mask=here, other=0)
    ldd = tl.load(group_ldd + group, mask=here, other=0)
    return m, n, k, a, b, d, lda, ldb, ldd


@triton.jit
def compute(
    inside, last, tiles, upto, group, m, n, k, a_table, b_table, d_table, lda_table, ldb_table, ldd_table,
    c_ptrs, bias_ptrs, group_ldc, a_ptr, d_ptr, alpha, beta, activation,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, PRECISION: tl.constexpr,
    ALIGN: tl.constexpr, ACTIVATE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Tile number `inside` of these groups, of which each has `tiles`, and all up to it `upto`. `last`: the program has
    none after it."""
    own = tl.full([1], 0, tl.int32) + tl.sum((upto <= inside).to(tl.int32), 0)
    index = pick(group, own)
    M = pick(m, own)
    N = pick(n, own) // ALIGN * ALIGN
    K = pick(k, own) // ALIGN * ALIGN
    if alpha == 0.0:
        K = 0  # A and B are not read
    lda = pick(lda_table, own) // ALIGN * ALIGN
    ldb = pick(ldb_table, own) // ALIGN * ALIGN
    ldd = pick(ldd_table, own) // ALIGN * ALIGN
    ldc = ldd
    c_ptr = d_ptr
    if beta != 0.0:
        ldc = tl.load(group_ldc + index)
        c_ptr = tl.load(c_ptrs + index).to(d_ptr.dtype)
    bias_ptr = tl.zeros((), dtype=tl.int64).to(d_ptr.dtype)
    if bias_ptrs.to(tl.int64) != 0:
        bias_ptr = tl.load(bias_ptrs + index).to(d_ptr.dtype)
    number = inside - pick(upto - tiles, own)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tile_n = number // tiles_m
    tile_m = number - tile_n * tiles_m
    if tiles_m > GROUP_M:  # else the above is the same, with one division
        tile_m, tile_n = rasterise(number, tiles_m, tl.cdiv(N, BLOCK_N), GROUP_M)
    row = tile_m * BLOCK_M
    col = tile_n * BLOCK_N
    a = pick(a_table, own).to(a_ptr.dtype)
    b = pick(b_table, own).to(a_ptr.dtype)
    d = pick(d_table, own).to(d_ptr.dtype)
    if ALIGN > 1:
        a = tl.multiple_of(a, 16)
        b = tl.multiple_of(b, 16)
        d = tl.multiple_of(d, 16)
    # Where A is read, M is a multiple too if A's rows lie across: where it is not, M may be any.
    acc = multiply_tile(
        a, b, lda, ldb, row, M // ALIGN * ALIGN if TRANS_A else M, col, N, K, 0, 0,
        BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION,
    )  # fmt: skip
    if OVERLAP:  # noqa: SIM102 - known when this is compiled, the next when it runs
        if last:
            gdc_launch_dependents()  # all is read: the next kernel may come
    store_tile(
        acc, c_ptr, d, bias_ptr, ldc, ldd, row, M, col, N,
        tl.where(K > 0, alpha, 0.0), beta, activation, BLOCK_M, BLOCK_N, ACTIVATE,
    )  # fmt: skip


@triton.jit
def grouped_gemm(
    a_ptrs, b_ptrs, c_ptrs, d_ptrs, bias_ptrs,
    group_m, group_n, group_k, group_lda, group_ldb, group_ldc, group_ldd,
    a_ptr, d_ptr,
    groups, alpha, beta, activation,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, PRECISION: tl.constexpr,
    ALIGN: tl.constexpr, ACTIVATE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Persistent: each program takes every num_programs-th tile. Tiles are counted by a prefix sum over CHUNK groups,
    whose tables come all at once; MANY groups without one of this program's tiles are passed over together. Where a
    tile has twice SMALL columns, and there are no more tiles half as wide than programs, all are. a_ptr and d_ptr are
    null: they only carry the element types. OVERLAP: the kernel may be started before the one ahead of it has ended.
    """
    SMALL: tl.constexpr = 64
    if OVERLAP:
        gdc_wait()  # what the kernel before this one writes may be our tables, A, B or C, what it reads our D
    tile = tl.program_id(0).to(tl.int64)
    before = tl.zeros((), dtype=tl.int64)  # tiles in the chunks already passed
    lane = tl.arange(0, CHUNK)
    left = groups
    if BLOCK_N == 2 * SMALL:  # noqa: SIM102 - known when this is compiled, the next when it runs
        if groups <= CHUNK:
            m, n, k, a, b, d, lda, ldb, ldd = read_tables(
                group_m, group_n, group_k, a_ptrs, b_ptrs, d_ptrs, group_lda, group_ldb, group_ldd, lane, groups,
                ALIGN,
            )  # fmt: skip
            tiles = tile_count(m, n, BLOCK_M, SMALL)
            upto = tl.cumsum(tiles, 0)
            total = tl.sum(tiles, 0)
            if total <= tl.num_programs(0):
                left = 0
                if tile < total:
                    compute(
                        tile.to(tl.int32), True, tiles, upto, lane, m, n, k, a, b, d, lda, ldb, ldd,
                        c_ptrs, bias_ptrs, group_ldc, a_ptr, d_ptr, alpha, beta, activation,
                        BLOCK_M, SMALL, BLOCK_K, GROUP_M, TRANS_A, TRANS_B, PRECISION, ALIGN, ACTIVATE, OVERLAP,
                    )  # fmt: skip
    for block in range(0, left, MANY):
        after = before
        if groups > CHUNK:
            all_of_block = block + tl.arange(0, MANY)
            m = size(group_m, all_of_block, groups)
            n = size(group_n, all_of_block, groups, ALIGN)
            after += tl.sum(tile_count(m, n, BLOCK_M, BLOCK_N).to(tl.int64), 0)
        end = tl.minimum(block + MANY, groups)
        if (groups > CHUNK) & (tile >= after):
            end = block  # nothing here
            before = after
        for chunk in range(block, end, CHUNK):
            group = chunk + lane
            m, n, k, a, b, d, lda, ldb, ldd = read_tables(
                group_m, group_n, group_k, a_ptrs, b_ptrs, d_ptrs, group_lda, group_ldb, group_ldd, group, groups,
                ALIGN,
            )  # fmt: skip
            tiles = tile_count(m, n, BLOCK_M, BLOCK_N)
            upto = tl.cumsum(tiles, 0)
            total = tl.sum(tiles, 0)
            while tile < before + total:
                inside = (tile - before).to(tl.int32)
                last = (inside + tl.num_programs(0) >= total) & (chunk + CHUNK >= groups)
                compute(
                    inside, last, tiles, upto, group, m, n, k, a, b, d, lda, ldb, ldd,
                    c_ptrs, bias_ptrs, group_ldc, a_ptr, d_ptr, alpha, beta, activation,
                    BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, TRANS_A, TRANS_B, PRECISION, ALIGN, ACTIVATE, OVERLAP,
                )  # fmt: skip
                tile += tl.num_programs(0)
            before += total
