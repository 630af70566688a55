"""Rows for a product of experts in 8 bits: by an index, gated, and cast with a scale for each 128; or by an index, of
what was cast before. Portable set.
"""

import triton
import triton.language as tl

from kernels.device.portable.eight_bits import BLOCK, E4M3, factor_of, numbers, scale_of, to_8_bits
from kernels.device.portable.gate import gated, swish_gated
from kernels.device.portable.overlap import wait_for_last_kernel


@triton.jit
def rows_of(rows_ptr, row, M, stored, BLOCK_M: tl.constexpr):
    """(rows from `row` on, which of them there are, which of A's rows they are, which of those A has); rows_ptr is null
    where they are A's as they stand."""
    rows = row + tl.arange(0, BLOCK_M)
    inside = rows < M
    place = rows
    if rows_ptr.to(tl.int64) != 0:
        place = tl.load(rows_ptr + rows, mask=inside, other=-1)
    here = inside & (place >= 0) & (place < stored)
    return rows, inside, tl.where(here, place, 0).to(tl.int64), here


@triton.jit
def load_gates(a_ptr, offs, here, block, N, GATED: tl.constexpr, PAIRED: tl.constexpr, BLOCK_M: tl.constexpr):
    """Of rows that begin at `offs`, those that are `here`: the gate's numbers and up's, a block of 128 of N columns
    each, as float32; up's 1 without a gate."""
    cols = block * BLOCK + tl.arange(0, BLOCK)
    of_all = here[:, None] & (cols < N)[None, :]
    if PAIRED:
        pairs = 2 * block * BLOCK + tl.arange(0, 2 * BLOCK)
        of_both = here[:, None] & (pairs < 2 * N)[None, :]
        both = tl.load(a_ptr + offs[:, None] + pairs[None, :], mask=of_both, other=0.0)
        first, up = tl.split(tl.reshape(both, (BLOCK_M, BLOCK, 2)))
    elif GATED:
        first = tl.load(a_ptr + offs[:, None] + cols[None, :], mask=of_all, other=0.0)
        up = tl.load(a_ptr + N + offs[:, None] + cols[None, :], mask=of_all, other=0.0)
    else:
        first = tl.load(a_ptr + offs[:, None] + cols[None, :], mask=of_all, other=0.0)
        up = tl.full((BLOCK_M, BLOCK), 1.0, tl.float32)
    return first.to(tl.float32), up.to(tl.float32)


@triton.jit
def moe_cast(
    a_ptr, q_ptr, scale_ptr, rows_ptr, M, N, stored, lda, ldd, scale_stride_m, scale_stride_n, activation,
    gate_alpha, gate_limit, gate_shift,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
    GATED: tl.constexpr, PAIRED: tl.constexpr, SWISH: tl.constexpr, ACTIVATE: tl.constexpr,
):  # fmt: skip
    """q[M][N] = act(gate) * up of rows of A, or act of them without a gate, over scales of 1 x 128. Row i of q is of
    A's row rows[i], or i where rows is null; one that is none of A's `stored` rows is 0. By tiles of 128 columns."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    tiles_n = tl.cdiv(N, BLOCK)
    block = tl.program_id(0) % tiles_n
    rows, inside, place, here = rows_of(rows_ptr, tl.program_id(0) // tiles_n * BLOCK_M, M, stored, BLOCK_M)
    x, up = load_gates(a_ptr, place * lda, here, block, N, GATED, PAIRED, BLOCK_M)
    if SWISH:
        x = swish_gated(x, up, gate_alpha, gate_limit, gate_shift)
    elif GATED or ACTIVATE:
        x = gated(x, up, activation, gate_alpha, gate_limit, gate_shift)
    x = tl.where(here[:, None], numbers(x), 0.0)
    scale = scale_of(tl.max(tl.abs(x), 1), 0, E4M3, HARDWARE)
    to_ptr = scale_ptr + rows.to(tl.int64) * scale_stride_m + block.to(tl.int64) * scale_stride_n
    tl.store(to_ptr, scale, mask=inside)
    cols = block * BLOCK + tl.arange(0, BLOCK)
    to_ptr = q_ptr + rows.to(tl.int64)[:, None] * ldd + cols[None, :]
    made = to_8_bits(x, factor_of(scale, HARDWARE)[:, None], E4M3, HARDWARE)
    tl.store(to_ptr, made, mask=inside[:, None] & (cols < N)[None, :])


@triton.jit
def moe_gather(
    a_ptr, q_ptr, a_scale, scale_ptr, rows_ptr, M, N, stored, lda, ldd, a_scale_stride_m, a_scale_stride_k,
    scale_stride_m, scale_stride_n,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """q[M][N] and scales of 1 x 128 = rows[i] of A and of its scales: bytes, as they are; of a row that A does not have
    0 and 1. By tiles of BLOCK_N columns."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    tiles_n = tl.cdiv(N, BLOCK_N)
    col = tl.program_id(0) % tiles_n * BLOCK_N
    rows, inside, place, here = rows_of(rows_ptr, tl.program_id(0) // tiles_n * BLOCK_M, M, stored, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    blocks = (col // BLOCK + tl.arange(0, BLOCK_N // BLOCK)).to(tl.int64)
    has_block = (blocks * BLOCK < N)[None, :]
    from_ptr = a_scale + place[:, None] * a_scale_stride_m + blocks[None, :] * a_scale_stride_k
    scale = tl.load(from_ptr, mask=here[:, None] & has_block, other=1.0)
    to_ptr = scale_ptr + rows.to(tl.int64)[:, None] * scale_stride_m + blocks[None, :] * scale_stride_n
    tl.store(to_ptr, scale, mask=inside[:, None] & has_block)
    a_ptr = a_ptr.to(tl.pointer_type(tl.uint8), bitcast=True)
    x = tl.load(a_ptr + place[:, None] * lda + cols[None, :], mask=here[:, None] & (cols < N)[None, :], other=0)
    tl.store(q_ptr + rows.to(tl.int64)[:, None] * ldd + cols[None, :], x, mask=inside[:, None] & (cols < N)[None, :])
