"""Tuning of grouped kernels: what it draws, what it runs and what it records, on a CPU. Times nothing."""

import json
import math
from types import SimpleNamespace

import pytest
from gpu.standin import Error
from test_bench_grouped import Plain, on_cpu

from bench import tune, tune_grouped
from bench.rows import floor_us

HEAD = {"build_id": "b1", "device": "NVIDIA H200", "dtype": "bf16", "torch": "2.9", "date": "today"}


def test_drawn_problems_are_as_they_are_said_to_be():
    drawn = [tune_grouped.draw_problem(seed) for seed in range(400)]
    assert drawn == [tune_grouped.draw_problem(seed) for seed in range(400)] and len(set(drawn)) == 400
    for one in drawn:
        width, depth = (one.n, one.m) if one.ragged == "K" else (one.n, one.k)
        assert 256 <= width <= 8192 and 256 <= depth <= 8192 and width % 8 == depth % 8 == 0
        assert 1 <= one.groups <= 256 and floor_us({**one.case, "dtype": "bf16"}) < tune_grouped.LONGEST_US
        assert (one.layout == "tn") == (one.ragged == "K")
    assert {one.layout for one in drawn} == {"nt", "nn", "tn"}
    assert {one.distribution for one in drawn} == set(tune_grouped.DISTRIBUTIONS)
    assert sum(one.n % 64 == 0 for one in drawn) > 340
    for one in drawn[:40]:
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
        f"{name} {layout}": SimpleNamespace(problem=SimpleNamespace(layout=layout), shape_name=f"tile {name}")
        for name in ("right", "wrong", "refuses") for layout in ("nt", "tn")
    }  # fmt: skip
    made.timing = SimpleNamespace(rotations=lambda _: 1, capture=lambda call, inputs: call(*inputs[0]))
    made.settle = lambda graphs, count: (dict.fromkeys(graphs, 1.5), 0.01)
    return made


@pytest.mark.parametrize("ragged", ["M", "K"])
def test_a_line_holds_the_kernels_that_were_right(ragged, monkeypatch):
    on_cpu(monkeypatch, Library())
    sizes = {"M": (24, 16, 32, "nt"), "K": (16, 32, 24, "tn")}[ragged]
    shape = tune_grouped.Packed(ragged, 5, *sizes, "skewed", 7)
    found = worker().measure(shape)
    assert found.pop("us") == {"tile right": 1.5} and found.pop("wrong") == ["tile wrong"]
    assert found.pop("spread") == 0.01 and tune_grouped.shape_of(found) == shape
    assert found == {"ragged": ragged, "groups": 5, "m": sizes[0], "n": sizes[1], "k": sizes[2], "layout": sizes[3],
                     "distribution": "skewed", "seed": 7}  # fmt: skip


def test_a_kernel_that_leaves_an_empty_group_along_k_unwritten_is_wrong(monkeypatch):
    class Skips(Library):
        def grouped_mm(self, a, b, offs, *, out, variant, beta):
            super().grouped_mm(a, b, offs, out=out, variant="right", beta=beta)
            out[0] = math.nan

    monkeypatch.setattr(tune_grouped.Packed, "sizes", lambda self: [0, 24])
    made, library = worker(), Skips()
    on_cpu(monkeypatch, library)
    found = made.measure(tune_grouped.Packed("K", 2, 16, 32, 24, "tn", "half", 1))
    assert found["us"] == {} and len(found["wrong"]) == 3


def test_the_library_s_grouped_kernels_are_measured_by_name():
    made = object.__new__(tune_grouped.Worker)
    names = [v.name for v in tune_grouped.variants((90,))]
    made.libgemm = SimpleNamespace(variants=lambda: [SimpleNamespace(name=name) for name in names[:-1]])
    table = made.table(90, "bf16")
    assert table and all(name.startswith("grouped_mm_bf16_bf16_bf16_") for name in table)


def test_a_record_goes_on_where_it_stopped(tmp_path):
    path, shape = tmp_path / "sm90_grouped.jsonl", tune_grouped.draw_problem(0)
    assert tune.read_done(path, HEAD, tune_grouped.shape_of) == set()
    with path.open("a") as file:
        file.write(json.dumps({**shape._asdict(), "us": {}}) + "\n")
    assert tune.read_done(path, HEAD, tune_grouped.shape_of) == {shape}
