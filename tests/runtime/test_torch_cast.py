"""libgemm.torch.cast and cast_transpose on the CPU, where a reference takes the operator's place: shapes, strides,
compilation, and what libgemm's own calls are told.

What the kernels compute is shown on a GPU (tests/gpu/edge_cast.py).
"""

import itertools

import libgemm
import libgemm.torch
import pytest
import torch
from libgemm.frameworks.torch import casting, kernels
from torch_reference import cast as reference

GRANULARITIES = ("tensor", "row", "1x128", "128x128")
SHAPES = ((130, 384), (3, 48, 200))


@pytest.fixture(scope="module", autouse=True)
def on_cpu():
    casting.operator.register_kernel("cpu")(reference)


def facts(made) -> list:
    return [(tuple(t.shape), t.stride(), t.dtype) for t in made]


TYPES = ((None, torch.float8_e4m3fn, 0.04), (torch.float8_e5m2, torch.float8_e5m2, 0.08))  # asked, given, error


@pytest.mark.parametrize(
    ("granularity", "shape", "kind"), list(itertools.product(GRANULARITIES, SHAPES, TYPES)), ids=str
)
def test_values_times_scales_are_what_was_cast(granularity, shape, kind):
    asked, given, most = kind
    x = torch.randn(shape, dtype=torch.bfloat16)
    values, scale, values_t, scale_t = libgemm.torch.cast_transpose(x, granularity, dtype=asked)
    assert facts(libgemm.torch.cast(x, granularity, dtype=asked)) == facts((values, scale))
    for made, own, exact in ((values, scale, x), (values_t, scale_t, x.mT)):
        assert made.dtype == given and own.dtype == torch.float32 and made.shape == exact.shape
        assert made.stride(-2) % 32 == 0 and made.stride(-1) == 1
        m, n = exact.shape[-2:]
        down = 128 if granularity == "128x128" else m if granularity == "tensor" else 1
        across = 128 if "128" in granularity else n
        own = own.reshape(*shape[:-2], 1, 1) if granularity == "tensor" else own
        each = own.repeat_interleave(down, -2)[..., :m, :].repeat_interleave(across, -1)[..., :n]
        error = (made.float() * each - exact.float()).norm() / exact.float().norm()
        assert most / 4 < error < most


@pytest.mark.parametrize(
    ("granularity", "given"), [*itertools.product(GRANULARITIES, (False,)), ("tensor", True)], ids=str
)
def test_it_compiles_whole_and_its_meta_kernel_is_right(granularity, given):
    x = torch.randn(130, 200, dtype=torch.bfloat16, requires_grad=True)
    scale = torch.rand(()) + 0.5 if given else None
    torch._dynamo.reset()
    call = torch.compile(libgemm.torch.cast_transpose, fullgraph=True, backend="aot_eager")
    for made, wanted in zip(
        call(x, granularity, scale=scale), libgemm.torch.cast_transpose(x, granularity, scale=scale), strict=True
    ):
        assert torch.equal(made.float(), wanted.float()) and made.stride() == wanted.stride()
        assert not made.requires_grad
    for transposed in (False, True):
        torch.library.opcheck(
            casting.operator, (x.detach(), granularity, torch.float8_e5m2, scale, False, transposed),
            test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_static"),
        )  # fmt: skip


def test_a_scale_that_is_given_is_returned():
    x, scale = torch.randn(32, 48), torch.tensor(0.25)
    values, own, values_t, own_t = libgemm.torch.cast_transpose(x, "tensor", scale=scale)
    assert all(t.data_ptr() == scale.data_ptr() for t in (own, own_t))
    assert torch.equal(values.float(), (x * 4).to(torch.float8_e4m3fn).float()) and torch.equal(
        values_t.float(), values.float().t()
    )


def test_the_kernels_call_has_libgemms_words(monkeypatch):
    seen = []

    def called(name: str, count: int):
        def call(*args, **words):
            seen.append((name, args, words))
            return tuple(torch.ones(i + 1) for i in range(count))

        return call

    monkeypatch.setattr(libgemm, "cast", called("cast", 2))
    monkeypatch.setattr(libgemm, "cast_transpose", called("cast_transpose", 4))
    x, scale = torch.randn(4, 6).t(), torch.ones(())
    kept = {  # granularity, a scale that is given, transposed -> which of what the call gives
        ("row", False, False): [1, 2], ("tensor", True, False): [1], ("row", False, True): [1, 2, 3, 4],
        ("1x128", False, True): [1, 2, 3, 4], ("128x128", False, True): [1, 2, 3], ("tensor", False, True): [1, 2, 3],
        ("tensor", True, True): [1, 3],
    }  # fmt: skip
    for (granularity, given, transposed), wanted in kept.items():
        made = kernels.cast(x, granularity, torch.float8_e5m2, scale if given else None, True, transposed)
        assert [len(t) for t in made] == wanted
        name, (taken, granular), words = seen[-1]
        assert name == ("cast_transpose" if transposed else "cast") and granular == granularity
        assert taken.stride() == (4, 1) and torch.equal(taken, x)  # a copy by rows
        assert words == {"dtype": torch.float8_e5m2, "scale": scale if given else None, "power_of_two": True}
