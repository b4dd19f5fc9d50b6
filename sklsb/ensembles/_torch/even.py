"""The table of a balancing function on torch."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from sklsb._kernels.numeric import Table


class Even(NamedTuple):
    """A table on a device."""

    value: Tensor
    slope: Tensor
    inverse_step: float

    @classmethod
    def of(cls, table: Table, like: Tensor) -> "Even":
        """Return a table with the type and device of a tensor."""
        value, slope = (torch.tensor(v, dtype=like.dtype).to(like.device) for v in table[:2])
        return cls(value, slope, table.inverse_step)

    def locate(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last knot below abs(u), and how many steps u is beyond it."""
        a = u.abs().mul_(self.inverse_step)
        knot = a.floor().clamp_(max=self.value.numel() - 1)
        return knot.int(), a.sub_(knot)

    def log_weights(self, u: Tensor) -> Tensor:
        """Return log g(exp u)."""
        knot, beyond = self.locate(u)
        value, slope = (v.index_select(0, knot.view(-1)).view(u.shape) for v in self[:2])
        return torch.addcmul(value, slope, beyond).add(u, alpha=0.5)


class LogWeights(torch.autograd.Function):
    """Log g(exp u) as a function of the values at the knots: in each interval linear in two."""

    @staticmethod
    def forward(ctx: FunctionCtx, value: Tensor, even: Even, u: Tensor) -> Tensor:
        ctx.even, ctx.u = even, u
        return even.log_weights(u)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        n = ctx.even.value.numel()
        knot, beyond = (part.view(-1) for part in ctx.even.locate(ctx.u))
        gradient = gradients[0].reshape(-1).double()
        to_next = torch.where(knot < n - 1, beyond, 0.0) * gradient
        found = gradient.new_zeros(n + 1)
        found.index_add_(0, knot, gradient - to_next).index_add_(0, knot + 1, to_next)
        return found[:n], None, None
