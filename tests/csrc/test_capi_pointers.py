"""grouped_gemm in C: which groups must be aligned for the row that asks it, and who says so of device tables."""

import pytest
from built import TARGET, needs
from calls import GROUPS, Call, K, M, N, at, launches, ok, refused, values, write
from libgemm._library import ffi, lib, text
from libgemm.inspect import variants
from stand_in import in_stand_in

from build.package import header_constant

LDS = {"lda": 104, "ldb": 104, "ldc": 104, "ldd": 104}
PLACES = {x: i for i, x in enumerate(("a", "b", "c", "d", "bias"))}
ODD = {"a": 2, "b": 2, "d": 8, "lda": 100, "ldb": 108, "ldd": 100, "n": 76, "k": 60}  # of a pointer, bytes it is moved
NOTHING = {"a": 2, "b": 2, "lda": 99, "ldb": 97}  # matter only where there is a product


def made(layout: str = "nn", group: int = 1, odd: dict | None = None, **fields) -> Call:
    """Host tables of aligned groups, but for what is odd in one of them: sizes, and how far pointers are moved."""
    tables = {**LDS, "m": M, "n": N, "k": K, **{x: at(place) for x, place in PLACES.items()}}
    tables = {name: [value] * GROUPS for name, value in tables.items()}
    for name, value in (odd or {}).items():
        tables[name][group] = at(PLACES[name]) + value if name in PLACES else value
    return Call("grouped_gemm", trans_a=int(layout[0] == "t"), trans_b=int(layout[1] == "t"), **{**tables, **fields})


def aligned_row(layout: str = "nn") -> str:
    own = [v for v in variants() if (v.target, v.op, v.a_type, v.d_type) == (TARGET, "grouped_gemm", "bf16", "bf16")]
    return next(v.name for v in own if v.align16 and "nt"[v.trans_a] + "nt"[v.trans_b] == layout)  # of small groups


def is_aligned(call: Call) -> bool:
    """Whether explain and the call itself take the row for aligned groups; they must agree."""
    chosen = call.variant(TARGET)
    before = len(launches())
    ok(call.run())
    assert len(launches()) == before + 1
    assert launches()[-1]["block"][0] == 32 * chosen.warps
    return bool(chosen.align16)


@needs(90)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@in_stand_in()
def test_host_tables_of_aligned_groups_take_the_row_for_them(layout):
    assert is_aligned(made(layout)) and text(made(layout).variant(TARGET).name) == aligned_row(layout)
    assert is_aligned(made(layout, beta=1.0)) and is_aligned(made(layout, d_type=lib.LIBGEMM_F32))
    assert not is_aligned(made(layout, activation=1))  # the row applies none


@needs(90)
@pytest.mark.parametrize("name", [*ODD, "c", "ldc"])
@in_stand_in()
def test_one_group_that_is_not_aligned_sends_all_to_the_general_row(name):
    odd = {name: {**ODD, "c": 2, "ldc": 100}[name]}
    for layout in ("nn", "tt"):
        for group in range(GROUPS):
            assert not is_aligned(made(layout, group, odd, beta=1.0))
            refused(made(layout, group, odd, beta=1.0, variant=aligned_row(layout)).run(), "UNSUPPORTED",
                    aligned_row(layout), "16-byte aligned", "every group", "aligned = 1")  # fmt: skip
            assert not is_aligned(made(layout, group, odd, beta=1.0, aligned=1))  # the library sees for itself


@needs(90)
@in_stand_in()
def test_rows_of_a_count_where_they_are_contiguous():
    assert is_aligned(made("nn", odd={"m": 91})) and not is_aligned(made("tn", odd={"m": 92}))


@needs(90)
@in_stand_in()
def test_a_float32_output_is_judged_by_the_inputs_elements():
    wide = {"d_type": lib.LIBGEMM_F32, "beta": 1.0}
    assert is_aligned(made(**wide))
    for odd in ({"ldd": 108}, {"ldc": 108}, {"n": 76}, {"d": 8}):  # 108 float32 are whole pieces of 16 bytes
        assert not is_aligned(made(**wide, odd=odd)), odd


@needs(90)
@in_stand_in()
def test_what_is_not_read_or_written_need_not_be_aligned():
    for empty in ({"m": 0}, {"n": 0}):
        assert is_aligned(made("tn", odd={**ODD, "c": 2, "ldc": 101, "m": 91, **empty}, beta=1.0))
    assert is_aligned(made(odd={"c": 2, "ldc": 101})) and is_aligned(made(bias=[at(4) + 2] * GROUPS))
    assert is_aligned(made("tn", odd={**NOTHING, "m": 91, "k": 0}))
    assert is_aligned(made("tn", odd={**NOTHING, "m": 91, "k": 61}, alpha=0.0))


@needs(90)
@pytest.mark.parametrize("fields", [{"alpha": 0.0}, {"k": 0}], ids=str)
@in_stand_in()
def test_groups_without_a_product_still_write_d(fields):
    """beta * C + bias goes to D there, by the same row."""
    more, odd = ({}, fields) if "k" in fields else (fields, {})
    for bad in ({"d": 8}, {"n": 76}, {"ldd": 100}, {"c": 2}, {"ldc": 100}):
        assert not is_aligned(made(odd={**odd, **bad}, beta=1.0, **more)), bad
    assert is_aligned(made(odd=odd, beta=1.0, **more))


@needs(90)
@in_stand_in()
def test_for_device_tables_it_is_the_caller_s_word():
    call = made(bias=0).device_tables()
    assert not is_aligned(call)
    refused(call.set(variant=aligned_row()).run(), "UNSUPPORTED", aligned_row(), "device tables: aligned = 1")
    reason = text(call.set(variant=0).explain(TARGET)[1].reason)
    assert "; " in reason and "aligned = 1" in reason
    assert is_aligned(call.set(aligned=1)) and is_aligned(call.set(variant=aligned_row()))
    found = values(launches()[-1])
    assert (found["a_ptrs"], found["group_ldd"]) == (at(7), at(7) + 256 * 10)  # as they are, not looked at
    unseen = made(bias=0, odd={"a": 2, "n": 77}).device_tables().set(aligned=1)
    assert is_aligned(unseen)
    assert not is_aligned(made(bias=0).device_tables().set(aligned=1, activation=2))


@in_stand_in()
def test_float32_groups_may_be_called_aligned_too():
    word = made(bias=0, a_type=3, d_type=3, precision=1).device_tables().set(aligned=1)
    assert not is_aligned(word)  # there is no such row for them


@needs(90)
@in_stand_in()
def test_a_caller_with_the_older_struct_says_nothing():
    """What stands behind its struct is not read."""
    call = made(bias=0).device_tables().set(aligned=1)
    call.args.size = ffi.offsetof("libgemm_grouped_gemm_args", "aligned")
    call.set(expected_m=-1)
    assert not is_aligned(call) and call.workspace() == 0
    host = made(aligned=-7)
    host.args.size = call.args.size
    assert is_aligned(host) and host.workspace() == GROUPS * 96


def tile(call: Call) -> tuple[int, int]:
    """Of what runs, on which explain and the call must agree."""
    chosen = call.variant(TARGET)
    assert is_aligned(call) and chosen.align16 and launches()[-1]["shared"] == chosen.shared_bytes
    return chosen.block_m, chosen.block_n


SMALL, LARGE = (64, 128), ((128, 128), (64, 256))
MAX_SIZE = int(header_constant("LIBGEMM_MAX_SIZE"))
ROOM = {"workspace_bytes": 1 << 17}
MULTIPROCESSORS = 132


def sized(m: int, n: int, k: int, **fields) -> Call:
    """Host tables of groups of one size, or with a list of sizes of m."""
    sizes = {name: x if isinstance(x, list) else [x] * GROUPS for name, x in (("m", m), ("n", n), ("k", k))}
    return made(bias=0, **{name: [4096] * GROUPS for name in ("lda", "ldb", "ldd")}, **sizes, **fields)


@needs(90)
@in_stand_in()
def test_large_groups_take_a_large_tile_where_the_host_knows_their_sizes():
    assert tile(sized(4096, 2048, 1024, **ROOM)) in LARGE
    tiny = {f"expected_{x}": 1 for x in "mnk"}
    assert tile(sized(4096, 2048, 1024, **ROOM, **tiny)) in LARGE  # it sees for itself
    assert tile(sized([0] * (GROUPS - 1) + [4096], 2048, 1024, **ROOM)) in LARGE  # the empty say nothing of the others
    assert tile(sized(64, 128, 1024, **ROOM)) == tile(made(bias=0, **ROOM)) == SMALL


@needs(90)
@in_stand_in()
def test_of_device_tables_the_caller_says_what_to_expect():
    def call(**expected) -> Call:
        words = {f"expected_{x}": v for x, v in expected.items()}
        return made(bias=0, **ROOM).device_tables().set(aligned=1, **words)

    assert tile(call()) == SMALL and tile(call(m=4096, n=2048, k=1024)) in LARGE
    assert tile(call(m=16, n=256, k=1024)) == SMALL
    assert tile(call(m=4096, n=2048)) == SMALL  # without k nothing is known
    for name in "mnk":
        for value in (-1, MAX_SIZE + 1):
            wrong = call(**{name: value})
            for status in (wrong.run(), wrong.explain(TARGET)[0]):
                refused(status, "INVALID_ARGUMENT", f"expected_{name} = {value}", str(MAX_SIZE))
    slow, fast = call().explain(TARGET)[1], call(m=4096, n=2048, k=1024).explain(TARGET)[1]
    assert fast.expected_us > 10 * slow.expected_us and not fast.covered


@needs(90)
@in_stand_in()
def test_blocks_of_a_large_tile_share_the_workspace_behind_the_tables():
    for place, tables in ((at(9), 96 * GROUPS), (at(9) + 16, 0)):
        call = sized(4096, 2048, 1024)
        if not tables:
            call.device_tables().set(aligned=1, expected_m=4096, expected_n=2048, expected_k=1024)
        needed = call.workspace()
        assert (needed - tables - 128) % MULTIPROCESSORS == 0 and needed > tables + 128
        assert tile(call.set(workspace=place, workspace_bytes=needed)) in LARGE
        start = place + tables
        assert values(launches()[-1])["scratch"] == -(-start // 128) * 128
        assert launches()[-1]["grid"] == [MULTIPROCESSORS, 1, 1]
        assert tile(call.set(workspace_bytes=needed - 1)) == SMALL and values(launches()[-1])["scratch"] == 0
        assert "us with the workspace of libgemm_grouped_gemm_workspace" in text(call.explain(TARGET)[1].reason)
        name = text(call.set(workspace_bytes=needed).variant(TARGET).name)
        call.set(variant=name, workspace_bytes=needed - 1)
        refused(call.run(), "UNSUPPORTED", name, "the workspace of libgemm_grouped_gemm_workspace")
        assert call.workspace() == needed
    refused(call.set(workspace=4096, variant=0).run(), "INVALID_ARGUMENT", "workspace", "host memory")
    refused(call.set(workspace=at(9) + 8).run(), "INVALID_ARGUMENT", "workspace", "multiple of 16")


@in_stand_in()
def test_groups_that_are_not_aligned_ask_for_no_more_than_their_tables():
    assert made(odd={"a": 2}).workspace() == 96 * GROUPS
    assert sized(4096, 2048, 1024).set(ldb=[4096, 4097, 4096]).workspace() == 96 * GROUPS
    assert sized(4096, 2048, 1024, activation=1).workspace() == 96 * GROUPS


@needs(90)
@in_stand_in()
def test_no_descriptor_is_made_of_rows_a_tebibyte_apart():
    far = sized(4096, 2048, 1024).set(lda=[4096, 1 << 39, 4096])
    assert far.workspace() == 96 * GROUPS and tile(far.set(**ROOM)) == SMALL
    near = sized(4096, 2048, 1024).set(lda=[4096, (1 << 39) - 8, 4096])
    assert near.workspace() > 96 * GROUPS and tile(near.set(**ROOM)) in LARGE
    unread = sized([4096, 0, 4096], 2048, 1024).set(lda=[4096, 1 << 39, 4096])
    assert tile(unread.set(**ROOM)) in LARGE


@in_stand_in(SM="80,90")
def test_the_workspace_is_that_of_the_gpu_that_runs_the_call():
    """The current GPU is another, which has no large tile."""
    sizes = {"m": 4096, "n": 2048, "k": 1024, "lda": 4096, "ldb": 4096, "ldd": 4096}
    needed = [Call("grouped_gemm", gpu, **{x: [v] * GROUPS for x, v in sizes.items()}).workspace() for gpu in (0, 1)]
    assert needed[0] == 96 * GROUPS and (needed[1] - 96 * GROUPS - 128) % MULTIPROCESSORS == 0 < needed[1] - needed[0]


@in_stand_in()
def test_explain_refuses_host_tables_as_the_call_does():
    for fields, part in (({"m": -1}, "m[1] = -1"), ({"ldd": N - 1}, f"ldd[1] = {N - 1}")):
        refused(made(odd=fields).run(), "INVALID_ARGUMENT", part)
        refused(made(odd=fields).explain(TARGET)[0], "INVALID_ARGUMENT", part)


@in_stand_in()
def test_a_table_that_is_not_read_is_not_copied():
    place = write(at(6), "q", [-1] * GROUPS * 12)
    ok(made(bias=0, workspace=place).run())
    found = values(launches()[0])
    assert (found["c_ptrs"], found["group_ldc"], found["bias_ptrs"]) == (0, 0, 0)
    copied = list(ffi.cast("int64_t *", place)[0 : GROUPS * 3])
    assert copied == [at(0)] * GROUPS + [at(1)] * GROUPS + [0] * GROUPS
