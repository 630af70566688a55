"""TYPES: rows of some types of A and B alone, and a library of them, which refuses others by name. No GPU."""

import pytest
from built import TARGET
from libgemm._library import ffi, lib, text
from sample import ROOT

from aot.manifest import make_manifest
from aot.pack import pack
from aot.render import in_table_order, render
from build.cache import Cache
from build.compile_all import Limits, compile_all
from build.link import link
from kernels.table.dtypes import DTYPES
from kernels.table.portable import CASTS as OF_MATRICES
from kernels.table.targets import DEFAULT_TARGETS
from kernels.table.variants import variants

SHARED = {("align", "bf16"), ("moe_route", "bf16")}  # which move bits, or look at none
CASTS = (*OF_MATRICES, "moe_cast", "moe_spread")  # of other types to 8 bits


@pytest.mark.parametrize("types", [("bf16",), ("f16", "f32"), ("e4m3",)], ids=str)
def test_rows_are_those_of_the_types_and_what_stands_for_them(types):
    whole, some = variants(), variants(types=types)
    assert set(some) < set(whole) and [row for row in whole if row in set(some)] == some
    sums = ("moe_sum",) if "e4m3" in types else ()  # of what 8-bit weights make, in 16 bits
    own = [row.problem for row in some if row.problem.op not in (*CASTS, *sums)]
    assert {problem.a for problem in own if (problem.op, problem.a) not in SHARED} == set(types)
    made = [row for row in whole if row.problem.op in CASTS]
    assert [row for row in some if row.problem.op in CASTS] == (made if "e4m3" in types else [])
    needed = {
        "align": bool({"f16", "bf16", "f32", "e4m3"} & set(types)), "moe_route": True, "moe_sum": True,
        "moe_mm": bool({"f16", "bf16", "e4m3"} & set(types)),
    }  # fmt: skip
    assert {op: any(row.problem.op == op for row in some) for op in needed} == needed
    assert {row.target for row in some} == set(DEFAULT_TARGETS)


def asked(library, a_type: int, d_type: int, precision: int = 0) -> tuple[int, str]:
    """What explain answers for a product of this type: its status, and its sentence where it fails."""
    args, choice = ffi.new("libgemm_gemm_args *"), ffi.new("libgemm_choice *")
    library.libgemm_gemm_args_init(args, ffi.sizeof("libgemm_gemm_args"))
    args.m = args.n = args.k = args.lda = args.ldb = args.ldd = 64
    args.a_type, args.d_type, args.precision = a_type, d_type, precision
    choice.size = ffi.sizeof("libgemm_choice")
    return library.libgemm_gemm_explain(args, TARGET, choice), text(library.libgemm_last_error())


def test_a_library_of_some_types_refuses_others_by_name(tmp_path):
    table = variants((TARGET,), ("e4m3",))
    artifacts = compile_all(table, Cache(ROOT / ".cache" / "artifacts", None), Limits(2))  # as dist/ has them
    rows = in_table_order(list(zip(table, artifacts, strict=True)))
    files = render(rows, pack([artifact for _, artifact in rows]), make_manifest(rows, "1.2.3", {}))
    some = ffi.dlopen(str(link(files, tmp_path / "libgemm.so").library))
    bf16, f32, e4m3 = (DTYPES[name].c_enum for name in ("bf16", "f32", "e4m3"))
    assert asked(some, e4m3, bf16)[0] == lib.LIBGEMM_OK
    status, sentence = asked(some, bf16, bf16)
    assert status == lib.LIBGEMM_UNSUPPORTED and "no variant computes gemm bf16 -> bf16 (exact)" in sentence
    status, sentence = asked(some, f32, f32, 3)
    assert status == lib.LIBGEMM_UNSUPPORTED and "no variant computes gemm f32 -> f32 (ieee)" in sentence
    assert f"sm_{TARGET}" in sentence
