"""A layer of experts and its parts computed by torch: the stand-in's part for edge_moe.py. Not libgemm, not fast."""

from types import SimpleNamespace

import torch

from .standin_memory import write_past

FAULTS = (
    "up is the gate", "halves for pairs", "rows in order", "drop weights", "write past the last end", "unstable sort",
    "add NaN of no place", "route to the next expert", "slopes without weights", "sums of every column twice",
)  # fmt: skip
FUNCTIONS = {None: lambda x: x, "relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}
SLOPES = {
    None: torch.ones_like,
    "relu": lambda x: (x > 0).to(x.dtype),
    "silu": lambda x: torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x))),
    "gelu": lambda x: 0.5 * torch.erfc(-x * 0.5**0.5) + x * torch.exp(-0.5 * x * x) * (2 * torch.pi) ** -0.5,
}


class Layers:
    """What StandIn has of layers of experts; `fault` is its own."""

    fault: str | None

    def expert_variants(self) -> list:
        guards = ("", "_gated", "_in_order", "_gated_in_order")
        layout = {
            "trans_a": 0,
            "trans_b": 1,
            "precision": "exact",
            "linear": 0,
            "single": 0,
            "block_m": 64,
            "target": 0,
        }
        return [
            SimpleNamespace(
                name=f"moe_mm_bf16{guard}", op="moe_mm", a_type="bf16", d_type="bf16", align16=int("order" in guard),
                **layout,
            )
            for guard in guards
        ]  # fmt: skip

    def gated(self, z, gate, activation, alpha, limit):
        first, second = (
            z.chunk(2, 1) if gate == "halves" or self.fault == "halves for pairs" else (z[:, ::2], z[:, 1::2])
        )
        if self.fault == "up is the gate":
            first, second = second, first
        if limit:
            first, second = first.clamp(max=limit), second.clamp(-limit, limit)
            return first * torch.sigmoid(alpha * first) * (second + 1)
        return FUNCTIONS[activation](first) * second

    def moe_mm(self, a, b, offs, *, rows=None, alpha=1.0, bias=None, activation=None, gate=None, gate_alpha=1.702,
               gate_limit=0.0, row_weights=None, to_rows=None, out=None, variant=None, stream=None):  # fmt: skip
        count = len(a) if rows is None else len(rows)
        if out is None:
            out = a.new_full((count, b.shape[2] // (2 if gate else 1)), torch.nan)
        start = 0
        for expert, given in enumerate(offs.tolist()):
            end = min(max(given, start), count)
            if self.fault == "write past the last end" and end == count:
                write_past(out)
            place = torch.arange(start, end, device=a.device)
            index = place if rows is None or self.fault == "rows in order" else rows[start:end].long()
            x = a[index.clamp(0, len(a) - 1)].float()
            z = alpha * x @ b[expert].float() + (0 if bias is None else bias[expert].float())
            z = self.gated(z, gate, activation, gate_alpha, gate_limit) if gate else FUNCTIONS[activation](z)
            if row_weights is not None and self.fault != "drop weights":
                z = z * row_weights[start:end, None]
            to = place if to_rows is None else to_rows[start:end].long()
            there = (to >= 0) & (to < len(out))
            out[to[there]] = z[there].to(out.dtype)
            start = end
        return out

    def moe_gate(self, z, *, activation="silu", gate="halves", gate_alpha=1.702, gate_limit=0.0, out=None, stream=None):
        wide = z.float()
        made = self.gated(wide, gate, activation, gate_alpha, gate_limit) if gate else FUNCTIONS[activation](wide)
        return made.to(z.dtype) if out is None else out.copy_(made)

    def slopes(self, z, grad, gate, activation, alpha, limit):
        """By formula: what computes the operators' kernels is below torch's autograd."""
        if not gate:
            return grad * SLOPES[activation](z)
        made = torch.empty_like(z)
        first, up = z.chunk(2, 1) if gate == "halves" else (z[:, ::2], z[:, 1::2])
        of_first, of_up = made.chunk(2, 1) if gate == "halves" else (made[:, ::2], made[:, 1::2])
        if limit:
            inside, bound = first.clamp(max=limit), up.clamp(-limit, limit)
            share = torch.sigmoid(alpha * inside)
            of_first[:] = grad * (first <= limit) * share * (1 + alpha * inside * (1 - share)) * (bound + 1)
            of_up[:] = grad * (up.abs() <= limit) * inside * share
        else:
            of_first[:] = grad * SLOPES[activation](first) * up
            of_up[:] = grad * FUNCTIONS[activation](first)
        return made

    def moe_gate_grad(self, z, grad, places, weights=None, *, activation="silu", gate="halves", gate_alpha=1.702,
                      gate_limit=0.0, stream=None):  # fmt: skip
        wide = z.float()
        made = self.gated(wide, gate, activation, gate_alpha, gate_limit) if gate else FUNCTIONS[activation](wide)
        slopes = self.slopes(wide, grad.float(), gate, activation, gate_alpha, gate_limit)
        there, at = (places >= 0) & (places < len(z)), places.clamp(0, max(len(z) - 1, 0)).long()
        share = torch.ones(places.shape, device=z.device) if weights is None else weights.float()
        of_row = torch.zeros(len(z), 1, device=z.device)
        of_row[at[there], 0] = share[there]
        sums = (made * grad.float()).sum(1)[at]
        sums = sums * 2 if self.fault == "sums of every column twice" else sums
        dz = slopes * (1 if self.fault == "slopes without weights" else of_row)
        return dz.to(z.dtype), (made * of_row).to(z.dtype), torch.where(there, sums, 0.0)

    def moe_route(self, expert_ids, groups, *, stream=None):
        flat = expert_ids.flatten().long()
        own = (flat >= 0) & (flat < groups)
        key = torch.where(own, flat, groups)
        order = torch.sort(-key if self.fault == "unstable sort" else key, stable=True).indices
        order = order.flip(0) if self.fault == "unstable sort" else order
        order = order[: int(own.sum())]
        rows, places = (torch.full_like(flat, -1, dtype=torch.int32) for _ in range(2))
        rows[: len(order)] = (order // max(expert_ids.shape[1], 1)).int()
        places[order] = torch.arange(len(order), device=flat.device).int()
        return rows, places.view(expert_ids.shape), torch.bincount(flat[own], minlength=groups).cumsum(0).int()

    def moe_sum(self, a, places, weights=None, *, out=None, stream=None):
        there = (places >= 0) & (places < len(a))
        x = a[places.clamp(0, len(a) - 1).long()].float()
        if self.fault != "add NaN of no place":
            x = torch.where(there[..., None], x, 0.0)
        x = x if weights is None else x * weights.float()[..., None]
        made = x.sum(1).to(a.dtype)
        return made if out is None else out.copy_(made)

    def moe(self, x, w_in, w_out, expert_ids, weights=None, *, activation="silu", gate="halves", gate_alpha=1.702,
            gate_limit=0.0, bias_in=None, bias_out=None, out=None, stream=None, scaling=None, w_in_scale=None,
            w_out_scale=None):  # fmt: skip
        if scaling is not None:
            return self.scaled_moe(x, (w_in, w_in_scale), (w_out, w_out_scale), expert_ids, weights, bias_in, bias_out,
                                   {"activation": activation, "gate": gate, "gate_alpha": gate_alpha,
                                    "gate_limit": gate_limit})  # fmt: skip
        ids = expert_ids + 1 if self.fault == "route to the next expert" else expert_ids
        rows, places, offs = self.moe_route(ids, len(w_in))
        new = {"dtype": x.dtype, "device": x.device}
        hidden, made = torch.zeros(len(rows), w_out.shape[1], **new), torch.zeros(len(rows), w_out.shape[2], **new)
        self.moe_mm(x, w_in, offs, rows=rows, bias=bias_in, activation=activation, gate=gate, gate_alpha=gate_alpha,
                    gate_limit=gate_limit, out=hidden)  # fmt: skip
        self.moe_mm(hidden, w_out, offs, bias=bias_out, out=made)
        return self.moe_sum(made, places, weights, out=out)
