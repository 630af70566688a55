"""libgemm's torch operators by torch's own products, for tests on the CPU. Holds no test."""

import torch


def gemm(a, b, c=None, bias=None, alpha=1.0, beta=0.0, precision=None, out_dtype=None):
    made = alpha * (a @ b)
    if beta != 0:
        made = made + beta * c
    if bias is not None:
        made = made + (bias.unsqueeze(-2) if bias.dim() == 2 else bias)
    return made.to(out_dtype or a.dtype).contiguous()


def grouped_mm(a, b, offs=None, bias=None, precision=None, out_dtype=None, zero_tail=False):
    """Group by group; what is past the last end is zero where that is asked, else anything: NaN."""
    dtype = out_dtype or a.dtype
    last = [] if offs is None else offs.tolist()
    groups = [slice(start, end) for start, end in zip([0, *last], last, strict=False)]

    def of_group(g, product):
        return product if bias is None else product + (bias[g] if bias.dim() == 2 else bias)

    if a.dim() == b.dim() == 3:
        return torch.stack([of_group(g, a[g] @ b[g]) for g in range(a.shape[0])]).to(dtype)
    if a.dim() == b.dim() == 2:
        return torch.stack([of_group(g, a[:, cut] @ b[cut]) for g, cut in enumerate(groups)]).to(dtype)
    made = a.new_full((a.shape[-2], b.shape[-1]), 0.0 if zero_tail else float("nan"), dtype=dtype)
    for g, cut in enumerate(groups):
        if a.dim() == 2:
            made[cut] = of_group(g, a[cut] @ b[g]).to(dtype)
        else:
            made[:, cut] = of_group(g, a[g] @ b[:, cut]).to(dtype)
    return made


def scaled_mm(a, b, a_scale, b_scale, scaling, bias=None, out_dtype=None, fast=False, d_scale=None):
    a, b = a.float(), b.float()
    if scaling in ("tensor", "row"):
        made = (a @ b) * a_scale * b_scale
    else:
        rows, cols = (int(block.split("x")[0]) for block in scaling.split("_"))
        of_a = a_scale.repeat_interleave(rows, 0).repeat_interleave(128, 1)[: a.shape[0], : a.shape[1]]
        of_b = b_scale.repeat_interleave(128, 0).repeat_interleave(cols, 1)[: b.shape[0], : b.shape[1]]
        made = (a * of_a) @ (b * of_b)
    made = made if bias is None else made + bias
    made = made if d_scale is None else made / d_scale
    made = made.clamp(-448, 448) if out_dtype == torch.float8_e4m3fn else made
    return made.to(out_dtype or torch.bfloat16)


def scaled_grouped_mm(a, b, offs, a_scale, b_scale, scaling, bias=None, out_dtype=None, fast=False):
    """Of packed rows, and of a K that is cut."""
    made, start, cut_k = [], 0, a.dim() == b.dim() == 2
    for g, end in enumerate(offs.tolist()):
        rows, inner = (slice(None), slice(start, end)) if cut_k else (slice(start, end), slice(None))
        of_a = a_scale[g] if cut_k else a_scale[rows]
        own = b[inner] if cut_k else b[g]
        of_b = b_scale[g]
        if scaling == "row":
            of_a, of_b = of_a.reshape(-1, 1), of_b.reshape(1, -1)
        made.append(scaled_mm(a[rows, inner], own, of_a, of_b, scaling, bias, out_dtype))
        start = end
    return torch.stack(made) if cut_k else torch.cat(made)


def moe_route(expert_ids, groups):
    flat = expert_ids.flatten().long()
    own = (flat >= 0) & (flat < groups)
    order = torch.sort(torch.where(own, flat, groups), stable=True).indices[: int(own.sum())]
    rows, places = (torch.full_like(flat, -1, dtype=torch.int32) for _ in range(2))
    rows[: len(order)] = (order // max(expert_ids.shape[1], 1)).int()
    places[order] = torch.arange(len(order), dtype=torch.int32)
    return rows, places.view(expert_ids.shape), torch.bincount(flat[own], minlength=groups).cumsum(0).int()


reference = {"gemm": gemm, "grouped_mm": grouped_mm, "moe_route": moe_route}


def cast_matrix(x, granularity, dtype, scale, power_of_two):
    """libgemm::cast of a matrix or of a batch, with scales as they lie."""
    m, n = x.shape[-2:]
    down, across = {"tensor": (m, n), "row": (1, n), "1x128": (1, 128), "128x128": (128, 128)}[granularity]
    wide = x.float().contiguous()
    size = torch.nn.functional.pad(wide.abs(), (0, -n % across, 0, -m % down))
    most = size.unflatten(-1, (-1, across)).amax(-1).unflatten(-2, (-1, down)).amax(-2)
    largest = torch.finfo(dtype).max
    own = torch.where(most > 0, most / largest, 1.0)
    own = 2.0 ** own.log2().ceil() if power_of_two else own
    own = own if scale is None else scale.reshape(*x.shape[:-2], 1, 1)
    each = own.repeat_interleave(down, -2)[..., :m, :].repeat_interleave(across, -1)[..., :n]
    values = torch.nn.functional.pad((wide / each).clamp(-largest, largest), (0, -n % 32)).to(dtype)
    if granularity == "1x128":
        own = own.mT.contiguous().mT
    return values[..., :n] if n % 32 else values, own.reshape(x.shape[:-2]) if granularity == "tensor" else own


def cast(x, granularity, dtype, scale, power_of_two, transposed):
    values, own = cast_matrix(x, granularity, dtype, scale, power_of_two)
    made = [values] if scale is not None else [values, own]
    if transposed:
        values_t, own_t = cast_matrix(x.mT, granularity, dtype, scale, power_of_two)
        made += [values_t, own_t] if granularity in ("row", "1x128") else [values_t]
    return made
