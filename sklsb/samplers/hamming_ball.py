"""The Hamming ball sampler."""

from typing import Any

from sklsb._kernels.facts import Rule
from sklsb._kernels.rules.hamming_ball import HammingBall
from sklsb.samplers._run.checks import check_count
from sklsb.samplers._run.fixed import FixedRuleSampler, check_states, free_sites
from sklsb.targets.base import Target


class HammingBallSampler(FixedRuleSampler):
    r"""Hamming ball sampler: of the states of a large block, only the near ones are tried.

    With x_B the block, d the number of variables in which two states differ and r the radius, a
    transition draws [1]_

    .. math:: u \sim U\{u : d(u, x_B) \le r\}, \qquad
              x_B' \sim p(x_B \mid x_{-B}) \text{ restricted to } d(x_B', u) \le r

    so up to 2 r variables change. It is exactly reversible; with r = block_size it is a Gibbs
    step of the block.

    Parameters
    ----------
    block_size : int, default=10
        Variables of a block, chosen at random in each transition; if there are fewer, all.
    radius : int, default=1
        Largest distance r of the centre from the present state, and of the next state from the
        centre; at most ``block_size``. The states within it, at most 4,096, are enumerated.
    n_chains : int, default=4
        Number of chains.
    n_burn_in : int, optional
        Transitions of each chain before the first draw. If not given, as many sweeps as in
        `LSBSampler`: 5, and at least 2000 / n_sites. A sweep is n_sites / block_size transitions.
    init : {"both", "uniform", "quenched"}, default="both"
        Where chains start if `fit` is given no ``initial_states``. "uniform": at uniform draws.
        "quenched": where walks uphill end, in turn the best of many and a far one. "both": the
        chains 0, 2, ... at uniform draws, the others quenched, so that modes which are not reached
        from one end are seen to be missing.
    n_jobs : int, optional
        Number of threads (None is 1, -1 all cores); it never changes a chain.
    random_state : int, SeedSequence, Generator, RandomState or None, default=None
        Seed. The same int gives the same chains, bit for bit.
    verbose : int, default=0
        1 shows a line for each phase, and how long it takes; 2 also one for each chain.
    warm_start : bool, default=False
        Whether another `fit` goes on from the present states and streams.
    keep_burn_in : bool, default=False
        Whether to keep the states of the burn-in in ``burn_in_``.

    Attributes
    ----------
    target_ : Target
        What was fitted.
    n_sites_ : int
        Number of variables.
    state_ : ndarray of int8 (int16 for values above 127), shape (n_chains, n_sites)
        Present states.
    history_ : xarray.Dataset
        lp by chain at up to 200 iterations of the burn-in.
    sample_stats_ : xarray.Dataset
        lp of each draw of the last `sample`.
    disagreement_ : xarray.Dataset
        Whether chains, and halves of chains, agree, by all draws since `fit`: see
        `sklsb.diagnostics.disagreement`. Only if there are enough of them.
    n_evaluations_ : int
        Log-ratios of changes evaluated so far, over all chains: a ball of n states takes n - 1,
        and the way to its centre up to ``radius`` more.
    burn_in_ : xarray.Dataset
        States of the burn-in, if ``keep_burn_in``.

    Raises
    ------
    ValueError
        In `fit`, if a ball has more than 4,096 states, or a parameter is out of its range.

    See Also
    --------
    GibbsSampler : all joint states of smaller blocks.

    References
    ----------
    .. [1] M. K. Titsias and C. Yau, "The Hamming ball sampler", JASA 112 (2017).

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import HammingBallSampler, Ising
    >>> ising = Ising.lattice(np.full((8, 8), 0.2), coupling=0.3)
    >>> sampler = HammingBallSampler(6, radius=2, n_chains=2, random_state=0).fit(ising)
    >>> draws = sampler.sample(1000, thin="sweep")
    >>> dict(draws.sizes)
    {'chain': 2, 'draw': 1000, 'row': 8, 'col': 8}
    """

    rule_parameters = ("block_size", "radius")

    def __init__(
        self,
        block_size: int = 10,
        radius: int = 1,
        *,
        n_chains: int = 4,
        n_burn_in: int | None = None,
        init: str = "both",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        keep_burn_in: bool = False,
    ):
        self.block_size = block_size
        self.radius = radius
        self.n_chains = n_chains
        self.n_burn_in = n_burn_in
        self.init = init
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.keep_burn_in = keep_burn_in

    def make_rule(self, target: Target) -> Rule:
        size = check_count(self.block_size, "block_size", 1)
        radius = check_count(self.radius, "radius", 1)
        if radius > size:
            raise ValueError(f"radius is {radius}; it must be at most block_size, which is {size}.")
        sites = free_sites(target)
        size = min(size, sites.size)
        radius = min(radius, size)
        rule = HammingBall(sites, size, radius)
        name = f"HammingBallSampler({self.block_size}, radius={self.radius})"
        check_states(name, rule.n_states(target), "Take a smaller radius or block_size.")
        return rule
