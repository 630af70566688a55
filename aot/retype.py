"""A kernel's PTX from that of another one, where their instructions differ in a name alone. Text in, text out.

Most of the time that a kernel takes to compile goes into its PTX, and more than half of all kernels are such twins:
float16 ones of bfloat16 ones, those that multiply e5m2 by e4m3 of those of e4m3 alone, later GPUs' casts, gates, sums
and sorts of Hopper's and sm_120's general products of Ada's, since PTX is made to run on later ones. The text is taken
where it says all that depends on the type; where it may not, a float16 twin is compiled like any other row. What one
cannot see in a text, a packed constant of the type, no product has: tests compare rows of every kernel.
"""

import dataclasses
import re

from kernels.table.families import REFERENCE
from kernels.table.spec import OPS, Variant
from kernels.table.targets import TARGETS

PRODUCTS = (*OPS, "moe_mm")
OVERLAPPING = ("grouped_gemm",)  # whose general kernels start before the one ahead has ended, from Hopper on
TOLD_BY = 90  # the target whose PTX later ones take, but for products
FAMILIES_SINCE = "8.8"  # the version of PTX that knows sm_100f
TWINS = {"bf16": "f16"}
# Whose operands' type is a word of the instruction, and only that.
OPCODES = ("cvt.", "mma.sync.", "setp.", "wgmma.mma_async.")
# PTX's numbers of element types in tensor maps, which Triton's metadata has too.
BF16, F16 = 10, 6
ELEMENT_TYPE = re.compile(rf"(tensormap\.replace\.tile\.elemtype\.[^;]*, ){BF16:#x};")
CONSTANTS = re.compile(r"\b(?:mov|selp)\.b16\s")  # may write one
NUMBER = re.compile(r"[\s,](0x[0-9a-fA-F]+|-?\d+)(?=\s*[,;])")  # that is an operand
INTEGERS = range(-1, 0x100)  # meant as such, a mask of eight blocks too: as bfloat16 a NaN, 0 and what is below 2^-125
# Of 8-bit operands made float16 in the kernel, whatever D is: 256 and a NaN.
OF_OPERANDS = (0x5C00, 0x7E00)
# Blackwell's tensor cores are told A's and B's type by numbers of three bits each in a register (PTX ISA, tcgen05.mma,
# "Instruction descriptor"): 0 is float16, 1 bfloat16.
DESCRIBED = re.compile(r"tcgen05\.mma\.\S*kind::f16 .*, (%r\d+), %p\d+;")
TYPES, OF_BF16 = 7 << 7 | 7 << 10, 1 << 7 | 1 << 10
OPCODE = re.compile(r"\s*(?:@!?%p\d+\s+)?(\S+)")
NAME = "the_entry"  # in the place of symbols, which name types too
FLOAT16 = re.compile(r"(?<!b)f16")
OF_BYTES = re.compile(r"(wgmma\.mma_async\.\S+\.f32)\.e4m3\.e4m3\b")  # the only instruction that knows what bytes are


def float16_twin(variant: Variant) -> Variant | None:
    """The same row with float16 where this one has bfloat16; None where it has none or computes no product."""
    problem = variant.problem
    a, d = TWINS.get(problem.a, problem.a), TWINS.get(problem.d, problem.d)
    if problem.op not in PRODUCTS or (a, d) == (problem.a, problem.d) or problem.e5m2:
        return None
    return dataclasses.replace(variant, problem=dataclasses.replace(problem, a=a, d=d))


def told_by(variant: Variant) -> Variant | None:
    """The row whose PTX this one is always made of: of one with an e5m2 operand that without, of one for a later GPU
    that computes no product Hopper's, of a general product that of the target that multiplies alike. None of others."""
    if variant.problem.e5m2:
        return dataclasses.replace(variant, problem=dataclasses.replace(variant.problem, e5m2=""))
    if variant.target > TOLD_BY and variant.problem.op not in PRODUCTS:
        return dataclasses.replace(variant, target=TOLD_BY)
    alike = TARGETS[variant.target].multiplies_as
    if alike and variant.family in REFERENCE.values() and variant.problem.op not in OVERLAPPING:
        return dataclasses.replace(variant, target=alike).compiled
    return None


def describe_float16(ptx: str) -> str | None:
    """Descriptors of instructions that speak of bfloat16 speak of float16; None where one is no single number."""
    for register in sorted(set(DESCRIBED.findall(ptx))):
        moves = re.findall(rf"(mov\.b32\s+{register}, )(\d+);", ptx)
        if len(moves) != 1 or int(moves[0][1]) & TYPES != OF_BF16:
            return None
        ((move, number),) = moves
        ptx = ptx.replace(f"{move}{number};", f"{move}{int(number) & ~TYPES};")
    return ptx


def says_its_types(ptx: str, of_bytes: bool) -> bool:
    """Whether bfloat16 is in this text nowhere but in names of instructions that float16 has as well. `of_bytes`: A and
    B are, which the text may make float16 whatever D is."""
    constants = (*INTEGERS, *OF_OPERANDS) if of_bytes else INTEGERS
    for line in ptx.splitlines():
        if CONSTANTS.search(line) and any(int(number, 0) not in constants for number in NUMBER.findall(line)):
            return False
        if FLOAT16.search(line) and ("bf16" in line or not (of_bytes or DESCRIBED.search(line))):
            return False  # both types, or an instruction that says which one in its own way
        if "bf16" in line and not OPCODE.match(line)[1].startswith(OPCODES):
            return False
    return True


def as_float16(ptx: str, of_bytes: bool) -> str | None:
    """The text with float16 for bfloat16; None where it does not tell all."""
    text = ptx if of_bytes else describe_float16(ptx)
    if not text or not says_its_types(text, of_bytes):
        return None
    return ELEMENT_TYPE.sub(rf"\g<1>{F16:#x};", text).replace("bf16", "f16")


def for_target(ptx: str, twin: Variant) -> str:
    """The text for a later GPU."""
    text = re.sub(r"^\.version .*$", f".version {FAMILIES_SINCE}", ptx, count=1, flags=re.M)
    return re.sub(r"^\.target .*$", f".target {twin.architecture}", text, count=1, flags=re.M)


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
    elif twin.problem != variant.problem:
        text = as_float16(text, variant.problem.a not in TWINS)
    if text and twin.target != variant.target:
        text = for_target(text, twin)
    return text and text.replace(NAME, twin.symbol)


def retype_metadata(metadata: dict, twin: Variant) -> dict:
    """Triton's, of the twin."""
    boxes = metadata.get("tensordesc_meta")
    if boxes and not told_by(twin):
        boxes = [{**box, "elem_type": F16 if box["elem_type"] == BF16 else box["elem_type"]} for box in boxes]
    return {**metadata, "name": twin.symbol, "tensordesc_meta": boxes}
