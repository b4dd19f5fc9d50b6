"""The local self-balancing sampler and the fixed samplers that are its settings."""

import copy
import numbers
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb._compiled import Table
from sklsb._ensemble import Ensemble
from sklsb.balancing import BalancingFunction, LearnableFunction, get_balancing
from sklsb.chains import draws_dataset
from sklsb.learning import OBJECTIVES, OPTIMIZERS, History, Learner, burn_in
from sklsb.samplers._base import BaseSampler, _Progress, check_count
from sklsb.targets.base import Target


class LSBSampler(BaseSampler):
    r"""Local self-balancing Metropolis-Hastings sampler in discrete spaces.

    A transition proposes to change one variable, with probability

    .. math:: Q(x'|x) = g(p(x') / p(x)) / Z(x), \quad Z(x) = \sum_{x'} g(p(x') / p(x))

    over all states x' that differ from x in one variable. g is a balancing function,
    g(t) = t g(1/t), so the move is accepted with probability min(1, Z(x) / Z(x')). The function
    is learned during `fit` [1]_ or fixed [2]_; in `sample` it never changes.

    Parameters
    ----------
    balancing : str or BalancingFunction, default="learned"
        "barker", "sqrt", "min" or "max": fixed, the locally balanced sampler (LB) [2]_.
        "mixture": learned mixture of these four (LSB 1). "learned": learned network (LSB 2).
        Or any `sklsb.balancing.BalancingFunction`; a learnable one is learned.
    fast : bool, default=False
        False: exact log-ratios of all neighbours, on compiled kernels. True: first-order
        log-ratios from one gradient, on torch (FLSB; with "sqrt" it is Gibbs with gradients
        [3]_), with the full Metropolis-Hastings ratio, so that it is exact too.
    objective : {"exact", "bound", "kl"}, default="exact"
        What learning minimises: the mutual information of consecutive states with every
        neighbour (case a of [1]_), its sampled bound (case b), or the divergence of the paper's
        first version; see `sklsb.learning`.
    n_chains : int, default=4
        Number of chains.
    n_burn_in : int, optional
        Transitions of each chain in `fit`; max(2000, 5 * n_sites) if not given.
    learning_rate : float, optional
        Step size of the optimiser; if not given 0.05 for the objective "exact" and 0.01 for
        the others.
    optimizer : {"adam", "sgd"}, default="adam"
        Adam, or gradient descent with momentum 0.9.
    lazy : float, default=0.0
        Probability that a transition does nothing. On a flat target a chain with lazy = 0 is
        periodic.
    device : str, optional
        Where ``fast=True`` runs: "cpu" (the default), "cuda" or "cuda:1".
    n_jobs : int, optional
        Number of threads (None is 1, -1 all cores); it never changes a chain.
    random_state : int, SeedSequence, Generator or None, default=None
        Seed. The same int gives the same chains, bit for bit.
    verbose : int, default=0
        1 shows a progress bar.
    warm_start : bool, default=False
        Whether another `fit` goes on from the present states, streams and learned function.
    keep_burn_in : bool, default=False
        Whether to keep the states of the burn-in in ``burn_in_``.

    Attributes
    ----------
    target_ : Target
        What was fitted.
    n_sites_ : int
        Number of variables.
    balancing_ : BalancingFunction
        Frozen function, used by `sample`.
    burn_in_balancing_ : BalancingFunction
        Function that moved the chains at the end of the burn-in.
    state_ : ndarray of int8, shape (n_chains, n_sites)
        Present states.
    history_ : xarray.Dataset
        Over blocks of the burn-in, labelled by their last iteration: lp and acceptance_rate (by
        chain), objective, gradient_norm, theta.
    sample_stats_ : xarray.Dataset
        lp and acceptance_rate of each draw of the last `sample`.
    n_evaluations_ : int
        Log-ratios of single-variable changes evaluated so far, over all chains.
    burn_in_ : xarray.Dataset
        States of the burn-in, if ``keep_burn_in``.

    References
    ----------
    .. [1] E. Sansone, "LSB: Local Self-Balancing MCMC in Discrete Spaces", ICML 2022.
    .. [2] G. Zanella, "Informed proposals for local MCMC in discrete spaces", JASA 115 (2020).
    .. [3] W. Grathwohl et al., "Oops I took a gradient: scalable sampling for discrete
       distributions", ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, LSBSampler
    >>> ising = Ising.lattice(np.full((8, 8), 0.2), coupling=0.3)
    >>> sampler = LSBSampler(n_chains=2, random_state=0).fit(ising)
    >>> draws = sampler.sample(1000)
    >>> dict(draws.sizes)
    {'chain': 2, 'draw': 1000, 'row': 8, 'col': 8}
    """

    def __init__(
        self,
        balancing: str | BalancingFunction = "learned",
        *,
        fast: bool = False,
        objective: str = "exact",
        n_chains: int = 4,
        n_burn_in: int | None = None,
        learning_rate: float | None = None,
        optimizer: str = "adam",
        lazy: float = 0.0,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        keep_burn_in: bool = False,
    ):
        self.balancing = balancing
        self.fast = fast
        self.objective = objective
        self.n_chains = n_chains
        self.n_burn_in = n_burn_in
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.lazy = lazy
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.keep_burn_in = keep_burn_in

    def _resolve(self, target: Target) -> None:
        self._function = get_balancing(self.balancing)
        self._function.table()
        if self.warm_start and hasattr(self, "balancing_"):
            learned = isinstance(self._function, LearnableFunction)
            given, before = self.balancing, self._fitted_with
            if learned and (given is before or (isinstance(given, str) and given == before)):
                self._function = self.balancing_
        for name, allowed in (("objective", OBJECTIVES), ("optimizer", OPTIMIZERS)):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                raise ValueError(f"{name} is {value!r}; it must be one of {sorted(allowed)}.")
        for name in ("fast", "warm_start", "keep_burn_in"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"{name} is {getattr(self, name)!r}; give True or False.")
        if self.device is not None and not self.fast:
            raise ValueError(
                f"device is {self.device!r} but fast is False; only the first-order path, "
                "fast=True, runs on a device."
            )
        if self.n_burn_in is not None:
            check_count(self.n_burn_in, "n_burn_in", 0)
        for name, value, high in (
            ("learning_rate", 0.0 if self.learning_rate is None else self.learning_rate, np.inf),
            ("lazy", self.lazy, 1.0),
        ):
            if not (isinstance(value, numbers.Real) and 0 <= float(value) < high):
                raise ValueError(f"{name} is {value!r}; it must be in [0, {high:g}).")
        if self.fast:
            from sklsb import _torch

            _torch.check(target, self.device)

    def _new_ensemble(
        self, target: Target, states: NDArray[np.int8], rngs: list[np.random.Generator]
    ) -> Any:
        if self.fast:
            from sklsb._torch import FastEnsemble

            return FastEnsemble(target, states, rngs, self.lazy, self.device)
        return Ensemble(target, states, rngs, self._effective_n_jobs(), self.lazy)

    def _fresh(self, old: Ensemble, rngs: list[np.random.Generator]) -> Ensemble:
        """Chains at new draws of the initial distribution."""
        states = [old.target.random_state(rng) for rng in rngs]
        return self._new_ensemble(old.target, np.stack(states), rngs)

    def _burn_in(self, target: Target, ensemble: Ensemble) -> dict[str, Any]:
        n = self.n_burn_in
        n = max(2000, 5 * target.n_sites) if n is None else int(n)
        draws = None
        if self.keep_burn_in:
            draws = np.empty((len(ensemble), n, target.n_sites), dtype=np.int8)
        learner = None
        if isinstance(self._function, LearnableFunction):
            rate = self.learning_rate
            rate = OBJECTIVES[self.objective].learning_rate if rate is None else float(rate)
            optimizer = OPTIMIZERS[self.optimizer](rate)
            learner = Learner(self._function, self.objective, optimizer)
        n_chains = len(ensemble)
        fresh = None
        if learner is not None and self.objective == "kl":
            # Streams of their own, so that it does not matter when the chains' numbers are drawn.
            others = [np.random.default_rng(rng.integers(2**63)) for rng in ensemble.rngs]
            fresh = partial(self._fresh, ensemble, others)
        with _Progress(self.verbose, "burn-in", n * n_chains) as progress:
            function, history = burn_in(
                ensemble,
                self._function,
                n,
                learner=learner,
                fresh=fresh,
                on_block=lambda size: progress(size * n_chains),
                draws=draws,
            )
        # A copy: changing the object that was passed in must not change a frozen function.
        function = copy.deepcopy(function)
        fitted = {
            "balancing_": function,
            "burn_in_balancing_": function,
            "history_": self._history(history, learner, target),
            "_fitted_with": self.balancing,
            "_frozen": function.table(),
        }
        if draws is not None:
            fitted["burn_in_"] = draws_dataset(draws, target)
        return fitted

    @staticmethod
    def _history(history: History, learner: Learner | None, target: Target) -> xr.Dataset:
        chain = np.arange(history.lp.shape[1])
        parameter = np.arange(history.theta.shape[1])
        by_chain = ("iteration", "chain")
        return xr.Dataset(
            {
                "lp": (by_chain, history.lp + target.constant),
                "acceptance_rate": (by_chain, history.acceptance_rate),
                "objective": ("iteration", history.objective),
                "gradient_norm": ("iteration", history.gradient_norm),
                "theta": (("iteration", "parameter"), history.theta),
            },
            coords={"iteration": history.iteration, "chain": chain, "parameter": parameter},
            attrs={"skipped_updates": 0 if learner is None else learner.n_skipped},
        )

    def _warn_about_burn_in(self) -> None:
        rates = self.history_["acceptance_rate"].values
        if rates.size:
            late = rates[rates.shape[0] // 2 :]
            self._warn_if_periodic(late, int(self.history_["iteration"][-1]))

    def _table(self) -> Table:
        return self._frozen
