"""Annealing in the kernels: of states, and of the weights of runs."""

import numpy as np

from sklsb._kernels._jit import kernel
from sklsb._kernels.chains import chain_at
from sklsb._kernels.contract import (
    first_move,
    flip,
    forget_way,
    init_cache,
    log_ratio,
    prepare,
    step,
)
from sklsb._kernels.numeric import exp
from sklsb._kernels.tempering.paths import at_level, log_probs

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


@kernel
def travel(path, rule, chains, c, levels, n_steps, n_uniforms, numbers):
    """Move chain c from level to level, each beside the last; return the log weight of the way."""
    chain = chain_at(chains, c)
    init_cache(at_level(path, levels[0]), chain)
    total = 0.0
    for s in range(levels.size - 1):
        here, there = levels[s], levels[s + 1]
        low, high, _ = log_probs(path, chain, min(here, there))
        total += high - low if there > here else low - high
        if total == -np.inf:
            break
        if there > 0:
            view = at_level(path, there)
            prepare(view, rule, chain)
            for t in range(n_steps):
                step(view, rule, chain, numbers[(s * n_steps + t) * n_uniforms :])
    return total
