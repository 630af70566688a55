"""bench/run_drawn.py, rehearsed whole on the stand-in driver: what runs, what is written. Times nothing."""

import contextlib
import io
import json
import signal
import sys
from types import SimpleNamespace

import pytest
from built import needs
from calls import current, launches, new_stream
from conftest import ROOT
from cublaslt_like import CublasLtLike
from stand_in import in_stand_in
from torch_like import Tensor, install
from torch_like import torch as like


def idle(**words) -> CublasLtLike:
    """One that multiplies nothing: the matrices are large."""
    return CublasLtLike(multiplies=False, **words)


def turned(self, *_):
    *lead, down, right = self.strides
    *outer, rows, cols = self.shape
    return Tensor(self.pointer, (*outer, cols, rows), self.dtype.name, (*lead, right, down))


def rehearsal_torch() -> list:
    """A torch that has what the measure asks; returns what of it was called."""
    install()
    seen, full, clock = [], like.empty, iter(range(1, 10**9))

    def made(*shape, dtype=like.float32, device):
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        return full(shape, dtype=dtype, device="cuda:0" if device == "cuda" else device)

    def called(name: str):
        return lambda *operands, **words: seen.append((name, operands[0].shape))

    Tensor.to = lambda self, dtype: Tensor(self.pointer, self.shape, dtype.name, self.strides)
    Tensor.t = Tensor.transpose = turned
    Tensor.contiguous = Tensor.expand = Tensor.float = Tensor.fill_ = lambda self, *_: self
    Tensor.norm = lambda self: 1.0
    Tensor.__sub__ = lambda self, other: SimpleNamespace(norm=lambda: 0.0)
    like.empty = like.randn = like.zeros = made
    like.tensor = lambda values, device, dtype: made(len(values), dtype=dtype, device=device)
    like.mm, like._grouped_mm = called("mm"), called("_grouped_mm")
    like.manual_seed, like.__version__, like.version = seen.append, "2.0", SimpleNamespace(cuda="13.0")
    stream, of_device = new_stream(), like.cuda.current_stream
    graph = type("Graph", (), {"replay": lambda self: seen.append("replay")})
    event = {"__init__": lambda self, enable_timing: None, "record": lambda self: None,
             "synchronize": lambda self: None, "elapsed_time": lambda self, end: next(clock) / 1e3}  # fmt: skip
    vars(like.cuda).update(
        CUDAGraph=graph, graph=lambda graph: contextlib.nullcontext(), Event=type("Event", (), event),
        synchronize=lambda: None,
        Stream=lambda: SimpleNamespace(cuda_stream=stream, index=0), current_stream=lambda device=0: of_device(device),
        current_device=lambda: 0, empty_cache=lambda: None, get_device_name=lambda: "Some GPU",
        get_device_capability=lambda: (9, 0),
    )  # fmt: skip
    return seen


def program(library):
    """The program, with this cuBLASLt, all of it on the torch above."""
    from bench import run_drawn
    from bench.measure import about, cublaslt, dense, drawn, grouped, regret, timing

    for module in (about, dense, grouped, regret, timing, cublaslt, drawn, run_drawn):
        module.torch = like
    dense.DTYPES = grouped.DTYPES = {"bf16": like.bfloat16, "f16": like.float16}
    cublaslt.load = library
    return run_drawn


@needs(90)
@in_stand_in()
def test_a_run_writes_a_report(tmp_path):
    seen, library = rehearsal_torch(), idle(refuses=(1,))
    run = program(lambda: library)
    with current(0):
        assert run.main(f"--dense 8 --grouped 8 --seed 5 --best 0.5 --f16 0.25 --out {tmp_path}".split()) == 0
    report = json.loads((tmp_path / "Some_GPU.drawn.json").read_text())
    assert list(report)[:6] == ["build_id", "commit", "device", "driver", "torch", "date"] and report["seed"] == 5
    assert report["cublaslt"] == {"version": 130100, "near": 0.01} and set(report["drawn_from"]) == {
        "gemm",
        "grouped_mm",
    }
    rows = report["rows"]
    by = {(op, dtype): [row for row in rows if (row["op"], row["dtype"]) == (op, dtype)]
          for op in ("gemm", "grouped_mm") for dtype in ("bf16", "f16")}  # fmt: skip
    assert [len(own) for own in by.values()] == [8, 2, 8, 2]
    assert [row["kind"] for row in by["gemm", "bf16"]] == ["fwd", "dgrad", "wgrad", "log"] * 2
    assert [row["kind"] for row in by["grouped_mm", "bf16"]] == ["fwd", "dgrad", "wgrad", "fwd"] * 2
    for (op, dtype), own in by.items():
        for row in own:
            assert {"id", "kind", "m", "n", "k", "layout", "note", "ours_us", "torch_us", "floor_us"} <= set(row)
            assert ("cublaslt_us" in row) == (op == "gemm") and ("ragged" in row) == (op == "grouped_mm")
            assert row["variant"].startswith(f"{op}_{dtype}_{dtype}_") and row["ours_us"] > 0
        assert sum("best_variant_us" in row for row in own) == (4 if dtype == "bf16" else 0)
    assert all(row["best_variant_us"] <= row["ours_us"] for row in rows if "best_variant_us" in row)
    assert [list(kinds) for kinds in report["summary"].values()][1] == ["a sample in f16"]
    assert {name for name, _ in (one for one in seen if isinstance(one, tuple))} == {"mm", "_grouped_mm"}
    assert library.calls.count("cublasLtMatmulAlgoGetHeuristic") == 10 and len(launches()) > 100
    again = {row["id"]: row for row in rows if row["dtype"] == "bf16"}
    assert [again[one["id"]]["m"] for one in run.dense_drawn.shapes(5, 8)] == [row["m"] for row in by["gemm", "bf16"]]


@needs(90)
@in_stand_in()
def test_without_cublaslt_the_report_says_why(tmp_path):
    rehearsal_torch()
    from bench.measure.cublaslt import Missing

    def missing():
        raise Missing("there is none")

    run = program(missing)
    with current(0):
        run.main(f"--dense 3 --grouped 0 --best 0 --f16 0 --out {tmp_path}".split())
    report = json.loads((tmp_path / "Some_GPU.drawn.json").read_text())
    assert report["cublaslt"] == {"missing": "there is none"} and len(report["rows"]) == 3
    assert not any("cublaslt_us" in row or "best_variant_us" in row for row in report["rows"])


@needs(90)
@in_stand_in()
def test_a_smaller_run_writes_only_where_it_is_told(tmp_path):
    rehearsal_torch()
    run = program(idle)
    run.RESULTS = tmp_path
    with current(0):
        run.main(["--dense", "2", "--grouped", "1", "--best", "0", "--f16", "0"])
        assert list(tmp_path.iterdir()) == []
        run.DENSE, run.GROUPED = 2, 1
        run.main(["--dense", "2", "--grouped", "1", "--best", "0", "--f16", "0"])
    assert [path.name for path in tmp_path.iterdir()] == ["Some_GPU.drawn.json"]


@needs(90)
@in_stand_in()
def test_what_was_measured_when_time_was_up_is_a_fair_part_and_is_kept(tmp_path):
    rehearsal_torch()
    run = program(idle)
    run.RESULTS, run.DENSE, run.GROUPED = tmp_path / "results", 4, 2
    usual, made, whole = signal.getsignal(signal.SIGTERM), [], run.dense_row

    def third_is_the_last(*words):
        made.append(words)
        if len(made) == 3:
            signal.raise_signal(signal.SIGTERM)
        return whole(*words)

    run.dense_row = third_is_the_last
    words = ["--dense", "4", "--grouped", "2", "--best", "0", "--f16", "0", "--seed", "3"]
    with current(0):
        assert run.main([*words, "--out", str(tmp_path)]) == 0
        assert signal.getsignal(signal.SIGTERM) == usual
        report = json.loads((tmp_path / "Some_GPU.drawn.json").read_text())
        assert report["out_of_time"] == {"measured": 4, "drawn": 6}
        assert [row["op"] for row in report["rows"]] == ["gemm", "grouped_mm", "gemm", "gemm"]
        made.clear()
        run.main(words)
    assert not run.RESULTS.exists()  # where a whole one may lie


@in_stand_in()
def test_no_shape_begins_after_so_many_seconds():
    rehearsal_torch()
    run = program(idle)
    clock, now = run.Time(5), [100.0]
    clock.start = 100.0
    run.time.monotonic = lambda: now[0]
    assert not clock.up()
    now[0] = 105.0
    assert clock.up() and clock.passed == 5.0
    assert not run.Time(0).up() and run.parse([]).seconds == 0
    assert run.measure([run.dense_drawn.shapes(1, 2)], run.parse([]), None, clock.up) == ([], 0)
    assert run.in_turn([1, 2, 3, 4], ["a", "b"]) == [1, "a", 2, 3, "b", 4] and run.in_turn([], [7]) == [7]


@in_stand_in()
def test_a_row_that_fails_is_named():
    rehearsal_torch()
    run, said = program(idle), io.StringIO()

    def fails(*_):
        raise RuntimeError("out of memory")

    run.dense_row = fails
    with pytest.raises(RuntimeError, match="out of memory"), contextlib.redirect_stderr(said):
        run.measure([run.dense_drawn.shapes(1, 2)], run.parse([]), None)
    assert "failed on {'id': 'fwd 0'" in said.getvalue()


@in_stand_in()
def test_options_are_checked():
    rehearsal_torch()
    run = program(idle)
    assert run.parse([]).seed != run.parse([]).seed and run.parse(["--seed", "12"]).seed == 12
    assert (run.parse([]).dense, run.parse([]).grouped) == (300, 160)
    for arguments, words in (
        ("--dense -3", "'-3' is not a whole number from 0"), ("--seed x", "'x' is not a whole number from 0"),
        ("--best 3", "'3' is not a share from 0 to 1"), ("--f16 few", "'few' is not a share from 0 to 1"),
        ("--seconds -1", "'-1' is not a whole number from 0"),
        ("--dense 0 --grouped 0", "leaves nothing to measure"), ("--best nan", "'nan' is not a share from 0 to 1"),
    ):  # fmt: skip
        said = []
        run.argparse.ArgumentParser.error = lambda self, message, said=said: said.append(message) or sys.exit(2)
        with pytest.raises(SystemExit):
            run.parse(arguments.split())
        assert words in said[0]


def test_make_bench_draws():
    makefile = (ROOT / "Makefile").read_text()
    assert "bench/run_drawn.py" in makefile.partition("\nbench:")[2].partition("\n\n")[0]
