"""Casts matrices to 8 bits and makes the scales that products take: of a matrix, a row, blocks of 128. Portable set.

A scale is the largest magnitude of what shares it over the largest number of D's type; numbers are divided by it, and
rounded. D_TYPE is the C enum of that type throughout.
"""

import triton
import triton.language as tl

from kernels.device.portable.overlap import wait_for_last_kernel

TENSOR = tl.constexpr(1)  # libgemm_granularity
ROW = tl.constexpr(2)
BY_1X128 = tl.constexpr(3)
BY_128X128 = tl.constexpr(4)
BLOCK = tl.constexpr(128)
E4M3 = tl.constexpr(4)  # libgemm_dtype
E5M2 = tl.constexpr(5)
MOST_E4M3 = tl.constexpr(448.0)
MOST_E5M2 = tl.constexpr(57344.0)
LEAST_SCALE = tl.constexpr(1.1754943508222875e-38)  # the least normal float32: what divides by it is finite


@triton.jit
def numbers(x):
    """x as float32, and NaN for Inf, of which e4m3 has none: it is NaN in what is made of either type, and counts for
    no scale."""
    x = x.to(tl.float32)
    return x * 0.0 + x


@triton.jit
def to_8_bits(x, factor, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr):
    """x * factor, of numbers(), as bytes: to the nearest, and of two to the even one; what is too large becomes the
    largest there is. HARDWARE: the GPU has an instruction for it, which does all that."""
    x *= factor
    if HARDWARE:
        if D_TYPE == E5M2:
            return x.to(tl.float8e5).to(tl.uint8, bitcast=True)
        else:
            return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    MOST: tl.constexpr = MOST_E5M2 if D_TYPE == E5M2 else MOST_E4M3
    x = tl.maximum(x, -MOST, propagate_nan=tl.PropagateNan.ALL)
    x = tl.minimum(x, MOST, propagate_nan=tl.PropagateNan.ALL)
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    # The mantissa is cut to three bits, or two, after half a unit of them less one, or of an odd one just half, is
    # added; and the bias is 7, or 15, instead of 127. Below the least normal number, 2^-6 or 2^-14, the unit is 2^-9 or
    # 2^-16, as it is of a float32 of 2^14 or 2^7, which is added.
    if D_TYPE == E5M2:
        normal = ((size + 0xFFFFF + ((size >> 21) & 1)) >> 21) - (112 << 2)
        small = (tl.abs(x) + 128.0).to(tl.int32, bitcast=True) - 0x43000000
        code = tl.where(size < 0x38800000, small, normal) | ((bits >> 24) & 0x80)
    else:
        normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
        small = (tl.abs(x) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
        code = tl.where(size < 0x3C800000, small, normal) | ((bits >> 24) & 0x80)
    return tl.where(x == x, code, 0x7F).to(tl.uint8)


@triton.jit
def scale_of(most, scale_power_of_two, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr):
    """The scale of numbers of which `most` is the largest magnitude, NaN without one: 1 where all are 0. With
    scale_power_of_two = 1 it is rounded up to one."""
    MOST: tl.constexpr = MOST_E5M2 if D_TYPE == E5M2 else MOST_E4M3
    if HARDWARE:
        INVERSE: tl.constexpr = 1.0 / MOST
        # Rounded as a division is, by one step from the product with 1/MOST (Markstein, IBM J. Res. Dev. 34, 1990): no
        # quotient that counts is subnormal. A GPU as old as those without the instruction above is spared no time.
        scale = most * INVERSE
        scale = tl.fma(tl.fma(scale, -MOST, most), INVERSE, scale)
    else:
        scale = tl.div_rn(most, tl.full(most.shape, MOST, tl.float32))
    scale = tl.maximum(scale, LEAST_SCALE)
    if scale_power_of_two == 1:
        scale = ((scale.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000).to(tl.float32, bitcast=True)
    return tl.where(most > 0.0, scale, 1.0)


@triton.jit
def factor_of(scale, HARDWARE: tl.constexpr):
    """1 / scale, to the nearest. Neither is subnormal."""
    if HARDWARE:
        one = scale * 0.0 + 1.0
        factor = tl.fdiv(one, scale)
        factor = tl.fma(factor, tl.fma(-scale, factor, one), factor)
        factor = tl.fma(factor, tl.fma(-scale, factor, one), factor)
    else:
        factor = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)
    return factor


@triton.jit
def load_amax(amax_ptr, offs, mask):
    """Words that cast_amax left."""
    return tl.load(amax_ptr + offs, mask=mask, other=0).to(tl.float32, bitcast=True)


@triton.jit
def tile_of(program, M, N, height):
    """(matrix, first row, first column, end of the rows) of a program's tile, `height` x 128; those of one matrix
    follow one another by rows."""
    tiles_n = tl.cdiv(N, BLOCK)
    tiles = tl.cdiv(M, height) * tiles_n
    inside = program % tiles
    row = inside // tiles_n * height
    return (program // tiles).to(tl.int64), row, inside % tiles_n * BLOCK, tl.minimum(row + height, M)


@triton.jit
def load_tile(a_ptr, row, col, M, N, lda, BLOCK_M: tl.constexpr):
    """BLOCK_M rows of a tile as numbers(), 0 outside of the matrix."""
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    x = tl.load(a_ptr + rows.to(tl.int64)[:, None] * lda + cols[None, :], mask=inside, other=0.0)
    return numbers(x)


@triton.jit
def store_tile(
    x, to_ptr, factor, row, col, M, N, ld, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr
):  # fmt: skip
    """Its rows times their factors, in 8 bits."""
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    to_ptr += rows.to(tl.int64)[:, None] * ld + cols[None, :]
    tl.store(to_ptr, to_8_bits(x, factor[:, None], D_TYPE, HARDWARE), mask=inside)


@triton.jit
def largest(a_ptr, row, end, col, N, lda, BLOCK_M: tl.constexpr):
    """The largest magnitude of each column of a tile."""
    most = tl.zeros((BLOCK_M, BLOCK), tl.float32)
    for first in range(row, end, BLOCK_M):
        most = tl.maximum(most, tl.abs(load_tile(a_ptr, first, col, end, N, lda, BLOCK_M)))
    return tl.max(most, 0)


@triton.jit
def cast_amax(
    a_ptr, amax_ptr, M, N, lda, batch_stride_a, granularity, phase, entries,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The largest magnitudes of each matrix, as bits of float32: one, or by ROW those of its M rows, then of its N
    columns. In phase 1 a program clears 1024 of all `entries` words, in phase 2 it goes over 128 x 128 elements. The
    order of what is compared does not matter."""
    if OVERLAP:
        wait_for_last_kernel()
    if phase == 1:
        offs = tl.program_id(0).to(tl.int64) * 1024 + tl.arange(0, 1024)
        tl.store(amax_ptr + offs, tl.zeros((1024,), tl.int32), mask=offs < entries)
    else:
        lda = lda // ALIGN * ALIGN
        batch_stride_a = batch_stride_a // ALIGN * ALIGN
        N = N // ALIGN * ALIGN
        batch, row, col, end = tile_of(tl.program_id(0), M, N, BLOCK)
        a_ptr += batch * batch_stride_a
        words = amax_ptr + batch * (M.to(tl.int64) + N)
        if granularity == TENSOR:
            of_tile = tl.max(largest(a_ptr, row, end, col, N, lda, BLOCK_M), 0)
            tl.atomic_max(amax_ptr + batch, of_tile.to(tl.int32, bitcast=True), sem="relaxed")
        else:
            most = tl.zeros((BLOCK_M, BLOCK), tl.float32)
            for first in range(row, end, BLOCK_M):
                size = tl.abs(load_tile(a_ptr, first, col, end, N, lda, BLOCK_M))
                most = tl.maximum(most, size)
                rows = first + tl.arange(0, BLOCK_M)
                of_rows = tl.maximum(tl.max(size, 1), 0.0)  # of NaN alone there is none
                tl.atomic_max(words + rows, of_rows.to(tl.int32, bitcast=True), mask=rows < end, sem="relaxed")
            cols = col + tl.arange(0, BLOCK)
            of_cols = tl.max(most, 0).to(tl.int32, bitcast=True)
            tl.atomic_max(words + M + cols, of_cols, mask=cols < N, sem="relaxed")


@triton.jit
def factor_of_matrix(
    scale_ptr, amax_ptr, first, scale_power_of_two, scale_given, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr
):  # fmt: skip
    """One over a matrix's scale, which is given, and may be any number, or made of its largest magnitude and stored: by
    the `first` of its tiles."""
    if scale_given == 1:
        factor = factor_of(tl.load(scale_ptr), False)
    else:
        scale = scale_of(load_amax(amax_ptr, 0, True), scale_power_of_two, D_TYPE, HARDWARE)
        tl.store(scale_ptr, scale, mask=first)
        factor = factor_of(scale, HARDWARE)
    return factor


@triton.jit
def cast_tensor(
    a_ptr, q_ptr, scale_ptr, amax_ptr, M, N, lda, ldd, batch_stride_a, batch_stride_d, batch_stride_scale,
    scale_power_of_two, scale_given,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """q = A / scale of matrices with one scale each, by tiles of 128 columns."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    batch_stride_a = batch_stride_a // ALIGN * ALIGN
    batch_stride_d = batch_stride_d // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    batch, row, col, end = tile_of(tl.program_id(0), M, N, BLOCK_M)
    x = load_tile(a_ptr + batch * batch_stride_a, row, col, end, N, lda, BLOCK_M)
    scale_ptr += batch * batch_stride_scale
    first = (row == 0) & (col == 0)
    factor = factor_of_matrix(scale_ptr, amax_ptr + batch, first, scale_power_of_two, scale_given, D_TYPE, HARDWARE)
    factor += tl.zeros((BLOCK_M,), tl.float32)
    store_tile(x, q_ptr + batch * batch_stride_d, factor, row, col, end, N, ldd, BLOCK_M, D_TYPE, HARDWARE)


@triton.jit
def cast_1x128(
    a_ptr, q_ptr, scale_ptr, M, N, lda, ldd, batch_stride_a, batch_stride_d, batch_stride_scale,
    scale_stride_m, scale_stride_n, scale_power_of_two,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """q = A / scale by 1X128."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    batch_stride_a = batch_stride_a // ALIGN * ALIGN
    batch_stride_d = batch_stride_d // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    batch, row, col, end = tile_of(tl.program_id(0), M, N, BLOCK_M)
    x = load_tile(a_ptr + batch * batch_stride_a, row, col, end, N, lda, BLOCK_M)
    scale = scale_of(tl.max(tl.abs(x), 1), scale_power_of_two, D_TYPE, HARDWARE)
    rows = row + tl.arange(0, BLOCK_M)
    to_ptr = scale_ptr + batch * batch_stride_scale + (col // BLOCK).to(tl.int64) * scale_stride_n
    tl.store(to_ptr + rows.to(tl.int64) * scale_stride_m, scale, mask=rows < end)
    factor = factor_of(scale, HARDWARE)
    store_tile(x, q_ptr + batch * batch_stride_d, factor, row, col, end, N, ldd, BLOCK_M, D_TYPE, HARDWARE)


@triton.jit
def cast_128x128(
    a_ptr, q_ptr, scale_ptr, M, N, lda, ldd, batch_stride_a, batch_stride_d, batch_stride_scale,
    scale_stride_m, scale_stride_n, scale_power_of_two,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """q = A / scale by 128X128: a tile as a whole where a thread reads several elements at once, else in parts of
    BLOCK_M rows, gone over twice."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    batch_stride_a = batch_stride_a // ALIGN * ALIGN
    batch_stride_d = batch_stride_d // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    batch, row, col, end = tile_of(tl.program_id(0), M, N, BLOCK)
    a_ptr += batch * batch_stride_a
    q_ptr += batch * batch_stride_d
    to_ptr = scale_ptr + batch * batch_stride_scale + (col // BLOCK).to(tl.int64) * scale_stride_n
    to_ptr += (row // BLOCK).to(tl.int64) * scale_stride_m
    every = tl.zeros((BLOCK_M,), tl.float32)
    if BLOCK_M == BLOCK:
        x = load_tile(a_ptr, row, col, end, N, lda, BLOCK_M)
        scale = scale_of(tl.max(tl.max(tl.abs(x), 0), 0), scale_power_of_two, D_TYPE, HARDWARE)
        tl.store(to_ptr, scale)
        store_tile(x, q_ptr, every + factor_of(scale, HARDWARE), row, col, end, N, ldd, BLOCK_M, D_TYPE, HARDWARE)
    else:
        most = tl.max(largest(a_ptr, row, end, col, N, lda, BLOCK_M), 0)
        scale = scale_of(most, scale_power_of_two, D_TYPE, HARDWARE)
        tl.store(to_ptr, scale)
        factor = every + factor_of(scale, HARDWARE)
        for first in range(row, end, BLOCK_M):
            x = load_tile(a_ptr, first, col, end, N, lda, BLOCK_M)
            store_tile(x, q_ptr, factor, first, col, end, N, ldd, BLOCK_M, D_TYPE, HARDWARE)


@triton.jit
def cast_rows(
    a_ptr, q_ptr, scale_ptr, M, N, lda, ldd, batch_stride_a, batch_stride_d, batch_stride_scale, scale_power_of_two,
    ALIGN: tl.constexpr, BLOCK_N: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """q = A / scale by ROW: a program for each row. What goes beyond BLOCK_N columns is read again, from L2."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    batch_stride_a = batch_stride_a // ALIGN * ALIGN
    batch_stride_d = batch_stride_d // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    batch = (tl.program_id(0) // M).to(tl.int64)
    row = (tl.program_id(0) % M).to(tl.int64)
    a_ptr += batch * batch_stride_a + row * lda
    q_ptr += batch * batch_stride_d + row * ldd
    cols = tl.arange(0, BLOCK_N)
    first = numbers(tl.load(a_ptr + cols, mask=cols < N, other=0.0))
    size = tl.abs(first)
    for col in range(BLOCK_N, N, BLOCK_N):
        x = numbers(tl.load(a_ptr + col + cols, mask=col + cols < N, other=0.0))
        size = tl.maximum(size, tl.abs(x))
    scale = scale_of(tl.max(size, 0), scale_power_of_two, D_TYPE, HARDWARE)
    tl.store(scale_ptr + batch * batch_stride_scale + row, scale)
    factor = factor_of(scale, HARDWARE)
    tl.store(q_ptr + cols, to_8_bits(first, factor, D_TYPE, HARDWARE), mask=cols < N)
    for col in range(BLOCK_N, N, BLOCK_N):
        x = numbers(tl.load(a_ptr + col + cols, mask=col + cols < N, other=0.0))
        tl.store(q_ptr + col + cols, to_8_bits(x, factor, D_TYPE, HARDWARE), mask=col + cols < N)
