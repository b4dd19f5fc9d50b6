"""Where the draws of a call go: to memory, to statistics, or to a store."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sklsb._system.memory import check_fits
from sklsb.diagnostics.draws import OF_DRAWS, draws_dataset, stats_dataset
from sklsb.diagnostics.moments import Moments
from sklsb.exceptions import StoreError
from sklsb.storage.stores import Store, chunk_size, open_draws, open_stats
from sklsb.targets.base import States, Target

# Bytes of states held for the statistics of `record`.
_MOST_RECORDED = 1 << 24

Array = NDArray[np.float64]
Record = dict[str, Callable[[States], ArrayLike]]


class Call(NamedTuple):
    """What a call of `sample` asks for."""

    n_chains: int
    n_draws: int
    first_draw: int
    stat_names: tuple[str, ...]


# Names of variables and coordinates of draws, and of what stands beside them in a store.
_TAKEN = ("chain", "draw", "lp", "acceptance_rate", "log_weight", "visit", "sklsb", "zarr.json")


def check_record(record: Any) -> "Record | str":
    """Return the statistics that were asked for, or say what is wrong with them."""
    if record is None:
        return {}
    if isinstance(record, str):
        if record != "moments":
            raise ValueError(f'record is {record!r}; give "moments", or a dict of callables.')
        return record
    if not isinstance(record, dict) or not record:
        raise TypeError(f"record is {record!r}; give a dict of names and callables.")
    for name, statistic in record.items():
        if not isinstance(name, str) or not callable(statistic):
            raise TypeError(
                f"record[{name!r}] is {statistic!r}; names must be strings and values "
                "callables that take states of shape (n_draws, *target.shape)."
            )
        if name in _TAKEN or not name or "/" in name or name[0] in "._":
            raise ValueError(
                f"record[{name!r}] has a name that draws or stores use: none of {list(_TAKEN)}, "
                'no "/", and no dot or underscore at the beginning. Rename it.'
            )
    return record


def apply(target: Target, name: str, statistic: Any, states: States) -> NDArray[Any]:
    """Return a statistic of states of shape (n_draws, n_sites)."""
    states = states.reshape(-1, *target.shape).copy()
    try:
        values = np.asarray(statistic(states))
    except Exception as error:
        error.add_note(f"It came from record[{name!r}], given states of shape {states.shape}.")
        raise
    if values.shape[:1] != states.shape[:1]:
        raise ValueError(
            f"record[{name!r}] returned shape {values.shape} for states of shape "
            f"{states.shape}; its first axis must have length {states.shape[0]}."
        )
    return values


class Sink(ABC):
    """Where draws go.

    `room` gives arrays to write some draws to, `put` says that they were written; in the end come
    `end`, if nothing failed, and `result`.
    """

    most: int  # draws that it takes at once

    @abstractmethod
    def room(self, n: int) -> tuple[States, Array, int]:
        """Return arrays with chains and draws as their first axes, and where the next draw goes."""

    @abstractmethod
    def put(self, n: int) -> None:
        """Take n draws, which were written to what `room` returned."""

    def end(self, stopped_by: str | None = None) -> None:  # noqa: B027
        """Take notice that there are no more, and which rule stopped them, if any was given."""

    @abstractmethod
    def result(self, n: int, attrs: dict[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
        """Return what `sample` returns, and what is known of each of its n draws."""

    @abstractmethod
    def acceptance(self, n: int) -> float | None:
        """Return the mean acceptance rate of n draws, if it is known."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027
        """Let go of files."""


class InMemory(Sink):
    """All draws, in memory."""

    keeps_states = True

    def __init__(self, target: Target, call: Call):
        self.target, self.call = target, call
        self.most = max(1, call.n_draws)
        self._check_memory()
        self.stats = np.empty((call.n_chains, call.n_draws, len(call.stat_names)))
        self.done = 0
        self._allocate()

    def _check_memory(self) -> None:
        n_chains, n, _, names = self.call
        of_state = self.target.n_sites * self.target.dtype.itemsize if self.keeps_states else 0
        check_fits(
            n_chains * n * (of_state + 8 * len(names)),
            f"sample({n}) of {n_chains} chains of {self.target.n_sites} variables",
            'Write the draws to the disk, store="run.zarr"; keep no draws, record="moments"; or '
            "make fewer draws that are farther apart, thin.",
        )

    def _allocate(self) -> None:
        shape = (self.call.n_chains, self.call.n_draws, self.target.n_sites)
        self.states = np.empty(shape, dtype=self.target.dtype)

    def room(self, n: int) -> tuple[States, Array, int]:
        """Return the arrays of all draws."""
        return self.states, self.stats, self.done

    def put(self, n: int) -> None:
        """Count them."""
        self.done += n

    def result(self, n: int, attrs: dict[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
        """Return the states, and their statistics."""
        stats = self.stats[:, :n]
        stats[:, :, 0] += self.target.constant
        names = self.call.stat_names
        values = {name: stats[:, :, k].copy() for k, name in enumerate(names)}
        known = stats_dataset(values, attrs, self.call.first_draw)
        return self._draws(n, attrs, known), known

    def _draws(self, n: int, attrs: dict[str, Any], known: xr.Dataset) -> xr.Dataset:
        found = draws_dataset(self.states[:, :n], self.target, attrs, self.call.first_draw)
        return found.assign_coords({name: known[name] for name in OF_DRAWS if name in known})

    def acceptance(self, n: int) -> float | None:
        """Return the mean acceptance rate, if it is known."""
        if "acceptance_rate" not in self.call.stat_names or not n:
            return None
        return float(self.stats[:, :n, self.call.stat_names.index("acceptance_rate")].mean())


class Running(Sink):
    """Moments of the draws, and nothing of any one."""

    def __init__(self, target: Target, call: Call):
        self.target, self.call = target, call
        self.most = max(1, _MOST_RECORDED // max(1, call.n_chains * target.n_sites))
        self.moments = Moments(target, call.n_chains)
        self._sum = 0.0

    def room(self, n: int) -> tuple[States, Array, int]:
        """Return arrays of a few draws."""
        n_chains, names = self.call.n_chains, self.call.stat_names
        self._states = np.empty((n_chains, n, self.target.n_sites), dtype=self.target.dtype)
        self._stats = np.empty((n_chains, n, len(names)))
        return self._states, self._stats, 0

    def put(self, n: int) -> None:
        """Count them."""
        self.moments.add(self._states, self._stats[:, :, 0] + self.target.constant)
        if "acceptance_rate" in self.call.stat_names:
            place = self.call.stat_names.index("acceptance_rate")
            self._sum += float(self._stats[:, :, place].sum())

    def result(self, n: int, attrs: dict[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
        """Return the moments, and statistics of no draw."""
        empty = {name: np.empty((self.call.n_chains, 0)) for name in self.call.stat_names}
        return self.moments.dataset(attrs | {"n_draws": n}), stats_dataset(empty, attrs)

    def acceptance(self, n: int) -> float | None:
        """Return the mean acceptance rate, if it is known."""
        if "acceptance_rate" not in self.call.stat_names or not n:
            return None
        return self._sum / (n * self.call.n_chains)


class Recorded(InMemory):
    """Statistics of the draws, in memory."""

    keeps_states = False

    def __init__(self, target: Target, call: Call, record: Record):
        self.record = record
        self.recorded: dict[str, list[NDArray[Any]]] = {name: [] for name in record}
        super().__init__(target, call)
        self.most = max(1, _MOST_RECORDED // max(1, call.n_chains * target.n_sites))

    def _allocate(self) -> None:
        self.part = np.empty((0, 0, 0), dtype=self.target.dtype), np.empty((0, 0, 0))

    def room(self, n: int) -> tuple[States, Array, int]:
        """Return arrays of a few draws."""
        n_chains, names = self.call.n_chains, self.call.stat_names
        shape = (n_chains, n, self.target.n_sites)
        states = np.empty(shape, dtype=self.target.dtype)
        self.part = states, np.empty((n_chains, n, len(names)))
        return *self.part, 0

    def put(self, n: int) -> None:
        """Compute their statistics."""
        states, stats = self.part
        self.stats[:, self.done : self.done + n] = stats
        for name, statistic in self.record.items() if n else ():
            values = [apply(self.target, name, statistic, x) for x in states]
            self.recorded[name].append(np.stack(values))
        super().put(n)

    def _draws(self, n: int, attrs: dict[str, Any], known: xr.Dataset) -> xr.Dataset:
        empty = np.empty((self.call.n_chains, 0))
        values = {
            name: np.concatenate(parts, axis=1) if parts else empty
            for name, parts in self.recorded.items()
        }
        return stats_dataset(values, attrs, self.call.first_draw)


class Stored(Sink):
    """Draws or their statistics, in a store.

    Parameters
    ----------
    sampler : BaseSampler
        Whose draws they are.
    path : str
        The store: a new one, or one of this very sampler.
    settings : dict
        What must not change from call to call: ``thin`` and ``stats``, names of statistics.
    record : dict
        Statistics that are stored instead of the states.
    n : int
        Draws of this call.
    """

    def __init__(self, sampler: Any, path: str, settings: dict[str, Any], record: Record, n: int):
        self.sampler, self.target, self.record = sampler, sampler.target_, record
        self.stats = settings["stats"]
        self.path = Path(path)
        chains = sampler._packed_chains()
        self.store = self._opened(chains, settings, self._variables(), n)
        self.first = self.store.n_draws
        self.most = self.store.chunk - self.store.filled
        self._sum = 0.0

    def _variables(self) -> list[tuple[str, tuple[str, ...], str, tuple[int, ...]]]:
        """Name, dims, type and shape of a draw of all that is stored; chains come first."""
        n_chains, found = len(self.sampler._ensemble), []
        if not self.record:
            found.append(("x", self.target.dims, self.target.dtype.str, self.target.shape))
        for name, statistic in self.record.items():
            x = self.sampler._ensemble.chains.x[:1]
            values = apply(self.target, name, statistic, x)
            dims = tuple(f"{name}_dim_{k}" for k in range(values.ndim - 1))
            found.append((name, dims, values.dtype.str, values.shape[1:]))
        found += [(name, (), "<f8", ()) for name in self.stats]
        return [
            (name, ("chain", "draw", *dims), dtype, (n_chains, *map(int, shape)))
            for name, dims, dtype, shape in found
        ]

    def _opened(self, chains: bytes, settings: dict[str, Any], variables: Any, n: int) -> Store:
        of_draw = sum(np.dtype(dtype).itemsize * np.prod(s) for _, _, dtype, s in variables)
        if not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir())):
            chunk = chunk_size(int(of_draw))
            first = self.sampler._ensemble.counters.n_draws
            settings = settings | {"chunk": chunk, "first": first}
            settings["variables"] = [
                (name, dims, dtype, (shape[0], chunk, *shape[1:]))
                for name, dims, dtype, shape in variables
            ]
            attrs = self.sampler._attrs() | {"thin": settings["thin"]}
            store = Store(self.path, settings, attrs, self._coords(variables))
            store.wanted = n
            store.create(self.sampler._packed(), chains)
            return store
        store, kept = Store.open(self.path, verify=False)
        try:
            self._check(store, settings, variables)
            if kept != chains:
                raise StoreError(
                    f"{self.path} does not end where the chains of this sampler are: it is another "
                    f"run, or they have moved since. {type(self.sampler).__name__}.resume goes on "
                    "from where it ends; or give another path."
                )
            store.wanted = store.n_draws + n
            store.attrs.pop("stopped_by", None)  # of the call before
            store.commit(chains)  # from here on it is known how many draws were asked for
        except BaseException:
            store.close()
            raise
        return store

    def _check(self, store: Store, settings: dict[str, Any], variables: Any) -> None:
        if store.settings["thin"] != settings["thin"]:
            raise StoreError(
                f"thin is {settings['thin']}, but {self.path} has draws of thin "
                f"{store.settings['thin']}; give the same, or another path."
            )
        known = [(v.name, v.dtype, (v.shape[0], *v.shape[2:])) for v in store.variables]
        given = [(name, np.dtype(dtype), shape) for name, _, dtype, shape in variables]
        if known != given:
            there = ", ".join(name for name, *_ in known)
            here = ", ".join(name for name, *_ in given)
            raise StoreError(
                f"This call would store {here}, but {self.path} has {there}, or arrays of another "
                "shape or type; give the same record, or another path."
            )

    def _coords(self, variables: Any) -> Any:
        n_chains = len(self.sampler._ensemble)
        found = {"chain": (("chain",), np.arange(n_chains))}
        if not self.record:
            named = self.target.coords.items()
            return found | {name: ((name,), np.asarray(values)) for name, values in named}
        for _, dims, _, shape in variables:
            for dim, size in zip(dims[2:], shape[1:], strict=True):
                found[dim] = ((dim,), np.arange(size))
        return found

    def room(self, n: int) -> tuple[States, Array, int]:
        """Return arrays of a few draws."""
        n_chains = len(self.sampler._ensemble)
        self._stats = np.empty((n_chains, n, len(self.stats)))
        shape = (n_chains, n, self.target.n_sites)
        self._states: States = np.empty(shape, dtype=self.target.dtype)
        return self._states, self._stats, 0

    def put(self, n: int) -> None:
        """Write them to the chunk, and the chunk to the disk if it is time."""
        here = slice(self.store.filled, self.store.filled + n)
        chunk = {v.name: v.buffer[:, here] for v in self.store.variables}
        if self.record:
            for name, statistic in self.record.items() if n else ():
                for c, x in enumerate(self._states):
                    self._put(name, chunk[name][c], apply(self.target, name, statistic, x))
        else:
            chunk["x"][:] = self._states.reshape(chunk["x"].shape)
        self._stats[:, :, 0] += self.target.constant
        for k, name in enumerate(self.stats):
            chunk[name][:] = self._stats[:, :, k]
            if name == "acceptance_rate":
                self._sum += float(self._stats[:, :, k].sum())
        self.store.n_draws += n
        full = n > 0 and not self.store.filled
        if full or self.store.is_due():
            self.store.commit(self.sampler._packed_chains())
        self.most = self.store.chunk - self.store.filled

    @staticmethod
    def _put(name: str, place: NDArray[Any], values: NDArray[Any]) -> None:
        if place.shape != values.shape or place.dtype != values.dtype:
            raise StoreError(
                f"record[{name!r}] returned {values.dtype} of shape {values.shape}; for the first "
                f"state it was {place.dtype} of shape {place.shape[1:]} a draw, and must stay so."
            )
        place[:] = values

    def end(self, stopped_by: str | None = None) -> None:
        """Write what is left."""
        if stopped_by is not None:
            self.store.attrs["stopped_by"] = stopped_by
        self.store.end(self.sampler._packed_chains())

    def result(self, n: int, attrs: dict[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
        """Open the draws of this call."""
        new = slice(self.first, self.first + n)
        draws = open_draws(self.path).isel(draw=new)
        draws.attrs |= attrs  # of this call
        return draws, open_stats(self.path).isel(draw=new).assign_attrs(attrs)

    def acceptance(self, n: int) -> float | None:
        """Return the mean acceptance rate, if it is known."""
        if "acceptance_rate" not in self.stats or not n:
            return None
        return self._sum / (n * len(self.sampler._ensemble))

    def close(self) -> None:
        """Let others write to the store."""
        self.store.close()
