"""bench/suites/scaled.py and bench/report/scaled.py: what is drawn, what a report says. Times nothing."""

import json

import pytest
from conftest import ROOT

from bench.report.drawn import text
from bench.report.scaled import NAMES, columns, lines, own_words, scaled_item, scaled_words, summarise
from bench.suites import scaled
from bench.suites.draws import dense_key, grouped_key
from bench.suites.scaled import BLOCKS, GRADIENTS, KINDS, LIST, drawn, drawn_groups, gradients, listed, listed_groups
from bench.suites.scaled import GROUPS as PUBLISHED

COMMITTED = sorted((ROOT / "bench" / "results").glob("*.fp8.json"))

ROWS = [
    {"kind": kind, "m": m, "n": 500, "k": 1000, "recipe": recipe, "accumulation": sums, "ours_us": 10.0,
     "bf16_us": 18.0, "floor_us": 8.0 if m == 4096 else 12.0, "peers": {"torch.scaled_mm": us}}
    for kind in ("list", "drawn") for recipe, sums in KINDS for m, us in ((4096, 12.0), (16, 27.0))
]  # fmt: skip
GROUPS = [
    {**row, "kind": "groups", "filled": 4, "peers": {"torch.scaled_grouped_mm": 20.0}} for row in ROWS
    if row["kind"] == "drawn" and row["recipe"] != "tensor"
]  # fmt: skip
OF_WEIGHTS = [
    {**row, "kind": "gradients", "m": 800, "k": 4 * row["m"], "peers": {}} for row in GROUPS if row["recipe"] == "row"
]


def test_a_seed_draws_its_shapes_again_and_none_of_the_list():
    found = drawn(7, 60)
    assert found[:20] == drawn(7, 20) and found != drawn(8, 60)
    shapes = {(row["m"], row["n"], row["k"]) for row in found}
    assert len(shapes) == 60 and not shapes & set(LIST)
    assert all(row["n"] % 16 == row["k"] % 16 == 0 < row["k"] for row in found)
    assert [(row["m"], row["n"], row["k"]) for row in listed()] == list(LIST)


def test_a_seed_draws_its_layers_again():
    found = drawn_groups(7, 12)
    assert found[:5] == drawn_groups(7, 5) and found != drawn_groups(8, 12) and len(found) == 12
    for layer in found:
        assert layer["ragged"] == "M" and sum(layer["sizes"]) == layer["m"] and layer["n"] % 16 == layer["k"] % 16 == 0
        assert len(layer["sizes"]) == layer["groups"] and layer["filled"] == sum(size > 0 for size in layer["sizes"])


def test_what_tuning_measured_is_not_drawn(monkeypatch):
    """As it is measured here: N and K are cut to multiples of 16, whatever layer it was drawn as."""
    for draw, name, key in ((drawn, "known_dense", dense_key), (drawn_groups, "known_grouped", grouped_key)):
        assert not {key(one) for one in draw(7, 40)} & getattr(scaled, name)()
        monkeypatch.setattr(scaled, name, frozenset)
        before = [key(one) for one in draw(7, 12)]
        known = {before[2], before[9]}
        monkeypatch.setattr(scaled, name, lambda known=known: frozenset(known))
        after = [key(one) for one in draw(7, 12)]
        assert len(set(after)) == 12 and after[:2] == before[:2] and not known & set(after)


def test_listed_groups_are_equal_and_as_many_rows_in_uneven_ones():
    found = listed_groups()
    assert [one["kind"] for one in found] == ["equal groups", "uneven groups"] * len(PUBLISHED)
    for (groups, rows, *_), equal, uneven in zip(PUBLISHED, found[::2], found[1::2], strict=True):
        assert equal["sizes"] == [rows] * groups and equal["m"] == sum(uneven["sizes"]) == groups * rows
        assert len(uneven["sizes"]) == groups and not any(size % 128 == 0 for size in uneven["sizes"])


def test_deep_gemm_has_columns_of_its_own_where_it_was_measured():
    blocks = [row for row in ROWS if row["recipe"] == BLOCKS]
    alike = [{**row, "peers": {**row["peers"], "DeepGEMM": us}} for row, us in zip(blocks, (9, 16, 9, 16), strict=True)]
    found = summarise(alike)
    one = found["list"]["block-wise (1x128, 128x128)"]
    assert one["mean"] == pytest.approx((1.2 * 2.7) ** 0.5) and one["beside"] == 2
    assert (one["deep"], one["deep_least"], one["deep_mean"]) == (2, pytest.approx(0.9), pytest.approx(1.2))
    assert "deep_least" not in " ".join(lines(summarise(ROWS))) and "deep_least" in " ".join(lines(found))
    assert "DeepGEMM" in own_words(found) and own_words(summarise(ROWS)) == ""
    even = [{**row, "kind": "equal groups", "filled": 8} for row in alike]
    assert "8 of 4096 rows (4096 x 7168)" in own_words(summarise(even))


def test_padded_groups_are_a_column_where_they_were_measured():
    found = summarise([{**row, "padded_us": 2 * row["ours_us"]} for row in ROWS])
    assert found["list"]["block-wise (1x128, 128x128)"]["padded"] == pytest.approx(2.0)
    assert "of padded groups" in columns(found).values() and "padded like that" in own_words(found)
    assert "of padded groups" not in columns(summarise(ROWS)).values()


def test_groups_stand_beside_torchs_and_count_rows_of_one():
    found = summarise([*ROWS, *GROUPS])
    assert list(found) == ["list", "drawn", "groups"]
    one = found["groups"]["block-wise (1x128, 128x128)"]
    assert (one["shapes"], one["beside"], one["mean"]) == (2, 2, pytest.approx(2.0))
    assert one["large_bf16"] == one["few_bf16"] == pytest.approx(1.8)  # of 1,024 rows and of 4 in each
    assert "tensor-wise, float32 sums" not in found["groups"]


def test_a_seed_draws_its_gradients_again_and_half_of_them_for_torch():
    found = gradients(7, 12)
    assert found[:8] == gradients(7, 5) and found != gradients(8, 12) and len(found) == 12 + len(GRADIENTS)
    for one in found:
        assert one["ragged"] == "K" and sum(one["sizes"]) == one["k"] and one["m"] % 16 == one["n"] % 16 == 0
        assert len(one["sizes"]) == one["groups"] and one["filled"] == sum(size > 0 for size in one["sizes"])
    odd = [any(size % 16 for size in one["sizes"]) for one in found[len(GRADIENTS) :]]
    assert 3 < sum(odd) < 9


def test_gradients_are_large_by_k_of_a_group():
    ((kind, own),) = summarise(OF_WEIGHTS).items()
    one = own["row-wise, float32 sums"]
    assert (kind, one["shapes"], one["beside"]) == ("gradients", 2, 0) and "few_bf16" not in one
    assert one["large_rate"] == pytest.approx(2 * 800 * 500 * 4 * 4096 / 10 * 1e-6)  # one of two: 4,096 in each of four
    assert one["large_bf16"] == pytest.approx(1.8)


def test_a_summary_has_each_recipe_and_way_to_add():
    found = summarise(ROWS)
    assert {kind: list(own) for kind, own in found.items()} == {
        kind: list(NAMES.values()) for kind in ("list", "drawn")
    }
    one = found["drawn"]["row-wise, fast sums"]
    assert (one["shapes"], one["least"]) == (2, pytest.approx(1.2))
    assert one["mean"] == pytest.approx((1.2 * 2.7) ** 0.5)
    assert one["large_bf16"] == one["few_bf16"] == pytest.approx(1.8)
    assert one["few_share"] == pytest.approx(1.2)  # 12 us of the 10 that were taken
    assert summarise(ROWS[:1])["list"]["tensor-wise, float32 sums"].keys() == {
        "shapes", "beside", "mean", "low", "least", "large_rate", "large_bf16",
    }  # fmt: skip
    assert any("1.80" in line for line in lines(found))


def test_a_shape_that_torch_refuses_counts_as_such():
    alone = [{**row, "peers": {}} for row in ROWS if row["m"] == 16]
    rows = [*(row for row in ROWS if row["m"] != 16), *alone]
    one = summarise(rows)["drawn"]["block-wise (1x128, 128x128)"]
    assert (one["shapes"], one["beside"]) == (2, 1) and one["mean"] == one["least"] == pytest.approx(1.2)
    assert any("1 of 2" in line for line in lines(summarise(rows)))
    only = summarise(alone)["drawn"]["block-wise (1x128, 128x128)"]
    assert "mean" not in only and only["few_bf16"] == pytest.approx(1.8)
    assert any("0 of 1" in line for line in lines(summarise(alone)))


def test_readme_shows_times_of_its_own_build_alone(tmp_path):
    report = {"build_id": "b", "date": "2026-01-03T04:05", "torch": "2.11", "seed": 3, "rows": [*ROWS, *GROUPS]}
    (tmp_path / "GPU.fp8.json").write_text(json.dumps(report))

    def origin(path, command, found):
        return f"({path.name}, {command})"

    assert scaled_words(tmp_path / "Other.json", {"b"}, origin) == []
    words = "".join(scaled_words(tmp_path / "GPU.json", {"b"}, origin))
    assert "seed 3" in words and "| 1.80 " in words
    assert "| 1.80 " not in "".join(scaled_words(tmp_path / "GPU.json", {"another"}, origin))
    item = " ".join(scaled_item(tmp_path / "GPU.json", "b").split())
    assert "over 2 drawn layers of experts: 2.00 block-wise (torch: row-wise)" in item
    assert "over 2 shapes" in item and "1.80 tensor-wise" in item
    assert "1.80 block-wise, 1.80 row-wise" in item
    refused = [{**row, "peers": {}} if row["m"] == 16 and row["recipe"] == BLOCKS else row for row in ROWS]
    report["rows"] = refused
    (tmp_path / "GPU.fp8.json").write_text(json.dumps(report))
    assert "1.20 block-wise (the 1 that torch takes)" in " ".join(scaled_item(tmp_path / "GPU.json", "b").split())
    assert scaled_item(tmp_path / "GPU.json", "another") == scaled_item(tmp_path / "Other.json", "b") == ""
    words = scaled_item(tmp_path / "GPU.json", "another", "b")  # of the tree's, below figures of another
    assert words.startswith("- **fp8 (e4m3)** (build `b`) against torch's")


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_a_committed_report_has_the_summary_of_its_rows(path):
    report = json.loads(path.read_text())
    made = summarise(report["rows"])
    assert made.keys() == report["summary"].keys() and path.read_text() == text(report)
    for kind, own in made.items():
        assert own.keys() == report["summary"][kind].keys()
        for name, one in own.items():  # Pythons differ in how sum() rounds
            assert report["summary"][kind][name] == pytest.approx(one, rel=1e-9)
