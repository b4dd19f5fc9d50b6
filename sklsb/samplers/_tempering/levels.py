"""The observer that keeps states or statistics at every temperature of the ladders."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb._kernels.tempering.scan import Levels
from sklsb._system.memory import at_once, check_fits
from sklsb.diagnostics.draws import stats_dataset
from sklsb.samplers._run.observers import MOST_SHOWN, Call, Chunk, Observer, Statistics, apply
from sklsb.samplers._tempering.ladders import Ladders
from sklsb.targets.base import States

Array = NDArray[np.float64]


@dataclass
class _Kept:
    """Draws so far: log p and visits, and what is recorded, a chunk after another."""

    call: Call
    stats: Array  # (n_chains, n_draws, n_levels, 2)
    recorded: dict[str, list[NDArray[Any]]]
    done: int = 0
    levels: Levels = field(init=False)  # of the present chunk


class AtLevels(Observer):
    """Keeps the states at all levels, or statistics of them, with their log p and visits."""

    def __init__(self, ladders: Ladders, statistics: Statistics):
        self.ladders, self.statistics = ladders, statistics

    def init(self, call: Call) -> _Kept:
        shape = call.n_chains, call.n_draws, self.ladders.beta.size, 2
        kept = 0 if self.statistics else 2 * call.target.n_sites * call.target.dtype.itemsize
        check_fits(
            int(np.prod(shape[:3])) * (kept + 16),
            f"sample({call.n_draws}) of {call.n_chains} chains at {shape[2]} temperatures",
            "Record statistics of the states, or make fewer draws that are farther apart, thin.",
        )
        names = self.statistics or ("x",)
        return _Kept(call, np.empty(shape), {name: [] for name in names})

    def most(self, carry: _Kept) -> int:
        n_chains, _, n_levels, _ = carry.stats.shape
        return at_once(MOST_SHOWN, n_chains * n_levels * carry.call.target.n_sites)

    def room(self, carry: _Kept, n: int) -> tuple[States, Array, int] | None:
        carry.levels = self.ladders.new_levels(n)
        return None

    def _sums(self, carry: _Kept) -> tuple[Any, ...]:
        return (carry.levels,)

    def see(self, carry: _Kept, chunk: Chunk) -> _Kept:
        target, begin, (x, stats) = carry.call.target, carry.done, carry.levels
        lead = x.shape[:3]
        carry.done += lead[1]
        carry.stats[:, begin : carry.done] = stats
        if not self.statistics:
            carry.recorded["x"].append(x.reshape(*lead, *target.shape))
        for name, statistic in self.statistics.items():
            rows = x.reshape(len(x), -1, *target.shape)
            values = np.stack([apply(name, statistic, states) for states in rows])
            carry.recorded[name].append(values.reshape(*lead, *values.shape[2:]))
        return carry

    def stats(self, carry: _Kept) -> xr.Dataset:
        lp, visit = np.moveaxis(carry.stats[:, : carry.done, -1], 2, 0)
        found = {"lp": lp + carry.call.target.constant, "visit": visit.copy()}
        return stats_dataset(found, carry.call.first_draw)

    def result(self, carry: _Kept) -> xr.Dataset:
        target, first, stats = carry.call.target, carry.call.first_draw, carry.stats
        dims, done = ("chain", "draw", "beta"), carry.done
        data: dict[str, Any] = {}
        for name, parts in carry.recorded.items():
            shape = () if self.statistics else target.shape
            none = np.empty((len(stats), 0, stats.shape[2], *shape))
            values = np.concatenate(parts or [none], axis=1)
            more = [f"{name}_dim_{k}" for k in range(values.ndim - 3)]
            data[name] = ((*dims, *(more if self.statistics else target.dims)), values)
        coords = {
            "chain": np.arange(len(stats)),
            "draw": np.arange(first, first + done),
            "beta": self.ladders.beta.copy(),
            "lp": (dims, stats[:, :done, :, 0] + target.constant),
            "visit": (dims, stats[:, :done, :, 1]),
            **({} if self.statistics else target.coords),
        }
        return xr.Dataset(data, coords, {"n_sites": target.n_sites})
