"""Casts matrices to 8 bits by rows and transposed, of one reading of their tiles. Portable set.

cast_transpose where one scale stands for both, of a matrix or of blocks of 128 x 128; cast_transpose_rows where D^T has
scales of its own, of A's columns.
"""

import triton
import triton.language as tl

from kernels.device.portable.cast import (
    ROW,
    TENSOR,
    factor_of_matrix,
    largest_of_columns,
    load_amax,
    tile_of,
)
from kernels.device.portable.eight_bits import BLOCK, factor_of, scale_of, to_8_bits
from kernels.device.portable.overlap import wait_for_last_kernel
from kernels.device.portable.words import (
    bytes_of,
    larger,
    largest,
    load_rows,
    magnitude_of,
    magnitudes_of_columns,
    magnitudes_of_rows,
    sizes_of,
    store_bytes,
    turn,
    turn_bytes,
)


@triton.jit
def largest_of_quarters(x0, x1, x2, x3, PACKED: tl.constexpr, HARDWARE: tl.constexpr):
    """The largest magnitude of each column, as largest() leaves it."""
    even = larger(sizes_of(x0, PACKED), sizes_of(x1, PACKED), PACKED, HARDWARE)
    odd = larger(sizes_of(x2, PACKED), sizes_of(x3, PACKED), PACKED, HARDWARE)
    return largest(larger(even, odd, PACKED, HARDWARE), 0, PACKED, HARDWARE)


@triton.jit
def store_turned(words, q_t_ptr, row, col, end, N, ldd_t, ROWS: tl.constexpr):
    """Words of four rows' bytes. M is a multiple of 4."""
    cols = col + tl.arange(0, BLOCK)
    down = row // 4 + tl.arange(0, ROWS)
    to_ptr = q_t_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    to_ptr += cols.to(tl.int64)[:, None] * (ldd_t // 4) + down[None, :]
    tl.store(to_ptr, tl.trans(words), mask=(cols < N)[:, None] & (down < end // 4)[None, :])


@triton.jit
def store_bytes_turned(made, q_t_ptr, rows, col, end, N, ldd_t):
    """Of a tile of any place and size, byte by byte."""
    cols = col + tl.arange(0, BLOCK)
    to_ptr = q_t_ptr + cols.to(tl.int64)[:, None] * ldd_t + rows[None, :]
    tl.store(to_ptr, tl.trans(made), mask=(cols < N)[:, None] & (rows < end)[None, :])


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
def cast_transpose(
    a_ptr, q_ptr, q_t_ptr, scale_ptr, amax_ptr, M, N, lda, ldd, ldd_t,
    batch_stride_a, batch_stride_d, batch_stride_d_t, batch_stride_scale,
    scale_stride_m, scale_stride_n, granularity, scale_power_of_two, scale_given,
    ALIGN: tl.constexpr, PACKED: tl.constexpr, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """q = A / scale, unless null, and q_t its transpose. By tiles of 128 x 128: one that is aligned is read once, four
    rows of it by each thread, which turns words of four bytes, not bytes; else BLOCK_M rows at a time, and by blocks
    twice."""
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
    q_t_ptr += batch * batch_stride_d_t
    scale_ptr += batch * batch_stride_scale
    if q_ptr.to(tl.int64) != 0:
        q_ptr += batch * batch_stride_d
    if ALIGN > 1:
        ROWS: tl.constexpr = BLOCK_M // 4
        rows = row + 4 * tl.arange(0, ROWS)
        x0 = load_rows(a_ptr, rows, end, col, N, lda, PACKED)
        x1 = load_rows(a_ptr, rows + 1, end, col, N, lda, PACKED)
        x2 = load_rows(a_ptr, rows + 2, end, col, N, lda, PACKED)
        x3 = load_rows(a_ptr, rows + 3, end, col, N, lda, PACKED)
        most = 0.0
        if granularity != TENSOR:
            of_cols = largest_of_quarters(x0, x1, x2, x3, PACKED, HARDWARE)
            most = magnitude_of(largest(of_cols, 0, PACKED, HARDWARE), PACKED)
        factor = of_tile(
            most, batch, row, col, scale_ptr, amax_ptr, scale_stride_m, scale_stride_n, granularity,
            scale_power_of_two, scale_given, D_TYPE, HARDWARE,
        )  # fmt: skip
        q0 = bytes_of(x0, factor, PACKED, D_TYPE, HARDWARE)
        q1 = bytes_of(x1, factor, PACKED, D_TYPE, HARDWARE)
        q2 = bytes_of(x2, factor, PACKED, D_TYPE, HARDWARE)
        q3 = bytes_of(x3, factor, PACKED, D_TYPE, HARDWARE)
        if q_ptr.to(tl.int64) != 0:
            store_bytes(q0, q_ptr, rows, end, col, N, ldd, PACKED)
            store_bytes(q1, q_ptr, rows + 1, end, col, N, ldd, PACKED)
            store_bytes(q2, q_ptr, rows + 2, end, col, N, ldd, PACKED)
            store_bytes(q3, q_ptr, rows + 3, end, col, N, ldd, PACKED)
        store_turned(turn_bytes(q0, q1, q2, q3, PACKED, HARDWARE, ROWS), q_t_ptr, row, col, end, N, ldd_t, ROWS)
    else:
        most = 0.0
        if granularity != TENSOR:
            of_cols = largest_of_columns(a_ptr, row, end, col, N, lda, BLOCK_M, PACKED, HARDWARE)
            most = magnitude_of(largest(of_cols, 0, PACKED, HARDWARE), PACKED)
        factor = of_tile(
            most, batch, row, col, scale_ptr, amax_ptr, scale_stride_m, scale_stride_n, granularity,
            scale_power_of_two, scale_given, D_TYPE, HARDWARE,
        )  # fmt: skip
        for first in range(row, end, BLOCK_M):
            rows = first + tl.arange(0, BLOCK_M)
            made = bytes_of(load_rows(a_ptr, rows, end, col, N, lda, PACKED), factor, PACKED, D_TYPE, HARDWARE)
            if q_ptr.to(tl.int64) != 0:
                store_bytes(made, q_ptr, rows, end, col, N, ldd, PACKED)
            store_bytes_turned(made, q_t_ptr, rows, col, end, N, ldd_t)


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
def scales_of_rows(
    x, batch, rows, M, N, amax_ptr, granularity, scale_power_of_two, PACKED: tl.constexpr, D_TYPE: tl.constexpr,
    HARDWARE: tl.constexpr,
):  # fmt: skip
    """Of rows of a tile, by 1X128 or ROW."""
    if granularity == ROW:
        most = load_amax(amax_ptr + batch * (M.to(tl.int64) + N), rows, rows < M)
    else:
        most = magnitude_of(largest(sizes_of(x, PACKED), 1, PACKED, HARDWARE), PACKED)
    return scale_of(most, scale_power_of_two, D_TYPE, HARDWARE)


@triton.jit
def scales_of_pairs(
    x0, x1, batch, rows, M, N, amax_ptr, granularity, scale_power_of_two, PACKED: tl.constexpr, D_TYPE: tl.constexpr,
    HARDWARE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The same of x0's rows, and of x1's, which are the next ones."""
    if granularity == ROW:
        words = amax_ptr + batch * (M.to(tl.int64) + N)
        most0 = load_amax(words, rows, rows < M)
        most1 = load_amax(words, rows + 1, rows + 1 < M)
    else:
        most0, most1 = magnitudes_of_rows(x0, x1, PACKED, HARDWARE, ROWS)
    s0 = scale_of(most0, scale_power_of_two, D_TYPE, HARDWARE)
    s1 = scale_of(most1, scale_power_of_two, D_TYPE, HARDWARE)
    return s0, s1


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
def cast_transpose_rows(
    a_ptr, q_ptr, q_t_ptr, scale_ptr, scale_t_ptr, amax_ptr, M, N, lda, ldd, ldd_t,
    batch_stride_a, batch_stride_d, batch_stride_d_t, batch_stride_scale, batch_stride_scale_t,
    scale_stride_m, scale_stride_n, scale_t_stride_n, scale_t_stride_m, granularity, scale_power_of_two,
    ALIGN: tl.constexpr, PACKED: tl.constexpr, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """q = A / scale of its rows, unless null, and q_t = A^T over scales of A's columns: by ROW of whole ones, by 1X128
    of 128 of each. Tiles as in cast_transpose; by ROW aligned ones may have fewer rows, BLOCK_M."""
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
    most = tl.zeros((BLOCK,), tl.float32)
    if ALIGN > 1:
        ROWS: tl.constexpr = BLOCK_M // 4
        rows = row + 4 * tl.arange(0, ROWS)
        x0 = load_rows(a_ptr, rows, end, col, N, lda, PACKED)
        x1 = load_rows(a_ptr, rows + 1, end, col, N, lda, PACKED)
        x2 = load_rows(a_ptr, rows + 2, end, col, N, lda, PACKED)
        x3 = load_rows(a_ptr, rows + 3, end, col, N, lda, PACKED)
        if granularity != ROW:
            most = magnitudes_of_columns(largest_of_quarters(x0, x1, x2, x3, PACKED, HARDWARE), PACKED)
        s0, s1 = scales_of_pairs(
            x0, x1, batch, rows, M, N, amax_ptr, granularity, scale_power_of_two, PACKED, D_TYPE, HARDWARE, ROWS
        )
        s2, s3 = scales_of_pairs(
            x2, x3, batch, rows + 2, M, N, amax_ptr, granularity, scale_power_of_two, PACKED, D_TYPE, HARDWARE, ROWS
        )
        scale = tl.reshape(tl.join(tl.join(s0, s2), tl.join(s1, s3)), (BLOCK_M,))
        every = row + tl.arange(0, BLOCK_M)
        store_scales(scale, every, col, M, scale_ptr, scale_stride_m, scale_stride_n, granularity)
        if q_ptr.to(tl.int64) != 0:
            q0 = bytes_of(x0, factor_of(s0, HARDWARE)[:, None], PACKED, D_TYPE, HARDWARE)
            q1 = bytes_of(x1, factor_of(s1, HARDWARE)[:, None], PACKED, D_TYPE, HARDWARE)
            q2 = bytes_of(x2, factor_of(s2, HARDWARE)[:, None], PACKED, D_TYPE, HARDWARE)
            q3 = bytes_of(x3, factor_of(s3, HARDWARE)[:, None], PACKED, D_TYPE, HARDWARE)
            store_bytes(q0, q_ptr, rows, end, col, N, ldd, PACKED)
            store_bytes(q1, q_ptr, rows + 1, end, col, N, ldd, PACKED)
            store_bytes(q2, q_ptr, rows + 2, end, col, N, ldd, PACKED)
            store_bytes(q3, q_ptr, rows + 3, end, col, N, ldd, PACKED)
        factor = of_columns(
            most, batch, row, col, M, N, scale_t_ptr, amax_ptr, scale_t_stride_n, scale_t_stride_m, granularity,
            scale_power_of_two, D_TYPE, HARDWARE,
        )  # fmt: skip
        words = turn(x0, x1, x2, x3, factor, PACKED, D_TYPE, HARDWARE, ROWS)
        store_turned(words, q_t_ptr, row, col, end, N, ldd_t, ROWS)
    else:
        if granularity != ROW:
            of_cols = largest_of_columns(a_ptr, row, end, col, N, lda, BLOCK_M, PACKED, HARDWARE)
            most = magnitudes_of_columns(of_cols, PACKED)
        factor = of_columns(
            most, batch, row, col, M, N, scale_t_ptr, amax_ptr, scale_t_stride_n, scale_t_stride_m, granularity,
            scale_power_of_two, D_TYPE, HARDWARE,
        )  # fmt: skip
        for first in range(row, end, BLOCK_M):
            rows = first + tl.arange(0, BLOCK_M)
            x = load_rows(a_ptr, rows, end, col, N, lda, PACKED)
            scale = scales_of_rows(
                x, batch, rows, M, N, amax_ptr, granularity, scale_power_of_two, PACKED, D_TYPE, HARDWARE
            )
            store_scales(scale, rows, col, M, scale_ptr, scale_stride_m, scale_stride_n, granularity)
            if q_ptr.to(tl.int64) != 0:
                made = bytes_of(x, factor_of(scale, HARDWARE)[:, None], PACKED, D_TYPE, HARDWARE)
                store_bytes(made, q_ptr, rows, end, col, N, ldd, PACKED)
            store_bytes_turned(to_8_bits(x, factor[None, :], D_TYPE, HARDWARE), q_t_ptr, rows, col, end, N, ldd_t)
