"""Any framework's array -> pointer, shape, strides (elements), dtype, device. Imports no framework; launches nothing.

Order: torch's own attributes (fastest), then __dlpack__, then __cuda_array_interface__. Frameworks are looked up in
sys.modules: one that nobody imported cannot have made the array.
"""

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

from libgemm._library import invalid

F16, BF16, F32, I32, I64 = "f16", "bf16", "f32", "i32", "i64"
SUPPORTED = f"{F16}, {BF16}, {F32} (i32, i64 for offsets and tables)"
DLPACK_CUDA, DLPACK_CUDA_MANAGED = 2, 13
# (DLDataTypeCode, bits): 0 int, 2 float, 4 bfloat (dlpack.h)
DLPACK_TYPES = {(2, 16): F16, (4, 16): BF16, (2, 32): F32, (0, 32): I32, (0, 64): I64}
INTERFACE_TYPES = {"f2": F16, "f4": F32, "i4": I32, "i8": I64}


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


def packed_strides(shape) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def from_torch(array, name: str, torch) -> View:
    if not array.is_cuda:
        raise invalid(f"{name} is on {array.device}: a tensor on a CUDA device is needed")
    types = {torch.float16: F16, torch.bfloat16: BF16, torch.float32: F32, torch.int32: I32, torch.int64: I64}
    if array.dtype not in types:
        raise invalid(f"{name} has dtype {array.dtype}: allowed are {SUPPORTED}")
    shape, strides = tuple(array.shape), array.stride()
    return View(array.data_ptr(), shape, strides, types[array.dtype], array.get_device(), array)


def read_capsule(capsule, name: str) -> DLTensor:
    """The tensor in a DLPack capsule, which keeps its name and its ownership: it frees itself when we let go."""
    if capsule_is_valid(capsule, b"dltensor_versioned"):
        return DLVersioned.from_address(capsule_pointer(capsule, b"dltensor_versioned")).tensor
    if capsule_is_valid(capsule, b"dltensor"):
        return DLTensor.from_address(capsule_pointer(capsule, b"dltensor"))
    raise invalid(f"{name}'s __dlpack__ returned no fresh DLPack capsule")


def from_dlpack(array, name: str, stream: int | None) -> View:
    kind, device = array.__dlpack_device__()
    if kind not in (DLPACK_CUDA, DLPACK_CUDA_MANAGED):
        raise invalid(f"{name} is on DLPack device type {int(kind)}: a CUDA device ({DLPACK_CUDA}) is needed")
    # DLPack names the legacy default stream 1; we hand over ours, so that the producer's work is ordered before it.
    wanted = {"stream": stream or 1}
    try:
        capsule = array.__dlpack__(max_version=(1, 0), **wanted)
    except TypeError:
        capsule = array.__dlpack__(**wanted)
    tensor = read_capsule(capsule, name)
    dtype = DLPACK_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise invalid(f"{name} has DLPack type code {tensor.code}, {tensor.bits} bits: allowed are {SUPPORTED}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else packed_strides(shape)
    return View((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, int(device), (array, capsule))


def from_interface(array, name: str) -> View:
    """The interface's `stream` entry is not waited on: pass that stream to the call, or an array with __dlpack__."""
    facts = array.__cuda_array_interface__
    dtype = INTERFACE_TYPES.get(facts["typestr"][1:])
    if dtype is None or facts["typestr"][0] == ">":
        raise invalid(f"{name} has typestr {facts['typestr']}: allowed are <f2, <f4, <i4, <i8 (bf16 needs __dlpack__)")
    size = int(facts["typestr"][2:])
    shape = tuple(facts["shape"])
    strides = facts.get("strides")
    if strides is not None and any(s % size for s in strides):
        raise invalid(f"{name} has strides of {strides} bytes: multiples of {size} are needed")
    elements = packed_strides(shape) if strides is None else tuple(s // size for s in strides)
    return View(facts["data"][0], shape, elements, dtype, -1, array)


def view(array, name: str, stream: int | None = None) -> View:
    """What `array`, argument `name`, is. Error when it is no array on a CUDA device."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return from_torch(array, name, torch)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return from_dlpack(array, name, stream)
    if hasattr(array, "__cuda_array_interface__"):
        return from_interface(array, name)
    raise invalid(
        f"{name} is a {type(array).__module__}.{type(array).__qualname__}: a torch or CuPy array is needed, or any "
        "with __dlpack__ or __cuda_array_interface__"
    )
