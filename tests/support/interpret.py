"""Runs kernels in Triton's interpreter: jobs as JSON on stdin, what is wrong with each as a JSON line. Not a test.

A process of its own, since Triton decides at its import whether kernels are compiled or interpreted.

Operands, guard bands and error bounds are those of the GPU suite (tests/gpu), which states the formula. Two facts of
the interpreter change them:
  float32 is multiplied in full whatever PRECISION says, so the bound of "ieee" holds for tf32 and tf32x3 as well;
  float32 becomes bf16 by cutting off, so the result may be a whole unit in the last place off and not half of one.
It also multiplies the raw bits of bf16 operands, and has numbers where e4m3 has NaN, hence `dot`.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import dataclasses
import functools
import importlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernels.device.portable import overlap, tiles
from kernels.table.arguments import ARGUMENTS
from kernels.table.dtypes import ELEMENTS
from kernels.table.variants import variants
from tests.gpu import reference
from tests.gpu.cases import ACTIVATIONS, RAGGED, SCALINGS, Case
from tests.gpu.checks import amax_problems, mismatches, tail_problems
from tests.gpu.guarded import INTS
from tests.gpu.problem import Problem
from tests.support import quick_interpreter

quick_interpreter.install()
reference.U_OUT["bf16"] = 2.0**-7
OPERAND_TYPES = {row.name: row.c_enum for row in ELEMENTS.values() if row.bytes == 1}
NUMBERS = {"i32": np.int32, "i64": np.int64, "fp32": np.float32}
SMALL = {"block_m": 32, "block_n": 32, "block_k": 16, "group_m": 2}  # speed; a last group of one row of tiles
VANISHING = 2.0**-126


wrong_dot = InterpreterBuilder.create_dot


def dot(self, a, b, acc, *options):
    """The interpreter's dot, after bf16 and e4m3, which it keeps as integers, became float32."""

    def upcast(x):
        if x.dtype.scalar == tl.float8e4nv:
            bits = torch.from_numpy(np.ascontiguousarray(x.data))
            return TensorHandle(bits.view(torch.float8_e4m3fn).float().numpy(), tl.float32)
        if x.dtype.scalar != tl.bfloat16:
            return x
        return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    return wrong_dot(self, upcast(a), upcast(b), acc, *options)


InterpreterBuilder.create_dot = dot


@functools.cache
def table() -> dict:
    return {row.name: row for row in variants()}


def typed(kind: str, value) -> tl.tensor:
    """A scalar or address of exactly the type the compiled kernel takes; plain numbers would be typed by value."""
    ty = tl.str_to_ty(kind, None)
    return tl.tensor(TensorHandle(np.array([value], dtype=NUMBERS.get(kind, np.uint64)), ty), ty)


def scalars(case: Case) -> dict:
    names = {"groups": case.groups, "alpha": case.alpha, "beta": case.beta}
    packed = {"ragged": RAGGED.index(case.ragged), "zero_tail": int(case.zero and case.ragged in "mn")}
    return {**names, **packed, "activation": ACTIVATIONS.index(case.activation), "offs_wide": int(case.wide)}


def single_arguments(p: Problem) -> dict:
    """Run-time arguments of the kernels with one A, B, C and D."""
    found = {**scalars(p.case), "M": p.m, "N": p.n, "K": p.k}
    for letter, logical in (("a", p.a[0]), ("b", p.b[0]), ("c", p.c and p.c[0]), ("d", p.d[0]), ("bias", p.bias)):
        x = logical[0] if letter == "bias" and logical else logical
        batched = x is not None and x.dim() == (2 if letter == "bias" else 3)
        found[f"{letter}_ptr"] = x.data_ptr() if x is not None else 0
        found[f"batch_stride_{letter}"] = x.stride(0) if batched else 0
        # A transposed view has its leading dimension last.
        flipped = {"a": p.case.trans_a, "b": p.case.trans_b}.get(letter, False)
        found[f"ld{letter}"] = x.stride(-1 if flipped else -2) if x is not None and letter != "bias" else 0
    for name in ("a_scale", "b_scale"):
        x = p.scales.get(name)
        found[name] = x.data_ptr() if x is not None else 0
        own = x is not None and p.each_scaled(name) and (p.case.packed or p.case.scaling != "tensor")
        found[f"batch_stride_{name}"] = x.stride(0) if own else 0
    of_blocks = ("a_scale_stride_m", "a_scale_stride_k", "b_scale_stride_k", "b_scale_stride_n")
    strides = [stride for x in p.scales.values() for stride in x.stride()[-2:]] if p.by_blocks else [0] * 4
    found |= zip(of_blocks, strides, strict=True)
    found["scaling"] = SCALINGS.index(p.case.scaling)
    for name in ("d_scale", "d_amax"):
        x = getattr(p, name)
        found[name] = x.data_ptr() if x is not None else 0
    found |= {f"{x}_type": OPERAND_TYPES.get(p.case.type_of(x), 0) for x in "ab"}
    found["offs_ptr"] = p.ends.data_ptr() if p.ends is not None else 0
    return found


def table_arguments(p: Problem) -> dict:
    """Run-time arguments of the kernel over arrays of pointers."""
    found = {**scalars(p.case), "a_ptr": 0, "d_ptr": 0}
    pointers = {name: tensor.data_ptr() for name, tensor in p.tables.items()}
    for letter in "abcd":
        found[f"{letter}_ptrs"] = pointers.get(letter, 0)
        found[f"group_ld{letter}"] = pointers.get(f"ld{letter}", 0)
    return {**found, "bias_ptrs": pointers.get("bias", 0), **{f"group_{x}": pointers[x] for x in "mnk"}}


def descriptor(row, name: str, p: Problem) -> TensorDescriptor:
    """A descriptor as the C side encodes it, of the matrix as stored; for a C that is absent it is D's."""
    logical = {"a": p.a, "b": p.b, "c": p.c or p.d, "d": p.d}[name[0]][0]
    flipped = {"a": p.case.trans_a, "b": p.case.trans_b}.get(name[0], False)
    return TensorDescriptor.from_tensor(logical.mT if flipped else logical, list(row.box(name)[1:]))


def without_waits(name: str):
    """A module of kernels whose waits for other kernels are left out: the interpreter has no other."""
    module = importlib.import_module(f"kernels.device.{name}")
    for waiting in (module, overlap):
        if hasattr(waiting, "gdc_wait"):
            waiting.gdc_wait = waiting.gdc_launch_dependents = lambda: None
    return module


def launch(row, p: Problem, programs: int, changed: dict, told: dict) -> None:
    """The kernel of a table's row on this problem; `changed` replaces some of the row's compile-time arguments, `told`
    some of its run-time ones."""
    name, function = row.kernel.rsplit(".", 1)
    kernel = getattr(without_waits(name), function)
    constants = row.constexprs() | changed
    values = (table_arguments(p) if p.case.pointers else single_arguments(p)) | told
    if row.problem.op == "gemm" and not row.config.persistent:
        tiles_m, tiles_n = -(-p.case.m // constants["BLOCK_M"]), -(-p.case.n // constants["BLOCK_N"])
        programs = tiles_m * tiles_n * (p.case.batch if p.case.batch >= 0 else 1)
    arguments = {}
    for name in (name for name in kernel.arg_names if name not in constants):
        is_descriptor = ARGUMENTS[name] == "desc"
        arguments[name] = descriptor(row, name, p) if is_descriptor else typed(row.argument_type(name), values[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy warns of Inf and NaN, which are what is tested
        kernel[(programs,)](**arguments, **{n: v for n, v in constants.items() if n in kernel.arg_names})


def prepare(job: dict) -> Problem:
    """Operands of a job, with what cannot be said by a case: special values, negative sizes, ends that lie."""
    p = Problem(Case(**job["case"]), "cpu")
    if "bias" in job:
        p.bias[0][:] = torch.tensor(job["bias"], dtype=torch.float64).to(p.bias[0].dtype)
        p.bias_arena.freeze()
    if "ends" in job:
        p.tell(job["ends"])
    if "fault" in job:  # ends that the reference does not know
        p.ends[:] = torch.tensor(job["fault"], dtype=p.ends.dtype)
    for name, values in job.get("zeros", {}).items():  # what the table says in place of a size of 0
        zero = (p.tables[name] == 0).nonzero().flatten()
        p.tables[name][zero] = torch.tensor(values).repeat(len(zero))[: len(zero)]
    return p


def not_vanishing(p: Problem) -> list[str]:
    """Far out on the left gelu and silu are smaller than any normal number; their bound, absolute, would allow more."""
    want, _ = reference.expected(p.a[0], p.b[0], None, p.bias[0], alpha=0.0, activation=p.case.activation)
    large = (want.abs() < VANISHING) & (p.d[0].double().abs() > VANISHING)
    return [f"{p.case.activation} of {p.bias[0][large[0]].tolist()} does not vanish"] if bool(large.any()) else []


def run(job: dict) -> list[str]:
    """What is wrong with one job. With several numbers of programs, all must give the same bits."""
    row = table()[job["row"]]
    if job.get("small", True):
        row = dataclasses.replace(row, config=dataclasses.replace(row.config, **SMALL))
    problems, outputs = [], []
    for programs in job.get("programs", [3]):
        p = prepare(job)
        launch(row, p, programs, job.get("changed", {}), job.get("told", {}))
        problems += mismatches(p, p.d) + amax_problems(p) + tail_problems(p, p.d)
        problems += not_vanishing(p) if "bias" in job else []
        for arena in (*p.inputs, *p.outputs):
            problems += arena.problems()
        outputs.append(p.d_arena.flat.view(INTS[p.d_arena.bytes]).numpy().tobytes())
    if len(set(outputs)) > 1:
        problems.append(f"results differ between {job['programs']} programs")
    return problems


def place(job: dict) -> list[str]:
    """rasterise must send the linear indices to every tile once, and stay in a band of GROUP_M rows of tiles."""
    problems = []
    for tiles_m, tiles_n, group_m in job["shapes"]:
        count = tiles_m * tiles_n
        size = 1 << (count - 1).bit_length()  # blocks are powers of two; the rest repeats the last index
        index = np.minimum(np.arange(size, dtype=np.int64), count - 1)
        index = tl.tensor(TensorHandle(index, tl.int64), tl.block_type(tl.int64, [size]))
        found = tiles.rasterise(index, typed("i32", tiles_m), typed("i32", tiles_n), tl.constexpr(group_m))
        rows, cols = (x.handle.data.tolist()[:count] for x in found)
        if sorted(zip(rows, cols, strict=True)) != [(m, n) for m in range(tiles_m) for n in range(tiles_n)]:
            problems.append(f"not each tile of {tiles_m} x {tiles_n} once, {group_m} rows at a time")
        if [m // group_m for m in rows] != sorted(m // group_m for m in range(tiles_m) for _ in range(tiles_n)):
            problems.append(f"tiles of {tiles_m} x {tiles_n} leave their band of {group_m} rows")
    return problems


SENTINEL = {2: 0x7FC1, 4: 0x7FC00001}  # a NaN: of bf16, and of float32


def stored(job: dict, letter: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Memory of random bits with a stored matrix in it, and that matrix; around it are NaN."""
    rows, cols, ld, lead = job[letter]
    memory = np.full(lead + rows * ld + 64, SENTINEL[np.dtype(kind).itemsize], dtype=kind)
    matrix = np.lib.stride_tricks.as_strided(memory[lead:], (rows, cols), (ld * memory.itemsize, memory.itemsize))
    matrix[:] = np.random.default_rng(rows * 1000 + cols).integers(1, 0x7F00, (rows, cols))  # finite in either type
    return memory, matrix


def copied(job: dict, letter: str, matrix: np.ndarray, row) -> tuple[np.ndarray, int]:
    """What the copy's place in the workspace must hold afterwards, and the copy's leading dimension."""
    rows, cols = matrix.shape
    matrix = matrix.T if job["turn"][letter] else matrix
    step = 128 // matrix.itemsize
    ld = -(-matrix.shape[1] // step) * step
    want = np.full((matrix.shape[0], ld), SENTINEL[matrix.itemsize], dtype=matrix.dtype)
    block = row.config.block_m if job["turn"][letter] else row.config.block_n
    want[:, : -(-matrix.shape[1] // block) * block] = 0
    want[:, : matrix.shape[1]] = matrix
    return (want if rows and cols else want[:0]).ravel(), ld


def align(job: dict) -> list[str]:
    """portable/align.py, its two waits left out: the copies, bit by bit, and all the memory around them."""
    rows = [r for r in table().values() if r.problem.op == "align" and r.problem.a == job["type"]]
    row = next(r for r in rows if r.guard == tuple(job.get("guard", ())) and
               (r.config.block_m == r.config.block_n) == job.get("square", False))  # fmt: skip
    module = without_waits("portable.align")
    kind = {"bf16": "uint16", "f32": "uint32"}[job["type"]]
    sources = {letter: stored(job, letter, kind) for letter in "ab"}
    wanted = {letter: copied(job, letter, matrix, row) for letter, (_, matrix) in sources.items()}
    band = np.full(64, SENTINEL[np.dtype(kind).itemsize], dtype=kind)
    want = np.concatenate([band, wanted["a"][0], wanted["b"][0], band])
    workspace = np.full_like(want, band[0])
    before = {letter: memory.copy() for letter, (memory, _) in sources.items()}
    at = workspace.ctypes.data + band.nbytes
    values = {"a_copy": at, "b_copy": at + wanted["a"][0].nbytes}
    blocks = 0
    for letter, (memory, _) in sources.items():
        rows, cols, ld, lead = job[letter]
        values |= {f"{letter}_ptr": memory.ctypes.data + lead * memory.itemsize, f"ld{letter}": ld}
        values |= {f"{letter}_rows": rows, f"{letter}_cols": cols, f"{letter}_transpose": int(job["turn"][letter])}
        values[f"copy_ld{letter}"] = wanted[letter][1]
        blocks += -(-rows // row.config.block_m) * -(-cols // row.config.block_n)
    known = row.constexprs()
    tile = {name: known[name] for name in module.align.arg_names if name in known}
    names = [name for name in module.align.arg_names if name not in tile]
    arguments = {name: typed(row.argument_type(name), (values | job.get("changed", {}))[name]) for name in names}
    module.align[(blocks,)](**arguments, **tile)
    problems = [f"{letter} was written" for letter in "ab" if (before[letter] != sources[letter][0]).any()]
    wrong = np.flatnonzero(workspace != want)
    return problems + ([f"{len(wrong)} elements of the workspace differ, the first {wrong[0]}"] if len(wrong) else [])


def shared_tile(index: int, rank: int, tiles: tuple, cluster: tuple, swap: bool, group: int) -> tuple[int, int]:
    """Which tile of A and of B block `rank` of a cluster has, where it and its cluster are number `index`."""
    left, right = reversed(tiles) if swap else tiles
    rows, columns = -(-left // cluster[0]), -(-right // cluster[1])
    first = index // (group * columns) * group
    height, inside = min(rows - first, group), index % (group * columns)
    row = (first + inside % height) * cluster[0] + rank % cluster[0]
    column = inside // height * cluster[1] + rank // cluster[0]
    return (column, row) if swap else (row, column)


def parts_of_tiles(p: Problem, stream: dict, group: int) -> tuple[np.ndarray, dict]:
    """What sm90/gemm_stream.py says it leaves, NaN wherever it says nothing; and what the next kernel is told of it."""
    a, b = p.a[0].double().numpy(), p.b[0].double().numpy()
    (m, n), depth, cluster, swap = stream["tile"], stream["k"], stream["cluster"], stream["swap"]
    tiles, steps = (-(-p.m // m), -(-p.n // n)), -(-p.k // depth)
    left, right = reversed(tiles) if swap else tiles
    units, blocks = -(-left // cluster[0]) * -(-right // cluster[1]), cluster[0] * cluster[1]
    each = -(-units * steps // stream["runs"])
    parts = np.full(((stream["runs"] + units) * blocks + 64, m, n), np.nan, dtype=np.float32)
    for run in range(stream["runs"]):
        begin, end = min(run * each, units * steps), min((run + 1) * each, units * steps)
        for index in range(begin // steps, -(-end // steps) if end > begin else begin // steps):
            ks = slice((max(begin - index * steps, 0)) * depth, min(end - index * steps, steps) * depth)
            for rank in range(blocks):
                row, column = shared_tile(index, rank, tiles, cluster, swap, group)
                part = a[row * m : (row + 1) * m, ks] @ b[ks, column * n : (column + 1) * n]
                parts[(run + index) * blocks + rank, : part.shape[0], : part.shape[1]] = part
    names = ("steps", "m", "n", "k", "swap", "below", "across")
    told = dict(zip((f"stream_{x}" for x in names), (each, m, n, depth, int(swap), *cluster), strict=True))
    return parts, {"partials": parts.ctypes.data, **told, "units": units * blocks}


def add_up(job: dict) -> list[str]:
    """portable/gemm_sum.py, behind a kernel that did what it should."""
    p, stream = prepare(job), job["stream"]
    row = next(r for r in table().values() if (r.problem.op, r.problem.a) == ("gemm_sum", p.case.a_type))
    changed = {"BLOCK_M": 16, "BLOCK_N": 32}
    parts, values = parts_of_tiles(p, stream, row.config.group_m)
    before = parts.copy()
    each = -(-stream["tile"][0] // changed["BLOCK_M"]) * -(-stream["tile"][1] // changed["BLOCK_N"])
    launch(row, p, values.pop("units") * each, changed, values | job.get("told", {}))
    problems = mismatches(p, p.d)
    for arena in (*p.inputs, p.d_arena):
        problems += arena.problems()
    return problems + (["the parts were written"] if before.tobytes() != parts.tobytes() else [])


def attempt(job: dict) -> list[str]:
    try:
        kinds = {"turn": align, "shapes": place, "stream": add_up}
        return next((does for name, does in kinds.items() if name in job), run)(job)
    except Exception as error:  # one job's crash is its result
        return [f"{type(error).__name__}: {error}"]


if __name__ == "__main__":
    for job in json.load(sys.stdin):
        print(json.dumps([job["id"], attempt(job)]), flush=True)
