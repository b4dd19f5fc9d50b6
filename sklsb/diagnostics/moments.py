"""Moments of draws that are not kept, with errors, from exact sums over batches."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from sklsb.diagnostics.draws import value_coords
from sklsb.diagnostics.tally import CHANCE
from sklsb.targets.base import States, Target

Array = NDArray[np.float64]
# Batches of each chain before pairs are merged, and numbers held for all of them.
_MOST_BATCHES, _FEWEST_BATCHES, _MOST_HELD = 64, 16, 1 << 23
# Most variables whose pairs are summed.
MOST_PAIRED = 256
# Effective draws added to the variance of a marginal, as in `diagnostics.marginals`.
_ADDED = 3.0


class Moments:
    """Sums over the draws of some chains, by batches."""

    def __init__(self, target: Target, n_chains: int):
        self.target = target
        d, self.sizes = target.n_sites, target.cardinalities
        self.paired = d <= MOST_PAIRED
        # Counts of all values but the first of each variable, all pairs, and log p.
        self._n_counts = int((self.sizes - 1).sum())
        width = self._n_counts + (d * d if self.paired else 0) + 1
        room = _MOST_HELD // max(1, n_chains * width)
        n_batches = min(_MOST_BATCHES, max(_FEWEST_BATCHES, room // 4 * 4))
        self.sums = np.zeros((n_chains, n_batches, width))
        self.batch, self.n_draws = 1, 0

    def add(self, states: States, lp: Array) -> None:
        """Add draws (n_chains, n_draws, n_sites) and their log p."""
        done, n = 0, states.shape[1]
        while done < n:
            at, filled = divmod(self.n_draws, self.batch)
            new = slice(done, done + self.batch - filled)
            part = states[:, new]
            self.sums[:, at, :-1] += self._of(part)
            # One after another, so that sums do not depend on how draws are divided into calls.
            terms = np.concatenate([self.sums[:, at, -1:], lp[:, new]], axis=1)
            self.sums[:, at, -1] = np.cumsum(terms, axis=1)[:, -1]
            self.n_draws += part.shape[1]
            done += part.shape[1]
            if self.n_draws == self.sums.shape[1] * self.batch:  # two batches become one
                k = self.sums.shape[1] // 2
                self.sums[:, :k] = self.sums[:, ::2] + self.sums[:, 1::2]
                self.sums[:, k:] = 0.0
                self.batch *= 2

    def _of(self, x: States) -> Array:
        """Return all sums over a few draws but log p: of integers, so they are exact."""
        found = np.empty((len(x), self.sums.shape[2] - 1))
        begin = 0
        for k, value in enumerate(self.target.values[1:], 1):
            sites = self.sizes > k
            end = begin + int(sites.sum())
            found[:, begin:end] = (x[:, :, sites] == value).sum(axis=1)
            begin = end
        if self.paired:
            y = x.astype(np.float64)
            found[:, begin:] = (y.transpose(0, 2, 1) @ y).reshape(len(x), -1)
        return found

    def _spread(self, values: Array) -> Array:
        """Return shape (..., n_sites, n_values), with 0 for the first value of each site."""
        d, n_values = self.target.n_sites, len(self.target.values)
        whole = np.zeros((*values.shape[:-1], d, n_values))
        begin = 0
        for k in range(1, n_values):
            sites = self.sizes > k
            end = begin + int(sites.sum())
            whole[..., sites, k] = values[..., begin:end]
            begin = end
        return whole

    def _shares(self, sums: Array, n_draws: int) -> Array:
        """Return the share of each value in ``n_draws`` draws."""
        counts = self._spread(sums)
        counts[..., 0] = n_draws - counts.sum(axis=-1)  # exact, as a difference of shares is not
        return counts / max(1, n_draws)

    def _means(self) -> tuple[Array, Array]:
        """Return means over all draws, and of full batches, (n_chains, n_batches, width)."""
        total = self.sums.sum(axis=(0, 1)) / max(1, len(self.sums) * self.n_draws)
        full = self.n_draws // self.batch
        return total, self.sums[:, :full] / self.batch

    def dataset(self, attrs: dict[str, Any]) -> xr.Dataset:
        """Return the moments with their standard errors."""
        target, n = self.target, self._n_counts
        mean, batches = self._means()
        p = self._shares(self.sums[..., :n].sum(axis=(0, 1)), len(self.sums) * self.n_draws)
        by_batch = self._shares(self.sums[:, : batches.shape[1], :n], self.batch)
        values = np.array(target.values, dtype=np.float64)
        found: dict[str, Any] = {}

        def put(name: str, dims: tuple[str, ...], value: Array, error: Array) -> None:
            shape = (*target.shape, *value.shape[1:])
            found[name] = (dims, value.reshape(shape))
            found["mcse" if name == "p" else f"{name}_mcse"] = (dims, error.reshape(shape))

        # If a variable could have changed but never did, its error is unknown.
        stuck = ((p == 0) | (p == 1)).all(axis=1) & (target.n_possible > 1)
        of_batches = _errors(by_batch)
        of_p = self._marginal_errors(p, of_batches)
        put("p", (*target.dims, "state"), p, of_p)
        # Few visits widen errors of means as much as errors of the values.
        with np.errstate(divide="ignore", invalid="ignore"):
            wider = np.fmax.reduce(np.where(of_batches > 0, of_p / of_batches, 1.0), axis=1)
        for name, power in (("mean", 1), ("second_moment", 2)):
            errors = wider * _errors(by_batch @ values**power)
            # Values seen only by draws that do not fill a batch.
            least = of_p @ np.abs(values**power - values[0] ** power)
            errors = np.where(errors > 0, errors, least)
            put(name, target.dims, p @ values**power, np.where(stuck, np.nan, errors))
        coords = target.coords | value_coords(target)
        if self.paired:
            again = {dim: f"{dim}_2" for dim in target.dims}
            dims, shape = (*target.dims, *again.values()), (*target.shape, *target.shape)
            errors = _errors(batches[:, :, n:-1]).reshape(stuck.size, stuck.size)
            errors[stuck | stuck[:, np.newaxis]] = np.nan
            free = target.n_possible > 1
            errors[(errors == 0) & free & free[:, np.newaxis] & ~np.eye(free.size, dtype=bool)] = (
                np.nan
            )
            found["pair_moment"] = (dims, mean[n:-1].reshape(shape))
            found["pair_moment_mcse"] = (dims, errors.reshape(shape))
            coords |= {again[dim]: values for dim, values in target.coords.items()}
        found["lp"], found["lp_mcse"] = mean[-1], _errors(batches[:, :, -1])
        return xr.Dataset(found, coords=coords, attrs=attrs)

    def _marginal_errors(self, p: Array, of_batches: Array) -> Array:
        """Return errors as in `diagnostics.marginals`, with the effective size by batches."""
        variance = p * (1 - p)
        with np.errstate(divide="ignore", invalid="ignore"):
            # At most as many as draws: batches know nothing of draws that do not fill one.
            size = np.minimum(variance / of_batches**2, len(self.sums) * self.n_draws)
            errors = np.minimum(0.5, np.sqrt((variance + _ADDED / size) / size))
        unknown = np.where(self.target.n_possible > 1, np.nan, 0.0)[:, np.newaxis]
        errors = np.where((p > 0) & (p < 1), errors, unknown)
        return np.where(np.arange(p.shape[1]) < self.sizes[:, np.newaxis], errors, 0.0)


@np.errstate(over="ignore", invalid="ignore")  # of log p above 1e154
def _errors(means: Array) -> Array:
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
