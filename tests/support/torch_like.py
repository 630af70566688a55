"""A stand-in for torch's tensors on the stand-in GPU: just what libgemm asks of torch. Holds no test."""

import contextlib
import math
import sys
from types import SimpleNamespace

from calls import allocate, launches
from exchange_like import EXCHANGE
from libgemm._tensor import packed_strides

SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4, "int64": 8, "uint8": 1, "float8_e4m3fn": 1,
         "float8_e5m2": 1}  # fmt: skip


class Dtype:
    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    __torch_dispatch__ = None  # a subclass with one stands for other tensors
    is_meta, layout = False, "strided"

    def __init__(self, pointer: int, shape, dtype: str = "float16", strides=None, device: int = 0, is_cuda=True,
                 requires_grad=False, negated=False):  # fmt: skip
        self.pointer, self.shape, self.dtype = pointer, tuple(shape), getattr(torch, dtype)
        self.strides = tuple(strides) if strides is not None else packed_strides(shape)
        self.index, self.is_cuda, self.recorded = device, is_cuda, []
        self.requires_grad, self.negated, self.version = requires_grad, negated, 0
        self.pool = None  # handle of the stream whose memory it is of, where `empty` made it

    @property
    def device(self) -> str:
        return f"cuda:{self.index}" if self.is_cuda else "cpu"

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    def __getitem__(self, place) -> "Tensor":
        """One of the first dimension, or [..., :count] of the last."""
        if isinstance(place, tuple):
            _, columns = place
            shape = (*self.shape[:-1], columns.stop)
            return Tensor(self.pointer, shape, self.dtype.name, self.strides, self.index, self.is_cuda)
        if not 0 <= place < len(self):
            raise IndexError(place)
        pointer = self.pointer + place * self.strides[0] * SIZES[self.dtype.name]
        return Tensor(pointer, self.shape[1:], self.dtype.name, self.strides[1:], self.index, self.is_cuda)

    def swapaxes(self, first: int, second: int) -> "Tensor":
        def swapped(given: tuple) -> list:
            made = list(given)
            made[first], made[second] = made[second], made[first]
            return made

        return Tensor(
            self.pointer, swapped(self.shape), self.dtype.name, swapped(self.strides), self.index, self.is_cuda
        )

    def data_ptr(self) -> int:
        return self.pointer

    def stride(self) -> tuple:
        return self.strides

    def is_contiguous(self) -> bool:
        packed = zip(self.shape, self.strides, packed_strides(self.shape), strict=True)
        return 0 in self.shape or all(size == 1 or step == wanted for size, step, wanted in packed)

    def is_neg(self) -> bool:
        return self.negated

    def get_device(self) -> int:
        return self.index if self.is_cuda else -1

    def record_stream(self, stream) -> None:
        self.recorded.append(stream.cuda_stream)


class Parameter(Tensor):
    pass


class Wrapper(Tensor):
    """As DTensor and FakeTensor are: torch asks it what to do instead of reading its memory."""

    __torch_dispatch__ = classmethod(lambda *_: None)


class Meta(Tensor):
    is_meta = True


class Stream:
    """One by its handle."""

    def __init__(self, handle: int, device: int):
        self.cuda_stream, self.index = handle, device

    def wait_stream(self, other: "Stream") -> None:
        waits.append((self.cuda_stream, other.cuda_stream, len(launches())))


def external_stream(handle: int, device: int) -> Stream:
    assert handle > 1, "torch's ExternalStream(0) is a new stream"
    return Stream(handle, device)


@contextlib.contextmanager
def as_current(stream: Stream):
    before = streams.get(stream.index, 0)
    streams[stream.index] = stream.cuda_stream
    try:
        yield
    finally:
        streams[stream.index] = before


def empty(shape, *, dtype, device) -> Tensor:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    index = int(device.removeprefix("cuda:"))
    made = Tensor(allocate(4 * max(math.prod(shape), 1), index), shape, dtype.name, device=index)
    made.pool = streams.get(index, 0)
    torch.made.append(made)
    return made


def increment_version(tensors) -> None:
    for tensor in tensors:
        tensor.version += 1


waits = []  # (the stream that waits, the other, launches so far)
streams = {}  # device -> handle of the stream torch would call current
torch = SimpleNamespace(
    Tensor=Tensor,
    dtype=Dtype,
    strided="strided",
    empty=empty,
    made=[],  # by empty
    grad=False,
    is_grad_enabled=lambda: torch.grad,
    nn=SimpleNamespace(Parameter=Parameter),
    _C=SimpleNamespace(
        _cuda_getCurrentRawStream=lambda device: streams.get(device, 0), _increment_version=increment_version
    ),
    cuda=SimpleNamespace(
        current_stream=lambda device: Stream(streams.get(device, 0), device),
        default_stream=lambda device: Stream(0, device),
        ExternalStream=external_stream,
        stream=as_current,
    ),
    **{name: Dtype(name) for name in SIZES},
)


def install(exchange: bool = True) -> SimpleNamespace:
    """Be the process's torch: one with DLPack's exchange API, or an older one."""
    if exchange:
        Tensor.__dlpack_c_exchange_api__ = EXCHANGE
    sys.modules["torch"] = torch
    return torch
