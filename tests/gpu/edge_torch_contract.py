"""Named checks of libgemm.torch beside torch's own rules for operators and for grouped_mm. Values against float64.

Every operator keeps what torch asks of operators; gradients are those of differences; grouped_mm takes what torch's
takes: four cases, either operand by columns, cut out of larger ones, empty groups, back as well as forth.
"""

import io
import itertools

import torch

from .edge import Context
from .edge_torch import compared, operators_of


def half(ctx: Context, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device=ctx.device).to(torch.bfloat16)


def cut_out(ctx: Context, shape: tuple[int, ...], by_columns: bool, strided: bool) -> torch.Tensor:
    """A leaf of this shape, by rows or columns; where `strided` the corner of one twice as wide."""
    stored = (*shape[:-2], shape[-1], shape[-2]) if by_columns else shape
    if strided:
        whole = half(ctx, *(2 * n for n in stored[:-2]), stored[-2], 2 * stored[-1])
        made = whole[(slice(None, None, 2),) * (len(stored) - 2)][..., : stored[-1]]
    else:
        made = half(ctx, *stored)
    return (made.mT if by_columns else made).detach().requires_grad_()


def group_by_group(a: torch.Tensor, b: torch.Tensor, ends: list[int] | None) -> torch.Tensor:
    """grouped_mm by torch's matmul."""
    if ends is None:
        return a @ b
    cuts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    if a.dim() == b.dim():
        return torch.stack([a[:, cut] @ b[cut] for cut in cuts])
    if a.dim() == 2:
        return torch.cat([a[cut] @ b[g] for g, cut in enumerate(cuts)])
    return torch.cat([a[g] @ b[:, cut] for g, cut in enumerate(cuts)], dim=1)


def grouped_contract(ctx: Context):
    """torch.nn.functional.grouped_mm's cases, in and out of gradients."""
    ours = operators_of(ctx)
    m, n, k, groups = 16, 32, 16, 4
    ways = list(itertools.product((False, True), repeat=3))
    for ends, (strided, *by_columns) in itertools.product(([1, 2, 3, 4], [0, 2, 2, 4], [4, 4, 4, 4]), ways):
        cases = {
            "K": ((m, 4 * k), (4 * k, n), [end * k for end in ends]),
            "rows": ((4 * m, k), (groups, k, n), [end * m for end in ends]),
            "columns": ((groups, m, k), (k, 4 * n), [end * n for end in ends]),
            "none": ((groups, m, k), (groups, k, n), None),
        }
        for name, (left, right, cuts) in cases.items():
            if cuts is None and ends != [1, 2, 3, 4]:
                continue
            a, b = cut_out(ctx, left, by_columns[0], strided), cut_out(ctx, right, by_columns[1], strided)
            offs = None if cuts is None else torch.tensor(cuts, dtype=torch.int32, device=ctx.device)
            yield compared(
                f"{name} ends {cuts} by columns {by_columns} strided {strided}",
                lambda a, b, offs=offs: ours.grouped_mm(a, b, offs=offs),
                lambda a, b, cuts=cuts: group_by_group(a, b, cuts), [a, b], 8e-3,
            )  # fmt: skip


def any_strides(ctx: Context):
    """Operands that libgemm cannot address, as torch's own products take them: expanded, of every second element."""
    ours = operators_of(ctx)
    x, w = half(ctx, 24, 16).requires_grad_(), half(ctx, 16, 40).requires_grad_()
    offs = torch.tensor([8, 8, 24], dtype=torch.int32, device=ctx.device)
    groups = half(ctx, 3, 16, 40).requires_grad_()
    calls = {
        "mm": (ours.mm, torch.mm, (x, w)),
        "grouped_mm": (
            lambda a, b: ours.grouped_mm(a, b, offs=offs),
            lambda a, b: group_by_group(a, b, [8, 8, 24]),
            (x, groups),
        ),
    }
    for name, (call, plain, given) in calls.items():
        pairs = (torch.autograd.grad(f(*given).sum(), given) for f in (call, plain))  # the sum's gradient is expanded
        for got, want in zip(*pairs, strict=True):
            error = float((got.float() - want.float()).norm() / want.float().norm())
            yield [] if error < 1e-2 else [f"{name}: the gradient of a sum is off by {error:.1e}"]
        for a in (half(ctx, 1, 16).expand(24, 16), half(ctx, 24, 1).expand(24, 16), half(ctx, 48, 32)[::2, ::2]):
            with torch.no_grad():
                got, want = call(a, given[1]), plain(a, given[1])
            error = float((got.float() - want.float()).norm() / want.float().norm())
            yield [] if error < 1e-2 else [f"{name} of strides {a.stride()} is off by {error:.1e}"]


NO_SCHEMA = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def is_tensor(x) -> bool:
    return isinstance(x, torch.Tensor)


def operators_promises(ctx: Context):
    """torch.library.opcheck of every operator: schema, meta kernel, gradients, tracing with sizes that vary."""
    operators_of(ctx)
    from libgemm.frameworks.torch import layer_kernels, layer_operators, operators, scaled

    def asked(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [x.requires_grad_() if x.is_floating_point() else x for x in tensors]

    offs = torch.tensor([8, 8, 24], dtype=torch.int32, device=ctx.device)
    calls = [
        (operators.gemm, asked(half(ctx, 24, 16), half(ctx, 16, 40), half(ctx, 24, 40), half(ctx, 40))),
        (operators.gemm, asked(half(ctx, 3, 24, 16), half(ctx, 3, 16, 40))),
        (operators.grouped_mm, asked(half(ctx, 24, 16), half(ctx, 3, 16, 40), offs, half(ctx, 3, 40))),
        (operators.grouped_mm, asked(half(ctx, 3, 16, 40), half(ctx, 40, 24), offs)),
        (operators.grouped_mm, asked(half(ctx, 16, 24), half(ctx, 24, 40), offs)),
    ]
    ids = torch.tensor([[0, 2], [1, 0], [2, 1], [2, 0]], device=ctx.device)
    calls.append((operators.moe_route, [ids, 3]))
    if ctx.cuda:
        x, w_in, w_out, grad = half(ctx, 4, 16), half(ctx, 3, 64, 16).mT, half(ctx, 3, 32, 24), half(ctx, 4, 24)
        given = [x, w_in, w_out, ids, torch.rand(4, 2, device=ctx.device), half(ctx, 3, 64), half(ctx, 3, 24)]
        words = ("silu", "halves", 1.702, 0.0)
        kept = [y.detach() for y in layer_kernels.forward(*given, *words)[1:]]
        calls.append((layer_operators.moe, [*given, *words]))
        back = [grad, *given[:5], given[6], *kept, *words, [True, False, True, True, False, True]]
        calls.append((layer_operators.moe_backward, back))
        calls.append((layer_operators.moe_forward, [*asked(*(y.clone() for y in given)), *words]))
        wide = [torch.randn(shape, device=ctx.device).to(torch.float8_e4m3fn) for shape in ((32, 64), (48, 64))]
        scales = [torch.rand(shape, device=ctx.device) for shape in ((32, 1), (1, 48))]
        calls.append((scaled.operator, [wide[0], wide[1].t(), *scales, "row"]))
    for operator, given in calls:
        # What tests a schema multiplies tensors, which torch does not do with 8-bit ones.
        words = {"test_utils": NO_SCHEMA} if any(x.dtype == torch.float8_e4m3fn for x in given if is_tensor(x)) else {}
        try:
            torch.library.opcheck(operator, tuple(given), **words)
            yield []
        except Exception as error:
            yield [f"{operator}: {str(error)[:1500]}"]


def gradients_of_differences(ctx: Context):
    """torch.autograd.gradcheck in float32, multiplied in full: linear functions at large steps, a layer at small."""
    ours = operators_of(ctx)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=ctx.device).requires_grad_()

    offs = torch.tensor([3, 3, 7], dtype=torch.int32, device=ctx.device)
    ids = torch.tensor([[0, 2], [1, 0], [2, 1]], device=ctx.device)
    gemm_of = (leaf(5, 7), leaf(7, 6), leaf(5, 6), leaf(6))
    layer_of = (leaf(3, 4), leaf(3, 4, 10), leaf(3, 5, 6), leaf(3, 2))
    checks = {
        "gemm": (lambda a, b, c, bias: ours.gemm(a, b, c, bias=bias, beta=0.5), gemm_of, 0.5),
        "grouped_mm": (lambda a, b: ours.grouped_mm(a, b, offs=offs), (leaf(7, 4), leaf(3, 4, 6)), 0.5),
        "moe": (lambda x, w, v, share: ours.moe(x, w, v, ids, share), layer_of, 1e-2),
    }
    for name, (call, given, step) in checks.items():
        right = torch.autograd.gradcheck(
            call,
            given,
            eps=step,
            atol=2e-2,
            rtol=2e-2,
            raise_exception=False,
            nondet_tol=1e-6,
            check_undefined_grad=False,
        )
        yield [] if right else [f"{name}: its gradients are not those of differences"]


class Block(torch.nn.Module):
    """A router and its experts."""

    def __init__(self, ours, ctx: Context):
        super().__init__()
        words = {"device": ctx.device, "dtype": torch.bfloat16}
        self.router, self.experts = ours.Linear(64, 6, **words), ours.Experts(6, 64, 48, **words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, ids = self.router(x).softmax(-1, dtype=torch.float32).topk(2)
        return self.experts(x, ids, weights)


def compiled_and_exported(ctx: Context):
    """A block with experts traced whole, with and without gradients; exported, saved and loaded again. What inductor
    makes of it is bench/measure/compiled.py's: this suite runs without Triton."""
    if not ctx.cuda:
        return
    ours = operators_of(ctx)
    block = Block(ours, ctx)
    x = half(ctx, 40, 64).requires_grad_()
    leaves = [x, *block.parameters()]
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    wanted, made = block(x), compiled(x)
    yield [] if torch.equal(made, wanted) else ["a compiled block gives other numbers"]
    grad = half(ctx, 40, 64)
    pairs = zip(*(torch.autograd.grad(y, leaves, grad) for y in (made, wanted)), strict=True)
    yield [] if all(torch.equal(*pair) for pair in pairs) else ["a compiled block gives other gradients"]
    with torch.no_grad():
        wanted = block(x)
        memory = io.BytesIO()
        torch.export.save(torch.export.export(block, (x.detach(),)), memory)
        memory.seek(0)
        loaded = torch.export.load(memory).module()
        yield [] if torch.equal(loaded(x.detach()), wanted) else ["an exported block gives other numbers"]


ANYWHERE = (grouped_contract, any_strides, operators_promises, gradients_of_differences)  # not on a GPU alone
