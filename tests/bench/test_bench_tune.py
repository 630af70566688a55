"""Tuning of grouped kernels: what it draws, what it runs and what it records, on a CPU. Times nothing."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from gpu.standin import Error
from test_bench_grouped import Plain, on_cpu

from bench.measure import grouped, regret
from bench.suites import layers_drawn
from bench.suites import packed as drawn
from bench.suites.roofline import floor_us
from bench.suites.scaled import BLOCKS
from bench.suites.sizes import sizes_of
from build.tune import dense as tune
from build.tune import grouped as tune_grouped
from build.tune.candidates import grouped_candidates
from kernels.table.spec import LAYOUTS

HEAD = {"build_id": "b1", "device": "NVIDIA H200", "dtype": "bf16", "torch": "2.9", "date": "today"}


def test_drawn_problems_are_as_they_are_said_to_be():
    found = [drawn.draw_problem(seed) for seed in range(400)]
    assert found == [drawn.draw_problem(seed) for seed in range(400)] and len(set(found)) == 400
    for one in found:
        width, depth = (one.n, one.m) if one.ragged == "K" else (one.n, one.k)
        assert 0 < width <= 8192 and 0 < depth <= 32768 and width % 8 == depth % 8 == 0
        assert 1 <= one.groups <= 256 and floor_us({**one.case, "dtype": "bf16"}) < drawn.LONGEST_US
        assert one.layout in {"K": ("tn",), "M": ("nt", "nn"), "none": LAYOUTS}[one.ragged]
        assert one.ragged != "none" or one.m % one.groups == 0
    assert {(one.ragged, one.layout) for one in found} == {("K", "tn"), ("M", "nt"), ("M", "nn"), *(
        ("none", layout) for layout in LAYOUTS)}  # fmt: skip
    assert {one.distribution for one in found} == set(drawn.DISTRIBUTIONS)
    assert sum(one.n % 64 == 0 for one in found) > 340
    for one in found[:40]:
        assert sum(one.sizes()) == (one.k if one.ragged == "K" else one.m) and one.sizes() == one.sizes()


class Library(Plain):
    """One kernel is right, one wrong, one refuses."""

    Error = Error

    def grouped_mm(self, *operands, out, variant, beta):
        if "refuses" in variant:
            raise Error(f"{variant} refuses")
        super().grouped_mm(*operands, out=out)
        if "wrong" in variant:
            out *= 1.1


def worker() -> tune_grouped.Worker:
    made = object.__new__(tune_grouped.Worker)
    made.libgemm, made.dtype = Library(), "bf16"
    made.rows = {
        f"{name} {layout}": SimpleNamespace(problem=SimpleNamespace(layout=layout), fit_name=f"tile {name}")
        for name in ("right", "wrong", "refuses") for layout in ("nt", "tn")
    }  # fmt: skip
    made.timing = SimpleNamespace(rotations=lambda _: 1, capture=lambda call, inputs: call(*inputs[0]))
    made.settle = lambda graphs, count: (dict.fromkeys(graphs, 1.5), 0.01)
    return made


@pytest.mark.parametrize("ragged", ["M", "K"])
def test_a_line_holds_the_kernels_that_were_right(ragged, monkeypatch):
    on_cpu(monkeypatch, Library())
    sizes = {"M": (24, 16, 32, "nt"), "K": (16, 32, 24, "tn")}[ragged]
    shape = drawn.Packed(ragged, 5, *sizes, "skewed", 7)
    found = worker().measure(shape)
    assert found.pop("us") == {"tile right": 1.5} and found.pop("wrong") == ["tile wrong"]
    assert found.pop("spread") == 0.01 and tune_grouped.shape_of(found) == shape
    assert found == {"ragged": ragged, "groups": 5, "m": sizes[0], "n": sizes[1], "k": sizes[2], "layout": sizes[3],
                     "distribution": "skewed", "seed": 7}  # fmt: skip


@pytest.mark.parametrize("dtype", ["e4m3", "e4m3_fast", "e4m3_blocks"])
def test_operands_of_8_bits_are_measured_with_the_scales_of_their_kind(dtype, monkeypatch):
    steps, blocks, asked = 3, dtype == "e4m3_blocks", []

    class Scaled(Library):
        def grouped_mm(self, a, b, offs, *, out, variant, precision, scaling, a_scale, b_scale):
            assert a.dtype == b.dtype == torch.float8_e4m3fn and out.dtype == torch.bfloat16
            assert b.stride()[1] == 1 and (a_scale == 1).all() and (b_scale == 1).all()
            shapes = ((24, steps), (5, steps, 2)) if blocks else ((24,), (5, 144))
            assert (tuple(a_scale.shape), tuple(b_scale.shape)) == shapes and (not blocks or a_scale.stride()[0] == 1)
            asked.append((precision, scaling))
            super().grouped_mm(a, b, offs, out=out, variant=variant, beta=0.0)

    made = worker()
    made.libgemm, made.dtype, made.torch, made.type = Scaled(), dtype, torch, torch.float8_e4m3fn
    on_cpu(monkeypatch, made.libgemm)
    found = made.measure(drawn.Packed("M", 5, 24, 144, 128 * steps - 16, "nt", "skewed", 7))
    assert (found["us"], found["wrong"]) == ({"tile right": 1.5}, ["tile wrong"])
    assert set(asked) == {("fast" if dtype == "e4m3_fast" else "exact", BLOCKS if blocks else "row")}
    names = {v.measured_as for v in grouped_candidates(90, dtype)}
    assert names == {f"grouped_mm_{dtype}"}


def test_drawn_layers_are_those_of_models_with_seeds_that_are_not_the_reports():
    found = [layers_drawn.tuned_layer(seed) for seed in range(120)]
    assert found == [layers_drawn.tuned_layer(seed) for seed in range(120)] and len(set(found)) == 120
    assert {(one.ragged, one.layout) for one in found} == {("K", "tn"), ("M", "nt"), ("M", "nn")}
    assert {one.distribution for one in found} == set(drawn.DISTRIBUTIONS)
    hidden = {sizes[0] for sizes in layers_drawn.MODELS.values()}
    for one in found:
        rows, *widths = (one.k, one.m, one.n) if one.ragged == "K" else (one.m, one.n, one.k)
        assert hidden & set(widths) and sum(one.sizes()) == rows and len(one.sizes()) == one.groups
        assert floor_us({**one.case, "dtype": "bf16"}) < drawn.LONGEST_US
    of_report = {(one["groups"], one["m"], one["n"], one["k"]) for one in layers_drawn.layers(0, 120)}
    assert len(of_report & {(one.groups, one.m, one.n, one.k) for one in found}) < 3


def test_of_8_bits_only_what_has_rows_of_its_own_is_drawn():
    kinds = [(one.ragged, one.layout, one.k % 16) for one in map(drawn.draw_problem, range(300))
             if tune_grouped.takes(one, "e4m3")]  # fmt: skip
    assert set(kinds) == {("M", "nt", 0)} and len(kinds) > 50
    assert all(tune_grouped.takes(drawn.draw_problem(seed), "bf16") for seed in range(50))


def test_regret_is_against_the_best_kernel_that_takes_the_problem(monkeypatch):
    class Shelf(Library):
        def variants(self):
            named = dict.fromkeys(("right", "slow", "refuses"), (False, True)) | {"turned": (True, True)}
            types = {"op": "grouped_mm", "target": 90, "a_type": "bf16", "d_type": "bf16"}
            return [SimpleNamespace(name=x, trans_a=a, trans_b=b, **types) for x, (a, b) in named.items()]

        def grouped_mm(self, *operands, variant, **more):
            super().grouped_mm(*operands, variant=variant or "chosen", **more)

    times = {"chosen": 3.0, "right": 2.0, "slow": 5.0}
    asked = []
    on_cpu(monkeypatch, Shelf())
    monkeypatch.setattr(regret, "libgemm", grouped.libgemm)
    monkeypatch.setattr(regret, "target", lambda: 90)
    monkeypatch.setattr(grouped, "variant_of", lambda *_: "slow")
    monkeypatch.setattr(regret, "alternate", lambda runs, inputs, floor: asked.append(set(runs)) or {
        name: times[name] for name in runs})  # fmt: skip
    found = grouped.regret_of(drawn.Packed("M", 5, 24, 16, 32, "nt", "skewed", 7))
    assert (found["regret"], found["best"], found["chosen"]) == (0.5, "right", "slow") and found["groups"] == 5
    assert asked == [set(times), set(times)]


def test_a_kernel_that_leaves_an_empty_group_along_k_unwritten_is_wrong(monkeypatch):
    class Skips(Library):
        def grouped_mm(self, a, b, offs, *, out, variant, beta):
            super().grouped_mm(a, b, offs, out=out, variant="right", beta=beta)
            out[0] = math.nan

    monkeypatch.setattr(drawn.Packed, "sizes", lambda self: [0, 24])
    made = worker()
    made.libgemm = Skips()
    on_cpu(monkeypatch, made.libgemm)
    found = made.measure(drawn.Packed("K", 2, 16, 32, 24, "tn", "half", 1))
    assert found["us"] == {} and len(found["wrong"]) == 3


def test_every_candidate_is_measured_by_name():
    worker = object.__new__(tune_grouped.Worker)
    names = [v.name for v in grouped_candidates(90, "bf16")]
    for kept in (names, names[::2]):  # candidates, or of them what ships
        worker.libgemm = SimpleNamespace(variants=lambda kept=kept: [SimpleNamespace(name=name) for name in kept])
        assert list(worker.table(90, "bf16")) == kept
    assert len(names) > 40 and all(name.startswith("grouped_mm_bf16_bf16_bf16_") for name in names)


def test_cases_of_the_suite_are_measured_with_the_suite_s_sizes():
    known = drawn.suite()
    assert {one.ragged for one in known} == {"M", "K", "none"} and len(set(known)) == len(known) > 20
    for one in known:
        assert one.sizes() == sizes_of(drawn.SUITE[one.distribution])
        assert sum(one.sizes()) == (one.k if one.ragged == "K" else one.m)


def test_a_shape_that_no_candidate_takes_is_recorded_as_such(monkeypatch):
    on_cpu(monkeypatch, Library())
    made = worker()
    made.rows = {name: row for name, row in made.rows.items() if "refuses" in name}
    del made.settle
    found = made.measure(drawn.Packed("M", 5, 24, 16, 32, "nt", "skewed", 7))
    assert (found["us"], found["wrong"], found["spread"]) == ({}, [], 0.0)


def test_a_record_goes_on_where_it_stopped(tmp_path):
    path, shape = tmp_path / "sm90_grouped_mm.jsonl", drawn.draw_problem(0)
    assert tune.read_done(path, HEAD, tune_grouped.shape_of) == set()
    with path.open("a") as file:
        file.write(json.dumps({**shape._asdict(), "us": {}}) + "\n")
    assert tune.read_done(path, HEAD, tune_grouped.shape_of) == {shape}
