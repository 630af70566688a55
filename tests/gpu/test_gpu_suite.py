"""The GPU suite rehearsed on its stand-in: it passes an honest library and notices each deliberate fault. No GPU."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # its own threads only wait for one another beside those of other tests
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.gpu import (  # noqa: E402
    cases,
    cases_groups,
    edge,
    edge_cast,
    edge_cuda,
    edge_errors,
    edge_moe,
    edge_moe_scaled,
    edge_moe_training,
    edge_scaled,
    edge_torch,
    edge_torch_contract,
    guarded,
    reference,
    standin,
)
from tests.gpu.problem import Problem  # noqa: E402
from tests.support import torch_reference  # noqa: E402

CPU = torch.device("cpu")
LARGEST = 150
# Faults that the random cases meet rarely or never, and the named check that is there for them.
NAMED = {
    "relu drops NaN": edge.specials,
    "e5m2 for e4m3": edge_scaled.scaled_products,
    "ignore scales": edge_scaled.scaled_products,
    "scales of row 0": edge_scaled.scaled_products,
    "scales of K 0": edge_scaled.scaled_products,
    "Inf to NaN": edge.specials,
    "accept anything": edge_errors.errors,
    "vary": edge.repeatable,
    "trust ends": edge.lying_ends,
    "K of the next group": lambda ctx: edge.variants(packed_alone(ctx)),
    "up is the gate": edge_moe.expert_products,
    "halves for pairs": edge_moe.expert_products,
    "rows in order": edge_moe.expert_products,
    "drop weights": edge_moe.expert_products,
    "write past the last end": edge_moe.lying_indices,
    "unstable sort": edge_moe.routes,
    "add NaN of no place": edge_moe.sums,
    "route to the next expert": edge_moe.whole_layers,
    "slopes without weights": edge_moe_training.gates,
    "sums of every column twice": edge_moe_training.trained_layers,
    "ignore D's scale": edge_scaled.scaled_products,
    "ignore magnitudes": edge_scaled.scaled_products,
    "sign of magnitudes": edge_scaled.scaled_products,
    "set magnitudes": edge_scaled.scaled_products,
    "too large to NaN": edge_scaled.scaled_products,
    "Inf counts for a scale": edge_cast.casts,
    "scale of the next block": edge_cast.casts,
    "transposed scales of rows": edge_cast.casts,
    "no power of two": edge_cast.casts,
    "every cast to e4m3": edge_cast.casts,
    "rows cast in order": edge_moe_scaled.cast_rows,
    "scales of the other weights": edge_moe_scaled.scaled_layers,
    "other rows between the products": edge_moe_scaled.scaled_layers,
    "weights of the call before": edge_moe_scaled.weights_just_written,
    "one token's experts in their order": edge_moe_scaled.one_token,
}


def context(fault=None) -> edge.Context:
    return edge.Context(standin.StandIn(fault), CPU, stand_in=True)


def packed_alone(ctx: edge.Context) -> edge.Context:
    """Of a library that has no other variants."""
    found = [v for v in ctx.lib.variants() if v.op == "grouped_mm"]
    ctx.lib.variants = lambda: found
    return ctx


def random_problems(ctx, count: int):
    for seed in range(count):
        yield ctx.run(cases.random_case(seed, LARGEST))


def test_honest_library_passes():
    assert [x for problems in random_problems(context(), 60) for x in problems] == []


@pytest.mark.parametrize("name", edge_cuda.FAR_GROUPS)
def test_groups_far_apart_are_told_from_one_another(name):
    """The check itself, at a distance that this machine's memory holds."""
    assert edge_cuda.large_groups(context(), name, 2000) == []
    assert edge_cuda.large_groups(context("drop last column"), name, 2000) != []


def test_honest_library_refuses_bad_calls():
    assert [x for problems in edge_errors.errors(context()) for x in problems] == []


@pytest.mark.parametrize("fault", standin.FAULTS)
def test_fault_is_noticed(fault):
    named = NAMED.get(fault)
    results = named(context(fault)) if named else random_problems(context(fault), 200)
    noticed = next((x for problems in results for x in problems), None)
    assert noticed, f"nothing noticed: {fault}"


def test_parts_have_each_variant_once():
    whole = edge.chosen(context())
    parts = [edge.chosen(edge.Context(standin.StandIn(), CPU, True, part, 3)) for part in (1, 2, 3)]
    assert min(map(len, parts)) > 0
    assert sorted(v.name for part in parts for v in part) == sorted(v.name for v in whole)


def test_case_repr_repeats_the_case():
    for seed in range(300):
        case = cases.random_case(seed)
        assert eval(repr(case), {"Case": cases.Case}) == case
        assert case.group_sizes() == eval(repr(case), {"Case": cases.Case}).group_sizes()


def test_random_cases_reach_every_kind():
    seen = [cases.random_case(seed) for seed in range(1000)]
    kinds = {(c.entry, c.a_type, c.d_type, c.precision) for c in seen}
    assert len(kinds) == sum(len(cases.types_of(entry)) for entry in cases.ENTRIES)
    for field, values in (("c", 4), ("bias", 3), ("scaling", 6), ("activation", 4), ("values", 4), ("spread", 6)):
        assert len({getattr(c, field) for c in seen}) == values, field
    cut = {(c.ragged, c.zero, c.tail > 0, c.wide) for c in seen if c.entry == "grouped_mm"}
    assert len(cut) == 3 * 2 * 2 * 2 + 2 * 2  # a batch has no tail
    assert {(c.trans_a, c.trans_b) for c in seen} == set(itertools.product((False, True), repeat=2))
    assert {0, 1} <= {c.m for c in seen} & {c.n for c in seen} & {c.k for c in seen}
    assert max(c.groups for c in seen) >= 2000 and max(c.m for c in seen) > 2000


def reaches_whole_matrices(c: cases.Case) -> bool:
    """Whether the C side would hand a case to a row that sees all groups as one matrix, were it of 16-bit inputs; or of
    8-bit ones."""
    step = cases.step_of(c.a_type)
    even = c.pads == cases.aligned_pads(c, [pad // step * step for pad in c.pads]) and not any(c.leads)
    read = c.k > 0 and c.alpha != 0 and c.packed and c.groups > 0 and "b" not in c.shared
    fits_k = c.trans_b and not c.trans_a if c.a_type == "e4m3" else c.trans_a and not c.trans_b
    strided = {"m": not c.trans_a, "n": False, "k": fits_k, "none": True}[c.ragged]
    return strided and even and read and c.n % 8 == 0


def runs_as_groups(c: cases.Case) -> bool:
    """Whether such a row takes a batch of dense products, were it of 16-bit inputs."""
    step = cases.step_of(c.a_type)
    even = c.pads == cases.aligned_pads(c, [pad // step * step for pad in c.pads]) and not any(c.leads)
    own_c = c.beta == 0 or "c" not in c.shared
    return (
        c.op == "gemm"
        and c.batch > 1
        and 0 not in (c.m, c.n, c.k, c.alpha)
        and c.n % 8 == c.gap == 0
        and even
        and own_c
    )


def test_random_cases_reach_the_rows_for_whole_matrices():
    seen = [c for c in map(cases.random_case, range(2000)) if reaches_whole_matrices(c)]
    kinds = {(c.ragged, c.trans_a, c.trans_b) for c in seen}
    batches = itertools.product(("none",), (False, True), (False, True))
    of_bytes = ("k", False, True)
    assert kinds == {("m", False, False), ("m", False, True), ("k", True, False), of_bytes, *batches}
    tiles = [sum(-(-m // 128) * -(-n // 128) for m, n, _ in c.group_sizes()) for c in seen]
    assert len(seen) > 60 and sum(count > 8 for count in tiles) > 20 and max(tiles) > 132
    seen = [c for c in map(cases.random_case, range(2000)) if runs_as_groups(c) and not c.activation]
    assert len(seen) > 40 and {x for c in seen for x in c.shared} >= {"a", "b"}
    assert len({(c.trans_a, c.trans_b) for c in seen}) == 4


@pytest.mark.parametrize(("kind", "layout", "a_type"), [
    *itertools.product(["_descriptor_linear_rows"], [(False, False), (False, True)], ["bf16"]),
    *itertools.product(["_descriptor_equal_linear"], itertools.product((False, True), repeat=2), ["bf16"]),
    ("_descriptor_equal_linear_unblocked", (False, True), "e4m3"),
])  # fmt: skip
def test_problems_of_a_row_for_whole_matrices_reach_it(kind, layout, a_type):
    a, b = layout
    cuts_k = "_equal" in kind and (layout == (True, False) or a_type == "e4m3")
    v = SimpleNamespace(name=kind, op="grouped_mm", a_type=a_type, d_type="bf16", precision="exact", linear=1)
    found = list(cases_groups.group_cases(SimpleNamespace(**vars(v), trans_a=a, trans_b=b, single=1, target=90)))
    assert len(found) > 25 and [c for c in found if not (reaches_whole_matrices(c) or runs_as_groups(c))] == []
    assert {c.ragged for c in found} == ({"m"} if "_rows" in kind else {"k", "none"} if cuts_k else {"none"})
    assert {c.c for c in found} == {"none", "separate", "in_place", "out"} and max(c.groups for c in found) == 300
    counts = {"values": (2 if a_type == "e4m3" else 3) + cuts_k, "bias": 3, "wide": 1 + (cuts_k or "_rows" in kind)}
    for field, values in (counts | {"zero": 1 + ("_rows" in kind)}).items():
        assert len({getattr(c, field) for c in found}) == values, field


@pytest.mark.parametrize("layout", list(itertools.product((False, True), repeat=2)))
def test_problems_of_a_row_whose_blocks_share_k_reach_it(layout):
    """That the library takes them, and in how many pieces: test_capi_grouped_cluster.py."""
    a, b = layout
    v = {"name": "_cluster_descriptor_equal", "op": "grouped_mm", "a_type": "bf16", "d_type": "bf16", "linear": 0}
    v |= {"precision": "exact", "trans_a": a, "trans_b": b, "single": 1, "target": 90}
    found = list(cases_groups.group_cases(SimpleNamespace(**v)))
    assert len(found) > 20 and [c for c in found if not reaches_whole_matrices(c)] == []
    assert {c.ragged for c in found} == ({"k", "none"} if layout == (True, False) else {"none"})
    cuts_k = layout == (True, False)
    for field, count in (("c", 4), ("values", 3 + cuts_k), ("bias", 3), ("wide", 1 + cuts_k),
                         ("activation", 4)):  # fmt: skip
        assert len({getattr(c, field) for c in found}) == count, field


def test_one_element_of_a_layer_whose_size_hides_it_is_noticed(monkeypatch):
    """The whole is off by less than 2 % of its size then."""
    case = {**edge_moe.random_layer(0), "gate": "halves", "inner": 64, "experts": 2, "tokens": 64, "top_k": 2}
    ctx = edge.Context(standin.StandIn(None), CPU, stand_in=True)
    honest = ctx.lib.moe

    def moe(*given, **words):
        d = honest(*given, **words)
        d[1, 2] += 0.7 * d.abs().max()
        return d

    monkeypatch.setattr(ctx.lib, "moe", moe)
    monkeypatch.setattr(edge_moe_scaled, "random_layer", lambda seed: {**case, "n": 1024})
    for found in edge_moe_scaled.scaled_layers(ctx):
        assert any("not what float64 makes" in x for x in found) and not any("one move" in x for x in found)


def test_a_layer_of_one_token_that_is_off_by_a_tenth_is_noticed(monkeypatch):
    ctx = edge.Context(standin.StandIn(None), CPU, stand_in=True)
    honest = ctx.lib.moe
    monkeypatch.setattr(ctx.lib, "moe", lambda *given, **words: honest(*given, **words) * 1.1)
    monkeypatch.setattr(ctx, "seeds", lambda count: range(12))
    found = list(edge_moe_scaled.one_token(ctx))
    off = [any("of its size, one move" in x for x in problems) for problems in found]
    assert len(off) == 12 and sum(off) >= 6, off  # of some X is not finite


def test_problems_of_a_row_of_whole_tiles_reach_it():
    """That the library takes them: test_capi_grouped_whole.py."""
    v = {"name": "_descriptor_equal_linear_whole", "op": "grouped_mm", "a_type": "bf16", "d_type": "bf16", "linear": 1}
    v |= {"precision": "exact", "trans_a": True, "trans_b": False, "single": 1, "target": 90}
    found = list(cases_groups.group_cases(SimpleNamespace(**v)))
    assert len(found) > 25 and [c for c in found if not reaches_whole_matrices(c)] == []
    assert {c.ragged for c in found} == {"k", "none"} and {(c.c, c.beta, c.m % 8) for c in found} == {("none", 0.0, 0)}
    assert min(c.m for c in found) == 192 and max(c.groups for c in found) == 300
    for field, count in (("values", 4), ("bias", 3), ("wide", 2)):
        assert len({getattr(c, field) for c in found}) == count, field
    assert {c.values for c in found if c.alpha == float("inf")} == {"positive"}


@pytest.mark.parametrize("a_type", ["bf16", "e4m3"])
def test_positive_numbers_are_those_that_were_drawn_without_their_signs(a_type):
    case = cases.Case(entry="grouped_mm", a_type=a_type, groups=2, cuts=(5, 30), ragged="k", trans_b=True, m=16, n=16)
    drawn, positive = (Problem(replace(case, values=values), CPU) for values in ("normal", "positive"))
    for arena in ("a_arena", "b_arena"):
        for one, other in zip(getattr(drawn, arena).views, getattr(positive, arena).views, strict=True):
            assert (one.float() < 0).any() and torch.equal(one.float().abs(), other.float())


def test_a_subnormal_number_of_8_bits_counts_as_a_normal_one_in_what_sums_are_off_by():
    a = torch.tensor([[0.000152587890625, 2.5]]).to(torch.float8_e5m2)
    b = torch.tensor([[-0.34375], [2.0**-9]]).to(torch.float8_e4m3fn)
    want, bound = reference.expected(a, b, a_type="e4m3")
    seen = torch.tensor([[2.5 * 2.0**-9 - 13 * 2.0**-18]])  # by an H200: the first product without its last bits
    assert 0.1 < float(reference.excess(seen, want, bound)) < 1
    assert float(reference.excess(seen - 8 * 2.0**-18, want, bound)) > 1
    a, b = 64 * a.float(), 64 * b.float()  # normal numbers, which are held to their own size
    want, bound = reference.expected(a.to(torch.float8_e5m2), b.to(torch.float8_e4m3fn), a_type="e4m3")
    assert float(reference.excess(4096 * seen, want, bound)) > 1


def test_bound_holds_for_float32_and_not_for_half_of_it():
    """An honest float32 product stays inside the bound; one whose K is a term short does not."""
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(64, 300, generator=generator), torch.randn(300, 48, generator=generator)
    want, bound = reference.expected(a, b, precision="ieee", d_type="f32")
    assert float(reference.excess(a @ b, want, bound).amax()) < 1
    assert float((reference.excess(a[:, 1:] @ b[1:], want, bound) > 1).double().mean()) > 0.9


def test_excess_wants_nan_and_inf_in_place():
    want = torch.tensor([1.0, torch.nan, torch.inf, -torch.inf, 0.0], dtype=torch.float64)
    bound = torch.tensor([0.1, torch.nan, torch.inf, torch.inf, torch.inf], dtype=torch.float64)
    assert float(reference.excess(want.float(), want, bound).amax()) == 0
    for index, wrong in ((0, torch.nan), (0, torch.inf), (1, 1.0), (2, -torch.inf), (3, 5.0), (4, 1.0)):
        got = want.float()
        got[index] = wrong
        assert float(reference.excess(got, want, bound).amax()) > 1, (index, wrong)


def test_guards_are_wide_and_aligned_as_asked():
    arena = guarded.Arena(torch.bfloat16, CPU, "D")
    arena.place((3, 5), pad=2, lead=0)
    arena.place((2, 3, 5), pad=2, lead=1)
    arena.outputs().freeze()
    first, second = arena.views
    assert first.stride() == (7, 1) and second.stride() == (21, 7, 1)
    assert first.data_ptr() % 16 == 0 and second.data_ptr() % 16 == 2
    assert first.storage_offset() * 2 >= guarded.BAND_BYTES and arena.problems() == []
    arena.flat[first.storage_offset() + 5] = 0
    assert "stray write" in arena.problems()[0]


CHECKED = (edge_torch.dense_operators, edge_torch.grouped_operators, edge_torch_contract.grouped_contract)


@pytest.mark.parametrize("check", CHECKED)
def test_an_operator_that_is_off_is_noticed(check, monkeypatch):
    right = dict(torch_reference.reference)
    for name in right:
        monkeypatch.setitem(torch_reference.reference, name, lambda *a, right=right[name]: right(*a) * 1.05)
    assert all(check(context()))
    monkeypatch.undo()
    assert not any(check(context()))


BROKEN = {
    edge_torch_contract.operators_promises: lambda x: x.double(),  # not the type that the meta kernel tells
    edge_torch_contract.gradients_of_differences: lambda x: x * x.abs(),  # not the product whose gradients they are
}


@pytest.mark.parametrize("check", BROKEN)
def test_an_operator_that_breaks_a_promise_is_noticed(check, monkeypatch):
    for name in ("gemm", "grouped_mm"):
        right = torch_reference.reference[name]
        monkeypatch.setitem(torch_reference.reference, name, lambda *a, right=right: BROKEN[check](right(*a)))
    assert any(check(context()))
    monkeypatch.undo()
    assert not any(check(context()))


@pytest.mark.parametrize(("factor", "wrong"), [(1.01, False), (1.05, True), (float("nan"), True)])
def test_a_layer_of_many_rows_may_differ_from_its_parts_by_little(monkeypatch, factor, wrong):
    """Of one whose H is made in one launch; of fewer rows by nothing, and by no NaN at all."""
    case = {**edge_moe.random_layer(0), "gate": "halves", "inner": 64, "experts": 2, "tokens": 64, "top_k": 2}
    ctx = edge.Context(standin.StandIn(None), CPU, stand_in=True)
    honest = ctx.lib.moe
    monkeypatch.setattr(ctx.lib, "moe", lambda *given, **words: honest(*given, **words) * factor)
    for tokens, refused in ((64, wrong), (63, True)):
        monkeypatch.setattr(edge_moe_scaled, "random_layer", lambda seed, tokens=tokens: {**case, "tokens": tokens})
        said = ("not what its parts make", "not what float64 makes", "of its size, one move")
        assert all(any(words in x for words in said for x in found) == refused
                   for found in edge_moe_scaled.scaled_layers(ctx)), tokens  # fmt: skip
