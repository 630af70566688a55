"""grouped_mm in C, whatever its ends cut: guard, launch, what is not read, older callers. Refusals: _arguments.

Where a kernel's arguments are looked at, or alignment alone, the GPU is one without rows for whole groups: those are in
test_capi_grouped_fast.py.
"""

import itertools

import pytest
from built import TARGET, needs
from calls import GROUPS, Arguments, Call, K, M, N, at, last_launch, launches, log, ok, refused, values
from libgemm._library import ffi, lib, text
from libgemm.inspect import variants
from stand_in import in_stand_in

ROWS, COLUMNS, INNER, NOTHING = range(4)  # libgemm_ragged
STRIDES = {"batch_stride_a": M * K, "batch_stride_b": K * N, "batch_stride_c": M * N, "batch_stride_d": M * N}
OWN = {ROWS: "b", COLUMNS: "a", INNER: "cd", NOTHING: "abcd"}  # what each group has one of its own of
ODD = 2**40 + 3  # a stride that no group may be reached by


def call(ragged: int, **fields) -> Call:
    """A legal call; operands stand far enough apart for three groups."""
    return Call("grouped_mm", **{"ragged": ragged, "d": at(8), **STRIDES, **fields})


def kernel_values(**fields) -> dict:
    ok(call(**fields).run())
    return values(last_launch())


def is_aligned(layout: str = "nn", **fields) -> bool:
    """Whether the call's choice may rely on alignment; for layouts without such rows, whether it would name them."""
    made = call(**fields, trans_a=int(layout[0] == "t"), trans_b=int(layout[1] == "t"), lda=128, ldb=128)
    return bool(made.variant(80).align16)


def test_the_enum_is_what_the_header_says():
    found = [getattr(lib, f"LIBGEMM_RAGGED_{x}") for x in ("M", "N", "K", "NONE")]
    assert found == [0, 1, 2, 3]


@pytest.mark.parametrize("ragged", range(4))
@in_stand_in(SM=80)
def test_each_group_s_own_operands_alone_have_strides(ragged):
    found = kernel_values(ragged=ragged, beta=1.0, bias=at(4), batch_stride_bias=96)
    assert (found["ragged"], found["zero_tail"], found["groups"]) == (ragged, 0, GROUPS)
    assert (found["M"], found["N"], found["K"]) == (M, N, K)
    for x in "abcd":
        assert found[f"batch_stride_{x}"] == (STRIDES[f"batch_stride_{x}"] if x in OWN[ragged] else 0), x
    assert found["batch_stride_bias"] == 96
    assert found["offs_ptr"] == (0 if ragged == NOTHING else at(5))
    none = kernel_values(ragged=ragged, batch_stride_bias=96)
    assert (none["batch_stride_bias"], none["batch_stride_c"]) == (0, 0)  # neither is there
    for unread in ({"alpha": 0.0}, {"k": 0}):
        found = kernel_values(ragged=ragged, a=0, b=0, **unread)
        assert [found[x] for x in ("K", "lda", "ldb", "batch_stride_a", "batch_stride_b")] == [0] * 5
    one = kernel_values(ragged=ragged, groups=1, **dict.fromkeys(STRIDES, ODD), beta=1.0)
    assert all(one[name] == 0 for name in STRIDES)


@pytest.mark.parametrize("ragged", range(4))
@in_stand_in()
def test_strides_of_packed_operands_are_not_looked_at(ragged):
    odd = {name: ODD for name in STRIDES if name[-1] not in OWN[ragged]}
    ok(call(ragged, **odd, beta=1.0).run())
    assert call(ragged, **odd, beta=1.0).variant(TARGET).name == call(ragged, beta=1.0).variant(TARGET).name


@in_stand_in()
def test_no_ends_are_needed_where_none_are_read():
    for fields in ({"ragged": NOTHING}, {"ragged": ROWS, "shared_b": 1}):
        ok(call(**fields, offs=0).run())
    for ragged in (ROWS, COLUMNS):
        ok(call(ragged, offs=0, a=0, b=0, bias=1, groups=0, zero_tail=1).run())
        found = values(last_launch())
        assert (found["groups"], found["zero_tail"], found["K"], found["offs_ptr"]) == (0, 1, 0, 0)
        assert last_launch()["grid"][0] >= 1
    before = len(launches())
    for ragged, zero_tail in ((ROWS, 0), (COLUMNS, 0), (INNER, 1), (NOTHING, 1)):
        ok(call(ragged, offs=0, groups=0, zero_tail=zero_tail).run())
        assert call(ragged, offs=0, groups=0, zero_tail=zero_tail).explain(TARGET)[1].variant == -1
    assert len(launches()) == before == 4


@in_stand_in()
def test_a_tail_is_zeroed_only_where_d_has_one():
    for ragged in range(4):
        assert kernel_values(ragged=ragged, zero_tail=1)["zero_tail"] == (ragged in (ROWS, COLUMNS))


@pytest.mark.parametrize(("ragged", "zero_tail"), list(itertools.product(range(4), (0, 1))))
@in_stand_in()
def test_blocks_are_as_many_as_there_may_be_tiles(ragged, zero_tail):
    made = call(ragged, zero_tail=zero_tail)
    found = made.variant(TARGET)
    tiles_m, tiles_n = -(-M // found.block_m), -(-N // found.block_n)
    cuts = GROUPS + zero_tail
    most = {
        ROWS: (M // found.block_m + cuts) * tiles_n,
        COLUMNS: tiles_m * (N // found.block_n + cuts),
        INNER: GROUPS * tiles_m * tiles_n,
        NOTHING: GROUPS * tiles_m * tiles_n,
    }
    ok(made.run())
    assert last_launch()["grid"] == [most[ragged], 1, 1]
    huge = {"m": 2**31 - 257, "n": 2**31 - 257, "lda": 2**31, "ldb": 2**31, "ldc": 2**31, "ldd": 2**31}
    ok(call(ragged, **huge, groups=65535, batch_stride_d=2**62, zero_tail=zero_tail).run())
    assert 0 < last_launch()["grid"][0] < 132 * 17


ALIGNED = [  # rows for aligned operands exist for A stored [M][K]
    (ROWS, "nn", True), (ROWS, "nt", True), (NOTHING, "nn", True), (NOTHING, "nt", True),
    (COLUMNS, "nn", False), (COLUMNS, "nt", False), (INNER, "nn", False), (INNER, "nt", False),
    *[(ragged, layout, False) for ragged in (ROWS, COLUMNS) for layout in ("tn", "tt")],
]  # fmt: skip


@pytest.mark.parametrize(("ragged", "layout", "wanted"), ALIGNED)
@in_stand_in(SM=80)
def test_ends_must_not_cut_what_is_contiguous(ragged, layout, wanted):
    assert is_aligned(layout, ragged=ragged) == wanted
    found = next(v for v in variants() if (v.target, v.op, v.a_type, v.d_type) == (80, "grouped_mm", "bf16", "bf16")
                 and v.align16 and "nt"[v.trans_b] == layout[1])  # fmt: skip
    if layout[0] == "n":
        made = call(ragged, trans_b=int(layout[1] == "t"), ldb=128, variant=found.name)
        status = made.run()
        ok(status) if wanted else refused(status, "UNSUPPORTED", found.name, "16-byte aligned")


@needs(80)  # is_aligned asks for its rows
@pytest.mark.parametrize("name", sorted(STRIDES))
@in_stand_in()
def test_strides_of_a_batch_count_for_alignment(name):
    assert is_aligned(ragged=NOTHING, beta=1.0)
    assert not is_aligned(ragged=NOTHING, beta=1.0, **{name: STRIDES[name] + 4})
    assert is_aligned(ragged=NOTHING, **{name: STRIDES[name] + 4}, beta=1.0, groups=1)
    assert is_aligned(ragged=NOTHING, batch_stride_c=ODD)  # beta is 0
    assert is_aligned(ragged=NOTHING, batch_stride_a=ODD, batch_stride_b=ODD, alpha=0.0)


@in_stand_in()
def test_d_matrices_may_interleave():
    ok(call(INNER, batch_stride_d=N, ldd=GROUPS * N).run())
    ok(call(NOTHING, batch_stride_d=-M * N, d=at(9)).run())
    ok(call(INNER, c=at(8), beta=1.0).run())
    ok(call(INNER, groups=1, batch_stride_d=0).run())
    ok(call(ROWS, batch_stride_d=0).run())
    assert len(launches()) == 5


@in_stand_in(SM=80)
def test_a_caller_with_the_header_before_cuts_rows():
    """What stands behind its struct is not read."""
    made = call(INNER, zero_tail=1, batch_stride_d=1)
    made.args.size = ffi.offsetof("libgemm_grouped_mm_args", "batch_stride_a")
    ok(made.run())
    found = values(last_launch())
    assert (found["ragged"], found["zero_tail"], found["batch_stride_d"]) == (ROWS, 0, 0)


@pytest.mark.parametrize("ragged", range(4))
@in_stand_in()
def test_workspace_and_explain_take_every_case(ragged):
    made = call(ragged)
    assert made.workspace() == 0
    status, choice = made.explain(TARGET)
    ok(status)
    assert choice.variant >= 0 and choice.expected_us > 0
    assert text(made.variant(TARGET).op) == "grouped_mm"
    refused(call(ragged, zero_tail=2).explain(TARGET)[0], "INVALID_ARGUMENT", "zero_tail = 2")
    refused(
        lib.libgemm_grouped_mm_workspace(call(ragged, lda=1).args, ffi.new("uint64_t *")), "INVALID_ARGUMENT", "lda"
    )


@needs(90)
@in_stand_in()
def test_a_shared_b_has_the_workspace_of_its_dense_product():
    sizes = {"m": 1, "n": 64, "k": 32768, "lda": 32768, "ldb": 64, "ldd": 64}
    dense = Call("gemm", **sizes).workspace()
    assert dense > 0 and Call("grouped_mm", **sizes, shared_b=1, offs=0).workspace() == dense
    space = {"workspace": at(6), "workspace_bytes": 1 << 16}
    assert Call("grouped_mm", **sizes, shared_b=1, **space).explain(TARGET)[1].variant >= 0


@in_stand_in(NO_DEVICE=1)
def test_an_empty_product_needs_no_driver():
    types = {"a_type": 1, "d_type": 1, "groups": 2}
    for ragged, size in itertools.product(range(4), "mn"):
        ok(Arguments("grouped_mm", ragged=ragged, zero_tail=1, **{"m": 8, "n": 8, "k": 8, size: 0}, **types).run())
    assert log("cuInit") == []


@in_stand_in()
def test_one_b_for_no_groups_is_an_empty_problem_to_every_query():
    """It is served as one dense product, of whose rows there must then be none."""
    none = Call("grouped_mm", shared_b=1, groups=0, m=64, n=64, k=32768)
    status, choice = none.explain(TARGET)
    ok(status)
    assert choice.variant == -1 and "empty problem" in text(choice.reason)
    assert none.workspace() == 0
    ok(none.run())
    assert launches() == []
    assert none.set(groups=1).explain(TARGET)[1].variant >= 0
