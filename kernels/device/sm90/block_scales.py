"""Scales of blocks for the main loop of 8-bit operands: from memory to shared memory, beside the operands that they
belong to, and onto the products of a line. No kernel here.

A second loading warp brings them, which walks over the same tiles. It must not take longer for a step than the tensor
cores do, 600 cycles, and an instruction takes it ten. So A's come by bulk copies, in a loop of few instructions, and
B's by cp.async for CHUNK lines at once. A bulk copy begins and ends at multiples of 16 bytes, and a group's rows
anywhere: scales come with what stands around them, and who reads them knows from the address where they lie. Rows of A
whose scales are not contiguous are gathered by cp.async.
"""

import math

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_wait

from kernels.device.sm90.epilogue import power_of_two
from kernels.device.sm90.loader import Stages, meet

BLOCK = gl.constexpr(128)  # of K, in a line of a stage; and of the columns of B that share a scale
WORD = gl.constexpr(4)  # bytes of a scale
PACK = gl.constexpr(4)  # scales in 16 bytes
CHUNK = gl.constexpr(32)  # lines whose scales of B come at once, by a thread each
KEPT = gl.constexpr(64)  # lines for which those of B have room: a chunk, and more than all stages have


@gluon.constexpr_function
def places_of(width):
    """Blocks of 128 columns in which a tile of this width may lie: it begins at any multiple of it."""
    grain = math.gcd(width, 128)
    return (128 - grain + width - 1) // 128 + 1


@gluon.constexpr_function
def words_of(rows, swap):
    """Scales of A that a line of a stage has room for: without swapped operands 16 bytes more, see above."""
    return rows if swap else rows + 4


@gluon.constexpr_function
def arrivals(blocks):
    """That say a stage is ready: TMA's, and that of the warp that brings scales."""
    return 2 if blocks else 1


@gluon.constexpr_function
def fetch_assembly(stages, lines, bytes_of_line):
    """A's scales of some steps, a bulk copy for each line (PTX ISA, cp.async.bulk) once its stage is empty, and the
    warp's word to the barriers of the stages. Written out, since an instruction more is 2 % of a step: all threads do
    the same, which ptxas then does once for all, in uniform registers, and one of them acts. Inputs: barriers of empty
    and of ready stages; buffers; first stage, and the parity of its barrier; source, and bytes from a line's to the
    next; bytes of a line; steps; lines that the tile has from the first one on, after which the last comes again.
    """
    step = bytes_of_line * lines
    copies = []
    for line in range(lines):
        copies += [
            "@first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            f"[to + {line * bytes_of_line}], [from], $7, [ready];",
            *(["sub.s32 left, left, 1;", "setp.gt.s32 p, left, 0;", "@p add.s64 from, from, $6;"] if lines > 1 else
              ["add.s64 from, from, $6;"]),
        ]  # fmt: skip
    return "\n".join([
        "{ .reg .pred p, first; .reg .b32 empty, ready, to, last, parity, size, n, left; .reg .b64 from;",
        "setp.le.s32 p, $8, 0;", "@p bra done;", "elect.sync _|first, 0xffffffff;", f"mul.lo.u32 size, $7, {lines};",
        "mad.lo.u32 empty, $3, 8, $0;", "mad.lo.u32 ready, $3, 8, $1;", f"mad.lo.u32 to, $3, {step}, $2;",
        f"add.u32 last, $0, {8 * stages};", "mov.u32 parity, $4;", "mov.u64 from, $5;", "mov.u32 n, $8;",
        "mov.u32 left, $9;",
        "next: mbarrier.try_wait.parity.shared::cta.b64 p, [empty], parity;", "@!p bra next;",
        "@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [ready], size;", *copies,
        "add.u32 empty, empty, 8;", "add.u32 ready, ready, 8;", f"add.u32 to, to, {step};",
        "setp.eq.u32 p, empty, last;", f"@p sub.u32 empty, empty, {8 * stages};",
        f"@p sub.u32 ready, ready, {8 * stages};", f"@p sub.u32 to, to, {stages * step};",
        "@p xor.b32 parity, parity, 1;", "sub.s32 n, n, 1;", "setp.gt.s32 p, n, 0;", "@p bra next;", "done: }",
    ])  # fmt: skip


@gluon.constexpr_function
def gather_words(outputs, inputs):
    """By each thread: buffers, and of each word bytes from there on, the source, and whether it is wanted."""
    (base,), *words = inputs
    return "\n".join([
        "{ .reg .pred here; .reg .b32 to;",
        *(
            f"add.u32 to, {base}, {off};\nsetp.ne.s32 here, {wanted}, 0;\n"
            f"@here cp.async.ca.shared.global [to], [{source}], 4;"
            for off, source, wanted in zip(*words, strict=True)
        ), "}",
    ])  # fmt: skip


@gluon.jit
def gather(buffers, offs, sources, wanted):
    given = [buffers, offs, sources.to(gl.int64), wanted.to(gl.int32)]
    gl.inline_asm(gather_words, ("r", "r", "l", "r"), given, [], is_pure=False)


@gluon.jit
def low_of(pointer):
    """Where in its 16 bytes a scale lies in memory."""
    return (pointer.to(gl.int64) >> 2).to(gl.int32) & PACK - 1


@gluon.jit
def moved(pointers, elements):
    if len(pointers) == 1:
        return (pointers[0] + elements,)
    else:
        return (pointers[0] + elements,) + moved(pointers[1:], elements)  # noqa: RUF005


@gluon.constexpr_function
def load_words(outputs, inputs):
    """Numbers in shared memory: from buffers, bytes from there on, and the offset of each from there."""
    (numbers,), ((base,), (first,), offs) = outputs, inputs
    return "\n".join([
        f"{{ .reg .b32 to, at;\nadd.u32 to, {base}, {first};",
        *(f"add.u32 at, to, {off};\nld.shared.f32 {one}, [at];" for one, off in zip(numbers, offs, strict=True)), "}",
    ])  # fmt: skip


@gluon.aggregate
class ScaleRing:
    """What stages have of scales: A's one for each row of a tile, and for each block of B's columns that of a line."""

    of_a: gl.shared_memory_descriptor  # [line of a stage][rows]; in fours where they may lie anywhere
    of_b: gl.shared_memory_descriptor  # [place][line of the last KEPT]
    ROWS: gl.constexpr  # of A, in a power of two
    PLACES: gl.constexpr
    SWAP: gl.constexpr

    @gluon.jit
    def is_bulk(self, low, a_stride, a_step):
        """Whether A's of a tile, of which the first one lies at `low` in its 16 bytes, come by bulk copies: with
        operands swapped they are read by pairs, and lie from their line's beginning on."""
        bulk = (a_stride == 1) & ((a_step & PACK - 1) == 0)
        if self.SWAP:
            bulk = bulk & (low == 0)
        return bulk

    @gluon.jit
    def first(self, low):
        """The word of a line from which A's of a tile lie, of which the first one lies there in memory."""
        return low * 0 if self.SWAP else low

    @gluon.jit
    def fetch_rows(self, stages, step, count, source, a_step, rows, lines):
        """A's of so many steps and rows, from `source` on; of the tile are `lines` lines from there on."""
        slot = step % stages.STAGES
        parity = (step // stages.STAGES & 1) ^ 1
        size = (low_of(source) + rows + PACK - 1 & -PACK) * WORD
        ASSEMBLY: gl.constexpr = fetch_assembly(
            stages.STAGES, stages.left.LINES, words_of(self.ROWS, self.SWAP) * WORD.value
        )
        gl.inline_asm(
            ASSEMBLY, "r,r,r,r,r,l,l,r,r,r,~{memory}",
            [stages.empty, stages.ready, self.of_a, slot, parity, source.to(gl.int64) & -16,
             a_step.to(gl.int64) * WORD, size, count, lines],
            [], is_pure=False,
        )  # fmt: skip

    @gluon.jit
    def gather_rows(self, at, source, rows, a_stride, low):
        """All threads: a line's of rows that stand apart, from word `low` of the line on."""
        row = gl.arange(0, self.ROWS, gl.BlockedLayout([1], [32], [1], [0]))
        sources = source + row.to(gl.int64) * a_stride
        gather(self.of_a, (at * words_of(self.ROWS, self.SWAP) + low + row) * WORD, sources, row < rows)

    @gluon.jit
    def gather_columns(self, line, count, sources, step, lines, PLACE: gl.constexpr = 0):
        """All threads: B's of `count` lines from number `line` on, CHUNK at most, of each place from number PLACE on.
        From a line's to the next are `step` elements, and there are so many lines. Others' places are left alone: what
        comes there later may come sooner."""
        lane = gl.arange(0, CHUNK, gl.BlockedLayout([1], [32], [1], [0]))
        own = sources[0] + gl.minimum(lane, lines - 1).to(gl.int64) * step
        gather(self.of_b, ((line + lane & KEPT - 1) + PLACE * KEPT) * WORD, own, lane < count)
        if len(sources) > 1:
            self.gather_columns(line, count, sources[1:], step, lines, PLACE + 1)

    @gluon.jit
    def rows_at(self, line, low, FIRST: gl.constexpr, COUNT: gl.constexpr, layout: gl.constexpr):
        """A's of COUNT rows from row FIRST of the tile on, the tile's from word `low` of the line on."""
        if self.SWAP:
            return self.of_a.index(line).slice(FIRST, COUNT).load(layout)
        else:
            offs = (low + FIRST + gl.arange(0, COUNT, layout)) * WORD
            at = line * (words_of(self.ROWS, self.SWAP) * WORD)
            return gl.inline_asm(
                load_words, ("=&f", "r", "r", "r"), [self.of_a, at, offs], offs.to(gl.float32).type, is_pure=False
            )

    @gluon.jit
    def column_at(self, line, place):
        """B's of a place, a number for all threads."""
        at = ((line & KEPT - 1) + place * KEPT) * WORD
        return gl.inline_asm(
            "{ .reg .b32 at;\nadd.u32 at, $1, $2;\nld.shared.f32 $0, [at]; }", "=f,r,r", [self.of_b, at], gl.float32,
            is_pure=False,
        )  # fmt: skip


@gluon.jit
def make_ring(LINES: gl.constexpr, ROWS: gl.constexpr, PLACES: gl.constexpr, SWAP: gl.constexpr):
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    WORDS: gl.constexpr = words_of(ROWS, SWAP)
    if SWAP:
        of_a = gl.allocate_shared_memory(gl.float32, [LINES, ROWS], layout)
    else:
        of_a = gl.allocate_shared_memory(gl.float32, [LINES * WORDS // 4, 4], layout)
    of_b = gl.allocate_shared_memory(gl.float32, [PLACES, KEPT], layout)
    return ScaleRing(of_a, of_b, ROWS, PLACES, SWAP)


@gluon.jit
def promise(bar):
    """The barrier waits for what each thread has copied, besides the arrivals that it counts."""
    gl.inline_asm(
        "cp.async.mbarrier.arrive.shared::cta.b64 [$0];\nbar.warp.sync 0xffffffff;", "r,~{memory}", [bar], [],
        is_pure=False,
    )  # fmt: skip


@gluon.aggregate
class TileScales:
    """Those of a tile, for who multiplies."""

    ring: ScaleRing
    low: gl.tensor  # word of each line from which A's lie
    column: gl.tensor  # where in its block of B's columns the tile begins

    @gluon.jit
    def of_column(self, line, COLUMN: gl.constexpr):
        """B's, of column COLUMN of the tile."""
        place = 0
        if self.ring.PLACES > 1:
            place = (self.column + COLUMN) // BLOCK
        return self.ring.column_at(line, place)

    @gluon.jit
    def read_right(self, parts, at, line, COLUMN: gl.constexpr, PART: gl.constexpr):
        """The right operand's of each part from number PART on, which begins at this column."""
        cols: gl.constexpr = gl.SliceLayout(0, parts[PART].type.layout)
        WIDTH: gl.constexpr = parts[PART].shape[1]
        own = self.ring.rows_at(at, 0, COLUMN, WIDTH, cols) if self.ring.SWAP else self.of_column(line, COLUMN)
        if len(parts) == PART + 1:
            return (own,)
        else:
            return (own,) + self.read_right(parts, at, line, COLUMN + WIDTH, PART + 1)  # noqa: RUF005

    @gluon.jit
    def read(self, parts, at, line, FIRST: gl.constexpr):
        """Those of a line of a stage, number `line` of all: the left operand's rows from FIRST on, which this
        warpgroup has, and the right one's for each part of the accumulator."""
        rows: gl.constexpr = gl.SliceLayout(1, parts[0].type.layout)
        if self.ring.SWAP:
            left = self.of_column(line, FIRST)
        else:
            left = self.ring.rows_at(at, self.low, FIRST, parts[0].shape[0], rows)
        return left, self.read_right(parts, at, line, 0, 0)

    @gluon.jit
    def add(self, parts, own, read, PART: gl.constexpr = 0):
        """The parts from number PART on with those of `own`, scaled."""
        left, right = read
        if self.ring.SWAP:
            scale = (right[PART] * left)[None, :]
        else:
            rows: gl.constexpr = gl.SliceLayout(1, parts[PART].type.layout)
            scale = gl.convert_layout(left * right[PART], rows, assert_trivial=True)[:, None]
        sum = parts[PART] + own[PART] * scale
        if len(parts) == PART + 1:
            return (sum,)
        else:
            return (sum,) + self.add(parts, own, read, PART + 1)  # noqa: RUF005


@gluon.aggregate
class BlockScales:
    """What blocks of the operands were scaled by, 1 row by 128 of K of A and 128 of K by 128 columns of B, and where in
    shared memory that goes."""

    a_scale: gl.tensor
    b_scale: gl.tensor
    a_stride: gl.tensor  # elements from a row's scale, or that of 128 columns, to the next
    a_step: gl.tensor  # from that of 128 of K to the next
    b_stride: gl.tensor
    b_step: gl.tensor
    M: gl.tensor
    N: gl.tensor
    blocks: gl.tensor  # of K
    ring: ScaleRing
    HEIGHT: gl.constexpr  # rows of A that a tile has

    @gluon.jit
    def rows_from(self, row, block):
        """A's of a tile that begins at this row and block of K."""
        return self.a_scale + row.to(gl.int64) * self.a_stride + block * self.a_step

    @gluon.jit
    def columns_from(self, col, block, b_plane, PLACE: gl.constexpr = 0):
        """B's of each place from number PLACE on."""
        number = gl.minimum(gl.minimum(col, self.N - 1) // BLOCK + PLACE, (self.N - 1) // BLOCK)
        own = (self.b_scale + b_plane + number.to(gl.int64) * self.b_stride + block * self.b_step,)
        if self.ring.PLACES == PLACE + 1:
            return own
        else:
            return own + self.columns_from(col, block, b_plane, PLACE + 1)

    @gluon.jit
    def bring(self, stages, step, count, row, block, from_b):
        """One warp: a tile's scales, `count` steps from block `block` of K on, each once its stage is empty, B's from
        these sources on. Returns the number of the step after them. A line of a step beyond K, whose products are all
        zeros, has the last line's scales."""
        LINES: gl.constexpr = stages.left.LINES
        STEPS: gl.constexpr = CHUNK // LINES
        from_a = self.rows_from(row, block)
        lines = self.blocks - block
        rows = gl.minimum(self.M - row, self.HEIGHT)
        low = low_of(from_a)
        bulk = self.ring.is_bulk(low, self.a_stride, self.a_step)
        for first in range(0, count, STEPS):
            chunk = gl.minimum(count - first, STEPS)
            stages.wait_empty(step)
            self.ring.gather_columns(step * LINES, chunk * LINES, from_b, self.b_step, lines)
            promise(stages.ready.index(step % stages.STAGES))
            if bulk:
                self.ring.fetch_rows(stages, step, chunk, from_a, self.a_step, rows, lines)
            else:
                for i in range(chunk):
                    stages.wait_empty(step + i)
                    slot = (step + i) % stages.STAGES
                    for line in gl.static_range(LINES):
                        at = gl.minimum(i * LINES + line, lines - 1)
                        source = from_a + at * self.a_step
                        self.ring.gather_rows(slot * LINES + line, source, rows, self.a_stride, self.ring.first(low))
                    promise(stages.ready.index(slot))
                    mbarrier.arrive(stages.ready.index(slot), count=1)
            step += chunk
            lines -= CHUNK
            from_a += CHUNK * self.a_step
            from_b = moved(from_b, CHUNK * self.b_step)
        return step

    @gluon.jit
    def of_tile(self, row, col, block):
        """A tile's, which begins there."""
        return TileScales(self.ring, self.ring.first(low_of(self.rows_from(row, block))), col % BLOCK)


@gluon.jit
def tile_scales(blocks, left, right, block):
    """() where operands are not scaled by blocks. Of a tile that begins there and at this block of K."""
    if len(blocks) > 0:
        row, col = (right, left) if blocks[0].ring.SWAP else (left, right)
        return (blocks[0].of_tile(row, col, block),)
    else:
        return ()


@gluon.jit
def bring_partition(tiles, stages, scales):
    """One warp, beside the one that brings operands (loader.py): every unit's scales."""
    meet(stages.CLUSTER)
    gdc_wait()  # what the kernel before this one writes may be our scales
    step = 0
    for unit in range(tiles.first(), tiles.count(), tiles.stride()):
        left, right = tiles.place(unit)
        first, count = tiles.steps(unit)
        row, col = (right, left) if stages.SWAP else (left, right)
        block = first * stages.left.LINES
        step = scales.bring(stages, step, count, row, block, scales.columns_from(col, block, 0))


@gluon.aggregate
class ScaleLoader:
    """The same of packed groups, in place of the stages that load_ragged (groups.py) fills."""

    stages: Stages
    scales: BlockScales
    b_plane: gl.tensor  # elements from a group's scales of B to the next one's

    @gluon.jit
    def load_tile(self, step, count, row, col, k, a_plane, b_plane, height):
        sources = self.scales.columns_from(col, 0, b_plane.to(gl.int64) * self.b_plane)
        return self.scales.bring(self.stages, step, count, row, 0, sources)


@gluon.jit
def make_block_scales(
    a_scale, b_scale, a_stride, a_step, b_stride, b_step, M, N, K, tiles, stages, SWAP: gl.constexpr,
    BLOCKS: gl.constexpr,
):  # fmt: skip
    """() where operands are not scaled by blocks."""
    if BLOCKS:
        HEIGHT: gl.constexpr = tiles.RIGHT if SWAP else tiles.LEFT
        WIDTH: gl.constexpr = tiles.LEFT if SWAP else tiles.RIGHT
        ring = make_ring(stages.STAGES * stages.left.LINES, power_of_two(HEIGHT), places_of(WIDTH), SWAP)
        blocks = gl.cdiv(K, BLOCK)
        return (BlockScales(a_scale, b_scale, a_stride, a_step, b_stride, b_step, M, N, blocks, ring, HEIGHT),)
    else:
        return ()
