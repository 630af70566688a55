"""Dense GEMM for Hopper where tiles are few: the blocks of one cluster share a tile's K, and reduce in shared memory.
A tile's right side is any multiple of 8 wide.

No workspace and no atomics: each block leaves its sum of products in its own shared memory, and after a barrier of the
cluster each reads its share of the tile from all of them, in order of K, so that the same call gives the same bits.
All warps load, multiply and store; a barrier of the cluster wants every thread, so no warp is set apart.

With PROMOTE 8-bit products of 128 of K are added to a sum in registers, in float32 (promote.py).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.device.sm90.epilogue import Epilogue, columns_before
from kernels.device.sm90.loader import kept, make_stages
from kernels.device.sm90.mainloop import multiply_step, wait_for_parts, zero_parts
from kernels.device.sm90.promote import add_parts, multiply_line
from kernels.device.sm90.raster import place_of, quotient
from kernels.device.sm90.scheduler import slice_of
from kernels.device.sm90.team import thread_number

MOST = gl.constexpr(8)  # blocks in a cluster that every device can hold


@gluon.jit
def cluster_arrive():
    gl.inline_asm("barrier.cluster.arrive.release.aligned;", "~{memory}", [], [], is_pure=False)


@gluon.jit
def cluster_wait():
    gl.inline_asm("barrier.cluster.wait.acquire.aligned;", "~{memory}", [], [], is_pure=False)


@gluon.constexpr_function
def load_from_peer(outputs, inputs):
    """Four floats at the first of these byte offsets in block `rank`'s buffer; zeros where that block is not there."""
    (to,) = outputs
    base, rank, ranks, offsets = inputs
    return (
        "{ .reg .pred here; .reg .b32 address;\n"
        f"setp.lt.s32 here, {rank[0]}, {ranks[0]};\n"
        f"mapa.shared::cluster.u32 address, {base[0]}, {rank[0]};\n"
        f"add.s32 address, address, {offsets[0]};\n"
        + "".join(f"mov.b32 {x}, 0;\n" for x in to)
        + f"@here ld.shared::cluster.v4.f32 {{{', '.join(to)}}}, [address];\n}}"
    )


@gluon.constexpr_function
def leave_part(part, before, stride, swap, warps):
    """Stores a part of the sum, whose first column is number `before`: at $0 + $1 what is each thread's first number,
    the others as a thread has them (mainloop.py), two of a row at a time but with operands swapped. The compiler gives
    $0 without the block's rank, as if it were the first one's."""
    rows, width = part.type.shape
    lines = [
        "{ .reg .b32 at;", "mov.u32 at, %cluster_ctarank;", "mapa.shared::cluster.u32 at, $0, at;",
        "add.u32 at, at, $1;",
    ]  # fmt: skip
    count = 1 if swap else 2
    for i in range(0, rows * width // (32 * warps), count):
        row, col = i // 2 % 2 * 8 + i // (width // 2) * 16 * warps, before + i // 4 % (width // 8) * 8 + i % 2
        to = 4 * (col * stride + row if swap else row * stride + col)
        numbers = ", ".join(f"${2 + i + j}" for j in range(count))
        lines += [f"st.shared.f32 [at + {to}], {numbers};" if swap else f"st.shared.v2.f32 [at + {to}], {{{numbers}}};"]
    return "\n".join([*lines, "}"])


@gluon.constexpr_function
def sum_stride(columns, swap):
    """Floats from a row of a tile's sum to the next, so that what half a warp stores at a time, four rows by eight
    columns, is in different banks, or with operands swapped what a warp does; a row begins on 16 bytes."""
    return columns + 4 if swap else columns + 8 - columns % 16


@gluon.constexpr_function
def widest_part(width):
    return width if width & (width - 1) == 0 else 64


@gluon.aggregate
class Slice:
    """A block's slice of a tile: where its operands begin, and how much of K is left there."""

    left: gl.tensor  # rows
    right: gl.tensor
    left_plane: gl.tensor
    right_plane: gl.tensor
    k: gl.tensor
    rest: gl.tensor
    keep: gl.tuple  # how long L2 is to keep either operand; ()
    CLEAR: gl.constexpr  # what follows in K is another group's

    @gluon.jit
    def fetch(self, stages, step, pred):
        k = self.k + step * stages.BLOCK_K
        stages.fetch(step, self.left, self.right, k, self.left_plane, self.right_plane, pred, keep=self.keep)


@gluon.jit
def promote_step(parts, stages, step, WIDTH: gl.constexpr):
    """The sum with a step's products, line by line."""
    for line in gl.static_range(stages.left.LINES):
        parts = add_parts(parts, multiply_line(parts, stages, step, line, 0, WIDTH))
    return parts


@gluon.jit
def multiply_slice(stages, source, count, ROWS: gl.constexpr, WIDTH: gl.constexpr, PROMOTE: gl.constexpr = False):
    """The tile's sum over `count` steps in K; loads run STAGES - 1 steps ahead."""
    gl.barrier()  # one thread has made the barriers, another loads
    for step in gl.static_range(stages.STAGES - 1):
        source.fetch(stages, step, step < count)
    parts = zero_parts(ROWS, WIDTH, widest_part(WIDTH), TOGETHER=True)
    for step in range(count):
        stages.wait_ready(step)
        if source.CLEAR:
            last = source.rest - step * stages.BLOCK_K
            if last < stages.BLOCK_K:
                stages.clear(step, last)
        parts = promote_step(parts, stages, step, WIDTH) if PROMOTE else multiply_step(parts, stages, step, 0, WIDTH)
        gl.barrier()  # every warp is done with the buffers of the step before this one
        ahead = step + stages.STAGES - 1
        source.fetch(stages, ahead, ahead < count)
    gdc_launch_dependents()  # all is read: the next kernel may come
    if not PROMOTE:
        parts = wait_for_parts(parts, WIDTH)
    gl.barrier()  # the sum goes where operands were
    return parts


@gluon.aggregate
class Factors:
    """What A and B were scaled by, of single elements of D."""

    a_scale: gl.tensor
    b_scale: gl.tensor
    scaling: gl.tensor  # libgemm_scaling: 0 none, 1 a number each, 2 one for each row of op(A) and column of op(B)

    @gluon.jit
    def applied(self, total, rows, cols, here):
        here = here & (self.scaling > 0)
        of_row = gl.load(self.a_scale + rows * (self.scaling - 1), mask=here, other=1.0)
        return total * of_row * gl.load(self.b_scale + cols * (self.scaling - 1), mask=here, other=1.0)


@gluon.jit
def make_factors(a_scale, b_scale, scaling, SCALED: gl.constexpr):
    """() where operands have none."""
    if SCALED:
        return (Factors(a_scale, b_scale, scaling),)
    else:
        return ()


@gluon.aggregate
class Sums:
    """The tile that a cluster reduces, and where it goes."""

    buf: gl.shared_memory_descriptor
    c_ptr: gl.tensor
    d_ptr: gl.tensor
    ldc: gl.tensor
    ldd: gl.tensor
    M: gl.tensor  # one past the last row
    epilogue: Epilogue
    splits: gl.tensor
    factors: gl.tuple  # of make_factors
    SWAP: gl.constexpr
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr

    @gluon.jit
    def add_and_store(self, rank, row, col):
        """This block's units of the tile: the sum over the cluster, the epilogue, D."""
        layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
        UNIT: gl.constexpr = 128 * gl.num_warps()  # elements added and stored at a time, four a thread
        BLOCK_N: gl.constexpr = self.BLOCK_N
        STRIDE: gl.constexpr = sum_stride(BLOCK_N, self.SWAP)
        UNITS: gl.constexpr = self.BLOCK_M * BLOCK_N // UNIT
        for unit in range(rank, UNITS, self.splits):
            inside = unit * UNIT + gl.arange(0, UNIT, layout)
            line = inside // BLOCK_N
            column = inside % BLOCK_N
            offs = (line * STRIDE + column) * 4
            total = gl.zeros([UNIT], gl.float32, layout)
            for peer in gl.static_range(MOST):
                total += gl.inline_asm(
                    load_from_peer, ("=f", "r", "r", "r", "r"), [self.buf, peer, self.splits, offs], total.type,
                    is_pure=False,
                )  # fmt: skip
            rows = row + line
            cols = col + column
            here = (rows < self.M) & (cols < self.epilogue.N)
            total *= self.epilogue.alpha
            if len(self.factors) > 0:
                total = self.factors[0].applied(total, rows, cols, here)
            if self.epilogue.beta != 0.0:
                c = gl.load(self.c_ptr + (rows.to(gl.int64) * self.ldc + cols), mask=here, other=0.0)
                total += self.epilogue.beta * c.to(gl.float32)
            total = self.epilogue.finish_flat(total, cols)
            at = rows.to(gl.int64) * self.ldd + cols
            gl.store(self.d_ptr + at, total.to(self.d_ptr.dtype.element_ty), mask=here)

    @gluon.jit
    def leave(self, part, BEFORE: gl.constexpr):
        """Store the columns from BEFORE on of this block's sum, of D^T with operands swapped."""
        WARPS: gl.constexpr = gl.num_warps()
        STRIDE: gl.constexpr = sum_stride(self.BLOCK_N, self.SWAP)
        ASSEMBLY: gl.constexpr = leave_part(part, BEFORE, STRIDE, self.SWAP, WARPS)
        thread = thread_number()
        row = thread // 32 * 16 + thread % 32 // 4
        col = thread % 4 * 2
        first = (col * STRIDE + row if self.SWAP else row * STRIDE + col) * 4
        gl.inline_asm(ASSEMBLY, ("r", "r", "f"), [self.buf, first, part], [], is_pure=False)

    @gluon.jit
    def reduce(self, parts, rank, row, col):
        """Leave this block's sum where the others of its cluster find it, and store a share of what all of them
        have."""
        for i in gl.static_range(len(parts)):
            self.leave(parts[i], columns_before(parts, i))
        cluster_arrive()
        cluster_wait()
        self.add_and_store(rank, row, col)
        cluster_arrive()  # no block leaves while another may read its shared memory
        cluster_wait()


@gluon.jit
def sums_buffer(stages):
    """Where a tile's sum goes once it is whole: where the larger operand came."""
    if stages.left.ROWS > stages.right.ROWS:
        return stages.left.bufs
    else:
        return stages.right.bufs


@gluon.jit
def gemm_cluster(
    a_desc, b_desc, c_ptr, d_ptr, bias_ptr, splits, M, N, K, ldc, ldd, alpha, beta, activation,
    a_scale, b_scale, scaling,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SYMBOL: gl.constexpr, SWAP: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
    SCALED: gl.constexpr, PROMOTE: gl.constexpr,
):  # fmt: skip
    """K shared by the `splits` blocks of a cluster, one tile a cluster. With operands swapped (swap-AB) for few rows
    of A, which fill the narrow side, 8 at least."""
    stages = make_stages(
        a_desc, b_desc, SYMBOL, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, TRANS_A, TRANS_B, SWAP, IN_CLUSTER=True, BY_ALL=True
    )
    buf = sums_buffer(stages)
    unit = gl.program_id(0)
    rows = gl.cdiv(M, BLOCK_M)
    columns = gl.cdiv(N, BLOCK_N)
    row, col = place_of(quotient(unit, splits), rows, columns, GROUP_M)
    row *= BLOCK_M
    col *= BLOCK_N
    first, count = slice_of(K, splits, unit, BLOCK_K)
    first *= BLOCK_K
    gdc_wait()  # what the kernel before this one writes may be our A, B or C, what it reads our D
    none = gl.to_tensor(0)
    if SWAP:
        source = Slice(col, row, none, none, first, K - first, kept(columns, rows), False)
        parts = multiply_slice(stages, source, count, BLOCK_N, BLOCK_M, PROMOTE)
    else:
        source = Slice(row, col, none, none, first, K - first, kept(rows, columns), False)
        parts = multiply_slice(stages, source, count, BLOCK_M, BLOCK_N, PROMOTE)
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False, ())
    factors = make_factors(a_scale, b_scale, scaling, SCALED)
    sums = Sums(buf, c_ptr, d_ptr, ldc, ldd, M, epilogue, splits, factors, SWAP, BLOCK_M, BLOCK_N)
    sums.reduce(parts, unit % splits, row, col)
