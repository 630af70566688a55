"""The pieces of a dense kernel with tiles of any width: work, loader and store, also for clusters. No kernel here.

Of buffers the compiler knows units of 8 rows (64 where an operand is contiguous along its rows): a stage has as many as
the tile needs, and the host encodes boxes of the tile's own extents.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.device.sm90.epilogue import Epilogue
from kernels.device.sm90.wgmma_parts import part_widths

UNIT = gl.constexpr(8)  # rows of a buffer whose lines are 128 bytes of K
BOX = gl.constexpr(64)  # of an operand that is contiguous along its rows: 128 bytes of them, 64 steps in K


@gluon.constexpr_function
def which(width, most, i):
    """Of the boxes from widest to narrowest, the one that part number i leaves by."""
    return {most: 0, most // 2: 1, most // 4: 2, most // 8: 3}[part_widths(width, most)[i]]


@gluon.constexpr_function
def multicast(parameter, sharers):
    """One box to the same place in all blocks of the cluster, and its bytes to the same barrier in each (PTX ISA,
    cp.async.bulk.tensor). A tensor map is a parameter of the entry point: assembly names it."""
    return (
        "{ .reg .pred first; .reg .b32 lane; .reg .b16 mask; .reg .b64 map;\n"
        "mov.u32 lane, %laneid;\nsetp.eq.u32 first, lane, 0;\n"
        f"mov.b16 mask, {(1 << sharers) - 1};\nmov.b64 map, {parameter};\ncvta.param.u64 map, map;\n"
        "@first cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [$0], [map, {$1, $2}], [$3], mask; }"
    )


@gluon.constexpr_function
def arrive_at_all(blocks):
    """Lane i of a warp tells the barrier of block i. mapa for the own block, too: an address without a rank is no
    address of the cluster's. Released to the cluster by default; .release.cluster takes 0.5 us a step."""
    return (
        "{ .reg .pred told; .reg .b32 lane, at;\n"
        f"mov.u32 lane, %laneid;\nsetp.lt.u32 told, lane, {blocks};\nsetp.ne.and.s32 told, $1, 0, told;\n"
        "@told mapa.shared::cluster.u32 at, $0, lane;\n@told mbarrier.arrive.shared::cluster.b64 _, [at]; }"
    )


@gluon.jit
def meet(CLUSTER: gl.constexpr):
    """Every thread of the cluster comes here once, before the first message between blocks."""
    if CLUSTER > 1:
        gl.inline_asm(
            "fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\n"
            "barrier.cluster.wait.acquire.aligned;", "~{memory}", [], [], is_pure=False,
        )  # fmt: skip


@gluon.aggregate
class Tiles:
    """The problem's extents as the tensor cores see them, and a tile's."""

    left_rows: gl.tensor
    right_rows: gl.tensor
    K: gl.tensor
    whole: gl.tensor  # tiles at an edge are moved inside, so that none is mostly outside; rows are then written twice
    LEFT: gl.constexpr
    RIGHT: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP: gl.constexpr  # tiles of left rows that come one after the other, so that the right operand stays in L2
    CLUSTER: gl.constexpr  # blocks, and left tiles, in a unit of work

    @gluon.jit
    def first(self):
        return gl.program_id(0) // self.CLUSTER

    @gluon.jit
    def stride(self):
        return gl.num_programs(0) // self.CLUSTER

    @gluon.jit
    def rows(self):
        """Of units: a unit is a tile, or of a cluster as many side by side as it has blocks."""
        return gl.cdiv(gl.cdiv(self.left_rows, self.LEFT), self.CLUSTER)

    @gluon.jit
    def count(self):
        return self.rows() * gl.cdiv(self.right_rows, self.RIGHT)

    @gluon.jit
    def inside(self, at, rows, SIZE: gl.constexpr):
        """Where a tile begins: in steps of 8, since TMA begins within a stored row only at multiples of 16 bytes."""
        last = gl.maximum(gl.cdiv(rows - SIZE, 8) * 8, 0)
        return gl.where(self.whole, gl.minimum(at, last), at)

    @gluon.jit
    def place(self, unit):
        """Where this block's tile of a unit begins."""
        per_group = self.GROUP * gl.cdiv(self.right_rows, self.RIGHT)
        first = unit // per_group * self.GROUP
        rows = gl.minimum(self.rows() - first, self.GROUP)
        rest = unit % per_group
        tile = (first + rest % rows) * self.CLUSTER
        if self.CLUSTER > 1:  # a block without a tile of its own does the last one again, and with beta nothing
            tile += gl.program_id(0) % self.CLUSTER
            if self.whole:
                tile = gl.minimum(tile, gl.cdiv(self.left_rows, self.LEFT) - 1)
        left = self.inside(tile * self.LEFT, self.left_rows, self.LEFT)
        return left, self.inside(rest // rows * self.RIGHT, self.right_rows, self.RIGHT)


@gluon.aggregate
class Operand:
    """One operand's buffers: STAGES times the units that hold ROWS rows."""

    desc: tma.tensor_descriptor
    bufs: gl.shared_memory_descriptor
    ROWS: gl.constexpr  # in whole units
    TURNED: gl.constexpr
    SHARERS: gl.constexpr  # blocks of the cluster that need the same rows: each loads its share for all
    PARAMETER: gl.constexpr  # of the entry point: its tensor map

    @gluon.jit
    def fetch(self, slot, bar, row, k):
        STEP: gl.constexpr = BOX if self.TURNED else UNIT
        SHARE: gl.constexpr = self.ROWS // self.SHARERS
        first = 0
        if self.SHARERS > 1:
            first = gl.program_id(0) % self.SHARERS * SHARE
        for i in gl.static_range(SHARE // BOX if self.TURNED else 1):
            buf = self.bufs.index(slot * (self.ROWS // STEP) + first // STEP + i)
            at = row + first + i * BOX
            if self.SHARERS > 1:
                inner, outer = (at, k) if self.TURNED else (k, at)
                gl.inline_asm(
                    multicast(self.PARAMETER, self.SHARERS), "r,r,r,r,~{memory}", [buf, inner, outer, bar], [],
                    is_pure=False,
                )  # fmt: skip
            else:
                tma.async_load(self.desc, [k, at] if self.TURNED else [at, k], bar, buf)

    @gluon.jit
    def at(self, slot, FIRST: gl.constexpr):
        """The buffer from row FIRST of a stage on."""
        STEP: gl.constexpr = BOX if self.TURNED else UNIT
        return self.bufs.index(slot * (self.ROWS // STEP) + FIRST // STEP)


@gluon.aggregate
class Stages:
    """The pipeline: both operands, and a barrier for each state of a stage."""

    left: Operand
    right: Operand
    empty: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    STAGES: gl.constexpr
    CLUSTER: gl.constexpr

    @gluon.jit
    def wait_ready(self, step):
        mbarrier.wait(self.ready.index(step % self.STAGES), step // self.STAGES & 1)

    @gluon.jit
    def wait_empty(self, step):
        mbarrier.wait(self.empty.index(step % self.STAGES), (step // self.STAGES & 1) ^ 1)

    @gluon.jit
    def release(self, step, pred=True):
        """To all blocks that write into this one's buffers; of a cluster each warp tells for itself."""
        bar = self.empty.index(step % self.STAGES)
        if self.CLUSTER > 1:
            gl.inline_asm(
                arrive_at_all(self.CLUSTER), "r,r,~{memory}", [bar, gl.to_tensor(pred).to(gl.int32)], [], is_pure=False
            )
        else:
            mbarrier.arrive(bar, count=1, pred=pred)


@gluon.aggregate
class Store:
    """How a warpgroup's part of a tile leaves: each part of the accumulator by a box of its width, through BUFFERS
    buffers in turn; C comes into the same buffer first."""

    c_descs: gl.tuple
    d_descs: gl.tuple
    bufs: gl.shared_memory_descriptor
    c_bars: gl.shared_memory_descriptor
    epilogue: Epilogue
    WIDTH: gl.constexpr
    MOST: gl.constexpr
    BUFFERS: gl.constexpr

    @gluon.jit
    def store(self, parts, CONSUMER: gl.constexpr, phase, left, right):
        SWAP: gl.constexpr = self.epilogue.SWAP
        bar = self.c_bars.index(CONSUMER)
        for i in gl.static_range(len(parts)):
            c_desc = self.c_descs[which(self.WIDTH, self.MOST, i)]
            d_desc = self.d_descs[which(self.WIDTH, self.MOST, i)]
            buf = self.bufs.index(CONSUMER * self.BUFFERS + i % self.BUFFERS)
            buf = buf.reinterpret(d_desc.dtype, d_desc.block_type.shape, d_desc.layout)
            seen = buf.permute((1, 0)) if SWAP else buf
            row, col = (right, left) if SWAP else (left, right)
            acc = parts[i] * self.epilogue.alpha
            # The next tile begins with the first buffer again, which the last part of this one may have left by.
            tma.store_wait(pendings=self.BUFFERS - 1 if i > 0 or len(parts) % self.BUFFERS == 0 else 0)
            if self.epilogue.beta != 0.0:
                mbarrier.expect(bar, c_desc.nbytes_per_cta)
                tma.async_load(c_desc, [row, col], bar, buf)
                mbarrier.wait(bar, phase)
                phase ^= 1
                acc += self.epilogue.beta * seen.load(acc.type.layout).to(gl.float32)
            seen.store(self.epilogue.finish(acc, col).to(d_desc.dtype))
            fence_async_shared()
            tma.async_store(d_desc, [row, col], buf)
            right += parts[i].shape[1]
        return phase

    @gluon.jit
    def drain(self):
        tma.store_wait(pendings=0)


@gluon.jit
def load_partition(tiles, stages):
    """One warp: brings every tile's operands through the pipeline."""
    meet(tiles.CLUSTER)
    gdc_wait()  # what the kernel before this one writes may be our A or B
    step = 0
    LINE: gl.constexpr = 128  # bytes of a row in each stage
    for unit in range(tiles.first(), tiles.count(), tiles.stride()):
        left, right = tiles.place(unit)
        for k in range(0, tiles.K, tiles.BLOCK_K):
            slot = step % stages.STAGES
            bar = stages.ready.index(slot)
            stages.wait_empty(step)
            # All bytes that arrive in this block, whoever sends them.
            mbarrier.expect(bar, (stages.left.ROWS + stages.right.ROWS) * LINE)
            stages.left.fetch(slot, bar, left, k)
            stages.right.fetch(slot, bar, right, k)
            step += 1
    gdc_launch_dependents()  # all is read or on its way: the next kernel may come
    if tiles.CLUSTER > 1:
        for _ in range(stages.STAGES):  # no block leaves while another may still tell its barriers
            stages.wait_empty(step)
            step += 1


@gluon.jit
def make_operand(
    desc, STAGES: gl.constexpr, ROWS: gl.constexpr, TURNED: gl.constexpr, SHARERS: gl.constexpr, PARAMETER: gl.constexpr
):
    STEP: gl.constexpr = BOX if TURNED else UNIT
    WHOLE: gl.constexpr = (ROWS + STEP - 1) // STEP * STEP
    bufs = gl.allocate_shared_memory(desc.dtype, [STAGES * WHOLE // STEP] + desc.block_type.shape, desc.layout)  # noqa: RUF005
    return Operand(desc, bufs, WHOLE, TURNED, SHARERS, PARAMETER)


@gluon.jit
def make_barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    bars = mbarrier.allocate_mbarrier(batch=COUNT)
    for i in gl.static_range(COUNT):
        mbarrier.init(bars.index(i), count=ARRIVALS)
    return bars
