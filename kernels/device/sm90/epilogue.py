"""How Hopper kernels write: the epilogue, and tiles through TMA, from registers or in slices. No kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from kernels.device.portable.eight_bits import finite_size, over_scale
from kernels.device.portable.tiles import activate
from kernels.device.sm90.loader import barriers


@gluon.aggregate
class Scales:
    """What A and B were scaled by. They are asked for before a tile is multiplied, since its end would wait for them
    longer than for all else, and go through shared memory to the threads that need them."""

    a_scale: gl.tensor
    b_scale: gl.tensor
    scaling: gl.tensor  # libgemm_scaling: 0 none, 1 a number each, 2 one for each row of op(A) and column of op(B)
    M: gl.tensor
    N: gl.tensor
    of_left: gl.shared_memory_descriptor  # [consumer][rows of the tensor-core tile], see spread()
    of_right: gl.shared_memory_descriptor
    SWAP: gl.constexpr

    @gluon.jit
    def numbers(self, scale, first, end, LEAST: gl.constexpr, LENGTH: gl.constexpr):
        """From place `first` on, where `scaling` is LEAST or more; else 1."""
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        place = first + gl.arange(0, LENGTH, layout)
        return gl.load(scale + place * (self.scaling - 1), mask=(place < end) & (self.scaling >= LEAST), other=1.0)

    @gluon.jit
    def ask(self, left, right):
        """Those of a tile, on their way: of the left side's rows; of the right side's, where these have their own; and
        the right side's number, where it has one for all."""
        LEFT: gl.constexpr = self.of_left.shape[1]
        RIGHT: gl.constexpr = self.of_right.shape[1]
        if self.SWAP:
            one = gl.load(self.a_scale, mask=self.scaling == 1, other=1.0)
            return (
                self.numbers(self.b_scale, left, self.N, 1, LEFT), self.numbers(self.a_scale, right, self.M, 2, RIGHT),
                one,
            )  # fmt: skip
        else:
            one = gl.load(self.b_scale, mask=self.scaling == 1, other=1.0)
            return (
                self.numbers(self.a_scale, left, self.M, 1, LEFT), self.numbers(self.b_scale, right, self.N, 2, RIGHT),
                one,
            )  # fmt: skip

    @gluon.jit
    def spread(self, asked, alpha, CONSUMER: gl.constexpr):
        """To shared memory. A left row's number there is its scale times alpha and the right side's one number."""
        self.of_left.index(CONSUMER).store(asked[0] * (asked[2] * alpha))
        self.of_right.index(CONSUMER).store(asked[1])
        gl.barrier()  # each thread reads what others have written

    @gluon.jit
    def applied(self, acc, CONSUMER: gl.constexpr, COLUMN: gl.constexpr):
        """To the part of a tile that begins at this column, with alpha. Where warpgroups share a tile the tensor cores
        are idle meanwhile: so an element is multiplied once, and twice only if the right side's rows have scales."""
        left = self.of_left.index(CONSUMER).load(gl.SliceLayout(1, acc.type.layout))
        acc = acc * left[:, None]
        if self.scaling == 2:
            right = self.of_right.index(CONSUMER).slice(COLUMN, acc.shape[1])
            acc = acc * right.load(gl.SliceLayout(0, acc.type.layout))[None, :]
        return acc


@gluon.aggregate
class Rounding:
    """What a D of 8 bits is divided by, and where the largest magnitudes of its rows go; either may be null."""

    d_scale: gl.tensor
    d_amax: gl.tensor
    M: gl.tensor
    N: gl.tensor
    SWAP: gl.constexpr

    @gluon.jit
    def note_rows(self, acc, row, col):
        """Raise the largest magnitude of each row to what this part of it has. A row lies in one warp, or with operands
        swapped in four: each warp tells what it has found, so that none waits for another."""
        layout: gl.constexpr = acc.type.layout
        left = gl.arange(0, acc.shape[0], gl.SliceLayout(1, layout))[:, None]
        right = gl.arange(0, acc.shape[1], gl.SliceLayout(0, layout))[None, :]
        if self.SWAP:
            inside = (row + right < self.M) & (col + left < self.N)
            parts = gl.where(inside, finite_size(acc), 0).reshape([acc.shape[0] // 64, 4, 16, acc.shape[1]])
            most = gl.max(gl.max(parts, 0), 1)  # [warp][row of D]
            warps = gl.arange(0, 4, gl.SliceLayout(1, most.type.layout))[:, None]
            rows = row + gl.arange(0, acc.shape[1], gl.SliceLayout(0, most.type.layout))[None, :] + warps * 0
        else:
            inside = (row + left < self.M) & (col + right < self.N)
            most = gl.max(gl.where(inside, finite_size(acc), 0), 1)
            rows = row + gl.arange(0, acc.shape[0], most.type.layout)
        gl.atomic_max(self.d_amax + rows, most, mask=rows < self.M, sem="relaxed")

    @gluon.jit
    def divided(self, acc, row, col):
        if self.d_amax.to(gl.int64) != 0:
            self.note_rows(acc, row, col)
        return over_scale(acc, self.d_scale)


@gluon.constexpr_function
def power_of_two(least):
    return 1 << (least - 1).bit_length()


@gluon.jit
def make_scales(
    a_scale, b_scale, scaling, M, N, CONSUMERS: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    SWAP: gl.constexpr, SCALED: gl.constexpr, d_scale=0, d_amax=0, TO_E4M3: gl.constexpr = False,
):  # fmt: skip
    """What an epilogue has of them, for tiles of LEFT rows a consumer by RIGHT, and where D is to have 8 bits how it is
    rounded; () where operands have none."""
    if SCALED:
        layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        of_left = gl.allocate_shared_memory(gl.float32, [CONSUMERS, LEFT], layout)
        of_right = gl.allocate_shared_memory(gl.float32, [CONSUMERS, power_of_two(RIGHT)], layout)
        own = (Scales(a_scale, b_scale, scaling, M, N, of_left, of_right, SWAP),)
        if TO_E4M3:
            rounding = Rounding(d_scale, d_amax, M, N, SWAP)
            return own + (rounding,)  # noqa: RUF005  (the compiler knows no unpacking here)
        else:
            return own
    else:
        return ()


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
        """The same for elements in a row, `cols` their columns of D."""
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
    epilogue: Epilogue
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
