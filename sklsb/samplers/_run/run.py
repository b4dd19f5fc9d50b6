"""A run: chains that `fit` brought to where they are, all that is counted of them, and draws."""

import copy
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import xarray as xr

from sklsb import __version__
from sklsb._system.arrays import Array
from sklsb._system.progress import Progress, deferred_interrupt
from sklsb._system.warn import warn
from sklsb.diagnostics.draws import attrs_of
from sklsb.diagnostics.stopping import StopRule
from sklsb.diagnostics.tally import Tally
from sklsb.ensembles.base import ChainEnsemble, Counters
from sklsb.exceptions import InterruptedWarning, ModelWarning, StoreError
from sklsb.samplers._run.observers import (
    Call,
    KeptDraws,
    KeptStatistics,
    Observer,
    Record,
    RunningMarginals,
    RunningMoments,
    results,
)
from sklsb.samplers._run.stored import Place, StoredDraws
from sklsb.samplers._run.traits import Traits
from sklsb.samplers._run.warnings import CHANGED, DrawWarnings
from sklsb.samplers._run.watch import Watch
from sklsb.storage.codec import packed
from sklsb.storage.fingerprint import by_kernels, checked, probed, where_different
from sklsb.targets.base import States
from sklsb.trials.reference import Reference, find_reference
from sklsb.trials.starts import Starts

# Who moves the chains of a run or of a sampler, by the id of these.
_HOLDERS: dict[int, object] = {}


@contextmanager
def exclusive(owner: object) -> Iterator[None]:
    """Refuse a second thread: two of them moving the same chains would corrupt them."""
    # Not a lock: a Ctrl-C at any point must leave it known who holds the sampler.
    me = object()
    try:
        if _HOLDERS.setdefault(id(owner), me) is not me:
            raise RuntimeError(
                "This sampler is already running, in another thread or in a call that is still in "
                "progress, as when a function of record calls it. Use one sampler for each, or "
                "n_jobs for threads inside one."
            )
        yield
    finally:
        if _HOLDERS.get(id(owner)) is me:
            del _HOLDERS[id(owner)]


class Run(DrawWarnings):
    """Chains on a target after their burn-in, and all that changes as they go on.

    `fit` makes one and puts it in the place of the last one. `copy.copy` and pickles go on bit for
    bit by themselves.

    Parameters
    ----------
    algorithm : Traits
        What made the chains. It has the parameters of the fit; only those change that
        `follow` takes over.
    ensemble : ChainEnsemble
        The chains.
    last_log_prob : tuple of states and their log p
        Where the chains are, and log p there, at the end of the last call.
    starts : Starts
        Where they started.
    fitted : dict
        Attributes that the fit found; ``history_`` and ``burn_in_`` are kept.
    """

    _not_in_files = ("sample_stats",)
    reference: Reference | None
    watch: Watch | None = None  # of the call under way
    unpickled: bool  # until log p was compared with what it was
    probes: tuple[States, Array] | None

    def __init__(
        self,
        algorithm: Traits,
        ensemble: ChainEnsemble,
        last_log_prob: tuple[States, Array],
        starts: Starts,
        fitted: dict[str, Any],
    ) -> None:
        self.algorithm, self.target, self.unpickled = algorithm, algorithm.target, False
        self.ensemble, self.last_log_prob = ensemble, last_log_prob
        given = algorithm.params.get_params(deep=False)
        self.settings = {name: repr(value) for name, value in given.items()}
        self.history: xr.Dataset | None = fitted.get("history_")
        self.burn_in: xr.Dataset | None = fitted.get("burn_in_")
        self.keep_probes()
        self.never_moved = not ensemble.chains.moved.any()
        ensemble.chains.moved[:] = False
        # What thin="auto" means, once it is known, and the evaluations that took.
        self._thin: int | None = None
        self._thin_evaluations = 0
        self.disagreement: xr.Dataset | None = None
        self.sample_stats: xr.Dataset | None = None
        # Not the draws: they must be freed when the user lets go of them.
        self.last_draws: weakref.ref[xr.Dataset] | None = None
        self.reference_cost = 0
        self.count_anew(starts.kept)
        if starts.reference is not None:
            self.reference, self.reference_cost = starts.reference, starts.reference.cost

    # ----------------------------------------------------------------- what it is

    def __repr__(self) -> str:
        return f"Run({len(self.ensemble)} chains on {self.target!r:.200})"

    @property
    def x(self) -> States:
        """Present state of each chain, shape (n_chains, n_sites); a copy."""
        return self.ensemble.chains.x.copy()

    @property
    def n_evaluations(self) -> int:
        """Evaluations since `fit` began, over all chains."""
        counted = int(self.ensemble.chains.evaluations.sum())
        return counted + self._thin_evaluations + self.reference_cost

    @property
    def verbose(self) -> int:
        """Whether progress is shown."""
        return int(self.algorithm.params.verbose)

    def attrs(self) -> dict[str, Any]:
        """Return the attributes of draws: settings, target and version."""
        facts = self.ensemble.rule.facts
        return {
            "inference_library": "sklsb",
            "inference_library_version": __version__,
            "sampler": type(self.algorithm.params).__name__,
            "evaluation": facts.evaluation,
            **attrs_of(self.target),
            "sweep": self.sweep,
            **({"conserves_counts": 1} if facts.conserves_counts else {}),
            **self.settings,
            **self.algorithm.attrs(self.ensemble),
        }

    # ----------------------------------------------------------------- who may move the chains

    def follow(self, n_jobs: int | None, verbose: int) -> None:
        """Take over the parameters that count from the next call on."""
        self.algorithm.params.n_jobs, self.algorithm.params.verbose = n_jobs, verbose
        self.settings |= {"n_jobs": repr(n_jobs), "verbose": repr(verbose)}

    def use_threads(self) -> None:
        """Set the number of threads to the present ``n_jobs``; no draw depends on it."""
        self.ensemble.use_threads(self.algorithm.n_threads)

    def __getstate__(self) -> dict[str, Any]:
        # None of these can be pickled, or need be.
        return vars(self) | {"last_draws": None, "reference": None, "tried": 0, "watch": None}

    def __reduce_ex__(self, protocol: Any) -> Any:
        make, given, state, *_ = cast(tuple[Any, ...], super().__reduce_ex__(protocol))
        return make, given, state | {"unpickled": True}

    def shallow_copy(self) -> Self:
        """Return a run with the same chains."""
        made = type(self).__new__(type(self))
        vars(made).update(self.__getstate__())
        made.algorithm = copy.copy(self.algorithm)
        made.algorithm.params = copy.copy(self.algorithm.params)
        made.settings = dict(self.settings)
        return made

    def forget(self) -> None:
        """Forget everything that new chains of the same algorithm do not need."""
        self.history = self.burn_in = self.disagreement = self.sample_stats = None
        self.last_log_prob = (self.last_log_prob[0][:0], self.last_log_prob[1][:0])
        self.warned_short = self.warned_periodic = False
        self.warned_frozen = np.zeros(self.target.n_sites, bool)
        self.known_hint = self._thin = None
        self._thin_evaluations = self.reference_cost = self.counted_from = 0

    def __copy__(self) -> Self:
        with exclusive(self):
            made = self.shallow_copy()
            made.ensemble = self.ensemble.copy()
        return made

    def packed(self) -> bytes:
        """Return all but the target as bytes."""
        return packed(self, {"target": self.target})

    def packed_chains(self) -> bytes:
        """Return the part of the chains that changes as they move."""
        known = {"target": self.target} | self.ensemble.fixed()
        state: Any = self.ensemble.__getstate__()
        return packed(state, known)

    # ----------------------------------------------------------------- counts

    def count_anew(self, kept: Any = (), since: str = "fit") -> None:
        """Reset everything that is counted over calls."""
        self.since = since
        self.warned_short = self.warned_periodic = False
        self.warned_frozen = np.zeros(self.target.n_sites, bool)
        self.known_hint = None
        # Exact answers, when they were last asked for, and from which evaluation on.
        self.reference = None
        self.tried = 0
        self.counted_from = 0 if since == "fit" else self.n_evaluations
        tally = self.new_tally(len(self.ensemble), kept if self.algorithm.may_stay else ())
        self.ensemble.counters = Counters(tally=tally)

    def new_tally(self, n: int, kept: Any, n_all: int | None = None) -> Tally:
        """Return a tally of n chains, of ``n_all`` in the whole run."""
        tally = Tally.by_sweep(self.target, n, self.sweep, kept, n_all)
        if self.ensemble.rule.facts.conserves_counts:
            tally.symmetry = None  # of p, but not of p at these counts
        return tally

    def reference_now(self, going_on: Callable[[], bool]) -> Reference | None:
        """Return exact answers, if they take no more than what was made so far."""
        made = self.n_evaluations - self.counted_from
        if self.reference is None and made >= 2 * self.tried:
            self.tried = made
            fixed = self.ensemble.rule.facts.conserves_counts
            like = self.ensemble.chains.x[0] if fixed else None
            costly = bool(self.verbose) and self.target.ratio_cost > 1
            with Progress(costly, "exact answers"):
                self.reference = find_reference(self.target, made, going_on, like)
            if self.reference is not None:
                self.reference_cost = self.reference.cost
        return self.reference

    # ----------------------------------------------------------------- a target that changes

    def follow_target(self, store: Any = None) -> None:
        """If log p of the target has changed, go on from the new one; not into a store."""
        change = self._change_of_target()
        if not change:
            self.unpickled = False
            return
        states = self.ensemble.chains.x
        if store is not None and Path(store).exists():
            raise StoreError(f"{change} {store} holds draws from the old one: give another path.")
        if not (self.algorithm.can_follow and self.target.offers.may_change):
            name = type(self.algorithm.params).__name__
            raise ValueError(
                f"{change} What {name} keeps is of the old one: make a new target, "
                "and fit again; warm_start=True goes on from the present states."
            )
        possible = np.isfinite(self.target.log_prob(states))
        if not possible.all():
            raise ValueError(
                f"{change} The present state of chain {int(possible.argmin())} has become "
                "impossible; fit again with warm_start=False, or give initial_states."
            )
        self.continue_from(states)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget what was found of a log p that has changed."""
        self.disagreement = self._thin = None
        self.most_effective = math.inf
        self.count_anew(since=CHANGED)
        self.probes = None
        if self.unpickled:
            self.unpickled = False
            warn(
                f"Log p of {self.target!r:.100} has changed since the sampler was pickled, as when "
                "its function was edited. Its chains go on from where they were, by the new one; "
                "what fit learned is of the old one. Fit again unless you meant that.",
                ModelWarning,
            )

    def continue_from(self, states: States) -> None:
        """Let the chains go on from these states, by the target as it is now."""
        before = self.ensemble
        made = before.like(states, before.streams)
        made.add_evaluations(before.chains.evaluations[:, 0])
        self.last_log_prob, self.ensemble = checked(made), made

    def keep_log_prob(self) -> None:
        """Remember log p at the present states."""
        self.last_log_prob = by_kernels(self.ensemble)

    def keep_probes(self) -> None:
        """Remember log p at other states, too, where it may change unseen by the chains."""
        one_by_one = not self.ensemble.rule.facts.conserves_counts
        changes = self.target.offers.may_change and one_by_one
        # Others at each call.
        given = self.target, self.ensemble.chains.x, int(self.ensemble.chains.evaluations.sum())
        self.probes = probed(*given) if changes else None

    def _change_of_target(self) -> str:
        """Say how log p, or its compiled version, has changed since the last call; else ""."""
        ensemble, target, (x, then) = self.ensemble, self.target, self.last_log_prob
        target.offers.look(again=True)
        now = target.log_prob(x)
        c = where_different(target, x, now, then)
        if c is None and np.array_equal(x, ensemble.chains.x):
            now = by_kernels(ensemble)[1]
            c = where_different(target, x, now, then)
        where = f"the state of chain {c}"
        if c is None and self.probes is not None:
            x, then = self.probes
            now = target.log_prob(x)
            c = where_different(target, x, now, then)
            where = "another state"
        if c is None:
            return ""
        return (
            f"{repr(target)[:200]} has changed since the last call: log p at {where} was "
            f"{then[c]:.12g}, and is {now[c]:.12g}."
        )

    # ----------------------------------------------------------------- draws

    def transitions(self, thin: int | str) -> int:
        """Return the transitions per draw that ``thin``, which is checked, means."""
        if isinstance(thin, int):
            return thin
        if thin == "sweep":
            return self.sweep
        if self._thin is None:
            self.use_threads()
            found = self.algorithm.find_thin(self.ensemble)
            # At an even distance all draws of chains that visit two kinds in turn are of one.
            if self.warned_periodic and found.thin % 2 == 0:
                found = found._replace(thin=found.thin + 1)
            self._thin = found.thin
            self._thin_evaluations += found.evaluations
            self.warn_if_bounded(found)
        return self._thin

    def sample(
        self,
        n: int,
        step: int,
        record: Record,
        rules: tuple[StopRule, ...],
        attrs: dict[str, Any],
        store: Place | None = None,
    ) -> xr.Dataset:
        """Make n draws, ``step`` transitions apart; `BaseSampler.sample` says more."""
        with deferred_interrupt() as interrupted:
            watch = Watch(rules, self.ensemble, n, step, self.verbose)
            attrs = attrs | {"thin": step}
            observer = self.observer(record, store, attrs)
            self.use_threads()
            carry = self.draw(observer, watch, interrupted)
            done, cut_short = watch.made, interrupted()
            attrs |= {"sampled_transitions": done * step}
            attrs |= {"stopped_by": watch.stopped_by} if rules else {}
            found = results(observer, carry, self.ensemble)
            result, self.sample_stats = (data.assign_attrs(attrs) for data in found)
            self.last_draws = weakref.ref(result)
            self.warn_about_draws(done, done * step, watch.acceptance)
            held = store is None and (isinstance(record, str) or record == {})
            self.warn_if_wrong(result if held else None, done, lambda: not interrupted())
            if done:
                self.algorithm.warn_of(self.algorithm.findings(self.ensemble))
            if interrupted() and not cut_short:
                warn(
                    f"Interrupted after the last draw: returning all {done} draws per chain.",
                    InterruptedWarning,
                )
        return result

    def step(self, n: int, interrupted: Callable[[], bool]) -> int:
        """Make n transitions without draws; return how many were made."""
        chains: Any = self.ensemble
        self.use_threads()
        made = 0

        def ahead(size: int) -> bool:
            going_on = not interrupted()
            return going_on and chains.make_ahead(size, n - made, lambda: not interrupted())

        with chains.threads():
            if self.target.offers.may_change:
                self.target.offers.look(again=True)
                chains.put(chains.chains.x)
                check_possible(chains)
                # Rounding is taken to be small: a closer look would cost more than transitions.
                if not np.allclose(
                    by_kernels(chains)[1], self.last_log_prob[1], rtol=1e-9, atol=1e-9
                ):
                    self._begin_anew()
                self.unpickled = False
            chains.forget_acceptance()
            chains.counters.begin()
            for segment in chains.segments(n, ahead=ahead):
                made += segment.n_transitions
                chains.counters.n_transitions += segment.n_transitions
        self.keep_log_prob()
        return made

    def observer(self, record: Record, store: Place | None, attrs: dict[str, Any]) -> Observer:
        """Return what keeps what is to be recorded of the draws, which have ``attrs``."""
        if store is not None and not isinstance(record, dict):
            shown = f'"{record}"' if isinstance(record, str) else f"{record!r:.200}"
            raise ValueError(f"record={shown} keeps no single draws to store; give one of the two.")
        if isinstance(record, Observer):
            return record
        if record == "moments":
            return RunningMoments()
        if isinstance(record, str):
            if self.ensemble.rule.facts.conserves_counts:
                raise ValueError(
                    'record="marginals" averages what p says of a variable given the others; '
                    f"{type(self.algorithm.params).__name__} draws at fixed counts of values, "
                    'where these leave one value. Give record="moments".'
                )
            return RunningMarginals(self.ensemble)
        if store is not None:
            return StoredDraws(store, self.packed_chains, self.ensemble.chains.x[0], record, attrs)
        return KeptStatistics(record, self.ensemble.chains.x[0]) if record else KeptDraws()

    def draw(self, observer: Observer, watch: Watch, interrupted: Callable[[], bool]) -> Any:
        """Make the draws of a call, and show them to an observer; return its last carry."""
        ensemble, target, n = self.ensemble, self.target, watch.end - watch.first
        n_chains, names = len(ensemble), ensemble.rule.facts.stat_names
        call, counters = Call(target, n_chains, n, watch.first, names), ensemble.counters
        carry = observer.init(call)
        over = n == 0 or (watch.next <= watch.first and watch.ends())
        if not over:  # else the chains do not change
            self._begin(watch.thin)

        def most() -> int:
            shown = observer.most(carry)
            shown = call.most_shown if shown is None else max(1, shown)
            return counters.until(min(watch.next, counters.n_draws + shown))

        def going_on() -> bool:
            progress(0)
            return not interrupted()

        def ahead(size: int) -> bool:
            coming = counters.until(min(watch.end, watch.next))
            return ensemble.make_ahead(size, coming, going_on)

        segments = ensemble.segments(
            0 if over else counters.until(watch.end),
            counters.drawing,
            lambda number: observer.room(carry, number) or ensemble.room(number, len(names)),
            most=most,
            ahead=ahead,
        )
        progress = Progress(
            self.verbose, "sample", n * watch.thin * n_chains, "steps", watch.columns
        )
        self.watch = watch  # other threads may look
        try:
            with ensemble.threads(), progress:
                for segment in segments:
                    watch.add(segment)
                    if segment.lp.size:
                        segment.lp[:] += target.constant
                        x = segment.x.reshape(*segment.lp.shape, *target.shape)
                        carry = observer.see(carry, segment._replace(x=x))
                    observer.after(carry)
                    progress(segment.n_transitions * n_chains)
                    # Rules are also asked after a Ctrl-C: the next call does not ask again.
                    if watch.ends() or interrupted():
                        break
                if interrupted():
                    warn(
                        f"Interrupted: returning {watch.made} of {n} draws per chain. Call sample "
                        "again to go on.",
                        InterruptedWarning,
                    )
                if watch.stopped_by:
                    progress.end(f"stopped by {watch.stopped_by}")
                observer.end(carry, watch.stopped_by if watch.rules else None)
            self.keep_log_prob()
            self.keep_probes()
        finally:
            self.watch = None
            observer.close(carry)
        return carry

    def _begin(self, thin: int) -> None:
        """Begin a call with draws ``thin`` transitions apart."""
        ensemble = self.ensemble
        ensemble.chains.moved[:] = False
        ensemble.counters.begin(thin)
        if not ensemble.counters.drawing.made:
            ensemble.forget_acceptance()


def check_possible(chains: Any) -> None:
    """Refuse chains at an impossible state."""
    log_prob = chains.log_prob()
    bad = ~np.isfinite(log_prob)
    if bad.any():
        raise ValueError(
            f"The state of chain {int(bad.argmax())} is impossible: log p is {log_prob[bad][0]}. "
            "Assign possible states to state_tensor_, or fit again with warm_start=False."
        )
