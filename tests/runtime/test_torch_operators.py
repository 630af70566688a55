"""libgemm.torch on the CPU, where a reference takes the operators' place: schemas, gradients, compilation, routing.

What the CUDA kernels compute, and what a call costs, is shown on a GPU.
"""

import itertools
import sys

import libgemm.torch
import pytest
import torch
from libgemm.frameworks.torch import functions, kernels, operators
from stand_in import run
from torch_reference import reference

pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.fixture(scope="module")
def on_cpu():
    """The operators on CPU tensors, by torch's own products."""
    for name, function in reference.items():
        getattr(operators, name).register_kernel("cpu")(function)


def random(*shape, transposed=False, dtype=torch.float64, grad=True) -> torch.Tensor:
    made = torch.randn(*shape[:-2], *(shape[-2:][::-1] if transposed else shape[-2:]), dtype=dtype)
    return (made.mT if transposed else made).detach().requires_grad_(grad)


def ends(*values: int, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


# What is packed -> operands and ends of three groups, one of them empty; rows past the last end where ends cut rows.
GROUPED = {
    "rows": lambda t, **w: (random(9, 4, **w), random(3, 4, 5, transposed=t, **w), ends(3, 3, 8)),
    "columns": lambda t, **w: (random(3, 5, 4, **w), random(4, 9, transposed=t, **w), ends(2, 2, 9)),
    "depth": lambda t, **w: (random(5, 9, transposed=t, **w), random(9, 4, **w), ends(4, 4, 9)),
    "batch": lambda t, **w: (random(3, 5, 4, transposed=t, **w), random(3, 4, 6, **w), None),
}
DENSE = {
    "plain": lambda t, **w: (random(5, 4, **w), random(4, 6, transposed=t, **w)),
    "a by columns": lambda t, **w: (random(5, 4, transposed=True, **w), random(4, 6, transposed=t, **w)),
    "batch": lambda t, **w: (random(2, 5, 4, **w), random(2, 4, 6, transposed=t, **w)),
}


@pytest.mark.parametrize("transposed", [False, True], ids=["nn", "nt"])
@pytest.mark.parametrize("name", DENSE)
def test_the_dense_operator_keeps_its_promises(name, transposed):
    a, b = DENSE[name](transposed)
    shape = (*a.shape[:-1], b.shape[-1])
    torch.library.opcheck(operators.gemm, (a, b))
    torch.library.opcheck(operators.gemm, (a, b, random(*shape), random(1, 6)[0].detach(), 0.5, 2.0, None, None))


@pytest.mark.parametrize("transposed", [False, True], ids=["nn", "nt"])
@pytest.mark.parametrize("name", GROUPED)
def test_the_grouped_operator_keeps_its_promises(name, transposed):
    a, b, offs = GROUPED[name](transposed)
    torch.library.opcheck(operators.grouped_mm, (a, b, offs, None, None, None, True))


@pytest.mark.parametrize("transposed", [False, True], ids=["nn", "nt"])
@pytest.mark.parametrize("name", DENSE)
def test_dense_gradients_are_the_derivatives(name, transposed):
    a, b = DENSE[name](transposed)
    c, bias = random(*a.shape[:-1], b.shape[-1]), random(1, b.shape[-1])[0].detach().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda a, b, c, bias: libgemm.torch.gemm(a, b, c, bias=bias, alpha=0.5, beta=2.0), (a, b, c, bias)
    )
    assert torch.autograd.gradgradcheck(libgemm.torch.gemm, (a, b))


@pytest.mark.parametrize("transposed", [False, True], ids=["nn", "nt"])
@pytest.mark.parametrize("name", GROUPED)
def test_grouped_gradients_are_the_derivatives(name, transposed):
    a, b, offs = GROUPED[name](transposed)

    def product(a, b):  # a reference leaves what is past the last end as it is: zeros here
        return operators.grouped_mm(a, b, offs, None, None, None, True)

    assert torch.autograd.gradcheck(product, (a, b))
    assert torch.autograd.gradgradcheck(product, (a, b))


@pytest.mark.parametrize("shape", [(5,), (3, 5)], ids=["one", "each"])
@pytest.mark.parametrize("name", ["rows", "batch"])
def test_a_bias_of_groups_has_its_gradient(name, shape):
    a, b, offs = GROUPED[name](False)
    bias = torch.randn(*shape[:-1], b.shape[-1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda bias: operators.grouped_mm(a, b, offs, bias, None, None, True), (bias,))


@pytest.mark.parametrize(("name", "transposed"), [*itertools.product((*DENSE, *GROUPED), (False, True))])
def test_a_gradient_is_stored_as_its_operand(name, transposed):
    dense = name in DENSE and not (name == "batch" and transposed)
    a, b, *offs = DENSE[name](transposed) if dense else GROUPED[name](transposed)
    made = libgemm.torch.grouped_mm(a, b, offs=offs[0]) if offs else libgemm.torch.gemm(a, b)
    for x, grad in zip((a, b), torch.autograd.grad(made.sum(), (a, b)), strict=True):  # backward() would copy it
        assert grad.stride() == x.stride()


def test_what_is_past_the_last_end_has_no_gradient():
    a, b, offs = GROUPED["rows"](False)
    made = libgemm.torch.grouped_mm(a, b, offs=offs)
    made[:8].sum().backward()
    assert torch.equal(a.grad[8:], torch.zeros_like(a[8:]))
    assert torch.equal(b.grad[1], torch.zeros_like(b[1]))  # an empty group's


CALLS = {
    "mm": (torch.mm, libgemm.torch.mm, ((5, 4), (4, 6)), {}),
    "bmm": (torch.bmm, libgemm.torch.bmm, ((2, 5, 4), (2, 4, 6)), {}),
    "addmm": (torch.addmm, libgemm.torch.addmm, ((5, 6), (5, 4), (4, 6)), {"beta": 0.5, "alpha": 2.0}),
    "addmm of a row": (torch.addmm, libgemm.torch.addmm, ((6,), (5, 4), (4, 6)), {}),
    "addmm of a scaled row": (torch.addmm, libgemm.torch.addmm, ((6,), (5, 4), (4, 6)), {"beta": 3.0}),
    "addmm without": (torch.addmm, libgemm.torch.addmm, ((5, 6), (5, 4), (4, 6)), {"beta": 0.0}),
    "linear": (torch.nn.functional.linear, libgemm.torch.linear, ((5, 4), (6, 4), (6,)), {}),
    "linear of a sequence": (torch.nn.functional.linear, libgemm.torch.linear, ((2, 5, 4), (6, 4)), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_have_torch_s_values_and_gradients(name):
    theirs, ours, shapes, words = CALLS[name]
    operands = [[torch.randn(shape, dtype=torch.float64) for shape in shapes]]
    operands.append([x.clone() for x in operands[0]])
    made = []
    for function, tensors in zip((theirs, ours), operands, strict=True):
        found = function(*(x.requires_grad_() for x in tensors), **words)
        (found * found).sum().backward()
        made.append([found, *(x.grad for x in tensors)])
    for wanted, got in zip(*made, strict=True):
        assert (wanted is got is None) or torch.allclose(wanted, got)


class Block(torch.nn.Module):
    """A layer of each kind."""

    def __init__(self):
        super().__init__()
        self.first = libgemm.torch.Linear(8, 16, dtype=torch.float64)
        self.experts = libgemm.torch.GroupedLinear(3, 16, 8, dtype=torch.float64)

    def forward(self, x, offs):
        return self.experts(torch.nn.functional.silu(self.first(x)), offs)


def test_a_compiled_block_has_the_values_and_gradients_of_the_eager_one():
    torch.manual_seed(0)
    block, x, offs = Block(), torch.randn(9, 8, dtype=torch.float64), ends(2, 5, 9)
    found = []
    for call in (block, torch.compile(block, fullgraph=True, backend="aot_eager")):
        block.zero_grad()
        made = call(x, offs)
        made.sum().backward()
        found.append([made, *(p.grad.clone() for p in block.parameters())])
    assert all(torch.equal(eager, compiled) for eager, compiled in zip(*found, strict=True))


def test_an_exported_block_comes_back_and_runs(tmp_path):
    block, x, offs = Block().eval(), torch.randn(9, 8, dtype=torch.float64), ends(2, 5, 9)
    rows = torch.export.Dim("rows", min=2, max=64)
    torch.export.save(torch.export.export(block, (x, offs), dynamic_shapes=({0: rows}, None)), tmp_path / "block.pt2")
    again = torch.export.load(tmp_path / "block.pt2").module()
    for count in (9, 30):
        x, offs = torch.randn(count, 8, dtype=torch.float64), ends(2, 5, count)
        assert torch.allclose(again(x, offs), block(x, offs))


def test_layers_have_torch_s_parameters():
    plain, ours = torch.nn.Linear(4, 6), libgemm.torch.Linear(4, 6)
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(3, 4)
    assert torch.allclose(ours(x), plain(x))
    layer = libgemm.torch.GroupedLinear(3, 4, 6, bias=False)
    assert [tuple(p.shape) for p in layer.parameters()] == [(3, 6, 4)] and "groups=3" in repr(layer)
    assert 0 < layer.weight.abs().max() <= 0.5


def test_a_call_that_nobody_watches_goes_past_the_dispatcher(monkeypatch):
    asked = []
    monkeypatch.setattr(kernels, "gemm", lambda *a: asked.append("gemm"))
    monkeypatch.setattr(kernels, "grouped_mm", lambda *a: asked.append("grouped_mm"))
    a, b, offs = GROUPED["rows"](False, grad=False)
    monkeypatch.setattr(functions, "is_eager", lambda *tensors: True)
    libgemm.torch.mm(a, b[0])
    libgemm.torch.grouped_mm(a, b, offs=offs)
    assert asked == ["gemm", "grouped_mm"]


class OnGpu(torch.Tensor):
    """Says that it is on a GPU."""

    is_cuda = True


class Sparse(OnGpu):
    layout = torch.sparse_coo


def test_what_watches_a_call_is_seen(monkeypatch):
    monkeypatch.setattr(functions, "PLAIN", (OnGpu,))
    x, weight = torch.randn(2, 2).as_subclass(OnGpu), torch.randn(2, 2).as_subclass(OnGpu)
    assert functions.is_eager(x, None, weight)
    weight.requires_grad_()
    assert not functions.is_eager(x, weight)
    with torch.no_grad():
        assert functions.is_eager(x, weight)
        assert not functions.is_eager(x, torch.randn(2, 2))  # of another kind, or on the CPU
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: True)
        assert not functions.is_eager(x, weight)
    monkeypatch.undo()
    monkeypatch.setattr(functions, "PLAIN", (OnGpu,))
    assert not torch.func.vmap(lambda row: functions.is_eager(x) + 0 * row)(torch.zeros(2)).any()


def test_what_libgemm_cannot_multiply_is_not_covered():
    x = torch.randn(2, 2).as_subclass(OnGpu)
    assert functions.is_covered(x, x)
    assert not functions.is_covered(x, x.double())
    assert not functions.is_covered(x, torch.randn(2, 2))
    assert not functions.is_covered(x.to(torch.int32), x.to(torch.int32))
    assert not functions.is_covered(x.as_subclass(Sparse))
    assert not torch.func.vmap(lambda row: functions.is_covered(x) + 0 * row)(torch.zeros(2)).any()


def test_autocast_casts_as_torch_s_products_do(monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    a, b = torch.randn(5, 4, requires_grad=True), torch.randn(4, 6)
    made = libgemm.torch.gemm(a, b, bias=torch.randn(6))
    made.float().sum().backward()
    assert made.dtype == torch.bfloat16 and a.grad.dtype == torch.float32
    offs = ends(2, 5)
    assert libgemm.torch.grouped_mm(a, torch.randn(2, 4, 6), offs=offs).dtype == torch.bfloat16


@pytest.mark.parametrize(("precision", "wanted"), [("highest", "ieee"), ("high", "tf32"), ("medium", "tf32")])
def test_float32_is_as_exact_as_torch_is_told(precision, wanted):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        assert functions.precision_of(torch.ones(1)) == wanted
        assert functions.precision_of(torch.ones(1, dtype=torch.bfloat16)) is None
    finally:
        torch.set_float32_matmul_precision(before)


ROUTED = {
    "mm": lambda x, w: torch.mm(x, w),
    "method": lambda x, w: x.mm(w),
    "operator": lambda x, w: x @ w,
    "matmul": lambda x, w: torch.matmul(x, w),
    "sequence": lambda x, w: torch.matmul(x.expand(2, -1, -1), w),
    "bmm": lambda x, w: torch.bmm(x[None], w[None]),
    "addmm": lambda x, w: torch.addmm(w[0], x, w, alpha=2.0),
    "linear": lambda x, w: torch.nn.functional.linear(x, w.t(), w[0]),
    "module": lambda x, w: MODULE(x),
}
MODULE = torch.nn.Linear(4, 6)


@pytest.mark.parametrize("name", ROUTED)
def test_use_routes_torch_s_own_products(name, monkeypatch):
    x, w = torch.randn(5, 4), torch.randn(4, 6)
    wanted, asked = ROUTED[name](x, w), []
    monkeypatch.setattr(functions, "is_covered", lambda *tensors: True)
    real = operators.gemm
    monkeypatch.setattr(operators, "gemm", lambda *a: asked.append(1) or real(*a))
    with libgemm.torch.use():
        made = ROUTED[name](x, w)
    assert asked and torch.allclose(made, wanted, atol=1e-5)
    ROUTED[name](x, w)
    assert len(asked) == 1


LEFT = {
    "on the CPU": lambda: torch.mm(torch.randn(2, 3), torch.randn(3, 2)),
    "integers": lambda: torch.mm(torch.ones(2, 3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.int64)),
    "a vector": lambda: torch.matmul(torch.randn(3), torch.randn(3, 2)),
    "out": lambda: torch.mm(torch.randn(2, 3), torch.randn(3, 2), out=torch.empty(2, 2)),
    "another function": lambda: torch.relu(torch.randn(3)),
}


@pytest.mark.parametrize("name", LEFT)
def test_use_leaves_the_rest_to_torch(name, monkeypatch):
    monkeypatch.setattr(operators, "gemm", lambda *a: pytest.fail("libgemm was asked"))
    if name in ("a vector", "out"):
        monkeypatch.setattr(functions, "is_covered", lambda *tensors: True)
    with libgemm.torch.use():
        LEFT[name]()


GROUPED_OF_TORCH = [x for x in (getattr(torch.nn.functional, "grouped_mm", None), torch._grouped_mm) if x]


@pytest.mark.parametrize("theirs", GROUPED_OF_TORCH, ids=lambda function: function.__name__)
def test_use_routes_torch_s_grouped_products(theirs, monkeypatch):
    a, b, offs = GROUPED["rows"](False, grad=False)
    wanted = operators.grouped_mm(a, b, offs, None, None, None, True)
    monkeypatch.setattr(functions, "is_covered", lambda *tensors: True)
    with libgemm.torch.use():
        made = theirs(a, b, offs=offs)  # of float64, which torch's own refuses
    assert torch.equal(made[:8], wanted[:8])


def test_a_torch_without_custom_operators_is_named():
    code = "import torch; del torch.library.custom_op; torch.__version__ = '2.3.0'\nimport libgemm.torch"
    done = run(sys.executable, "-c", code, driver=False)
    assert done.returncode == 1 and done.stderr.rstrip().endswith(
        "ImportError: libgemm.torch needs torch 2.4 or newer; this is 2.3.0. libgemm itself needs none"
    )


def test_the_package_alone_imports_no_torch():
    done = run(sys.executable, "-c", "import libgemm, sys; print('torch' in sys.modules)", driver=False)
    assert done.stdout == "False\n", done.stderr


def test_operands_that_cannot_be_addressed_are_copied_and_others_never(monkeypatch):
    """libgemm says which it cannot take: a call of its own kind of operands looks at nothing more."""
    seen = []

    def gemm(a, b, c, **words):
        seen.append((a.stride(), b.stride()))
        if 1 not in a.stride():
            raise libgemm.Error(1, "LIBGEMM_INVALID_ARGUMENT", "a has strides")
        return a @ b

    monkeypatch.setattr(kernels.libgemm, "gemm", gemm)
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    rest = (None, None, 1.0, 0.0, None, None)
    assert kernels.gemm(x, w, *rest).shape == (3, 5) and len(seen) == 1
    wide = torch.randn(1, 1).expand(3, 4)
    assert torch.equal(kernels.gemm(wide, w, *rest), wide.contiguous() @ w)
    assert seen[1:] == [((0, 0), (5, 1)), ((4, 1), (5, 1))]
    bias = torch.randn(1).expand(5)

    def biased(a, b, c, *, bias, **words):
        seen.append(bias.stride())
        return gemm(wide if 0 in bias.stride() else a, b, c)

    monkeypatch.setattr(kernels.libgemm, "gemm", biased)
    assert torch.equal(kernels.gemm(x, w, None, bias, *rest[2:]), x @ w) and seen[-2:] == [(1,), ((4, 1), (5, 1))]
    assert kernels.stored(bias) is bias and kernels.by_rows(None) is None
    over = torch.randn(1, 4).expand(3, 4)  # rows that lie one over the other
    assert kernels.stored(over).is_contiguous() and kernels.stored(over.t()).is_contiguous()
    assert kernels.by_rows(w.t()).is_contiguous() and kernels.stored(w.t()).data_ptr() == w.data_ptr()
    monkeypatch.setattr(kernels.libgemm, "gemm", lambda *_, **words: gemm(wide, w, None))
    with pytest.raises(libgemm.Error, match="a has strides"):  # of operands that it takes: its own reason
        kernels.gemm(x, w, *rest)
