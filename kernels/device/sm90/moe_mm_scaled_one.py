"""Grouped GEMM of 8-bit operands with scales of blocks for Hopper, gated, and cast again: the first product of a layer
of experts in 8 bits, of one token.

As moe_mm_scaled_few.py, but nothing comes before it: each block reads the router's choices, of which each is a tile's
one row, and four warps cast the token's row, a block of K each, as stages become empty. The first block stores what the
kernels behind this one need of the choices.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_wait

from kernels.device.portable.eight_bits import E4M3, factor_of, numbers, scale_of
from kernels.device.sm90.block_scales import BLOCK, arrivals
from kernels.device.sm90.choices import CHOICES, Token
from kernels.device.sm90.groups import finish
from kernels.device.sm90.loader import LINE, Stages, barriers, make_described, make_operand, meet, prefetch_maps
from kernels.device.sm90.moe_mm_scaled import PAIRS, CastOutput
from kernels.device.sm90.moe_mm_scaled_few import BLOCKS, TileScales, consume, idle, make_exchange
from kernels.device.sm90.scale_ring import KEPT, WORD, ScaleRing, make_ring
from kernels.device.sm90.team import alone
from kernels.device.sm90.tile_queue import WorkTile, make_queue, own

REGISTERS = gl.constexpr(152)  # a thread's, of those that multiply
ROWS = gl.constexpr(8)  # of A in a tile, the least there are: the first one is the token's, nobody stores the others
WARPS = gl.constexpr(4)  # that cast
NUMBERS = gl.constexpr(gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0]))  # a block of K each


@gluon.jit
def load_weights(token, stages, queue, told, K, b_step):
    """One warp: B of every tile. The next kernel may come once its first block has told what that reads."""
    meet(BLOCKS)
    gdc_wait()  # what the kernel before this one writes may be our B or choices
    choices = token.choices()
    count = gl.cdiv(K, BLOCK)
    step = 0
    sent = 0
    for number in range(gl.program_id(0), choices.tiles(token.across), gl.num_programs(0)):
        row, group, col = choices.tile(number, token.across, token.COLS)
        queue.send(sent, WorkTile(row, row + 1, col, group, step, count, gl.to_tensor(BLOCK), gl.to_tensor(1)))
        step = stages.load_tile(step, count, 0, col, 0, 0, gl.where(b_step > 0, group, 0), ROWS)
        sent += 1
    if gl.program_id(0) == 0:
        mbarrier.wait(told, 0)
    finish(queue, sent, 0, step)
    meet(BLOCKS)


@gluon.constexpr_function
def put_assembly(stages):
    """A block of K of the token's row into a stage, once that is empty, by a warp: 4 numbers a lane, and scales, A's by
    the first lane and B's by the first two. Of the tile's rows it is the first; what stands in others nobody stores.

    Inputs: barriers of empty and of ready stages; the right operand's buffers; A's scales, and B's; the step, and
    whether there is one; B's scale in memory; A's; the numbers over it."""
    return f"""{{ .reg .pred p, one, two; .reg .b32 slot, parity, empty, ready, at, lane, word; .reg .b16 low, high;
        setp.eq.s32 p, $6, 0; @p bra done;
        rem.u32 slot, $5, {stages}; div.u32 parity, $5, {stages}; not.b32 parity, parity; and.b32 parity, parity, 1;
        mad.lo.u32 empty, slot, 8, $0; mad.lo.u32 ready, slot, 8, $1;
        next: mbarrier.try_wait.parity.shared::cta.b64 p, [empty], parity; @!p bra next;
        mov.u32 lane, %laneid; setp.eq.u32 one, lane, 0; setp.lt.u32 two, lane, 2;
        cvt.rn.satfinite.e4m3x2.f32 low, $10, $9; cvt.rn.satfinite.e4m3x2.f32 high, $12, $11;
        mov.b32 word, {{low, high}};
        mad.lo.u32 at, slot, {ROWS.value * LINE.value}, $2; mad.lo.u32 at, lane, 4, at; st.shared.b32 [at], word;
        mad.lo.u32 at, slot, {ROWS.value * WORD.value}, $3; @one st.shared.f32 [at], $8;
        and.b32 at, $5, {KEPT.value - 1}; mad.lo.u32 at, lane, {KEPT.value}, at; mad.lo.u32 at, at, {WORD.value}, $4;
        @two cp.async.ca.shared.global [at], [$7], 4;
        fence.proxy.async.shared::cta; cp.async.mbarrier.arrive.shared::cta.b64 [ready];
        bar.warp.sync 0xffffffff; @one mbarrier.arrive.shared::cta.b64 _, [ready];
        done: }}"""


@gluon.aggregate
class Row:
    """The token's row, of which four warps cast a block of K each, and put it into stages."""

    x_ptr: gl.tensor
    K: gl.tensor
    stages: Stages
    ring: ScaleRing

    @gluon.jit
    def read(self, block):
        """WARPS blocks of K from number `block` on; zeros behind K."""
        inside = gl.arange(0, WARPS, gl.SliceLayout(1, NUMBERS))[:, None] * BLOCK
        cols = block * BLOCK + inside + gl.arange(0, BLOCK, gl.SliceLayout(0, NUMBERS))[None, :]
        return gl.load(self.x_ptr + cols, mask=cols < self.K // 16 * 16, other=0.0)

    @gluon.jit
    def put(self, x, step, here, from_b):
        """These, each warp's own if it is `here`, as steps from number `step` on."""
        x = numbers(x)
        scale = scale_of(gl.max(gl.abs(x), 1), 0, E4M3, True)
        x *= factor_of(scale, True)[:, None]
        stages = self.stages
        gl.inline_asm(
            put_assembly(stages.STAGES), "r,r,r,r,r,r,r,l,f,f,f,f,f,~{memory}",
            [own(stages.empty.index(0)), own(stages.ready.index(0)), own(stages.right.bufs), own(self.ring.of_a),
             own(self.ring.of_b), step, here.to(gl.int32), from_b.to(gl.int64), scale, x],
            [], is_pure=False,
        )  # fmt: skip


@gluon.aggregate
class WeightScales:
    """Where B's scales are in memory."""

    b_scale: gl.tensor
    b_plane: gl.tensor  # elements from a group's to the next one's
    b_stride: gl.tensor  # from that of 128 columns to the next
    b_step: gl.tensor  # from that of 128 of K to the next
    N: gl.tensor
    gate: gl.tensor

    @gluon.jit
    def of_tile(self, group, col, lane):
        """The first of a tile: the gate's columns' by lane 0, up's by the others."""
        at = gl.where(self.gate == PAIRS, 2 * col, gl.minimum(lane, 1) * self.N + col)  # in turn they are of one block
        at = gl.minimum(at, 2 * self.N - 1) // BLOCK
        return self.b_scale + group.to(gl.int64) * self.b_plane + at.to(gl.int64) * self.b_stride


@gluon.jit
def load_row(token, row, weights):
    """Four warps: the token's row and all scales, of every tile."""
    meet(BLOCKS)
    gdc_wait()
    lanes: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [WARPS, 1], [1, 0])
    lane = gl.arange(0, 32, gl.SliceLayout(0, lanes))
    warp = gl.arange(0, WARPS, gl.SliceLayout(1, lanes))
    some = row.read(0)
    choices = token.choices()
    count = gl.cdiv(row.K, BLOCK)
    step = 0
    for number in range(gl.program_id(0), choices.tiles(token.across), gl.num_programs(0)):
        _, group, col = choices.tile(number, token.across, token.COLS)
        from_b = weights.of_tile(group, col, lane)[None, :] + (warp * weights.b_step)[:, None]
        for block in range(0, count, WARPS):
            then = block + WARPS
            after = row.read(gl.where(then < count, then, 0))
            row.put(some, step + block + warp, block + warp < count, from_b)
            from_b += WARPS * weights.b_step
            some = after
        step += count
    meet(BLOCKS)


@gluon.jit
def tell(token, places_ptr, offs_ptr, told):
    """Two warps of the first block: what moe_route (moe.py) makes of the choices, but for their rows."""
    meet(BLOCKS)
    gdc_wait()
    if gl.program_id(0) == 0:
        choices = token.choices()
        lane = gl.arange(0, CHOICES, choices.place.type.layout)
        gl.store(places_ptr + lane, choices.place, mask=lane < token.entries)
        for first in range(0, token.groups, CHOICES):
            group = first + lane
            gl.store(offs_ptr + group, choices.below((group + 1) * CHOICES), mask=group < token.groups)
        # The next kernel reads ends before it waits for this one.
        gl.inline_asm("fence.acq_rel.gpu;", "~{memory}", [], [], is_pure=False)
        gl.barrier()
        mbarrier.arrive(told, count=1)
    meet(BLOCKS)


@gluon.jit
def moe_mm_scaled_one(
    b_desc, x_ptr, ids_ptr, places_ptr, offs_ptr, q_ptr, scale_ptr, bias_ptr, N, K, groups, entries, ids_wide, b_step,
    ldd, batch_stride_bias, b_scale, batch_stride_b_scale, b_scale_stride_n, b_scale_stride_k,
    scale_stride_m, scale_stride_n, gate, gate_alpha, gate_limit, gate_shift,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, SYMBOL: gl.constexpr,
):  # fmt: skip
    """N counts D's columns; B has twice as many, and a tile BLOCK_N of those. N is a multiple of 64. Of the token's
    `entries` choices, 32 at most, D has a row each but of those that are skipped, in their experts' order. K is a
    multiple of 16. Blocks 2 i and 2 i + 1 are a cluster, and so are tiles."""
    B: gl.constexpr = SYMBOL + "_param_0"
    COLS: gl.constexpr = BLOCK_N // 2
    dtype: gl.constexpr = b_desc.dtype
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, BLOCK_K], dtype)
    prefetch_maps(SYMBOL, (0,))
    left = make_described(b_desc, STAGES, BLOCK_N, BLOCK_K, False, B, 1, 1, 0, 2)
    right = make_operand(dtype, [BLOCK_M, BLOCK_K], layout, STAGES, BLOCK_M, BLOCK_K, False, "")
    empty, ready = barriers(STAGES, 1, True), barriers(STAGES, arrivals(True), True)
    stages = Stages(left, right, empty, ready, gl.to_tensor(0), STAGES, BLOCK_K, 1, 1, True, 3, True, False, alone())
    ring = make_ring(STAGES, BLOCK_M, 2, True)
    bufs = gl.allocate_shared_memory(gl.uint8, [2, BLOCK_M, COLS], gl.SwizzledSharedLayout(16, 1, 8, [1, 0]))
    out = CastOutput(
        q_ptr, scale_ptr, bias_ptr, batch_stride_bias, ldd, scale_stride_m, scale_stride_n, N, gate, gate_alpha,
        gate_limit, gate_shift, bufs, True,
    )  # fmt: skip
    token = Token(ids_ptr, ids_wide, entries, groups, gl.cdiv(N, BLOCK) * (BLOCK // COLS), COLS)
    weights = WeightScales(b_scale, batch_stride_b_scale, b_scale_stride_n, b_scale_stride_k, N, gate)
    queue = make_queue(1, True)
    turns = barriers(2, 1, True)
    told = barriers(1, 1, True).index(0)
    of_tile = (TileScales(ring),)
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, turns, of_tile, make_exchange(BLOCK_M), 0, COLS, BLOCK_M)),
            (consume, (stages, queue, out, turns, of_tile, make_exchange(BLOCK_M), 1, COLS, BLOCK_M)),
            (load_weights, (token, stages, queue, told, K, b_step)),
            (load_row, (token, Row(x_ptr, K, stages, ring), weights)),
            (tell, (token, places_ptr, offs_ptr, told)),
            (idle, ()),
        ],
        [4, 1, 4, 2, 1],
        [REGISTERS, 96, 96, 96, 96],
    )
