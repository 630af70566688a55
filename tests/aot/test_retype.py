"""A float16 row's PTX made of its bfloat16 twin's is what the compiler makes, letter for letter, and so its bytes; and
what other rows are made of."""

import collections
import dataclasses
import random

import pytest

from aot import compile as aot_compile
from aot.compile import compile_twins, compile_variant, offline, run_triton
from aot.retype import PRODUCTS, float16_twin, retype, retype_metadata, told_by
from kernels.table.spec import Config
from kernels.table.targets import DEFAULT_TARGETS
from kernels.table.variants import variants

SEED = random.SystemRandom().randrange(1 << 32)


def pairs() -> dict[tuple[int, str, str], list]:
    """All that the compiler is given of each kernel on each target for each type of A and B, with its twin."""
    table = {v.compiled.name: v.compiled for v in variants(DEFAULT_TARGETS) if not told_by(v.compiled)}
    found = collections.defaultdict(list)
    for variant in table.values():
        twin = float16_twin(variant)
        if twin and twin.name in table:
            found[variant.target, variant.kernel, variant.problem.a].append((variant, table[twin.name]))
    return found


PAIRS = pairs()


@pytest.fixture
def unassembled(monkeypatch):
    """A row's metadata and PTX. What the assembler would make of it is not waited for."""
    from triton.backends.nvidia.compiler import CUDABackend

    monkeypatch.setattr(CUDABackend, "make_cubin", lambda *words: b"")

    def made(variant) -> tuple[dict, str]:
        with offline(variant) as (target, record, cache):
            metadata, _, ptx = run_triton(variant, target, record, cache, False)
        return {name: value for name, value in metadata.items() if name != "hash"}, ptx

    return made


@pytest.mark.parametrize("key", sorted(PAIRS), ids=lambda key: f"sm{key[0]}-{key[1]}-{key[2]}")
def test_a_row_of_each_kernel_drawn_anew_has_the_text_that_the_compiler_gives_it(unassembled, key):
    variant, twin = random.Random(SEED).choice(PAIRS[key])
    metadata, ptx = unassembled(variant)
    text = retype(ptx, variant, twin)
    assert (retype_metadata(metadata, twin), text) == unassembled(twin), f"seed {SEED}: {twin.name}"


def test_a_row_assembled_from_its_twin_s_text_is_byte_for_byte_what_the_compiler_makes(monkeypatch):
    key = random.Random(SEED).choice(sorted(PAIRS))
    variant, twin = random.Random(SEED).choice(PAIRS[key])
    alone = []
    monkeypatch.setattr(aot_compile, "compile_variant", lambda *words: alone.append(words) or compile_variant(*words))
    made, other = compile_twins(variant, (twin,))
    assert (made.variant, other.variant, alone) == (variant.name, twin.name, []), f"seed {SEED}: {variant.name}"
    assert other == compile_variant(twin), f"seed {SEED}: {twin.name}"


def test_every_product_with_bfloat16_has_a_twin_and_nothing_else_has():
    """Of 8-bit operands D alone changes. Not all of them have kernels of their own for float16."""
    table = variants((90,))
    names = {v.name for v in table}
    for variant in table:
        twin = float16_twin(variant)
        problem, is_product = variant.problem, variant.problem.op in ("gemm", "grouped_gemm", "grouped_mm", "moe_mm")
        has_bf16 = "bf16" in (problem.a, problem.d) and not problem.e5m2  # which are twins of another kind
        assert (twin is not None) == (is_product and has_bf16), variant.name
        if twin is None:
            continue
        assert twin.problem == dataclasses.replace(
            problem, a="f16" if problem.a == "bf16" else problem.a, d="f16" if problem.d == "bf16" else problem.d
        )
        assert twin == dataclasses.replace(variant, problem=twin.problem)
        assert twin.name in names or problem.a == "e4m3", twin.name


ROW = next(v for v in variants((90,)) if v.kernel == "sm90.gemm.gemm_coop" and v.problem.a == "bf16")
TWIN = float16_twin(ROW)
HEAD = f".entry {ROW.symbol}(\n"
TOLD = [
    "\twgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%r1}, %rd1, %rd2, 1, 1, 1;",
    "\tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1}, {%r2}, {%r3}, {%r4};",
    "\t@%p1 cvt.rn.bf16x2.f32 %r1, %r2, %r3;",
    "\tcvt.f32.bf16 \t%r5, %rs1;",
    "\tmov.b16 \t%rs249, 0;\n\tmov.b16 \t%rs2, 0x0000;",
    "\tmov.b16 mask, 255;",  # of the eight blocks of a cluster
    "\tselp.b16 \t%rs5, -1, 0, %p1;\n\tand.b16 \t%rs6, %rs5, 255;",
    "\tmov.b16 \t%rs2, 1;\n\tld.shared.b16 \t%rs3, [%r2+1024];\n\t.reg .b16 \t%rs<999>;",  # numbers, but no bfloat16
]


@pytest.mark.parametrize("line", TOLD)
def test_instructions_with_the_type_s_name_are_retyped(line):
    assert retype(HEAD + line, ROW, TWIN) == f".entry {TWIN.symbol}(\n" + line.replace("bf16", "f16")


def test_a_tensor_map_made_on_the_device_gets_the_other_type_s_number():
    line = "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [ %rd469 + 0 ], {};"
    for before, after in (("0xa", "0x6"), ("0x7", "0x7"), ("0xab", "0xab")):
        assert retype(HEAD + line.format(before), ROW, TWIN).endswith(line.format(after))


# A is the left operand, of the register's bits 7 to 9, B of 10 to 12; 68224144 says bfloat16 of both.
DESCRIBED = "\tmov.b32 \t%r97, 68224144;\n\t@%p9 tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r97, %p1;"
NOT_OF_BFLOAT16 = [str(68224144 ^ bits) for bits in (1 << 7, 1 << 10, 1 << 7 | 1 << 10, 1 << 8, 1 << 12)]


def test_a_descriptor_of_the_instruction_says_float16():
    """And nothing else in it changes."""
    told = DESCRIBED.replace("68224144", str(68224144 - (1 << 7) - (1 << 10)))
    other = "\tmov.b32 \t%r98, 68224144;"
    assert retype(HEAD + DESCRIBED + other, ROW, TWIN) == f".entry {TWIN.symbol}(\n{told}{other}"


@pytest.mark.parametrize(
    "line",
    [
        "\ttcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r97, %p1;",  # whose type is a number in %r97
        *(DESCRIBED.replace("68224144", number) for number in NOT_OF_BFLOAT16),
        DESCRIBED.replace("\tmov", "\tmov.b32 \t%r97, 68224144;\n\tmov"),  # written twice
        DESCRIBED.replace("mov.b32", "or.b32"),
        "\tmov.b16 \t%rs7, 256;",  # 2^-125
        "\tmov.b16 \t%rs7, 16256;",  # 1.0
        "\tmov.b16 \t%rs7, 0x3F80;",
        "\tmov.b16 \t%rs7, -128;",  # -inf
        "\tselp.b16 \t%rs7, 16256, 0, %p1;",
        "\tcvt.f32.f16 \t%r1, %rs1;",  # both types: a kernel that reads another's
        "\tfma.rn.bf16x2 \t%r1, %r2, %r3, %r4;",  # -0.0 and rounding are other numbers of the type
        "\t@!%p3 red.global.add.noftz.bf16x2 \t[%rd1], %r1;",
    ],
)
def test_a_text_that_does_not_tell_is_left_to_the_compiler(line):
    assert retype(HEAD + TOLD[0] + "\n" + line, ROW, TWIN) is None


def test_boxes_of_the_16_bit_type_alone_change():
    metadata = {"name": ROW.symbol, "shared": 7, "tensordesc_meta": [{"elem_type": n, "swizzle": 3} for n in (10, 7)]}
    assert retype_metadata(metadata, TWIN) == {
        "name": TWIN.symbol,
        "shared": 7,
        "tensordesc_meta": [{"elem_type": 6, "swizzle": 3}, {"elem_type": 7, "swizzle": 3}],
    }
    assert retype_metadata({"name": ROW.symbol}, TWIN)["name"] == TWIN.symbol


def test_a_twin_whose_text_does_not_tell_is_compiled_by_itself(monkeypatch):
    reference = next(
        v for v in variants((100,))
        if v.kernel == "portable.gemm.gemm" and (v.problem.a, v.problem.layout, v.guard) == ("bf16", "nt", ("align16",))
    )  # fmt: skip
    small = dataclasses.replace(reference, config=Config(64, 64, 32, warps=4, stages=1))
    monkeypatch.setattr(aot_compile, "retype", lambda *words: None)
    made = compile_twins(small, (float16_twin(small),))
    assert [a.variant for a in made] == [small.name, float16_twin(small).name]
    assert made[1] == compile_variant(float16_twin(small))


BYTES = next(v for v in variants((89,)) if (v.problem.op, v.problem.a, v.problem.d) == ("gemm", "e4m3", "bf16"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r2}, {%r3}, {%r4};", True),  # of what was bytes
        ("\tcvt.rn.f16x2.e4m3x2 %r1, %rs1;\n\tmul.f16x2 %r2, %r1, %r3;", True),
        ("\tmov.b16 \t%rs226, 0x5C00;\n\tselp.b16 \t%rs235, 32256, %rs227, %p107;", True),  # 256 and a NaN, float16
        (DESCRIBED.replace("68224144", "68222992"), True),
        ("\tmov.b16 \t%rs226, 0x3F80;", False),
        ("\tcvt.rn.bf16.f16 %rs1, %rs2;", False),
    ],
)
def test_bytes_that_are_made_float16_stay_it(line, told):
    twin, head = float16_twin(BYTES), f".entry {BYTES.symbol}(\n"
    made = retype(f"{head}{line}\n\tcvt.rn.bf16x2.f32 %r1, %r2, %r3;", BYTES, twin)
    assert made == (f".entry {twin.symbol}(\n{line}\n\tcvt.rn.f16x2.f32 %r1, %r2, %r3;" if told else None)


LATER = [v.compiled for v in variants((100, 120)) if v.problem.op not in PRODUCTS]


def test_later_gpus_take_hopper_s_text_of_all_but_products():
    assert {v.target for v in LATER} == {100, 120} and len({v.problem.op for v in LATER}) > 10
    for v in LATER:
        assert told_by(v) == dataclasses.replace(v, target=90), v.name
    assert not any(told_by(v) for v in variants((80, 86, 89)))
    assert all(told_by(v) is None or v.problem.e5m2 for v in variants((90, 100)) if v not in LATER)
    text = f".version 9.1\n.target sm_90a\n.entry {told_by(LATER[0]).symbol}(\n\tcvt.rn.bf16x2.f32 %r1, %r2, %r3;"
    made = retype(text, told_by(LATER[0]), LATER[0])
    assert made == (
        f".version 8.8\n.target {LATER[0].architecture}\n.entry {LATER[0].symbol}(\n\tcvt.rn.bf16x2.f32 %r1, %r2, %r3;"
    )


def test_a_later_gpu_s_row_is_the_same_kernel_assembled_for_it():
    twin = random.Random(SEED).choice([v for v in LATER if v.config.block_m * v.config.block_n <= 64 * 128])
    alone, (made, other) = compile_variant(twin), compile_twins(told_by(twin), (twin,))
    assert alone == other and (made.variant, other.variant) == (told_by(twin).name, twin.name), (
        f"seed {SEED}: {twin.name}"
    )
    assert (other.target, other.architecture, made.architecture) == (twin.target, f"sm_{twin.target}f", "sm_90a")
    assert other.entry == twin.symbol and other.cubin != made.cubin and other.overlaps == made.overlaps
    facts = ("params", "shared_bytes", "boxes", "warps")
    assert [getattr(made, name) for name in facts] == [getattr(other, name) for name in facts]


ALIKE = [
    v.compiled for v in variants((120,))
    if v.problem.op in ("gemm", "grouped_mm", "moe_mm") and "descriptor" not in v.guard
]  # fmt: skip


def test_general_products_of_sm_120_take_the_text_of_what_sm_89_runs():
    """sm_80's, but where 8-bit numbers are multiplied as they are."""
    of_89 = {v.name.replace("__sm89__", "__sm120__"): v.compiled for v in variants((89,))}
    for v in ALIKE:
        base = told_by(v)
        assert base.target == (89 if v.problem.a == "e4m3" else 80) and base.kernel == v.kernel, v.name
        assert (base.problem, base.config, base.guard) == (v.problem, v.config, v.guard), v.name
        assert of_89.get(v.name, base) == base, v.name  # sm_89 may have faster rows than one of sm_120's general ones
    by_itself = [v for v in variants((120,)) if v.problem.op in PRODUCTS and v.compiled not in ALIKE]
    assert {v.problem.op for v in by_itself} == {"gemm", "grouped_gemm"} and not any(map(told_by, by_itself))


def test_one_text_makes_the_rows_of_both_types_on_both_targets():
    """As each would have been by itself."""
    pairs = [(v, float16_twin(v)) for v in ALIKE if v.problem.a == "bf16" and v.config.block_m <= 64]
    variant, twin = random.Random(SEED).choice([(v, f16) for v, f16 in pairs if f16 in ALIKE])
    base = told_by(variant)
    made = compile_twins(base, (variant, float16_twin(base), twin))
    assert [a.target for a in made] == [80, 120, 80, 120] and made[3].architecture == "sm_120f"
    assert made == [compile_variant(v) for v in (base, variant, float16_twin(base), twin)], f"seed {SEED}: {twin.name}"
    assert len({a.cubin for a in made}) == 4 and [a.entry for a in made[1::2]] == [variant.symbol, twin.symbol]


MIXED = [v for v in variants((90,)) if v.problem.e5m2]
OF_BYTES = "\twgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {%f1}, %rd1, %rd2, 1, 1, 1;"


@pytest.mark.parametrize(("swap", "e5m2", "types"), [
    (False, "a", "e5m2.e4m3"), (False, "b", "e4m3.e5m2"), (True, "a", "e4m3.e5m2"), (True, "b", "e5m2.e4m3"),
])  # fmt: skip
def test_the_left_operand_of_the_instruction_is_b_where_operands_are_swapped(swap, e5m2, types):
    twin = next(v for v in MIXED if (v.family.swap_ab, v.problem.e5m2) == (swap, e5m2))
    base = told_by(twin)
    assert base.problem == dataclasses.replace(twin.problem, e5m2="") and told_by(base) is None
    made = retype(f".entry {base.symbol}(\n{OF_BYTES}\n\tcvt.rn.bf16x2.f32 %r1, %r2, %r3;", base, twin)
    assert made == f".entry {twin.symbol}(\n{OF_BYTES.replace('e4m3.e4m3', types)}\n\tcvt.rn.bf16x2.f32 %r1, %r2, %r3;"
    for line in ("", "\tcvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2;"):  # no product; something else that knows bytes
        assert retype(f".entry {base.symbol}(\n{line and OF_BYTES}\n{line}", base, twin) is None


def test_a_row_with_an_e5m2_operand_has_other_products_and_nothing_else():
    """Compiled by itself or with the row that its text is of; both from the same text."""
    twin = random.Random(SEED).choice([v for v in MIXED if v.config.block_m * v.config.block_n <= 64 * 128])
    base = told_by(twin)
    alone, (made, other) = compile_variant(twin), compile_twins(base, (twin,))
    assert alone == other and (made.variant, other.variant) == (base.name, twin.name), f"seed {SEED}: {twin.name}"
    assert other.entry == twin.symbol and other.cubin != made.cubin
    facts = ("params", "registers", "shared_bytes", "boxes", "warps")
    assert [getattr(made, name) for name in facts] == [getattr(other, name) for name in facts]


def test_rows_of_e4m3_that_ship_first_have_twins_for_either_operand():
    names = {v.name for v in variants((90,))}
    assert {v.problem.e5m2 for v in MIXED} == {"a", "b"} and {v.problem.d for v in MIXED} == {"bf16", "f32"}
    for v in MIXED:
        other = dataclasses.replace(v.problem, e5m2="b" if v.problem.e5m2 == "a" else "a")
        assert {told_by(v).name, dataclasses.replace(v, problem=other).name} <= names
