"""libgemm inside torch: `import libgemm.torch`. Operators with gradients, functions with torch's names, layers."""

import torch

if not hasattr(torch.library, "custom_op"):
    raise ImportError(f"libgemm.torch needs torch 2.4 or newer; this is {torch.__version__}. libgemm itself needs none")

from libgemm.frameworks.torch.casting import cast, cast_transpose
from libgemm.frameworks.torch.experts import Experts, ScaledExperts, moe
from libgemm.frameworks.torch.functions import addmm, bmm, gemm, grouped_mm, linear, mm
from libgemm.frameworks.torch.modules import GroupedLinear, Linear
from libgemm.frameworks.torch.of_transformers import register_transformers
from libgemm.frameworks.torch.routing import use
from libgemm.frameworks.torch.scaled import scaled_grouped_mm, scaled_mm

__all__ = [
    "Experts",
    "GroupedLinear",
    "Linear",
    "ScaledExperts",
    "addmm",
    "bmm",
    "cast",
    "cast_transpose",
    "gemm",
    "grouped_mm",
    "linear",
    "mm",
    "moe",
    "register_transformers",
    "scaled_grouped_mm",
    "scaled_mm",
    "use",
]
