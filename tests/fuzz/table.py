"""The table that the fuzz targets call: real rows and parameters, made-up machine code. Compiles nothing.

Rows are all that Hopper has for two of the three input types, and a few for sm_80. Kernels never run, so a cubin here
is a small file that the stand-in driver can read a parameter table from. Not for pytest.
"""

import dataclasses
import struct

from aot.artifact import Artifact, Box
from aot.manifest import make_manifest
from aot.pack import pack
from aot.params import TFLOAT32, kernel_function, takes_descriptors
from aot.render import in_table_order, render
from kernels.table.arguments import ARGUMENTS
from kernels.table.dtypes import DTYPES
from kernels.table.spec import Variant
from kernels.table.variants import variants
from tests.support.sample import sample_artifact

LONG = 4096  # bytes that some made-up cubins have beside the least
SWIZZLE_BYTES = 128  # a copy's contiguous extent, where it has that much
SWIZZLES = {128: 3, 64: 2, 32: 1, 16: 0}  # bytes -> CUtensorMapSwizzle
ELEMENTS = {"e4m3": 0, "f16": 6, "f32": 7, "bf16": 9}  # -> CUtensorMapDataType
INFO_PARAMETER, CUDA = 0x17, 190  # record of one parameter; ELF machine


def made_up_box(variant: Variant, name: str) -> Box:
    """What the compiler would make of a descriptor: contiguous extents of 128 bytes at most."""
    element, rows, cols = variant.box(name)
    cols = min(cols, SWIZZLE_BYTES // DTYPES[element].bytes)
    rounded = variant.problem.precision == "tf32" and name in ("a_desc", "b_desc")
    swizzle = SWIZZLES.get(cols * DTYPES[element].bytes, 0)
    return Box(name, rows, cols, swizzle, TFLOAT32 if rounded else ELEMENTS[element], variant.box_rank(name))


def section(name: int, kind: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 1, 0)


def made_up_cubin(artifact: Artifact) -> bytes:
    """An ELF file with the kernel's table of parameters, and of many a length."""
    info = b"".join(
        struct.pack("<BBHIHHI", 4, INFO_PARAMETER, 12, 0, i, p.offset, p.size << 18)
        for i, p in reversed(list(enumerate(artifact.params)))
    )
    names = b"\0.shstrtab\0.nv.info." + artifact.entry.encode() + b"\0"
    filler = artifact.variant.encode() * (len(artifact.variant) % 3 * LONG // len(artifact.variant))
    begin = 64 + len(names) + len(info)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1\x33\7", 2, CUDA, 1, 0, 0, begin + len(filler),
                         artifact.target, 64, 0, 0, 64, 3, 1)  # fmt: skip
    sections = [section(0, 0, 0, 0), section(1, 3, 64, len(names)), section(11, 1, 64 + len(names), len(info))]
    return header + names + info + filler + b"".join(sections)


def made_up_artifact(variant: Variant) -> Artifact:
    names = [n for n in kernel_function(variant).arg_names if ARGUMENTS.get(n) == "desc"]
    artifact = dataclasses.replace(
        sample_artifact(variant),
        overlaps=variant.target >= 90,
        registers=168,
        boxes=tuple(made_up_box(variant, n) for n in names) if takes_descriptors(variant) else (),
        shared_bytes=200_000 if variant.config.persistent else 1024 * variant.config.stages,
        warps=12 if variant.config.persistent else variant.config.warps,
    )
    return dataclasses.replace(artifact, cubin=made_up_cubin(artifact))


def table() -> list[Variant]:
    hopper = [v for v in variants((90,)) if v.problem.a != "f16"]
    return hopper + [v for v in variants((80,)) if v.problem.name.endswith("_bf16_bf16_bf16_nn")]


def signatures(artifacts: list[Artifact]) -> str:
    """C text: each kernel's parameters by name."""
    kernels = {a.entry: a.params for a in artifacts}
    rows = "".join(
        f'    {{"{entry}", {len(params)}, {{{", ".join(f"{chr(34)}{p.name}{chr(34)}" for p in params)}}}}},\n'
        for entry, params in kernels.items()
    )
    return (
        f'#include "fuzz.h"\n\nconst struct signature signatures[] = {{\n{rows}}};\n'
        f"const int signature_count = {len(kernels)};\n"
    )


def generated() -> dict[str, str | bytes]:
    """All generated files of the library under test, and of the program that tests it."""
    chosen = table()
    rows = in_table_order([(v, made_up_artifact(v)) for v in chosen])
    artifacts = [artifact for _, artifact in rows]
    return {**render(rows, pack(artifacts), make_manifest(rows, "0", {})), "signatures.c": signatures(artifacts)}
