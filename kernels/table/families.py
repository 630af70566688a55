"""The families of kernels, a record each: what is true of a kernel whatever its tile. Nothing is read out of a name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    op: str  # what it computes
    name: str  # of the way it does, as its kernel's name goes on after the operation's; "" for the reference set
    module: str  # of kernels/device
    guards: tuple[str, ...] = ()  # what every row of it needs
    split: str = ""  # how blocks that split K of a tile reduce: "cluster", through DSMEM, or "workspace"; "": no split
    swap_ab: bool = False  # computes D^T = B^T A^T, so that few rows of A fill the narrow side of the instruction
    balanced: bool = False  # a tile works on no more rows than its group needs, in steps of ROW_STEP
    cooperative: bool = False  # warpgroups share a tile; else each has its own
    any_width: bool = False  # one side of a tile is any multiple of 8, the other 64 rows for each warpgroup or 128
    persistent: bool = False  # as many blocks as fit on the device, each taking many tiles
    store: str = "registers"  # how a tile leaves: "tma", through shared memory, "reduce", from the sum, or "registers"
    light_epilogue: bool = False  # activations cost little, so that no row does without

    @property
    def kernel(self) -> str:
        """ "room.module.function" below kernels/device."""
        return f"{self.module}.{self.function}"

    @property
    def function(self) -> str:
        return f"{self.op}_{self.name}" if self.name else self.op

    @property
    def full_name(self) -> str:
        """As fits call it: dense ones by their own name alone."""
        return self.name if self.op == "gemm" and self.name else self.function

    @property
    def grouped(self) -> bool:
        """Whether it computes many products at once, of which K can be split though there are many."""
        return self.op != "gemm"


ROW_STEP = 16  # of a balanced family's tiles

REFERENCE = {op: Family(op, "", f"portable.{op}") for op in ("gemm", "grouped_gemm", "grouped_mm", "align")}

SPECIALIZED = Family("gemm", "specialized", "sm100.gemm", ("descriptor",), persistent=True, store="tma")
PIPELINED = Family("gemm", "pipelined", "sm100.gemm", ("descriptor",), store="tma")

TMA = {"guards": ("descriptor",), "persistent": True, "store": "tma"}
CLUSTER = {"guards": ("cluster", "descriptor_ab"), "split": "cluster", "store": "reduce", "light_epilogue": True}
SM90 = [
    Family("gemm", "coop", "sm90.gemm", cooperative=True, **TMA),
    Family("gemm", "pingpong", "sm90.gemm", **TMA),
    Family("gemm", "swap", "sm90.gemm", swap_ab=True, **TMA),
    Family(
        "gemm", "swap_split", "sm90.gemm", ("descriptor", "workspace"), split="workspace", swap_ab=True,
        persistent=True, store="tma", light_epilogue=True,
    ),
    Family("gemm", "masked", "sm90.gemm", ("descriptor_ab",), persistent=True),
    Family("gemm", "flex_coop", "sm90.gemm_flex", any_width=True, cooperative=True, **TMA),
    Family("gemm", "flex_coop_swap", "sm90.gemm_flex", any_width=True, cooperative=True, swap_ab=True, **TMA),
    Family("gemm", "flex_pingpong", "sm90.gemm_flex", any_width=True, **TMA),
    Family("gemm", "flex_pingpong_swap", "sm90.gemm_flex", any_width=True, swap_ab=True, **TMA),
    Family("gemm", "cluster", "sm90.gemm_cluster", **CLUSTER),
    Family("gemm", "swap_cluster", "sm90.gemm_cluster", swap_ab=True, **CLUSTER),
    Family("grouped_mm", "swap", "sm90.grouped_mm_swap", swap_ab=True, balanced=True, **TMA),
    Family("grouped_mm", "pingpong", "sm90.grouped_mm_pingpong", **TMA),
    Family("grouped_mm", "cluster", "sm90.grouped_mm_cluster", **CLUSTER | {"guards": ("cluster", "descriptor")}),
    Family("grouped_gemm", "pingpong", "sm90.grouped_gemm", ("align16", "scratch"), persistent=True, store="tma"),
]  # fmt: skip

FAMILIES = {family.kernel: family for family in (*REFERENCE.values(), SPECIALIZED, PIPELINED, *SM90)}
DENSE_SM90 = {family.name: family for family in SM90 if family.op == "gemm"}
(POINTERS_SM90,) = (family for family in SM90 if family.op == "grouped_gemm")
PACKED_SM90 = {family.name: family for family in SM90 if family.op == "grouped_mm"}
