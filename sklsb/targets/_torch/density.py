"""Any differentiable log-density."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from sklsb.targets._torch.function import Density
from sklsb.targets._torch.model import Carried, Model, along_flips, of_other_values

# First-order ratios end here: a gradient may be infinite, the weights not.
_LARGEST_RATIO = 1e6


class DensityModel(Model):
    """Carries log p and its gradient; it is where the tensors of the function are."""

    has_zeros = True

    def __init__(self, density: Density):
        self.density = density
        self.device = density.device
        self.n_moves_per_site = density.n_values - 1
        self._wrong = torch.zeros((), dtype=torch.bool, device=self.device)

    def start(self, x: Tensor) -> Carried:
        """Log p, and its gradient with respect to the argument of the function."""
        value, gradient = self.density.with_gradient(x)
        self._wrong |= (value.isnan() | (value == math.inf)).any()
        return value, gradient

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        return carried[0]

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Return the gradient along each change; 0 where it is not finite."""
        if carried[1].dim() == 2:
            return along_flips(carried[1], x, _LARGEST_RATIO)
        ratios = of_other_values(carried[1], x)
        ratios = ratios.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return ratios.clamp(-_LARGEST_RATIO, _LARGEST_RATIO)

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        there = self.start(y)
        return there, there[0] - carried[0]

    @contextmanager
    def prepared(self) -> Iterator[None]:
        with self.density.evaluating():
            yield

    def check(self) -> None:
        """Refuse a log-density that is NaN or +inf somewhere."""
        if self._wrong:
            self._wrong.zero_()
            raise ValueError(
                "the log-density was NaN or +inf at a state that was proposed; it must be finite, "
                "or -inf for an impossible state."
            )
