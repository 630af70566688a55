"""Device helpers shared by the Triton kernels: tile order, operand loads, the K loop, the epilogue. Not kernels."""

import triton
import triton.language as tl


@triton.jit
def rasterise(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Map a linear tile index to (tile_m, tile_n), GROUP_M rows of tiles at a time so that B stays in L2."""
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    rows = tl.minimum(tiles_m - first, GROUP_M)
    inside = tile % per_group
    return first + inside % rows, inside // rows


@triton.jit
def from_e4m3(x):
    """Bytes as the float16 numbers that they stand for: a sign, four bits of exponent with bias 7, three of mantissa;
    all seven bits set is NaN, and there is no infinity (OCP 8-bit floating point specification, e4m3fn)."""
    bits = ((x & 0x80).to(tl.uint16) << 8) | ((x & 0x7F).to(tl.uint16) << 7)
    value = bits.to(tl.float16, bitcast=True) * 256.0  # float16's bias is 8 more; of subnormal numbers too
    return tl.where((x & 0x7F) == 0x7F, float("nan"), value).to(tl.float16)


@triton.jit
def from_8_bits(x, x_type):
    """Bytes as the float16 numbers that they stand for. x_type is the C enum: 4 e4m3; 5 e5m2, the upper byte of a
    float16, whose infinities and NaNs it has."""
    of_e5m2 = (x.to(tl.uint16) << 8).to(tl.float16, bitcast=True)
    return tl.where(x_type == 5, of_e5m2, from_e4m3(x))


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr, a_type, b_type):
    """acc + a @ b in float32. PRECISION is the C enum: 0 for 16-bit inputs, and for bytes, 1 tf32, 2 tf32x3, 3 ieee.
    a_type and b_type say what bytes are, as from_8_bits has it."""
    if a.dtype == tl.uint8:
        return tl.dot(from_8_bits(a, a_type), from_8_bits(b, b_type), acc)
    elif PRECISION == 2:
        return tl.dot(a, b, acc, input_precision="tf32x3")
    elif PRECISION == 3:
        return tl.dot(a, b, acc, input_precision="ieee")
    else:
        return tl.dot(a, b, acc, input_precision="tf32")


@triton.jit
def add_products(
    acc, a_ptrs, b_ptrs, a_step, b_step, a_rows, b_cols, offs_k, K, a_type, b_type,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, E4M3: tl.constexpr,
):  # fmt: skip
    """acc + all of K. E4M3: both operands are, and tensor cores take them as they are. They may keep fewer bits of a
    sum of 8-bit products than float32 has, so those of BLOCK_K are added up by themselves, and then to acc."""
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=a_rows & (offs_k[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=b_cols & (offs_k[:, None] < K - k), other=0.0)
        if E4M3:
            acc += tl.dot(a.to(tl.float8e4nv, bitcast=True), b.to(tl.float8e4nv, bitcast=True))
        else:
            acc = dot(a, b, acc, PRECISION, a_type, b_type)
        a_ptrs += a_step
        b_ptrs += b_step
    return acc


@triton.jit
def multiply_tile(
    a_ptr, b_ptr, lda, ldb, row, row_end, col, N, K, a_type, b_type,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, PRECISION: tl.constexpr, FP8: tl.constexpr = False,
):  # fmt: skip
    """op(A)[row:row+BLOCK_M, :K] @ op(B)[:K, col:col+BLOCK_N], rows past row_end and columns past N read as zero. FP8:
    tensor cores multiply e4m3; with e5m2 on one side both are float16 once they are loaded."""
    offs_m = row + tl.arange(0, BLOCK_M)
    offs_n = col + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    if TRANS_A:
        a_ptrs = a_ptr + offs_k[None, :] * lda + offs_m[:, None]
        a_step = BLOCK_K * lda
    else:
        a_ptrs = a_ptr + offs_m[:, None] * lda + offs_k[None, :]
        a_step = BLOCK_K
    if TRANS_B:
        b_ptrs = b_ptr + offs_n[None, :] * ldb + offs_k[:, None]
        b_step = BLOCK_K
    else:
        b_ptrs = b_ptr + offs_k[:, None] * ldb + offs_n[None, :]
        b_step = BLOCK_K * ldb
    a_rows = offs_m[:, None] < row_end
    b_cols = offs_n[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if FP8:  # noqa: SIM102  (this one is the compiler's, the other the device's)
        if (a_type == 4) & (b_type == 4):
            acc = add_products(
                acc, a_ptrs, b_ptrs, a_step, b_step, a_rows, b_cols, offs_k, K, a_type, b_type, BLOCK_K, PRECISION, True
            )
            K = K * 0  # nothing is left
    return add_products(
        acc, a_ptrs, b_ptrs, a_step, b_step, a_rows, b_cols, offs_k, K, a_type, b_type, BLOCK_K, PRECISION, False
    )


@triton.jit
def scale_tile(acc, a_scale, b_scale, scaling, row, row_end, col, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A tile's sum times what A and B were scaled by. scaling is the C enum: 0 nothing, 1 one number each, 2 one for
    each row of op(A) and column of op(B)."""
    if scaling == 1:
        acc = acc * tl.load(a_scale) * tl.load(b_scale)
    if scaling == 2:
        offs_m = row + tl.arange(0, BLOCK_M)
        offs_n = col + tl.arange(0, BLOCK_N)
        acc = acc * tl.load(a_scale + offs_m, mask=offs_m < row_end, other=0.0)[:, None]
        acc = acc * tl.load(b_scale + offs_n, mask=offs_n < N, other=0.0)[None, :]
    return acc


@triton.jit
def activate(x, activation):
    """activation is the C enum: 0 none, 1 relu (NaN stays NaN), 2 gelu (exact, not the tanh form), 3 silu.

    gelu and silu are both x * gate(x) with one exponential and one reciprocal, so they share them:
        silu: gate = 1 / (1 + exp(-x))
        gelu: gate = normal CDF = erfc(-x / sqrt 2) / 2, with erfc from Abramowitz and Stegun 7.1.26 (|error| < 1.5e-7).
    """
    if activation == 1:
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if activation > 1:
        is_gelu = activation == 2
        z = tl.abs(x) * 0.7071067811865476
        e = tl.exp2(tl.where(is_gelu, -z * z, -x) * 1.4426950408889634)
        r = 1.0 / (1.0 + tl.where(is_gelu, 0.3275911 * z, e))
        tail = 1.061405429 * r - 1.453152027
        tail = tail * r + 1.421413741
        tail = tail * r - 0.284496736
        tail = tail * r + 0.254829592
        tail = 0.5 * tail * r * e
        gate = tl.where(is_gelu, tl.where(x < 0.0, tail, 1.0 - tail), r)
        x = x * gate
    return x


@triton.jit
def activate_slope(x, activation):
    """The derivative of `activate`; of relu it is 0 at 0.

    gelu: CDF(x) + x * density(x), of the normal distribution; silu: s + x * s * (1 - s) with s = 1 / (1 + exp(-x)).
    """
    slope = tl.where(activation == 1, tl.where(x <= 0.0, 0.0, 1.0), 1.0)
    if activation == 2:
        below = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        slope = below + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    if activation == 3:
        share = 1.0 / (1.0 + tl.exp(-x))
        slope = share + x * share * (1.0 - share)
    return slope


@triton.jit
def store_tile(
    acc, c_ptr, d_ptr, bias_ptr, ldc, ldd, row, row_end, col, N, alpha, beta, activation,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ACTIVATE: tl.constexpr,
):  # fmt: skip
    """D = act(alpha * acc + beta * C + bias) for one tile. C is not read when beta is 0; a null bias is no bias."""
    offs_m = row + tl.arange(0, BLOCK_M)
    offs_n = col + tl.arange(0, BLOCK_N)
    inside = (offs_m[:, None] < row_end) & (offs_n[None, :] < N)
    acc = acc * alpha
    if beta != 0.0:
        c = tl.load(c_ptr + offs_m[:, None] * ldc + offs_n[None, :], mask=inside, other=0.0)
        acc += beta * c.to(tl.float32)
    if bias_ptr.to(tl.int64) != 0:
        acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATE:
        acc = activate(acc, activation)
    tl.store(d_ptr + offs_m[:, None] * ldd + offs_n[None, :], acc.to(d_ptr.dtype.element_ty), mask=inside)
