"""The Potts model in the kernels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements
from sklsb._kernels.contract import change_of, first_move, flip, init_cache, log_prob, log_ratio


class PottsView(NamedTuple):
    """As `IsingView`; the cache holds the sum of couplings to neighbours for each (site, value)."""

    field: NDArray[np.float64]  # (n_sites, k)
    unit: NDArray[np.float64]
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]
    site: NDArray[np.uint32]  # of each move
    neighbour_start: NDArray[np.uint64]
    neighbour: NDArray[np.uint32]
    coupling: NDArray[np.int64]  # of a site with neighbour[k], in units of neighbour[k]

    @property
    def cache_size(self) -> int:
        return self.field.size


@implements(init_cache, PottsView)
def _init_cache(view, chain):
    values = np.uint64(view.field.shape[1])
    chain.cache[:] = 0
    for i in range(chain.x.size):
        for n in range(view.neighbour_start[i], view.neighbour_start[i + 1]):
            j = np.uint64(view.neighbour[n])
            chain.cache[j * values + np.uint64(chain.x[i])] += view.coupling[n]


@implements(log_ratio, PottsView)
def _log_ratio(view, chain, move):
    site, before, after, _ = change_of(view, chain, move)
    first = site * np.uint64(view.field.shape[1])
    gained = chain.cache[first + after] - chain.cache[first + before]
    return (view.field[site, after] - view.field[site, before]) + view.unit[site] * gained


@implements(flip, PottsView)
def _flip(view, chain, move):
    site, before, after, back = change_of(view, chain, move)
    values = np.uint64(view.field.shape[1])
    chain.x[site] = np.int64(after)
    for n in range(view.neighbour_start[site], view.neighbour_start[site + np.uint64(1)]):
        first = np.uint64(view.neighbour[n]) * values
        chain.cache[first + before] -= view.coupling[n]
        chain.cache[first + after] += view.coupling[n]
    return back


@implements(first_move, PottsView)
def _first_move(view, site):
    return np.uint64(site) * np.uint64(view.field.shape[1] - 1)


@implements(log_prob, PottsView)
def _log_prob(view, chain):
    values = np.uint64(view.field.shape[1])
    result = 0.0
    for i in range(chain.x.size):
        v = np.uint64(chain.x[i])
        local = chain.cache[np.uint64(i) * values + v]
        result += view.field[i, v] + (0.5 * view.unit[i]) * local
    return result
