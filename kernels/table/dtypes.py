"""The element types, a row each. C and Python get theirs from here: a new type is a row and kernels that take it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    name: str
    triton: str  # Triton's name of it
    bytes: int
    c_enum: int  # value of libgemm_dtype
    outputs: tuple[str, ...]  # what a product of two of these may be stored as
    precisions: tuple[str, ...]  # how two of these may be multiplied
    scaled: bool = False  # whether products take scales of A and B
    casts: tuple[str, ...] = ()  # the 8-bit types that it is cast to

    @property
    def pointer(self) -> str:
        """Triton's name of what a pointer points to: of 8-bit types, which older targets do not know, their bytes."""
        return "u8" if self.bytes == 1 else self.triton


# Products of two 16-bit or 8-bit numbers are exact in float32. 16-bit ones have one way to be added up. Tensor cores
# keep about 14 bits of a sum of 8-bit ones: it goes on for 128 of K, then in float32, or ("fast") for all of K.
DTYPES = {
    row.name: row
    for row in (
        DType("f16", "fp16", 2, 1, ("f16", "f32"), ("exact",), casts=("e4m3", "e5m2")),
        DType("bf16", "bf16", 2, 2, ("bf16", "f32"), ("exact",), casts=("e4m3", "e5m2")),
        DType("f32", "fp32", 4, 3, ("f32",), ("tf32", "tf32x3", "ieee"), casts=("e4m3", "e5m2")),
        DType("e4m3", "fp8e4nv", 1, 4, ("bf16", "f16", "f32", "e4m3"), ("exact", "fast"), scaled=True),
    )
}

# What one operand may be where the other is e4m3: rows of e4m3 take it, those that are told a_type and b_type, or those
# that are for just that (Problem.e5m2).
E5M2 = DType("e5m2", "fp8e5", 1, 5, (), (), scaled=True)
ELEMENTS = DTYPES | {E5M2.name: E5M2}

# name -> value of libgemm_precision
PRECISIONS = {"exact": 0, "tf32": 1, "tf32x3": 2, "ieee": 3, "fast": 4}

# Element types that a product can have: of A and B, of C and D, how it is multiplied.
TYPES = [(a.name, d, precision) for a in DTYPES.values() for d in a.outputs for precision in a.precisions]
# And a cast: of A, of D, and A's word for no loss.
CAST_TYPES = [(a.name, d, a.precisions[-1]) for a in DTYPES.values() for d in a.casts]
