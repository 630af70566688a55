"""What the library is and would do: variants, targets, manifest, choices. Needs no GPU but where it says so."""

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from libgemm._args import (
    DTYPES,
    SCALINGS,
    Activation,
    Precision,
    Scaling,
    expect,
    integer,
    new_args,
    pick,
    pointer,
)
from libgemm._framework import dtype_name, out_name
from libgemm._library import LIBRARY, Error, check, ffi, get_struct, lib, recorded, text

PRECISION_NAMES = ("exact", "tf32", "tf32x3", "ieee", "fast")
DTYPE_NAMES = {value: name for name, value in DTYPES.items()}


@dataclass(frozen=True)
class Variant:
    """One compiled kernel. Sizes of tiles are in elements, registers per thread, bytes per block."""

    index: int
    name: str
    op: str
    target: int  # compute capability * 10
    a_type: str
    d_type: str
    precision: str
    trans_a: bool
    trans_b: bool
    block_m: int
    block_n: int
    block_k: int
    warps: int
    ctas: int
    registers: int
    shared_bytes: int
    local_bytes: int
    cubin_bytes: int
    align16: bool  # operands must be 16-byte aligned
    linear: bool  # takes no activation
    single: bool  # A and B must be read; one of op gemm serves one product
    sha256: str
    architecture: str  # "sm_90a" runs on 9.0 alone, "sm_80" and "sm_100f" also on later minor revisions
    family: str  # "coop", "grouped_mm_swap": its kind of kernel, a record of manifest()["families"]
    chunk: int  # cubins of one number are packed together: to read many is faster in the order of chunks


@dataclass(frozen=True)
class Choice:
    """What a call would run, and why."""

    variant: Variant | None  # None: nothing needs to run (an empty problem)
    reason: str  # a sentence: how it was chosen, and what would have been faster
    expected_us: float  # microseconds on the device, for one call among many: what the choice was made by
    covered: bool  # whether that rests on measurements of this variant; else on a rough model


class TargetInfo(TypedDict):
    variants: int
    min_cuda: int  # least cuDriverGetVersion, such as 12000
    min_driver: str  # the same as a driver release, such as "525"
    portable: bool  # later minor revisions of the same major one run its code too


class Info(TypedDict):
    version: str
    abi: int
    build_id: str
    variants: int
    targets: dict[int, TargetInfo]  # by compute capability * 10


@functools.cache
def variant_at(index: int) -> Variant:
    """A record that cannot change, so that the list of all is made once."""
    s = get_struct("libgemm_variant_info", index, lib.libgemm_variant_get)
    plain: dict[str, Any] = {f: getattr(s, f) for f in Variant.__dataclass_fields__ if f != "index"}
    plain.update({f: text(plain[f]) for f in ("name", "op", "sha256", "architecture", "family")})
    plain.update({f: bool(plain[f]) for f in ("trans_a", "trans_b", "align16", "linear", "single")})
    plain.update(a_type=DTYPE_NAMES[s.a_type], d_type=DTYPE_NAMES[s.d_type], precision=PRECISION_NAMES[s.precision])
    return Variant(index=index, **plain)


def variants() -> list[Variant]:
    """Every variant in the library, for all targets."""
    return [variant_at(i) for i in range(lib.libgemm_variant_count())]


def manifest() -> dict[str, Any]:
    """The library's own record: schema, build id, toolchain, targets, variants."""
    document = text(lib.libgemm_manifest(ffi.NULL))
    if not document:
        words = "the manifest is damaged in this library file: install it again"
        raise Error(lib.LIBGEMM_UNSUPPORTED, "LIBGEMM_UNSUPPORTED", words)
    found: dict[str, Any] = json.loads(document)
    return found


def info() -> Info:
    """Version, ABI, build id, and for each target its variants and the driver it needs."""
    targets = [get_struct("libgemm_target_info", i, lib.libgemm_target_get) for i in range(lib.libgemm_target_count())]
    return {
        "version": text(lib.libgemm_version()),
        "abi": lib.libgemm_abi(),
        "build_id": text(lib.libgemm_build_id()),
        "variants": lib.libgemm_variant_count(),
        "targets": {
            t.target: {
                "variants": t.variants,
                "min_cuda": t.min_cuda,
                "min_driver": text(t.min_driver),
                "portable": bool(t.portable),
            }
            for t in targets
        },
    }


def cubin(index: int) -> bytes:
    """The machine code of variant `index`."""
    size = variant_at(integer(index, "index", 32)).cubin_bytes
    buffer = ffi.new("char[]", size)
    check(lib.libgemm_variant_cubin(index, buffer, size))
    return bytes(ffi.buffer(buffer))


def verify() -> list[str]:
    """Names of variants whose bytes are not those that were built (their sha256 differs), and "libgemm.so" where the
    whole file is not, as far as the build wrote that down; [] is a sound library."""
    sound = {v.index: is_sound(v) for v in sorted(variants(), key=lambda v: v.chunk)}
    damaged = [v.name for v in variants() if not sound[v.index]]
    wanted = recorded().get("sha256")
    if wanted and hashlib.sha256(LIBRARY.read_bytes()).hexdigest() != wanted:
        damaged.append(LIBRARY.name)
    return damaged


def is_sound(variant: Variant) -> bool:
    try:
        return hashlib.sha256(cubin(variant.index)).hexdigest() == variant.sha256
    except Error:  # it does not even unpack
        return False


def preload(device: int = 0) -> None:
    """Load every kernel of GPU number `device` now: needed before the first use inside CUDA graph capture. Needs the
    GPU. Raises Error."""
    check(lib.libgemm_preload(integer(device, "device", 32)))


Layout = Literal["nn", "nt", "tn", "tt"]
Ragged = Literal["m", "n", "k", "none"]
LAYOUTS = {"nn": (0, 0), "nt": (0, 1), "tn": (1, 0), "tt": (1, 1)}
RAGGED = {
    "m": lib.LIBGEMM_RAGGED_M,
    "n": lib.LIBGEMM_RAGGED_N,
    "k": lib.LIBGEMM_RAGGED_K,
    "none": lib.LIBGEMM_RAGGED_NONE,
}


def question(
    kind: str, dtype: Any, out_dtype: Any, layout: str, activation: str | None, precision: str | None,
    scaling: str | None = None, b_dtype: Any = None,
) -> Any:  # fmt: skip
    """A struct of `kind` to ask with, as if all the workspace that could help were given."""
    name = dtype_name(dtype)
    args, _ = new_args(
        kind, name, out_name(out_dtype, name), None if b_dtype is None else dtype_name(b_dtype, argument="b_dtype"),
        alpha=1.0, beta=0.0, activation=activation, precision=precision, variant=None, stream=0,
    )  # fmt: skip
    args.trans_a, args.trans_b = pick(LAYOUTS, layout, "layout")
    if scaling is not None:
        args.scaling = pick(SCALINGS, scaling, "scaling")
    args.workspace, args.workspace_bytes = pointer(16), 1 << 62
    return args


FARTHEST = 2**63 - 1  # a stride that C takes


def pack(args: Any, m: int, n: int, k: int, aligned: bool) -> None:
    """Sizes, and operands without gaps."""
    m, n, k = integer(m, "m"), integer(n, "n"), integer(k, "k")
    args.m, args.n, args.k = m, n, k
    args.lda, args.ldb, args.ldd = (m if args.trans_a else k), (k if args.trans_b else n), n
    # What no memory holds C refuses by its sizes: strides only have to fit.
    strides = (min(max(size, -FARTHEST), FARTHEST) for size in (m * k, k * n, m * n))
    args.batch_stride_a, args.batch_stride_b, args.batch_stride_d = strides
    args.a = args.b = args.d = pointer(0 if aligned else 2)


def ask(kind: str, args: Any, target: int) -> Choice:
    target = integer(target, "target", 32)
    found = ffi.new("libgemm_choice *", {"size": ffi.sizeof("libgemm_choice")})
    check(getattr(lib, f"libgemm_{kind}_explain")(args, target, found))
    variant = None if found.variant < 0 else variant_at(found.variant)
    return Choice(variant, text(found.reason), found.expected_us, bool(found.covered))


def explain(
    m: int, n: int, k: int, dtype: Any = "bf16", *, out_dtype: Any = None, layout: Layout = "nt", batch: int = 1,
    activation: Activation | None = None, precision: Precision | None = None, aligned: bool = True,
    batch_invariant: bool = False, scaling: Scaling | None = None, target: int = 0, b_dtype: Any = None,
) -> Choice:  # fmt: skip
    """What would run for a dense GEMM with packed operands, in how long, why, and what would be faster.

    dtype, out_dtype: of a and b, and of out; a name ("f16", "bf16", "f32", "e4m3", "e5m2") or a framework's dtype.
    None: a's, of 8-bit ones bf16. b_dtype: of b, where it is of another 8-bit type than a.
    layout: "nn", "nt", "tn" or "tt", the letters for a and b, t for one stored transposed.
    aligned: whether operands start on multiples of 16 bytes.
    scaling: of 8-bit operands, as gemm() takes it.
    target: compute capability * 10 (then no GPU is needed), or 0 for the current GPU.
    Raises Error where the call itself would.
    """
    args = question("gemm", dtype, out_dtype, layout, activation, precision, scaling, b_dtype)
    pack(args, m, n, k, aligned)
    args.batch, args.batch_invariant = integer(batch, "batch"), bool(batch_invariant)
    return ask("gemm", args, target)


def explain_grouped_mm(
    m: int, n: int, k: int, groups: int, dtype: Any = "bf16", *, ragged: Ragged = "m", out_dtype: Any = None,
    layout: Layout = "nt", activation: Activation | None = None, precision: Precision | None = None,
    aligned: bool = True, batch_invariant: bool = False, scaling: Scaling | None = None, target: int = 0,
    b_dtype: Any = None,
) -> Choice:  # fmt: skip
    """The same for grouped_mm() with a matrix for each group where nothing is cut; other arguments as in explain().

    ragged: "m", "n" or "k", what the ends cut, or "none". The size that is cut is that of all groups together, the
    others are those of one group.
    """
    args = question("grouped_mm", dtype, out_dtype, layout, activation, precision, scaling, b_dtype)
    pack(args, m, n, k, aligned)
    args.groups, args.ragged = integer(groups, "groups"), pick(RAGGED, ragged, "ragged")
    args.batch_invariant = bool(batch_invariant)
    return ask("grouped_mm", args, target)


def explain_grouped_gemm(
    groups: int, dtype: Any = "bf16", *, expected: tuple[int, int, int] | None = None, out_dtype: Any = None,
    layout: Layout = "nt", activation: Activation | None = None, precision: Precision | None = None,
    aligned: bool = True, target: int = 0,
) -> Choice:  # fmt: skip
    """The same for grouped_gemm() and grouped_gemm_tables(); other arguments as in explain().

    aligned: whether all groups are, in grouped_gemm_tables()'s sense. expected: as there, the (m, n, k) of a group on
    average; with None the time that is expected is that of groups of one tile.
    """
    args = question("grouped_gemm", dtype, out_dtype, layout, activation, precision)
    args.groups, args.aligned = integer(groups, "groups"), bool(aligned)
    expect(args, expected)
    args.a = args.b = args.d = ffi.cast("void **", 16)  # nobody looks into device tables
    args.m = args.n = args.k = args.lda = args.ldb = args.ldd = ffi.cast("int64_t *", 16)
    return ask("grouped_gemm", args, target)


def covers(
    m: int, n: int, k: int, dtype: Any = "bf16", *, out_dtype: Any = None, layout: Layout = "nt", batch: int = 1,
    activation: Activation | None = None, precision: Precision | None = None, aligned: bool = True,
    batch_invariant: bool = False, scaling: Scaling | None = None, target: int = 0, b_dtype: Any = None,
) -> bool:  # fmt: skip
    """Whether this dense GEMM runs a variant whose speed was measured on such a GPU; arguments as in explain().

    False is no refusal: the call then runs, on a variant chosen by a rough model.
    """
    return explain(
        m, n, k, dtype, out_dtype=out_dtype, layout=layout, batch=batch, activation=activation, precision=precision,
        aligned=aligned, batch_invariant=batch_invariant, scaling=scaling, target=target, b_dtype=b_dtype,
    ).covered  # fmt: skip
