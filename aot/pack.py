"""Artifacts -> one blob of packed cubins and where each stands. Pure; csrc/unpack.c reads the result.

Cubins of one kernel and tile differ in a few instructions, so neighbours are packed together: chunks of eight make
the blob about 3.6 times smaller than the cubins, single ones 2.4 times, and unpacking one chunk takes about 0.2 ms.
"""

from dataclasses import dataclass

import lz4.block

from aot.artifact import Artifact

CHUNK_CUBINS = 8


@dataclass(frozen=True)
class Chunk:
    offset: int
    packed_bytes: int
    bytes: int


@dataclass(frozen=True)
class Place:
    chunk: int
    offset: int  # within the unpacked chunk


@dataclass(frozen=True)
class Packed:
    blob: bytes
    chunks: tuple[Chunk, ...]
    places: dict[str, Place]  # by variant name


def likeness(artifact: Artifact) -> tuple:
    """Sort key that puts cubins of one target, kernel and tile side by side."""
    problem, _, config = artifact.variant.split("__")
    return artifact.target, artifact.kernel, config, problem.split("_")[-1], problem


def pack(artifacts: list[Artifact]) -> Packed:
    blob, chunks, places = bytearray(), [], {}
    ordered = sorted(artifacts, key=likeness)
    groups: dict[tuple, list[Artifact]] = {}
    for artifact in ordered:
        groups.setdefault(likeness(artifact)[:3], []).append(artifact)
    for group in groups.values():
        for first in range(0, len(group), CHUNK_CUBINS):
            plain = bytearray()
            for artifact in group[first : first + CHUNK_CUBINS]:
                plain += b"\0" * (-len(plain) % 16)
                places[artifact.variant] = Place(len(chunks), len(plain))
                plain += artifact.cubin
            packed = lz4.block.compress(bytes(plain), mode="high_compression", compression=12, store_size=False)
            chunks.append(Chunk(len(blob), len(packed), len(plain)))
            blob += packed
    return Packed(bytes(blob), tuple(chunks), places)
