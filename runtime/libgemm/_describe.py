"""What torch's tensors say of themselves: types, shapes, strides and devices as a key, and their addresses.

Through DLPack's C exchange API where torch has it (2.10), in one call that takes a tenth of the time of asking for one
attribute after the other; else by attributes. Looks at no number and refuses nothing.
"""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from libgemm._library import LIBRARY

# a, b, c, out and bias of a call, and group ends and up to four of scales if it has them; None for absent ones -> a
# key, and the addresses as 64-bit numbers. Raises what torch does of a tensor without memory, or returns () where one
# has too many dimensions.
Describe = Callable[..., tuple[Any, bytes]]
METH_FASTCALL = 0x80


class MethodDef(ctypes.Structure):
    """PyMethodDef of Python's stable ABI."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


def address_of_function(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def by_exchange(tensor_type: Any) -> Describe | None:
    """The library's own, as a built-in function: through ctypes or cffi its arguments alone would take longer. None
    where this torch or this Python lacks what it needs."""
    capsule = getattr(tensor_type, "__dlpack_c_exchange_api__", None)
    library = ctypes.PyDLL(str(LIBRARY))  # unlike cffi it keeps Python's lock
    try:
        python = ctypes.pythonapi
        get, new = python.PyCapsule_GetPointer, python.PyCFunction_NewEx
        used = python.PyBytes_FromStringAndSize, python.PyTuple_Pack, python.Py_DecRef
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        exchange = get(capsule, b"dlpack_exchange_api")
    except (AttributeError, ValueError):  # another Python than CPython, or no such capsule
        return None
    library.libgemm_python_init.argtypes = [ctypes.c_void_p] * 5
    if library.libgemm_python_init(exchange, id(None), *map(address_of_function, used)):
        return None
    method = MethodDef(b"describe", address_of_function(library.libgemm_python_describe), METH_FASTCALL, None)
    kept.append(method)
    new.restype, new.argtypes = ctypes.py_object, [ctypes.POINTER(MethodDef), ctypes.c_void_p, ctypes.c_void_p]
    function: Describe = new(ctypes.byref(method), None, None)
    return function


def by_attributes(a: Any, b: Any, c: Any, out: Any, bias: Any, *more: Any) -> tuple[Any, bytes]:
    """`more` are group ends and scales. Of the addresses of a, b, c and out the key says only together whether they are
    multiples of 16: no other call is kept."""
    places = [
        at_a := a.data_ptr(),
        at_b := b.data_ptr(),
        at_c := 0 if c is None else c.data_ptr(),
        at_out := 0 if out is None else out.data_ptr(),
        at_bias := 0 if bias is None else bias.data_ptr(),
    ]
    rest = None
    if c is not None or bias is not None or more:
        rest = (
            c is None or (c.dtype, c.shape, c.stride(), c.get_device()),
            bias is None or (bias.dtype, bias.shape, bias.stride(), bias.get_device(), at_bias == 0),
            tuple((x.dtype, x.shape, x.stride(), x.get_device(), x.data_ptr() % 16) for x in more),
        )
    places += [x.data_ptr() for x in more]
    key = (
        a.dtype, a.shape, a.is_contiguous() or a.stride(), a.get_device(),
        b.dtype, b.shape, b.stride(), b.get_device(),
        out is None or (out.dtype, out.shape, out.is_contiguous() or out.stride(), out.get_device()),
        (at_a | at_b | at_c | at_out) & 15, rest,
    )  # fmt: skip
    return key, PACK[len(places)](*places)


PACK = {count: struct.Struct(f"{count}Q").pack for count in range(5, 10)}
kept: list[MethodDef] = []  # a function refers to its own as long as it lives


def describer(torch: Any) -> Describe:
    """The quickest that this torch allows."""
    return by_exchange(torch.Tensor) or by_attributes
