"""Rows of packed groups whose blocks share K: when they run, on how many blocks, what they are told. No numerics."""

import itertools

from built import needs
from calls import Call, at, last_launch, launches, ok, records, refused, values
from libgemm._library import text
from libgemm.inspect import variants
from stand_in import in_stand_in
from test_capi_cluster import shares
from test_capi_fast import maps, tiles
from test_capi_grouped_fast import INNER, NOTHING, TYPES

from kernels.table.model import CLUSTERS, Work, estimate, features
from kernels.table.spec import LAYOUTS
from kernels.table.variants import variants as table
from tests.gpu.cases_groups import group_cases

pytestmark = needs(90)  # these rows are Hopper's

KINDS = {"none": NOTHING, "k": INNER}
SIZES = [
    (1, 8, 128),
    (64, 64, 320),
    (33, 64, 384),
    (64, 128, 1000),
    (70, 136, 448),
    (130, 264, 4096),
    (200, 256, 65536),
    (512, 512, 16384),
]


def cluster_rows() -> list:
    found = [v for v in variants() if v.op == "grouped_mm" and v.target == 90 and "_cluster" in v.name]
    assert {(v.trans_a, v.trans_b) for v in found} == set(itertools.product((False, True), repeat=2))
    return found


def packed(v, ragged: int, m: int, n: int, k: int, groups: int, **fields) -> Call:
    """A call by this row's name, K being that of all groups where ends cut it; groups stand one behind the other."""
    lds = {"lda": m if v.trans_a else k, "ldb": k if v.trans_b else n, "ldc": n, "ldd": n}
    lds = {name: -(-ld // 8) * 8 for name, ld in lds.items()}
    rows = {"a": k if v.trans_a else m, "b": n if v.trans_b else k, "c": m, "d": m}
    strides = {f"batch_stride_{x}": count * lds[f"ld{x}"] for x, count in rows.items()}
    types = {"a_type": TYPES[v.a_type], "d_type": TYPES[v.d_type], "variant": v.name}
    turned = {"trans_a": int(v.trans_a), "trans_b": int(v.trans_b)}
    sizes = {"m": m, "n": n, "k": k, "groups": groups, "ragged": ragged}
    return Call("grouped_mm", **{**sizes, **types, **turned, **lds, **strides, **fields})


def kinds(v) -> tuple:
    return (INNER, NOTHING) if v.trans_a and not v.trans_b else (NOTHING,)


def share_of(v, ragged: int, m: int, n: int, k: int, groups: int) -> int:
    """The largest cluster of which every tile's of every group starts at once, by the K that is expected of a group."""
    each = -(-k // groups) if ragged == INNER else k
    all_tiles = tiles(v, m, n) * groups
    steps = -(-each // v.block_k)
    for size in range(len(CLUSTERS) - 1, 1, -1):
        if all_tiles <= CLUSTERS[size] and -(-steps // -(-steps // size)) == size:
            return size
    return 1


def launch_is_shared(v, m: int, n: int, groups: int, size: int) -> dict:
    found = last_launch()
    assert (found["cluster"], found["grid"]) == (size, [tiles(v, m, n) * groups * size, 1, 1]), v.name
    assert (found["block"], found["shared"]) == ([32 * v.warps, 1, 1], v.shared_bytes), v.name
    assert found["programmatic"] == 1 and found["kernel"] == "grouped_mm_cluster"
    arguments = values(found)
    assert (arguments["splits"], arguments["groups"]) == (size, groups)
    assert (arguments["M"], arguments["N"]) == (m, n)
    return arguments


@in_stand_in()
def test_every_row_launches_a_cluster_for_each_tile_of_each_group():
    seen = set()
    for v, (m, n, k), groups in itertools.product(cluster_rows(), SIZES, (1, 2, 5, 11, 60)):
        for ragged in kinds(v):
            size, call = share_of(v, ragged, m, n, k, groups), packed(v, ragged, m, n, k, groups, beta=1.0, d=at(8))
            if size == 1:
                refused(call.run(), "UNSUPPORTED", v.name, "fewer tiles in all groups", "steps in K", "on average")
                refused(call.explain(90)[0], "UNSUPPORTED", v.name, "fewer tiles in all groups", "steps in K")
                continue
            assert call.workspace() == 0
            ok(call.run())
            found = launch_is_shared(v, m, n, groups, size)
            steps = {"a_step": k if v.trans_a else m, "b_step": n if v.trans_b else k, "d_step": m}
            own = "d" if ragged == INNER else "abd"
            assert {x: found[x] for x in steps} == {
                x: step if x[0] in own and groups > 1 else 0 for x, step in steps.items()
            }
            assert found["K"] == k and (found["c_ptr"], found["d_ptr"]) == (at(2), at(8))
            assert (found["ldc"], found["ldd"]) == (n, n)
            assert set(maps(last_launch())) == {"a", "b"}  # C and D by plain loads and stores
            seen.add(size)
    assert seen == set(range(2, len(CLUSTERS)))


@in_stand_in(SMS=66)
def test_a_gpu_with_half_the_multiprocessors_holds_half_the_clusters():
    half, seen = [count * 66 // 132 for count in CLUSTERS], set()
    for v, groups in itertools.product(cluster_rows(), (1, 3, 8, 15, 16, 40)):
        size = next((s for s in range(8, 1, -1) if groups <= half[s]), 1)
        call = packed(v, NOTHING, 64, 64, 1 << 13, groups)
        if size == 1:
            refused(call.run(), "UNSUPPORTED", "fewer tiles")
            continue
        ok(call.run())
        seen.add(launch_is_shared(v, 64, 64, groups, size)["splits"])
    assert len(seen) > 3


@in_stand_in()
def test_one_group_is_shared_as_a_dense_product_is():
    for v, (m, n, k) in itertools.product(cluster_rows(), SIZES):
        assert share_of(v, NOTHING, m, n, k, 1) == shares(v, m, n, k)


@in_stand_in()
def test_what_else_a_row_asks():
    for v in cluster_rows():
        one = {"m": 64, "n": 64, "k": 4096, "groups": 2}
        ok(packed(v, NOTHING, **one, activation=2, bias=at(4), batch_stride_bias=5).run())
        assert values(last_launch())["batch_stride_bias"] == 5
        for change in ({"a": at(0) + 4}, {"d": at(3) + 4}, {"ldd": 66, "batch_stride_d": 66 * 64}, {"alpha": 0.0}):
            made = packed(v, NOTHING, **one, **change)
            refused(made.run(), "UNSUPPORTED", v.name, "16-byte aligned")
        apart = packed(v, NOTHING, **one).set(batch_stride_d=64 * 64 + 8)
        refused(apart.run(), "UNSUPPORTED", v.name, "whole rows apart")
        refused(packed(v, 0, **one).run(), "UNSUPPORTED", v.name)  # ends that cut rows
        if len(kinds(v)) == 1:
            refused(packed(v, INNER, **one).run(), "UNSUPPORTED", v.name, "ends that cut K of a transposed A")


@in_stand_in()
def test_sizes_no_memory_holds_are_refused_in_words():
    most = 2**31 - 264
    for v in cluster_rows():
        call = packed(v, NOTHING, most, most, 128, 65535, batch_stride_a=0, batch_stride_b=0, batch_stride_d=2**62)
        refused(call.explain(90)[0], "UNSUPPORTED", v.name)


def chosen(ragged: int, layout: str, m: int, n: int, k: int, groups: int) -> str:
    v = next(v for v in cluster_rows() if (v.d_type, "nt"[v.trans_a] + "nt"[v.trans_b]) == ("bf16", layout))
    call = packed(v, ragged, m, n, k, groups, variant=None)
    ok(call.run())
    name = text(call.variant().name)
    assert (last_launch()["cluster"] > 1) == ("_cluster" in name)
    return name


FEW_AND_LONG = [
    (2, 256, 256, 65536),
    (4, 128, 192, 32768),
    (1, 512, 512, 65536),
    (1, 64, 64, 4096),
]
OTHERS = [
    (4, 1024, 1024, 16384),
    (8, 512, 1024, 65536),
    (64, 256, 256, 65536),
    (8, 128, 128, 2048),
    (2, 512, 512, 32768),
]


@in_stand_in()
def test_blocks_share_k_where_tiles_are_few_and_k_is_long_and_not_elsewhere():
    for shared, shapes in ((True, FEW_AND_LONG), (False, OTHERS)):
        for groups, m, n, k in shapes:
            assert ("_cluster" in chosen(INNER, "tn", m, n, k, groups)) == shared, (groups, m, n, k)
    for layout in ("nn", "nt", "tn", "tt"):
        assert "_cluster" in chosen(NOTHING, layout, 64, 512, 16384, 4)
        assert "_cluster" not in chosen(NOTHING, layout, 64, 512, 256, 4)
        assert "_cluster" not in chosen(NOTHING, layout, 512, 512, 16384, 40)
    ran = {launch["kernel"].removesuffix("_swap") for launch in launches()}
    assert ran == {"grouped_mm_cluster", "grouped_mm_pingpong", "grouped_mm_whole"}


@in_stand_in()
def test_c_and_python_expect_the_same_time_and_the_same_clusters():
    rows, splits = {row.name: row for row in table((90,))}, set()
    for v, (m, n, k), groups in itertools.product(cluster_rows(), SIZES, (1, 2, 5, 30)):
        row, each = rows[v.name], k * groups
        call = packed(v, kinds(v)[0], m, n, each if kinds(v)[0] == INNER else k, groups)
        status, choice = call.explain(90)
        out, c = (4 if v.d_type == "f32" else 2), row.config
        work = Work(m, n, k, groups, 2, out, 2 * call.args.lda, 2 * call.args.ldb, 132)
        tile = (c.block_m, c.block_n, c.block_k, row.family)
        split = estimate(*tile, work)[8]
        assert (status == 0) == (split > 1), (v.name, m, n, k, groups)
        if split > 1:
            us = row.fit.us(LAYOUTS.index(row.problem.layout), features(*tile, work))
            assert abs(choice.expected_us / us - 1) < 2e-3 and choice.covered == 1
            splits.add(split)
    assert len(splits) > 4


@in_stand_in()
def test_a_row_takes_every_problem_of_the_gpu_suite_and_shares_its_k():
    """The suite's pads, types and sizes; some of its problems leave blocks without a step."""
    assert records()[cluster_rows()[0].name]["kernel"] == "sm90.grouped_mm_cluster.grouped_mm_cluster"
    for v in cluster_rows():
        seen, idle, cut = set(), 0, 0
        for case in group_cases(v):
            m, n, k = case.totals()
            stored = {"lda": m if v.trans_a else k, "ldb": k if v.trans_b else n, "ldc": n, "ldd": n}
            lds = {name: width + pad for (name, width), pad in zip(stored.items(), case.pads, strict=True)}
            rows = {"a": k if v.trans_a else m, "b": n if v.trans_b else k, "c": m, "d": m}
            apart = {f"batch_stride_{x}": count * lds[f"ld{x}"] for x, count in rows.items()}
            words = {"alpha": case.alpha, "beta": case.beta, "activation": int(case.activation is not None)}
            call = packed(v, KINDS[case.ragged], m, n, k, case.groups).set(**lds, **apart, **words)
            status, _ = call.explain(90)
            ok(status)
            split = share_of(v, KINDS[case.ragged], m, n, k, case.groups)
            assert split > 1, case
            depths = [-(-size[2] // v.block_k) for size in case.group_sizes()]
            idle += any(0 < -(-steps // max(1, -(-steps // split))) < split for steps in depths)
            cut += any(size[2] % v.block_k for size in case.group_sizes())
            seen.add(split)
        assert len(seen) > 3 and cut > 5, v.name
        assert idle > 5 or len(kinds(v)) == 1, v.name
        assert seen == set(range(2, 9)) or len(kinds(v)) == 1, (v.name, seen)
