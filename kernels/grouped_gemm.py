"""Grouped GEMM over arrays of pointers: each group its own A, B, C, D and sizes, read on the device. Reference set."""

import triton
import triton.language as tl

from kernels.tiles import multiply_tile, store_tile, tile_place


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
    """Persistent: each program takes every num_programs-th tile. Sizes are scanned CHUNK groups at a time by a prefix
    sum. a_ptr and d_ptr are null: they only carry the element types. A negative size counts as 0.
    """
    CHUNK: tl.constexpr = 128
    tile = tl.program_id(0).to(tl.int64)
    before = tl.zeros((), dtype=tl.int64)  # tiles in the chunks already passed
    lane = tl.arange(0, CHUNK)
    for chunk in range(0, groups, CHUNK):
        group = chunk + lane
        m = tl.load(group_m + group, mask=group < groups, other=0)
        n = tl.load(group_n + group, mask=group < groups, other=0)
        tiles = tl.maximum(m + BLOCK_M - 1, 0) // BLOCK_M * (tl.maximum(n + BLOCK_N - 1, 0) // BLOCK_N)
        upto = tl.cumsum(tiles, 0)
        total = tl.sum(tiles, 0)
        while tile < before + total:
            inside = tile - before
            in_chunk = tl.sum((upto <= inside).to(tl.int32), 0)
            inside -= tl.sum(tl.where(lane == in_chunk, upto - tiles, 0), 0)
            index = chunk + in_chunk
            M = tl.load(group_m + index)
            N = tl.load(group_n + index) // ALIGN * ALIGN
            K = tl.maximum(tl.load(group_k + index), 0).to(tl.int32) // ALIGN * ALIGN
            if alpha == 0.0:
                K = 0  # A and B are not read
            lda = tl.load(group_lda + index) // ALIGN * ALIGN
            ldb = tl.load(group_ldb + index) // ALIGN * ALIGN
            ldd = tl.load(group_ldd + index) // ALIGN * ALIGN
            ldc = ldd
            c_ptr = d_ptr
            if beta != 0.0:
                ldc = tl.load(group_ldc + index)
                c_ptr = tl.load(c_ptrs + index).to(d_ptr.dtype)
            bias_ptr = tl.zeros((), dtype=tl.int64).to(d_ptr.dtype)
            if bias_ptrs.to(tl.int64) != 0:
                bias_ptr = tl.load(bias_ptrs + index).to(d_ptr.dtype)
            tile_m, tile_n = tile_place(inside, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
            row = tile_m * BLOCK_M
            col = tile_n * BLOCK_N
            a = tl.load(a_ptrs + index).to(a_ptr.dtype)
            b = tl.load(b_ptrs + index).to(a_ptr.dtype)
            d = tl.load(d_ptrs + index).to(d_ptr.dtype)
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
            tile += tl.num_programs(0)
        before += total
