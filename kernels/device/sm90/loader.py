"""How Hopper kernels read: the work units, and the pipeline of buffers that A and B pass through. No kernel here."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


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
    splits: gl.tensor  # K of a tile is shared by this many work units; 1 where it is not shared

    @gluon.jit
    def work(self):
        """Work units in all; unit p is split p % splits of tile p / splits."""
        return gl.cdiv(self.M, self.BLOCK_M) * gl.cdiv(self.N, self.BLOCK_N) * self.splits

    @gluon.jit
    def steps(self, unit):
        """First step in K of a unit, and how many it has (at least one: the host sees to it)."""
        total = gl.cdiv(self.K, self.BLOCK_K)
        each = gl.cdiv(total, self.splits)
        first = unit % self.splits * each
        return first, min(each, total - first)

    @gluon.jit
    def rasterise(self, tile):
        """First row and column of a tile; GROUP_M rows of tiles at a time, so that B stays in L2."""
        tiles_m = gl.cdiv(self.M, self.BLOCK_M)
        per_group = self.GROUP_M * gl.cdiv(self.N, self.BLOCK_N)
        first = tile // per_group * self.GROUP_M
        rows = min(tiles_m - first, self.GROUP_M)
        inside = tile % per_group
        return (first + inside % rows) * self.BLOCK_M, inside // rows * self.BLOCK_N


@gluon.aggregate
class Pipeline:
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
    A_BOXES: gl.constexpr  # boxes of A in a step, one below the other

    @gluon.jit
    def load(self, step, row, col, k):
        """Bring op(A)[row:, k:] and op(B)[k:, col:] into the buffers of this step, once they are empty."""
        self.wait_empty(step)
        self.fetch(step, row, col, k)

    @gluon.jit
    def wait_empty(self, step):
        mbarrier.wait(self.empty.index(step % self.STAGES), (step // self.STAGES & 1) ^ 1)

    @gluon.jit
    def fetch(self, step, row, col, k, pred=True):
        """The same for buffers known to be empty."""
        bar = self.ready.index(step % self.STAGES)
        mbarrier.expect(bar, self.a_desc.nbytes_per_cta + self.b_desc.nbytes_per_cta, pred=pred)
        self.fetch_a(step, 0, row, k, pred)
        self.fetch_b(step, col, k, pred)

    @gluon.jit
    def fetch_a(self, step, box, row, k, pred=True):
        """Queue one box of A; whoever calls has told the barrier of its bytes."""
        slot = step % self.STAGES
        buf = self.a_bufs.index(slot * self.A_BOXES + box)
        if self.TRANS_A:
            tma.async_load(self.a_desc, [k, row], self.ready.index(slot), buf, pred=pred)
        else:
            tma.async_load(self.a_desc, [row, k], self.ready.index(slot), buf, pred=pred)

    @gluon.jit
    def fetch_b(self, step, col, k, pred=True):
        slot = step % self.STAGES
        if self.TRANS_B:
            tma.async_load(self.b_desc, [col, k], self.ready.index(slot), self.b_bufs.index(slot), pred=pred)
        else:
            tma.async_load(self.b_desc, [k, col], self.ready.index(slot), self.b_bufs.index(slot), pred=pred)

    @gluon.jit
    def expect(self, step, a_boxes):
        """Tell this step's barrier the bytes of so many boxes of A, and of B."""
        total = a_boxes * self.a_desc.nbytes_per_cta + self.b_desc.nbytes_per_cta
        gl.inline_asm(
            "{ .reg .pred first; .reg .b32 lane;\n"
            "mov.u32 lane, %laneid;\nsetp.eq.u32 first, lane, 0;\n"
            "@first mbarrier.arrive.expect_tx.shared.b64 _, [$0], $1; }",
            "r,r,~{memory}",
            [self.ready.index(step % self.STAGES), total],
            [],
            is_pure=False,
        )

    @gluon.jit
    def wait_ready(self, step):
        mbarrier.wait(self.ready.index(step % self.STAGES), step // self.STAGES & 1)

    @gluon.jit
    def operands(self, step):
        """This step's A, its first box, and B, once they have arrived."""
        self.wait_ready(step)
        slot = step % self.STAGES
        a = self.a_bufs.index(slot * self.A_BOXES)
        b = self.b_bufs.index(slot)
        if self.TRANS_A:
            a = a.permute((1, 0))
        if self.TRANS_B:
            b = b.permute((1, 0))
        return a, b

    @gluon.jit
    def release(self, step, pred=True):
        mbarrier.arrive(self.empty.index(step % self.STAGES), count=1, pred=pred)


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
def make_pipeline(
    a_desc, b_desc, STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, A_BOXES: gl.constexpr = 1
):
    return Pipeline(
        a_desc, b_desc, buffers(a_desc, STAGES * A_BOXES), buffers(b_desc, STAGES), barriers(STAGES), barriers(STAGES),
        STAGES, TRANS_A, TRANS_B, A_BOXES,
    )  # fmt: skip


@gluon.jit
def load_partition(shape, pipeline):
    """One warp: brings every tile's A and B through the pipeline."""
    gdc_wait()  # what the kernel before this one writes may be our A or B
    step = 0
    for unit in range(gl.program_id(0), shape.work(), gl.num_programs(0)):
        row, col = shape.rasterise(unit // shape.splits)
        first, count = shape.steps(unit)
        for i in range(first, first + count):
            pipeline.load(step, row, col, i * shape.BLOCK_K)
            step += 1
    gdc_launch_dependents()  # all is read or on its way: the next kernel may come
