"""The moves of all sites in one row."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sklsb._system.arrays import Bools
from sklsb.targets.base import Target


def existing_moves(target: Target, n_moves_per_site: int) -> Bools:
    """Whether each padded move exists, shape (n_sites, n_moves_per_site)."""
    result: Bools = np.arange(n_moves_per_site) < target.cardinalities[:, None] - 1
    return result


class Proposal(NamedTuple):
    """Moves drawn together, and their inverses; all (n, n_flips) but y, (n, n_sites)."""

    move: Tensor
    site: Tensor
    y: Tensor
    back: Tensor
    active: Tensor | None


class PaddedMoves:
    """Moves numbered site by site, ``n_per_site`` for each site.

    Move m sets site ``m // n_per_site`` to number ``m % n_per_site`` of its other values, in
    increasing order. Sites of fewer values are padded with moves that do not exist. ``existing``
    are the others, in the order of `Target.log_ratios`; ``free`` are the existing moves of sites
    that are not observed, and ``excluded`` masks the rest, or is None.
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
