"""Problems as data: a frozen `Case` whose repr reproduces it, and a seeded random generator. Allocates nothing."""

import dataclasses
import math
import random
from dataclasses import dataclass

from kernels.table.activations import ACTIVATIONS as NAMES

# (A and B, C and D, precision) of every legal problem, as the C header lists them.
TYPES = (
    ("f16", "f16", "exact"),
    ("f16", "f32", "exact"),
    ("bf16", "bf16", "exact"),
    ("bf16", "f32", "exact"),
    ("f32", "f32", "tf32"),
    ("f32", "f32", "tf32x3"),
    ("f32", "f32", "ieee"),
    ("e4m3", "bf16", "exact"),
    ("e4m3", "bf16", "fast"),
    ("e4m3", "f16", "exact"),
    ("e4m3", "f16", "fast"),
    ("e4m3", "f32", "exact"),
    ("e4m3", "f32", "fast"),
    ("e4m3", "e4m3", "exact"),
    ("e4m3", "e4m3", "fast"),
)
# Python entry -> operation of the variants behind it.
ENTRIES = {
    "gemm": "gemm",
    "grouped_gemm": "grouped_gemm",
    "grouped_gemm_tables": "grouped_gemm",
    "grouped_mm": "grouped_mm",
    "grouped_gemm_jagged": "grouped_mm",
}
BLOCK_SCALINGS = ("1x128_128x128", "1x128_1x128", "128x128_1x128")
SCALINGS = ("", "tensor", "row", *BLOCK_SCALINGS)  # of 8-bit operands, in the order of the C enum
ACTIVATIONS = (None, *NAMES[1:])
RAGGED = ("m", "n", "k", "none")  # in the order of the C enum
SPREADS = ("uniform", "skewed", "empty", "one", "log", "full")


@dataclass(frozen=True)
class Case:
    """One call. Sizes of groups and all values follow from the fields, so the repr is enough to repeat it."""

    seed: int = 0
    entry: str = "gemm"
    a_type: str = "bf16"
    d_type: str = "bf16"
    precision: str = "exact"
    trans_a: bool = False
    trans_b: bool = False
    m: int = 64  # of a group: the largest size
    n: int = 64
    k: int = 64
    batch: int = -1  # -1: two-dimensional operands
    gap: int = 0  # elements between the matrices of a batch
    shared: str = ""  # which of "a", "b", "c" all batches (jagged: "b", all groups) share
    groups: int = 0
    cuts: tuple = ()  # sizes of packed groups, where they do not follow the spread
    spread: str = "full"  # how group sizes are drawn: SPREADS, "halves" (each half the last) or "steps" (growing)
    vary: str = "m"  # which sizes of a pointer-array group follow the spread
    ragged: str = "m"  # which size the ends of a packed group cut: RAGGED
    tail: int = 0  # rows (columns, K) past the last end
    zero: bool = False  # rows or columns of D past the last end are set to 0
    wide: bool = False  # int64 ends
    aligned: bool = False  # device tables: the caller's word that all of their matrices are
    expected: tuple = ()  # device tables: the caller's guess at a group's (m, n, k)
    pads: tuple = (0, 0, 0, 0)  # elements between rows of A, B, C, D
    leads: tuple = (0, 0, 0, 0)  # elements between an aligned address and A, B, C, D
    alpha: float = 1.0
    beta: float = 0.0
    c: str = "none"  # none, separate, in_place (c is out), out (c left out, out read as C)
    nan_c: bool = False  # C is NaN: legal only with beta = 0
    bias: str = ""  # "", "row" (one for all) or "each" (per batch or group)
    activation: str | None = None
    scaling: str = ""  # SCALINGS
    e5m2: str = ""  # which of "a" and "b", of a_type e4m3, is e5m2 instead
    d_scale: bool = False  # D, of d_type e4m3, has a scale of its own
    d_amax: bool = False  # and the largest magnitudes of its rows are asked for
    fresh: bool = False  # no out: the library allocates it
    # normal; positive (A and B); inf, nan (a few of A and B); nan_ab (all, with alpha = 0); inf_odd, nan_odd (all of
    # every second group)
    values: str = "normal"
    variant: str | None = None

    def __post_init__(self) -> None:
        """A D of 8 bits has no C: what is drawn for all types loses its own."""
        if self.d_type == "e4m3":
            for name, value in (("beta", 0.0), ("c", "none"), ("nan_c", False)):
                object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        changed = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return "Case(" + ", ".join(f"{name}={getattr(self, name)!r}" for name in changed) + ")"

    @property
    def op(self) -> str:
        return ENTRIES[self.entry]

    @property
    def bias_type(self) -> str:
        return "bf16" if self.d_type == "e4m3" else self.d_type

    def type_of(self, letter: str) -> str:
        """Of A or B."""
        return "e5m2" if self.e5m2 == letter else self.a_type

    @property
    def pointers(self) -> bool:
        return self.op == "grouped_gemm"

    @property
    def packed(self) -> bool:
        return self.op == "grouped_mm"

    def has_groups(self, letter: str) -> bool:
        """Whether each packed group has a matrix of its own of this operand, which then has three dimensions."""
        own = {"m": "b", "n": "a", "k": "cd", "none": "abcd"}[self.ragged]
        return self.packed and letter in own and letter not in self.shared

    @property
    def tail_of_d(self) -> bool:
        """Whether D has rows or columns that belong to no group."""
        return self.packed and self.ragged in "mn" and "b" not in self.shared and self.tail > 0

    def group_sizes(self) -> list[tuple[int, int, int]]:
        """(m, n, k) of every group. One of them varies for packed groups, any of them for arrays of pointers."""
        varying = self.vary if self.pointers else self.ragged.replace("none", "")
        rng = random.Random(f"groups {self.seed}")
        sizes = []
        one = rng.randrange(max(self.groups, 1))
        for group in range(self.groups):
            m, n, k = (draw(rng, self.spread, top, group == one) for top in (self.m, self.n, self.k))
            if self.spread == "halves":
                m, n, k = self.m >> group, self.n >> group, self.k >> group
            elif self.spread == "steps":
                m, n, k = (top * (group + 1) // self.groups for top in (self.m, self.n, self.k))
            if self.cuts:
                m = n = k = self.cuts[group]
            m = m if self.pointers or "m" in varying else self.m
            n = n if "n" in varying else self.n
            k = k if "k" in varying else self.k
            if self.pointers and "0" in self.vary and rng.random() < 0.15:
                k = 0
            if self.pointers and self.aligned:
                m, n, k = (m if not self.trans_a else whole(m)), whole(n), whole(k)
            sizes.append((m, n, k))
        return sizes

    def totals(self) -> tuple[int, int, int]:
        """Sizes of the matrices as they stand: the one that ends cut is that of all groups together."""
        sizes = {"m": self.m, "n": self.n, "k": self.k}
        if self.packed and self.ragged != "none":
            sizes[self.ragged] = sum(size["mnk".index(self.ragged)] for size in self.group_sizes()) + self.tail
        return sizes["m"], sizes["n"], sizes["k"]


def types_of(entry: str) -> tuple:
    """TYPES of an entry: the dense one and that of packed groups take 8-bit operands, the dense one has such a D."""
    bytes_of = {"gemm": 2, "grouped_mm": 1}.get(entry, 0)  # A, B and D, or A and B alone
    return tuple(types for types in TYPES if bytes_of >= (types[0] == "e4m3") + (types[1] == "e4m3"))


def step_of(a_type: str) -> int:
    """Elements of A and B such that so many, and of C and D, are multiples of 16 bytes."""
    return 16 if a_type == "e4m3" else 8


def e5m2_of(v) -> str:
    """Which of A and B a variant for 8-bit operands takes as e5m2."""
    return "a" if "_e5m2_e4m3_" in v.name else "b" if "_e4m3_e5m2_" in v.name else ""


def aligned_pads(case: Case, pads=(0, 0, 0, 0)) -> tuple:
    """Least gaps after which stored rows of A, B, C and D are multiples of 16 bytes, and `pads` more."""
    m, n, k = case.totals()
    stored, step = (m if case.trans_a else k, k if case.trans_b else n, n, n), step_of(case.a_type)
    return tuple(-x % step + whole(pad, step) for x, pad in zip(stored, pads, strict=True))


def whole(size: int, step: int = 8) -> int:
    return -(-size // step) * step


def draw(rng: random.Random, spread: str, top: int, chosen: bool) -> int:
    """One group's size, 0 to top."""
    if spread == "full" or (chosen and spread in ("skewed", "one")):
        return top
    if spread == "one":
        return 0
    if spread == "skewed":
        return rng.randint(0, max(top // 16, 1))
    if spread == "empty" and rng.random() < 0.8:
        return 0
    return log_uniform(rng, 1, top) if spread == "log" and top > 0 else rng.randint(0, top)


def log_uniform(rng: random.Random, low: int, high: int) -> int:
    return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))


def size(rng: random.Random, largest: int, aligned: bool) -> int:
    """One extent: log-uniform to 700, now and then 0, 1 or up to `largest`."""
    chance = rng.random()
    if chance < 0.02:
        return 0
    if chance < 0.07:
        return 1
    if chance < 0.09:
        return rng.randint(min(700, largest), largest)
    value = log_uniform(rng, 1, min(700, largest))
    return -(-value // 8) * 8 if aligned else value


def random_scalars(rng: random.Random) -> dict:
    """alpha, beta, and where C stands. Random scalars are exact in float32."""
    alpha = rng.choice((1.0, 1.0, 1.0, 0.0, -0.5, 2.0, rng.randint(-256, 256) / 64))
    beta = rng.choice((0.0, 0.0, 1.0, -0.5, 2.0, rng.randint(-256, 256) / 64))
    c = rng.choice(("separate", "in_place", "out")) if beta != 0 else rng.choice(("none", "separate"))
    values = "normal"
    if alpha == 0:
        values = rng.choice(("normal", "nan_ab"))
    elif rng.random() < 0.08:
        values = rng.choice(("inf", "nan"))
    nan_c = beta == 0 and c == "separate"
    return {"alpha": alpha, "beta": beta, "c": c, "values": values, "nan_c": nan_c}


def random_groups(rng: random.Random, entry: str, largest: int) -> dict:
    """Group count and sizes, kept to some million elements a call."""
    many = rng.random() < 0.04
    groups = 2000 if many and largest > 700 else log_uniform(rng, 1, 300 if largest > 700 else 40)
    top = max(4, min(700, int(1500 / math.sqrt(groups)), largest))
    fields = {
        "groups": groups,
        "spread": rng.choice(SPREADS),
        "m": log_uniform(rng, 1, top),
        "n": log_uniform(rng, 1, 24 if many else top),
        "k": rng.choice((0, 1, 17)) if rng.random() < 0.1 else log_uniform(rng, 1, 48 if many else top),
    }
    if ENTRIES[entry] == "grouped_gemm":
        return {**fields, "vary": rng.choice(("m", "mn", "mnk", "mk0", "mnk0"))}
    fields["tail"] = rng.choice((0, 0, 1, rng.randint(1, 200)))
    if entry == "grouped_gemm_jagged":
        return {**fields, "wide": rng.random() < 0.5, "shared": "b" if rng.random() < 0.4 else ""}
    ragged = rng.choice(RAGGED)
    fields["tail"] *= ragged != "none"
    return {**fields, "wide": rng.random() < 0.5, "ragged": ragged, "zero": rng.random() < 0.4}


def random_batch(rng: random.Random, largest: int) -> dict:
    fields = {name: size(rng, largest, False) for name in "mnk"}
    if rng.random() < 0.4:
        batch = rng.choice((0, 1, 2, 3, 5, rng.randint(6, 40)))
        shared = "".join(x for x in "abc" if rng.random() < 0.2)
        if batch > 5:
            fields = {name: min(value, 160) for name, value in fields.items()}
        fields.update(batch=batch, shared=shared)
    return fields


def aligned_groups(rng: random.Random, case: Case, largest: int) -> Case:
    """Groups, now and then, such that rows for whole matrices take them, often of several tiles. What the host expects
    of arrays of pointers may be far off."""
    if rng.random() < 0.15:
        return case
    if case.entry == "grouped_gemm_tables":
        return dataclasses.replace(case, aligned=True, expected=rng.choice(((), (64,) * 3, (4096,) * 3, (4096,) * 3)))
    if not case.packed:
        return case
    if case.ragged == "m" and not case.trans_b:
        case = dataclasses.replace(case, k=-(-case.k // 64) * 64)
    if case.ragged != "n" and case.groups < 40 and rng.random() < 0.5:
        case = dataclasses.replace(case, n=rng.randrange(8, min(largest, 2000), 8))
    return dataclasses.replace(case, pads=aligned_pads(case, case.pads))


def random_case(seed: int, largest: int = 3000, a_type: str = "", entry: str = "gemm") -> Case:
    """The random case of a seed: half dense, half grouped; or one of this type and entry."""
    rng = random.Random(f"case {seed}")
    entry = entry if a_type else rng.choice(("gemm",) * 4 + tuple(ENTRIES)[1:])
    of_type = [types for types in types_of(entry) if a_type in ("", types[0])]
    types = dict(zip(("a_type", "d_type", "precision"), rng.choice(of_type), strict=True))
    step = step_of(types["a_type"])
    aligned = rng.random() < 0.45
    fields = random_batch(rng, largest) if entry == "gemm" else random_groups(rng, entry, largest)
    if aligned:
        fields.update({name: whole(fields[name], step) for name in "mnk"})
        fields.update(pads=tuple(rng.choice((0, 0, step, 64)) for _ in range(4)))
    else:
        fields.update(pads=tuple(rng.choice((0, 0, 1, 3, 8, rng.randint(1, 70))) for _ in range(4)))
        fields.update(leads=tuple(rng.choice((0, 0, 1, 2, 5, 8)) for _ in range(4)))
    fields.update(random_scalars(rng))
    if fields["c"] in ("none", "separate"):
        fields.update(fresh=rng.random() < 0.2)
    if fields["c"] in ("in_place", "out"):
        fields.update(shared=fields.get("shared", "").replace("c", ""))
    if types["a_type"] == "e4m3":
        no_blocks = types["precision"] == "fast" or fields.get("ragged") == "k"
        fields.update(scaling=rng.choice(SCALINGS[: 3 if no_blocks else None]))
        fields.update(e5m2=random.Random(f"e5m2 {seed}").choice(("", "", "a", "b")))
        fields.update(d_scale=types["d_type"] == "e4m3" and seed % 3 > 0)
        fields.update(d_amax=types["d_type"] == "e4m3" and seed % 5 > 1)
    case = Case(
        seed=seed,
        entry=entry,
        **types,
        trans_a=rng.random() < 0.5,
        trans_b=rng.random() < 0.5,
        bias=rng.choice(("", "", "row", "each")),
        activation=rng.choice((None, None, *ACTIVATIONS)),
        **fields,
    )
    return aligned_groups(rng, case, largest) if aligned else case
