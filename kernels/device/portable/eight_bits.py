"""Numbers to 8 bits, and the scales that they are over. No kernel here.

A scale is the largest magnitude of what shares it over the largest number of D's type; numbers are divided by it, and
rounded. D_TYPE is the C enum of that type throughout. HARDWARE is 0 for a GPU that does all of it by other
instructions, 1 for one that rounds float32 to 8 bits by itself, and 2 for one that compares two halves of a word as
well.
"""

import triton
import triton.language as tl

BLOCK = tl.constexpr(128)  # numbers, along rows, columns or both, that share a scale of blocks
E4M3 = tl.constexpr(4)  # libgemm_dtype
E5M2 = tl.constexpr(5)
MOST_E4M3 = tl.constexpr(448.0)
MOST_E5M2 = tl.constexpr(57344.0)
LEAST_SCALE = tl.constexpr(1.1754943508222875e-38)  # the least normal float32: what divides by it is finite


@triton.jit
def numbers(x):
    """x as float32, and NaN for Inf, of which e4m3 has none: it is NaN in what is made of either type, and counts for
    no scale."""
    x = x.to(tl.float32)
    return x * 0.0 + x


@triton.jit
def to_8_bits(x, factor, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr):
    """x * factor, of numbers(), as bytes: to the nearest, and of two to the even one; what is too large becomes the
    largest there is. HARDWARE: the GPU has an instruction for it, which does all that."""
    x *= factor
    if HARDWARE:
        if D_TYPE == E5M2:
            return x.to(tl.float8e5).to(tl.uint8, bitcast=True)
        else:
            return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    MOST: tl.constexpr = MOST_E5M2 if D_TYPE == E5M2 else MOST_E4M3
    x = tl.maximum(x, -MOST, propagate_nan=tl.PropagateNan.ALL)
    x = tl.minimum(x, MOST, propagate_nan=tl.PropagateNan.ALL)
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    # The mantissa is cut to three bits, or two, after half a unit of them less one, or of an odd one just half, is
    # added; and the bias is 7, or 15, instead of 127. Below the least normal number, 2^-6 or 2^-14, the unit is 2^-9 or
    # 2^-16, as it is of a float32 of 2^14 or 2^7, which is added.
    if D_TYPE == E5M2:
        normal = ((size + 0xFFFFF + ((size >> 21) & 1)) >> 21) - (112 << 2)
        small = (tl.abs(x) + 128.0).to(tl.int32, bitcast=True) - 0x43000000
        code = tl.where(size < 0x38800000, small, normal) | ((bits >> 24) & 0x80)
    else:
        normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
        small = (tl.abs(x) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
        code = tl.where(size < 0x3C800000, small, normal) | ((bits >> 24) & 0x80)
    return tl.where(x == x, code, 0x7F).to(tl.uint8)


@triton.jit
def over_scale(x, scale_ptr):
    """numbers(x) times one over the scale that is there, of any kind; a null pointer is a scale of 1."""
    factor = 1.0
    if scale_ptr.to(tl.int64) != 0:
        factor = tl.div_rn(1.0, tl.load(scale_ptr))
    return numbers(x) * factor


@triton.jit
def finite_size(x):
    """|x| as the bits of float32, which compare as the numbers do; 0 for Inf and NaN, which count for no scale."""
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.where(bits < 0x7F800000, bits, 0)


@triton.jit
def scale_of(most, scale_power_of_two, D_TYPE: tl.constexpr, HARDWARE: tl.constexpr):
    """The scale of numbers of which `most` is the largest magnitude, NaN without one: 1 where all are 0. With
    scale_power_of_two = 1 it is rounded up to one."""
    MOST: tl.constexpr = MOST_E5M2 if D_TYPE == E5M2 else MOST_E4M3
    if HARDWARE:
        INVERSE: tl.constexpr = 1.0 / MOST
        # Rounded as a division is, by one step from the product with 1/MOST (Markstein, IBM J. Res. Dev. 34, 1990): no
        # quotient that counts is subnormal. A GPU as old as those without the instruction above is spared no time.
        scale = most * INVERSE
        scale = tl.fma(tl.fma(scale, -MOST, most), INVERSE, scale)
    else:
        scale = tl.div_rn(most, tl.full(most.shape, MOST, tl.float32))
    scale = tl.maximum(scale, LEAST_SCALE)
    if scale_power_of_two == 1:
        scale = ((scale.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000).to(tl.float32, bitcast=True)
    return tl.where(most > 0.0, scale, 1.0)


@triton.jit
def factor_of(scale, HARDWARE: tl.constexpr):
    """1 / scale, to the nearest. Neither is subnormal."""
    if HARDWARE:
        one = scale * 0.0 + 1.0
        factor = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [scale], tl.float32, is_pure=True, pack=1
        )
        factor = tl.fma(factor, tl.fma(-scale, factor, one), factor)
        factor = tl.fma(factor, tl.fma(-scale, factor, one), factor)
    else:
        factor = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)
    return factor
