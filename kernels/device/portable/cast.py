"""Casts matrices to e4m3 and makes the scales that products take: of a matrix, a row, blocks of 128. Portable set.

A scale is the largest magnitude of what shares it over 448, e4m3's largest; numbers are divided by it, and rounded.
"""

import triton
import triton.language as tl

from kernels.device.portable.overlap import wait_for_last_kernel

TENSOR = tl.constexpr(1)  # libgemm_granularity
ROW = tl.constexpr(2)
BY_1X128 = tl.constexpr(3)
BY_128X128 = tl.constexpr(4)
BLOCK = tl.constexpr(128)
MOST = tl.constexpr(448.0)
LEAST_SCALE = tl.constexpr(1.1754943508222875e-38)  # the least normal float32: what divides by it is finite


@triton.jit
def to_e4m3(x, factor, HARDWARE: tl.constexpr):
    """x * factor, float32, as e4m3's bytes: to the nearest, and of two to the even one; what is too large becomes 448.
    Inf, of which e4m3 has none, becomes NaN. HARDWARE: the GPU has an instruction for it."""
    finite = tl.abs(x) < float("inf")
    x = tl.maximum(x * factor, -MOST, propagate_nan=tl.PropagateNan.ALL)
    x = tl.minimum(x, MOST, propagate_nan=tl.PropagateNan.ALL)
    if HARDWARE:
        code = x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
        return tl.where(finite, code, 0x7F).to(tl.uint8)
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    # Three bits of mantissa are kept, after half a unit of them less one, or of an odd one just half, is added; and the
    # bias is 7 instead of 127. Below 2^-6 the unit is 2^-9, as it is of a float32 of 2^14, which is added.
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
    small = (tl.abs(x) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(size < 0x3C800000, small, normal) | ((bits >> 24) & 0x80)
    return tl.where(finite & (x == x), code, 0x7F).to(tl.uint8)


@triton.jit
def magnitude(x):
    """Of what counts for a scale: neither Inf nor NaN."""
    size = tl.abs(x)
    return tl.where(size < float("inf"), size, 0.0)


@triton.jit
def scale_of(most, scale_power_of_two):
    """The scale of numbers of which `most` is the largest magnitude: 1 where all are 0. With scale_power_of_two = 1 it
    is rounded up to one."""
    scale = tl.maximum(tl.div_rn(most, tl.full(most.shape, MOST, tl.float32)), LEAST_SCALE)
    if scale_power_of_two == 1:
        scale = ((scale.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000).to(tl.float32, bitcast=True)
    return tl.where(most > 0.0, scale, 1.0)


@triton.jit
def factor_of(scale):
    return tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)


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
    """BLOCK_M rows of a tile as float32, 0 outside of the matrix."""
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    return tl.load(a_ptr + rows.to(tl.int64)[:, None] * lda + cols[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store_tile(x, to_ptr, factor, row, col, M, N, ld, BLOCK_M: tl.constexpr, HARDWARE: tl.constexpr):
    """Its rows times their factors, in 8 bits."""
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    to_ptr += rows.to(tl.int64)[:, None] * ld + cols[None, :]
    tl.store(to_ptr, to_e4m3(x, factor[:, None], HARDWARE), mask=inside)


@triton.jit
def largest(a_ptr, row, end, col, N, lda, BLOCK_M: tl.constexpr):
    """The largest magnitude of each column of a tile."""
    most = tl.zeros((BLOCK,), tl.float32)
    for first in range(row, end, BLOCK_M):
        most = tl.maximum(most, tl.max(magnitude(load_tile(a_ptr, first, col, end, N, lda, BLOCK_M)), 0))
    return most


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
        most = tl.zeros((BLOCK,), tl.float32)
        for first in range(row, end, BLOCK_M):
            size = magnitude(load_tile(a_ptr, first, col, end, N, lda, BLOCK_M))
            most = tl.maximum(most, tl.max(size, 0))
            if granularity == ROW:
                rows = first + tl.arange(0, BLOCK_M)
                of_rows = tl.max(size, 1).to(tl.int32, bitcast=True)
                tl.atomic_max(words + rows, of_rows, mask=rows < end, sem="relaxed")
        if granularity == TENSOR:
            tl.atomic_max(amax_ptr + batch, tl.max(most, 0).to(tl.int32, bitcast=True), sem="relaxed")
        else:
            cols = col + tl.arange(0, BLOCK)
            tl.atomic_max(words + M + cols, most.to(tl.int32, bitcast=True), mask=cols < N, sem="relaxed")


@triton.jit
def scales_of_rows(
    x, of_tile, batch, row, col, M, N, scale_ptr, amax_ptr, scale_stride_m, scale_stride_n, granularity,
    scale_power_of_two, scale_given, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """What each row of `x`, a part of a tile of which `of_tile` is the largest magnitude, is divided by. They are
    stored too; of a matrix they may be given instead. scale_ptr is this matrix's."""
    rows = row + tl.arange(0, BLOCK_M)
    every = tl.zeros((BLOCK_M,), tl.float32)
    if (granularity == TENSOR) & (scale_given == 1):
        scale = every + tl.load(scale_ptr)
    else:
        to_ptr = scale_ptr + tl.zeros((BLOCK_M,), tl.int64)
        place = rows  # those below `count` store it
        if granularity == TENSOR:
            most = every + load_amax(amax_ptr, batch, True)
            count = tl.where(col == 0, 1, 0)
        elif granularity == ROW:
            most = load_amax(amax_ptr + batch * (M.to(tl.int64) + N), rows, rows < M)
            to_ptr += rows
            count = tl.where(col == 0, M, 0)
        elif granularity == BY_1X128:
            most = tl.max(magnitude(x), 1)
            to_ptr += rows.to(tl.int64) * scale_stride_m + (col // BLOCK).to(tl.int64) * scale_stride_n
            count = M
        else:
            most = every + of_tile
            to_ptr += (rows // BLOCK).to(tl.int64) * scale_stride_m + (col // BLOCK).to(tl.int64) * scale_stride_n
            place = rows % BLOCK
            count = 1
        scale = scale_of(most, scale_power_of_two)
        if scale_ptr.to(tl.int64) != 0:
            tl.store(to_ptr, scale, mask=place < count)
    return scale


@triton.jit
def cast(
    a_ptr, q_ptr, scale_ptr, amax_ptr, M, N, lda, ldd, batch_stride_a, batch_stride_d, batch_stride_scale,
    scale_stride_m, scale_stride_n, granularity, scale_power_of_two, scale_given,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """q = A / scale by tiles of 128 columns, of all granularities but ROW. By 128X128 tiles are as high, and gone over
    twice."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    batch_stride_a = batch_stride_a // ALIGN * ALIGN
    batch_stride_d = batch_stride_d // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    batch, row, col, end = tile_of(tl.program_id(0), M, N, tl.where(granularity == BY_128X128, BLOCK, BLOCK_M))
    a_ptr += batch * batch_stride_a
    q_ptr += batch * batch_stride_d
    scale_ptr += batch * batch_stride_scale
    of_tile = 0.0
    if granularity == BY_128X128:
        of_tile = tl.max(largest(a_ptr, row, end, col, N, lda, BLOCK_M), 0)
    for first in range(row, end, BLOCK_M):
        x = load_tile(a_ptr, first, col, M, N, lda, BLOCK_M)
        scale = scales_of_rows(
            x, of_tile, batch, first, col, M, N, scale_ptr, amax_ptr, scale_stride_m, scale_stride_n, granularity,
            scale_power_of_two, scale_given, BLOCK_M,
        )  # fmt: skip
        store_tile(x, q_ptr, factor_of(scale), first, col, M, N, ldd, BLOCK_M, HARDWARE)


@triton.jit
def scales_of_columns(
    most, batch, row, col, M, N, scale_t_ptr, amax_ptr, scale_t_stride_n, scale_t_stride_m, granularity,
    scale_power_of_two,
):  # fmt: skip
    """What each column of a tile is divided by where D^T has scales of its own; `most` are their largest magnitudes."""
    cols = col + tl.arange(0, BLOCK)
    to_ptr = scale_t_ptr + cols.to(tl.int64) * scale_t_stride_n + (row // BLOCK).to(tl.int64) * scale_t_stride_m
    count = N
    if granularity == ROW:
        most = load_amax(amax_ptr + batch * (M.to(tl.int64) + N) + M, cols, cols < N)
        to_ptr = scale_t_ptr + cols.to(tl.int64)
        count = tl.where(row == 0, N, 0)
    scale = scale_of(most, scale_power_of_two)
    tl.store(to_ptr, scale, mask=cols < count)
    return scale


@triton.jit
def cast_transpose(
    a_ptr, q_ptr, q_t_ptr, scale_ptr, scale_t_ptr, amax_ptr, M, N, lda, ldd, ldd_t,
    batch_stride_a, batch_stride_d, batch_stride_d_t, batch_stride_scale, batch_stride_scale_t,
    scale_stride_m, scale_stride_n, scale_t_stride_n, scale_t_stride_m, granularity, scale_power_of_two, scale_given,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """q = A / scale, unless null, and q_t = A^T over its own scales, by tiles of 128 x 128. By ROW and 1X128 those are
    of A's columns, whole or 128 rows of them; else they are A's."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    ldd_t = ldd_t // ALIGN * ALIGN
    batch_stride_a = batch_stride_a // ALIGN * ALIGN
    batch_stride_d = batch_stride_d // ALIGN * ALIGN
    batch_stride_d_t = batch_stride_d_t // ALIGN * ALIGN
    M = M // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    batch, row, col, end = tile_of(tl.program_id(0), M, N, BLOCK)
    a_ptr += batch * batch_stride_a
    if scale_ptr.to(tl.int64) != 0:
        scale_ptr += batch * batch_stride_scale
    most = tl.zeros((BLOCK,), tl.float32)
    if granularity >= BY_1X128:
        most = largest(a_ptr, row, end, col, N, lda, BLOCK_M)
    of_columns = tl.zeros((BLOCK,), tl.float32)
    if (granularity == ROW) | (granularity == BY_1X128):
        of_columns = scales_of_columns(
            most, batch, row, col, M, N, scale_t_ptr + batch * batch_stride_scale_t, amax_ptr, scale_t_stride_n,
            scale_t_stride_m, granularity, scale_power_of_two,
        )  # fmt: skip
    of_tile = tl.max(most, 0)
    cols = col + tl.arange(0, BLOCK)
    for first in range(row, end, BLOCK_M):
        x = load_tile(a_ptr, first, col, end, N, lda, BLOCK_M)
        scale = scales_of_rows(
            x, of_tile, batch, first, col, M, N, scale_ptr, amax_ptr, scale_stride_m, scale_stride_n, granularity,
            scale_power_of_two, scale_given, BLOCK_M,
        )  # fmt: skip
        if q_ptr.to(tl.int64) != 0:
            store_tile(x, q_ptr + batch * batch_stride_d, factor_of(scale), first, col, end, N, ldd, BLOCK_M, HARDWARE)
        own = of_columns
        if (granularity == TENSOR) | (granularity == BY_128X128):
            own = tl.zeros((BLOCK,), tl.float32) + tl.max(scale, 0)  # they are all the same
        rows = first + tl.arange(0, BLOCK_M)
        inside = (cols < N)[:, None] & (rows < end)[None, :]
        to_ptr = q_t_ptr + batch * batch_stride_d_t + cols.to(tl.int64)[:, None] * ldd_t + rows[None, :]
        tl.store(to_ptr, tl.trans(to_e4m3(x, factor_of(own)[None, :], HARDWARE)), mask=inside)


@triton.jit
def cast_rows(
    a_ptr, q_ptr, scale_ptr, M, N, lda, ldd, batch_stride_a, batch_stride_d, batch_stride_scale, scale_power_of_two,
    ALIGN: tl.constexpr, BLOCK_N: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
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
    first = tl.load(a_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    size = magnitude(first)
    for col in range(BLOCK_N, N, BLOCK_N):
        x = tl.load(a_ptr + col + cols, mask=col + cols < N, other=0.0).to(tl.float32)
        size = tl.maximum(size, magnitude(x))
    scale = scale_of(tl.max(size, 0), scale_power_of_two)
    tl.store(scale_ptr + batch * batch_stride_scale + row, scale)
    factor = factor_of(scale)
    tl.store(q_ptr + cols, to_e4m3(first, factor, HARDWARE), mask=cols < N)
    for col in range(BLOCK_N, N, BLOCK_N):
        x = tl.load(a_ptr + col + cols, mask=col + cols < N, other=0.0).to(tl.float32)
        tl.store(q_ptr + col + cols, to_e4m3(x, factor, HARDWARE), mask=col + cols < N)
