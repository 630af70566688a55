"""A stand-in for CuPy's arrays on the stand-in GPU: just what libgemm asks of CuPy. Holds no test."""

import contextlib
import math
import sys
from types import SimpleNamespace

from arrays import CUDA, VersionedArray
from calls import allocate, launches

TYPES = {"float16": "f16", "float32": "f32", "uint8": "u8"}


class ndarray:
    """Gives itself out by DLPack, and orders itself as CuPy does: the consumer's stream waits for the current one."""

    def __init__(self, pointer: int, shape, dtype: str = "f16", device: int = 0):
        self.facts = VersionedArray(pointer, shape, dtype, device=(CUDA, device))
        self.shape = self.facts.shape
        self.data, self.device = SimpleNamespace(ptr=pointer), SimpleNamespace(id=device)
        self.pool = None  # handle of the stream whose memory it is of, where `empty` made it

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.facts.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None):
        own = streams.get(self.device.id, 0)
        if stream != (own or 1):
            waits.append((stream, own, len(launches())))
        return self.facts.__dlpack__(stream=stream, max_version=max_version)


@contextlib.contextmanager
def device(index: int):
    current.append(index)
    yield
    current.pop()


class Stream:
    def __init__(self, ptr: int, device_id: int):
        self.ptr, self.device_id = ptr, device_id

    def __enter__(self):
        assert self.device_id == current[-1], "CuPy enters streams of the current device alone"
        self.before = streams.get(self.device_id, 0)
        streams[self.device_id] = self.ptr

    def __exit__(self, *_):
        streams[self.device_id] = self.before


class ExternalStream(Stream):
    """Warns, from CuPy 14 on."""

    def __init__(self, *words):
        super().__init__(*words)
        deprecated.append(self)


def empty(shape, dtype: str) -> ndarray:
    index = current[-1]
    made = ndarray(allocate(4 * max(math.prod(shape), 1), index), shape, TYPES[dtype], index)
    made.pool = streams.get(index, 0)
    cupy.made.append(made)
    return made


current = [0]  # devices
deprecated = []  # streams made so
streams = {}  # device -> handle of the stream CuPy would call current
waits = []  # (the stream that waits, the other, launches so far)
cupy = SimpleNamespace(
    ndarray=ndarray,
    empty=empty,
    made=[],  # by empty
    cuda=SimpleNamespace(
        Device=device,
        Stream=Stream,
        ExternalStream=ExternalStream,
        get_current_stream=lambda index: Stream(streams.get(index, 0), index),
    ),
)


def install() -> SimpleNamespace:
    """Be the process's CuPy."""
    sys.modules["cupy"] = cupy
    return cupy
