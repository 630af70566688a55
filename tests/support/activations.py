"""The C interface's activations in numpy, by formula. Holds no test."""

import math

import numpy as np

NONE, RELU, GELU, SILU = range(4)


def activated(x: np.ndarray, activation: int) -> np.ndarray:
    if activation == RELU:
        return np.maximum(x, 0)
    if activation == GELU:
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return x / (1 + np.exp(-x)) if activation == SILU else x
