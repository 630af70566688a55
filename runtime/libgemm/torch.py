"""libgemm inside torch. Needs torch, which `import libgemm` alone never does.

mm, bmm, addmm, linear, gemm    products with gradients, under torch.compile, autocast and CUDA graphs
grouped_mm                      torch.nn.functional.grouped_mm, all four cases, and a bias
Linear, GroupedLinear           layers
use()                           within it torch's own products run libgemm
"""

from libgemm.frameworks.torch import GroupedLinear, Linear, addmm, bmm, gemm, grouped_mm, linear, mm, use

__all__ = ["GroupedLinear", "Linear", "addmm", "bmm", "gemm", "grouped_mm", "linear", "mm", "use"]
