"""Dense GEMM through tensor descriptors in plain Triton: TMA reads A, B and C and writes D.

Triton chooses the instructions: tensor memory on sm_100, warps' own registers on sm_120. For both it is not measured.
"""

import triton
import triton.language as tl

from kernels.device.portable.tiles import activate, rasterise


@triton.jit
def multiply(
    a_desc, b_desc, row, col, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr,
):  # fmt: skip
    """op(A)[row:, :] @ op(B)[:, col:] for one tile; what lies outside A and B reads as zero."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([k, row]).T if TRANS_A else a_desc.load([row, k])
        b = b_desc.load([col, k]).T if TRANS_B else b_desc.load([k, col])
        acc = tl.dot(a, b, acc)
    return acc


@triton.jit
def store(
    acc, c_desc, d_desc, bias_ptr, row, col, N, alpha, beta, activation, PARTS: tl.constexpr, ACTIVATE: tl.constexpr,
):  # fmt: skip
    """Finish and store a tile in PARTS parts by columns, each as wide as D's box. C is not read when beta is 0; a null
    bias is no bias; what lies outside D is not written."""
    if PARTS == 1:
        acc = acc * alpha
        if beta != 0.0:
            acc += beta * c_desc.load([row, col]).to(tl.float32)
        if bias_ptr.to(tl.int64) != 0:
            cols = col + tl.arange(0, acc.shape[1])
            acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        if ACTIVATE:
            acc = activate(acc, activation)
        d_desc.store([row, col], acc.to(d_desc.dtype))
    else:
        half: tl.constexpr = acc.shape[1] // 2
        left, right = acc.reshape(acc.shape[0], 2, half).permute(0, 2, 1).split()
        store(left, c_desc, d_desc, bias_ptr, row, col, N, alpha, beta, activation, PARTS // 2, ACTIVATE)
        store(right, c_desc, d_desc, bias_ptr, row, col + half, N, alpha, beta, activation, PARTS // 2, ACTIVATE)


@triton.jit
def gemm_pipelined(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, M, N, K, alpha, beta, activation,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PARTS: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, ACTIVATE: tl.constexpr,
):  # fmt: skip
    """A block for each tile; the next steps' A and B come while this one's are multiplied."""
    tile_m, tile_n = rasterise(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    row = tile_m * BLOCK_M
    col = tile_n * BLOCK_N
    acc = multiply(a_desc, b_desc, row, col, K, BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B)
    store(acc, c_desc, d_desc, bias_ptr, row, col, N, alpha, beta, activation, PARTS, ACTIVATE)


@triton.jit
def gemm_specialized(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, M, N, K, alpha, beta, activation,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PARTS: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, ACTIVATE: tl.constexpr,
):  # fmt: skip
    """Persistent, with warps of their own for loads, products and stores. It needs tensor memory, so sm_100 and kin."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), warp_specialize=True):
        tile_m, tile_n = rasterise(tile, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N
        acc = multiply(a_desc, b_desc, row, col, K, BLOCK_M, BLOCK_N, BLOCK_K, TRANS_A, TRANS_B)
        store(acc, c_desc, d_desc, bias_ptr, row, col, N, alpha, beta, activation, PARTS, ACTIVATE)
