"""How a gated product joins its two halves: activation(gate) * up, and the clamped form. No kernel here.

SwiGLU is silu's, GEGLU gelu's, ReGLU relu's (Shazeer, arXiv 2002.05202). The clamped form is that of gpt-oss's experts:
gate at most limit, up within limit, then gate * sigmoid(alpha * gate) * (up + 1).
"""

import triton
import triton.language as tl

from kernels.device.portable.tiles import activate, activate_slope

SILU = tl.constexpr(3)  # libgemm_activation


@triton.jit
def swish_gated(gate, up, alpha, limit, shift):
    """gate * sigmoid(alpha * gate) * (up + shift), both within the limit: silu's gate for 1, infinity and 0. NaN stays
    NaN."""
    gate = tl.minimum(gate, limit, propagate_nan=tl.PropagateNan.ALL)
    up = tl.minimum(up, limit, propagate_nan=tl.PropagateNan.ALL)
    up = tl.maximum(up, -limit, propagate_nan=tl.PropagateNan.ALL)
    return gate / (1.0 + tl.exp(-alpha * gate)) * (up + shift)


@triton.jit
def gated(gate, up, activation, alpha, limit, shift):
    """`activation` is the C enum; the rest is silu's."""
    if activation == SILU:  # noqa: SIM108  (both would be computed)
        gate = swish_gated(gate, up, alpha, limit, shift)
    else:
        gate = activate(gate, activation) * up
    return gate


@triton.jit
def gated_slopes(gate, up, activation, alpha, limit, shift):
    """What `gated` gives, and its slopes in the gate and in up. Beyond the limit they are 0, at it those of within."""
    if activation == SILU:
        inside = tl.minimum(gate, limit, propagate_nan=tl.PropagateNan.ALL)
        bound = tl.minimum(up, limit, propagate_nan=tl.PropagateNan.ALL)
        bound = tl.maximum(bound, -limit, propagate_nan=tl.PropagateNan.ALL) + shift
        share = 1.0 / (1.0 + tl.exp(-alpha * inside))
        half = inside * share
        made = half * bound
        of_gate = tl.where(gate > limit, 0.0, (share + alpha * half * (1.0 - share)) * bound)
        of_up = tl.where((up > limit) | (up < -limit), 0.0, half)
    else:
        of_up = activate(gate, activation)
        made = of_up * up
        of_gate = activate_slope(gate, activation) * up
    return made, of_gate, of_up
