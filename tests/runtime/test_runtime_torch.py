"""What torch means by its tensors beside their numbers: gradients, negative bits, versions, subclasses."""

import libgemm
import pytest
from calls import at
from libgemm._of_torch import version_mover
from libgemm._tensor import check_torch
from stand_in import in_stand_in
from test_runtime_again import launched, operands, refusal
from torch_like import Parameter, Tensor, install, torch


@in_stand_in()
def test_weights_are_taken_where_nothing_is_recorded():
    install()
    weight = {"b": Parameter(at(1), (64, 80), requires_grad=True)}
    wanted = launched(operands())
    assert [launched(operands(**weight)) for _ in range(3)] == [wanted] * 3
    torch.grad = True
    assert "b requires grad" in refusal(operands(**weight))


@in_stand_in()
def test_the_version_of_what_is_written_moves():
    install()
    out, a = Tensor(at(3), (96, 80)), Tensor(at(0), (96, 64))
    for count in range(1, 4):
        libgemm.gemm(**operands(a=a, out=out))
        assert (out.version, a.version) == (count, 0)
    libgemm.gemm(**operands(out=out, c=out, beta=1.0))
    assert out.version == 4
    ends = Tensor(at(5), (2,), "int32")
    libgemm.grouped_mm(a, Tensor(at(1), (2, 64, 80)), ends, out=out)
    libgemm.grouped_gemm([a], [Tensor(at(1), (64, 80))], out=[out])
    assert (out.version, a.version) == (6, 0)


torchs = pytest.importorskip("torch")


class Subclass(torchs.Tensor):
    """Has its own memory, as torch's own data type subclasses do."""


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torchs.empty(4, 4, device="cuda")


REAL = {
    "leaf": (
        lambda: torchs.ones(4, 4, requires_grad=True),
        "a requires grad, but .*torch.no_grad.* detach.*Function",
    ),
    "parameter": (lambda: torchs.nn.Parameter(torchs.ones(4, 4)), "a requires grad"),
    "view of one": (lambda: torchs.ones(4, 4, requires_grad=True).T, "a requires grad"),
    "fake": (fake, "a is a .*FakeTensor, which stands for other tensors"),
    "meta": (lambda: torchs.empty(4, 4, device="meta"), "a is a meta tensor, which has no memory"),
    "sparse": (lambda: torchs.eye(4).to_sparse(), "a has layout torch.sparse_coo: a dense tensor"),
    "negated": (lambda: torchs.ones(4, 4, dtype=torchs.complex64).conj().imag, "a is a negated view.*resolve_neg"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_tensors_that_cannot_be_read_are_refused(name):
    make, words = REAL[name]
    with pytest.raises(libgemm.Error, match=words):
        check_torch(make(), "a", torchs)


def test_real_tensors_that_can_be_read_fail_by_their_device_alone():
    with torchs.no_grad():
        for tensor in (torchs.nn.Parameter(torchs.ones(4, 4)), torchs.ones(4, 4).as_subclass(Subclass)):
            with pytest.raises(libgemm.Error, match="a is on cpu"):
                check_torch(tensor, "a", torchs)


def test_autograd_notices_that_a_saved_tensor_was_written():
    out = torchs.ones(4, requires_grad=True).exp()
    out.sum().backward(retain_graph=True)
    version_mover(torchs)([out.detach()])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    with torchs.inference_mode():
        version_mover(torchs)([torchs.ones(4)])  # has no version


def test_a_torch_whose_quick_way_takes_one_tensor_is_told_by_the_public_one():
    seen = []

    class Old:
        class autograd:
            class graph:
                increment_version = staticmethod(seen.append)

        class _C:
            @staticmethod
            def _increment_version(tensor):
                raise TypeError("a Tensor is needed")

    version_mover(Old)(["one", "two"])
    assert seen == ["one", "two"]
