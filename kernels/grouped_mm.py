"""Grouped GEMM over packed rows (ragged in M): D[s:e] = A[s:e] op(B[g]), ends read on the device. Reference set."""

import triton
import triton.language as tl

from kernels.tiles import multiply_tile, store_tile, tile_place


@triton.jit
def load_end(offs_ptr, index, offs_wide, mask):
    """Group ends as int64, from int32 or (offs_wide) int64; 0 where masked off."""
    if offs_wide != 0:
        end = tl.load(offs_ptr.to(tl.pointer_type(tl.int64)) + index, mask=mask, other=0)
    else:
        end = tl.load(offs_ptr + index, mask=mask, other=0).to(tl.int64)
    return end


@triton.jit
def grouped_mm(
    a_ptr, b_ptr, c_ptr, d_ptr, bias_ptr, offs_ptr,
    M, N, K, groups,
    lda, ldb, ldc, ldd,
    batch_stride_b, batch_stride_bias,
    alpha, beta, activation, offs_wide,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, PRECISION: tl.constexpr,
    ALIGN: tl.constexpr, ACTIVATE: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Persistent: each program takes every num_programs-th tile. Ends are scanned CHUNK at a time by a prefix sum.

    Ends are clamped to [previous end, M] before use, so a table that lies gives wrong rows but never an address
    outside the buffers.
    """
    CHUNK: tl.constexpr = 128
    lda = lda // ALIGN * ALIGN
    ldb = ldb // ALIGN * ALIGN
    ldc = ldc // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    batch_stride_b = batch_stride_b // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    K = K // ALIGN * ALIGN
    if alpha == 0.0:
        K = 0  # A and B are not read
    tiles_n = tl.cdiv(N, BLOCK_N).to(tl.int64)
    tile = tl.program_id(0).to(tl.int64)
    before = tl.zeros((), dtype=tl.int64)  # tiles in the chunks already passed
    lane = tl.arange(0, CHUNK)
    for chunk in range(0, groups, CHUNK):
        group = chunk + lane
        start = load_end(offs_ptr, group - 1, offs_wide, (group > 0) & (group < groups))
        end = load_end(offs_ptr, group, offs_wide, group < groups)
        start = tl.minimum(tl.maximum(start, 0), M)
        end = tl.minimum(tl.maximum(end, start), M)
        tiles = tl.where(group < groups, (end - start + BLOCK_M - 1) // BLOCK_M * tiles_n, 0)
        upto = tl.cumsum(tiles, 0)
        total = tl.sum(tiles, 0)
        while tile < before + total:
            inside = tile - before
            here = lane == tl.sum((upto <= inside).to(tl.int32), 0)
            row_start = tl.sum(tl.where(here, start, 0), 0)
            row_end = tl.sum(tl.where(here, end, 0), 0)
            inside -= tl.sum(tl.where(here, upto - tiles, 0), 0)
            index = tl.sum(tl.where(here, group, 0), 0).to(tl.int64)
            tile_m, tile_n = tile_place(inside, (row_end - row_start + BLOCK_M - 1) // BLOCK_M, tiles_n, GROUP_M)
            row = row_start + tile_m * BLOCK_M
            col = tile_n * BLOCK_N
            acc = multiply_tile(
                a_ptr, b_ptr + index * batch_stride_b, lda, ldb, row, row_end, col, N, K,
                BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION, UPCAST,
            )  # fmt: skip
            store_tile(
                acc, c_ptr, d_ptr, bias_ptr + index * batch_stride_bias, ldc, ldd, row, row_end, col, N,
                alpha, beta, activation, BLOCK_M, BLOCK_N, ACTIVATE,
            )  # fmt: skip
            tile += tl.num_programs(0)
        before += total
