"""Arrays no framework made: pointer, shape and strides behind __cuda_array_interface__ or __dlpack__. Holds no test."""

import ctypes

INTERFACE, PLAIN, VERSIONED = "interface", "dltensor", "dltensor_versioned"
KINDS = (INTERFACE, PLAIN, VERSIONED)
# name -> (DLPack type code, bits, typestr of the array interface)
TYPES = {
    "f16": (2, 16, "<f2"), "bf16": (4, 16, None), "f32": (2, 32, "<f4"), "i32": (0, 32, "<i4"), "i64": (0, 64, "<i8"),
    "f64": (2, 64, "<f8"), "u8": (1, 8, "|u1"), "i16": (0, 16, "<i2"), "f32 big-endian": (2, 32, ">f4"),
    "e4m3": (10, 8, None), "e5m2": (12, 8, None),
}  # fmt: skip
CUDA, CPU, CUDA_HOST, MANAGED = 2, 1, 3, 13

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", Tensor),
    )  # fmt: skip


class Facts:
    def __init__(self, pointer: int, shape, dtype="f16", strides=None, device=(CUDA, 0), lanes=1, offset=0, **more):
        self.pointer, self.shape, self.dtype, self.strides = pointer, tuple(shape), dtype, strides
        self.device, self.lanes, self.offset, self.more = device, lanes, offset, more
        self.streams = []  # what consumers passed to __dlpack__


class InterfaceArray(Facts):
    """`more` are entries of the interface."""

    @property
    def __cuda_array_interface__(self) -> dict:
        _, bits, typestr = TYPES[self.dtype]
        strides = self.strides and tuple(s * bits // 8 for s in self.strides)
        return {
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.pointer, False),
            "strides": strides,
            "version": 3,
            **self.more,
        }


class DLPackArray(Facts):
    """Gives out old capsules, and knows no max_version, as producers before DLPack 1.0."""

    name = b"dltensor"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def tensor(self) -> Tensor:
        code, bits, _ = TYPES[self.dtype]
        rank = len(self.shape)
        self.shape_array = (ctypes.c_int64 * rank)(*self.shape)
        self.stride_array = (ctypes.c_int64 * rank)(*self.strides) if self.strides is not None else None
        return Tensor(
            self.pointer - self.offset, *self.device, rank, code, bits, self.lanes, self.shape_array,
            self.stride_array, self.offset,
        )  # fmt: skip

    def capsule(self, managed):
        self.managed = managed
        return new_capsule(ctypes.addressof(managed), self.name, self.destructor())

    def destructor(self):
        """What a capsule calls when it dies; None for nothing."""
        return None

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.capsule(Managed(self.tensor()))


class VersionedArray(DLPackArray):
    """`more` may have the `version` and the `flags` of the capsule."""

    name = b"dltensor_versioned"

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        assert max_version[0] >= 1
        version, flags = self.more.get("version", (1, 0)), self.more.get("flags", 0)
        return self.capsule(ManagedVersioned(version, None, None, flags, self.tensor()))


class LentArray(VersionedArray):
    """Its memory is lent for as long as the capsule lives: `at_death` is called, and nothing can be read any more."""

    def __init__(self, *facts, at_death, **words):
        super().__init__(*facts, **words)
        self.at_death = at_death

    def destructor(self):
        def die(_):
            self.at_death()
            self.managed.tensor.data = 0

        self.kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(die)
        return self.kept


MAKERS = {INTERFACE: InterfaceArray, PLAIN: DLPackArray, VERSIONED: VersionedArray}
