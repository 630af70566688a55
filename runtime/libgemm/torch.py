"""libgemm inside torch. Needs torch, which `import libgemm` alone never does.

mm, bmm, addmm, linear, gemm    products with gradients, under torch.compile, autocast and CUDA graphs
grouped_mm                      torch.nn.functional.grouped_mm, all four cases, and a bias
scaled_mm, scaled_grouped_mm    torch's functions of these names: products of 8-bit tensors with scales
cast, cast_transpose            8-bit values and their scales, of a tensor and transposed
moe                             a layer of experts, with gradients, or of 8-bit weights without
Linear, GroupedLinear, Experts  modules; ScaledExperts has 8-bit weights
use()                           within it torch's own products run libgemm
register_transformers()         transformers' models run their experts by libgemm
"""

from libgemm.frameworks.torch import *  # noqa: F403 # one list of names, which is that module's
from libgemm.frameworks.torch import __all__ as __all__
