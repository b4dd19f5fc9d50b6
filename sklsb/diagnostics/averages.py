"""Marginals as averages of conditional distributions, over draws that are not kept."""

from typing import Any

import numpy as np
import xarray as xr

from sklsb._kernels.run import Sums, places_of
from sklsb._system.arrays import Array
from sklsb._system.memory import at_once
from sklsb.diagnostics.batches import (
    ByValue,
    batch_errors,
    error_of,
    marginal_errors,
    time_by_visits,
)
from sklsb.targets.base import States, Target

# A value with so few visits has at least the error of counting its draws; one with k times as many,
# at least a k-th of that.
_FEW_VISITS = 8.0
_EPS = float(np.finfo(np.float64).eps)
# Probabilities computed at once from a target's log-ratios.
_BLOCK = 1 << 20


class Averages(ByValue):
    """Sums of p(x_i = s | rest) over the draws of some chains, by batches.

    Kernels add to `of_kernel` what they draw; for other chains `add` computes it.
    """

    def __init__(self, target: Target, n_chains: int):
        super().__init__(target, n_chains)
        self._places = places_of(target.values)
        self._weight = np.empty((n_chains, len(target.values)))
        shape = target.n_sites, len(target.values)
        # Draws with each value, and runs of draws with it and without it.
        self._hits, self._inside, self._outside = np.zeros((3, *shape), dtype=np.int64)
        self._last = np.empty((n_chains, 0, target.n_sites), dtype=target.dtype)

    @property
    def of_kernel(self) -> Sums:
        """Where a kernel adds at most `left` draws."""
        return Sums(self.sums, self._places, self._weight, self.size, self.n_draws)

    def add(self, states: States, lp: Array, by_kernel: bool = False) -> None:
        """Add at most `left` draws (n_chains, n_draws, n_sites) and their log p."""
        self._count_visits(states)
        if not by_kernel:
            self._add_conditionals(states)
        for at, new in self.parts(states.shape[1]):
            self.add_in_turn(at, lp[:, new, np.newaxis], -1)

    def _count_visits(self, states: States) -> None:
        if not states.shape[1]:
            return
        first = not self._last.shape[1]
        x = np.concatenate([self._last, states], axis=1)
        for k, value in enumerate(self.target.values):
            hit = x == value
            came, went = hit[:, 1:] & ~hit[:, :-1], hit[:, :-1] & ~hit[:, 1:]
            self._hits[:, k] += (states == value).sum(axis=(0, 1))
            self._inside[:, k] += came.sum(axis=(0, 1)) + first * hit[:, 0].sum(axis=0)
            self._outside[:, k] += went.sum(axis=(0, 1)) + first * (~hit[:, 0]).sum(axis=0)
        self._last = states[:, -1:].copy()

    def _fewest_errors(self) -> Array:
        """Return the least errors: of counting where visits are few, and of rounding."""
        n = len(self.sums) * self.n_draws
        visits = np.minimum(self._inside, self._outside)
        share = self._hits / max(1, n)
        with np.errstate(divide="ignore", invalid="ignore"):
            counted = error_of(share, n / np.maximum(1.0, time_by_visits(share, n, visits)))
            few = counted * np.minimum(1.0, _FEW_VISITS / visits)
        return np.fmax(few, 4.0 * _EPS * np.sqrt(n))

    def _add_conditionals(self, states: States) -> None:
        n_chains, n = states.shape[:2]
        size = at_once(_BLOCK, n_chains * self.n_values)
        for begin in range(0, n, size):
            found = conditionals(self.target, states[:, begin : begin + size])
            # One draw after another, so that sums do not depend on how draws are divided.
            for k in range(found.shape[1]):
                at = (self.n_draws + begin + k) // self.size
                self.sums[:, at, :-1] += found[:, k]

    def dataset(self, attrs: dict[str, Any]) -> xr.Dataset:
        """Return the marginals with their standard errors."""
        mean, batches = self.means()
        p = self.spread(np.clip(mean[:-1], 0.0, 1.0))
        errors = marginal_errors(p, batch_errors(self.spread(batches[..., :-1])), np.inf)
        # NaN as long as there are few draws.
        errors = np.where(np.isnan(errors), np.nan, np.fmax(errors, self._fewest_errors()))
        # Nothing tells how long a value lasts that was never seen, or that was never left.
        errors = np.where((self._inside > 0) & (self._outside > 0), errors, np.nan)
        errors[self.target.n_possible <= 1] = 0.0
        errors[~self.has] = 0.0
        return self.labelled({"p": (p, errors)}, attrs)


def conditionals(target: Target, states: States) -> Array:
    """Return p(x_i = s | rest) at possible states (..., n_sites), site by site, value by value."""
    k, site = target.cardinalities, target.offers.site_of_moves
    start = np.cumsum(k) - k
    value = target.offers.after_moves(np.searchsorted(np.asarray(target.values), states))
    logits = np.zeros((*states.shape[:-1], int(k.sum())))
    np.put_along_axis(logits, start[site] + value, target.log_ratios(states), axis=-1)
    if not k.size:
        return logits
    largest = np.maximum.reduceat(logits, start, axis=-1)
    weight = np.exp(logits - np.repeat(largest, k, axis=-1))
    total = np.add.reduceat(weight, start, axis=-1)
    return np.asarray(weight / np.repeat(total, k, axis=-1))
