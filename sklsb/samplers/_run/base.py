"""What every sampler shares: streams, chains, segments, progress, the returned datasets."""

import copy
import os
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import joblib
import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklsb import __version__
from sklsb._system.memory import at_once
from sklsb._system.progress import (
    FIRST_SEGMENT,
    Clock,
    Progress,
    deferred_interrupt,
    next_segment,
)
from sklsb._system.warn import warn
from sklsb.diagnostics.stopping import Rule as StopRule
from sklsb.diagnostics.stopping import Watch, check_stop
from sklsb.diagnostics.tally import Counters, Tally
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.protocol import MOST_NUMBERS, ChainEnsemble
from sklsb.ensembles.rules import transitions_of_a_sweep
from sklsb.ensembles.state import ChainState
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.elimination.cost import duration
from sklsb.exceptions import InterruptedWarning, SamplerWarning, StoreError
from sklsb.samplers._run.checks import (
    check_bool,
    check_count,
    check_n_chains,
    check_thin,
    is_n_jobs,
)
from sklsb.samplers._run.exports import Exports
from sklsb.samplers._run.observers import (
    AllDraws,
    GivenStatistics,
    Observed,
    Observer,
    Record,
    Run,
    RunningMarginals,
    RunningMoments,
    Statistics,
    check_record,
)
from sklsb.samplers._run.reference import Reference, find_reference
from sklsb.samplers._run.saving import Keeping
from sklsb.samplers._run.seen import Seen
from sklsb.samplers._run.starts import INITS, Starts
from sklsb.samplers._run.stored import Source, StoredDraws
from sklsb.samplers._run.thinning import THINNING, Thinning, find_thinning
from sklsb.samplers._run.warnings import CHANGED, Warned
from sklsb.storage.fingerprint import by_kernels, checked, where_different
from sklsb.targets._checks import not_a_target
from sklsb.targets.base import SYMMETRIES, Conditioned, States, Target
from sklsb.targets.function import FunctionTarget

# What is found after `fit`, or holds for a call.
_FOUND_LATER = (
    *("disagreement_", "sample_stats_", "_marginals", "_last_draws", "_thin_found"),
    *("_thin_evaluations", "_reference", "_tried", "_holder"),
)
# Parameters that count from the next call on, or are used up by `fit`.
_NOT_FROZEN = ("n_jobs", "verbose", "n_burn_in", "random_state")
# Values of a function, of about a thousand operations each, and seconds of one that is slower, that
# `fit` takes without a warning.
_MOST_VALUES, _MOST_SECONDS = 1 << 23, 300.0


def _is_of_package(target: Target) -> bool:
    plain = target.target if isinstance(target, Conditioned) else target
    return type(plain).__module__.startswith("sklsb.")


class BaseSampler(Keeping, Warned, Exports, BaseEstimator):
    """Base of the samplers: everything but the mathematics.

    A subclass stores its parameters in ``__init__``, checks them in ``check_parameters``, and moves
    the chains in ``burn_in``.
    """

    # Parameters that determine the transition; None if unknown.
    rule_parameters: ClassVar[tuple[str, ...] | None] = None
    # What parameters that may be a name take besides, for errors.
    _objects: ClassVar[dict[str, str]] = {}

    n_chains: int
    init: str = "auto"
    n_jobs: int | None
    random_state: Any
    verbose: int
    warm_start: bool
    n_burn_in: int | None

    _ensemble: ChainEnsemble
    _known_hint: str | None
    disagreement_: xr.Dataset
    # Names of what the last fit found.
    _found: tuple[str, ...] = ()
    # In a fit with warm_start, the sampler as it was.
    _before: Self | None = None
    # Parameters that new chains are made by.
    _frozen: dict[str, Any]
    # States of the chains, and log p there at the end of the last call.
    _law: tuple[States, NDArray[np.float64]] | None = None
    # What thin="auto" means, once it is known, and the evaluations that took.
    _thin_found: int
    _thin_evaluations = 0
    # Exact answers, when they were last asked for, and what they cost, all in evaluations.
    _reference: Reference | None = None
    _tried = _counted_from = _reference_cost = 0
    # Whether chains can go on if log p has changed since `fit`.
    _can_follow = True

    def set_params(self, **params: Any) -> Self:
        """Set parameters, which count from the next `fit` on.

        Only ``n_jobs`` and ``verbose`` also count from the next call of `sample`, and ``n_burn_in``
        for the new chains of `sample_chains`.

        Parameters
        ----------
        **params : Any
            Parameters by name; those of a parameter that is an object as in ``balancing__bound``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no such parameter, or what it belongs to is not an object with parameters.
        """
        for name in params:
            owner, _, inner = name.partition("__")
            value = params.get(owner, getattr(self, owner, None))
            if inner and owner in self._get_param_names() and not hasattr(value, "set_params"):
                advice = self._objects.get(owner, "an object with this parameter")
                raise ValueError(
                    f"{name} is the parameter {inner!r} of an object, but {owner} is {value!r}; "
                    f"give {advice} first."
                )
        return cast(Self, super().set_params(**params))

    @abstractmethod
    def check_parameters(self, target: Target) -> None:
        """Check the parameters against the target, before any work.

        ``n_chains``, ``n_jobs``, ``init``, ``warm_start``, ``keep_burn_in`` and ``n_burn_in`` are
        checked already.
        """

    @abstractmethod
    def make_ensemble(self, target: Target, states: States, streams: Streams) -> Any:
        """Return chains at these states, with these streams."""

    @abstractmethod
    def make_starts(self, target: Target, streams: Streams) -> Starts:
        """Return the states that chains start from if none are given."""

    def more_starts(self, target: Target, streams: Streams) -> Starts:
        """Return the states that new chains of the fitted sampler start from."""
        return self.make_starts(target, streams)

    @property
    def _may_stay(self) -> bool:
        """Whether chains may stay in one place for long."""
        return True

    @property
    def _worker(self) -> "BaseSampler":
        """The fitted sampler whose rule new chains have."""
        return self

    def _use_threads(self) -> None:
        """Set the number of threads to the present ``n_jobs``; no draw depends on it."""
        if not is_n_jobs(self.n_jobs):  # refused by `fit`
            return
        n = self._effective_n_jobs()
        if hasattr(self._ensemble, "n_threads"):  # torch's, which all chains share
            threads = {"n_threads": n}
        else:
            threads = {"n_jobs": min(n, max(1, len(self._ensemble)))}
        vars(self._ensemble).update(threads)
        self._settings["n_jobs"] = repr(self.n_jobs)

    def _effective_n_jobs(self) -> int:
        return int(joblib.effective_n_jobs(self.n_jobs))

    @abstractmethod
    def burn_in(self, target: Target, ensemble: Any) -> dict[str, Any]:
        """Run the burn-in; return the fitted attributes.

        It must not set them itself: an error or a Ctrl-C would leave half a fit.
        """

    def burn_in_length(self) -> int:
        """Transitions of new chains with the fitted rule before their first draw."""
        return int(getattr(self, "n_burn_in", None) or 0)

    def _n_values(self, target: Target) -> int:
        """Values of a function that the burn-in takes if the chains move; 0 if unknown."""
        return 0

    def _cheaper(self, target: Target) -> str:
        """Say what takes fewer values of a function."""
        return ""

    def _warn_of_cost(self, target: Target) -> None:
        """Warn before the work if it will take very many values of a function of the user."""
        plain = target.target if isinstance(target, Conditioned) else target
        if not isinstance(plain, FunctionTarget) or plain._compiled:
            return
        n = self._n_values(target)
        seconds = n * plain.seconds_of_value if n else 0.0
        if n * max(1, plain.value_cost) > _MOST_VALUES or seconds > _MOST_SECONDS:
            long = f", {duration(seconds)}," if seconds > _MOST_SECONDS else ""
            warn(
                f"The burn-in of {type(self).__name__} takes about {n:.2g} values{long} of "
                f"{plain!r:.100}{self._cheaper(target)}. verbose=1 shows how fast that goes; "
                "n_burn_in makes it shorter.",
                SamplerWarning,
            )

    def _after_burn_in(self) -> None:
        """Reset what the burn-in counted."""
        self._ensemble.chains.moved[:] = False

    def _settle(self, ensemble: Any, fitted: dict[str, Any]) -> Any:
        """Return the chains to draw with, by default the same ones."""
        return ensemble

    @abstractmethod
    def warn_about_fit(self) -> None:
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
            Ignored; scikit-learn's convention.
        initial_states : array_like of shape (n_chains, n_sites) or (n_sites,), optional
            Where the chains start; by default as ``init`` says, or with ``warm_start`` at the
            present states.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If target is not a Target.
        ValueError
            If a parameter is out of range, a state does not belong to the target, or the compiled
            log p differs from the target's.
        ImportError
            If ``fast=True`` and torch is not installed.
        RuntimeError
            If the sampler is at work in another thread.

        Warns
        -----
        PrecisionWarning
            If log p is so large that rounding exceeds 0.01; the message says whether the draws may
            be wrong.
        SamplerWarning
            Before the work, if the burn-in takes very many values of a function of yours; the
            message says what takes fewer.

        Notes
        -----
        A Ctrl-C raises a KeyboardInterrupt, and leaves the sampler as it was before the call.
        """
        try:
            with self._alone():
                made = self._unfitted()
                given = vars(made).keys() | {"_before"}
                made._before = self if getattr(self, "warm_start", False) else None
                made._fit(target, initial_states)
                del made._before
                made._found = (*(vars(made).keys() - given),)
                self.__dict__ = made.__dict__  # at once, and only if all went well
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(
                "fit was interrupted; the sampler is as it was before, "
                f"{'fitted' if hasattr(self, 'target_') else 'not fitted'}."
            )
            raise
        self.warn_about_fit()
        self._warn_if_isolated()
        self._warn_of_rounding()
        return self

    def _unfitted(self) -> Self:
        """Return a sampler without anything that `fit` or `sample` found."""
        made = type(self).__new__(type(self))
        params = self.get_params(deep=False)
        found = {*self._found, *_FOUND_LATER} - params.keys()
        # Others stay: a subclass, or scikit-learn, may have set them before.
        made.__dict__.update((name, v) for name, v in vars(self).items() if name not in found)
        return made

    def _fit(self, target: Target, initial_states: ArrayLike | None) -> None:
        if not isinstance(target, Target):
            raise not_a_target(target)
        if not (target.symmetry is None or target.symmetry in SYMMETRIES):
            raise ValueError(
                f"symmetry of {target!r:.200} is {target.symmetry!r}; it must be one of "
                f"{list(SYMMETRIES)}, or None if no symmetry is known."
            )
        n_chains = check_n_chains(self.n_chains, target)
        if not is_n_jobs(self.n_jobs):
            raise ValueError(
                f"n_jobs is {self.n_jobs!r}; give a number of threads, -1 for all cores, or None."
            )
        if not isinstance(self.init, str) or self.init not in INITS:
            raise ValueError(f"init is {self.init!r}; it must be one of {list(INITS)}.")
        for name in ("warm_start", "keep_burn_in"):
            check_bool(getattr(self, name, False), name)
        if getattr(self, "n_burn_in", None) is not None:
            check_count(self.n_burn_in, "n_burn_in", 0)
        self.check_parameters(target)
        target._check_function()
        self._warn_of_cost(target)
        before = self._state_before(target, n_chains)
        streams = before.streams if before else Streams(spawn(self.random_state, n_chains))
        found = Starts(np.empty(0, np.int8), np.zeros(n_chains, np.int64))
        with Clock() as clock:
            if initial_states is not None:
                states = self._check_initial(target, initial_states, n_chains)
            elif before:  # perhaps on another target
                states = self._check_initial(target, before.x, n_chains, "state_")
            else:
                found = self.make_starts(target, streams)
                states = found.x
            ensemble = self.make_ensemble(target, states, streams)
            ensemble.add_evaluations(found.evaluations)
            if isinstance(ensemble, Ensemble) and not _is_of_package(target):
                checked(ensemble)  # most faults of a class of one's own show before the work
            with ensemble.threads():
                fitted = self.burn_in(target, ensemble)
                ensemble = self._settle(ensemble, fitted)
                fitted["_law"] = checked(ensemble)
        if "history_" in fitted:
            fitted["history_"].attrs |= clock.attrs()
        self._never_moved = not ensemble.chains.moved.any()
        ensemble.chains.moved[:] = False
        self.__dict__.update(fitted)
        self._freeze()
        self._ensemble = ensemble
        self.target_ = target
        self.n_sites_ = target.n_sites
        self._count_anew(found.kept)
        if found.reference is not None:
            self._reference, self._reference_cost = found.reference, found.reference.cost

    def _state_before(self, target: Target, n_chains: int) -> ChainState | None:
        """Return a copy of the state of the last fit's chains, if these are to go on."""
        if self._before is None or not hasattr(self._before, "target_"):
            return None
        ensemble = self._before._ensemble
        if (
            ensemble.chains.x.shape != (n_chains, target.n_sites)
            or ensemble.target.values != target.values
        ):
            raise ValueError(
                f"warm_start continues chains of shape {ensemble.chains.x.shape} with "
                f"values {ensemble.target.values}, but now n_chains is {n_chains} and the "
                f"target has {target.n_sites} sites with values {target.values}. "
                "Set warm_start=False."
            )
        return ensemble.state()

    def _freeze(self) -> None:
        """Keep the parameters, whatever is set later."""
        given = self.get_params(deep=False)
        self._settings = {name: repr(value) for name, value in given.items()}
        kept = {name: value for name, value in given.items() if name not in _NOT_FROZEN}
        self._frozen = copy.deepcopy(kept)

    def _as_fitted(self) -> Self:
        """Return a sampler with the same attributes and chains, and the parameters of `fit`."""
        made = self._twin()
        made.__dict__.update(getattr(self, "_frozen", {}))  # none in older files
        return made

    def _count_anew(self, kept: Any = (), since: str = "fit") -> None:
        """Reset everything that is counted over calls."""
        self._since = since
        self._warned_short = self._warned_periodic = False
        self._known_hint = None
        for old in ("_reference", "_tried"):
            self.__dict__.pop(old, None)
        self._counted_from = 0 if since == "fit" else self.n_evaluations_
        tally = self._new_tally(len(self._ensemble), kept if self._may_stay else ())
        self._ensemble.counters = Counters(tally=tally)

    def _new_tally(self, n: int, kept: Any, n_all: int | None = None) -> Tally:
        tally = Tally.by_sweep(self.target_, n, self._sweep, kept, n_all)
        if self._ensemble.rule.facts.conserves_counts:
            tally.symmetry = None  # of p, but not of p at these counts
        return tally

    def _follow_target(self, store: Any = None) -> None:
        """If log p of the target has changed, go on from the new one; not into a store."""
        told = self._change_of_target()
        if not told:
            return
        before = self._ensemble
        if store is not None and Path(store).exists():
            raise StoreError(f"{told} {store} holds draws from the old one: give another path.")
        if not (self._can_follow and self.target_._may_change):
            raise ValueError(
                f"{told} What {type(self).__name__} keeps is of the old one: make a new target, "
                "and fit again; warm_start=True goes on from the present states."
            )
        possible = np.isfinite(self.target_.log_prob(before.chains.x))
        if not possible.all():
            raise ValueError(
                f"{told} The present state of chain {int(possible.argmin())} has become "
                "impossible; fit again with warm_start=False, or give initial_states."
            )
        self._continue_from(before.chains.x)
        for old in ("disagreement_", "_thin_found"):
            self.__dict__.pop(old, None)
        self._count_anew(since=CHANGED)

    def _continue_from(self, states: States) -> None:
        """Let the chains go on from these states, by the target as it is now."""
        before = self._ensemble
        made = before.like(states, before.streams)
        made.add_evaluations(before.chains.evaluations[:, 0])
        self._law, self._ensemble = checked(made), made

    def _change_of_target(self) -> str:
        """Say how log p, or its compiled version, has changed since the last call; else ""."""
        if self._law is None:  # a file of an older version
            return ""
        ensemble, target, (x, then) = self._ensemble, self.target_, self._law
        target._check_mode()
        now = target.log_prob(x)
        c = where_different(target, x, now, then)
        if c is None and np.array_equal(x, ensemble.chains.x):
            now = by_kernels(ensemble)[1]
            c = where_different(target, x, now, then)
        if c is None:
            return ""
        return (
            f"{repr(target)[:200]} has changed since the last call: log p at the state of chain "
            f"{c} was {then[c]:.12g}, and is {now[c]:.12g}."
        )

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

        The attribute ``evaluation`` of the draws says what is counted: log-ratios of changes,
        log-densities with their gradients, or drawn units.
        """
        check_is_fitted(self, "target_")
        counted = int(self._ensemble.chains.evaluations.sum())
        return counted + self._thin_evaluations + self._reference_cost

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a second thread: two of them moving the same chains would corrupt them."""
        # Not a lock: a Ctrl-C at any point must leave it known who holds the sampler.
        me = object()
        try:
            if self.__dict__.setdefault("_holder", me) is not me:
                raise RuntimeError(
                    "This sampler is already running in another thread. Use one sampler per "
                    "thread, or n_jobs for threads inside one."
                )
            yield
        finally:
            if self.__dict__.get("_holder") is me:
                del self.__dict__["_holder"]

    def __getstate__(self) -> dict[str, Any]:
        # None of these can be pickled, or need be.
        hidden = ("_holder", "_last_draws", "_reference", "_tried")
        return {name: v for name, v in super().__getstate__().items() if name not in hidden}

    def _twin(self) -> Self:
        """Return a sampler with the same attributes, and the same chains."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__getstate__())
        return made

    def __copy__(self) -> Self:
        """Return an independent sampler that goes on bit for bit."""
        made = self._twin()
        if hasattr(self, "_ensemble"):
            made._ensemble = self._ensemble.copy()
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "target_")

    @property
    def _sweep(self) -> int:
        return transitions_of_a_sweep(self._ensemble.rule, self.target_)

    @property
    def thin_(self) -> int:
        """Transitions per draw with ``thin="auto"``: a draw is worth about half an independent one.

        Found at the first use after `fit`, by copies of the chains, and then kept.
        """
        check_is_fitted(self, "target_")
        with self._alone():
            self._follow_target()
            return self._transitions("auto")

    def _auto_thin(self) -> int:
        if not hasattr(self, "_thin_found"):
            found = self._find_thin()
            # At an even distance all draws of chains that visit two kinds in turn are of one.
            if self._warned_periodic and found.thin % 2 == 0:
                found = found._replace(thin=found.thin + 1)
            self._thin_found = found.thin
            self._thin_evaluations += found.evaluations
            self._warn_if_bounded(found)
        return self._thin_found

    def _find_thin(self) -> Thinning:
        self._use_threads()
        # Of a copy: the streams of the chains do not know of it.
        streams = Streams(self._ensemble.streams.copy().of("pilot", THINNING))
        spent = int(self._ensemble.chains.evaluations.sum())
        return find_thinning(self._copies(streams), self._sweep, spent)

    def _copies(self, streams: Streams) -> Any:
        """Return chains that go on from the present states, on other streams, one for each."""
        return self._ensemble.like(self._ensemble.chains.x[: len(streams)], streams)

    def _transitions(self, thin: int | str) -> int:
        """Return the transitions per draw that ``thin``, which is checked, means."""
        if isinstance(thin, str):
            return self._sweep if thin == "sweep" else self._auto_thin()
        return thin

    def sample(
        self,
        n: int,
        *,
        thin: int | str = 1,
        record: Record | None = None,
        store: str | os.PathLike[str] | None = None,
        stop: StopRule | Sequence[StopRule] | None = None,
    ) -> xr.Dataset:
        r"""Draw from the chains, which go on from where they are.

        Parameters
        ----------
        n : int
            Draws per chain; with ``stop``, the maximum.
        thin : int, "sweep" or "auto", default=1
            Transitions per draw; "sweep" gives each variable one chance to move: n_sites
            transitions if each changes one variable. "auto" makes each draw worth about half an
            independent one (see Notes).
        record : dict of name to callable, "moments", "marginals" or Observer, optional
            Statistics to keep instead of the states. Each is called with states of shape (n_draws,
            ``*target.shape``), a segment at a time, and returns an array of leading length n_draws.
            "moments", "marginals": only running sums, in memory that does not grow with n. An
            `sklsb.extending.Observer` keeps what you like.
        store : path-like, optional
            Folder that the draws are written to as they come, with checkpoints to go on from after
            a crash: see `resume` and `sklsb.open_draws`. It is created; an existing one must end
            where the chains of this sampler are, and the draws are appended.
        stop : callable or list of callable, optional
            Rules, any of which ends the call: see `sklsb.diagnostics`. The attribute
            ``stopped_by`` names the one that did; it is "" if none did, so the call made all n
            draws or was interrupted. The draws are a prefix of those that a call without rules
            would return.

        Returns
        -------
        xarray.Dataset
            Variable ``x`` of dims (chain, draw) and those of the target, int8 (int16 for values
            above 127), with the coordinate ``lp``, the log-density of each draw; or the statistics.
            The coordinate ``draw`` goes on counting over calls. Log p and acceptance rates are in
            ``sample_stats_``. With ``store`` values are read from there on demand. The sampler does
            not keep the draws.

            With ``record="moments"``, over all draws of all chains: ``p`` and ``mcse``, the
            probability of each value (dim ``state``); ``mean``, ``second_moment`` (of the square),
            ``lp``, and for up to 256 variables ``pair_moment`` (of the products), each with its
            Monte Carlo standard error, ``mean_mcse`` and so on, from batch means. If visits are
            few, `sklsb.diagnostics.marginals`, which sees them, gives better errors.

            With ``record="marginals"``: ``p`` and ``mcse`` as of `sklsb.diagnostics.marginals`,
            and ``lp`` with its error. Here p is the average over the draws of the probability of
            each value given the other variables (see Notes).

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If an argument is not as described, the store holds something else, or the target has
            changed and the chains cannot follow it.
        ImportError
            If ``store`` is given and zarr is not installed.
        MemoryError
            Before any work, if the draws do not fit in free memory.

        Notes
        -----
        ``sample(a)`` followed by ``sample(b)`` gives the draws of ``sample(a + b)``, unless log p
        at the present states has changed in between. Then chains of a `FunctionTarget` or
        `TorchTarget` go on with the new log p and the learned function, and all counts start again;
        with other targets, and in `ParallelTempering`, that is a ValueError.

        With ``thin="auto"`` copies of the chains go on, in rounds of growing length, until their
        autocorrelation shows. If it is exp(-t / T) at distance t, draws k transitions apart are
        worth

        .. math:: \frac{1 - \rho}{1 + \rho}, \qquad \rho = e^{-k / T}

        independent ones each, which is 1/2 for k = 1.1 T. T is that of all variables together,
        each weighted by its variance. It is found once, at the first use after `fit`, on streams
        of its own, so that the draws are those of ``thin=sampler.thin_``.

        The Rao-Blackwellised marginals of ``record="marginals"`` [1]_ are

        .. math:: \hat p(x_i = s) = \frac{1}{n} \sum_t p(x_i = s \mid x_{-i}^{(t)}), \qquad
                  \frac{p(x_i = s \mid x_{-i})}{p(x_i = r \mid x_{-i})}
                  = \frac{p(x \text{ with } x_i = s)}{p(x \text{ with } x_i = r)}

        over all n draws of all chains. Each draw takes the log-ratios of all changes of one
        variable, which count in ``n_evaluations_``. Errors are by batch means, widened as in
        `sklsb.diagnostics.marginals` where little was seen. A steady conditional probability does
        not tell how long the chain would stay: of a value with v visits, mcse is at least
        min(1, 8 / v) of the error that counting its draws and visits gives. Of a value that no draw
        had, or that all draws had, mcse is NaN, however steady its conditional probability was: how
        long it stays once it gets there is unknown. Modes that no chain found leave no trace.

        On Ctrl-C the draws so far are returned (and stored), with an InterruptedWarning. If a
        statistic raises, the draws of this call are lost (with a store, those since its last
        checkpoint), and the chains are where the statistic was last called.

        States are int8 or int16: cast them before multiplying or summing, which may overflow.

        References
        ----------
        .. [1] A. E. Gelfand and A. F. M. Smith, "Sampling-based approaches to calculating marginal
           densities", Journal of the American Statistical Association 85 (1990).
        """
        check_is_fitted(self, "target_")
        n, thin = check_count(n, "n", 0), check_thin(thin)
        wanted, rules = check_record(record), check_stop(stop)
        with self._alone():
            self._follow_target(store)
            step = self._transitions(thin)
        check_count(n * step, "n * thin", 0)
        with deferred_interrupt() as interrupted, self._alone():
            watch = Watch(rules, self.target_, self._ensemble.counters, step)
            with self._observed(n, step, wanted, store) as observed:
                self._use_threads()
                done = self._draw(n, step, observed, watch, interrupted)
                self._law = by_kernels(self._ensemble)
            told = interrupted()
            attrs = self._attrs() | {"thin": step, "sampled_transitions": done * step}
            attrs |= {"stopped_by": watch.stopped_by} if rules else {}
            result, self.sample_stats_ = observed.result(attrs)
            self._last_draws = weakref.ref(result)
            self._warn_about_draws(done, done * step, observed.acceptance(done))
            held = store is None and (isinstance(wanted, str) or wanted == {})
            self._warn_if_wrong(result if held else None, done, lambda: not interrupted())
            if done:
                self._warn_of(self._findings())
            if interrupted() and not told:
                warn(
                    f"Interrupted after the last draw: returning all {done} draws per chain.",
                    InterruptedWarning,
                )
        return result

    def _reference_now(self, going_on: Callable[[], bool]) -> Reference | None:
        made = self.n_evaluations_ - self._counted_from
        if self._reference is None and made >= 2 * self._tried:
            self._tried = made
            fixed = self._ensemble.rule.facts.conserves_counts
            like = self._ensemble.chains.x[0] if fixed else None
            costly = bool(self.verbose) and self.target_.ratio_cost > 1
            with Progress(costly, "exact answers"):
                self._reference = find_reference(self.target_, made, going_on, like)
            if self._reference is not None:
                self._reference_cost = self._reference.cost
        return self._reference

    def _observed(self, n: int, thin: int, record: Record, store: Any) -> Observed:
        """Return what is told of n draws, before the first of them."""
        names, counters = self._ensemble.rule.facts.stat_names, self._ensemble.counters
        run = Run(self.target_, len(self._ensemble), n, counters.n_draws, names)
        return Observed(self._observer(thin, record, store), run)

    def _observer(self, thin: int, record: Record, store: Any) -> Observer:
        if store is not None and not isinstance(record, dict):
            shown = f'"{record}"' if isinstance(record, str) else f"{record!r:.200}"
            raise ValueError(f"record={shown} keeps no single draws to store; give one of the two.")
        if isinstance(record, Observer):
            return record
        if record == "moments":
            return RunningMoments()
        if record == "marginals":
            if self._ensemble.rule.facts.conserves_counts:
                raise ValueError(
                    'record="marginals" averages what p says of a variable given the others; '
                    f"{type(self).__name__} draws at fixed counts of values, where these leave "
                    'one value. Give record="moments".'
                )
            return RunningMarginals(self._ensemble)
        statistics = cast(Statistics, record)
        if store is not None:
            source = Source(
                name=type(self).__name__,
                attrs=self._attrs() | {"thin": thin},
                states=self._ensemble.chains.x,
                sampler=self._packed,
                chains=self._packed_chains,
            )
            return StoredDraws(Path(store), source, statistics)
        return GivenStatistics(statistics) if statistics else AllDraws()

    def _make_ahead(self, n: int, coming: int, going_on: Callable[[], bool]) -> bool:
        """Precompute redraws for the next n transitions; False if interrupted.

        It may precompute more, up to ``coming``. ``going_on`` is called repeatedly; if it returns
        False, nothing is changed.
        """
        chains = self._ensemble
        return not hasattr(chains, "make_ahead") or chains.make_ahead(n, coming, going_on)

    def _draw(
        self, n: int, thin: int, observed: Observed, watch: Watch, interrupted: Callable[[], bool]
    ) -> int:
        """Make n draws, a segment at a time; return the number of complete ones."""
        ensemble, counters = self._ensemble, self._ensemble.counters
        n_chains = len(ensemble)
        total, done = n * thin, 0
        # After a Ctrl-C in the middle of a draw, the next call completes it.
        made = counters.pending[1] if counters.pending[0] == thin else 0
        enough = watch.next <= 0 and watch.ends()  # then the chains do not change
        if not enough:
            ensemble.chains.moved[:] = False
            if not made:
                ensemble.forget_acceptance()
        most = at_once(MOST_NUMBERS, ensemble.rule.facts.n_uniforms)
        segment = FIRST_SEGMENT
        seen = Seen(self.target_, counters, ensemble.rule.facts.stat_names, n_chains)
        line = Progress(self.verbose, "sample", total * n_chains, "steps", seen)
        with ensemble.threads(), line as progress:

            def going_on() -> bool:
                progress(0)
                return not interrupted()

            while made < total and not enough:
                began = time.perf_counter()
                end = min(total, watch.next * thin)
                size = min(segment, most, end - made, thin * observed.most - made % thin)
                if not self._make_ahead(size, end - made, going_on):
                    break
                room = (made + size) // thin - done
                states, stats, at = observed.room(room)
                ensemble.run(size, (thin, made % thin, at), states, stats, *observed.sums)
                counters.pending = (thin, (made + size) % thin)
                counters.n_transitions += size
                counters.n_draws += room
                new = slice(at, at + room)
                if counters.tally is not None:
                    counters.tally.add(states[:, new], stats[:, new, 0], thin)
                if self.verbose:
                    seen.add(stats[:, new])
                observed.put(room)
                made, done = made + size, done + room
                progress(size * n_chains)
                # The next segment is to take a tenth of a second.
                segment = next_segment(segment, size, time.perf_counter() - began)
                stop = watch.ends()  # also after a Ctrl-C: the next call does not ask again
                if stop or interrupted():
                    break
            if interrupted():
                warn(
                    f"Interrupted: returning {done} of {n} draws per chain. Call sample again to "
                    "go on.",
                    InterruptedWarning,
                )
            if watch.stopped_by:
                line.end(f"stopped by {watch.stopped_by}")
            observed.end(watch.stopped_by if watch.rules else None)
        return done

    def _attrs(self) -> dict[str, Any]:
        return {
            "inference_library": "sklsb",
            "inference_library_version": __version__,
            "sampler": type(self).__name__,
            "evaluation": self._ensemble.rule.facts.evaluation,
            "target": repr(self.target_),
            "sweep": self._sweep,
            **({"conserves_counts": 1} if self._ensemble.rule.facts.conserves_counts else {}),
            **self._settings,
        }
