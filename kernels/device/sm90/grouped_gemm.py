"""Grouped GEMM over arrays of pointers for Hopper in Gluon, for groups large enough. sm_90a only.

As in grouped_mm_pingpong.py two warpgroups own a tile each and take turns on the tensor cores; one warp looks groups up
and loads. TMA wants a descriptor of each matrix, and sizes and addresses are on the device alone: so that warp makes
them itself, in the block's share of the workspace, whenever it comes to another group. That takes it about two
microseconds, which is why small groups are faster in the reference set's grouped_gemm.py.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.device.portable.grouped_gemm import CHUNK, MAX_SIZE, MAX_TILES
from kernels.device.portable.tiles import rasterise
from kernels.device.sm90.epilogue import Epilogue
from kernels.device.sm90.grouped_mm_pingpong import multiply_tile
from kernels.device.sm90.loader import Operand, Stages, barriers
from kernels.device.sm90.mainloop import zero_parts
from kernels.device.sm90.team import alone
from kernels.device.sm90.tile_queue import WorkTile, make_queue

MANY = gl.constexpr(256)  # groups that are passed over together: one warp has few registers here


@gluon.aggregate
class Tables:
    """What the device knows of the groups' sizes and of their A and B."""

    a_ptrs: gl.tensor
    b_ptrs: gl.tensor
    group_m: gl.tensor
    group_n: gl.tensor
    group_k: gl.tensor
    group_lda: gl.tensor
    group_ldb: gl.tensor
    groups: gl.tensor
    read: gl.tensor  # whether A and B are: alpha is not 0
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP_M: gl.constexpr
    ALIGN: gl.constexpr

    @gluon.jit
    def entry(self, table, group):
        return gl.load(table + group, mask=group < self.groups, other=0)

    @gluon.jit
    def size(self, sizes, group):
        """Of each of these groups, 0 to the largest that there is; 0 past the last group."""
        return gl.minimum(gl.maximum(self.entry(sizes, group), 0), MAX_SIZE).to(gl.int32)

    @gluon.jit
    def tiles(self, m, n):
        n = n // self.ALIGN * self.ALIGN
        return gl.minimum(gl.cdiv(m, self.BLOCK_M).to(gl.int64) * gl.cdiv(n, self.BLOCK_N), MAX_TILES).to(gl.int32)

    @gluon.jit
    def tiles_of_many(self, first):
        layout: gl.constexpr = gl.BlockedLayout([MANY // 32], [32], [1], [0])
        group = first + gl.arange(0, MANY, layout)
        return gl.sum(self.tiles(self.size(self.group_m, group), self.size(self.group_n, group)).to(gl.int64), 0)


@gluon.jit
def pick(values, lane):
    """The value of one lane, whose number is the one element of `lane`."""
    return gl.sum(gl.gather(values, lane, 0), 0)


@gluon.jit
def describe(ptr, ld, extent, K, ALONG: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr):
    """Descriptor of an A or B of so many rows or columns. ALONG: K is the contiguous dimension."""
    ROWS: gl.constexpr = BLOCK if ALONG else BLOCK_K
    COLS: gl.constexpr = BLOCK_K if ALONG else BLOCK
    ONE: gl.constexpr = 1
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, COLS], ptr.dtype.element_ty)
    shape = [extent, K] if ALONG else [K, extent]
    return tma.make_tensor_descriptor(ptr, shape, [ld, ONE], [ROWS, COLS], layout)


@gluon.jit
def load(stages, a_desc, b_desc, step, row, col, k, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr):
    """Bring op(A)[row:, k:] and op(B)[k:, col:] into the buffers of this step, once they are empty."""
    stages.wait_empty(step)
    slot = step % stages.STAGES
    bar = stages.ready.index(slot)
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
    tma.async_load(a_desc, [k, row] if TRANS_A else [row, k], bar, stages.left.bufs.index(slot))
    tma.async_load(b_desc, [col, k] if TRANS_B else [k, col], bar, stages.right.bufs.index(slot))


@gluon.jit
def load_groups(tables, stages, queue, a_desc, b_desc, a_ptr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr):
    """One warp. Tiles are counted as in portable/grouped_gemm.py, all of one size."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    BLOCK_K: gl.constexpr = tables.BLOCK_K
    ALIGN: gl.constexpr = tables.ALIGN
    lane = gl.arange(0, CHUNK, layout)
    tile = gl.program_id(0).to(gl.int64)
    before = gl.to_tensor(0).to(gl.int64)  # tiles in the chunks already passed
    step = 0
    sent = 0
    described = -1
    for block in range(0, tables.groups, MANY):
        end = gl.minimum(block + MANY, tables.groups)
        if tables.groups > CHUNK:
            after = before + tables.tiles_of_many(block)
            if tile >= after:
                end = block  # nothing here
                before = after
        for chunk in range(block, end, CHUNK):
            group = chunk + lane
            m = tables.size(tables.group_m, group)
            n = tables.size(tables.group_n, group)
            k = tables.size(tables.group_k, group)
            a_table = tables.entry(tables.a_ptrs, group)
            b_table = tables.entry(tables.b_ptrs, group)
            lda_table = tables.entry(tables.group_lda, group)
            ldb_table = tables.entry(tables.group_ldb, group)
            tiles = tables.tiles(m, n)
            upto = gl.cumsum(tiles, 0)
            total = gl.sum(tiles, 0)
            while tile < before + total:
                inside = (tile - before).to(gl.int32)
                at = gl.sum((upto <= inside).to(gl.int32), 0)
                own = gl.full([1], 0, gl.int32, layout) + at
                M = pick(m, own)
                N = pick(n, own) // ALIGN * ALIGN
                K = gl.where(tables.read, pick(k, own) // ALIGN * ALIGN, 0)
                tile_m, tile_n = rasterise(
                    inside - pick(upto - tiles, own), gl.cdiv(M, tables.BLOCK_M), gl.cdiv(N, tables.BLOCK_N),
                    tables.GROUP_M,
                )  # fmt: skip
                row = tile_m * tables.BLOCK_M
                col = tile_n * tables.BLOCK_N
                count = gl.cdiv(K, BLOCK_K)
                index = chunk + at
                last = K - (count - 1) * BLOCK_K
                queue.send(sent, WorkTile(row, M, col, index, step, count, last, gl.to_tensor(tables.BLOCK_M)))
                if (index != described) & (count > 0):
                    for i in range(gl.maximum(step - stages.STAGES, 0), step):
                        stages.wait_ready(i)  # no copy goes by the old descriptors any more
                    a = gl.multiple_of(pick(a_table, own).to(a_ptr.dtype), 16)
                    b = gl.multiple_of(pick(b_table, own).to(a_ptr.dtype), 16)
                    lda = pick(lda_table, own) // ALIGN * ALIGN
                    ldb = pick(ldb_table, own) // ALIGN * ALIGN
                    a_desc = describe(a, lda, M, K, not TRANS_A, tables.BLOCK_M, BLOCK_K)
                    b_desc = describe(b, ldb, N, K, TRANS_B, tables.BLOCK_N, BLOCK_K)
                    described = index
                for i in range(count):
                    load(stages, a_desc, b_desc, step, row, col, i * BLOCK_K, TRANS_A, TRANS_B)
                    step += 1
                sent += 1
                tile += gl.num_programs(0)
            before += total
    none = gl.to_tensor(-1)
    for i in gl.static_range(2):
        queue.send(sent + i, WorkTile(none, none, none, none, step, none, none, none))
    gdc_launch_dependents()  # all is read or on its way: the next kernel may come


@gluon.aggregate
class GroupTile:
    """Where a tile's D, C and bias are: those of its group, asked for before the tile is multiplied."""

    row: gl.tensor
    col: gl.tensor
    M: gl.tensor
    N: gl.tensor
    d_ptr: gl.tensor
    ldd: gl.tensor
    bias_ptr: gl.tensor


@gluon.aggregate
class PointerOutput:
    """Stores tiles by plain stores of 16 bytes, in parts by columns that pass through shared memory."""

    c_ptrs: gl.tensor
    d_ptrs: gl.tensor
    bias_ptrs: gl.tensor
    group_n: gl.tensor
    group_ldc: gl.tensor
    group_ldd: gl.tensor
    null: gl.tensor  # no D: carries its type
    alpha: gl.tensor
    beta: gl.tensor
    activation: gl.tensor
    bufs: gl.shared_memory_descriptor  # one for each consumer
    ALIGN: gl.constexpr
    ACTIVATE: gl.constexpr

    @gluon.jit
    def tile(self, work):
        d_ptr = gl.multiple_of(gl.load(self.d_ptrs + work.group).to(self.null.dtype), 16)
        ldd = gl.load(self.group_ldd + work.group) // self.ALIGN * self.ALIGN
        N = gl.minimum(gl.load(self.group_n + work.group), MAX_SIZE).to(gl.int32) // self.ALIGN * self.ALIGN
        bias_ptr = self.null
        if self.bias_ptrs.to(gl.int64) != 0:
            bias_ptr = gl.load(self.bias_ptrs + work.group).to(self.null.dtype)
        col = work.col // self.ALIGN * self.ALIGN  # the queue hides what its numbers are multiples of
        return GroupTile(work.row, col, work.end, N, d_ptr, ldd, bias_ptr)

    @gluon.jit
    def add_c(self, acc, work, tile, col):
        c_ptr = gl.load(self.c_ptrs + work.group).to(self.null.dtype)
        ldc = gl.load(self.group_ldc + work.group)
        rows = tile.row + gl.arange(0, acc.shape[0], gl.SliceLayout(1, acc.type.layout))
        cols = col + gl.arange(0, acc.shape[1], gl.SliceLayout(0, acc.type.layout))
        inside = (rows[:, None] < tile.M) & (cols[None, :] < tile.N)
        c = gl.load(c_ptr + (rows.to(gl.int64)[:, None] * ldc + cols[None, :]), mask=inside, other=0.0)
        return acc + self.beta * c.to(gl.float32)

    @gluon.jit
    def copy(self, buf, tile, col):
        """What stands in a buffer, as far as the group goes."""
        STEP: gl.constexpr = 128 // buf.dtype.primitive_bitwidth
        ACROSS: gl.constexpr = buf.shape[1] // STEP
        layout: gl.constexpr = gl.BlockedLayout([1, STEP], [32 // ACROSS, ACROSS], [4, 1], [1, 0])
        rows = tile.row + gl.arange(0, buf.shape[0], gl.SliceLayout(1, layout))
        cols = col + gl.arange(0, buf.shape[1], gl.SliceLayout(0, layout))
        inside = (rows[:, None] < tile.M) & (cols[None, :] < tile.N)
        gl.store(tile.d_ptr + (rows.to(gl.int64)[:, None] * tile.ldd + cols[None, :]), buf.load(layout), mask=inside)

    @gluon.jit
    def store(self, parts, CONSUMER: gl.constexpr, work, tile):
        alpha = gl.where(work.count > 0, self.alpha, 0.0)  # an empty group has no product that Inf could multiply
        epilogue = Epilogue(tile.bias_ptr, tile.N, alpha, self.beta, self.activation, self.ACTIVATE, False, ())
        buf = self.bufs.index(CONSUMER)
        for i in gl.static_range(len(parts)):
            part = parts[i] * alpha
            col = tile.col + i * part.shape[1]
            if self.beta != 0.0:
                part = self.add_c(part, work, tile, col)
            part = epilogue.finish(part, tile.row, col)
            gl.barrier()  # the part before this one is read
            buf.store(part.to(buf.dtype))
            gl.barrier()
            self.copy(buf, tile, col)


@gluon.jit
def consume(stages, queue, out, turns, FIRST: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr):
    """Four warps: multiply and store every second tile of this program, beginning with tile FIRST."""
    turn = 1 - FIRST  # the first consumer need not wait for its first turn
    n = FIRST
    work = queue.receive(n)
    while work.count >= 0:
        tile = out.tile(work)
        parts = zero_parts(ROWS, COLS, out.bufs.shape[2])
        mbarrier.wait(turns.index(FIRST), turn)
        turn ^= 1
        parts = multiply_tile(parts, stages, turns, work, FIRST, COLS)
        out.store(parts, FIRST, work, tile)
        n += 2
        work = queue.receive(n)


@gluon.jit
def buffers_for(desc, STAGES: gl.constexpr, ROWS: gl.constexpr, TURNED: gl.constexpr):
    bufs = gl.allocate_shared_memory(desc.dtype, [STAGES] + desc.block_type.shape, desc.layout)  # noqa: RUF005
    return Operand(bufs, ROWS, 1, TURNED, 64, 1, 1, 0, 1, "")


@gluon.jit
def grouped_gemm_pingpong(
    a_ptrs, b_ptrs, c_ptrs, d_ptrs, bias_ptrs,
    group_m, group_n, group_k, group_lda, group_ldb, group_ldc, group_ldd,
    a_ptr, d_ptr,
    groups, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, PARTS: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr,
    ALIGN: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """a_ptr and d_ptr are null: they only carry the element types. Nothing is ever read by the first descriptors."""
    COLS: gl.constexpr = BLOCK_N // PARTS
    d_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, COLS], d_ptr.dtype.element_ty)
    # What the kernel before this one writes may be our tables, A, B or C, what it reads our D, and its workspace ours.
    gdc_wait()
    ld = gl.to_tensor(BLOCK_K).to(gl.int64)
    a_desc = describe(a_ptr, ld, BLOCK_M, BLOCK_K, not TRANS_A, BLOCK_M, BLOCK_K)
    b_desc = describe(a_ptr, ld, BLOCK_N, BLOCK_K, TRANS_B, BLOCK_N, BLOCK_K)
    left = buffers_for(a_desc, STAGES, BLOCK_M, TRANS_A)
    right = buffers_for(b_desc, STAGES, BLOCK_N, not TRANS_B)
    stages = Stages(
        left, right, barriers(STAGES), barriers(STAGES), gl.to_tensor(0), STAGES, BLOCK_K, 1, 1, False, 2, False, False,
        alone(),
    )  # fmt: skip
    tables = Tables(
        a_ptrs, b_ptrs, group_m, group_n, group_k, group_lda, group_ldb, groups, alpha != 0.0,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, ALIGN,
    )  # fmt: skip
    out = PointerOutput(
        c_ptrs, d_ptrs, bias_ptrs, group_n, group_ldc, group_ldd, d_ptr, alpha, beta, activation,
        gl.allocate_shared_memory(d_ptr.dtype.element_ty, [2, BLOCK_M, COLS], d_layout), ALIGN, ACTIVATE,
    )  # fmt: skip
    queue = make_queue()
    turns = barriers(2)
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, turns, 0, BLOCK_M, BLOCK_N)),
            (consume, (stages, queue, out, turns, 1, BLOCK_M, BLOCK_N)),
            (load_groups, (tables, stages, queue, a_desc, b_desc, a_ptr, TRANS_A, TRANS_B)),
        ],
        [4, 1],
        [232, 40],
    )
