"""Compiles variants in a pool of spawned processes, each kernel under a time and a memory limit. Links nothing."""

import concurrent.futures
import gc
import multiprocessing
import multiprocessing.util
import os
import resource
import sys
from dataclasses import dataclass

import pebble

from aot.artifact import Artifact
from aot.compile import compile_unit
from aot.retype import float16_twin, told_by
from build.cache import Cache
from build.progress import progress
from kernels.table.spec import Variant
from kernels.table.targets import TARGETS


@dataclass(frozen=True)
class Limits:
    jobs: int
    seconds: float = 120.0
    memory_bytes: int = 8 << 30


# Objects that a worker makes before Python looks for garbage among them: 700 is its default.
YOUNG_OBJECTS = 500_000
# Compilations of a worker, a kernel's twins counted with it, each of which leaves 1 MB behind; then another process,
# which takes a second to begin.
MOST_TASKS = 500


class BuildError(RuntimeError):
    """The build cannot go on: the message names each failed variant or missing piece and what to do."""


def leave() -> None:
    """At a worker's end, but not where it fails, whose status the pool reads: before Triton's bindings are taken apart,
    which list all that is still held there as leaked, hundreds of lines in a build's output."""
    if sys.exc_info()[0] is None:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(0)


def begin_worker(memory_bytes: int) -> None:
    """Pool initializer: the worker, and the assembler it starts, cannot take more address space than this."""
    gc.set_threshold(YOUNG_OBJECTS)
    multiprocessing.util.Finalize(None, leave, exitpriority=-100)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


Unit = tuple[Variant, ...]  # what a worker compiles at a time: a variant, or one and its twins


def units(waiting: list[Variant]) -> list[Unit]:
    """All of these once, in order of the first; twins with the row whose PTX they share, or with each other."""
    names, before, heads = {v.name for v in waiting}, {}, {}  # before: name of a twin -> of the row it is made of
    for v in waiting:
        if (twin := float16_twin(v)) and twin.name in names:
            before.setdefault(twin.name, v.name)
        if base := told_by(v):
            head = base.name if base.name in names else heads.setdefault(base.name, v.name)
            if head != v.name:
                before[v.name] = head
    made: dict[str, list[Variant]] = {}
    for v in sorted(waiting, key=lambda v: v.name in before):  # those that others are made of first
        name = v.name
        while name in before:
            name = before[name]
        made.setdefault(name, []).append(v)
    return [tuple(made[v.name]) for v in waiting if v.name in made]


def outcome(unit: Unit, future, limits: Limits) -> list[Artifact] | str:
    """The artifacts, or one line that says why there are none."""
    name = unit[0].name
    try:
        return future.result()
    except concurrent.futures.TimeoutError:
        return f"{name}: not compiled within {limits.seconds:g} s"
    except (MemoryError, pebble.ProcessExpired) as error:
        return f"{name}: compiler ran out of its {limits.memory_bytes >> 20} MiB or crashed ({error})"
    except Exception as error:
        return str(error) if name in str(error) else f"{name}: {type(error).__name__}: {error}"


def run_pool(waiting: list[Variant], cache: Cache, limits: Limits, work) -> tuple[dict[str, Artifact], list[str]]:
    """Twins of which one fails are compiled again one by one: the other is kept, the message is of the right one."""
    made, failures, alone = {}, [], []
    context = multiprocessing.get_context("spawn")
    pool = pebble.ProcessPool(limits.jobs, MOST_TASKS, begin_worker, (limits.memory_bytes,), context)
    shown = progress(len(waiting))

    def run(todo: list[Unit]) -> None:
        futures = {
            pool.schedule(work, (unit, cache.min_driver), timeout=limits.seconds * len(unit)): unit for unit in todo
        }
        for future in concurrent.futures.as_completed(futures):
            unit = futures[future]
            result = outcome(unit, future, limits)
            if isinstance(result, str) and len(unit) > 1:
                alone.extend((variant,) for variant in unit)
                continue
            if isinstance(result, str):
                failures.append(result)
            else:
                for variant, artifact in zip(unit, result, strict=True):
                    cache.store(variant, artifact)
                    made[variant.name] = artifact
            shown.advance(len(unit), len(failures))

    try:
        run(units(waiting))
        run(alone)
        pool.close()
    finally:
        shown.close()
        pool.stop()  # at once on Ctrl-C or an error; after close() there is nothing left to stop
        pool.join()
    return made, failures


def artifact_of(variant: Variant, compiled: Artifact) -> Artifact:
    """What a row runs, where it may be another target's code; that must fit into this one's shared memory."""
    limit = TARGETS[variant.target].shared_bytes
    if compiled.shared_bytes > limit:
        raise BuildError(
            f"{variant.name} runs {compiled.variant}, which needs {compiled.shared_bytes} bytes of shared memory; "
            f"sm_{variant.target} has {limit}"
        )
    return compiled.of_row(variant.name, variant.target)


def compile_all(variants: list[Variant], cache: Cache, limits: Limits, work=compile_unit) -> list[Artifact]:
    """Every variant's artifact, in order, from the cache where it is known; rows with the same code share one
    compilation. BuildError names all that failed."""
    wanted = {v.compiled.name: v.compiled for v in variants}
    known = {name: artifact for name, v in wanted.items() if (artifact := cache.load(v))}
    waiting = [v for name, v in wanted.items() if name not in known]
    if waiting:
        made, failures = run_pool(waiting, cache, limits, work)
        if failures:
            raise BuildError(f"{len(failures)} of {len(wanted)} kernels failed:\n  " + "\n  ".join(sorted(failures)))
        known.update(made)
    return [artifact_of(v, known[v.compiled.name]) for v in variants]
