"""What every sampler shares: parameters, `fit`, `sample`, and attributes of the results."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import xarray as xr
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from sklsb._kernels.facts import Rule
from sklsb._words import Worded, worded
from sklsb.diagnostics.stopping import RunSoFar, StopRule, check_stop
from sklsb.samplers._run.algorithm import Fit
from sklsb.samplers._run.checks import check_count, check_thin
from sklsb.samplers._run.exports import Exports
from sklsb.samplers._run.observers import Record, check_record
from sklsb.samplers._run.run import Run, exclusive
from sklsb.samplers._run.saving import Saving, packed_sampler
from sklsb.targets.base import States, Target


class BaseSampler(Saving, Exports, BaseEstimator, Worded):
    """Base of the samplers: parameters, and what a `Run` shows.

    A subclass stores its parameters in ``__init__`` and names its `Fit`.
    """

    # What `fit` does.
    _algorithm: ClassVar[type[Fit]]
    # What parameters that may be a name take besides, for errors.
    _objects: ClassVar[dict[str, str]] = {}
    # No meta-estimator passes these on.
    __metadata_request__fit: ClassVar = dict.fromkeys(
        ("target", "initial_states", "checkpoint"), UNUSED
    )

    n_chains: int
    init: str = "auto"
    n_jobs: int | None
    random_state: Any
    verbose: int
    warm_start: bool = False
    keep_burn_in: bool = False
    n_burn_in: int | None = None

    target_: Target
    n_sites_: int
    # Names of what the last fit found.
    _found: tuple[str, ...] = ()

    def __dir__(self) -> list[str]:
        # A notebook shows the value of each: tensors need torch, and thin_ makes transitions.
        names = {*object.__dir__(self)} - {"thin_", "state_tensor_", "one_hot_tensor_"}
        return [name for name in names if hasattr(self, name)]

    def set_params(self, **params: Any) -> Self:
        """Set parameters, which count from the next `fit` on.

        Only ``n_jobs`` and ``verbose`` also count from the next call of `sample`, and ``n_burn_in``
        for the new chains of `sample_chains`, unless it counts scans or belongs to a race.

        Parameters
        ----------
        **params : Any
            Parameters by name; ``balancing__bound`` is ``bound`` of the object ``balancing``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no such parameter, or what it belongs to is not an object with parameters.
        """
        given = self.get_params(deep=False)
        for name in params:
            owner, _, inner = name.partition("__")
            value = params.get(owner, given.get(owner))
            if inner and owner in given and not hasattr(value, "set_params"):
                advice = self._objects.get(owner, "an object with this parameter")
                raise ValueError(
                    f"{name} is the parameter {inner!r} of an object, but {owner} is {value!r}; "
                    f"give {advice} first."
                )
        return cast(Self, super().set_params(**params))

    @worded
    def fit(
        self,
        target: Target,
        y: None = None,
        *,
        initial_states: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Run the burn-in, or the race of `AutoSampler`.

        Parameters
        ----------
        target : Target
            What to sample.
        y : None
            Ignored, as is scikit-learn's convention, unless it looks like evidence.
        initial_states : array_like of shape (n_chains, n_sites) or (n_sites,), optional
            Where the chains start; by default as ``init`` says, if the sampler has it, or with
            ``warm_start`` at the present states.
        checkpoint : path-like, optional
            File that the burn-in is written to every minute, and at a Ctrl-C. `fit` with the same
            target and parameters goes on from there, bit for bit; a finished fit is only read.
            `AutoSampler` refuses it.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If target is not a Target, or y looks like evidence.
        ValueError
            If a parameter is out of range, a state does not belong to the target, the compiled
            log p differs from the target's, or the checkpoint is of another fit (a StoreError).
        ImportError
            If the sampler needs torch, as by ``fast=True``, and it is not installed.
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
        if hasattr(y, "items"):
            raise TypeError(
                f"y is {y!r:.100}, and fit ignores y. Evidence goes to the target: "
                "fit(target.condition({...}))."
            )
        try:
            with exclusive(self):
                self._fit(target, initial_states, True, checkpoint)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(
                "fit was interrupted; the sampler is as it was before, "
                f"{'fitted' if self.__sklearn_is_fitted__() else 'not fitted'}."
            )
            raise
        return self

    def _fit(
        self,
        target: Target,
        initial_states: ArrayLike | None,
        warns: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        """Fit, with or without warnings about what was found."""
        given = self._unfitted()
        before = self._last_run()
        with exclusive(before or given):
            algorithm = self._algorithm(given, target, before if self.warm_start else None)
            algorithm.checkpoint.path = None if checkpoint is None else Path(checkpoint)
            run, fitted = algorithm.fit(initial_states)
            if warns:  # a filter may make errors of them
                algorithm.warn_about_fit(run)
                run.warn_if_isolated()
                run.warn_of_rounding()
        self._put(run, fitted)

    def _put(self, run: Run, fitted: dict[str, Any]) -> None:
        """Put a run in the place of the last one, at once."""
        found = fitted | {"run_": run, "target_": run.target, "n_sites_": run.target.n_sites}
        self.__dict__ = self._others() | found | {"_found": (*found,)}

    def _others(self) -> dict[str, Any]:
        """Return the attributes that the last fit did not find."""
        found = {*self._found, "_found"} - {*self._get_param_names()}
        return {name: value for name, value in vars(self).items() if name not in found}

    def _unfitted(self) -> Self:
        """Return a sampler with the same parameters."""
        made = type(self).__new__(type(self))
        # A subclass, or scikit-learn, may have set some attributes before.
        made.__setstate__(self._others())
        return made

    def _forget_burn_in(self) -> None:
        """Set ``n_burn_in`` to its default, also for the chains there are."""
        self.n_burn_in = self.run_.algorithm.params.n_burn_in = None
        self.run_.settings["n_burn_in"] = "None"

    def _last_run(self) -> Run | None:
        return self.run_ if self.__sklearn_is_fitted__() else None

    def _rule(self, target: Target) -> Rule:
        """Return the rule of the transitions on a target: of the fit, if there was one."""
        run = self._last_run()
        known = self._algorithm.make_rule is not Fit.make_rule
        if run is not None and run.target is target and known:
            return run.ensemble.rule
        return self._algorithm(self._unfitted(), target, run).make_rule()

    def _here(self) -> Run:
        """Return the run, with the present parameters that count at once."""
        check_is_fitted(self, "target_")
        run = self.run_
        run.follow(self.n_jobs, self.verbose)
        return run

    @worded
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
            Rules; the first to apply ends the call: see `sklsb.diagnostics`. The attribute
            ``stopped_by`` names the one that did; it is "" if none did, so the call made all n
            draws or was interrupted. The draws are a prefix of those that a call without rules
            would return.

        Returns
        -------
        xarray.Dataset
            Variable ``x`` of dims (chain, draw) and the target's, int8 (int16 for values above
            127), with the coordinate ``lp``, the log-density of each draw; or the statistics. The
            coordinate ``draw`` goes on counting over calls. Log p and acceptance rates are in
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

        independent ones each, which is 1/2 for k = 1.1 T. T is the time of all variables together,
        each weighted by its variance. It is found once, at the first use after `fit`, on streams of
        its own, so that the draws are the same as with ``thin=sampler.thin_``.

        The Rao-Blackwellised marginals of ``record="marginals"`` [1]_ are

        .. math:: \hat p(x_i = s) = \frac{1}{n} \sum_t p(x_i = s \mid x_{-i}^{(t)}), \qquad
                  \frac{p(x_i = s \mid x_{-i})}{p(x_i = r \mid x_{-i})}
                  = \frac{p(x \text{ with } x_i = s)}{p(x \text{ with } x_i = r)}

        over all n draws of all chains. Each draw takes the log-ratios of all changes of one
        variable, which count in ``n_evaluations_``. Errors are by batch means, widened as in
        `sklsb.diagnostics.marginals` where little was seen. A steady conditional probability does
        not tell how long the chain would stay: for a value with v visits, mcse is at least
        min(1, 8 / v) of the error that counting its draws and visits gives. For a value that none
        or all of the draws had, mcse is NaN, however steady its conditional probability was: how
        long it stays once it gets there is unknown. Modes that no chain found leave no trace.

        On Ctrl-C the draws so far are returned (and stored), with an InterruptedWarning; in the
        search for ``thin="auto"`` it is a KeyboardInterrupt, and the chains stay. If a
        statistic raises, the draws of this call are lost (with a store, those since its last
        checkpoint), and the chains are where the statistic was last called.

        States are int8 or int16: cast them before multiplying or summing, which may overflow.

        References
        ----------
        .. [1] A. E. Gelfand and A. F. M. Smith, "Sampling-based approaches to calculating marginal
           densities", Journal of the American Statistical Association 85 (1990).
        """
        run = self._here()
        n, thin = check_count(n, "n", 0), check_thin(thin)
        wanted, rules = check_record(record), check_stop(stop)
        with exclusive(run):
            run.follow_target(store)
            step = run.transitions(thin)
            check_count(n * step, "n * thin", 0)
            place = None if store is None else (Path(store), lambda: packed_sampler(self))
            return run.sample(n, step, wanted, rules, self._attrs(), place)

    def inspect(self) -> RunSoFar:
        """Report the progress of a `sample` call running in another thread, without stopping it.

        Returns
        -------
        sklsb.diagnostics.stopping.RunSoFar
            ``n_draws`` and ``requested_draws`` of each chain, ``seconds``, ``draws_per_second``;
            ``r_hat`` and ``ess``, the worst of any variable and log p, over all draws since `fit`.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        RuntimeError
            If no draws are being made.
        """
        check_is_fitted(self, "target_")
        watch = self.run_.watch
        if watch is None:
            raise RuntimeError(
                "No draws are being made; call inspect while sample runs in another thread."
            )
        return watch.look()

    @property
    def state_(self) -> States:
        """Present state of each chain."""
        check_is_fitted(self, "target_")
        return self.run_.x

    @property
    def n_evaluations_(self) -> int:
        """Evaluations since `fit` began, over all chains.

        The attribute ``evaluation`` of the draws says what is counted: log-ratios of changes,
        log-densities with their gradients, or drawn units.
        """
        check_is_fitted(self, "target_")
        return self.run_.n_evaluations

    @property
    def thin_(self) -> int:
        """Transitions per draw with ``thin="auto"``: a draw is worth about half an independent one.

        Found at the first use after `fit`, by copies of the chains, and then kept.
        """
        run = self._here()
        with exclusive(run):
            run.follow_target()
            return run.transitions("auto")

    @property
    def sample_stats_(self) -> xr.Dataset:
        """Statistics of each draw of the last `sample`."""
        run = self._last_run()
        return self._known(run.sample_stats if run else None, "sample_stats_", "sample")

    @property
    def disagreement_(self) -> xr.Dataset:
        """Whether chains and halves of chains agree in all draws since `fit`."""
        run, call = self._last_run(), "sample, until there are enough draws"
        return self._known(run.disagreement if run else None, "disagreement_", call)

    def _known(self, found: xr.Dataset | None, name: str, call: str) -> xr.Dataset:
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no {name} yet; call {call}.")
        return found

    def __copy__(self) -> Self:
        """Return an independent sampler that goes on bit for bit."""
        made = type(self).__new__(type(self))
        made.__setstate__(self.__getstate__())
        if self.__sklearn_is_fitted__():
            made.run_ = copy.copy(self.run_)
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self._found)
