"""The observer that keeps states or statistics at every temperature of the ladders."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb._system.memory import check_fits
from sklsb.ensembles.base import Room, Segment
from sklsb.samplers._run.observers import Call, Kept, KeptStatistics, Statistics
from sklsb.samplers._tempering.ladders import Ladders


class AtLevels(KeptStatistics):
    """Keeps statistics of the states at all levels, or these, with their log p and visits.

    To what it inherits, each level of each ladder is a chain.
    """

    def __init__(self, ladders: Ladders, statistics: Statistics):
        super().__init__(statistics or {"x": lambda states: states}, ladders.chains.x[0])
        self.ladders, self.of_states, self.n_levels = ladders, not statistics, ladders.beta.size

    def init(self, call: Call) -> Kept:
        # States are there twice in the end.
        kept = 2 * call.target.n_sites * call.target.dtype.itemsize if self.of_states else 0
        check_fits(
            call.n_chains * call.n_draws * self.n_levels * (kept + 16),
            f"sample({call.n_draws}) of {call.n_chains} chains at {self.n_levels} temperatures",
            "Record statistics of the states, or make fewer draws that are farther apart, thin.",
        )
        return super().init(call._replace(n_chains=call.n_chains * self.n_levels))

    def most(self, carry: Kept) -> int:
        return carry.call.most_shown

    def room(self, carry: Kept, n: int) -> Room:
        carry.levels = self.ladders.new_levels(n)
        return self.ladders.room(n, len(carry.call.stat_names))._replace(sums=carry.levels)

    def see(self, carry: Kept, chunk: Segment) -> Kept:
        shape, target = (carry.call.n_chains, chunk.lp.shape[1]), carry.call.target
        x, stats = (np.moveaxis(values, 2, 1) for values in carry.levels)
        stats[..., 0] += target.constant
        x, stats = x.reshape(*shape, *target.shape), stats.reshape(*shape, -1)
        return super().see(carry, chunk._replace(x=x, stats=stats))

    def stats(self, carry: Kept) -> xr.Dataset:
        last = super().stats(carry).isel(chain=slice(self.n_levels - 1, None, self.n_levels))
        return last.assign_coords(chain=np.arange(last.sizes["chain"]))

    def result(self, carry: Kept) -> xr.Dataset:
        target, stats, found = carry.call.target, super().stats(carry), super().result(carry)
        lead = carry.call.n_chains // self.n_levels, self.n_levels, stats.sizes["draw"]

        def by_level(of: xr.DataArray) -> tuple[tuple[Any, ...], NDArray[Any]]:
            is_state = self.of_states and of.name == "x"
            shape, dims = (target.shape, target.dims) if is_state else (of.shape[2:], of.dims[2:])
            values = of.values.reshape(*lead, *shape)
            return ("chain", "draw", "beta", *dims), np.moveaxis(values, 1, 2)

        coords: dict[Any, Any] = {
            "chain": np.arange(lead[0]),
            "draw": carry.call.first_draw + np.arange(lead[2]),
            "beta": self.ladders.beta.copy(),
            **{name: by_level(of) for name, of in stats.items()},
            **(target.coords if self.of_states else {}),
        }
        data = {name: by_level(of) for name, of in found.items()}
        return xr.Dataset(data, coords, {"n_sites": target.n_sites})
