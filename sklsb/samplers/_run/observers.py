"""What is kept of the chains: observers see the draws of a call and return a Dataset."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sklsb._system.arrays import Array
from sklsb._system.memory import at_once, check_fits
from sklsb.diagnostics.averages import Averages
from sklsb.diagnostics.draws import OF_DRAWS, draws_dataset, stats_dataset
from sklsb.diagnostics.moments import Moments
from sklsb.ensembles.base import ChainEnsemble, Room, Segment
from sklsb.ensembles.compiled import Ensemble
from sklsb.targets.base import States, Target

# Bytes of states that an observer is shown at once.
MOST_SHOWN = 1 << 24
# Names of variables and coordinates of draws, and of files beside them in a store.
_TAKEN = ("chain", "draw", "lp", "acceptance_rate", "visit", "sklsb", "zarr.json")
# What may be recorded by name.
_NAMES = ("moments", "marginals")

Statistics = dict[str, Callable[[States], ArrayLike]]


class Call(NamedTuple):
    """A call of `sample`, as an observer learns of it before the first draw."""

    target: Target
    n_chains: int
    n_draws: int  # of each chain, at most
    first_draw: int  # draws of each chain in earlier calls
    stat_names: tuple[str, ...]

    @property
    def most_shown(self) -> int:
        """Draws of each chain that are shown at once, unless the observer says otherwise."""
        return at_once(MOST_SHOWN, self.n_chains * self.target.n_sites)


class Observer(ABC):
    """Decides what to keep of the draws of a call: ``sample(n, record=observer)``.

    The methods hand a *carry* on, which may be any object. An observer that stores nothing in
    itself can be given to several calls, and to several samplers.

    Notes
    -----
    The optional methods `room`, `most`, `stats`, `after`, `end` and `close` do what most observers
    need: the draws of a call come in chunks of at most 16 MiB, in arrays that are the observer's to
    keep or to change.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from sklsb import GibbsSampler, Ising
    >>> from sklsb.extending import Observer
    >>> class Highest(Observer):
    ...     def init(self, call):
    ...         return np.full(call.n_chains, -np.inf)
    ...
    ...     def see(self, carry, chunk):
    ...         return np.maximum(carry, chunk.lp.max(axis=1))
    ...
    ...     def result(self, carry):
    ...         return xr.Dataset({"highest": ("chain", carry)})
    >>> sampler = GibbsSampler(random_state=0).fit(Ising([[0.0, 1.0], [1.0, 0.0]]))
    >>> sampler.sample(100, record=Highest())["highest"].values
    array([1., 1., 1., 1.])
    """

    @abstractmethod
    def init(self, call: Call) -> Any:
        """Return the first carry.

        ``call`` has ``target``, ``n_chains``, ``n_draws`` (at most, of each chain), ``first_draw``
        (the number of draws before this call) and ``stat_names``.
        """

    @abstractmethod
    def see(self, carry: Any, chunk: Segment) -> Any:
        """Take one draw of each chain or more; return the next carry.

        ``chunk.x`` has shape (n_chains, n, ``*target.shape``), ``chunk.lp`` (n_chains, n), and
        ``chunk.stats`` (n_chains, n, ``len(call.stat_names)``). If this raises an error, the chains
        are where they were at the end of the chunk.
        """

    @abstractmethod
    def result(self, carry: Any) -> xr.Dataset:
        """Return what `sample` returns; attributes of the call are added."""

    def room(self, carry: Any, n: int) -> Room | None:
        """Return arrays that n draws go to, and the place of the first; None for new ones.

        The states have shape (n_chains, at least n, n_sites).
        """
        return None

    def most(self, carry: Any) -> int | None:
        """Return how many draws of each chain the next chunk may have; None for 16 MiB."""
        return None

    def stats(self, carry: Any) -> xr.Dataset | None:
        """Return the statistics of each draw, for ``sample_stats_``; None if they are not kept."""
        return None

    def after(self, carry: Any) -> None:  # noqa: B027
        """Do what is due after some transitions, with or without a draw among them."""

    def end(self, carry: Any, stopped_by: str | None) -> None:  # noqa: B027
        """Finish a call without errors; None if there were no rules to stop it."""

    def close(self, carry: Any) -> None:  # noqa: B027
        """Close files, also after an error."""


def check_record(record: Any) -> "Record":
    """Return what is to be recorded, {} for the states, or say what is wrong with it."""
    if record is None:
        return {}
    if isinstance(record, Observer):
        return record
    if isinstance(record, str):
        if record not in _NAMES:
            names = ", ".join(f'"{name}"' for name in _NAMES)
            raise ValueError(
                f"record is {record!r}; give one of {names}, a dict of callables, or an Observer."
            )
        return record
    if not isinstance(record, dict) or not record:
        raise TypeError(
            f"record is {record!r}; give a dict of names and callables, or an instance of a class "
            "derived from sklsb.extending.Observer."
        )
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


def apply(name: str, statistic: Any, states: States) -> NDArray[Any]:
    """Return a statistic of states of shape (n_draws, ``*target.shape``)."""
    states = states.copy()
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


Record = Statistics | str | Observer


def results(
    observer: Observer, carry: Any, ensemble: ChainEnsemble
) -> tuple[xr.Dataset, xr.Dataset]:
    """Return what an observer makes of a call, and the statistics of its draws."""
    found, known = observer.result(carry), observer.stats(carry)
    if not isinstance(found, xr.Dataset):
        raise TypeError(
            f"result of {observer!r:.200} returned {found!r:.200}; it must be an xarray.Dataset."
        )
    if known is None:
        empty = np.empty((len(ensemble), 0))
        known = stats_dataset({name: empty for name in ensemble.rule.facts.stat_names})
    return found, known


@dataclass
class Kept:
    """What is kept of a call so far: arrays with room for all draws, and parts of records."""

    call: Call
    states: States
    values: Array
    parts: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    done: int = 0
    levels: Any = None  # draws of the present chunk at every temperature

    @classmethod
    def of(cls, call: Call, width: int) -> "Kept":
        """Return room for draws with states of this width, if it fits in memory."""
        dtype, n_stats = call.target.dtype, len(call.stat_names)
        check_fits(
            call.n_chains * call.n_draws * (width * dtype.itemsize + 8 * n_stats),
            f"sample({call.n_draws}) of {call.n_chains} chains of {call.target.n_sites} variables",
            'Write the draws to the disk, store="run.zarr"; keep no draws, record="moments"; or '
            "make fewer draws that are farther apart, thin.",
        )
        shape = call.n_chains, call.n_draws
        return cls(call, np.empty((*shape, width), dtype), np.empty((*shape, n_stats)))

    @cached_property
    def stats(self) -> xr.Dataset:
        """Statistics of the draws, once there are all."""
        names, values = self.call.stat_names, self.values[:, : self.done]
        found = {name: values[:, :, k].copy() for k, name in enumerate(names)}
        return stats_dataset(found, first_draw=self.call.first_draw)


class KeptDraws(Observer):
    """Keeps all states, where the kernels write them."""

    def init(self, call: Call) -> Kept:
        return Kept.of(call, call.target.n_sites)

    def room(self, carry: Kept, n: int) -> Room:
        return Room(carry.states, carry.values, carry.done)

    def most(self, carry: Kept) -> int:
        return carry.call.n_draws

    def see(self, carry: Kept, chunk: Segment) -> Kept:
        carry.done += chunk.lp.shape[1]
        return carry

    def result(self, carry: Kept) -> xr.Dataset:
        call, states = carry.call, carry.states[:, : carry.done]
        own = {name: carry.stats[name].variable for name in OF_DRAWS if name in carry.stats}
        return draws_dataset(states, call.target, first_draw=call.first_draw, of_draws=own)

    def stats(self, carry: Kept) -> xr.Dataset:
        return carry.stats


class KeptStatistics(Observer):
    """Keeps statistics of the user, and no states."""

    def __init__(self, statistics: Statistics, state: States):
        self.statistics, self.state = statistics, state

    def init(self, call: Call) -> Kept:
        return Kept.of(call, 0)

    def see(self, carry: Kept, chunk: Segment) -> Kept:
        begin, carry.done = carry.done, carry.done + chunk.lp.shape[1]
        carry.values[:, begin : carry.done] = chunk.stats
        for name, statistic in self.statistics.items():
            values = [apply(name, statistic, x) for x in chunk.x]
            carry.parts.setdefault(name, []).append(np.stack(values))
        return carry

    def result(self, carry: Kept) -> xr.Dataset:
        parts, state = carry.parts, self.state.reshape(1, *carry.call.target.shape)
        for name, statistic in () if parts else self.statistics.items():  # no draws
            none = apply(name, statistic, state)[:0]
            parts[name] = [np.stack([none] * carry.call.n_chains)]
        found = {name: np.concatenate(values, axis=1) for name, values in parts.items()}
        return stats_dataset(found, first_draw=carry.call.first_draw)

    def stats(self, carry: Kept) -> xr.Dataset:
        return carry.stats


class RunningMoments(Observer):
    """Sums up moments of the draws; no draw is kept."""

    def init(self, call: Call) -> Moments:
        return Moments(call.target, call.n_chains)

    def see(self, carry: Moments, chunk: Segment) -> Moments:
        carry.add(chunk.x.reshape(*chunk.lp.shape, carry.target.n_sites), chunk.lp)
        return carry

    def result(self, carry: Moments) -> xr.Dataset:
        return carry.dataset({"n_draws": carry.n_draws})


class RunningMarginals(Observer):
    """Sums up conditional distributions at the draws of these chains; no draw is kept."""

    def __init__(self, ensemble: ChainEnsemble):
        self.ensemble, self.by_kernel = ensemble, isinstance(ensemble, Ensemble)

    def init(self, call: Call) -> Averages:
        return Averages(call.target, call.n_chains)

    def most(self, carry: Averages) -> int:
        n_chains, target = len(carry.sums), carry.target
        return min(carry.left, at_once(MOST_SHOWN, n_chains * target.n_sites))

    def room(self, carry: Averages, n: int) -> Room:
        new = self.ensemble.room(n, len(self.ensemble.rule.facts.stat_names))
        return new._replace(sums=carry.of_kernel) if self.by_kernel else new

    def see(self, carry: Averages, chunk: Segment) -> Averages:
        n_chains, n = chunk.lp.shape
        carry.add(chunk.x.reshape(n_chains, n, carry.target.n_sites), chunk.lp, self.by_kernel)
        if not self.by_kernel:
            n_moves = carry.target.offers.n_moves
            self.ensemble.add_evaluations(np.full(n_chains, n * n_moves))
        return carry

    def result(self, carry: Averages) -> xr.Dataset:
        return carry.dataset({"n_draws": carry.n_draws})
