"""From a case to guarded operands on a device: one list entry per matrix argument. Runs nothing and checks nothing."""

import functools
import random

import torch

from .cases import BLOCK_SCALINGS, Case
from .guarded import Arena
from .reference import DTYPES


class Problem:
    """Operands of one case: `a`, `b`, `c`, `d`, `bias` are lists (one entry unless the case has arrays of pointers)."""

    def __init__(self, case: Case, device):
        self.case, self.device = case, torch.device(device)
        self.sizes = case.group_sizes()
        self.generator = torch.Generator(device=self.device).manual_seed(case.seed)
        self.m, self.n, self.k = case.totals()
        self.a_arena = self.operand("a", 0, case.type_of("a"))
        self.b_arena = self.operand("b", 1, case.type_of("b"))
        self.a = [self.logical(x, case.trans_a, "a") for x in self.a_arena.views]
        self.b = [self.logical(x, case.trans_b, "b") for x in self.b_arena.views]
        self.make_bias()
        self.make_scales()
        self.d_scale = self.one_scale() if case.d_scale else None
        self.make_sizes()
        self.make_output()
        self.make_ends()
        self.poison()
        self.inputs = [x for x in (self.a_arena, self.b_arena, self.bias_arena, self.c_arena) if x is not None]
        self.inputs += self.scale_arenas
        self.outputs = [x for x in (self.d_arena, self.amax_arena) if x is not None]
        for arena in (*self.inputs, *self.outputs):
            arena.freeze()

    def shapes(self, letter: str) -> list[tuple]:
        """Logical shape of every matrix of an operand; shared batches have none of their own."""
        case = self.case
        rows = {"a": lambda m, n, k: (m, k), "b": lambda m, n, k: (k, n)}.get(letter, lambda m, n, k: (m, n))
        if case.pointers:
            return [rows(*size) for size in self.sizes]
        shape = rows(self.m, self.n, self.k)
        if case.packed:
            return [(case.groups, *shape) if case.has_groups(letter) else shape]
        return [(case.batch, *shape) if case.batch >= 0 and letter not in case.shared else shape]

    def operand(self, letter: str, index: int, dtype: str, output: bool = False) -> Arena:
        case = self.case
        arena = Arena(DTYPES[dtype], self.device, letter.upper())
        flipped = (letter == "a" and case.trans_a) or (letter == "b" and case.trans_b)
        for shape in self.shapes(letter):
            stored = (*shape[:-2], shape[-1], shape[-2]) if flipped else shape
            arena.place(stored, case.pads[index], case.leads[index], case.gap)
        return arena.outputs() if output else arena.inputs(self.generator)

    def logical(self, stored: torch.Tensor, flipped: bool, letter: str) -> torch.Tensor:
        view = stored.mT if flipped else stored
        shared = self.case.shared if self.case.op == "gemm" and self.case.batch >= 0 else ""
        # A 2-D operand beside a 3-D one is shared; an expanded one (batch stride 0) is the other way to say it.
        expand = letter == "c" or self.case.seed % 2 or ("a" in shared and "b" in shared)
        return view.expand(self.case.batch, *view.shape) if letter in shared and expand else view

    def make_bias(self) -> None:
        case = self.case
        self.bias, self.bias_arena = None, None
        if not case.bias:
            return
        self.bias_arena = Arena(DTYPES[case.bias_type], self.device, "bias")
        count = {"gemm": case.batch, "grouped_mm": case.groups}.get(case.op, -1)
        if case.pointers:
            shapes = [(n,) for _, n, _ in self.sizes]
        elif count >= 0 and case.bias == "each" and not self.one_b:
            shapes = [(count, self.n)]
        else:
            shapes = [(self.n,)]
        for shape in shapes:
            self.bias_arena.place(shape, case.pads[3], case.leads[3])
        self.bias = self.bias_arena.inputs(self.generator).views

    def make_scales(self) -> None:
        """A's and B's, as the call takes them; each matrix of an operand has its own where the seed is odd."""
        self.scales, self.scale_arenas = {}, []
        if self.by_blocks:
            operands = zip(("a_scale", "b_scale"), (self.m, self.n), self.sides, strict=True)
            for place, (name, length, side) in enumerate(operands):
                self.scales[name] = self.block_scales(name, place, -(-length // side), self.each_scaled(name))
        if self.by_blocks or not self.case.scaling:
            return
        for name, length, shape in (("a_scale", self.m, (self.m, 1)), ("b_scale", self.n, (1, self.n))):
            arena, each = Arena(DTYPES["f32"], self.device, name), self.each_scaled(name)
            one = each if each and self.case.packed else (1, 1)
            arena.place(one if self.case.scaling == "tensor" else (*each, length), 0, self.case.leads[3])
            (found,) = arena.inputs(self.generator).views
            # A vector, or a matrix of one column or row
            turned = self.case.scaling == "row" and not each and self.case.seed % 4 == 0
            self.scales[name] = found.view(shape) if turned else found
            self.scale_arenas.append(arena)

    def one_scale(self) -> torch.Tensor:
        """D's own: one by which some of D is too large for its type, and some is subnormal."""
        arena = Arena(DTYPES["f32"], self.device, "d_scale")
        arena.place((1,), 0, self.case.leads[3])
        (found,) = arena.inputs(self.generator).views
        found.abs_().mul_(0.1).clamp_(min=0.01)
        self.scale_arenas.append(arena)
        return found

    def make_sizes(self) -> None:
        """Where D's rows' largest magnitudes go: 0, or of every third row a number that may be larger or not."""
        self.d_amax, self.amax_arena, self.amax_before = None, None, None
        if not self.case.d_amax:
            return
        self.amax_arena = Arena(DTYPES["f32"], self.device, "d_amax")
        self.amax_arena.place((*self.d_lead, self.m), 0, self.case.leads[3])
        (self.d_amax,) = self.amax_arena.outputs().views
        self.d_amax.zero_()
        self.d_amax[..., ::3].normal_(std=self.k**0.5, generator=self.generator).abs_()
        self.amax_before = self.d_amax.clone()

    @property
    def d_lead(self) -> tuple[int, ...]:
        """Of a batch, how many matrices D has."""
        return (self.case.batch,) if self.case.batch >= 0 else ()

    def block_scales(self, name: str, place: int, rows: int, each: tuple) -> torch.Tensor:
        """One for each of `rows`, or blocks of them, and 128 of K: as A's rows (place 0) or B's columns (1) lie, stored
        along either, with gaps, and with more along K than is read."""
        steps = -(-self.k // 128) + self.case.seed % 3
        along_k = (self.case.seed // 3 + place) % 2 == 0
        arena = Arena(DTYPES["f32"], self.device, name)
        arena.place((*each, rows, steps) if along_k else (*each, steps, rows), self.case.seed % 5, self.case.leads[3])
        self.scale_arenas.append(arena)
        (found,) = arena.inputs(self.generator).views
        return found if along_k == (place == 0) else found.mT

    @property
    def by_blocks(self) -> bool:
        return self.case.scaling in BLOCK_SCALINGS

    @property
    def sides(self) -> list[int]:
        """Rows of op(A), and of op(B)^T, that share a scale of blocks."""
        return [int(block.split("x")[0]) for block in self.case.scaling.split("_")]

    def scales_of(self, group: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """In float64, those of a packed group's matrices; None: of all there are."""
        found = [x.double() for x in self.scales.values()]
        if group is None:
            return found[0], found[1]
        own = [self.each_scaled(name) for name in self.scales]
        return tuple(x[group] if each else x for x, each in zip(found, own, strict=True))

    def block_factors(self, group: int | None = None) -> tuple[torch.Tensor, torch.Tensor] | None:
        """In float64, for each row of op(A) a scale for each 128 of K, and for each 128 of K one for each column."""
        if not self.by_blocks:
            return None
        a_scale, b_scale = self.scales_of(group)
        of_a = a_scale.repeat_interleave(self.sides[0], -2)[..., : self.m, :]
        of_b = b_scale.repeat_interleave(self.sides[1], -1)[..., : self.n]
        rows, cols = (slice(None),) * 2 if group is None else self.place(group)[:2]
        return of_a[..., rows, :], of_b[..., cols]

    def scale(self, group: int | None = None) -> torch.Tensor | None:
        """What the product is multiplied by, in float64: a number, or one for each element."""
        if not self.scales or self.by_blocks:
            return None
        a_scale, b_scale = self.scales_of(group)
        if self.case.scaling == "tensor":
            return a_scale * b_scale
        lead = self.each_scaled("a_scale") if group is None else ()
        found = a_scale.reshape(*lead, self.m, 1) * b_scale.reshape(*lead, 1, self.n)
        return found if group is None else found[self.place(group)[:2]]

    def each_scaled(self, name: str) -> tuple[int, ...]:
        """() or, where matrices of an operand have scales of their own, how many there are."""
        case = self.case
        if case.packed:
            own = case.has_groups(name[0]) or case.ragged == "k"
            return (case.groups,) if own and case.seed % 2 else ()
        return (case.batch,) if case.batch >= 0 and case.seed % 2 else ()

    @property
    def one_b(self) -> bool:
        """Packed rows that all use one B (and one bias), whatever the ends say."""
        return self.case.op == "grouped_mm" and "b" in self.case.shared

    def make_output(self) -> None:
        """D guarded, and C: D itself, a matrix of its own, or none. `c_values` is what C held before the call."""
        case = self.case
        self.d_arena = self.operand("d", 3, case.d_type, output=True)
        self.d = self.d_arena.views
        self.c, self.c_arena, self.c_values = None, None, None
        if case.c == "separate":
            self.c_arena = self.operand("c", 2, case.d_type)
            self.c = self.c_values = [self.logical(x, False, "c") for x in self.c_arena.views]
        elif case.c in ("in_place", "out"):
            for view in self.d:
                if view.numel():
                    view.normal_(generator=self.generator)
            self.c = self.d
            self.c_values = [view.clone() for view in self.d]

    def poison(self) -> None:
        case = self.case
        if case.nan_c and self.c_arena is not None:
            self.c_arena.flat.fill_(torch.nan)
        if case.values == "nan_ab":
            self.a_arena.flat.fill_(torch.nan)
            self.b_arena.flat.fill_(torch.nan)
        if case.values in ("inf", "nan"):
            rng = random.Random(f"values {case.seed}")
            views = [x for x in (*self.a_arena.views, *self.b_arena.views) if x.numel()]
            for view in rng.sample(views, min(3, len(views))):
                place = tuple(rng.randrange(n) for n in view.shape)
                view[place] = rng.choice((torch.inf, -torch.inf)) if case.values == "inf" else torch.nan

        if case.values == "positive":
            for view in (*self.a_arena.views, *self.b_arena.views):
                view.copy_(view.double().abs().to(view.dtype))
        if case.values in ("inf_odd", "nan_odd"):
            for group in range(1, case.groups, 2):
                for part in self.group_inputs(group):
                    part.fill_(torch.inf if case.values == "inf_odd" else torch.nan)

    def place(self, group: int) -> tuple[slice, slice, slice]:
        """Rows, columns and K of a packed group."""
        ragged = self.case.ragged
        cut = slice(None) if ragged == "none" else slice(self.host_ends[group], self.host_ends[group + 1])
        return tuple(cut if ragged == letter else slice(None) for letter in "mnk")

    def group_inputs(self, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A and B of a packed group."""
        rows, cols, inner = self.place(group)
        of_a, of_b = ((group,) if self.case.has_groups(letter) else () for letter in "ab")
        return self.a[0][(*of_a, rows, inner)], self.b[0][(*of_b, inner, cols)]

    def make_ends(self) -> None:
        """Group ends on the device (with a leading 0 for the jagged entry), and on the host for the reference."""
        self.ends = None
        if not self.case.packed or self.case.ragged == "none":
            return
        self.host_ends = [0]
        for size in self.sizes:
            self.host_ends.append(self.host_ends[-1] + size["mnk".index(self.case.ragged)])
        values = self.host_ends if self.case.entry == "grouped_gemm_jagged" else self.host_ends[1:]
        dtype = torch.int64 if self.case.wide else torch.int32
        self.ends = torch.tensor(values, dtype=dtype, device=self.device)

    def tell(self, table: list[int]) -> None:
        """Other ends, which may lie. To the reference they are what the contract makes of them: each is clamped to [the
        end before it, the size of what is cut]."""
        lead = [3] if len(self.ends) == len(table) + 1 else []  # not read, since group 0 begins at 0
        self.ends.copy_(torch.tensor(lead + table, dtype=self.ends.dtype))
        size = {"m": self.a[0].shape[-2], "n": self.b[0].shape[-1], "k": self.a[0].shape[-1]}[self.case.ragged]
        self.host_ends = [0]
        for end in table:
            self.host_ends.append(min(max(end, self.host_ends[-1]), size))

    @functools.cached_property
    def tables(self) -> dict:
        """Device tables of pointers, sizes and leading dimensions, as int64. Made once: graphs hold their addresses."""

        def table(values) -> torch.Tensor:
            return torch.tensor(list(values), dtype=torch.int64, device=self.device)

        found = {}
        for index, letter in enumerate("mnk"):
            found[letter] = table(size[index] for size in self.sizes)
        for letter, views in (("a", self.a_arena.views), ("b", self.b_arena.views), ("d", self.d), ("c", self.c)):
            if views is not None:
                found[letter] = table(view.data_ptr() for view in views)
                found[f"ld{letter}"] = table(view.stride(0) for view in views)
        if self.bias is not None:
            found["bias"] = table(view.data_ptr() for view in self.bias)
        return found
