"""Grouped GEMM over arrays of pointers: each group its own A, B, C, D and sizes, read on the device. Reference set."""

import triton
import triton.language as tl

from kernels.tiles import multiply_tile, store_tile, tile_place

MAX_SIZE = tl.constexpr(2147483391)  # LIBGEMM_MAX_SIZE of libgemm.h


@triton.jit
def size(sizes, group, groups):
    """Of each of these groups, 0 to the largest that there is; 0 past the last group."""
    found = tl.load(sizes + group, mask=group < groups, other=0)
    return tl.minimum(tl.maximum(found, 0), MAX_SIZE).to(tl.int32)


@triton.jit
def tile_count(m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    return tl.cdiv(m, BLOCK_M).to(tl.int64) * tl.cdiv(n, BLOCK_N)


@triton.jit
def pick(values, chosen):
    """The one value that is chosen."""
    return tl.sum(tl.where(chosen, values, 0), 0)


@triton.jit
def read_tables(group_m, group_n, group_k, a_ptrs, b_ptrs, d_ptrs, group_lda, group_ldb, group_ldd, group, groups):
    """What these groups' tables say, all at once."""
    here = group < groups
    m = size(group_m, group, groups)
    n = size(group_n, group, groups)
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
    inside, tiles, upto, group, m, n, k, a_table, b_table, d_table, lda_table, ldb_table, ldd_table,
    c_ptrs, bias_ptrs, group_ldc, a_ptr, d_ptr, alpha, beta, activation,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, PRECISION: tl.constexpr,
    ALIGN: tl.constexpr, ACTIVATE: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Tile number `inside` of these groups, of which each has `tiles`, and all up to it `upto`."""
    own = (upto > inside) & (upto - tiles <= inside)
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
    number = (inside - pick(upto - tiles, own)).to(tl.int32)  # D would be petabytes beyond 32 bits
    tile_m, tile_n = tile_place(number, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    row = tile_m * BLOCK_M
    col = tile_n * BLOCK_N
    a = pick(a_table, own).to(a_ptr.dtype)
    b = pick(b_table, own).to(a_ptr.dtype)
    d = pick(d_table, own).to(d_ptr.dtype)
    if ALIGN > 1:
        a = tl.multiple_of(a, 16)
        b = tl.multiple_of(b, 16)
        d = tl.multiple_of(d, 16)
    acc = multiply_tile(
        a, b, lda, ldb, row, M, col, N, K,
        BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION, UPCAST,
    )  # fmt: skip
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
    ALIGN: tl.constexpr, ACTIVATE: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Persistent: each program takes every num_programs-th tile. Tiles are counted by a prefix sum over CHUNK groups,
    as many as one warp has lanes, whose tables come all at once; MANY groups without one of this program's tiles are
    passed over together. Where a tile is wider than SMALL, and there are no more tiles half as wide than programs, all
    are. a_ptr and d_ptr are null: they only carry the element types.
    """
    CHUNK: tl.constexpr = 32
    MANY: tl.constexpr = 1024
    SMALL: tl.constexpr = 64
    tile = tl.program_id(0).to(tl.int64)
    before = tl.zeros((), dtype=tl.int64)  # tiles in the chunks already passed
    lane = tl.arange(0, CHUNK)
    left = groups
    if BLOCK_N > SMALL:  # noqa: SIM102 - known when this is compiled, the next when it runs
        if groups <= CHUNK:
            m, n, k, a, b, d, lda, ldb, ldd = read_tables(
                group_m, group_n, group_k, a_ptrs, b_ptrs, d_ptrs, group_lda, group_ldb, group_ldd, lane, groups
            )
            tiles = tile_count(m, n, BLOCK_M, SMALL)
            upto = tl.cumsum(tiles, 0)
            total = tl.sum(tiles, 0)
            if total <= tl.num_programs(0):
                left = 0
                if tile < total:
                    compute(
                        tile, tiles, upto, lane, m, n, k, a, b, d, lda, ldb, ldd,
                        c_ptrs, bias_ptrs, group_ldc, a_ptr, d_ptr, alpha, beta, activation,
                        BLOCK_M, SMALL, BLOCK_K, GROUP_M, TRANS_A, TRANS_B, PRECISION, ALIGN, ACTIVATE, UPCAST,
                    )  # fmt: skip
    for block in range(0, left, MANY):
        after = before
        if groups > CHUNK:
            all_of_block = block + tl.arange(0, MANY)
            m = size(group_m, all_of_block, groups)
            after += tl.sum(tile_count(m, size(group_n, all_of_block, groups), BLOCK_M, BLOCK_N), 0)
        end = tl.minimum(block + MANY, groups)
        if (groups > CHUNK) & (tile >= after):
            end = block  # nothing here
            before = after
        for chunk in range(block, end, CHUNK):
            group = chunk + lane
            m, n, k, a, b, d, lda, ldb, ldd = read_tables(
                group_m, group_n, group_k, a_ptrs, b_ptrs, d_ptrs, group_lda, group_ldb, group_ldd, group, groups
            )
            tiles = tile_count(m, n, BLOCK_M, BLOCK_N)
            upto = tl.cumsum(tiles, 0)
            total = tl.sum(tiles, 0)
            while tile < before + total:
                compute(
                    tile - before, tiles, upto, group, m, n, k, a, b, d, lda, ldb, ldd,
                    c_ptrs, bias_ptrs, group_ldc, a_ptr, d_ptr, alpha, beta, activation,
                    BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, TRANS_A, TRANS_B, PRECISION, ALIGN, ACTIVATE, UPCAST,
                )  # fmt: skip
                tile += tl.num_programs(0)
            before += total
