"""What only the array's own framework can do: its current stream, and a new array. Imports no framework."""

import sys
from collections.abc import Callable

from libgemm._library import invalid


def framework_of(array) -> str | None:
    """ "torch", "cupy", or None for an array of another maker."""
    for name in ("torch", "cupy"):
        module = sys.modules.get(name)
        kind = getattr(module, "Tensor" if name == "torch" else "ndarray", None)
        if kind is not None and isinstance(array, kind):
            return name
    return None


def raw_stream(torch) -> Callable[[int], int]:
    """From a device's number to the handle of torch's current stream: torch's own short way, which may be missing."""
    short = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return short or (lambda device: torch.cuda.current_stream(device).cuda_stream)


def current_stream(array) -> int:
    """Handle of the stream the array's framework queues work on now; 0, the default stream, for other makers."""
    framework = framework_of(array)
    if framework == "torch":
        if not array.is_cuda:
            return 0  # refused later, with the argument's name
        return raw_stream(sys.modules["torch"])(array.get_device())
    if framework == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream().ptr
    return 0


def stream_handle(stream, array) -> int:
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


def empty(shape: tuple[int, ...], dtype: str, like, name: str):
    """A new array of `like`'s framework on `like`'s device; Error for other makers, who must pass `name`."""
    framework = framework_of(like)
    if framework == "torch":
        torch = sys.modules["torch"]
        types = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "u8": torch.uint8}
        return torch.empty(shape, dtype=types[dtype], device=like.device)
    if framework == "cupy" and dtype != "bf16":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device.id):
            return cupy.empty(shape, dtype={"f16": "float16", "f32": "float32", "u8": "uint8"}[dtype])
    raise invalid(f"{name} is needed: libgemm cannot allocate a {dtype} {type(like).__module__} array")


def address_of(array) -> int:
    """Device address of an array that `empty` made."""
    return array.data_ptr() if hasattr(array, "data_ptr") else array.data.ptr


def keep_until(array, stream: int) -> None:
    """Tell torch's allocator that `stream`, if not its current one, uses `array`, so that it is not reused early."""
    if framework_of(array) == "torch" and stream != current_stream(array):
        torch = sys.modules["torch"]
        array.record_stream(torch.cuda.ExternalStream(stream, device=array.device))


def dtype_name(dtype) -> str:
    """ "f16", "bf16" or "f32" from such a name, or a torch or numpy dtype."""
    text = str(dtype).rsplit(".", 1)[-1]
    names = {"float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32"}
    found = names.get(text, text)
    if found not in ("f16", "bf16", "f32"):
        raise invalid(f"dtype {dtype} is not one of f16, bf16, f32")
    return found
