"""Rows for a product of experts in 8 bits, cast with a scale for each 128: by an index and gated; or each one to all
its choices' places. Portable set.
"""

import triton
import triton.language as tl

from kernels.device.portable.eight_bits import BLOCK, E4M3, factor_of, numbers, scale_of, to_8_bits
from kernels.device.portable.gate import gated, swish_gated
from kernels.device.portable.moe import load_experts
from kernels.device.portable.moe_few import place_of, store_ends
from kernels.device.portable.overlap import wait_for_last_kernel
from kernels.device.portable.words import bytes_of, largest, magnitude_of, sizes_of

FEW = tl.constexpr(64)  # entries that find their places by themselves; aot/csrc/api/moe_cast.c asks no more
SOME = tl.constexpr(16)  # of these
AT_ONCE = tl.constexpr(8)  # choices of a row


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
def find_places(ids_ptr, places_ptr, offs_ptr, entries, groups, ids_wide):
    """Those of FEW entries at most, by every program, which may read all of them behind it: each stores the same
    numbers. The experts' ends by all of them together."""
    experts = load_experts(ids_ptr, tl.arange(0, FEW), entries, groups, ids_wide)
    for first in range(0, entries, SOME):
        entry = first + tl.arange(0, SOME)
        place = place_of(load_experts(ids_ptr, entry, entries, groups, ids_wide), entry, experts, groups)
        tl.store(places_ptr + entry, place, mask=entry < entries)
    store_ends(offs_ptr, experts, groups)
    tl.debug_barrier()


@triton.jit
def load_blocks(a_ptr, blocks, N, PACKED: tl.constexpr):
    """These blocks of 128 of a row's N numbers, one to a row, as load_rows (words.py) has them; which columns those
    are, counted in words of it; and which of them there are."""
    PER: tl.constexpr = 2 if PACKED else 1
    cols = blocks[:, None] * (BLOCK // PER) + tl.arange(0, BLOCK // PER)[None, :]
    inside = cols < N // PER
    if PACKED:
        x = tl.load(a_ptr.to(tl.pointer_type(tl.int32), bitcast=True) + cols, mask=inside, other=0)
    else:
        x = numbers(tl.load(a_ptr + cols, mask=inside, other=0.0))
    return x, cols, inside


@triton.jit
def moe_spread(
    a_ptr, q_ptr, scale_ptr, ids_ptr, places_ptr, offs_ptr, N, entries, groups, top_k, ids_wide, lda, ldd,
    scale_stride_m, scale_stride_n,
    ALIGN: tl.constexpr, PACKED: tl.constexpr, BLOCK_N: tl.constexpr, HARDWARE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Each of A's rows over scales of 1 x 128, cast once, to the row of q and of scales that each of its top_k choices
    has: places[t, j], of `entries` rows; -1 is none. Rows that no choice has are not written. Where ids is not null
    there are at most FEW entries, and places, and offs too, are made here, as moe_route makes them. A program for each
    row and BLOCK_N columns, so that all its threads store to one row at a time."""
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    parts = tl.cdiv(N, BLOCK_N)
    token = (tl.program_id(0) // parts).to(tl.int64)
    blocks = tl.program_id(0) % parts * (BLOCK_N // BLOCK) + tl.arange(0, BLOCK_N // BLOCK)
    x, cols, inside = load_blocks(a_ptr + token * lda, blocks, N, PACKED)
    if ids_ptr.to(tl.int64) != 0:
        find_places(ids_ptr, places_ptr, offs_ptr, entries, groups, ids_wide)
    most = magnitude_of(largest(sizes_of(x, PACKED), 1, PACKED, HARDWARE), PACKED)
    scale = scale_of(most, 0, E4M3, HARDWARE)
    made = bytes_of(x, factor_of(scale, HARDWARE)[:, None], PACKED, E4M3, HARDWARE)
    scale_ptr += blocks.to(tl.int64) * scale_stride_n
    places_ptr += token * top_k
    for first in range(0, top_k, AT_ONCE):
        # All loads come before the first store, so that they are under way together.
        places = ()
        for i in tl.static_range(AT_ONCE):
            places += (tl.load(places_ptr + first + i, mask=first + i < top_k, other=-1),)
        for i in tl.static_range(AT_ONCE):
            if (places[i] >= 0) & (places[i] < entries):
                place = places[i].to(tl.int64)
                tl.store(scale_ptr + place * scale_stride_m, scale, mask=blocks * BLOCK < N)
                to_ptr = q_ptr + place * ldd
                if PACKED:
                    to_ptr = to_ptr.to(tl.pointer_type(tl.int16), bitcast=True)
                tl.store(to_ptr + cols, made, mask=inside)
