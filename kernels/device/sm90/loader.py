"""The loader: the stages of shared memory that both operands pass through, and how TMA fills them. No kernel here.

Left is the operand on the side of the instruction's M: op(A), or op(B)^T with operands swapped. A stage has lines of
each operand. One that is contiguous along K has BLOCK_K elements of a row in one or two lines of 128 bytes, all rows of
a line one after the other; one that is contiguous along M or N ("turned") comes in boxes of 64, 32 or 16 of its rows,
each with BLOCK_K lines of as many elements.

Boxes are loaded in assembly: the compiler need not follow each buffer, and one box can go to all blocks of a cluster.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.device.sm90.loader_assembly import (
    barrier_told,
    clear_lines,
    init_assembly,
    load_assembly,
    prefetch_assembly,
    shares_k,
    tell_barrier,
    wait_for_phase,
)
from kernels.device.sm90.team import Team, alone, thread_number

UNIT = gl.constexpr(8)  # rows of a buffer that are swizzled together
LINE = gl.constexpr(128)
# How long L2 keeps what is loaded (PTX ISA, createpolicy.fractional; the bits are those it makes on this architecture):
# as usual, or no longer than need be, of what nobody reads twice.
USUAL = gl.constexpr(0x1000000000000000)
ONCE = gl.constexpr(0x12F0000000000000)
FULL = gl.constexpr(48)  # blocks, from which on a launch leaves little of a GPU to the one behind it


@gluon.constexpr_function
def facts_of(operand):
    names = ("PARAMETER", "ROWS", "LINES", "TURNED", "BOX", "SHARERS", "APART", "RUN", "HALVES")
    return tuple(getattr(operand, name).value for name in names)


@gluon.jit
def meet(CLUSTER: gl.constexpr):
    """Every thread of the cluster comes here once, before the first message between blocks."""
    if CLUSTER > 1:
        gl.inline_asm(
            "fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\n"
            "barrier.cluster.wait.acquire.aligned;", "~{memory}", [], [], is_pure=False,
        )  # fmt: skip


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr = 1, IN_CLUSTER: gl.constexpr = False):
    """Which only the first warp knows before a barrier of the block (gl.barrier, the dispatch of warp_specialize), in a
    cluster only one thread. The compiler asks for each one anew who that thread is, assembly asks once; but in a
    cluster it is not given this block's addresses."""
    bars = mbarrier.allocate_mbarrier(batch=COUNT)
    if IN_CLUSTER:
        for i in gl.static_range(COUNT):
            mbarrier.init(bars.index(i), count=ARRIVALS)
    else:
        ASSEMBLY: gl.constexpr = init_assembly(COUNT, ARRIVALS)
        gl.inline_asm(ASSEMBLY, "r,r,~{memory}", [bars.index(0), thread_number()], [], is_pure=False)
    return bars


@gluon.jit
def prefetch_maps(SYMBOL: gl.constexpr, NUMBERS: gl.constexpr):
    """Of these parameters, while the kernel before this one may still run: tensor maps are in no memory it writes."""
    ASSEMBLY: gl.constexpr = prefetch_assembly(SYMBOL, NUMBERS)
    gl.inline_asm(ASSEMBLY, "~{memory}", [], [], is_pure=False)


@gluon.aggregate
class Operand:
    """One operand's buffers, those of all stages."""

    bufs: gl.shared_memory_descriptor
    ROWS: gl.constexpr  # of a tile, in whole units; of one that is not turned as many for each sharer
    LINES: gl.constexpr  # of a row in a step; of a turned one boxes are as many times 64 lines
    TURNED: gl.constexpr
    BOX: gl.constexpr  # rows of a turned one in a line
    SHARERS: gl.constexpr  # blocks of the cluster that need the same rows: each loads its share of rows, or K, for all
    APART: gl.constexpr  # ranks from one of them to the next
    RUN: gl.constexpr  # rows of a box of which a tile may need none; 0: it needs all
    HALVES: gl.constexpr  # runs of rows that a tile has of it: of a gated product's B two, the gate's and up's
    PARAMETER: gl.constexpr  # of the entry point: its tensor map; "": threads bring it, by no tensor map

    @gluon.jit
    def at(self, slot, first):
        """Bytes from the first buffer to row `first` of a stage."""
        return slot * (self.ROWS * self.LINES * LINE) + first * self.row_bytes()

    @gluon.jit
    def share_at(self, slot, row, line):
        """To what begins with this row, and this line of a box, of a stage."""
        return self.at(slot, 0) + row * self.row_bytes() + line * self.BOX * 2

    @gluon.jit
    def row_bytes(self):
        """From a row to the next, of a turned one in the mean."""
        return (self.LINES if self.TURNED else 1) * LINE

    @gluon.jit
    def own_share(self):
        """What this block loads of what it shares, by the first of it: its row, and its line of each box."""
        row = 0
        line = 0
        if self.SHARERS > 1:
            rank = gl.program_id(0) // self.APART % self.SHARERS
            if shares_k(self.ROWS, self.TURNED, self.BOX, self.SHARERS):
                line = rank * (64 * self.LINES // self.SHARERS)
            else:
                row = rank * (self.ROWS // self.SHARERS)
        return row, line

    @gluon.jit
    def clear(self, slot, last, IN_CLUSTER: gl.constexpr, TEAM: gl.constexpr):
        """What a stage holds of K from `last` on, set to zero: the next group's, whose numbers may be no numbers. Of an
        operand that is contiguous along K a row ends with K, and TMA brings zeros."""
        if self.TURNED:
            THREADS: gl.constexpr = gl.num_warps() * 32 // TEAM
            thread = thread_number()
            if TEAM > 1:
                thread %= THREADS
            ASSEMBLY: gl.constexpr = clear_lines(
                self.ROWS // self.BOX, 64 * self.LINES, self.BOX * 2, THREADS, IN_CLUSTER
            )
            gl.inline_asm(ASSEMBLY, "r,r,r,r,~{memory}", [self.bufs, self.at(slot, 0), last, thread], [], is_pure=False)


@gluon.aggregate
class Stages:
    """The pipeline: both operands, and a barrier for each state of a stage."""

    left: Operand
    right: Operand
    empty: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    told: gl.tensor  # where blocks share what they load, of a warpgroup that multiplies, by thread: see barrier_told
    STAGES: gl.constexpr
    BLOCK_K: gl.constexpr
    CLUSTER: gl.constexpr  # blocks that share what they load
    ACROSS: gl.constexpr  # of them share the left operand
    SWAP: gl.constexpr  # left is B
    RANK: gl.constexpr  # of A's and B's tensor maps: 3 where the last dimension is the group's
    IN_CLUSTER: gl.constexpr
    BY_THREADS: gl.constexpr  # threads, not TMA, bring the right operand
    team: Team  # of the warps that use it here

    @gluon.jit
    def wait_ready(self, step):
        if self.CLUSTER > 1:
            self.team.meet()  # elsewhere `release` has one
        self.team.wait(self.ready.index(step % self.STAGES), step // self.STAGES & 1)

    @gluon.jit
    def wait_empty(self, step):
        parity = (step // self.STAGES & 1) ^ 1
        bar = self.empty.index(step % self.STAGES)
        if gl.num_warps() == 1:
            gl.barrier()  # of one warp: next to nothing
            mbarrier.wait(bar, parity)
        else:
            gl.inline_asm(wait_for_phase(), "r,r,~{memory}", [bar, parity], [], is_pure=False)

    @gluon.jit
    def fetch(
        self, step, left, right, k, left_plane=0, right_plane=0, pred=1, PART: gl.constexpr = "", keep=(), other=None
    ):  # fmt: skip
        """Bring both operands, from these rows and this element of K on, into buffers that are empty. The bytes are all
        that arrive in this block, whoever sends them. Unless `pred`, nothing; where the right operand comes in runs of
        rows, so many of them. Planes: which of the groups' matrices, where they have one each. PART: see load_assembly.
        Keep: how long L2 is to keep left and right; (): as usual. Other: a barrier that is told in place of the stage's
        own."""
        slot = step % self.STAGES
        bar = self.ready.index(slot) if other is None else other
        ASSEMBLY: gl.constexpr = load_assembly(
            facts_of(self.left), facts_of(self.right), self.RANK, LINE * 8 // self.left.bufs.dtype.primitive_bitwidth,
            self.IN_CLUSTER, gl.num_warps() * 32, PART, len(keep) > 0,
        )  # fmt: skip
        first, first_k = self.right.own_share()
        left_first, left_first_k = self.left.own_share()
        thread = gl.to_tensor(0)
        if gl.num_warps() > 1:
            thread = thread_number()
        CONSTRAINTS: gl.constexpr = "r," * 13 + "l," * len(keep) + "~{memory}"
        given = (
            self.left.bufs, self.left.share_at(slot, left_first, left_first_k), left + left_first, left_plane,
            self.right.bufs, self.right.share_at(slot, first, first_k), right + first, right_plane,
            k + left_first_k, k + first_k, bar, gl.to_tensor(pred).to(gl.int32), thread,
        )  # fmt: skip
        gl.inline_asm(ASSEMBLY, CONSTRAINTS, given + keep, [], is_pure=False)

    @gluon.jit
    def load(self, step, left, right, k, left_plane=0, right_plane=0, runs=1, keep=()):
        """The same, once they are empty."""
        self.wait_empty(step)
        self.fetch(step, left, right, k, left_plane, right_plane, runs, keep=keep)

    @gluon.jit
    def load_tile(self, step, count, row, col, k, a_plane, b_plane, height):
        """A tile's A and B, `count` steps from `k` on; where A comes in runs of rows, only those that hold rows of the
        tile. Returns the number of the step after them."""
        for i in range(count):
            at = k + i * self.BLOCK_K
            if self.right.RUN > 0:
                runs = gl.minimum(gl.cdiv(height, self.right.RUN), self.right.ROWS // self.right.RUN)
                self.load(step, col, row, at, b_plane, a_plane, runs)
            elif self.SWAP:
                self.load(step, col, row, at, b_plane, a_plane)
            else:
                self.load(step, row, col, at, a_plane, b_plane)
            step += 1
        return step

    @gluon.jit
    def clear(self, step, last):
        """Of K from `last` on this step counts as zero."""
        slot = step % self.STAGES
        self.left.clear(slot, last, self.IN_CLUSTER, self.team.SIZE)
        self.right.clear(slot, last, self.IN_CLUSTER, self.team.SIZE)
        fence_async_shared()  # the tensor cores read what was written here
        self.team.meet()

    @gluon.jit
    def wait_at(self, slot, parity, there):
        """Until the stage at `slot` is ready, if a step is `there`; of the loop that knows its place in the ring."""
        if self.CLUSTER > 1:
            self.team.meet()  # elsewhere `release` has one
        bar = self.ready.index(slot)
        there = gl.to_tensor(there)
        if self.IN_CLUSTER and self.team.SIZE == 1:
            mbarrier.wait(bar, parity, pred=there)
        else:
            given = (self.team.at(bar), parity, there.to(gl.int32))
            gl.inline_asm(wait_for_phase(True), "r,r,r,~{memory}", given, [], is_pure=False)

    @gluon.jit
    def of_consumer(self, team):
        """These stages as a warpgroup that multiplies has them."""
        told = self.told
        if self.CLUSTER > 1:
            told = gl.inline_asm(
                barrier_told(self.CLUSTER, self.ACROSS), "=r,r,r", [self.empty.index(0), thread_number()], gl.int32,
                is_pure=False,
            )  # fmt: skip
        return Stages(
            self.left, self.right, self.empty, self.ready, told, self.STAGES, self.BLOCK_K, self.CLUSTER, self.ACROSS,
            self.SWAP, self.RANK, self.IN_CLUSTER, self.BY_THREADS, team,
        )  # fmt: skip

    @gluon.jit
    def release(self, step, pred=True):
        """To all blocks that write into this one's buffers; once for a warpgroup, whose instructions end together."""
        self.release_at(step % self.STAGES, pred)

    @gluon.jit
    def release_at(self, slot, pred=True):
        if self.CLUSTER > 1:
            gl.inline_asm(
                tell_barrier(), "r,r,r,~{memory}", [self.told, self.told + slot * 8, gl.to_tensor(pred).to(gl.int32)],
                [], is_pure=False,
            )  # fmt: skip
        else:
            self.team.tell(self.empty.index(slot), pred)


@gluon.jit
def kept(rows, columns):
    """How long L2 is to keep the left and the right operand of so many rows and columns of tiles: weights that one
    column of tiles reads leave room for what is read again."""
    left = gl.where(columns == 1, ONCE, USUAL)
    right = gl.where(rows == 1, ONCE, USUAL)
    return (left, right)


@gluon.jit
def begun(tiles, stages):
    """Steps of the first unit that `begin_first` brings."""
    _, count = tiles.steps(tiles.first())
    here = (gl.num_programs(0) >= FULL) & (tiles.first() < tiles.count())
    return gl.where(here, gl.minimum(count, stages.STAGES), 0)


@gluon.jit
def begin_first(tiles, stages):
    """The first steps' operands, by the warps that a block begins with: it takes a quarter of a microsecond until the
    others are told what to do. Not where blocks are few: those wait here for the kernel ahead, which runs elsewhere,
    and the others could be told meanwhile."""
    steps = begun(tiles, stages)
    if steps > 0:
        left, right = tiles.place(tiles.first())
        first, _ = tiles.steps(tiles.first())
        gdc_wait()  # what the kernel before this one writes may be our A or B
        for i in range(steps):
            stages.fetch(i, left, right, (first + i) * stages.BLOCK_K, keep=tiles.keep())


@gluon.jit
def load_partition(tiles, stages):
    """One warp: brings every unit's operands through the pipeline."""
    meet(stages.CLUSTER)
    left, right = tiles.place(tiles.first())  # each place ahead of the wait that would come before it
    step = gl.to_tensor(0)
    if stages.CLUSTER == 1:
        step = begun(tiles, stages)
    done = step
    keep = tiles.keep()
    gdc_wait()  # what the kernel before this one writes may be our A or B
    for unit in range(tiles.first(), tiles.count(), tiles.stride()):
        first, count = tiles.steps(unit)
        for i in range(first + done, first + count):
            stages.load(step, left, right, i * stages.BLOCK_K, keep=keep)
            step += 1
        done = gl.to_tensor(0)
        if unit + tiles.stride() < tiles.count():
            left, right = tiles.place(unit + tiles.stride())
    gdc_launch_dependents()  # all is read or on its way: the next kernel may come
    if stages.CLUSTER > 1:
        for _ in range(stages.STAGES):  # no block leaves while another may still tell its barriers
            stages.wait_empty(step)
            step += 1


@gluon.constexpr_function
def lines_of(block_k, dtype):
    """Lines of 128 bytes in which a row's BLOCK_K elements stand."""
    return block_k * dtype.primitive_bitwidth // 1024


@gluon.jit
def make_operand(
    dtype: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr, STAGES: gl.constexpr, ROWS: gl.constexpr,
    BLOCK_K: gl.constexpr, TURNED: gl.constexpr, PARAMETER: gl.constexpr, SHARERS: gl.constexpr = 1,
    APART: gl.constexpr = 1, RUN: gl.constexpr = 0, HALVES: gl.constexpr = 1,
):  # fmt: skip
    """BLOCK and layout are those of a unit of it: 8 rows, or of a turned one the rows of a box."""
    BOX: gl.constexpr = BLOCK[1]
    STEP: gl.constexpr = BOX if TURNED else UNIT
    WHOLE: gl.constexpr = (ROWS + STEP - 1) // STEP * STEP
    LINES: gl.constexpr = lines_of(BLOCK_K, dtype)
    COUNT: gl.constexpr = STAGES * WHOLE // (BOX if TURNED else UNIT) * (1 if TURNED else LINES)
    bufs = gl.allocate_shared_memory(dtype, [COUNT] + BLOCK, layout)  # noqa: RUF005
    return Operand(bufs, WHOLE, LINES, TURNED, BOX, SHARERS, APART, RUN, HALVES, PARAMETER)


@gluon.jit
def make_described(
    desc, STAGES: gl.constexpr, ROWS: gl.constexpr, BLOCK_K: gl.constexpr, TURNED: gl.constexpr,
    PARAMETER: gl.constexpr, SHARERS: gl.constexpr = 1, APART: gl.constexpr = 1, RUN: gl.constexpr = 0,
    HALVES: gl.constexpr = 1,
):  # fmt: skip
    """An operand that TMA brings."""
    return make_operand(
        desc.dtype, desc.block_type.shape, desc.layout, STAGES, ROWS, BLOCK_K, TURNED, PARAMETER, SHARERS, APART, RUN,
        HALVES,
    )  # fmt: skip


@gluon.jit
def make_stages(
    a_desc, b_desc, SYMBOL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr, SWAP: gl.constexpr, OWNERS: gl.constexpr = 1,
    CLUSTER: gl.constexpr = 1, RUN: gl.constexpr = 0, RANK: gl.constexpr = 2, IN_CLUSTER: gl.constexpr = False,
    BY_ALL: gl.constexpr = False, ARRIVALS: gl.constexpr = 1, ACROSS: gl.constexpr = 1,
):  # fmt: skip
    """OWNERS: warpgroups that multiply one tile. CLUSTER: blocks that share what is loaded, ACROSS of them the left
    operand, and those below one another the right.
    BY_ALL: all warps load, and a barrier of the whole block says what is empty. ARRIVALS: that say a stage is ready."""
    # A and B are the entry point's first parameters: a descriptor is five of them, of which one is its tensor map.
    A: gl.constexpr = SYMBOL + "_param_0"
    B: gl.constexpr = SYMBOL + "_param_5"
    BELOW: gl.constexpr = CLUSTER // ACROSS
    IN_ONE: gl.constexpr = IN_CLUSTER or CLUSTER > 1
    prefetch_maps(SYMBOL, (0, 5))
    if SWAP:
        left = make_described(b_desc, STAGES, BLOCK_N, BLOCK_K, not TRANS_B, B, ACROSS, BELOW)
        right = make_described(a_desc, STAGES, BLOCK_M, BLOCK_K, TRANS_A, A, BELOW, 1, RUN)
    else:
        left = make_described(a_desc, STAGES, BLOCK_M, BLOCK_K, TRANS_A, A, ACROSS, BELOW)
        right = make_described(b_desc, STAGES, BLOCK_N, BLOCK_K, not TRANS_B, B, BELOW, 1, RUN)
    if BY_ALL:  # no barriers that nobody uses: the compiler would give their memory to others while they are valid
        ready = barriers(STAGES, ARRIVALS, IN_ONE)
        empty = ready
    else:
        # Told by all blocks that this one loads for.
        empty = barriers(STAGES, OWNERS * (BELOW + ACROSS - 1), IN_ONE)
        ready = barriers(STAGES, ARRIVALS, IN_ONE)
    return Stages(
        left, right, empty, ready, gl.to_tensor(0), STAGES, BLOCK_K, CLUSTER, ACROSS, SWAP, RANK, IN_ONE, False,
        alone(),
    )  # fmt: skip
