"""Makes Triton's interpreter take less time over the same numbers. It runs nothing by itself. No test.

Triton is pinned, and so are the names of its own that stand here.
"""

import inspect

import numpy as np
import triton.language as tl
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


def call_patched(function, *arguments, **words):
    """For a function's call in a kernel, before each of which it looks through its language for what to patch. Nothing
    is left to patch after a launch's first call from a module that sees the same parts of it."""
    seen = frozenset(id(x) for x in function.fn.__globals__.values() if inspect.ismodule(x) and x in (tl, tl.core))
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


patched: set[frozenset[int]] | None = None  # in the launch that is under way
launched = interpreter.GridExecutor.__call__


def install() -> None:
    interpreter.GridExecutor.__call__ = launch
    interpreter.ReduceOps.generic_reduce = reduce_by_halves
    interpreter.InterpretedFunction.__call__ = call_patched
