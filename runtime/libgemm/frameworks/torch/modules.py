"""Layers whose products are libgemm's, with the parameters and state of torch's own. No product is written here."""

import math
from typing import Any

import torch
from torch import Tensor

from libgemm.frameworks.torch import functions


class Linear(torch.nn.Linear):
    """torch.nn.Linear: same parameters, same state dict."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.linear(x, self.weight, self.bias)


class GroupedLinear(torch.nn.Module):
    """A linear layer for each group of packed rows: rows offs[g - 1] to offs[g] of x take weight[g] [out, in].

    x [rows, in_features]; offs int32 or int64 [groups], on the device. Returns [rows, out_features]; rows past the last
    end are not computed.
    """

    def __init__(
        self, groups: int, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ):
        super().__init__()
        self.groups, self.in_features, self.out_features = groups, in_features, out_features
        words = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(groups, out_features, in_features, **words))
        self.bias = torch.nn.Parameter(torch.empty(groups, out_features, **words)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch.nn.Linear, group by group."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor, offs: Tensor) -> Tensor:
        return functions.grouped_mm(x, self.weight.mT, offs=offs, bias=self.bias)

    def extra_repr(self) -> str:
        return (
            f"groups={self.groups}, in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
