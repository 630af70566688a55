"""Rows that take tiles by a counter ask for the next one in memory; their twins without do not. No kernel runs here."""

import dataclasses
import re

import pytest

from aot.compile import run_triton
from aot.toolchain import offline
from kernels.table.variants import variants

ASKED = re.compile(r"atom\.relaxed\.gpu\.global\.inc\.u32 %r\d+, \[%rd\d+\], 0x7fffffff;")


def ptx_of(variant) -> str:
    with offline(variant) as (target, record, cache):
        *_, ptx = run_triton(variant, target, record, cache, False)
    return ptx


@pytest.mark.parametrize(
    ("kernel", "waits"),
    [("moe_mm_swap", "st.shared.b32 [to],"), ("moe_mm_coop_swap", "st.shared.b32 [to],"),
     ("grouped_mm_swap", "shfl.sync.idx.b32"), ("grouped_mm_coop_swap", "shfl.sync.idx.b32")],
)  # fmt: skip
def test_a_counting_row_asks_for_tiles_and_tells_all_that_load(kernel, waits):
    rows = {v.name: v for v in variants((90,)) if v.family.own_name == kernel and v.problem.a == "bf16"}
    counting = next(v for v in rows.values() if "counted" in v.guard)
    twin = dataclasses.replace(counting, guard=tuple(g for g in counting.guard if g != "counted"))
    assert twin.name in rows and twin.fit_name == counting.fit_name
    found, without = ptx_of(counting), ptx_of(twin)
    assert len(ASKED.findall(found)) == 1
    assert not ASKED.search(without)
    assert found.count(waits) > without.count(waits)
