"""libgemm.torch.scaled_mm on the CPU, where a reference takes the operator's place: names, recipes, compilation.

What the kernels compute is shown on a GPU (tests/gpu/edge_scaled.py).
"""

import libgemm
import libgemm.torch
import pytest
import torch
from libgemm.frameworks.torch import kernels, scaled
from torch_reference import scaled_mm as reference

TYPES = scaled.TYPES
M, N, K = 32, 48, 64


@pytest.fixture(scope="module", autouse=True)
def on_cpu():
    scaled.operator.register_kernel("cpu")(reference)


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


@pytest.mark.parametrize("rows", [False, True], ids=["numbers", "rows"])
def test_it_compiles_whole_and_has_a_meta_kernel(rows):
    (a, b), words = operands(), given(rows, False)
    call = torch.compile(libgemm.torch.scaled_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(call(a, b, **words), libgemm.torch.scaled_mm(a, b, **words))
    scaling = "row" if rows else "tensor"
    torch.library.opcheck(
        scaled.operator, (a, b, words["scale_a"], words["scale_b"], scaling), test_utils="test_faketensor"
    )


def test_what_it_has_not_is_refused_by_name():
    a, b = operands()
    words = given(True, False)
    mixed = words | {"scale_recipe_b": given(False, False)["scale_recipe_b"]}
    blocks = words | ({"scale_recipe_a": TYPES.BlockWise1x128, "scale_recipe_b": TYPES.BlockWise1x128} if TYPES else {})
    for wrong, part in (
        (mixed, "scale_recipe_b = .*allowed are TensorWise or RowWise, both"),
        (blocks if TYPES else mixed, "allowed are TensorWise or RowWise, both"),
        (words | {"swizzle_a": 1}, "swizzle_a = 1: libgemm has none"),
        (words | {"contraction_dim": (1,)}, r"contraction_dim = \(1,\)"),
        (words | {"scale_a": [words["scale_a"]] * 2}, "2 scales or recipes of one operand"),
    ):
        with pytest.raises(libgemm.Error, match=part):
            libgemm.torch.scaled_mm(a, b, **wrong)


def test_the_kernels_call_has_libgemms_words(monkeypatch):
    seen = []
    monkeypatch.setattr(libgemm, "gemm", lambda *args, **words: seen.append((args, words)))
    a, b = operands()
    one = torch.ones(())
    kernels.scaled_mm(a, b, one, one, "tensor", None, torch.float16, True)
    ((args, words),) = seen
    assert args[0] is a and args[1] is b
    assert words == {
        "bias": None, "a_scale": one, "b_scale": one, "scaling": "tensor", "out_dtype": torch.float16,
        "precision": "fast",
    }  # fmt: skip
