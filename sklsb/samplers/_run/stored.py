"""The observer that writes draws to a store: a new one, or one of this very run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sklsb.ensembles.base import Segment
from sklsb.exceptions import StoreError
from sklsb.samplers._run.observers import Call, Observer, Statistics, apply
from sklsb.storage.stores import Coords, Store, chunk_size, open_draws, open_stats
from sklsb.targets.base import States

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
        store = (self._created if new else self._opened)(call, self._settings(call))
        return _Open(store, store.n_draws)

    def _settings(self, call: Call) -> dict[str, Any]:
        """Return what never changes in a store: arrays by name, dims, type and shape, and more."""
        target, found = call.target, []
        if not self.statistics:
            found.append(("x", target.dims, target.dtype.str, target.shape))
        for name, statistic in self.statistics.items():
            values = apply(name, statistic, self.state.reshape(1, *target.shape))
            dims = tuple(f"{name}_dim_{k}" for k in range(values.ndim - 1))
            found.append((name, dims, values.dtype.str, values.shape[1:]))
        found += [(name, (), "<f8", ()) for name in call.stat_names]
        sizes = [np.dtype(dtype).itemsize * np.prod(shape) for _, _, dtype, shape in found]
        chunk = chunk_size(int(call.n_chains * sum(sizes)))
        lead = call.n_chains, chunk
        return {
            "thin": self.attrs["thin"],
            "stats": call.stat_names,
            "chunk": chunk,
            "first": call.first_draw,
            "variables": [
                (name, ("chain", "draw", *dims), dtype, (*lead, *map(int, shape)))
                for name, dims, dtype, shape in found
            ],
        }

    def _created(self, call: Call, settings: dict[str, Any]) -> Store:
        coords: Coords = {"chain": (("chain",), np.arange(call.n_chains))}
        if not self.statistics:
            named = call.target.coords.items()
            coords |= {name: ((name,), np.asarray(values)) for name, values in named}
        for _, dims, _, shape in settings["variables"] if self.statistics else ():
            of_dims = zip(dims[2:], shape[2:], strict=True)
            coords |= {dim: ((dim,), np.arange(size)) for dim, size in of_dims}
        store = Store(self.path, settings, self.attrs, coords)
        store.wanted = call.n_draws
        store.create(self._sampler(), self._begin)
        return store

    def _opened(self, call: Call, settings: dict[str, Any]) -> Store:
        store, kept = Store.open(self.path, verify=False)
        try:
            self._check(store.settings, settings)
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

    def _check(self, known: dict[str, Any], given: dict[str, Any]) -> None:
        if known["thin"] != given["thin"]:
            raise StoreError(
                f"thin is {given['thin']}, but {self.path} has draws of thin {known['thin']}; give "
                "the same, or another path."
            )
        if _arrays(known) != _arrays(given):
            here, there = (", ".join(v[0] for v in of["variables"]) for of in (given, known))
            raise StoreError(
                f"This call would store {here}, but {self.path} has {there}, or arrays of another "
                "shape or type; give the same record, or another path."
            )

    def most(self, carry: _Open) -> int:
        return carry.store.chunk - carry.store.filled

    def see(self, carry: _Open, chunk: Segment) -> _Open:
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


def _arrays(settings: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the arrays of a store, whatever the size of its chunks is."""
    return [(*of, n_chains, rest) for *of, (n_chains, _, *rest) in settings["variables"]]
