"""Moments of draws that are not kept, with errors, from exact sums over batches."""

from typing import Any

import numpy as np
import xarray as xr

from sklsb._system.arrays import Array
from sklsb.diagnostics.batches import ByValue, batch_errors, marginal_errors
from sklsb.targets.base import States, Target

# Most variables whose pairs are summed.
MOST_PAIRED = 256


class Moments(ByValue):
    """Counts of all values, and sums of the products of all pairs of variables, by batches."""

    def __init__(self, target: Target, n_chains: int):
        self.paired = target.n_sites <= MOST_PAIRED
        super().__init__(target, n_chains, target.n_sites**2 if self.paired else 0)

    def add(self, states: States, lp: Array) -> None:
        """Add draws (n_chains, n_draws, n_sites) and their log p."""
        for at, new in self.parts(states.shape[1]):
            part = states[:, new]
            self.sums[:, at, :-1] += self._of(part)
            self.add_in_turn(at, lp[:, new, np.newaxis], -1)

    def _of(self, x: States) -> Array:
        """Return all sums over a few draws but log p: of integers, so they are exact."""
        counts = np.zeros((len(x), *self.has.shape))
        for k, value in enumerate(self.target.values[1:], 1):
            counts[:, :, k] = (x == value).sum(axis=1)
        counts[:, :, 0] = x.shape[1] - counts.sum(axis=2)
        found = np.empty((len(x), self.sums.shape[2] - 1))
        found[:, : self.n_values] = counts[:, self.has]
        if self.paired:
            y = x.astype(np.float64)
            found[:, self.n_values :] = (y.transpose(0, 2, 1) @ y).reshape(len(x), -1)
        return found

    def dataset(self, attrs: dict[str, Any]) -> xr.Dataset:
        """Return the moments with their standard errors."""
        target, n = self.target, self.n_values
        mean, batches = self.means()
        p, by_batch = self.spread(mean[:n]), self.spread(batches[..., :n])
        values = np.array(target.values, dtype=np.float64)
        # If a variable could have changed but never did, its error is unknown.
        stuck = ((p == 0) | (p == 1)).all(axis=1) & (target.n_possible > 1)
        of_batches = batch_errors(by_batch)
        # At most as many as draws: batches know nothing of draws that do not fill one.
        of_p = marginal_errors(p, of_batches, len(self.sums) * self.n_draws)
        unknown = np.where(target.n_possible > 1, np.nan, 0.0)[:, np.newaxis]
        of_p = np.where(self.has, np.where((p > 0) & (p < 1), of_p, unknown), 0.0)
        found = {"p": (p, of_p)}
        # Few visits widen errors of means as much as errors of the values.
        with np.errstate(divide="ignore", invalid="ignore"):
            wider = np.fmax.reduce(np.where(of_batches > 0, of_p / of_batches, 1.0), axis=1)
        for name, power in (("mean", 1), ("second_moment", 2)):
            errors = wider * batch_errors(by_batch @ values**power)
            # Values seen only by draws that do not fill a batch.
            least = of_p @ np.abs(values**power - values[0] ** power)
            errors = np.where(errors > 0, errors, least)
            found[name] = p @ values**power, np.where(stuck, np.nan, errors)
        result = self.labelled(found, attrs)
        if self.paired:
            again = {dim: f"{dim}_2" for dim in target.dims}
            dims, shape = (*target.dims, *again.values()), (*target.shape, *target.shape)
            errors = batch_errors(batches[:, :, n:-1]).reshape(stuck.size, stuck.size)
            errors[stuck | stuck[:, np.newaxis]] = np.nan
            free = target.n_possible > 1
            unknown = (errors == 0) & free & free[:, np.newaxis] & ~np.eye(free.size, dtype=bool)
            errors[unknown] = np.nan
            result["pair_moment"] = (dims, mean[n:-1].reshape(shape))
            result["pair_moment_mcse"] = (dims, errors.reshape(shape))
            result.coords.update({again[dim]: values for dim, values in target.coords.items()})
        return result
