"""Small made-up artifacts for tests of rendering and linking: no compiler runs. Not test data for numerics."""

import hashlib
from pathlib import Path

from aot.artifact import Artifact, Param
from aot.params import expected_params
from kernels.table.variants import variants

ROOT = Path(__file__).resolve().parents[2]


def params_of(variant) -> tuple[Param, ...]:
    """Parameters at the offsets the CUDA ABI gives them: each aligned to its size."""
    found, at = [], 0
    for name, size in expected_params(variant):
        at = -(-at // size) * size
        found.append(Param(name, at, size))
        at += size
    return tuple(found)


def sample_artifact(variant) -> Artifact:
    word = hashlib.sha256(variant.name.encode()).digest()
    return Artifact(
        variant=variant.name,
        target=variant.target,
        kernel=variant.kernel,
        entry=variant.symbol,
        params=params_of(variant),
        warps=variant.config.warps,
        ctas=1,
        shared_bytes=1024 * variant.config.stages,
        registers=128,
        local_bytes=0,
        scratch_bytes=512 * ("scratch" in variant.guard),
        overlaps=False,
        architecture=variant.architecture,
        toolkit=(13, 4),
        boxes=(),
        cubin=b"not machine code" * 8 + word,
    )


def sample_rows(target: int = 90):
    """Rows of one layout of each operation for one target, and those that come behind them."""
    rows = [v for v in variants((target,)) if v.problem.layout == "nt" or v.problem.op == "gemm_sum"]
    return [(v, sample_artifact(v)) for v in rows]
