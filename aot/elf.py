"""Reads a cubin's own headers: target, toolkit, parameters, registers. No GPU, no driver; knows nothing of Triton.

The format is what `cuobjdump -elf` prints: `.nv.info` sections hold records of (format u8,
attribute u8, size-or-value u16, payload); attribute numbers are the EIATTR_ values it prints.
"""

import io
import struct
from dataclasses import dataclass

from elftools.common.exceptions import ELFError, ELFParseError
from elftools.elf.elffile import ELFFile

EM_CUDA = 190
FORMAT_SIZED = 4
KPARAM_INFO, REGISTER_COUNT, FRAME_SIZE, REQUIRED_THREADS, CUDA_API_VERSION = 0x17, 0x2F, 0x11, 0x10, 0x37


class CubinError(ValueError):
    """The bytes are not a cubin this reader understands, or contradict themselves."""


@dataclass(frozen=True)
class CubinFacts:
    target: int  # compute capability * 10
    toolkit: tuple[int, int]
    kernel: str
    params: tuple[tuple[int, int], ...]  # (offset, size) in order of declaration
    registers: int
    local_bytes: int
    threads: int | None  # .reqntid, when the kernel fixes it


def records(data: bytes):
    """(attribute, payload) of a .nv.info section."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        size = value if form == FORMAT_SIZED else 0
        yield attribute, data[at : at + size]
        at += size


def sm_of(elf: ELFFile) -> int:
    """ABI version 7 (toolkit 12) keeps the SM in the low byte of e_flags, version 8 (toolkit 13) in the next one."""
    shift = 8 if elf.header.e_ident.EI_ABIVERSION >= 8 else 0
    return elf.header.e_flags >> shift & 0xFF


def read_cubin(cubin: bytes) -> CubinFacts:
    """Facts of a cubin that holds exactly one kernel. Raises CubinError otherwise."""
    try:
        elf = ELFFile(io.BytesIO(cubin))
    except (ELFError, ELFParseError) as error:
        raise CubinError(f"not an ELF file: {error}") from error
    if elf.header.e_machine not in ("EM_CUDA", EM_CUDA):
        raise CubinError(f"ELF machine is {elf.header.e_machine}, not CUDA")
    kernels = [s.name[len(".nv.info.") :] for s in elf.iter_sections() if s.name.startswith(".nv.info.")]
    if len(kernels) != 1:
        raise CubinError(f"one kernel expected, found {kernels}")
    params, threads, api_version = {}, None, None
    for attribute, payload in records(elf.get_section_by_name(f".nv.info.{kernels[0]}").data()):
        if attribute == KPARAM_INFO:
            _, ordinal, offset, flags = struct.unpack("<IHHI", payload)
            params[ordinal] = (offset, flags >> 18)
        elif attribute == REQUIRED_THREADS:
            x, y, z = struct.unpack("<III", payload)
            threads = x * y * z
        elif attribute == CUDA_API_VERSION:
            (api_version,) = struct.unpack("<I", payload)
    if sorted(params) != list(range(len(params))):
        raise CubinError(f"{kernels[0]}: parameter ordinals {sorted(params)} have holes")
    if api_version is None:
        raise CubinError(f"{kernels[0]}: no CUDA_API_VERSION record: the driver it needs cannot be told")
    registers = local = 0
    for attribute, payload in records(elf.get_section_by_name(".nv.info").data()):
        if attribute == REGISTER_COUNT:
            registers = struct.unpack("<II", payload)[1]
        elif attribute == FRAME_SIZE:
            local = struct.unpack("<II", payload)[1]
    ordered = tuple(params[i] for i in range(len(params)))
    return CubinFacts(sm_of(elf), divmod(api_version, 10), kernels[0], ordered, registers, local, threads)
