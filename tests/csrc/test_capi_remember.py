"""A call like one before it chooses and encodes nothing anew; one that differs gets its own row and tensor maps.

Each body makes its calls in one process, where the library may remember, and looks at what was launched.
"""

import ctypes
import threading

import pytest
from built import TARGET, needs
from calls import Call, allocate, at, count, current, driver, last_launch, launches, ok, refused, values
from libgemm._library import text
from libgemm.inspect import info
from stand_in import in_stand_in
from test_capi_fast import maps
from test_capi_grouped_fast import COLUMNS, INNER, NOTHING, ROWS, M, call

SIZES = {"m": 1000, "n": 776, "k": 520, "lda": 520, "ldb": 776, "ldc": 776, "ldd": 776}
FEW = {"m": 64, "n": 64, "k": 32768, "lda": 32768, "ldb": 32768, "ldc": 64, "ldd": 64, "trans_b": 1}


def big(**fields) -> Call:
    return Call("gemm", **{**SIZES, **fields})


def encoded() -> int:
    return count("cuTensorMapEncodeTiled")


def name_of(call: Call) -> str:
    return text(call.variant().name)


def launched(call: Call) -> dict:
    """What a launch of this call is, without the number that each split launch has of its own."""
    ok(call.run())
    found = last_launch()
    facts = {k: found[k] for k in ("handle", "kernel", "grid", "block", "cluster", "shared", "stream", "device")}
    return facts | {"values": {k: v for k, v in values(found).items() if k != "epoch"}, "maps": maps(found)}


def launched_fresh(call: Call) -> dict:
    """The same by a thread that remembers nothing."""
    found = []
    thread = threading.Thread(target=lambda: found.append(launched(call)))
    thread.start()
    thread.join()
    return found[0]


@needs(90)
@in_stand_in()
def test_an_unchanged_call_encodes_nothing_and_launches_the_same():
    call = big(beta=1.0)
    first, made = launched(call), encoded()
    assert made == 4 == len(first["maps"])
    assert [launched(call) for _ in range(3)] == [first] * 3
    assert encoded() == made


# Each change, made after the plain call was remembered, then taken back.
CHANGES = {
    "pointers": lambda: {"a": at(7), "b": at(8), "d": at(9)},
    "a": lambda: {"a": at(7)},
    "b": lambda: {"b": at(7)},
    "d": lambda: {"d": at(7)},
    "bias": lambda: {"bias": at(4)},
    "lda": lambda: {"lda": 528},
    "ldb": lambda: {"ldb": 784},
    "ldd": lambda: {"ldd": 784},
    "c is read": lambda: {"beta": 0.5},
    "another c is read": lambda: {"beta": 0.5, "c": at(7), "ldc": 784},
    "c in place of d": lambda: {"beta": 1.0, "c": at(3)},
    "alpha": lambda: {"alpha": 2.0},
    "alpha is 0": lambda: {"alpha": 0.0},
    "a off by an element": lambda: {"a": at(0) + 2},
    "d off by an element": lambda: {"d": at(3) + 2},
    "odd lda": lambda: {"lda": 521},
    "odd ldd": lambda: {"ldd": 777},
    "m": lambda: {"m": 999},
    "n": lambda: {"n": 768},
    "k": lambda: {"k": 512},
    "k is 0": lambda: {"k": 0},
    "b by columns": lambda: {"trans_b": 1, "ldb": 776},
    "a by columns": lambda: {"trans_a": 1, "lda": 1000},
    "float32 d": lambda: {"d_type": 3},
    "float16": lambda: {"a_type": 1, "d_type": 1},
    "activation": lambda: {"activation": 1},
    "batch": lambda: {"batch": 2, "batch_stride_d": 1 << 20},
    "pinned": lambda: {"variant": pinned_name()},
    "another gpu": lambda: {x: at(i, 1) for i, x in enumerate("abcd")},
}  # fmt: skip


def pinned_name() -> str:
    """A variant for SIZES that is not the one chosen."""
    return name_of(big(a=at(0) + 2))


@pytest.mark.parametrize("name", CHANGES)
@in_stand_in()
def test_a_changed_call_is_not_taken_for_the_one_before(name):
    changed = big(**CHANGES[name]())
    wanted, plain = launched_fresh(changed), launched_fresh(big())
    assert wanted != plain
    call, back = big(), big()
    assert [launched(x) for x in (call, changed, back, changed, call)] == [plain, wanted, plain, wanted, plain]


# Calls that differ in one field; tests/csrc/c/plans.c makes more than are remembered.
SERIES = {
    "address": lambda i: big(a=at(0) + 16 * i),
    "lda": lambda i: big(lda=520 + 8 * i),
    "rows": lambda i: big(m=8 * i),
    "k": lambda i: big(k=8 * i, lda=1 << 12),
    "split k": lambda i: Call("gemm", **FEW).set(k=128 * i, lda=1 << 15, ldb=1 << 15, **much_memory()),
    "workspace": lambda i: Call("gemm", **FEW).set(workspace=at(6), workspace_bytes=4096 * i),
    "several": lambda i: big(m=8 * i, lda=520 + 8 * (i % 5), a=at(i % 3), d=at(3) + 16 * (i % 7)),
}


def much_memory() -> dict:
    return {"workspace": at(6), "workspace_bytes": 1 << 30}


@pytest.mark.parametrize("name", SERIES)
@in_stand_in()
def test_many_calls_in_turn_each_get_their_own(name):
    calls = [SERIES[name](i) for i in range(1, 160)]
    fresh = [launched_fresh(call) for call in calls]
    for _ in range(2):
        assert [launched(call) for call in calls] == fresh


@needs(90)
@in_stand_in()
def test_hundreds_of_problems_in_turn_encode_nothing_anew():
    calls = [big(m=m, d=at(3) + 4096 * (m % 7)) for m in range(1, 600)]
    first, made = [launched(call) for call in calls], encoded()
    assert [launched(call) for call in calls] == first
    assert encoded() == made > len(calls)


@in_stand_in(SM="90,80")
def test_gpus_of_two_capabilities_get_their_own_rows():
    if 80 not in info()["targets"]:
        pytest.skip("this library has no kernels for sm_80")
    calls = [Call("gemm", gpu=gpu) for gpu in (0, 1)]
    fresh = [launched_fresh(call) for call in calls]
    assert [launched(call) for call in calls * 3] == fresh * 3
    assert fresh[0]["handle"] != fresh[1]["handle"]


@needs(90)
@in_stand_in()
def test_a_workspace_that_shrinks_is_not_written_past_its_end():
    needed = Call("gemm", **FEW).workspace()
    assert needed > 0
    call = Call("gemm", **FEW, workspace=at(6), workspace_bytes=needed)
    split = launched(call)
    assert split["values"]["splits"] >= 2 and split["values"]["semaphores"] == at(6)
    whole = launched(call.set(workspace_bytes=needed - 1))
    assert "semaphores" not in whole["values"] and whole["kernel"] != split["kernel"]
    assert launched(call.set(workspace=0, workspace_bytes=needed)) == whole
    again = launched(call.set(workspace=at(7)))
    assert (again["grid"], again["values"]["semaphores"]) == (split["grid"], at(7))
    assert again["values"]["partials"] - at(7) == split["values"]["partials"] - at(6)


@needs(90)
@in_stand_in()
def test_each_split_launch_has_its_own_number():
    call = Call("gemm", **FEW, workspace=at(6), workspace_bytes=Call("gemm", **FEW).workspace())
    seen = [ok(call.run()) or values(last_launch())["epoch"] for _ in range(4)]
    assert len(set(seen)) == 4


@in_stand_in()
def test_a_variant_is_told_by_its_letters_and_not_by_their_place():
    names = [name_of(big()), pinned_name()]
    assert len(set(names)) == 2
    call = big(variant="-" * 200)
    letters, grids = call.alive[-1], {}
    for name in (*names, *names):
        letters[0 : len(name) + 1] = name.encode() + b"\0"
        grids.setdefault(name, []).append(launched(call))
    assert grids[names[0]][0] == grids[names[0]][1] == launched_fresh(big())
    assert grids[names[1]][0] == grids[names[1]][1] != grids[names[0]][0]
    letters[0:5] = b"none\0"
    refused(call.run(), "UNSUPPORTED", "variant = none")
    assert launched(big()) == grids[names[0]][0]


@in_stand_in()
def test_a_refused_call_is_refused_again_and_spoils_nothing():
    plain = launched(big())
    for changes, name, words in (
        ({"a": 4096}, "INVALID_ARGUMENT", "a = 0x1000 is host memory"),
        ({"b": at(1, 1)}, "INVALID_ARGUMENT", "b is memory of GPU 1"),
        ({"d": 0}, "INVALID_ARGUMENT", "d is NULL"),
        ({"lda": 519}, "INVALID_ARGUMENT", "lda = 519"),
        ({"workspace": at(6) + 4, "workspace_bytes": 64}, "INVALID_ARGUMENT", "multiple of 16"),
        ({"variant": "none"}, "UNSUPPORTED", "variant = none"),
    ):
        for _ in range(2):
            refused(big(**changes).run(), name, words)
        assert launched(big()) == plain


@in_stand_in()
def test_memory_freed_after_it_was_used_is_refused():
    freed = allocate(1 << 20)
    call = big(a=freed)
    ok(call.run())
    with current(0):
        assert driver().cuMemFree_v2(ctypes.c_uint64(freed)) == 0
    refused(call.run(), "INVALID_ARGUMENT", "a = ", "host memory (or freed)")


@in_stand_in()
def test_threads_remember_apart():
    calls = [big(), big(lda=528, a=at(7)), Call("gemm", **FEW), big(trans_b=1, ldb=776)]
    wanted = [launched_fresh(call) for call in calls]
    before, found = encoded(), {}

    def work(number: int):
        order = [(number + i) % len(calls) for i in range(40)]
        found[number] = [(i, calls[i].run()) for i in order]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for done in found.values() for _, status in done} == {0}
    assert encoded() - before == 4 * len({data for w in wanted for _, data in w["maps"].values()})
    grids = sorted(launch["grid"][0] for launch in launches()[-160:])
    assert grids == sorted(w["grid"][0] for w in wanted for _ in range(40))


@in_stand_in()
def test_a_remembered_choice_of_packed_groups_is_launched_on_what_this_call_needs():
    """Groups of one size on average are one problem to the choice; how many tiles and where they are is not."""
    for n in (40, 37, 120, 117):  # 4 groups of 10 columns, and of 30, as far as the host can know
        made = call(COLUMNS, n=n, groups=4)
        ok(made.run())
        row = made.variant(TARGET)
        assert last_launch()["grid"][0] == -(-M // row.block_m) * (n // row.block_n + 4)
        assert values(last_launch())["N"] == n
    made = [
        call(ROWS),
        call(ROWS, m=M - 1),
        call(ROWS, zero_tail=1),
        call(INNER, "tn"),
        call(NOTHING, "tn"),
        call(INNER),
    ]
    for one in made:
        ok(one.run())
    first = launches()[-len(made) :]
    for one, launch in [*zip(made, first, strict=True)][::-1]:
        ok(one.run())
        assert {x: last_launch()[x] for x in ("kernel", "grid", "cluster")} == {
            x: launch[x] for x in ("kernel", "grid", "cluster")
        }
        assert values(last_launch()) == values(launch)


@needs(90)
@in_stand_in()
def test_a_map_that_gives_way_during_its_own_call_is_launched_as_it_was():
    """A's and B's maps are the oldest when one of D's, each of another matrix, takes the place of either."""
    kept = 4096  # KEPT of launch/plan_cache.c
    ok(big(d=at(3)).run())
    wanted = {name: found for name, found in maps(last_launch()).items() if name in "ab"}
    for i in range(1, kept + 8):
        ok(big(d=at(3) + 16 * i).run())
        if i > kept - 8:
            found = maps(last_launch())
            assert {name: found[name] for name in "ab"} == wanted
            assert found["d"][0] == at(3) + 16 * i
    assert encoded() > kept + 8  # A's and B's too, once more
