"""The formula of kernels/table/model.py and its mirror in C give the same times; measured winners run. Needs no GPU."""

import collections
import dataclasses
import itertools
import random

import libgemm
import pytest
from built import needs
from libgemm._library import ffi, lib, text
from libgemm.inspect import variants

from build.shortlist import make_program
from build.tune import choosing
from kernels.table.families import DENSE_SM90
from kernels.table.model import (
    FAR,
    MACHINE,
    THIN_ROWS,
    Model,
    Work,
    clusters_at_once,
    estimate,
    expected_us,
    features,
    is_shared,
    packed_work,
    rough,
    stride_class,
    tuned,
)
from kernels.table.spec import LAYOUTS
from kernels.table.targets import TARGETS
from kernels.table.variants import variants as table

pytestmark = needs(90)  # these rows are Hopper's

TYPES = {"f16": (1, 2), "bf16": (2, 2), "f32": (3, 4), "e4m3": (4, 1)}  # value of the C enum, bytes
ROWS = {row.name: row for row in table((90,)) if row.problem.op == "gemm"}
UNSUPPORTED = "LIBGEMM_UNSUPPORTED"


@dataclasses.dataclass
class Problem:
    """A dense call of one row; strides in elements."""

    name: str
    m: int
    n: int
    k: int
    lda: int
    ldb: int
    batch: int = 1

    def explain(self, pinned: bool = True):
        """The library's choice, or the name of its refusal; of all rows where its own is not pinned."""
        p, args = ROWS[self.name].problem, ffi.new("libgemm_gemm_args *")
        lib.libgemm_gemm_args_init(args, ffi.sizeof("libgemm_gemm_args"))
        args.m, args.n, args.k, args.batch = self.m, self.n, self.k, self.batch
        args.lda, args.ldb, args.ldd = self.lda, self.ldb, -(-self.n // 8) * 8
        args.batch_stride_d = self.m * args.ldd
        args.a_type, args.d_type = TYPES[p.a][0], TYPES[p.d][0]
        args.precision = ("exact", "tf32", "tf32x3", "ieee", "fast").index(p.precision)
        args.trans_a, args.trans_b = (letter == "t" for letter in p.layout)
        args.a = args.b = args.d = args.workspace = ffi.cast("void *", 1 << 20)
        args.workspace_bytes = 1 << 40
        name = ffi.new("char[]", self.name.encode())
        args.variant = name if pinned else ffi.NULL
        choice = ffi.new("libgemm_choice *", {"size": ffi.sizeof("libgemm_choice")})
        status = lib.libgemm_gemm_explain(args, 90, choice)
        assert status == 0 or text(lib.libgemm_status_name(status)) == UNSUPPORTED, text(lib.libgemm_last_error())
        return choice if status == 0 else UNSUPPORTED

    def lines(self) -> tuple[int, int]:
        """Bytes from one stored row of A and of B to the next; of a single one, whose leading dimension is nobody's,
        its length in whole pieces of 16."""
        p, size = ROWS[self.name].problem, TYPES[ROWS[self.name].problem.a][1]
        a, b = (self.m, self.k), (self.k, self.n)  # (rows, length) where they are not stored in turn
        turned = (p.layout[0] == "t", p.layout[1] == "t")
        found = []
        for (rows, length), is_turned, ld in zip((a, b), turned, (self.lda, self.ldb), strict=True):
            rows, length = (length, rows) if is_turned else (rows, length)
            found.append(-(-length * size // 16) * 16 if rows == 1 else ld * size)
        return tuple(found)

    def asked(self) -> tuple:
        """What the formulas of the row's time take."""
        row = ROWS[self.name]
        c, size, out = row.config, TYPES[row.problem.a][1], TYPES[row.problem.d][1]
        work = Work(
            self.m, self.n, self.k, self.batch, size, out, *self.lines(), TARGETS[90].multiprocessors,
            row.problem.layout == "tn",
        )  # fmt: skip
        return c.block_m, c.block_n, c.block_k, row.family, work, c.below, c.across

    @property
    def is_weighed(self) -> bool:
        """Rows whose blocks load for each other are, where that may pay."""
        *_, work, below, across = self.asked()
        return below * across == 1 or is_shared(work)

    def by_python(self) -> tuple[float, float]:
        """Microseconds by the row's fit, and in how many ways K is shared."""
        row, found = ROWS[self.name], features(*self.asked())
        us = expected_us(row.fit, LAYOUTS.index(row.problem.layout), found, self.asked()[4])
        return us, 2 ** found[12]

    def roughly(self) -> float:
        """Microseconds by the rates alone, which say whether a row is near the best."""
        return estimate(*self.asked())[0]


def drawn(name: str, seed: int) -> Problem:
    """Few tiles or many; leading dimensions of every class of strides that the row can read."""
    draw, p, row = random.Random(f"{name} {seed}"), ROWS[name].problem, ROWS[name]
    most = draw.choice((64, 512, 16384))
    m, n, k = (round(2 ** draw.uniform(0, most.bit_length())) for _ in range(3))
    k *= draw.choice((1, 8)) if "workspace" not in row.guard else 512  # many pieces need a long K
    step = 16 // TYPES[p.a][1]
    if {"align16", "workspace"} & set(row.guard):
        m, n, k = (-(-x // step) * step for x in (m, n, k))
    lds = []
    for length in (m if p.layout[0] == "t" else k, k if p.layout[1] == "t" else n):
        whole = step * draw.choice((1, 2, 4, 8))
        lds.append(-(-length // whole) * whole + whole * draw.choice((0, 1)))
    batch = draw.choice((1, 3, 50)) if "align16" in row.guard else 1
    return Problem(name, m, n, k, *lds, batch)


def test_c_and_python_expect_the_same_time():
    fitted = [name for name, row in ROWS.items() if row.fit]
    seen, classes, kinds, splits = 0, set(), set(), {}
    rows_of = collections.Counter(ROWS[name].family.full_name for name in fitted)
    for name, seed in itertools.product(fitted, range(90)):
        if seed >= 6 and rows_of[ROWS[name].family.full_name] > 6:
            continue  # six seeds find products for one of them
        problem = drawn(name, seed)
        choice = problem.explain()
        if choice == UNSUPPORTED:
            continue  # nothing to share, or the row takes no such memory
        us, split = problem.by_python()
        assert choice.expected_us == pytest.approx(us, rel=2e-3), problem
        assert choice.covered == 1 and text(choice.reason).startswith(f"tuned: {choice.expected_us:.4g} us expected")
        row = ROWS[name]
        classes |= set(map(stride_class, problem.lines()))
        kinds.add((row.family.full_name, row.problem.a))
        splits.setdefault(row.family.full_name, set()).add(round(split))
        seen += 1
    assert seen > 600 and classes == {0, 1, 2, 3}
    assert {family for family, _ in kinds} == {row.family.full_name for row in ROWS.values() if row.fit}
    assert {a for _, a in kinds} == set(TYPES)
    assert len(splits["cluster"]) > 3 and 1 not in splits["cluster"] and max(splits["cluster"]) == 8
    assert max(splits["split_swap"]) > 8 and splits["coop"] == splits["flex_coop"] == {1}


def test_c_chooses_the_row_of_least_time_among_those_near_the_best(tmp_path):
    program = make_program(choosing.files(), choosing.PROGRAM, tmp_path, "choosing")
    draw, seen = random.Random(5), set()
    for _ in range(150):
        kind = draw.choice([("bf16", "nn"), ("bf16", "nt"), ("bf16", "tn"), ("f16", "nt"), ("f32", "nt")])
        own = [(x, row.problem) for x, row in ROWS.items() if row.fit]
        names = [x for x, p in own if (p.a, p.layout) == kind and p.d == p.a]
        m, n, k = (8 * round(2 ** draw.uniform(0, 10)) for _ in range(3))
        ld = m if kind[1] == "tn" else k, k if kind[1] == "nt" else n
        rows = [Problem(name, m, n, k, *ld) for name in names]
        rows = [row for row in rows if row.explain() != UNSUPPORTED and row.is_weighed]
        rough = [row.roughly() for row in rows]
        if any(us / min(rough) == pytest.approx(FAR, rel=1e-3) for us in rough):
            continue  # at the edge, where rounding decides
        near = [row for row, us in zip(rows, rough, strict=True) if us < FAR * min(rough)]
        chosen, p = rows[0].explain(pinned=False), ROWS[rows[0].name].problem
        # A shortlist may lack the least: how often and by how much, test_choice_shortlists.py says.
        listed, least = choosing.times(program, choosing.line(p.a, p.d, p.precision, m, n, k, p.layout.upper()))[0]
        assert least == pytest.approx(min(row.by_python()[0] for row in near), rel=2e-4), rows[0]
        assert chosen.expected_us == pytest.approx(listed, rel=2e-4), rows[0]
        seen.add(chosen.variant)
    assert len(seen) > 20


def test_nothing_is_expected_to_take_less_than_its_bytes():
    """A vocabulary is far wider than what was tuned: a fit alone says 0.75 of that there, and of the wrong tile."""
    for m, n, k in itertools.product((1, 16, 64, 128, 200), (128256, 262144), (4096, 7168)):
        for out in (None, "f32"):
            choice = libgemm.explain(m, n, k, out_dtype=out, layout="nt", target=90)
            moved = 2 * (m * k + n * k) + (4 if out else 2) * m * n
            assert choice.expected_us >= moved / MACHINE.memory * 1e-3 * 0.999, (m, n, k, out)


def test_groups_may_be_expected_to_take_less_than_all_their_bytes():
    """Few rows go to few experts: the weights of the others are not read."""
    for groups, n, k in ((128, 1536, 2048), (64, 4096, 7168)):
        choice = libgemm.explain_grouped_mm(8, n, k, groups, layout="nt", target=90)
        assert choice.expected_us < 0.5 * 2 * groups * n * k / MACHINE.memory * 1e-3, (groups, n, k)


def test_groups_of_few_rows_run_tiles_that_are_swapped():
    """THIN_ROWS each on average, at most; of more some run others. Where no swapped one has a fit, others do too."""
    rows = {v.name: v for v in table((90,)) if v.problem.op == "grouped_mm"}
    swapped, others = set(), set()
    for groups, n, k, layout in itertools.product((1, 48, 64, 200), (2048, 7168), (768, 2048, 7168), ("nn", "nt")):
        for each in (1, 5, THIN_ROWS):
            found = libgemm.explain_grouped_mm(groups * each, n, k, groups, layout=layout, target=90).variant.name
            swapped.add(rows[found].family.swap_ab)
        for each in (2 * THIN_ROWS, 20 * THIN_ROWS):
            found = libgemm.explain_grouped_mm(groups * each, n, k, groups, layout=layout, target=90).variant.name
            others.add(rows[found].family.swap_ab)
    assert swapped == {True} and False in others
    one = libgemm.explain_grouped_mm(64 * 8, 7168, 2048, 64, "f32", layout="nt", precision="tf32", target=90)
    assert not rows[one.variant.name].family.swap_ab and "sm90" in one.variant.name


def test_of_rows_expected_to_take_less_than_the_bytes_fits_and_rates_choose_together():
    names = [x for x, row in ROWS.items() if row.fit and (row.problem.a, row.problem.d) == ("bf16", "bf16")]
    names, listed = [x for x in names if ROWS[x].problem.layout == "nt"], [v.name for v in variants()]
    tied, chosen = 0, set()
    for m, n, k in itertools.product((4, 16, 24, 48, 64, 100), (151936, 262144), (2048, 5120, 7168)):
        rows = [Problem(name, m, n, k, k, k) for name in names]
        rows = [row for row in rows if row.is_weighed and row.explain() != UNSUPPORTED]
        most = FAR * min(row.roughly() for row in rows)
        near = [row for row in rows if row.roughly() < most]

        def key(row):
            fit = ROWS[row.name].fit.us(LAYOUTS.index("nt"), features(*row.asked()))
            return row.by_python()[0], fit * row.roughly() ** 2

        best = min(near, key=key)
        tied += sum(row.by_python()[0] == best.by_python()[0] for row in near) > 1
        found = listed[rows[0].explain(pinned=False).variant]
        assert ROWS[found].fit_name == ROWS[best.name].fit_name, (m, n, k)
        chosen.add(ROWS[found].fit_name)
    assert tied > 10 and len(chosen) > 3


def test_c_and_python_share_k_among_the_same_clusters():
    """Where a row may run, C says; where tiles times clusters are at the edge, both must still agree."""
    rows = ((n, r) for n, r in ROWS.items() if r.family.split == "cluster" and not r.problem.e5m2)
    names = [n for n, r in rows if r.problem.d == "bf16"]
    for name, tiles, steps in itertools.product(
        names, (1, 14, 15, 16, 17, 18, 22, 23, 30, 39, 40, 66, 67), (1, 2, 7, 9, 64)
    ):
        c = ROWS[name].config
        problem = Problem(name, 1, tiles * c.block_n, steps * c.block_k, steps * c.block_k, 0)
        problem.lda = 8 if ROWS[name].problem.layout[0] == "t" else problem.k
        problem.ldb = problem.k if ROWS[name].problem.layout[1] == "t" else problem.n
        choice, (us, split) = problem.explain(), problem.by_python()
        assert (choice == UNSUPPORTED) == (split == 1), problem
        assert split == 1 or choice.expected_us == pytest.approx(us, rel=2e-3), problem


def test_tiles_of_a_cluster_are_worked_on_together():
    """35 clusters of four tiles below one another: 30 run at once, so there are two waves, and 21 tiles of nothing."""
    work, tile = packed_work(1064, 1664, 11784, "tn", 132), (64, 256, 64, DENSE_SM90["pingpong"])
    *_, waves, tiles, _, _, tiles_m, tiles_n = estimate(*tile, work, 4)
    assert (waves, tiles, tiles_m, tiles_n) == (2, 140, 17, 7)
    *_, waves, tiles, _, _, _, _ = estimate(*tile, work)
    assert (waves, tiles) == (1, 119)
    assert clusters_at_once(132, 4) == 30 and clusters_at_once(16, 8) == clusters_at_once(7, 8) == 1


def test_rows_without_a_fit_take_the_rough_time():
    seen = 0
    for (name, row), seed in itertools.product(ROWS.items(), range(3)):
        problem = drawn(name, seed)
        choice = UNSUPPORTED if row.fit else problem.explain()
        if choice == UNSUPPORTED:
            continue
        c, size, out = row.config, TYPES[row.problem.a][1], TYPES[row.problem.d][1]
        tiles = -(-problem.m // c.block_m) * -(-problem.n // c.block_n) * problem.batch
        turns, steps = -(-tiles // TARGETS[90].multiprocessors), -(-problem.k // c.block_k)
        m, n, k = problem.m, problem.n, problem.k
        moved = problem.batch * (size * (m * k + n * k) + out * m * n)
        compute = row.model.fixed_ns + turns * (steps * row.model.step_ns + row.model.tile_ns)
        memory = row.model.fixed_ns + moved * row.model.byte_ps * 1e-3
        assert choice.expected_us == pytest.approx((compute**4 + memory**4) ** 0.25 * 1e-3, rel=2e-3), problem
        assert choice.covered == 0 and text(choice.reason).startswith("untuned: ")
        seen += 1
    assert seen > 50
    assert [field.name for field in dataclasses.fields(Model)] == ["fixed_ns", "step_ns", "tile_ns", "byte_ps"]
    assert rough(64, 64, 64, 50, TARGETS[90].speed).step_ns == pytest.approx(64**3 * 0.05 / 50)


def tile_of(name: str) -> str:
    return ROWS[name].fit_name


KNOWN: dict[tuple, list[str]] = {}  # the winner first
for *_shape, _, _layout, _tile in tuned(90).known:
    KNOWN.setdefault((*_shape, _layout), []).append(_tile)
SPLITS = {row.fit_name: row.family.split for row in ROWS.values()}


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_measured_shape_runs_the_tile_that_won(dtype):
    for (m, n, k, layout), (tile, *_) in KNOWN.items():
        choice = libgemm.explain(m, n, k, dtype, layout=layout, target=90)
        variant, reason = choice.variant, choice.reason
        assert tile_of(variant.name) == tile, (m, n, k, layout)
        assert reason.startswith("tuned: ") and libgemm.covers(m, n, k, dtype, layout=layout, target=90)


def test_where_the_winner_may_not_run_another_does():
    own = [v for v in variants() if v.name in ROWS and v.a_type == v.d_type == "bf16"]
    takes_none = {(ROWS[v.name].problem.layout, tile_of(v.name)): v.linear for v in own}  # the last: activated
    moved = set()
    for (m, n, k, layout), (tile, *others) in KNOWN.items():
        activated = libgemm.explain(m, n, k, layout=layout, target=90, activation="gelu").variant
        assert not activated.linear
        assert (tile_of(activated.name) == tile) != takes_none[layout, tile]
        assert tile_of(activated.name) in (tile, *others)  # measured on this shape as well
        into_float = libgemm.explain(m, n, k, out_dtype="f32", layout=layout, target=90).variant
        assert tile_of(into_float.name) in (tile, *others)
        odd = libgemm.explain(m, n, k, layout=layout, target=90, aligned=False).variant
        many = libgemm.explain(m, n, k, layout=layout, target=90, batch=2).variant
        assert (many.op == "grouped_mm") == many.single
        assert ROWS[odd.name].guard in ((), ("descriptor_ab", "linear")) or "cluster" in odd.name
        bound = libgemm.explain(m, n, k, layout=layout, target=90, batch_invariant=True).variant
        assert (tile_of(bound.name) == tile) == (not SPLITS[tile])
        cases = (("gelu", activated), ("bound", bound), ("float", into_float))
        moved |= {what for what, v in cases if tile_of(v.name) != tile}
    assert moved == {"gelu", "bound", "float"}
