"""Sums over draws by batches, and the standard errors that their means give."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from sklsb.diagnostics.tally import CHANCE

Array = NDArray[np.float64]
# Batches of each chain before pairs are merged, and numbers held for all of them.
_MOST_BATCHES, _FEWEST_BATCHES, _MOST_HELD = 64, 16, 1 << 23
# Effective draws added to the variance of a marginal.
_ADDED = 3.0


class Batches:
    """Sums of ``width`` numbers over the draws of some chains, by batches of ``batch`` draws.

    The last number is log p. When all batches are full, two become one.
    """

    def __init__(self, n_chains: int, width: int):
        room = _MOST_HELD // max(1, n_chains * width)
        n_batches = min(_MOST_BATCHES, max(_FEWEST_BATCHES, room // 4 * 4))
        self.sums = np.zeros((n_chains, n_batches, width))
        self.batch, self.n_draws = 1, 0

    @property
    def left(self) -> int:
        """Draws until batches are merged."""
        return self.sums.shape[1] * self.batch - self.n_draws

    def add_lp(self, at: int, lp: Array) -> None:
        """Add log p of draws (n_chains, n) to a batch."""
        # One after another, so that sums do not depend on how draws are divided into calls.
        terms = np.concatenate([self.sums[:, at, -1:], lp], axis=1)
        self.sums[:, at, -1] = np.cumsum(terms, axis=1)[:, -1]

    def count(self, n: int) -> None:
        """Count draws, of which there are at most ``left``."""
        self.n_draws += n
        if not self.left:
            k = self.sums.shape[1] // 2
            self.sums[:, :k] = self.sums[:, ::2] + self.sums[:, 1::2]
            self.sums[:, k:] = 0.0
            self.batch *= 2

    def means(self) -> tuple[Array, Array]:
        """Return means over all draws, and of full batches, (n_chains, n_batches, width)."""
        total = self.sums.sum(axis=(0, 1)) / max(1, len(self.sums) * self.n_draws)
        full = self.n_draws // self.batch
        return total, self.sums[:, :full] / self.batch


@np.errstate(over="ignore", invalid="ignore")  # of log p above 1e154
def batch_errors(means: Array) -> Array:
    """Return standard errors of the mean of all batches, (n_chains, n_batches, ...).

    The largest error by batches and by longer ones, which are less dependent; or by halves of
    chains, if these differ by more than chance: batches do not know that chains stay apart.
    """
    n_chains, n = means.shape[:2]

    def error_by(longer: int) -> Array:
        k = n // longer
        joined = means[:, : k * longer].reshape(n_chains, k, longer, *means.shape[2:]).mean(axis=2)
        variance = joined.reshape(n_chains * k, *means.shape[2:]).var(axis=0, ddof=1)
        return np.asarray(np.sqrt(variance / (n_chains * k)))

    found = [
        error_by(longer)
        for longer in sorted({1, 4, max(4, n // 4)})
        if n_chains * (n // longer) >= 8
    ]
    if not found:
        return np.full(means.shape[2:], np.nan)
    error = np.fmax.reduce(found)
    if n < 4:
        return error
    halves = error_by(n // 2)
    by_chance = np.sqrt(f_distribution.isf(CHANCE, 2 * n_chains - 1, n_chains * (n - 2)))
    apart = halves > by_chance * np.fmax.reduce(found[:2])
    return np.where(apart, np.fmax(halves, error), error)


def marginal_errors(p: Array, of_batches: Array, most: float | Array) -> Array:
    """Return errors of probabilities as in `diagnostics.marginals`, by errors of batch means.

    The effective size by batches is at most ``most``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return error_of(p, np.minimum(p * (1 - p) / of_batches**2, most))


def error_of(p: Array, size: Array | float) -> Array:
    """Return the error of a probability from so many independent draws, at most 1/2.

    Three more draws with the value, or without it, are added.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.minimum(0.5, np.sqrt((p * (1 - p) + _ADDED / size) / size)))


def time_by_visits(p: Array, n: int, visits: NDArray[np.int64]) -> Array:
    """Return how many of n draws are worth an independent one, by visits to a value.

    Exact for chains of two states. ``visits`` are the runs of draws that have the value, or of
    those that do not, whichever are fewer.
    """
    return np.asarray(2.0 * n * p * (1.0 - p) / visits - 1.0)
