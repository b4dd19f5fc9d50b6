"""What every sampler shares: streams, chains, segments, progress, the returned datasets."""

import numbers
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import joblib
import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklsb import __version__
from sklsb._ensemble import MOST_NUMBERS, ChainEnsemble
from sklsb._kernels.facts import Rule
from sklsb._starts import INITS, Starts
from sklsb._tally import FEWEST_DRAWS, Tally
from sklsb.chains import draws_dataset, stats_dataset
from sklsb.diagnostics import disagreement
from sklsb.exceptions import (
    FrozenSitesWarning,
    InterruptedWarning,
    PeriodicChainWarning,
    SeparatedModesWarning,
    ShortRunWarning,
)
from sklsb.samplers._exports import Exports
from sklsb.samplers._hint import exact_hint, isolation
from sklsb.samplers._progress import FIRST_SEGMENT, Progress, deferred_interrupt, next_segment
from sklsb.state import Counters
from sklsb.streams import Streams, spawn
from sklsb.targets.base import States, Target

# Parity is forgotten after about 1 / (2 * rejection rate) transitions; warn beyond 50 sweeps.
# A third value of a variable makes a cycle of odd length, and is as good as a rejection.
_FEWEST_PER_SWEEP = 0.01
# Bytes of states held for the statistics of `record`.
_MOST_RECORDED = 1 << 24

Record = dict[str, Callable[[States], ArrayLike]]


def check_count(value: Any, name: str, smallest: int) -> int:
    """Return an integer that is at least ``smallest``, or say what was given."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} is {value!r}; give an integer of at least {smallest}.")
    if value < smallest:
        raise ValueError(f"{name} is {value}; it must be at least {smallest}.")
    return int(value)


def check_bool(value: Any, name: str) -> None:
    """Say what was given, if it is not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} is {value!r}; give True or False.")


def transitions_of_a_sweep(rule: Rule, target: Target) -> int:
    """Transitions in which each variable has one chance to move."""
    found = rule.facts.transitions_per_sweep
    return max(1, target.n_sites if found is None else found)


class BaseSampler(Exports, BaseEstimator, ABC):
    """Base of the samplers: everything but the mathematics.

    A subclass stores its parameters in ``__init__``, checks and resolves them in
    ``_resolve``, and moves the chains of ``self._ensemble`` in ``_burn_in``.
    """

    n_chains: int
    init: str = "both"
    n_jobs: int | None
    random_state: Any
    verbose: int
    warm_start: bool

    _ensemble: ChainEnsemble
    _known_hint: str | None
    disagreement_: xr.Dataset

    @abstractmethod
    def _resolve(self, target: Target) -> None:
        """Check all parameters against the target, before any work."""

    @abstractmethod
    def _new_ensemble(self, target: Target, states: States, streams: Streams) -> Any:
        """Return chains at some states, on their streams."""

    @abstractmethod
    def _starts(self, target: Target, streams: Streams) -> Starts:
        """Return the states that chains start from if none are given."""

    def _effective_n_jobs(self) -> int:
        return int(joblib.effective_n_jobs(self.n_jobs))

    @abstractmethod
    def _burn_in(self, target: Target, ensemble: Any) -> dict[str, Any]:
        """Move the chains to where the draws begin; return the fitted attributes.

        It sets none itself: an error or a Ctrl-C must not leave half of one fit and half of
        another.
        """

    def _settle(self, ensemble: Any, fitted: dict[str, Any]) -> Any:
        """Return the chains that draws are made with; the same ones here."""
        return ensemble

    @abstractmethod
    def _warn_about_burn_in(self) -> None:
        """Warn about what the fitted attributes show."""

    def fit(
        self, target: Target, y: None = None, *, initial_states: ArrayLike | None = None
    ) -> Self:
        """Run the burn-in.

        Parameters
        ----------
        target : Target
            What to sample.
        y : None
            Ignored; here for scikit-learn's conventions.
        initial_states : array_like of shape (n_chains, n_sites) or (n_sites,), optional
            Where the chains start. If not given, ``init`` says where; with ``warm_start`` they
            are the present states.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If target is not a Target.
        ValueError
            If a parameter is out of its range, or a state does not belong to the target.
        ImportError
            If ``fast=True`` and torch is not installed.
        RuntimeError
            If the sampler is at work in another thread.
        """
        with self._alone():
            self._fit(target, initial_states)
        self._warn_about_burn_in()
        self._warn_if_isolated()
        return self

    def _fit(self, target: Target, initial_states: ArrayLike | None) -> None:
        if not isinstance(target, Target):
            hint = " Did you mean an instance of it?" if isinstance(target, type) else ""
            raise TypeError(
                f"target is {target!r:.200}, not a sklsb Target; build one, for example "
                f"sklsb.targets.Ising(couplings, field).{hint}"
            )
        n_chains = check_count(self.n_chains, "n_chains", 1)
        if self.n_jobs is not None and (
            not isinstance(self.n_jobs, numbers.Integral) or self.n_jobs == 0
        ):
            raise ValueError(
                f"n_jobs is {self.n_jobs!r}; give a number of threads, -1 for all cores, or None."
            )
        if not isinstance(self.init, str) or self.init not in INITS:
            raise ValueError(f"init is {self.init!r}; it must be one of {list(INITS)}.")
        self._resolve(target)
        again = self.warm_start and hasattr(self, "_ensemble")
        if again and (
            self._ensemble.chains.x.shape != (n_chains, target.n_sites)
            or self._ensemble.target.values != target.values
        ):
            raise ValueError(
                f"warm_start continues chains of shape {self._ensemble.chains.x.shape} with "
                f"values {self._ensemble.target.values}, but now n_chains is {n_chains} and the "
                f"target has {target.n_sites} sites with values {target.values}. "
                "Set warm_start=False."
            )
        # A copy: a fit that fails must leave the streams of the last one where they were.
        before = self._ensemble.state() if again else None
        streams = before.streams if before else Streams(spawn(self.random_state, n_chains))
        spent: Any = 0  # evaluations
        kept: Any = ()
        if initial_states is not None:
            states = self._check_initial(target, initial_states, n_chains)
        elif before:  # perhaps on another target
            states = self._check_initial(target, before.x, n_chains, "state_")
        else:
            states, spent, kept = self._starts(target, streams)
        ensemble = self._new_ensemble(target, states, streams)
        ensemble.chains.evaluations[:, 0] += spent
        with ensemble.threads():
            fitted = self._burn_in(target, ensemble)
            ensemble = self._settle(ensemble, fitted)
        self._never_moved = not ensemble.chains.moved.any()
        ensemble.chains.moved[:] = False
        for old in ("burn_in_", "candidates_", "disagreement_", "sample_stats_", "_draws"):
            self.__dict__.pop(old, None)
        self.__dict__.update(fitted)
        self._settings = {name: repr(value) for name, value in self.get_params().items()}
        self._ensemble = ensemble
        self.target_ = target
        self.n_sites_ = target.n_sites
        self._warned_short = self._warned_periodic = False
        self._known_hint = None
        tally = Tally.by_sweep(target, n_chains, self._sweep, kept)
        ensemble.counters = Counters(tally=tally)

    @staticmethod
    def _check_initial(
        target: Target, given: ArrayLike, n_chains: int, name: str = "initial_states"
    ) -> States:
        states = target.check_states(given, name)
        if states.ndim == 1 or states.shape[:-1] == (1,):
            states = np.tile(states.reshape(-1), (n_chains, 1))
        if states.shape != (n_chains, target.n_sites):
            raise ValueError(
                f"{name} has shape {np.shape(given)}; give one state, or one for each of "
                f"the {n_chains} chains."
            )
        for c, value in enumerate(target.log_prob(states)):
            if not np.isfinite(value):
                raise ValueError(
                    f"{name}[{c}] has log-probability {value}; chain {c} must start at a "
                    "state of positive probability."
                )
        return states

    @property
    def state_(self) -> States:
        """Present state of each chain, shape (n_chains, n_sites)."""
        check_is_fitted(self, "target_")
        return self._ensemble.chains.x.copy()

    @property
    def n_evaluations_(self) -> int:
        """Evaluations since `fit` began, over all chains.

        What is counted, the attribute ``evaluation`` of the draws says: log-ratios of changes, or
        log-densities with their gradients, or drawn units.
        """
        check_is_fitted(self, "target_")
        return int(self._ensemble.chains.evaluations.sum())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a second thread: two of them moving the same chains would corrupt them."""
        lock = self.__dict__.setdefault("_lock", threading.Lock())
        if not lock.acquire(blocking=False):
            raise RuntimeError(
                "This sampler is already running in another thread. Use one sampler per thread, "
                "or n_jobs for threads inside one."
            )
        try:
            yield
        finally:
            lock.release()

    def __getstate__(self) -> dict[str, Any]:
        # The draws belong to the user, who has them; a lock cannot be pickled.
        hidden = ("_lock", "_draws")
        return {name: v for name, v in super().__getstate__().items() if name not in hidden}

    def __copy__(self) -> Self:
        """Return a sampler that goes on by itself, bit for bit."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__getstate__())
        if hasattr(self, "_ensemble"):
            made._ensemble = self._ensemble.copy()
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "target_")

    @property
    def _sweep(self) -> int:
        """Transitions in which each variable has one chance to move."""
        return transitions_of_a_sweep(self._ensemble.rule, self.target_)

    def _check_thin(self, thin: int | str) -> int:
        if isinstance(thin, str):
            if thin != "sweep":
                raise ValueError(f'thin is {thin!r}; give a number of transitions or "sweep".')
            return self._sweep
        return check_count(thin, "thin", 1)

    def sample(self, n: int, *, thin: int | str = 1, record: Record | None = None) -> xr.Dataset:
        """Draw from the chains, which go on from where they are.

        Parameters
        ----------
        n : int
            Draws per chain.
        thin : int or "sweep", default=1
            Transitions per draw; "sweep" is as many as give each variable one chance to move:
            where a transition changes one variable, as many as the target has variables.
        record : dict of name to callable, optional
            Store these statistics instead of the states. Each is called with states of shape
            (n_draws, ``*target.shape``), a segment at a time, and returns an array of leading
            length n_draws.

        Returns
        -------
        xarray.Dataset
            Variable ``x`` of dims (chain, draw) and those of the target, int8 (int16 for values
            above 127), with the coordinate ``lp``, the log-density of each draw; or the statistics.
            The coordinate ``draw`` goes on counting over calls. Log p and the acceptance rate of
            each draw are in ``sample_stats_``.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If an argument is not as described.

        Notes
        -----
        ``sample(a)`` followed by ``sample(b)`` gives the draws of ``sample(a + b)``. On Ctrl-C
        the draws made so far are returned, with an InterruptedWarning. If a statistic raises,
        the draws of this call are lost, and the chains are where it was called last.

        States are int8 or int16: cast them before products and their sums, which would overflow.
        """
        check_is_fitted(self, "target_")
        n = check_count(n, "n", 0)
        step = self._check_thin(thin)
        record = self._check_record(record)
        n_chains, n_sites = self._ensemble.chains.x.shape
        self.__dict__.pop("_draws", None)  # not both in memory, if the user let go of them
        names = self._ensemble.rule.facts.stat_names
        stats = np.empty((n_chains, n, len(names)))
        states = None if record else np.empty((n_chains, n, n_sites), dtype=self.target_.dtype)
        recorded: dict[str, list[NDArray[Any]]] = {name: [] for name in record}
        with self._alone():
            first = self._ensemble.counters.n_draws
            done = self._draw(n, step, states, stats, record, recorded)
        stats = stats[:, :done]
        stats[:, :, 0] += self.target_.constant
        attrs = self._attrs() | {"thin": step, "sampled_transitions": done * step}
        self.sample_stats_ = stats_dataset(
            {name: stats[:, :, k].copy() for k, name in enumerate(names)}, attrs, first
        )
        if states is not None:
            result = draws_dataset(states[:, :done], self.target_, attrs, first)
            # A coordinate, so that it goes with each state and is no variable of its own.
            result = result.assign_coords(lp=self.sample_stats_["lp"])
        else:
            values = {
                name: np.concatenate(parts, axis=1) if parts else np.empty((n_chains, 0))
                for name, parts in recorded.items()
            }
            result = stats_dataset(values, attrs, first)
        self._draws = result
        self._warn_about_draws(done * step)
        return result

    def _draw(
        self,
        n: int,
        thin: int,
        states: States | None,
        stats: NDArray[np.float64],
        record: Record,
        recorded: dict[str, list[NDArray[Any]]],
    ) -> int:
        """Make n draws, a segment at a time; return how many were finished."""
        ensemble, counters = self._ensemble, self._ensemble.counters
        n_chains, n_sites = ensemble.chains.x.shape
        ensemble.chains.moved[:] = False
        total, done = n * thin, 0
        # After a Ctrl-C in the middle of a draw, the next call makes the rest of it.
        made = counters.pending[1] if counters.pending[0] == thin else 0
        if not made:
            ensemble.forget_acceptance()
        most = max(1, MOST_NUMBERS // max(1, ensemble.rule.facts.n_uniforms))
        segment = FIRST_SEGMENT
        with (
            deferred_interrupt() as interrupted,
            ensemble.threads(),
            Progress(self.verbose, "sample", total * n_chains) as progress,
        ):
            while made < total:
                began = time.perf_counter()
                size = min(segment, most, total - made)
                if states is None:  # record: few states at a time
                    size = min(size, thin * max(1, _MOST_RECORDED // max(1, n_chains * n_sites)))
                room = (made + size) // thin - done
                if states is None:
                    part = np.empty((n_chains, room, n_sites), dtype=self.target_.dtype)
                    part_stats = np.empty((n_chains, room, stats.shape[2]))
                    ensemble.run(size, (thin, made % thin, 0), part, part_stats)
                    stats[:, done : done + room] = part_stats
                else:
                    part = states[:, done : done + room]
                    ensemble.run(size, (thin, made % thin, done), states, stats)
                counters.pending = (thin, (made + size) % thin)
                counters.n_transitions += size
                counters.n_draws += room
                if counters.tally is not None:
                    counters.tally.add(part, stats[:, done : done + room, 0], thin)
                for name, statistic in record.items() if room else ():
                    recorded[name].append(np.stack([self._apply(name, statistic, x) for x in part]))
                made, done = made + size, done + room
                progress(size * n_chains)
                # The next one as long as it takes to be done in a tenth of a second.
                segment = next_segment(segment, size, time.perf_counter() - began)
                if interrupted():
                    warnings.warn(
                        f"Interrupted: returning {done} of {n} draws per chain. Call sample "
                        "again to go on.",
                        InterruptedWarning,
                        stacklevel=3,
                    )
                    break
        return done

    @staticmethod
    def _check_record(record: Record | None) -> Record:
        if record is None:
            return {}
        if not isinstance(record, dict) or not record:
            raise TypeError(f"record is {record!r}; give a dict of names and callables.")
        for name, statistic in record.items():
            if not isinstance(name, str) or not callable(statistic):
                raise TypeError(
                    f"record[{name!r}] is {statistic!r}; names must be strings and values "
                    "callables that take states of shape (n_draws, *target.shape)."
                )
            if name in ("chain", "draw"):
                raise ValueError(f"record[{name!r}] is called like a dimension; rename it.")
        return record

    def _apply(self, name: str, statistic: Any, states: States) -> NDArray[Any]:
        states = states.reshape(-1, *self.target_.shape).copy()
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

    def _warn_about_draws(self, n_transitions: int) -> None:
        if not n_transitions:
            return
        if "acceptance_rate" in self.sample_stats_:
            self._warn_if_periodic(self.sample_stats_["acceptance_rate"].values, n_transitions)
        made = self._ensemble.counters.n_transitions
        if not self._warned_short and self.n_sites_ and made < self._sweep:
            self._warned_short = True
            warnings.warn(
                f"Each chain has made {made} transitions since fit, fewer than the {self._sweep} "
                f"of a sweep over the {self.n_sites_} variables: most had no chance to move. "
                'Draw a sweep apart, sample(n, thin="sweep").',
                ShortRunWarning,
                stacklevel=3,
            )
        self._warn_if_separated()
        moves = self.target_.cardinalities - 1
        moved = np.repeat(np.arange(self.n_sites_), moves)[self._ensemble.chains.moved.any(axis=0)]
        frozen = ~np.isin(np.arange(self.n_sites_), moved) & (self.target_.n_possible > 1)
        if frozen.any():
            first = int(frozen.argmax())
            label = self.target_.label(first)
            called = "" if label == first else f", {label!r}"
            warnings.warn(
                f"{int(frozen.sum())} of {frozen.size} variables never changed in this call "
                f"(the first is site {first}{called}). Their effective sample size is "
                "unknown; where all chains agree ArviZ reports it as perfect, and "
                "sklsb.diagnostics.ess gives NaN."
                f"{self._isolation(n_transitions)}{self._exact_hint()}",
                FrozenSitesWarning,
                stacklevel=3,
            )

    def _warn_if_isolated(self) -> None:
        history = getattr(self, "history_", xr.Dataset())
        if self._never_moved and history.sizes.get("iteration"):
            found = self._isolation(int(history["iteration"][-1]))
            if found:
                warnings.warn(found.strip(), FrozenSitesWarning, stacklevel=3)

    def _isolation(self, n_transitions: int) -> str:
        """Return what to say if chains that did not move in a sweep or more cannot, or nothing."""
        ensemble = self._ensemble
        if n_transitions < self._sweep or ensemble.chains.moved.any() or ensemble.rule.facts.parts:
            return ""
        return isolation(self.target_, ensemble.chains.x)

    def _exact_hint(self) -> str:
        if self._known_hint is None:
            self._known_hint = exact_hint(self.target_)
        return self._known_hint

    def _warn_if_separated(self) -> None:
        tally = self._ensemble.counters.tally
        if tally is None or tally.n_draws < FEWEST_DRAWS:
            return
        # Calls of a few draws each need not look again every time.
        if hasattr(self, "disagreement_") and tally.n_draws < 1.1 * self.disagreement_.n_draws:
            return
        self.disagreement_ = found = disagreement(tally, self.target_)
        if found.agree:
            return
        if found.lost:
            what = (
                "Before the burn-in a rare value of variable "
                f"{found.lost[0]} was found that chains keep for long once they have it; the draws "
                "came there a few times at most, or never. How much it weighs cannot be told from "
                "them"
            )
        else:
            what = self._described(found)
        warnings.warn(
            f"{what} (see disagreement_). Answers and errors from these draws may be wrong. "
            "Draw for longer, and see whether R-hat falls; start elsewhere, by initial_states or "
            'another random_state; or take ParallelTempering (the page "Separated modes" of the '
            f"documentation).{self._exact_hint()}",
            SeparatedModesWarning,
            stacklevel=4,
        )

    @staticmethod
    def _described(found: xr.Dataset) -> str:
        where = found.worst
        r_hat, ess = float(found["r_hat_lp"]), float(found["ess_lp"])
        if where != "lp":
            place = int(np.nanargmin(found["p_value"].values))
            r_hat, ess = (float(found[name].values.flat[place]) for name in ("r_hat", "ess"))
            where = f"variable {where}"
        size = f", effective sample size {ess:.0f}" if np.isfinite(ess) else ""
        return (
            "The chains disagree: they have not converged, or they are in separated modes that "
            f"they do not leave. Most of all in {where}: R-hat {r_hat:.3g}{size}"
        )

    def _warn_if_periodic(self, acceptance: NDArray[np.float64], n_transitions: int) -> None:
        # Uphill, in the first sweeps, all moves are accepted on any target.
        if not self._ensemble.rule.facts.may_be_periodic:
            return
        if self._warned_periodic or not self.n_sites_ or n_transitions < 2 * self.n_sites_:
            return
        rejected = 1.0 - float(acceptance.mean())
        if max(rejected * self.n_sites_, 0.0) + self._third_values() < _FEWEST_PER_SWEEP:
            self._warned_periodic = True
            warnings.warn(
                f"The chains reject {max(rejected, 0.0):.2g} of their moves: the target is flat, "
                "or nearly so, and a chain that changes one variable at every step visits even "
                "and odd states in turn. Set lazy=0.5, or thin by an odd number.",
                PeriodicChainWarning,
                stacklevel=4,
            )

    def _third_values(self) -> float:
        """Probability of a value beyond the two likeliest ones of a variable given the others.

        Summed over the variables, the mean over the present states.
        """
        sizes = self.target_.cardinalities
        if not (self.target_.n_possible > 2).any():
            return 0.0
        log_ratios = self.target_.log_ratios(self._ensemble.chains.x)
        first_move = np.cumsum(sizes - 1) - (sizes - 1)
        total = 0.0
        for size in np.unique(sizes[sizes > 2]):
            moves = first_move[sizes == size][:, np.newaxis] + np.arange(size - 1)
            p = softmax(np.pad(log_ratios[:, moves], ((0, 0), (0, 0), (0, 1))), axis=2)
            total += float(np.sort(p, axis=2)[:, :, :-2].sum())
        return total / len(log_ratios)

    def _attrs(self) -> dict[str, Any]:
        return {
            "inference_library": "sklsb",
            "inference_library_version": __version__,
            "sampler": type(self).__name__,
            "evaluation": self._ensemble.rule.facts.evaluation,
            "target": repr(self.target_),
            **self._settings,
        }
