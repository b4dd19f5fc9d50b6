"""How far apart draws are taken: ``thin="auto"``.

Copies of the chains go on in rounds, each twice as long as the last, until the autocorrelation time
of their variables is short beside a round.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from sklsb.targets.base import States
from sklsb.trials.draws import draw, some_of
from sklsb.trials.times import time_of

# Place of these streams among all streams of the purpose "pilot".
THINNING = 1 << 10
# Transitions of the first round; sweeps, transitions and share of the evaluations so far that all
# rounds together may take.
_FIRST, _SWEEPS, _FEWEST, _SHARE = 128, 32, 1 << 13, 0.25
# States looked at in a round, per chain.
_LOOKS = 512
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

    sites = some_of(np.flatnonzero(chains.target.n_possible > 1))
    if not sites.size:
        return Thinning(1, 1.0, 0, 0)
    made, n, previous = 0, _FIRST, -math.inf
    with chains.threads():
        while True:
            every = max(1, n // _LOOKS)
            needed = _needed(draw(chains, n // every, every, sites)[0], every)
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


def _needed(x: States, every: int) -> float:
    r"""Return the transitions that make a draw worth half an independent one.

    If the autocorrelation is exp(-t / T), draws that are k transitions apart are worth (1 - r) /
    (1 + r) each with r = exp(-k / T), a half for k = T log 3. T is the time of all variables, from
    states ``every`` transitions apart; it is infinite if none changed.
    """
    shares = np.array([(x == value).mean(axis=(0, 1)) for value in np.unique(x)])
    variances, n = 1.0 - np.square(shares).sum(axis=0), x.shape[1]
    lags = np.unique(np.geomspace(1, n // 2, 24).astype(int))
    differing = [
        np.count_nonzero(x[:, lag:] != x[:, :-lag], axis=(1, 2)) / (n - lag)
        for lag in lags.tolist()
    ]
    if not np.any(differing):
        return math.inf
    tau = time_of(np.stack(differing, axis=1)[:, np.newaxis], lags, variances, n).time
    return every * math.log(3.0) / math.log((tau + 1.0) / (tau - 1.0)) if tau > 1.0 else 0.0
