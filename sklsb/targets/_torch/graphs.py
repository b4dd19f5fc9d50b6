"""Models with couplings between pairs of variables, on torch."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sklsb._system.arrays import Array
from sklsb.targets._torch.model import Carried, Device, Model, of_other_values, row_sum


def sparse(couplings: sp.csr_array, device: Device) -> Tensor:
    """Copy a sparse matrix to a device."""
    matrix = couplings.tocoo()
    result: Tensor = torch.sparse_coo_tensor(
        torch.as_tensor(np.stack(matrix.coords).astype(np.int64)),
        torch.tensor(matrix.data),
        size=matrix.shape,
        check_invariants=True,
    )
    return result.to(device).coalesce()


class GraphModel(Model):
    """Couplings C and a field; first order is exact."""

    of_rows = True

    def __init__(self, couplings: sp.csr_array, field: Array, device: Device):
        self.device = device
        self.couplings = sparse(couplings, device)
        self.field = torch.tensor(field, device=device)


class IsingModel(GraphModel):
    """Log p = x.(field + C x / 2)."""

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


class PottsModel(GraphModel):
    """Log p = o.(field + C o / 2) with o the indicators of the values."""

    def __init__(self, couplings: sp.csr_array, field: Array, device: Device):
        super().__init__(couplings, field, device)
        self.n_values = self.field.shape[1]
        self.n_moves_per_site = self.n_values - 1
        self.has_zeros = bool(np.isneginf(field).any())

    def start(self, x: Tensor) -> Carried:
        """Return the sums of the couplings with neighbours of each value, (n, sites, k)."""
        n, d = x.shape
        here = torch.nn.functional.one_hot(x.T.long(), self.n_values).double().reshape(d, -1)
        near = torch.sparse.mm(self.couplings, here)
        return (near.reshape(d, n, self.n_values).transpose(0, 1),)

    def _at(self, of_values: Tensor, x: Tensor) -> Tensor:
        return of_values.expand(*x.shape, -1).gather(2, x.long()[:, :, None])[:, :, 0]

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        return row_sum(self._at(self.field, x) + 0.5 * self._at(carried[0], x))

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Exact log-ratios; field and neighbours apart, for fields may be large."""
        return of_other_values(self.field.expand_as(carried[0]), x) + of_other_values(carried[0], x)

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        there = self.start(y)
        near = carried[0] + there[0]
        change = self._at(self.field, y) - self._at(self.field, x)
        return there, row_sum(change + 0.5 * (self._at(near, y) - self._at(near, x)))
