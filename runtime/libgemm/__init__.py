"""libgemm: dense and grouped matrix products on NVIDIA GPUs from kernels compiled ahead of time.

Needs cffi and, at the first call that runs something, the NVIDIA driver. Importing needs neither GPU nor driver.

    gemm(a, b)                                  D = act(alpha * a @ b + beta * c + bias)
    grouped_gemm(a, b)                          the same for sequences of matrices of any sizes, in one launch
    grouped_gemm_tables(a=..., ...)             the same with tables of pointers and sizes on the device
    grouped_mm(a, b, offs)                      packed rows, columns or K, cut at group ends on the device
    grouped_gemm_jagged(a_packed, b, offsets)   packed rows, one shared b or one per group, offsets from 0
    moe(x, w_in, w_out, expert_ids, weights)    a layer of experts, from its router's choices on
    moe_route(), moe_mm(), moe_sum()            its parts: sort by expert, gathered and gated products, add up
    moe_cast()                                  rows by an index, gated and cast: for products of 8-bit experts
    moe_gate(), moe_gate_grad()                 the gate by itself, and its gradient: for training
    cast(x, granularity), cast_transpose()      8-bit values and their scales, of x and of x.mT
    variants(), info(), manifest(), preload(), verify()
    explain(), explain_grouped_mm(), explain_grouped_gemm(), covers()   what would run, and why
"""

from libgemm._cast import cast, cast_transpose
from libgemm._gemm import gemm
from libgemm._grouped_gemm import grouped_gemm, grouped_gemm_tables
from libgemm._grouped_mm import grouped_gemm_jagged, grouped_mm
from libgemm._library import Error
from libgemm._moe import moe, moe_route, moe_sum
from libgemm._moe_cast import moe_cast
from libgemm._moe_gate import moe_gate, moe_gate_grad
from libgemm._moe_mm import moe_mm
from libgemm.inspect import (
    Choice,
    Variant,
    covers,
    explain,
    explain_grouped_gemm,
    explain_grouped_mm,
    info,
    manifest,
    preload,
    variants,
    verify,
)

__version__ = info()["version"]
__all__ = [
    "Choice",
    "Error",
    "Variant",
    "cast",
    "cast_transpose",
    "covers",
    "explain",
    "explain_grouped_gemm",
    "explain_grouped_mm",
    "gemm",
    "grouped_gemm",
    "grouped_gemm_jagged",
    "grouped_gemm_tables",
    "grouped_mm",
    "info",
    "manifest",
    "moe",
    "moe_cast",
    "moe_gate",
    "moe_gate_grad",
    "moe_mm",
    "moe_route",
    "moe_sum",
    "preload",
    "variants",
    "verify",
]
