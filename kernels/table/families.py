"""The families of kernels, a record each: what is true of a kernel whatever its tile. Nothing is read out of a name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    op: str  # what it computes
    name: str  # of the way it does, as its kernel's name goes on after the operation's; "" for the reference set
    module: str  # of kernels/device
    entry: str = ""  # the function there that is this kernel and others; "": it has one of its own, of its name
    guards: tuple[str, ...] = ()  # what every row of it needs
    # How blocks that split K of a tile reduce: "cluster", through DSMEM; "workspace"; or "stream", where all of them
    # share all tiles evenly and a second kernel adds. "": no split.
    split: str = ""
    swap_ab: bool = False  # computes D^T = B^T A^T, so that few rows of A fill the narrow side of the instruction
    balanced: bool = False  # a tile works on no more rows than its group needs, in steps of ROW_STEP
    cooperative: bool = False  # warpgroups share a tile; else each has its own
    by_units: bool = False  # its kernel knows of A and B units of 8 rows, or 64: the host encodes boxes of the tile's
    any_width: bool = False  # a tile's right side is any multiple of 8, else of 128 bytes of D or narrower than that
    persistent: bool = False  # as many blocks as fit on the device, each taking many tiles
    store: str = "registers"  # how a tile leaves: "tma", through shared memory, "reduce", from the sum, or "registers"
    light_epilogue: bool = False  # activations cost little, so that no row does without
    registers: int = 0  # of a thread at most, so that more blocks fit on a multiprocessor; 0: as many as it takes

    @property
    def kernel(self) -> str:
        """Its key: "room.module" below kernels/device, and its operation and name."""
        return f"{self.module}.{self.own_name}"

    @property
    def own_name(self) -> str:
        return f"{self.op}_{self.name}" if self.name else self.op

    @property
    def function(self) -> str:
        """Of its module."""
        return self.entry or self.own_name

    @property
    def full_name(self) -> str:
        """As fits call it: dense ones by their own name alone."""
        return self.name if self.op == "gemm" and self.name else self.own_name

    @property
    def whole_tiles(self) -> bool:
        """Whether no tile is cut by a group's end, as none of a dense product is: they are those of dense products."""
        return not self.grouped or "whole" in self.guards

    @property
    def grouped(self) -> bool:
        """Whether it computes many products at once, of which K can be split though there are many."""
        return self.op != "gemm"


ROW_STEP = 16  # of a balanced family's tiles
TALL = 128  # rows, beyond which such a tile works on half of them at least

REFERENCE = {
    op: Family(op, "", f"portable.{op}")
    for op in ("gemm", "gemm_sum", "grouped_gemm", "grouped_mm", "align", "moe_mm", "moe_cast", "cast_transpose")
}
REFERENCE |= {op: Family(op, "", "portable.moe") for op in ("moe_route", "moe_sum")}
REFERENCE |= {op: Family(op, "", "portable.moe_gate") for op in ("moe_gate", "moe_gate_grad")}
REFERENCE["cast_transpose_rows"] = Family("cast_transpose_rows", "", "portable.cast_transpose")
REFERENCE["moe_spread"] = Family("moe_spread", "", "portable.moe_cast")
CASTS = ("cast_tensor", "cast_rows", "cast_1x128", "cast_128x128", "cast_amax")
REFERENCE |= {op: Family(op, "", "portable.cast") for op in CASTS}

PAIRS = Family("moe_route", "pairs", "portable.moe_few")

SPECIALIZED = Family("gemm", "specialized", "sm100.gemm", guards=("descriptor",), persistent=True, store="tma")
PIPELINED = Family("gemm", "pipelined", "sm100.gemm", guards=("descriptor",), store="tma")

TMA = {"guards": ("descriptor",), "persistent": True, "store": "tma", "by_units": True}
DENSE = TMA | {"module": "sm90.gemm", "entry": "gemm_tma"}
SPLIT = DENSE | {"entry": "gemm_split", "guards": ("descriptor", "workspace"), "split": "workspace"}
FLEX = DENSE | {"entry": "gemm_tma_parts", "any_width": True}
STREAM = {
    "module": "sm90.gemm_stream", "entry": "gemm_stream", "guards": ("descriptor", "workspace"), "split": "stream",
    "persistent": True, "by_units": True, "any_width": True, "light_epilogue": True,
}  # fmt: skip
CLUSTER = {
    "guards": ("cluster", "descriptor_ab"), "split": "cluster", "store": "reduce", "light_epilogue": True,
    "by_units": True,
}  # fmt: skip
SCALED = TMA | {"module": "sm90.grouped_mm_scaled", "entry": "grouped_mm_scaled"}
SCALED_SWAP = SCALED | {"swap_ab": True, "balanced": True}
WHOLE = TMA | {"module": "sm90.grouped_mm_whole", "entry": "grouped_mm_whole", "guards": ("descriptor", "whole")}
SCALED_WHOLE = WHOLE | {"module": "sm90.grouped_mm_scaled_whole", "entry": "grouped_mm_scaled_whole"}
EXPERTS = TMA | {"guards": ("align16", "descriptor", "in_order", "rows"), "swap_ab": True, "balanced": True}
EXPERTS_CAST = {
    "persistent": True, "by_units": True, "guards": ("blocks", "descriptor", "gated", "halved", "rows", "swish"),
}  # fmt: skip
EXPERTS_CAST_ONE = EXPERTS_CAST | {"guards": tuple(sorted((*EXPERTS_CAST["guards"], "one_token")))}
SM90 = [
    Family("gemm", "coop", cooperative=True, **DENSE),
    Family("gemm", "coop_swap", cooperative=True, swap_ab=True, **DENSE),
    Family("gemm", "pingpong", **DENSE),
    Family("gemm", "pingpong_swap", swap_ab=True, **DENSE),
    Family("gemm", "flex_coop", cooperative=True, **FLEX),
    Family("gemm", "flex_coop_swap", cooperative=True, swap_ab=True, **FLEX),
    Family("gemm", "flex_pingpong", **FLEX),
    Family("gemm", "flex_pingpong_swap", swap_ab=True, **FLEX),
    Family("gemm", "split", **SPLIT),
    Family("gemm", "split_swap", swap_ab=True, light_epilogue=True, **SPLIT),
    Family("gemm", "stream_coop", cooperative=True, **STREAM),
    Family("gemm", "stream_coop_swap", cooperative=True, swap_ab=True, **STREAM),
    Family("gemm", "stream_pingpong", **STREAM),
    Family("gemm", "stream_pingpong_swap", swap_ab=True, **STREAM),
    Family("gemm", "masked", "sm90.gemm", guards=("descriptor_ab",), persistent=True, by_units=True),
    Family("gemm", "cluster", "sm90.gemm_cluster", any_width=True, **CLUSTER),
    Family("gemm", "cluster_swap", "sm90.gemm_cluster", "gemm_cluster", swap_ab=True, any_width=True, **CLUSTER),
    Family("grouped_mm", "swap", "sm90.grouped_mm_swap", swap_ab=True, balanced=True, **TMA),
    Family(
        "grouped_mm", "coop_swap", "sm90.grouped_mm_swap", "grouped_mm_swap", cooperative=True, swap_ab=True,
        balanced=True, **TMA,
    ),
    Family("grouped_mm", "scaled_swap", **SCALED_SWAP),
    Family("grouped_mm", "scaled_coop", cooperative=True, **SCALED),
    Family("grouped_mm", "scaled_pingpong", **SCALED),
    Family("grouped_mm", "pingpong", "sm90.grouped_mm_pingpong", **TMA),
    Family("grouped_mm", "whole", **WHOLE),
    Family("grouped_mm", "whole_swap", swap_ab=True, **WHOLE),
    Family("grouped_mm", "scaled_whole_coop", cooperative=True, **SCALED_WHOLE),
    Family("grouped_mm", "scaled_whole_pingpong", **SCALED_WHOLE),
    Family("grouped_mm", "scaled_whole_pingpong_swap", swap_ab=True, **SCALED_WHOLE),
    Family(
        "grouped_mm", "columns", "sm90.grouped_mm_columns", guards=("columns", "descriptor_ab"), persistent=True,
        by_units=True, light_epilogue=True,
    ),
    Family("grouped_mm", "cluster", "sm90.grouped_mm_cluster", **CLUSTER | {"guards": ("cluster", "descriptor")}),
    Family("moe_mm", "swap", "sm90.moe_mm", "moe_mm", **EXPERTS),
    Family("moe_mm", "coop_swap", "sm90.moe_mm", "moe_mm", cooperative=True, **EXPERTS),
    Family("moe_mm", "scaled_coop", "sm90.moe_mm_scaled", "moe_mm_scaled", cooperative=True, **EXPERTS_CAST),
    Family("moe_mm", "scaled_few", "sm90.moe_mm_scaled_few", swap_ab=True, **EXPERTS_CAST),
    Family("moe_mm", "scaled_one", "sm90.moe_mm_scaled_one", swap_ab=True, **EXPERTS_CAST_ONE),
    Family(
        "grouped_gemm", "pingpong", "sm90.grouped_gemm", guards=("align16", "scratch"), persistent=True, store="tma"
    ),
    # Three blocks of 256 threads on a multiprocessor: fewer leave memory idle.
    Family("cast_transpose_rows", "words", "sm90.cast_transpose", guards=("align16",), registers=80),
]  # fmt: skip

FAMILIES = {family.kernel: family for family in (*REFERENCE.values(), PAIRS, SPECIALIZED, PIPELINED, *SM90)}
DENSE_SM90 = {family.name: family for family in SM90 if family.op == "gemm"}
EXPERTS_SM90 = {family.name: family for family in SM90 if family.op == "moe_mm"}
(POINTERS_SM90,) = (family for family in SM90 if family.op == "grouped_gemm")
(TURNED_SM90,) = (family for family in SM90 if family.op == "cast_transpose_rows")
PACKED_SM90 = {family.name: family for family in SM90 if family.op == "grouped_mm"}
