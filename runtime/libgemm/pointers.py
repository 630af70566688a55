"""Grouped GEMM over arrays of pointers: from sequences of arrays, or from tables that are on the device already."""

from libgemm._framework import dtype_name, stream_handle
from libgemm._library import check, ffi, invalid, lib
from libgemm._matrix import matrix, row_major, stored, vector
from libgemm._tensor import View, view
from libgemm.ops import expect, need_c, new_args, output, run, same_type


def views(arrays, name: str, stream: int, count: int | None = None) -> list[View]:
    found = [view(item, f"{name}[{g}]", stream) for g, item in enumerate(arrays)]
    if count is not None and len(found) != count:
        raise invalid(f"{name} has {len(found)} matrices: {count} are needed, as many as a")
    return found


def common_way(items: list[View], name: str) -> int:
    """The one storage order (0 plain, 1 transposed) that every group's matrix has."""
    for trans in (0, 1):
        ways = [len(v.shape) == 2 and stored(*v.shape, *v.strides, prefer=trans) for v in items]
        if all(way and way[0] == trans for way in ways):
            return trans
    raise invalid(f"{name}: all groups must be 2-D and stored the same way, row-major or all transposed")


def fill(args, alive: list, **tables) -> None:
    """Point the struct's host tables at new C arrays of these values."""
    for name, values in tables.items():
        is_size = name in ("m", "n", "k") or name.startswith("ld")
        array = ffi.new("int64_t[]" if is_size else "uint64_t[]", list(values))
        alive.append(array)
        setattr(args, name, array if is_size else ffi.cast("void **", array))


def grouped_gemm(
    a, b, c=None, *, alpha=1.0, beta=0.0, bias=None, activation=None, precision=None, out=None, out_dtype=None,
    variant=None, stream=None,
):  # fmt: skip
    """[act(alpha * a[g] @ b[g] + beta * c[g] + bias[g]) for every group g], in one launch.

    a, b: sequences of matrices, a[g] [M_g,K_g], b[g] [K_g,N_g], of one dtype; all of a stored one way (row-major or
    transposed), and all of b. c, out, bias: sequences too, as in gemm(); bias[g] [N_g]. The tables of pointers and
    sizes are copied to the device, in order with the stream. Where addresses, strides and sizes of all groups are
    multiples of 16 bytes, faster kernels may run. Returns the list of outputs.
    """
    if len(a) == 0:
        return [] if out is None else out
    handle = stream_handle(stream, a[0])
    a_views, b_views = views(a, "a", handle), views(b, "b", handle, len(a))
    dtype = a_views[0].dtype
    for g, item in enumerate((*a_views, *b_views)):
        same_type(dtype, **{f"matrix {g % len(a)} of {'ab'[g // len(a)]}": item})
    trans_a, trans_b = common_way(a_views, "a"), common_way(b_views, "b")
    left = [matrix(v, f"a[{g}]", trans_a, batched=False) for g, v in enumerate(a_views)]
    right = [matrix(v, f"b[{g}]", trans_b, batched=False) for g, v in enumerate(b_views)]
    for g, (x, y) in enumerate(zip(left, right, strict=True)):
        if x.cols != y.rows:
            raise invalid(f"a[{g}] is {x.rows} x {x.cols}, b[{g}] is {y.rows} x {y.cols}: columns and rows must agree")
    shapes = [(x.rows, y.cols) for x, y in zip(left, right, strict=True)]
    if out is not None and len(out) != len(a):
        raise invalid(f"out has {len(out)} matrices: {len(a)} are needed, as many as a")
    need_c(beta, c, out)
    made = [output(out and out[g], out_dtype, shapes[g], a[g], dtype) for g in range(len(a))]
    out, d_type = [item for item, _ in made], made[0][1]
    d_views = views(out, "out", handle)
    c_views = [] if beta == 0 else d_views if c is None else views(c, "c", handle, len(a))
    bias_views = [] if bias is None else views(bias, "bias", handle, len(a))
    for g, item in enumerate((*d_views, *c_views, *bias_views)):
        same_type(d_type, **{f"matrix {g % len(a)} of out, c or bias": item})
    args, alive = new_args(
        "grouped_gemm", dtype, d_type, alpha=alpha, beta=beta, activation=activation, precision=precision,
        variant=variant, stream=handle,
    )  # fmt: skip
    args.groups, args.host_tables, args.trans_a, args.trans_b = len(a), 1, trans_a, trans_b
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
    run("grouped_gemm", args, a[0], handle, needed="device tables (grouped_gemm_tables)")
    del alive
    return out


def grouped_gemm_tables(
    *, a, b, d, m, n, k, lda, ldb, ldd, dtype, out_dtype=None, trans_a=False, trans_b=False, c=None, ldc=None,
    bias=None, alpha=1.0, beta=0.0, activation=None, precision=None, aligned=False, expected=None, variant=None,
    stream=None,
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
    grouped_gemm() sees this too.
    """
    handle = stream_handle(stream, d)
    dtype = dtype_name(dtype)
    args, alive = new_args(
        "grouped_gemm", dtype, dtype if out_dtype is None else dtype_name(out_dtype), alpha=alpha, beta=beta,
        activation=activation, precision=precision, variant=variant, stream=handle,
    )  # fmt: skip
    pointers = {"a": a, "b": b, "c": c, "d": d, "bias": bias}
    tables = {**pointers, "m": m, "n": n, "k": k, "lda": lda, "ldb": ldb, "ldc": ldc, "ldd": ldd}
    args.groups = groups = view(d, "d", handle).shape[0]
    args.trans_a, args.trans_b, args.aligned = bool(trans_a), bool(trans_b), bool(aligned)
    expect(args, expected)
    for name, table in tables.items():
        if table is None:
            continue
        item = view(table, name, handle)
        same_type("i64", **{name: item})
        kind = "void **" if name in pointers else "int64_t *"
        setattr(args, name, ffi.cast(kind, vector(item, name, groups)))
    if expected is None and variant is None:  # kernels for small groups take no workspace
        check(lib.libgemm_grouped_gemm(args))
    else:
        run("grouped_gemm", args, d, handle)
    del alive
