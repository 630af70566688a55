"""Dense calls of torch tensors that differ from one before in sizes alone: no general way, and what it would launch."""

import random

import libgemm
import pytest
from calls import at, launches
from libgemm import dense
from stand_in import in_stand_in
from test_runtime_again import forbid_general_way, launched, launched_anew, refusal
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
    dense.known.forget()
    launched(operands(96, 80, 64, dtype=dtype, parts=parts))
    with pytest.MonkeyPatch.context() as monkeypatch:
        forbid_general_way(monkeypatch)
        for again in range(2):
            for call, one in zip(calls, wanted, strict=True):
                assert launched(operands(**call, dtype=dtype, parts=parts)) == one, (again, call)


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
    launched(operands(96, 80, 64))
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
    launched(operands(96, 80, 64, parts=("out", "bias")))
    before = len(launches())
    assert refusal(call) == wanted and len(launches()) == before


@in_stand_in()
def test_each_size_asks_for_its_own_workspace_once():
    install(True)
    launched(operands(64, 64, 64, by_columns=("b",)))
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
            assert len(dense.known.calls) <= 8
