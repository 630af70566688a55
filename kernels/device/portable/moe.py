"""Mixture of experts: sorts a router's choices by expert, and adds up each token's rows of results. Portable set."""

import triton
import triton.language as tl

from kernels.device.portable.grouped_mm import larger
from kernels.device.portable.overlap import wait_for_last_kernel

EXPERTS = tl.constexpr(256)  # whose positions are found at once
PROGRAMS = tl.constexpr(16)  # whose counts are read at once
FLOAT16 = tl.constexpr(1)  # types of weights; 0 is none
BFLOAT16 = tl.constexpr(2)
FLOAT32 = tl.constexpr(3)


@triton.jit
def load_experts(ids_ptr, entry, entries, groups, ids_wide):
    """The expert of each entry; `groups` for those that are skipped or behind the last."""
    inside = entry < entries
    if ids_wide != 0:
        found = tl.load(ids_ptr.to(tl.pointer_type(tl.int64)) + entry, mask=inside, other=-1)
    else:
        found = tl.load(ids_ptr + entry, mask=inside, other=-1).to(tl.int64)
    return tl.where((found >= 0) & (found < groups), found, groups).to(tl.int32)


@triton.jit
def count_entries(ids_ptr, row_ptr, first, last, entries, groups, ids_wide, BLOCK_M: tl.constexpr):
    """How many entries of the chunks first .. last - 1 go to each expert, to `row_ptr`."""
    for block in range(0, groups, EXPERTS):
        group = block + tl.arange(0, EXPERTS)
        tl.store(row_ptr + group, tl.zeros([EXPERTS], tl.int32), mask=group < groups)
    tl.debug_barrier()
    for chunk in range(first, last):
        entry = chunk * BLOCK_M + tl.arange(0, BLOCK_M)
        group = load_experts(ids_ptr, entry, entries, groups, ids_wide)
        tl.atomic_add(row_ptr + group, 1, mask=group < groups, sem="relaxed", scope="cta")


@triton.jit
def find_positions(counts_ptr, next_ptr, offs_ptr, groups):
    """The first position of each expert's entries that are this program's own, to `next_ptr`; the ends of all, by the
    first program, to offs. The number of all entries that are not skipped."""
    own = tl.program_id(0)
    programs = tl.num_programs(0)
    passed = tl.zeros((), dtype=tl.int32)  # positions of the experts already passed
    for block in range(0, groups, EXPERTS):
        group = block + tl.arange(0, EXPERTS)
        here = group < groups
        size = tl.zeros([EXPERTS], tl.int32)
        before = tl.zeros([EXPERTS], tl.int32)  # of the programs before this one
        for some in range(0, programs, PROGRAMS):
            program = some + tl.arange(0, PROGRAMS)
            rows = counts_ptr + program.to(tl.int64)[:, None] * groups
            count = tl.load(rows + group[None, :], mask=(program < programs)[:, None] & here[None, :], other=0)
            size += tl.sum(count, 0)
            before += tl.sum(tl.where((program < own)[:, None], count, 0), 0)
        end = passed + tl.cumsum(size, 0)
        tl.store(next_ptr + group, end - size + before, mask=here)
        if own == 0:
            tl.store(offs_ptr + group, end, mask=here)
        passed += tl.sum(size, 0)
    return passed


@triton.jit
def place_entries(
    ids_ptr, rows_ptr, places_ptr, next_ptr, first, last, entries, groups, top_k, ids_wide, BLOCK_M: tl.constexpr
):
    """Rows and places of the entries of chunks first .. last - 1, whose experts' next positions are at `next_ptr`."""
    lane = tl.arange(0, BLOCK_M)
    for chunk in range(first, last):
        start = chunk * BLOCK_M
        # Sorted by expert, then by entry: equal experts lie together, in the order in which they came.
        key = tl.sort(load_experts(ids_ptr, start + lane, entries, groups, ids_wide) * BLOCK_M + lane)
        group = key // BLOCK_M
        entry = key % BLOCK_M
        here = group < groups
        # Of lanes up to this one the largest expert is its own, and of that expert's lanes the first counts most.
        leader = tl.associative_scan(group * BLOCK_M + (BLOCK_M - 1 - lane), 0, larger) % BLOCK_M
        rank = lane - (BLOCK_M - 1 - leader)
        place = tl.load(next_ptr + group, mask=here, other=0) + rank
        tl.store(rows_ptr + place, (start.to(tl.int32) + entry) // top_k, mask=here)
        tl.store(places_ptr + start + entry, tl.where(here, place, -1), mask=start + entry < entries)
        if chunk + 1 < last:
            tl.debug_barrier()  # all have read where this chunk's entries go
            tl.atomic_add(next_ptr + group, 1, mask=here, sem="relaxed", scope="cta")
            tl.debug_barrier()


@triton.jit
def moe_route(
    ids_ptr, rows_ptr, places_ptr, offs_ptr, counts_ptr, tickets_ptr, entries, groups, top_k, ids_wide, phase,
    BLOCK_M: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """A stable sort of `entries` = tokens * top_k expert ids, int32 or (ids_wide) int64, by expert. An id that is none
    of `groups` experts is skipped.

    To rows: which token each sorted position's is, -1 behind the last that is not skipped. To places: which position
    each entry has, -1 where it is skipped. To offs: the end of each expert's positions. To tickets, where that is not
    null: two zeros, for the products behind it (sm90/tickets.py).

    Each program has a run of chunks of BLOCK_M entries. `phase` has bits: 1 counts, 2 places by the counts of all
    programs. One program can do both in one launch; several take a launch for each, in this order and of one size.
    counts_ptr: 2 * num_programs * groups numbers, of any content before the first phase: counts of each program, then
    the next position of each of its experts. All additions that are atomic are of integers, and their results are read
    behind a barrier: nothing depends on who comes first.
    """
    if OVERLAP:
        wait_for_last_kernel()
    own = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0)
    if (tickets_ptr.to(tl.int64) != 0) & (own == 0):
        tl.store(tickets_ptr + tl.arange(0, 2), tl.zeros([2], tl.int32))
    chunks = (tl.cast(entries, tl.int64) + BLOCK_M - 1) // BLOCK_M
    first = chunks * own // programs
    last = chunks * (own + 1) // programs
    if phase & 1:
        row_ptr = counts_ptr + own * groups
        count_entries(ids_ptr, row_ptr, first, last, entries, groups, ids_wide, BLOCK_M)
        tl.debug_barrier()
    if phase & 2:
        next_ptr = counts_ptr + (programs + own) * groups
        placed = find_positions(counts_ptr, next_ptr, offs_ptr, groups)
        tl.debug_barrier()
        place_entries(
            ids_ptr, rows_ptr, places_ptr, next_ptr, first, last, entries, groups, top_k, ids_wide, BLOCK_M
        )  # fmt: skip
        # The rows that nobody's entries are in: as many as were skipped, a part for each program.
        for start in range(placed + own * BLOCK_M, entries, programs * BLOCK_M):
            position = start + tl.arange(0, BLOCK_M)
            tl.store(rows_ptr + position, tl.full([BLOCK_M], -1, tl.int32), mask=position < entries)


@triton.jit
def load_weights(weights_ptr, entry, here, weights_type):
    """Weights of any type as float32, 0 where masked off. No branch, so that loads of many rows can be under way."""
    kind = tl.where(here, weights_type, -1)
    half = tl.load(weights_ptr.to(tl.pointer_type(tl.float16)) + entry, mask=kind == FLOAT16, other=0.0)
    brain = tl.load(weights_ptr.to(tl.pointer_type(tl.bfloat16)) + entry, mask=kind == BFLOAT16, other=0.0)
    full = tl.load(weights_ptr + entry, mask=kind == FLOAT32, other=0.0)
    found = tl.where(kind == FLOAT16, half.to(tl.float32), tl.where(kind == BFLOAT16, brain.to(tl.float32), full))
    return tl.where(kind == 0, 1.0, found)


@triton.jit
def add_rows(
    acc, first, a_ptr, weights_ptr, places_ptr, token, col, M, N, top_k, stored, lda, weights_type, STEP: tl.constexpr
):
    """acc + weight * row for STEP choices from `first` on, one after the other, of all tokens of the tile."""
    # All loads come before the first sum, so that they are under way together.
    places = ()
    weights = ()
    rows = ()
    for i in tl.static_range(STEP):
        here = token < tl.where(first + i < top_k, M, 0)
        place = tl.load(places_ptr + token.to(tl.int64) * top_k + first + i, mask=here, other=-1)
        places += (tl.where(place < stored, place, -1),)
    for i in tl.static_range(STEP):
        here = token < tl.where(first + i < top_k, M, 0)
        found = load_weights(weights_ptr, token.to(tl.int64) * top_k + first + i, here, weights_type)
        weights += (tl.where(places[i] >= 0, found, 0.0),)
    for i in tl.static_range(STEP):
        row = a_ptr + places[i].to(tl.int64)[:, None] * lda
        rows += (tl.load(row + col[None, :], mask=(places[i] >= 0)[:, None] & (col < N)[None, :], other=0.0),)
    for i in tl.static_range(STEP):
        acc += weights[i][:, None] * rows[i].to(tl.float32)
    return acc


@triton.jit
def moe_sum(
    a_ptr, d_ptr, weights_ptr, places_ptr, M, N, top_k, stored, lda, ldd, weights_type,
    ALIGN: tl.constexpr, BLOCK_N: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """D[t] = sum of weights[t, j] * A[places[t, j]] over j from 0 to top_k - 1, in that order and in float32; a place
    that is none of A's `stored` rows adds nothing, whatever its weight, and no row is read. A program for each token
    and BLOCK_N columns, the columns' blocks one after the other. weights_type: 0 none, each is 1; 1 float16, 2
    bfloat16, 3 float32.
    """
    if OVERLAP:
        wait_for_last_kernel()
    lda = lda // ALIGN * ALIGN
    ldd = ldd // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    blocks_n = tl.cdiv(N, BLOCK_N)
    token = tl.program_id(0) // blocks_n + tl.arange(0, 1)
    col = tl.program_id(0) % blocks_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((1, BLOCK_N), dtype=tl.float32)
    for first in range(0, top_k, 8):
        if top_k - first > 4:
            acc = add_rows(
                acc, first, a_ptr, weights_ptr, places_ptr, token, col, M, N, top_k, stored, lda, weights_type, 8
            )
        else:
            acc = add_rows(
                acc, first, a_ptr, weights_ptr, places_ptr, token, col, M, N, top_k, stored, lda, weights_type, 4
            )
    tl.store(
        d_ptr + token.to(tl.int64)[:, None] * ldd + col[None, :], acc.to(d_ptr.dtype.element_ty),
        mask=(token < M)[:, None] & (col < N)[None, :],
    )  # fmt: skip
