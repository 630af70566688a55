"""Where a built library's packed manifest and kernels stand in its file. Reads and packs; changes nothing."""

from functools import cache
from pathlib import Path

from elftools.elf.elffile import ELFFile
from libgemm import inspect

from aot.manifest import canonical
from aot.pack import compressed


@cache
def packed_manifest() -> bytes:
    return compressed(canonical(inspect.manifest()))


def manifest_at(library: Path) -> range:
    """The manifest's bytes: found by packing again what the library says of itself."""
    begin = library.read_bytes().index(packed_manifest())
    return range(begin, begin + len(packed_manifest()))


def kernels_at(library: Path) -> range:
    """The packed kernels' bytes: all of .rodata before or after the manifest, whichever is longer."""
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".rodata")
    begin, end = section["sh_offset"], section["sh_offset"] + section["sh_size"]
    manifest = manifest_at(library)
    assert begin < manifest.start < manifest.stop < end
    return max(range(begin, manifest.start), range(manifest.stop, end), key=len)
