"""The runner of the GPU suite, in processes of its own on the stand-in, and what joins the reports of parts. No GPU."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.gpu import edge, edge_cast, edge_moe, edge_scaled, join, standin  # noqa: E402
from tests.gpu import together as parts  # noqa: E402


def context() -> edge.Context:
    return edge.Context(standin.StandIn(None), torch.device("cpu"), stand_in=True)


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


@pytest.mark.parametrize(("parts", "reserved", "left"), [(7, 30, 1), (7, 14, 0), (2, 30, 1), (2, 22, 0), (1, 100, 0)])
def test_a_part_leaves_memory_that_no_tensor_uses_to_the_others(monkeypatch, parts, reserved, left):
    """Of 140 GiB a part of seven has 20, and may hold a quarter of that beside the 10 in use."""
    monkeypatch.setitem(sys.modules, "triton", None)  # as run.py does, for good
    from tests.gpu import run

    emptied = []
    of_all = SimpleNamespace(total_memory=140 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: of_all)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved * 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 10 * 2**30)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    one = run.Run(SimpleNamespace(cuda=True, parts=parts, device=None), 0)
    one.add("random", [])
    assert len(emptied) == left and one.checks == {"random": 1}
    one.add("random", ["a GPU that failed gives nothing back"])
    run.Run(SimpleNamespace(cuda=False, parts=parts, device=None), 0).add("random", [])
    assert len(emptied) == left and one.failures == {"random": 1}


def test_a_runner_that_is_told_to_end_writes_what_it_found(tmp_path):
    command = [sys.executable, str(ROOT / "tests" / "gpu" / "run.py"), "--stand-in", "--out", str(tmp_path)]
    with subprocess.Popen([*command, "--only", "random", "--random", "100000"], stdout=subprocess.PIPE) as runs:
        runs.stdout.readline()  # what it runs; the next is of four seconds' work
        runs.stdout.readline()
        runs.terminate()
        assert runs.wait(60) == 0
    found = json.loads((tmp_path / "gpu_stand-in.json").read_text())
    assert found["out_of_time"] and 0 < found["passed"] < 100000 and found["failed"] == 0


def test_runner_does_a_part_and_names_what_it_runs(tmp_path):
    command = [sys.executable, str(ROOT / "tests" / "gpu" / "run.py"), "--stand-in", "--out", str(tmp_path), "--only"]
    done = subprocess.run([*command, "once", "--part", "2/3"], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "build stand-in on stand-in, sm_0: once, part 2/3"
    assert (
        sum(line.startswith("now ") for line in lines)
        == json.loads((tmp_path / "gpu_stand-in.json").read_text())["passed"]
    )
    for words in (["once", "--part", "4/3"], ["seeds", "--part", "1/2"]):
        assert subprocess.run([*command, *words], capture_output=True).returncode == 2


def test_all_that_draws_or_goes_through_the_variants_is_done_in_parts():
    """Else a part would do some of a check that no other part does the rest of."""
    code = """
import inspect, json
from tests.gpu import run
takes = ("ctx.seeds(", "chosen(ctx)", "chosen_of(ctx")
parted = [check.__name__ for check in run.EDGE if any(words in inspect.getsource(check) for words in takes)]
print(json.dumps([sorted([*parted, "random"]), sorted(run.IN_PARTS)]))
"""  # in a process of its own: the runner makes Triton absent
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    parted, told = json.loads(done.stdout)
    assert parted == told and len(told) > 10


@pytest.fixture(scope="module")
def halves(tmp_path_factory) -> list[Path]:
    """The reports of both halves of a run on the stand-in."""
    found, environment = [], {**os.environ, "OMP_NUM_THREADS": "1"}  # more only wait beside other tests
    for part in ("1/2", "2/2"):
        folder = tmp_path_factory.mktemp("half")
        command = [sys.executable, str(ROOT / "tests" / "gpu" / "run.py"), "--stand-in", "--random", "9"]
        command += ["--part", part, "--out", str(folder)]
        subprocess.run(command, check=True, capture_output=True, env=environment)
        found.append(folder / "gpu_stand-in.json")
    return found


# Of what needs no GPU those that find something to do on a GPU alone.
NOT_HERE = {
    "rows_of_any_batch", "bytes_of_any_batch", "rows_in_batches", "rows_in_groups", "scaled_operator",
    "scaled_grouped_operator", "compiled_and_exported",
}  # fmt: skip
CHECKS = """
    seeds variants ragged_rows batches specials empty many turned_groups lying_ends lying_ends_of_groups repeatable
    runs_of_variants threads errors expert_products lying_indices routes sums whole_layers layers_of_many_rows gates
    trained_layers scaled_products long_block_scales scaled_groups scales_of_no_size scales_of_d_of_no_size
    scales_of_empty_groups sums_of_bytes casts cast_products cast_rows scaled_layers weights_just_written one_token
    dense_operators grouped_operators watched_operators grouped_contract any_strides operators_promises
    gradients_of_differences random
"""


def test_an_honest_library_passes_every_check(halves):
    found = join.joined([json.loads(path.read_text()) for path in halves])
    assert (found["problems"], found["failed"]) == ([], 0)
    assert {name for name, count in found["checks"].items() if not count} == NOT_HERE
    assert set(found["checks"]) - NOT_HERE == set(CHECKS.split())


def test_parts_joined_are_the_whole(tmp_path, halves):
    assert join.main([*map(str, halves), "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "gpu_stand-in.json").read_text())
    one, two = (json.loads(path.read_text()) for path in halves)
    assert found["checks"]["random"] == 9 and (one["checks"]["random"], two["checks"]["random"]) == (5, 4)
    assert found["checks"]["seeds"] == one["checks"]["seeds"] and "seeds" not in two["checks"]
    for check in (edge_cast.casts, edge_moe.expert_products, edge_scaled.scaled_products):
        assert found["checks"][check.__name__] == sum(1 for _ in check(context())), check.__name__
    assert found["passed"] == sum(found["checks"].values())
    assert found["part"] == [1, 1] and found["seconds"] == max(one["seconds"], two["seconds"])


def together(tmp_path, *words) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "tests" / "gpu" / "together.py"), "--stand-in", "--out", str(tmp_path)]
    return subprocess.run([*command, *words], capture_output=True, text=True)


def test_parts_beside_one_another_make_one_report(tmp_path):
    done = together(tmp_path, "--jobs", "2", "--only", "random", "--random", "9", "--seed", "5")
    found = json.loads((tmp_path / "gpu_stand-in.json").read_text())
    assert done.returncode == 0 and found["part"] == [1, 1]
    assert (found["passed"], found["failed"], found["seed"], found["checks"]) == (9, 0, 5, {"random": 9})
    assert "[1] build stand-in" in done.stdout and "[2] build stand-in" in done.stdout
    done = together(tmp_path, "--jobs", "2", "--only", "random", "--random", "20", "--break-it", "drop bias")
    found = json.loads((tmp_path / "gpu_stand-in.json").read_text())
    assert done.returncode == 1 and found["failed"] and found["passed"] + found["failed"] == 20


def test_parts_that_end_without_a_report_leave_the_old_one(tmp_path):
    for words, said in (
        (["--only", "nothing"], "part 1 with status 2, part 2 with status 2 ended without a report"),
        (["--part", "1/2"], "--part is said by itself"), (["--jobs", "0"], "--jobs 0"),
    ):  # fmt: skip
        done = together(tmp_path, "--jobs", "2", *words)
        assert done.returncode == 2 and said in done.stderr and not list(tmp_path.iterdir()), words


def test_a_part_that_is_killed_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "RUNNER", [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert parts.main(["--jobs", "1", "--out", str(tmp_path)]) == 2
    assert "part 1 with status -9 ended without a report" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"build_id": "other"}, "build_id is other and stand-in"),
        ({"seed": 8}, "seed is 0 and 8"),
        ({"part": [1, 2]}, r"parts \[1, 1\] are there, of 2 each is wanted once"),
        ({"part": [2, 3]}, r"parts \[1, 2\] are there, of 2 and 3 each is wanted once"),
    ],
)
def test_what_is_not_all_parts_of_one_run_is_not_joined(halves, tmp_path, capsys, change, words):
    one, two = (json.loads(path.read_text()) for path in halves)
    other = tmp_path / "gpu_stand-in.json"
    other.write_text(json.dumps({**two, **change}))
    with pytest.raises(SystemExit):
        join.main([str(halves[0]), str(other), "--out", str(tmp_path / "out")])
    assert re.search(words, capsys.readouterr().err) and not (tmp_path / "out").exists() and one["part"] == [1, 2]


def test_a_part_that_failed_fails_the_whole(halves):
    one, two = (json.loads(path.read_text()) for path in halves)
    two |= {"failed": 1, "problems": ["casts: off"], "out_of_time": True}
    found = join.joined([two, one])
    assert (found["failed"], found["problems"], found["out_of_time"]) == (1, ["casts: off"], True)
