"""What libgemm asks of torch about a tensor: its stream, new memory, its version. Imports no torch."""

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

LEGACY = 1  # CUDA's other name for the default stream, whose handle is 0
TYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "i32": "int32",
    "u8": "uint8",
}


def own_module() -> Any:
    """The module, which whoever made the tensor has imported."""
    return sys.modules["torch"]


def raw_stream(torch: Any) -> Callable[[int], int]:
    """From a device's number to the handle of torch's current stream: torch's own short way, which may be missing."""
    short = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return short or (lambda device: torch.cuda.current_stream(device).cuda_stream)


def current_stream(tensor: Any) -> int:
    """Handle of the current stream of the tensor's device; of a CPU tensor 0: it is refused later, with its name."""
    return raw_stream(own_module())(tensor.get_device()) if tensor.is_cuda else 0


def stream_of(torch: Any, handle: int, device: int) -> Any:
    """torch's object for a stream. Its ExternalStream(0) would be a new stream, not the default one."""
    if handle in (0, LEGACY):
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(handle, device=device)


def as_current(given: Any, handle: int, like: Any) -> AbstractContextManager[Any]:
    """A context in which stream `handle` is the current one of the tensor's device."""
    return own_module().cuda.stream(stream_of(own_module(), handle, like.get_device()))  # type: ignore[no-any-return]


def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Callable[[], Any] | None:
    """None where torch has no such type: before 2.1 none of 8 bits."""
    torch = own_module()
    kind = getattr(torch, TYPES[dtype], None)
    return kind and (lambda: torch.empty(shape, dtype=kind, device=like.device))


def allocates_on(handle: int, like: Any) -> bool:
    """Whether what is allocated now is memory of this stream."""
    return handle == current_stream(like)


def hand_over(made: Any, handle: int, like: Any) -> None:
    """Of memory of another stream: the caller may use it on the current one too, and drop it there."""
    if not allocates_on(handle, like):
        made.record_stream(own_module().cuda.current_stream(like.get_device()))


def address_of(tensor: Any) -> int:
    return int(tensor.data_ptr())


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


def written(tensors: list[Any]) -> None:
    """Tell autograd that these tensors hold other numbers now."""
    version_mover(own_module())(tensors)
