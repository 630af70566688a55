"""How Hopper kernels write: the epilogue, and tiles through TMA, from registers or in slices. No kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from kernels.device.portable.tiles import activate
from kernels.device.sm90.loader import barriers


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
    scales: gl.tuple  # of make_scales

    @gluon.jit
    def ask(self, left, right):
        if len(self.scales) > 0:
            return self.scales[0].ask(left, right)
        else:
            return ()

    @gluon.jit
    def spread(self, asked, CONSUMER: gl.constexpr):
        if len(self.scales) > 0:
            self.scales[0].spread(asked, self.alpha, CONSUMER)

    @gluon.jit
    def scaled(self, acc, CONSUMER: gl.constexpr, COLUMN: gl.constexpr):
        """The sum times alpha and the operands' scales, of the part of a tile that begins at this column. With scales
        alpha is the one that spread() had."""
        if len(self.scales) > 0:
            return self.scales[0].applied(acc, CONSUMER, COLUMN)
        else:
            return acc * self.alpha

    @gluon.jit
    def moved(self, elements):
        """The same with a bias that stands so many elements further on; none stays none."""
        bias_ptr = self.bias_ptr
        if bias_ptr.to(gl.int64) != 0:
            bias_ptr += elements
        return Epilogue(bias_ptr, self.N, self.alpha, self.beta, self.activation, self.ACTIVATE, self.SWAP, self.scales)

    @gluon.jit
    def finish(self, acc, row, col):
        """Bias, activation and what rounding to 8 bits asks before it; these are D's first row and column here."""
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
        if len(self.scales) > 1:
            acc = self.scales[1].divided(acc, row, col)
        return acc

    @gluon.jit
    def finish_flat(self, acc, cols):
        """Bias and activation of elements in a row, `cols` their columns of D; they are rounded to no 8 bits."""
        if self.bias_ptr.to(gl.int64) != 0:
            acc += gl.load(self.bias_ptr + cols, mask=cols < self.N, other=0.0).to(gl.float32)
        if self.ACTIVATE:
            acc = activate(acc, self.activation)
        return acc


@gluon.constexpr_function
def which(parts, most, i):
    """Of the boxes from widest to narrowest, the one that part number i leaves by."""
    return {most: 0, most // 2: 1, most // 4: 2, most // 8: 3}[parts[i].type.shape[1]]


@gluon.aggregate
class Output:
    """How a warpgroup's part of a tile leaves: each part of the accumulator by a box of its width, through BUFFERS
    buffers in turn; C comes into the same buffer first."""

    c_descs: gl.tuple
    d_descs: gl.tuple  # from the widest to one of an eighth
    bufs: gl.shared_memory_descriptor
    c_bars: gl.shared_memory_descriptor
    epilogue: Epilogue
    MOST: gl.constexpr  # width of the widest
    BUFFERS: gl.constexpr

    @gluon.jit
    def stage(self, parts, i: gl.constexpr, CONSUMER: gl.constexpr, phase, row, col, epilogue):
        """Part number i finished and in a buffer of this consumer; row and column are those of D. Returns the buffer,
        and the phase that C's barrier has next."""
        WHICH: gl.constexpr = which(parts, self.MOST, i)
        c_desc = self.c_descs[WHICH]
        buf = self.bufs.index(CONSUMER * self.BUFFERS + i % self.BUFFERS)
        buf = buf.reinterpret(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
        seen = buf.permute((1, 0)) if epilogue.SWAP else buf
        bar = self.c_bars.index(CONSUMER)
        acc = epilogue.scaled(parts[i], CONSUMER, columns_before(parts, i))
        # The next tile begins with the first buffer again, which the last part of this one may have left by.
        tma.store_wait(pendings=self.BUFFERS - 1 if i > 0 or len(parts) % self.BUFFERS == 0 else 0)
        gl.barrier()  # one thread has waited for the buffer to be read, all write to it
        if epilogue.beta != 0.0:
            mbarrier.expect(bar, c_desc.nbytes_per_cta)
            gl.barrier()  # one thread expects, another asks
            tma.async_load(c_desc, [row, col], bar, buf)
            mbarrier.wait(bar, phase)
            phase ^= 1
            gl.barrier()  # all are past the barrier, which the next part waits for again
            acc += epilogue.beta * seen.load(acc.type.layout).to(gl.float32)
            gl.barrier()  # C is read before D is written there
        seen.store(epilogue.finish(acc, row, col).to(c_desc.dtype))
        fence_async_shared()
        gl.barrier()  # all have written before one thread lets TMA read
        return buf, phase

    @gluon.jit
    def begin(self, unit, left, right):
        """Before a tile is multiplied whose first rows of the left and of the right operand these are. What it returns
        its `store` is given."""
        return self.epilogue.ask(left, right)

    @gluon.jit
    def store(self, parts, CONSUMER: gl.constexpr, phase, left, right, unit, asked):
        self.epilogue.spread(asked, CONSUMER)
        SWAP: gl.constexpr = self.epilogue.SWAP
        for i in gl.static_range(len(parts)):
            row, col = (right, left) if SWAP else (left, right)
            buf, phase = self.stage(parts, i, CONSUMER, phase, row, col, self.epilogue)
            tma.async_store(self.d_descs[which(parts, self.MOST, i)], [row, col], buf)
            right += parts[i].shape[1]
        return phase

    @gluon.jit
    def drain(self):
        tma.store_wait(pendings=0)


@gluon.jit
def make_output(
    c_descs, d_descs, epilogue, CONSUMERS: gl.constexpr, BUFFERS: gl.constexpr = 1, IN_CLUSTER: gl.constexpr = False
):
    SHAPE: gl.constexpr = [CONSUMERS * BUFFERS] + d_descs[0].block_type.shape  # noqa: RUF005
    MOST: gl.constexpr = d_descs[0].block_type.shape[0 if epilogue.SWAP else 1]
    bufs = gl.allocate_shared_memory(d_descs[0].dtype, SHAPE, d_descs[0].layout)
    return Output(c_descs, d_descs, bufs, barriers(CONSUMERS, 1, IN_CLUSTER), epilogue, MOST, BUFFERS)


@gluon.jit
def as_stored(acc, TYPE: gl.constexpr):
    """In D's type; an 8-bit D is known as bytes."""
    if gl.uint8 == TYPE:
        return acc.to(gl.float8e4nv).to(gl.uint8, bitcast=True)
    else:
        return acc.to(TYPE)


@gluon.aggregate
class MaskedOutput:
    """Stores tiles from registers, element by element: for a C or D TMA cannot address."""

    c_ptr: gl.tensor
    d_ptr: gl.tensor
    ldc: gl.tensor
    ldd: gl.tensor
    M: gl.tensor
    epilogue: Epilogue
    MOST: gl.constexpr

    @gluon.jit
    def begin(self, unit, row, col):
        return self.epilogue.ask(row, col)

    @gluon.jit
    def store(self, parts, CONSUMER: gl.constexpr, phase, row, col, unit, asked):
        self.epilogue.spread(asked, CONSUMER)
        for i in gl.static_range(len(parts)):
            acc = parts[i]
            rows = row + gl.arange(0, acc.shape[0], gl.SliceLayout(1, acc.type.layout))
            cols = col + gl.arange(0, acc.shape[1], gl.SliceLayout(0, acc.type.layout))
            inside = (rows[:, None] < self.M) & (cols[None, :] < self.epilogue.N)
            acc = self.epilogue.scaled(acc, CONSUMER, columns_before(parts, i))
            if self.epilogue.beta != 0.0:
                at = rows.to(gl.int64)[:, None] * self.ldc + cols[None, :]
                acc += self.epilogue.beta * gl.load(self.c_ptr + at, mask=inside, other=0.0).to(gl.float32)
            acc = as_stored(self.epilogue.finish(acc, row, col), self.d_ptr.dtype.element_ty)
            gl.store(self.d_ptr + (rows.to(gl.int64)[:, None] * self.ldd + cols[None, :]), acc, mask=inside)
            col += parts[i].shape[1]
        return phase

    @gluon.jit
    def drain(self):
        pass


@gluon.jit
def places(part, FIRST: gl.constexpr, WIDTH: gl.constexpr):
    """Where a part's elements stand among those of a tile of WIDTH columns, the part's first one FIRST."""
    rows = gl.arange(0, part.shape[0], gl.SliceLayout(1, part.type.layout))
    cols = gl.arange(0, part.shape[1], gl.SliceLayout(0, part.type.layout))
    return rows[:, None] * WIDTH + FIRST + cols[None, :]


@gluon.constexpr_function
def columns_before(parts, i):
    return sum(part.type.shape[1] for part in parts[:i])


@gluon.aggregate
class SplitOutput:
    """Slices of one tile reduce in the workspace: the last to arrive adds all of them, in order, and stores the tile.

    `semaphores` has one int64 for each tile, of any content: epoch << 8 | arrivals while a tile's slices arrive, where
    the epoch is this launch's own, and 0 afterwards, so that a replay of the launch starts anew.
    """

    out: Output
    partials: gl.tensor  # float32, [tile][split][rows][cols]
    semaphores: gl.tensor
    epoch: gl.tensor
    splits: gl.tensor
    MOST: gl.constexpr

    @gluon.jit
    def begin(self, unit, left, right):
        """Make the tile's slot this launch's own, off the critical path: whoever comes first does it."""
        slot = self.semaphores + unit // self.splits
        fresh = self.epoch << 8
        gl.barrier()  # what an atomic brings goes to all warps by the same memory, tile after tile
        seen = gl.atomic_cas(slot, gl.to_tensor(0).to(gl.int64), fresh, sem="relaxed")
        if (seen != 0) & (seen >> 8 != self.epoch):
            gl.atomic_cas(slot, seen, fresh, sem="relaxed")
        return self.out.begin(unit, left, right)

    @gluon.jit
    def sum_of_part(self, part, first, PLACE: gl.constexpr, WIDTH: gl.constexpr):
        """Of all slices, in order; several loads in flight, as many as registers hold: one at a time would wait for L2
        at each."""
        SIZE: gl.constexpr = part.shape[0] * WIDTH
        DEPTH: gl.constexpr = 16 if SIZE <= 1024 else max(16384 // SIZE, 1)
        inside = places(part, PLACE, WIDTH)
        total = gl.zeros_like(part)
        for i in range(0, self.splits, DEPTH):
            for j in gl.static_range(DEPTH):
                here = (i + j < self.splits) & (inside >= 0)
                total += gl.load(first + (i + j) * SIZE + inside, mask=here, other=0.0, cache_modifier=".cg")
        return total

    @gluon.jit
    def sums(self, parts, first, WIDTH: gl.constexpr, PART: gl.constexpr = 0):
        """The sums of parts from number PART on."""
        own = (self.sum_of_part(parts[PART], first, columns_before(parts, PART), WIDTH),)
        if len(parts) == PART + 1:
            return own
        else:
            return own + self.sums(parts, first, WIDTH, PART + 1)

    @gluon.jit
    def store(self, parts, CONSUMER: gl.constexpr, phase, left, right, unit, asked):
        WIDTH: gl.constexpr = columns_before(parts, len(parts))
        SIZE: gl.constexpr = parts[0].shape[0] * WIDTH
        tile = unit // self.splits
        for i in gl.static_range(len(parts)):
            at = places(parts[i], columns_before(parts, i), WIDTH)
            gl.store(self.partials + unit.to(gl.int64) * SIZE + at, parts[i])
        gl.barrier()  # every warp's part is written before the arrival is told
        before = gl.atomic_add(self.semaphores + tile, gl.to_tensor(1).to(gl.int64), sem="acq_rel")
        if (before & 255) + 1 == self.splits:
            first = self.partials + (tile * self.splits).to(gl.int64) * SIZE
            phase = self.out.store(self.sums(parts, first, WIDTH), CONSUMER, phase, left, right, unit, asked)
            gl.atomic_xchg(self.semaphores + tile, gl.to_tensor(0).to(gl.int64), sem="relaxed")
        return phase

    @gluon.jit
    def drain(self):
        self.out.drain()
