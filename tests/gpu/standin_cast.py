"""Casts to 8 bits computed by torch, block by block: the stand-in's part for edge_cast.py. Not libgemm, not fast."""

import itertools

import torch

from .reference import DTYPES
from .standin_moe import FUNCTIONS

FAULTS = (
    "Inf counts for a scale", "scale of the next block", "transposed scales of rows", "no power of two",
    "rows cast in order", "scales of the other weights", "other rows between the products", "every cast to e4m3",
    "weights of the call before", "one token's experts in their order",
)  # fmt: skip


class Casts:
    """What StandIn has of casting; `fault` is its own."""

    fault: str | None

    def cast_block(self, block, to, scale, power_of_two):
        """(values, scale) of what shares one."""
        largest = torch.finfo(to).max
        if scale is None:
            counted = block if self.fault == "Inf counts for a scale" else block[block.isfinite()]
            most = counted.abs().nan_to_num(0.0, posinf=3e38).max() if counted.numel() else block.new_zeros(())
            scale = (most / largest).clamp(min=2.0**-126) if most > 0 else torch.ones_like(most)
            if power_of_two and self.fault != "no power of two":
                scale = 2.0 ** torch.log2(scale.double()).ceil()
            scale = scale.float()
        values = torch.where(block.isfinite(), (block * (1 / scale)).clamp(-largest, largest), torch.nan)
        return values.to(to), scale

    def cast_matrix(self, x, granularity, to, scale, power_of_two):
        m, n = x.shape
        down, across = {"tensor": (m, n), "row": (1, n), "1x128": (1, 128), "128x128": (128, 128)}[granularity]
        values = torch.zeros(x.shape, dtype=to, device=x.device)
        scales = x.new_zeros(-(-m // down), -(-n // across))
        for i, j in itertools.product(range(scales.shape[0]), range(scales.shape[1])):
            place = slice(i * down, (i + 1) * down), slice(j * across, (j + 1) * across)
            values[place], scales[i, j] = self.cast_block(x[place], to, scale, power_of_two)
        return values, scales.roll(1, 1) if self.fault == "scale of the next block" else scales

    def cast_all(self, x, granularity, dtype, scale, power_of_two, to_values, to_scale):
        to = DTYPES["e4m3" if self.fault == "every cast to e4m3" else dtype]
        wide = x.float().reshape(-1, *x.shape[-2:])
        given = [None] * len(wide) if scale is None else scale.reshape(-1)
        made = [self.cast_matrix(one, granularity, to, own, power_of_two) for one, own in zip(wide, given, strict=True)]
        values, scales = (
            torch.stack([pair[i].view(torch.int8) if i == 0 else pair[i] for pair in made]) for i in (0, 1)
        )
        lead = x.shape[:-2]
        values = values.view(to).reshape(x.shape)
        scales = scales.reshape(lead if granularity == "tensor" else (*lead, *scales.shape[1:]))
        if to_values is not None:
            values = to_values.copy_(values)
        if scale is not None:
            return values, scale
        return values, scales if to_scale is None else to_scale.copy_(scales)

    def cast(self, x, granularity, *, dtype="e4m3", scale=None, power_of_two=False, out=None, stream=None):
        return self.cast_all(x, granularity, dtype, scale, power_of_two, *(out or (None, None)))

    def cast_transpose(
        self, x, granularity, *, dtype="e4m3", scale=None, power_of_two=False, out=None, stream=None
    ):  # fmt: skip
        to_values, to_scale, to_values_t, to_scale_t = out or (None,) * 4
        values, own = self.cast_all(x, granularity, dtype, scale, power_of_two, to_values, to_scale)
        turned = x.mT
        values_t, scale_t = self.cast_all(turned, granularity, dtype, scale, power_of_two, to_values_t, to_scale_t)
        if granularity in ("row", "1x128"):
            if self.fault == "transposed scales of rows":
                scale_t.mul_(2)
            return values, own, values_t, scale_t
        return values, own, values_t, own if granularity == "tensor" else own.mT

    def moe_cast(self, a, *, rows=None, activation=None, gate=None, gate_alpha=1.702, gate_limit=0.0, stream=None):
        wide = a.double()
        if rows is not None:
            there = (rows >= 0) & (rows < len(a))
            index = torch.arange(len(rows), device=a.device) if self.fault == "rows cast in order" else rows.long()
            wide = torch.where(there[:, None], wide[index.clamp(0, len(a) - 1)], 0.0)
        made = self.gated(wide, gate, activation, gate_alpha, gate_limit) if gate else FUNCTIONS[activation](wide)
        return self.cast(made.float(), "1x128")

    def held(self, values, scale, down):
        """What 8 bits and their scales stand for."""
        m, n = values.shape
        return values.float() * scale.repeat_interleave(down, 0)[:m].repeat_interleave(128, 1)[:, :n]

    def scaled_moe(self, x, first, second, ids, weights, bias_in, bias_out, words):
        if self.fault == "one token's experts in their order" and len(x) == 1 and x.data_ptr() % 16 == 0:
            ids = ids.sort().values
        rows, places, offs = self.moe_route(ids, len(first[0]))
        if self.fault == "scales of the other weights":
            first = first[0], first[1].flip(0) * 2
        if self.fault == "weights of the call before":
            before, self.before = getattr(self, "before", second[0]), second[0].clone()
            second = before if before.shape == second[0].shape else second[0], second[1]
        made = x
        for number, ((w, scale), bias) in enumerate(((first, bias_in), (second, bias_out))):
            values, own = self.moe_cast(made, **({"rows": rows} if number == 0 else words))
            if self.fault == "other rows between the products" and number:
                values = values.roll(1, 0)
            made = self.grouped_mm(
                values, w, offs, scaling="1x128_128x128", a_scale=own, b_scale=scale, bias=bias, out_dtype=x.dtype
            )
        return self.moe_sum(made, places, weights)
