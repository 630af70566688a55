"""Numbers of A as casts hold them: as float32, or PACKED, two neighbours of a 16-bit type in the word of memory that
they are. No kernel here.

Words take half the registers of float32, so that twice as many loads are in flight, and are compared two at a time.
PACKED is the C enum of their type, or 0 where numbers are held as float32.
"""

import triton
import triton.language as tl

from kernels.device.portable.eight_bits import BLOCK, E5M2, numbers, to_8_bits

F16 = tl.constexpr(1)  # libgemm_dtype


@triton.jit
def load_rows(a_ptr, rows, end, col, N, lda, PACKED: tl.constexpr, COLUMNS: tl.constexpr = BLOCK):
    """So many columns of these rows, numbers() or words of them; 0 outside of the matrix. PACKED: col, N and lda are
    even, and A begins on a word."""
    PER: tl.constexpr = 2 if PACKED else 1
    cols = col // PER + tl.arange(0, COLUMNS // PER)
    inside = (rows < end)[:, None] & (cols < N // PER)[None, :]
    if PACKED:
        from_ptr = a_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
        x = tl.load(from_ptr + rows.to(tl.int64)[:, None] * (lda // 2) + cols[None, :], mask=inside, other=0)
    else:
        x = numbers(tl.load(a_ptr + rows.to(tl.int64)[:, None] * lda + cols[None, :], mask=inside, other=0.0))
    return x


@triton.jit
def both_numbers(words, PACKED: tl.constexpr):
    """What each word holds as numbers(), the first one first."""
    if PACKED == F16:
        low = (words & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True)
        high = (words >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    else:
        low = (words << 16).to(tl.float32, bitcast=True)
        high = (words & -65536).to(tl.float32, bitcast=True)
    return numbers(low), numbers(high)


@triton.jit
def sizes_of(x, PACKED: tl.constexpr):
    """What larger() compares: magnitudes, and below all of them Inf and NaN. Of words each half as an int16, from the
    type's infinity on negative."""
    if PACKED:
        BIAS: tl.constexpr = 0x04000400 if PACKED == F16 else 0x00800080
        sizes = (x & 0x7FFF7FFF) + BIAS
    else:
        sizes = tl.abs(x)
    return sizes


@triton.jit
def larger_halves(a, b):
    return tl.inline_asm_elementwise("max.s16x2 $0, $1, $2;", "=r,r,r", [a, b], tl.int32, is_pure=True, pack=1)


@triton.jit
def larger_halves_apart(a, b):
    """The same where there is no instruction for it."""
    high = tl.maximum(a >> 16, b >> 16)
    low = tl.maximum(a << 16, b << 16) >> 16
    return (high << 16) | (low & 0xFFFF)


@triton.jit
def larger(a, b, PACKED: tl.constexpr, HARDWARE: tl.constexpr):
    if PACKED and HARDWARE == 2:
        most = larger_halves(a, b)
    elif PACKED:
        most = larger_halves_apart(a, b)
    else:
        most = tl.maximum(a, b)
    return most


@triton.jit
def largest(sizes, axis: tl.constexpr, PACKED: tl.constexpr, HARDWARE: tl.constexpr):
    """The largest of these along an axis; of words that of each half."""
    if PACKED and HARDWARE == 2:
        most = tl.reduce(sizes, axis, larger_halves)
    elif PACKED:
        most = tl.reduce(sizes, axis, larger_halves_apart)
    else:
        most = tl.max(sizes, axis)
    return most


@triton.jit
def magnitude(half, PACKED: tl.constexpr):
    """The number of which sizes_of() made this half, 0 for Inf and NaN."""
    if PACKED == F16:
        number = (tl.maximum(half, 0x0400) - 0x0400).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        number = ((tl.maximum(half, 0x80) - 0x80) << 16).to(tl.float32, bitcast=True)
    return number


@triton.jit
def magnitude_of(size, PACKED: tl.constexpr):
    """The larger number of the two that largest() left in a word; what it left, where that is one."""
    return magnitude(tl.maximum(size >> 16, (size << 16) >> 16), PACKED) if PACKED else size


@triton.jit
def magnitudes_of_columns(sizes, PACKED: tl.constexpr, COLUMNS: tl.constexpr = BLOCK):
    """The numbers that largest() left of each of so many columns."""
    if PACKED:
        sizes = magnitude(tl.reshape(tl.join((sizes << 16) >> 16, sizes >> 16), (COLUMNS,)), PACKED)
    return sizes


@triton.jit
def magnitudes_of_rows(x0, x1, PACKED: tl.constexpr, HARDWARE: tl.constexpr, ROWS: tl.constexpr):
    """The largest magnitude of each row of the one and of each of the other, of ROWS each. Words of both are packed
    once more, so that threads pass on two rows' at a time."""
    if PACKED:
        m0 = largest(tl.reshape(sizes_of(x0, PACKED), (ROWS, 16, 4)), 2, PACKED, HARDWARE)
        m1 = largest(tl.reshape(sizes_of(x1, PACKED), (ROWS, 16, 4)), 2, PACKED, HARDWARE)
        first = (m0 & 0xFFFF) | (m1 << 16)
        second = ((m0 >> 16) & 0xFFFF) | (m1 & -65536)
        both = largest(larger(first, second, PACKED, HARDWARE), 1, PACKED, HARDWARE)
        return magnitude((both << 16) >> 16, PACKED), magnitude(both >> 16, PACKED)
    else:
        return tl.max(tl.abs(x0), 1), tl.max(tl.abs(x1), 1)


@triton.constexpr_function
def unpacked(word, low, high, packed):
    """PTX that takes two numbers of a word to two of float32, NaN for Inf as numbers() has it: x * 0 + x."""
    kind = "f16" if packed == F16 else "bf16"
    apart = f"shl.b32 {low}, w, 16; and.b32 {high}, w, 0xffff0000;"
    if packed == F16:
        apart = f"mov.b32 {{p, q}}, w; cvt.f32.f16 {low}, p; cvt.f32.f16 {high}, q;"
    return f"fma.rn.{kind}x2 w, {word}, zero, {word}; {apart}"


@triton.constexpr_function
def rounded(first, second, d_type):
    """PTX that makes two bytes of two numbers of float32, the first one's lower."""
    return f"cvt.rn.satfinite.{'e5m2' if d_type == E5M2 else 'e4m3'}x2.f32 p, {second}, {first};"


@triton.constexpr_function
def bytes_assembly(packed, d_type):
    """Two bytes, $0, of a word, $1, times $2."""
    return f"""{{
    .reg .b32 zero, w, x, y; .reg .b16 p, q; mov.b32 zero, 0;
    {unpacked("$1", "x", "y", packed)} mul.f32 x, x, $2; mul.f32 y, y, $2;
    {rounded("x", "y", d_type)} mov.b16 $0, p; }}"""


@triton.constexpr_function
def turn_assembly(packed, d_type):
    """Words of four bytes, $0 and $1: of the lower numbers of words $2 to $5 times $6, of the upper ones times $7.
    Written at one place because what a compiler remembers between it and bytes_assembly is held in registers."""
    text = [unpacked(f"${2 + i}", f"x{i}", f"y{i}", packed) for i in range(4)]
    for place, (number, factor) in enumerate((("x", "$6"), ("y", "$7"))):
        text += [f"mul.f32 {number}{i}, {number}{i}, {factor};" for i in range(4)]
        text.append(f"{rounded(f'{number}0', f'{number}1', d_type)} mov.b16 q, p;")
        text.append(f"{rounded(f'{number}2', f'{number}3', d_type)} mov.b32 ${place}, {{q, p}};")
    registers = ".reg .b32 zero, w, x<4>, y<4>; .reg .b16 p, q; mov.b32 zero, 0;"
    return "\n".join(("{", registers, *text, "}"))


@triton.jit
def pair_to_8_bits(x, y, factor, D_TYPE: tl.constexpr):
    """x * factor, of numbers(), in the lower byte of an int16, and y * factor in the upper one, by instructions that
    every GPU has."""
    low = to_8_bits(x, factor, D_TYPE, False).to(tl.int16)
    return low | (to_8_bits(y, factor, D_TYPE, False).to(tl.int16) << 8)


@triton.jit
def bytes_of(x, factor, PACKED: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr):
    """x * factor in 8 bits: of words an int16 each."""
    if PACKED and HARDWARE:
        TEXT: tl.constexpr = bytes_assembly(PACKED, D_TYPE)
        each = tl.broadcast_to(factor, x.shape)
        made = tl.inline_asm_elementwise(TEXT, "=h,r,r", [x, each], tl.int16, is_pure=True, pack=1)
    elif PACKED:
        low, high = both_numbers(x, PACKED)
        made = pair_to_8_bits(low, high, factor, D_TYPE)
    else:
        made = to_8_bits(x, factor, D_TYPE, HARDWARE)
    return made


@triton.jit
def store_bytes(made, q_ptr, rows, end, col, N, ld, PACKED: tl.constexpr, COLUMNS: tl.constexpr = BLOCK):
    """What bytes_of() made of load_rows(), with another leading dimension."""
    PER: tl.constexpr = 2 if PACKED else 1
    cols = col // PER + tl.arange(0, COLUMNS // PER)
    inside = (rows < end)[:, None] & (cols < N // PER)[None, :]
    to_ptr = q_ptr
    if PACKED:
        to_ptr = q_ptr.to(tl.pointer_type(tl.int16), bitcast=True)
    tl.store(to_ptr + rows.to(tl.int64)[:, None] * (ld // PER) + cols[None, :], made, mask=inside)


@triton.jit
def turn_bytes(q0, q1, q2, q3, PACKED: tl.constexpr, HARDWARE: tl.constexpr, ROWS: tl.constexpr):
    """Words of four rows' bytes of each of 128 columns, the first row's lowest; of what bytes_of() made of each."""
    if PACKED:
        first = (q0.to(tl.int32) & 0xFFFF) | (q1.to(tl.int32) << 16)
        second = (q2.to(tl.int32) & 0xFFFF) | (q3.to(tl.int32) << 16)
        if HARDWARE:
            even, odd = tl.inline_asm_elementwise(
                "prmt.b32 $0, $2, $3, 0x6420; prmt.b32 $1, $2, $3, 0x7531;", "=&r,=r,r,r", [first, second],
                (tl.int32, tl.int32), is_pure=True, pack=1,
            )  # fmt: skip
        else:
            even = (first & 0xFF) | ((first >> 8) & 0xFF00) | ((second & 0xFF) << 16) | ((second & 0xFF0000) << 8)
            odd = ((first >> 8) & 0xFF) | ((first >> 16) & 0xFF00) | ((second & 0xFF00) << 8) | (second & -16777216)
        words = tl.reshape(tl.join(even, odd), (ROWS, BLOCK))
    else:
        words = q0.to(tl.int32) | (q1.to(tl.int32) << 8) | (q2.to(tl.int32) << 16) | (q3.to(tl.int32) << 24)
    return words


@triton.jit
def turn(
    x0, x1, x2, x3, factor, PACKED: tl.constexpr, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """The same of four rows' numbers, each column with a factor of its own."""
    if PACKED:
        of_even, of_odd = tl.split(tl.reshape(factor, (BLOCK // 2, 2)))
        of_even = tl.broadcast_to(of_even[None, :], x0.shape)
        of_odd = tl.broadcast_to(of_odd[None, :], x0.shape)
        if HARDWARE:
            TEXT: tl.constexpr = turn_assembly(PACKED, D_TYPE)
            even, odd = tl.inline_asm_elementwise(
                TEXT, "=&r,=&r,r,r,r,r,r,r", [x0, x1, x2, x3, of_even, of_odd], (tl.int32, tl.int32), is_pure=True,
                pack=1,
            )  # fmt: skip
        else:
            a0, b0 = both_numbers(x0, PACKED)
            a1, b1 = both_numbers(x1, PACKED)
            a2, b2 = both_numbers(x2, PACKED)
            a3, b3 = both_numbers(x3, PACKED)
            even = pair_to_8_bits(a0, a1, of_even, D_TYPE).to(tl.int32) & 0xFFFF
            even |= pair_to_8_bits(a2, a3, of_even, D_TYPE).to(tl.int32) << 16
            odd = pair_to_8_bits(b0, b1, of_odd, D_TYPE).to(tl.int32) & 0xFFFF
            odd |= pair_to_8_bits(b2, b3, of_odd, D_TYPE).to(tl.int32) << 16
        words = tl.reshape(tl.join(even, odd), (ROWS, BLOCK))
    else:
        y0, y1 = tl.split(to_8_bits(tl.join(x0, x1), factor[None, :, None], D_TYPE, HARDWARE))
        y2, y3 = tl.split(to_8_bits(tl.join(x2, x3), factor[None, :, None], D_TYPE, HARDWARE))
        words = y0.to(tl.int32) | (y1.to(tl.int32) << 8) | (y2.to(tl.int32) << 16) | (y3.to(tl.int32) << 24)
    return words
