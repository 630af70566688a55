"""Rows whose blocks share all tiles evenly, and the kernel that adds up behind them: on the stand-in. No numerics."""

import itertools

from built import needs
from calls import Call, at, fail, last_launch, launches, ok, records, refused, values
from libgemm._library import text
from stand_in import in_stand_in
from test_capi_fast import call_of, fast_rows

from kernels.table.model import CLUSTERS, LEAST_STEPS, MOST_SHARERS

pytestmark = needs(90)

SHAPES = [(512, 512, 16384), (250, 480, 11832), (1604, 272, 14280), (200, 1000, 30000), (640, 768, 8192),
          (448, 1024, 16384)]  # fmt: skip


def space() -> dict:
    return {"workspace": at(6), "workspace_bytes": 1 << 40}


def stream_rows() -> list:
    return [v for v in fast_rows() if v.family.startswith("stream")]


def sizes(trans_a, trans_b, m: int, n: int, k: int) -> dict:
    lds = {"lda": m if trans_a else k, "ldb": k if trans_b else n, "ldc": n, "ldd": n}
    return {"m": m, "n": n, "k": k, **{name: -(-ld // 8) * 8 for name, ld in lds.items()}}


def call(v, m: int, n: int, k: int, **fields) -> Call:
    return call_of(v, **sizes(v.trans_a, v.trans_b, m, n, k) | fields)


def shared(v, m: int, n: int, k: int, multiprocessors: int = 132) -> tuple[int, int, int]:
    """Tiles, or of clusters those of all their blocks; blocks, or clusters, that share them; and steps in K of each, 0
    where that cannot pay."""
    config = records()[v.name]["config"]
    across = config["across"]
    below = config["cluster"] // across
    rows, columns = (across, below) if "swap" in v.family else (below, across)
    tiles = -(-m // (v.block_m * rows)) * -(-n // (v.block_n * columns))
    all_ = max(1, CLUSTERS[v.ctas] * multiprocessors // 132) if v.ctas > 1 else multiprocessors
    each = -(-tiles * -(-k // v.block_k) // all_)
    return tiles, all_, each if tiles < all_ <= tiles * MOST_SHARERS and each >= LEAST_STEPS else 0


def launches_are_a_pair(v, m: int, n: int, tiles: int, all_: int, each: int, place: int = 0) -> None:
    product, adds = launches()[-2:]
    config, other = (records()[launch["variant"]]["config"] for launch in (product, adds))
    assert product["variant"] == v.name and records()[adds["variant"]]["problem"]["op"] == "gemm_sum"
    assert (product["grid"], product["cluster"]) == ([all_ * v.ctas, 1, 1], v.ctas), v.name
    found, told = values(product), values(adds)
    assert (found["partials"], found["stream_steps"]) == (at(6) + place, each), v.name
    same = ("partials", "stream_steps", "M", "N", "K")
    assert all(told[name] == found[name] for name in same if name in found), v.name
    assert (told["M"], told["N"]) == (m, n)
    tile = (v.block_m, v.block_n, v.block_k, int("swap" in v.family))
    assert tuple(told[f"stream_{x}"] for x in ("m", "n", "k", "swap")) == tile, v.name
    assert told["stream_across"] == config["across"], v.name
    assert told["stream_below"] * told["stream_across"] == v.ctas, v.name
    parts = -(-v.block_m // other["block_m"]) * -(-v.block_n // other["block_n"])
    assert (adds["grid"], adds["cluster"]) == ([tiles * v.ctas * parts, 1, 1], 1), v.name
    assert other["group_m"] == config["group_m"], v.name  # both go through tiles in one order


@in_stand_in()
def test_each_row_leaves_sums_in_the_workspace_and_a_second_kernel_adds():
    ran, refusals, forms = 0, 0, set()
    for v, (m, n, k) in itertools.product(stream_rows(), SHAPES):
        tiles, all_, each = shared(v, m, n, k)
        if not each:
            words = ("fewer tiles than multiprocessors", "24 steps in K")
            refused(call(v, m, n, k, **space()).run(), "UNSUPPORTED", v.name, *words)
            refusals += 1
            continue
        plain = call(v, m, n, k, alpha=0.5, beta=2.0, bias=at(4))
        needed = plain.workspace()
        assert needed == (all_ + tiles) * v.ctas * v.block_m * v.block_n * 4, v.name
        before = len(launches())
        refused(plain.run(), "UNSUPPORTED", v.name, "libgemm_gemm_workspace")
        refused(plain.set(workspace=at(6), workspace_bytes=needed - 1).run(), "UNSUPPORTED", "libgemm_gemm_workspace")
        assert len(launches()) == before
        ok(plain.set(workspace_bytes=needed).run())
        assert len(launches()) == before + 2
        launches_are_a_pair(v, m, n, tiles, all_, each)
        told = values(last_launch())
        assert (told["c_ptr"], told["d_ptr"], told["bias_ptr"]) == (at(2), at(3), at(4))
        assert (told["alpha"], told["beta"]) == (0.5, 2.0)
        ran += 1
        forms.add((v.trans_a, v.trans_b, v.ctas))
    assert ran > 40 and refusals > 5 and {form[:2] for form in forms} == set(itertools.product((0, 1), repeat=2))
    assert {form[2] for form in forms} == {2, 4}


@in_stand_in(SMS=66)
def test_half_the_multiprocessors_are_half_the_runs():
    seen = set()
    for v, (m, n, k) in itertools.product(stream_rows(), SHAPES):
        tiles, all_, each = shared(v, m, n, k, 66)
        if each:
            ok(call(v, m, n, k, **space()).run())
            launches_are_a_pair(v, m, n, tiles, all_, each)
            seen.add(each == shared(v, m, n, k)[2])
    assert False in seen


@in_stand_in()
def test_many_tiles_or_few_or_a_short_k_or_no_product_are_not_shared():
    for v in stream_rows():
        for m, n, k, alpha in ((4096, 4096, 4096, 1), (8, 8, 65536, 1), (512, 512, 1024, 1), (512, 512, 16384, 0)):
            refused(call(v, m, n, k, alpha=alpha, **space()).run(), "UNSUPPORTED", v.name)
            refused(call(v, m, n, k, alpha=alpha, **space()).explain(90)[0], "UNSUPPORTED", v.name)
    assert launches() == []


def chosen_calls():
    """Calls that any row may serve, and what is chosen."""
    for m, n, k in ((250, 480, 11832), (501, 464, 16136), (512, 512, 16384), (384, 768, 12288)):
        yield Call("gemm", trans_b=1, **sizes(0, 1, m, n, k)), (m, n, k)


@in_stand_in()
def test_it_is_chosen_with_a_workspace_alone():
    chosen = 0
    for free, (m, n, k) in chosen_calls():
        needed = free.workspace()
        v = next((v for v in stream_rows() if v.name == text(free.set(**space()).variant().name)), None)
        if v is None:
            continue
        assert needed == free.set(workspace=0, workspace_bytes=0).workspace()
        assert "_stream" not in text(free.variant().name)
        ok(free.run())
        assert "_stream" not in last_launch()["variant"]
        ok(free.set(workspace=at(6), workspace_bytes=needed).run())
        launches_are_a_pair(v, m, n, *shared(v, m, n, k))
        chosen += 1
    assert chosen > 0


@in_stand_in()
def test_sums_stand_behind_a_copy_of_what_is_not_aligned():
    seen = 0
    for free, (m, n, k) in chosen_calls():
        free.set(lda=k + 1, **space())
        v = next((v for v in stream_rows() if v.name == text(free.variant().name)), None)
        if v is None:
            continue
        needed = free.workspace()
        ok(free.set(workspace_bytes=needed).run())
        copied = 2 * m * -(-k // 64) * 64
        ops = [records()[launch["variant"]]["problem"]["op"] for launch in launches()[-3:]]
        assert ops == ["align", "gemm", "gemm_sum"]
        tiles, all_, each = shared(v, m, n, k)
        launches_are_a_pair(v, m, n, tiles, all_, each, place=copied)
        assert needed == copied + (all_ + tiles) * v.ctas * v.block_m * v.block_n * 4
        seen += 1
    assert seen > 0


@in_stand_in()
def test_a_launch_that_fails_is_told_whichever_it_is():
    v = stream_rows()[0]
    shape = next(shape for shape in SHAPES if shared(v, *shape)[2])
    ok(call(v, *shape, **space()).run())
    before = len(launches())
    for which, queued in (("1", 0), ("2", 1)):
        fail(f"cuLaunchKernelEx:{which}:701")
        refused(call(v, *shape, **space()).run(), "DRIVER_ERROR", "701")
        fail(None)
        assert len(launches()) == before + queued
        before += queued
    ok(call(v, *shape, **space()).run())
    assert len(launches()) == before + 2
