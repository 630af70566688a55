"""Kernels in Gluon have all fences and barriers that they need: Triton's passes that add what lacks change no byte, nor
do those that find nothing to do."""

import contextlib
import dataclasses
import random
import re
from operator import attrgetter

import pytest
from shipped import rows_of_kernels, shipped

from aot import compile as aot_compile
from aot.compile import compile_variant, is_gluon, kernel_function, run_triton
from aot.retype import told_by
from aot.toolchain import IDLE, offline, scalars_as_written, synchronized_as_written, without_idle_passes
from kernels.table.variants import variants

SEED = random.SystemRandom().randrange(1 << 32)
TEAMS = ("gemm", "grouped_mm", "moe_mm")


def gluon_rows(makes_descriptors: bool) -> dict[str, list]:
    """kernel -> its rows; those that make descriptors on the device, or all others."""
    return rows_of_kernels(
        (90,), lambda v: is_gluon(kernel_function(v)) and ("scratch" in v.guard) == makes_descriptors
    )


ROWS = gluon_rows(makes_descriptors=False)


def is_team(variant) -> bool:
    """Whether its warpgroups run the same code (kernels/device/sm90/team.py)."""
    return variant.config.warps == 8 and variant.family.split != "cluster" and variant.problem.op in TEAMS


def for_one_warpgroup(variant):
    """A team's barriers are assembly, of which the compiler knows nothing. Where one warpgroup runs that code by itself
    they are its own, in the same places."""
    return dataclasses.replace(variant, config=dataclasses.replace(variant.config, warps=4))


# All of the warpgroup have met, one arrives at an mbarrier, and all wait for that same one: what the pass puts between,
# where there is but arithmetic, orders the mbarrier alone, whose operations are atomic.
BEFORE_OWN_WAIT = re.compile(
    r"(\tbar\.sync \t0, 128;\n\t// begin inline asm\n\t@%p\d+ mbarrier\.arrive\.shared::cta\.b64 _, \[(%r\d+)\];\n"
    r"\t// end inline asm\n(?:\t(?:setp|selp|xor)\.[^\[\n]*\n)*)\tbar\.sync \t0, 128;\n"
    r"(?=(?:\t// begin inline asm\n\s*\{\s*\.reg \.pred complete;\s*waitLoop:\s*"
    r"mbarrier\.try_wait\.parity\.shared::cta\.b64 complete, \[\2\],))"
)


@pytest.mark.parametrize("kernel", sorted(ROWS))
def test_a_row_of_each_kernel_drawn_anew_has_the_bytes_that_it_has_with_the_passes(monkeypatch, kernel):
    variant = random.Random(f"{SEED} {kernel}").choice(ROWS[kernel])
    if is_team(variant):
        variant = for_one_warpgroup(variant)
        own = compile_variant(variant)
    else:
        own = shipped(variant)
    base = told_by(variant) or variant

    def with_passes(make):
        with monkeypatch.context() as patched:
            patched.setattr(aot_compile, "synchronized_as_written", contextlib.nullcontext)
            patched.setattr(aot_compile, "without_idle_passes", contextlib.nullcontext)
            return make()

    same = with_passes(lambda: compile_variant(variant)).cubin == own.cubin
    same = same or BEFORE_OWN_WAIT.sub(r"\1", with_passes(lambda: ptx_of(base))) == ptx_of(base)
    assert same, f"{variant.name} lacks a fence or a barrier (seed {SEED})"


def test_only_a_barrier_between_an_arrival_and_the_wait_for_it_is_one_too_many():
    meet = "\tbar.sync \t0, 128;\n"
    arrive = "\t// begin inline asm\n\t@%p1 mbarrier.arrive.shared::cta.b64 _, [%r7];\n\t// end inline asm\n"
    wait = (
        "\t// begin inline asm\n\t\n{\n\t.reg .pred complete;\n\twaitLoop:\n"
        "\tmbarrier.try_wait.parity.shared::cta.b64 complete, [%r7], %r3;\n"
    )
    phase = "\txor.b32 \t%r3, %r4, %r5;\n"
    assert BEFORE_OWN_WAIT.sub(r"\1", meet + arrive + meet + wait) == meet + arrive + wait
    assert BEFORE_OWN_WAIT.sub(r"\1", meet + arrive + phase + meet + wait) == meet + arrive + phase + wait
    for other in (arrive + meet + wait, meet + arrive + meet + wait.replace("%r7", "%r8"), meet + meet + wait,
                  meet + arrive + "\tst.shared.b32 [%r9], %r1;\n" + meet + wait, meet + arrive + meet):  # fmt: skip
        assert BEFORE_OWN_WAIT.sub(r"\1", other) == other


def ptx_of(variant) -> str:
    with offline(variant) as (target, record, cache):
        return run_triton(variant, target, record, cache, False)[2]


TEAM_KERNELS = sorted(kernel for kernel, rows in ROWS.items() if any(map(is_team, rows)))


@pytest.mark.parametrize("kernel", TEAM_KERNELS)
def test_warpgroups_that_run_one_code_meet_all_together_only_before_they_part(kernel):
    """One may be in another tile than the other: what the compiler does for all threads of a partition, with a barrier
    of its own, must not be in there."""
    variant = random.Random(f"{SEED} {kernel}").choice([row for row in ROWS[kernel] if is_team(row)])
    # The assembly that says which warpgroup a thread is in: of the first partition, the team, it comes last.
    before, begun, inside = ptx_of(variant).rpartition("shfl.sync.idx.b32 x")
    assert begun and "bar.sync \t0, 256;" not in inside, f"{variant.name} (seed {SEED})"
    assert before.count("bar.sync \t0, 256;") <= 1 and "bar.sync %r" in inside


@pytest.mark.parametrize("kernel", TEAM_KERNELS)
def test_what_tma_stores_is_fenced_and_its_writers_have_met(kernel):
    """The compiler's passes do not know a copy in assembly for one."""
    variant = random.Random(f"{SEED} {kernel}").choice([row for row in ROWS[kernel] if is_team(row)])
    ptx = ptx_of(variant).replace("\t", "")
    sent = len(re.findall(r"\.bulk_group \[map[^;]*;\ncp\.async\.bulk\.commit_group;", ptx))
    assert bool(sent) == (variant.family.store == "tma"), variant.name
    # Fences that a barrier of the warpgroup follows at once.
    fenced = len(re.findall(r"fence\.proxy\.async\S*;\n(?://.*\n)*bar\.sync (?:%r\d+|\d+), ?128;", ptx))
    assert fenced >= sent, f"{variant.name} (seed {SEED}): {fenced} of {sent}"


def test_a_kernel_whose_barriers_are_not_written_has_other_bytes_with_the_passes(monkeypatch):
    """The comparison above can fail: this kernel leaves its barriers to the compiler."""
    rows = [v for v in variants((90,)) if not is_gluon(kernel_function(v)) and v.problem.op == "gemm"]
    variant = min(rows, key=lambda v: v.config.block_m * v.config.block_n * v.config.block_k)
    own = compile_variant(variant, direct=True)
    with monkeypatch.context() as patch:
        patch.setattr(aot_compile, "offline", without_the_passes)
        assert compile_variant(variant, direct=True).cubin != own.cubin


def test_where_descriptors_are_made_on_the_device_the_passes_run_since_they_add_something(monkeypatch):
    for rows in gluon_rows(makes_descriptors=True).values():
        variant = min(rows, key=lambda v: v.config.block_m * v.config.block_n)
        own = compile_variant(variant)
        with monkeypatch.context() as patch:
            patch.setattr(aot_compile, "offline", without_the_passes)
            assert compile_variant(variant).cubin != own.cubin, f"{variant.name} could do without"


@pytest.mark.parametrize(
    ("kernel", "in_cluster"), [("gemm_cluster", True), ("gemm_pingpong", True), ("gemm_pingpong", False)]
)
def test_barriers_are_made_in_assembly_only_where_addresses_are_this_blocks(kernel, in_cluster):
    """In a cluster it is given the first block's: a barrier made there is an illegal instruction of the others."""
    rows = [v for v in variants((90,)) if v.kernel.split(".")[-1] == kernel and v.problem.a == "bf16"]
    rows = [v for v in rows if (kernel == "gemm_cluster" or v.config.cluster > 1) == in_cluster]
    variant = min(rows, key=lambda v: v.config.block_m * v.config.block_n)
    with offline(variant) as (target, record, cache):
        *_, ptx = run_triton(variant, target, record, cache, False)
    assert ("@first mbarrier.init" in ptx) != in_cluster
    assert "mbarrier.init" in ptx


@contextlib.contextmanager
def without_the_passes(*words):
    with offline(*words) as found, synchronized_as_written():
        yield found


def test_the_passes_are_left_out_in_that_context_alone():
    from triton.backends.nvidia import compiler

    passes = compiler.nvidia.passes
    usual = passes.ttnvgpuir.add_proxy_fence_insertion, passes.ttgpuir.add_membar
    with synchronized_as_written():
        assert passes.ttnvgpuir.add_proxy_fence_insertion is not usual[0]
        assert passes.ttgpuir.add_membar is not usual[1]
    assert (passes.ttnvgpuir.add_proxy_fence_insertion, passes.ttgpuir.add_membar) == usual


def test_idle_passes_are_left_out_in_that_context_alone():
    from triton.backends.nvidia import compiler

    def now() -> dict:
        passes = {name: getattr(attrgetter(module)(compiler), name) for module, names in IDLE.items() for name in names}
        return passes | {"add_inliner": compiler.passes.gluon.add_inliner}

    usual = now()
    with without_idle_passes():
        assert not now().items() & usual.items()
    assert now() == usual


@pytest.mark.parametrize(("target", "op", "off"), [
    (80, "gemm", True), (89, "grouped_mm", True), (90, "gemm", True), (90, "grouped_mm", True), (100, "gemm", False),
    (120, "gemm", False), (90, "moe_mm", False), (90, "cast_transpose_rows", False),
])  # fmt: skip
def test_products_have_their_floats_paired_only_where_the_machine_has_instructions_for_pairs(
    monkeypatch, target, op, off
):
    from triton.backends.nvidia import compiler

    seen = []
    monkeypatch.setattr(compiler.llvm, "optimize_module", lambda *words, **names: seen.append(names))
    variant = next(v for v in variants((target,)) if v.problem.op == op)
    with scalars_as_written(variant):
        compiler.llvm.optimize_module("module", disable_slp_vectorizer=False)
    assert seen == [{"disable_slp_vectorizer": off}]
