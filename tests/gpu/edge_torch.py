"""Named checks of libgemm.torch: values and gradients against float64, compiled, captured, cast and routed calls."""

import itertools

import torch

from .edge import Context

TYPES = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 1e-5}  # the relative error that rounding allows
SIZES = ((1, 64, 256), (96, 80, 64), (300, 136, 200))


def operators_of(ctx: Context):
    """libgemm.torch, on the CPU with torch's own products in the kernels' place."""
    import libgemm.torch

    if not ctx.cuda:
        from libgemm.frameworks.torch import operators

        from tests.support.torch_reference import reference

        for name, function in reference.items():
            getattr(operators, name).register_kernel("cpu")(function)
    return libgemm.torch


def operand(ctx: Context, *shape: int, dtype, by_columns: bool = False) -> torch.Tensor:
    stored = (*shape[:-2], shape[-1], shape[-2]) if by_columns else shape
    made = torch.randn(stored, device=ctx.device).to(dtype)
    return (made.mT if by_columns else made).detach().requires_grad_()


def far(name: str, got: torch.Tensor, exact: torch.Tensor, tolerance: float) -> list[str]:
    error = (got.double() - exact).norm() / exact.norm().clamp_min(1e-30)
    return [] if error <= tolerance else [f"{name} is off by {error:.2e} of its size, {tolerance:.0e} is allowed"]


def compared(what: str, call, exact, operands: list[torch.Tensor], tolerance: float) -> list[str]:
    """A call's values and gradients beside those of `exact`, which torch derives in float64."""
    wide = [x.detach().double().requires_grad_() for x in operands]
    made, wanted = call(*operands), exact(*wide)
    problems = far("the result", made, wanted, tolerance)
    grad = torch.randn_like(made)
    gradients = torch.autograd.grad(made, operands, grad), torch.autograd.grad(wanted, wide, grad.double())
    for i, (x, got, exact) in enumerate(zip(operands, *gradients, strict=True)):
        problems += far(f"gradient {i}", got, exact, tolerance)
        dense = x.is_contiguous() or x.mT.is_contiguous()
        alike = got.stride() == x.stride() if dense else (got.stride(-1) == 1) == (x.stride(-1) == 1)
        if not alike and 1 not in x.shape:
            problems.append(f"gradient {i} has strides {got.stride()}, its operand {x.stride()}")
    return [f"{x} [{what}]" for x in problems]


def dense_operators(ctx: Context):
    """Products of matrices and batches, each way stored, with C and a bias."""
    gemm, linear = (getattr(operators_of(ctx), name) for name in ("gemm", "linear"))
    torch.set_float32_matmul_precision("highest")
    for (dtype, tolerance), (m, n, k), ways in itertools.product(
        TYPES.items(), SIZES, itertools.product((False, True), repeat=2)
    ):
        a, b = operand(ctx, m, k, dtype=dtype, by_columns=ways[0]), operand(ctx, k, n, dtype=dtype, by_columns=ways[1])
        what = f"{dtype} {m}x{n}x{k} by columns {ways}"
        yield compared(f"mm {what}", gemm, torch.matmul, [a, b], tolerance)
        c, bias = operand(ctx, m, n, dtype=dtype), operand(ctx, n, dtype=dtype)
        yield compared(
            f"gemm {what}", lambda a, b, c, bias: gemm(a, b, c, bias=bias, alpha=0.5, beta=2.0),
            lambda a, b, c, bias: 0.5 * a @ b + 2 * c + bias, [a.detach().requires_grad_(), b.detach().requires_grad_(),
            c, bias], tolerance,
        )  # fmt: skip
        batch = [operand(ctx, 3, m, k, dtype=dtype, by_columns=ways[0]), operand(ctx, 3, k, n, dtype=dtype)]
        yield compared(f"bmm {what}", gemm, torch.matmul, batch, tolerance)
        x, weight = operand(ctx, 2, m, k, dtype=dtype), operand(ctx, n, k, dtype=dtype)
        yield compared(f"linear {what}", linear, torch.nn.functional.linear, [x, weight], tolerance)


def by_group(a: torch.Tensor, b: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """The grouped product, group by group; what is past the last end is zero."""
    cuts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    if a.dim() == b.dim():
        return torch.stack([a[:, cut] @ b[cut] for cut in cuts])
    rest = (a if a.dim() == 2 else b.mT).shape[0] - ends[-1]
    if a.dim() == 2:
        parts = [a[cut] @ b[g] for g, cut in enumerate(cuts)]
        return torch.cat([*parts, a.new_zeros(rest, b.shape[-1])])
    parts = [a[g] @ b[:, cut] for g, cut in enumerate(cuts)]
    return torch.cat([*parts, a.new_zeros(a.shape[-2], rest)], dim=1)


def grouped_operators(ctx: Context):
    """Cut rows, columns and K, with an empty group and, of rows and columns, a part past the last end."""
    from libgemm.frameworks.torch import operators

    operators_of(ctx)
    for (dtype, tolerance), ends, by_columns in itertools.product(
        TYPES.items(), ([96, 96, 200, 264], [8, 16, 24, 32]), (False, True)
    ):
        total, groups = ends[-1], len(ends)
        offs = torch.tensor(ends, dtype=torch.int32, device=ctx.device)
        cases = {
            "rows": ((total + 8, 64), (groups, 64, 80)),
            "columns": ((groups, 80, 64), (64, total + 8)),
            "K": ((64, total), (total, 80)),
        }
        for name, shapes in cases.items():
            a, b = operand(ctx, *shapes[0], dtype=dtype), operand(ctx, *shapes[1], dtype=dtype, by_columns=by_columns)
            yield compared(
                f"{name} {dtype} {ends} by columns {by_columns}",
                lambda a, b, offs=offs: operators.grouped_mm(a, b, offs, None, precision(a), None, True),
                lambda a, b, ends=ends: by_group(a, b, ends), [a, b], tolerance,
            )  # fmt: skip


def precision(x: torch.Tensor) -> str | None:
    return "ieee" if x.dtype == torch.float32 else None


class Block(torch.nn.Module):
    """Two layers with an activation between them."""

    def __init__(self, ours, ctx: Context):
        super().__init__()
        words = {"device": ctx.device, "dtype": torch.bfloat16}
        self.first, self.second = ours.Linear(64, 128, **words), ours.GroupedLinear(3, 128, 64, **words)

    def forward(self, x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        return self.second(torch.nn.functional.silu(self.first(x)), offs)


def watched_operators(ctx: Context):
    """Compiled, captured, cast and routed: the bits of the plain call."""
    ours = operators_of(ctx)
    block = Block(ours, ctx)
    x = torch.randn(96, 64, device=ctx.device, dtype=torch.bfloat16)
    offs = torch.tensor([32, 32, 96], dtype=torch.int32, device=ctx.device)
    with torch.no_grad():
        wanted = block(x, offs)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    yield [] if torch.equal(compiled(x, offs), wanted) else ["a compiled block gives other numbers"]
    weight = torch.randn(80, 64, device=ctx.device, dtype=torch.bfloat16)
    with ours.use():
        routed = torch.mm(x, weight.T)
    yield [] if torch.equal(routed, ours.mm(x, weight.T)) else ["use() gives other numbers than mm"]
    if not ctx.cuda:
        return
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.graph(graph, stream=stream):
        made = block(x, offs)
    graph.replay()
    torch.cuda.synchronize(ctx.device)
    yield [] if torch.equal(made, wanted) else ["a captured block gives other numbers"]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        cast = ours.mm(x.float(), weight.T.float())
    yield [] if cast.dtype == torch.bfloat16 and torch.equal(cast, routed) else ["autocast gives another product"]
