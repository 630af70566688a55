"""Operands inside larger buffers whose surroundings show stray reads and writes. Not an allocator for the library.

An arena is one flat buffer with a guard band before, between and after its matrices. Around inputs everything that is
not a matrix (bands, and the gap between a row's width and its leading dimension) is NaN, so a stray read that enters a
sum shows. Around outputs it is a bit pattern, compared bit for bit afterwards; outputs themselves start as NaN.
"""

import torch

BAND_BYTES = 4096
BASE = 256  # matrices start on multiples of this many elements (at least 512 bytes), plus their lead
PATTERN = {1: 0x5A, 2: 0x5A3C, 4: 0x5A3C6B7D}  # of outputs
INTS = {1: torch.int8, 2: torch.int16, 4: torch.int32}


class Arena:
    """Place matrices first, then `inputs` or `outputs` allocates; `views` are the matrices in the order placed."""

    def __init__(self, dtype: torch.dtype, device, name: str):
        self.dtype, self.device, self.name = dtype, device, name
        self.bytes = dtype.itemsize
        self.band = BAND_BYTES // self.bytes
        self.boxes = []
        self.size = self.band
        self.views = []

    def place(self, shape, pad: int = 0, lead: int = 0, gap: int = 0) -> None:
        """A stored matrix (or batch of them, or a vector) with `pad` gap elements per row and `gap` per matrix, `lead`
        off alignment."""
        start = -(-self.size // BASE) * BASE + lead
        strides = [1]
        for length, extra in zip(reversed(shape[1:]), (pad, gap), strict=False):
            strides.insert(0, strides[0] * max(length, 1) + extra)
        self.boxes.append((tuple(shape), tuple(strides), start))
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
        self.size = start + last + 1 + self.band

    def _cut(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return [flat.as_strided(*box) for box in self.boxes]

    def inputs(self, generator: torch.Generator) -> "Arena":
        self.flat = torch.full((self.size,), torch.nan, dtype=self.dtype, device=self.device)
        self.views = self._cut(self.flat)
        for view in self.views:
            if view.numel():
                view.copy_(torch.empty(view.shape, device=self.device).normal_(generator=generator))
        self.inside = None
        return self

    def outputs(self) -> "Arena":
        ints = torch.full((self.size,), PATTERN[self.bytes], dtype=INTS[self.bytes], device=self.device)
        self.flat = ints.view(self.dtype)
        self.views = self._cut(self.flat)
        self.inside = torch.zeros((self.size,), dtype=torch.bool, device=self.device)
        for view, mask in zip(self.views, self._cut(self.inside), strict=True):
            view.fill_(torch.nan)
            mask.fill_(True)
        return self

    def freeze(self) -> None:
        """Remember the bits of now: inputs must keep all of them, outputs those outside their matrices."""
        self.before = self.flat.view(INTS[self.bytes]).clone()

    def problems(self) -> list[str]:
        changed = self.flat.view(INTS[self.bytes]) != self.before
        if self.inside is not None:
            changed &= ~self.inside
        if not bool(changed.any()):
            return []
        places = changed.nonzero().flatten()
        first = int(places[0])
        kind = "input changed" if self.inside is None else "stray write"
        return [f"{kind}: {len(places)} elements of {self.name}, first {self.where(first)}"]

    def where(self, offset: int) -> str:
        """Name a flat offset by the nearest matrix that starts at or before it."""
        owners = [(start, i) for i, (_, _, start) in enumerate(self.boxes) if start <= offset]
        if not owners:
            return f"{self.boxes[0][2] - offset} elements before matrix 0"
        start, index = max(owners)
        shape, strides, _ = self.boxes[index]
        rest, place = offset - start, []
        for stride in strides:
            place.append(rest // stride)
            rest %= stride
        return f"at {tuple(place)} of matrix {index} with shape {shape}"
