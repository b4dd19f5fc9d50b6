"""Base of first-order models, and their common computations."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb._kernels.first_order import step

Device: TypeAlias = torch.device
DType: TypeAlias = torch.dtype
Carried = tuple[Tensor, ...]


class Model(ABC):
    """A log-density with its gradient, on a device; `Target._torch_model` makes it.

    States x are value indices, integers of shape (n, n_sites). Chains carry tensors, chains first,
    that are functions of the state. The moves of a site lead to its other values in increasing
    order, padded to the same number for each site; ratios of padding are never read.
    """

    device: Device
    n_moves_per_site = 1  # the largest number of values less one, and at least 1
    has_zeros = False  # whether ratios may be infinite, or NaN at impossible states
    unsigned = False  # whether `reach` leaves it to its caller to give the signs of the flips
    of_rows = False  # whether threads may divide chains among them, and no row depends on others

    @abstractmethod
    def start(self, x: Tensor) -> Carried:
        """Return the carried tensors at states x."""

    @abstractmethod
    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        """Log p without the target's constant, float64 of shape (n,)."""

    @abstractmethod
    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """First-order log-ratios of the padded moves, shape (n, n_sites * n_moves_per_site).

        A new tensor: rows of refused states are overwritten, as in what `move` returns.
        """

    @abstractmethod
    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        """Return the carried tensors at y, and log p(y) - log p(x), float64 of shape (n,).

        y differs from x at most at these sites, of shape (n, any), with repetitions.
        """

    def room(self, n: int) -> Any:
        """Return memory for n chains that `reach` fills again and again, or None."""
        return None

    def reach(
        self, states: tuple[NDArray[Any], ...], carried: Carried, room: Any = None
    ) -> tuple[Carried, Tensor, Tensor]:
        """Return what `move` does for (x, y, sites), and the first-order log-ratios at y.

        On the CPU only, contiguous. The same room, filled again, is the same tuple.
        """
        x, y, sites = (torch.from_numpy(one) for one in states)
        found, log_ratio = self.move(x, carried, y, sites)
        there = tuple(part.contiguous() for part in found)
        return there, log_ratio, self.first_order(y, there).contiguous()

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Surround all use of the model."""
        yield

    def check(self) -> None:  # noqa: B027
        """Raise if a value since the last check was invalid."""


def row_sum(terms: Tensor) -> Tensor:
    """Sum rows in order, so that rounding does not depend on threads."""
    return terms.cumsum(1)[:, -1] if terms.shape[1] else terms.sum(1)


def along_flips(gradient: Tensor, x: Tensor, largest: float = math.inf) -> Tensor:
    """Change to first order where 0 becomes 1 and 1 becomes 0, within limits.

    0 where the gradient is not finite.
    """
    if x.device.type == "cpu":
        found = gradient.clone()
        step.along_flips(found.numpy(), x.contiguous().numpy(), largest)
        return found
    if largest < math.inf:
        gradient = gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-largest, largest)
    return x.to(gradient.dtype).mul_(-2.0).add_(1.0).mul_(gradient)


def of_other_values(of_values: Tensor, x: Tensor) -> Tensor:
    """Differences, (n, padded moves), from the present values: ``of_values`` (n, sites, k)."""
    old = x.long()[:, :, None]
    other = torch.arange(of_values.shape[2] - 1, device=x.device)
    new = of_values.gather(2, other + (other >= old))
    return (new - of_values.gather(2, old)).flatten(1)
