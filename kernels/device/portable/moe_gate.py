"""The gate of a layer of experts by itself, for training: of stored pre-activations, and its gradient. Portable set."""

import triton
import triton.language as tl

from kernels.device.portable.gate import gated, gated_slopes
from kernels.device.portable.moe import load_weights
from kernels.device.portable.overlap import wait_for_last_kernel

PAIRS = tl.constexpr(2)  # libgemm_gate; 0 is none, 1 halves


@triton.jit
def load_gate(z_ptr, col, N, end, gate, BLOCK_N: tl.constexpr):
    """The gate's numbers and up's, those from `col` to `end` of N columns each, as float32; up's 1 without a gate."""
    cols = col + tl.arange(0, BLOCK_N)
    if gate == PAIRS:
        pairs = 2 * col + tl.arange(0, 2 * BLOCK_N)
        both = tl.load(z_ptr + pairs, mask=pairs < 2 * end, other=0.0)
        first, up = tl.split(tl.reshape(both, (BLOCK_N, 2)))
    else:
        first = tl.load(z_ptr + cols, mask=cols < end, other=0.0)
        up = tl.load(z_ptr + N + cols, mask=cols < tl.where(gate != 0, end, 0), other=1.0)
    return first.to(tl.float32), up.to(tl.float32)


@triton.jit
def store_gate(z_ptr, first, up, col, N, end, gate, BLOCK_N: tl.constexpr):
    """To where load_gate reads from."""
    cols = col + tl.arange(0, BLOCK_N)
    first = first.to(z_ptr.dtype.element_ty)
    up = up.to(z_ptr.dtype.element_ty)
    if gate == PAIRS:
        pairs = 2 * col + tl.arange(0, 2 * BLOCK_N)
        both = tl.reshape(tl.join(first, up), (2 * BLOCK_N,))
        tl.store(z_ptr + pairs, both, mask=pairs < 2 * end)
    else:
        tl.store(z_ptr + cols, first, mask=cols < end)
        tl.store(z_ptr + N + cols, up, mask=cols < tl.where(gate != 0, end, 0))


@triton.jit
def moe_gate(
    a_ptr, d_ptr, M, N, lda, ldd, activation, gate, gate_alpha, gate_limit, gate_shift,
    ALIGN: tl.constexpr, BLOCK_N: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """D[M][N] = act(gate) * up of A's rows, or act of them without a gate. A program for each row and BLOCK_N columns,
    the columns' blocks one after the other."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    blocks_n = tl.cdiv(N, BLOCK_N)
    row = (tl.program_id(0) // blocks_n).to(tl.int64)
    col = tl.program_id(0) % blocks_n * BLOCK_N
    end = tl.where(row < M, N, 0)
    first, up = load_gate(a_ptr + row * lda, col, N, end, gate, BLOCK_N)
    made = gated(first, up, activation, gate_alpha, gate_limit, gate_shift)
    cols = col + tl.arange(0, BLOCK_N)
    tl.store(d_ptr + row * ldd + cols, made.to(d_ptr.dtype.element_ty), mask=cols < end)


@triton.jit
def moe_gate_grad(
    a_ptr, b_ptr, d_ptr, h_ptr, sums_ptr, weights_ptr, places_ptr, entries, N, stored, lda, ldb, ldd, ldh,
    weights_type, activation, gate, gate_alpha, gate_limit, gate_shift,
    ALIGN: tl.constexpr, BLOCK_N: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The gradient of A = Z, of which moe_gate makes H, from B = what the second product gives back for rows of H of
    weight 1. A program for each entry, a choice of a token: its row is places[entry], none where that is none of Z's
    `stored` rows, and its weight w is weights[entry].

    D = dZ = w * B * slopes of H; h = w * H, unless null; sums[entry] = B . H in float32, the gradient of w, 0 where
    there is no row. Each sum is of one program, in a fixed order.
    """
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldb = ldb // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    ldh = ldh // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    entry = tl.program_id(0).to(tl.int64)
    place = tl.load(places_ptr + entry, mask=entry < entries, other=-1)
    here = (place >= 0) & (place < stored)
    row = place.to(tl.int64)
    weight = load_weights(weights_ptr, entry, here, weights_type)
    end = tl.where(here, N, 0)
    sums = tl.zeros((BLOCK_N,), tl.float32)
    for col in range(0, end, BLOCK_N):
        cols = col + tl.arange(0, BLOCK_N)
        inside = cols < end
        first, up = load_gate(a_ptr + row * lda, col, N, end, gate, BLOCK_N)
        grad = tl.load(b_ptr + row * ldb + cols, mask=inside, other=0.0).to(tl.float32)
        made, of_first, of_up = gated_slopes(first, up, activation, gate_alpha, gate_limit, gate_shift)
        sums += tl.where(inside, grad * made, 0.0)
        if h_ptr.to(tl.int64) != 0:
            tl.store(h_ptr + row * ldh + cols, (weight * made).to(h_ptr.dtype.element_ty), mask=inside)
        grad *= weight
        store_gate(d_ptr + row * ldd, grad * of_first, grad * of_up, col, N, end, gate, BLOCK_N)
    if sums_ptr.to(tl.int64) != 0:
        tl.store(sums_ptr + entry, tl.sum(sums, 0), mask=entry < entries)
