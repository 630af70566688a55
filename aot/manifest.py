"""The record that travels in the library: what was built, with what, and its identity. Pure; writes no file."""

import dataclasses
import functools
import hashlib
import json
import re
from pathlib import Path

from aot.artifact import Artifact, Box
from aot.toolchain import ENVIRONMENT
from kernels.table.model import CONSTANTS, KINDS, Fit, known_of, tuned, tuned_name
from kernels.table.spec import Variant

SCHEMA = 1
SELECT = Path(__file__).parent / "csrc" / "select"
PROGRAM = Path(__file__).parent / "shortlist.c"  # says which rows are weighed where

# CUDA release of the assembler -> least cuDriverGetVersion and driver release that load its cubins (NVIDIA, CUDA
# compatibility: minor version compatibility table).
DRIVER_FLOORS = {12: (12000, "525"), 13: (13000, "580")}


def driver_floor(artifacts: list[Artifact]) -> tuple[int, str]:
    """(least cuDriverGetVersion, driver release) that loads all of these."""
    return max(DRIVER_FLOORS[artifact.toolkit[0]] for artifact in artifacts)


def canonical(value) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest(value) -> str:
    """Tells whether two builds choose by the same numbers; the numbers themselves are in the library's table."""
    return hashlib.sha256(canonical(value)).hexdigest()[:16]


@functools.cache
def digest_of_fit(fit: Fit) -> str:
    return digest(vars(fit))


def encoded_boxes(variant: Variant, artifact: Artifact) -> list[Box]:
    """What the host encodes: a tile of any width has boxes of its own rows, and none for parts that it has not."""
    found = []
    for box in artifact.boxes:
        rows = variant.box_rows(box.name)
        found.append(box if rows is None else dataclasses.replace(box, rows=rows))
    return [box for box in found if box.rows]


def blocks_together(variant: Variant, artifact: Artifact) -> int:
    """Blocks of a cluster that start together whatever the problem: the compiler's, or the kernel's own."""
    return max(artifact.ctas, variant.config.cluster)


def describe(variant: Variant, artifact: Artifact) -> dict:
    facts = artifact.launch_facts()
    facts["boxes"] = [dataclasses.asdict(box) for box in encoded_boxes(variant, artifact)]
    facts["ctas"] = blocks_together(variant, artifact)
    facts["signature"] = artifact.signature
    del facts["variant"], facts["target"], facts["kernel"], facts["params"]  # params stand once for each signature
    fit = digest_of_fit(variant.fit) if variant.fit else None
    return {**variant.to_dict(), **facts, "origin": "tuned" if variant.fit else "untuned", "fit": fit}


def code_of(text: str) -> str:
    """C without comments, and without what is only for the eye."""
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)).strip()


def build_id(rows: list[tuple[Variant, Artifact]], select: Path = SELECT, constants: dict = CONSTANTS) -> str:
    """sha256 over what runs on the GPU (cubin hashes), how (launch facts) and when (rows in order, guards, rates, and
    the code that chooses among them)."""
    digest = hashlib.sha256()
    for record in sorted(canonical(artifact.launch_facts()) for _, artifact in rows):
        digest.update(record)
    for variant, _ in rows:
        digest.update(canonical([variant.to_dict(), vars(variant.fit) if variant.fit else None]))
    for target in sorted({variant.target for variant, _ in rows}):
        digest.update(canonical([known_of(target, kind) for kind in KINDS]))
    digest.update(canonical(constants))
    for path in (*sorted(select.iterdir()), PROGRAM):
        digest.update(canonical([path.name, code_of(path.read_text())]))
    return digest.hexdigest()


def make_manifest(rows: list[tuple[Variant, Artifact]], version: str, toolchain: dict) -> dict:
    targets = {}
    for variant, artifact in rows:
        targets.setdefault(variant.target, []).append(artifact)
    return {
        "schema": SCHEMA,
        "version": version,
        "build_id": build_id(rows),
        "toolchain": {**toolchain, "environment": ENVIRONMENT},
        "targets": {
            str(target): {
                "variants": len(artifacts),
                "min_cuda": driver_floor(artifacts)[0],
                "min_driver": driver_floor(artifacts)[1],
                "toolkits": sorted({".".join(map(str, a.toolkit)) for a in artifacts}),
            }
            for target, artifacts in targets.items()
        },
        "tuning": {
            tuned_name(target, kind): found.origin
            for target in targets
            for kind in KINDS
            if (found := tuned(target, kind))
        },
        "known": {tuned_name(target, kind): digest(known_of(target, kind)) for target in targets for kind in KINDS},
        "families": {
            family.kernel: {**dataclasses.asdict(family), "name": family.full_name}
            for family in dict.fromkeys(variant.family for variant, _ in rows)
        },
        "signatures": {
            name: [dataclasses.asdict(param) for param in a.params]
            for name, a in {a.signature: a for _, a in rows}.items()
        },
        "variants": [describe(variant, artifact) for variant, artifact in rows],
    }
