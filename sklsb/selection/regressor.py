"""The estimator for measurements."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.special import gammaln, ndtr
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from sklsb._kernels.selection import state as places
from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import check_fits
from sklsb.ensembles.streams import seed_sequence
from sklsb.samplers._run.checks import check_count
from sklsb.selection.base import BaseSpikeSlab, Model
from sklsb.selection.chains import Chain
from sklsb.selection.moments import Flat, Given, flat_part, given_model, linear_moments
from sklsb.selection.problem import LinearProblem, Prior, as_dense, linear_problem
from sklsb.selection.search import Search
from sklsb.targets._checks import positive, warn_if_classes

# States of a chain that draws and predictions are made of.
_N_STATES = 200
# Draws that intervals of coefficients are made of.
_N_DRAWS = 1000


@dataclass(eq=False, repr=False)
class SpikeSlabRegressor(RegressorMixin, BaseSpikeSlab):
    r"""Linear regression that says which columns matter, with what probability and error.

    .. math:: y = \alpha + X_x \beta + \epsilon, \quad \epsilon \sim N(0, \sigma^2 I), \qquad
              p(x \mid y) \propto p(y \mid x) \, p(x), \qquad x \in \{0, 1\}^p

    Column j is in the model if x_j = 1; otherwise its coefficient is zero. The posterior of models
    is as in `VariableSelection`, whose docstring has the formulas of both priors. All models of up
    to 13 columns or groups are enumerated. Otherwise chains run a jump process without rejections
    over windows of columns, until the largest Monte Carlo error of an inclusion probability is
    below ``tol``.

    Parameters
    ----------
    prior : {"g", "independent"}, default="g"
        Prior of the coefficients: Zellner's g prior, or independent normals with ``slab_sd`` times
        the standard deviation of the noise.
    g : float, optional
        g of the prior "g", up to 1e8. Default: the number of rows (unit information).
    slab_sd : float, default=1.0
        For the prior "independent".
    size_prior : (float, float), optional
        a and b of the Beta distribution of the probability that a column is included. Default:
        (1, 1), all sizes equally likely.
    expected_size : float, optional
        Instead: every column is included with the same known probability, so that this many are
        expected.
    inclusion_prior : array_like of shape (n_features,) or (n_groups,), optional
        Instead: prior probabilities by column (entries of ``always`` are ignored), or by group in
        the order of their first column. A Series is read by the names of columns or groups.
    always : sequence of int or str, default=()
        Columns that are in every model, with a flat prior: projected out beforehand.
    groups : array_like of shape (n_features,), optional
        Columns with the same label are included together. A Series is read by the names of columns.
    standardize : bool, default=True
        Whether ``slab_sd`` refers to columns divided by their standard deviations.
    n_chains : int, default=4
        Number of chains, at least 2. Every second chain starts at the empty model, the others at
        the largest model of a lasso path.
    tol : float, default=0.01
        Stop when the largest Monte Carlo standard error of an inclusion probability is below.
    max_time : float, optional
        Stop after about this many seconds of sampling. Results then depend on the clock. Default:
        stop after 50 times the work of the first look at errors.
    subset_size : "auto" or int, default="auto"
        Units in a window. "auto": all of up to 2,000, 768 of more.
    tempering : float, default=1.0
        Power of the likelihood under which chains move; their states are weighted.
    n_jobs : int, optional
        Threads; -1: all cores. Results do not depend on it.
    random_state : int, SeedSequence, Generator, RandomState or None
        Where random numbers come from.
    warm_start : bool, default=False
        Whether the chains of another `fit` start at the last models of the one before.
    verbose : int, default=0
        1: show progress.

    Attributes
    ----------
    inclusion_probabilities_ : ndarray of shape (n_features,)
        Probability that each column is in the model; 1 for those in ``always``.
    inclusion_mcse_ : ndarray of shape (n_features,)
        Their Monte Carlo standard errors. Where chains disagree, from the variation among chains.
    coef_, coef_sd_ : ndarray of shape (n_features,)
        Mean and standard deviation of the coefficients, averaged over models.
    coef_conditional_ : ndarray of shape (n_features,)
        Mean of each coefficient given that the column is in the model.
    positive_probability_ : ndarray of shape (n_features,)
        Probability that the coefficient is positive, given that the column is in the model.
    scale_ : ndarray of shape (n_features,)
        Standard deviations of the columns.
    intercept_ : float
        Mean of the intercept.
    sigma_ : float
        Mean of the noise's standard deviation.
    model_sizes_ : ndarray
        Probability of each number of included columns (or groups), ``always`` not counted.
    models_ : list of (tuple of int, float)
        The most probable models visited, as sorted column numbers without ``always``, and their
        probabilities; at most 100.
    disagreement_ : float
        Largest difference between two chains' estimates of an inclusion probability.
    converged_ : bool
        Whether the largest error is at most ``tol``, no difference of chains is beyond chance, and
        no ridge regression explains far more in rows left out.
    n_iter_ : int
        Jumps of all chains; 0 if all models were enumerated.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Raises
    ------
    TypeError
        If an array is masked.
    ValueError
        If data are not finite numbers or y is constant; if a column is constant or explained by
        ``always``; if columns of a group are collinear, with the prior "g"; for n < 3, p > 1e6; if
        a parameter is out of range.

    Warns
    -----
    ModelWarning
        If columns are nearly equal: they share a probability. If y has only two values.
    SeparatedModesWarning
        If chains disagree: probabilities are uncertain by as much. If a ridge regression explains
        far more in rows left out: chains may have missed columns that matter only together.
    ShortRunWarning
        If ``tol`` was not reached.
    InterruptedWarning
        After Ctrl-C: the results so far are kept.

    See Also
    --------
    VariableSelection : The same posterior as a target for any sampler.

    Notes
    -----
    ``sample_weight`` counts rows: weight 2 is the same as giving the row twice.

    Sparse X stays sparse: columns are centred implicitly. Dense X is copied, in single precision if
    it has more than 2^23 entries.

    With the prior "g", models in which 1 - R^2 of a column given the others is 1e-5 or less have
    probability zero (`VariableSelection`: 1e-7).

    References
    ----------
    .. [1] G. Zanella and G. Roberts, "Scalable importance tempering and Bayesian variable
       selection", JRSS B 81 (2019).

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import SpikeSlabRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 100))
    >>> y = 2 * X[:, 3] - X[:, 8] + rng.normal(size=60)
    >>> model = SpikeSlabRegressor(random_state=0).fit(X, y)
    >>> np.flatnonzero(model.get_support())
    array([3, 8])
    """

    _reading: ClassVar = {"accept_sparse": "csc", "dtype": (np.float64, np.float32)}
    _advice: ClassVar = ", more n_chains, or tempering=0.3"

    prior: str = "g"
    _: KW_ONLY
    g: float | None = None
    tempering: float = 1.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Sample the posterior of models until its probabilities are known well enough.

        Parameters
        ----------
        X : array_like, data frame or sparse matrix of shape (n_samples, n_features)
            Columns to choose from. More columns than rows are fine.
        y : array_like of shape (n_samples,)
            Measurements.
        sample_weight : array_like of shape (n_samples,), optional
            How often each row counts.

        Returns
        -------
        SpikeSlabRegressor
            Itself.
        """
        self._refuse(X, y, sample_weight=sample_weight)
        kind = np.asarray(y).dtype
        if kind.kind in "bUS":
            raise ValueError(
                f"y has dtype {kind}: classes, not measurements, and the noise of this model is "
                "Gaussian. Take SpikeSlabClassifier, or give y.astype(float) if that is meant."
            )
        X, y = self._read(X, y, y_numeric=True, ensure_min_samples=3, estimator=self)
        self._check(X)
        power = positive(self.tempering, "tempering", 1.0)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if (weight > 0).sum() < 3:
            raise ValueError(f"{(weight > 0).sum()} rows have a positive sample_weight; 3 needed.")
        y = np.asarray(y, dtype=np.float64)
        if not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        self._keep_scale(X, weight)
        always, unit_of, groups = self._units()
        prior = self._prior(float(weight.sum()), unit_of, len(groups))
        problem = linear_problem(
            X, y, weight, groups, always, prior, bool(self.standardize), self._names()
        )
        warn_if_classes(y)
        search = self._run(problem, Chain, power)
        self._summarise(search, problem, flat_part(X, y, problem))
        left = y - np.asarray(X @ self.coef_) - self.intercept_
        self._tell(search, 1.0 - float(weight @ left**2) / problem.y_norm**2)
        return self

    def _prior(self, n_rows: float, unit_of: Ints, n_units: int) -> Prior:
        """Resolve the priors; ``unit_of`` is the unit of each column, -1 for ``always``."""
        if self.prior not in ("g", "independent"):
            raise ValueError(f'prior is {self.prior!r}; give "g" or "independent".')
        if self.prior != "g" and self.g is not None:
            raise ValueError(f"g is {self.g!r}; the prior {self.prior!r} has none: leave it out.")
        g = positive(n_rows if self.g is None else self.g, "g", 1e8)
        slab = positive(self.slab_sd, "slab_sd")
        return Prior(self.prior, g, slab, self._inclusion(unit_of, n_units))

    def _summarise(self, search: Search, problem: LinearProblem, flat: Flat) -> None:
        """Set the fitted attributes."""
        self._flat, self._df = flat, problem.df
        log_p = self._keep(search, problem.scale * problem.y_norm)
        coefficients = flat.coefficients(self.coef_)
        self.intercept_ = float(coefficients[0])
        self.coef_[problem.always] = self.coef_conditional_[problem.always] = coefficients[1:]
        total = search.sums.total
        root = total[places.ROOT_ERROR] / total[places.TIME]
        ratio = math.exp(gammaln((problem.df - 1) / 2) - gammaln(problem.df / 2))
        self.sigma_ = float(problem.y_norm * root * ratio / math.sqrt(2.0))
        self._keep_states(search, problem, log_p)
        if (always := problem.always).size:
            rows = np.eye(always.size + 1)[1:]
            x = np.zeros((always.size, self.n_features_in_))
            variance = linear_moments(flat, rows, x, *self._averaged["bma"], problem.df)[1]
            self.coef_sd_[always] = np.sqrt(variance)
            self.positive_probability_[always] = ndtr(self.coef_[always] / self.coef_sd_[always])

    def _keep_states(
        self, search: Search, problem: LinearProblem, log_p: dict[Model, float]
    ) -> None:
        """Keep the models that draws and predictions are made of."""

        @cache
        def given(units: Model) -> Given:
            return given_model(problem, problem.columns_of(units))

        self._states, self._weights = [], []
        for chain in search.chains:
            step = -(-len(chain.states.kept) // _N_STATES)
            units, weights = zip(*chain.states.kept[::step], strict=True)
            self._states.append([given(tuple(model.tolist())) for model in units])
            self._weights.append(np.array(weights) / np.sum(weights))
        median = tuple(np.flatnonzero(self._estimate.share >= 0.5).tolist())
        best = max(log_p, key=lambda m: log_p[m]) if log_p else median
        joined = np.concatenate(self._weights) / len(self._weights)
        self._averaged: dict[str, tuple[list[Given], Array]] = {
            "bma": ([state for chain in self._states for state in chain], joined),
            "mpm": ([given(median)], np.ones(1)),
            "hpm": ([given(best)], np.ones(1)),
        }

    def _draw(self, state: Given, rng: np.random.Generator) -> tuple[Array, float, float]:
        """Draw all coefficients, the intercept and the noise of a model."""
        scale = math.sqrt(state.error / rng.chisquare(self._df))
        coef = np.zeros(self.n_features_in_)
        coef[state.columns] = state.mean + scale * (state.root @ rng.normal(size=state.mean.size))
        flat = self._flat.coefficients(coef)
        flat = flat + scale * (np.linalg.inv(self._flat.r) @ rng.normal(size=flat.size))
        coef[self._flat.always] = flat[1:]
        return coef, flat[0], scale

    def _drawn(self) -> sparse.csc_array:
        states, weights = self._averaged["bma"]
        rng = np.random.default_rng(0)
        chosen = rng.choice(len(states), size=_N_DRAWS, p=weights)
        rows = [sparse.csr_array(self._draw(states[i], rng)[0][None]) for i in chosen]
        return sparse.vstack(rows, format="csc")

    # ------------------------------------------------------------- results

    def predict(self, X: Any, return_std: bool = False, estimator: str = "bma") -> Any:
        """Predict y.

        Parameters
        ----------
        X : array_like, data frame or sparse matrix of shape (n, n_features)
            New rows.
        return_std : bool, default=False
            Whether to return the standard deviations of new measurements, too.
        estimator : {"bma", "mpm", "hpm"}, default="bma"
            The mean over all models, the median probability model (columns of probability 1/2 or
            more), or the most probable model visited.

        Returns
        -------
        ndarray of shape (n,), or a tuple of two
            Means; and standard deviations.
        """
        X = self._read_new(X, estimator)
        averaged = np.asarray(X @ self.coef_) + self.intercept_
        if estimator == "bma" and not return_std:
            return averaged
        rows = np.column_stack([np.ones(X.shape[0]), as_dense(X[:, self._flat.always])])
        models = self._averaged[estimator]
        mean, variance, noise = linear_moments(self._flat, rows, X, *models, self._df)
        mean = averaged if estimator == "bma" else mean
        return (mean, np.sqrt(variance + noise)) if return_std else mean

    def sample_posterior(self, n: int = 250, random_state: Any = 0) -> Any:
        """Draw models, coefficients, intercept and noise from the posterior.

        Models are states that the chains kept, at most 200 per chain; coefficients are drawn
        afresh.

        Parameters
        ----------
        n : int, default=250
            Draws per chain.
        random_state : int, SeedSequence, Generator, RandomState or None, default=0
            Where random numbers come from.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            With the group ``posterior``: ``coef``, ``included`` (chain, draw, feature),
            ``intercept`` and ``sigma`` (chain, draw).

        Raises
        ------
        MemoryError
            If the draws do not fit in memory.
        """
        check_is_fitted(self)
        check_count(n, "n", 1)
        p, chains = self.n_features_in_, len(self._states)
        check_fits(9 * n * chains * p, f"{n} draws of {p} coefficients", "Draw fewer.")
        rng = np.random.default_rng(seed_sequence(random_state))
        coef, sigma = np.zeros((chains, n, p)), np.zeros((chains, n))
        included = np.zeros((chains, n, p), dtype=np.int8)
        intercept = np.zeros((chains, n))
        included[:, :, self._flat.always] = 1
        for c, (states, weights) in enumerate(zip(self._states, self._weights, strict=True)):
            for d, i in enumerate(np.sort(rng.choice(len(states), size=n, p=weights))):
                coef[c, d], intercept[c, d], sigma[c, d] = self._draw(states[i], rng)
                included[c, d, states[i].columns] = 1
        attrs = {"prior": self.prior}
        return self._posterior(coef, included, attrs, intercept=intercept, sigma=sigma)
