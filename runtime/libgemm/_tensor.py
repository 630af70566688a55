"""Any framework's array -> pointer, shape, strides (elements), dtype, device. Imports no framework; launches nothing.

Order: torch's own attributes (fastest), then __dlpack__, then __cuda_array_interface__. Frameworks are looked up in
sys.modules: one that nobody imported cannot have made the array.
"""

import ctypes
import operator
import sys
from dataclasses import dataclass
from typing import Any

from libgemm._framework import ADDRESSES, LaunchStream
from libgemm._library import invalid
from libgemm._of_torch import LEGACY

F16, BF16, F32, E4M3, E5M2, I32, I64 = "f16", "bf16", "f32", "e4m3", "e5m2", "i32", "i64"
SUPPORTED = f"{F16}, {BF16}, {F32}, {E4M3}, {E5M2} (i32, i64 for offsets and tables)"
DLPACK_CUDA, DLPACK_CUDA_MANAGED = 2, 13
# (DLDataTypeCode, bits): 0 int, 2 float, 4 bfloat, 10 float8_e4m3fn, 12 float8_e5m2 (dlpack.h)
DLPACK_TYPES = {(2, 16): F16, (4, 16): BF16, (2, 32): F32, (10, 8): E4M3, (12, 8): E5M2, (0, 32): I32, (0, 64): I64}
DLPACK_MAJOR, DLPACK_READ_ONLY, DLPACK_IS_COPIED = 1, 1, 2  # the version that is understood, and flags of it
INTERFACE_TYPES = {"f2": F16, "f4": F32, "i4": I32, "i8": I64}
INTERFACE_VERSIONS = (2, 3)


@dataclass
class View:
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str
    device: int
    owner: Any  # keeps what was asked of the framework alive until the launch has been queued


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
capsule_is_valid.restype, capsule_is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def packed_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def check_torch(array: Any, name: str, torch: Any) -> None:
    """Refuse tensors that are not numbers in the memory of a CUDA device, and those that autograd would lose."""
    kind = type(array)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise invalid(
            f"{name} is a {kind.__module__}.{kind.__qualname__}, which stands for other tensors and has no memory of "
            "its own: pass a plain torch.Tensor, such as its local or inner one"
        )
    if array.is_meta:
        raise invalid(f"{name} is a meta tensor, which has no memory: a tensor on a CUDA device is needed")
    if array.layout is not torch.strided:
        raise invalid(f"{name} has layout {array.layout}: a dense tensor (torch.strided) is needed")
    if array.is_neg():
        raise invalid(
            f"{name} is a negated view, whose numbers stand in memory with the other sign: pass resolve_neg()"
        )
    if array.requires_grad and torch.is_grad_enabled():
        raise invalid(
            f"{name} requires grad, but libgemm records nothing for autograd: call it under torch.no_grad(), pass "
            "detach(), or put the call into a torch.autograd.Function"
        )
    if not array.is_cuda:
        raise invalid(f"{name} is on {array.device}: a tensor on a CUDA device is needed")


def from_torch(array: Any, name: str, torch: Any, launch: LaunchStream) -> View:
    check_torch(array, name, torch)
    types = {torch.float16: F16, torch.bfloat16: BF16, torch.float32: F32, torch.int32: I32, torch.int64: I64}
    types[getattr(torch, "float8_e4m3fn", None)] = E4M3  # not in versions before 2.1
    types[getattr(torch, "float8_e5m2", None)] = E5M2
    if array.dtype not in types:
        raise invalid(f"{name} has dtype {array.dtype}: allowed are {SUPPORTED}")
    try:
        pointer = array.data_ptr()
    except RuntimeError:  # torch.func's wrappers are plain tensors by their type
        pointer = 0
    shape, strides = tuple(array.shape), tuple(array.stride())
    if not pointer and 0 not in shape:
        raise invalid(f"{name} has no memory of its own: it is a tensor of torch.func or the like, pass a plain one")
    launch.wait_for_torch(torch, array.get_device())
    return View(pointer, shape, strides, types[array.dtype], array.get_device(), array)


def read_capsule(capsule: Any, name: str) -> tuple[DLTensor, int]:
    """The tensor in a DLPack capsule, and its flags. The capsule keeps its name and with it its ownership: it calls its
    deleter when it goes, and nobody else does."""
    if capsule_is_valid(capsule, b"dltensor_versioned"):
        found = DLVersioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
        if found.major != DLPACK_MAJOR:  # then nothing behind the version can be read
            raise invalid(
                f"{name}'s DLPack capsule has version {found.major}.{found.minor}: {DLPACK_MAJOR}.x is needed"
            )
        return found.tensor, found.flags
    if capsule_is_valid(capsule, b"dltensor"):
        return DLTensor.from_address(capsule_pointer(capsule, b"dltensor")), 0
    raise invalid(f"{name}'s __dlpack__ returned no fresh DLPack capsule")


def from_dlpack(array: Any, name: str, launch: LaunchStream, write: bool) -> View:
    kind, device = array.__dlpack_device__()
    if kind not in (DLPACK_CUDA, DLPACK_CUDA_MANAGED):
        raise invalid(f"{name} is on DLPack device type {int(kind)}: a CUDA device ({DLPACK_CUDA}) is needed")
    # DLPack names the legacy default stream 1; we hand over ours, so that the producer's work is ordered before it.
    wanted = {"stream": launch.handle or LEGACY}
    try:
        capsule = array.__dlpack__(max_version=(DLPACK_MAJOR, 0), **wanted)
    except TypeError:
        capsule = array.__dlpack__(**wanted)
    tensor, flags = read_capsule(capsule, name)
    if write and flags & DLPACK_READ_ONLY:
        raise invalid(f"{name} is read-only (its DLPack flag): memory that may be written is needed")
    if write and flags & DLPACK_IS_COPIED:
        raise invalid(f"{name} came as a copy (its DLPack flag), which nobody would see: the array itself is needed")
    dtype = DLPACK_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise invalid(f"{name} has DLPack type code {tensor.code}, {tensor.bits} bits: allowed are {SUPPORTED}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else packed_strides(shape)
    return View((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, int(device), (array, capsule))


def from_interface(array: Any, name: str, launch: LaunchStream, write: bool) -> View:
    facts = array.__cuda_array_interface__
    try:
        found, producer = read_interface(facts, name, write)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        raise invalid(f"{name}'s __cuda_array_interface__ cannot be read: {facts!r}") from None
    if producer is not None:
        launch.wait_on_host(producer, name)
    found.owner = array
    return found


def integers(given: Any) -> tuple[int, ...]:
    """Of 64 bits; TypeError or ValueError where they are none."""
    found = tuple(map(operator.index, given))
    if not all(-(1 << 63) <= x < 1 << 63 for x in found):
        raise ValueError
    return found


def read_interface(facts: Any, name: str, write: bool) -> tuple[View, int | None]:
    """What it says, and the stream to wait for; not yet whose it is."""
    version = facts.get("version", 0)
    if version not in INTERFACE_VERSIONS:
        raise invalid(f"{name} has version {version} of __cuda_array_interface__: 2 or 3 is needed")
    if facts.get("mask") is not None:
        raise invalid(f"{name} is masked: an array without a mask is needed")
    dtype = INTERFACE_TYPES.get(facts["typestr"][1:])
    if dtype is None or facts["typestr"][0] == ">":
        raise invalid(f"{name} has typestr {facts['typestr']}: allowed are <f2, <f4, <i4, <i8 (bf16 needs __dlpack__)")
    pointer, read_only = facts["data"]
    if write and read_only:
        raise invalid(f"{name} is read-only (its __cuda_array_interface__): memory that may be written is needed")
    size = int(facts["typestr"][2:])
    shape = integers(facts["shape"])
    strides = None if facts.get("strides") is None else integers(facts["strides"])
    if strides is not None and any(s % size or s < 0 for s in strides):
        raise invalid(f"{name} has strides of {tuple(strides)} bytes: multiples of {size}, 0 or more, are needed")
    elements = packed_strides(shape) if strides is None else tuple(s // size for s in strides)
    producer = facts.get("stream") if version >= 3 else None
    if producer == 0:
        raise invalid(f"{name} has stream 0 in its __cuda_array_interface__: 1 or 2, a handle or None is needed")
    pointer = operator.index(pointer or 0)
    if not 0 <= pointer < ADDRESSES:
        raise invalid(f"{name} has address {pointer} in its __cuda_array_interface__: 0 to 2^64 - 1 is needed")
    return View(pointer, shape, elements, dtype, -1, None), producer


def view(array: Any, name: str, launch: LaunchStream, write: bool = False) -> View:
    """What `array`, argument `name`, is; `launch` then waits for what its maker has queued. Error when it is no array
    on a CUDA device, or one that may not be written where the call would `write` it."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        found = from_torch(array, name, torch, launch)
    elif hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        found = from_dlpack(array, name, launch, write)
    elif hasattr(array, "__cuda_array_interface__"):
        found = from_interface(array, name, launch, write)
    else:
        raise invalid(
            f"{name} is a {type(array).__module__}.{type(array).__qualname__}: a torch or CuPy array is needed, or any "
            "with __dlpack__ or __cuda_array_interface__"
        )
    if write and any(size > 1 and step == 0 for size, step in zip(found.shape, found.strides, strict=True)):
        raise invalid(
            f"{name} has shape {found.shape} and strides {found.strides}: it is expanded, so that elements share their "
            "memory; pass one whose elements have their own, such as contiguous()"
        )
    return found
