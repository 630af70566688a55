"""Grouped GEMM of 8-bit operands with scales of blocks for Hopper, gated, and cast again: the first product of a layer
of experts in 8 bits, of groups of few rows.

Operands are swapped, so that weights, which are most of what memory brings, fill the side of the tensor cores that is
fixed: a tile has 64 columns of the gate, as many of up, and few rows of A. H has a scale for each row's 128 columns,
and tiles as wide as that are too few where tokens are: 48 for one of a layer with 8 of 128 experts. So two blocks of a
cluster have a half each, and tell each other the largest magnitudes of their rows. Two warpgroups take tiles in turn.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_wait

from kernels.device.portable.eight_bits import E4M3, factor_of, scale_of, to_8_bits
from kernels.device.sm90.block_scales import BLOCK, arrivals
from kernels.device.sm90.groups import Groups, load_ragged
from kernels.device.sm90.loader import Stages, barriers, make_described, meet, prefetch_maps
from kernels.device.sm90.mainloop import zero_parts
from kernels.device.sm90.moe_mm_scaled import PAIRS, CastOutput
from kernels.device.sm90.promote import multiply_promoted
from kernels.device.sm90.scale_ring import KEPT, WORD, ScaleRing, gather, lanes_of, make_ring, promise
from kernels.device.sm90.team import alone, thread_number
from kernels.device.sm90.tile_queue import NoQueue, make_queue, own

REGISTERS = gl.constexpr(200)  # a thread's, of those that multiply
BLOCKS = gl.constexpr(2)  # of a cluster
TELLERS = gl.constexpr(4)  # threads that have all rows' numbers
MESSAGES = gl.constexpr(2)  # on their way: the other block is one tile ahead at most


@gluon.aggregate
class TileScales:
    """Those of a tile, for who multiplies: B's, one of the gate's columns and one of up's, and A's of each row."""

    ring: ScaleRing

    @gluon.jit
    def read(self, parts, at, line, FIRST: gl.constexpr):
        FROM_GATE: gl.constexpr = KEPT * WORD
        of_rows = self.ring.rows_at(at, 0, 0, parts[0].shape[1], gl.SliceLayout(0, parts[0].type.layout))
        gate, up = gl.inline_asm(
            f"ld.shared.f32 $0, [$2];\nld.shared.f32 $1, [$2 + {FROM_GATE}];", "=&f,=f,r",
            [own(self.ring.of_b) + (line & KEPT - 1) * WORD], [gl.float32, gl.float32], is_pure=False,
        )  # fmt: skip
        return gate * of_rows, up * of_rows

    @gluon.jit
    def add(self, parts, own, read):
        return parts[0] + own[0] * read[0][None, :], parts[1] + own[1] * read[1][None, :]


@gluon.aggregate
class ScaleLoader:
    """The scales, in place of the stages that load_ragged (groups.py) fills."""

    stages: Stages
    ring: ScaleRing
    a_scale: gl.tensor
    b_scale: gl.tensor
    b_plane: gl.tensor  # elements from a group's to the next one's
    a_stride: gl.tensor  # from a row's scale, or that of 128 columns, to the next
    a_step: gl.tensor  # from that of 128 of K to the next
    b_stride: gl.tensor
    b_step: gl.tensor
    N: gl.tensor
    gate: gl.tensor
    HEIGHT: gl.constexpr

    @gluon.jit
    def load_tile(self, step, count, row, col, k, a_plane, b_plane, height):
        """Each word by one lane, after A's last row that row's again (scale_ring.py, gather_rows)."""
        lane = gl.arange(0, lanes_of(self.HEIGHT), gl.BlockedLayout([1], [32], [1], [0]))
        here = row + gl.minimum(lane, gl.minimum(height, self.HEIGHT) - 1)
        from_a = self.a_scale + here.to(gl.int64) * self.a_stride
        at = gl.where(self.gate == PAIRS, 2 * col, lane * self.N + col)  # in turn along B they are of one block
        at = gl.minimum(at, 2 * self.N - 1) // BLOCK
        from_b = self.b_scale + b_plane.to(gl.int64) * self.b_plane + at.to(gl.int64) * self.b_stride
        for _ in range(count):
            self.stages.wait_empty(step)
            slot = step % self.stages.STAGES
            gather(own(self.ring.of_a), (slot * self.HEIGHT + lane) * WORD, from_a, lane < self.HEIGHT)
            gather(own(self.ring.of_b), ((step & KEPT - 1) + lane * KEPT) * WORD, from_b, lane < 2)
            ready = self.stages.ready.index(slot)
            promise(own(ready))
            mbarrier.arrive(ready, count=1)
            from_a += self.a_step
            from_b += self.b_step
            step += 1
        return step


@gluon.constexpr_function
def tell_words(outputs, inputs):
    """To the other block of the cluster: words to where they are here, then a word to its barrier, by the first four
    threads, which together have each row's word once. Inputs: buffer, barrier, the thread's number; of each word bytes
    from the buffer on, and its value."""
    (buffer,), (bar,), (thread,), offs, words = inputs
    return "\n".join([
        "{ .reg .pred here; .reg .b32 other, to, told, at;", f"setp.lt.u32 here, {thread}, {TELLERS.value};",
        "mov.u32 other, %cluster_ctarank;", "xor.b32 other, other, 1;",
        f"mapa.shared::cluster.u32 to, {buffer}, other;", f"mapa.shared::cluster.u32 told, {bar}, other;",
        *(
            f"add.u32 at, to, {off};\n@here st.shared::cluster.f32 [at], {word};"
            for off, word in zip(offs, words, strict=True)
        ), "@here mbarrier.arrive.release.cluster.shared::cluster.b64 _, [told]; }",
    ])  # fmt: skip


@gluon.aggregate
class Exchange:
    """What a warpgroup and its like in the other block tell each other of a tile: a number for each of its rows."""

    bufs: gl.shared_memory_descriptor  # [message][rows]
    told: gl.shared_memory_descriptor  # a barrier each
    ROWS: gl.constexpr

    @gluon.jit
    def larger(self, most, n):
        """The larger of `most` here and there, of the warpgroup's n-th tile. Four threads have all rows' numbers: of 64
        rows by R a thread has two columns of each eight (PTX ISA, wgmma.mma_async, "Register fragments")."""
        slot = n % MESSAGES
        buf = self.bufs.index(slot)
        bar = self.told.index(slot)
        offs = gl.arange(0, self.ROWS, most.type.layout) * WORD
        gl.inline_asm(tell_words, ("r", "r", "r", "r", "f"), [buf, bar, thread_number(), offs, most], [], is_pure=False)
        gl.inline_asm(
            "{ .reg .pred passed;\n"
            "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 passed, [$0], $1;\n"
            "@!passed bra.uni again; }", "r,r,~{memory}", [own(bar), n // MESSAGES & 1], [], is_pure=False,
        )  # fmt: skip
        return gl.maximum(most, buf.load(most.type.layout))


@gluon.jit
def store(out, exchange, n, gate, up, work, NUMBER: gl.constexpr):
    """A tile gated and cast, turned in shared memory."""
    made = out.gated(gate, up, work.col, work.group)
    most = exchange.larger(gl.max(gl.abs(made), 0), n)
    scale = scale_of(most, 0, E4M3, True)
    rows = work.row + gl.arange(0, made.shape[1], gl.SliceLayout(0, made.type.layout))
    at = rows.to(gl.int64) * out.scale_stride_m + (work.col // BLOCK).to(gl.int64) * out.scale_stride_n
    gl.store(out.scale_ptr + at, scale, mask=(rows < work.end) & (work.col % BLOCK == 0))
    buf = out.bufs.index(NUMBER)
    buf.permute((1, 0)).store(to_8_bits(made, factor_of(scale, True)[None, :], E4M3, True))
    gl.barrier()  # rows are stored by other threads than made them
    out.store_rows(buf, work.row, work)


@gluon.jit
def consume(
    stages, queue, out, turns, scales, exchange, NUMBER: gl.constexpr, COLS: gl.constexpr, WIDTH: gl.constexpr
):  # fmt: skip
    """Four warps: multiply and store every second tile."""
    meet(BLOCKS)
    gdc_wait()  # what the kernel before this one reads may be our D
    n = 0
    work = queue.receive(NUMBER)
    while work.count >= 0:
        parts = zero_parts(COLS, WIDTH, WIDTH) + zero_parts(COLS, WIDTH, WIDTH)
        mbarrier.wait(turns.index(NUMBER), n + 1 - NUMBER & 1)  # the first consumer need not wait for its first turn
        parts, _, _ = multiply_promoted(parts, stages, scales, work.step, work.count, 0, WIDTH, REGISTERS, False)
        mbarrier.arrive(turns.index(1 - NUMBER), count=1)
        store(out, exchange, n, parts[0], parts[1], work, NUMBER)
        n += 1
        work = queue.receive(2 * n + NUMBER)
    meet(BLOCKS)  # no block ends while the other may still tell it something


@gluon.jit
def load(groups, stages, queue):
    meet(BLOCKS)
    load_ragged(groups, stages, queue)
    meet(BLOCKS)


@gluon.jit
def idle():
    """Warps that only keep the cluster's count: warp_specialize gives out whole warpgroups."""
    meet(BLOCKS)
    meet(BLOCKS)


@gluon.jit
def make_exchange(ROWS: gl.constexpr):
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    bufs = gl.allocate_shared_memory(gl.float32, [MESSAGES, ROWS], layout)
    return Exchange(bufs, barriers(MESSAGES, TELLERS, True), ROWS)


@gluon.jit
def moe_mm_scaled_few(
    a_desc, b_desc, q_ptr, scale_ptr, bias_ptr, offs_ptr, M, N, K, groups, b_step, ldd, batch_stride_bias,
    a_scale, b_scale, batch_stride_b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k,
    scale_stride_m, scale_stride_n, gate, gate_alpha, gate_limit, gate_shift,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SYMBOL: gl.constexpr,
):  # fmt: skip
    """N counts D's columns; B has twice as many, and a tile BLOCK_N of those. N is a multiple of 64. Blocks 2 i and
    2 i + 1 are a cluster, and so are tiles, in rows of GROUP_M = 1: a group has an even number side by side."""
    A: gl.constexpr = SYMBOL + "_param_0"
    B: gl.constexpr = SYMBOL + "_param_5"
    COLS: gl.constexpr = BLOCK_N // 2
    none = gl.to_tensor(0)
    prefetch_maps(SYMBOL, (0, 5))
    left = make_described(b_desc, STAGES, BLOCK_N, BLOCK_K, False, B, 1, 1, 0, 2)
    right = make_described(a_desc, STAGES, BLOCK_M, BLOCK_K, False, A)
    empty, ready = barriers(STAGES, 1, True), barriers(STAGES, arrivals(True), True)
    stages = Stages(left, right, empty, ready, none, STAGES, BLOCK_K, 1, 1, True, 3, True, False, alone())
    ring = make_ring(STAGES, BLOCK_M, 2, True)
    scales = ScaleLoader(
        stages, ring, a_scale, b_scale, batch_stride_b_scale, a_scale_stride_m, a_scale_stride_k, b_scale_stride_n,
        b_scale_stride_k, N, gate, BLOCK_M,
    )  # fmt: skip
    bufs = gl.allocate_shared_memory(gl.uint8, [2, BLOCK_M, COLS], gl.SwizzledSharedLayout(16, 1, 8, [1, 0]))
    out = CastOutput(
        q_ptr, scale_ptr, bias_ptr, batch_stride_bias, ldd, scale_stride_m, scale_stride_n, N, gate, gate_alpha,
        gate_limit, gate_shift, bufs, True,
    )  # fmt: skip
    whole = gl.cdiv(N, BLOCK) * BLOCK
    groups_at = Groups(offs_ptr, none, groups, M, whole, K, none, b_step, none, BLOCK_M, COLS, BLOCK_K, GROUP_M, False)
    queue = make_queue(1, True)
    turns = barriers(2, 1, True)
    of_tile = (TileScales(ring),)
    gl.warp_specialize(
        [
            (consume, (stages, queue, out, turns, of_tile, make_exchange(BLOCK_M), 0, COLS, BLOCK_M)),
            (consume, (stages, queue, out, turns, of_tile, make_exchange(BLOCK_M), 1, COLS, BLOCK_M)),
            (load, (groups_at, stages, queue)),
            (load, (groups_at, scales, NoQueue(0))),
            (idle, ()),
        ],
        [4, 1, 1, 2],
        [REGISTERS, 96, 96, 96],
    )
