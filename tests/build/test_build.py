"""The build's side effects: the compile pool's limits, the cache, bad options, an interrupt. Compiles two kernels."""

import os
import signal
import subprocess
import sys
import time

import pool_work
import pytest
from sample import ROOT, sample_artifact, sample_rows

import build.__main__ as build_main
from aot.retype import float16_twin, told_by
from build.cache import Cache
from build.compile_all import BuildError, Limits, compile_all, units
from kernels.table.dtypes import DTYPES
from kernels.table.targets import DEFAULT_TARGETS, TARGETS
from kernels.table.variants import variants

ROWS = [variant for variant, _ in sample_rows()][:4]


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "artifacts", 580)


def test_artifacts_come_in_order_and_then_from_the_cache(cache):
    made = compile_all(ROWS, cache, Limits(2), pool_work.make)
    assert [a.variant for a in made] == [v.name for v in ROWS]
    assert compile_all(ROWS, cache, Limits(2), pool_work.hang) == made  # nothing is compiled again


def twins() -> tuple[list, list, list]:
    """The pointer rows of 8.0 and 8.9, and those of 8.9 that 8.0 has no twin of; of 8-bit operands, whose two ways to
    add up have one code there, one."""
    old, new = (
        [
            v
            for v in variants((t,))
            if (v.problem.layout, v.problem.op) == ("nt", "gemm") and v.problem.precision != "fast"
        ]
        for t in (80, 89)
    )
    return old, new, [v for v in new if v.compiled.name not in {o.name for o in old}]


def test_rows_that_run_a_lower_revisions_code_are_compiled_once(cache):
    old, new, own = twins()
    rows = [*old, *new]
    made = compile_all(rows, cache, Limits(2), pool_work.make)
    assert [(a.variant, a.target) for a in made] == [(v.name, v.target) for v in rows]
    # 8.9 alone of the two has tensor cores for 8-bit numbers.
    own_code = [v.target == 89 and v.problem.a == "e4m3" for v in rows]
    assert [a.architecture for a in made] == ["sm_89" if own else "sm_80" for own in own_code]
    kept = len(list(cache.folder.rglob("*.cubin")))
    assert 0 < len(own) < len(new)
    assert kept == len(old) + len(own)


def test_code_that_does_not_fit_the_higher_revisions_shared_memory_fails_the_build_by_name(cache):
    with pytest.raises(BuildError) as caught:
        compile_all(twins()[1], cache, Limits(2), pool_work.greedy)
    assert "__sm89__" in str(caught.value)
    assert f"needs {TARGETS[80].shared_bytes} bytes of shared memory; sm_89 has 101376" in str(caught.value)


def test_float16_rows_are_compiled_with_their_twins_and_alone_where_those_are_known():
    waiting = list({v.compiled.name: v.compiled for v in variants((90,))}.values())
    made = units(waiting)
    assert sorted(v.name for unit in made for v in unit) == sorted(v.name for v in waiting)
    pairs = [unit for unit in made if len(unit) == 2]
    assert all(float16_twin(one) == twin for one, twin in pairs)
    of_float16 = [v for v in waiting if v.problem.a == "f16" and float16_twin(v) is None]
    twins = {twin.name for _, twin in pairs}
    products = [v for v in of_float16 if v.problem.op in ("gemm", "grouped_gemm", "grouped_mm", "moe_mm")]
    assert len(products) > 300 and all(v.name in twins for v in products)
    assert units(of_float16) == [(v,) for v in of_float16]


def test_rows_of_one_text_are_compiled_at_once_whether_its_own_row_is_asked_for_or_not():
    """sm_100 and sm_120 take Hopper's casts; sm_120 what sm_89 multiplies by, of which float16 is bfloat16's twin."""
    for targets in (DEFAULT_TARGETS, (100, 120), (120,)):
        waiting = list({v.compiled.name: v.compiled for v in variants(targets)}.values())
        made = units(waiting)
        assert sorted(v.name for unit in made for v in unit) == sorted(v.name for v in waiting)
        number = {v.name: n for n, unit in enumerate(made) for v in unit}
        of_text = {}  # name of a row whose text others take -> the units where it and they are
        for v in waiting:
            if base := told_by(v):
                of_text.setdefault(base.name, {number[v.name]}).add(number[v.name])
                if base.name in number:
                    of_text[base.name].add(number[base.name])
        assert len(of_text) > 200 and all(len(numbers) == 1 for numbers in of_text.values())
        assert not any(unit[0].problem.a == "f16" for unit in made if len({v.problem for v in unit}) > 1)


def test_a_variant_that_does_not_compile_fails_the_build_by_name_and_the_rest_is_kept(cache):
    rows = [v for v, _ in sample_rows() if v.problem.op == "gemm"]
    rows = list({v.compiled.name: v.compiled for v in rows}.values())  # each kernel once
    bad = [v.name for v in rows if "_f16_" in v.name]
    with pytest.raises(BuildError) as caught:
        compile_all(rows, cache, Limits(2), pool_work.fail_one)
    text = str(caught.value)
    assert text.startswith(f"{len(bad)} of {len(rows)} kernels failed")
    assert [name for name in bad if f"{name}: does not compile on purpose" not in text] == []
    assert [v.name for v in rows if cache.load(v) is None] == bad


@pytest.mark.parametrize(
    ("work", "limits", "words"),
    [
        (pool_work.hang, Limits(1, seconds=1.0), "not compiled within 1 s"),
        (pool_work.swallow_memory, Limits(1, memory_bytes=1 << 30), "ran out of its 1024 MiB"),
        (pool_work.crash, Limits(1), "ran out of its 8192 MiB or crashed"),
    ],
)
def test_a_compiler_that_hangs_swells_or_crashes_is_stopped_and_named(cache, work, limits, words):
    with pytest.raises(BuildError) as caught:
        compile_all(ROWS[:1], cache, limits, work)
    assert ROWS[0].name in str(caught.value)
    assert words in str(caught.value)
    assert not list(cache.folder.rglob("*.cubin"))


def test_a_damaged_record_is_dropped_and_made_again(cache):
    variant = ROWS[0]
    cache.store(variant, sample_artifact(variant))
    path = cache.path(variant)
    (path / "kernel.cubin").write_bytes(b"cut")
    assert cache.load(variant) is None
    assert not path.exists()
    (again,) = compile_all([variant], cache, Limits(1), pool_work.make)
    assert cache.load(variant) == again


def test_a_record_that_cannot_be_written_leaves_nothing(cache, monkeypatch):
    monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        cache.store(ROWS[0], sample_artifact(ROWS[0]))
    assert [p for p in cache.folder.rglob("*") if p.is_file()] == []


INTERRUPTED = """
import signal, sys; sys.path[:0] = ["tests/support"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
from pathlib import Path
import pool_work
from build.cache import Cache
from build.compile_all import Limits, compile_all
from sample import sample_rows
if __name__ == "__main__":
    compile_all([v for v, _ in sample_rows()], Cache(Path(sys.argv[1]), 580), Limits(2), pool_work.slow)
"""


QUIET = """
import sys
from pathlib import Path
import build.compile_all as compiling
from build.cache import Cache
from kernels.table.variants import variants
compiling.MOST_TASKS = 1
if __name__ == "__main__":
    rows = [v for v in variants((90,), ("bf16",)) if v.kernel == "sm90.gemm.gemm_pingpong"]
    compiling.compile_all(rows[:2], Cache(Path(sys.argv[1]), None), compiling.Limits(1))
"""


def test_a_worker_that_has_done_its_share_ends_without_a_word(tmp_path):
    """Triton's bindings say at a usual end what Python still holds of them."""
    script = tmp_path / "quiet.py"
    script.write_text(QUIET)
    command = [sys.executable, str(script), str(tmp_path / "artifacts")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and len(list(tmp_path.rglob("*.cubin"))) == 2
    lines = done.stderr.splitlines()
    assert lines and all(line.startswith("compiled ") for line in lines)


def test_a_worker_whose_result_cannot_be_sent_is_named_at_once(cache):
    """It ends by an exception, whose status the pool reads: not one that was told to leave."""
    with pytest.raises(BuildError, match=r"compiler ran out of its .* or crashed"):  # else: not compiled within 20 s
        compile_all(ROWS[:1], cache, Limits(1, seconds=20.0), pool_work.unsendable)


def group_ends(group: int, deadline: float) -> bool:
    """Whether every process of the group is gone before the deadline."""
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_an_interrupt_leaves_whole_records_and_no_worker(tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    folder = tmp_path / "artifacts"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)], cwd=ROOT, env=env, stderr=subprocess.PIPE, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while len(list(folder.rglob("facts.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert group_ends(process.pid, time.monotonic() + 20)
    rows, cache = sample_rows(), Cache(folder, 580)
    whole = [v for v, _ in rows if cache.load(v)]
    assert 3 <= len(whole) < len(rows)
    assert len(list(folder.rglob("facts.json"))) == len(list(folder.rglob("kernel.cubin"))) == len(whole)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TARGETS", "75", "TARGETS has '75': allowed are 80, 86"),
        ("TARGETS", "90,hopper", "TARGETS has 'hopper'"),
        ("TYPES", "bf16,int8", "TYPES has 'int8': allowed are f16, bf16, f32, e4m3"),
        ("MIN_DRIVER", "470", "MIN_DRIVER = '470': allowed are 580, 525"),
        ("JOBS", "0", "JOBS = '0': allowed are 1"),
    ],
)
def test_a_bad_option_names_what_was_given_and_what_is_allowed(monkeypatch, capsys, name, value, words):
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["build"])
    assert build_main.main() == 1
    assert words in capsys.readouterr().err


def test_a_bad_compiler_is_told_before_anything_is_compiled(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CC", "no-such-cc")
    monkeypatch.setattr(sys, "argv", ["build"])
    assert build_main.main(lambda: build_main.build(tmp_path)) == 1
    assert capsys.readouterr().err.startswith("build failed: no C compiler 'no-such-cc': install gcc")
    assert not any(tmp_path.iterdir())


def test_options_meant_for_pypas_build_are_refused_with_the_right_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["build", "--wheel"])
    assert build_main.main() == 2
    assert "pyproject-build" in capsys.readouterr().err


def test_the_default_plan_has_the_default_targets(monkeypatch):
    for name in ("TARGETS", "TYPES", "MIN_DRIVER", "JOBS"):
        monkeypatch.delenv(name, raising=False)
    plan = build_main.make_plan()
    assert (plan.targets, plan.min_driver) == ((80, 86, 89, 90, 100, 120), None)
    monkeypatch.setenv("MIN_DRIVER", "580")
    assert build_main.make_plan().min_driver == 580
    monkeypatch.setenv("TARGETS", "120 80,120")
    assert build_main.make_plan().targets == (80, 120)
    assert len(variants(tuple(TARGETS))) > len(variants(plan.targets))
    assert plan.types == tuple(DTYPES)
    monkeypatch.setenv("TYPES", "e4m3 bf16")
    assert build_main.make_plan().types == ("bf16", "e4m3")
