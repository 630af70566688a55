"""Artifacts -> one blob of packed cubins and where each stands. Pure; csrc/launch/load.c reads the result.

Rows of several targets may run the same cubin; it is packed once.

Cubins of one kernel and tile differ in a few instructions, so eight neighbours are packed together, in stripes: a piece
of each in turn, since LZ4 looks back no further than 64 KiB and many a cubin is longer. The blob is about 5.6 times
smaller than the cubins (4.1 times without stripes, 2.7 times one by one); reading a cubin takes about 0.2 ms.
"""

import struct
from dataclasses import dataclass

import lz4.block

from aot.artifact import Artifact

CHUNK_CUBINS = 8
STRIPE = 4096  # bytes of one cubin before the next one's


@dataclass(frozen=True)
class Chunk:
    offset: int
    packed_bytes: int
    bytes: int
    cubins: int


@dataclass(frozen=True)
class Place:
    chunk: int
    index: int  # among the chunk's cubins


@dataclass(frozen=True)
class Packed:
    blob: bytes
    chunks: tuple[Chunk, ...]
    places: dict[str, Place]  # by variant name


def likeness(artifact: Artifact) -> tuple:
    """Sort key that puts cubins of one target, kernel and tile side by side."""
    problem, _, config = artifact.variant.split("__")
    return artifact.target, artifact.kernel, config, problem.split("_")[-1], problem


def checksum(cubin: bytes) -> int:
    """What csrc/launch/load.c compares: csrc/table.h has the rule."""
    padded = cubin + bytes(-len(cubin) % 8)
    found = len(cubin)
    for word in struct.unpack(f"<{len(padded) // 8}Q", padded):
        found = (found ^ word) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        found ^= found >> 32
    return found


def striped(cubins: list[bytes]) -> bytes:
    """STRIPE bytes of each in turn; zeros after the end of a shorter one."""
    stripes = range(0, max(map(len, cubins)), STRIPE)
    return b"".join(cubin[at : at + STRIPE].ljust(STRIPE, b"\0") for at in stripes for cubin in cubins)


def compressed(plain: bytes) -> bytes:
    """As csrc/launch/unpack.c reads it."""
    made: bytes = lz4.block.compress(plain, mode="high_compression", compression=12, store_size=False)
    return made


def pack(artifacts: list[Artifact]) -> Packed:
    blob, chunks, places = bytearray(), [], {}
    groups: dict[tuple, dict[bytes, list[Artifact]]] = {}  # cubins that are alike, and who runs each
    home: dict[bytes, tuple] = {}
    for artifact in sorted(artifacts, key=likeness):
        group = home.setdefault(artifact.cubin, likeness(artifact)[:3])
        groups.setdefault(group, {}).setdefault(artifact.cubin, []).append(artifact)
    for group in groups.values():
        cubins = list(group)
        for first in range(0, len(cubins), CHUNK_CUBINS):
            together = cubins[first : first + CHUNK_CUBINS]
            places |= {a.variant: Place(len(chunks), i) for i, cubin in enumerate(together) for a in group[cubin]}
            plain = striped(together)
            small = compressed(plain)
            chunks.append(Chunk(len(blob), len(small), len(plain), len(together)))
            blob += small
    return Packed(bytes(blob), tuple(chunks), places)
