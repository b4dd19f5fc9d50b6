"""Independent exact draws by variable elimination."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from sklsb.diagnostics.draws import marginals_dataset
from sklsb.ensembles.base import NO_DRAWS
from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.blocks import Whole
from sklsb.exact.elimination.cost import Limits, check_limits
from sklsb.exact.elimination.engine import (
    Elimination,
    eliminated,
    log_partition_of,
    ordered,
    strike_few,
    that_fits,
)
from sklsb.exact.elimination.independent import Redraw, Redraws
from sklsb.exact.elimination.marginals import all_marginals
from sklsb.exact.elimination.reduce import strike
from sklsb.samplers._run.algorithm import Algorithm
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.exports import Normalised
from sklsb.targets._precision import MOST_ROUNDING, rounding_of
from sklsb.targets.base import States
from sklsb.trials.starts import Starts
from sklsb.trials.thinning import Thinning


class _Exact(Algorithm):
    params: "EliminationSampler"
    independent = True
    _made: Elimination | None = None

    def check_parameters(self) -> None:
        self._limits()

    def _limits(self) -> Limits:
        return check_limits(self.params.max_work, self.params.max_memory, "draws")

    def make_rule(self) -> Redraw:
        return Redraw(ordered(strike(self.target), limits=self._limits()).n_uniforms)

    def make_starts(self, streams: Streams) -> Starts:
        return self._starts(self._elimination, streams)

    def more_starts(self, ensemble: Redraws, streams: Streams) -> Starts:
        return self._starts(ensemble.elimination, streams)

    def _starts(self, elimination: Elimination, streams: Streams) -> Starts:
        """Return a possible state, always the same one: draws do not depend on it."""
        n = len(streams)
        x = np.empty((1, self.target.n_sites), self.target.dtype)
        rng, accepted = np.random.default_rng(0), np.zeros(1, dtype=np.bool_)
        while not accepted[0]:
            u = rng.random((1, elimination.found.n_uniforms))
            accepted = elimination.draw(u, x, np.empty(1))
        return Starts(np.tile(x, (n, 1)), np.zeros(n, dtype=np.int64))

    @property
    def _elimination(self) -> Elimination:
        """The elimination behind the draws, made once all else is checked, until chains have it."""
        if self._made is None:
            verbose = self.params.verbose
            found = that_fits(strike_few(self.target), self._limits(), verbose)
            self._made = eliminated(found, verbose, self.n_threads)
        return self._made

    def make_ensemble(self, states: States, streams: Streams) -> Redraws:
        return Redraws(Whole(self._elimination, len(states)), states, streams, self.n_threads)

    def find_thin(self, ensemble: Redraws) -> Thinning:
        return Thinning(1, 0.0, 0, 0)  # draws are independent

    def burn_in_length(self) -> int:
        return 0  # draws are independent

    def burn_in(self, ensemble: Redraws) -> dict[str, Any]:
        """Make one draw, so that the present states are draws."""
        ensemble.run(1, NO_DRAWS, ensemble.room(0)[:2])
        elimination, self._made = ensemble.elimination, None
        cost = elimination.found.cost
        return {"log_z_": log_partition_of(elimination), "cost_": cost, "_marginals": None}

    def doubt_of_draws(self, ensemble: Redraws) -> str:
        size = ensemble.elimination.rounding_size
        if not rounding_of(size) > MOST_ROUNDING:
            return ""
        return f"Terms of {size:.3g} cancel, and their rest is lost: draws and log_z_ may be wrong"


@dataclass(eq=False, repr=False, kw_only=True)
class EliminationSampler(Normalised, BaseSampler):
    r"""Independent exact draws from a product of factors, by variable elimination.

    Variables are summed out one after another; then they are drawn in the opposite order, each from
    its conditional distribution given those already drawn:

    .. math:: x_i \sim p(x_i \mid x_{i+1}, \dots, x_d)

    There is no Markov chain, no burn-in and no autocorrelation. The tables that arise on the way
    must not be too large, which depends on how the variables are connected:
    `sklsb.exact.elimination_cost` predicts it. Models with zeros and cold models, on which chains
    fail, cost no more than others.

    Parameters
    ----------
    max_work : float, optional
        Most table entries to compute in `fit`. By default as many as take about a minute, 2**36;
        for `marginals_`, whose entries take longer, 2**34.
    max_memory : float, optional
        Most bytes to hold; larger models are made piece by piece. By default 2**30, or up to half
        of the memory that is free where that is too little.
    n_chains : int, default=4
        Number of series of draws. All draws are independent.
    n_jobs, random_state, verbose
        As in `GibbsSampler`.
    warm_start : bool, default=False
        Whether another `fit` goes on with the present random streams.

    Attributes
    ----------
    target_, n_sites_, sample_stats_
        As in `GibbsSampler`.
    log_z_ : float
        Natural logarithm of the sum of exp(log_prob) over all states.
    marginals_ : xarray.Dataset
        Exact probability of each value of each variable, computed at the first access.
    cost_ : EliminationCost
        Cost of `fit`.
    state_ : ndarray of int8 (int16 for values above 127), shape (n_chains, n_sites)
        Last draws.
    n_evaluations_ : int
        Table entries computed so far.
    thin_ : int
        1: draws are independent.

    Raises
    ------
    TypeError
        In `fit`, if the target has no factors (`Target.log_factors`) and more than 2**14 states.
    ValueError
        In `fit`, if it would exceed the limits, or no state has positive probability.

    See Also
    --------
    sklsb.exact.marginals : also joint ones.
    sklsb.exact.most_likely : the most probable state.

    References
    ----------
    .. [1] R. Dechter, "Bucket elimination: a unifying framework for reasoning", Artificial
       Intelligence 113 (1999).

    Examples
    --------
    >>> from sklsb import EliminationSampler, MarkovNetwork
    >>> equal = [[1.0, 0.0], [0.0, 1.0]]  # no single change leads from one state to the other
    >>> network = MarkovNetwork([2] * 3, [((0, 1), equal), ((1, 2), equal), ((0,), [0.3, 0.7])])
    >>> sampler = EliminationSampler(random_state=0).fit(network)
    >>> draws = sampler.sample(1000)
    >>> sampler.marginals_["p"].sel(state=1).values.round(6)
    array([0.7, 0.7, 0.7])
    """

    _algorithm = _Exact

    max_work: float | None = None
    max_memory: float | None = None
    n_chains: int = 4
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    warm_start: bool = False

    _marginals: xr.Dataset | None = field(init=False)

    @property
    def marginals_(self) -> xr.Dataset:
        """Exact probability of each value of each variable."""
        run = self._here()
        if self._marginals is None:
            params = run.algorithm.params
            limits = check_limits(params.max_work, params.max_memory, "marginals")
            p = all_marginals(self.target_, limits, self.verbose, run.algorithm.n_threads)
            self._marginals = marginals_dataset(self.target_, p, np.zeros_like(p))
        return self._marginals.copy(deep=True)
