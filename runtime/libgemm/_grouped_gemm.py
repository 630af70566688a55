"""Grouped GEMM over arrays of pointers: from sequences of arrays, or from tables that are on the device already."""

from collections.abc import Iterable
from typing import Any, TypeVar

from libgemm._args import Activation, Precision, expect, need_c, new_args, output, real, run, same_type
from libgemm._framework import LaunchStream, dtype_name, out_name, written
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import matrix, row_major, stored, vector
from libgemm._tensor import View, view

T = TypeVar("T")


def listed(arrays: Any, name: str, count: int | None = None) -> list[Any]:
    """The arrays of a sequence, or of one array along its first dimension; `count` of them."""
    try:
        found = list(arrays)
    except TypeError:
        raise invalid(
            f"{name} is a {type(arrays).__module__}.{type(arrays).__qualname__}: a sequence of matrices is needed, one "
            "for each group"
        ) from None
    if count is not None and len(found) != count:
        raise invalid(f"{name} has {len(found)} matrices: {count} are needed, as many as a")
    return found


def views(arrays: list[Any], name: str, launch: LaunchStream) -> list[View]:
    return [view(item, f"{name}[{g}]", launch) for g, item in enumerate(arrays)]


def is_stored(view: View, trans: int) -> bool:
    """Whether a 2-D view can be read as a matrix stored this way."""
    way = stored(view.shape[0], view.shape[1], view.strides[0], view.strides[1], prefer=trans)
    return way is not None and way[0] == trans


def common_way(items: list[View], name: str) -> int:
    """The one storage order (0 plain, 1 transposed) that every group's matrix has."""
    for trans in (0, 1):
        if all(len(v.shape) == 2 and is_stored(v, trans) for v in items):
            return trans
    raise invalid(
        f"{name}: all groups must be 2-D and stored the same way, row-major or all transposed; given are shapes "
        f"{', '.join(sorted({str(v.shape) for v in items})[:4])}"
    )


def fill(args: Any, alive: list[Any], **tables: Iterable[int]) -> None:
    """Point the struct's host tables at new C arrays of these values."""
    for name, values in tables.items():
        is_size = name in ("m", "n", "k") or name.startswith("ld")
        array = ffi.new("int64_t[]" if is_size else "uint64_t[]", list(values))
        alive.append(array)
        setattr(args, name, array if is_size else ffi.cast("void **", array))


def grouped_gemm(
    a: Iterable[T], b: Iterable[Any], c: Iterable[Any] | None = None, *, alpha: float = 1.0, beta: float = 0.0,
    bias: Iterable[Any] | None = None, activation: Activation | None = None, precision: Precision | None = None,
    out: Iterable[T] | None = None, out_dtype: Any = None, variant: str | None = None, stream: Any = None,
) -> list[T]:  # fmt: skip
    """[act(alpha * a[g] @ b[g] + beta * c[g] + bias[g]) for every group g], in one launch.

    a, b: sequences of matrices, a[g] [M_g,K_g], b[g] [K_g,N_g], of one dtype; all of a stored one way (row-major or
    transposed), and all of b. c, out, bias: sequences too, as in gemm(); bias[g] [N_g]. An array of three dimensions is
    a sequence along its first. The tables of pointers and sizes are copied to the device, in order with the stream.
    Where addresses, strides and sizes of all groups are multiples of 16 bytes, faster kernels may run. Returns the list
    of outputs. Refused while the stream is captured: grouped_gemm_tables() is not. Streams, memory, autograd and errors
    as in gemm().
    """
    a = listed(a, "a")
    count = len(a)
    b = listed(b, "b", count)
    c = None if c is None or real(beta, "beta") == 0 else listed(c, "c", count)
    bias = None if bias is None else listed(bias, "bias", count)
    given = None if out is None else listed(out, "out", count)
    if count == 0:
        return []
    launch = LaunchStream(stream, a[0])
    a_views, b_views = views(a, "a", launch), views(b, "b", launch)
    dtype = a_views[0].dtype
    for g, item in enumerate((*a_views, *b_views)):
        same_type(dtype, **{f"matrix {g % count} of {'ab'[g // count]}": item})
    trans_a, trans_b = common_way(a_views, "a"), common_way(b_views, "b")
    left = [matrix(v, f"a[{g}]", trans_a, batched=False) for g, v in enumerate(a_views)]
    right = [matrix(v, f"b[{g}]", trans_b, batched=False) for g, v in enumerate(b_views)]
    for g, (x, y) in enumerate(zip(left, right, strict=True)):
        if x.cols != y.rows:
            raise invalid(f"a[{g}] is {x.rows} x {x.cols}, b[{g}] is {y.rows} x {y.cols}: columns and rows must agree")
    shapes = [(x.rows, y.cols) for x, y in zip(left, right, strict=True)]
    need_c(beta, c, given)
    made = [output(given and given[g], out_dtype, shapes[g], a[g], dtype, launch, f"out[{g}]") for g in range(count)]
    outs, d_views = [item for item, _ in made], [item for _, item in made]
    d_type = d_views[0].dtype
    c_views = [] if beta == 0 else d_views if c is None else views(c, "c", launch)
    bias_views = [] if bias is None else views(bias, "bias", launch)
    for g, item in enumerate((*d_views, *c_views, *bias_views)):
        same_type(d_type, **{f"matrix {g % count} of out, c or bias": item})
    args, alive = new_args(
        "grouped_gemm", dtype, d_type, alpha=alpha, beta=beta, activation=activation, precision=precision,
        variant=variant, stream=launch.handle,
    )  # fmt: skip
    args.groups, args.host_tables, args.trans_a, args.trans_b = count, 1, trans_a, trans_b
    d = [row_major(v, f"out[{g}]", shapes[g], batched=False) for g, v in enumerate(d_views)]
    fill(
        args, alive, a=[x.pointer for x in left], b=[y.pointer for y in right], d=[z.pointer for z in d],
        m=[x.rows for x in left], n=[y.cols for y in right], k=[x.cols for x in left],
        lda=[x.ld for x in left], ldb=[y.ld for y in right], ldd=[z.ld for z in d],
    )  # fmt: skip
    if c_views:
        c_matrices = [row_major(v, f"c[{g}]", shapes[g], batched=False) for g, v in enumerate(c_views)]
        fill(args, alive, c=[z.pointer for z in c_matrices], ldc=[z.ld for z in c_matrices])
    if bias_views:
        fill(args, alive, bias=[vector(v, f"bias[{g}]", shapes[g][1]) for g, v in enumerate(bias_views)])
    run("grouped_gemm", args, a[0], launch, needed="device tables (grouped_gemm_tables)")
    written(outs)
    del alive
    return outs


def grouped_gemm_tables(
    *, a: Any, b: Any, d: Any, m: Any, n: Any, k: Any, lda: Any, ldb: Any, ldd: Any, dtype: Any, out_dtype: Any = None,
    trans_a: bool = False, trans_b: bool = False, c: Any = None, ldc: Any = None, bias: Any = None, alpha: float = 1.0,
    beta: float = 0.0, activation: Activation | None = None, precision: Precision | None = None, aligned: bool = False,
    expected: tuple[int, int, int] | None = None, variant: str | None = None, stream: Any = None,
) -> None:  # fmt: skip
    """grouped_gemm with tables on the device: nothing is copied and nothing waits, so it can be captured in a graph.

    a, b, c, d, bias: 1-D int64 arrays of G device addresses. m, n, k, lda, ldb, ldc, ldd: 1-D int64 arrays of G
    sizes and leading dimensions (elements). trans_a: matrices of a are stored [K,M]; trans_b: those of b [N,K]. All
    are read when the kernel runs; addresses cannot be checked.

    aligned: your word that in every group the addresses in a, b, c and d are multiples of 16 bytes, and n, k, the
    leading dimensions and, with trans_a, m are multiples of 8 (float32 inputs: 4). Then faster kernels may run. It
    cannot be checked either: said falsely, numbers are wrong or the kernel faults. Groups with m or n of 0, and what is
    not read, do not count (libgemm.h). grouped_gemm() sees it by itself.

    expected: (m, n, k) that groups have on average, as far as the host knows; with None they are taken to be small.
    Large ones then run in large tiles, with a workspace of d's framework. For speed alone: results are right with any.
    grouped_gemm() sees this too. The matrices that tables point to are the caller's to order with the stream, and to
    keep; streams, memory of the tables and errors else as in gemm().
    """
    launch = LaunchStream(stream, d)
    dtype = dtype_name(dtype)
    args, alive = new_args(
        "grouped_gemm", dtype, out_name(out_dtype, dtype), alpha=alpha, beta=beta,
        activation=activation, precision=precision, variant=variant, stream=launch.handle,
    )  # fmt: skip
    pointers = {"a": a, "b": b, "c": c, "d": d, "bias": bias}
    tables = {**pointers, "m": m, "n": n, "k": k, "lda": lda, "ldb": ldb, "ldc": ldc, "ldd": ldd}
    d_view = view(d, "d", launch)
    if len(d_view.shape) != 1:
        raise invalid(f"d has shape {d_view.shape}: 1 dimension, a table with an address for each group, is needed")
    args.groups = groups = d_view.shape[0]
    args.trans_a, args.trans_b, args.aligned = bool(trans_a), bool(trans_b), bool(aligned)
    expect(args, expected)
    for name, table in tables.items():
        if table is None:
            continue
        item = d_view if name == "d" else view(table, name, launch)
        alive.append(item)
        same_type("i64", **{name: item})
        kind = "void **" if name in pointers else "int64_t *"
        setattr(args, name, ffi.cast(kind, vector(item, name, groups)))
    if expected is None and variant is None:  # kernels for small groups take no workspace
        check(lib.libgemm_grouped_gemm(args))
    else:
        run("grouped_gemm", args, d, launch)
    del alive
