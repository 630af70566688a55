"""Artifacts -> one blob of packed cubins and where each stands. Pure; csrc/launch/load.c reads the result.

Rows of several targets may run the same cubin; it is packed once.

Cubins of one kernel and tile differ in a few instructions, so eight neighbours are packed together, one behind the
other, as one LZMA stream: the blob is about 14 times smaller than the cubins. Reading a cubin takes 1 to 2 ms, once.
"""

import lzma
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from aot.artifact import Artifact

CHUNK_CUBINS = 8
INSTRUCTION = 16  # bytes: a cubin begins at a multiple, since the packing tells positions apart by it
# A stream without a container, which ends with a marker. csrc/launch/unpack.c knows lc, lp and pb; the rest is the
# encoder's.
FILTER = {
    "id": lzma.FILTER_LZMA1, "dict_size": 1 << 22, "lc": 3, "lp": 0, "pb": 4, "mode": lzma.MODE_NORMAL, "nice_len": 128,
    "mf": lzma.MF_BT4, "depth": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Chunk:
    offset: int
    packed_bytes: int
    bytes: int


@dataclass(frozen=True)
class Place:
    chunk: int
    begin: int  # byte of the unpacked chunk


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


def compressed(plain: bytes) -> bytes:
    """As csrc/launch/unpack.c reads it."""
    return lzma.compress(plain, format=lzma.FORMAT_RAW, filters=[FILTER])


def joined(cubins: list[bytes]) -> tuple[bytes, list[int]]:
    """One behind the other, and where each begins."""
    padded = [cubin + bytes(-len(cubin) % INSTRUCTION) for cubin in cubins]
    return b"".join(padded), [sum(map(len, padded[:i])) for i in range(len(padded))]


def pack(artifacts: list[Artifact]) -> Packed:
    blob, chunks, places = bytearray(), [], {}
    groups: dict[tuple, dict[bytes, list[Artifact]]] = {}  # cubins that are alike, and who runs each
    home: dict[bytes, tuple] = {}
    for artifact in sorted(artifacts, key=likeness):
        group = home.setdefault(artifact.cubin, likeness(artifact)[:3])
        groups.setdefault(group, {}).setdefault(artifact.cubin, []).append(artifact)
    plains = []
    for group in groups.values():
        cubins = list(group)
        for first in range(0, len(cubins), CHUNK_CUBINS):
            together = cubins[first : first + CHUNK_CUBINS]
            plain, begins = joined(together)
            own = zip(begins, together, strict=True)
            places |= {a.variant: Place(len(plains), begin) for begin, cubin in own for a in group[cubin]}
            plains.append(plain)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # the encoder lets other threads run
        for plain, small in zip(plains, pool.map(compressed, plains), strict=True):
            chunks.append(Chunk(len(blob), len(small), len(plain)))
            blob += small
    return Packed(bytes(blob), tuple(chunks), places)
