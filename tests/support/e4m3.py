"""Casts to e4m3 in numpy: what a number is rounded to is looked up among all that e4m3 has. Holds no test."""

import numpy as np

NAN = 0x7F
# e4m3's numbers from 0 up, by their bytes: 0 to 126.
NUMBERS = np.array(
    [(e * 8 + m) and (8 + m if e else m) * 2.0 ** (max(e, 1) - 10) for e in range(16) for m in range(8)][:127]
)


def nearest(x: np.ndarray) -> np.ndarray:
    """Bytes of e4m3, of float32."""
    size = np.minimum(np.abs(x.astype(np.float64)), 448.0)
    low = np.searchsorted(NUMBERS, np.nan_to_num(size), "right") - 1
    high = np.minimum(low + 1, 126)
    down, up = size - NUMBERS[low], NUMBERS[high] - size
    code = np.where((up < down) | ((up == down) & (low % 2 == 1)), high, low)
    return np.where(np.isnan(x), NAN, code | (np.signbit(x) * 0x80)).astype(np.uint8)


def rounded(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """x over scale, both float32, as the header says: times the reciprocal, and Inf is NaN."""
    return np.where(np.isfinite(x), nearest(x * (np.float32(1) / scale)), NAN).astype(np.uint8)


def scales(most: np.ndarray, power: int) -> np.ndarray:
    """Of largest magnitudes."""
    scale = np.maximum(most / np.float32(448), np.finfo(np.float32).tiny)
    if power:
        mantissa, exponent = np.frexp(scale)
        scale = np.ldexp(np.float32(1), exponent - (mantissa == 0.5))
    return np.where(most > 0, scale, 1).astype(np.float32)
