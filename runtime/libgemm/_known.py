"""Calls of torch tensors like one before, made again at little more than the launch's own cost.

A call has a key: all that its C struct is made of but addresses and stream. The struct of a call that went well is kept
under its key, and a call of the same key sets just those. A call whose key differs from a kept one's in sizes
alone has a copy of that one's struct, with its own sizes. What is like no known call goes the general way: so does all
that must be refused, since only that way has the sentences.
"""

import ctypes
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from libgemm._describe import Describe, describer
from libgemm._framework import LaunchStream
from libgemm._library import check, ffi, lib
from libgemm._of_torch import raw_stream, version_mover

ONE, ZERO = 1.0, 0.0  # alpha and beta as defaults: the very same objects each time, so that `is` finds them
POINTER = 8  # bytes
MOST = 4096  # keys of an operation; at one more all are dropped
# What a call is kept under: its tensors, and what else its struct is made of or None; and the tensors' addresses.
Key = tuple[Any, Any, bytes]
# Of torch, once it is imported and a call was made: its tensors' types that hide nothing, and functions of it.
Tensor: Any = None
Parameter: Any = None
describe: Describe
grad_mode: Callable[[], bool] = bool
current_stream: Callable[[int], int] = int
move_version: Callable[[Iterable[Any]], Any] = tuple


def learn_torch() -> None:
    """What the quick way asks of torch, once somebody has imported it."""
    global Tensor, Parameter, describe, grad_mode, current_stream, move_version
    torch = sys.modules.get("torch")
    if torch is not None and Tensor is None:
        move_version, grad_mode, current_stream = version_mover(torch), torch.is_grad_enabled, raw_stream(torch)
        describe = describer(torch)
        Parameter, Tensor = torch.nn.Parameter, torch.Tensor


@cache
def bytes_type(count: int) -> Any:
    return ctypes.c_char * count


@dataclass(slots=True, eq=False)
class Kept:
    """A filled struct. One call at a time uses it: Python's lock is released while that runs."""

    args: Any
    places: Any  # its pointers to a, b, c, d, bias and, where there are some, group ends, as one piece
    scales: Any  # those to a_scale and b_scale, or None
    of_d: Any  # that to d_scale, and to d_amax, likewise
    c: Any  # the pointer to C where `places` does not say it: D's if `out_is_c`, else NULL
    d: Any
    workspace: Any
    stream: Any
    out_is_c: bool
    device: int
    may_be_negated: bool  # a bit that no key shows; bfloat16, which no complex type is made of, never has it
    new_workspace: Callable[[], Any] | None  # None where the call needs none
    new_out: partial[Any]
    alive: list[Any]
    described: Any  # the tensors
    asks_workspace: bool = False  # it was never asked how much


def kept_of(args: Any, offsets: dict[str, int], like: Any, described: Any, **words: Any) -> Kept:
    """A struct, and the words of it that differ from call to call. `like` is one of its tensors."""
    memory = ffi.buffer(args)

    def word(field: str) -> Any:
        return ctypes.c_uint64.from_buffer(memory, offsets[field])

    scaled = words.pop("scaled")  # how many scales
    return Kept(
        args, scales=bytes_type(2 * POINTER).from_buffer(memory, offsets["a_scale"]) if scaled else None,
        of_d=bytes_type((scaled - 2) * POINTER).from_buffer(memory, offsets["d_scale"]) if scaled > 2 else None,
        c=word("c") if words.pop("writes_c") else None, d=word("d"), workspace=word("workspace"),
        stream=word("stream"), device=like.get_device(), described=described,
        places=bytes_type(words.pop("places")).from_buffer(memory, offsets["a"]), **words,
    )  # fmt: skip


def is_plain(scale: Any) -> bool:
    """Whether a tensor of scales is what a key says of it."""
    kind = type(scale)
    return (kind is Tensor or kind is Parameter) and not scale.is_neg() and not scale.requires_grad


def name_of(described: Any, options: Any) -> Any:
    """What structs of these calls are kept under."""
    return described if options is None else (described, options)


class Known:
    """The calls of one operation whose arguments begin with sizes and then a, b, c, d, bias and group ends."""

    def __init__(self, kind: str):
        self.kind = kind
        self.run = getattr(lib, f"libgemm_{kind}")
        self.workspace = getattr(lib, f"libgemm_{kind}_workspace")
        self.resize = getattr(lib, f"libgemm_python_resize_{kind}")
        self.struct = ffi.typeof(f"libgemm_{kind}_args *")
        self.offsets = {
            field: ffi.offsetof(f"libgemm_{kind}_args", field) for field in ("a", "c", "d", "workspace", "stream")
        }
        if kind in ("gemm", "grouped_mm"):
            self.offsets["a_scale"] = ffi.offsetof(f"libgemm_{kind}_args", "a_scale")
        if kind == "gemm":
            self.offsets["d_scale"] = ffi.offsetof("libgemm_gemm_args", "d_scale")
        self.calls: dict[Any, list[Kept]] = {}
        self.kin: dict[Any, Kept] = {}  # by all but the tensors' sizes, roughly

    def again(
        self, a: Any, b: Any, c: Any, out: Any, bias: Any, ends: Any, options: Any, stream: Any, scales: Any = None
    ) -> tuple[Any, Key | None]:
        """Make the call: (its output, None). Or (None, what to keep it under when it has gone the general way), or
        (None, None). `options` is what else the struct is made of; `scales` are a_scale, b_scale and, of a D that has
        them, its own and where its rows' magnitudes go."""
        if not (
            ((kind := type(a)) is Tensor or kind is Parameter)
            and ((kind := type(b)) is Tensor or kind is Parameter)
            and (out is None or (kind := type(out)) is Tensor or kind is Parameter)
            and (c is None or (kind := type(c)) is Tensor or kind is Parameter)
            and (bias is None or (kind := type(bias)) is Tensor or kind is Parameter)
            and (ends is None or (kind := type(ends)) is Tensor or kind is Parameter)
        ) or (
            grad_mode() and (
                a.requires_grad or b.requires_grad or (out is not None and out.requires_grad)
                or (c is not None and c.requires_grad) or (bias is not None and bias.requires_grad)
            )
        ):  # fmt: skip
            return None, None
        if scales is not None and not all(map(is_plain, scales)):
            return None, None
        try:
            if ends is None:
                described, places = describe(a, b, c, out, bias, *(scales or ()))
            elif scales is None:
                described, places = describe(a, b, c, out, bias, ends)
            else:
                described, places = describe(a, b, c, out, bias, ends, *scales)
        except Exception:  # of torch, or no tuple of two: a tensor that cannot be read, of which the general way tells
            return None, None
        name = name_of(described, options)
        try:
            free = self.calls[name]
            kept = free.pop()
        except (KeyError, IndexError):  # not known, or all in use by other threads
            known = type(described) is bytes and self.kin and scales is None
            after = self.resized(described, options, a) if known else None
            if after is None:
                return None, (described, options, places)
            kept, free = after, self.place_for(name)
        except TypeError:  # not hashable
            return None, (described, options, places)
        if kept.may_be_negated and (
            a.is_neg() or b.is_neg() or (out is not None and out.is_neg())
            or (c is not None and c.is_neg()) or (bias is not None and bias.is_neg())
        ):  # fmt: skip
            free.append(kept)
            return None, None
        launch = None
        if stream is None:
            handle = current_stream(kept.device)
        else:
            launch = LaunchStream(stream, a)
            launch.wait_for_torch(sys.modules["torch"], kept.device)
            handle = launch.handle
        if kept.scales is None:
            kept.places.raw = places
        elif kept.of_d is None:
            kept.places.raw, kept.scales.raw = places[: -2 * POINTER], places[-2 * POINTER :]
        else:
            own = len(kept.of_d)
            kept.places.raw, kept.of_d.raw = places[: -own - 2 * POINTER], places[-own:]
            kept.scales.raw = places[-own - 2 * POINTER : -own]
        made = out
        if made is None:
            made = kept.new_out() if launch is None else launch.new_out(kept.new_out, a)
            kept.d.value = made.data_ptr()
        if kept.c is not None:
            kept.c.value = kept.d.value if kept.out_is_c else 0
        kept.stream.value = handle
        if kept.asks_workspace:
            self.ask_workspace(kept, a)
        if kept.new_workspace is not None:
            workspace = kept.new_workspace() if launch is None else launch.new(kept.new_workspace, a)
            kept.workspace.value = workspace.data_ptr()
        status = self.run(kept.args)
        free.append(kept)
        if status:
            if status == lib.LIBGEMM_INVALID_ARGUMENT:  # a pointer: only the general way knows why
                return None, None
            check(status)
        if out is not None:
            move_version((out,))
        if scales is not None and len(scales) > 3:
            move_version(scales[3:])
        return made, None

    def keep(
        self, key: Key, args: Any, alive: list[Any], words: tuple[Any, ...], a: Any, b: Any, c: Any, out: Any,
        bias: Any, ends: Any = None, scales: tuple[Any, ...] = (),
    ) -> None:  # fmt: skip
        """Keep a filled struct under its key, unless a part of that may change in place or equals what it is not.
        `words` are all options, alpha and beta first; `out` may be a new one."""
        torch, (described, options, places) = sys.modules["torch"], key
        alpha, beta, *named = words
        if not {type(alpha), type(beta)} <= {int, float} or alpha == 0:  # a key would not tell 0.0 from -0.0
            return
        for option in named:
            if option is not None and not isinstance(option, (str, int, torch.dtype)):
                return
        first = a.device
        for x in (b, c, out, bias, ends, *scales):  # of another device the call waits
            if x is not None and x.device != first:
                return
        low = places[0] | places[8] | places[16] | places[24]  # bits of a, b, c and d, little-endian
        if low % 16:  # odd ones are copied, or read otherwise
            return
        new = partial(torch.empty, device=first)
        kept = kept_of(
            args, self.offsets, a, described, places=len(places) - POINTER * len(scales), scaled=len(scales),
            writes_c=(c is None) == (beta != 0), out_is_c=beta != 0,
            may_be_negated=not (a.dtype is out.dtype is torch.bfloat16),
            new_workspace=partial(new, args.workspace_bytes, dtype=torch.uint8) if args.workspace_bytes else None,
            new_out=partial(new, out.shape, dtype=out.dtype), alive=alive,
        )  # fmt: skip
        self.place_for(name_of(described, options)).append(kept)
        if type(described) is bytes and not scales:
            if len(self.kin) >= MOST:
                self.kin.clear()
            self.kin[options, len(described), a.dtype] = kept

    def forget(self) -> None:
        """All calls."""
        self.calls.clear()
        self.kin.clear()

    def place_for(self, key: Any) -> list[Kept]:
        """Where structs of this key are kept."""
        if len(self.calls) >= MOST:
            self.calls.clear()
        return self.calls.setdefault(key, [])

    def resized(self, described: bytes, options: Any, a: Any) -> Kept | None:
        """A struct for these tensors, after a kept one whose tensors have other sizes; None where there is none."""
        old = self.kin.get((options, len(described), a.dtype))
        if old is None:
            return None
        args = ffi.new(self.struct, old.args[0])
        if not self.resize(args, old.described, described, len(described)):
            return None
        args.workspace, args.workspace_bytes = ffi.NULL, 0
        shape: tuple[int, ...] = (args.m, args.n)
        if len(old.new_out.args[0]) > len(shape):
            shape = (args.batch if self.kind == "gemm" else args.groups, *shape)
        new_out = partial(old.new_out.func, shape, **old.new_out.keywords)
        return kept_of(
            args, self.offsets, a, described, places=len(old.places), scaled=0, writes_c=old.c is not None,
            out_is_c=old.out_is_c, may_be_negated=old.may_be_negated, new_workspace=None, new_out=new_out,
            alive=old.alive, asks_workspace=True,
        )  # fmt: skip

    def ask_workspace(self, kept: Kept, like: Any) -> None:
        """Once the struct has its pointers."""
        size = ffi.new("uint64_t *")
        if self.workspace(kept.args, size) == 0 and size[0]:
            torch = sys.modules["torch"]
            kept.args.workspace_bytes = size[0]
            kept.new_workspace = partial(torch.empty, size[0], dtype=torch.uint8, device=like.device)
        kept.asks_workspace = False
