"""The table of variants and its vocabulary: every row checks, every bad row is refused with its reason."""

import dataclasses
import math
import re
import typing
from itertools import product

import pytest
from libgemm import _args
from sample import ROOT

from build.tune.candidates import TYPES as MEASURED
from build.tune.candidates import candidates
from kernels.table.activations import ACTIVATIONS
from kernels.table.dtypes import DTYPES, TYPES
from kernels.table.model import tuned
from kernels.table.sm90 import hopper_variant
from kernels.table.sm90_grouped import ACTIVATED, COUNTED, WIDE_ACTIVATED, grouped_rows
from kernels.table.spec import LAYOUTS, OPS, Config, Problem, SpecError, Variant, measured_as
from kernels.table.targets import DEFAULT_TARGETS, TARGETS
from kernels.table.variants import variants
from tests.gpu import reference
from tests.gpu.cases import TYPES as CASE_TYPES

GOOD = Variant(
    Problem("gemm", "bf16", "bf16", "exact", "nt"),
    Config(128, 128, 64, warps=8, stages=3),
    "portable.gemm.gemm",
    90,
    ("align16",),
)


def changed(variant: Variant, part: str, **fields) -> Variant:
    if part:
        return dataclasses.replace(variant, **{part: dataclasses.replace(getattr(variant, part), **fields)})
    return dataclasses.replace(variant, **fields)


def test_names_are_unique_and_say_everything_that_differs():
    rows = variants(tuple(TARGETS))
    assert len({row.name for row in rows}) == len(rows) > 1000
    assert GOOD.name == "gemm_bf16_bf16_bf16_nt__sm90__128x128x64_w8_s3_align16"


@pytest.mark.parametrize("target", TARGETS)
def test_every_problem_has_a_row_without_guard_and_it_is_last(target):
    rows = variants((target,))
    for op, (a, d, precision), layout in product(OPS, TYPES, LAYOUTS):
        own = [row for row in rows if row.problem == Problem(op, a, d, precision, layout)]
        if (DTYPES[a].scaled and op == "grouped_gemm") or (d == "e4m3" and op != "gemm"):
            assert own == []  # so far
            continue
        assert own, (op, a, d, precision, layout)
        assert own[-1].guard == ()
        assert all(row.guard for row in own[:-1])


def test_default_targets_are_those_of_the_readme():
    assert DEFAULT_TARGETS == (80, 86, 89, 90, 100, 120)


@pytest.mark.parametrize(
    ("part", "fields", "words"),
    [
        ("problem", {"op": "gemv"}, ["op = 'gemv'", "gemm"]),
        ("problem", {"a": "f64"}, ["a = 'f64'", "bf16"]),
        ("problem", {"d": "f16"}, ["d = 'f16'", "bf16", "f32"]),
        ("problem", {"precision": "tf32"}, ["precision = 'tf32'", "exact"]),
        ("problem", {"a": "f32", "d": "f32"}, ["precision = 'exact'", "tf32x3"]),
        ("problem", {"layout": "xn"}, ["layout = 'xn'", "nt"]),
        ("config", {"block_m": 96}, ["block_m = 96", "power of two"]),
        ("config", {"block_k": 4}, ["block_k = 4", "at least 8"]),
        ("config", {"warps": 3}, ["warps = 3", "(2, 4, 8)"]),
        ("config", {"stages": 0}, ["stages = 0", "1 to 16"]),
        ("config", {"group_m": 0}, ["group_m = 0", "1 or more"]),
        ("", {"target": 70}, ["target = 70", "90"]),
        ("", {"kernel": "portable.grouped_mm.grouped_mm"}, ["kernel = 'portable.grouped_mm", "a kernel of gemm"]),
        ("", {"guard": ("aligned",)}, ["guard = 'aligned'", "align16"]),
        ("", {"guard": ("linear", "align16")}, ["sorted"]),
        ("", {"rate": 0}, ["rate = 0", "1 to 1000"]),
    ],
)
def test_a_bad_row_is_refused_with_what_was_given_and_what_is_allowed(part, fields, words):
    row = changed(GOOD, part, **fields)
    with pytest.raises(SpecError) as caught:
        row.check()
    assert row.name in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_row_of_no_family_is_refused_by_its_problem():
    with pytest.raises(SpecError, match=r"gemm_bf16_bf16_bf16_nt: kernel = 'gemm': allowed is .*portable.gemm.gemm"):
        changed(GOOD, "", kernel="gemm").check()


def test_the_good_row_passes_and_its_constants_follow_the_row():
    GOOD.check()
    constants = GOOD.constexprs()
    assert (constants["TRANS_A"], constants["TRANS_B"], constants["ALIGN"], constants["ACTIVATE"]) == (0, 1, 8, 1)
    assert constants.pop("SYMBOL") == GOOD.symbol
    assert all(isinstance(value, int) and not isinstance(value, bool) for value in constants.values())
    assert GOOD.argument_type("a_ptr") == "*bf16"
    assert GOOD.argument_type("lda") == "i64"


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_known_to_the_header_to_python_and_to_the_suites(name):
    value = ACTIVATIONS.index(name)
    header = (ROOT / "aot" / "csrc" / "libgemm.h").read_text()
    symbol = "ACTIVATION_NONE" if name == "none" else name.upper()
    assert re.search(rf"LIBGEMM_{symbol} = {value}\b", header), f"libgemm.h has no LIBGEMM_{symbol} = {value}"
    assert _args.ACTIVATIONS.get(name) == value, f"the package was built of another header: `make build` for {name}"
    assert name in typing.get_args(_args.Activation), f"Activation of runtime/libgemm/_args.py lacks {name}"
    known = None if name == "none" else name
    for table in ("FUNCTIONS", "LIPSCHITZ", "EVALUATION"):
        assert known in getattr(reference, table), f"{table} of tests/gpu/reference.py lacks {name}"


@pytest.mark.parametrize("name", DTYPES)
def test_an_element_type_is_known_to_the_header_to_python_and_to_the_suites(name):
    header = (ROOT / "aot" / "csrc" / "libgemm.h").read_text()
    assert re.search(rf"LIBGEMM_{name.upper()} = {DTYPES[name].c_enum}\b", header)
    assert _args.DTYPES.get(name) == DTYPES[name].c_enum, f"DTYPES of runtime/libgemm/_args.py lacks {name}"
    assert name in reference.DTYPES, f"DTYPES of tests/gpu/reference.py lacks {name}"
    assert [types for types in TYPES if types[0] == name] == [types for types in CASE_TYPES if types[0] == name]


PACKED = [Problem("grouped_mm", *types, layout) for types, layout in product(TYPES, LAYOUTS) if types[1] != "e4m3"]
GROUPED = [row for problem in PACKED for row in grouped_rows(problem)]


def shared_bytes(row: Variant) -> int:
    """Of the stages, and of a buffer for what leaves at each of the two that multiply."""
    c = row.config
    element, rows, cols = row.box("d_desc")
    out = 0 if row.family.store == "reduce" else 2 * rows * cols * DTYPES[element].bytes
    return c.stages * (c.block_m + c.block_n) * c.block_k * DTYPES[row.problem.a].bytes + out


@pytest.mark.parametrize("kind", [*MEASURED])
def test_every_tuned_tile_is_a_row_with_the_fit_of_what_was_measured(kind):
    *types, _, blocks = MEASURED[kind]
    kind = measured_as(Problem("gemm", *types, "nt"), blocks)
    for layout, tiles in tuned(90, kind).tiles.items():
        problem = Problem("gemm", *types, layout)
        rows = {row.fit_name for row in variants((90,)) if row.problem == problem and row.measured_as == kind}
        for tile in tiles:
            row = hopper_variant(problem, *tile, blocks=blocks)
            assert row is not None and row.fit is not None and row.fit_name in rows, (kind, layout, tile)


def test_a_box_of_an_operand_contiguous_along_it_is_a_power_of_two():
    """What is contiguous along M or N comes in one box below 64 of its rows: Gluon's shapes are powers of two."""
    turned, plain = (Problem("gemm", "bf16", "bf16", "exact", layout) for layout in ("nn", "nt"))
    row = hopper_variant(turned, "flex_pingpong", 64, 56, 64)
    with pytest.raises(SpecError, match="block_n = 56: allowed is a power of two below 64, of an operand contiguous"):
        row.check()
    hopper_variant(plain, "flex_pingpong", 64, 56, 64).check()
    hopper_variant(turned, "pingpong", 64, 32, 64).check()


def test_a_tile_that_lies_across_blocks_is_refused_by_name():
    problem = Problem("gemm", "e4m3", "bf16", "exact", "nt")
    row = hopper_variant(problem, "flex_coop", 128, 144, 64, blocks=True)
    with pytest.raises(SpecError, match="block_n = 144: allowed is a multiple of 64 or a divisor of 128"):
        row.check()
    hopper_variant(problem, "coop", 128, 192, 64, blocks=True).check()
    hopper_variant(problem, "flex_coop_swap", 144, 128, 64, blocks=True).check()  # of A each row has its own


def test_rows_for_whole_matrices_are_legal_each_once_and_fit():
    for row in GROUPED:
        row.check()
        limit = TARGETS[90].shared_bytes - 1024  # barriers and the queue
        each = shared_bytes(row) - shared_bytes(changed(row, "config", stages=row.config.stages - 1))
        assert shared_bytes(row) <= limit, row.name
        assert row.config.stages == 8 or shared_bytes(row) + each > limit - 2048, f"{row.name} has room for a stage"
        assert row.config.stages >= 4, row.name
        assert row.config.block_m >= 32 and row.config.block_n >= 64, row.name  # operands.c counts tiles by these
        assert row.config.block_k * DTYPES[row.problem.a].bytes == 128, row.name  # a row of a swizzled buffer
    assert len({row.name for row in GROUPED}) == len(GROUPED) > 40


def test_each_problem_of_packed_groups_has_the_rows_it_may_have():
    tiles = [list(tile) for tile in tuned(90, "grouped_mm").tiles["nt"]]  # one set for all layouts
    for problem in PACKED:
        own = list(grouped_rows(problem))
        if problem.a == "f32" and (problem.precision, problem.layout) != ("tf32", "nt"):
            assert own == []  # tensor cores take float32 where K is contiguous
            continue
        families = {row.family.name for row in own}
        assert families <= {"pingpong"} or problem.a != "f32"  # what the others' instructions take is 16 bits wide
        cuts = {guard for row in own for guard in row.guard} & {"equal", "rows"}
        assert cuts == ({"equal", "rows"} if problem.layout[0] == "n" else {"equal"})
        for row in own:
            cut = "equal" if "equal" in row.guard else "rows"
            tile = (row.family.name, cut, row.config.block_m, row.config.block_n)
            may = WIDE_ACTIVATED if problem.d == "f32" else ACTIVATED
            assert [*tile] in tiles
            shares, activated = tile[0] == "cluster", tile in may and "linear" not in row.guard
            assert ("cluster" in row.guard) == shares and ("linear" in row.guard) == (not shares and not activated)
            assert row.constexprs()["EQUAL"] == ("equal" in row.guard)
        of_cut = {cut: [row for row in own if cut in row.guard] for cut in cuts}
        assert all(any(not {"linear", "cluster"} & {*row.guard} for row in rows) for rows in of_cut.values())
        if problem.d == problem.a != "f32":
            for cut, rows in of_cut.items():
                shipped = [tile for tile in (*tiles, *ACTIVATED) if tile[1] == cut]
                if problem.layout != "tn":  # gradients alone have tiles that no group's end cuts
                    shipped = [tile for tile in shipped if tile[0] not in ("whole", "whole_swap")]
                counting = [row for row in rows if "counted" in row.guard]
                assert len(rows) == len(shipped) + len(counting)
                assert len(counting) == (len(COUNTED) if cut == "rows" else 0)
                for row in counting:  # in front of its twin, whose fit it has
                    twin = dataclasses.replace(row, guard=tuple(guard for guard in row.guard if guard != "counted"))
                    assert rows[rows.index(row) + 1] == twin and row.fit == twin.fit


def test_boxes_of_packed_groups_are_of_one_group_and_with_operands_swapped_runs_of_rows():
    """A's in as many as it comes in, D's and C's in as many as it leaves in. The kernel knows A and B by units."""
    for row in GROUPED:
        c, parts = row.config, row.config.parts
        sharers = 2 if row.family.cooperative else 1  # warpgroups, each with its columns
        out = (c.block_m // parts, c.block_n // sharers) if row.family.swap_ab else (c.block_m, c.block_n // parts)
        if row.family.whole_tiles:  # as a dense tile leaves
            out = (64, c.block_n) if row.family.swap_ab else (c.block_m // sharers, 64)
        assert row.box("c_desc") == row.box("d_desc") == (row.problem.d, *out), row.name
        assert c.a_boxes == (c.block_m // 32 if row.family.swap_ab and not row.family.whole_tiles else 1)
        for name, rows in (("a_desc", c.block_m // c.a_boxes), ("b_desc", c.block_n)):
            unit = (c.block_k, min(64, rows)) if row.turned(name) else (8, 128 // DTYPES[row.problem.a].bytes)
            assert row.box(name)[1:] == unit and row.box_rows(name) == (None if row.turned(name) else rows), row.name
            assert row.box_rank(name) == 3 and row.box_rank("d_desc") == 2
    few = changed(GROUPED[0], "config", a_boxes=3)  # of 64 or 128 rows
    with pytest.raises(SpecError, match="a_boxes = 3: allowed is a divisor of block_m"):
        few.check()


def test_a_pointer_that_a_guard_aligns_is_told_to_the_compiler():
    assert all(row.divisible("d_ptr") and not row.divisible("bias_ptr") for row in GROUPED)
    assert not changed(GOOD, "", guard=()).divisible("d_ptr")


FLEX = {row.name: row for row in variants((90,)) if row.problem.op == "gemm" and row.family.persistent}


def test_the_sum_that_a_cluster_reduces_fits_where_the_larger_operand_came():
    rows = [row for row in (*variants((90,)), *candidates()) if row.family.split == "cluster"]
    assert {row.problem.op for row in rows} == {"gemm", "grouped_mm"} and len({row.left for row in rows}) > 1
    assert {row.right for row in rows} >= {8, 72, 112, 176, 256}  # any multiple of 8
    for row in rows:
        c = row.config
        came = c.stages * max(c.block_m, c.block_n) * c.block_k * DTYPES[row.problem.a].bytes
        stride = c.block_n + (4 if row.family.swap_ab else 8 - c.block_n % 16)  # floats from a row to the next
        assert came >= row.sum_bytes == 4 * c.block_m * stride, row.name
    nt = Problem("gemm", "bf16", "bf16", "exact", "nt")
    assert hopper_variant(nt, "cluster", 256, 256, 64) is None
    assert hopper_variant(nt, "cluster", 128, 256, 64) is None  # as large as what came, without room between rows
    shallow = changed(hopper_variant(nt, "cluster", 128, 160, 64), "config", stages=4)
    with pytest.raises(SpecError, match="stages = 4: allowed is 5 or more: the sum goes where A or B came"):
        shallow.check()
    for fields, message in (({"block_k": 96}, "block_k = 96: allowed is a multiple of 64, 128 bytes"),
                            ({"block_n": 264}, "block_n = 264: allowed is 256 or less")):  # fmt: skip
        with pytest.raises(SpecError, match=message):
            changed(hopper_variant(nt, "cluster", 64, 160, 64), "config", **fields).check()


def test_whose_blocks_share_all_tiles_has_what_adds_up_behind_it():
    """C looks for it by the types alone, and both go through tiles in one order."""
    shipped = variants((90,))
    adders = {(row.problem.a, row.problem.d): row.config.group_m for row in shipped if row.problem.op == "gemm_sum"}
    measured = [row for kind in MEASURED for row in candidates(90, kind)]
    for rows in (shipped, measured):
        streams = [row for row in rows if row.family.split == "stream"]
        assert len(streams) > 20 or rows is shipped
        assert all(adders.get((row.problem.a, row.problem.d)) == row.config.group_m for row in streams)
    tiles = [tile[0] for tiles in tuned(90, "gemm").tiles.values() for tile in tiles]
    streams = [row for row in shipped if row.family.split == "stream"]
    assert len(streams) == 2 * sum(name.startswith("stream") for name in tiles) > 0  # in bfloat16 and float16
    for a, d in (("bf16", "f32"), ("e4m3", "bf16")):
        assert hopper_variant(Problem("gemm", a, d, "exact", "nt"), "stream_pingpong", 128, 160, 64) is None


def test_persistent_rows_are_legal_and_leave_room_for_their_barriers():
    assert len(FLEX) > 100 and len({(row.left, row.right) for row in FLEX.values()}) > 20
    for row in FLEX.values():
        row.check()
        c = row.config
        line = c.block_k * DTYPES[row.problem.a].bytes  # bytes of K of a row of a stage
        come = 0
        for name, size, is_right in (("a_desc", c.block_m, row.family.swap_ab), ("b_desc", c.block_n, False)):
            sharers = c.below if is_right or (name == "b_desc" and not row.family.swap_ab) else c.across
            if row.turned(name):
                _, lines, box = row.box(name)
                rows = math.ceil(size / box) * box
                some = lines if rows % (box * sharers) == 0 else lines // sharers  # of K, where boxes cannot be shared
                assert row.box_rows(name) == (None if some == lines else some), row.name
                assert some % 8 == 0, row.name  # what TMA swizzles together
            else:
                rows = math.ceil(size / sharers) * sharers
                assert row.box_rows(name) == rows // sharers, row.name
            assert rows < size + max(64, size / 4), row.name  # little comes that is not the tile's
            come += rows
        owners = 1 if row.family.cooperative else 2
        part = min(128, 64 * DTYPES[row.problem.d].bytes)  # bytes of D's columns that leave together
        leaves = owners * row.left * part * c.buffers if row.family.store == "tma" else 0
        assert c.stages * come * line + leaves <= TARGETS[90].shared_bytes - 1024, row.name
        assert c.stages >= 3, row.name


def test_stages_and_buffers_are_as_many_as_were_measured_to_pay():
    e4m3, bf16, f32 = (Problem("gemm", *types, "nt") for types in (
        ("e4m3", "bf16", "exact"), ("bf16", "bf16", "exact"), ("f32", "f32", "tf32"),
    ))  # fmt: skip

    def of(problem, *tile, **words):
        return hopper_variant(problem, *tile, **words).config

    assert [of(e4m3, "flex_pingpong_swap", rows, 64, 64).stages for rows in (24, 40, 48, 80)] == [8, 16, 14, 11]
    assert [of(e4m3, family, 64, 64, 64).stages for family in ("pingpong", "split")] == [13, 8]
    assert of(bf16, "split", 64, 64, 64).stages == of(bf16, "pingpong", 64, 64, 64).stages == 13
    in_blocks = [of(e4m3, family, *tile, 64, blocks=True) for family, *tile in (
        ("pingpong", 64, 32), ("pingpong", 64, 64), ("pingpong_swap", 32, 64),
    )]  # fmt: skip
    assert [config.stages for config in in_blocks] == [16, 12, 8]
    for problem, buffers in ((e4m3, 1), (bf16, 1), (f32, 2)):  # of blocks that share loads
        assert of(problem, "flex_coop_swap", 96, 128, 64, 2, 2).buffers == buffers
        assert of(problem, "flex_coop_swap", 96, 128, 64).buffers == 2


def test_a_family_of_powers_of_two_takes_no_cluster_that_shares_loads():
    with pytest.raises(SpecError, match="cluster = 2: allowed is 1"):
        changed(GOOD, "config", cluster=2).check()


def test_packed_groups_may_have_any_number_of_parts_of_64_columns():
    """Their rows are a power of two; where operands are swapped rows are in parts, and columns a power of two."""
    found = [v for v in variants((90,)) if v.problem.op == "grouped_mm" and v.config.block_n == 192]
    found = [v for v in found if not v.family.whole_tiles]
    wide = {64: 64, 128: 128}  # rows of A to those of a warpgroup's D
    assert {v.problem.a for v in found} == {"f16", "bf16", "e4m3"}
    for v in found:
        rows = wide[v.config.block_m] // (2 if v.family.cooperative else 1)
        assert (v.config.parts, v.box("d_desc")) == (3, (v.problem.d, rows, 64)), v.name
    for fields, words in (
        ({"block_n": 160}, "block_n = 160: allowed is a power of two of at least 8, or a multiple of 64"),
        ({"block_m": 192}, "block_m = 192: allowed is a power of two of at least 8"),
        ({"parts": 5}, r"parts = 5: allowed is \(1, 2, 3, 4, 6\)"),
    ):
        with pytest.raises(SpecError, match=f"{words}$"):
            changed(found[0], "config", **fields).check()
    tall = [v for v in variants((90,)) if v.problem.op in ("grouped_mm", "moe_mm") and v.config.block_m == 192]
    tall = [v for v in tall if v.problem.op == "moe_mm" or not v.family.whole_tiles]
    assert {(v.problem.op, v.problem.a) for v in tall} == set(product(("grouped_mm", "moe_mm"), ("f16", "bf16")))
    for v in tall:
        columns = 64 if "gated" in v.guard else 128
        assert (v.config.parts, v.box("d_desc")) == (6, (v.problem.d, 32, columns)), v.name
        assert v.row_least == v.constexprs()["LEAST"] == 96, v.name
    assert {v.row_least for v in variants((90,)) if v not in tall} == {0, 16}
    for fields, words in (
        ({"block_m": 96}, "block_m = 96: allowed is a power of two of at least 8, or a multiple of 64"),
        ({"block_n": 192}, "block_n = 192: allowed is a power of two of at least 8"),
    ):
        with pytest.raises(SpecError, match=f"{words}$"):
            changed(tall[0], "config", **fields).check()
