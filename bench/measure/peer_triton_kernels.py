"""OpenAI's triton_kernels on a layer's first product: rows gathered, SwiGLU in the epilogue. Proves no numerics.

It is measured where it can be imported: no package of that name on PyPI is it, a folder on PYTHONPATH is enough. It
compiles on the machine that runs it. Its gate's columns stand in pairs, which changes nothing about the time.
"""

import torch

from bench.measure import newer_triton


def library():
    """What is used of it, or None."""
    try:
        newer_triton.lend_names()
        from triton_kernels import matmul, swiglu, tensor
    except ImportError:
        return None
    return matmul, swiglu, tensor


def first_product(module, given: list) -> dict:
    """name -> call of one of `given`, each of which has x [tokens, hidden], rows and offs as libgemm.moe_route leaves
    them. Nothing where the peer is missing."""
    found = library()
    if found is None:
        return {}
    matmul, swiglu, tensor = found
    weights = module.gate_up_proj if module.is_transposed else module.gate_up_proj.mT  # [experts, hidden, 2 * inner]
    bias = module.gate_up_proj_bias.float() if module.has_bias else None
    numbers = (module.alpha, module.limit) if module.has_bias else (1.0, 1.0)
    specs = matmul.FnSpecs("swiglu", swiglu.swiglu_fn, ("alpha", "limit"), reduction_n=2)
    act = matmul.FusedActivation(specs, numbers)
    for one in given:
        ends = torch.cat([one.offs.new_zeros(1), one.offs])
        one.metadata = tensor.make_ragged_tensor_metadata(ends.diff().int(), one.rows.numel())
    return {
        "triton_kernels": lambda x: matmul.matmul(
            x.x, weights, bias, a_ragged_metadata=x.metadata, gather_indx=x.rows, fused_activation=act
        )
    }
