"""SpikeSlabClassifier."""

import math
import numbers
import time
import warnings
from typing import Any, Self

import numpy as np
import xarray as xr
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, logit, logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    assert_all_finite,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from threadpoolctl import threadpool_limits

from sklsb._system.progress import deferred_interrupt
from sklsb.diagnostics.draws import to_inference_data
from sklsb.ensembles.streams import spawn
from sklsb.exceptions import InterruptedWarning, SamplerWarning, ShortRunWarning
from sklsb.selection.logistic import (
    MOST_INCLUDED,
    LogisticChain,
    Problem,
    errors,
    make_problem,
)
from sklsb.selection.plots import Plots
from sklsb.selection.rows import Rows, counts_of, distinct_rows

Array = NDArray[np.float64]

_BURN_IN = 200  # windows of each chain
_FIRST = 400
_MOST_WINDOWS = 1 << 16
_ALL_COLUMNS = 500  # up to which a window has all columns
_ESTIMATORS = ("bma", "mpm", "hpm")
_CHUNK = 1 << 22  # numbers in a table of predictions


class SpikeSlabClassifier(SelectorMixin, ClassifierMixin, BaseEstimator):
    r"""Logistic regression with a spike and a slab: which columns matter, and how much.

    With a_j = 1 if column j is in the model, the successes y_i of m_i trials (m_i = 1 for classes)
    are

    .. math:: y_i \sim \mathrm{Binomial}(m_i, \sigma(\beta_0 + \sum_j a_j \beta_j x_{ij})), \qquad
              \beta_j \sim N(0, \text{slab\_sd}^2),

    for columns in units of their standard deviation if ``standardize``. The intercept has a flat
    prior. Chains draw models and coefficients from the posterior: the jump process over windows of
    columns given Polya-Gamma weights of the rows, the coefficients integrated out; then new
    weights. Probabilities of columns are averages of conditional ones (Rao-Blackwell).

    Parameters
    ----------
    slab_sd : float, default=1.0
        Standard deviation of the coefficients of included columns.
    size_prior : tuple of two floats, default=(1.0, 1.0)
        a and b of a beta-binomial prior of the number of columns; (1, 1) is uniform.
    expected_size : float, default=None
        Instead: columns are included independently with probability expected_size / p, where p
        does not count columns in ``always``.
    inclusion_prior : array-like of shape (n_features,), default=None
        Instead: prior probabilities by column; entries of ``always`` are ignored.
    always : sequence of int or str, default=()
        Numbers or names of columns in every model. They have the slab as prior, too: under a flat
        one the posterior could be improper, if they separate the classes.
    standardize : bool, default=True
        Whether the prior is for columns divided by their standard deviations. Coefficients are
        always those of the columns as given.
    n_chains : int, default=4
        Number of chains, at least 2. Half of them start at the columns with the strongest
        associations with y, the others at the empty model.
    tol : float, default=0.01
        Chains run until the largest standard error of an inclusion probability is at most this.
    max_time : float, default=None
        Seconds after which they stop in any case, with a warning.
    subset_size : int or "auto", default="auto"
        Columns in a window. "auto" is all columns up to 500.
    n_jobs : int, default=None
        Chains that run at the same time, in threads. Results do not depend on it.
    random_state : int, RandomState, Generator or None, default=None
        Source of random numbers.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Labels of the classes; with ``n_trials``, 0 and 1.
    inclusion_probabilities_ : ndarray of shape (n_features,)
        Posterior probability of each column; 1 for those in ``always``.
    inclusion_mcse_ : ndarray of shape (n_features,)
        Their Monte Carlo standard errors.
    coef_ : ndarray of shape (1, n_features)
        Posterior means of the coefficients, 0 where a column is not included.
    coef_sd_, coef_conditional_, positive_probability_ : ndarray of shape (n_features,)
        Their standard deviations; the means given inclusion; the probability that a coefficient is
        positive given inclusion. NaN for a column that no chain could include.
    intercept_ : ndarray of shape (1,)
        Posterior mean of the intercept.
    model_sizes_ : ndarray of shape (n_sizes,)
        Probabilities of numbers of included columns 0, 1, ..., without those in ``always``.
    models_ : list of tuple
        The most probable models that were visited: (tuple of columns, probability).
    disagreement_ : float
        Largest difference between the inclusion probabilities of two chains.
    converged_ : bool
        Whether ``tol`` was reached.
    n_windows_ : int
        Windows of each chain after the burn-in.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Weights and repeated rows are counts, and equal rows are joined: ``sample_weight`` gives bit for
    bit what repeating rows gives. Predictions are averages over at most 4,000 kept draws.

    References
    ----------
    N. G. Polson, J. G. Scott and J. Windle, "Bayesian inference for logistic models using
    Polya-Gamma latent variables", JASA 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import SpikeSlabClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> y = np.where(X[:, 1] + rng.logistic(size=200) / 2 > 0, "yes", "no")
    >>> model = SpikeSlabClassifier(expected_size=1, random_state=0).fit(X, y)
    >>> model.get_support(indices=True)
    array([1])
    >>> model.predict([[0, 2, 0, 0, 0], [0, -2, 0, 0, 0]])
    array(['yes', 'no'], dtype='<U3')
    """

    def __init__(
        self,
        *,
        slab_sd: float = 1.0,
        size_prior: tuple[float, float] = (1.0, 1.0),
        expected_size: float | None = None,
        inclusion_prior: Any = None,
        always: Any = (),
        standardize: bool = True,
        n_chains: int = 4,
        tol: float = 0.01,
        max_time: float | None = None,
        subset_size: int | str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
    ):
        self.slab_sd = slab_sd
        self.size_prior = size_prior
        self.expected_size = expected_size
        self.inclusion_prior = inclusion_prior
        self.always = always
        self.standardize = standardize
        self.n_chains = n_chains
        self.tol = tol
        self.max_time = max_time
        self.subset_size = subset_size
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    # ------------------------------------------------------------- fit

    def fit(self, X: Any, y: Any, sample_weight: Any = None, n_trials: Any = None) -> Self:
        """Draw from the posterior until the inclusion probabilities are known to ``tol``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            The columns, finite and not constant. A sparse matrix stays sparse.
        y : array-like of shape (n,)
            Two classes of any kind; with ``n_trials``, numbers of successes.
        sample_weight : array-like of shape (n,), optional
            How often each row was observed: whole numbers.
        n_trials : int or array-like of shape (n,), optional
            Numbers of trials, at least 1.

        Returns
        -------
        SpikeSlabClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data are not as described.

        Warns
        -----
        ShortRunWarning
            If ``max_time`` or the largest number of windows came before ``tol``.
        SamplerWarning
            If chains disagree by more than their errors allow.
        InterruptedWarning
            After Ctrl-C: the results are those of the windows so far.
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2)
        self._check_parameters()
        weights = counts_of(sample_weight, X.shape[0])
        if not weights.any():
            raise ValueError("Every sample_weight is zero: there are no observations.")
        successes, trials = self._outcomes(y, X.shape[0], n_trials)
        rows = distinct_rows(X, successes * weights, trials * weights)
        if not 0 < rows.n_successes.sum() < rows.n_trials.sum():
            raise ValueError(
                "y has one class only, among rows of positive weight; the classifier needs two "
                "classes."
            )
        problem = self._problem(rows)
        with threadpool_limits(1, user_api="blas"), deferred_interrupt() as interrupted:
            chains = self._run(problem, interrupted)
        self._summarise(problem, chains)
        return self

    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense."""
        for name in ("slab_sd", "tol"):
            value = getattr(self, name)
            if not (isinstance(value, numbers.Real) and 0.0 < float(value) < np.inf):
                raise ValueError(f"{name} is {value!r}; it must be a positive number.")
        for name in ("max_time", "expected_size"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, numbers.Real) and float(value) > 0.0):
                raise ValueError(f"{name} is {value!r}; it must be a positive number or None.")
        pair = self.size_prior
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and min(pair) > 0):
            raise ValueError(f"size_prior is {pair!r}; give two positive numbers, a and b.")
        if not (isinstance(self.n_chains, numbers.Integral) and self.n_chains >= 2):
            raise ValueError(
                f"n_chains is {self.n_chains!r}; it must be an integer of at least 2, as one chain "
                "cannot tell whether it missed something."
            )
        size = self.subset_size
        if size != "auto" and not (isinstance(size, numbers.Integral) and size >= 2):
            raise ValueError(
                f'subset_size is {size!r}; it must be an integer of at least 2, or "auto".'
            )

    def _outcomes(self, y: Any, n: int, n_trials: Any) -> tuple[Array, NDArray[np.int64]]:
        """Return successes and trials of each row, and set ``classes_``."""
        if y is None:
            raise ValueError(
                "This SpikeSlabClassifier estimator requires y to be passed, but the target y is "
                "None."
            )
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        if y.shape != (n,):
            raise ValueError(
                f"y has shape {y.shape}; it must have one entry for each of the {n} rows of X."
            )
        if n_trials is not None:
            self.classes_ = np.array([0, 1])
            return _counts(y, n_trials)
        check_classification_targets(y)
        if type_of_target(y, input_name="y") != "binary":
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(y)}."
            )
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(
                f"y has one class only, {self.classes_[0]!r}; the classifier needs two classes."
            )
        return codes.astype(np.float64), np.ones(n, dtype=np.int64)

    def _problem(self, rows: Rows) -> Problem:
        """Standardise the columns and put those of ``always`` last."""
        p = rows.X.shape[1]
        always = self._always(p)
        if always.size == p:
            raise ValueError(
                f"always is {self.always!r}, which are all columns of X: there is nothing to "
                "choose. Use LogisticRegression."
            )
        self._order = np.concatenate([np.setdiff1d(np.arange(p), always), always])
        n_free = p - always.size
        centre, scale = _centres_and_scales(rows)
        constant = np.flatnonzero(scale == 0.0)
        if constant.size:
            raise ValueError(
                f"column {self._names()[constant[0]]} of X is constant; leave it out: the model "
                "has an intercept."
            )
        self._scale = scale if self.standardize else np.ones(p)
        self._centre = np.zeros(p) if sparse.issparse(rows.X) else centre
        if sparse.issparse(rows.X):
            X = (rows.X @ sparse.diags_array(1.0 / self._scale)).tocsc()
        else:
            X = (rows.X - self._centre) / self._scale
        log_odds, size_prior = self._prior(p, n_free)
        args = always.size, float(self.slab_sd), size_prior, log_odds
        return make_problem(rows, X[:, self._order], *args)

    def _names(self) -> list[Any]:
        """Names of the columns, or their numbers."""
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def _always(self, p: int) -> NDArray[np.int64]:
        """Return the numbers of the columns in every model, in order."""
        names = list(getattr(self, "feature_names_in_", ()))
        found = set()
        for column in self.always:
            if isinstance(column, str):
                if column not in names:
                    raise ValueError(
                        f"always has {column!r}, but X has no column of that name; give names or "
                        "numbers of columns."
                    )
                found.add(names.index(column))
            elif isinstance(column, numbers.Integral) and 0 <= int(column) < p:
                found.add(int(column))
            else:
                raise ValueError(
                    f"always has {column!r}; numbers of columns are from 0 to {p - 1}."
                )
        return np.array(sorted(found), dtype=np.int64)

    def _prior(self, p: int, n_free: int) -> tuple[Array, Any]:
        """Return prior log-odds of the free columns, and the prior of the size or None."""
        size, each = self.expected_size, self.inclusion_prior
        if size is None and each is None:
            return np.zeros(n_free), self.size_prior
        if each is None and size is not None:
            if size >= n_free:
                raise ValueError(
                    f"expected_size is {size!r}; it must be less than the number of columns that "
                    f"may be left out, {n_free}."
                )
            return np.full(n_free, logit(size / n_free)), None
        if size is not None:
            raise ValueError(
                f"expected_size is {size!r}, and inclusion_prior is given, too; give only one."
            )
        each = np.asarray(each, dtype=np.float64)
        if each.shape != (p,):
            raise ValueError(
                f"inclusion_prior has shape {each.shape}; it must have one probability for each of "
                f"the {p} columns of X."
            )
        bad = ~((each > 0.0) & (each < 1.0))
        bad[self._order[n_free:]] = False
        if bad.any():
            j = int(bad.argmax())
            raise ValueError(
                f"inclusion_prior[{j}] is {each[j]:g}; it must lie between 0 and 1. Name columns "
                "that are in every model in always."
            )
        return logit(each[self._order[:n_free]]), None

    def _run(self, problem: Problem, interrupted: Any) -> list[LogisticChain]:
        """Run chains until the errors are small."""
        width = _ALL_COLUMNS if self.subset_size == "auto" else int(self.subset_size)
        strong = np.argsort(-np.abs(problem.posterior.z[: problem.n_free]), kind="stable")
        # As many columns as rows would be an absurd start.
        n_start = min(problem.n_free, 20, MOST_INCLUDED, max(1, problem.rows.n_trials.size // 4))
        chains = [
            LogisticChain(problem, rng, strong[: n_start if c % 2 else 0], width)
            for c, rng in enumerate(spawn(self.random_state, int(self.n_chains)))
        ]
        began, n_windows, converged = time.monotonic(), _FIRST, False
        pool = Parallel(n_jobs=self.n_jobs, prefer="threads")
        pool(delayed(chain.burn_in)(_BURN_IN) for chain in chains)
        while True:
            more = n_windows - chains[0].n_windows
            pool(delayed(chain.run)(more) for chain in chains)
            converged = bool(errors(chains)[1].max(initial=0.0) <= self.tol)
            late = self.max_time is not None and time.monotonic() - began > self.max_time
            if converged or late or interrupted() or n_windows >= _MOST_WINDOWS:
                break
            n_windows = int(1.5 * n_windows)
        self.converged_, self.n_windows_ = converged, n_windows
        self._warn(chains, interrupted())
        return chains

    def _warn(self, chains: list[LogisticChain], interrupted: bool) -> None:
        """Tell what may be wrong."""
        _, error, self.disagreement_ = errors(chains)
        worst = float(error.max(initial=0.0))
        if interrupted:
            warnings.warn(
                f"fit was interrupted after {self.n_windows_} windows; the largest standard error "
                f"of an inclusion probability is {worst:.3g}.",
                InterruptedWarning,
                stacklevel=4,
            )
        elif not self.converged_:
            warnings.warn(
                f"The largest standard error of an inclusion probability is {worst:.3g} after "
                f"{self.n_windows_} windows, above tol = {self.tol:g}. Give more time (max_time), "
                "or a larger tol.",
                ShortRunWarning,
                stacklevel=4,
            )
        # Chains may differ by several of their own errors, each about sqrt(n_chains) times as
        # large as the joint one.
        if self.disagreement_ > max(0.1, 8.0 * math.sqrt(len(chains)) * worst):
            warnings.warn(
                f"Chains disagree by {self.disagreement_:.2g} in an inclusion probability: there "
                "may be several separate sets of columns that explain y. Run more chains "
                "(n_chains) for longer (a smaller tol).",
                SamplerWarning,
                stacklevel=4,
            )

    def _summarise(self, problem: Problem, chains: list[LogisticChain]) -> None:
        """Set the fitted attributes from the sums of the chains."""
        p, free = problem.n_columns - 1, problem.n_free
        names = ("time", "mean", "square", "present", "positive", "sizes", "total")
        total: dict[str, Any] = {name: sum(getattr(c.sums, name) for c in chains) for name in names}
        n = sum(chain.n_windows for chain in chains)
        fixed: Any = sum(chain.fixed for chain in chains) / n
        probability, error, _ = errors(chains)
        time_ = np.where(total["time"][:free] > 0, total["time"][:free], np.nan)
        present = np.where(total["present"][:free] > 0, total["present"][:free], np.nan)
        mean = np.concatenate([total["mean"][:free] / time_, fixed[0, :-1]])
        square = np.concatenate([total["square"][:free] / time_, fixed[1, :-1]])
        positive = np.concatenate([total["positive"][:free] / present, fixed[2, :-1]])
        included = np.concatenate([probability, np.ones(p - free)])
        with np.errstate(divide="ignore", invalid="ignore"):
            conditional = np.where(included > 0, mean / included, np.nan)
        scale = self._scale
        self.inclusion_probabilities_ = self._placed(included)
        self.inclusion_mcse_ = self._placed(np.concatenate([error, np.zeros(p - free)]))
        coef = self._placed(mean) / scale
        self.coef_ = coef[None]
        self.coef_sd_ = self._placed(np.sqrt(np.maximum(square - mean**2, 0.0))) / scale
        self.coef_conditional_ = self._placed(conditional) / scale
        self.positive_probability_ = self._placed(positive)
        self.intercept_ = np.array([fixed[0, -1] - coef @ self._centre])
        self.model_sizes_ = total["sizes"][:-1] / total["sizes"].sum()
        self._keep_models(chains)
        self._keep_draws(problem, chains)
        self._keep_modes(problem)

    def _placed(self, values: Array) -> Array:
        """Return values by column of X."""
        result = np.empty(values.size)
        result[self._order] = values
        return result

    def _keep_models(self, chains: list[LogisticChain]) -> None:
        """Join the visited models of the chains."""
        found: dict[tuple[int, ...], float] = {}
        time_ = sum(float(chain.sums.sizes.sum()) for chain in chains)
        for chain in chains:
            models = chain.models
            for i in np.flatnonzero(models.key):
                units = self._order[models.units[i, : models.size[i]]]
                key = tuple(sorted(int(j) for j in units))
                found[key] = found.get(key, 0.0) + float(models.time[i]) / time_
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        self.models_ = best[:100]

    def _keep_draws(self, problem: Problem, chains: list[LogisticChain]) -> None:
        """Keep draws of intercept and coefficients, in units of the columns as given."""
        n_draws = min(len(chain.draws) for chain in chains)
        draws = [draw for chain in chains for draw in chain.draws[-n_draws:]]
        place = np.repeat(np.arange(len(draws)), [columns.size for columns, _ in draws])
        entries = np.concatenate([values for _, values in draws])
        columns = np.concatenate([columns for columns, _ in draws])
        shape = (len(draws), problem.n_columns)
        table = sparse.csr_array((entries, (place, columns)), shape=shape)
        intercept = table[:, [problem.n_columns - 1]].toarray()[:, 0]
        back = np.argsort(self._order)
        coef = (table[:, back] @ sparse.diags_array(1.0 / self._scale)).tocsr()
        self._draws = (intercept - coef @ self._centre, coef, len(chains))

    def _keep_modes(self, problem: Problem) -> None:
        """Find the coefficients of the median and the most probable model."""
        median = np.flatnonzero(self.inclusion_probabilities_ >= 0.5)
        always = self._order[problem.n_free :]
        best = np.union1d(self.models_[0][0], always).astype(np.int64)
        self._modes = {}
        where = np.argsort(self._order)
        for name, included in (("mpm", median), ("hpm", best)):
            columns = np.append(where[included], problem.n_columns - 1)
            b = _mode(problem, columns)
            coef = np.zeros(self._order.size)
            coef[included] = b[:-1]
            coef /= self._scale
            self._modes[name] = (float(b[-1] - coef @ self._centre), coef)

    # ------------------------------------------------------------- predictions

    def decision_function(self, X: Any, estimator: str = "bma") -> Array:
        """Return the log-odds of the second class, shape (n,).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            The columns.
        estimator : {"bma", "mpm", "hpm"}, default="bma"
            Probabilities averaged over the posterior; or those of the median probability model
            (columns with probability 0.5 or more) or of the most probable model that was visited,
            with coefficients at the posterior mode of that model.

        Returns
        -------
        ndarray of shape (n,)
            Log-odds.
        """
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        if estimator not in _ESTIMATORS:
            raise ValueError(f"estimator is {estimator!r}; it must be one of {list(_ESTIMATORS)}.")
        if estimator != "bma":
            intercept, coef = self._modes[estimator]
            return np.asarray(X @ coef + intercept)
        intercepts, coefs, _ = self._draws
        result = np.empty(X.shape[0])
        step = max(1, _CHUNK // intercepts.size)
        for low in range(0, X.shape[0], step):
            psi = X[low : low + step] @ coefs.T
            psi = (psi.toarray() if sparse.issparse(psi) else psi) + intercepts
            above, below = (
                logsumexp(-np.logaddexp(0.0, sign * psi), axis=1) for sign in (-1.0, 1.0)
            )
            result[low : low + step] = above - below
        return result

    def predict_proba(self, X: Any, estimator: str = "bma") -> Array:
        """Return probabilities of the classes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            The columns.
        estimator : {"bma", "mpm", "hpm"}, default="bma"
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n, 2)
            Probabilities, in the order of ``classes_``.
        """
        decision = self.decision_function(X, estimator)
        return np.column_stack([expit(-decision), expit(decision)])

    def predict(self, X: Any, estimator: str = "bma") -> NDArray[Any]:
        """Return the more probable class of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            The columns.
        estimator : {"bma", "mpm", "hpm"}, default="bma"
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n,)
            Classes.
        """
        decision = self.decision_function(X, estimator)
        result: NDArray[Any] = self.classes_[(decision > 0).astype(int)]
        return result

    # ------------------------------------------------------------- selection

    def get_support(self, indices: bool = False, threshold: float = 0.5) -> NDArray[Any]:
        """Return which columns have an inclusion probability of at least a threshold.

        Parameters
        ----------
        indices : bool, default=False
            Whether to return numbers of columns instead of a mask.
        threshold : float, default=0.5
            The threshold, from 0 to 1.

        Returns
        -------
        ndarray
            A mask of shape (n_features,), or integers.
        """
        check_is_fitted(self, "coef_")
        if not (isinstance(threshold, numbers.Real) and 0.0 <= threshold <= 1.0):
            raise ValueError(f"threshold is {threshold!r}; it must be a number from 0 to 1.")
        mask: NDArray[np.bool_] = self.inclusion_probabilities_ >= threshold
        return np.flatnonzero(mask) if indices else mask

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self, "coef_")
        return self.get_support()

    def summary(self) -> Any:
        """Return the results by column.

        Returns
        -------
        pandas.DataFrame
            By column, the most probable first: ``probability`` of inclusion and its ``mcse``;
            ``mean`` and ``sd`` of the coefficient over all models; its mean ``if_included`` and the
            probability that it is ``positive`` then.
        """
        import pandas as pd

        check_is_fitted(self, "coef_")
        frame = pd.DataFrame(
            {
                "probability": self.inclusion_probabilities_,
                "mcse": self.inclusion_mcse_,
                "mean": self.coef_[0],
                "sd": self.coef_sd_,
                "if_included": self.coef_conditional_,
                "positive": self.positive_probability_,
            },
            index=pd.Index(self._names(), name="feature"),
        )
        return frame.sort_values("probability", ascending=False, kind="stable")

    @property
    def plot(self) -> Plots:
        """Pictures: ``inclusion()``, ``coefficients()``, ``sizes()`` and ``models()``."""
        check_is_fitted(self, "coef_")
        return Plots(self)

    def sample_posterior(self, n: int = 1000) -> Any:
        """Return draws of models and coefficients that the chains kept.

        Parameters
        ----------
        n : int, default=1000
            Number of draws; at most as many as were kept. They are taken at equal distances, the
            same number from each chain.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            With the group ``posterior``: ``included`` and ``coef`` (chain, draw, feature), and
            ``intercept`` (chain, draw).
        """
        check_is_fitted(self, "coef_")
        intercepts, coefs, n_chains = self._draws
        each = intercepts.size // n_chains
        if not (isinstance(n, numbers.Integral) and n_chains <= n <= intercepts.size):
            raise ValueError(
                f"n is {n!r}; it must be an integer from {n_chains} to the number of draws that "
                f"were kept, {intercepts.size}."
            )
        wanted = np.linspace(0, each - 1, n // n_chains).round().astype(int)
        rows = (np.arange(n_chains)[:, None] * each + wanted).ravel()
        shape = (n_chains, wanted.size)
        coef = coefs[rows].toarray().reshape(*shape, -1)
        dims = ("chain", "draw")
        data = xr.Dataset(
            {
                "coef": ((*dims, "feature"), coef),
                "included": ((*dims, "feature"), (coef != 0).astype(np.int8)),
                "intercept": (dims, intercepts[rows].reshape(shape)),
            },
            coords={
                "chain": range(n_chains),
                "draw": range(wanted.size),
                "feature": self._names(),
            },
        )
        return to_inference_data({"posterior": data}, {})


def _counts(y: NDArray[Any], n_trials: Any) -> tuple[Array, NDArray[np.int64]]:
    """Check numbers of successes and trials."""
    trials = np.broadcast_to(np.asarray(n_trials, dtype=np.float64), y.shape)
    successes = y.astype(np.float64)
    bad = ~((trials >= 1) & (trials == np.floor(trials)) & (trials < 2.0**31))
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"n_trials[{i}] is {trials[i]:g}; give whole numbers of at least 1.")
    bad = ~((successes >= 0) & (successes <= trials) & (successes == np.floor(successes)))
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(
            f"y[{i}] is {successes[i]:g}, of {trials[i]:g} trials; with n_trials, y has numbers of "
            "successes, whole numbers from 0 to the number of trials."
        )
    return successes, trials.astype(np.int64)


def _centres_and_scales(rows: Rows) -> tuple[Array, Array]:
    """Return means and standard deviations of the columns, every trial counting once."""
    weights = rows.n_trials / rows.n_trials.sum()
    if not sparse.issparse(rows.X):
        centre = weights @ rows.X
        scale = np.sqrt(weights @ np.square(rows.X - centre))
        constant = rows.X.min(axis=0) == rows.X.max(axis=0)
        return centre, np.where(constant, 0.0, scale)
    centre = weights @ rows.X
    square = weights @ rows.X.multiply(rows.X).tocsr()
    low, high = (np.asarray(f(axis=0).todense()).ravel() for f in (rows.X.min, rows.X.max))
    scale = np.sqrt(np.maximum(square - centre**2, 0.0))
    return centre, np.where(low == high, 0.0, scale)


def _mode(problem: Problem, columns: NDArray[np.int64]) -> Array:
    """Return the posterior mode of the coefficients of a model, by Newton's method."""
    design, ridge = problem.design(columns), problem.posterior.ridge[columns]
    y, m = problem.rows.n_successes, problem.rows.n_trials

    def log_p(b: Array) -> float:
        psi = b @ design
        return float(y @ psi - m @ np.logaddexp(0.0, psi) - 0.5 * ridge @ b**2)

    b = np.zeros(columns.size)
    now = log_p(b)
    for _ in range(100):
        p = expit(b @ design)
        gradient = design @ (y - m * p) - ridge * b
        hessian = (design * (m * p * (1.0 - p))) @ design.T + np.diag(ridge)
        step = np.linalg.solve(hessian, gradient)
        while log_p(b + step) < now - 1e-9 * (1.0 + abs(now)):
            step *= 0.5
        b = b + step
        now = log_p(b)
        if float(gradient @ step) < 1e-12:
            break
    return b
