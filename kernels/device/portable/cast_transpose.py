"""Casts matrices to 8 bits by rows and transposed, of one reading of their tiles. Portable set."""

import triton
import triton.language as tl

from kernels.device.portable.cast import (
    BLOCK,
    BY_1X128,
    ROW,
    TENSOR,
    factor_of,
    factor_of_matrix,
    largest,
    load_amax,
    load_tile,
    numbers,
    scale_of,
    store_tile,
    tile_of,
    to_8_bits,
)
from kernels.device.portable.overlap import wait_for_last_kernel


@triton.jit
def of_columns(
    most, batch, row, col, M, N, scale_t_ptr, amax_ptr, scale_t_stride_n, scale_t_stride_m, granularity,
    scale_power_of_two, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """What each column of a tile is multiplied by where D^T has scales of its own, which are stored; `most` are the
    tile's largest magnitudes."""
    cols = col + tl.arange(0, BLOCK)
    to_ptr = scale_t_ptr + cols.to(tl.int64) * scale_t_stride_n + (row // BLOCK).to(tl.int64) * scale_t_stride_m
    count = N
    if granularity == ROW:
        most = load_amax(amax_ptr + batch * (M.to(tl.int64) + N) + M, cols, cols < N)
        to_ptr = scale_t_ptr + cols.to(tl.int64)
        count = tl.where(row == 0, N, 0)
    scale = scale_of(most, scale_power_of_two, D_TYPE, HARDWARE)
    tl.store(to_ptr, scale, mask=cols < count)
    return factor_of(scale, HARDWARE)


@triton.jit
def of_tile(
    most, batch, row, col, scale_ptr, amax_ptr, scale_stride_m, scale_stride_n, granularity, scale_power_of_two,
    scale_given, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """What all of a tile is multiplied by, where it shares a scale, which is stored; `most` is its largest
    magnitude."""
    if granularity == TENSOR:
        first = (row == 0) & (col == 0)
        factor = factor_of_matrix(scale_ptr, amax_ptr + batch, first, scale_power_of_two, scale_given, D_TYPE, HARDWARE)
    else:
        scale = scale_of(most, scale_power_of_two, D_TYPE, HARDWARE)
        to_ptr = scale_ptr + (row // BLOCK).to(tl.int64) * scale_stride_m
        tl.store(to_ptr + (col // BLOCK).to(tl.int64) * scale_stride_n, scale)
        factor = factor_of(scale, HARDWARE)
    return factor


@triton.jit
def scales_of_rows(
    x, batch, rows, M, N, amax_ptr, granularity, scale_power_of_two, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr
):  # fmt: skip
    """Of rows of a tile, by 1X128 or ROW."""
    if granularity == ROW:
        most = load_amax(amax_ptr + batch * (M.to(tl.int64) + N), rows, rows < M)
    else:
        most = tl.max(tl.abs(x), 1)
    return scale_of(most, scale_power_of_two, D_TYPE, HARDWARE)


@triton.jit
def store_scales(scale, rows, col, M, scale_ptr, scale_stride_m, scale_stride_n, granularity):
    """Those of rows, unless scale_ptr is null: by ROW once."""
    to_ptr = scale_ptr + rows.to(tl.int64) * scale_stride_m + (col // BLOCK).to(tl.int64) * scale_stride_n
    count = M
    if granularity == ROW:
        to_ptr = scale_ptr + rows.to(tl.int64)
        count = tl.where(col == 0, M, 0)
    if scale_ptr.to(tl.int64) != 0:
        tl.store(to_ptr, scale, mask=rows < count)


@triton.jit
def quarter(a_ptr, rows, cols, end, N, lda):
    """Every fourth row of a tile as numbers(), 0 outside of the matrix."""
    inside = (rows < end)[:, None] & (cols < N)[None, :]
    return numbers(tl.load(a_ptr + rows.to(tl.int64)[:, None] * lda + cols[None, :], mask=inside, other=0.0))


@triton.jit
def store_quarter(x, q_ptr, factor, rows, cols, end, N, ldd, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr):
    inside = (rows < end)[:, None] & (cols < N)[None, :]
    to_ptr = q_ptr + rows.to(tl.int64)[:, None] * ldd + cols[None, :]
    tl.store(to_ptr, to_8_bits(x, factor[:, None], D_TYPE, HARDWARE), mask=inside)


@triton.jit
def words_of(x0, x1, x2, x3, factor, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr):
    """Four rows' numbers in 8 bits, the first one's lowest."""
    y0, y1 = tl.split(to_8_bits(tl.join(x0, x1), factor[None, :, None], D_TYPE, HARDWARE))
    y2, y3 = tl.split(to_8_bits(tl.join(x2, x3), factor[None, :, None], D_TYPE, HARDWARE))
    return y0.to(tl.int32) | (y1.to(tl.int32) << 8) | (y2.to(tl.int32) << 16) | (y3.to(tl.int32) << 24)


@triton.jit
def whole_tile(
    a_ptr, q_ptr, q_t_ptr, scale_ptr, scale_t_ptr, amax_ptr, batch, row, col, end, M, N, lda, ldd, ldd_t,
    scale_stride_m, scale_stride_n, scale_t_stride_n, scale_t_stride_m, granularity, scale_power_of_two, scale_given,
    BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """A tile read once, four rows of it by each thread: it turns words of four bytes, not bytes. M is a multiple of
    4."""
    rows = row + 4 * tl.arange(0, BLOCK_M // 4)
    cols = col + tl.arange(0, BLOCK)
    x0 = quarter(a_ptr, rows, cols, end, N, lda)
    x1 = quarter(a_ptr, rows + 1, cols, end, N, lda)
    x2 = quarter(a_ptr, rows + 2, cols, end, N, lda)
    x3 = quarter(a_ptr, rows + 3, cols, end, N, lda)
    most = tl.zeros((BLOCK,), tl.float32)
    if granularity >= BY_1X128:
        size = tl.maximum(tl.maximum(tl.abs(x0), tl.abs(x1)), tl.maximum(tl.abs(x2), tl.abs(x3)))
        most = tl.max(size, 0)
    if (granularity == ROW) | (granularity == BY_1X128):
        s0 = scales_of_rows(x0, batch, rows, M, N, amax_ptr, granularity, scale_power_of_two, D_TYPE, HARDWARE)
        s1 = scales_of_rows(x1, batch, rows + 1, M, N, amax_ptr, granularity, scale_power_of_two, D_TYPE, HARDWARE)
        s2 = scales_of_rows(x2, batch, rows + 2, M, N, amax_ptr, granularity, scale_power_of_two, D_TYPE, HARDWARE)
        s3 = scales_of_rows(x3, batch, rows + 3, M, N, amax_ptr, granularity, scale_power_of_two, D_TYPE, HARDWARE)
        scale = tl.reshape(tl.join(tl.join(s0, s2), tl.join(s1, s3)), (BLOCK_M,))
        every = row + tl.arange(0, BLOCK_M)
        store_scales(scale, every, col, M, scale_ptr, scale_stride_m, scale_stride_n, granularity)
        f0 = factor_of(s0, HARDWARE)
        f1 = factor_of(s1, HARDWARE)
        f2 = factor_of(s2, HARDWARE)
        f3 = factor_of(s3, HARDWARE)
        own = of_columns(
            most, batch, row, col, M, N, scale_t_ptr, amax_ptr, scale_t_stride_n, scale_t_stride_m, granularity,
            scale_power_of_two, D_TYPE, HARDWARE,
        )  # fmt: skip
    else:
        factor = of_tile(
            tl.max(most, 0), batch, row, col, scale_ptr, amax_ptr, scale_stride_m, scale_stride_n, granularity,
            scale_power_of_two, scale_given, D_TYPE, HARDWARE,
        )  # fmt: skip
        f0 = tl.zeros((BLOCK_M // 4,), tl.float32) + factor
        f1 = f0
        f2 = f0
        f3 = f0
        own = tl.zeros((BLOCK,), tl.float32) + factor
    if q_ptr.to(tl.int64) != 0:
        store_quarter(x0, q_ptr, f0, rows, cols, end, N, ldd, D_TYPE, HARDWARE)
        store_quarter(x1, q_ptr, f1, rows + 1, cols, end, N, ldd, D_TYPE, HARDWARE)
        store_quarter(x2, q_ptr, f2, rows + 2, cols, end, N, ldd, D_TYPE, HARDWARE)
        store_quarter(x3, q_ptr, f3, rows + 3, cols, end, N, ldd, D_TYPE, HARDWARE)
    turned = tl.trans(words_of(x0, x1, x2, x3, own, D_TYPE, HARDWARE))
    words = row // 4 + tl.arange(0, BLOCK_M // 4)
    to_ptr = q_t_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    to_ptr += cols.to(tl.int64)[:, None] * (ldd_t // 4) + words[None, :]
    tl.store(to_ptr, turned, mask=(cols < N)[:, None] & (words < end // 4)[None, :])


@triton.jit
def tile_in_parts(
    a_ptr, q_ptr, q_t_ptr, scale_ptr, scale_t_ptr, amax_ptr, batch, row, col, end, M, N, lda, ldd, ldd_t,
    scale_stride_m, scale_stride_n, scale_t_stride_n, scale_t_stride_m, granularity, scale_power_of_two, scale_given,
    BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """A tile of any place and size, BLOCK_M rows at a time, byte by byte, and by blocks gone over twice."""
    cols = col + tl.arange(0, BLOCK)
    most = tl.zeros((BLOCK,), tl.float32)
    if granularity >= BY_1X128:
        most = largest(a_ptr, row, end, col, N, lda, BLOCK_M)
    by_rows = (granularity == ROW) | (granularity == BY_1X128)
    factor = tl.zeros((BLOCK_M,), tl.float32)
    if by_rows:
        own = of_columns(
            most, batch, row, col, M, N, scale_t_ptr, amax_ptr, scale_t_stride_n, scale_t_stride_m, granularity,
            scale_power_of_two, D_TYPE, HARDWARE,
        )  # fmt: skip
    else:
        factor += of_tile(
            tl.max(most, 0), batch, row, col, scale_ptr, amax_ptr, scale_stride_m, scale_stride_n, granularity,
            scale_power_of_two, scale_given, D_TYPE, HARDWARE,
        )  # fmt: skip
        own = tl.zeros((BLOCK,), tl.float32) + tl.max(factor, 0)
    for first in range(row, end, BLOCK_M):
        x = load_tile(a_ptr, first, col, end, N, lda, BLOCK_M)
        rows = first + tl.arange(0, BLOCK_M)
        if by_rows:
            scale = scales_of_rows(x, batch, rows, M, N, amax_ptr, granularity, scale_power_of_two, D_TYPE, HARDWARE)
            store_scales(scale, rows, col, M, scale_ptr, scale_stride_m, scale_stride_n, granularity)
            factor = factor_of(scale, HARDWARE)
        if q_ptr.to(tl.int64) != 0:
            store_tile(x, q_ptr, factor, first, col, end, N, ldd, BLOCK_M, D_TYPE, HARDWARE)
        to_ptr = q_t_ptr + cols.to(tl.int64)[:, None] * ldd_t + rows[None, :]
        inside = (cols < N)[:, None] & (rows < end)[None, :]
        tl.store(to_ptr, tl.trans(to_8_bits(x, own[None, :], D_TYPE, HARDWARE)), mask=inside)


@triton.jit
def cast_transpose(
    a_ptr, q_ptr, q_t_ptr, scale_ptr, scale_t_ptr, amax_ptr, M, N, lda, ldd, ldd_t,
    batch_stride_a, batch_stride_d, batch_stride_d_t, batch_stride_scale, batch_stride_scale_t,
    scale_stride_m, scale_stride_n, scale_t_stride_n, scale_t_stride_m, granularity, scale_power_of_two, scale_given,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """q = A / scale, unless null, and q_t = A^T over its own scales. By ROW and 1X128 those are of A's columns, whole
    or 128 rows of them; else they are A's. Tiles have 128 columns, and BLOCK_M rows, or 128 where ALIGN is 1."""
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
    batch, row, col, end = tile_of(tl.program_id(0), M, N, BLOCK_M if ALIGN > 1 else BLOCK)
    a_ptr += batch * batch_stride_a
    q_t_ptr += batch * batch_stride_d_t
    scale_t_ptr += batch * batch_stride_scale_t
    if scale_ptr.to(tl.int64) != 0:
        scale_ptr += batch * batch_stride_scale
    if q_ptr.to(tl.int64) != 0:
        q_ptr += batch * batch_stride_d
    if ALIGN > 1:
        whole_tile(
            a_ptr, q_ptr, q_t_ptr, scale_ptr, scale_t_ptr, amax_ptr, batch, row, col, end, M, N, lda, ldd, ldd_t,
            scale_stride_m, scale_stride_n, scale_t_stride_n, scale_t_stride_m, granularity, scale_power_of_two,
            scale_given, BLOCK_M, D_TYPE, HARDWARE,
        )  # fmt: skip
    else:
        tile_in_parts(
            a_ptr, q_ptr, q_t_ptr, scale_ptr, scale_t_ptr, amax_ptr, batch, row, col, end, M, N, lda, ldd, ldd_t,
            scale_stride_m, scale_stride_n, scale_t_stride_n, scale_t_stride_m, granularity, scale_power_of_two,
            scale_given, BLOCK_M, D_TYPE, HARDWARE,
        )  # fmt: skip
