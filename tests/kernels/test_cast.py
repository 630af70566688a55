"""Casts to 8 bits and their scales, bit for bit against numpy, run by Triton's interpreter. No GPU.

What a number is rounded to is looked up among all that its type has, not computed again.
"""

import importlib.util
import itertools
import zlib

import numpy as np
import pytest
from by_hand import BAND, POISON, SIZE, checks_of, element, guarded, launch, main, widened
from eight_bits import rounded, scales

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

TENSOR, ROW, BY_1X128, BY_128X128 = range(1, 5)
NAMES = {TENSOR: "tensor", ROW: "row", BY_1X128: "1x128", BY_128X128: "128x128"}
ENUM = {"e4m3": 4, "e5m2": 5}  # libgemm_dtype
PACKED = {"fp16": 1, "bf16": 2}  # those of A that kernels hold in words
OF_ROWS = {TENSOR: "cast_tensor", ROW: "cast_rows", BY_1X128: "cast_1x128", BY_128X128: "cast_128x128"}  # kernels


def jobs():
    """Matrices, rows, columns, what leading dimensions have beyond columns."""
    sizes = ((1, 150, 200, 3), (2, 129, 128, 0), (3, 7, 300, 1), (1, 128, 129, 5))
    kinds = ("bf16", "fp16", "fp32")
    ways = [(OF_ROWS[g], g) for g in NAMES] + [("cast_transpose", g) for g in NAMES]
    for i, ((op, granularity), size) in enumerate(itertools.product(ways, sizes)):
        fields = {"op": op, "granularity": granularity, "size": size, "kind": kinds[i % 3], "power": i // 2 % 2}
        yield {"id": f"{op}-{NAMES[granularity]}-{'x'.join(map(str, size))}", **fields, "rows_first": i % 2}
        if size[0] == 2:
            yield {"id": f"{op}-{NAMES[granularity]}-e5m2", **fields, "to": "e5m2"}
            for kind, to in zip(kinds, itertools.islice(itertools.cycle(ENUM), i // 4 % 2, None), strict=False):
                aligned = fields | {"aligned": 1, "size": (2, 136, 264, 8), "to": to, "kind": kind}
                yield {"id": f"{op}-{NAMES[granularity]}-{kind}-{to}-aligned", **aligned}
    plain = {"size": (2, 130, 200, 3), "kind": "bf16", "power": 0}
    for op in ("cast_tensor", "cast_transpose"):
        yield {"id": f"{op}-scale-is-given", "op": op, "granularity": TENSOR, **plain, "given": (0.5, 3e-3)}
        small = {"given": (1e4, 1e-5), "to": "e5m2"}  # numbers below its least normal one, and beyond its largest
        yield {"id": f"{op}-given-e5m2", "op": op, "granularity": TENSOR, **plain, **small}
        yield {"id": f"{op}-given-scales-of-no-size", "op": op, "granularity": TENSOR, **plain, "given": (0.0, np.inf)}
    for way, (kind, more) in itertools.product(ways, (("fp32", 0), ("bf16", 3), ("fp16", 0))):
        if way[0] not in ("cast_rows", "cast_1x128"):
            dead = {"size": (2, 136, 264, 8 - more), "kind": kind, "power": 0, "aligned": not more, "dead": True}
            yield {"id": f"{way[0]}-{NAMES[way[1]]}-{kind}-dead-tile", "op": way[0], "granularity": way[1], **dead}
    for granularity in NAMES:
        yield {
            "id": f"only-transposed-{NAMES[granularity]}",
            "op": "cast_transpose",
            "granularity": granularity,
            **plain,
            "without": 1,
        }
        aligned = plain | {"size": (2, 264, 136, 8), "aligned": 1}
        yield {"id": f"only-transposed-aligned-{NAMES[granularity]}", "op": "cast_transpose", "without": 1,
               "granularity": granularity, **aligned}  # fmt: skip
    wide = plain | {"size": (1, 72, 528, 8), "aligned": 1}  # of the first pass more than a part each way
    for granularity in (TENSOR, ROW):
        yield {"id": f"wide-{NAMES[granularity]}", "op": "cast_transpose", "granularity": granularity, **wide}
    yield {"id": "given-aligned", "op": "cast_transpose", "granularity": TENSOR, **aligned, "given": (0.5, 0.0)}


def faults():
    wrong = {
        "M": 149,
        "N": 199,
        "lda": 204,
        "ldd": 204,
        "batch_stride_a": 9,
        "batch_stride_d": 9,
        "scale_power_of_two": 1,
    }
    for op, granularity in (("cast_1x128", BY_1X128), ("cast_transpose", BY_128X128), ("cast_rows", ROW)):
        plain = {"op": op, "granularity": granularity, "size": (2, 150, 200, 3), "kind": "bf16", "power": 0}
        for name, value in (wrong | {"M": 151 if op == "cast_rows" else 149}).items():
            yield {"id": f"fault-{op}-{name}", **plain, "changed": {name: value}}
        if op != "cast_rows":
            names = ("scale_stride_m", "scale_stride_n")
            for name in (*names, *(("ldd_t", "batch_stride_d_t") if op == "cast_transpose" else ())):
                yield {
                    "id": f"fault-{op}-{name}",
                    **plain,
                    "changed": {name: (name == "scale_stride_n") if "scale" in name else 152},
                }
    plain = {"op": "cast_transpose", "size": (2, 150, 200, 3), "kind": "bf16", "power": 0}
    yield {"id": "fault-columns-scales", **plain, "granularity": BY_1X128, "changed": {"scale_t_stride_m": 9}}
    yield {"id": "fault-amax-of-another-granularity", **plain, "granularity": ROW, "amax": {"granularity": TENSOR}}
    yield {"id": "fault-amax-not-cleared", **plain, "granularity": TENSOR, "amax": {"entries": 1}}

    for op, granularity in (("cast_rows", ROW), ("cast_1x128", BY_1X128), ("cast_transpose", BY_128X128)):
        other = {"to": "e5m2", "constants": {"D_TYPE": ENUM["e4m3"]}}
        fields = {"op": op, "granularity": granularity, "size": (2, 150, 200, 3), "kind": "bf16", "power": 0}
        yield {"id": f"fault-{op}-another-type", **fields, **other}


GOOD, FAULTS = list(jobs()), list(faults())


def spread(x: np.ndarray, granularity: int) -> np.ndarray:
    """Of matrices [batch][M][N] the largest magnitude of what shares a scale: [batch][M'][N']."""
    size = np.where(np.isfinite(x), np.abs(x), 0)
    _, m, n = x.shape
    down, across = {TENSOR: (m, n), ROW: (1, n), BY_1X128: (1, 128), BY_128X128: (128, 128)}[granularity]
    rows = np.maximum.reduceat(size, np.arange(0, m, down), 1)
    return np.maximum.reduceat(rows, np.arange(0, n, across), 2)


def widen(scale: np.ndarray, shape: tuple) -> np.ndarray:
    """A scale for each element."""
    _, m, n = shape
    down, across = (1 if scale.shape[1] == m else 128 if scale.shape[1] > 1 else m), (128 if scale.shape[2] > 1 else n)
    return scale.repeat(down, 1)[:, :m].repeat(across, 2)[:, :, :n]


def drawn(rng, batch: int, m: int, n: int, kind: str, dead: bool) -> np.ndarray:
    """Numbers of many sizes; a block of zeros, one too small for a scale, Inf and NaN here and there, and rows, columns
    and a block of nothing else; `dead`: a whole tile is."""
    x = rng.standard_normal((batch, m, n)) * np.exp2(rng.integers(-9, 9, (batch, m, 1)))
    x[0, : m // 2, : n // 2] = 0
    x[-1, m // 2 :, : n // 2] *= 1e-45 if kind == "fp32" else 1
    x[rng.random(x.shape) < 0.01] = 0
    for value in (np.inf, -np.inf, np.nan):
        x[rng.random(x.shape) < 0.002] = value
    x[0, 1], x[-1, 2] = -np.inf, np.nan
    x[0, :, 3], x[-1, :, 4], x[-1, 128:, 128:] = np.nan, np.inf, -np.inf
    if dead:
        x[:, :128, :128] = np.nan
    return x.astype(np.float32)


def compare(what: str, memory: tuple, got: np.ndarray, want: np.ndarray) -> list[str]:
    """`got` is a view of the memory, which beside it must be poison still."""
    off = got != want.view(got.dtype)
    got[:] = POISON[got.itemsize]
    problems = [f"mismatch: {off.sum()} of {off.size} elements of {what}"] if off.any() else []
    whole = memory[0] == POISON[got.itemsize]
    return problems + ([] if whole.all() else [f"mismatch: written beyond {what}"])


def strided(memory: tuple, shape: tuple, strides: tuple) -> np.ndarray:
    inner = memory[0][BAND:-BAND]
    return np.lib.stride_tricks.as_strided(inner, shape, [s * inner.itemsize for s in strides])


def check(job: dict) -> list[str]:
    from kernels.device.portable import cast
    from kernels.device.portable import cast_transpose as transpose

    rng = np.random.default_rng(zlib.crc32(job["id"].encode()))
    op, granularity, kind = job["op"], job["granularity"], job["kind"]
    align = 16 // SIZE[kind] if job.get("aligned") else 1
    batch, m, n, more = job["size"]
    to, given, part, height = job.get("to", "e4m3"), job.get("given"), 32, 32  # rows of a part of a tile, and of a tile
    if granularity == BY_128X128 or op == "cast_transpose":
        height = 64 if op == "cast_transpose" and align > 1 and granularity == ROW else 128
        part = height if align > 1 else part
    x = drawn(rng, batch, m, n, kind, job.get("dead", False))
    stored = np.zeros((batch, m, n + more), np.float32)
    stored[:, :, :n] = x
    bits = element(stored, kind)
    x = widened(bits, kind).reshape(stored.shape)[:, :, :n]
    lds = {"lda": n + more, "ldd": n + 2 * more, "ldd_t": m + more}
    steps = {
        "batch_stride_a": m * lds["lda"],
        "batch_stride_d": m * lds["ldd"] + more,
        "batch_stride_d_t": n * lds["ldd_t"],
    }
    most = spread(x, granularity)
    own = np.array(given, np.float32)[:, None, None] if given else scales(most, job["power"], to)
    _, m_scales, n_scales = own.shape
    by_columns = granularity in (ROW, BY_1X128)
    turned = own.transpose(0, 2, 1)
    if by_columns:
        turned = scales(spread(x.transpose(0, 2, 1), granularity), job["power"], to)
    strides = (m_scales * n_scales + 2, *((n_scales, 1) if job.get("rows_first") else (1, m_scales)))
    turned_strides = (turned[0].size + 1, *((turned.shape[2], 1) if job.get("rows_first") else (1, turned.shape[1])))
    if granularity == ROW:
        strides, turned_strides = (m + 2, 1, 1), (n + 1, 1, 1)
    own_memory = guarded(np.full(batch * strides[0], POISON[4], np.uint32))
    if given:
        strided(own_memory, own.shape, strides)[:] = own.view(np.uint32)
    words = batch * (m + n if granularity == ROW else 1)
    memories = {
        "a": guarded(bits.astype(f"u{SIZE[kind]}")), "scale": own_memory,
        "amax": guarded(np.full(words, POISON[4], np.uint32)),
        "q": guarded(np.full(batch * steps["batch_stride_d"], POISON[1], np.uint8)),
        "turned": guarded(np.full(batch * steps["batch_stride_d_t"], POISON[1], np.uint8)),
        "scale_t": guarded(np.full(batch * turned_strides[0], POISON[4], np.uint32)),
    }  # fmt: skip
    before = memories["a"][0].copy()
    values = {
        "a_ptr": memories["a"][1], "q_ptr": memories["q"][1], "q_t_ptr": memories["turned"][1],
        "scale_ptr": memories["scale"][1], "scale_t_ptr": memories["scale_t"][1] * by_columns,
        "amax_ptr": memories["amax"][1], "M": m, "N": n, **lds, **steps, "granularity": granularity,
        "batch_stride_scale": strides[0], "scale_stride_m": strides[1], "scale_stride_n": strides[2],
        "batch_stride_scale_t": turned_strides[0], "scale_t_stride_n": turned_strides[1],
        "scale_t_stride_m": turned_strides[2], "scale_power_of_two": job["power"], "scale_given": int(bool(given)),
        "entries": words,
    }  # fmt: skip
    whole_only = granularity in (TENSOR, BY_128X128)
    if job.get("without"):
        values |= {"q_ptr": 0, "scale_ptr": values["scale_ptr"] * whole_only}
    tiles = batch * -(-m // height) * -(-n // 128)
    # HARDWARE: the interpreter's own rounding to 8 bits is wrong.
    constants = {"ALIGN": align, "OVERLAP": 0, "HARDWARE": 0, "D_TYPE": ENUM[to], **job.get("constants", {})}
    constants["PACKED"] = PACKED.get(kind, 0) if align > 1 else 0
    if op != "cast_rows" and granularity in (TENSOR, ROW) and not given:
        parts = {TENSOR: (64, 256), ROW: (32, 512)}  # as kernels/table/portable.py has them
        high, width = parts[granularity] if align > 1 else (16, 128)
        for phase, programs in ((1, -(-words // 1024)), (2, batch * -(-m // 64) * -(-n // width))):
            types = f"*{kind} *i32 i32 i32 i64 i64 i32 i32 i32"
            launch(
                cast.cast_amax,
                types,
                values | {"phase": phase} | job.get("amax", {}),
                programs,
                constants | {"BLOCK_M": high, "BLOCK_N": width},
            )
    values |= job.get("changed", {})
    if op == "cast_rows":
        types = f"*{kind} *u8 *fp32 i32 i32 i64 i64 i64 i64 i64 i32"
        launch(cast.cast_rows, types, values, batch * m, constants | {"BLOCK_N": 128})
    elif op == "cast_tensor":
        types = f"*{kind} *u8 *fp32 *i32 i32 i32 {'i64 ' * 5} i32 i32"
        launch(cast.cast_tensor, types, values, tiles, constants | {"BLOCK_M": part})
    elif op == "cast_transpose" and by_columns:
        types = f"*{kind} *u8 *u8 *fp32 *fp32 *i32 i32 i32 {'i64 ' * 12} i32 i32"
        launch(transpose.cast_transpose_rows, types, values, tiles, constants | {"BLOCK_M": part})
    elif op == "cast_transpose":
        types = f"*{kind} *u8 *u8 *fp32 *i32 i32 i32 {'i64 ' * 9} i32 i32 i32"
        launch(transpose.cast_transpose, types, values, tiles, constants | {"BLOCK_M": part})
    else:
        types = f"*{kind} *u8 *fp32 i32 i32 {'i64 ' * 7} i32"
        launch(getattr(cast, op), types, values, tiles, constants | {"BLOCK_M": part})
    problems = [] if (before == memories["a"][0]).all() else ["mismatch: A was written"]
    got = strided(memories["q"], (batch, m, n), (steps["batch_stride_d"], lds["ldd"], 1))
    empty = np.full(got.shape, POISON[1], np.uint8)
    problems += compare("q", memories["q"], got, empty if job.get("without") else rounded(x, widen(own, x.shape), to))
    written = whole_only or not job.get("without")
    got = strided(memories["scale"], own.shape, strides)
    problems += compare("scale", memories["scale"], got, own if written else np.full(own.shape, POISON[4], np.uint32))
    got = strided(memories["turned"], (batch, n, m), (steps["batch_stride_d_t"], lds["ldd_t"], 1))
    flipped = x.transpose(0, 2, 1)
    want = (
        rounded(flipped, widen(turned, flipped.shape), to)
        if op == "cast_transpose"
        else np.full(got.shape, POISON[1], np.uint8)
    )
    problems += compare("q_t", memories["turned"], got, want)
    got = strided(memories["scale_t"], turned.shape, turned_strides)
    written = by_columns and op == "cast_transpose"
    want = turned if written else np.full(turned.shape, POISON[4], np.uint32)
    return problems + compare("scale_t", memories["scale_t"], got, want)


found, *TESTS = checks_of(__file__, GOOD, FAULTS)
test_ids_are_unique, test_outputs_are_right_and_nothing_else_is_written, test_fault_is_noticed = TESTS

if __name__ == "__main__":
    main(GOOD + FAULTS, check)
