"""What the blocks of a cluster say to TMA and to each other, read from the assembly. No GPU, no numerics."""

import itertools
import operator
import re

import pytest

from kernels.device.sm90.loader_assembly import (
    barrier_told,
    init_assembly,
    load_assembly,
    prefetch_assembly,
    shares_k,
)
from kernels.table.boxes import box_of, whole_rows
from kernels.table.boxes import shares_k as table_shares_k

LINE = 128


def described(rows: int, turned: bool, sharers: int) -> tuple:
    """As loader.facts_of has them."""
    whole = whole_rows(rows, turned, sharers)
    return "map", whole, 1, turned, box_of(rows) if turned else 0, sharers, 1, 0, 1


def boxes(assembly: str) -> list[tuple[int, int, int]]:
    """(bytes into what this block's copies begin at, row, step in K) of the boxes of both operands, left ones first."""
    found = re.findall(r"add\.u32 to, own, (\d+);\s*add\.s32 at, \$\d+, (\d+);\s*add\.s32 k, \$\d+, (\d+);", assembly)
    return [tuple(map(int, one)) for one in found]


@pytest.mark.parametrize("rows", [16, 32, 64, 96, 128, 160, 192, 256])
@pytest.mark.parametrize("sharers", [1, 2, 4, 8])
def test_sharers_of_a_turned_operand_bring_each_byte_of_a_stage_once(rows, sharers):
    left = described(64, False, 1)
    right = described(rows, True, sharers)
    _, whole, _, _, box, *_ = right
    by_k = table_shares_k(rows, sharers)
    assert shares_k(whole, True, box, sharers) == by_k
    own = boxes(load_assembly(left, right, 2, 64, sharers > 1, 32))[1:]
    come = []
    for rank in range(sharers):
        row, line = (0, rank * 64 // sharers) if by_k else (rank * whole // sharers, 0)  # as loader.own_share has it
        for to, at, k in own:
            begin = to + row * LINE + line * box * 2
            come.append((begin, begin + box * 2 * (64 // sharers if by_k else 64)))
            # Boxes stand one after the other, each with a line of its rows for each step in K.
            assert divmod(begin, box * 2 * 64) == ((row + at) // box, (line + k) * box * 2)
    come.sort()
    assert come[0][0] == 0 and come[-1][1] == whole * LINE
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(come))


@pytest.mark.parametrize("sharers", [1, 2])
@pytest.mark.parametrize("kept", [False, True])
def test_each_copy_says_how_long_l2_keeps_its_own_operand_or_none_does(sharers, kept):
    """The left operand's word is input 13, the right one's 14, behind the mask of the blocks that share a copy."""
    assembly = load_assembly(described(128, False, 1), described(64, True, sharers), 2, 64, sharers > 1, 32, kept=kept)
    copies = re.findall(r"cp\.async\.bulk\.tensor\.\S+ [^;]*;", assembly)
    left, right = (" [to], [map, {k, at}], ", " [to], [map, {at, k}], ")
    assert [left in copy for copy in copies] == [True] + [False] * (len(copies) - 1)
    for copy in copies:
        assert (".L2::cache_hint [to]" in copy) == kept
        shared = ", mask" if sharers > 1 and right in copy else ""
        word = f", ${13 if left in copy else 14}" if kept else ""
        assert copy.endswith(f"]{shared}{word};")


WORDS = {"shr": operator.rshift, "xor": operator.xor, "and": operator.and_, "lt": operator.lt, "eq": operator.eq}


def told(assembly: str, rank: int, thread: int) -> int | None:
    """The block that a thread of block `rank` tells, by the assembly's own steps."""
    registers: dict[str, int] = {"%laneid": thread % 32, "%cluster_ctarank": rank, "$2": thread}

    def value(name: str) -> int:
        return registers[name] if name in registers else int(name) & 0xFFFFFFFF

    for statement in filter(None, map(str.strip, re.split(r"[;\n]", assembly.strip("{} ")))):
        if statement.startswith(".reg"):
            continue
        guard = None
        if statement.startswith("@"):
            guard, statement = statement[1:].split(" ", 1)
        operation, _, rest = statement.partition(" ")
        to, *given = [word.strip() for word in rest.split(",")]
        if guard is not None and not registers[guard]:
            continue
        if operation.startswith("mapa"):
            assert given == ["$1", "lane"]
            registers[to] = registers["lane"] + 1
            continue
        word, *how = operation.split(".")
        a, *more = map(value, given)
        if word in ("setp", "and") and to in ("told", "same"):  # of predicates
            found = WORDS[how[0]](a, more[0]) if word == "setp" else a & more[0]
            if len(how) == 3:  # and how it goes together with another
                found = found and more[1] if how[1] == "and" else found or more[1]
            registers[to] = int(bool(found))
        else:
            registers[to] = a if word == "mov" else WORDS[word](a, more[0])
    return registers["$0"] - 1 if registers["$0"] else None


@pytest.mark.parametrize(("blocks", "across"), [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 2), (8, 4)])
def test_a_warpgroup_tells_each_block_that_loads_for_it_once_and_no_other(blocks, across):
    """Block x stands in row x % below and column x // below; its row shares the left operand, its column the right."""
    below = blocks // across
    for rank in range(blocks):
        heard = [told(barrier_told(blocks, across), rank, thread) for thread in range(128)]
        loads = {x for x in range(blocks) if x % below == rank % below or x // below == rank // below}
        assert sorted(block for block in heard if block is not None) == sorted(loads)
        assert len(loads) == below + across - 1  # as many arrivals a stage's barrier waits for


def test_one_thread_of_the_first_warp_makes_each_barrier_once():
    assembly = init_assembly(5, 3)
    made = re.findall(r"@(\w+) mbarrier\.init\.shared::cta\.b64 \[\$0\+(\d+)\], (\d+);", assembly)
    assert made == [("first", str(8 * i), "3") for i in range(5)]
    assert assembly.count("mbarrier") == 5
    assert re.search(r"mbarrier[^;]*;\s*bar\.warp\.sync 0xffffffff; }$", assembly)  # for the warp's other threads
    assert re.search(r"elect\.sync _\|first, 0xffffffff;\s*setp\.lt\.and\.u32 first, \$1, 32, first;", assembly)


def test_tensor_maps_are_asked_for_by_the_names_of_their_parameters():
    assembly = prefetch_assembly("kernel", (0, 5))
    asked = re.findall(r"mov\.b64 map, (\w+);\s*cvta\.param\.u64 map, map;\s*@first prefetch\.tensormap", assembly)
    assert asked == ["kernel_param_0", "kernel_param_5"]
