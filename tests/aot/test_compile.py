"""Variant -> Artifact without a GPU: parameters, determinism, and refusal of what the C launcher could not honour."""

import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shipped import shipped

from aot import compile as aot_compile
from aot import params
from aot.compile import compile_variant, source_closure
from aot.elf import CubinError, read_cubin
from aot.manifest import driver_floor
from aot.params import CompileError, expected_params
from aot.toolchain import offline
from build.package import header_constant
from kernels.device.portable import grouped_gemm
from kernels.table.spec import Config
from kernels.table.variants import variants

ROOT = Path(__file__).resolve().parents[2]
PTX = ".version 8.8\n.target sm_90a\n"


def row(op="gemm", layout="nt", guard=("align16",), target=90, a="bf16"):
    return next(
        v for v in variants((target,))
        if (v.problem.op, v.problem.layout, v.guard, v.problem.a, v.problem.d) == (op, layout, guard, a, a)
    )  # fmt: skip


def small(variant):
    """The same row with the smallest tile: quick to compile."""
    return dataclasses.replace(variant, config=Config(16, 16, 16, warps=4, stages=1))


@pytest.fixture(scope="module")
def artifact():
    return compile_variant(small(row()))


def test_parameters_are_those_of_the_cubin_and_of_the_ptx_entry(artifact):
    assert [(p.name, p.size) for p in artifact.params] == expected_params(small(row()))
    assert [p.name for p in artifact.params[-2:]] == ["scratch", "scratch"]
    sizes = {p.name: p.size for p in artifact.params}
    assert (sizes["alpha"], sizes["M"], sizes["lda"], sizes["a_ptr"]) == (4, 4, 8, 8)
    offsets = [(p.offset, p.size) for p in artifact.params]
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(offsets))


def test_no_kernel_takes_more_registers_than_its_family_may():
    bound = [v for v in variants((90,)) if v.family.registers]
    assert bound
    for variant in bound:
        made = shipped(variant)
        assert made.registers <= variant.family.registers and made.local_bytes == 0, variant.name


def test_facts_come_from_the_cubin(artifact):
    facts = read_cubin(artifact.cubin)
    assert (facts.target, facts.kernel, facts.toolkit) == (90, small(row()).symbol, artifact.toolkit)
    assert facts.threads == artifact.warps * 32
    assert 16 <= artifact.registers <= 255
    assert artifact.entry == small(row()).symbol == f"libgemm_{artifact.variant}"


def test_the_tool_and_the_compiler_give_the_same_bytes(artifact):
    assert compile_variant(small(row()), direct=True).cubin == artifact.cubin


@pytest.mark.parametrize("op", ["grouped_gemm", "grouped_mm"])
def test_the_tool_and_the_compiler_agree_for_the_other_operations(op):
    variant = small(row(op, guard=()))
    assert compile_variant(variant).sha256 == compile_variant(variant, direct=True).sha256


SCRIPT = """
import sys; sys.path.insert(0, sys.argv[1])
from aot.compile import compile_variant
from kernels.table.spec import *
problem = Problem("gemm", "bf16", "bf16", "exact", "nt")
variant = Variant(problem, Config(16, 16, 16, warps=4, stages=1), "portable.gemm.gemm", 90, ("align16",))
print(compile_variant(variant).sha256)
"""


def test_another_folder_home_and_hash_seed_give_the_same_bytes(artifact, tmp_path):
    for folder in ("aot", "kernels"):
        shutil.copytree(ROOT / folder, tmp_path / "a much longer path" / folder)
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "a much longer path")]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == artifact.sha256, done.stderr


@pytest.mark.parametrize(
    ("target", "min_driver", "toolkit"), [(80, None, 12), (90, 580, 13), (100, None, 13), (100, 525, 12)]
)
def test_targets_have_their_assembler_unless_a_driver_is_asked_for(target, min_driver, toolkit):
    assert compile_variant(small(row(target=target)), min_driver).toolkit[0] == toolkit


def test_hopper_has_by_default_what_older_drivers_load(artifact):
    assert artifact.toolkit[0] == 12
    assert driver_floor([artifact]) == (12000, "525")


def test_a_launcher_that_would_pass_alpha_as_double_fails_the_compilation(monkeypatch):
    monkeypatch.setitem(params.TYPE_BYTES, "fp32", 8)
    with pytest.raises(CompileError, match=r"gemm_bf16.*the cubin takes parameters of \[.*'alpha:8'"):
        compile_variant(small(row()))


def test_a_kernel_that_does_not_compile_names_its_variant():
    broken = dataclasses.replace(row(), config=Config(16, 16, 8, warps=4, stages=1))  # no dot is as short
    with pytest.raises(CompileError, match=r"gemm_bf16_bf16_bf16_nt__sm90__16x16x8.*CompilationError: .*multiply_tile"):
        compile_variant(broken)


def test_more_shared_memory_than_the_target_has_is_refused():
    greedy = dataclasses.replace(row(), config=Config(128, 128, 128, warps=8, stages=5))
    with pytest.raises(CompileError, match=r"needs \d+ bytes of shared memory, sm_90 has 232448"):
        compile_variant(greedy)


@pytest.mark.parametrize("field", ["global_scratch_size", "profile_scratch_size"])
def test_a_kernel_that_needs_scratch_memory_is_refused(artifact, field):
    metadata = {"num_warps": 4, "num_ctas": 1, "shared": 0, "name": artifact.entry, field: 128}
    with pytest.raises(CompileError, match=f"needs {field} = 128"):
        aot_compile.make_artifact(small(row()), metadata, artifact.cubin, PTX)


def test_scratch_memory_is_as_aligned_as_the_caller_gives_it(artifact):
    asking = dataclasses.replace(small(row()), guard=("align16", "linear", "scratch"))
    metadata = {"num_warps": 4, "num_ctas": 1, "shared": 0, "name": artifact.entry, "global_scratch_size": 256}
    assert aot_compile.make_artifact(asking, metadata, artifact.cubin, PTX).scratch_bytes == 256
    for more, words in (
        ({"global_scratch_align": 256}, "aligned to 256 bytes, has 128"),
        ({"global_scratch_size": 200}, "global_scratch_size = 200, no multiple of 128"),
        ({"global_scratch_size": 0}, "global_scratch_size = 0, its guard says more"),
    ):
        with pytest.raises(CompileError, match=words):
            aot_compile.make_artifact(asking, metadata | more, artifact.cubin, PTX)
    given = re.search(r"SCRATCH_ALIGN = (\d+)", (ROOT / "aot" / "csrc" / "select" / "split.h").read_text())
    assert int(given[1]) == aot_compile.SCRATCH_ALIGN


def test_metadata_and_cubin_must_agree(artifact):
    metadata = {"num_warps": 8, "num_ctas": 1, "shared": 0, "name": "other"}
    with pytest.raises(CompileError, match=r"cubin holds libgemm_gemm_\w+, metadata says other; cubin requires 128"):
        aot_compile.make_artifact(small(row()), metadata, artifact.cubin, PTX)


def test_a_kernel_that_waits_for_its_predecessor_says_so_in_its_ptx(artifact):
    metadata = {"num_warps": 4, "num_ctas": 1, "shared": 0, "name": artifact.entry}
    for ptx, overlaps in (("griddepcontrol.wait;", True), ("griddepcontrol.launch_dependents;", False)):
        assert aot_compile.make_artifact(small(row()), metadata, artifact.cubin, PTX + ptx).overlaps is overlaps
    assert not artifact.overlaps
    helper = next(v for v in variants((90,)) if v.problem.op == "align")
    assert compile_variant(helper).overlaps


OVERLAPPING = ("portable.align.align", "portable.grouped_gemm.grouped_gemm", "portable.gemm_sum.gemm_sum")


def test_every_kernel_written_for_hopper_waits_by_itself(manifest):
    assert not any(v["overlaps"] for v in manifest["variants"] if v["target"] < 90)
    found = {v["kernel"]: v["overlaps"] for v in manifest["variants"] if v["target"] >= 90}
    assert {kernel for kernel, overlaps in found.items() if overlaps} == {
        kernel
        for kernel in found
        if kernel.startswith(
            (
                "sm90.",
                "portable.moe.",
                "portable.moe_few.",
                "portable.moe_gate.",
                "portable.moe_cast.",
                "portable.cast.",
                "portable.cast_transpose.",
            )
        )
        or kernel in OVERLAPPING
    }


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" * 100, Path(sys.executable).read_bytes()])
def test_what_is_no_cubin_is_refused(data):
    with pytest.raises(CubinError, match="ELF"):
        read_cubin(data)


def blackwell(target: int, kernel: str):
    """The row of this kernel that compiles fastest."""
    found = [v for v in variants((target,)) if v.kernel == f"sm100.gemm.{kernel}" and "linear" in v.guard]
    return min(found, key=lambda v: v.config.block_m * v.config.block_n)


@pytest.mark.parametrize("kernel", ["gemm_pipelined", "gemm_specialized"])
def test_a_descriptor_kernel_reads_the_maps_alone(kernel):
    """Nobody fills in the sizes and strides that Triton passes beside each map."""
    variant = blackwell(100, kernel)
    with offline(variant) as (target, record, _):
        aot_compile.run_compile(variant, target)
        ptx = next(Path(p) for name, p in record["metadata_group"].items() if name.endswith(".ptx")).read_text()
    names = [name for name, _ in expected_params(variant)]
    read = {names[int(i)] for i in re.findall(rf"ld\.param\S*\s[^;]*\[{variant.symbol}_param_(\d+)\]", ptx)}
    assert {"bias_ptr", "K", "alpha", "beta"} <= read
    assert not [name for name in read if "." in name]
    assert "tcgen05.mma" in ptx and "mma.sync" not in ptx


@pytest.mark.parametrize("target", [103, 110, 121])
def test_kin_of_the_default_targets_get_their_descriptor_kernels(target):
    artifact = compile_variant(blackwell(target, "gemm_pipelined"))
    assert [box.name for box in artifact.boxes] == ["a_desc", "b_desc", "c_desc", "d_desc"]
    assert (artifact.target, artifact.local_bytes) == (target, 0)


def test_the_source_closure_has_the_kernel_and_its_helpers():
    assert [p.name for p in source_closure("portable.gemm.gemm")] == [
        "blocks.py", "eight_bits.py", "gemm.py", "tiles.py"
    ]  # fmt: skip


def test_an_artifact_survives_its_record(artifact):
    facts = json.loads(json.dumps(artifact.launch_facts()))
    assert type(artifact).from_facts(facts, artifact.cubin) == artifact
    with pytest.raises(ValueError, match="its record says"):
        type(artifact).from_facts(facts, artifact.cubin[:-1] + b"x")


def test_kernels_clamp_to_the_header_s_largest_size():
    assert int(header_constant("LIBGEMM_MAX_SIZE")) == grouped_gemm.MAX_SIZE.value


def test_ptx_for_another_architecture_is_refused(artifact):
    metadata = {"num_warps": 4, "num_ctas": 1, "shared": 0, "name": artifact.entry}
    with pytest.raises(CompileError, match="PTX is for sm_90, sm_90a was asked for"):
        aot_compile.make_artifact(small(row()), metadata, artifact.cubin, ".target sm_90\n")
