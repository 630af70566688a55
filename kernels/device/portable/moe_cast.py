"""Rows for a product of experts in 8 bits: by an index, gated, and cast with a scale for each 128. Portable set."""

import triton
import triton.language as tl

from kernels.device.portable.cast import BLOCK, factor_of, magnitude, scale_of, to_e4m3
from kernels.device.portable.gate import gated
from kernels.device.portable.moe_gate import PAIRS
from kernels.device.portable.overlap import wait_for_last_kernel


@triton.jit
def load_gates(a_ptr, offs, here, col, N, gate, BLOCK_M: tl.constexpr):
    """Of rows that begin at `offs`, those that are `here`: the gate's numbers and up's, 128 of N columns each, as
    float32; up's 1 without a gate."""
    cols = col + tl.arange(0, BLOCK)
    if gate == PAIRS:
        pairs = 2 * col + tl.arange(0, 2 * BLOCK)
        of_both = here[:, None] & (pairs < 2 * N)[None, :]
        both = tl.load(a_ptr + offs[:, None] + pairs[None, :], mask=of_both, other=0.0)
        first, up = tl.split(tl.reshape(both, (BLOCK_M, BLOCK, 2)))
    else:
        of_first = here[:, None] & (cols < N)[None, :]
        first = tl.load(a_ptr + offs[:, None] + cols[None, :], mask=of_first, other=0.0)
        of_up = here[:, None] & (cols < tl.where(gate != 0, N, 0))[None, :]
        up = tl.load(a_ptr + N + offs[:, None] + cols[None, :], mask=of_up, other=1.0)
    return first.to(tl.float32), up.to(tl.float32)


@triton.jit
def moe_cast(
    a_ptr, q_ptr, scale_ptr, rows_ptr, M, N, stored, lda, ldd, scale_stride_m, scale_stride_n, activation, gate,
    gate_alpha, gate_limit, gate_shift,
    ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """q[M][N] = act(gate) * up of rows of A, or act of them without a gate, over scales of 1 x 128. Row i of q is of
    A's row rows[i], or i where rows is null; one that is none of A's `stored` rows is 0. By tiles of 128 columns."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    tiles_n = tl.cdiv(N, BLOCK)
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    block = tl.program_id(0) % tiles_n
    inside = rows < M
    place = rows
    if rows_ptr.to(tl.int64) != 0:
        place = tl.load(rows_ptr + rows, mask=inside, other=-1)
    here = inside & (place >= 0) & (place < stored)
    offs = tl.where(here, place, 0).to(tl.int64) * lda
    first, up = load_gates(a_ptr, offs, here, block * BLOCK, N, gate, BLOCK_M)
    x = gated(first, up, activation, gate_alpha, gate_limit, gate_shift)
    x = tl.where(here[:, None], x, 0.0)
    scale = scale_of(tl.max(magnitude(x), 1), 0)
    to_ptr = scale_ptr + rows.to(tl.int64) * scale_stride_m + block.to(tl.int64) * scale_stride_n
    tl.store(to_ptr, scale, mask=inside)
    cols = block * BLOCK + tl.arange(0, BLOCK)
    to_ptr = q_ptr + rows.to(tl.int64)[:, None] * ldd + cols[None, :]
    tl.store(to_ptr, to_e4m3(x, factor_of(scale)[:, None], HARDWARE), mask=inside[:, None] & (cols < N)[None, :])
