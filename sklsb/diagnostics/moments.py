"""Moments of draws that are not kept, with errors, from exact sums over batches."""

from typing import Any

import numpy as np
import xarray as xr

from sklsb.diagnostics.batches import Array, Batches, batch_errors, marginal_errors, shape_for
from sklsb.diagnostics.draws import value_coords
from sklsb.targets.base import States, Target

# Most variables whose pairs are summed.
MOST_PAIRED = 256


class Moments(Batches):
    """Sums over the draws of some chains, by batches."""

    def __init__(self, target: Target, n_chains: int):
        self.target = target
        d, self.sizes = target.n_sites, target.cardinalities
        self.paired = d <= MOST_PAIRED
        # Counts of all values but the first of each variable, all pairs, and log p.
        self._n_counts = int((self.sizes - 1).sum())
        width = self._n_counts + (d * d if self.paired else 0) + 1
        super().__init__(shape_for(n_chains, width))

    def add(self, states: States, lp: Array) -> None:
        """Add draws (n_chains, n_draws, n_sites) and their log p."""
        for at, new in self.parts(states.shape[1]):
            part = states[:, new]
            self.sums[:, at, :-1] += self._of(part)
            self.add_in_turn(at, lp[:, new, np.newaxis], -1)

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

    def dataset(self, attrs: dict[str, Any]) -> xr.Dataset:
        """Return the moments with their standard errors."""
        target, n = self.target, self._n_counts
        mean, batches = self.means()
        p = self._shares(self.sums[..., :n].sum(axis=(0, 1)), len(self.sums) * self.n_draws)
        by_batch = self._shares(self.full[..., :n], self.size)
        values = np.array(target.values, dtype=np.float64)
        found: dict[str, Any] = {}

        def put(name: str, dims: tuple[str, ...], value: Array, error: Array) -> None:
            shape = (*target.shape, *value.shape[1:])
            found[name] = (dims, value.reshape(shape))
            found["mcse" if name == "p" else f"{name}_mcse"] = (dims, error.reshape(shape))

        # If a variable could have changed but never did, its error is unknown.
        stuck = ((p == 0) | (p == 1)).all(axis=1) & (target.n_possible > 1)
        of_batches = batch_errors(by_batch)
        of_p = self._marginal_errors(p, of_batches)
        put("p", (*target.dims, "state"), p, of_p)
        # Few visits widen errors of means as much as errors of the values.
        with np.errstate(divide="ignore", invalid="ignore"):
            wider = np.fmax.reduce(np.where(of_batches > 0, of_p / of_batches, 1.0), axis=1)
        for name, power in (("mean", 1), ("second_moment", 2)):
            errors = wider * batch_errors(by_batch @ values**power)
            # Values seen only by draws that do not fill a batch.
            least = of_p @ np.abs(values**power - values[0] ** power)
            errors = np.where(errors > 0, errors, least)
            put(name, target.dims, p @ values**power, np.where(stuck, np.nan, errors))
        coords = target.coords | value_coords(target)
        if self.paired:
            again = {dim: f"{dim}_2" for dim in target.dims}
            dims, shape = (*target.dims, *again.values()), (*target.shape, *target.shape)
            errors = batch_errors(batches[:, :, n:-1]).reshape(stuck.size, stuck.size)
            errors[stuck | stuck[:, np.newaxis]] = np.nan
            free = target.n_possible > 1
            errors[(errors == 0) & free & free[:, np.newaxis] & ~np.eye(free.size, dtype=bool)] = (
                np.nan
            )
            found["pair_moment"] = (dims, mean[n:-1].reshape(shape))
            found["pair_moment_mcse"] = (dims, errors.reshape(shape))
            coords |= {again[dim]: values for dim, values in target.coords.items()}
        found["lp"], found["lp_mcse"] = mean[-1], batch_errors(batches[:, :, -1])
        return xr.Dataset(found, coords=coords, attrs=attrs)

    def _marginal_errors(self, p: Array, of_batches: Array) -> Array:
        """Return errors as in `diagnostics.marginals`, with the effective size by batches."""
        # At most as many as draws: batches know nothing of draws that do not fill one.
        errors = marginal_errors(p, of_batches, len(self.sums) * self.n_draws)
        unknown = np.where(self.target.n_possible > 1, np.nan, 0.0)[:, np.newaxis]
        errors = np.where((p > 0) & (p < 1), errors, unknown)
        return np.where(np.arange(p.shape[1]) < self.sizes[:, np.newaxis], errors, 0.0)
