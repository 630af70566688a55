"""Layers of torch tensors like one before, made again at little more than the launches' own cost.

As _known.py, whose key a layer's is too; a layer of other sizes goes the general way. bfloat16 alone: its tensors never
are views with a sign that is still to be taken.
"""

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from libgemm import _known
from libgemm._library import check, ffi, lib

FIELDS = ("x", "b1", "b2", "d", "bias1", "bias2", "ids", "weights")  # of libgemm_moe_args, one behind the other
PLACES = 8 * len(FIELDS)
SCALES = ("b1_scale", "b2_scale")  # one behind the other as well
OF_SCALES = 8 * len(SCALES)
OFFSETS = {name: ffi.offsetof("libgemm_moe_args", name) for name in (*FIELDS, *SCALES, "workspace", "stream")}
for first, names in (("x", FIELDS), ("b1_scale", SCALES)):
    assert [OFFSETS[name] - OFFSETS[first] for name in names] == list(range(0, 8 * len(names), 8))


@dataclass(slots=True, eq=False)
class Kept:
    """A filled struct. One call at a time uses it: Python's lock is released while that runs."""

    args: Any
    places: Any  # its pointers of FIELDS, as one piece
    scales: Any  # those of SCALES
    d: Any
    workspace: Any
    stream: Any
    device: int
    new_out: Callable[[], Any]
    new_workspace: Callable[[], Any]


calls: dict[Any, list[Kept]] = {}


def plain(x: Any) -> bool:
    kind = type(x)
    return kind is _known.Tensor or kind is _known.Parameter


def again(
    tensors: tuple[Any, ...], options: tuple[Any, ...], stream: Any, scales: tuple[Any, ...] = ()
) -> tuple[Any, Any]:
    """Make the call on these tensors, in the order of FIELDS, None for absent ones, and of 8-bit weights on both
    scales: (its output, None). Or (None, what to keep it under when it has gone the general way), or (None, None)."""
    out, weights = tensors[3], tensors[7]
    if stream is not None or _known.Tensor is None or not all(t is None or plain(t) for t in tensors):
        return None, None
    if _known.grad_mode() and any(t is not None and t.requires_grad for t in tensors):
        return None, None
    try:
        described, places = _known.describe(*tensors)
        of_scales, places_of_scales = None, b""
        if scales:
            if not all(map(_known.is_plain, scales)):
                return None, None
            of_scales, places_of_scales = _known.describe(*scales, None, None, None)
        key = described, of_scales, options
        free = calls.get(key)
    except Exception:  # a tensor that cannot be read, or an option that is no word or number: the general way tells
        return None, None
    if type(described) is not bytes or len(places) != PLACES or (weights is not None and weights.is_neg()):
        return None, None
    if free is None:
        return None, key
    try:
        kept = free.pop()
    except IndexError:  # all in use by other threads
        return None, key
    kept.places.raw = places
    if scales:
        kept.scales.raw = places_of_scales[:OF_SCALES]
    made = out
    if made is None:
        made = kept.new_out()
        kept.d.value = made.data_ptr()
    workspace = kept.new_workspace()
    kept.workspace.value = workspace.data_ptr()
    kept.stream.value = _known.current_stream(kept.device)
    status = lib.libgemm_moe(kept.args)
    free.append(kept)
    if status == lib.LIBGEMM_INVALID_ARGUMENT:  # a pointer: only the general way knows why
        return None, None
    check(status)
    if out is not None:
        _known.move_version((out,))
    return made, None


def keep(key: Any, args: Any, tensors: tuple[Any, ...], made: Any) -> None:
    """Keep a filled struct under its key, and none of the tensors that it was filled from, scales among them; `made` is
    its output."""
    torch, x = sys.modules["torch"], tensors[0]
    if x.dtype is not torch.bfloat16 or any(t is not None and t.device != x.device for t in tensors):
        return
    if not all(option is None or isinstance(option, (str, int, float)) for option in key[-1]):
        return
    memory = ffi.buffer(args)

    def word(name: str) -> Any:
        return ctypes.c_uint64.from_buffer(memory, OFFSETS[name])

    new = partial(torch.empty, device=x.device)
    if len(calls) >= _known.MOST:
        calls.clear()
    calls.setdefault(key, []).append(
        Kept(
            args, _known.bytes_type(PLACES).from_buffer(memory, OFFSETS["x"]),
            _known.bytes_type(OF_SCALES).from_buffer(memory, OFFSETS["b1_scale"]), word("d"), word("workspace"),
            word("stream"), x.get_device(), partial(new, made.shape, dtype=made.dtype),
            partial(new, args.workspace_bytes, dtype=torch.uint8),
        )
    )  # fmt: skip
