"""The vocabulary: what a problem is, what a variant is, and what its kernel may be told. Stdlib only.

`Problem` is the question (operation, dtypes, layout), `Config` the answer (tile, warps, stages); a `Variant` joins
them with a kernel, a target and a guard. Names are computed here and used for the file, the C symbol, the manifest
and the test alike.
"""

import dataclasses
from dataclasses import dataclass

from kernels.table.arguments import ARGUMENTS
from kernels.table.boxes import Boxes
from kernels.table.dtypes import DTYPES, E5M2, ELEMENTS, PRECISIONS
from kernels.table.families import FAMILIES, REFERENCE, ROW_STEP, Family
from kernels.table.model import Fit, Model, least_rows, rough, tuned
from kernels.table.rules import SpecError, check_tile, require
from kernels.table.targets import FIRST_FP8, TARGETS

OPS = ("gemm", "grouped_gemm", "grouped_mm")
MOST_STAGES = 16  # of a pipeline: the loads in flight, which a tile of few bytes needs many of
HELPERS = (
    "align",
    "gemm_sum",
    "moe_mm",
    "moe_route",
    "moe_sum",
    "moe_gate",
    "moe_gate_grad",
    "moe_cast",
    "moe_spread",
    "cast_tensor",
    "cast_rows",
    "cast_1x128",
    "cast_128x128",
    "cast_transpose",
    "cast_transpose_rows",
    "cast_amax",
)  # operations that not every type and layout has

# Those of them whose D has one of A's `casts` for its type.
CASTS_TO_D = (
    "moe_cast",
    "moe_spread",
    "cast_tensor",
    "cast_rows",
    "cast_1x128",
    "cast_128x128",
    "cast_transpose",
    "cast_transpose_rows",
)

# First letter: op(A), second: op(B). "n" as stored [M,K] / [K,N], "t" stored transposed [K,M] / [N,K]. The order is
# the C side's index: 2 * trans_a + trans_b.
LAYOUTS = ("nn", "nt", "tn", "tt")

# What a variant needs beyond its problem; checked on every call. The C side knows each as GUARD_<NAME>.
GUARDS = {
    "align16": "A, B, C and D start on 16 bytes; N, K (with a transposed A also M), leading dimensions and batch "
    "strides are multiples of 16 bytes of the input type",
    "descriptor": "A, B, C and D start on 16 bytes; their leading dimensions and a row of D are multiples of 16 bytes; "
    "A and B are read (K > 0 and alpha != 0); of whole matrices one product (batch = 1)",
    "descriptor_ab": "A and B start on 16 bytes and their leading dimensions are multiples of 16 bytes; both are read; "
    "of whole matrices one product (batch = 1)",
    "gated": "B has columns for a gate and as many for what it gates; without this guard it must not",
    "halved": "TMA can step from the gate's columns to up's: not where they stand in turn along a stored row",
    "paired": "the gate's columns and up's stand in turn along B's stored rows",
    "in_order": "rows of D are neither weighted nor put elsewhere",
    "linear": "no activation",
    "cluster": "fewer tiles than half the multiprocessors, and two steps in K or more to share (of groups: all tiles "
    "together, and K of one as long as it is on average)",
    "equal": "ends cut K of an A stored [K][M] and a B stored [K][N], of 8-bit operands [M][K] and [N][K], or none; "
    "groups stand whole stored rows apart",
    "whole": "no tile is cut by a group's end: a group has as many rows as one or more, a multiple of 8, and C is not "
    "read; of packed groups, not of a dense batch",
    "rows": "ends cut the rows of an A stored [M][K]; B's groups stand whole stored rows apart",
    "columns": "ends cut the columns of a B stored [N][K]; A's groups stand whole stored rows apart",
    "swish": "what gates is silu",
    "blocks": "scales of blocks: for A of 1 x 128, for B of 128 x 128",
    "one_token": "a layer of one token, of which the product casts the row by itself, with few choices",
    "counted": "a counter that a layer's first launch sets to 0, by which blocks take tiles as they come free; or to "
    "be run by its name, when tiles are dealt out in rounds",
    "unblocked": "no scales of blocks",
    "scratch": "a workspace in which each block has a share, for the descriptors that it makes by itself",
    "workspace": "few tiles, whose K is worth sharing, and a workspace for the parts of each",
}
# Arguments of rows with 8-bit operands alone. That of types tells e4m3 from e5m2, which such rows may have mixed.
TYPE_WORDS = ("a_type", "b_type")
SCALES = ("a_scale", "b_scale", "scaling", "batch_stride_a_scale", "batch_stride_b_scale")
BLOCK_SCALES = ("a_scale_stride_m", "a_scale_stride_k", "b_scale_stride_n", "b_scale_stride_k")
CUTS = ("columns", "equal", "rows")  # of them, those that say where groups begin and end


@dataclass(frozen=True)
class Problem:
    """What is computed: D = act(alpha * op(A) op(B) + beta * C + bias), accumulated in float32."""

    op: str
    a: str  # element type of A and B
    d: str  # element type of C, D and, but of an 8-bit D, the bias
    precision: str
    layout: str
    e5m2: str = ""  # which of A and B, of type e4m3, is e5m2 instead: "a" or "b"

    def check(self) -> None:
        require(self.op in OPS + HELPERS, "op", self.op, OPS + HELPERS)
        require(self.a in DTYPES, "a", self.a, tuple(DTYPES))
        a = DTYPES[self.a]
        outputs = a.outputs if self.op == "gemm" else tuple(d for d in a.outputs if DTYPES[d].bytes > 1)
        allowed = a.casts if self.op in CASTS_TO_D else outputs
        require(self.d in allowed, "d", self.d, allowed)
        require(self.precision in a.precisions, "precision", self.precision, a.precisions)
        require(self.layout in LAYOUTS, "layout", self.layout, LAYOUTS)
        mixed = ("", "a", "b") if self.a == "e4m3" else ("",)
        require(self.e5m2 in mixed, "e5m2", self.e5m2, mixed)

    def type_of(self, operand: str) -> str:
        """Of "a" or "b"."""
        return E5M2.name if operand == self.e5m2 else self.a

    @property
    def bias(self) -> str:
        """Its type: D's, or bfloat16 where that has 8 bits."""
        return self.d if ELEMENTS[self.d].bytes > 1 else "bf16"

    @property
    def name(self) -> str:
        precision = "" if self.precision == "exact" else f"_{self.precision}"
        return f"{self.op}_{self.type_of('a')}_{self.type_of('b')}_{self.d}{precision}_{self.layout}"


def measured_as(problem: Problem, blocks: bool) -> str:
    """One of model.KINDS, of an operation that is tuned; `blocks`: with scales of blocks."""
    if not DTYPES[problem.a].scaled:
        return problem.op
    sums = "_blocks" if blocks else "_fast" if problem.precision == "fast" else ""
    return f"{problem.op}_{problem.a}{sums}"


@dataclass(frozen=True)
class Config:
    """How it is computed. Every option is stated; no Triton default is leaned on."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    group_m: int = 8
    parts: int = 1  # pieces, by columns (with swapped operands by rows), in which a tile leaves through shared memory
    persistent: bool = False  # as many blocks as fit on the device, each taking many tiles
    a_boxes: int = 1  # copies, one below the other, in which a step's A comes
    buffers: int = 1  # of each warpgroup, through which a tile leaves in turn
    cluster: int = 1  # blocks that share what they load
    across: int = 1  # of them side by side, which share the left operand; those below one another share the right

    def check(self) -> None:
        for field in ("block_m", "block_n", "block_k"):
            size = getattr(self, field)
            require(size >= 8 and size % 8 == 0, field, size, "a multiple of 8, at least 8")
        require(self.warps in (2, 4, 8), "warps", self.warps, (2, 4, 8))
        require(1 <= self.stages <= MOST_STAGES, "stages", self.stages, f"1 to {MOST_STAGES}")
        require(self.group_m >= 1, "group_m", self.group_m, "1 or more")
        require(self.parts in (1, 2, 3, 4, 6), "parts", self.parts, (1, 2, 3, 4, 6))
        require(self.block_m % self.a_boxes == 0, "a_boxes", self.a_boxes, "a divisor of block_m")
        require(self.buffers in (1, 2), "buffers", self.buffers, (1, 2))
        require(self.cluster in (1, 2, 4, 8), "cluster", self.cluster, (1, 2, 4, 8))
        across = tuple(blocks for blocks in (1, 2, 4) if blocks <= self.cluster)
        require(self.across in across, "across", self.across, across)

    @property
    def below(self) -> int:
        """Blocks of a cluster below one another."""
        return self.cluster // self.across

    @property
    def name(self) -> str:
        parts = f"_p{self.parts}" if self.parts > 1 else ""
        order = f"_g{self.group_m}" if self.group_m != 8 else ""
        buffers = f"_b{self.buffers}" if self.buffers > 1 else ""
        cluster = f"_{self.cluster_name}" if self.cluster > 1 else ""
        tile = f"{self.block_m}x{self.block_n}x{self.block_k}_w{self.warps}_s{self.stages}"
        return f"{tile}{parts}{order}{buffers}{cluster}"

    @property
    def cluster_name(self) -> str:
        return f"c{self.below}x{self.across}" if self.across > 1 else f"c{self.cluster}"


@dataclass(frozen=True)
class Variant(Boxes):
    """One kernel compiled one way for one target."""

    problem: Problem
    config: Config
    kernel: str  # the key of a family in families.py
    target: int  # compute capability * 10
    guard: tuple[str, ...] = ()
    rate: int = 100  # rough speed of one multiprocessor busy with this tile; 100 is the reference set's large tile
    byte_cost: float = 1.0  # roughly, how much longer a byte of memory takes it than the fastest of its like
    tile_ns: int = 500  # roughly, what a tile takes beside its steps

    @property
    def family(self) -> Family:
        return FAMILIES[self.kernel]

    @property
    def shape_name(self) -> str:
        """Tile, pipeline and family: what its speed depends on beside the problem."""
        return "_".join(filter(None, (self.config.name, self.family.name)))

    @property
    def name(self) -> str:
        guard = "".join(f"_{g}" for g in self.guard)
        return f"{self.problem.name}__sm{self.target}__{self.shape_name}{guard}"

    @property
    def symbol(self) -> str:
        """Of its entry point: what a profiler shows, and less its first word what `variant=` takes."""
        return f"libgemm_{self.name}"

    @property
    def multiplies_bytes(self) -> bool:
        """Whether a row of the reference set gives 8-bit operands to the tensor cores as they are. Hopper's take them
        along K alone: where B is turned for that, of any alignment, that takes longer than to make them float16."""
        of_set = self.family in REFERENCE.values() and self.problem.op in ("gemm", "grouped_mm")
        pays = self.target != 90 or "align16" in self.guard or self.problem.layout[1] == "t"
        return of_set and DTYPES[self.problem.a].scaled and self.target >= FIRST_FP8 and pays

    @property
    def compiled(self) -> "Variant":
        """The row that the compiler is given: this one, or its twin of the target whose code this one runs. The
        reference set multiplies 8-bit numbers in one way, which "fast" is too."""
        target = TARGETS[self.target].code or self.target
        if self.multiplies_bytes and target < FIRST_FP8:
            target = self.target
        code = dataclasses.replace(self, target=target)
        if self.problem.precision == "fast" and self.family in REFERENCE.values():
            code = dataclasses.replace(code, problem=dataclasses.replace(self.problem, precision="exact"))
        return code

    @property
    def architecture(self) -> str:
        """What the assembler is told, of a row that is compiled for its own target."""
        return f"sm_{self.target}{TARGETS[self.target].suffix}"

    @property
    def fit_name(self) -> str:
        """Its key among fits, with K in elements of 16 bits: how deep the ring is, and how the tile leaves, follow from
        the types."""
        block_k = self.config.block_k * DTYPES[self.problem.a].bytes // 2
        cut = "".join(f"_{guard}" for guard in self.guard if guard in CUTS)
        cluster = f"_{self.config.cluster_name}" if self.config.cluster > 1 else ""
        return f"{self.config.block_m}x{self.config.block_n}x{block_k}_{self.family.full_name}{cut}{cluster}"

    @property
    def fit(self) -> Fit | None:
        """What was measured of its speed, with 16-bit or 8-bit inputs. A float32 tile of the fast set takes the time of
        a 16-bit one that moves as many bytes."""
        precisions = ("exact",) if self.family in REFERENCE.values() else ("exact", "tf32", "fast")
        found = tuned(self.target, self.measured_as)
        if self.problem.precision not in precisions or found is None:
            return None
        return found.fits.get(self.fit_name)

    @property
    def measured_as(self) -> str:
        """One of model.KINDS, for the operations that are tuned."""
        return measured_as(self.problem, "blocks" in self.guard)

    @property
    def form(self) -> tuple[int, int]:
        """Blocks that share loads, and those of them side by side, of a row that is weighed only where that pays
        (model.is_shared); (1, 1) of all others, and of those whose blocks share K of tiles too."""
        return (1, 1) if self.family.split == "stream" else (self.config.cluster, self.config.across)

    @property
    def row_step(self) -> int:
        """Rows of A come in steps of so many and a group's are shared out evenly over its tiles; 0: a tile always works
        on all its rows."""
        return ROW_STEP if self.family.balanced else 0

    @property
    def row_least(self) -> int:
        """The least that such a tile works on; 0 of others."""
        return least_rows(self.config.block_m) if self.family.balanced else 0

    @property
    def model(self) -> Model:
        """Where there is no fit."""
        c = self.config
        speed = TARGETS[self.target].speed
        return rough(c.block_m, c.block_n, c.block_k, self.rate, speed, self.byte_cost, self.tile_ns)

    def check(self) -> None:
        """Raise SpecError, naming this row, when it cannot be built."""
        if self.kernel not in FAMILIES:  # without which it has no name
            raise SpecError(f"variant of {self.problem.name}: kernel = {self.kernel!r}: allowed is {tuple(FAMILIES)}")
        try:
            self.problem.check()
            self.config.check()
            require(self.target in TARGETS, "target", self.target, tuple(TARGETS))
            require(self.family.op == self.problem.op, "kernel", self.kernel, f"a kernel of {self.problem.op}")
            check_tile(self)
            require(tuple(sorted(set(self.guard))) == self.guard, "guard", self.guard, "sorted, each once")
            require(1 <= self.rate <= 1000, "rate", self.rate, "1 to 1000")
            for guard in self.guard:
                require(guard in GUARDS, "guard", guard, tuple(GUARDS))
        except SpecError as error:
            raise SpecError(f"variant {self.name}: {error}") from None

    @property
    def lies_in_blocks(self) -> bool:
        """Whether each 64 of a tile's columns, or all where it has fewer, are in one block of 128 columns of B."""
        return self.family.swap_ab or self.right % 64 == 0 or 128 % self.right == 0

    def constexprs(self) -> dict[str, int | str]:
        """Values of the compile-time arguments, by name; a kernel takes those it declares. Integers, which go through
        triton.tools.compile, but for the symbol."""
        a_bytes, scaled = DTYPES[self.problem.a].bytes, DTYPES[self.problem.a].scaled
        absent = ("scaling",) if "blocks" in self.guard else BLOCK_SCALES if "unblocked" in self.guard else ()
        absent = absent if scaled else (*TYPE_WORDS, *SCALES, *BLOCK_SCALES)
        to_e4m3 = self.problem.op == "gemm" and self.problem.d == "e4m3"
        absent = absent if to_e4m3 else (*absent, "d_scale", "d_amax")
        return {
            "BLOCK_M": self.config.block_m,
            "BLOCK_N": self.config.block_n,
            "BLOCK_K": self.config.block_k,
            "GROUP_M": self.config.group_m,
            "TRANS_A": int(self.problem.layout[0] == "t"),
            "TRANS_B": int(self.problem.layout[1] == "t"),
            "PRECISION": PRECISIONS[self.problem.precision],
            "STAGES": self.config.stages,
            "PARTS": self.config.parts,
            "LEAST": self.row_least,
            "BUFFERS": self.config.buffers,
            "CLUSTER": self.config.cluster,
            "ACROSS": self.config.across,
            "SWAP": int(self.family.swap_ab),
            "PINGPONG": int(not self.family.cooperative),
            "RUN": self.config.block_m // self.config.a_boxes if self.config.a_boxes > 1 else 0,
            "SYMBOL": self.symbol,  # assembly names the entry point's parameters after it
            "ALIGN": 16 // a_bytes if "align16" in self.guard else 1,
            "PACKED": ELEMENTS[self.problem.a].c_enum if "align16" in self.guard and a_bytes == 2 else 0,
            "ACTIVATE": int("linear" not in self.guard),
            "EQUAL": int("equal" in self.guard),
            "GATED": int("gated" in self.guard),
            "PAIRED": int("paired" in self.guard),
            "SWISH": int("swish" in self.guard),
            "COUNTED": int("counted" in self.guard),
            "OVERLAP": int(self.target >= 90),  # programmatic dependent launch
            "D_TYPE": ELEMENTS[self.problem.d].c_enum,
            "TO_E4M3": int(to_e4m3),
            "HARDWARE": (self.target >= 89) + (self.target >= 90),  # 1: rounds to 8 bits; 2: compares halves of words
            "SCALED": int(scaled and "blocks" not in self.guard),
            "FP8": int(self.multiplies_bytes),
            "BLOCKS": int("blocks" in self.guard),
            "PROMOTE": int(scaled and self.problem.precision != "fast"),
            **dict.fromkeys(absent, 0),
        }

    def argument_type(self, name: str) -> str:
        """Triton type of the run-time argument `name`, as in triton.tools.compile's signature."""
        kind = ARGUMENTS[name]
        element = {"*a": self.problem.a, "*d": self.problem.d, "*bias": self.problem.bias}.get(kind)
        return f"*{DTYPES[element].pointer}" if element else kind

    def divisible(self, name: str) -> bool:
        """Whether the guard promises that this pointer is a multiple of 16 bytes."""
        aligned = "align16" in self.guard or "descriptor" in self.guard
        return aligned and name in ("a_ptr", "b_ptr", "c_ptr", "d_ptr", "h_ptr", "x_ptr", "q_ptr", "q_t_ptr")

    def to_dict(self) -> dict:
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        parts = {"problem": self.problem, "config": self.config, "model": self.model}
        return {"name": self.name, **own, **{name: dict(vars(part)) for name, part in parts.items()}}
