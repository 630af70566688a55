"""What only the array's own framework can do: its current stream, and a new array. Imports no framework."""

import ctypes
import importlib
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from libgemm._library import Error, invalid, lib
from libgemm._of_torch import LEGACY

ADDRESSES = 1 << 64
KINDS = {"torch": "Tensor", "cupy": "ndarray"}  # what libgemm._of_<name> is about


@cache
def about(name: str) -> ModuleType:
    """What libgemm knows of a framework."""
    return importlib.import_module(f"libgemm._of_{name}")


def framework_of(array: Any) -> ModuleType | None:
    """libgemm's module about the framework that made this array; None for another maker's."""
    for name, kind in KINDS.items():
        own = getattr(sys.modules.get(name), kind, None)
        if own is not None and isinstance(array, own):
            return about(name)
    return None


def stream_handle(stream: Any, array: Any) -> int:
    """`stream` as a CUstream: an integer, an object with .cuda_stream (torch), .ptr (CuPy) or __cuda_stream__; None
    is the current stream of `array`'s framework, and of another maker's array 0, the default stream."""
    if stream is None:
        framework = framework_of(array)
        return framework.current_stream(array) if framework else 0
    handle = stream if type(stream) is int else handle_of(stream)
    if not 0 <= handle < ADDRESSES:
        raise invalid(f"stream = {handle}: a handle is an address, 0 to 2^64 - 1")
    return handle


def handle_of(stream: Any) -> int:
    """Of a stream object, or of an integer's kin."""
    try:
        for attribute in ("cuda_stream", "ptr"):
            if hasattr(stream, attribute):
                return operator.index(getattr(stream, attribute))
        if hasattr(stream, "__cuda_stream__"):
            return operator.index(stream.__cuda_stream__()[1])
        if not isinstance(stream, bool):
            return operator.index(stream)
    except (TypeError, ValueError, IndexError):
        pass
    raise invalid(f"stream is a {type(stream).__name__}: an integer handle or a torch or CuPy stream is needed")


class LaunchStream:
    """The stream that one call is queued on, and its order with what the frameworks queue on theirs.

    What a framework queued on its current stream before the call, this stream waits for. What the call allocates comes
    from the framework's memory of this stream, so that it is reused in order with it.
    """

    def __init__(self, stream: Any, like: Any):
        self.given, self.handle = stream, stream_handle(stream, like)
        self.waited = {self.handle or LEGACY}

    def must_wait(self, producer: int) -> bool:
        """Whether this stream has yet to wait for stream `producer`. Asked once, it counts as waited for."""
        known = (producer or LEGACY) in self.waited
        self.waited.add(producer or LEGACY)
        return not known

    def wait_for_torch(self, torch: Any, device: int) -> None:
        """Wait, on the device, for what torch queued on its current stream."""
        from libgemm import _of_torch

        if self.must_wait(_of_torch.raw_stream(torch)(device)):
            _of_torch.stream_of(torch, self.handle, device).wait_stream(torch.cuda.current_stream(device))

    def wait_on_host(self, producer: int, name: str) -> None:
        """Wait for a stream that came as a bare handle: without a framework there are no events to do it with."""
        if self.must_wait(producer):
            try:
                driver = ctypes.CDLL("libcuda.so.1")
            except OSError as error:
                raise Error(lib.LIBGEMM_NO_DRIVER, "LIBGEMM_NO_DRIVER", f"no NVIDIA driver: {error}") from None
            status = driver.cuStreamSynchronize(ctypes.c_void_p(producer))
            if status:
                text = f"{name}'s stream {producer:#x} cannot be waited for: cuStreamSynchronize returned {status}"
                raise Error(lib.LIBGEMM_DRIVER_ERROR, "LIBGEMM_DRIVER_ERROR", text)

    @contextmanager
    def as_current(self, like: Any) -> Iterator[None]:
        """A context in which this is the current stream of `like`'s framework."""
        framework = framework_of(like)
        if framework is None:
            raise invalid(f"libgemm knows no streams of {type(like).__module__}")
        with framework.as_current(self.given, self.handle, like):
            yield

    def new(self, make: Callable[[], Any], like: Any) -> Any:
        """What `make` allocates, in memory of this stream."""
        framework = framework_of(like)
        if framework and framework.allocates_on(self.handle, like):
            return make()
        with self.as_current(like):
            return make()

    def new_out(self, make: Callable[[], Any], like: Any) -> Any:
        """The same for the caller, who may use it on the framework's current stream too, and drop it there."""
        made, framework = self.new(make, like), framework_of(like)
        if framework:
            framework.hand_over(made, self.handle, like)
        return made


def maker(shape: tuple[int, ...], dtype: str, like: Any, name: str) -> Callable[[], Any]:
    """What allocates an array of `like`'s framework and device; Error for other makers, who must pass `name`."""
    framework = framework_of(like)
    made = framework.empty(shape, dtype, like) if framework else None
    if made is None:
        raise invalid(f"{name} is needed: libgemm cannot allocate a {dtype} {type(like).__module__} array")
    return made  # type: ignore[no-any-return]


def address_of(array: Any) -> int:
    """Device address of an array that a `maker` made."""
    framework = framework_of(array)
    if framework is None:
        raise invalid(f"libgemm made no array of {type(array).__module__}")
    return framework.address_of(array)  # type: ignore[no-any-return]


def written(arrays: list[Any]) -> None:
    """Tell the frameworks that these arrays, as far as they made them, hold other numbers now."""
    own: dict[ModuleType, list[Any]] = {}
    for array in arrays:
        if framework := framework_of(array):
            own.setdefault(framework, []).append(array)
    for framework, theirs in own.items():
        framework.written(theirs)


OUTPUTS = ("f16", "bf16", "f32")  # what a product may be stored as; of 8-bit operands also as the first of these
EIGHT_BITS = ("e4m3", "e5m2")
INPUTS = (*OUTPUTS, *EIGHT_BITS)


def dtype_name(dtype: Any, allowed: tuple[str, ...] = INPUTS, argument: str = "dtype") -> str:
    """One of those names from such a name, or a torch or numpy dtype."""
    text = str(dtype).rsplit(".", 1)[-1]
    names = {"float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32"}
    found = (names | {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}).get(text, text)
    if found not in allowed:
        given = repr(dtype) if dtype == "" else dtype
        raise invalid(f"{argument} {given} is not one of {', '.join(allowed)}")
    return found


def out_name(out_dtype: Any, dtype: str) -> str:
    """The name of an output's type: of `out_dtype`, or where that is None what operands of `dtype` give."""
    if out_dtype is None:
        return "bf16" if dtype in EIGHT_BITS else dtype
    return dtype_name(out_dtype, (*OUTPUTS, *EIGHT_BITS[:1]) if dtype in EIGHT_BITS else OUTPUTS, "out_dtype")
