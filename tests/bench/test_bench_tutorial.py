"""tutorial.py on a made-up tutorial: what of its file runs, what a row says, what is refused. Times nothing."""

import json

import pytest
from conftest import ROOT
from test_bench_grouped import Plain, on_cpu

from bench.measure import grouped, tutorial
from bench.report import readme

FILE = '''"""Kernels over arrays of pointers, by torch on the CPU."""
import torch
from gpu.standin_memory import view

WHERE = "cpu"
log = []
group_size = len(log)
wasted = log.append("an assignment nobody asks for")


class Kernel:
    """One that tunes itself: at a call for which it has kept nothing, all configurations run."""

    def __init__(self):
        self.configs, self.cache, self.best_config = ["slow", "fast"], {}, None

    def __call__(self, *tables, turned):
        for config in self.configs:
            log.append(config)
        if len(self.configs) > 1:
            self.cache[id(tables[0])] = self.best_config = "fast"
        multiply(*tables, turned)


def multiply(a_ptrs, b_ptrs, c_ptrs, sizes, lds, turned):
    assert sizes.dtype == lds.dtype == torch.int32 and a_ptrs.dtype == torch.int64 and WHERE == "cpu"
    rows = zip(a_ptrs.tolist(), b_ptrs.tolist(), c_ptrs.tolist(), sizes.tolist(), lds.tolist())
    for a, b, c, (m, n, k), (lda, ldb, ldc) in rows:
        y = view(b, ldb, (n, k) if turned else (k, n), torch.float16, "cpu")
        x, d = view(a, lda, (m, k), torch.float16, "cpu"), view(c, ldc, (m, n), torch.float16, "cpu")
        d.copy_(x.float() @ (y.t() if turned else y).float())


plain, tma = Kernel(), Kernel()


def group_gemm_fn(group_A, group_B):
    log.append("whole")


for i in range(3):
    raise SystemExit("a loop at the top")
if True:
    raise SystemExit("a condition at the top")


def triton_perf_fn(a_ptrs, b_ptrs, c_ptrs, sizes, lds, group_size):
    assert group_size == 4
    plain(a_ptrs, b_ptrs, c_ptrs, sizes, lds, turned=False)

'''
WITH_TMA = """
def group_gemm_tma_fn(group_A, group_B):
    log.append("memory")


def triton_tma_perf_fn(a_ptrs, b_ptrs, c_ptrs, sizes, lds, group_size, dtype):
    assert log.count("memory") and dtype == torch.float16 and group_size == 4
    tma(a_ptrs, b_ptrs, c_ptrs, sizes, lds, turned=True)

"""
END = 'raise SystemExit("a benchmark at the top")\n'


def small(n: int) -> dict:
    case = next(case for case in tutorial.CASES if case["n"] == n)
    return {**case, "m": 64, "n": 16, "k": 32}


@pytest.fixture
def rehearsed(monkeypatch, tmp_path):
    """A function from a tutorial's text to (its module, the rows of two sizes)."""
    on_cpu(monkeypatch, Plain())
    monkeypatch.setattr(tutorial, "rotations", lambda bytes_each: 3)
    monkeypatch.setattr(tutorial, "capture", lambda call, inputs: [call(*one) for one in inputs])
    monkeypatch.setattr(
        tutorial, "alternate", lambda runs, inputs, floor: dict(zip(runs, (5.0, 9.0, 8.0, 7.0), strict=False))
    )

    def measure(text: str):
        path = tmp_path / "08.py"
        path.write_text(text)
        module = tutorial.load(path)
        names = {who: name for who, name in tutorial.LAUNCHES.items() if hasattr(module, name)}
        peers = {who: tutorial.Peer(module, who) for who in names}
        tuners = tutorial.Tuners(module)
        return module, [tutorial.compare(small(n), peers, tuners) for n in (128, 1024)]

    return measure


def test_the_cases_are_the_tutorial_s_squares():
    assert [(case["id"], case["n"], case["groups"]) for case in tutorial.CASES] == [
        ("T128", 128, 4), ("T256", 256, 4), ("T512", 512, 4), ("T1024", 1024, 4),
    ]  # fmt: skip


def test_only_what_launches_is_loaded_and_each_kernel_keeps_what_it_tuned(rehearsed):
    module, rows = rehearsed(FILE + WITH_TMA + END)
    assert not hasattr(module, "group_gemm_fn") and not hasattr(module, "wasted")
    tuned = ["slow", "fast", "fast", "fast", "fast"]  # the check, and once for each of three inputs
    assert module.log == [*tuned, "memory", *tuned] * 2
    times = {"ours_us": 5.0, "loop_us": 9.0, "tutorial_us": 8.0, "tutorial_tma_us": 7.0}
    assert rows == [{"id": name, "n": 16, **times} for name in ("T128", "T1024")]
    assert tutorial.line(rows[0]).split() == ["16", "5.0", "9.0", "8.0", "7.0"]


def test_a_tutorial_without_tma_has_no_such_column(rehearsed):
    _, rows = rehearsed(FILE + END)
    assert "tutorial_tma_us" not in rows[0] and rows[0]["tutorial_us"] == 8.0
    assert tutorial.line(rows[0]).split() == ["16", "5.0", "9.0", "8.0", "-"]


def test_a_kernel_that_fails_or_is_wrong_costs_its_own_column_alone(rehearsed):
    broken = WITH_TMA.replace("    tma(a_ptrs", "    raise RuntimeError('no descriptors here')\n    tma(a_ptrs")
    _, [row, _] = rehearsed(FILE + broken + END)
    assert (row["tutorial_us"], row["tutorial_tma_us"]) == (8.0, None)
    assert row["tutorial_tma_error"] == "RuntimeError: no descriptors here" and "no descriptors" in tutorial.line(row)
    _, [row, _] = rehearsed(FILE.replace("@ (y.t()", "@ (2 * y.t()").replace(".t() if turned", ".t() if not turned")
                            .replace("(n, k) if turned else (k, n)", "(k, n)") + END)  # fmt: skip
    assert row["tutorial_us"] is None and row["tutorial_error"]
    _, [row, _] = rehearsed(FILE.replace("(y.t() if turned else y)", "(y + 1)") + END)
    assert row["tutorial_us"] is None and row["tutorial_error"] == "ArithmeticError: T128: group 0 is wrong"


def test_a_file_that_is_no_such_tutorial_is_refused(tmp_path):
    path = tmp_path / "other.py"
    with pytest.raises(SystemExit, match=r"there is no file .*other\.py: name your copy"):
        tutorial.load(path)
    path.write_text("def add():\n    pass\n")
    with pytest.raises(SystemExit, match="defines no function triton_perf_fn: it has add"):
        tutorial.load(path)


def test_the_readme_shows_the_same_build_s_times_and_says_where_there_is_another(monkeypatch, tmp_path):
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    path, report = tmp_path / "GPU.json", {"build_id": "a" * 64}
    assert readme.tutorial_words(path, report, None) == []
    rows = [{"n": 128, "ours_us": 4.5, "loop_us": 10.0, "tutorial_us": 8.12, "tutorial_tma_us": None}]
    found = {"build_id": "a" * 64, "device": "GPU", "date": "2026-01-02", "triton": "3.6.0", "rows": rows}
    (tmp_path / "GPU.tutorial.json").write_text(json.dumps(found))
    words, shown = readme.tutorial_words(path, report, None)
    assert "GPU.tutorial.json" in words and "Triton 3.6.0" in words.replace("\n", " ")
    assert "| 128 | 4.5 | 10.0 | 8.1 | - |" in shown
    (words,) = readme.tutorial_words(path, {"build_id": "b" * 64}, None)
    assert "It is **stale**: of another build than the report above" in words.replace("\n", " ")
    assert words.count("another") == 1 and "8.1" not in words


def test_its_report_is_not_taken_for_one_of_the_suites(tmp_path):
    for name in ("GPU.json", "GPU.tutorial.json"):
        (tmp_path / name).write_text("{}")
    assert readme.reports(tmp_path) == [tmp_path / "GPU.json"]
    assert (
        all(case in grouped.CASES for case in tutorial.CASES) and (ROOT / "bench" / "measure" / "tutorial.py").is_file()
    )
