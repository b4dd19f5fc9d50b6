"""Columns of the progress line of a call: what its draws show so far."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sklsb.diagnostics.stopping import RunSoFar
from sklsb.diagnostics.tally import Counters
from sklsb.targets.base import Target

# Most chains with a line of their own.
_MOST_ROWS = 16
# R-hat takes at most one part in this many of the time.
_SHARE = 50

_SHOWN = ("acceptance_rate", "lp")

Array = NDArray[np.float64]


class Seen:
    """R-hat so far, and means of the statistics ``names`` of draws since they were last shown."""

    def __init__(self, target: Target, counters: Counters, names: Sequence[str], n_chains: int):
        self.target, self.counters = target, counters
        self._places = [(names.index(name), name) for name in _SHOWN if name in names]
        self._sum = np.zeros((n_chains, len(names)))
        self._n = np.zeros((n_chains, len(names)), dtype=np.int64)
        self._means = np.full((n_chains, len(names)), np.nan)
        self._r_hat, self._due = np.nan, 0.0

    def add(self, stats: Array) -> None:
        """Add statistics of draws, shape (n_chains, n_draws, n_names)."""
        known = ~np.isnan(stats)
        self._sum += np.where(known, stats, 0.0).sum(axis=1)
        self._n += known.sum(axis=1)

    def columns(self, last: bool = False) -> list[str]:
        """Return the means over all chains since the last call, and the worst R-hat so far."""
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
        """Return a line per chain with the means that `columns` returned last."""
        n = len(self._means)
        found = [f"  chain {c}: {', '.join(self._texts(self._means[[c]]))}" for c in range(n)]
        more = [f"  and {n - _MOST_ROWS} more chains"] if n > _MOST_ROWS else []
        return [*found[:_MOST_ROWS], *more]

    def _texts(self, means: Array) -> list[str]:
        texts = []
        for k, name in self._places:
            known = means[~np.isnan(means[:, k]), k]
            if known.size and name == "lp":
                texts.append(f"lp {known.mean() + self.target.constant:.6g}")
            elif known.size:
                texts.append(f"acceptance {known.mean():.2f}")
        return texts
