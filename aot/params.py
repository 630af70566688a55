"""What a compiled kernel takes: parameters, checked against the cubin's own table, and descriptor boxes."""

import importlib

from aot.artifact import Box, Param
from aot.elf import CubinFacts
from kernels.table.arguments import ARGUMENTS
from kernels.table.spec import Variant

TYPE_BYTES = {"i32": 4, "i64": 8, "fp32": 4}
# What Triton makes of one descriptor argument: the map, then two sizes, then two strides, which kernels do not read.
DESCRIPTOR = (("map", 128), ("shape[0]", 4), ("shape[1]", 4), ("strides[0]", 8), ("strides[1]", 8))
# Triton's numbers for element types in descriptor metadata -> CUtensorMapDataType
ELEMENTS = {0: 0, 6: 6, 7: 7, 8: 10, 9: 8, 10: 9}
TFLOAT32 = 11


class CompileError(RuntimeError):
    """A variant did not become an artifact: names the variant and what went wrong."""


def kernel_function(variant: Variant):
    module = importlib.import_module(f"kernels.device.{variant.family.module}")
    return getattr(module, variant.family.function)


def takes_descriptors(variant: Variant) -> bool:
    return any(ARGUMENTS.get(name) == "desc" for name in kernel_function(variant).arg_names)


def expected_params(variant: Variant) -> list[tuple[str, int]]:
    """(name, bytes) of every parameter the launcher will pass, Triton's two trailing scratch pointers included."""
    constexprs = variant.constexprs()
    sizes = []
    for name in kernel_function(variant).arg_names:
        kind = None if name in constexprs else ARGUMENTS[name]
        if kind == "desc":
            sizes += [(f"{name}.{field}", size) for field, size in DESCRIPTOR]
        elif kind:
            sizes.append((name, 8 if kind.startswith("*") else TYPE_BYTES[kind]))
    return [*sizes, ("scratch", 8), ("scratch", 8)]


def check_params(variant: Variant, facts: CubinFacts) -> tuple[Param, ...]:
    """The launcher's parameters joined with the cubin's own table; CompileError where they differ."""
    expected = expected_params(variant)
    given = [size for _, size in facts.params]
    if given != [size for _, size in expected]:
        raise CompileError(
            f"{variant.name}: the cubin takes parameters of {given} bytes, the launcher would pass "
            f"{[f'{name}:{size}' for name, size in expected]}"
        )
    return tuple(Param(name, offset, size) for (name, _), (offset, size) in zip(expected, facts.params, strict=True))


def element_of(variant: Variant, name: str, element: int) -> int:
    """CUtensorMapDataType of a descriptor: float32 operands that are multiplied as tf32 are rounded on their way in."""
    is_rounded = variant.problem.precision == "tf32" and name in ("a_desc", "b_desc")
    return TFLOAT32 if is_rounded else ELEMENTS[element]


def make_boxes(variant: Variant, metadata: dict) -> tuple[Box, ...]:
    """Each descriptor's box from the compiled metadata: with clusters it is smaller than the declared block."""
    names = [n for n in kernel_function(variant).arg_names if ARGUMENTS.get(n) == "desc"]
    boxes = []
    for name, meta in zip(names, metadata.get("tensordesc_meta") or (), strict=True):
        if meta["fp4_padded"] or meta["is_im2col"]:
            raise CompileError(f"{variant.name}: descriptor {name} is of a kind the launcher cannot encode: {meta}")
        element = element_of(variant, name, meta["elem_type"])
        boxes.append(Box(name, *meta["block_size"], meta["swizzle"], element, variant.box_rank(name)))
    return tuple(boxes)
