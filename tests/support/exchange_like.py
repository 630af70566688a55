"""A stand-in for torch's side of DLPack's C exchange API, over tensors of torch_like. Holds no test."""

import ctypes

from libgemm._tensor import DLTensor

TYPES = {
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "float32": (2, 32),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e5m2": (12, 8),
}
NAME = b"dlpack_exchange_api"  # a capsule refers to it
READ = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(DLTensor))


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI, as far as libgemm reads it."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("unread", ctypes.c_void_p * 3),
        ("read", READ),
    ]


@READ
def read(place: int, found) -> int:
    """A tensor whose address cannot be asked has none: a callback cannot raise."""
    tensor = ctypes.cast(place, ctypes.py_object).value
    tensor.dims = [(ctypes.c_int64 * len(numbers))(*numbers) for numbers in (tensor.shape, tensor.strides)]
    try:
        data = tensor.data_ptr()
    except RuntimeError:
        data = None
    shape, strides = (ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64)) for numbers in tensor.dims)
    code, bits = TYPES[tensor.dtype.name]
    found[0] = DLTensor(
        data, 2 if tensor.is_cuda else 1, tensor.index, len(tensor.shape), code, bits, 1, shape, strides
    )
    return 0


def capsule(api: Exchange, name: bytes = NAME):
    made = ctypes.pythonapi.PyCapsule_New
    made.restype, made.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return made(ctypes.addressof(api), name, None)


API = Exchange(1, 3, None, read=read)
EXCHANGE = capsule(API)
