"""What the draws of a call show so far: columns of the line of its progress."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sklsb.diagnostics.stopping import RunSoFar
from sklsb.diagnostics.tally import Counters
from sklsb.targets.base import Target

# Chains that have a line of their own, at most.
_MOST_ROWS = 16
# R-hat takes at most one part in so many of the time.
_SHARE = 50

_SHOWN = ("acceptance_rate", "lp")

Array = NDArray[np.float64]


class Seen:
    """Means of what is known of each draw, since they were shown last, and R-hat.

    Parameters
    ----------
    target : Target
        What is sampled.
    counters : Counters
        How far the chains have come; followed.
    names : sequence of str
        What is known of each draw.
    n_chains : int
        Number of chains.
    """

    def __init__(self, target: Target, counters: Counters, names: Sequence[str], n_chains: int):
        self.target, self.counters = target, counters
        self._places = [(names.index(name), name) for name in _SHOWN if name in names]
        self._sum = np.zeros((n_chains, len(names)))
        self._n = np.zeros((n_chains, len(names)), dtype=np.int64)
        self._means = np.full((n_chains, len(names)), np.nan)
        self._r_hat, self._due = np.nan, 0.0

    def add(self, stats: Array) -> None:
        """Take what is known of some draws, shape (n_chains, n_draws, n_names)."""
        known = ~np.isnan(stats)
        self._sum += np.where(known, stats, 0.0).sum(axis=1)
        self._n += known.sum(axis=1)

    def columns(self, last: bool = False) -> list[str]:
        """Return the means over all chains since this was asked, and the worst R-hat so far."""
        seen = self._n > 0
        self._means = np.where(seen, self._sum / np.maximum(self._n, 1), self._means)
        self._sum[:], self._n[:] = 0.0, 0
        now = time.perf_counter()
        if last or now >= self._due:
            self._r_hat = RunSoFar(self.target, self.counters, 0, 0.0).r_hat
            ended = time.perf_counter()
            self._due = ended + _SHARE * (ended - now)
        found = self._texts(self._means)
        return [*found, *([f"R-hat {self._r_hat:.3f}"] if np.isfinite(self._r_hat) else [])]

    def rows(self) -> list[str]:
        """Return a line for each chain, of what `columns` returned last."""
        n = len(self._means)
        found = [f"  chain {c}: {', '.join(self._texts(self._means[[c]]))}" for c in range(n)]
        more = [f"  and {n - _MOST_ROWS} more chains"] if n > _MOST_ROWS else []
        return [*found[:_MOST_ROWS], *more]

    def _texts(self, means: Array) -> list[str]:
        known = ~np.isnan(means)
        texts = []
        for k, name in self._places:
            if not known[:, k].any():
                continue
            mean = float(means[known[:, k], k].mean())
            if name == "lp":
                texts.append(f"lp {mean + self.target.constant:.6g}")
            else:
                texts.append(f"acceptance {mean:.2f}")
        return texts
