"""beside.py: two packages of one name in a process, and whose calls are whose. Times nothing."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import ROOT

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from bench.measure import beside

other = beside.other_build(Path({folder!r}))
assert other.WHO == "other" and not beside.own_modules(), beside.own_modules()
sys.path.insert(0, {own!r})
import libgemm
assert libgemm.WHO == "own" and other.late() == "of other" and libgemm.late() == "of own"
"""


def package(folder, who: str) -> str:
    (folder / "libgemm").mkdir(parents=True)
    late = "def late():\n    from libgemm import _late\n    return _late.WHOSE\n"
    first = f"import libgemm._late\nfrom libgemm._late import WHOSE\nWHO = {who!r}\ndef late():\n    return WHOSE\n"
    (folder / "libgemm" / "__init__.py").write_text(first if who == "other" else f"WHO = {who!r}\n{late}")
    (folder / "libgemm" / "_late.py").write_text(f"WHOSE = 'of {who}'\n")
    return str(folder)


def test_the_other_build_is_imported_whole_and_leaves_the_name_free(tmp_path):
    folder, own = package(tmp_path / "a", "other"), package(tmp_path / "b", "own")
    program = PROGRAM.format(root=str(ROOT), folder=folder, own=own)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_folder_without_a_package_is_refused(tmp_path):
    command = [sys.executable, str(ROOT / "bench" / "measure" / "beside.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and f"{tmp_path}: there is no libgemm/__init__.py" in done.stderr
    done = subprocess.run([*command, "--suite", "dense,others"], capture_output=True, text=True)
    assert done.returncode != 0 and "there is no suite others: allowed are dense, grouped, drawn, layers" in done.stderr


@pytest.fixture
def beside(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "triton", sys.modules.get("triton"))  # which beside.py shuts out
    from bench.measure import beside, dense, experts_scaled, timing

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    made = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *size, **words: made(*size, **words | {"device": "cpu"}))
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **words: empty(*size, **words | {"device": "cpu"}))
    monkeypatch.setattr(dense, "SHAPES", [
        {"id": name, "m": 8, "n": 16, "k": 24, "layout": "NT", "beta": 0, "out": "same"} for name in ("D1", "D2")
    ])  # fmt: skip
    monkeypatch.setattr(timing, "rotations", lambda _: 1)
    seen, numbers = [], {"own": 1.0, "old": 1.0}

    def library(who: str):
        return SimpleNamespace(
            info=lambda: {"build_id": who * 32}, preload=lambda _: seen.append(f"{who} preloaded"),
            gemm=lambda a, b, c=None, out=None, **words: (seen.append(who), out.fill_(numbers[who])),
        )  # fmt: skip

    def alternate(calls, inputs, floor):
        for call in calls.values():
            call(*inputs[0])
        return {name: us for name, us in (("ours", 10.0), ("other", 12.0), ("peer", 11.0)) if name in calls}

    monkeypatch.setattr(timing, "alternate", alternate)
    own = library("own")
    monkeypatch.setitem(sys.modules, "libgemm", own)
    for module in (dense, experts_scaled):
        monkeypatch.setattr(module, "libgemm", own)
    monkeypatch.setattr(beside, "other_build", lambda _: library("old"))
    return beside, seen, numbers


def test_each_build_makes_its_own_calls_and_the_table_has_both(beside, tmp_path, monkeypatch, capsys):
    beside, seen, _ = beside
    arguments = ["beside.py", "OLD/runtime", "--suite", "dense", "--only", "D2", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    assert beside.main() == 0
    assert seen == ["own preloaded", "old preloaded", "old", "own", "old", "own", "old"]
    text = " ".join(capsys.readouterr().out.split())
    assert "D2 10.0 12.0 11.0 us 1.200" in text
    assert "dense: 1.1000 of torch, the other build 0.9167; 1.2000 of it, the same bytes in all 1" in text
    found = json.loads((tmp_path / "beside.json").read_text())
    assert found["other_build_id"] == "old" * 32 and [row["id"] for row in found["rows"]] == ["D2"]


def test_what_the_builds_do_not_write_alike_is_told_and_torch_can_be_left_out(beside, monkeypatch, capsys):
    beside, _, numbers = beside
    numbers["old"] = 1.0078125  # bfloat16's next
    monkeypatch.setattr("sys.argv", ["beside.py", "OLD/runtime", "--suite", "dense", "--alone", "--seconds", "1e-9"])
    assert beside.main() == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "D1 10.0 12.0 us 1.200 other bytes" in text and "D2" not in text
    assert "dense: 1.2000 of it, 1 of 1 with other bytes" in text


def test_layers_are_made_by_each_build_in_both_types(beside, monkeypatch, capsys):
    import torch

    from bench.measure import experts, experts_scaled

    beside, seen, numbers = beside
    own, old = sys.modules["libgemm"], beside.other_build(None)
    for who, library in (("own", own), ("old", old)):
        library.moe = lambda who=who: (seen.append(who), torch.full((2,), numbers[who]))[1]
    monkeypatch.setattr(beside, "other_build", lambda _: old)
    for name, value in {
        "MODELS": ("A", "B"), "PROMPT": 8, "DECODE": (1,), "Experts": lambda model: model,
        "choices": lambda module, tokens: (module, tokens),
    }.items():  # fmt: skip
        monkeypatch.setattr(experts, name, value)
    calls = {"fp8": lambda one: experts_scaled.libgemm.moe(), "bf16": lambda one: experts_scaled.libgemm.moe()}
    monkeypatch.setattr(experts_scaled, "calls", lambda module: {**calls, "torch": lambda one: None})
    numbers["old"] = 2.0
    monkeypatch.setattr("sys.argv", ["beside.py", "OLD/runtime", "--suite", "layers", "--only", "A 8 fp8,B 1 bf16"])
    assert beside.main() == 0
    assert seen[2:] == ["old", "own", "old", "own", "old"] * 2
    text = " ".join(capsys.readouterr().out.split())
    assert "A 8 fp8 10.0 12.0 11.0 us 1.200 other bytes" in text and "A 1" not in text
    assert "layers in bf16: 1.1000 of torch, the other build 0.9167; 1.2000 of it, 1 of 1 with other bytes" in text


def test_a_build_is_not_measured_beside_itself(beside, monkeypatch):
    beside, *_ = beside
    monkeypatch.setattr(beside, "other_build", lambda _: sys.modules["libgemm"])
    monkeypatch.setattr("sys.argv", ["beside.py", "SAME/runtime"])
    with pytest.raises(SystemExit, match="SAME/runtime is this build too"):
        beside.main()
