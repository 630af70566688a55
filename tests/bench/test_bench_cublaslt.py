"""bench/measure/cublaslt.py: what it tells the library, on a stand-in that multiplies by columns. Times nothing."""

import ctypes
from types import SimpleNamespace

import pytest
import torch
from cublaslt_like import CublasLtLike

from bench.measure import cublaslt, dense, drawn, lt_peer
from bench.measure.cublaslt import CublasLt, Failed, Missing

LAYOUTS = ("NN", "NT", "TN", "TT")
M, N, K = 24, 40, 56


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    """torch as the wrapper needs it: a workspace and a stream."""
    like = SimpleNamespace(
        empty=lambda size, dtype, device: torch.empty(size, dtype=dtype), uint8=torch.uint8, __version__="2.0",
        cuda=SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=7)),
        version=SimpleNamespace(cuda="99.1"),
    )  # fmt: skip
    monkeypatch.setattr(cublaslt, "torch", like)
    return like


def shape(layout: str) -> dict:
    return {"m": M, "n": N, "k": K, "layout": layout}


def operands(layout: str) -> tuple:
    def matrix(rows: int, cols: int, turned: bool):
        return torch.randn(cols, rows).half().t() if turned else torch.randn(rows, cols).half()

    a, b = matrix(M, K, layout[0] == "T"), matrix(K, N, layout[1] == "T")
    return a, b, None, torch.full((M, N), float("nan")).half()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_multiplied_by_rows(layout):
    library = CublasLtLike()
    a, b, c, out = operands(layout)
    for call in CublasLt(library).candidates(shape(layout), "f16"):
        call(a, b, c, out.fill_(float("nan")))
        assert torch.allclose(out.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-2)
    assert library.calls.count("cublasLtMatmul") == 3 and library.streams == {7}


@pytest.mark.parametrize(("dtype", "number"), [("bf16", 14), ("f16", 2)])
def test_the_library_is_told_types_workspace_and_transposes(dtype, number):
    library = CublasLtLike()
    assert len(CublasLt(library).candidates(shape("NT"), dtype)) == 3
    assert library.asked == {
        "handle": "library", "what": {"compute": 68, "scale": 0, "first": "T", "second": "N"},
        "first": {"type": number, "rows": K, "cols": N, "ld": K},
        "second": {"type": number, "rows": K, "cols": M, "ld": K},
        "c": {"type": number, "rows": N, "cols": M, "ld": N}, "d": {"type": number, "rows": N, "cols": M, "ld": N},
        "preference": {"workspace": 64 << 20},
    }  # fmt: skip
    assert CublasLt(library).version == 130100


def test_results_have_the_size_of_the_header_s():
    assert ctypes.sizeof(cublaslt.Algorithm) == 64 and ctypes.sizeof(cublaslt.Candidate) == 96


def test_a_product_that_the_heuristic_does_not_know_has_no_candidates():
    assert CublasLt(CublasLtLike(found=0)).candidates(shape("NN"), "bf16") == []


def test_a_status_is_said_with_the_function_s_name():
    library = CublasLtLike(refuses=(0, 1, 2))
    with pytest.raises(Failed, match=r"cublasLtMatmul failed with status 15 \(not supported\)"):
        CublasLt(library).candidates(shape("NN"), "f16")[0](*operands("NN"))
    CublasLtLike.Create, create = lambda self, handle: 1, CublasLtLike.Create
    try:
        with pytest.raises(Failed, match=r"cublasLtCreate failed with status 1 \(not initialised\)"):
            CublasLt(library)
    finally:
        CublasLtLike.Create = create


def test_without_the_library_a_sentence_says_so(cpu):
    with pytest.raises(Missing, match=r"libcublasLt\.so\.99 of torch 2\.0 cannot be loaded: .*No such file"):
        CublasLt()
    cpu.version.cuda = None
    with pytest.raises(Missing, match=r"torch 2\.0 is built without CUDA and brings no cuBLASLt"):
        CublasLt()


def peer(a, b, c, out) -> None:
    torch.mm(a, b, out=out)


def test_the_fastest_of_those_that_run_is_taken(monkeypatch):
    times = {0: 3.0, 2: 1.0, 3: 2.0}
    monkeypatch.setattr(lt_peer, "alternate", lambda runs, inputs, floor: {name: times[name] for name in runs})
    calls = CublasLt(CublasLtLike(found=4, refuses=(1,))).candidates(shape("TN"), "f16")
    assert lt_peer.fastest(calls, [operands("TN")], 1.0, peer) is calls[2]
    calls = CublasLt(CublasLtLike(found=1, refuses=(0,))).candidates(shape("TN"), "f16")
    assert lt_peer.fastest(calls, [operands("TN")], 1.0, peer) is None


WRONG = {
    "nothing": lambda a, b, c, out: None,
    "another product": lambda a, b, c, out: out.copy_(a @ b + 1),
    "two per cent more": lambda a, b, c, out: out.copy_(1.02 * (a.float() @ b.float())),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_candidate_that_multiplies_something_else_is_no_peer_and_without_another_stops_the_run(wrong, monkeypatch):
    monkeypatch.setattr(lt_peer, "alternate", lambda runs, inputs, floor: dict.fromkeys(runs, 1.0))
    one = operands("NT")
    assert lt_peer.fastest([WRONG[wrong], peer], [one], 1.0, peer) is peer
    lt = SimpleNamespace(candidates=lambda shape, dtype: [WRONG[wrong]])
    monkeypatch.setattr(drawn.dense, "operands", lambda shape, dtype: ([one], 1.0))
    monkeypatch.setattr(drawn.dense, "calls", lambda shape, dtype: {"peer": peer})
    with pytest.raises(SystemExit, match=r"all 1 candidates of cuBLASLt that run and torch\.mm differ on .* is wrong"):
        drawn.dense_row(shape("NT"), "f16", lt, False)


def test_the_list_has_the_best_of_cublaslt_where_d_is_a_b_in_their_type(monkeypatch):
    """On the stand-in, whose candidates take 3 us and 2; libgemm and torch take 1."""
    lt = CublasLt(CublasLtLike(found=2))
    monkeypatch.setattr(lt_peer, "library", lambda: (lt, {}))
    monkeypatch.setattr(lt_peer, "alternate", lambda runs, inputs, floor: dict(zip(runs, (3.0, 2.0), strict=True)))
    asked = []

    def alternate(calls, inputs, floor):
        asked.append([*calls])
        return {name: 2.0 if name == "cublaslt" else 1.0 for name in calls}

    monkeypatch.setattr(dense, "alternate", alternate)
    monkeypatch.setattr(dense, "operands", lambda one, dtype: ([operands(one["layout"])], 1.0))
    monkeypatch.setattr(dense, "calls", lambda one, dtype: {"ours": peer, "peer": peer})
    monkeypatch.setattr(dense, "variant_of", lambda one, dtype: "a row")
    plain = {**shape("TN"), "id": "S1", "beta": 0, "out": "same"}
    assert dense.compare(plain, "f16")["cublaslt_us"] == 2.0 and asked.pop() == ["ours", "peer", "cublaslt"]
    for other, dtype in (({"beta": 2}, "f16"), ({"out": "f32"}, "f16"), ({}, "f32")):
        assert "cublaslt_us" not in dense.compare({**plain, **other}, dtype) and asked.pop() == ["ours", "peer"]
    monkeypatch.setattr(lt_peer, "library", lambda: (None, {"missing": "none here"}))
    assert "cublaslt_us" not in dense.compare(plain, "f16")
