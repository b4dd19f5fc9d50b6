"""How far apart draws are taken: ``thin="auto"``.

Copies of the chains go on in rounds, each twice as long as the last, until the autocorrelation time
of their variables is short beside a round. It is estimated as in `sklsb.trials.pilot`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._system.memory import at_once
from sklsb.ensembles.protocol import MOST_NUMBERS
from sklsb.targets.base import States
from sklsb.trials.race import MOST_SITES
from sklsb.trials.times import integrated_times, window

# Place of the streams among those of the purpose "pilot".
THINNING = 1 << 10
# Transitions of the first round; sweeps, transitions and share of the evaluations so far that all
# rounds together may take.
_FIRST, _SWEEPS, _FEWEST, _SHARE = 128, 32, 1 << 13, 0.25
# States looked at in a round, per chain, and most values held at once.
_LOOKS, _MOST_HELD = 512, 1 << 24
# A round is long enough if it has so many draws, and the distance found has grown by no more than
# this factor.
_ENOUGH, _AGREED = 64, 1.1
# Draws in the last round at the distance that is taken if none was long enough.
_FEWEST_DRAWS = 4


class Thinning(NamedTuple):
    """The result: transitions between draws."""

    thin: int
    needed: float  # what makes a draw worth half an independent one; inf if nothing changed
    n_transitions: int  # of each copy
    evaluations: int

    @property
    def bounded(self) -> bool:
        """Whether the copies were too short to tell."""
        return self.needed > self.thin


def find_thinning(chains: Any, sweep: int, spent: int) -> Thinning:
    """Run these chains to find what makes a draw worth half an independent one.

    ``sweep`` is the transitions of a sweep; ``spent`` the evaluations that their fit has taken.
    """
    before = int(chains.chains.evaluations.sum())

    def evaluations() -> int:
        return int(chains.chains.evaluations.sum()) - before

    free = np.flatnonzero(chains.target.n_possible > 1)
    sites = np.sort(np.random.default_rng(0).permutation(free)[:MOST_SITES])
    if not sites.size:
        return Thinning(1, 1.0, 0, 0)
    made, n, previous = 0, _FIRST, -math.inf
    with chains.threads():
        while True:
            every = max(1, n // _LOOKS)
            needed = _needed(_states(chains, n // every, every, sites), every)
            made += n
            by_cost = _SHARE * spent * made / evaluations() if evaluations() else 0.0
            fewest = _FEWEST if sweep > 1 else 0  # of single changes
            longest = made + 2 * n > max(_SWEEPS * sweep, fewest, by_cost)
            # Variables that move rarely show up as rounds grow.
            settled = _ENOUGH * needed <= n and needed <= 1.0 + _AGREED * previous
            if longest or (settled and made >= min(fewest, by_cost)):
                thin = max(1, math.ceil(min(needed, n / _FEWEST_DRAWS)))
                return Thinning(thin, needed, made, evaluations())
            n, previous = 2 * n, needed


def _states(chains: Any, n: int, every: int, sites: NDArray[np.int64]) -> States:
    """Return n states of each chain, (n_chains, n, n_sites), this many transitions apart."""
    n_chains, n_sites = chains.chains.x.shape
    facts = chains.rule.facts
    most = min(
        at_once(MOST_NUMBERS, every * facts.n_uniforms), at_once(_MOST_HELD, n_chains * n_sites)
    )
    found = np.empty((n_chains, n, sites.size), chains.target.dtype)
    for begin in range(0, n, most):
        size = min(most, n - begin)
        x = np.empty((n_chains, size, n_sites), found.dtype)
        stats = np.empty((n_chains, size, len(facts.stat_names)))
        chains.run(size * every, (every, 0, 0), x, stats)
        found[:, begin : begin + size] = x[:, :, sites]
    return found


def _needed(x: States, every: int) -> float:
    r"""Return the transitions that make a draw worth half an independent one.

    If the autocorrelation is exp(-t / T), draws that are k transitions apart are worth (1 - r) /
    (1 + r) each with r = exp(-k / T), a half for k = T log 3. T is the time of all variables, from
    states ``every`` transitions apart; it is infinite if none changed.
    """
    shares = np.array([(x == value).mean(axis=(0, 1)) for value in np.unique(x)])
    variance = float((1.0 - np.square(shares).sum(axis=0)).sum())
    n_chains, n = x.shape[:2]
    lags = np.unique(np.geomspace(1, n // 2, 24).astype(int))
    differing = [
        np.count_nonzero(x[:, lag:] != x[:, :-lag], axis=(1, 2)) / (n - lag)
        for lag in lags.tolist()
    ]
    if not np.any(differing):
        return math.inf
    rho = 1.0 - np.stack(differing, axis=1) / variance
    noise = np.full(lags.size, np.nan)
    if n_chains > 1:
        noise = rho.std(axis=0, ddof=1) / math.sqrt(n_chains)
    mean = rho.mean(axis=0)
    tau = float(integrated_times(lags, mean[np.newaxis], window(mean, noise))[0])
    return every * math.log(3.0) / math.log((tau + 1.0) / (tau - 1.0)) if tau > 1.0 else 0.0
