"""A report with grouped rows: its sums, its words, its pictures, and what a run of one suite keeps. Times nothing."""

import json
import math
import sys

import pytest
from conftest import ROOT
from stand_in import in_stand_in

from bench.measure import dense, grouped
from bench.report import pictures, readme
from bench.report.rows import balance, beside_cublaslt, geomean, groups, parts, summarise
from bench.suites.sizes import sizes_of

CASES = {case["id"]: case for case in grouped.CASES}
OURS, PEERS = {"R12": 2.0, "T2": 3.0, "B1h": 1.25, "R09": 1.5}, {"R12": 4.0, "R16": 0.5}  # times over the floor


def rows(*dtypes: str) -> list[dict]:
    """The suite as if each row took a little more than its floor."""
    found = []
    for dtype in dtypes:
        for case in grouped.CASES:
            row = grouped.row_of(case, dtype, sizes_of(case))
            ours, peer = (row["floor_us"] * names.get(case["id"], 1.0) for names in (OURS, PEERS))
            found.append({**row, "ours_us": ours, "peer": grouped.peer_of(case, dtype), "peer_us": peer, "variant": ""})
    return found


def made_report() -> dict:
    dense = {"id": "D1", "m": 4096, "n": 4096, "k": 4096, "layout": "NT", "beta": 0, "out": "same", "op": "gemm",
             "dtype": "bf16", "ours_us": 200.0, "peer": "torch.mm", "peer_us": 220.0, "floor_us": 171.8}  # fmt: skip
    return {"build_id": "a" * 64, "device": "Some GPU", "torch": "2", "date": "2026-01-02T03:04:05", "regret": {},
            "rows": [dense, *rows("bf16", "f16")]}  # fmt: skip


def test_means_are_taken_by_operation_type_and_raggedness():
    found = summarise(rows("bf16"))
    assert {name: len(own) for name, own in parts(rows("bf16")).items()} == {
        "grouped_mm bf16": 31, "grouped_gemm bf16": 7, "grouped_gemm_jagged bf16": 2, "M-ragged bf16": 24,
        "K-ragged bf16": 4, "M-ragged bf16, a B for each group": 22, "K-ragged bf16 into float32": 2,
        "K-ragged bf16 into bf16": 2,
    }  # fmt: skip
    assert list(found) == list(parts(rows("bf16"))) and "M-ragged bf16" not in groups(rows("bf16"))
    ragged = found["M-ragged bf16"]
    assert ragged["geomean"] == pytest.approx((4 / 2 * 0.5) ** (1 / 24))  # B1h, our own case, does not count
    assert (ragged["worst"], ragged["worst_ratio"]) == ("R16", 0.5)
    assert ragged["floor_share"] == pytest.approx((1 / 2) ** (1 / 23))  # H1's floor is short
    for name, count in (("K-ragged bf16", 4), ("K-ragged bf16 into float32", 2)):
        assert found[name]["geomean"] == found[name]["floor_share"] == pytest.approx((1 / 1.5) ** (1 / count))
        assert found[name]["worst"] == "R09" and found[name]["worst_ratio"] == pytest.approx(1 / 1.5)
    assert found["K-ragged bf16 into bf16"]["geomean"] == found["K-ragged bf16 into bf16"]["floor_share"] == 1.0
    assert found["grouped_gemm bf16"]["floor_share"] == 1.0  # the others' floors are short
    assert geomean([1, 4]) == 2 and math.isnan(geomean([]))


def test_balance_compares_shares_of_the_floor_within_a_pair():
    found = balance(rows("bf16", "f16"))
    assert list(found) == [f"{name} {dtype}" for dtype in ("bf16", "f16") for name in ("R11/R12", "B1u/B1h", "B2u/B2h")]
    assert found["R11/R12 bf16"] == pytest.approx({"ours": 1 / 2, "peer": 1 / 4})
    assert found["B1u/B1h f16"] == pytest.approx({"ours": 1 / 1.25, "peer": 1.0})
    assert balance([row for row in rows("bf16") if row["id"] != "R12"]).keys() == {"B1u/B1h bf16", "B2u/B2h bf16"}


def beside_lt() -> list[dict]:
    """Dense rows of which three were measured beside cuBLASLt's best: two large ones, a short K and a long one, and a
    small one."""
    (one,) = [row for row in made_report()["rows"] if row["id"] == "D1"]
    sizes = {"D1": (4096, 4096, 4096, 400.0), "D2": (8192, 8192, 1024, 190.0), "D3": (512, 512, 512, 210.0)}
    made = [{**one, "id": name, "m": m, "n": n, "k": k, "cublaslt_us": us} for name, (m, n, k, us) in sizes.items()]
    return [*made, {**one, "id": "D4"}]


def test_the_list_is_summed_up_beside_cublaslt():
    found = beside_cublaslt([*beside_lt(), *rows("bf16")])
    assert found == {"bf16": {"shapes": 3, "geomean": pytest.approx((2.0 * 0.95 * 1.05) ** (1 / 3)), "worst": "D2",
                              "worst_ratio": 0.95, "short": {"D2": 0.95}}}  # fmt: skip
    assert beside_cublaslt(rows("bf16")) == {}
    told = {**made_report(), "cublaslt": found}
    words = "\n".join(readme.speed(ROOT / "bench" / "results" / "Some_GPU.json", told, None)).replace("\n", " ")
    peer = (
        "cuBLASLt's best, the fastest of all algorithms that its heuristic names with 64 MiB of workspace and that "
        "come within 1 % of torch.mm's result, where D is A B in their own type"
    )
    short = "large ones with K up to 1,024: 0.95 (D2)"
    assert f"Geometric mean against {peer}: 1.259 in bf16 (3 shapes, the least 0.95, D2; {short})." in words
    assert readme.cublaslt_words({}) == []


def test_the_readme_tells_grouped_products_by_kind():
    found = "\n".join(readme.speed(ROOT / "bench" / "results" / "Some_GPU.json", made_report(), None))
    plain = found.replace("\n", " ")
    peers = (
        "`torch.mm` (cuBLAS), `torch._grouped_mm`, `torch._grouped_mm + add_`, `torch.mm in a loop` (cuBLAS), "
        "`torch._grouped_mm (bf16)` and `torch._grouped_mm + add_ (bf16)` of"
    )
    assert peers in plain
    assert "leaves out shapes that would take less than 5 us, of grouped ones 10 us, there." in plain
    assert "| M-ragged f16 | 24 | 1.000 | 0.50, R16 | 0.97 |" in found
    kinds = found.partition("Grouped bf16 by kind:")[2].partition("With half")[0]
    names = [line.split("|")[1].strip() for line in kinds.splitlines() if line.startswith("| ")]
    assert names == ["kind", "large", "middle", "decode", "K-ragged", "pointer arrays"]
    assert "| pointer arrays | 7 | 0.855 | 0.33, T2 | 1.00 |" in kinds
    assert "| K-ragged | 4 | 0.904 | 0.67, R09 | 0.90 |" in kinds
    for line in ("bf16 | 4 | 0.904", "bf16 into float32 | 2 | 0.816", "bf16 into bf16 | 2 | 1.000", "f16 into f16 | 2"):
        assert f"| K-ragged {line}" in found
    words = (
        "With half of all rows in one group (R11/R12, B1u/B1h and B2u/B2h) libgemm has 0.50, 0.80 and 1.00 of the share"
    )
    assert words in plain and "equal groups, the peer 0.25, 1.00 and 1.00." in plain
    assert "| R12 | large | 65536 x 1536 x 2048 NT, 128 groups, half in one |" in found
    assert "| R09 | K-ragged | 4096 x 7168 x 32768 TN, 4 groups along K, into float32, beta = 1 |" in found
    assert "A peer marked (bf16) multiplies the same numbers in bf16" in plain and "One with add_ adds" in plain


NAMED = {
    "summary": ["grouped_mm", "grouped_gemm", "grouped_gemm_jagged", "torch.mm in a loop (cuBLAS)"],
    "ratios": ["dense products", "grouped products", "pointer arrays", "K-ragged", "torch._grouped_mm + add_", "R16<"],
    "roofline": ["gemm bf16", "grouped_mm f16", "grouped_gemm bf16", "grouped_gemm_jagged f16"],
}


def test_the_pictures_have_grouped_panels(tmp_path):
    pytest.importorskip("matplotlib")
    for name in pictures.PICTURES:
        pictures.draw(made_report(), name, tmp_path / f"{name}.svg")
        drawn = (tmp_path / f"{name}.svg").read_text()
        for words in NAMED[name]:
            assert words in drawn


def measured(monkeypatch, *names: str, dtype: str = "bf16") -> tuple[dict, list[dict]]:
    """What the alternation was asked, each call having run once, and the rows: the i-th call took 50 * i us."""
    asked = {}

    def alternate(calls, inputs, floor):
        asked.update(calls=list(calls), count=len(inputs), floor=floor, seen=[])
        for call in calls.values():
            call(*inputs[0])
        return {name: 50.0 * (i + 1) for i, name in enumerate(calls)}

    def calls(case):
        return {who: lambda one, who=who: asked["seen"].append((one, who)) for who in ("ours", "peer")}

    monkeypatch.setattr(grouped, "alternate", alternate)
    monkeypatch.setattr(grouped, "calls", calls)
    monkeypatch.setattr(grouped, "operands", lambda case, *_: case["id"])
    monkeypatch.setattr(grouped, "variant_of", lambda case, dtype: f"{case['id']} {dtype}")
    return asked, grouped.compare([CASES[name] for name in names], dtype)


def test_a_row_of_the_report(monkeypatch):
    asked, [found] = measured(monkeypatch, "R16", dtype="f16")
    assert asked == {
        "calls": [(0, "ours"), (0, "peer")], "count": 4, "floor": found["floor_us"],
        "seen": [("R16", "ours"), ("R16", "peer")],
    }  # fmt: skip
    assert {key: found[key] for key in ("id", "op", "dtype", "m", "n", "k", "groups", "ragged", "layout")} == {
        "id": "R16", "op": "grouped_mm", "dtype": "f16", "m": 8, "n": 1536, "k": 2048, "groups": 128, "ragged": "M",
        "layout": "NT",
    }  # fmt: skip
    assert (found["ours_us"], found["peer_us"], found["filled"], found["variant"]) == (50.0, 100.0, 8, "R16 f16")
    assert found["peer"] == "torch._grouped_mm (bf16)" and found["distribution"] == {"kind": "few", "experts": 8}
    peers = {name: measured(monkeypatch, name)[1][0]["peer"] for name in ("R09", "R09b", "T128")}
    assert list(peers.values()) == ["torch._grouped_mm + add_", "torch._grouped_mm", "torch.mm in a loop"]
    assert measured(monkeypatch, "R10", dtype="f16")[1][0]["peer"] == "torch._grouped_mm + add_ (bf16)"
    assert "reference_us" not in measured(monkeypatch, "T128")[1][0]
    assert measured(monkeypatch, "T128", dtype="f16")[1][0]["reference_us"] == 8.1


def test_a_pair_is_measured_in_one_alternation(monkeypatch):
    asked, found = measured(monkeypatch, "B1u", "B1h")
    assert asked["seen"] == [("B1u", "ours"), ("B1u", "peer"), ("B1h", "ours"), ("B1h", "peer")]
    assert [(row["id"], row["ours_us"], row["peer_us"], row["variant"]) for row in found] == [
        ("B1u", 50.0, 100.0, "B1u bf16"), ("B1h", 150.0, 200.0, "B1h bf16"),
    ]  # fmt: skip
    assert [row["distribution"]["kind"] for row in found] == ["equal", "half"]
    assert balance(found) == {"B1u/B1h bf16": {"ours": 1 / 3, "peer": 1 / 2}}


@in_stand_in()
def test_a_run_of_one_suite_keeps_the_other_s_rows(tmp_path):
    from bench import run

    about = {"build_id": "a", "device": "GPU", "torch": "2"}
    dense, few = made_report()["rows"][:1], made_report()["rows"][1:3]
    path = tmp_path / "GPU.json"
    path.write_text(json.dumps({**about, "host": {"x": 1}, "regret": {"median": 0}, "regret_rows": [1], "rows": dense}))
    found = run.report(about, run.kept(path, about, ["grouped"]), few, {})
    assert found["rows"] == [*dense, *few] and found["host"] == {"x": 1} and found["regret_rows"] == [1]
    ragged = ["M-ragged bf16", "M-ragged bf16, a B for each group"]
    assert list(found["summary"]) == ["gemm bf16", "grouped_mm bf16", *ragged]
    path.write_text(json.dumps({**about, "host": {"x": 1}, "rows": [*dense, *few]}))
    found = run.report(about, run.kept(path, about, ["dense"]), dense, {"host": {"x": 2}})
    assert found["rows"] == [*dense, *few] and found["host"] == {"x": 2} and found["regret"] == {}
    assert run.kept(path, {**about, "build_id": "b"}, ["dense"])["rows"] == []
    assert run.kept(path, about, list(run.SUITES))["rows"] == []


@in_stand_in()
def test_a_run_measures_what_it_is_asked_to():
    from bench import run

    asked = []
    rows = {(row["id"], row["dtype"]): row for row in made_report()["rows"]}

    def compare(cases, dtype):
        asked.append((*(case["id"] for case in cases), dtype))
        return [rows[case["id"], dtype] for case in cases]

    run.SUITES = {name: (cases, compare, types) for name, (cases, _, types) in run.SUITES.items()}
    found = run.measure(["grouped"], ["bf16", "f16", "f32"], {"R01", "T2"})
    assert asked == [(name, dtype) for name in ("R01", "T2") for dtype in ("bf16", "f16")]  # on a card as hot
    assert [row["dtype"] for row in found] == ["bf16", "bf16", "f16", "f16"]
    assert [run.suite_of(row) for row in found] == ["grouped"] * 4
    asked.clear()
    found = run.measure(["grouped"], ["bf16", "f16"], {"R11", "R12", "R13", "B1h", "B2u", "B2h"})
    few = [("R11", "R12"), ("R13",), ("B1h",), ("B2u", "B2h")]  # a pair in one alternation
    assert asked == [(*names, dtype) for names in few for dtype in ("bf16", "f16")]
    assert [row["id"] for row in found] == ["R11", "R12", "R13", "B1h", "B2u", "B2h"] * 2
    assert [len(own) for own in run.together(grouped.CASES) if "pair" in own[0]] == [2, 2, 2]
    assert {len(own) for own in run.together(dense.SHAPES)} == {1}
    for arguments, words in (("--only R01,R99", "there is no R99"), ("--suite sparse", "there is no sparse")):
        sys.argv = ["run.py", *arguments.split()]
        with pytest.raises(SystemExit, match=words):
            run.main()
