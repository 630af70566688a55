"""Copies A and B to where TMA and tensor cores can read them: aligned rows, transposed where K must come last.

What goes before a product whose operands lie otherwise.
"""

import triton
import triton.language as tl

from kernels.device.portable.overlap import wait_for_last_kernel


@triton.jit
def copy_block(
    block, from_ptr, to_ptr, rows, cols, transpose, ld_from, ld_to, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    ALIGN: tl.constexpr,
):  # fmt: skip
    """Block number `block` of a stored matrix [rows, cols], by rows of blocks; to [cols, rows] if `transpose` is 1."""
    to_ptr = tl.multiple_of(to_ptr, 16)
    ld_from = ld_from // ALIGN * ALIGN
    cols = cols // ALIGN * ALIGN
    blocks_n = tl.cdiv(cols, BLOCK_N)
    row = (block // blocks_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = (block % blocks_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(
        from_ptr + row[:, None] * ld_from + col[None, :],
        mask=(row < rows)[:, None] & (col < cols)[None, :], other=0.0,
    )  # fmt: skip
    ld_to = ld_to // 32 * 32  # a multiple of 128 bytes
    # Behind the last column zeros are written, as far as the copy's rows go: whole chunks of 16 bytes.
    if transpose == 1:
        transposed = (col < cols)[:, None] & (row < ld_to)[None, :]
        tl.store(to_ptr + col[:, None] * ld_to + row[None, :], tl.trans(x), mask=transposed)
    else:
        inside = (row < rows)[:, None] & (col < ld_to)[None, :]
        tl.store(to_ptr + row[:, None] * ld_to + col[None, :], x, mask=inside)


@triton.jit
def align(
    a_ptr, b_ptr, a_copy, b_copy, a_rows, a_cols, b_rows, b_cols, a_transpose, b_transpose,
    lda, ldb, copy_lda, copy_ldb,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Stored A [a_rows, a_cols] to a_copy, then B; an operand that needs no copy has 0 rows. The copies' leading
    dimensions are multiples of 128 bytes, and they start on 16. Columns and leading dimensions of what is copied are
    multiples of ALIGN."""
    wait_for_last_kernel()
    program = tl.program_id(0)
    blocks_a = tl.cdiv(a_rows, BLOCK_M) * tl.cdiv(a_cols, BLOCK_N)
    if program < blocks_a:
        copy_block(program, a_ptr, a_copy, a_rows, a_cols, a_transpose, lda, copy_lda, BLOCK_M, BLOCK_N, ALIGN)
    else:
        copy_block(
            program - blocks_a, b_ptr, b_copy, b_rows, b_cols, b_transpose, ldb, copy_ldb, BLOCK_M, BLOCK_N, ALIGN
        )
