"""Grouped GEMM of packed operands: group ends, read on the device, cut M, N or K, or nothing. Reference set."""

import triton
import triton.language as tl

from kernels.device.portable.blocks import multiply_tile_scaled
from kernels.device.portable.tiles import multiply_tile, rasterise, store_tile


@triton.jit
def load_end(offs_ptr, index, offs_wide, mask):
    """Group ends as int64, from int32 or (offs_wide) int64; 0 where masked off."""
    if offs_wide != 0:
        end = tl.load(offs_ptr.to(tl.pointer_type(tl.int64)) + index, mask=mask, other=0)
    else:
        end = tl.load(offs_ptr + index, mask=mask, other=0).to(tl.int64)
    return end


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def lane_value(x, here):
    """The value of one lane, whose `here` is set, as a scalar."""
    return tl.sum(tl.where(here, x, 0), 0)


@triton.jit
def grouped_mm(
    a_ptr, b_ptr, c_ptr, d_ptr, bias_ptr, offs_ptr,
    M, N, K, groups, ragged, zero_tail,
    lda, ldb, ldc, ldd,
    batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d, batch_stride_bias,
    alpha, beta, activation, offs_wide,
    a_scale, b_scale, scaling, batch_stride_a_scale, batch_stride_b_scale,
    a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, a_type, b_type,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, PRECISION: tl.constexpr,
    ALIGN: tl.constexpr, ACTIVATE: tl.constexpr, SCALED: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    """Persistent: each program takes every num_programs-th tile. Ends are scanned CHUNK at a time by a prefix sum.

    `ragged` is the C enum: 0 the ends cut M, 1 N, 2 K, 3 there are no ends. Operands that all groups share have batch
    strides of 0. With zero_tail what lies behind the last end of M or N is one more group, of K = 0 and no epilogue.
    Ends are clamped to [previous end, size] before use, so a table that lies gives wrong numbers but never an address
    outside the buffers, and nothing of what it cuts is computed twice.
    """
    CHUNK: tl.constexpr = 128
    # Whether neither A nor B has K as its contiguous dimension: then aligned rows need no multiple of ALIGN of it.
    K_STRIDED: tl.constexpr = TRANS_A and not TRANS_B
    lda = lda // ALIGN * ALIGN
    ldb = ldb // ALIGN * ALIGN
    ldc = ldc // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    batch_stride_a = batch_stride_a // ALIGN * ALIGN
    batch_stride_b = batch_stride_b // ALIGN * ALIGN
    batch_stride_c = batch_stride_c // ALIGN * ALIGN
    batch_stride_d = batch_stride_d // ALIGN * ALIGN
    if alpha == 0.0:
        K = 0  # A and B are not read
    size = tl.where(ragged == 0, M, tl.where(ragged == 1, N, K)).to(tl.int64)
    ends = tl.where(ragged == 3, 0, groups)
    count = groups + zero_tail
    tile = tl.program_id(0).to(tl.int64)
    before = tl.zeros((), dtype=tl.int64)  # tiles in the chunks already passed
    passed = tl.zeros((), dtype=tl.int64)  # their largest end
    lane = tl.arange(0, CHUNK)
    for chunk in range(0, count, CHUNK):
        group = chunk + lane
        start = load_end(offs_ptr, group - 1, offs_wide, (group > 0) & (group <= ends))
        end = load_end(offs_ptr, group, offs_wide, group < ends)
        end = tl.where(group < groups, end, size)  # of the tail
        start = tl.maximum(tl.associative_scan(tl.minimum(start, size), 0, larger), passed)
        end = tl.minimum(tl.maximum(end, start), size)
        tiles_m = (tl.where(ragged == 0, end - start, M) + BLOCK_M - 1) // BLOCK_M
        tiles_n = (tl.where(ragged == 1, end - start, N) + BLOCK_N - 1) // BLOCK_N
        tiles = tl.where(group < count, tiles_m * tiles_n, 0)
        upto = tl.cumsum(tiles, 0)
        total = tl.sum(tiles, 0)
        passed = tl.maximum(passed, tl.max(tl.where(group < ends, end, 0), 0))
        while tile < before + total:
            inside = tile - before
            here = lane == tl.sum((upto <= inside).to(tl.int32), 0)
            inside -= lane_value(upto - tiles, here)
            first = lane_value(start, here)
            last = lane_value(end, here)
            index = lane_value(group, here).to(tl.int64)
            tile_m, tile_n = rasterise(inside, lane_value(tiles_m, here), lane_value(tiles_n, here), GROUP_M)
            row = tl.where(ragged == 0, first, 0) + tile_m * BLOCK_M
            row_end = tl.where(ragged == 0, last, M)
            # Aligned operands never have N cut, nor a contiguous M or K: there these divisions change nothing, and say
            # so to the compiler.
            col = tl.where(ragged == 1, first, 0) // ALIGN * ALIGN + tile_n * BLOCK_N
            col_end = tl.where(ragged == 1, last, N) // ALIGN * ALIGN
            inner = tl.where(ragged == 2, first, 0)
            depth = tl.where(ragged == 2, last - first, K)
            if TRANS_A:
                row = row // ALIGN * ALIGN
                row_end = row_end // ALIGN * ALIGN
            if not K_STRIDED:
                inner = inner // ALIGN * ALIGN
                depth = depth // ALIGN * ALIGN
            tail = index == groups
            depth = tl.where(tail, 0, depth).to(tl.int32)
            own_a = a_ptr + index * batch_stride_a + (inner * lda if TRANS_A else inner)
            own_b = b_ptr + index * batch_stride_b + (inner if TRANS_B else inner * ldb)
            if SCALED:
                acc = multiply_tile_scaled(
                    own_a, own_b, lda, ldb, row, row_end, col, col_end, depth,
                    a_scale + index * batch_stride_a_scale, b_scale + index * batch_stride_b_scale, scaling,
                    a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, a_type, b_type,
                    BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION, FP8, True,
                )  # fmt: skip
            else:
                acc = multiply_tile(
                    own_a, own_b, lda, ldb, row, row_end, col, col_end, depth, a_type, b_type,
                    BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION,
                )  # fmt: skip
            bias = tl.where(tail, 0, (bias_ptr + index * batch_stride_bias).to(tl.int64))
            store_tile(
                acc, c_ptr + index * batch_stride_c, d_ptr + index * batch_stride_d, bias.to(bias_ptr.dtype),
                ldc, ldd, row, row_end, col, col_end, tl.where(depth == 0, 0.0, alpha), tl.where(tail, 0.0, beta),
                activation, BLOCK_M, BLOCK_N, ACTIVATE,
            )  # fmt: skip
            tile += tl.num_programs(0)
        before += total
