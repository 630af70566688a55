"""Adds up what the blocks of sm90/gemm_stream.py left of the tiles whose K they share, and stores them: behind it."""

import triton
import triton.language as tl

from kernels.device.portable.overlap import wait_for_last_kernel
from kernels.device.portable.tiles import rasterise, store_tile

AT_ONCE = tl.constexpr(4)  # loads in flight: one at a time would wait for L2 at each


@triton.jit
def place_of(tile, rank, tiles_left, tiles_right, below, across, GROUP_M: tl.constexpr):
    """Which tile of the left and of the right operand block `rank` of a cluster has."""
    row, column = rasterise(tile, tl.cdiv(tiles_left, below), tl.cdiv(tiles_right, across), GROUP_M)
    return row * below + rank % below, column * across + rank // below


@triton.jit
def gemm_sum(
    partials, c_ptr, d_ptr, bias_ptr, M, N, K, ldc, ldd, alpha, beta, activation,
    stream_steps, stream_m, stream_n, stream_k, stream_swap, stream_below, stream_across,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr, ACTIVATE: tl.constexpr,
):  # fmt: skip
    """A program has BLOCK_M x BLOCK_N of a tile of stream_m x stream_n. Run r had the steps in K, stream_k deep, from
    r * stream_steps on, through all tiles; its sum of tile t is number r + t of `partials`. They are added in order of
    K. Of a cluster stream_across blocks are side by side and stream_below below one another, each with a tile of what
    is said here of one."""
    wait_for_last_kernel()
    partials = tl.multiple_of(partials, 16)
    stream_n = tl.multiple_of(stream_n, 8)
    across = tl.cdiv(stream_n, BLOCK_N)
    each = tl.cdiv(stream_m, BLOCK_M) * across
    cluster = stream_below * stream_across
    tile = tl.program_id(0) // each // cluster
    rank = tl.program_id(0) // each % cluster
    inside = tl.program_id(0) % each
    tiles_m = tl.cdiv(M, stream_m)
    tiles_n = tl.cdiv(N, stream_n)
    if stream_swap == 1:
        tile_n, tile_m = place_of(tile, rank, tiles_n, tiles_m, stream_below, stream_across, GROUP_M)
    else:
        tile_m, tile_n = place_of(tile, rank, tiles_m, tiles_n, stream_below, stream_across, GROUP_M)
    row = inside // across * BLOCK_M
    col = inside % across * BLOCK_N
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    row_end = tl.minimum(M - tile_m * stream_m, stream_m)
    col_end = tl.minimum(N - tile_n * stream_n, stream_n)
    at = rows[:, None] * stream_n + cols[None, :]
    steps = tl.cdiv(K, stream_k)
    last = (tile * steps + steps - 1) // stream_steps
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for run in range(tile * steps // stream_steps, last + 1, AT_ONCE):
        for i in tl.static_range(AT_ONCE):
            place = (run + i + tile) * cluster + rank
            rows_there = tl.where(run + i <= last, row_end, 0)
            there = (rows < rows_there)[:, None] & (cols < col_end)[None, :]
            total += tl.load(partials + place * (stream_m * stream_n) + at, mask=there, other=0.0)
    first_row = (tile_m * stream_m).to(tl.int64)
    first_col = tile_n * stream_n
    store_tile(
        total, c_ptr, d_ptr, bias_ptr, tl.multiple_of(ldc, 8), tl.multiple_of(ldd, 8), first_row + row,
        first_row + row_end, first_col + col, first_col + col_end, alpha, beta, activation, BLOCK_M, BLOCK_N, ACTIVATE,
    )  # fmt: skip
