"""Makes Triton's interpreter take less time over the same numbers. It runs nothing by itself. No test.

Triton is pinned, and so are the names of its own that stand here.
"""

import functools
import inspect

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def reduce_by_halves(op, values: tuple) -> list:
    """For its reduction by a kernel's function, which takes numbers one by one, in Python. Such a function is
    associative: every second number is combined with the one behind it, all at once, until one is left."""
    values, axis = op.unravel(values, op.axis)
    types = [value.dtype for value in values]
    left = [np.moveaxis(value.handle.data, axis, 0) for value in values]
    while len(left[0]) > 1:
        pairs = [op.to_tensor(part[i::2], ty) for i in range(2) for part, ty in zip(left, types, strict=True)]
        made = op.combine_fn.fn(*pairs)
        left = [value.handle.data for value in (made if isinstance(made, tuple) else (made,))]
    one = [np.expand_dims(part[0], axis) if op.keep_dims else part[0] for part in left]
    return [op.to_tensor(part, ty) for part, ty in zip(one, types, strict=True)]


@functools.cache
def seen_by(function) -> frozenset[int]:
    """The parts of the language that a function's module sees."""
    return frozenset(id(x) for x in function.__globals__.values() if inspect.ismodule(x) and x in (tl, tl.core))


def call_patched(function, *arguments, **words):
    """For a function's call in a kernel, before each of which it looks through its language for what to patch. Nothing
    is left to patch after a launch's first call from a module that sees the same parts of it."""
    seen = seen_by(function.fn)
    if patched is None or seen not in patched:
        interpreter._patch_lang(function.fn)
        if patched is not None:
            patched.add(seen)
    try:
        return function.rewrite()(*arguments, **words)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


def launch(executor, *arguments, **words):
    """A kernel's launch, behind which the language is as it was."""
    global patched
    patched = set()
    try:
        return launched(executor, *arguments, **words)
    finally:
        patched = None


def make_tensor(tensor, handle, ty) -> None:
    """For a tensor's own making, which makes its shape anew, number by number: that of its type, made once."""
    if "of_tensors" not in vars(ty):
        tensor_anew(tensor, handle, ty)
        ty.of_tensors = tensor.shape, tensor.numel
    tensor.handle, tensor.type, tensor.dtype = handle, ty, ty.scalar
    tensor.shape, tensor.numel = ty.of_tensors


def make_block(block, element, shape) -> None:
    """For the making of a block's type, which looks at its shape and words a name: once for each of numbers."""
    sizes = tuple(tl.core._unwrap_if_constexpr(size) for size in shape)
    if isinstance(element, tl.pointer_type):
        return block_anew(block, element, list(sizes))
    known = BLOCKS.get((element.name, sizes))
    if known is None:
        block_anew(block, element, list(sizes))
        known = BLOCKS[element.name, sizes] = block
    vars(block).update(vars(known))


@functools.cache
def numpy_type_named(name: str) -> np.dtype:
    return dtype_anew(next(ty for ty in TYPES if ty.name == name))


def numpy_type(ty) -> np.dtype:
    """For the search of numpy's type, which lists all of them each time."""
    element = ty.scalar
    return dtype_anew(ty) if isinstance(element, tl.pointer_type) else numpy_type_named(element.name)


def broadcast(semantic, left, right) -> tuple:
    """For the broadcast of two blocks of one shape, which copies both."""
    if left.type.is_block() and right.type.is_block() and left.type.shape.values == right.type.shape.values:
        return left, right
    return broadcast_anew(semantic, left, right)


def is_same_type(ty, other):
    return ty is other or compared_anew(ty, other)


BLOCKS: dict[tuple, tl.block_type] = {}
TYPES = [ty for ty in vars(tl).values() if isinstance(ty, tl.dtype)]
tensor_anew, block_anew, dtype_anew = tl.tensor.__init__, tl.block_type.__init__, interpreter._get_np_dtype
broadcast_anew, compared_anew = TritonSemantic.broadcast_impl_value, tl.dtype.__eq__
patched: set[frozenset[int]] | None = None  # in the launch that is under way
launched = interpreter.GridExecutor.__call__


def install() -> None:
    interpreter.GridExecutor.__call__ = launch
    interpreter.ReduceOps.generic_reduce = reduce_by_halves
    interpreter.InterpretedFunction.__call__ = call_patched
    interpreter._get_np_dtype = numpy_type
    tl.tensor.__init__, tl.block_type.__init__ = make_tensor, make_block
    TritonSemantic.broadcast_impl_value, tl.dtype.__eq__ = broadcast, is_same_type
