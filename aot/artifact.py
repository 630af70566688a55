"""What the compiler made of one variant: the cubin and every fact its launch needs. A leaf; no Triton, no C text."""

import dataclasses
import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Param:
    """One kernel parameter as the cubin's own table (EIATTR_KPARAM_INFO) has it."""

    name: str  # a name of kernels.spec.ARGUMENTS, or "scratch" for Triton's two trailing pointers
    offset: int
    size: int


@dataclass(frozen=True)
class Artifact:
    """A compiled variant. Launch facts come from compiled metadata and the cubin, never from the request."""

    variant: str
    target: int
    kernel: str
    entry: str
    params: tuple[Param, ...]
    warps: int
    ctas: int
    shared_bytes: int
    registers: int
    local_bytes: int  # stack and spills per thread
    toolkit: tuple[int, int]  # CUDA release of the ptxas that made the cubin
    cubin: bytes = dataclasses.field(repr=False)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.cubin).hexdigest()

    def launch_facts(self) -> dict:
        """Everything but the bytes, as plain JSON values."""
        facts = dataclasses.asdict(self)
        del facts["cubin"]
        facts["toolkit"] = list(self.toolkit)
        return {**facts, "sha256": self.sha256, "cubin_bytes": len(self.cubin)}

    @classmethod
    def from_facts(cls, facts: dict, cubin: bytes) -> "Artifact":
        """Inverse of launch_facts; ValueError when the bytes are not those the facts speak of."""
        artifact = cls(
            **{f.name: facts[f.name] for f in dataclasses.fields(cls) if f.name not in ("params", "toolkit", "cubin")},
            params=tuple(Param(**p) for p in facts["params"]),
            toolkit=tuple(facts["toolkit"]),
            cubin=cubin,
        )
        if artifact.sha256 != facts["sha256"]:
            raise ValueError(f"{artifact.variant}: cubin is {artifact.sha256}, its record says {facts['sha256']}")
        return artifact
