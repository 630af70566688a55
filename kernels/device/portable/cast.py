"""Casts matrices to 8 bits and makes the scales that products take: of a matrix, a row, blocks of 128. Portable set."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.device.portable.eight_bits import BLOCK, factor_of, scale_of
from kernels.device.portable.overlap import wait_for_last_kernel
from kernels.device.portable.words import (
    bytes_of,
    larger,
    largest,
    load_rows,
    magnitude_of,
    magnitudes_of_columns,
    sizes_of,
    store_bytes,
)

TENSOR = tl.constexpr(1)  # libgemm_granularity
ROW = tl.constexpr(2)
AMAX_ROWS = tl.constexpr(64)  # of a program of cast_amax


@triton.jit
def load_amax(amax_ptr, offs, mask):
    """Words that cast_amax left."""
    return tl.load(amax_ptr + offs, mask=mask, other=0).to(tl.float32, bitcast=True)


@triton.jit
def tile_of(program, M, N, height, WIDTH: tl.constexpr = BLOCK):
    """(matrix, first row, first column, end of the rows) of a program's tile, `height` x WIDTH; those of one matrix
    follow one another by rows."""
    tiles_n = tl.cdiv(N, WIDTH)
    tiles = tl.cdiv(M, height) * tiles_n
    inside = program % tiles
    row = inside // tiles_n * height
    return (program // tiles).to(tl.int64), row, inside % tiles_n * WIDTH, tl.minimum(row + height, M)


@triton.jit
def largest_of_columns(
    a_ptr, row, end, col, N, lda, BLOCK_M: tl.constexpr, PACKED: tl.constexpr, HARDWARE: tl.constexpr
):  # fmt: skip
    """The largest magnitude of each column of a tile of 128 rows, as largest() leaves it; BLOCK_M of them at a time."""
    rows = tl.arange(0, BLOCK_M)
    most = sizes_of(load_rows(a_ptr, row + rows, end, col, N, lda, PACKED), PACKED)
    for first in range(row + BLOCK_M, end, BLOCK_M):
        more = sizes_of(load_rows(a_ptr, first + rows, end, col, N, lda, PACKED), PACKED)
        most = larger(most, more, PACKED, HARDWARE)
    return largest(most, 0, PACKED, HARDWARE)


@triton.jit
def cast_amax(
    a_ptr, amax_ptr, M, N, lda, batch_stride_a, granularity, phase, entries,
    ALIGN: tl.constexpr, PACKED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HARDWARE: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """The largest magnitudes of each matrix, as bits of float32: one, or by ROW those of its M rows, then of its N
    columns. In phase 1 a program clears 1024 of all `entries` words, in phase 2 it goes over AMAX_ROWS rows of BLOCK_N
    columns, BLOCK_M at a time. The order of what is compared does not matter."""
    if phase == 1:
        if OVERLAP:
            gdc_wait()
            # Only once what came before is over may the next launch begin, which reads A before it waits for this one.
            gdc_launch_dependents()
        offs = tl.program_id(0).to(tl.int64) * 1024 + tl.arange(0, 1024)
        tl.store(amax_ptr + offs, tl.zeros((1024,), tl.int32), mask=offs < entries)
    else:
        if OVERLAP:
            gdc_launch_dependents()  # what follows are small blocks of a cast too, which wait by themselves
        lda = lda // ALIGN * ALIGN
        batch_stride_a = batch_stride_a // ALIGN * ALIGN
        N = N // ALIGN * ALIGN
        # From the last tile on: the cast begins with what this pass ended with, which may still be in L2.
        program = tl.num_programs(0) - 1 - tl.program_id(0)
        batch, row, col, end = tile_of(program, M, N, AMAX_ROWS, BLOCK_N)
        a_ptr += batch * batch_stride_a
        words = amax_ptr + batch * (M.to(tl.int64) + N)
        most = tl.zeros((BLOCK_M, BLOCK_N // 2 if PACKED else BLOCK_N), tl.int32 if PACKED else tl.float32)
        if granularity == TENSOR:
            for first in range(row, end, BLOCK_M):
                rows = first + tl.arange(0, BLOCK_M)
                sizes = sizes_of(load_rows(a_ptr, rows, end, col, N, lda, PACKED, BLOCK_N), PACKED)
                most = larger(most, sizes, PACKED, HARDWARE)
            of_words = largest(most, 0, PACKED, HARDWARE)
            of_tile = magnitude_of(largest(of_words, 0, PACKED, HARDWARE), PACKED)
            of_tile = tl.maximum(of_tile, 0.0)  # of NaN alone there is none
            if OVERLAP:
                gdc_wait()
            tl.atomic_max(amax_ptr + batch, of_tile.to(tl.int32, bitcast=True), sem="relaxed")
        else:
            for first in range(row, end, BLOCK_M):
                rows = first + tl.arange(0, BLOCK_M)
                sizes = sizes_of(load_rows(a_ptr, rows, end, col, N, lda, PACKED, BLOCK_N), PACKED)
                most = larger(most, sizes, PACKED, HARDWARE)
                of_rows = magnitude_of(largest(sizes, 1, PACKED, HARDWARE), PACKED)
                of_rows = tl.maximum(of_rows, 0.0)  # of NaN alone there is none
                if OVERLAP:
                    gdc_wait()
                tl.atomic_max(words + rows, of_rows.to(tl.int32, bitcast=True), mask=rows < end, sem="relaxed")
            cols = col + tl.arange(0, BLOCK_N)
            of_cols = magnitudes_of_columns(largest(most, 0, PACKED, HARDWARE), PACKED, BLOCK_N)
            tl.atomic_max(words + M + cols, of_cols.to(tl.int32, bitcast=True), mask=cols < N, sem="relaxed")


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
    ALIGN: tl.constexpr, PACKED: tl.constexpr, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
    OVERLAP: tl.constexpr,
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
    rows = row + tl.arange(0, BLOCK_M)
    x = load_rows(a_ptr + batch * batch_stride_a, rows, end, col, N, lda, PACKED)
    scale_ptr += batch * batch_stride_scale
    first = (row == 0) & (col == 0)
    factor = factor_of_matrix(scale_ptr, amax_ptr + batch, first, scale_power_of_two, scale_given, D_TYPE, HARDWARE)
    made = bytes_of(x, factor, PACKED, D_TYPE, HARDWARE)
    store_bytes(made, q_ptr + batch * batch_stride_d, rows, end, col, N, ldd, PACKED)


@triton.jit
def cast_1x128(
    a_ptr, q_ptr, scale_ptr, M, N, lda, ldd, batch_stride_a, batch_stride_d, batch_stride_scale,
    scale_stride_m, scale_stride_n, scale_power_of_two,
    ALIGN: tl.constexpr, PACKED: tl.constexpr, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
    OVERLAP: tl.constexpr,
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
    rows = row + tl.arange(0, BLOCK_M)
    x = load_rows(a_ptr + batch * batch_stride_a, rows, end, col, N, lda, PACKED)
    most = magnitude_of(largest(sizes_of(x, PACKED), 1, PACKED, HARDWARE), PACKED)
    scale = scale_of(most, scale_power_of_two, D_TYPE, HARDWARE)
    to_ptr = scale_ptr + batch * batch_stride_scale + (col // BLOCK).to(tl.int64) * scale_stride_n
    tl.store(to_ptr + rows.to(tl.int64) * scale_stride_m, scale, mask=rows < end)
    made = bytes_of(x, factor_of(scale, HARDWARE)[:, None], PACKED, D_TYPE, HARDWARE)
    store_bytes(made, q_ptr + batch * batch_stride_d, rows, end, col, N, ldd, PACKED)


@triton.jit
def cast_128x128(
    a_ptr, q_ptr, scale_ptr, M, N, lda, ldd, batch_stride_a, batch_stride_d, batch_stride_scale,
    scale_stride_m, scale_stride_n, scale_power_of_two,
    ALIGN: tl.constexpr, PACKED: tl.constexpr, BLOCK_M: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
    OVERLAP: tl.constexpr,
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
    rows = row + tl.arange(0, BLOCK_M)
    if BLOCK_M == BLOCK:
        x = load_rows(a_ptr, rows, end, col, N, lda, PACKED)
        most = largest(largest(sizes_of(x, PACKED), 0, PACKED, HARDWARE), 0, PACKED, HARDWARE)
        scale = scale_of(magnitude_of(most, PACKED), scale_power_of_two, D_TYPE, HARDWARE)
        tl.store(to_ptr, scale)
        made = bytes_of(x, factor_of(scale, HARDWARE), PACKED, D_TYPE, HARDWARE)
        store_bytes(made, q_ptr, rows, end, col, N, ldd, PACKED)
    else:
        of_cols = largest_of_columns(a_ptr, row, end, col, N, lda, BLOCK_M, PACKED, HARDWARE)
        most = magnitude_of(largest(of_cols, 0, PACKED, HARDWARE), PACKED)
        scale = scale_of(most, scale_power_of_two, D_TYPE, HARDWARE)
        tl.store(to_ptr, scale)
        factor = factor_of(scale, HARDWARE)
        for first in range(0, end - row, BLOCK_M):
            x = load_rows(a_ptr, rows + first, end, col, N, lda, PACKED)
            made = bytes_of(x, factor, PACKED, D_TYPE, HARDWARE)
            store_bytes(made, q_ptr, rows + first, end, col, N, ldd, PACKED)


@triton.jit
def cast_rows(
    a_ptr, q_ptr, scale_ptr, M, N, lda, ldd, batch_stride_a, batch_stride_d, batch_stride_scale, scale_power_of_two,
    ALIGN: tl.constexpr, PACKED: tl.constexpr, BLOCK_N: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr,
    OVERLAP: tl.constexpr,
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
    rows = tl.program_id(0) % M + tl.arange(0, 1)
    a_ptr += batch * batch_stride_a
    q_ptr += batch * batch_stride_d
    first = load_rows(a_ptr, rows, M, 0, N, lda, PACKED, BLOCK_N)
    sizes = sizes_of(first, PACKED)
    for col in range(BLOCK_N, N, BLOCK_N):
        x = load_rows(a_ptr, rows, M, col, N, lda, PACKED, BLOCK_N)
        sizes = larger(sizes, sizes_of(x, PACKED), PACKED, HARDWARE)
    most = magnitude_of(largest(sizes, 1, PACKED, HARDWARE), PACKED)
    scale = scale_of(most, scale_power_of_two, D_TYPE, HARDWARE)
    tl.store(scale_ptr + batch * batch_stride_scale + rows, scale)
    factor = factor_of(scale, HARDWARE)[:, None]
    store_bytes(bytes_of(first, factor, PACKED, D_TYPE, HARDWARE), q_ptr, rows, M, 0, N, ldd, PACKED, BLOCK_N)
    for col in range(BLOCK_N, N, BLOCK_N):
        x = load_rows(a_ptr, rows, M, col, N, lda, PACKED, BLOCK_N)
        store_bytes(bytes_of(x, factor, PACKED, D_TYPE, HARDWARE), q_ptr, rows, M, col, N, ldd, PACKED, BLOCK_N)
