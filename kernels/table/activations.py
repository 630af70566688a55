"""The activations, in the order of libgemm_activation, whose values count them from 0. Data alone.

The C check, Python's names and the tests follow; `activate` in kernels/device/portable/tiles.py computes them.
"""

ACTIVATIONS = ("none", "relu", "gelu", "silu")
