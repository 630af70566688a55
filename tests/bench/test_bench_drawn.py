"""Shapes drawn at random: what is drawn and what never is, and what rows of them sum to. Times nothing."""

import json

import pytest
from conftest import ROOT
from made_report import drawn_report, drawn_row

from bench.report import drawn
from bench.report.pictures import reports
from bench.report.rows import read
from bench.suites import dense_drawn, draws, layers_drawn, records
from bench.suites.packed import LONGEST_US, draw_problem
from bench.suites.roofline import aligned, floor_us
from build.tune import dense as tune

SEEDS = range(10)
FILES = [path.with_suffix(".drawn.json") for path in reports(ROOT / "bench" / "results")]


def dense(seed: int, count: int = 60) -> list[dict]:
    return dense_drawn.shapes(seed, count)


def layers(seed: int, count: int = 40) -> list[dict]:
    return layers_drawn.layers(seed, count)


@pytest.mark.parametrize("made", [dense, layers])
def test_a_seed_draws_the_same_and_another_others(made):
    assert made(3) == made(3) and made(3)[:7] == made(3, 7) and made(3, 0) == []
    keys = [{json.dumps({**one, "id": 0}) for one in made(seed)} for seed in (3, 4)]
    assert len(keys[0] & keys[1]) < 5


def test_dense_shapes_are_as_they_are_said_to_be():
    found = [one for seed in SEEDS for one in dense(seed)]
    layouts = {kind: {one["layout"] for one in found if one["kind"] == kind} for kind in dense_drawn.KINDS}
    assert layouts == {"fwd": {"NT"}, "dgrad": {"NN"}, "wgrad": {"TN"}, "log": {"NN", "NT", "TN", "TT"}}
    for one in found:
        row = {**one, "dtype": "bf16"}
        assert aligned(row) and floor_us(row) < LONGEST_US and (one["beta"], one["out"]) == (0, "same")
    tokens = {kind: [one["k" if kind == "wgrad" else "m"] for one in found if one["kind"] == kind] for kind in layouts}
    for kind, own in tokens.items():
        assert len(own) == len(found) // 4 and max(own) <= draws.MOST_TOKENS
        assert min(own) >= (draws.LEAST_TRAINED if "grad" in kind else 1)
        assert any(size % 2 for size in own)
    assert min(tokens["fwd"]) < 4 and max(tokens["fwd"]) > 8000


def test_a_layer_s_gradients_multiply_what_it_did(monkeypatch):
    monkeypatch.setattr(dense_drawn, "layer", lambda draw: (24, 40, "some"))
    monkeypatch.setattr(dense_drawn, "tokens", lambda draw, least=1: 5)
    found = {kind: dense_drawn.KINDS[kind](None)[:4] for kind in ("fwd", "dgrad", "wgrad")}
    assert found == {"fwd": (5, 24, 40, "NT"), "dgrad": (5, 40, 24, "NN"), "wgrad": (24, 40, 5, "TN")}


def test_layers_are_as_they_are_said_to_be():
    found = [one for seed in SEEDS for one in layers(seed)]
    forms = {(one["kind"], one["ragged"], one["layout"]) for one in found}
    assert forms == {("fwd", "M", "NT"), ("fwd", "M", "NN"), ("dgrad", "M", "NN"), ("dgrad", "M", "NT"),
                     ("wgrad", "K", "TN")}  # fmt: skip
    assert len(dense_drawn.MODELS) >= 30 and len(layers_drawn.MODELS) == 13
    for one in found:
        sizes, routing = one["sizes"], one["distribution"]
        row = {**one, "dtype": "bf16", "filled": sum(size > 0 for size in sizes)}
        assert sum(sizes) == one["k" if one["ragged"] == "K" else "m"] > 0 and len(sizes) == one["groups"] > 1
        assert max(sizes) <= routing["tokens"] <= draws.MOST_TOKENS and one["groups"] <= routing["experts"]
        assert routing["tokens"] >= (1 if one["kind"] == "fwd" else draws.LEAST_TRAINED)
        assert aligned(row) and floor_us(row) < LONGEST_US
    assert {one["note"].rpartition(" ")[0] for one in found} == set(layers_drawn.MODELS)
    uneven = [max(one["sizes"]) * one["groups"] / sum(one["sizes"]) for one in found if sum(one["sizes"]) > 4096]
    assert min(uneven) < 1.5 and max(uneven) > 8


def test_every_token_finds_its_experts():
    class Draw(layers_drawn.random.Random):
        def gammavariate(self, alpha, beta):
            return 0.0 if self.random() < 0.9 else 1.0  # most experts are liked by nobody

    for experts, top_k, tokens in ((8, 8, 5), (128, 8, 1), (16, 4, 1000)):
        sizes = layers_drawn.routed(Draw(1), experts, top_k, tokens, 1.0)
        assert len(sizes) == experts and sum(sizes) == tokens * top_k and max(sizes) <= tokens


def test_nothing_drawn_is_what_tuning_or_the_benchmark_has():
    recorded = records.measured()
    listed = json.loads((ROOT / "bench" / "suites" / "dense.json").read_text())["shapes"]
    grouped = [*json.loads((ROOT / "bench" / "suites" / "grouped.json").read_text())["cases"], *(
        row for row in recorded if "groups" in row)]  # fmt: skip
    tuned = {(row["m"], row["n"], row["k"], row["layout"].upper()) for row in [*listed, *recorded]}
    tuned |= {(*shape[:3], shape[3].upper()) for shape in (tune.draw_shape(seed, "bf16") for seed in range(3000))}
    packed = {(row["groups"], row["m"], row["n"], row["k"]) for row in [*grouped, *(
        draw_problem(seed)._asdict() for seed in range(2000))]}  # fmt: skip
    assert len(tuned) > 5000 and len(packed) > 1900
    for seed in SEEDS:
        assert not tuned & {(one["m"], one["n"], one["k"], one["layout"]) for one in dense(seed)}
        assert not packed & {(one["groups"], one["m"], one["n"], one["k"]) for one in layers(seed)}


@pytest.mark.parametrize(("made", "known", "key"), [
    (dense, "known_dense", draws.dense_key), (layers, "known_grouped", draws.grouped_key),
])  # fmt: skip
def test_what_is_known_is_left_out(made, known, key, monkeypatch):
    before = made(5, 9)
    monkeypatch.setattr(dense_drawn if made is dense else layers_drawn, known, lambda: {key(before[3]), key(before[8])})
    after = [key(one) for one in made(5, 9)]
    assert len(set(after)) == 9 and after[:3] == [key(one) for one in before[:3]]
    assert not {key(before[3]), key(before[8])} & set(after)


def test_rows_are_summed_by_kind():
    rows = [drawn_row("wgrad", layout="TN"), *(drawn_row(torch_us=200.0 + i, cublaslt_us=100.0) for i in range(100))]
    rows += [drawn_row(dtype="f16"), drawn_row("fwd", m=8, n=8, k=8), drawn_row("dgrad", op="grouped_mm", groups=2)]
    found = drawn.summarise(rows)
    assert {family: list(kinds) for family, kinds in found.items()} == {
        "gemm bf16": ["forward, NT", "weight gradient, TN"], "gemm f16": ["a sample in f16"],
        "grouped_mm bf16": ["data gradient"],
    }  # fmt: skip
    forward = found["gemm bf16"]["forward, NT"]
    assert forward["shapes"] == forward["torch"]["shapes"] == 101 and forward["cublaslt"]["shapes"] == 100
    assert forward["torch"]["low"] == 205 / 200 and forward["cublaslt"]["mean"] == pytest.approx(0.5)
    assert forward["share"] == pytest.approx(171.8 / 200, rel=1e-3)  # the short one has no say
    assert forward["cublaslt"]["share"] == pytest.approx(171.8 / 100, rel=1e-3)
    assert forward["regret"] == {"shapes": 0} and "cublaslt" not in found["gemm f16"]["a sample in f16"]


def test_regret_is_over_rows_whose_best_was_looked_for():
    values = [drawn_row(best_variant_us=200.0 / (1 + i / 100)) for i in range(21)]
    found = drawn.summarise([drawn_row(), *values])["gemm bf16"]["forward, NT"]["regret"]
    assert found == {"shapes": 21, "median": pytest.approx(0.10), "p95": pytest.approx(0.19)}
    assert (drawn.percentile([3, 1, 2], 5), drawn.percentile([3, 1, 2], 95), drawn.percentile([1], 95)) == (1, 3, 1)


def test_a_row_is_a_line_of_the_file(tmp_path):
    report = drawn_report(drawn_row(), drawn_row("log", distribution={"kind": "x"}), summary={"a": [1]})
    written = drawn.text(report)
    assert json.loads(written) == report and sum('"ours_us"' in line for line in written.splitlines()) == 2
    assert all(written.splitlines().count("  " + json.dumps(row) + end) == 1
               for row, end in zip(report["rows"], (",", ""), strict=True))  # fmt: skip
    (tmp_path / "GPU.json").write_text(json.dumps({"rows": []}))
    (tmp_path / "GPU.drawn.json").write_text(written)
    assert read(tmp_path / "GPU.json")["drawn"] == report


def test_the_summary_is_a_table():
    found = drawn.lines(drawn.summarise([drawn_row(), drawn_row("log", best_variant_us=200.0, cublaslt_us=160.0)]))
    assert [line.split() for line in found[1:]] == [
        ["gemm", "bf16,", "forward,", "NT", "1", "1.05", "1.05", "-", "-", "0.86", "-", "-", "-"],
        ["gemm", "bf16,", "log-uniform", "1", "1.05", "1.05", "0.80", "0.80", "0.86", "1.07", "0.00", "0.00"],
    ]
    assert len({len(line) for line in found}) == 1


@pytest.mark.parametrize("path", [path for path in FILES if path.is_file()], ids=lambda path: path.name)
def test_a_committed_report_has_the_floor_and_the_summary_of_its_rows(path):
    report = json.loads(path.read_text())
    assert [row["floor_us"] for row in report["rows"]] == pytest.approx(list(map(floor_us, report["rows"])), rel=1e-4)
    assert rounded(report["summary"]) == rounded(drawn.summarise(report["rows"]))  # Pythons differ in how sum() rounds
    assert path.read_text() == drawn.text(report)


def rounded(found):
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    return round(found, 9) if isinstance(found, float) else found
