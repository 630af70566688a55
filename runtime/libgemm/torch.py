"""libgemm inside torch. Needs torch, which `import libgemm` alone never does.

mm, bmm, addmm, linear, gemm    products with gradients, under torch.compile, autocast and CUDA graphs
scaled_mm                       torch.nn.functional.scaled_mm: products of 8-bit tensors with scales
cast, cast_transpose            8-bit values and their scales, of a tensor and transposed
grouped_mm                      torch.nn.functional.grouped_mm, all four cases, and a bias
Linear, GroupedLinear           layers
use()                           within it torch's own products run libgemm
"""

from libgemm.frameworks.torch import *  # noqa: F403 # one list of names, which is that module's
from libgemm.frameworks.torch import __all__ as __all__
