"""Which operands must be aligned for the variants that ask it, and which need not be: `align16`, field by field.

For packed groups there are such variants where there are no faster ones (test_capi_grouped_fast.py): not on sm_90.
"""

import pytest
from built import TARGET, needs
from calls import Call, K, M, N, at, launches, ok, refused
from libgemm._library import text
from libgemm.inspect import variants
from stand_in import in_stand_in

GPUS = {"gemm": (0, 90), "grouped_mm": (1, 80)}  # operation -> which of the stand-in's GPUs, and its target
SM = "90,80"
BATCH = {"batch": 2, **{f"batch_stride_{x}": 10240 for x in "abcd"}}
BOTH = {  # misaligned for a variant of either layout
    **{x: {x: at_odd} for x, at_odd in (("a", 0), ("b", 1), ("d", 3))},
    **{f: {f: value} for f, value in (("lda", 100), ("ldb", 100), ("ldd", 100), ("n", 76), ("k", 60))},
    "c": {"c": 2, "beta": 1.0},
    "ldc": {"ldc": 100, "beta": 1.0},
}
REFUSED = [
    *[("gemm", layout, fields) for layout in ("nn", "tn") for fields in BOTH.values()],
    *[("gemm", "nn", {**BATCH, f"batch_stride_{x}": 10244, "beta": 1.0}) for x in "abcd"],
    ("gemm", "tn", {"m": 92}),
    ("gemm", "tn", {"m": 92, "alpha": 0.0}),
    ("gemm", "tn", {"m": 92, "k": 0}),
    *[("grouped_mm", "nn", fields) for fields in BOTH.values()],
    ("grouped_mm", "nn", {"batch_stride_b": K * N + 4}),
]
TAKEN = [
    ("gemm", "nn", {"m": 92}),
    ("gemm", "nn", {"c": 2, "ldc": 100}),
    *[("gemm", "nn", {**none, "a": 0, "b": 1, "lda": 100, "ldb": 100}) for none in ({"alpha": 0.0}, {"k": 0})],
    ("gemm", "nn", {**BATCH, "batch": 1, "batch_stride_a": 10241, "batch_stride_d": 3}),
    ("gemm", "nn", {**BATCH, "batch_stride_c": 10241}),
    ("gemm", "nn", {"bias": 4, "batch_stride_bias": 3}),
    ("grouped_mm", "nn", {"m": 92}),
    ("grouped_mm", "nn", {"bias": 4, "batch_stride_bias": 3}),
    ("grouped_mm", "nn", {"alpha": 0.0, "k": 60, "lda": 100, "batch_stride_b": 3}),
]


def aligned_variant(op: str, layout: str) -> str:
    """Name of a variant with the guard, for the types of Call."""
    own = [v for v in variants() if (v.target, v.op, v.a_type, v.d_type) == (GPUS[op][1], op, "bf16", "bf16")]
    found = [v for v in own if v.align16 and not v.single]
    return next(v.name for v in found if "nt"[v.trans_a] + "nt"[v.trans_b] == layout)


def pinned(op: str, layout: str, fields: dict) -> Call:
    """The call with these fields; a pointer's number is its place, moved by one element."""
    gpu, _ = GPUS[op]
    moved = {f: at(v, gpu) + 2 if f in ("a", "b", "c", "d", "bias") else v for f, v in fields.items()}
    lds = {"lda": 104, "ldb": 104, "ldc": 104, "ldd": 104, "trans_a": int(layout[0] == "t")}
    return Call(op, gpu, **{**lds, **moved}, variant=aligned_variant(op, layout))


@pytest.mark.parametrize(("op", "layout", "fields"), REFUSED, ids=str)
@in_stand_in(SM=SM)
def test_a_misaligned_operand_is_refused_and_served_by_another_variant(op, layout, fields):
    target = GPUS[op][1]
    refused(pinned(op, layout, fields).run(), "UNSUPPORTED", aligned_variant(op, layout), "16-byte aligned")
    refused(pinned(op, layout, fields).explain(target)[0], "UNSUPPORTED", "16-byte aligned")
    assert launches() == []
    free = pinned(op, layout, fields).set(variant=0)
    assert "_align16" not in text(free.variant(target).name)
    ok(free.run())
    ok(pinned(op, layout, {}).run())
    assert len(launches()) == 2


@pytest.mark.parametrize(("op", "layout", "fields"), TAKEN, ids=str)
@in_stand_in(SM=SM)
def test_what_is_not_read_or_not_vectorised_need_not_be_aligned(op, layout, fields):
    ok(pinned(op, layout, fields).run())
    assert len(launches()) == 1


@in_stand_in(SM=80)
def test_packed_rows_of_a_transposed_a_are_never_aligned():
    """A group may start at any column."""
    call = Call("grouped_mm", trans_a=1, lda=M)
    assert not call.variant().align16
    ok(call.run())


@needs(90)
@in_stand_in()
def test_a_variant_without_activation_is_not_chosen_for_one():
    sizes = {"m": 4096, "n": 4096, "k": 4096, "lda": 4096, "ldb": 4096, "ldd": 4096}
    assert Call("gemm", **sizes).variant(TARGET).linear
    for activation in (1, 2, 3):
        assert not Call("gemm", **sizes, activation=activation).variant(TARGET).linear
