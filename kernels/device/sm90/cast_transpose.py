"""cast_transpose_rows for Hopper in Gluon, of 16-bit numbers in rows that begin on 16 bytes. The portable set's kernel
of that name, which says what it does, casts all others, in layouts of the compiler's choice.

Here a thread has the same two words of sixteen rows, in two runs of eight, and so of each of their four columns and
each run two words of four bytes, one below the other, to store transposed; a warp has whole rows; and of a tile's
scales each thread makes two of rows and two of columns, which all get through shared memory. In the other kernel
sixteen threads make each of them alike.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.portable.cast import load_amax, tile_of
from kernels.device.portable.cast_transpose import store_scales
from kernels.device.portable.eight_bits import BLOCK, factor_of, scale_of
from kernels.device.portable.overlap import wait_for_last_kernel
from kernels.device.portable.words import F16, rounded

WORDS = gl.constexpr(BLOCK.value // 2)  # of two numbers, in a tile's row


@gluon.constexpr_function
def of_thread(warps):
    """Quads of rows x words: two x two of them to each thread."""
    return gl.BlockedLayout([2, 2], [1, 32], [warps, 1], [1, 0])


@gluon.constexpr_function
def one_above(warps):
    """Parts x words: all of a word to a thread."""
    return gl.BlockedLayout([warps, 1], [1, 32], [1, warps], [0, 1])


@gluon.constexpr_function
def kind_of(packed):
    return "f16x2" if packed == F16 else "bf16x2"


@gluon.constexpr_function
def finite_assembly(packed):
    return f"{{ .reg .b32 zero; mov.b32 zero, 0; fma.rn.{kind_of(packed)} $0, $1, zero, $1; }}"


@gluon.constexpr_function
def larger_assembly(packed):
    return f"max.xorsign.abs.{kind_of(packed)} $0, $1, $2;"


@gluon.constexpr_function
def unpacked(word, low, high, packed):
    if packed == F16:
        return f"mov.b32 {{p, q}}, {word}; cvt.f32.f16 {low}, p; cvt.f32.f16 {high}, q;"
    return f"shl.b32 {low}, {word}, 16; and.b32 {high}, {word}, 0xffff0000;"


@gluon.constexpr_function
def cast_assembly(packed, d_type, by_rows):
    """Of words of four rows: their lower numbers times one factor and their upper ones times another, as a word of four
    bytes each; with `by_rows` before them two bytes of each word, times its row's factor."""
    first = 4 if by_rows else 0  # of the words that are made
    text = [unpacked(f"${first + 2 + i}", f"x{i}", f"y{i}", packed) for i in range(4)]
    for i in range(first):
        text.append(f"mul.f32 s, x{i}, ${10 + i}; mul.f32 t, y{i}, ${10 + i};")
        text.append(f"{rounded('s', 't', d_type)} mov.b16 ${i}, p;")
    for place, number in enumerate("xy"):
        text += [f"mul.f32 {number}{i}, {number}{i}, ${2 * first + 6 + place};" for i in range(4)]
        text.append(f"{rounded(f'{number}0', f'{number}1', d_type)} mov.b16 q, p;")
        text.append(f"{rounded(f'{number}2', f'{number}3', d_type)} mov.b32 ${first + place}, {{q, p}};")
    registers = ".reg .b32 s, t, x<4>, y<4>; .reg .b16 p, q;"
    return "\n".join(("{", registers, *text, "}"))


@gluon.jit
def larger_bf16(a, b):
    TEXT: gl.constexpr = larger_assembly(2)
    return gl.inline_asm_elementwise(TEXT, "=r,r,r", [a, b], gl.int32, is_pure=True, pack=1)


@gluon.jit
def larger_f16(a, b):
    TEXT: gl.constexpr = larger_assembly(F16)
    return gl.inline_asm_elementwise(TEXT, "=r,r,r", [a, b], gl.int32, is_pure=True, pack=1)


@gluon.jit
def larger(a, b, PACKED: gl.constexpr):
    """Of each half the larger magnitude, of any sign; NaN where both are."""
    if PACKED == F16:
        return larger_f16(a, b)
    else:
        return larger_bf16(a, b)


@gluon.jit
def largest(words, axis: gl.constexpr, PACKED: gl.constexpr):
    if PACKED == F16:
        return gl.reduce(words, axis, larger_f16)
    else:
        return gl.reduce(words, axis, larger_bf16)


@gluon.jit
def magnitudes(words, PACKED: gl.constexpr):
    """Of the lower and of the upper numbers, as float32; 0 for NaN."""
    if PACKED == F16:
        low = (words & 0x7FFF).to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)
        high = ((words >> 16) & 0x7FFF).to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)
    else:
        low = ((words << 16) & 0x7FFFFFFF).to(gl.float32, bitcast=True)
        high = (words & 0x7FFF0000).to(gl.float32, bitcast=True)
    return gl.maximum(low, 0.0), gl.maximum(high, 0.0)


@gluon.jit
def load_finite(from_ptr, inside, PACKED: gl.constexpr):
    """Words with NaN for Inf: x * 0 + x."""
    TEXT: gl.constexpr = finite_assembly(PACKED)
    words = gl.load(from_ptr, mask=inside, other=0)
    return gl.inline_asm_elementwise(TEXT, "=r,r", [words], gl.int32, is_pure=True, pack=1)


@gluon.jit
def inside_of(row, col, end, N, QUADS: gl.constexpr, WARPS: gl.constexpr):
    """(first rows of quads from the tile's on, words from A's first column on, whether these are in A)."""
    quads = gl.arange(0, QUADS, gl.SliceLayout(1, of_thread(WARPS)))
    words = col // 2 + gl.arange(0, WORDS, gl.SliceLayout(0, of_thread(WARPS)))
    return 4 * quads, words, (row // 4 + quads < end // 4)[:, None] & (words < N // 2)[None, :]


@gluon.jit
def load_quads(
    a_ptr, row, col, end, N, lda, PACKED: gl.constexpr, QUADS: gl.constexpr, WARPS: gl.constexpr
):  # fmt: skip
    """Four rows in turn of a tile, lda words apart: the first of each four, the second, ..."""
    rows, words, inside = inside_of(row, col, end, N, QUADS, WARPS)
    from_ptr = a_ptr.to(gl.pointer_type(gl.int32), bitcast=True)
    from_ptr += (row + rows).to(gl.int64)[:, None] * lda + words[None, :]
    x0 = load_finite(from_ptr, inside, PACKED)
    x1 = load_finite(from_ptr + lda, inside, PACKED)
    x2 = load_finite(from_ptr + 2 * lda, inside, PACKED)
    x3 = load_finite(from_ptr + 3 * lda, inside, PACKED)
    return x0, x1, x2, x3


@gluon.jit
def store_quads(
    q0, q1, q2, q3, q_ptr, row, col, end, N, ldd, QUADS: gl.constexpr, WARPS: gl.constexpr
):  # fmt: skip
    """Their bytes, two of each word; rows are ldd such pairs apart."""
    rows, words, inside = inside_of(row, col, end, N, QUADS, WARPS)
    to_ptr = q_ptr.to(gl.pointer_type(gl.int16), bitcast=True)
    to_ptr += (row + rows).to(gl.int64)[:, None] * ldd + words[None, :]
    gl.store(to_ptr, q0, mask=inside)
    gl.store(to_ptr + ldd, q1, mask=inside)
    gl.store(to_ptr + 2 * ldd, q2, mask=inside)
    gl.store(to_ptr + 3 * ldd, q3, mask=inside)


@gluon.jit
def store_turned(low, high, q_t_ptr, row, col, end, N, ldd_t, WARPS: gl.constexpr):
    """Words of four rows' bytes, of the lower and of the upper columns, ldd_t words apart; 8 bytes a thread."""
    QUADS: gl.constexpr = low.shape[0]
    turned: gl.constexpr = gl.BlockedLayout([1, 2], [64 // QUADS, QUADS // 2], [WARPS, 1], [1, 0])
    gl.barrier()  # factors are read: what turns a tile takes their memory
    made = gl.convert_layout(gl.join(low, high).reshape([QUADS, BLOCK]).permute([1, 0]), turned)
    cols = col + gl.arange(0, BLOCK, gl.SliceLayout(1, turned))
    down = row // 4 + gl.arange(0, QUADS, gl.SliceLayout(0, turned))
    to_ptr = q_t_ptr.to(gl.pointer_type(gl.int32), bitcast=True) + cols.to(gl.int64)[:, None] * ldd_t + down[None, :]
    gl.store(to_ptr, made, mask=(cols < N)[:, None] & (down < end // 4)[None, :])


@gluon.jit
def of_rows(x0, x1, PACKED: gl.constexpr):
    """Of two rows in each quad the largest magnitudes, in one word, the first row's lower."""
    QUADS: gl.constexpr = x0.shape[0]
    m0 = largest(x0.reshape([QUADS, 32, 2]), 2, PACKED)
    m1 = largest(x1.reshape([QUADS, 32, 2]), 2, PACKED)
    first = (m0 & 0xFFFF) | (m1 << 16)
    second = ((m0 >> 16) & 0xFFFF) | (m1 & -65536)
    return largest(larger(first, second, PACKED), 1, PACKED)


@gluon.jit
def of_columns(x0, x1, x2, x3, PACKED: gl.constexpr, WARPS: gl.constexpr):
    """The largest magnitudes of each word's columns, of what each warp has of them."""
    most = larger(larger(x0, x1, PACKED), larger(x2, x3, PACKED), PACKED)
    return largest(most.reshape([WARPS, x0.shape[0] // WARPS, WORDS]), 1, PACKED)


@gluon.jit
def largest_of_tile(x0, x1, x2, x3, PACKED: gl.constexpr, WARPS: gl.constexpr):
    """The largest magnitudes of a tile's rows, two neighbours to a word: of all quads the first two, then the others;
    and of its columns likewise, in order. One word to a thread."""
    QUADS: gl.constexpr = x0.shape[0]
    line: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    lines: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    rows = gl.allocate_shared_memory(gl.int32, [2 * QUADS], line)
    cols = gl.allocate_shared_memory(gl.int32, [WARPS, WORDS], lines)
    rows.slice(0, QUADS).store(of_rows(x0, x1, PACKED))
    rows.slice(QUADS, QUADS).store(of_rows(x2, x3, PACKED))
    cols.store(of_columns(x0, x1, x2, x3, PACKED, WARPS))
    gl.barrier()  # all words are there
    return rows.load(gl.SliceLayout(0, one_above(WARPS))), largest(cols.load(one_above(WARPS)), 0, PACKED)


@gluon.jit
def places_of_tile(row, col, QUADS: gl.constexpr, WARPS: gl.constexpr):
    """The first row and column of each word that largest_of_tile() leaves."""
    pairs = gl.arange(0, 2 * QUADS, gl.SliceLayout(0, one_above(WARPS)))
    rows = row + 4 * (pairs % QUADS) + 2 * (pairs // QUADS)
    return rows, col + 2 * gl.arange(0, WORDS, gl.SliceLayout(0, one_above(WARPS)))


@gluon.jit
def cast_transpose_rows_words(
    a_ptr, q_ptr, q_t_ptr, scale_ptr, scale_t_ptr, amax_ptr, M, N, lda, ldd, ldd_t,
    batch_stride_a, batch_stride_d, batch_stride_d_t, batch_stride_scale, batch_stride_scale_t,
    scale_stride_m, scale_stride_n, scale_t_stride_n, scale_t_stride_m, granularity, scale_power_of_two,
    ALIGN: gl.constexpr, PACKED: gl.constexpr, BLOCK_M: gl.constexpr, D_TYPE: gl.constexpr, HARDWARE: gl.constexpr,
    OVERLAP: gl.constexpr,
):  # fmt: skip
    """cast_transpose_rows: by 1X128 in tiles of 128 rows, by ROW in shorter ones."""
    if OVERLAP:
        wait_for_last_kernel()
    BY_ROW: gl.constexpr = BLOCK_M < BLOCK
    QUADS: gl.constexpr = BLOCK_M // 4
    WARPS: gl.constexpr = gl.num_warps()
    M = M // ALIGN * ALIGN
    N = N // ALIGN * ALIGN
    batch, row, col, end = tile_of(gl.program_id(0), M, N, BLOCK_M)
    a_ptr += batch * (batch_stride_a // ALIGN * ALIGN)
    x0, x1, x2, x3 = load_quads(a_ptr, row, col, end, N, lda // ALIGN * (ALIGN // 2), PACKED, QUADS, WARPS)

    rows, cols = places_of_tile(row, col, QUADS, WARPS)
    if BY_ROW:
        amax_ptr += batch * (M.to(gl.int64) + N)
        of_row, of_next_row = load_amax(amax_ptr, rows, rows < M), load_amax(amax_ptr, rows + 1, rows + 1 < M)
        amax_ptr += M
        of_col, of_next_col = load_amax(amax_ptr, cols, cols < N), load_amax(amax_ptr, cols + 1, cols + 1 < N)
    else:
        most_of_rows, most_of_cols = largest_of_tile(x0, x1, x2, x3, PACKED, WARPS)
        of_row, of_next_row = magnitudes(most_of_rows, PACKED)
        of_col, of_next_col = magnitudes(most_of_cols, PACKED)
    line: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    row_factors = gl.allocate_shared_memory(gl.float32, [2 * QUADS], line)
    next_row_factors = gl.allocate_shared_memory(gl.float32, [2 * QUADS], line)
    col_factors = gl.allocate_shared_memory(gl.float32, [WORDS], line)
    next_col_factors = gl.allocate_shared_memory(gl.float32, [WORDS], line)

    scale = scale_of(of_row, scale_power_of_two, D_TYPE, HARDWARE)
    next_scale = scale_of(of_next_row, scale_power_of_two, D_TYPE, HARDWARE)
    if scale_ptr.to(gl.int64) != 0:
        scale_ptr += batch * batch_stride_scale
        store_scales(scale, rows, col, M, scale_ptr, scale_stride_m, scale_stride_n, granularity)
        store_scales(next_scale, rows + 1, col, M, scale_ptr, scale_stride_m, scale_stride_n, granularity)
    row_factors.store(factor_of(scale, HARDWARE))
    next_row_factors.store(factor_of(next_scale, HARDWARE))
    scale = scale_of(of_col, scale_power_of_two, D_TYPE, HARDWARE)
    next_scale = scale_of(of_next_col, scale_power_of_two, D_TYPE, HARDWARE)
    scale_t_ptr += batch * batch_stride_scale_t
    step, above, count = scale_t_stride_n, (row // BLOCK).to(gl.int64) * scale_t_stride_m, N
    if BY_ROW:
        step, above, count = step * 0 + 1, above * 0, gl.where(row == 0, N, 0)
    to_scale_ptr = scale_t_ptr + above + cols.to(gl.int64) * step
    gl.store(to_scale_ptr, scale, mask=cols < count)
    gl.store(to_scale_ptr + step, next_scale, mask=cols + 1 < count)
    col_factors.store(factor_of(scale, HARDWARE))
    next_col_factors.store(factor_of(next_scale, HARDWARE))
    gl.barrier()  # all factors are there

    of_even = col_factors.load(gl.SliceLayout(0, of_thread(WARPS)))[None, :]
    of_odd = next_col_factors.load(gl.SliceLayout(0, of_thread(WARPS)))[None, :]
    if q_ptr.to(gl.int64) != 0:
        BOTH: gl.constexpr = cast_assembly(PACKED, D_TYPE, True)
        f0 = row_factors.slice(0, QUADS).load(gl.SliceLayout(1, of_thread(WARPS)))[:, None]
        f1 = next_row_factors.slice(0, QUADS).load(gl.SliceLayout(1, of_thread(WARPS)))[:, None]
        f2 = row_factors.slice(QUADS, QUADS).load(gl.SliceLayout(1, of_thread(WARPS)))[:, None]
        f3 = next_row_factors.slice(QUADS, QUADS).load(gl.SliceLayout(1, of_thread(WARPS)))[:, None]
        q0, q1, q2, q3, low, high = gl.inline_asm_elementwise(
            BOTH, "=&h,=&h,=&h,=&h,=&r,=&r,r,r,r,r,r,r,r,r,r,r", [x0, x1, x2, x3, f0, f1, f2, f3, of_even, of_odd],
            (gl.int16, gl.int16, gl.int16, gl.int16, gl.int32, gl.int32), is_pure=True, pack=1,
        )  # fmt: skip
        q_ptr += batch * (batch_stride_d // ALIGN * ALIGN)
        store_quads(q0, q1, q2, q3, q_ptr, row, col, end, N, ldd // ALIGN * (ALIGN // 2), QUADS, WARPS)
    else:
        ALONE: gl.constexpr = cast_assembly(PACKED, D_TYPE, False)
        low, high = gl.inline_asm_elementwise(
            ALONE, "=&r,=&r,r,r,r,r,r,r", [x0, x1, x2, x3, of_even, of_odd], (gl.int32, gl.int32), is_pure=True, pack=1,
        )  # fmt: skip
    q_t_ptr += batch * (batch_stride_d_t // ALIGN * ALIGN)
    store_turned(low, high, q_t_ptr, row, col, end, N, ldd_t // ALIGN * (ALIGN // 4), WARPS)
