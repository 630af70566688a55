"""How Hopper kernels write: the epilogue, and tiles through TMA, from registers or in slices. No kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from kernels.device.portable.tiles import activate
from kernels.device.sm90.loader import barriers
from kernels.device.sm90.output_assembly import box_facts, fetch_box, send_box
from kernels.device.sm90.team_layouts import of_all


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
    def spread(self, asked, number, team):
        if len(self.scales) > 0:
            self.scales[0].spread(asked, self.alpha, number, team)

    @gluon.jit
    def scaled(self, acc, number, COLUMN: gl.constexpr):
        """The sum times alpha and the operands' scales, of the part of a tile that begins at this column. With scales
        alpha is the one that spread() had."""
        if len(self.scales) > 0:
            return self.scales[0].applied(acc, number, COLUMN)
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
    SYMBOL: gl.constexpr  # of the entry point, whose parameters C's and D's tensor maps are
    C_MAP: gl.constexpr  # number of the first of them
    D_MAP: gl.constexpr

    @gluon.jit
    def stage(self, parts, i: gl.constexpr, number, phase, row, col, epilogue, team):
        """Part number i finished and in a buffer of this consumer; row and column are those of D. Returns the buffer,
        and the phase that C's barrier has next."""
        WHICH: gl.constexpr = which(parts, self.MOST, i)
        c_desc = self.c_descs[WHICH]
        buf = self.bufs.index(number * self.BUFFERS + i % self.BUFFERS)
        buf = buf.reinterpret(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
        seen = buf.permute((1, 0)) if epilogue.SWAP else buf
        bar = self.c_bars.index(number)
        acc = epilogue.scaled(parts[i], number, columns_before(parts, i))
        # The next tile begins with the first buffer again, which the last part of this one may have left by.
        tma.store_wait(pendings=self.BUFFERS - 1 if i > 0 or len(parts) % self.BUFFERS == 0 else 0)
        team.meet()  # one thread has waited for the buffer to be read, all write to it
        if epilogue.beta != 0.0:
            FETCH: gl.constexpr = fetch_box(self.SYMBOL, self.C_MAP + 5 * WHICH, box_facts(c_desc))
            given = (team.at(buf), row, col, team.warp, team.at(bar))
            gl.inline_asm(FETCH, "r,r,r,r,r,~{memory}", given, [], is_pure=False)
            team.wait(bar, phase)
            phase ^= 1
            team.meet()  # all are past the barrier, which the next part waits for again
            acc += epilogue.beta * seen.load(acc.type.layout).to(gl.float32)
            team.meet()  # C is read before D is written there
        seen.store(epilogue.finish(acc, row, col).to(c_desc.dtype))
        fence_async_shared()
        team.meet()  # all have written before one thread lets TMA read
        return buf, phase

    @gluon.jit
    def send(self, buf, row, col, team, WHICH: gl.constexpr = 0):
        """It on its way to memory, by box number WHICH."""
        SEND: gl.constexpr = send_box(self.SYMBOL, self.D_MAP + 5 * WHICH, box_facts(self.d_descs[WHICH]))
        given = (team.at(buf), row, col, team.warp)
        gl.inline_asm(SEND, "r,r,r,r,~{memory}", given, [], is_pure=False)

    @gluon.jit
    def begin(self, unit, left, right, team):
        """Before a tile is multiplied whose first rows of the left and of the right operand these are. What it returns
        its `store` is given."""
        return self.epilogue.ask(left, right)

    @gluon.jit
    def store(self, parts, number, phase, left, right, unit, asked, team):
        self.epilogue.spread(asked, number, team)
        SWAP: gl.constexpr = self.epilogue.SWAP
        for i in gl.static_range(len(parts)):
            row, col = (right, left) if SWAP else (left, right)
            buf, phase = self.stage(parts, i, number, phase, row, col, self.epilogue, team)
            self.send(buf, row, col, team, which(parts, self.MOST, i))
            right += parts[i].shape[1]
        return phase

    @gluon.jit
    def drain(self):
        tma.store_wait(pendings=0)


@gluon.jit
def make_output(
    SYMBOL: gl.constexpr, c_descs, d_descs, epilogue, CONSUMERS: gl.constexpr, BUFFERS: gl.constexpr = 1,
    IN_CLUSTER: gl.constexpr = False,
):  # fmt: skip
    """C's and D's tensor maps are the entry point's parameters behind A's and B's."""
    SHAPE: gl.constexpr = [CONSUMERS * BUFFERS] + d_descs[0].block_type.shape  # noqa: RUF005
    MOST: gl.constexpr = d_descs[0].block_type.shape[0 if epilogue.SWAP else 1]
    C_MAP: gl.constexpr = 10
    bufs = gl.allocate_shared_memory(d_descs[0].dtype, SHAPE, d_descs[0].layout)
    return Output(
        c_descs, d_descs, bufs, barriers(CONSUMERS, 1, IN_CLUSTER), epilogue, MOST, BUFFERS, SYMBOL,
        C_MAP, C_MAP + 5 * len(c_descs),
    )  # fmt: skip


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
    def begin(self, unit, row, col, team):
        return self.epilogue.ask(row, col)

    @gluon.jit
    def store(self, parts, number, phase, row, col, unit, asked, team):
        self.epilogue.spread(asked, number, team)
        for i in gl.static_range(len(parts)):
            acc, below = of_all(self.epilogue.scaled(parts[i], number, columns_before(parts, i)))
            rows = row - below + gl.arange(0, acc.shape[0], gl.SliceLayout(1, acc.type.layout))
            cols = col + gl.arange(0, acc.shape[1], gl.SliceLayout(0, acc.type.layout))
            inside = (rows[:, None] < self.M) & (cols[None, :] < self.epilogue.N)
            if self.epilogue.beta != 0.0:
                at = rows.to(gl.int64)[:, None] * self.ldc + cols[None, :]
                acc += self.epilogue.beta * gl.load(self.c_ptr + at, mask=inside, other=0.0).to(gl.float32)
            acc = as_stored(self.epilogue.finish(acc, row - below, col), self.d_ptr.dtype.element_ty)
            gl.store(self.d_ptr + (rows.to(gl.int64)[:, None] * self.ldd + cols[None, :]), acc, mask=inside)
            col += parts[i].shape[1]
        return phase

    @gluon.jit
    def drain(self):
        pass


@gluon.constexpr_function
def columns_before(parts, i):
    return sum(part.type.shape[1] for part in parts[:i])
