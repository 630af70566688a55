"""libgemm.torch.scaled_mm and scaled_grouped_mm on the CPU, where references take the operators' place: names,
recipes, compilation.

What the kernels compute is shown on a GPU (tests/gpu/edge_scaled.py).
"""

import importlib
import sys

import libgemm
import libgemm.torch
import pytest
import torch
from libgemm.frameworks.torch import casting, kernels, scaled
from sample import ROOT
from torch_reference import cast as cast_reference
from torch_reference import scaled_grouped_mm as grouped_reference
from torch_reference import scaled_mm as reference

TYPES = scaled.TYPES
M, N, K = 32, 48, 64


@pytest.fixture(scope="module", autouse=True)
def on_cpu():
    scaled.operator.register_kernel("cpu")(reference)
    scaled.grouped_operator.register_kernel("cpu")(grouped_reference)
    casting.operator.register_kernel("cpu")(cast_reference)


def operands() -> tuple:
    a, b = (torch.randn(shape).to(torch.float8_e4m3fn) for shape in ((M, K), (N, K)))
    return a, b.t()


def given(rows: bool, names: bool) -> dict:
    name = "RowWise" if rows else "TensorWise"
    recipe = name if names or TYPES is None else getattr(TYPES, name)
    scales = [torch.rand(shape) + 0.5 for shape in (((M, 1), (1, N)) if rows else ((), ()))]
    return {"scale_a": scales[0], "scale_recipe_a": recipe, "scale_b": scales[1], "scale_recipe_b": recipe}


@pytest.mark.parametrize("rows", [False, True], ids=["numbers", "rows"])
@pytest.mark.parametrize("names", [False, True], ids=["types", "names"])
def test_it_takes_torchs_recipes_by_type_or_name(rows, names):
    (a, b), words = operands(), given(rows, names)
    exact = (a.float() @ b.float()) * words["scale_a"] * words["scale_b"]
    made = libgemm.torch.scaled_mm(a, b, **words)
    assert made.dtype == torch.bfloat16 and torch.allclose(made.float(), exact, rtol=1e-2, atol=1e-2)
    lists = {name: [value] for name, value in words.items()}
    assert torch.equal(libgemm.torch.scaled_mm(a, b, **lists), made)
    wide = libgemm.torch.scaled_mm(a, b, **words, bias=torch.ones(N), output_dtype=torch.float32)
    assert torch.allclose(wide, exact + 1)


def test_the_output_may_have_8_bits_and_a_scale():
    (a, b), words = operands(), given(True, True)
    words["output_dtype"] = torch.float8_e4m3fn
    exact = (a.float() @ b.float()) * words["scale_a"] * words["scale_b"]
    for scale in (None, torch.tensor(0.03)):
        made = libgemm.torch.scaled_mm(a, b, **words, bias=torch.ones(N, dtype=torch.bfloat16), d_scale=scale)
        want = (exact + 1) / (1 if scale is None else scale)
        assert made.dtype == torch.float8_e4m3fn and (scale is None) == (float(want.abs().max()) < 448)
        assert torch.allclose(made.float(), want.clamp(-448, 448), rtol=0.07, atol=1e-2)
        call = torch.compile(libgemm.torch.scaled_mm, fullgraph=True, backend="aot_eager")
        again = call(a, b, **words, bias=torch.ones(N, dtype=torch.bfloat16), d_scale=scale)
        assert torch.equal(again.float(), made.float())
    torch.library.opcheck(
        scaled.operator, (a, b, words["scale_a"], words["scale_b"], "row", None, torch.float8_e4m3fn, False, scale),
        test_utils="test_faketensor",  # test_schema multiplies what comes out
    )  # fmt: skip


def test_one_operand_may_be_e5m2():
    (a, b), words = operands(), given(False, True)
    wide = a.float().to(torch.float8_e5m2)
    made = libgemm.torch.scaled_mm(wide, b, **words, output_dtype=torch.float32)
    assert torch.allclose(made, wide.float() @ b.float() * words["scale_a"] * words["scale_b"])
    compiled = torch.compile(libgemm.torch.scaled_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(wide, b, **words, output_dtype=torch.float32), made)


@pytest.mark.parametrize("rows", [False, True], ids=["numbers", "rows"])
def test_it_compiles_whole_and_has_a_meta_kernel(rows):
    (a, b), words = operands(), given(rows, False)
    call = torch.compile(libgemm.torch.scaled_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(call(a, b, **words), libgemm.torch.scaled_mm(a, b, **words))
    scaling = "row" if rows else "tensor"
    torch.library.opcheck(
        scaled.operator, (a, b, words["scale_a"], words["scale_b"], scaling), test_utils="test_faketensor"
    )


# torch's recipes, and shapes of its scales for M, N, K of 160, 160, 272
BLOCKS = [
    ("BlockWise1x128", "BlockWise128x128", (160, 3), (4, 2)),  # torch has K of B in fours
    ("BlockWise1x128", "BlockWise1x128", (160, 3), (160, 3)),
    ("BlockWise128x128", "BlockWise1x128", (2, 3), (160, 3)),
]


@pytest.mark.parametrize(("of_a", "of_b", "a_shape", "b_shape"), BLOCKS, ids=str)
def test_it_takes_scales_of_blocks_as_torch_shapes_them(of_a, of_b, a_shape, b_shape):
    a, b = torch.randn(160, 272).to(torch.float8_e4m3fn), torch.randn(160, 272).to(torch.float8_e4m3fn).t()
    a_scale, b_scale = torch.rand(a_shape[::-1]).t() + 0.5, torch.rand(b_shape[::-1]).t() + 0.5
    row = torch.arange(160)
    exact = torch.zeros(160, 160)
    for k in range(3):
        own = a[:, k * 128 : k * 128 + 128].float() @ b[k * 128 : k * 128 + 128].float()
        of_rows = a_scale[row if of_a == "BlockWise1x128" else row // 128, k]
        of_columns = b_scale[row, k] if of_b == "BlockWise1x128" else b_scale[k, row // 128]
        exact += own * of_rows[:, None] * of_columns
    made = libgemm.torch.scaled_mm(a, b, a_scale, of_a, b_scale, of_b, output_dtype=torch.float32)
    assert torch.allclose(made, exact, rtol=1e-4, atol=1e-3)
    if TYPES is not None:
        recipes = [getattr(TYPES, name) for name in (of_a, of_b)]
        again = libgemm.torch.scaled_mm(a, b, a_scale, recipes[0], b_scale, recipes[1], output_dtype=torch.float32)
        assert torch.equal(again, made)


ENDS = [10, 10, 32]


def of_groups(cut_k: bool) -> tuple[dict, torch.Tensor]:
    """A call of three groups, one of them empty, and what it gives in float32."""
    ends, count = torch.tensor(ENDS, dtype=torch.int32), len(ENDS)
    a, b = torch.randn(M, K).to(torch.float8_e4m3fn), torch.randn(count, N, K).to(torch.float8_e4m3fn).mT
    b = b[0] if cut_k else b
    a_scale, b_scale = torch.rand(count * M if cut_k else M) + 0.5, torch.rand(count * N).view(count, N) + 0.5
    exact, start = torch.zeros((count, M, N) if cut_k else (M, N)), 0
    for g, end in enumerate(ENDS):
        if cut_k:
            own = a[:, start:end].float() @ b[start:end].float()
            exact[g] = own * a_scale.view(count, M)[g][:, None] * b_scale[g]
        else:
            exact[start:end] = a[start:end].float() @ b[g].float() * a_scale[start:end, None] * b_scale[g]
        start = end
    words = {"scale_a": a_scale, "scale_recipe_a": "RowWise", "scale_recipe_b": "RowWise", "offs": ends}
    return {"mat_a": a, "mat_b": b, **words, "scale_b": b_scale.flatten() if cut_k else b_scale}, exact


@pytest.mark.parametrize("cut_k", [False, True], ids=["rows", "k"])
def test_groups_take_scales_as_torch_has_them_and_compile(cut_k):
    words, exact = of_groups(cut_k)
    made = libgemm.torch.scaled_grouped_mm(**words, output_dtype=torch.float32)
    assert torch.allclose(made, exact, rtol=1e-4, atol=1e-3)
    assert libgemm.torch.scaled_grouped_mm(**words).dtype == torch.bfloat16
    call = torch.compile(libgemm.torch.scaled_grouped_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(call(**words), libgemm.torch.scaled_grouped_mm(**words))
    given = [words[name] for name in ("mat_a", "mat_b", "offs")]
    scales = (
        [words["scale_a"].view(3, -1), words["scale_b"].view(3, -1)] if cut_k else [words["scale_a"], words["scale_b"]]
    )
    torch.library.opcheck(scaled.grouped_operator, (*given, *scales, "row"), test_utils="test_faketensor")


def test_groups_take_scales_of_blocks():
    (words, _), ends = of_groups(False), ENDS
    a_scale, b_scale = torch.rand(M, 1) + 0.5, torch.rand(3, 1, 1) + 0.5
    recipes = {"scale_recipe_a": "BlockWise1x128", "scale_recipe_b": "BlockWise128x128"}
    made = libgemm.torch.scaled_grouped_mm(**{**words, "scale_a": a_scale, "scale_b": b_scale, **recipes})
    start = 0
    for g, end in enumerate(ends):
        own = words["mat_a"][start:end].float() @ words["mat_b"][g].float() * a_scale[start:end] * b_scale[g]
        assert torch.allclose(made[start:end].float(), own, rtol=1e-2, atol=1e-2)
        start = end
    for wrong, part in (
        (
            recipes | {"scale_recipe_b": "BlockWise1x128"},
            "of groups libgemm takes BlockWise1x128 with BlockWise128x128",
        ),
        ({"swizzle_b": [1]}, "swizzle_b"),
    ):
        with pytest.raises(libgemm.Error, match=part):
            libgemm.torch.scaled_grouped_mm(**{**words, **wrong})


def test_what_it_has_not_is_refused_by_name():
    a, b = operands()
    words = given(True, False)
    mixed = words | {"scale_recipe_b": given(False, False)["scale_recipe_b"]}
    blocks = words | {"scale_recipe_a": "BlockWise128x128", "scale_recipe_b": "BlockWise128x128"}
    for wrong, part in (
        (mixed, "scale_recipe_b = .*allowed are TensorWise and TensorWise; RowWise and RowWise; BlockWise1x128 and"),
        (blocks, "scale_recipe_a = BlockWise128x128, scale_recipe_b = BlockWise128x128: allowed are"),
        (words | {"swizzle_a": 1}, "swizzle_a = 1: libgemm has none"),
        (words | {"contraction_dim": (1,)}, r"contraction_dim = \(1,\)"),
        (
            blocks | {"scale_recipe_a": "BlockWise1x128", "scale_recipe_b": "BlockWise1x128", "scale_b": torch.ones(3)},
            "scale_b =",
        ),
        (words | {"scale_a": [words["scale_a"]] * 2}, "2 scales or recipes of one operand"),
    ):
        with pytest.raises(libgemm.Error, match=part):
            libgemm.torch.scaled_mm(a, b, **wrong)


def test_the_kernels_call_has_libgemms_words(monkeypatch):
    seen = []
    monkeypatch.setattr(libgemm, "gemm", lambda *args, **words: seen.append((args, words)))
    a, b = operands()
    one = torch.ones(())
    out_scale = torch.ones(())
    kernels.scaled_mm(a, b, one, one, "tensor", None, torch.float16, True, out_scale)
    ((args, words),) = seen
    assert args[0] is a and args[1] is b
    assert words == {
        "bias": None, "a_scale": one, "b_scale": one, "scaling": "tensor", "out_dtype": torch.float16,
        "precision": "fast", "d_scale": out_scale,
    }  # fmt: skip
    assert words["d_scale"] is out_scale


def test_the_kernels_call_of_groups_has_libgemms_words(monkeypatch):
    seen = []
    monkeypatch.setattr(libgemm, "grouped_mm", lambda *args, **words: seen.append((args, words)))
    words, _ = of_groups(False)
    a, b, offs, one = words["mat_a"], words["mat_b"], words["offs"], torch.ones(())
    kernels.scaled_grouped_mm(a, b, offs, one, one, "tensor", None, None, False)
    ((args, found),) = seen
    assert args[0] is a and args[1] is b and args[2] is offs
    assert found == {
        "bias": None, "a_scale": one, "b_scale": one, "scaling": "tensor", "out_dtype": None, "precision": None,
    }  # fmt: skip


@pytest.fixture
def fp8_linear(monkeypatch):
    """examples/fp8_linear.py, and the shapes that it has libgemm multiply."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example, shapes, own = importlib.import_module("fp8_linear"), [], libgemm.torch.scaled_mm

    def counted(a, b, *args, **words):
        shapes.append((*a.shape, b.shape[1]))
        assert a.dtype == b.dtype == torch.float8_e4m3fn and a.stride(1) == b.stride(0) == 1
        return own(a, b, *args, **words)

    monkeypatch.setattr(libgemm.torch, "scaled_mm", counted)
    yield example, shapes
    sys.modules.pop("fp8_linear")


def test_the_example_s_layer_has_the_products_and_gradients_of_torchs(fp8_linear):
    example, shapes = fp8_linear
    layer, plain = example.Fp8Linear(96, 80, dtype=torch.bfloat16), torch.nn.Linear(96, 80, dtype=torch.bfloat16)
    plain.load_state_dict(layer.state_dict())
    x, grad = torch.randn(2, 5, 96, dtype=torch.bfloat16), torch.randn(2, 5, 80, dtype=torch.bfloat16)
    x[0, 0] = 0  # a row whose largest number is 0
    found = []
    for module in (layer, plain):
        own = x.clone().requires_grad_()
        y = module(own)
        found.append([y, *torch.autograd.grad(y, [own, module.weight, module.bias], grad)])
    assert shapes == [(10, 96, 80), (10, 80, 96), (80, 10, 96)]
    for name, got, want in zip(("y", "x", "weight", "bias"), *found, strict=True):
        error = (got.float() - want.float()).norm() / want.float().norm()
        assert error <= (0.06 if name != "bias" else 0.01), (name, float(error))
        assert error > 0 or name == "bias", f"{name} is not of 8-bit operands"


def test_the_example_trains_as_far_as_torchs_layer(fp8_linear, monkeypatch, capsys):
    example, shapes = fp8_linear
    losses = [example.train(kind, 30, "cpu", width=32, rows=64) for kind in (example.Fp8Linear, torch.nn.Linear)]
    assert losses[0][-1] < 0.7 * losses[0][0] and losses[0][-1] < 1.1 * losses[1][-1]
    assert len(shapes) == 30 * 5  # the first layer's input has no gradient
    monkeypatch.setattr(sys, "argv", ["fp8_linear.py", "--device", "cpu", "--steps", "1"])
    example.main()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["fp8", "bfloat16"]
