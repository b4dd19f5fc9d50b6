"""The Ising model on torch."""

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb.targets._torch.model import Carried, Device, Model, row_sum, sparse, tensor


class IsingModel(Model):
    """Log p = x.(field + C x / 2); it is linear in each spin, so first order is exact."""

    of_rows = True

    def __init__(self, couplings: sp.csr_array, field: NDArray[np.float64], device: Device):
        self.device = device
        self.couplings = sparse(couplings, device)
        self.field = tensor(field, device)

    @staticmethod
    def _spins(x: Tensor) -> Tensor:
        return 2.0 * x.double() - 1.0

    def start(self, x: Tensor) -> Carried:
        """Return the sums C x of the neighbours."""
        return (torch.sparse.mm(self.couplings, self._spins(x).T).T,)

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        return row_sum(self._spins(x) * (self.field + 0.5 * carried[0]))

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Exact log-ratios."""
        return -2.0 * self._spins(x) * (self.field + carried[0])

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        """(y - x).(gradient at x + that at y) / 2, which does not round at the size of log p."""
        there = self.start(y)
        change = self._spins(y) - self._spins(x)
        return there, row_sum(change * (self.field + 0.5 * (carried[0] + there[0])))
