"""What the loader says in assembly: copies by TMA, zeros where a group ends, messages between blocks. No kernel here.

The compiler passes the addresses of buffers and barriers without their block's rank: in a cluster they are as good as
block 0's, and `mapa` makes them this block's own.
"""

from triton.experimental import gluon


@gluon.constexpr_function
def load_assembly(left, right, rank, k_line, in_cluster, threads, part="", kept=False):
    """A step's boxes of both operands, and their bytes to a barrier, by one of the `threads` that come here (PTX ISA,
    cp.async.bulk.tensor); a box that blocks of a cluster share goes to the same place in each of them. Left and right
    are (PARAMETER, ROWS, LINES, TURNED, BOX, SHARERS, APART, RUN, HALVES) of the operands. A tensor map is a parameter
    of the entry point: assembly names it. An operand without one does not come this way. `part`: of what comes, "left"
    and the word to the barrier of the bytes of both, or "right"; "": all.

    Inputs: of either operand buffers, bytes from there to what comes, row and plane; of either the first in K; barrier;
    whether, or how many runs; the thread's number, where there are more than 32. `kept`: besides, of either operand how
    long L2 is to keep it (PTX ISA, createpolicy).
    """

    def boxes(operand):
        """(bytes, rows, elements of K) from the first to each box that this block loads, and which half it is of."""
        _, rows, lines, turned, box, sharers, _, run, halves = operand
        share, half = rows if shares_k(rows, turned, box, sharers) else rows // sharers, rows // halves
        if turned:
            return [(i * box * 128 * lines, i * box % half, 0, i * box // half) for i in range(share // box)]
        if run:
            return [(i * run * 128, i * run, 0, 0) for i in range(rows // run)]
        return [((i * rows + h * half) * 128, 0, i * k_line, h) for i in range(lines) for h in range(halves)]

    runs = right[7]
    total = (left[1] * left[2] + (0 if runs or not right[0] else right[1] * right[2])) * 128
    lines = [
        "{ .reg .pred first, here; .reg .b32 x, to, own, bar, at, k, bytes; .reg .b16 mask; .reg .b64 map;",
        "elect.sync _|first, 0xffffffff;",
        "setp.lt.and.u32 first, $12, 32, first;" if threads > 32 else "",
        "setp.ne.and.s32 first, $11, 0, first;", "@!first bra done;", "mov.u32 bar, $10;", f"mov.u32 bytes, {total};",
    ]  # fmt: skip
    if in_cluster:
        lines += ["mov.u32 x, %cluster_ctarank;", "mapa.shared::cluster.u32 bar, bar, x;"]
    if runs:
        lines.append(f"mad.lo.u32 bytes, $11, {runs * 128}, bytes;")
    if part != "right":
        lines.append("mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], bytes;")
    for operand, place, name in ((left, 0, "left"), (right, 4, "right")):
        if not operand[0] or part not in ("", name):
            continue
        lines += [f"mov.b64 map, {operand[0]};", "cvta.param.u64 map, map;", f"add.u32 own, ${place}, ${place + 1};"]
        shared = operand[5] > 1
        if in_cluster and not shared:
            lines.append("mapa.shared::cluster.u32 own, own, x;")
        lines += sharers_mask(operand[5], operand[6], left[5] > 1)
        halves = operand[8] > 1
        for i, (to, row, k, half) in enumerate(boxes(operand)):
            inside = (["at", "k"] if operand[3] else ["k", "at"]) + [str(half)] * halves
            at = ", ".join(inside + [f"${place + 3}"] * (rank - 2))
            check = f"setp.gt.s32 here, $11, {i};\n@here " if operand[7] and i else ""
            lines += [
                f"add.u32 to, own, {to};", f"add.s32 at, ${place + 2}, {row};", f"add.s32 k, ${8 + place // 4}, {k};",
                f"{check}cp.async.bulk.tensor.{rank + halves}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                f"{'.multicast::cluster' if shared else ''}{'.L2::cache_hint' if kept else ''} [to], [map, {{{at}}}], "
                f"[{'$10' if shared else 'bar'}]{', mask' if shared else ''}{f', ${13 + place // 4}' if kept else ''};",
            ]  # fmt: skip
    return "\n".join([*lines, "done: }"])


@gluon.constexpr_function
def prefetch_assembly(symbol, numbers):
    """Tensor maps that are these parameters of the entry point into the cache that TMA reads them from (PTX ISA,
    prefetch), once a warp."""
    lines = ["{ .reg .pred first; .reg .b64 map; elect.sync _|first, 0xffffffff;"]
    for i in numbers:
        lines += [f"mov.b64 map, {symbol}_param_{i};", "cvta.param.u64 map, map;", "@first prefetch.tensormap [map];"]
    return "\n".join([*lines, "}"])


@gluon.constexpr_function
def init_assembly(count, arrivals):
    """So many barriers from $0 on, by one thread of the first warp, whose other threads may use them from then on; $1
    is the thread's number. In no cluster."""
    lines = ["{ .reg .pred first; elect.sync _|first, 0xffffffff;", "setp.lt.and.u32 first, $1, 32, first;"]
    lines += [f"@first mbarrier.init.shared::cta.b64 [$0+{8 * i}], {arrivals};" for i in range(count)]
    return "\n".join([*lines, "bar.warp.sync 0xffffffff; }"])


@gluon.constexpr_function
def shares_k(rows, turned, box, sharers):
    """Whether blocks that share an operand load a part of K of each of its boxes (kernels/table/boxes.py, the same)."""
    return turned and rows % (box * sharers) != 0


@gluon.constexpr_function
def clear_lines(boxes, block_k, line, threads, in_cluster):
    """Zeros into the lines from number $2 on of boxes of `block_k` lines that begin at $0 + $1, 16 bytes a thread, of
    which this is number $3."""
    window = "cluster" if in_cluster else "cta"
    size = block_k * line
    lines = [
        "{ .reg .pred rest; .reg .b32 base, first, t, z;",
        "mov.b32 z, 0;", f"mul.lo.s32 first, $2, {line // 16};", "add.u32 base, $0, $1;",
        "mov.u32 t, %cluster_ctarank;\nmapa.shared::cluster.u32 base, base, t;" if in_cluster else "",
        "mov.u32 t, $3;", "mad.lo.u32 base, t, 16, base;",
    ]  # fmt: skip
    for i in range(0, size // 16, threads):
        lines += [f"sub.s32 first, first, {threads if i else 0};", "setp.ge.s32 rest, t, first;"]
        if size // 16 - i < threads:
            lines.append(f"setp.lt.and.s32 rest, t, {size // 16 - i}, rest;")
        lines += [
            f"@rest st.shared::{window}.v4.b32 [base + {box * size + i * 16}], {{z, z, z, z}};" for box in range(boxes)
        ]
    return "\n".join([*lines, "}"])


@gluon.constexpr_function
def sharers_mask(sharers, apart, some_others):
    """The blocks that need the same rows as block x: `sharers` of them, their ranks `apart`. `some_others`: the cluster
    has blocks beside them."""
    mask = sum(1 << i * apart for i in range(sharers))
    if sharers == 1 or not some_others:
        return [f"mov.b16 mask, {mask};"]
    first = f"and.b32 at, x, {apart - 1};" if apart > 1 else f"and.b32 at, x, {-sharers};"
    return [first, f"mov.b32 k, {mask};", "shl.b32 k, k, at;", "cvt.u16.u32 mask, k;"]


@gluon.constexpr_function
def barrier_told(blocks, across):
    """$0: where thread $2 of those that multiply tells a block that a stage is empty, the first of that block's
    barriers, which here is $1; else 0. Told are the blocks that load for this one, of all `blocks` those in its row of
    `across` and those in its column, each once: block i by lane i of warp i % 4 of a warpgroup. Found once, since tiles
    of 64 x 64 wait for each instruction that stands between two steps."""
    below = blocks // across
    here = (
        "mov.u32 own, %cluster_ctarank;\nxor.b32 own, own, lane;\n"  # 0 in the bits of what two blocks have in common
        f"and.b32 at, own, {below - 1};\nsetp.eq.u32 same, at, 0;\n"
        f"setp.lt.or.u32 same, own, {below}, same;\nand.pred told, told, same;\n"
    )
    return (
        "{ .reg .pred told, same; .reg .b32 lane, at, own;\n"
        f"mov.u32 lane, %laneid;\nsetp.lt.u32 told, lane, {blocks};\n"
        "shr.u32 at, $2, 5;\nxor.b32 at, at, lane;\nand.b32 at, at, 3;\nsetp.eq.and.u32 told, at, 0, told;\n"
        f"{here if across > 1 else ''}mov.u32 $0, 0;\n@told mapa.shared::cluster.u32 $0, $1, lane; }}"
    )


@gluon.constexpr_function
def tell_barrier():
    """The barrier at $1, if the first of them, $0, is not 0 and $2 is neither. Released to the cluster by default;
    .release.cluster takes 0.5 us a step."""
    return (
        "{ .reg .pred told; setp.ne.s32 told, $0, 0; setp.ne.and.s32 told, $2, 0, told;\n"
        "@told mbarrier.arrive.shared::cluster.b64 _, [$1]; }"
    )


@gluon.constexpr_function
def wait_for_phase(may_skip=False):
    """Until the barrier at $0 has passed the phase of parity $1 (PTX ISA, mbarrier.try_wait); it may be skipped, where
    $2 is 0. In a cluster $0 is this block's own address (team.py, Team.at)."""
    skip = "setp.eq.s32 passed, $2, 0;\n@passed bra.uni done;\n" if may_skip else ""
    return (
        f"{{ .reg .pred passed;\n{skip}"
        "again: mbarrier.try_wait.parity.shared::cta.b64 passed, [$0], $1;\n@!passed bra.uni again;\ndone: }"
    )
