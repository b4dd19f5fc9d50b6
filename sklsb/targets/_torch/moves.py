"""The moves of all sites in one row."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb.targets.base import Target


def existing_moves(target: Target, n_moves_per_site: int) -> NDArray[np.bool_]:
    """Whether each padded move exists, shape (n_sites, n_moves_per_site)."""
    result: NDArray[np.bool_] = np.arange(n_moves_per_site) < target.cardinalities[:, None] - 1
    return result


class Proposal(NamedTuple):
    """Moves drawn together, and the way back; (n, n_flips) but for y, (n, n_sites)."""

    move: Tensor
    site: Tensor
    y: Tensor
    back: Tensor
    active: Tensor | None


class PaddedMoves:
    """Moves numbered site by site, the same number of them for each site.

    Move m sets site ``m // n_per_site`` to that one of its other values, in increasing order,
    whose number among them is ``m % n_per_site``. Sites of fewer values are padded with moves
    that do not exist.

    Parameters
    ----------
    target : Target
        Tells the number of values of each site, and which sites are observed.
    n_per_site : int
        Moves of each site, those included that do not exist.
    device : torch.device
        Where states are.

    Attributes
    ----------
    existing : ndarray of int64, shape (n_moves,)
        Moves that exist, in the order of `Target.log_ratios`.
    free : Tensor of int64, shape (n_free,)
        Those of them that change no observed site.
    excluded : Tensor of bool or None
        Whether each padded move is none of these; None if all of them are.
    """

    def __init__(self, target: Target, n_per_site: int, device: torch.device):
        self.n_per_site = n_per_site
        exists = existing_moves(target, n_per_site)
        self.existing = np.flatnonzero(exists)
        free = exists.copy()
        free[target.observed_sites] = False
        self.free = torch.as_tensor(np.flatnonzero(free)).to(device)
        self.excluded = None if free.all() else torch.as_tensor(~free.ravel()).to(device)
        self._n_values = torch.as_tensor(target.cardinalities).to(device)

    def make(self, x: Tensor, move: Tensor, active: Tensor | None) -> Proposal:
        """Make some moves (n, n_flips) of states x together; inactive ones change nothing."""
        per_site = self.n_per_site
        if per_site == 1:
            if active is None:
                y = x.scatter(1, move, 1 - x.gather(1, move))
            else:
                y = x.scatter_add(1, move, active.to(x.dtype)) & 1
            return Proposal(move, move, y, move, active)
        site, other = move // per_site, move % per_site
        old, k = x.gather(1, site), self._n_values[site]
        shift = other + (other >= old) - old
        made = shift if active is None else shift * active
        y = x.scatter_add(1, site, made.to(x.dtype)) % self._n_values.to(x.dtype)
        now = y.gather(1, site)
        then = (now - shift) % k
        return Proposal(move, site, y, site * per_site + then - (then > now).long(), active)
