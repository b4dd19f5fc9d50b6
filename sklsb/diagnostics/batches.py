"""Sums over draws by batches, and the standard errors that their means give."""

import math
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import check_fits
from sklsb.diagnostics.draws import value_coords
from sklsb.targets.base import Target

T = TypeVar("T")
# Probability of a false alarm for chains that agree, over all comparisons.
CHANCE = 0.01
# Batches of each chain for moments and marginals, and numbers held for all of them.
_MOST_BATCHES, _FEWEST_BATCHES, _MOST_HELD = 64, 16, 1 << 23
# Times that sums are held while answers are made of them.
_COPIES = 4
# Effective draws added to the variance of a marginal.
_ADDED = 3.0


class Batches:
    """Sums over the draws of each chain, by batches of ``size`` draws.

    When all batches are full, two become one: memory does not grow with the draws, and where a
    batch ends depends on their number alone.

    Parameters
    ----------
    shape : tuple of int
        Shape of ``sums``: chains, an even number of batches, and the numbers that are summed.
    dtype : dtype
        Of the sums; integers that count draws get more bytes when they need them.
    size : int
        Draws of a batch at first.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any = np.float64, size: int = 1):
        self.sums: NDArray[Any] = np.zeros(shape, dtype)
        self.size, self.n_draws = size, 0

    def __getstate__(self) -> dict[str, Any]:
        # Only batches that have begun, in few bytes: checkpoints are written often.
        begun, shape = self.begun, self.sums.shape
        if begun.dtype.kind == "i":
            begun = begun.astype(np.min_scalar_type(begun.max(initial=0)))
        return vars(self) | {"sums": (shape, self.sums.dtype.str, begun)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        shape, dtype, begun = state["sums"]
        vars(self).update(state, sums=np.zeros(shape, dtype))
        self.sums[:, : begun.shape[1]] = begun

    @property
    def left(self) -> int:
        """Draws until batches are merged."""
        return self.sums.shape[1] * self.size - self.n_draws

    @property
    def full(self) -> NDArray[Any]:
        """Sums of full batches, (n_chains, n_full, ...)."""
        return self.sums[:, : self.n_draws // self.size]

    @property
    def begun(self) -> NDArray[Any]:
        """Sums of batches with draws, (n_chains, n_begun, ...)."""
        return self.sums[:, : -(-self.n_draws // self.size)]

    def add_draw(self, values: NDArray[Any]) -> None:
        """Add a draw of each chain, (n_chains, ...)."""
        self.sums[:, self.n_draws // self.size] += values
        self.count(1)

    def parts(self, n: int) -> Iterator[tuple[int, slice]]:
        """Yield for n new draws the batch that takes some, and which; afterwards these count."""
        done = 0
        while done < n:
            at, filled = divmod(self.n_draws, self.size)
            new = slice(done, min(n, done + self.size - filled))
            yield at, new
            self.count(new.stop - new.start)
            done = new.stop

    def add_in_turn(self, at: int, values: NDArray[Any], first: int = 0) -> None:
        """Add the numbers from ``first`` on of some draws, (n_chains, n, ...), to a batch.

        One after another, so that sums do not depend on how draws are divided into calls.
        """
        kept = self.sums[:, at, first:]
        terms = np.concatenate([kept[:, np.newaxis], values], axis=1)
        kept[:] = np.cumsum(terms, axis=1)[:, -1]

    def count(self, n: int) -> None:
        """Count draws, of which there are at most ``left``."""
        self.n_draws += n
        if not self.left:
            k, kind = self.sums.shape[1] // 2, self.sums.dtype
            if kind.kind == "i" and 2 * self.size > np.iinfo(kind).max:
                self.sums = self.sums.astype(f"i{2 * kind.itemsize}")
            self.sums[:, :k] = self.sums[:, ::2] + self.sums[:, 1::2]
            self.sums[:, k:] = 0
            self.size *= 2

    def means(self) -> tuple[Array, Array]:
        """Return means over all draws, and of full batches, (n_chains, n_full, ...)."""
        total = self.sums.sum(axis=(0, 1)) / max(1, len(self.sums) * self.n_draws)
        return total, self.full / self.size


class ByValue(Batches):
    """Sums of a number for each value of each variable, of ``more`` numbers, and of log p."""

    def __init__(self, target: Target, n_chains: int, more: int = 0):
        self.target = target
        self.has = np.arange(len(target.values)) < target.cardinalities[:, np.newaxis]
        self.n_values = int(target.cardinalities.sum())
        shape = shape_for(n_chains, self.n_values + more + 1)
        check_fits(
            _COPIES * 8 * math.prod(shape),
            f"the sums over draws of {n_chains} chains of {target.n_sites} variables",
            "Record functions of the states, record={name: function}; or write the draws to the "
            'disk, store="run.zarr".',
        )
        super().__init__(shape)

    def spread(self, values: Array) -> Array:
        """Return shape (..., n_sites, n_values), 0 where a variable does not have the value."""
        whole = np.zeros((*values.shape[:-1], *self.has.shape))
        whole[..., self.has] = values
        return whole

    def labelled(self, found: dict[str, tuple[Array, Array]], attrs: dict[str, Any]) -> xr.Dataset:
        """Return numbers with their errors, of each variable or each of its values, and log p."""
        target, (mean, batches) = self.target, self.means()
        data: dict[str, Any] = {}
        for name, both in found.items():
            dims = target.dims if both[0].ndim == 1 else (*target.dims, "state")
            names = name, "mcse" if name == "p" else f"{name}_mcse"
            for label, values in zip(names, both, strict=True):
                data[label] = (dims, values.reshape(*target.shape, *values.shape[1:]))
        data |= {"lp": mean[-1], "lp_mcse": batch_errors(batches[:, :, -1])}
        return xr.Dataset(data, coords=target.coords | value_coords(target), attrs=attrs)


class Thinned(Generic[T]):
    """Some of the items that were added, at equal distances: with ``most``, each second goes."""

    def __init__(self, most: int):
        self.most, self.every, self.n_added = most, 1, 0
        self.kept: list[T] = []

    def add(self, item: T) -> None:
        """Keep an item if it is its turn."""
        if self.n_added % self.every == 0:
            self.kept.append(item)
            if len(self.kept) == self.most:
                self.kept = self.kept[::2]
                self.every *= 2
        self.n_added += 1


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


def jackknife_error(without: Array) -> float:
    """Return the standard error of an estimate, given those without each of several parts."""
    n = len(without)
    return float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))


def shape_for(n_chains: int, width: int) -> tuple[int, int, int]:
    """Return a shape of batches that have ``width`` numbers and fit in memory."""
    room = _MOST_HELD // max(1, n_chains * width)
    return n_chains, min(_MOST_BATCHES, max(_FEWEST_BATCHES, room // 4 * 4)), width


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


def time_by_visits(p: Array, n: int, visits: Ints) -> Array:
    """Return how many of n draws are worth an independent one, by visits to a value.

    Exact for chains of two states. ``visits`` are the runs of draws that have the value, or of
    those that do not, whichever are fewer.
    """
    return np.asarray(2.0 * n * p * (1.0 - p) / visits - 1.0)
