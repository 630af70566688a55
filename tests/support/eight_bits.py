"""Casts to 8 bits in numpy: what a number is rounded to is looked up among all that the type has. Holds no test."""

import numpy as np

NAN = 0x7F
# Each type's numbers from 0 up, by their bytes: bits of mantissa, bias, how many there are.
FORMATS = {"e4m3": (3, 7, 127), "e5m2": (2, 15, 124)}
TABLES = {
    name: np.array([
        (code % 2**bits + (2**bits if code >> bits else 0)) * 2.0 ** (max(code >> bits, 1) - bias - bits)
        for code in range(count)
    ])
    for name, (bits, bias, count) in FORMATS.items()
}  # fmt: skip


def nearest(x: np.ndarray, to: str) -> np.ndarray:
    """Bytes of float32 numbers."""
    numbers = TABLES[to]
    size = np.minimum(np.abs(x.astype(np.float64)), numbers[-1])
    low = np.searchsorted(numbers, np.nan_to_num(size), "right") - 1
    high = np.minimum(low + 1, len(numbers) - 1)
    down, up = size - numbers[low], numbers[high] - size
    code = np.where((up < down) | ((up == down) & (low % 2 == 1)), high, low)
    return np.where(np.isnan(x), NAN, code | (np.signbit(x) * 0x80)).astype(np.uint8)


def rounded(x: np.ndarray, scale: np.ndarray, to: str = "e4m3") -> np.ndarray:
    """x over scale, both float32, as the header says: times the reciprocal, and Inf is NaN."""
    return np.where(np.isfinite(x), nearest(x * (np.float32(1) / scale), to), NAN).astype(np.uint8)


def scales(most: np.ndarray, power: int, to: str = "e4m3") -> np.ndarray:
    """Of largest magnitudes."""
    scale = np.maximum(most / np.float32(TABLES[to][-1]), np.finfo(np.float32).tiny)
    if power:
        mantissa, exponent = np.frexp(scale)
        scale = np.ldexp(np.float32(1), exponent - (mantissa == 0.5))
    return np.where(most > 0, scale, 1).astype(np.float32)
