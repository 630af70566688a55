"""README's figures, its section "Measured" and the pictures are those of the committed reports and of dist/."""

import json
import re

import pytest
from conftest import ROOT
from made_report import DRAWN, HOST, A, B, made_report, row

from bench.report import opening, pictures, readme
from bench.report.drawn_words import drawn_table
from bench.report.rows import digest, groups, kind, label, read, summarise
from bench.report.words import parts_of
from bench.suites.roofline import floor_us, flops, traffic
from kernels.table.targets import DEFAULT_TARGETS

REPORTS = pictures.reports(ROOT / "bench" / "results")


def made_section(built: str | None = A) -> str:
    return "\n".join(readme.speed(ROOT / "bench" / "results" / "Some_GPU.json", made_report(), built))


def standing(name: str) -> str:
    return parts_of((ROOT / "README.md").read_text(), name)[1]


def test_the_readme_says_what_the_reports_say():
    # whether a report is stale fails nothing: the words about it may be those of any build in dist/
    builds = [json.loads(path.read_text())["build_id"] for path in [*REPORTS, *ROOT.glob("*/results/*.json")]]
    builds += re.findall(r"the tree's library is build `(\w+)`", " ".join(standing("measured").split()))
    assert standing("measured") in [readme.measured(built) for built in (None, B, *builds)], "run `make report`"
    shown = ["".join(readme.first_screen(path, built) for path in REPORTS) for built in (None, B, *builds)]
    assert standing("figures") in shown, "run `make report`"


def test_the_readme_counts_what_is_in_dist(dist, manifest):
    found = opening.library(dist)
    if tuple(map(int, manifest["targets"])) != DEFAULT_TARGETS:
        assert found is None and "library" not in readme.sections(dist)  # what stands in README stays
        pytest.skip("dist/ was built with TARGETS: README speaks of what `make build` gives")
    texts = [standing("library"), found]
    printed, true = (float(re.search(r"([\d.]+) MB hold", text)[1]) for text in texts)
    assert printed == pytest.approx(true, abs=0.11), (
        "run `.venv/bin/python bench/report/readme.py`"
    )  # compilers differ a little
    counts = [" ".join(re.sub(r"[\d.]+ MB hold", "", text).split()) for text in texts]
    assert counts[0] == counts[1], "run `.venv/bin/python bench/report/readme.py`"


@pytest.mark.parametrize("late", [False, True])
def test_a_suite_whose_time_was_up_says_so(late):
    path = next((ROOT / "tests" / "results").glob("gpu_*.json"))
    checks = {"variants": 7} if late else {"variants": 7, "random": 1000}  # the random problems come last
    report = {**json.loads(path.read_text()), "out_of_time": late, "checks": checks}
    words = " ".join(readme.correctness(path, report, None).split())
    assert ("Its time was up before the last checks were done." in words) == late
    assert ("1,000 random problems against float64" in words) == (not late)


def made_dist(folder, targets, variants: int = 1234) -> str | None:
    about = {"build_id": A, "targets": {str(target): {} for target in targets}, "variants": [{}] * variants}
    (folder / "manifest.json").write_text(json.dumps(about))
    (folder / "lib").mkdir(exist_ok=True)
    (folder / "lib" / "libgemm.so").write_bytes(bytes(12_340_000))
    return opening.library(folder)


def test_the_library_s_size_and_variants_are_counted(tmp_path):
    words = made_dist(tmp_path, DEFAULT_TARGETS).replace("\n", " ")
    assert "**12.3 MB hold it all**: 1,234 variants for sm_80, 86," in words
    assert "1,235 variants" in made_dist(tmp_path, DEFAULT_TARGETS, 1235)
    assert made_dist(tmp_path, (90,)) is None and opening.library(tmp_path / "none") is None


def test_the_mean_of_the_list_is_told_with_that_off_the_list():
    words = " ".join(opening.figures({**made_report(), "drawn": DRAWN}).split())
    assert "Measured on an Some GPU, 2026-01-02, build `aaaaaaaaaaaaaaaa`" in words
    assert "**Dense bf16: 2.10 times as fast as `torch.mm`** (cuBLAS), geometric mean over the benchmark's 2" in words
    assert "On other shapes nothing was measured." in " ".join(opening.figures(made_report()).split())
    means = "1.00 (forward, NT) and 0.94 (data gradient, NN)."
    other = "(**stale**: of build `bbbbbbbbbbbbbbbb`, 2026-01-03)"
    assert f"Over 3 shapes drawn at random {other}: {means}" in words
    assert f"Over 1 shapes drawn at random {other}: 1.05 (forward, B stored [N][K])." in words
    words = " ".join(opening.figures({**made_report(), "drawn": DRAWN}, DRAWN["build_id"]).split())
    assert f"Over 3 shapes drawn at random (build `bbbbbbbb`): {means}" in words
    words = " ".join(opening.figures({**made_report(), "drawn": {**DRAWN, "build_id": A}}).split())
    assert f"Over 3 shapes drawn at random: {means}" in words
    assert "**Grouped bf16: 0.50 times as fast as `torch._grouped_mm`**," in words


def test_where_rows_have_several_peers_the_mean_of_all_is_of_none():
    report = made_report()
    rows = [row for row in report["rows"] if row["op"] == "gemm" and row["dtype"] == "bf16"]
    rows[1]["peer"] = "torch.addmm"
    fast = [row["peer_us"] / row["ours_us"] for row in rows]
    words = " ".join(opening.figures(report).split())
    of_each = f"{fast[0]:.2f} against `torch.mm` (1) and {fast[1]:.2f} against `torch.addmm` (1)"
    assert f"**Dense bf16: 2.10 times as fast as torch** (cuBLAS), {of_each}, geometric mean" in words
    rows[1]["peer"] = "another"
    assert "times as fast as torch**, " in " ".join(opening.figures(report).split())


def shown(drawn: dict, built: str | None = None) -> str:
    return "\n".join(drawn_table({**made_report(), "drawn": drawn}, "some/where.json", built))


def test_drawn_shapes_are_told_by_kind():
    found, plain = shown(DRAWN), " ".join(shown(DRAWN).split())
    assert "(`some/where.json`, `make bench`)" in plain and "Some GPU, 2026-01-03, build `bbbbbbbbbbbbbbbb`" in plain
    assert "seed 7" in plain and "gemm: so and so." in plain and "grouped_mm: this and that." in plain
    assert (
        "| gemm bf16 | shapes | `torch.mm`, mean | 5th percentile | cuBLASLt's best, mean | its 5th percentile |"
        in found
    )
    assert "| forward, NT | 2 | 1.00 | 0.95 | 0.90 | 0.90 | 0.86 | 0.95 |\n" in found
    assert "| data gradient, NN | 1 | 0.94 | 0.94 | 0.85 | 0.85 | 0.86 | 1.01 |\n" in found
    assert "| grouped_mm bf16 | shapes | `torch._grouped_mm`, mean | 5th percentile | of the roofline |" in found
    assert "| forward, B stored [N][K] | 1 | 1.05 | 1.05 | 0.86 |" in found
    assert "on 1 of gemm bf16, median 5 %, 95th percentile 5 %." in plain
    assert drawn_table(made_report(), "") == []


def test_drawn_shapes_of_another_build_are_said_to_be_stale():
    words = (
        f"These figures are **stale**: build `{A[:16]}`, of the tables above, has not been measured on drawn shapes."
    )
    assert words in " ".join(shown(DRAWN).split())
    assert "stale" not in shown({**DRAWN, "build_id": A}, A)
    assert "stale" not in shown(DRAWN, DRAWN["build_id"])  # where the tables above are


def test_both_are_said_to_be_stale_where_the_tree_is_another_build():
    words = f"It is **stale**: the tree's library is build `{'c' * 16}`, of which it says nothing."
    assert words in " ".join(shown({**DRAWN, "build_id": A}, "c" * 64).split())
    opened = [
        opening.figures({**made_report(), "drawn": DRAWN}, built).splitlines()[0] for built in (None, A, "c" * 64)
    ]
    assert opened[0] == opened[1] and opened[2] == opened[0][:-1] + f" (**stale**: the tree's is `{'c' * 16}`):"


def test_without_cublaslt_the_readme_says_why():
    rows = [{key: row[key] for key in row if key != "cublaslt_us"} for row in DRAWN["rows"]]
    bound = "heuristic names of those whose result is within 1% of torch.mm's."
    assert bound in shown({**DRAWN, "rows": rows, "cublaslt": {"version": 1, "near": 0.01}}).replace("\n", " ")
    assert bound not in shown({**DRAWN, "rows": rows}).replace("\n", " ")
    found = shown({**DRAWN, "rows": rows, "cublaslt": {"missing": "it is not there"}})
    assert "cuBLASLt was not measured: it is not there." in " ".join(found.split())
    assert "| gemm bf16 | shapes | `torch.mm`, mean | 5th percentile | of the roofline |" in found


def test_what_was_drawn_is_read_from_beside_the_report(tmp_path):
    path = tmp_path / "GPU.json"
    path.write_text(json.dumps(made_report()))
    assert "drawn" not in read(path)
    (tmp_path / "GPU.drawn.json").write_text(json.dumps(DRAWN))
    assert read(path)["drawn"] == DRAWN and digest(read(path)) != digest(made_report())


def test_regret_is_told_of_what_was_asked():
    words = " ".join(made_section().split())
    assert "on 10 random dense products, median 0 %, 95th percentile 12 %; on 20 random packed products" in words
    assert readme.regret_words({"regret": {}, "regret_grouped": {}}) == []


def test_a_readme_without_its_marks_is_refused():
    with pytest.raises(SystemExit, match="lacks its marks: <!-- measured"):
        parts_of("# libgemm\n", "measured")


def test_a_report_of_another_build_is_said_to_be_one():
    words = "It is **stale**: the tree's library is build"
    assert words not in made_section(A) and words not in made_section(None)
    assert f"{words} `{B[:16]}`, of which it says nothing." in made_section(B).replace("\n", " ")


def test_operations_and_types_are_told_apart():
    found = made_section()
    assert list(groups(made_report()["rows"])) == ["gemm bf16", "gemm f32", "grouped_mm bf16"]
    assert "| gemm bf16 | 2 | 2.098 | 1.10, X1 |" in found
    assert "| grouped_mm bf16 | 1 | 0.500 | 0.50, X1 |" in found
    assert "800 TFLOP/s (bf16) or 400 TFLOP/s (f32)" in found.replace("\n", " ")
    assert "| X1 | large | 4096 x 4096 x 4096 NT, 4 groups | 200.0 | 100.0 | 0.50 |" in found
    assert "`torch._grouped_mm` of torch 2" in found.replace("\n", " ")
    assert "95th percentile 12 %" in found.replace("\n", " ")


def test_what_the_host_report_holds_is_shown_and_what_it_lacks_is_a_dash():
    found = made_section()
    assert "| 64 x 64 x 64 NN | 2.20 | 2.00 | 1.10 | 3.00 | 6.00 | 0.50 |" in found
    assert "| 512 x 512 x 512 NN | - | - | - | 3.50 | 7.00 | 0.50 |" in found
    assert HOST["note"] in found


def test_rows_say_their_work_and_their_kind():
    one = row(m=8, n=16, k=32, out="f32", beta=1)
    assert (flops(one), traffic(one)) == (2 * 8 * 16 * 32, 2 * (8 * 32 + 16 * 32) + 4 * 8 * 16 * 2)
    assert label(one) == "8 x 16 x 32 NT, into float32, beta = 1"
    assert traffic(row(groups=4)) == 2 * 6 * 4096**2
    shapes = {
        "large": {}, "small": {"m": 512, "n": 512}, "up to 256 rows": {"m": 256}, "up to 16 rows": {"n": 16},
        "C is added": {"m": 1, "beta": 2}, "unaligned": {"k": 4097, "beta": 1},
    }  # fmt: skip
    assert {name: kind(row(**shape)) for name, shape in shapes.items()} == {name: name for name in shapes}
    assert kind(row(m=1001)) == "large" and kind(row(m=1001, layout="TN")) == "unaligned"
    assert kind(row(n=4)) == "unaligned" and kind(row(n=4, dtype="f32")) == "up to 16 rows"


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_a_committed_report_has_the_floor_and_the_summary_of_its_rows(path):
    report = json.loads(path.read_text())
    assert [r["floor_us"] for r in report["rows"]] == pytest.approx([floor_us(r) for r in report["rows"]])
    assert all(found["geomean"] > 0 for found in summarise(report["rows"]).values())
