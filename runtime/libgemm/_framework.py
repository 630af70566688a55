"""What only the array's own framework can do: its current stream, and a new array. Imports no framework."""

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from libgemm._library import Error, invalid, lib

LEGACY = 1  # CUDA's other name for the default stream, whose handle is 0


def framework_of(array: Any) -> str | None:
    """ "torch", "cupy", or None for an array of another maker."""
    for name in ("torch", "cupy"):
        module = sys.modules.get(name)
        kind = getattr(module, "Tensor" if name == "torch" else "ndarray", None)
        if kind is not None and isinstance(array, kind):
            return name
    return None


def raw_stream(torch: Any) -> Callable[[int], int]:
    """From a device's number to the handle of torch's current stream: torch's own short way, which may be missing."""
    short = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return short or (lambda device: torch.cuda.current_stream(device).cuda_stream)


def current_stream(array: Any) -> int:
    """Handle of the stream the array's framework queues work on now; 0, the default stream, for other makers."""
    framework = framework_of(array)
    if framework == "torch":
        if not array.is_cuda:
            return 0  # refused later, with the argument's name
        return raw_stream(sys.modules["torch"])(array.get_device())
    if framework == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream(array.device.id).ptr)
    return 0


def stream_handle(stream: Any, array: Any) -> int:
    """`stream` as a CUstream: an integer, an object with .cuda_stream (torch), .ptr (CuPy) or __cuda_stream__; None
    is the current stream of `array`'s framework."""
    if stream is None:
        return current_stream(array)
    if isinstance(stream, int):
        return stream
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise invalid(f"stream is a {type(stream).__name__}: an integer handle or a torch or CuPy stream is needed")


def torch_stream(torch: Any, handle: int, device: int) -> Any:
    """torch's object for a stream. Its ExternalStream(0) would be a new stream, not the default one."""
    if handle in (0, LEGACY):
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(handle, device=device)


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
        if self.must_wait(raw_stream(torch)(device)):
            torch_stream(torch, self.handle, device).wait_stream(torch.cuda.current_stream(device))

    def wait_on_host(self, producer: int, name: str) -> None:
        """Wait for a stream that came as a bare handle: without a framework there are no events to do it with."""
        if self.must_wait(producer):
            status = ctypes.CDLL("libcuda.so.1").cuStreamSynchronize(ctypes.c_void_p(producer))
            if status:
                text = f"{name}'s stream {producer:#x} cannot be waited for: cuStreamSynchronize returned {status}"
                raise Error(lib.LIBGEMM_DRIVER_ERROR, "LIBGEMM_DRIVER_ERROR", text)

    @contextmanager
    def as_current(self, like: Any) -> Iterator[None]:
        """A context in which this is the current stream of `like`'s framework."""
        if framework_of(like) == "torch":
            torch = sys.modules["torch"]
            with torch.cuda.stream(torch_stream(torch, self.handle, like.get_device())):
                yield
        else:
            cuda = sys.modules["cupy"].cuda
            with cuda.Device(like.device.id), self.of_cupy(cuda, like.device.id):
                yield

    def of_cupy(self, cuda: Any, device: int) -> Any:
        """CuPy's object for this stream: its own where there is one, since its ExternalStream is deprecated."""
        for own in (self.given, cuda.get_current_stream(device)):
            if isinstance(own, (cuda.Stream, cuda.ExternalStream)) and own.ptr == self.handle:
                return own
        return cuda.ExternalStream(self.handle, device)

    def new(self, make: Callable[[], Any], like: Any) -> Any:
        """What `make` allocates, in memory of this stream."""
        if framework_of(like) == "torch" and self.handle == current_stream(like):
            return make()
        with self.as_current(like):
            return make()

    def new_out(self, make: Callable[[], Any], like: Any) -> Any:
        """The same for the caller, who may use it on torch's current stream too, and drop it there."""
        made = self.new(make, like)
        if framework_of(like) == "torch" and self.handle != current_stream(like):
            made.record_stream(sys.modules["torch"].cuda.current_stream(like.get_device()))
        return made


def maker(shape: tuple[int, ...], dtype: str, like: Any, name: str) -> Callable[[], Any]:
    """What allocates an array of `like`'s framework and device; Error for other makers, who must pass `name`."""
    framework = framework_of(like)
    if framework == "torch":
        torch = sys.modules["torch"]
        types = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "u8": torch.uint8}
        return lambda: torch.empty(shape, dtype=types[dtype], device=like.device)
    if framework == "cupy" and dtype != "bf16":
        cupy = sys.modules["cupy"]
        return lambda: cupy.empty(shape, dtype={"f16": "float16", "f32": "float32", "u8": "uint8"}[dtype])
    raise invalid(f"{name} is needed: libgemm cannot allocate a {dtype} {type(like).__module__} array")


def address_of(array: Any) -> int:
    """Device address of an array that a `maker` made."""
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.data.ptr)


def version_mover(torch: Any) -> Callable[[Iterable[Any]], None]:
    """torch's way to be told that tensors were written in place. Before torch 2.1 there is none."""
    try:
        torch._C._increment_version(())
    except (AttributeError, TypeError):  # the public function takes longer, and one tensor in older versions
        public = getattr(torch.autograd.graph, "increment_version", lambda _: None)

        def move_each(tensors: Iterable[Any]) -> None:
            for tensor in tensors:
                public(tensor)

        return move_each
    return torch._C._increment_version  # type: ignore[no-any-return]


def written(arrays: list[Any]) -> None:
    """Tell autograd that these arrays, as far as they are torch's, hold other numbers now."""
    tensors = [array for array in arrays if framework_of(array) == "torch"]
    if tensors:
        version_mover(sys.modules["torch"])(tensors)


def dtype_name(dtype: Any) -> str:
    """ "f16", "bf16" or "f32" from such a name, or a torch or numpy dtype."""
    text = str(dtype).rsplit(".", 1)[-1]
    names = {"float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32"}
    found = names.get(text, text)
    if found not in ("f16", "bf16", "f32"):
        raise invalid(f"dtype {dtype} is not one of f16, bf16, f32")
    return found
