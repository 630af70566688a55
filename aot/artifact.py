"""What the compiler made of one variant: the cubin and every fact its launch needs. A leaf; no Triton, no C text."""

import dataclasses
import hashlib
from dataclasses import dataclass

NESTED = ("params", "boxes", "toolkit", "cubin")  # fields that JSON gives back in another form


@dataclass(frozen=True)
class Param:
    """One kernel parameter as the cubin's own table (EIATTR_KPARAM_INFO) has it."""

    name: str  # a name of kernels.table.arguments, or "scratch" for Triton's two trailing pointers
    offset: int
    size: int


@dataclass(frozen=True)
class Box:
    """What one TMA copy moves through a descriptor, as the compiled kernel wants it encoded."""

    name: str  # the argument: a_desc, b_desc, c_desc or d_desc
    rows: int
    cols: int
    swizzle: int  # CUtensorMapSwizzle
    element: int  # CUtensorMapDataType
    rank: int  # 3: the last dimension, of which a copy has one, is the group


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
    scratch_bytes: int  # device memory that the caller gives each block
    overlaps: bool  # waits by itself for the kernel ahead of it in the stream, and so may be started before that ends
    architecture: str  # what the assembler was told: "sm_90a" runs on 9.0 alone, "sm_100f" on later 10.x too
    toolkit: tuple[int, int]  # CUDA release of the ptxas that made the cubin
    boxes: tuple[Box, ...]  # in order of the kernel's descriptors
    cubin: bytes = dataclasses.field(repr=False)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.cubin).hexdigest()

    @property
    def signature(self) -> str:
        """Names its parameters: a kernel's rows have the same ones, but that some also take scales, those of blocks, or
        D's own."""
        names = {param.name for param in self.params}
        scales = ("scaling" in names) + 2 * ("a_scale_stride_k" in names)
        return self.kernel + ("", "_scaled", "_blocks", "_any_scales")[scales] + "_of_d" * ("d_scale" in names)

    def launch_facts(self) -> dict:
        """Everything but the bytes, as plain JSON values."""
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "cubin"}
        facts |= {name: [dict(vars(one)) for one in facts[name]] for name in ("params", "boxes")}
        facts["toolkit"] = list(self.toolkit)
        return {**facts, "sha256": self.sha256, "cubin_bytes": len(self.cubin)}

    def of_row(self, variant: str, target: int) -> "Artifact":
        """The same code as another row's."""
        return dataclasses.replace(self, variant=variant, target=target)

    @classmethod
    def from_facts(cls, facts: dict, cubin: bytes) -> "Artifact":
        """Inverse of launch_facts; ValueError when the bytes are not those the facts speak of."""
        artifact = cls(
            **{f.name: facts[f.name] for f in dataclasses.fields(cls) if f.name not in NESTED},
            params=tuple(Param(**p) for p in facts["params"]),
            boxes=tuple(Box(**b) for b in facts["boxes"]),
            toolkit=tuple(facts["toolkit"]),
            cubin=cubin,
        )
        if artifact.sha256 != facts["sha256"]:
            raise ValueError(f"{artifact.variant}: cubin is {artifact.sha256}, its record says {facts['sha256']}")
        return artifact
