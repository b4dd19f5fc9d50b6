"""Simulated annealing in the kernels."""

import numpy as np

from sklsb._kernels._jit import kernel
from sklsb._kernels.chains import chain_at
from sklsb._kernels.contract import first_move, flip, forget_way, init_cache, log_ratio
from sklsb._kernels.numeric import exp

# exp(-45) is below the spacing of uniform numbers.
_NEVER = -45.0


@kernel
def cool(view, chains, c, sites, beta, numbers):
    """Make a Metropolis sweep of chain c at each beta; ``numbers`` has one per sweep and site."""
    chain = chain_at(chains, c)
    at = 0
    for s in range(beta.size):
        for k in range(sites.size):
            site = np.uint64(sites[k])
            begin = first_move(view, site)
            n = np.int64(first_move(view, site + np.uint64(1)) - begin)
            u = numbers[at] * n
            at += 1
            which = min(np.int64(u), n - 1)
            move = begin + np.uint64(which)
            change = beta[s] * log_ratio(view, chain, move)
            if change >= 0.0 or (change > _NEVER and u - which < exp(change)):
                flip(view, chain, move)
        forget_way(view, chain)
        chain.evaluations[0] += sites.size


@kernel
def begin(view, chains, c):
    """Compute the cache of chain c."""
    init_cache(view, chain_at(chains, c))


@kernel
def climb(view, chains, c, sites):
    """Make the best change of each variable in turn; return whether any raised log p."""
    chain = chain_at(chains, c)
    higher = False
    for k in range(sites.size):
        site = np.uint64(sites[k])
        begin, end = first_move(view, site), first_move(view, site + np.uint64(1))
        best, largest = begin, 0.0
        for move in range(begin, end):
            ratio = log_ratio(view, chain, np.uint64(move))
            if ratio > largest:
                best, largest = np.uint64(move), ratio
        chain.evaluations[0] += np.int64(end - begin)
        # A smaller ratio may be rounding, which could lead back and forth.
        if largest > 1e-12:
            flip(view, chain, best)
            higher = True
    return higher
