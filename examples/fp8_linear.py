"""A linear layer that trains in fp8: its three products are libgemm's, of e4m3 operands with a scale for each row.

    python examples/fp8_linear.py [--steps 200] [--device cuda]

Weights and what goes between layers stay in the types they have. A product's operands are cast along the dimension that
it sums over, and each operand is in two products: both casts of it are made in one pass. Trains a small network on
numbers drawn at random, once with this layer and once with torch's, and prints both losses. Needs torch and libgemm.
"""

import argparse

import libgemm.torch
import torch


def product(a: tuple, b: tuple, dtype: torch.dtype) -> torch.Tensor:
    """A [M, K] times B [N, K] transposed, each 8-bit values and the scales of their rows."""
    (a8, a_scale), (b8, b_scale) = a, b
    made: torch.Tensor = libgemm.torch.scaled_mm(
        a8, b8.t(), a_scale, "RowWise", b_scale.t(), "RowWise", output_dtype=dtype
    )
    return made


class Fp8Product(torch.autograd.Function):
    """x [M, K] @ weight [N, K]^T and its gradients. What they need is kept in 8 bits, transposed: half of x's bytes."""

    @staticmethod
    def forward(ctx, x, weight):
        x8, x_scale, *x_t = libgemm.torch.cast_transpose(x, "row")
        w8, w_scale, *w_t = libgemm.torch.cast_transpose(weight, "row")
        ctx.save_for_backward(*x_t, *w_t)
        ctx.dtypes = x.dtype, weight.dtype
        return product((x8, x_scale), (w8, w_scale), x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x8_t, x_scale_t, w8_t, w_scale_t = ctx.saved_tensors
        g8, g_scale, g8_t, g_scale_t = libgemm.torch.cast_transpose(grad, "row")
        of_x = product((g8, g_scale), (w8_t, w_scale_t), ctx.dtypes[0]) if ctx.needs_input_grad[0] else None
        return of_x, product((g8_t, g_scale_t), (x8_t, x_scale_t), ctx.dtypes[1])


class Fp8Linear(torch.nn.Linear):
    """torch.nn.Linear, whose products are of 8-bit operands: x [..., in_features] in bfloat16 or float16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = Fp8Product.apply(x.reshape(-1, self.in_features), self.weight).view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias


def train(linear: type[torch.nn.Linear], steps: int, device: str, width: int = 512, rows: int = 1024) -> list[float]:
    """The losses of a perceptron that learns what another, drawn at random, makes of its input."""
    torch.manual_seed(0)
    new = {"device": device, "dtype": torch.bfloat16}
    teacher, student = (
        torch.nn.Sequential(kind(width, 2 * width, **new), torch.nn.SiLU(), kind(2 * width, width, **new))
        for kind in (torch.nn.Linear, linear)
    )
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        x = torch.randn(rows, width, **new)
        with torch.no_grad():
            wanted = teacher(x)
        loss = torch.nn.functional.mse_loss(student(x).float(), wanted.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    for name, linear in (("fp8", Fp8Linear), ("bfloat16", torch.nn.Linear)):
        losses = train(linear, options.steps, options.device)
        print(f"{name:9} begins at {losses[0]:.5f}, ends at {losses[-1]:.5f}")


if __name__ == "__main__":
    main()
