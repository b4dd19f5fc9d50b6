"""Where the draws of a call go: to memory, to statistics, or to a store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sklsb._kernels.run import Sums
from sklsb._system.memory import at_once, check_fits
from sklsb.diagnostics.averages import Averages
from sklsb.diagnostics.draws import OF_DRAWS, draws_dataset, stats_dataset
from sklsb.diagnostics.moments import Moments
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.protocol import ChainEnsemble
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


# Names of variables and coordinates of draws, and of files beside them in a store.
_TAKEN = ("chain", "draw", "lp", "acceptance_rate", "visit", "sklsb", "zarr.json")
# What may be recorded by name.
_NAMES = ("moments", "marginals")


def check_record(record: Any) -> "Record | str":
    """Return the wanted statistics, or say what is wrong with them."""
    if record is None:
        return {}
    if isinstance(record, str):
        if record not in _NAMES:
            names = ", ".join(f'"{name}"' for name in _NAMES)
            raise ValueError(f"record is {record!r}; give one of {names}, or a dict of callables.")
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

    `room` gives arrays to write draws to, `put` takes them; in the end come `end`, unless something
    failed, and `result`.
    """

    most: int  # draws that it takes at once
    sums: tuple[Sums, ...] = ()  # what chains add to while they draw, if they can

    def __init__(self, target: Target, n_chains: int, stat_names: Sequence[str]):
        self.target, self.n_chains, self.stat_names = target, n_chains, tuple(stat_names)
        self._accepted = 0.0  # sum of the acceptance rates

    def room(self, n: int) -> tuple[States, Array, int]:
        """Return arrays with chains and draws as first axes, and the index of the next draw."""
        shape = self.n_chains, n
        self._states: States = np.empty((*shape, self.target.n_sites), self.target.dtype)
        self._stats: Array = np.empty((*shape, len(self.stat_names)))
        return self._states, self._stats, 0

    @abstractmethod
    def put(self, n: int) -> None:
        """Take n draws, which were written to what `room` returned."""

    def _count(self, stats: Array) -> None:
        if "acceptance_rate" in self.stat_names:
            place = self.stat_names.index("acceptance_rate")
            self._accepted += float(stats[:, :, place].sum())

    def acceptance(self, n: int) -> float | None:
        """Return the mean acceptance rate of n draws, if known."""
        if "acceptance_rate" not in self.stat_names or not n:
            return None
        return self._accepted / (n * self.n_chains)

    def end(self, stopped_by: str | None = None) -> None:  # noqa: B027
        """Finish; ``stopped_by`` names the rule that ended the call, None without rules."""

    @abstractmethod
    def result(self, n: int, attrs: dict[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
        """Return what `sample` returns, and the statistics of its n draws."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027
        """Close files."""


class InMemory(Sink):
    """All draws, in memory."""

    keeps_states = True

    def __init__(self, target: Target, call: Call):
        n_chains, n, self.first, names = call
        super().__init__(target, n_chains, names)
        self.most = max(1, n)
        width = target.n_sites if self.keeps_states else 0
        check_fits(
            n_chains * n * (width * target.dtype.itemsize + 8 * len(names)),
            f"sample({n}) of {n_chains} chains of {target.n_sites} variables",
            'Write the draws to the disk, store="run.zarr"; keep no draws, record="moments"; or '
            "make fewer draws that are farther apart, thin.",
        )
        self.stats = np.empty((n_chains, n, len(names)))
        self.states = np.empty((n_chains, n, width), target.dtype)
        self.done = 0

    def room(self, n: int) -> tuple[States, Array, int]:
        return self.states, self.stats, self.done

    def put(self, n: int) -> None:
        self._count(self.stats[:, self.done : self.done + n])
        self.done += n

    def result(self, n: int, attrs: dict[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
        stats = self.stats[:, :n]
        stats[:, :, 0] += self.target.constant
        values = {name: stats[:, :, k].copy() for k, name in enumerate(self.stat_names)}
        known = stats_dataset(values, attrs, self.first)
        return self._draws(n, attrs, known), known

    def _draws(self, n: int, attrs: dict[str, Any], known: xr.Dataset) -> xr.Dataset:
        found = draws_dataset(self.states[:, :n], self.target, attrs, self.first)
        return found.assign_coords({name: known[name] for name in OF_DRAWS if name in known})


class Recorded(InMemory):
    """Statistics of the draws, in memory."""

    keeps_states = False

    def __init__(self, target: Target, call: Call, record: Record):
        super().__init__(target, call)
        self.record = record
        self.recorded: dict[str, list[NDArray[Any]]] = {name: [] for name in record}
        self.most = at_once(_MOST_RECORDED, call.n_chains * target.n_sites)

    def room(self, n: int) -> tuple[States, Array, int]:
        return Sink.room(self, n)

    def put(self, n: int) -> None:
        self.stats[:, self.done : self.done + n] = self._stats
        for name, statistic in self.record.items() if n else ():
            values = [apply(self.target, name, statistic, x) for x in self._states]
            self.recorded[name].append(np.stack(values))
        super().put(n)

    def _draws(self, n: int, attrs: dict[str, Any], known: xr.Dataset) -> xr.Dataset:
        empty = np.empty((self.n_chains, 0))
        values = {
            name: np.concatenate(parts, axis=1) if parts else empty
            for name, parts in self.recorded.items()
        }
        return stats_dataset(values, attrs, self.first)


class Running(Sink):
    """Moments of the draws; no draw is kept."""

    def __init__(self, target: Target, call: Call):
        super().__init__(target, call.n_chains, call.stat_names)
        self.most = at_once(_MOST_RECORDED, call.n_chains * target.n_sites)
        self.moments = Moments(target, call.n_chains)

    def put(self, n: int) -> None:
        self.moments.add(self._states, self._stats[:, :, 0] + self.target.constant)
        self._count(self._stats)

    def result(self, n: int, attrs: dict[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
        empty = {name: np.empty((self.n_chains, 0)) for name in self.stat_names}
        return self.moments.dataset(attrs | {"n_draws": n}), stats_dataset(empty, attrs)


class Averaged(Sink):
    """Averages of the conditional distributions at the draws; no draw is kept."""

    def __init__(self, target: Target, call: Call, ensemble: ChainEnsemble):
        super().__init__(target, call.n_chains, call.stat_names)
        self.ensemble, self.by_kernel = ensemble, isinstance(ensemble, Ensemble)
        self.averages = Averages(target, call.n_chains)
        self.most = self._room_left()

    def _room_left(self) -> int:
        together = at_once(_MOST_RECORDED, self.n_chains * self.target.n_sites)
        return max(1, min(self.averages.left, together))

    def room(self, n: int) -> tuple[States, Array, int]:
        self.sums = (self.averages.of_kernel,) if self.by_kernel else ()
        return super().room(n)

    def put(self, n: int) -> None:
        lp = self._stats[:, :, 0] + self.target.constant
        self.averages.add(self._states, lp, self.by_kernel)
        if not self.by_kernel:
            n_moves = int((self.target.cardinalities - 1).sum())
            self.ensemble.add_evaluations(np.full(self.n_chains, n * n_moves))
        self._count(self._stats)
        self.most = self._room_left()

    def result(self, n: int, attrs: dict[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
        empty = {name: np.empty((self.n_chains, 0)) for name in self.stat_names}
        return self.averages.dataset(attrs | {"n_draws": n}), stats_dataset(empty, attrs)


class Stored(Sink):
    """Draws, or statistics of them in ``record``, in a store.

    The store is a new one or one of this very run. ``settings`` must not change from call to call.
    """

    def __init__(self, sampler: Any, path: str, settings: dict[str, Any], record: Record, n: int):
        super().__init__(sampler.target_, len(sampler._ensemble), settings["stats"])
        self.sampler, self.record, self.path = sampler, record, Path(path)
        chains = sampler._packed_chains()
        self.store = self._opened(chains, settings, self._variables(), n)
        self.first = self.store.n_draws
        self.most = self.store.chunk - self.store.filled

    def _variables(self) -> list[tuple[str, tuple[str, ...], str, tuple[int, ...]]]:
        """Return name, dims, type and shape, from chains on, of a draw of each stored array."""
        found = []
        if not self.record:
            found.append(("x", self.target.dims, self.target.dtype.str, self.target.shape))
        for name, statistic in self.record.items():
            x = self.sampler._ensemble.chains.x[:1]
            values = apply(self.target, name, statistic, x)
            dims = tuple(f"{name}_dim_{k}" for k in range(values.ndim - 1))
            found.append((name, dims, values.dtype.str, values.shape[1:]))
        found += [(name, (), "<f8", ()) for name in self.stat_names]
        return [
            (name, ("chain", "draw", *dims), dtype, (self.n_chains, *map(int, shape)))
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
            store.attrs.pop("stopped_by", None)  # of the previous call
            store.commit(chains)  # with the number of draws wanted
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
        found = {"chain": (("chain",), np.arange(self.n_chains))}
        if not self.record:
            named = self.target.coords.items()
            return found | {name: ((name,), np.asarray(values)) for name, values in named}
        for _, dims, _, shape in variables:
            for dim, size in zip(dims[2:], shape[1:], strict=True):
                found[dim] = ((dim,), np.arange(size))
        return found

    def put(self, n: int) -> None:
        here = slice(self.store.filled, self.store.filled + n)
        chunk = {v.name: v.buffer[:, here] for v in self.store.variables}
        if self.record:
            for name, statistic in self.record.items() if n else ():
                for c, x in enumerate(self._states):
                    self._put(name, chunk[name][c], apply(self.target, name, statistic, x))
        else:
            chunk["x"][:] = self._states.reshape(chunk["x"].shape)
        self._stats[:, :, 0] += self.target.constant
        for k, name in enumerate(self.stat_names):
            chunk[name][:] = self._stats[:, :, k]
        self._count(self._stats)
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
        if stopped_by is not None:
            self.store.attrs["stopped_by"] = stopped_by
        self.store.end(self.sampler._packed_chains())

    def result(self, n: int, attrs: dict[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
        new = slice(self.first, self.first + n)
        draws = open_draws(self.path).isel(draw=new)
        draws.attrs |= attrs  # of this call
        return draws, open_stats(self.path).isel(draw=new).assign_attrs(attrs)

    def close(self) -> None:
        self.store.close()
