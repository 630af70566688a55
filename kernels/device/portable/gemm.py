"""Dense GEMM for any shape, leading dimension and alignment: the reference set. Not tuned for one architecture."""

import triton
import triton.language as tl

from kernels.device.portable.blocks import multiply_tile_scaled
from kernels.device.portable.eight_bits import E4M3, finite_size, over_scale, to_8_bits
from kernels.device.portable.tiles import activate, multiply_tile, rasterise, store_tile


@triton.jit
def store_tile_as_e4m3(
    acc, d_ptr, d_scale, d_amax, bias_ptr, ldd, row, row_end, col, N, alpha, activation,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ACTIVATE: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """store_tile of an 8-bit D, which has no C: D = act(alpha * acc + bias) / d_scale; a null one is 1. d_amax, if not
    null, is raised to the largest magnitude of each row before that division."""
    offs_m = row + tl.arange(0, BLOCK_M)
    offs_n = col + tl.arange(0, BLOCK_N)
    inside = (offs_m[:, None] < row_end) & (offs_n[None, :] < N)
    acc = acc * alpha
    if bias_ptr.to(tl.int64) != 0:
        acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATE:
        acc = activate(acc, activation)
    if d_amax.to(tl.int64) != 0:
        most = tl.max(tl.where(inside, finite_size(acc), 0), 1)
        tl.atomic_max(d_amax + offs_m, most, mask=offs_m < row_end, sem="relaxed")
    made = to_8_bits(over_scale(acc, d_scale), 1.0, E4M3, HARDWARE)
    tl.store(d_ptr + offs_m[:, None] * ldd + offs_n[None, :], made, mask=inside)


@triton.jit
def gemm(
    a_ptr, b_ptr, c_ptr, d_ptr, bias_ptr,
    M, N, K,
    lda, ldb, ldc, ldd,
    batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d, batch_stride_bias,
    alpha, beta, activation, a_scale, b_scale, scaling, batch_stride_a_scale, batch_stride_b_scale,
    a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, a_type, b_type, d_scale, d_amax,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, PRECISION: tl.constexpr,
    ALIGN: tl.constexpr, ACTIVATE: tl.constexpr, SCALED: tl.constexpr, FP8: tl.constexpr, TO_E4M3: tl.constexpr,
    HARDWARE: tl.constexpr,
):  # fmt: skip
    # x // ALIGN * ALIGN changes no value the guard lets through; it tells the compiler how far it may vectorise.
    lda = lda // ALIGN * ALIGN
    ldb = ldb // ALIGN * ALIGN
    ldc = ldc // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    K = K // ALIGN * ALIGN
    if TRANS_A:
        M = M // ALIGN * ALIGN
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    program = tl.program_id(0)
    batch = (program // (tiles_m * tiles_n)).to(tl.int64)
    tile_m, tile_n = rasterise(program % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP_M)
    row = tile_m.to(tl.int64) * BLOCK_M
    col = tile_n.to(tl.int64) * BLOCK_N
    a_ptr += batch * (batch_stride_a // ALIGN * ALIGN)
    b_ptr += batch * (batch_stride_b // ALIGN * ALIGN)
    c_ptr += batch * (batch_stride_c // ALIGN * ALIGN)
    d_ptr += batch * (batch_stride_d // ALIGN * ALIGN)
    bias_ptr += batch * batch_stride_bias
    if alpha == 0.0:
        K = 0  # A and B are not read
    if SCALED:
        a_scale += batch * batch_stride_a_scale
        b_scale += batch * batch_stride_b_scale
        acc = multiply_tile_scaled(
            a_ptr, b_ptr, lda, ldb, row, M, col, N, K, a_scale, b_scale, scaling,
            a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k, a_type, b_type,
            BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION, FP8, False,
        )  # fmt: skip
    else:
        acc = multiply_tile(
            a_ptr, b_ptr, lda, ldb, row, M, col, N, K, a_type, b_type,
            BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B, PRECISION,
        )  # fmt: skip
    if TO_E4M3:
        if d_amax.to(tl.int64) != 0:
            d_amax += batch * M
        store_tile_as_e4m3(
            acc, d_ptr, d_scale, d_amax, bias_ptr, ldd, row, M, col, N, alpha, activation, BLOCK_M, BLOCK_N, ACTIVATE,
            HARDWARE,
        )  # fmt: skip
    else:
        store_tile(
            acc, c_ptr, d_ptr, bias_ptr, ldc, ldd, row, M, col, N, alpha, beta, activation, BLOCK_M, BLOCK_N, ACTIVATE
        )
