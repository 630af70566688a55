"""Every field of the three argument structs wrong in turn, and what is not complained about. Nothing wrong launches."""

import pytest
from built import TARGET
from calls import GROUPS, HOST, OPS, PLACE, Call, K, M, N, allocate, at, last_error, launches, log, ok, refused
from libgemm._library import ffi, lib
from stand_in import in_stand_in

MAX = 2147483391
HOST_POINTER = "host"  # stands for the address of host memory, known only where the body runs
OTHER_GPU = "other GPU"
DENSE = ("gemm", "grouped_mm")

# (operations, fields, parts of the sentence)
BAD = [
    *[(DENSE, {s: -1}, (f"{s} = -1", f"0 to {MAX}")) for s in "mnk"],
    *[(DENSE, {s: MAX + 1}, (f"{s} = {MAX + 1}", f"0 to {MAX}")) for s in "mnk"],
    *[(DENSE, {s: 2**32 + 8}, (f"{s} = {2**32 + 8}",)) for s in "mnk"],
    (("gemm",), {"batch": -1}, ("batch = -1", "0 or more")),
    (OPS[1:], {"groups": -1}, ("groups = -1", "0 to 65535")),
    (OPS[1:], {"groups": 65536}, ("groups = 65536", "0 to 65535")),
    *[(OPS, {"a_type": v}, (f"a_type = {v}", "LIBGEMM_F16 (1)", "LIBGEMM_F32 (3)")) for v in (0, 6, -1)],
    *[(OPS, {"d_type": v}, (f"d_type = {v}", "bf16", "LIBGEMM_F32 (3)")) for v in (0, 1, 4, -1)],
    (OPS, {"a_type": 3, "d_type": 2, "precision": 3}, ("d_type = 2",)),
    (OPS, {"a_type": 3, "d_type": 3}, ("precision = 0", "LIBGEMM_TF32 (1)", "no default")),
    *[(OPS, {"a_type": 3, "d_type": 3, "precision": v}, (f"precision = {v}", "LIBGEMM_IEEE (3)")) for v in (-1, 4)],
    *[(OPS, {"precision": v}, (f"precision = {v}", "bf16", "LIBGEMM_EXACT (0)")) for v in (-1, 1, 3, 4)],
    *[(OPS, {f: v}, (f"{f} = {v}", "0 to 1")) for f in ("trans_a", "trans_b") for v in (-1, 2)],
    *[(OPS, {"b_type": v}, (f"b_type = {v}", "a_type itself (2)")) for v in (-1, 6)],
    *[(OPS, {"scaling": v}, (f"scaling = {v}", "0 to 5")) for v in (-1, 6)],
    *[(OPS, {x: "d"}, (f"{x} = 0x", "scaling = 0", "NULL")) for x in ("a_scale", "b_scale")],
    *[(OPS, {"activation": v}, (f"activation = {v}", "0 to 3")) for v in (-1, 4)],
    (DENSE, {"lda": K - 1}, (f"lda = {K - 1}", f"k = {K}")),
    (DENSE, {"lda": M - 1, "trans_a": 1}, (f"lda = {M - 1}", f"m = {M}")),
    (DENSE, {"ldb": N - 1}, (f"ldb = {N - 1}", f"n = {N}")),
    (DENSE, {"ldb": K - 1, "trans_b": 1}, (f"ldb = {K - 1}", f"k = {K}")),
    (DENSE, {"ldc": N - 1, "beta": 1.0}, (f"ldc = {N - 1}", f"n = {N}")),
    (DENSE, {"ldd": N - 1}, (f"ldd = {N - 1}", f"n = {N}")),
    *[(DENSE, {f"ld{x}": v, "beta": 1.0}, (f"ld{x} = {v}",)) for x in "abcd" for v in (0, -8, -(2**63))],
    *[(DENSE, {x: 0, "beta": 1.0}, (f"{x} is NULL", "device memory")) for x in "abcd"],
    *[(DENSE, {x: HOST_POINTER, "beta": 1.0}, (f"{x} = 0x", "host memory")) for x in ("a", "b", "c", "d", "bias")],
    *[(DENSE, {x: OTHER_GPU, "beta": 1.0}, (f"{x} is memory of GPU 1", "GPU 0")) for x in ("a", "b", "c", "bias")],
    (("grouped_mm",), {"offs": 0}, ("offs is NULL",)),
    (("grouped_mm",), {"offs": HOST_POINTER}, ("offs = 0x", "host memory")),
    (("grouped_mm",), {"offs": OTHER_GPU}, ("offs is memory of GPU 1",)),
    *[(("grouped_mm",), {"offs_format": v}, (f"offs_format = {v}", "1 to 4")) for v in (0, 5, -1)],
    *[(("grouped_mm",), {"shared_b": v}, (f"shared_b = {v}", "0 to 1")) for v in (-1, 2)],
    *[(("grouped_mm",), {"ragged": v}, (f"ragged = {v}", "0 to 3", "libgemm_ragged")) for v in (-1, 4)],
    *[(("grouped_mm",), {"zero_tail": v, "ragged": r}, (f"zero_tail = {v}", "0 to 1"))
      for v in (-1, 2) for r in range(4)],
    *[(("grouped_mm",), {"shared_b": 1, "ragged": v}, ("shared_b = 1", f"ragged = {v}", "LIBGEMM_RAGGED_M (0)"))
      for v in (1, 2, 3)],
    (("grouped_mm",), {"shared_b": 1, "zero_tail": 1}, ("zero_tail = 1", "shared_b = 1", "allowed is 0")),
    *[(("grouped_mm",), {"ragged": r, "batch_stride_d": v}, (f"batch_stride_d = {v}", "overlap", str(M * N)))
      for r in (2, 3) for v in (0, 1, M * N - 1, -(M * N - 1))],
    *[(("grouped_mm",), {"ragged": r, "c": "d", "beta": 1.0, "batch_stride_d": M * N}, ("c == d", "equal strides"))
      for r in (2, 3)],
    *[(("grouped_mm",), {"ragged": r, "batch_stride_d": M * N, **bad}, parts) for r in (1, 2) for bad, parts in (
        ({"offs": 0}, ("offs is NULL",)), ({"offs": HOST_POINTER}, ("offs = 0x", "host memory")))],
    *[(("grouped_mm",), {"ragged": r, "batch_stride_d": M * N, f"ld{x}": v - 1, "beta": 1.0}, (f"ld{x} = {v - 1}",))
      for r in (1, 2, 3) for x, v in (("a", K), ("b", N), ("c", N), ("d", N))],
    *[(("grouped_mm",), {"ragged": r, "batch_stride_d": M * N, x: HOST_POINTER, "beta": 1.0}, (f"{x} = 0x",))
      for r in (1, 2, 3) for x in ("a", "b", "c", "d", "bias")],
    (DENSE, {"c": "d", "ldc": N + 8, "beta": 1.0}, (f"ldc = {N + 8}", f"ldd = {N}", "equal strides")),
    (("gemm",), {"batch": 2, "c": "d", "beta": 1.0, "batch_stride_d": M * N}, ("c == d", "equal strides")),
    *[(("gemm",), {"batch": 2, "batch_stride_d": v}, (f"batch_stride_d = {v}", "overlap", str(M * N)))
      for v in (0, 1, M * N - 1, -(M * N - 1))],
    *[(("grouped_gemm",), {x: 0}, (f"table {x} is NULL", f"{GROUPS} entries"))
      for x in ("a", "b", "d", "m", "n", "k", "lda", "ldb", "ldd")],
    (("grouped_gemm",), {"c": 0, "beta": 1.0}, ("table c is NULL",)),
    (("grouped_gemm",), {"ldc": 0, "beta": 1.0}, ("table ldc is NULL",)),
    *[(("grouped_gemm",), {"host_tables": v}, (f"host_tables = {v}", "0 to 1")) for v in (-1, 2)],
    *[(("grouped_gemm",), {"aligned": v}, (f"aligned = {v}", "0 to 1")) for v in (-1, 2)],
    *[(("grouped_gemm",), {"device": v}, (f"device = {v}", "0 to 1")) for v in (-2, 2, 64)],
    (("grouped_gemm",), {"device": 1}, ("a[0] is memory of GPU 0", "GPU 1")),
    (("grouped_gemm",), {"workspace": 0}, ("workspace", f"{GROUPS * 96} bytes")),
    (("grouped_gemm",), {"workspace_bytes": GROUPS * 96 - 1}, (f"workspace_bytes = {GROUPS * 96 - 1}",)),
    (("grouped_gemm",), {"workspace": "misaligned"}, ("workspace", "multiple of 16")),
    *[(DENSE, {f"{x}": f"odd {x}", "beta": 1.0}, (f"{x} = 0x", "multiple of 2")) for x in "abcd"],
    *[(DENSE, {"a_type": 3, "d_type": 3, "precision": 3, x: f"half {x}", "beta": 1.0}, (f"{x} = 0x", "multiple of 4"))
      for x in "abcd"],
    *[(DENSE, {"d_type": 3, "d": "half d"}, ("d = 0x", "multiple of 4"))],
    *[(DENSE, {"bias": f"odd {x}"}, ("bias = 0x", "multiple of 2")) for x in "a"],
    *[(("grouped_mm",), {"offs": "half offs", "offs_format": f}, ("offs = 0x", f"multiple of {n}"))
      for f, n in ((1, 4), (2, 8), (3, 4), (4, 8))],
    *[(DENSE, {"d": x}, (f"{x} == d", "only C")) for x in "ab"],
    (("gemm",), {"batch": 2, "batch_stride_d": M * N, "d": "a"}, ("a == d",)),
    (("grouped_gemm",), {"workspace": HOST_POINTER}, ("workspace = 0x", "host memory")),
    (("grouped_gemm",), {"workspace": OTHER_GPU}, ("workspace is memory of GPU 1",)),
]  # fmt: skip
ROWS = [(op, fields, parts) for ops, fields, parts in BAD for op in ops]


def resolve(value):
    """Words of the tables above as addresses."""
    words = {
        HOST_POINTER: HOST_ADDRESS,
        OTHER_GPU: at(0, 1),
        "d": at(3),
        "misaligned": at(6) + 8,
        "half offs": at(5) + 2,
    }
    words |= {x: at(i) for i, x in enumerate("abcd")}
    words |= {f"{how} {x}": at(i) + n for i, x in enumerate("abcd") for how, n in (("odd", 1), ("half", 2))}
    return words.get(value, value) if isinstance(value, str) else value


HOST_ADDRESS = -(-int(ffi.cast("uintptr_t", ffi.from_buffer(HOST))) // 16) * 16


@pytest.mark.parametrize(("op", "fields", "parts"), ROWS, ids=str)
@in_stand_in()
def test_a_wrong_field_is_refused_by_name(op, fields, parts):
    wrong = Call(op, **{name: resolve(value) for name, value in fields.items()})
    refused(wrong.run(), "INVALID_ARGUMENT", *parts)
    assert log("cuLaunchKernelEx", "cuMemcpyHtoDAsync_v2") == []
    ok(Call(op).run())
    assert len(launches()) == 1


@pytest.mark.parametrize(("fields", "parts"), [
    *[({"b_type": v}, (f"b_type = {v} ({name})", "a_type bf16", "no variant multiplies two types"))
      for v, name in ((1, "f16"), (4, "e4m3"), (5, "e5m2"))],
    ({"a_type": 5}, ("a_type e5m2",)),
    ({"a_type": 5, "b_type": 2}, ("a_type e5m2",)),
    *[({"scaling": v}, (f"scaling = {v}", "no variant takes scales")) for v in (1, 2, 3, 4, 5)],
], ids=str)  # fmt: skip
@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_what_no_variant_serves_yet_is_refused_by_name(op, fields, parts):
    refused(Call(op, **fields).run(), "UNSUPPORTED", *parts)
    refused(Call(op, **fields).explain(TARGET)[0], "UNSUPPORTED", *parts)
    assert launches() == []
    ok(Call(op, b_type=2).run())
    assert len(launches()) == 1


TABLES = [
    *[({s: v}, (f"{s}[1] = {v}", f"0 to {MAX}")) for s in "mnk" for v in (-1, MAX + 1)],
    ({"lda": K - 1}, (f"lda[1] = {K - 1}", f"k = {K}")),
    ({"ldb": N - 1}, (f"ldb[1] = {N - 1}", f"n = {N}")),
    ({"ldc": N - 1}, (f"ldc[1] = {N - 1}", f"n = {N}")),
    ({"ldd": N - 1}, (f"ldd[1] = {N - 1}", f"n = {N}")),
    *[({x: 0}, (f"{x}[1] is NULL",)) for x in ("a", "b", "c", "d", "bias")],
    *[({x: HOST_POINTER}, (f"{x}[1] = 0x", "host memory")) for x in ("a", "b", "c", "d", "bias")],
    *[({x: OTHER_GPU}, (f"{x}[1] is memory of GPU 1",)) for x in ("a", "b", "c", "d", "bias")],
    ({"c": "d", "ldc": N + 8}, ("c[1] == d[1]", f"ldc = {N + 8}")),
    *[({x: f"odd {x}"}, (f"{x}[1] = 0x", "multiple of 2")) for x in "abcd"],
    *[({"d": x}, (f"d[1] == {x}[1]", "only C")) for x in "ab"],
]


def changed_tables(fields: dict, group: int) -> dict:
    plain = {"m": M, "n": N, "k": K, "lda": K, "ldb": N, "ldc": N, "ldd": N}
    plain |= {x: at(i) for i, x in enumerate(("a", "b", "c", "d", "bias"))}
    tables = {name: [value] * GROUPS for name, value in plain.items()}
    for name, value in fields.items():
        tables[name][group] = resolve(value)
    return tables


@pytest.mark.parametrize(("fields", "parts"), TABLES, ids=str)
@in_stand_in()
def test_a_wrong_table_entry_is_refused_by_name_and_group(fields, parts):
    for group in range(GROUPS):
        named = [part.replace("[1]", f"[{group}]") for part in parts]
        if group == 0 and fields == {"d": OTHER_GPU}:
            named = ["a[0] is memory of GPU 0"]  # group 0's D decides the GPU
        wrong = Call("grouped_gemm", beta=1.0, **changed_tables(fields, group))
        refused(wrong.run(), "INVALID_ARGUMENT", *named)
    assert log("cuLaunchKernelEx", "cuMemcpyHtoDAsync_v2") == []
    ok(Call("grouped_gemm", beta=1.0, **changed_tables({}, 0)).run())


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_a_struct_of_another_size_is_judged_by_its_bytes(op):
    name = f"libgemm_{op}_args"
    full = ffi.sizeof(name)
    newer = {"gemm": "batch_invariant", "grouped_gemm": "aligned", "grouped_mm": "batch_stride_a"}
    oldest = ffi.offsetof(name, newer[op])  # the first field of a later header
    for size in (0, 7, 8, oldest - 1):
        call = Call(op)
        call.args.size = size
        refused(call.run(), "INVALID_ARGUMENT", f"args->size = {size}", name, f"{oldest} bytes", f"{name}_init")
    newer = ffi.new("char[]", full + 24)
    call = Call(op)
    ffi.memmove(newer, call.args, full)
    ffi.cast("uint64_t *", newer)[0] = full + 24
    run = getattr(lib, f"libgemm_{op}")
    ok(run(ffi.cast(f"{name} *", newer)))
    for place in (full, full + 23):
        newer[place] = b"\1"
        refused(run(ffi.cast(f"{name} *", newer)), "INVALID_ARGUMENT", f"args->size = {full + 24}", "fields")
        newer[place] = b"\0"
    refused(run(ffi.NULL), "INVALID_ARGUMENT", "args is NULL", name)
    assert len(launches()) == 1


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_a_struct_of_garbage_size_is_refused_without_reading_on(op):
    """Behind the struct are zeros up to memory that nobody may touch."""
    full = ffi.sizeof(f"libgemm_{op}_args")
    place = allocate(full)
    for size in (2**40, 2**63, 2**64 - 1):
        call = Call(op)
        call.args.size = size
        ffi.memmove(ffi.cast("char *", place), call.args, full)
        status = getattr(lib, f"libgemm_{op}")(ffi.cast(f"libgemm_{op}_args *", place))
        refused(status, "INVALID_ARGUMENT", f"args->size = {size}")


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_workspace_and_explain_judge_their_own_arguments(op):
    refused(getattr(lib, f"libgemm_{op}_workspace")(Call(op).args, ffi.NULL), "INVALID_ARGUMENT", "bytes is NULL")
    explain = getattr(lib, f"libgemm_{op}_explain")
    refused(explain(Call(op).args, TARGET, ffi.NULL), "INVALID_ARGUMENT", "choice is NULL")
    oldest = ffi.offsetof("libgemm_choice", "expected_us")
    small = ffi.new("libgemm_choice *", {"size": oldest - 1})
    refused(explain(Call(op).args, TARGET, small), "INVALID_ARGUMENT", "size")
    older = ffi.new("libgemm_choice *", {"size": oldest, "expected_us": -1, "covered": -1})
    ok(explain(Call(op).args, TARGET, older))
    assert (older.expected_us, older.covered) == (-1, -1)  # fields its caller does not have
    choice = Call(op).explain(TARGET)[1]
    assert choice.expected_us > 0 and choice.covered == (op != "grouped_gemm" and TARGET == 90)
    assert ffi.string(older.reason) == ffi.string(choice.reason)
    refused(Call(op, a_type=9).explain(TARGET)[0], "INVALID_ARGUMENT", "a_type = 9")
    assert Call(op).workspace() == (GROUPS * 96 if op == "grouped_gemm" else 0)
    assert Call(op, **({"host_tables": 0} if op == "grouped_gemm" else {})).workspace() == 0


@in_stand_in()
def test_a_device_table_off_its_values_size_is_refused():
    for name in ("a", "b", "d", "m", "n", "k", "lda", "ldb", "ldd"):
        wrong = Call("grouped_gemm").device_tables()
        place = int(ffi.cast("uintptr_t", getattr(wrong.args, name))) + 4
        refused(wrong.set(**{name: place}).run(), "INVALID_ARGUMENT", f"{name} = 0x", "multiple of 8")
    assert launches() == []


@pytest.mark.parametrize("op", OPS)
@in_stand_in()
def test_a_workspace_query_that_fails_says_zero_bytes(op):
    for wrong in ({"a_type": 9}, {"size": 1}, {"trans_a": 7}):
        size = ffi.new("uint64_t *", 77)
        assert getattr(lib, f"libgemm_{op}_workspace")(Call(op).set(**wrong).args, size) != 0
        assert size[0] == 0, wrong


UNREAD = [
    {"alpha": 0.0, "a": 0, "b": 0, "lda": 0, "ldb": -5},
    {"k": 0, "a": 0, "b": 0, "lda": 0, "ldb": 0},
    {"beta": 0.0, "c": 0, "ldc": 0},
    {"alpha": 0.0, "a": HOST_POINTER, "b": OTHER_GPU},
    {"c": HOST_POINTER, "ldc": -1},
    {"c": "d", "ldc": N + 8},
    {"alpha": 0.0, "a": "d", "b": "odd b"},
    {"k": 0, "a": "odd a", "b": "d"},
]


@pytest.mark.parametrize("fields", UNREAD, ids=str)
@in_stand_in()
def test_an_operand_that_is_not_read_is_not_checked(fields):
    fields = {name: resolve(value) for name, value in fields.items()}
    for op in DENSE:
        ok(Call(op, **fields).run())
    tables = {name: v if name in ("alpha", "beta") else [v] * GROUPS for name, v in fields.items()}
    ok(Call("grouped_gemm", **tables).run())
    assert len(launches()) == 3 and last_error() == ""


@in_stand_in()
def test_strides_that_do_not_make_d_overlap_are_taken():
    for stride in (M * N, -M * N, M * N + 8):
        ok(Call("gemm", batch=2, d=at(8), batch_stride_d=stride).run())
    ok(Call("gemm", batch=2, batch_stride_d=N, ldd=2 * N).run())  # rows of the two products take turns
    ok(Call("gemm", batch=1, batch_stride_d=1, batch_stride_c=7).run())
    ok(Call("gemm", batch=2, c=at(3), beta=1.0, batch_stride_c=M * N, batch_stride_d=M * N).run())
    ok(Call("gemm", batch=2, batch_stride_d=PLACE, batch_stride_bias=0).run())
    assert len(launches()) == 7


ABSURD = [
    {"batch": 2**63 - 1, "batch_stride_d": M * N},
    {"batch": 2**40, "batch_stride_d": 2**62},
    {"m": 97, "batch": 2, "batch_stride_d": 8, "ldd": 2**63 - 1},
    {"batch": 2**62 + 2, "batch_stride_d": N, "ldd": 2 * N},
    {"m": MAX, "n": MAX, "ldb": MAX, "ldc": MAX, "ldd": MAX},  # 2^48 tiles and more
    {"m": MAX, "n": 2**21, "ldb": 2**21, "ldd": 2**21, "batch_invariant": 1},
]


@pytest.mark.parametrize("fields", ABSURD, ids=str)
@in_stand_in()
def test_absurd_strides_and_counts_are_refused(fields):
    """The memory such a call speaks of cannot exist; accepting it would mean that the arithmetic wrapped round."""
    status = Call("gemm", **fields).run()
    assert status in (lib.LIBGEMM_INVALID_ARGUMENT, lib.LIBGEMM_UNSUPPORTED) and launches() == []
