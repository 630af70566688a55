"""Products of 8-bit operands times their scales, of blocks of 128 of K or others: the reference set's. No kernel."""

import triton
import triton.language as tl

from kernels.device.portable.tiles import multiply_tile, scale_tile

BLOCK = tl.constexpr(128)


@triton.jit
def multiply_tile_by_blocks(
    a_ptr, b_ptr, lda, ldb, row, row_end, col, N, K, a_scale, b_scale, scaling,
    a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, a_type, b_type,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, PRECISION: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    """`multiply_tile`, each 128 of K times its scales. scaling is the C enum, and says what shares a scale: 3 a row of
    A and 128 columns of B, 4 a row and a column, 5 128 rows and a column."""
    offs_m = row + tl.arange(0, BLOCK_M)
    offs_n = col + tl.arange(0, BLOCK_N)
    of_a = a_scale + tl.where(scaling == 5, offs_m // BLOCK, offs_m) * a_scale_stride_m
    of_b = b_scale + tl.where(scaling == 3, offs_n // BLOCK, offs_n) * b_scale_stride_n
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        own = multiply_tile(
            a_ptr, b_ptr, lda, ldb, row, row_end, col, N, tl.minimum(K - k, BLOCK), a_type, b_type,
            BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION, FP8,
        )  # fmt: skip
        a_factor = tl.load(of_a, mask=offs_m < row_end, other=0.0)
        b_factor = tl.load(of_b, mask=offs_n < N, other=0.0)
        acc += own * (a_factor[:, None] * b_factor[None, :])
        a_ptr += BLOCK * lda if TRANS_A else BLOCK
        b_ptr += BLOCK if TRANS_B else BLOCK * ldb
        of_a += a_scale_stride_k
        of_b += b_scale_stride_k
    return acc


@triton.jit
def multiply_tile_scaled(
    a_ptr, b_ptr, lda, ldb, row, row_end, col, N, K, a_scale, b_scale, scaling,
    a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, a_type, b_type,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, PRECISION: tl.constexpr, FP8: tl.constexpr,
    MAY_BE_EMPTY: tl.constexpr,
):  # fmt: skip
    """`multiply_tile` times the scales, of any kind. MAY_BE_EMPTY: K may be 0, of which there may be no scales."""
    if scaling > 2:
        acc = multiply_tile_by_blocks(
            a_ptr, b_ptr, lda, ldb, row, row_end, col, N, K, a_scale, b_scale, scaling,
            a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, a_type, b_type,
            BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION, FP8,
        )  # fmt: skip
    else:
        acc = multiply_tile(
            a_ptr, b_ptr, lda, ldb, row, row_end, col, N, K, a_type, b_type,
            BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION, FP8,
        )  # fmt: skip
        if not MAY_BE_EMPTY or K > 0:
            acc = scale_tile(acc, a_scale, b_scale, scaling, row, row_end, col, N, BLOCK_M, BLOCK_N)
    return acc
