"""Sorting a router's choices by expert where they are few: each counts those before it, so that no program waits for
another, nor one step for the last. Portable set.
"""

import triton
import triton.language as tl

from kernels.device.portable.moe import load_experts
from kernels.device.portable.overlap import wait_for_last_kernel

PART = tl.constexpr(32)  # entries, and experts, of a program


@triton.jit
def place_of(expert, entry, experts, groups):
    """The sorted position of each `entry`, which goes to `expert`, among all `experts`: how many of these are lower, or
    the same one and came before. -1 of one that is skipped."""
    every = tl.arange(0, experts.shape[0])
    lower = experts[None, :] < expert[:, None]
    earlier = (experts[None, :] == expert[:, None]) & (every[None, :] < entry[:, None])
    return tl.where(expert < groups, tl.sum((lower | earlier).to(tl.int32), 1), -1)


@triton.jit
def store_ends(offs_ptr, experts, groups):
    """The end of each expert's positions, PART of them a program: how many entries go to it or to a lower one."""
    for first in range(tl.program_id(0) * PART, groups, tl.num_programs(0) * PART):
        group = first + tl.arange(0, PART)
        end = tl.sum((experts[None, :] <= group[:, None]).to(tl.int32), 1)
        tl.store(offs_ptr + group, end, mask=group < groups)


@triton.jit
def moe_route_pairs(
    ids_ptr, rows_ptr, places_ptr, offs_ptr, entries, groups, top_k, ids_wide,
    BLOCK_M: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """What moe_route (moe.py) makes, of at most BLOCK_M entries, in one launch of any number of programs that have PART
    entries each."""
    if OVERLAP:
        wait_for_last_kernel()
    experts = load_experts(ids_ptr, tl.arange(0, BLOCK_M), entries, groups, ids_wide)
    entry = tl.program_id(0) * PART + tl.arange(0, PART)
    place = place_of(load_experts(ids_ptr, entry, entries, groups, ids_wide), entry, experts, groups)
    tl.store(places_ptr + entry, place, mask=entry < entries)
    tl.store(rows_ptr + place, entry // top_k, mask=place >= 0)
    placed = tl.sum((experts < groups).to(tl.int32), 0)
    tl.store(rows_ptr + entry, tl.full([PART], -1, tl.int32), mask=(entry >= placed) & (entry < entries))
    store_ends(offs_ptr, experts, groups)
