"""The grouped suite: its cases, draws and floors, and that both sides of a row multiply the same. Times nothing."""

import json
import random

import libgemm
import pytest
import torch
from built import needs
from calls import current, launches
from gpu.standin import StandIn
from stand_in import in_stand_in
from torch_like import Tensor, install
from torch_like import torch as like

from bench.measure import grouped
from bench.report.rows import kind, label
from bench.suites.packed import DISTRIBUTIONS
from bench.suites.roofline import floor_us
from bench.suites.sizes import KINDS, draw_sizes, sizes_of

CASES = {case["id"]: case for case in grouped.CASES}
PUBLIC = """R01 R02 R03 R05 R06 R07 R09 R10 R11 R12 R13 R15 R16 R18 R19 R20 R21 R22 R24 R25 R26 R29 R30 R50 R51
    T128 T256 T512 T1024 T2 H1 H2"""
OWN = "B1u B1h B2u B2h R09b R10b P1 P2"
FLOORS = {  # microseconds, bf16
    "R01": 3607.8, "R02": 1803.9, "R03": 1374.4, "R05": 2405.2, "R06": 357.0, "R07": 659.4, "R09": 2405.2,
    "R10": 1202.6, "R11": 515.4, "R12": 515.4, "R13": 2061.6, "R15": 188.1, "R16": 11.7, "R18": 2061.6, "R19": 3667.6,
    "R20": 3460.3, "R21": 4810.4, "R22": 438.9, "R24": 803.5, "R25": 1744.8, "R26": 128.8, "R29": 2061.6, "R30": 874.5,
    "T128": 0.0914, "T256": 0.366, "T512": 1.463, "T1024": 10.74, "T2": 3.07, "H1": 0.130, "H2": 171.8, "R50": 118.1,
    "R51": 601.3, "B1u": 687.2, "B1h": 687.2, "B2u": 451.0, "B2h": 451.0, "R09b": 2405.2, "R10b": 1202.6,
    "P1": 343.6, "P2": 100.7,
}  # fmt: skip


def row(name: str, dtype: str = "bf16") -> dict:
    return grouped.row_of(CASES[name], dtype, sizes_of(CASES[name]))


def test_the_suite_is_whole():
    assert sorted(CASES) == sorted(f"{PUBLIC} {OWN}".split()) == sorted(FLOORS)
    assert len(CASES) == len(grouped.CASES)
    for case in CASES.values():
        assert case["op"] in ("grouped_mm", "grouped_gemm", "grouped_gemm_jagged")
        assert case["ragged"] in ("M", "K", "none") and case["layout"] in ("NT", "NN", "TN") and case["note"]
    figures = {name: case["reference_us"] for name, case in CASES.items() if "reference_us" in case}
    assert figures == {"T128": 8.1, "T256": 10.7, "T512": 13.5, "T1024": 36.1, "H1": 10.5}
    assert {case["distribution"]["kind"] for case in CASES.values()} == set(KINDS)


@pytest.mark.parametrize("name", CASES)
def test_the_sizes_of_a_case_are_exact_and_always_the_same(name):
    case = CASES[name]
    sizes = sizes_of(case)
    assert sizes == sizes_of(json.loads(json.dumps(case))) and len(sizes) == case["groups"]
    assert sum(sizes) == case["k" if case["ragged"] == "K" else "m"] and min(sizes) >= 0


def test_sizes_are_drawn_as_they_are_named():
    assert sizes_of(CASES["R06"])[:10] == [207, 215, 143, 215, 196, 148, 241, 173, 148, 189]
    assert sizes_of(CASES["H1"]) == [64, 128, 192, 256] and sizes_of(CASES["T2"]) == [1024, 512, 256, 128]
    assert sizes_of(CASES["R26"]) == [4096] * 8
    assert sorted(sizes_of(CASES["R16"])) == [0] * 120 + [1] * 8
    assert max(sizes_of(CASES["R12"])) == 32768 and sorted(sizes_of(CASES["R12"]))[-2] == 259
    assert all(size % 16 == 0 for size in sizes_of(CASES["R25"])) and len(set(sizes_of(CASES["R25"]))) > 12
    assert max(sizes_of(CASES["R24"])) <= 64  # a token goes to one expert once
    assert sizes_of(CASES["R09b"]) == sizes_of(CASES["R09"]) != sizes_of(CASES["R10"])[:4]
    uneven = sizes_of(CASES["R50"])
    assert max(uneven) > 8 * min(uneven)


def test_any_total_is_met_exactly():
    draw = random.Random(0)
    for seed in range(200):
        groups, total = draw.randint(1, 256), draw.randint(1, 65536)
        for distribution in DISTRIBUTIONS.values():
            made = distribution(total)
            assert sum(draw_sizes(groups, total, made, str(seed))) == total
    assert sum(draw_sizes(3, 7, {"kind": "between", "low": 0.7, "high": 1.3}, "")) == 7
    with pytest.raises(ValueError, match="gave 2 groups of 5 rows: 2 of 6 are needed"):
        draw_sizes(2, 6, {"kind": "exact", "sizes": [2, 3]}, "")


@pytest.mark.parametrize("name", FLOORS)
def test_a_floor_is_what_the_ends_say(name):
    assert row(name)["floor_us"] == pytest.approx(FLOORS[name], rel=0.01)
    assert row(name, "f16")["floor_us"] == row(name)["floor_us"] == floor_us(row(name))


def test_bytes_bound_floors_count_what_must_move():
    size, speed = {"m": 8, "n": 64, "k": 32, "groups": 4, "dtype": "bf16", "filled": 3}, 4.3e6
    a, b, d = 8 * 32, 32 * 64, 8 * 64
    assert floor_us({**size, "op": "grouped_mm", "ragged": "M"}) == 2 * (a + 3 * b + d) / speed
    assert floor_us({**size, "op": "grouped_gemm_jagged", "ragged": "M"}) == 2 * (a + b + d) / speed
    along_k = {**size, "op": "grouped_mm", "ragged": "K"}
    assert floor_us(along_k) == 2 * (a + b + 4 * d) / speed
    assert floor_us({**along_k, "out": "f32", "beta": 1}) == (2 * (a + b) + 2 * 4 * 4 * d) / speed


def test_rows_say_their_kind_and_their_product():
    kinds = {"R01": "large", "R06": "middle", "R07": "decode", "R09": "K-ragged", "R16": "decode", "R24": "decode",
             "R30": "decode", "T2": "pointer arrays", "H1": "middle", "H2": "large", "B1u": "middle"}  # fmt: skip
    assert {name: kind(row(name)) for name in kinds} == kinds
    assert label(row("R12")) == "65536 x 1536 x 2048 NT, 128 groups, half in one"
    assert label(row("R10b")) == "7168 x 2048 x 32768 TN, 16 groups along K"
    assert label(row("R10")) == "7168 x 2048 x 32768 TN, 16 groups along K, into float32, beta = 1"
    assert label(row("T2")) == "1024, 512, 256, 128 cubed NN, 4 groups"
    assert label(row("H2")) == "4096 x 4096 x 4096 NN, 8 groups, one B"


class Plain(StandIn):
    """Packed rows by torch, in every form that the suite has."""

    def grouped_mm(self, a, b, offs=None, *, beta=0.0, out, variant=None):
        assert offs is None or (offs.dtype == torch.int32 and offs.dim() == 1)
        ends = [None] if offs is None else offs.tolist()
        starts = [None, *ends[:-1]]
        for g, (start, end) in enumerate(zip(starts, ends, strict=True)):
            piece = slice(start, end)
            if offs is None:
                x, y, d = a, b, out
            else:
                x, y, d = (a[:, piece], b[piece], out[g]) if b.dim() == 2 else (a[piece], b[g], out[piece])
            d.copy_(x.float() @ y.float() + (beta * d.float() if beta else 0))

    def grouped_gemm_tables(self, *, aligned, **tables):
        """What is said of the tables must be so."""
        assert aligned and all((tables[x] % 8 == 0).all() for x in ("m", "n", "k", "lda", "ldb", "ldd"))
        assert all((tables[x] % 16 == 0).all() for x in "abd")
        super().grouped_gemm_tables(**tables)


def shrunk(case: dict) -> dict:
    """The same form with sizes a CPU multiplies at once."""
    small = {**case, "groups": 4, "n": 16, "k": 32}
    if "problems" in case:
        return {**small, "problems": [(8 * g, 16, 32) for g in (1, 2, 3, 4)]}
    along = "k" if case["ragged"] == "K" else "m"
    small |= {"m": 24, along: 64, "distribution": {"kind": "half" if case["ragged"] != "none" else "equal"}}
    return small


def flat(out):
    return torch.cat([x.flatten() for x in out]).float() if isinstance(out, list) else out.float()


def on_cpu(monkeypatch, library) -> None:
    monkeypatch.setattr(grouped, "libgemm", library)
    monkeypatch.setattr(grouped, "DEVICE", "cpu")


@pytest.mark.parametrize("dtype", grouped.DTYPES)
@pytest.mark.parametrize("name", ["R01", "R09", "R09b", "R30", "T128", "T2", "H1"])
def test_both_sides_multiply_the_same(name, dtype, monkeypatch):
    on_cpu(monkeypatch, Plain())
    case = shrunk(CASES[name])
    sizes = sizes_of(case) if "problems" not in case else [m for m, _, _ in case["problems"]]
    one, calls = grouped.operands(case, dtype, sizes), grouped.calls(case)
    calls["ours"](one)
    ours = flat(one.out).clone()
    calls["peer"](one)
    theirs = flat(one.out if case["op"] == "grouped_gemm" else one.kept)
    assert ours.shape == theirs.shape and (ours - theirs).norm() < 1e-2 * theirs.norm() > 0
    if case.get("beta"):  # the peer has added to the same D
        assert one.out.dtype == torch.float32 and torch.allclose(one.out, ours + theirs)
        calls["ours"](one)
        assert torch.allclose(one.out, 2 * ours + theirs, rtol=1e-4, atol=1e-4)
    if case["op"] == "grouped_mm":
        for d, exact in grouped.products(case, one, sizes):
            assert (d - exact * (1 + 2 * case.get("beta", 0))).norm() <= 1e-2 * d.norm()


def rehearsal_torch() -> None:
    """A torch that has what the operands ask."""
    install()

    def turned(self, *_):
        *lead, down, right = self.strides
        *outer, rows, cols = self.shape
        return Tensor(self.pointer, (*outer, cols, rows), self.dtype.name, (*lead, right, down))

    def made(shape, device, dtype):
        return like.empty(shape, dtype=dtype, device="cuda:0")

    Tensor.to = lambda self, dtype: self
    Tensor.transpose, Tensor.expand, Tensor.contiguous = turned, lambda self, *_: self, lambda self: self
    like.randn = like.zeros = made
    like.tensor = lambda values, device, dtype: made((len(values),), device, dtype)
    full = like.empty
    like.empty = lambda shape, *, dtype, device: full(shape, dtype=dtype, device="cuda:0")
    grouped.torch, grouped.DTYPES = like, {"bf16": like.bfloat16, "f16": like.float16}


@needs(90)
@in_stand_in()
def test_the_package_takes_the_calls():
    """What torch and the driver would see is rehearsed, with the package itself."""
    rehearsal_torch()
    with current(0):
        found = {v.name: v for v in libgemm.variants()}
        for name in ("R06", "R09", "R09b", "R16", "R30", "T128", "T2", "H1"):
            for dtype in ("bf16", "f16"):
                before = len(launches())
                one = grouped.operands(CASES[name], dtype, sizes_of(CASES[name]))
                grouped.calls(CASES[name])["ours"](one)
                assert len(launches()) == before + 1
                named = found[grouped.variant_of(CASES[name], dtype)]
                assert launches()[-1]["shared"] == named.shared_bytes, (name, named)
        assert grouped.variant_of(CASES["H2"], "bf16").startswith("gemm_bf16_bf16_bf16_nn__sm")
        assert "_align16_linear" in grouped.variant_of(CASES["T2"], "f16")
