"""Dense calls of torch tensors that must be refused, in the same words after calls like them that were legal."""

import pytest
from calls import at, launches
from stand_in import in_stand_in
from test_runtime_again import CALLS, by_both, launched, of_rows, operands, refusal, to_e4m3
from torch_like import Meta, Parameter, Tensor, Wrapper, install, torch


def inside_vmap() -> Tensor:
    """Plain by its type, as torch's own wrappers are."""

    def data_ptr():
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    made = Tensor(at(1), (64, 80))
    made.data_ptr = data_ptr
    return made


REFUSED = {
    "a on the CPU": lambda: operands(a=Tensor(at(0), (96, 64), is_cuda=False)),
    "b on the CPU": lambda: operands(b=Tensor(at(1), (64, 80), is_cuda=False)),
    "out on the CPU": lambda: operands(out=Tensor(at(3), (96, 80), is_cuda=False)),
    "c on the CPU": lambda: operands(beta=1.0, c=Tensor(at(2), (96, 80), is_cuda=False)),
    "bias on the CPU": lambda: operands(bias=Tensor(at(4), (80,), is_cuda=False)),
    "host memory": lambda: operands(a=Tensor(4096, (96, 64))),
    "b of another gpu": lambda: operands(b=Tensor(at(1, 1), (64, 80), device=1)),
    "out of another gpu": lambda: operands(out=Tensor(at(3, 1), (96, 80), device=1)),
    "shape of b": lambda: operands(b=Tensor(at(1), (80, 64))),
    "strides of out": lambda: operands(out=Tensor(at(3), (96, 80), strides=(1, 96))),
    "dtype of b": lambda: operands(b=Tensor(at(1), (64, 80), "bfloat16")),
    "dtype of c": lambda: operands(beta=1.0, c=Tensor(at(2), (96, 80), "float32")),
    "no c": lambda: operands(beta=1.0, out=None),
    "activation": lambda: operands(activation=["silu"]),
    "precision": lambda: operands(precision="tf32"),
    "variant": lambda: operands(variant="none"),
    "out_dtype": lambda: operands(out_dtype="f32"),
    "stream": lambda: operands(stream="zero"),
    "no array": lambda: operands(b=[[1.0]]),
    "b that requires grad": lambda: operands(b=Tensor(at(1), (64, 80), requires_grad=True)),
    "a weight": lambda: operands(b=Parameter(at(1), (64, 80), requires_grad=True)),
    "out that requires grad": lambda: operands(out=Tensor(at(3), (96, 80), requires_grad=True)),
    "negated a": lambda: operands(a=Tensor(at(0), (96, 64), negated=True)),
    "negated out": lambda: operands(out=Tensor(at(3), (96, 80), negated=True)),
    "negated bias": lambda: operands(bias=Tensor(at(4), (80,), negated=True)),
    "wrapped b": lambda: operands(b=Wrapper(at(1), (64, 80))),
    "b inside torch.func": lambda: operands(b=inside_vmap()),
    "b without memory": lambda: operands(b=Tensor(0, (64, 80))),
    "bias without memory": lambda: operands(bias=Tensor(0, (80,))),
    "meta b": lambda: operands(b=Meta(0, (64, 80), is_cuda=False)),
    "a_scale that requires grad": lambda: of_rows(a_scale=Tensor(at(9), (96,), "float32", requires_grad=True)),
    "negated b_scale": lambda: of_rows(b_scale=Tensor(at(10), (80,), "float32", negated=True)),
    "b_scale on the CPU": lambda: of_rows(b_scale=Tensor(at(10), (80,), "float32", is_cuda=False)),
    "dtype of a_scale": lambda: of_rows(a_scale=Tensor(at(9), (96,), "bfloat16")),
    "d_scale that requires grad": lambda: to_e4m3(d_scale=Tensor(at(11), (), "float32", requires_grad=True)),
    "negated d_scale": lambda: to_e4m3(d_scale=Tensor(at(11), (), "float32", negated=True)),
    "d_scale on the CPU": lambda: to_e4m3(d_scale=Tensor(at(11), (), "float32", is_cuda=False)),
    "d_scale of another gpu": lambda: to_e4m3(d_scale=Tensor(at(11, 1), (), "float32", device=1)),
    "dtype of d_scale": lambda: to_e4m3(d_scale=Tensor(at(11), (), "bfloat16")),
    "shape of d_scale": lambda: to_e4m3(d_scale=Tensor(at(11), (2,), "float32")),
    "d_amax that requires grad": lambda: to_e4m3(d_amax=Tensor(at(6), (96,), "float32", requires_grad=True)),
    "d_amax on the CPU": lambda: to_e4m3(d_amax=Tensor(at(6), (96,), "float32", is_cuda=False)),
    "shape of d_amax": lambda: to_e4m3(d_amax=Tensor(at(6), (80,), "float32")),
    "strides of d_amax": lambda: to_e4m3(d_amax=Tensor(at(6), (96,), "float32", strides=(2,))),
    "dtype of d_amax": lambda: to_e4m3(d_amax=Tensor(at(6), (96,), "int32")),
    "wrapped d_scale": lambda: to_e4m3(d_scale=Wrapper(at(11), (), "float32")),
}
LEGAL = (
    "plain", "out as c", "c", "bias", "activation", "no out", "e4m3 scaled by rows", "to e4m3 over a scale",
    "to e4m3 and magnitudes",
)  # fmt: skip


@by_both
@pytest.mark.parametrize("name", REFUSED)
@in_stand_in()
def test_a_refusal_is_the_same_after_calls_that_were_legal(name, exchange):
    install(exchange)
    torch.grad = True
    wanted = refusal(REFUSED[name]())
    for legal in LEGAL:
        launched(CALLS[legal]())
        launched(CALLS[legal]())
    count = len(launches())
    assert [refusal(REFUSED[name]()) for _ in range(2)] == [wanted] * 2
    assert len(launches()) == count
    launched(CALLS["plain"]())
