"""A stand-in for torch's tensors on the stand-in GPU: just what libgemm asks of torch. Holds no test."""

import sys
from types import SimpleNamespace

from calls import allocate
from libgemm._tensor import packed_strides

DTYPES = ("float16", "bfloat16", "float32", "int32", "int64", "uint8")


class Dtype:
    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    def __init__(self, pointer: int, shape, dtype: str = "float16", strides=None, device: int = 0, is_cuda=True):
        self.pointer, self.shape, self.dtype = pointer, tuple(shape), getattr(torch, dtype)
        self.strides = tuple(strides) if strides else packed_strides(shape)
        self.index, self.is_cuda, self.recorded = device, is_cuda, []

    @property
    def device(self) -> str:
        return f"cuda:{self.index}" if self.is_cuda else "cpu"

    def data_ptr(self) -> int:
        return self.pointer

    def stride(self) -> tuple:
        return self.strides

    def get_device(self) -> int:
        return self.index if self.is_cuda else -1

    def record_stream(self, stream) -> None:
        self.recorded.append(stream)


def empty(shape, *, dtype, device) -> Tensor:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = 1
    for size in shape:
        count *= size
    index = int(device.removeprefix("cuda:"))
    made = Tensor(allocate(4 * max(count, 1), index), shape, dtype.name, device=index)
    torch.made.append(made)
    return made


streams = {}  # device -> handle of the stream torch would call current
torch = SimpleNamespace(
    Tensor=Tensor,
    dtype=Dtype,
    empty=empty,
    made=[],  # by empty
    _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: streams.get(device, 0)),
    cuda=SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=streams.get(device, 0)),
        ExternalStream=lambda stream, device: stream,
    ),
    **{name: Dtype(name) for name in DTYPES},
)


def install() -> SimpleNamespace:
    """Be the process's torch."""
    sys.modules["torch"] = torch
    return torch
