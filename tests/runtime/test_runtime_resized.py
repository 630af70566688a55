"""Calls of torch tensors that differ from one before in sizes alone: no general way, and what it would launch."""

import itertools
import random

import libgemm
import pytest
from calls import at, launches
from libgemm import _gemm, _grouped_mm
from stand_in import in_stand_in
from test_runtime_again import forbid_general_way, launched, launched_anew, refusal
from test_runtime_packed_again import call as grouped
from test_runtime_packed_again import ends
from torch_like import Tensor, install, torch

OFTEN = 200


def operands(m: int, n: int, k: int, by_columns=(), padding: int = 0, dtype: str = "float16", parts=("out",)) -> dict:
    """Of these sizes. `by_columns`: those stored transposed; `padding`: elements between stored rows."""

    def tensor(name: str, place: int, rows: int, cols: int) -> Tensor:
        strides = (1, rows + padding) if name in by_columns else (cols + padding, 1)
        return Tensor(at(place), (rows, cols), dtype, strides=strides)

    made = {"a": tensor("a", 0, m, k), "b": tensor("b", 1, k, n), "out": None}
    if "out" in parts:
        made["out"] = tensor("out", 3, m, n)
    if "c" in parts:
        made |= {"c": tensor("c", 2, m, n), "beta": 0.5}
    if "out as c" in parts:
        made["beta"] = 0.5
    if "bias" in parts:
        made["bias"] = Tensor(at(4), (n,), dtype)
    return made


PARTS = [("out",), (), ("out", "bias"), ("out", "c"), ("c", "bias"), ("bias",), ("out", "out as c")]


@pytest.mark.parametrize("parts", PARTS, ids="-".join)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@in_stand_in()
def test_other_sizes_launch_what_they_would_anew(dtype, parts):
    install(True)
    draw = random.Random(f"{dtype} {parts}")
    calls = [
        {
            "m": draw.choice((1, 2, 7, 64, 96, 300)),
            "n": draw.choice((1, 8, 80, 256)),
            "k": draw.choice((1, 64, 4096)),
            "by_columns": draw.choice(((), ("a",), ("b",), ("a", "b"))), "padding": draw.choice((0, 0, 8, 3)),
        }
        for _ in range(40)
    ]  # fmt: skip
    wanted = [launched_anew(operands(**call, dtype=dtype, parts=parts)) for call in calls]
    _gemm.known.forget()
    launched(operands(96, 80, 64, dtype=dtype, parts=parts))
    with pytest.MonkeyPatch.context() as monkeypatch:
        forbid_general_way(monkeypatch)
        for again in range(2):
            for call, one in zip(calls, wanted, strict=True):
                assert launched(operands(**call, dtype=dtype, parts=parts)) == one, (again, call)


def keep(call: dict, function=libgemm.gemm) -> None:
    """Make a call that others can be like. The first of a process teaches the package torch, and is not kept."""
    for _ in range(2):
        launched(call, function)
    assert (_gemm if function is libgemm.gemm else _grouped_mm).known.kin


UNLIKE = {
    "another type": lambda: operands(8, 80, 64, dtype="bfloat16"),
    "no out": lambda: operands(8, 80, 64, parts=()),
    "an address off 16 bytes": lambda: {**operands(8, 80, 64), "a": Tensor(at(0) + 2, (8, 64))},
    "a batch": lambda: {**operands(8, 80, 64), "a": Tensor(at(0), (2, 8, 64)), "out": Tensor(at(3), (2, 8, 80))},
    "no rows": lambda: operands(0, 80, 64),
    "options": lambda: operands(8, 80, 64) | {"alpha": 2.0},
    "strides that are neither": lambda: {**operands(8, 80, 64), "a": Tensor(at(0), (8, 64), strides=(256, 2))},
    "an inner size": lambda: {**operands(8, 80, 64), "b": Tensor(at(1), (32, 80))},
    "out's shape": lambda: {**operands(8, 80, 64), "out": Tensor(at(3), (80, 8))},
    "out by columns": lambda: operands(8, 80, 64, by_columns=("out",)),
    "an expanded out": lambda: {**operands(8, 80, 64), "out": Tensor(at(3), (8, 80), strides=(0, 1))},
    "a bias": lambda: operands(8, 80, 64, parts=("out", "bias")),
}


@pytest.mark.parametrize("name", UNLIKE)
@in_stand_in()
def test_what_differs_in_more_goes_the_general_way(name):
    install(True)
    keep(operands(96, 80, 64))
    with pytest.MonkeyPatch.context() as monkeypatch:
        forbid_general_way(monkeypatch)
        with pytest.raises(AssertionError, match="the general way"):
            libgemm.gemm(**UNLIKE[name]())


@pytest.mark.parametrize("bad", [(81,), (80, 1)], ids=str)
@in_stand_in()
def test_a_bias_that_does_not_fit_is_refused_as_ever(bad):
    install(True)
    call = operands(8, 80, 64, parts=("out", "bias")) | {"bias": Tensor(at(4), bad)}
    wanted = refusal(call)
    keep(operands(96, 80, 64, parts=("out", "bias")))
    before = len(launches())
    assert refusal(call) == wanted and len(launches()) == before


@in_stand_in()
def test_each_size_asks_for_its_own_workspace_once():
    install(True)
    keep(operands(64, 64, 64, by_columns=("b",)))
    spaces = []
    for k in (32768, 64, 65536, 32768):
        made = len(torch.made)
        launched(operands(64, 64, k, by_columns=("b",)))
        spaces.append([one.shape for one in torch.made[made:]])
    assert spaces[1] == [] and spaces[0] == spaces[3] and len(spaces[0]) <= 1
    if spaces[0]:  # where a target splits K through the workspace
        assert spaces[2][0] >= spaces[0][0]


@in_stand_in()
def test_so_many_sizes_are_kept_and_no_more():
    install(True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("libgemm._known.MOST", 8)
        for m in range(1, OFTEN):
            launched(operands(m, 80, 64))
            assert len(_gemm.known.calls) <= 8


def stacked(place: int, count: int, rows: int, cols: int, gap: int = 0, by_columns: bool = False) -> Tensor:
    apart = rows * cols + gap
    return Tensor(at(place), (count, rows, cols), strides=(apart, 1, rows) if by_columns else (apart, cols, 1))


def flat(place: int, rows: int, cols: int) -> Tensor:
    return Tensor(at(place), (rows, cols))


# What is packed -> a call of these sizes: g groups, a gap between their matrices, B by columns or by rows.
GROUPED = {
    "rows": lambda m, n, k, g, gap, t: {"a": flat(0, m, k), "b": stacked(1, g, k, n, gap, t), "out": flat(3, m, n)},
    "columns": lambda m, n, k, g, gap, t: {"a": stacked(0, g, m, k, gap), "b": flat(1, k, n), "out": flat(3, m, n)},
    "depth": lambda m, n, k, g, gap, t: {"a": flat(0, m, k), "b": flat(1, k, n), "out": stacked(3, g, m, n, gap)},
    "depth, no out": lambda m, n, k, g, gap, t: {"a": flat(0, m, k), "b": flat(1, k, n), "out": None},
    "batch": lambda m, n, k, g, gap, t: {
        "a": stacked(0, g, m, k), "b": stacked(1, g, k, n, gap, t), "out": stacked(3, g, m, n)},
}  # fmt: skip


def packed_call(kind: str, jagged: bool, bias: bool, sizes: tuple) -> dict:
    g, n = sizes[3], sizes[1]
    made = GROUPED[kind](*sizes)
    if jagged:
        made["group_offsets"] = ends(g + 1)
    elif kind != "batch":
        made["offs"] = ends(g)
    return {**made, "bias": Tensor(at(4), (g, n))} if bias else made


def drawn_sizes(draw: random.Random) -> tuple:
    m, n, k = draw.choice((1, 7, 96, 300)), draw.choice((8, 80, 256)), draw.choice((64, 200, 1024))
    return m, n, k, draw.choice((1, 3, 8)), draw.choice((0, 64)), draw.random() < 0.5


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize(("kind", "jagged"), [*((kind, False) for kind in GROUPED), ("rows", True)])
@in_stand_in()
def test_packed_groups_of_other_sizes_launch_what_they_would_anew(kind, jagged, bias):
    install(True)
    draw, wanted = random.Random(f"{kind} {jagged} {bias}"), []
    sizes = [drawn_sizes(draw) for _ in range(30)]
    for one in sizes:
        _grouped_mm.known.forget()
        wanted.append(launched(packed_call(kind, jagged, bias, one), grouped))
    _grouped_mm.known.forget()
    launched(packed_call(kind, jagged, bias, (96, 80, 64, 5, 0, False)), grouped)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_grouped_mm, "packed_anew", lambda *_: pytest.fail("the general way"))
        for _ in range(2):
            for one, launch in zip(sizes, wanted, strict=True):
                assert launched(packed_call(kind, jagged, bias, one), grouped) == launch, one


@in_stand_in()
def test_a_batch_of_another_size_launches_what_it_would_anew():
    install(True)
    keep(operands(96, 80, 64))
    calls = [
        {"a": stacked(0, g, m, 64), "b": b, "out": stacked(3, g, m, 80, gap)}
        for g, m, gap in itertools.product((1, 2, 5), (1, 96), (0, 640))
        for b in (stacked(1, g, 64, 80), stacked(1, g, 64, 80, 128), stacked(1, g, 64, 80, 0, True))
    ]
    calls = [call | extra for call in calls for extra in ({}, {"beta": 0.5})]  # then out is C too
    wanted = [launched_anew(call) for call in calls]
    _gemm.known.forget()
    launched({"a": stacked(0, 3, 48, 64), "b": stacked(1, 3, 64, 80), "out": stacked(3, 3, 48, 80), "beta": 0.5})
    launched({"a": stacked(0, 3, 48, 64), "b": stacked(1, 3, 64, 80), "out": stacked(3, 3, 48, 80)})
    with pytest.MonkeyPatch.context() as monkeypatch:
        forbid_general_way(monkeypatch)
        for call, one in zip(calls, wanted, strict=True):
            assert launched(call) == one


UNFIT = {
    "a group too many in b": lambda: {"b": stacked(1, 4, 64, 80)},
    "an end too many": lambda: {"offs": ends(4)},
    "an inner size": lambda: {"b": stacked(1, 3, 32, 80)},
    "out's columns": lambda: {"out": flat(3, 8, 64)},
    "no columns": lambda: {"b": stacked(1, 3, 64, 0), "out": flat(3, 8, 0)},
    "ends with gaps": lambda: {"offs": Tensor(at(5), (3,), "int32", strides=(2,))},
    "bias of other groups": lambda: {"bias": Tensor(at(4), (2, 80))},
}


@pytest.mark.parametrize("name", UNFIT)
@in_stand_in()
def test_packed_groups_that_do_not_fit_go_the_general_way(name):
    install(True)
    unfit = UNFIT[name]()
    bias = "bias" in unfit
    keep(packed_call("rows", False, bias, (96, 80, 64, 3, 0, False)), grouped)
    call = packed_call("rows", False, bias, (8, 80, 64, 3, 0, False)) | unfit
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_grouped_mm, "packed_anew", lambda *_: "the general way")
        assert grouped(**call) == "the general way"
