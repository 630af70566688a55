"""The GPU suite rehearsed on its stand-in: it passes an honest library and notices each deliberate fault. No GPU."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.gpu import cases, edge, edge_errors, guarded, reference, standin  # noqa: E402

CPU = torch.device("cpu")
LARGEST = 150
# Faults that the random cases meet rarely or never, and the named check that is there for them.
NAMED = {
    "relu drops NaN": edge.specials,
    "Inf to NaN": edge.specials,
    "accept anything": edge_errors.errors,
    "vary": edge.repeatable,
    "trust ends": edge.lying_ends,
}


def context(fault=None) -> edge.Context:
    return edge.Context(standin.StandIn(fault), CPU, stand_in=True)


def random_problems(ctx, count: int):
    for seed in range(count):
        yield ctx.run(cases.random_case(seed, LARGEST))


def test_honest_library_passes():
    assert [x for problems in random_problems(context(), 60) for x in problems] == []


@pytest.mark.parametrize("check", [edge.seeds, edge.variants, edge.specials, edge.empty, edge.lying_ends])
def test_honest_library_passes_named(check):
    results = list(check(context()))
    assert results and [x for problems in results for x in problems] == []


def test_honest_library_refuses_bad_calls():
    assert [x for problems in edge_errors.errors(context()) for x in problems] == []


@pytest.mark.parametrize("fault", standin.FAULTS)
def test_fault_is_noticed(fault):
    named = NAMED.get(fault)
    results = named(context(fault)) if named else random_problems(context(fault), 200)
    noticed = next((x for problems in results for x in problems), None)
    assert noticed, f"nothing noticed: {fault}"


def test_case_repr_repeats_the_case():
    for seed in range(300):
        case = cases.random_case(seed)
        assert eval(repr(case), {"Case": cases.Case}) == case
        assert case.group_sizes() == eval(repr(case), {"Case": cases.Case}).group_sizes()


def test_random_cases_reach_every_kind():
    seen = [cases.random_case(seed) for seed in range(1000)]
    kinds = {(c.entry, c.a_type, c.d_type, c.precision) for c in seen}
    assert len(kinds) == len(cases.ENTRIES) * len(cases.TYPES)
    for field, values in (("c", 4), ("bias", 3), ("activation", 4), ("values", 4), ("spread", 6)):
        assert len({getattr(c, field) for c in seen}) == values, field
    assert {(c.trans_a, c.trans_b) for c in seen} == set(itertools.product((False, True), repeat=2))
    assert {0, 1} <= {c.m for c in seen} & {c.n for c in seen} & {c.k for c in seen}
    assert max(c.groups for c in seen) >= 2000 and max(c.m for c in seen) > 2000


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


def runner(tmp_path, *words) -> tuple[int, dict]:
    """The runner in a process of its own, since it forbids triton to the process it is in."""
    command = [sys.executable, str(ROOT / "tests" / "gpu" / "run.py"), "--stand-in", "--only", "random"]
    done = subprocess.run([*command, "--random", "20", "--out", str(tmp_path), *words], capture_output=True, text=True)
    return done.returncode, json.loads((tmp_path / "gpu_stand-in.json").read_text())


def test_runner_reports(tmp_path):
    status, found = runner(tmp_path)
    assert status == 0 and found["passed"] == 20 and found["failed"] == 0 and found["triton"] == "not importable"
    status, found = runner(tmp_path, "--break-it", "drop bias")
    assert status == 1 and found["failed"] and found["problems"]
    status, found = runner(tmp_path, "--random", "0")
    assert status == 1 and found["passed"] == 0
