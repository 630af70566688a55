"""How Hopper kernels write: the epilogue, and tiles through TMA, from registers or in slices. No kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from kernels.device.portable.tiles import activate


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
    def moved(self, elements):
        """The same with a bias that stands so many elements further on; none stays none."""
        bias_ptr = self.bias_ptr
        if bias_ptr.to(gl.int64) != 0:
            bias_ptr += elements
        return Epilogue(bias_ptr, self.N, self.alpha, self.beta, self.activation, self.ACTIVATE, self.SWAP)

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
    def finish_flat(self, acc, cols):
        """The same for elements in a row, `cols` their columns of D."""
        if self.bias_ptr.to(gl.int64) != 0:
            acc += gl.load(self.bias_ptr + cols, mask=cols < self.N, other=0.0).to(gl.float32)
        if self.ACTIVATE:
            acc = activate(acc, self.activation)
        return acc


@gluon.jit
def halves(x):
    """The left and the right columns of x."""
    return x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()


@gluon.jit
def columns(x, PARTS: gl.constexpr):
    """x in PARTS runs of columns, left to right."""
    if PARTS == 1:
        return (x,)
    else:
        left, right = halves(x)
        if PARTS == 2:
            return (left, right)
        else:
            first, second = halves(left)
            third, fourth = halves(right)
            return (first, second, third, fourth)


@gluon.aggregate
class Output:
    """Stores tiles through TMA, in PARTS parts by columns; C comes into the same buffer first."""

    c_desc: tma.tensor_descriptor
    d_desc: tma.tensor_descriptor
    bufs: gl.shared_memory_descriptor  # one for each consumer
    c_bars: gl.shared_memory_descriptor
    epilogue: Epilogue
    PARTS: gl.constexpr

    @gluon.jit
    def stage(self, acc, CONSUMER: gl.constexpr, phase, row, col, epilogue):
        """One part, as wide as D's box, finished and in this consumer's buffer. Returns the phase that C's barrier has
        next."""
        buf = self.bufs.index(CONSUMER)
        seen = buf
        if epilogue.SWAP:
            seen = buf.permute((1, 0))
        bar = self.c_bars.index(CONSUMER)
        acc = acc * epilogue.alpha
        tma.store_wait(pendings=0)
        if epilogue.beta != 0.0:
            mbarrier.expect(bar, self.c_desc.nbytes_per_cta)
            tma.async_load(self.c_desc, [row, col], bar, buf)
            mbarrier.wait(bar, phase)
            phase ^= 1
            acc += epilogue.beta * seen.load(acc.type.layout).to(gl.float32)
        acc = epilogue.finish(acc, col)
        seen.store(acc.to(self.d_desc.dtype))
        fence_async_shared()
        return phase

    @gluon.jit
    def begin(self, unit):
        pass

    @gluon.jit
    def store(self, acc, CONSUMER: gl.constexpr, phase, row, col, unit):
        parts = columns(acc, self.PARTS)
        for i in gl.static_range(self.PARTS):
            to = col + i * parts[i].shape[1]
            phase = self.stage(parts[i], CONSUMER, phase, row, to, self.epilogue)
            tma.async_store(self.d_desc, [row, to], self.bufs.index(CONSUMER))
        return phase

    @gluon.jit
    def drain(self):
        tma.store_wait(pendings=0)


@gluon.aggregate
class MaskedOutput:
    """Stores tiles from registers, element by element: for a C or D TMA cannot address."""

    c_ptr: gl.tensor
    d_ptr: gl.tensor
    ldc: gl.tensor
    ldd: gl.tensor
    M: gl.tensor
    epilogue: Epilogue

    @gluon.jit
    def begin(self, unit):
        pass

    @gluon.jit
    def store(self, acc, CONSUMER: gl.constexpr, phase, row, col, unit):
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
    """Slices of one tile reduce in the workspace: the last to arrive adds all of them, in order, and stores the tile.

    `semaphores` has one int64 for each tile, of any content: epoch << 8 | arrivals while a tile's slices arrive, where
    the epoch is this launch's own, and 0 afterwards, so that a replay of the launch starts anew.
    """

    out: Output
    epilogue: Epilogue
    partials: gl.tensor  # float32, [tile][split][rows][cols]
    semaphores: gl.tensor
    epoch: gl.tensor
    splits: gl.tensor

    @gluon.jit
    def begin(self, unit):
        """Make the tile's slot this launch's own, off the critical path: whoever comes first does it."""
        slot = self.semaphores + unit // self.splits
        fresh = self.epoch << 8
        seen = gl.atomic_cas(slot, gl.to_tensor(0).to(gl.int64), fresh, sem="relaxed")
        if (seen != 0) & (seen >> 8 != self.epoch):
            gl.atomic_cas(slot, seen, fresh, sem="relaxed")

    @gluon.jit
    def store(self, acc, CONSUMER: gl.constexpr, phase, row, col, unit):
        layout: gl.constexpr = acc.type.layout
        rows = gl.arange(0, acc.shape[0], gl.SliceLayout(1, layout))
        cols = gl.arange(0, acc.shape[1], gl.SliceLayout(0, layout))
        inside = rows[:, None] * acc.shape[1] + cols[None, :]
        size: gl.constexpr = acc.shape[0] * acc.shape[1]
        tile = unit // self.splits
        gl.store(self.partials + unit.to(gl.int64) * size + inside, acc)
        gl.barrier()  # every warp's part is written before the arrival is told
        before = gl.atomic_add(self.semaphores + tile, gl.to_tensor(1).to(gl.int64), sem="acq_rel")
        if (before & 255) + 1 == self.splits:
            total = gl.zeros_like(acc)
            first = self.partials + (tile * self.splits).to(gl.int64) * size
            # Several loads in flight, as many as registers hold: one at a time would wait for L2 at each.
            DEPTH: gl.constexpr = 16 if size <= 1024 else 16384 // size
            for i in range(0, self.splits, DEPTH):
                for j in gl.static_range(DEPTH):
                    here = (i + j < self.splits) & (rows[:, None] >= 0)
                    total += gl.load(first + (i + j) * size + inside, mask=here, other=0.0, cache_modifier=".cg")
            phase = self.out.store(total, CONSUMER, phase, row, col, unit)
            gl.atomic_xchg(self.semaphores + tile, gl.to_tensor(0).to(gl.int64), sem="relaxed")
        return phase

    @gluon.jit
    def drain(self):
        self.out.drain()
