r"""Autocorrelation times of chains from draws at equal distances.

.. math::
    \tau = 1 + 2 \sum_{t \ge 1} \rho(t), \qquad
    \rho(t) = 1 - \frac{E \, \#\{i : x_i(s + t) \ne x_i(s)\}}{\sum_i v_i}, \qquad
    v_i = 1 - \sum_a P(x_i = a)^2

rho is the autocorrelation of the sites, each weighted by its variance v_i. The variances come from
outside, so that a chain that has not seen all of them is found out: its rho does not fall to zero.

The sum ends where rho is lost in noise: at the first lag at which rho is below two of its standard
errors, but not above 0.05, and at half of the run at the latest. The rest continues as an
exponential, so a few slow sites among many fast ones count: their part of rho is small, but lasts.

The relative error of a time is the largest of three: by the jackknife over pieces of chains; by the
jackknife over whole chains, which sees that chains disagree; and that of an exponential rho if as
many sites were independent as the root of their number, which sees that a run is short. To this is
added the exponential rest, taken to be as uncertain as it is large.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from sklsb._system.arrays import Array, Ints
from sklsb.diagnostics.batches import jackknife_error
from sklsb.targets.base import States

Lags = Ints
# Autocorrelations are summed while they exceed this many standard errors, or the second number.
_NOISE, _LARGE = 2.0, 0.05
# Replicates, pieces of chains: about so many, of a chain at most the second number.
_REPLICATES, _MOST_PIECES = 16, 8
_LAGS = 24  # most in the last level of a series
# Fewest draws of each chain in a series that is full.
FEWEST_KEPT = 64


def window(rho: Array, error: Array) -> int:
    """Return how many lags are summed: up to the first at which rho is lost in its noise.

    If standard errors are large or unknown (NaN) the sum ends below 0.05.
    """
    lost = np.flatnonzero(rho <= np.fmin(_NOISE * error, _LARGE))
    return int(lost[0]) + 1 if lost.size else rho.size


def integrated_times(lags: Lags, rho: Array, end: int) -> Array:
    """Return 1 + 2 sum of rho (n, n_lags) over the first ``end`` lags; at least 1.

    rho is exponential between the given lags where it falls, linear where it rises, and goes on
    exponentially after the last.
    """
    gaps = np.diff(lags[:end], prepend=0)
    r = np.column_stack([np.ones(len(rho)), rho[:, :end]])
    whole = _between(r[:, :-1], r[:, 1:], gaps).sum(axis=1) + _remainder(
        int(lags[end - 1]), r[:, -1]
    )
    return np.asarray(np.maximum(1.0, 1.0 + 2.0 * whole))


def _between(first: Array, last: Array, gaps: Lags) -> Array:
    """Sum an exponential from first to last over the lags after the first, up to the last.

    Below a twentieth of the first, which is noise, the sum is linear in the last.
    """
    linear = (gaps * (first + last) - (first - last)) / 2
    floored = np.maximum(last, first / 20)
    falls = floored < first
    fall = np.where(falls, first - floored, 1.0)
    # Not the logarithm of a quotient, which loses its digits where rho hardly falls.
    rate = np.log1p(fall / np.where(falls, floored, 1.0)) / gaps
    curved = fall / np.expm1(rate) + (last - floored) * (gaps + 1) / 2
    return np.where(falls, curved, linear)


def _remainder(lag: int, rho: Array) -> Array:
    """Sum the exponential through 1 at lag 0 and rho at this lag over all later lags."""
    last = np.clip(rho, 0.0, 1.0 - 1e-6)
    decay = last ** (1.0 / lag)
    return np.asarray(last * decay / (1.0 - decay))


class Series:
    """Draws of several chains at equal distances; every second is dropped when there are too many.

    Before that, distances at short lags are measured, so each level of thinning leaves some. Log p
    is kept beside the sites.
    """

    def __init__(self, n_chains: int, n_sites: int, dtype: object, most: int):
        self.x = np.empty((n_chains, most, n_sites), dtype=dtype)  # type: ignore[call-overload]
        self.lp = np.empty((n_chains, most))
        self.n, self.thin = 0, 1
        self._levels: list[tuple[Lags, Array]] = []  # lags in transitions, distances

    def make_room(self) -> int:
        """Return how many draws can be added, at least one."""
        if self.n == self.x.shape[1]:
            self._forget()
        return self.x.shape[1] - self.n

    def add(self, x: States, lp: Array) -> None:
        """Add draws (n_chains, n, n_sites) that follow at distances ``thin``."""
        end = self.n + x.shape[1]
        self.x[:, self.n : end], self.lp[:, self.n : end] = x, lp
        self.n = end

    def _forget(self) -> None:
        first = 2 if self._levels else 1
        self._levels.append(self._measured(list(range(first, 4))))
        half = self.n // 2
        self.x[:, :half] = self.x[:, 1 : 2 * half : 2].copy()
        self.lp[:, :half] = self.lp[:, 1 : 2 * half : 2].copy()
        self.n, self.thin = half, 2 * self.thin

    def _measured(self, lags: list[int]) -> tuple[Lags, Array]:
        x, lp = self.x[:, : self.n], self.lp[:, : self.n]
        found = np.stack([_distances(x, lp, lag) for lag in lags], axis=2)
        return self.thin * np.array(lags), found

    def distances(self) -> tuple[Lags, Array]:
        """Return lags in transitions and distances at them, (n_chains, n_pieces, n_lags, 2).

        These are the mean number of sites that differ and half of the mean square change of log p.
        """
        first = 2 if self._levels else 1
        lags = np.unique(np.geomspace(first, max(first, self.n // 2), _LAGS).astype(int))
        levels = [*self._levels, self._measured(lags.tolist())]
        return np.concatenate([one for one, _ in levels]), np.concatenate(
            [found for _, found in levels], axis=2
        )

    def shares(self, values: tuple[int, ...]) -> Array:
        """Return how often each value occurs, (n_values, n_sites)."""
        x = self.x[:, : self.n]
        return np.array([(x == v).mean(axis=(0, 1)) for v in values])


def _distances(x: States, lp: Array, lag: int) -> Array:
    """Return mean distances of draws a lag apart, (n_chains, n_pieces, 2)."""
    n_pieces = max(1, min(_MOST_PIECES, _REPLICATES // len(x), x.shape[1] // 2))
    ends = np.linspace(0, x.shape[1] - lag, n_pieces + 1).astype(int)
    differ = np.empty((len(x), n_pieces))
    for c, one in enumerate(x):
        for k, (a, b) in enumerate(pairwise(ends.tolist())):
            differ[c, k] = np.count_nonzero(one[a + lag : b + lag] != one[a:b])
    change = 0.5 * np.add.reduceat(np.square(lp[:, lag:] - lp[:, :-lag]), ends[:-1], axis=1)
    return np.stack([differ, change], axis=2) / np.diff(ends)[:, np.newaxis]


class Found(NamedTuple):
    """An autocorrelation time, in transitions."""

    time: float
    error: float  # relative


UNKNOWN = Found(np.nan, np.nan)


def time_of(distances: Array, lags: Lags, variances: Array, n: int) -> Found:
    """Estimate an autocorrelation time from distances (n_chains, n_pieces, n_lags).

    ``variances`` belong to the sites, or to the one series; ``n`` is the number of transitions
    over all chains.
    """
    total = float(variances.sum())
    if total <= 0.0:
        return UNKNOWN
    by_piece = 1.0 - distances / total
    by_chain = by_piece.mean(axis=1)
    groups = by_piece.reshape(-1, lags.size), by_chain
    rho = by_chain.mean(axis=0)
    noise = np.fmax(*(_noise(group) for group in groups))
    end = window(rho, noise)
    time = float(integrated_times(lags, rho[None], end)[0])
    spread = [_time_error(group, lags, end) for group in groups]
    n_sites = total**2 / float(np.square(variances).sum())  # those that matter
    spread.append(np.sqrt(4.0 * time / max(1, n) / np.sqrt(n_sites)))
    guessed = 2.0 * float(_remainder(int(lags[end - 1]), rho[end - 1 : end])[0]) / time
    return Found(time, float(np.hypot(np.nanmax(spread), guessed)))


def _noise(replicates: Array) -> Array:
    """Return standard errors of the mean of replicates, NaN for a single one."""
    n = len(replicates)
    if n < 2:
        return np.full(replicates.shape[1], np.nan)
    return np.asarray(replicates.std(axis=0, ddof=1) / np.sqrt(n))


def _time_error(replicates: Array, lags: Lags, end: int) -> float:
    """Return the relative standard error of a time; NaN for a single replicate of rho."""
    n = len(replicates)
    if n < 2:
        return np.nan
    means = (replicates.sum(axis=0) - replicates) / (n - 1)
    error = jackknife_error(np.log(integrated_times(lags, means, end)))
    return error * float(stdtrit(n - 1, 0.975) / ndtri(0.975))  # few replicates tell little
