"""A kernel's PTX from that of another one, where their instructions differ in a type's name alone. Text in, text out.

Most of the time that a kernel takes to compile goes into its PTX, and half of all kernels are such twins: float16 ones
of bfloat16 ones, and those that multiply e5m2 by e4m3 of those of e4m3 alone. The text is taken where it says all that
depends on the type; where it may not, a float16 twin is compiled like any other row. What one cannot see in a text, a
packed constant of the type, no product has: tests compare rows of every kernel.
"""

import dataclasses
import re

from kernels.table.spec import OPS, Variant

PRODUCTS = (*OPS, "moe_mm")
TWINS = {"bf16": "f16"}
# Whose operands' type is a word of the instruction, and only that.
OPCODES = ("cvt.", "mma.sync.", "setp.", "wgmma.mma_async.")
# PTX's numbers of element types in tensor maps, which Triton's metadata has too.
BF16, F16 = 10, 6
ELEMENT_TYPE = re.compile(rf"(tensormap\.replace\.tile\.elemtype\.[^;]*, ){BF16:#x};")
CONSTANTS = re.compile(r"\b(?:mov|selp)\.b16\s")  # may write one
NUMBER = re.compile(r"[\s,](0x[0-9a-fA-F]+|-?\d+)(?=\s*[,;])")  # that is an operand
INTEGERS = range(-1, 0x100)  # meant as such, a mask of eight blocks too: as bfloat16 a NaN, 0 and what is below 2^-125
OPCODE = re.compile(r"\s*(?:@!?%p\d+\s+)?(\S+)")
NAME = "the_entry"  # in the place of symbols, which name types too
OF_BYTES = re.compile(r"(wgmma\.mma_async\.\S+\.f32)\.e4m3\.e4m3\b")  # the only instruction that knows what bytes are


def float16_twin(variant: Variant) -> Variant | None:
    """The same row with float16 where this one has bfloat16; None where it has none or computes no product."""
    problem = variant.problem
    a, d = TWINS.get(problem.a, problem.a), TWINS.get(problem.d, problem.d)
    if problem.op not in PRODUCTS or (a, d) == (problem.a, problem.d) or problem.e5m2:
        return None
    return dataclasses.replace(variant, problem=dataclasses.replace(problem, a=a, d=d))


def e4m3_twin(variant: Variant) -> Variant | None:
    """Of a row with an e5m2 operand the one without; None of others."""
    if not variant.problem.e5m2:
        return None
    return dataclasses.replace(variant, problem=dataclasses.replace(variant.problem, e5m2=""))


def says_its_types(ptx: str) -> bool:
    """Whether bfloat16 is in this text nowhere but in names of instructions that float16 has as well."""
    if re.search(r"(?<!b)f16", ptx):  # both types, or an instruction that says which one by a number
        return False
    for line in ptx.splitlines():
        if CONSTANTS.search(line) and any(int(number, 0) not in INTEGERS for number in NUMBER.findall(line)):
            return False
        if "bf16" in line and not OPCODE.match(line)[1].startswith(OPCODES):
            return False
    return True


def with_e5m2(ptx: str, twin: Variant) -> str | None:
    """What multiplies bytes told that one operand is e5m2; None where something else in the text knows what they are.
    The instruction's first operand is the left one: B, where operands are swapped."""
    operands = ("b", "a") if twin.family.swap_ab else ("a", "b")
    text, count = OF_BYTES.subn(rf"\g<1>.{'.'.join(map(twin.problem.type_of, operands))}", ptx)
    return text if count and "e4m3" not in OF_BYTES.sub("", ptx) else None


def retype(ptx: str, variant: Variant, twin: Variant) -> str | None:
    """The PTX of `twin`, one of this row's, from that of `variant`; None where the text does not tell."""
    text = ptx.replace(variant.symbol, NAME)
    if twin.problem.e5m2:
        text = with_e5m2(text, twin)
    elif says_its_types(text):
        text = ELEMENT_TYPE.sub(rf"\g<1>{F16:#x};", text).replace("bf16", "f16")
    else:
        text = None
    return text and text.replace(NAME, twin.symbol)


def retype_metadata(metadata: dict, twin: Variant) -> dict:
    """Triton's, of the twin."""
    boxes = metadata.get("tensordesc_meta")
    if boxes and not twin.problem.e5m2:
        boxes = [{**box, "elem_type": F16 if box["elem_type"] == BF16 else box["elem_type"]} for box in boxes]
    return {**metadata, "name": twin.symbol, "tensordesc_meta": boxes}
