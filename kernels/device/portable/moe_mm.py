"""Grouped GEMM as a layer of experts asks for it: rows of A by an index, two halves of N gated, rows of D weighted and
put where an index says. Group ends, read on the device, cut the rows. Reference set.
"""

import triton
import triton.language as tl

from kernels.device.portable.gate import gated
from kernels.device.portable.grouped_mm import lane_value, larger, load_end
from kernels.device.portable.tiles import activate, dot, rasterise


@triton.jit
def multiply_rows(
    a_ptr, lda, index, b_ptr, ldb, ldn, cols, second, N, K,
    BLOCK_M: tl.constexpr, COLS: tl.constexpr, BLOCK_K: tl.constexpr, TRANS_B: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """Rows `index` of A (none where negative) by the columns of B that stand cols * ldn, and where GATED also by those
    `second` + cols * ldn: both sums."""
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + tl.maximum(index, 0).to(tl.int64)[:, None] * lda + offs_k[None, :]
    at = cols.to(tl.int64) * ldn
    if TRANS_B:
        b_ptrs = b_ptr + at[None, :] * ldb + offs_k[:, None]
        b_step = BLOCK_K
        further = second * ldb
    else:
        b_ptrs = b_ptr + at[None, :] + offs_k[:, None] * ldb
        b_step = BLOCK_K * ldb
        further = second
    there = (index >= 0)[:, None]
    inside = (cols < N)[None, :]
    acc = tl.zeros((BLOCK_M, COLS), dtype=tl.float32)
    more = tl.zeros((BLOCK_M, COLS), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=there & (offs_k[None, :] < K - k), other=0.0)
        mask = inside & (offs_k[:, None] < K - k)
        acc = dot(a, tl.load(b_ptrs, mask=mask, other=0.0), acc, 0, 0, 0)
        if GATED:
            more = dot(a, tl.load(b_ptrs + further, mask=mask, other=0.0), more, 0, 0, 0)
        a_ptrs += BLOCK_K
        b_ptrs += b_step
    return acc, more


@triton.jit
def moe_mm(
    a_ptr, b_ptr, d_ptr, bias_ptr, offs_ptr, rows_ptr, weights_ptr, to_rows_ptr,
    M, N, K, groups, stored, d_stored, lda, ldb, ldd, batch_stride_b, batch_stride_bias,
    alpha, activation, gate, gate_alpha, gate_limit, gate_shift,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, TRANS_B: tl.constexpr,
    ALIGN: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """Persistent: each program takes every num_programs-th tile. Ends are scanned CHUNK at a time by a prefix sum, and
    clamped as grouped_mm.py says.

    N counts D's columns. Of a gated product B has twice as many: for `gate` 1 the gate's before up's, for 2 in turn;
    a tile has BLOCK_N of them. Null pointers: A's rows as they stand, weights of 1, D's rows as they stand. An index
    that points outside of A's `stored` rows stands for a row of zeros, one outside of D's `d_stored` for no row.
    """
    CHUNK: tl.constexpr = 128
    COLS: tl.constexpr = BLOCK_N // 2 if GATED else BLOCK_N
    lda = lda // ALIGN * ALIGN
    ldb = ldb // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    batch_stride_b = batch_stride_b // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    K = K // ALIGN * ALIGN
    tile = tl.program_id(0).to(tl.int64)
    before = tl.zeros((), dtype=tl.int64)  # tiles in the chunks already passed
    passed = tl.zeros((), dtype=tl.int64)  # their largest end
    lane = tl.arange(0, CHUNK)
    tiles_n = (N + COLS - 1) // COLS
    pairs = gate == 2
    ldn = tl.where(pairs, 2, 1)
    second = tl.where(pairs, 1, N).to(tl.int64)
    for chunk in range(0, groups, CHUNK):
        group = chunk + lane
        start = load_end(offs_ptr, group - 1, 0, (group > 0) & (group <= groups))
        end = load_end(offs_ptr, group, 0, group < groups)
        start = tl.maximum(tl.associative_scan(tl.minimum(start, M), 0, larger), passed)
        end = tl.minimum(tl.maximum(end, start), M)
        tiles = tl.where(group < groups, (end - start + BLOCK_M - 1) // BLOCK_M * tiles_n, 0)
        upto = tl.cumsum(tiles, 0)
        total = tl.sum(tiles, 0)
        passed = tl.maximum(passed, tl.max(tl.where(group < groups, end, 0), 0))
        while tile < before + total:
            inside = tile - before
            here = lane == tl.sum((upto <= inside).to(tl.int32), 0)
            inside -= lane_value(upto - tiles, here)
            row_start = lane_value(start, here)
            row_end = lane_value(end, here)
            expert = lane_value(group, here).to(tl.int64)
            tile_m, tile_n = rasterise(inside, (row_end - row_start + BLOCK_M - 1) // BLOCK_M, tiles_n, GROUP_M)
            rows = row_start + tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            cols = tile_n.to(tl.int32) * COLS + tl.arange(0, COLS)
            own = rows < row_end
            index = rows.to(tl.int32)
            if rows_ptr.to(tl.int64) != 0:
                index = tl.load(rows_ptr + rows, mask=own, other=-1)
            index = tl.where(own & (index < stored), index, -1)
            acc, more = multiply_rows(
                a_ptr, lda, index, b_ptr + expert * batch_stride_b, ldb, ldn, cols, second, N, K,
                BLOCK_M, COLS, BLOCK_K, TRANS_B, GATED,
            )  # fmt: skip
            acc *= alpha
            more *= alpha
            if bias_ptr.to(tl.int64) != 0:
                bias = bias_ptr + expert * batch_stride_bias + cols.to(tl.int64) * ldn
                acc += tl.load(bias, mask=cols < N, other=0.0).to(tl.float32)[None, :]
                if GATED:
                    more += tl.load(bias + second, mask=cols < N, other=0.0).to(tl.float32)[None, :]
            acc = (
                gated(acc, more, activation, gate_alpha, gate_limit, gate_shift) if GATED else activate(acc, activation)
            )
            if weights_ptr.to(tl.int64) != 0:
                acc *= tl.load(weights_ptr + rows, mask=own, other=0.0)[:, None]
            to = rows
            if to_rows_ptr.to(tl.int64) != 0:
                to = tl.load(to_rows_ptr + rows, mask=own, other=-1).to(tl.int64)
                own = own & (to >= 0) & (to < d_stored)
            mask = own[:, None] & (cols < N)[None, :]
            tl.store(d_ptr + to[:, None] * ldd + cols[None, :], acc.to(d_ptr.dtype.element_ty), mask=mask)
            tile += tl.num_programs(0)
        before += total
