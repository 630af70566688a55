"""A linear layer that trains in fp8: its three products are libgemm's, of e4m3 operands with a scale for each row.

    python examples/fp8_linear.py [--steps 200] [--device cuda]

Weights and what goes between layers stay in the types they have; a product's operands are cast anew each time, along
the dimension that it sums over. Trains a small network on numbers drawn at random, once with this layer and once with
torch's, and prints both losses. Needs torch and libgemm.
"""

import argparse

import libgemm.torch
import torch

LARGEST = torch.finfo(torch.float8_e4m3fn).max


def cast(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x [rows, K] in e4m3, row by row, and what each row was divided by, [rows, 1]; rows of zeros by 1."""
    most = x.detach().abs().amax(1, keepdim=True).float()
    scale = torch.where(most > 0, most / LARGEST, 1.0)
    return (x.float() / scale).to(torch.float8_e4m3fn).contiguous(), scale


def product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """a [M, K] @ b [K, N], in fp8."""
    a8, a_scale = cast(a)
    b8, b_scale = cast(b.t())  # [N, K]: 8-bit operands are fastest where K is contiguous
    made: torch.Tensor = libgemm.torch.scaled_mm(
        a8, b8.t(), a_scale, "RowWise", b_scale.t(), "RowWise", output_dtype=dtype
    )
    return made


class Fp8Product(torch.autograd.Function):
    """x [M, K] @ weight [N, K]^T and its gradients."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return product(x, weight.t(), x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        of_x = product(grad, weight, x.dtype) if ctx.needs_input_grad[0] else None
        return of_x, product(grad.t(), x, weight.dtype) if ctx.needs_input_grad[1] else None


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
