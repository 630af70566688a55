"""What an epilogue says to TMA in assembly: C into shared memory, D out of it, for one warpgroup. No kernel here.

A tensor map is a parameter of the entry point: assembly names it. One thread of the warpgroup's first warp asks.
"""

from triton.experimental import gluon


@gluon.constexpr_function
def box_facts(desc):
    """Of a box of this descriptor: its bytes, and of each copy, as wide as a line that is swizzled, the first byte and
    the first column."""
    rows, columns = desc.type.block_type.shape
    size = desc.type.block_type.element_ty.primitive_bitwidth // 8
    line = desc.type.layout.swizzle_byte_width or columns * size
    copies = tuple((i * rows * line, i * line // size) for i in range(columns * size // line))
    return rows * columns * size, copies


@gluon.constexpr_function
def first_thread(symbol, number):
    """The thread that asks, of the warp whose number, $3, is 0, and the tensor map that is this parameter."""
    return [
        "{ .reg .pred first; .reg .b32 at; .reg .b64 map;", "elect.sync _|first, 0xffffffff;",
        "setp.eq.and.s32 first, $3, 0, first;", f"mov.b64 map, {symbol}_param_{number};", "cvta.param.u64 map, map;",
    ]  # fmt: skip


@gluon.constexpr_function
def fetch_box(symbol, number, box):
    """C into the buffer at $0, from row $1 and column $2 on, and its bytes to barrier $4 (PTX ISA,
    cp.async.bulk.tensor)."""
    size, copies = box
    lines = first_thread(symbol, number)
    lines.append(f"@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [$4], {size};")
    for begin, column in copies:
        lines += [
            f"add.s32 at, $2, {column};",
            "@first cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes "
            f"[$0 + {begin}], [map, {{at, $1}}], [$4];",
        ]
    return "\n".join([*lines, "}"])


@gluon.constexpr_function
def send_box(symbol, number, box):
    """D from there, as a bulk group."""
    _, copies = box
    lines = first_thread(symbol, number)
    for begin, column in copies:
        lines += [
            f"add.s32 at, $2, {column};",
            f"@first cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [map, {{at, $1}}], [$0 + {begin}];",
        ]
    return "\n".join([*lines, "cp.async.bulk.commit_group;", "}"])
