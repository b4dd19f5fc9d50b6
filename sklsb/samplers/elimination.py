"""Independent exact draws by variable elimination."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.blocks import Whole
from sklsb.exact.elimination.cost import Limits, check_limits
from sklsb.exact.elimination.engine import (
    Elimination,
    eliminated,
    log_partition_of,
    ordered,
    that_fits,
)
from sklsb.exact.elimination.independent import Redraw, Redraws
from sklsb.exact.elimination.marginals import all_marginals, marginals_dataset
from sklsb.exact.elimination.reduce import strike
from sklsb.exact.elimination.schedule import Need
from sklsb.exact.precision import MOST_ROUNDING, rounding_of
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.starts import Starts
from sklsb.samplers._run.thinning import Thinning
from sklsb.targets.base import States, Target


@dataclass(eq=False, repr=False, kw_only=True)
class EliminationSampler(BaseSampler):
    r"""Independent exact draws from a product of factors, by variable elimination.

    Variables are summed out one after another; then they are drawn in the opposite order, each from
    its conditional distribution given those already drawn:

    .. math:: x_i \sim p(x_i \mid x_{i+1}, \dots, x_d)

    There is no Markov chain, no burn-in and no autocorrelation. The tables that arise on the way
    must not be too large, which depends on how the variables are connected:
    `sklsb.exact.elimination_cost` tells. Models with zeros and cold models, on which chains fail,
    cost no more than others.

    Parameters
    ----------
    max_work : float, optional
        Most table entries to compute in `fit`. By default as many as take about a minute, 2**35;
        for `marginals_`, whose entries take longer, 2**33.
    max_memory : float, optional
        Most bytes to hold; what is larger is made piece by piece. By default 2**30, or up to half
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
        In `fit`, if the target offers no factors (`Target.log_factors`).
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

    _ensemble: Redraws = field(init=False)
    _independent = True

    max_work: float | None = None
    max_memory: float | None = None
    n_chains: int = 4
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    warm_start: bool = False

    def check_parameters(self, target: Target) -> None:
        self._limits("draws")

    def _limits(self, need: Need) -> Limits:
        return check_limits(self.max_work, self.max_memory, need)

    def make_rule(self, target: Target) -> Redraw:
        limits = self._limits("draws")
        return Redraw(ordered(strike(target), limits=limits).n_uniforms)

    def make_starts(self, target: Target, streams: Streams) -> Starts:
        """Return a possible state, always the same one: draws do not depend on it."""
        n = len(streams)
        elimination = self._elimination(target)
        x = np.empty((1, target.n_sites), target.dtype)
        rng, accepted = np.random.default_rng(0), np.zeros(1, dtype=np.bool_)
        while not accepted[0]:
            u = rng.random((1, elimination.found.n_uniforms))
            accepted = elimination.draw(u, x, np.empty(1))
        return Starts(np.tile(x, (n, 1)), np.zeros(n, dtype=np.int64))

    def _fit(self, target: Target, initial_states: ArrayLike | None) -> None:
        self._eliminated: Elimination | None = None
        try:
            super()._fit(target, initial_states)
        finally:
            del self._eliminated

    def _elimination(self, target: Target) -> Elimination:
        """Return the elimination behind the draws; in `fit`, make it once all else is checked."""
        if "_eliminated" not in self.__dict__:
            return self._ensemble.elimination
        if self._eliminated is None:
            limits = self._limits("draws")
            found, n_jobs = that_fits(target, limits, self.verbose), self._effective_n_jobs()
            self._eliminated = eliminated(found, self.verbose, n_jobs)
        return self._eliminated

    def make_ensemble(self, target: Target, states: States, streams: Streams) -> Redraws:
        source = Whole(self._elimination(target), len(states))
        return Redraws(source, states, streams, self._effective_n_jobs())

    def _find_thin(self) -> Thinning:
        return Thinning(1, 0.0, 0, 0)  # draws are independent

    def burn_in_length(self) -> int:
        return 0  # draws are independent

    def burn_in(self, target: Target, ensemble: Redraws) -> dict[str, Any]:
        """Make one draw, so that the present states are draws."""
        n = len(ensemble)
        no_draws = np.empty((n, 0, target.n_sites), target.dtype)
        ensemble.run(1, (0, 0, 0), no_draws, np.empty((n, 0, 1)))
        elimination = ensemble.elimination
        return {"log_z_": log_partition_of(elimination), "cost_": elimination.found.cost}

    def warn_about_fit(self) -> None:
        """There is no burn-in, so there is nothing to warn about."""

    def _doubt_of_draws(self) -> str:
        size = self._ensemble.elimination.rounding_size
        if not rounding_of(size) > MOST_ROUNDING:
            return ""
        return f"Terms of {size:.3g} cancel, and their rest is lost: draws and log_z_ may be wrong"

    @property
    def marginals_(self) -> xr.Dataset:
        """Exact probability of each value of each variable."""
        check_is_fitted(self, "target_")
        if not hasattr(self, "_marginals"):
            limits = self._limits("marginals")
            p = all_marginals(self.target_, limits, self.verbose, self._effective_n_jobs())
            self._marginals = marginals_dataset(self.target_, p)
        return self._marginals.copy(deep=True)
