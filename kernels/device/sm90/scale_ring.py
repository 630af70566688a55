"""Scales of blocks in shared memory: how a line of a stage is filled with them, and read. No kernel here.

A's come by bulk copies, in a loop of few instructions, and B's by cp.async for CHUNK lines at once. A bulk copy begins
and ends at multiples of 16 bytes, and a group's rows anywhere: scales come with what stands around them, and who reads
them knows from the address where they lie. Rows of A whose scales are not contiguous are gathered by cp.async.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.tile_queue import own

WORD = gl.constexpr(4)  # bytes of a scale
PACK = gl.constexpr(4)  # scales in 16 bytes
CHUNK = gl.constexpr(32)  # lines whose scales of B come at once, by a thread each
KEPT = gl.constexpr(64)  # lines for which those of B have room: a chunk, and more than all stages have


@gluon.constexpr_function
def words_of(rows, swap):
    """Scales of A that a line of a stage has room for: without swapped operands 16 bytes more, see above."""
    return rows if swap else rows + 4


@gluon.constexpr_function
def lanes_of(rows):
    """A thread for each row, and at least a warp's: none has another one's row."""
    return max(rows, 32)


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
    IN_CLUSTER: gl.constexpr

    @gluon.jit
    def address(self, memory):
        """Of shared memory, as assembly here takes it."""
        return own(memory) if self.IN_CLUSTER else memory

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
            [self.address(stages.empty.index(0)), self.address(stages.ready.index(0)), self.address(self.of_a), slot,
             parity, source.to(gl.int64) & -16, a_step.to(gl.int64) * WORD, size, count, lines],
            [], is_pure=False,
        )  # fmt: skip

    @gluon.jit
    def gather_rows(self, at, source, rows, a_stride, low):
        """All threads: a line's of rows that stand apart, from word `low` of the line on. Each word by one thread, and
        after the last row that row's again: who reads a line reads all of it, and must not find an earlier tile's."""
        lane = gl.arange(0, lanes_of(self.ROWS), gl.BlockedLayout([1], [32], [1], [0]))
        sources = source + gl.minimum(lane, rows - 1).to(gl.int64) * a_stride
        offs = (at * words_of(self.ROWS, self.SWAP) + low + lane) * WORD
        gather(self.address(self.of_a), offs, sources, lane < self.ROWS)

    @gluon.jit
    def gather_columns(self, line, count, sources, step, lines, PLACE: gl.constexpr = 0):
        """All threads: B's of `count` lines from number `line` on, CHUNK at most, of each place from number PLACE on.
        From a line's to the next are `step` elements; the tile has so many lines. Threads from `count` on copy nothing:
        copies end in any order, and theirs could come after what a later call brings there."""
        lane = gl.arange(0, CHUNK, gl.BlockedLayout([1], [32], [1], [0]))
        from_b = sources[0] + gl.minimum(lane, lines - 1).to(gl.int64) * step
        gather(self.address(self.of_b), ((line + lane & KEPT - 1) + PLACE * KEPT) * WORD, from_b, lane < count)
        if len(sources) > 1:
            self.gather_columns(line, count, sources[1:], step, lines, PLACE + 1)

    @gluon.jit
    def rows_at(self, line, low, row, COUNT: gl.constexpr, layout: gl.constexpr):
        """A's of COUNT rows from this one of the tile on, which the compiler must know where operands are swapped; the
        tile's from word `low` of the line on."""
        if self.SWAP:
            return self.of_a.index(line).slice(row, COUNT).load(layout)
        else:
            offs = (low + row + gl.arange(0, COUNT, layout)) * WORD
            at = line * (words_of(self.ROWS, self.SWAP) * WORD)
            return gl.inline_asm(
                load_words, ("=&f", "r", "r", "r"), [self.address(self.of_a), at, offs], offs.to(gl.float32).type,
                is_pure=False,
            )  # fmt: skip

    @gluon.jit
    def column_at(self, line, place):
        """B's of a place, a number for all threads."""
        at = ((line & KEPT - 1) + place * KEPT) * WORD
        return gl.inline_asm(
            "{ .reg .b32 at;\nadd.u32 at, $1, $2;\nld.shared.f32 $0, [at]; }", "=f,r,r", [self.address(self.of_b), at],
            gl.float32, is_pure=False,
        )  # fmt: skip


@gluon.jit
def make_ring(
    LINES: gl.constexpr, ROWS: gl.constexpr, PLACES: gl.constexpr, SWAP: gl.constexpr, IN_CLUSTER: gl.constexpr = False
):  # fmt: skip
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    WORDS: gl.constexpr = words_of(ROWS, SWAP)
    if SWAP:
        of_a = gl.allocate_shared_memory(gl.float32, [LINES, ROWS], layout)
    else:
        of_a = gl.allocate_shared_memory(gl.float32, [LINES * WORDS // 4, 4], layout)
    of_b = gl.allocate_shared_memory(gl.float32, [PLACES, KEPT], layout)
    return ScaleRing(of_a, of_b, ROWS, PLACES, SWAP, IN_CLUSTER)


@gluon.jit
def promise(bar):
    """The barrier waits for what each thread has copied, besides the arrivals that it counts."""
    gl.inline_asm(
        "cp.async.mbarrier.arrive.shared::cta.b64 [$0];\nbar.warp.sync 0xffffffff;", "r,~{memory}", [bar], [],
        is_pure=False,
    )  # fmt: skip
