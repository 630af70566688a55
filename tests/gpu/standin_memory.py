"""Memory by address for the stand-in: matrices behind pointers, and deliberate strays. Never used on the library."""

import ctypes

import torch


def past(d: torch.Tensor) -> int:
    return d.storage_offset() + sum((n - 1) * s for n, s in zip(d.shape, d.stride(), strict=True)) + 1


def neighbour(x: torch.Tensor, end: bool) -> torch.Tensor | float:
    """The element just behind or before a matrix, as a kernel that strays reads it."""
    place = past(x) if end else x.storage_offset() - 1
    inside = x.numel() and 0 <= place < x.untyped_storage().nbytes() // x.element_size()
    return x.as_strided((1,), (1,), place).float() if inside else 0.0


def write_past(d: torch.Tensor) -> None:
    poke(d, past(d))


def poke(d: torch.Tensor, place: int) -> None:
    """A zero at an element of d's storage, if it has that element."""
    if 0 <= place < d.untyped_storage().nbytes() // d.element_size():
        d.as_strided((1,), (1,), place).zero_()


def view(pointer: int, ld: int, shape, dtype, device) -> torch.Tensor:
    """The matrix at a host pointer, as a table names it."""
    if 0 in shape or min(shape) < 0:
        return torch.empty([max(n, 0) for n in shape], dtype=dtype, device=device)
    elements = (shape[0] - 1) * ld + shape[1]
    memory = (ctypes.c_char * (elements * dtype.itemsize)).from_address(pointer)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, (ld, 1))
