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


# Every product of two 16-bit numbers is exact in float32, so those have one way to be multiplied.
DTYPES = {
    row.name: row
    for row in (
        DType("f16", "fp16", 2, 1, ("f16", "f32"), ("exact",)),
        DType("bf16", "bf16", 2, 2, ("bf16", "f32"), ("exact",)),
        DType("f32", "fp32", 4, 3, ("f32",), ("tf32", "tf32x3", "ieee")),
    )
}

# name -> value of libgemm_precision
PRECISIONS = {"exact": 0, "tf32": 1, "tf32x3": 2, "ieee": 3}

# Element types that a problem can have: of A and B, of C and D, how it is multiplied.
TYPES = [(a.name, d, precision) for a in DTYPES.values() for d in a.outputs for precision in a.precisions]
