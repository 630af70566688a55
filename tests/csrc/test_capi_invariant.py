"""batch_invariant: only rows that add the products of K in one order run. On the stand-in; proves no bits."""

import itertools

import libgemm
import pytest
from built import TARGET, needs
from calls import Call, at, last_launch, launches, ok, refused, values
from libgemm._library import ffi, text
from libgemm.inspect import variants
from stand_in import in_stand_in

SHAPES = [(1, 4096, 4096), (8, 256, 8192), (16, 1280, 8192), (64, 64, 32768), (128, 576, 7168), (2048, 2048, 2048)]
SHARED = ("_cluster_descriptor", "_workspace")


def call_of(shape, trans_a=0, trans_b=1, **fields) -> Call:
    m, n, k = shape
    lds = {"lda": m if trans_a else k, "ldb": k if trans_b else n, "ldc": n, "ldd": n}
    lds = {name: -(-ld // 8) * 8 for name, ld in lds.items()}
    space = {"workspace": at(6), "workspace_bytes": 1 << 40}
    return Call("gemm", m=m, n=n, k=k, trans_a=trans_a, trans_b=trans_b, **{**lds, **space, **fields})


def splits() -> int:
    """Blocks that shared K of a tile in the last launch."""
    return values(last_launch()).get("splits", 1)


def is_shared(name: str) -> bool:
    return any(word in name for word in SHARED)


@needs(90)
@in_stand_in()
def test_no_row_that_shares_k_is_chosen():
    freely = []
    for shape, trans_a, trans_b in itertools.product(SHAPES, (0, 1), (0, 1)):
        for a_type, d_type in ((1, 1), (2, 2), (2, 3)):
            call = call_of(shape, trans_a, trans_b, a_type=a_type, d_type=d_type)
            freely.append(text(call.variant(TARGET).name))
            call.set(batch_invariant=1)
            name = text(call.variant(TARGET).name)
            assert not is_shared(name) and text(call.variant().name) == name
            m, _, k = shape
            copy = 2 * m * -(-k // 64) * 64 if trans_a and m <= 128 else 0  # few rows may be copied: adds nothing up
            assert call.workspace() in (0, copy)
            ok(call.run())
            assert splits() == 1, name
    assert {word for word in SHARED for name in freely if word in name} == set(SHARED)  # else nothing was shown


@needs(90)
@in_stand_in()
def test_float32_takes_the_row_for_any_memory():
    for shape, trans_b, precision in itertools.product(SHAPES, (0, 1), (1, 2, 3)):
        call = call_of(shape, 0, trans_b, a_type=3, d_type=3, precision=precision, batch_invariant=1)
        v = call.variant(TARGET)
        assert not (v.align16 or v.linear or v.single), text(v.name)
        ok(call.run())
        assert last_launch()["kernel"] == "gemm"
    assert len(launches()) == len(SHAPES) * 6
    assert call_of(SHAPES[-1], a_type=3, d_type=3, precision=1).variant(TARGET).single


@needs(90)
@in_stand_in()
def test_rows_that_share_k_are_refused_by_name():
    own = [v for v in variants() if (v.target, v.op, v.a_type, v.d_type) == (TARGET, "gemm", "bf16", "bf16")]
    own = [v for v in own if v.trans_b and not v.trans_a]
    kinds = set()
    for v in own:
        shape = (504, 504, 32768) if "_stream" in v.name else (64, 64, 32768)
        free, bound = (call_of(shape, variant=v.name, batch_invariant=wanted) for wanted in (0, 1))
        ok(free.run())
        if is_shared(v.name):
            words = ("needs batch_invariant = 0", "adds the products of K in another order")
            refused(bound.run(), "UNSUPPORTED", v.name, *words)
            refused(bound.explain(TARGET)[0], "UNSUPPORTED", v.name, *words)
        else:
            ok(bound.run())
        kinds.add(is_shared(v.name))
    assert kinds == {False, True}
    single = next(v for v in variants() if (v.target, v.a_type, v.precision) == (TARGET, "f32", "tf32") and v.single)
    fields = {"a_type": 3, "d_type": 3, "precision": 1, "trans_b": int(single.trans_b)}
    refused(call_of((2048, 2048, 2048), variant=single.name, batch_invariant=1, **fields).run(), "UNSUPPORTED", "order")


def groups_of(ragged: int, m: int, n: int, k: int, **fields) -> Call:
    """Packed groups, four of them, that cut K of [K][M] and [K][N] (2), or rows (0)."""
    lds = {"lda": m, "ldb": n} if ragged == 2 else {"lda": k, "ldb": n}
    strides = {"batch_stride_b": 0 if ragged == 2 else k * n, "batch_stride_d": m * n}
    made = {"trans_a": int(ragged == 2), "trans_b": 0, "groups": 4, "ldd": n, **lds, **strides, **fields}
    return Call("grouped_mm", ragged=ragged, m=m, n=n, k=k, **made)


@needs(90)
@in_stand_in()
def test_of_groups_no_row_that_shares_k_is_chosen():
    long_k = 64, 64, 65536
    free, bound = (groups_of(2, *long_k, batch_invariant=wanted) for wanted in (0, 1))
    assert is_shared(text(free.variant(TARGET).name)) and not is_shared(text(bound.variant(TARGET).name))
    for call, shares in ((free, True), (bound, False), (free, True)):  # and none is taken for the other
        ok(call.run())
        assert (splits() > 1) == shares
    pinned = groups_of(2, *long_k, batch_invariant=1, variant=text(free.variant(TARGET).name))
    refused(pinned.run(), "UNSUPPORTED", "needs batch_invariant = 0", "adds the products of K in another order")
    rows = [groups_of(0, 4096, 512, 512, batch_invariant=wanted) for wanted in (0, 1)]
    assert len({text(call.variant(TARGET).name) for call in rows}) == 1  # which add alike anyway
    shared = groups_of(0, 8, 256, 8192, trans_b=1, ldb=8192, shared_b=1, batch_invariant=1)  # one dense product
    assert not is_shared(text(shared.variant(TARGET).name))


@needs(90)
def test_explain_says_it_of_groups_too():
    words = {"ragged": "k", "layout": "tn", "target": TARGET}
    free, bound = (libgemm.explain_grouped_mm(64, 64, 65536, 4, batch_invariant=x, **words) for x in (False, True))
    assert is_shared(free.variant.name) and not is_shared(bound.variant.name)


@pytest.mark.parametrize("value", [-1, 2, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("op", ["gemm", "grouped_mm"])
@in_stand_in()
def test_other_values_are_refused(op, value):
    words = ("INVALID_ARGUMENT", f"batch_invariant = {value}: allowed is 0 to 1")
    refused(Call(op, batch_invariant=value).run(), *words)
    refused(Call(op, batch_invariant=value).explain(TARGET)[0], *words)
    assert launches() == []


@needs(90)
@in_stand_in()
def test_a_caller_with_the_older_struct_does_not_ask_for_it():
    call = call_of((8, 256, 8192), batch_invariant=1)
    assert not is_shared(text(call.variant().name))
    call.args.size = ffi.offsetof("libgemm_gemm_args", "batch_invariant")
    assert is_shared(text(call.variant().name))
    ok(call.run())
    assert splits() > 1


@needs(90)
@in_stand_in()
def test_a_remembered_call_is_not_taken_for_the_other_kind():
    free, bound = (call_of((8, 256, 8192), batch_invariant=wanted) for wanted in (0, 1))
    seen = [ok(call.run()) or splits() > 1 for call in (free, bound, free, bound, bound, free)]
    assert seen == [True, False, True, False, False, True]


@needs(90)
def test_the_package_explains_it():
    for shape in SHAPES:
        for aligned in (True, False):
            choice = libgemm.explain(*shape, target=TARGET, batch_invariant=True, aligned=aligned)
            variant, reason = choice.variant, choice.reason
            assert not is_shared(variant.name) and "batch_invariant" not in reason
    assert is_shared(libgemm.explain(8, 256, 8192, target=TARGET).variant.name)
    options = {"dtype": "f32", "precision": "tf32", "target": TARGET}
    assert libgemm.covers(4096, 4096, 4096, **options)
    assert not libgemm.covers(4096, 4096, 4096, **options, batch_invariant=True)
