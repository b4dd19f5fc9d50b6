"""The observer that writes draws to a store: a new one, or one of this very run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sklsb.exceptions import StoreError
from sklsb.samplers._run.observers import Call, Chunk, Observer, Statistics, apply
from sklsb.storage.stores import Coords, Store, chunk_size, open_draws, open_stats
from sklsb.targets.base import States

# Name, dims, type and shape, from chains on, of a draw of each stored array.
_Variables = list[tuple[str, tuple[str, ...], str, tuple[int, ...]]]
# The folder, and what makes the bytes of the fitted sampler.
Place = tuple[Path, Callable[[], bytes]]


class _Open(NamedTuple):
    """The store of a call, and the first of its draws there."""

    store: Store
    first: int


class StoredDraws(Observer):
    """Writes draws, which have ``attrs``, or statistics of them, during one call.

    ``chains`` makes the bytes of what changes as they move; the store must end where they are when
    this is made. ``state`` is any of the target's.
    """

    def __init__(
        self,
        place: Place,
        chains: Callable[[], bytes],
        state: States,
        statistics: Statistics,
        attrs: dict[str, Any],
    ):
        (self.path, self._sampler), self._chains, self._begin = place, chains, chains()
        self.state, self.statistics, self.attrs = state, statistics, attrs

    def init(self, call: Call) -> _Open:
        new = not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir()))
        store = (self._created if new else self._opened)(call, self._variables(call))
        return _Open(store, store.n_draws)

    def _variables(self, call: Call) -> _Variables:
        target, found = call.target, []
        if not self.statistics:
            found.append(("x", target.dims, target.dtype.str, target.shape))
        for name, statistic in self.statistics.items():
            values = apply(name, statistic, self.state.reshape(1, *target.shape))
            dims = tuple(f"{name}_dim_{k}" for k in range(values.ndim - 1))
            found.append((name, dims, values.dtype.str, values.shape[1:]))
        found += [(name, (), "<f8", ()) for name in call.stat_names]
        return [
            (name, ("chain", "draw", *dims), dtype, (call.n_chains, *map(int, shape)))
            for name, dims, dtype, shape in found
        ]

    def _created(self, call: Call, variables: _Variables) -> Store:
        of_draw = sum(np.dtype(dtype).itemsize * np.prod(s) for _, _, dtype, s in variables)
        chunk = chunk_size(int(of_draw))
        settings = {
            "thin": self.attrs["thin"],
            "stats": call.stat_names,
            "chunk": chunk,
            "first": call.first_draw,
            "variables": [
                (name, dims, dtype, (shape[0], chunk, *shape[1:]))
                for name, dims, dtype, shape in variables
            ],
        }
        store = Store(self.path, settings, self.attrs, self._coords(call, variables))
        store.wanted = call.n_draws
        store.create(self._sampler(), self._begin)
        return store

    def _opened(self, call: Call, variables: _Variables) -> Store:
        store, kept = Store.open(self.path, verify=False)
        try:
            self._check(store, variables)
            if kept != self._begin:
                raise StoreError(
                    f"{self.path} does not end where the chains of this sampler are: it is another "
                    f"run, or they have moved since. {self.attrs['sampler']}.resume goes on from "
                    "where it ends; or give another path."
                )
            store.wanted = store.n_draws + call.n_draws
            store.attrs.pop("stopped_by", None)  # of the previous call
            store.commit(self._begin)  # with the number of draws wanted
        except BaseException:
            store.close()
            raise
        return store

    def _check(self, store: Store, variables: _Variables) -> None:
        thin = self.attrs["thin"]
        if store.settings["thin"] != thin:
            raise StoreError(
                f"thin is {thin}, but {self.path} has draws of thin {store.settings['thin']}; give "
                "the same, or another path."
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

    def _coords(self, call: Call, variables: _Variables) -> Coords:
        found: Coords = {"chain": (("chain",), np.arange(call.n_chains))}
        if not self.statistics:
            named = call.target.coords.items()
            return found | {name: ((name,), np.asarray(values)) for name, values in named}
        for _, dims, _, shape in variables:
            for dim, size in zip(dims[2:], shape[1:], strict=True):
                found[dim] = ((dim,), np.arange(size))
        return found

    def most(self, carry: _Open) -> int:
        return carry.store.chunk - carry.store.filled

    def see(self, carry: _Open, chunk: Chunk) -> _Open:
        store, n = carry.store, chunk.lp.shape[1]
        here = slice(store.filled, store.filled + n)
        places = {v.name: v.buffer[:, here] for v in store.variables}
        for name, statistic in self.statistics.items():
            for c, x in enumerate(chunk.x):
                place, values = places[name][c], apply(name, statistic, x)
                if place.shape != values.shape or place.dtype != values.dtype:
                    raise StoreError(
                        f"record[{name!r}] returned {values.dtype} of shape {values.shape}; for "
                        f"the first state it was {place.dtype} of shape {place.shape[1:]} a draw, "
                        "and must stay so."
                    )
                place[:] = values
        if not self.statistics:
            places["x"][:] = chunk.x
        for k, name in enumerate(store.settings["stats"]):
            places[name][:] = chunk.stats[:, :, k]
        store.n_draws += n
        return carry

    def after(self, carry: _Open) -> None:
        if carry.store.is_due():
            carry.store.commit(self._chains())

    def end(self, carry: _Open, stopped_by: str | None) -> None:
        if stopped_by is not None:
            carry.store.attrs["stopped_by"] = stopped_by
        carry.store.end(self._chains())

    def result(self, carry: _Open) -> xr.Dataset:
        return open_draws(self.path).isel(draw=slice(carry.first, carry.store.n_draws))

    def stats(self, carry: _Open) -> xr.Dataset:
        return open_stats(self.path).isel(draw=slice(carry.first, carry.store.n_draws))

    def close(self, carry: _Open) -> None:
        carry.store.close()
