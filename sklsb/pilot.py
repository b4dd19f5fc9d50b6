r"""Choosing a balancing function by trying it.

What a learned function is worth is decided on the target itself: all candidates run from the
states where the burn-in ended, and the one whose draws are worth most is kept. The measure is the
effective sample size per transition, 1 / tau, with

.. math::
    \tau = 1 + 2 \sum_{t \ge 1} \rho(t), \qquad
    \rho(t) = 1 - \frac{E \, \#\{i : x_i(s + t) \ne x_i(s)\}}{\sum_i v_i}, \qquad
    v_i = 1 - \sum_a P(x_i = a)^2

rho is the autocorrelation of the sites, each weighted by its variance v_i, so 1 / tau is the
variance-weighted harmonic mean over the sites of their effective sample sizes per transition,
with one truncation for all. v is taken over the draws of all candidates together: a candidate
that leaves a part of the sites unmoved is found out by those that move them. Log p counts like one
more site of mean variance. The sum ends where rho falls below 0.05, or at half of the pilot's
length; what is then left continues as an exponential.

The plain harmonic mean would let sites that hardly vary decide: on independent sites it is
largest for the square root, which estimates the sum of all sites worse than Barker's function.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._compiled import Table
from sklsb._ensemble import SEGMENT, Ensemble
from sklsb.balancing import BalancingFunction
from sklsb.targets.base import Target

__all__ = ["Outcome", "autocorrelation_times", "compare", "starved"]

Array = NDArray[np.float64]
# Values of sites in one series of a candidate, over all chains; sites that are looked at.
_MOST_VALUES, MOST_SITES = 1 << 21, 1024
# Each series has its draws so many times farther apart than the one before.
_COARSER = 8
_NEGLIGIBLE = 0.05
FEWEST_DRAWS = 64
# Nats by which a function may fall below what the slope of a monotone one allows.
STARVED = 6.0


class Outcome(NamedTuple):
    """What the pilot found out; arrays over the candidates."""

    names: list[str]
    ess_per_step: Array
    site_ess_per_step: Array
    lp_ess_per_step: Array
    acceptance_rate: Array
    n_transitions: int  # of each chain for each candidate

    @property
    def best(self) -> str:
        """Name of the candidate to keep; the first if nothing is known."""
        return self.names[int(np.argmax(np.nan_to_num(self.ess_per_step)))]


def autocorrelation_times(lags: NDArray[np.int64], rho: Array) -> Array:
    """1 + 2 sum of rho over all lags, given at some of them.

    Parameters
    ----------
    lags : ndarray of int, shape (n_lags,)
        Increasing, positive.
    rho : ndarray of float64, shape (n, n_lags)
        Autocorrelations of n chains at these lags.

    Returns
    -------
    ndarray of shape (n,)
        At least 1. Linear between the lags. All sums end at the same lag, the first at which the
        median falls below 0.05; what is more than that there continues as an exponential.
    """
    below = np.flatnonzero(np.median(rho, axis=0) < _NEGLIGIBLE)
    end = int(below[0]) + 1 if below.size else lags.size
    t = np.append(0, lags[:end])
    r = np.column_stack([np.ones(len(rho)), rho[:, :end]])
    # The sum over all integers of the linear interpolation, without lag 0.
    whole = (np.diff(t) * (r[:, 1:] + r[:, :-1]) / 2).sum(axis=1) - 0.5 + r[:, -1] / 2
    last = np.minimum(r[:, -1], 1.0 - 1e-6)
    decay = np.maximum(last, _NEGLIGIBLE) ** (1.0 / t[-1])
    whole += np.where(last >= _NEGLIGIBLE, last * decay / (1.0 - decay), 0.0)
    result: Array = np.maximum(1.0, 1.0 + 2.0 * whole)
    return result


def _site_variances(draws: list[NDArray[np.int8]], values: tuple[int, ...]) -> Array:
    shares = np.mean([[(x == v).mean(axis=(0, 1)) for v in values] for x in draws], axis=0)
    result: Array = 1.0 - np.square(shares).sum(axis=0)
    return result


def _thinnings(n: int, n_draws: int) -> list[int]:
    """Distances of draws, 1, 8, ... and the rest, for series of n transitions together."""
    thins: list[int] = []
    while n >= n_draws * (sum(thins) + 4 * _COARSER ** len(thins)):
        thins.append(_COARSER ** len(thins))
    return [*thins, max(1, n // n_draws - sum(thins))]


class _Series(NamedTuple):
    """Draws of one candidate at some sites, their log p and acceptance probabilities."""

    thin: int
    x: NDArray[np.int8]  # (n_chains, n_draws, n_sites)
    stats: Array  # (n_chains, n_draws, 2)


def _draw(ensemble: Ensemble, table: Table, n: int, thin: int, sites: NDArray[np.int64]) -> _Series:
    n_chains, n_sites = ensemble.chains.x.shape
    x = np.empty((n_chains, n, sites.size), dtype=np.int8)
    stats = np.empty((n_chains, n, 2))
    most = thin * max(1, (1 << 24) // max(1, n_chains * n_sites))
    made = done = 0
    while made < n * thin:
        size = min(SEGMENT, most, n * thin - made)
        room = (made + size) // thin - done
        part = np.empty((n_chains, room, n_sites), dtype=np.int8)
        part_stats = np.empty((n_chains, room, 2))
        ensemble.run(table, size, (thin, made % thin, 0), part, part_stats)
        x[:, done : done + room] = part[:, :, sites]
        stats[:, done : done + room] = part_stats
        made, done = made + size, done + room
    return _Series(thin, x, stats)


def _run(
    ensemble: Ensemble, function: BalancingFunction, n: int, sites: NDArray[np.int64]
) -> list[_Series]:
    """Make n transitions; return series of draws ever farther apart."""
    n_draws = min(n, max(FEWEST_DRAWS, _MOST_VALUES // (len(ensemble) * sites.size)))
    table = function.table()
    with ensemble.threads():
        ensemble.start(table)
        return [_draw(ensemble, table, n_draws, thin, sites) for thin in _thinnings(n, n_draws)]


def _distance(values: NDArray[Any], lag: int) -> float:
    """Mean number of labels (integers) that differ at a lag, or half of the mean square."""
    one, other = values[:, lag:], values[:, :-lag]
    if values.dtype.kind == "i":
        return float(np.count_nonzero(one != other) / (one.shape[0] * one.shape[1]))
    return 0.5 * float(np.square(one - other).mean())


def _times(runs: list[list[tuple[int, NDArray[Any]]]], variance: float) -> Array:
    """Autocorrelation time in transitions of each run, a list of (thin, values of each draw).

    Short lags are taken from the series with the close draws, long ones from the others.
    """
    lags: list[int] = []
    rho: list[list[float]] = []
    for k, (thin, values) in enumerate(runs[0]):
        longest = values.shape[1] // 2
        if k < len(runs[0]) - 1:  # twice as far as the next series begins, or an eighth
            longest = max(2 * _COARSER, longest // 4)
        for lag in np.unique(np.geomspace(1, longest, 24).astype(int)).tolist():
            if not lags or lag * thin > lags[-1]:
                lags.append(lag * thin)
                rho.append([1.0 - _distance(run[k][1], lag) / variance for run in runs])
    return autocorrelation_times(np.array(lags), np.array(rho).T)


def compare(
    candidates: dict[str, BalancingFunction],
    new_ensemble: Callable[[int], Ensemble],
    budget: float,
) -> tuple[Outcome, dict[str, Ensemble]]:
    """Run all candidates from the same states and compare what their draws are worth.

    Parameters
    ----------
    candidates : dict of name to BalancingFunction
        What to choose from.
    new_ensemble : callable
        Returns chains at the states where the burn-in ended, with the k-th set of streams.
    budget : float
        Log-ratios that all runs together may evaluate.

    Returns
    -------
    outcome : Outcome
        Effective sample sizes per transition; NaN where the budget allows less than 64 draws.
    ensembles : dict of name to Ensemble
        The chains of each candidate where they ended.
    """
    ensembles = {name: new_ensemble(k) for k, name in enumerate(candidates)}
    first = next(iter(ensembles.values()))
    target: Target = first.target
    n = int(budget / (len(candidates) * len(first) * first.step_cost))
    if n < FEWEST_DRAWS:
        unknown = np.full(len(candidates), np.nan)
        return Outcome(list(candidates), unknown, unknown, unknown, unknown, 0), ensembles
    sites = np.linspace(0, target.n_sites - 1, min(target.n_sites, MOST_SITES)).astype(np.int64)
    runs = [_run(ensembles[name], function, n, sites) for name, function in candidates.items()]
    variance = float(_site_variances([run[-1].x for run in runs], target.values).sum())
    lp_variance = float(np.var([run[-1].stats[:, :, 0] for run in runs]))
    times = np.full((len(runs), 2), np.nan)
    if variance > 0.0:
        times[:] = _times([[(part.thin, part.x) for part in run] for run in runs], variance)[
            :, None
        ]
        if lp_variance > 0.0:
            lp = [[(part.thin, part.stats[:, :, 0]) for part in run] for run in runs]
            times[:, 1] = _times(lp, lp_variance)
    both = (target.n_sites * times[:, 0] + times[:, 1]) / (target.n_sites + 1)
    outcome = Outcome(
        list(candidates),
        1.0 / both,
        1.0 / times[:, 0],
        1.0 / times[:, 1],
        np.array([run[-1].stats[:, :, 1].mean() for run in runs]),
        sum(part.thin * part.x.shape[1] for part in runs[0]),
    )
    return outcome, ensembles


def starved(function: BalancingFunction, log_ratios: Array) -> tuple[float, tuple[float, float]]:
    """How far the even part falls below its neighbours, among the values of abs(u) that occur.

    Parameters
    ----------
    function : BalancingFunction
        Any; for a function g that increases the answer is 0.
    log_ratios : ndarray
        The u = log t that occur; infinite ones do not matter.

    Returns
    -------
    deficit : float
        Largest h(v) - abs(u - v)/2 - h(u), in nats. Moves with such a u have at most exp(-deficit)
        of the weight that every increasing g would give them beside moves with abs(v).
    where : tuple of float
        Least and greatest abs(u) at which it is more than 6 nats, or at least is the largest.
    """
    a = np.unique(np.round(np.abs(log_ratios[np.isfinite(log_ratios)]) * 16) / 16)
    if not a.size:
        return 0.0, (0.0, 0.0)
    if a.size > 512:
        a = a[np.linspace(0, a.size - 1, 512).astype(int)]
    h = function.tabulated().even_part(a)
    deficit = (h[:, None] - 0.5 * np.abs(a[:, None] - a)).max(axis=0) - h
    largest = float(deficit.max())
    where = a[deficit >= min(largest, STARVED)]
    return largest, (float(where[0]), float(where[-1]))
