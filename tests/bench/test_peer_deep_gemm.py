"""bench/measure/peer_deep_gemm.py by a stand-in for the peer: what it is given. No GPU, no time."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from bench.measure import peer_deep_gemm  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def looked_for_anew():
    peer_deep_gemm.library.cache_clear()
    yield
    peer_deep_gemm.library.cache_clear()


@pytest.mark.parametrize("error", [OSError, ImportError])
def test_a_peer_that_does_not_load_is_not_measured_and_said_so(monkeypatch, tmp_path, capsys, error):
    (tmp_path / "deep_gemm.py").write_text(f"raise {error.__name__}('undefined symbol: of another torch')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "deep_gemm", raising=False)
    assert peer_deep_gemm.library() is None and peer_deep_gemm.library() is None
    assert capsys.readouterr().err.count("DeepGEMM does not load and is not measured: undefined symbol") == 1


def test_a_peer_that_is_missing_is_not_measured(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "deep_gemm", None)
    assert peer_deep_gemm.dense(torch.ones(4, 1), torch.ones(1, 1), 128) is None
    assert peer_deep_gemm.grouped({}, []) is None
    monkeypatch.setattr(subprocess, "Popen", None)
    peer_deep_gemm.compile_all([{"m": 1, "n": 1, "k": 1}])  # starts nothing
    assert not capsys.readouterr().err


def test_scales_stand_by_columns_of_whole_16_bytes():
    of_a, of_b = torch.arange(15.0).view(3, 5).t(), torch.arange(8.0).view(2, 4).t()  # torch wants K of B in fours
    left, right = peer_deep_gemm.scales(of_a, of_b, 300)
    assert torch.equal(left, of_a) and left.stride() == (1, 8)
    assert torch.equal(right, of_b[:3].t()) and right.is_contiguous()


def test_groups_begin_at_multiples_and_rows_between_are_no_groups():
    rows, groups = peer_deep_gemm.padded([3, 0, 4], 4)
    assert rows.tolist() == [0, 1, 2, -1, 3, 4, 5, 6] and groups.tolist() == [0, 0, 0, -1, 2, 2, 2, 2]


@pytest.fixture
def peer(monkeypatch):
    """Multiplies as the peer would, scales included."""

    def grouped(left, right, out, groups):
        wide = left[0].float() * left[1].repeat_interleave(128, 1)[:, : left[0].shape[1]]
        for group in range(len(right[0])):
            of_b = right[1][group].repeat_interleave(128, 0)[: out.shape[1]].repeat_interleave(128, 1)
            made = wide @ (right[0][group].float() * of_b[:, : wide.shape[1]]).t()
            out[groups == group] = made.to(out.dtype)[groups == group]

    found = SimpleNamespace(
        m_grouped_fp8_gemm_nt_contiguous=grouped, get_mk_alignment_for_contiguous_layout=lambda: 8
    )  # fmt: skip
    monkeypatch.setattr(peer_deep_gemm, "library", functools.cache(lambda: found))
    return found


def test_each_of_rotated_groups_is_multiplied_by_its_own(peer):
    layer = {"sizes": [5, 0, 9], "n": 160, "k": 256}
    inputs = []
    for _ in range(2):
        a, b = torch.randn(14, 256).to(torch.float8_e4m3fn), torch.randn(3, 160, 256).to(torch.float8_e4m3fn).mT
        inputs.append((a, b, None, None, None, torch.rand(2, 14).t(), torch.rand(3, 2, 2), None))
    call, at = peer_deep_gemm.grouped(layer, inputs)
    for a, b, _, _, _, by_blocks, of_blocks, _ in inputs:
        got = call(a)[at].float()
        wide = a.float() * by_blocks.repeat_interleave(128, 1)
        for start, end, group in ((0, 5, 0), (5, 14, 2)):
            of_b = of_blocks[group].repeat_interleave(128, 0).repeat_interleave(128, 1)[:, :160]
            want = wide[start:end] @ (b[group].float() * of_b)
            assert torch.allclose(got[start:end], want, rtol=2e-2, atol=1e-1)


def test_shapes_are_shared_out_over_processes(peer, monkeypatch):
    """Each gets its own, by its standard input."""
    given = []

    class Process:
        def __init__(self, command, **words):
            assert command[1:] == ["-m", "bench.measure.peer_deep_gemm"] and words["stdin"] == subprocess.PIPE
            self.stdin = SimpleNamespace(write=lambda text: given.append(json.loads(text)), close=lambda: None)

        def wait(self):
            return 0

    monkeypatch.setattr(subprocess, "Popen", Process)
    shapes = [{"m": m, "n": 8, "k": 128, "note": "x"} for m in range(5)]
    peer_deep_gemm.compile_all(shapes, 2)
    assert [[one["m"] for one in own] for own in given] == [[0, 2, 4], [1, 3]]
    assert given[0][0] == {"m": 0, "n": 8, "k": 128, "groups": None, "sizes": None}
