"""The loader where rows of A are gathered by an index: threads copy them, 16 bytes each (cp.async); B comes by TMA. No
kernel here.

TMA of Hopper has no gather. Four warps copy: eight threads a row's line of 128 bytes, to where TMA would have put it.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.loader import (
    LINE,
    Stages,
    barriers,
    make_described,
    make_operand,
    prefetch_maps,
)
from kernels.device.sm90.team import alone, thread_number

COPIERS = gl.constexpr(128)  # threads
AT_ONCE = gl.constexpr(16)  # rows that they copy a line of


@gluon.constexpr_function
def copy_assembly(count, lines):
    """Each thread's part of `count` * 16 rows of a step, and its word to the barrier once all has come (PTX ISA,
    cp.async, cp.async.mbarrier.arrive.noinc).

    Inputs: buffers, bytes from there to this thread's place in the stage, barrier, bytes of a row that are left from
    this thread's chunk on (where there are none zeros come), rows that the tile has, and where each of its `count`
    chunks is. Addresses have registers of their own: a copy holds those it reads for long.
    """
    text = ["{ .reg .pred here; .reg .b32 to, size<2>;", "add.u32 to, $0, $1;"]
    for line in range(lines):
        text.append(f"setp.gt.s32 here, $3, {line * 128};\nselp.b32 size{line}, 16, 0, here;")
    for i in range(count):
        text.append(f"setp.gt.s32 here, $4, {i * 16};")
        text += [
            f"@here cp.async.cg.shared.global [to + {(line * count + i) * 16 * 128}], [${5 + i} + {line * 128}], 16, "
            f"size{line};"
            for line in range(lines)
        ]
    return "\n".join([*text, "cp.async.mbarrier.arrive.noinc.shared.b64 [$2]; }"])


@gluon.constexpr_function
def copy_constraints(count):
    return ",".join(["r"] * 5 + ["l"] * count + ["~{memory}"])


@gluon.constexpr_function
def largest_power(count):
    """The largest power of two of at most `count`."""
    return 1 << count.bit_length() - 1


@gluon.jit
def moved(addresses, BYTES: gl.constexpr, FROM: gl.constexpr = 0):
    """All of a tuple, so many bytes further on."""
    if len(addresses) - 1 == FROM:
        return (addresses[FROM] + BYTES,)
    else:
        return (addresses[FROM] + BYTES,) + moved(addresses, BYTES, FROM + 1)  # noqa: RUF005


@gluon.aggregate
class GatheredStages:
    """The pipeline as the four loading warps see it."""

    stages: Stages
    a_ptr: gl.tensor
    rows_ptr: gl.tensor  # int32, which of A's rows is each row of the product; null: A's rows as they stand
    lda: gl.tensor
    stored: gl.tensor  # rows of A
    K: gl.tensor
    PER: gl.constexpr  # columns of B side by side for each of D

    @gluon.jit
    def addresses(self, row, height, FIRST: gl.constexpr = 0):
        """Of the chunks of the tile's rows, from number FIRST on, that this thread copies, in the first step. An index
        that points outside counts as the nearest row."""
        LEFT: gl.constexpr = self.stages.right.ROWS - FIRST
        ROWS: gl.constexpr = largest_power(LEFT)
        layout: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])
        inside = FIRST + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        chunk = gl.arange(0, 8, gl.SliceLayout(0, layout))
        index = row + inside
        if self.rows_ptr.to(gl.int64) != 0:
            index = gl.load(self.rows_ptr + index, mask=inside < height, other=0)
        index = gl.minimum(gl.maximum(index, 0), self.stored - 1)
        BYTES: gl.constexpr = self.a_ptr.dtype.element_ty.primitive_bitwidth // 8
        at = self.a_ptr.to(gl.int64) + index.to(gl.int64) * (self.lda * BYTES)
        at = at[:, None] + chunk[None, :] * 16
        if LEFT == ROWS:
            return (at,)
        else:
            return (at,) + self.addresses(row, height, FIRST + ROWS)  # noqa: RUF005

    @gluon.jit
    def load_tile(self, step, count, row, col, k, a_plane, b_plane, height):
        step, _ = self.load_steps(step, count, col, k, b_plane, height, self.addresses(row, height))
        return step

    @gluon.jit
    def load_steps(self, step, count, col, k, b_plane, height, addresses):
        """Some of a tile's steps, from `k` on, whose chunks of A are at these addresses. Returns the number of the step
        behind them, and the addresses there."""
        stages = self.stages
        BYTES: gl.constexpr = self.a_ptr.dtype.element_ty.primitive_bitwidth // 8
        COUNT: gl.constexpr = stages.right.ROWS // AT_ONCE
        ASSEMBLY: gl.constexpr = copy_assembly(COUNT, stages.right.LINES)
        CONSTRAINTS: gl.constexpr = copy_constraints(COUNT)
        # Where in a line of all rows this thread's first chunk of 16 bytes goes, swizzled as TMA does it: rows of 128
        # bytes, whose chunks are exchanged by the row's number modulo 8. And, in bytes, which chunk of a row it reads.
        thread = thread_number()
        inside, chunk = thread >> 3 & AT_ONCE - 1, thread & 7
        place, chunk = ((chunk ^ inside) & 7) * 16 + inside * LINE, chunk * 16
        left = (self.K - k) * BYTES - chunk
        for i in range(count):
            slot = step % stages.STAGES
            stages.wait_empty(step)
            stages.fetch(step, col * self.PER, 0, k + i * stages.BLOCK_K, b_plane, 0)
            places = (stages.right.bufs, stages.right.at(slot, 0) + place, stages.ready.index(slot))
            given = places + (left - i * (stages.right.LINES * LINE), height) + addresses  # noqa: RUF005
            gl.inline_asm(ASSEMBLY, CONSTRAINTS, given, [], is_pure=False)
            addresses = moved(addresses, stages.right.LINES * LINE)
            step += 1
        return step, addresses


@gluon.jit
def make_gathered_stages(
    b_desc, SYMBOL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr, TRANS_B: gl.constexpr, HALVES: gl.constexpr, OWNERS: gl.constexpr,
):  # fmt: skip
    """Operands swapped: left is B, the entry point's first parameter, whose tensor map has a dimension for the half,
    where there are two, and one for the group."""
    dtype: gl.constexpr = b_desc.dtype
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([8, 64], dtype)
    B: gl.constexpr = SYMBOL + "_param_0"
    prefetch_maps(SYMBOL, (0,))
    left = make_described(b_desc, STAGES, BLOCK_N, BLOCK_K, not TRANS_B, B, 1, 1, 0, HALVES)
    right = make_operand(dtype, [8, 64], layout, STAGES, BLOCK_M, BLOCK_K, False, "")
    empty, ready = barriers(STAGES, OWNERS), barriers(STAGES, 1 + COPIERS)
    return Stages(left, right, empty, ready, gl.to_tensor(0), STAGES, BLOCK_K, 1, 1, True, 3, False, True, alone())
