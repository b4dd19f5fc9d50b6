"""The local self-balancing sampler and the fixed samplers that are its settings."""

import copy
import numbers
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, cast

import numpy as np
import xarray as xr
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sklsb._system.progress import Progress, deferred_interrupt
from sklsb._system.warn import warn
from sklsb.balancing.candidates import (
    Candidate,
)
from sklsb.balancing.functions import (
    BalancingFunction,
    LearnableFunction,
    get_balancing,
)
from sklsb.balancing.learners import name_of, new_learner, of_burn_in
from sklsb.balancing.learning import (
    MOST_UPDATES,
    OPTIMIZERS,
    UPDATE_COST,
    History,
    Learner,
    Objective,
    burn_in,
)
from sklsb.balancing.weights import balanced
from sklsb.diagnostics.draws import draws_dataset
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.ensembles.protocol import MOST_FLIPS, Adaptive, ChainEnsemble, LearnableEnsemble
from sklsb.ensembles.rules import Balanced, FirstOrder, Jump, Mixture
from sklsb.ensembles.streams import Streams
from sklsb.exceptions import ShortRunWarning, StarvedMovesWarning
from sklsb.samplers._lsb.choosing import Choice, Chooser
from sklsb.samplers._lsb.history import burn_in_history, candidates_table, mixing_history
from sklsb.samplers._lsb.ways import allowed_by
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.burn_in import check_kept, first_burn_in
from sklsb.samplers._run.checks import check_bool, check_count
from sklsb.samplers._run.redraws import add_blocks, check_blocks, warn_of_doubt
from sklsb.samplers._run.starts import Starts, scouted_starts
from sklsb.samplers._run.warnings import CHANGED
from sklsb.samplers.gibbs import GibbsSampler
from sklsb.storage.fingerprint import by_kernels
from sklsb.targets.base import Conditioned, States, Target
from sklsb.targets.torch import TorchTarget

# Values around a state from which one gradient is much cheaper.
_MANY_VALUES = 12
# Transitions of a step between two looks for a Ctrl-C.
_SEGMENT = 256


@dataclass(eq=False, repr=False)
class LSBSampler(BaseSampler):
    r"""Local self-balancing Metropolis-Hastings sampler in discrete spaces.

    A transition proposes to change one variable, with probability

    .. math:: Q(x'|x) = g(p(x') / p(x)) / Z(x), \quad Z(x) = \sum_{x'} g(p(x') / p(x))

    over all states x' that differ from x in one variable. g is a balancing function,
    g(t) = t g(1/t), so the move is accepted with probability min(1, Z(x) / Z(x')). The function
    is learned during `fit` [1]_ or fixed [2]_; in `sample` it never changes.

    No single function is good at both reaching the likely states and mixing among them. So `fit`
    learns one that moves the chains in the burn-in and, from the states visited, candidates for
    `sample`. A pilot run then compares the candidates and fixed functions on the target, and keeps
    the one with the largest effective sample size per evaluation.

    Candidates are also rejection-free: jump processes in which move x' is made at rate
    g(p(x')/p(x)), and factors by site, s_i > 0, which multiply the weights of all moves of variable
    i. Both leave p exactly invariant, and reversible; see the page "Jumps and factors".

    Parameters
    ----------
    balancing : str or BalancingFunction, default="learned"
        "barker", "sqrt", "min" or "max": fixed, the locally balanced sampler (LB) [2]_.
        "mixture": learned mixture of these four (LSB 1). "learned": learned functions of bounded
        slope (`sklsb.balancing.Lipschitz`): increasing ones for the burn-in, increasing and other
        ones for sampling. Or any `sklsb.balancing.BalancingFunction`; a learnable one, such as the
        paper's `Network` (LSB 2), is learned.
    fast : bool, default=False
        False: exact log-ratios of all neighbours, in compiled kernels. True: first-order log-ratios
        from one gradient, in torch (FLSB; with "sqrt" it is Gibbs with gradients [3]_). The full
        Metropolis-Hastings ratio keeps this exact too. Where first order is exact, with one flip on
        an `Ising` or `Potts` model on the CPU, the compiled kernels make these transitions.
    n_flips : int or "auto", default=1
        With ``fast=True``, the number of flips proposed per gradient, at most 64. If it is above 1,
        the last flip is dropped with probability 1/2, so that the parity of the number of ones can
        change. "auto" tunes one number for all chains during `fit`, for about 60 % acceptance
        (informed proposals mix best near 0.57 [4]_), and keeps it. Functions are learned for one
        flip at a time.
    objective : str or Objective, default="auto"
        What learning minimises; see the page "Objectives". "auto": "kl" in the burn-in, or
        "bound" with ``fast=True``; "flux" and "global_flux" for the candidates to sample with.
        "flux" or "global_flux": only that one. "kl", "exact" (case a of [1]_) or "bound"
        (case b): one function, for both burn-in and sampling. Or, with ``fast=False``, an objective
        declared by `sklsb.extending.objective`, or its name.
    n_chains : int, default=4
        Number of chains.
    n_burn_in : int, optional
        Transitions of each chain in the burn-in; max(2000, 5 * n_sites) by default. Learning the
        functions for sampling comes on top and does not depend on it. 0: nothing is learned, there
        is no pilot, and `sample` uses the function that learning would start from.
    init : {"auto", "both", "uniform", "quenched"}, default="auto"
        Where chains start; see `GibbsSampler`.
    learning_rate : float, optional
        Step size of the optimiser in the burn-in; by default 0.01 for the objective "bound", and
        the function's own for the others.
    optimizer : {"adam", "sgd"}, default="adam"
        Adam, or gradient descent with momentum 0.9, in the burn-in.
    pilot : bool, default=True
        Whether to choose by a pilot run, which takes at most half as many evaluations as the rest
        of `fit` (after a very short one it cannot run, and the measures in ``candidates_`` are
        NaN). If not, `sample` uses the function learned by ``objective`` ("flux" for "auto"). Has
        no effect on a fixed function.
    lazy : float, default=0.0
        Probability that a transition does nothing. On a flat target a chain with lazy = 0 is
        periodic.
    rejection_free : bool or "auto", default="auto"
        True: every proposed move is made, in continuous time, and draws are made at equal distances
        of time; a transition takes the time of one or four jumps in a typical state seen in `fit`.
        False: Metropolis-Hastings steps. "auto": what the pilot finds better; without a pilot, or
        with ``lazy > 0`` or ``fast=True``, steps.
    factors : "auto", "site", None or array_like of shape (n_sites,), default="auto"
        Factors s_i by which the weights of the moves of each variable are multiplied, in `sample`.
        "auto": learned if the pilot finds them better. "site": learned, within 1/100 to 100. None:
        all 1. An array: these; only their ratios matter.
    device : str, optional
        Where ``fast=True`` runs: "cpu" (the default), "cuda" or "cuda:1". CUDA was written
        without a GPU at hand and never run: see the limits in the documentation.
    blocks : "auto", None or int, default="auto"
        Exact redraws of blocks of variables given the others, by elimination: a coin that does not
        depend on the state decides between a locally balanced transition and a redraw. "auto": only
        if needed, because zeros tie variables together or scouts, trial chains after the burn-in,
        disagree. The block is the whole model if eliminating it takes at most 2**30 table entries,
        or else one of up to 16 blocks with tables of at most 2**12 entries. An int w, at most 21:
        always, with tables of at most 2**w entries. None: never. Only with ``fast=False``, on
        targets made of factors.
    n_jobs, random_state, verbose
        As in `GibbsSampler`.
    warm_start : bool, default=False
        Whether another `fit` goes on from the present states, random streams and burn-in function.
    keep_burn_in : bool, default=False
        Whether to keep the states of the burn-in in ``burn_in_``.

    Attributes
    ----------
    target_ : Target
        What was fitted.
    n_sites_ : int
        Number of variables.
    balancing_ : BalancingFunction
        Frozen function used by `sample`: a learned one, or one of the fixed four if the pilot found
        it better.
    burn_in_balancing_ : BalancingFunction
        Function that moved the chains at the end of the burn-in.
    candidates_ : xarray.Dataset
        Results of the pilot by candidate: ess_per_step (of the sites, weighted by their variances),
        its standard error ess_error; ess_per_work, by which the pilot chooses, in units of a
        Metropolis step, and work_error; lp_ess_per_step (which has no vote), acceptance_rate, the
        transitions of each chain behind them, n_flips; in_last_round. See the page "The pilot".
        ``attrs["chosen"]`` names the one used. Only if there was a pilot.
    rejection_free_ : bool
        Whether `sample` makes jumps.
    factors_ : ndarray of shape (n_sites,)
        Factors used by `sample`; ones if there are none.
    blocks_ : BlockChoice
        Which blocks are redrawn in `sample`: ``kind`` ("none", "whole" or "pool"), ``why``, the
        ``share`` of the transitions that are redraws, and the variables of each block as ``sites``.
    state_ : ndarray of int8 (int16 for values above 127), shape (n_chains, n_sites)
        Present states.
    state_tensor_ : torch.Tensor of shape (n_chains, n_sites)
        Present states on the device of the chains, with ``fast=True``; assign states to set them.
    history_ : xarray.Dataset
        Over blocks of the burn-in, labelled by their last iteration: lp and acceptance_rate (by
        chain), objective, gradient_norm, theta, and even_part at 33 values of abs(u). Over the
        evaluations of the flux objectives, by candidate, the same with the prefix ``mixing_``.
        attrs: skipped_updates; the log-ratios evaluated in each part of `fit`, as
        burn_in_evaluations, mixing_evaluations, factors_evaluations and pilot_evaluations; the
        seconds of each phase without compilation, as burn_in_seconds and so on, and
        compiling_seconds.
    sample_stats_ : xarray.Dataset
        lp and acceptance_rate of each draw of the last `sample`; the rate is that of the locally
        balanced transitions since the previous draw, NaN if there were none, 1 for jumps.
    disagreement_ : xarray.Dataset
        Whether chains agree, as in `GibbsSampler`.
    n_evaluations_ : int
        Log-ratios of single-variable changes evaluated so far, over all chains; by
        gradients (``fast=True``, in torch) log-densities with their gradients. With blocks also
        table entries.
    thin_ : int
        Transitions per draw with ``thin="auto"``, found at the first use.
    burn_in_ : xarray.Dataset
        States of the burn-in, if ``keep_burn_in``.

    References
    ----------
    .. [1] E. Sansone, "LSB: Local Self-Balancing MCMC in Discrete Spaces", ICML 2022.
    .. [2] G. Zanella, "Informed proposals for local MCMC in discrete spaces", JASA 115 (2020).
    .. [3] W. Grathwohl et al., "Oops I took a gradient: scalable sampling for discrete
       distributions", ICML 2021.
    .. [4] H. Sun, H. Dai, D. Schuurmans, "Optimal scaling for locally balanced proposals in
       discrete spaces", NeurIPS 2022.

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

    rule_parameters = ("balancing", "lazy")
    _objects = {"balancing": "an object of sklsb.balancing, such as balancing=Lipschitz(...),"}

    balancing: str | BalancingFunction = "learned"
    _: KW_ONLY
    fast: bool = False
    n_flips: int | str = 1
    objective: str | Objective = "auto"
    n_chains: int = 4
    n_burn_in: int | None = None
    init: str = "auto"
    learning_rate: float | None = None
    optimizer: str = "adam"
    pilot: bool = True
    lazy: float = 0.0
    rejection_free: bool | str = "auto"
    factors: Any = "auto"
    device: str | None = None
    blocks: str | int | None = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    warm_start: bool = False
    keep_burn_in: bool = False

    def check_parameters(self, target: Target) -> None:
        self._function = copy.deepcopy(get_balancing(self.balancing))
        self._function.table()
        before = self._before
        if before is not None and hasattr(before, "balancing_"):
            learned = isinstance(self._function, LearnableFunction)
            given, function = before._fitted_with
            same = self.balancing is given or (isinstance(given, str) and self.balancing == given)
            if learned and same and self._function._same(function):
                self._function = before.burn_in_balancing_
        name_of(self.objective)
        if not isinstance(self.optimizer, str) or self.optimizer not in OPTIMIZERS:
            allowed = sorted(OPTIMIZERS)
            raise ValueError(f"optimizer is {self.optimizer!r}; it must be one of {allowed}.")
        for name in ("fast", "pilot"):
            check_bool(getattr(self, name), name)
        self._check_n_flips()
        self._allowed = allowed_by(self, target)
        check_blocks(self.blocks, self.fast, target)
        if self.device not in (None, "cpu") and not self.fast:
            raise ValueError(
                f"device is {self.device!r} but fast is False; only the first-order path, "
                "fast=True, runs on a device."
            )
        if self.keep_burn_in:
            check_kept(target, self.n_chains, self._length(target))
        for name, value, high in (
            ("learning_rate", 0.0 if self.learning_rate is None else self.learning_rate, np.inf),
            ("lazy", self.lazy, 1.0),
        ):
            if not (isinstance(value, numbers.Real) and 0 <= float(value) < high):
                raise ValueError(f"{name} is {value!r}; it must be in [0, {high:g}).")
        if self.fast:
            from sklsb.ensembles._torch import check_objective
            from sklsb.targets._torch import device_of

            device_of(target, self.device)
            check_objective(of_burn_in(self.objective, True))

    def make_rule(self, target: Target) -> Balanced | Jump | FirstOrder | Mixture:
        """Return the rule of the frozen function; before `fit`, of the initial one."""
        if hasattr(self, "balancing_"):  # whatever parameters were set since
            return cast(Balanced | Jump | FirstOrder | Mixture, self._ensemble.rule)
        function, lazy = get_balancing(self.balancing), float(self.lazy)
        if not self._by_gradients(target):
            return self._unfitted_rule(target, function)
        table = function.table()
        if self.n_flips == "auto":
            raise ValueError('n_flips is "auto", which fit makes a number; fit the sampler first.')
        return FirstOrder(table, lazy, int(self.n_flips))

    def _by_gradients(self, target: Target) -> bool:
        """Whether a gradient proposes moves; where first order is exact, one move does not need it.

        The kernel of exact log-ratios then takes the same decisions, faster.
        """
        exact = target._linear and self.n_flips == 1 and self.device in (None, "cpu")
        return bool(self.fast) and not exact

    def _unfitted_rule(self, target: Target, function: BalancingFunction) -> Balanced | Jump:
        allowed = allowed_by(self, target)
        if allowed.asks_factors or not allowed.steps:
            name = "factors" if allowed.asks_factors else "rejection_free"
            raise ValueError(
                f"{name} is {getattr(self, name)!r}: numbers that the rule needs are determined by "
                "fit; fit the sampler first."
            )
        candidate = Candidate(function, False, allowed.given)
        return candidate.rule(target, float(self.lazy))

    def _check_n_flips(self) -> None:
        n = self.n_flips
        if isinstance(n, str) and n != "auto":
            raise ValueError(f'n_flips is {n!r}; give a number from 1 to {MOST_FLIPS}, or "auto".')
        if not isinstance(n, str) and check_count(n, "n_flips", 1) > MOST_FLIPS:
            raise ValueError(f'n_flips is {n}; it must be from 1 to {MOST_FLIPS}, or "auto".')
        if not self.fast and n != 1:
            raise ValueError(
                f"n_flips is {n!r} but fast is False; only the first-order path, fast=True, makes "
                "several moves at once."
            )

    @property
    def n_flips_(self) -> int:
        """Number of moves proposed together in `sample`."""
        check_is_fitted(self, "target_")
        return self._ensemble.n_flips if isinstance(self._ensemble, Adaptive) else 1

    def step(self, n: int = 1) -> Self:
        """Make n transitions of all chains, without draws: for loops that train what is sampled.

        The states are in `state_tensor_`, or ``state_`` as a NumPy array. They are those that
        ``sample(1, thin=n)`` would reach, but nothing is recorded, compared or warned about. The
        parameters of a `TorchTarget`'s module may change between calls: each call begins with one
        evaluation at the present states.

        Parameters
        ----------
        n : int, default=1
            Transitions of each chain.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``fast`` was False in `fit`; if n is negative; or if the state of a chain is, or has
            become, impossible, or the log-density NaN or +inf.
        RuntimeError
            If the sampler is at work in another thread.

        Notes
        -----
        A Ctrl-C raises a KeyboardInterrupt when the chains are between two transitions.

        Examples
        --------
        >>> import torch
        >>> from sklsb import LSBSampler, TorchTarget
        >>> shift = torch.zeros(8, requires_grad=True)
        >>> target = TorchTarget(lambda x: x @ shift, 8)
        >>> sampler = LSBSampler("barker", fast=True, n_burn_in=10, random_state=0).fit(target)
        >>> optimizer = torch.optim.SGD([shift], lr=0.5)
        >>> for _ in range(100):  # the mean of the draws tends to 0.9
        ...     own = sampler.step(20).state_tensor_.float()
        ...     loss = (own @ shift).mean() - 0.9 * shift.sum()
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        >>> bool((shift > 1.0).all())
        True
        """
        chains = self._on_torch("step")
        check_count(n, "n", 0)
        with deferred_interrupt() as interrupted, self._alone():
            self._use_threads()
            counters, made = chains.counters, 0
            with chains.threads():
                if self.target_._may_change:
                    self.target_._check_mode()
                    chains.refresh()
                    self._check_possible(chains)
                    if self._has_moved(chains):
                        self._count_anew(since=CHANGED)
                        counters = chains.counters
                chains.forget_acceptance()
                counters.pending = (0, 0)
                while made < n and not interrupted():
                    size = min(n - made, _SEGMENT)
                    chains.advance(chains.streams.pairs(size))
                    made += size
                    counters.n_transitions += size
            self._law = by_kernels(chains)
        if made < n or interrupted():
            raise KeyboardInterrupt(f"step made {made} of {n} transitions.")
        return self

    @property
    def state_tensor_(self) -> Any:
        """Present states on the device of the chains, (n_chains, n_sites); with ``fast=True``.

        A copy, with the values and the dtype of ``state_``: changing it changes no chain. Assign
        states to set the chains, as after new starts for some of them.
        """
        return self._on_torch("state_tensor_", AttributeError).state_tensor()

    @state_tensor_.setter
    def state_tensor_(self, states: Any) -> None:
        chains = self._on_torch("state_tensor_", AttributeError)
        with self._alone():
            given = states.detach().cpu().numpy() if hasattr(states, "detach") else states
            checked = self.target_.check_states(given, "state_tensor_")
            before = chains.chains.x.copy()
            if checked.shape != before.shape:
                raise ValueError(
                    f"state_tensor_ has shape {checked.shape}; it must have the shape of the "
                    f"chains, {before.shape}."
                )
            sites = self.target_.observed_sites
            observed = before[0, sites]  # what all chains have there
            bad = np.argwhere(checked[:, sites] != observed)
            if bad.size:
                c, k = bad[0]
                raise ValueError(
                    f"state_tensor_[{c}] sets variable {self.target_.label(int(sites[k]))!r} to "
                    f"{checked[c, sites[k]]}; it is observed as {observed[k]}."
                )
            chains.put(checked)
            try:
                self._check_possible(chains)
            except ValueError:
                chains.put(before)
                raise
            chains.counters.pending = (0, 0)
            self._law = by_kernels(chains)

    def _on_torch(self, name: str, error: type[Exception] = ValueError) -> Any:
        """Return the chains, which a method or attribute needs on torch."""
        check_is_fitted(self, "target_")
        if not hasattr(self._ensemble, "state_tensor"):
            raise error(
                f"{name} is for chains on torch, LSBSampler(fast=True), and these were fitted with "
                "fast=False; use sample(1, thin=n) and state_."
            )
        return self._ensemble

    def _has_moved(self, chains: Any) -> bool:
        """Whether log p at the states of the chains is not what it was, by more than rounding.

        Rounding is taken to be small: a closer look would cost more than the transitions.
        """
        now = by_kernels(chains)[1]
        return self._law is None or not np.allclose(now, self._law[1], rtol=1e-9, atol=1e-9)

    @staticmethod
    def _check_possible(chains: Any) -> None:
        bad = ~np.isfinite(chains.log_prob())
        if bad.any():
            raise ValueError(
                f"The state of chain {int(bad.argmax())} is impossible: log p is "
                f"{chains.log_prob()[bad][0]}. Assign possible states to state_tensor_, or fit "
                "again with warm_start=False."
            )

    def make_ensemble(self, target: Target, states: States, streams: Streams) -> Any:
        n_jobs = self._effective_n_jobs()
        if self.fast:
            from sklsb.ensembles._torch import ClosedFormEnsemble, FastEnsemble

            if not self._by_gradients(target):
                return ClosedFormEnsemble(target, states, streams, n_jobs)
            return FastEnsemble(target, states, streams, self.device, self.n_flips, n_jobs)
        return BalancedEnsemble(target, states, streams, n_jobs)

    def _length(self, target: Target) -> int:
        return max(2000, 5 * target.n_sites) if self.n_burn_in is None else int(self.n_burn_in)

    def burn_in_length(self) -> int:
        return self._length(self.target_)

    def _n_values(self, target: Target) -> int:
        moves = int((target.n_possible - 1).sum())
        return 0 if self.fast else self._length(target) * self.n_chains * (moves + 1)

    def _cheaper(self, target: Target) -> str:
        around = int((target.n_possible - 1).sum()) + 1
        told = f", {around} for each new state, and learning takes more"
        if around > _MANY_VALUES and self._can_be_fast(target):
            return f"{told}; fast=True takes one gradient in place of {around} values"
        n_values = GibbsSampler(n_chains=self.n_chains)._n_values(target)
        return (
            f"{told}; GibbsSampler(), which looks at one variable at a time, takes {n_values:.2g}"
        )

    def _can_be_fast(self, target: Target) -> bool:
        plain = target.target if isinstance(target, Conditioned) else target
        if not isinstance(plain, TorchTarget):
            return False
        try:
            clone(self).set_params(fast=True).check_parameters(target)
            target.first_order_ratios(target.draw_state(np.random.default_rng(0)))
        except (TypeError, ValueError):  # not with these parameters, or no gradient
            return False
        return True

    def make_starts(self, target: Target, streams: Streams) -> Starts:
        rule = balanced(target, self._function, float(self.lazy))
        n, of_step = self._length(target), 1.0
        if not self._by_gradients(target):
            view: Any = target.view()
            of_step = view.touched.size / max(1, view.touched_start.size - 1)
        budget = n * of_step / 4
        if isinstance(self._function, LearnableFunction) and not self.fast:
            budget += min(n, MOST_UPDATES) * UPDATE_COST / (8 * target.ratio_cost)
        cost = int(budget), int(target.n_sites * of_step)
        return scouted_starts(self, target, streams, rule, cost)

    def burn_in(self, target: Target, ensemble: LearnableEnsemble) -> dict[str, Any]:
        n = self._length(target)
        learner = self._learner() if n else None
        if learner is None and not (isinstance(ensemble, Adaptive) and ensemble.adapting):
            function = self._function
            rule = balanced(target, function, float(self.lazy))
            done = first_burn_in(self, ensemble, n, rule)
            history, draws = History.of_fixed(function, *done[:3]), done.draws
            visited = ensemble.chains.x
        else:
            function, history, visited, draws = self._learn(ensemble, learner, n)
        n_skipped = 0 if learner is None else learner.n_skipped
        # A copy: changing the object passed in must not change a frozen function.
        moving = copy.deepcopy(function)
        fitted: dict[str, Any] = {
            "burn_in_balancing_": moving,
            "balancing_": moving,
            "history_": burn_in_history(history, target, n_skipped),
            "_fitted_with": (self.balancing, copy.copy(get_balancing(self.balancing))),
        }
        chooser = Chooser(self, self._allowed, ensemble)
        learned = learner is not None and target.n_sites
        choice = chooser.learned(moving, visited) if learned else chooser.fixed(moving)
        fitted |= self._of_choice(choice, target)
        drawing = choice.candidate.rule(target, float(self.lazy))
        if isinstance(ensemble, Adaptive):
            with Progress(self.verbose, "number of flips"):
                ensemble.adapt(drawing, min(n // 4, 512))
        before = int(ensemble.chains.evaluations.sum()) - sum(choice.evaluations.values())
        counts = {"burn_in": before} | choice.evaluations
        if choice.traces:
            fitted["history_"] = fitted["history_"].merge(mixing_history(choice.traces))
        fitted["history_"].attrs |= {f"{name}_evaluations": n for name, n in counts.items()}
        ensemble.start(drawing)
        if draws is not None:
            fitted["burn_in_"] = draws_dataset(draws, target)
        return fitted

    @staticmethod
    def _of_choice(choice: Choice, target: Target) -> dict[str, Any]:
        """Return the fitted attributes that say how `sample` goes on."""
        chosen = choice.candidate
        fitted = {
            "balancing_": chosen.function,
            "rejection_free_": chosen.jumps,
            "factors_": np.ones(target.n_sites) if chosen.factors is None else chosen.factors,
            "_starving": choice.starving,
        }
        if choice.outcome is not None:
            fitted["candidates_"] = candidates_table(choice.outcome)
        return fitted

    def _settle(self, ensemble: LearnableEnsemble, fitted: dict[str, Any]) -> ChainEnsemble:
        found: ChainEnsemble
        found, fitted["blocks_"] = add_blocks(
            ensemble,
            self.blocks,
            fast=self.fast,
            n_burn_in=self._length(ensemble.target),
            verbose=self.verbose,
        )
        return found

    @property
    def _may_stay(self) -> bool:
        return self.blocks_.kind != "whole"  # redraws of the whole model forget the state

    def _learn(
        self, ensemble: LearnableEnsemble, learner: Learner | None, n: int
    ) -> tuple[BalancingFunction, History, States, States | None]:
        """Run the burn-in while learning a function or a number of flips."""
        n_chains, target = len(ensemble), ensemble.target
        draws = None
        if self.keep_burn_in:
            draws = np.empty((n_chains, n, target.n_sites), dtype=target.dtype)
        with Progress(self.verbose, "burn-in", n * n_chains, "steps") as progress:
            found = burn_in(
                ensemble,
                self._function,
                n,
                lazy=float(self.lazy),
                learner=learner,
                on_block=lambda size: progress(size * n_chains),
                draws=draws,
            )
        return *found, draws

    def _learner(self) -> Learner | None:
        """Return the learner of the burn-in function, if that is learned."""
        if not isinstance(self._function, LearnableFunction):
            return None
        objective = of_burn_in(self.objective, self.fast)
        return new_learner(objective, self._function, self.optimizer, self.learning_rate)

    def warn_about_fit(self) -> None:
        warn_of_doubt(self.blocks_)
        for name, deficit, least, most in self._starving:
            warn(
                f"The function learned by {name!r} starves moves with abs(log p(x')/p(x)) from "
                f"{least:g} to {most:g}: they get exp(-{deficit:.1f}) of the weight that an "
                "increasing function would give them, and are practically never made. Use "
                "sklsb.Lipschitz(0.5), which cannot do that.",
                StarvedMovesWarning,
            )
        if self._allowed.asks_factors and self.n_sites_ and (self.factors_ == 1.0).all():
            warn(
                'factors="site", but fit was too short to learn any, and all are 1. Raise '
                "n_burn_in, or give factors as an array.",
                ShortRunWarning,
            )
        rates = self.history_["acceptance_rate"].values
        if rates.size:
            late = rates[rates.shape[0] // 2 :]
            self._warn_if_periodic(float(late.mean()), int(self.history_["iteration"][-1]))

    def _attrs(self) -> dict[str, Any]:
        chosen = getattr(self, "candidates_", xr.Dataset()).attrs.get("chosen", "")
        found = {
            "balancing_": repr(self.balancing_),
            "n_flips_": self.n_flips_,
            "blocks_": repr(self.blocks_),
        }
        return super()._attrs() | found | ({"chosen": chosen} if chosen else {})
