"""Dense GEMM for Hopper in Gluon: tensor descriptors, one loading warp, multiplying warpgroups. sm_90a only.

Two ways to share the same work. `gemm_coop`: eight warps own one large tile together. `gemm_pingpong`: two warpgroups
own a tile each and take turns on the tensor cores, so that one stores while the other multiplies.

`gemm_swap` is the second with the operands' roles swapped, for few rows of A; `gemm_masked` is the second for a C or D
the copy engine cannot address. What each needs is stated once, as a guard in spec.py.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.tiles import activate


@gluon.aggregate
class Shape:
    """Sizes of the problem, and of a tile."""

    M: gl.tensor
    N: gl.tensor
    K: gl.tensor
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP_M: gl.constexpr
    splits: gl.tensor  # K of a tile is shared by this many pieces of work; 1 but in gemm_split and gemm_swap_split

    @gluon.jit
    def work(self):
        """Pieces of work in all; piece p is split p % splits of tile p / splits."""
        return gl.cdiv(self.M, self.BLOCK_M) * gl.cdiv(self.N, self.BLOCK_N) * self.splits

    @gluon.jit
    def steps(self, piece):
        """First step in K of a piece, and how many it has (at least one: the host sees to it)."""
        total = gl.cdiv(self.K, self.BLOCK_K)
        each = gl.cdiv(total, self.splits)
        first = piece % self.splits * each
        return first, min(each, total - first)

    @gluon.jit
    def place(self, tile):
        """First row and column of a tile; GROUP_M rows of tiles at a time, so that B stays in L2."""
        tiles_m = gl.cdiv(self.M, self.BLOCK_M)
        per_group = self.GROUP_M * gl.cdiv(self.N, self.BLOCK_N)
        first = tile // per_group * self.GROUP_M
        rows = min(tiles_m - first, self.GROUP_M)
        inside = tile % per_group
        return (first + inside % rows) * self.BLOCK_M, inside // rows * self.BLOCK_N


@gluon.aggregate
class Ring:
    """STAGES pairs of buffers that A and B pass through, with a barrier for each state."""

    a_desc: tma.tensor_descriptor
    b_desc: tma.tensor_descriptor
    a_bufs: gl.shared_memory_descriptor
    b_bufs: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    STAGES: gl.constexpr
    TRANS_A: gl.constexpr
    TRANS_B: gl.constexpr

    @gluon.jit
    def load(self, step, row, col, k):
        """Bring op(A)[row:, k:] and op(B)[k:, col:] into the buffers of this step, once they are empty."""
        slot = step % self.STAGES
        bar = self.ready.index(slot)
        mbarrier.wait(self.empty.index(slot), (step // self.STAGES & 1) ^ 1)
        mbarrier.expect(bar, self.a_desc.nbytes_per_cta + self.b_desc.nbytes_per_cta)
        if self.TRANS_A:
            tma.async_load(self.a_desc, [k, row], bar, self.a_bufs.index(slot))
        else:
            tma.async_load(self.a_desc, [row, k], bar, self.a_bufs.index(slot))
        if self.TRANS_B:
            tma.async_load(self.b_desc, [col, k], bar, self.b_bufs.index(slot))
        else:
            tma.async_load(self.b_desc, [k, col], bar, self.b_bufs.index(slot))

    @gluon.jit
    def operands(self, step):
        """This step's A and B, once they have arrived."""
        slot = step % self.STAGES
        mbarrier.wait(self.ready.index(slot), step // self.STAGES & 1)
        a = self.a_bufs.index(slot)
        b = self.b_bufs.index(slot)
        if self.TRANS_A:
            a = a.permute((1, 0))
        if self.TRANS_B:
            b = b.permute((1, 0))
        return a, b

    @gluon.jit
    def release(self, step, pred=True):
        mbarrier.arrive(self.empty.index(step % self.STAGES), count=1, pred=pred)


@gluon.aggregate
class Epilogue:
    """What is done to a tile's sum before it is stored, C apart."""

    bias_ptr: gl.tensor
    N: gl.tensor
    alpha: gl.tensor
    beta: gl.tensor
    activation: gl.tensor
    ACTIVATE: gl.constexpr
    SWAP: gl.constexpr  # the accumulator is D transposed: rows of the tensor-core tile are columns of D

    @gluon.jit
    def finish(self, acc, col):
        """Bias and activation; `col` is D's first column here."""
        if self.bias_ptr.to(gl.int64) != 0:
            if self.SWAP:
                cols = col + gl.arange(0, acc.shape[0], gl.SliceLayout(1, acc.type.layout))
                bias = gl.load(self.bias_ptr + cols, mask=cols < self.N, other=0.0).to(gl.float32)[:, None]
            else:
                cols = col + gl.arange(0, acc.shape[1], gl.SliceLayout(0, acc.type.layout))
                bias = gl.load(self.bias_ptr + cols, mask=cols < self.N, other=0.0).to(gl.float32)[None, :]
            acc += bias
        if self.ACTIVATE:
            acc = activate(acc, self.activation)
        return acc


@gluon.jit
def halves(x):
    """The left and the right columns of x."""
    return x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()


@gluon.aggregate
class Output:
    """Stores tiles through the copy engine, in PARTS parts by columns; C comes into the same buffer first."""

    c_desc: tma.tensor_descriptor
    d_desc: tma.tensor_descriptor
    bufs: gl.shared_memory_descriptor  # one for each consumer
    c_bars: gl.shared_memory_descriptor
    epilogue: Epilogue
    PARTS: gl.constexpr

    @gluon.jit
    def store_part(self, acc, CONSUMER: gl.constexpr, phase, row, col):
        """One part, as wide as D's box. Returns the phase that C's barrier has next."""
        buf = self.bufs.index(CONSUMER)
        seen = buf
        if self.epilogue.SWAP:
            seen = buf.permute((1, 0))
        bar = self.c_bars.index(CONSUMER)
        acc = acc * self.epilogue.alpha
        tma.store_wait(pendings=0)
        if self.epilogue.beta != 0.0:
            mbarrier.expect(bar, self.c_desc.nbytes_per_cta)
            tma.async_load(self.c_desc, [row, col], bar, buf)
            mbarrier.wait(bar, phase)
            phase ^= 1
            acc += self.epilogue.beta * seen.load(acc.type.layout).to(gl.float32)
        acc = self.epilogue.finish(acc, col)
        seen.store(acc.to(self.d_desc.dtype))
        fence_async_shared()
        tma.async_store(self.d_desc, [row, col], buf)
        return phase

    @gluon.jit
    def begin(self, piece):
        pass

    @gluon.jit
    def store(self, acc, CONSUMER: gl.constexpr, phase, row, col, piece):
        if self.PARTS == 1:
            phase = self.store_part(acc, CONSUMER, phase, row, col)
        else:
            half: gl.constexpr = acc.shape[1] // 2
            left, right = halves(acc)
            if self.PARTS == 2:
                phase = self.store_part(left, CONSUMER, phase, row, col)
                phase = self.store_part(right, CONSUMER, phase, row, col + half)
            else:
                quarter: gl.constexpr = half // 2
                first, second = halves(left)
                third, fourth = halves(right)
                phase = self.store_part(first, CONSUMER, phase, row, col)
                phase = self.store_part(second, CONSUMER, phase, row, col + quarter)
                phase = self.store_part(third, CONSUMER, phase, row, col + half)
                phase = self.store_part(fourth, CONSUMER, phase, row, col + half + quarter)
        return phase

    @gluon.jit
    def drain(self):
        tma.store_wait(pendings=0)


@gluon.aggregate
class MaskedOutput:
    """Stores tiles from registers, element by element: for a C or D the copy engine cannot address."""

    c_ptr: gl.tensor
    d_ptr: gl.tensor
    ldc: gl.tensor
    ldd: gl.tensor
    M: gl.tensor
    epilogue: Epilogue

    @gluon.jit
    def begin(self, piece):
        pass

    @gluon.jit
    def store(self, acc, CONSUMER: gl.constexpr, phase, row, col, piece):
        rows = row + gl.arange(0, acc.shape[0], gl.SliceLayout(1, acc.type.layout))
        cols = col + gl.arange(0, acc.shape[1], gl.SliceLayout(0, acc.type.layout))
        inside = (rows[:, None] < self.M) & (cols[None, :] < self.epilogue.N)
        acc = acc * self.epilogue.alpha
        if self.epilogue.beta != 0.0:
            c = gl.load(self.c_ptr + (rows.to(gl.int64)[:, None] * self.ldc + cols[None, :]), mask=inside, other=0.0)
            acc += self.epilogue.beta * c.to(gl.float32)
        acc = self.epilogue.finish(acc, col).to(self.d_ptr.dtype.element_ty)
        gl.store(self.d_ptr + (rows.to(gl.int64)[:, None] * self.ldd + cols[None, :]), acc, mask=inside)
        return phase

    @gluon.jit
    def drain(self):
        pass


@gluon.aggregate
class SplitOutput:
    """Pieces of one tile meet in the workspace: the last to arrive adds all of them, in order, and stores the tile.

    `slots` has one int64 for each tile, of any content: nonce << 8 | arrivals while a tile's pieces arrive, where the
    nonce is this launch's own, and 0 afterwards, so that a replay of the launch starts anew.
    """

    out: Output
    epilogue: Epilogue
    partials: gl.tensor  # float32, [tile][split][rows][cols]
    slots: gl.tensor
    nonce: gl.tensor
    splits: gl.tensor

    @gluon.jit
    def begin(self, piece):
        """Make the tile's slot this launch's own, off the critical path: whoever comes first does it."""
        slot = self.slots + piece // self.splits
        fresh = self.nonce << 8
        seen = gl.atomic_cas(slot, gl.to_tensor(0).to(gl.int64), fresh, sem="relaxed")
        if (seen != 0) & (seen >> 8 != self.nonce):
            gl.atomic_cas(slot, seen, fresh, sem="relaxed")

    @gluon.jit
    def store(self, acc, CONSUMER: gl.constexpr, phase, row, col, piece):
        layout: gl.constexpr = acc.type.layout
        rows = gl.arange(0, acc.shape[0], gl.SliceLayout(1, layout))
        cols = gl.arange(0, acc.shape[1], gl.SliceLayout(0, layout))
        inside = rows[:, None] * acc.shape[1] + cols[None, :]
        size: gl.constexpr = acc.shape[0] * acc.shape[1]
        tile = piece // self.splits
        gl.store(self.partials + piece.to(gl.int64) * size + inside, acc)
        gl.barrier()  # every warp's part is written before the arrival is told
        before = gl.atomic_add(self.slots + tile, gl.to_tensor(1).to(gl.int64), sem="acq_rel")
        if (before & 255) + 1 == self.splits:
            total = gl.zeros_like(acc)
            first = self.partials + (tile * self.splits).to(gl.int64) * size
            # Several loads in flight, as many as registers hold: one at a time would wait for L2 at each.
            DEPTH: gl.constexpr = 16 if size <= 1024 else 16384 // size
            for i in range(0, self.splits, DEPTH):
                for j in gl.static_range(DEPTH):
                    here = (i + j < self.splits) & (rows[:, None] >= 0)
                    total += gl.load(first + (i + j) * size + inside, mask=here, other=0.0, cache_modifier=".cg")
            phase = self.out.store(total, CONSUMER, phase, row, col, piece)
            gl.atomic_xchg(self.slots + tile, gl.to_tensor(0).to(gl.int64), sem="relaxed")
        return phase

    @gluon.jit
    def drain(self):
        self.out.drain()


@gluon.jit
def load_partition(shape, ring):
    """One warp: brings every tile's A and B through the ring."""
    step = 0
    for piece in range(gl.program_id(0), shape.work(), gl.num_programs(0)):
        row, col = shape.place(piece // shape.splits)
        first, count = shape.steps(piece)
        for i in range(first, first + count):
            ring.load(step, row, col, i * shape.BLOCK_K)
            step += 1


@gluon.jit
def consume(shape, ring, out, turns, FIRST: gl.constexpr, CONSUMERS: gl.constexpr, WARPS: gl.constexpr):
    """WARPS warps multiply and store every CONSUMERS-th piece of this program, beginning with piece FIRST."""
    K_BITS: gl.constexpr = 256  # of K, one instruction takes 32 bytes
    SWAP: gl.constexpr = out.epilogue.SWAP
    ROWS: gl.constexpr = shape.BLOCK_N if SWAP else shape.BLOCK_M
    COLS: gl.constexpr = shape.BLOCK_M if SWAP else shape.BLOCK_N
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[WARPS, 1],
        instr_shape=[16, COLS, K_BITS // ring.a_desc.dtype.primitive_bitwidth],
    )
    programs = gl.num_programs(0)
    step = 0
    if FIRST == 1:
        _, step = shape.steps(gl.program_id(0))  # those of the other consumer's first piece
    phase = 0
    turn = 1 - FIRST  # the first consumer need not wait for its first turn
    for piece in range(gl.program_id(0) + FIRST * programs, shape.work(), CONSUMERS * programs):
        row, col = shape.place(piece // shape.splits)
        _, count = shape.steps(piece)
        out.begin(piece)
        acc = gl.zeros((ROWS, COLS), gl.float32, layout)
        if CONSUMERS == 2:
            mbarrier.wait(turns.index(FIRST), turn)
            turn ^= 1
        for i in range(count):
            a, b = ring.operands(step)
            if SWAP:
                acc = warpgroup_mma(b.permute((1, 0)), a.permute((1, 0)), acc, is_async=True, use_acc=i > 0)
            else:
                acc = warpgroup_mma(a, b, acc, is_async=True, use_acc=i > 0)
            acc = warpgroup_mma_wait(1, deps=(acc,))
            ring.release(step + ring.STAGES - 1, i > 0)  # the one before this is done
            step += 1
        if CONSUMERS == 2:
            mbarrier.arrive(turns.index(1 - FIRST), count=1)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        ring.release(step + ring.STAGES - 1)
        if CONSUMERS == 2:
            _, others = shape.steps(piece + programs)
            step += others
        phase = out.store(acc, FIRST, phase, row, col, piece)
    out.drain()


@gluon.jit
def only_consumer(shape, ring, out, turns):
    consume(shape, ring, out, turns, 0, 1, 8)


@gluon.jit
def first_consumer(shape, ring, out, turns):
    consume(shape, ring, out, turns, 0, 2, 4)


@gluon.jit
def second_consumer(shape, ring, out, turns):
    consume(shape, ring, out, turns, 1, 2, 4)


@gluon.jit
def barriers(COUNT: gl.constexpr):
    bars = mbarrier.allocate_mbarrier(batch=COUNT)
    for i in gl.static_range(COUNT):
        mbarrier.init(bars.index(i), count=1)
    return bars


@gluon.jit
def buffers(desc, COUNT: gl.constexpr):
    return gl.allocate_shared_memory(desc.dtype, [COUNT] + desc.block_type.shape, desc.layout)  # noqa: RUF005


@gluon.jit
def make_ring(a_desc, b_desc, STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr):
    return Ring(
        a_desc, b_desc, buffers(a_desc, STAGES), buffers(b_desc, STAGES), barriers(STAGES), barriers(STAGES),
        STAGES, TRANS_A, TRANS_B,
    )  # fmt: skip


@gluon.jit
def run_coop(shape, ring, out):
    turns = barriers(1)  # not used: there is one consumer
    gl.warp_specialize([(only_consumer, (shape, ring, out, turns)), (load_partition, (shape, ring))], [1], [24])


@gluon.jit
def run_pingpong(shape, ring, out):
    turns = barriers(2)
    gl.warp_specialize(
        [
            (first_consumer, (shape, ring, out, turns)),
            (second_consumer, (shape, ring, out, turns)),
            (load_partition, (shape, ring)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def gemm_coop(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, PARTS: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    out = Output(c_desc, d_desc, buffers(d_desc, 1), barriers(1), epilogue, PARTS)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, gl.to_tensor(1))
    run_coop(shape, make_ring(a_desc, b_desc, STAGES, TRANS_A, TRANS_B), out)


@gluon.jit
def gemm_pingpong(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, PARTS: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    out = Output(c_desc, d_desc, buffers(d_desc, 2), barriers(2), epilogue, PARTS)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, gl.to_tensor(1))
    run_pingpong(shape, make_ring(a_desc, b_desc, STAGES, TRANS_A, TRANS_B), out)


@gluon.jit
def gemm_swap(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """gemm_pingpong with the operands' roles swapped: for few rows of A, which fill the narrow side, 8 at least."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, True)
    out = Output(c_desc, d_desc, buffers(d_desc, 2), barriers(2), epilogue, 1)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, gl.to_tensor(1))
    run_pingpong(shape, make_ring(a_desc, b_desc, STAGES, TRANS_A, TRANS_B), out)


@gluon.jit
def gemm_masked(
    a_desc, b_desc, c_ptr, d_ptr, bias_ptr, M, N, K, ldc, ldd, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """gemm_pingpong for a C or D of any alignment and leading dimension."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    out = MaskedOutput(c_ptr, d_ptr, ldc, ldd, M, epilogue)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, gl.to_tensor(1))
    run_pingpong(shape, make_ring(a_desc, b_desc, STAGES, TRANS_A, TRANS_B), out)


@gluon.jit
def gemm_split(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, partials, slots, nonce, splits, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """gemm_pingpong with K shared by `splits` blocks a tile: for fewer tiles than multiprocessors."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, False)
    out = Output(c_desc, d_desc, buffers(d_desc, 2), barriers(2), epilogue, 1)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, splits)
    ring = make_ring(a_desc, b_desc, STAGES, TRANS_A, TRANS_B)
    run_pingpong(shape, ring, SplitOutput(out, epilogue, partials, slots, nonce, splits))


@gluon.jit
def gemm_swap_split(
    a_desc, b_desc, c_desc, d_desc, bias_ptr, partials, slots, nonce, splits, M, N, K, alpha, beta, activation,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, ACTIVATE: gl.constexpr,
):  # fmt: skip
    """gemm_swap with K shared by `splits` blocks a tile."""
    epilogue = Epilogue(bias_ptr, N, alpha, beta, activation, ACTIVATE, True)
    out = Output(c_desc, d_desc, buffers(d_desc, 2), barriers(2), epilogue, 1)
    shape = Shape(M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, splits)
    ring = make_ring(a_desc, b_desc, STAGES, TRANS_A, TRANS_B)
    run_pingpong(shape, ring, SplitOutput(out, epilogue, partials, slots, nonce, splits))
