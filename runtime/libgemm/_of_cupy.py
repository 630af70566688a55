"""What libgemm asks of CuPy about an array: its stream and new memory. Imports no CuPy."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

TYPES = {"f16": "float16", "f32": "float32", "i32": "int32", "u8": "uint8"}  # it has no bfloat16


def current_stream(array: Any) -> int:
    """Handle of the current stream of the array's device."""
    return int(sys.modules["cupy"].cuda.get_current_stream(array.device.id).ptr)


def stream_of(cuda: Any, given: Any, handle: int, device: int) -> Any:
    """CuPy's object for a stream: its own where there is one, since its ExternalStream is deprecated."""
    for own in (given, cuda.get_current_stream(device)):
        if isinstance(own, (cuda.Stream, cuda.ExternalStream)) and own.ptr == handle:
            return own
    return cuda.ExternalStream(handle, device)


@contextmanager
def as_current(given: Any, handle: int, like: Any) -> Iterator[None]:
    """A context in which this stream, `given` by the caller as what has that handle, is the current one."""
    cuda = sys.modules["cupy"].cuda
    with cuda.Device(like.device.id), stream_of(cuda, given, handle, like.device.id):
        yield


def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Callable[[], Any] | None:
    """None where CuPy has no such type."""
    cupy, kind = sys.modules["cupy"], TYPES.get(dtype)
    return kind and (lambda: cupy.empty(shape, dtype=kind))  # type: ignore[return-value]


def allocates_on(handle: int, like: Any) -> bool:
    """Never by itself: its memory is of the stream that is current."""
    return False


def hand_over(made: Any, handle: int, like: Any) -> None:
    """Nothing: CuPy's memory goes back to the stream that it is of."""


def address_of(array: Any) -> int:
    return int(array.data.ptr)


def written(arrays: list[Any]) -> None:
    """Nothing: nobody keeps CuPy's arrays for a gradient."""
