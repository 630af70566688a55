"""Many threads at once, and the C core under address, undefined-behaviour and thread sanitizers. Nothing is timed."""

import functools
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from built import TARGET
from calls import Call, at, count, driver, launches, log
from libgemm._library import lib
from stand_in import ROOT, TESTS, in_stand_in, run, scratch

from aot.manifest import make_manifest
from aot.pack import pack
from aot.render import in_table_order, render
from build.cache import Cache
from build.compile_all import Limits, compile_all
from build.link import CSRC
from kernels.table.variants import variants

PROGRAMS = TESTS / "csrc" / "c"
THREADS, CALLS = 8, 100
SANITIZERS = {"address and undefined": "address,undefined", "thread": "thread"}


@in_stand_in()
def test_many_threads_start_the_library_once():
    calls = [[Call("gemm", gpu=(number + i) % 2) for i in range(CALLS)] for number in range(THREADS)]
    at(0, 1)
    started, statuses, barrier = count("cuInit"), [], threading.Barrier(THREADS)

    def work(mine):
        barrier.wait()
        statuses.extend([call.run() for call in mine])

    threads = [threading.Thread(target=work, args=(mine,)) for mine in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [lib.LIBGEMM_OK] * (THREADS * CALLS)
    assert count("cuInit") == started + 1
    assert count("cuLibraryLoadData") == count("cuLibraryGetKernel") == 1
    assert (
        count("cuKernelGetFunction") == 2 + 2 * THREADS
    )  # once for each GPU, and for what each thread remembers of it
    by_device = [launch["device"] for launch in launches()]
    assert by_device.count(0) == by_device.count(1) == THREADS * CALLS // 2
    pushed, popped = log("cuCtxPushCurrent_v2"), log("cuCtxPopCurrent_v2")
    assert len(pushed) == len(popped) and driver().cuCtxPopCurrent_v2(None) == 201


def core_in(folder: Path, target: int) -> Path:
    """The C core and what is generated for a table of a few rows: one dtype and layout of each operation."""
    table = [v for v in variants((target,)) if v.problem.name.endswith("_bf16_bf16_bf16_nn")]
    artifacts = compile_all(table, Cache(ROOT / ".cache" / "artifacts", None), Limits(2))  # as dist/ has them
    rows = in_table_order(list(zip(table, artifacts, strict=True)))
    shutil.copytree(CSRC, folder)
    files = render(rows, pack(artifacts), make_manifest(rows, "0", {}))
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@functools.cache
def sources() -> Path:
    return core_in(scratch() / "core", TARGET)


def sanitized(folder: Path, kind: str, output: Path, *files) -> None:
    """Compile C files of ours so that what the sanitizer finds ends the program; skip where it is not installed."""
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    flags += [f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    probe = subprocess.run(
        ["cc", f"-fsanitize={kind}", "-x", "c", "-", "-o", f"{output}.probe"], input="int main(void) { return 0; }",
        text=True, capture_output=True,
    )  # fmt: skip
    if probe.returncode:
        pytest.skip(f"the compiler has no -fsanitize={kind}")
    command = ["cc", *flags, "-o", str(output), *map(str, files), "-ldl", "-lpthread"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SANITIZERS)
def test_the_core_is_clean_under_the_sanitizer(tmp_path, name):
    folder = sources()
    files = [*sorted(folder.rglob("*.c")), PROGRAMS / "core.c"]
    sanitized(folder, SANITIZERS[name], tmp_path / "core", *files)
    done = run(tmp_path / "core", TSAN_OPTIONS="halt_on_error=1", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    started, loaded, rows = map(int, re.findall(r"\d+", done.stdout))
    assert started == 2  # the program's own and the library's
    assert loaded == rows > 5


@pytest.mark.parametrize("name", SANITIZERS)
def test_a_thread_keeps_thousands_of_plans_and_none_is_taken_for_another(tmp_path, name):
    """Lone, since choosing shows in no call of the driver. The address sanitizer also tells what a thread leaves."""
    folder = sources()
    kept = folder / "launch" / "plan_cache.c"
    sanitized(folder, SANITIZERS[name], tmp_path / "plans", kept, PROGRAMS / "plans.c", "-Wl,--wrap=calloc")
    done = run(tmp_path / "plans", driver=False, TSAN_OPTIONS="halt_on_error=1")
    assert done.returncode == 0, done.stdout + done.stderr
    plans, maps = map(int, re.findall(r"\d+", done.stdout))
    assert plans < 200 and maps < 200  # of 4000 each
