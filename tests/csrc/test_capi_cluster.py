"""Rows whose blocks share K in clusters, and kernels that wait by themselves: their launches, on the stand-in."""

import functools
import itertools
import shutil
import subprocess

import pytest
from built import needs
from calls import Call, at, last_launch, launches, log, mixed_types, ok, records, refused, values
from libgemm._library import lib, text
from libgemm.inspect import variants
from stand_in import in_stand_in, python, scratch
from test_capi_fast import tiles
from test_capi_threads import sources

from kernels.table.model import CLUSTERS

pytestmark = needs(90)  # these rows are Hopper's

FEW = [
    (1, 64, 256),
    (8, 256, 8192),
    (64, 64, 200),
    (100, 130, 4096),
    (64, 1000, 520),
    (128, 576, 7168),
    (300, 300, 999),
]
MOST = 8


def cluster_rows(types=("bf16",)) -> list:
    found = [v for v in variants() if v.target == 90 and "_cluster_descriptor_ab" in v.name and v.a_type in types]
    assert {v.trans_b for v in found} == {False, True}
    return found


def few(v, m: int, n: int, k: int, **fields) -> Call:
    """A call of this variant, or of any where `v` is None (then NT), whose leading dimensions descriptors can hold."""
    trans_a, trans_b = (v.trans_a, v.trans_b) if v else (False, True)
    lds = {"lda": m if trans_a else k, "ldb": k if trans_b else n, "ldc": n, "ldd": n}
    lds = {name: -(-ld // 16) * 16 for name, ld in lds.items()}
    types = {"f16": 1, "bf16": 2, "f32": 3, "e4m3": 4}
    own = {"a_type": types[v.a_type], "d_type": types[v.d_type], "variant": v.name} if v else {}
    if v:
        own["precision"] = {"exact": 0, "tf32": 1, "fast": 4}[v.precision]
    return Call("gemm", m=m, n=n, k=k, trans_a=int(trans_a), trans_b=int(trans_b), **{**lds, **own, **fields})


def shares(v, m: int, n: int, k: int, at_once=CLUSTERS) -> int:
    """The largest cluster of which every tile's starts at once, each block with a piece of K of its own; or 1."""
    steps = -(-k // v.block_k)
    for size in range(MOST, 1, -1):
        each = -(-steps // size)
        if tiles(v, m, n) <= at_once[size] and each * (size - 1) < steps:
            return size
    return 1


def launch_is_shared(v, m: int, n: int, size: int) -> None:
    found = last_launch()
    assert (found["cluster"], found["grid"]) == (size, [tiles(v, m, n) * size, 1, 1]), v.name
    assert (found["block"], found["shared"]) == ([32 * v.warps, 1, 1], v.shared_bytes), v.name
    arguments = values(found)
    assert arguments["splits"] == size and "semaphores" not in arguments and "partials" not in arguments


@in_stand_in()
def test_every_cluster_row_launches_a_cluster_for_each_tile():
    seen = set()
    for v, (m, n, k) in itertools.product(cluster_rows(("f16", "bf16", "f32")), FEW):
        size, call = shares(v, m, n, k), few(v, m, n, k, beta=1.0)
        if size == 1:
            refused(call.run(), "UNSUPPORTED", v.name, "fewer tiles", "steps in K")
            continue
        assert call.workspace() == 0
        ok(call.run())
        launch_is_shared(v, m, n, size)
        seen.add(size)
    assert {2, 8} < seen <= set(range(2, MOST + 1)) and len(seen) >= 4


@in_stand_in()
def test_a_chosen_cluster_row_starts_all_its_clusters_at_once():
    seen = set()
    for m, n, k in itertools.product((1, 16, 64, 128, 300), (64, 576, 1280, 2112), (128, 1024, 7168)):
        call = few(None, m, n, k)
        name = text(call.variant().name)
        ok(call.run())
        found = last_launch()
        if "_cluster" not in name:
            assert found["cluster"] == 1, name
            continue
        v = next(v for v in variants() if v.name == name)
        assert tiles(v, m, n) <= CLUSTERS[found["cluster"]]
        launch_is_shared(v, m, n, shares(v, m, n, k))
        seen.add(found["cluster"])
    assert len(seen) >= 3


@in_stand_in(SMS=66)
def test_a_gpu_with_half_the_multiprocessors_holds_half_the_clusters():
    half, seen = [count * 66 // 132 for count in CLUSTERS], set()
    for v, (m, n, k) in itertools.product(cluster_rows(), FEW):
        size = shares(v, m, n, k, half)
        if size > 1:
            ok(few(v, m, n, k).run())
            launch_is_shared(v, m, n, size)
            seen.add(size == shares(v, m, n, k))
    assert seen == {False, True}


@in_stand_in()
def test_without_anything_to_share_a_cluster_row_never_runs():
    for v in cluster_rows():
        for change in ({"k": 8}, {"alpha": 0.0}, {"m": 4096, "n": 4096}):
            sizes = {"m": 64, "n": 64, "k": 4096, **{x: change[x] for x in change if x in "mnk"}}
            alpha = {x: change[x] for x in change if x == "alpha"}
            refused(few(v, **sizes, **alpha).run(), "UNSUPPORTED", v.name)
    assert launches() == []


@in_stand_in()
def test_kernels_that_wait_by_themselves_are_launched_so_and_no_others():
    own = [v for v in variants() if (v.target, v.op, v.d_type, v.precision) == (90, "gemm", "bf16", "exact")]
    seen = []
    for v in own:
        streams = "_stream" in v.name  # and is not last: test_capi_stream.py
        call = few(v, *((504, 504, 32768) if streams else (64, 64, 32768)))
        if "_blocks" in v.name:
            call.set(scaling=lib.LIBGEMM_SCALING_1X128_128X128, a_scale=at(7), b_scale=at(8))
        ok(call.set(**mixed_types(v.name), workspace=at(6), workspace_bytes=1 << 30).run())
        product = launches()[-2] if streams else last_launch()
        assert product["variant"] == v.name and product["programmatic"] == records()[v.name]["overlaps"], v.name
        seen.append(records()[v.name]["overlaps"])
    assert True in seen and False in seen
    assert {launch["programmatic"] for launch in log("cuLaunchKernelEx")} == {0, 1}


@functools.cache
def library_for_older_drivers() -> str:
    """A few rows linked as if their cubins came from CUDA 12, so that the driver's version alone decides."""
    folder = scratch() / "older"
    shutil.copytree(sources(), folder)
    table = folder / "table.c"
    older = table.read_text().replace(".min_cuda = 13000", ".min_cuda = 12000")
    assert ".min_cuda = 12000" in older
    table.write_text(older)
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", f"-I{folder}", "-o", "older.so"]
    files = map(str, sorted(folder.rglob("*.c")))
    subprocess.run([*command, *files, "-ldl", "-lpthread"], cwd=folder, check=True)
    return str(folder / "older.so")


OLDER = """
import calls
from libgemm._library import ffi
calls.lib = ffi.dlopen({path!r})
for fields in ({{}}, {{"m": 8, "n": 256, "k": 8192, "lda": 8192, "ldb": 256, "ldd": 256}}):
    call = calls.Call("gemm", **fields)
    calls.ok(call.run())
    found = calls.last_launch()
    print(found["programmatic"], found["cluster"] > 1)
"""


@pytest.mark.parametrize(("version", "programmatic"), [(12020, 0), (12030, 1), (13000, 1)])
def test_a_driver_whose_graphs_would_lose_the_overlap_is_not_asked_for_it(version, programmatic):
    printed = python(OLDER.format(path=library_for_older_drivers()), FAKECUDA_VERSION=version)
    assert printed.split() == [str(programmatic), "False", str(programmatic), "True"]
