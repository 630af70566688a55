"""The library's Python interface computed by torch, to rehearse the suite without the library. Not libgemm, not fast.

`StandIn(break_it=...)` makes one deliberate fault, so that a test can prove that the suite notices it.
"""

from functools import cached_property
from types import SimpleNamespace

import torch

from .cases import BLOCK_SCALINGS, ENTRIES, types_of
from .reference import DTYPES, EIGHT_BITS
from .standin_cast import FAULTS as CAST_FAULTS
from .standin_cast import Casts
from .standin_contract import Error, check, require
from .standin_memory import neighbour, poke, view, write_past
from .standin_moe import FAULTS as MOE_FAULTS
from .standin_moe import Layers

FAULTS = (
    "drop last column", "write one past", "write before", "write gap", "change input", "read C at beta 0",
    "read A at alpha 0", "read past A", "read before B", "ignore alpha", "ignore beta", "drop bias",
    "bias of group 0", "wrong activation", "relu drops NaN", "swap groups", "skip partial tile", "skip K tail",
    "write pad row", "16-bit sums", "tf32 for ieee", "Inf to NaN", "skip K = 0", "int32 ends", "new out",
    "accept anything", "vary", "trust ends", "skip empty K", "keep tail", "K of the next group",
    "e5m2 for e4m3", "ignore D's scale", "ignore magnitudes", "sign of magnitudes", "set magnitudes",
    "too large to NaN", "ignore scales", "scales of row 0", "scales of K 0", *MOE_FAULTS, *CAST_FAULTS,
)  # fmt: skip

# Of rows that see packed groups as one matrix, with a layout that such a row takes (trans_a, trans_b).
GROUP_GUARDS = {
    "_descriptor_linear_rows": (0, 1),
    "_descriptor_equal_linear": (1, 0),
    "_cluster_descriptor_equal": (1, 0),
}


def tf32(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isfinite(), (x.view(torch.int32) & ~0x1FFF).view(torch.float32), x)


class StandIn(Layers, Casts):
    Error = Error

    def __init__(self, break_it: str | None = None):
        require(break_it is None or break_it in FAULTS, f"no such fault: {break_it}")
        self.fault = break_it
        self.runs = 0

    def info(self) -> dict:
        return {"build_id": "stand-in", "version": "0.0.0"}

    def preload(self, device=None) -> None:
        pass

    def variants(self) -> list:
        return list(self.all_variants)

    @cached_property
    def all_variants(self) -> list:
        """Made once: each call is checked against them."""
        found = []
        for op in sorted(set(ENTRIES.values())):
            for i, (a, d, precision) in enumerate(types_of(op)):
                fields = {"op": op, "target": 0, "a_type": a, "d_type": d, "precision": precision}
                fast = GROUP_GUARDS if (op, a, d) == ("grouped_mm", "bf16", "bf16") else {}  # one type: they take long
                for guard in ("", "_align16_linear", *fast):
                    trans_a, trans_b = fast.get(guard, (i % 2, i // 2 % 2))
                    layout = {
                        "trans_a": trans_a,
                        "trans_b": trans_b,
                        "align16": int(guard != ""),
                        "linear": int("linear" in guard),
                        "single": int("descriptor" in guard),
                        "block_m": 64,
                    }
                    found.append(SimpleNamespace(name=f"{op}_{a}_{d}_{precision}{guard}", **fields, **layout))
        return found + self.expert_variants()

    def check(self, *arguments) -> None:
        if self.fault != "accept anything":
            check(*arguments, variants=self.variants())

    def output(self, like, shape, out, out_dtype, also=()) -> torch.Tensor:
        own = torch.bfloat16 if like.dtype in EIGHT_BITS else like.dtype
        wanted = DTYPES.get(out_dtype, out_dtype) or (own if out is None else out.dtype)
        allowed = (own, torch.float32, *((torch.float16, *also) if own != like.dtype else ()))
        require(wanted in allowed, f"out dtype {wanted} for {like.dtype}")
        if out is None or self.fault == "new out":
            return torch.full(shape, torch.nan, dtype=wanted, device=like.device)
        require(out.dtype == wanted and tuple(out.shape) == tuple(shape), f"out is {tuple(out.shape)}, not {shape}")
        require(out.stride(-1) == 1 or out.numel() < 2 or out.shape[-1] == 1, "out: rows are not contiguous")
        return out

    def multiply(self, a, b, precision) -> torch.Tensor:
        if self.fault == "skip K tail":
            a, b = a[..., : a.shape[-1] // 16 * 16], b[..., : b.shape[-2] // 16 * 16, :]
        if self.fault == "Inf to NaN":
            a = torch.where(a.isinf(), torch.nan, a)
        kind = a.dtype
        if self.fault == "e5m2 for e4m3" and kind != b.dtype:
            a, b = a.view(b.dtype), b.view(kind)
        a, b = a.float(), b.float()
        if precision == "tf32" or (precision == "ieee" and self.fault == "tf32 for ieee"):
            a, b = tf32(a), tf32(b)
        if self.fault == "vary":
            self.runs += 1
            order = torch.arange(a.shape[-1], device=a.device).roll(self.runs * 7)
            a, b = a[..., order], b[..., order, :]
        x = torch.matmul(a, b)
        return x.to(torch.bfloat16 if kind in EIGHT_BITS else kind).float() if self.fault == "16-bit sums" else x

    def by_blocks(self, a, b, precision, scaling, a_scale, b_scale):
        """The product, each 128 of K times its scales: of a row or column, or of 128."""
        rows, cols = (int(side.split("x")[0]) for side in scaling.split("_"))
        of_a = a_scale.repeat_interleave(rows, -2)[..., : a.shape[-2], :]
        of_b = b_scale.repeat_interleave(cols, -1)[..., : b.shape[-1]]
        if self.fault == "scales of row 0":
            of_a = of_a[..., :1, :]
        total = torch.zeros((), device=a.device)
        for k in range(0, a.shape[-1], 128):
            i = 0 if self.fault == "scales of K 0" else k // 128
            factor = 1.0 if self.fault == "ignore scales" else of_a[..., i, None] * of_b[..., i, None, :]
            total = total + self.multiply(a[..., k : k + 128], b[..., k : k + 128, :], precision) * factor
        return total

    def scaled(self, x, scaling, a_scale, b_scale):
        """The product of operands times their scales: numbers, or of each row and column."""
        if scaling == "tensor":
            return x * (a_scale * b_scale).reshape(()) if self.fault != "ignore scales" else x
        batch = a_scale.shape[:-1] if x.dim() == 3 and a_scale.shape[0] == len(x) and a_scale.dim() == 2 else ()
        rows, cols = a_scale.reshape(*batch, x.shape[-2], 1), b_scale.reshape(*batch, 1, x.shape[-1])
        if self.fault == "scales of row 0":
            rows = rows[..., :1, :]
        return x * rows * (1.0 if self.fault == "ignore scales" else cols)

    def tile(self, a, b, c, bias, d, alpha, beta, activation, precision, scales=None) -> None:
        """One product into d, in place."""
        fault = self.fault
        if 0 in d.shape or (a.shape[-1] == 0 and fault == "skip K = 0"):
            return
        x = torch.zeros(d.shape, dtype=torch.float32, device=d.device)
        if (alpha != 0 and a.shape[-1]) or fault == "read A at alpha 0":
            if scales and scales[0] in BLOCK_SCALINGS:
                product = self.by_blocks(a, b, precision, *scales)
            else:
                product = self.multiply(a, b, precision)
                product = self.scaled(product, *scales) if scales else product
            x = x + (1.0 if fault == "ignore alpha" else alpha) * product
        for name, operand, end in (("read past A", a, True), ("read before B", b, False)):
            if fault == name and alpha != 0:
                x = x + 0 * neighbour(operand, end)
        if c is not None and (beta != 0 or fault == "read C at beta 0"):
            x = x + (1.0 if fault == "ignore beta" else beta) * c.float()
        if bias is not None and fault != "drop bias":
            x = x + bias.float().unsqueeze(-2)
        d.copy_(self.activate(x, activation)) if fault is None else self.store(self.activate(x, activation), d)
        if fault == "change input" and a.numel():
            a[(-1,) * a.dim()] *= 0.5

    def activate(self, x, activation):
        if activation == "relu":
            return torch.where(x.isnan(), 0.0, x).relu() if self.fault == "relu drops NaN" else x.relu()
        if activation == "gelu":
            if self.fault == "wrong activation":
                return torch.nn.functional.gelu(x, approximate="tanh")
            return x * (0.5 * torch.erfc(x * -(0.5**0.5)))  # torch's CPU gelu makes NaN of Inf
        return x / (1 + torch.exp(-x)) if activation == "silu" else x

    def store(self, x, d) -> None:
        fault = self.fault
        if fault == "drop last column":
            d[..., :-1].copy_(x[..., :-1])
        elif fault == "skip partial tile":
            rows = d.shape[-2] // 64 * 64
            d[..., :rows, :].copy_(x[..., :rows, :])
        else:
            d.copy_(x)
        if fault == "write one past":
            write_past(d)
        elif fault == "write before":
            poke(d, d.storage_offset() - 1)
        elif fault == "write gap" and d.shape[-2] > 1 and d.stride(-2) > d.shape[-1]:
            poke(d, d.storage_offset() + d.shape[-1])

    def gemm(self, a, b, c=None, *, alpha=1.0, beta=0.0, bias=None, activation=None, precision=None, out=None,
             out_dtype=None, variant=None, stream=None, scaling=None, a_scale=None, b_scale=None,
             d_scale=None, d_amax=None):  # fmt: skip
        self.check(a, b, c, beta, bias, activation, precision, out, variant)
        lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        d = self.output(a, (*lead, a.shape[-2], b.shape[-1]), out, out_dtype, also=EIGHT_BITS[:1])
        if d.dtype == EIGHT_BITS[0]:
            require(beta == 0, f"beta = {beta} with an 8-bit D")
            wide = self.gemm(a, b, alpha=alpha, bias=None if bias is None else bias.float(), activation=activation,
                             precision=precision, out_dtype=torch.float32, scaling=scaling, a_scale=a_scale,
                             b_scale=b_scale)  # fmt: skip
            self.store(self.rounded(wide, d_scale), d)
            if d_amax is not None and d_amax.numel() and self.fault != "ignore magnitudes":
                sizes = wide if self.fault == "sign of magnitudes" else wide.abs()
                most = torch.where(wide.isfinite(), sizes, 0.0).amax(-1) if d.numel() else torch.zeros_like(d_amax)
                d_amax.copy_(most if self.fault == "set magnitudes" else torch.maximum(d_amax, most))
            return d
        require(all(x is None or x.dtype == d.dtype for x in (c, bias)), f"c and bias must be {d.dtype}, like D")
        c = d if c is None else c
        scales = (scaling, a_scale, b_scale) if scaling else None
        require(scales is None or a.dtype in EIGHT_BITS, f"scaling = {scaling} with {a.dtype}")
        self.tile(a, b, c, bias, d, alpha, beta, activation, precision, scales)
        return d

    def rounded(self, x, d_scale) -> torch.Tensor:
        """Float32 as the numbers of an 8-bit D that they become."""
        is_number = x.isfinite()
        x = x if d_scale is None or self.fault == "ignore D's scale" else x * (1.0 / d_scale)
        if self.fault == "too large to NaN":
            is_number = is_number & (x.abs() <= 448.0)
        return torch.where(is_number, x.clamp(-448.0, 448.0), torch.nan)

    def grouped_gemm(self, a, b, c=None, *, out=None, bias=None, out_dtype=None, **words):
        require(len(a) == len(b), f"{len(a)} matrices a, {len(b)} matrices b")
        none = [None] * len(a)
        order = list(range(len(a)))
        if self.fault == "swap groups":
            order = [order.index(next((j for j in order if b[j].shape == b[i].shape and j != i), i)) for i in order]
        rows = zip(a, order, c or none, out or none, bias or none, strict=True)
        first = self.fault == "bias of group 0"
        found = []
        for x, i, z, d, v in rows:
            v = bias[0] if first and bias and bias[0].shape == v.shape else v
            found.append(self.gemm(x, b[i], z, bias=v, out=d, out_dtype=out_dtype, **words))
        return found

    def grouped_gemm_tables(self, *, a, b, d, m, n, k, lda, ldb, ldd, dtype, out_dtype=None, trans_a=False,
                            trans_b=False, c=None, ldc=None, bias=None, aligned=False, expected=None,
                            **words):  # fmt: skip
        require(expected is None or len(expected) == 3, f"expected = {expected}")
        dtype, out_dtype = DTYPES.get(dtype, dtype), DTYPES.get(out_dtype, out_dtype) or DTYPES.get(dtype, dtype)
        for name, x in (("a", a), ("b", b), ("d", d), ("m", m), ("n", n), ("k", k)):
            require(x.dtype == torch.int64, f"table {name} is {x.dtype}: allowed is int64")
        sizes = list(zip(m.tolist(), n.tolist(), k.tolist(), strict=True))
        some = (m > 0) & (n > 0)
        read = some & (k > 0)
        steps = [*(x[read] for x in (k, lda, ldb)), n[some], ldd[some]]
        kept = all((x % 8 == 0).all() for x in steps) and all((x % 16 == 0).all() for x in (a[read], b[read], d[some]))
        require(kept or not aligned, "aligned = True: the word is not kept")

        def load(pointers, lds, shapes, kind, flipped=False):
            rows = zip(pointers.tolist(), lds.tolist(), shapes, strict=True)
            stored = [view(p, ld, s[::-1] if flipped else s, kind, m.device) for p, ld, s in rows]
            return [x.mT if flipped else x for x in stored]

        out_shapes = [(m, n) for m, n, _ in sizes]
        lists = {"out": load(d, ldd, out_shapes, out_dtype)}
        if c is not None:
            lists["c"] = load(c, ldc, out_shapes, out_dtype)
        if bias is not None:
            lists["bias"] = [x[0] for x in load(bias, n, [(1, size[1]) for size in sizes], out_dtype)]
        a = load(a, lda, [(m, k) for m, _, k in sizes], dtype, trans_a)
        b = load(b, ldb, [(k, n) for _, n, k in sizes], dtype, trans_b)
        self.grouped_gemm(a, b, **lists, **words)

    def own_scales(self, scaling, a_scale, b_scale, group, ragged, groups, place, shape):
        """A packed group's, as `tile` takes them: of an operand that has some for each group its own, else its rows, or
        columns, of those of all. These may stand one below the other: (2, 1) is not two groups' of two rows."""
        found = []
        for axis, (x, letter) in enumerate(((a_scale, "m"), (b_scale, "n"))):
            blocks = scaling in BLOCK_SCALINGS
            many = ragged != letter and x.dim() == (3 if blocks else 2) and len(x) == groups
            if scaling == "row":
                many = many and x.shape[1] == shape[axis]
            if scaling == "tensor":
                many = ragged != letter and x.dim() == 1 and len(x) == groups
            found.append(x[group] if many else x)
            if scaling == "row":
                found[axis] = found[axis].flatten()[place[letter]]
            if blocks:  # of each row or column
                side = int(scaling.split("_")[axis].split("x")[0])
                spread = found[axis].repeat_interleave(side, axis - 2)
                found[axis] = spread[place[letter]] if axis == 0 else spread[:, place[letter]]
        return ("1x128_1x128" if scaling in BLOCK_SCALINGS else scaling, *found)

    def grouped_mm(self, a, b, offs=None, *, c=None, bias=None, out=None, out_dtype=None, tail="leave", scaling=None,
                   a_scale=None, b_scale=None, **words):  # fmt: skip
        require(a.dim() in (2, 3) and b.dim() in (2, 3), f"a is {a.dim()}-D, b is {b.dim()}-D")
        ragged = {(2, 3): "m", (3, 2): "n", (2, 2): "k", (3, 3): "none"}[a.dim(), b.dim()]
        require((offs is None) == (ragged == "none"), f"ends with {a.dim()}-D a and {b.dim()}-D b")
        require(tail in ("leave", "zero"), f"tail = {tail!r}")
        groups = len(a) if offs is None else len(offs)
        require(all(x.dim() == 2 or len(x) == groups for x in (a, b)), f"{groups} groups, b is {tuple(b.shape)}")
        if offs is not None:
            require(offs.dim() == 1 and offs.dtype in (torch.int32, torch.int64), f"ends: {offs.dtype}, {offs.dim()}-D")
            require(a.device == offs.device, f"ends are on {offs.device}")
        fixed = {"alpha": 1.0, "beta": 0.0, "activation": None, "precision": None, "variant": None} | words
        fixed.pop("stream", None)
        self.check(a, b, c, fixed["beta"], bias, fixed["activation"], fixed["precision"], out, fixed["variant"])
        shape = (a.shape[-2], b.shape[-1])
        d = self.output(a, shape if ragged in "mn" else (groups, *shape), out, out_dtype)
        del fixed["variant"]
        size = {"m": shape[0], "n": shape[1], "k": a.shape[-1], "none": 0}[ragged]
        for group, (start, end) in enumerate(self.cuts(offs, groups, size)):
            if self.fault == "trust ends" and ragged != "none" and end == size:
                write_past(d)
            if self.fault == "skip empty K" and ragged == "k" and start == end:
                continue
            other = groups - 1 - group if self.fault == "swap groups" else group
            place = {letter: slice(start, end) if ragged == letter else slice(None) for letter in "mnk"}
            v = bias if bias is None or bias.dim() == 1 else bias[0 if self.fault == "bias of group 0" else group]
            one = [
                x if x is None or x.dim() == 2 else x[i] for x, i in ((a, group), (b, other), (c, group), (d, group))
            ]
            rows, cols = place["m"], place["n"]
            old, into = (x[rows, cols] for x in (one[3] if c is None else one[2], one[3]))
            left, right = one[0][rows, place["k"]], one[1][place["k"], cols]
            if self.fault == "K of the next group" and ragged == "k" and end < size:
                left = left + 0 * one[0][:, end : end + 1]
            scales = scaling and self.own_scales(scaling, a_scale, b_scale, group, ragged, groups, place, shape)
            self.tile(left, right, old, v if v is None else v[cols], into, **fixed, scales=scales)
        if ragged in "mn":
            self.finish(d if ragged == "m" else d.mT, end if groups else 0, tail)
        return d

    def cuts(self, offs, groups: int, size: int):
        """(start, end) of each group as the kernel clamps them."""
        ends = [0] * groups
        if offs is not None:
            ends = (offs.view(torch.int32)[:groups] if self.fault == "int32 ends" else offs).tolist()
        start = 0
        for end in ends:
            end = min(max(end, start), size)
            yield start, end
            start = end

    def finish(self, d, end: int, tail: str) -> None:
        """What is past the last end."""
        if self.fault == "write pad row" and end < len(d):
            d[end].zero_()
        if tail == "zero" and self.fault != "keep tail":
            d[end:].zero_()

    def grouped_gemm_jagged(self, a, b, group_offsets, **words):
        return self.gemm(a, b, **words) if b.dim() == 2 else self.grouped_mm(a, b, group_offsets[1:], **words)
