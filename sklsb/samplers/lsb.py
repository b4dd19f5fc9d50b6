"""The local self-balancing sampler and the fixed samplers that are its settings."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklsb._system.progress import deferred_interrupt
from sklsb.balancing.functions import BalancingFunction
from sklsb.balancing.learning import Objective
from sklsb.samplers._lsb.fitting import Learning
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.checks import check_count
from sklsb.samplers._run.run import check_possible, exclusive


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
        "mixture": learned mixture of these four ("LSB 1" in [1]_). "learned": learned functions of
        bounded slope (`sklsb.balancing.Lipschitz`): increasing ones for the burn-in, increasing and
        other ones for sampling. Or any `sklsb.balancing.BalancingFunction`; a learnable one, such
        as the paper's `Network` ("LSB 2"), is learned.
    fast : bool, default=False
        False: exact log-ratios of all neighbours, in compiled kernels. True: first-order log-ratios
        from one gradient, in torch (FLSB; with "sqrt" it is Gibbs with gradients [3]_). The full
        Metropolis-Hastings ratio keeps this exact too. Where first order is exact, with one flip on
        an `Ising` or `Potts` model on the CPU, the compiled kernels make these transitions.
    n_flips : int or "auto", default=1
        With ``fast=True``, the number of flips proposed per gradient, at most 64. If it is above 1,
        the last flip is dropped with probability 1/2, so that the parity of the number of ones can
        change. "auto" tunes one number for all chains during `fit`, for about 60% acceptance
        (informed proposals mix best near 0.57 [4]_), and keeps it. Functions are learned for one
        flip at a time.
    objective : str or Objective, default="auto"
        What learning minimises; see the page "What is minimised". "auto": "kl" in the burn-in, or
        "bound" with ``fast=True``; "flux" and "global_flux" for the candidates to sample with, or
        none with ``rejection_free=True``.
        "flux" or "global_flux": only that one. "kl", "exact" (the mutual information between
        successive states [1]_) or "bound" (a bound on it): one function, for both burn-in and
        sampling. Or, with ``fast=False``, an objective declared by `sklsb.extending.objective`, or
        its name.
    n_chains : int, default=4
        Number of chains.
    n_burn_in : int, optional
        Transitions of each chain in the burn-in, by default max(2000, 5 * n_sites). On a function
        of Python they are cut, with a warning, so that all chains take about 2**22 of its values,
        but to no fewer than 100. Learning the functions for sampling comes on top and does not
        depend on it. 0: nothing is learned, there is no pilot, and `sample` uses the function that
        learning would start from.
    init : {"auto", "both", "uniform", "quenched"}, default="auto"
        Where chains start if `fit` is given no ``initial_states``: "uniform" at uniform draws,
        "quenched" at the ends of uphill walks, "both" at these and those in turn, "auto" at exact
        draws where they take no more work than the burn-in, and else as "both". More in
        `GibbsSampler`.
    learning_rate : float, optional
        Step size of Adam, the optimiser in the burn-in; by default 0.01 for the objective "bound",
        and the function's own for the others.
    pilot : bool, default=True
        Whether to choose by a pilot run, which is short on easy targets (after a very short burn-in
        it cannot run, and the measures in ``candidates_`` are NaN). If not, `sample` uses the
        function learned by ``objective`` ("flux" for "auto"). Has no effect on a fixed function.
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
        without a GPU at hand and never run: see the page "GPU and many chains".
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
        Present states on the device of the chains; assign states to set them.
    one_hot_tensor_ : torch.Tensor of shape (n_chains, n_sites, n_values)
        Indicators of the values of the present states, which the function of a `TorchTarget` of
        more than two values takes.
    history_ : xarray.Dataset
        Over blocks of the burn-in, labelled by their last iteration: lp and acceptance_rate (by
        chain), objective, gradient_norm, theta, and even_part at 33 values of abs(u). Over the
        evaluations of the flux objectives, by candidate, the same with the prefix ``mixing_``.
        attrs: skipped_updates; the log-ratios evaluated in each part of `fit`, as
        burn_in_evaluations, mixing_evaluations, factors_evaluations and pilot_evaluations; the
        seconds of each phase without compilation, as burn_in_seconds and so on, and
        compiling_seconds.
    sample_stats_ : xarray.Dataset
        lp and acceptance_rate of each draw of the last `sample`; the rate is over the locally
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
    >>> draws = sampler.sample(2000)
    >>> dict(draws.sizes)
    {'chain': 2, 'draw': 2000, 'row': 8, 'col': 8}
    """

    _algorithm = Learning
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

    @property
    def n_flips_(self) -> int:
        """Number of moves proposed together in `sample`."""
        check_is_fitted(self, "target_")
        return int(self.run_.ensemble.n_flips)

    def step(self, n: int | str = 1) -> Self:
        """Make n transitions of all chains, without draws: for loops that train what is sampled.

        The states are in `state_tensor_` and `one_hot_tensor_`, or ``state_`` as a NumPy array.
        ``sample(1, thin=n)`` would reach the same states, but here nothing is recorded, compared or
        warned about. The parameters of a `TorchTarget`'s module may change between calls: each call
        begins with one evaluation at the present states.

        Parameters
        ----------
        n : int or "sweep", default=1
            Transitions of each chain; "sweep" as in `sample`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If n is negative; or if the state of a chain is, or has become, impossible, or the
            log-density NaN or +inf.
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
        ...     own = sampler.step(20).state_tensor_
        ...     loss = (own @ shift).mean() - 0.9 * shift.sum()
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        >>> bool((shift > 1.0).all())
        True
        """
        check_is_fitted(self, "target_")
        n = self.run_.sweep if isinstance(n, str) and n == "sweep" else check_count(n, "n", 0)
        with deferred_interrupt() as interrupted, exclusive(self.run_):
            made = self._here().step(n, interrupted)
        if made < n or interrupted():
            raise KeyboardInterrupt(f"step made {made} of {n} transitions.")
        return self

    @property
    def state_tensor_(self) -> Any:
        """Present states on the device of the chains, (n_chains, n_sites).

        A copy: changing it changes no chain. Assign states to set the chains, as after new starts
        for some of them. It has the type that the function of a `TorchTarget` takes if that takes
        such a tensor, int64 if it takes indicators, and for other targets the dtype of ``state_``.
        """
        return self._tensor(one_hot=False)

    @state_tensor_.setter
    def state_tensor_(self, states: Any) -> None:
        check_is_fitted(self, "target_")
        chains: Any = self.run_.ensemble
        with exclusive(self.run_):
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
                check_possible(chains)
            except ValueError:
                chains.put(before)
                raise
            chains.counters.begin()
            self.run_.keep_log_prob()

    @property
    def one_hot_tensor_(self) -> Any:
        """Indicators of the values of the present states, (n_chains, n_sites, n_values); a copy.

        The last axis is that of `values` of the target. The function of a `TorchTarget` of more
        than two values takes this tensor.
        """
        return self._tensor(one_hot=True)

    def _tensor(self, one_hot: bool) -> Any:
        check_is_fitted(self, "target_")
        from sklsb.targets._torch import states_on_torch

        on_device = getattr(self.run_.ensemble, "state_tensor", lambda: self.state_)
        return states_on_torch(self.target_, on_device(), one_hot)
