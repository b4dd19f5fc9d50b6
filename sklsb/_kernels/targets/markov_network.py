"""Products of tables in the kernels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import first_move, flip, init_cache, log_prob, log_ratio


class MarkovNetworkView(NamedTuple):
    """Concatenated tables; the cache holds the position of each factor's present entry."""

    log_table: NDArray[np.float64]
    table_start: NDArray[np.uint64]  # of each factor
    factor_start: NDArray[np.uint64]  # of the list of factors of each site
    factor: NDArray[np.uint32]
    stride: NDArray[np.uint32]  # what one more of the site adds to the position
    first: NDArray[np.uint64]  # first move of each site, and the number of moves
    site: NDArray[np.uint32]  # of each move
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]

    @property
    def cache_size(self) -> int:
        return self.table_start.size


@inlined
def _network_change(view, chain, move):
    """Return the site of a move, its value before and after."""
    site = np.uint64(view.site[move])
    before = np.int64(chain.x[site])
    after = np.int64(np.uint64(move) - view.first[site])
    return site, before, after + np.int64(after >= before)


@implements(init_cache, MarkovNetworkView)
def _init_cache(view, chain):
    for f in range(view.table_start.size):
        chain.cache[f] = np.int64(view.table_start[f])
    for i in range(chain.x.size):
        for k in range(view.factor_start[i], view.factor_start[i + 1]):
            chain.cache[view.factor[k]] += np.int64(view.stride[k]) * np.int64(chain.x[i])


@implements(log_ratio, MarkovNetworkView)
def _log_ratio(view, chain, move):
    site, before, after = _network_change(view, chain, move)
    result = 0.0
    for k in range(view.factor_start[site], view.factor_start[site + np.uint64(1)]):
        here = chain.cache[view.factor[k]]
        there = here + (after - before) * np.int64(view.stride[k])
        result += view.log_table[np.uint64(there)] - view.log_table[np.uint64(here)]
    return result


@implements(flip, MarkovNetworkView)
def _flip(view, chain, move):
    site, before, after = _network_change(view, chain, move)
    chain.x[site] = after
    for k in range(view.factor_start[site], view.factor_start[site + np.uint64(1)]):
        chain.cache[view.factor[k]] += (after - before) * np.int64(view.stride[k])
    return view.first[site] + np.uint64(before - np.int64(before > after))


@implements(first_move, MarkovNetworkView)
def _first_move(view, site):
    return view.first[site]


@implements(log_prob, MarkovNetworkView)
def _log_prob(view, chain):
    result = 0.0
    for f in range(chain.cache.size):
        result += view.log_table[np.uint64(chain.cache[f])]
    return result
