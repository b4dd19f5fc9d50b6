"""The estimator for classes and counts."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d
from threadpoolctl import threadpool_limits

from sklsb._system.arrays import Array, Ints
from sklsb._system.warn import warn
from sklsb._words import few
from sklsb.exceptions import ModelWarning
from sklsb.samplers._run.checks import check_count
from sklsb.selection.base import BaseSpikeSlab
from sklsb.selection.logistic import LogisticChain, LogisticProblem, logistic_problem, mode
from sklsb.selection.problem import as_dense
from sklsb.selection.rows import Rows, counts_of, distinct_rows, whole_numbers
from sklsb.selection.search import Search
from sklsb.targets._checks import positive

_CHUNK = 1 << 22  # numbers in a table of predictions
# Columns are hardly told apart if the least probability of so many is at least this, and the median
# below that. With so many trials for each, it is the slab that is narrow.
_FEWEST, _LEAST, _CLEAR, _OF_COLUMN = 6, 0.4, 0.9, 10
# Columns that are so likely are examined for separation of the classes.
_EXAMINED = 0.1


@dataclass(eq=False, repr=False)
class SpikeSlabClassifier(ClassifierMixin, BaseSpikeSlab):
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
    size_prior, expected_size, inclusion_prior, groups
        As in `SpikeSlabRegressor`.
    always : sequence of int or str, default=()
        Numbers or names of columns in every model. They have the slab as prior, too: under a flat
        one the posterior could be improper, if they separate the classes.
    class_weight : None, "balanced" or dict, default=None
        Weights of the classes, 1 where the dict has none, or in inverse proportion to their
        numbers. In a logistic model they multiply the odds, as if classes had been observed so
        often: the intercept is shifted by the logarithm of their ratio. What is said of columns is
        by the observations as they are.
    standardize : bool, default=True
        Whether the prior is for columns divided by their standard deviations. Coefficients always
        refer to the columns as given.
    subset_size : "auto" or int, default="auto"
        Units in a window. "auto": all of up to 500, 768 of more.
    n_chains, tol, max_time, n_jobs, random_state, warm_start, verbose
        As in `SpikeSlabRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Labels of the classes; with ``n_trials``, 0 and 1.
    scale_ : ndarray of shape (n_features,)
        Standard deviations of the columns.
    coef_ : ndarray of shape (1, n_features)
        Posterior means of the coefficients, 0 where a column is not included.
    intercept_ : ndarray of shape (1,)
        Posterior mean of the intercept.
    inclusion_probabilities_, inclusion_mcse_, coef_sd_, coef_conditional_, positive_probability_
        As in `SpikeSlabRegressor`, by column.
    model_sizes_, models_, disagreement_, converged_, n_iter_, n_features_in_, feature_names_in_
        As in `SpikeSlabRegressor`.

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

    _: KW_ONLY
    class_weight: Any = None

    _reading: ClassVar = {"accept_sparse": "csr", "dtype": np.float64}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
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
        TypeError
            If an array is masked.
        ValueError
            If a parameter or the data are not as described.

        Warns
        -----
        ModelWarning
            If columns are nearly equal: they share a probability. If of six columns or more none is
            clearly out and most are not clearly in: few data or, with ten trials for each column, a
            narrow slab. If a column separates the classes: the prior sets its coefficient.
        SeparatedModesWarning
            If chains disagree: probabilities are uncertain by as much. If a ridge regression
            explains far more in rows left out: chains may have missed columns.
        ShortRunWarning
            If ``tol`` was not reached.
        InterruptedWarning
            After Ctrl-C: the results so far are kept.
        """
        self._refuse(X, y, sample_weight=sample_weight, n_trials=n_trials)
        X = self._read(X, ensure_min_samples=2)
        self._check(X)
        slab_sd = positive(self.slab_sd, "slab_sd")
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
        shift = self._shift(rows)
        always, unit_of, groups = self._units()
        centre, scale = self._centres_and_scales(rows)
        order = np.concatenate([*groups, always])
        part = rows.X[:, order]
        if sparse.issparse(part):
            part = (part @ sparse.diags_array(1.0 / scale[order])).tocsc()
        else:
            part = (part - centre[order]) / scale[order]
        scaling, inclusion = 1.0 / scale[order], self._inclusion(unit_of, len(groups))
        problem = logistic_problem(rows, part, order, scaling, groups, slab_sd, inclusion)
        with threadpool_limits(1, user_api="blas"):
            search = self._run(problem, LogisticChain)
        self._keep_scale(rows.X, rows.n_trials)
        self._summarise(search, problem, always, centre, shift)
        psi = np.asarray(rows.X @ self.coef_[0]) + self.intercept_[0] - shift
        before, left = problem.left(np.empty(0, dtype=np.int64)), problem.left_by(psi)
        self._tell(search, 1.0 - float(left @ left / (before @ before)))
        self._tell_if_alike(slab_sd, int(rows.n_trials.sum()))
        self._tell_if_separated(rows)
        return self

    def _shift(self, rows: Rows) -> float:
        """Return what class weights add to the log-odds of the second class."""
        given, successes = self.class_weight, rows.n_successes.sum()
        if given is None:
            return 0.0
        if isinstance(given, str) and given == "balanced":
            return float(np.log(rows.n_trials.sum() / successes - 1.0))
        labels = self.classes_.tolist()
        if not isinstance(given, Mapping) or not {*given} <= {*labels}:
            raise ValueError(
                f'class_weight is {given!r:.200}; give None, "balanced", or a dict with weights of '
                f"the classes {labels!r:.100}."
            )
        first, second = (positive(given.get(c, 1.0), f"class_weight[{c!r}]") for c in labels)
        return float(np.log(second) - np.log(first))

    def _tell_if_alike(self, slab_sd: float, n_trials: int) -> None:
        """Warn if columns in the model are hardly told from others: few data or a narrow slab."""
        share = self._estimate.share
        if share.size < _FEWEST or share.min() < _LEAST or np.median(share) >= _CLEAR:
            return
        why = (
            f"{n_trials} observations are few for {share.size} columns or groups. Give "
            "expected_size, how many you expect to matter; a smaller one, if you gave it."
            if n_trials < _OF_COLUMN * share.size
            else f"under slab_sd={slab_sd:g} a column that is in may do next to nothing, so little "
            "speaks against it. To tell which matter most, give a larger slab_sd, such as "
            f"{10 * slab_sd:g}, or expected_size."
        )
        warn(
            f"every column has a probability of at least {share.min():.2g}, and not all are "
            f"clearly in the model: {why}",
            ModelWarning,
        )

    def _tell_if_separated(self, rows: Rows) -> None:
        """Warn of likely columns in which one class has no value above one of the other."""
        likely = np.flatnonzero(self.inclusion_probabilities_ > _EXAMINED)
        part = rows.X[:, likely]
        part = part.tocsc() if sparse.issparse(part) else part
        second, first = rows.n_successes > 0, rows.n_successes < rows.n_trials
        found, names = [], self._names()
        for i, j in enumerate(likely):
            x = as_dense(part[:, [i]]).ravel()
            if x[second].min() >= x[first].max() or x[first].min() >= x[second].max():
                found.append(repr(names[j]))
        if found:
            warn(
                f"classes are separated by column {few(found)}: but for ties, all "
                "rows of one class have larger values than all of the other. Data put no bound on "
                f"such a coefficient; its size comes from slab_sd={self.slab_sd:g}. Leave out what "
                "is known only after the class (a leak), and join rare categories.",
                ModelWarning,
            )

    def _outcomes(self, y: Any, n: int, n_trials: Any) -> tuple[Array, Ints]:
        """Return successes and trials of each row, and set ``classes_``."""
        if y is None:
            raise ValueError(
                "This SpikeSlabClassifier estimator requires y to be passed, but the target y is "
                "None."
            )
        y = column_or_1d(y, warn=True)
        if (lacking := np.flatnonzero(pd.isna(y))).size:
            raise ValueError(f"y lacks a value (None or NaN) in row {lacking[0]}; leave it out.")
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        if y.shape != (n,):
            raise ValueError(
                f"y has shape {y.shape}; it must have one entry for each of the {n} rows of X."
            )
        if n_trials is not None:
            self.classes_ = np.array([0, 1])
            given = np.broadcast_to(np.asarray(n_trials, dtype=np.float64), y.shape)
            trials = whole_numbers(given, "n_trials", 1, "give whole numbers of at least 1.")
            rule = (
                "with n_trials, y has numbers of successes, whole numbers from 0 to the number of "
                "trials."
            )
            successes = y.astype(np.float64)
            whole_numbers(successes, "y", 0, rule, trials)
            return successes, trials
        check_classification_targets(y)
        if (kind := type_of_target(y, input_name="y")) != "binary":
            labels = np.unique(y).tolist()
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}: y has "
                f"{len(labels)} labels, {few([*map(repr, labels)])}. Compare one with the "
                f"others, as in y == {labels[0]!r}, or leave rows out."
            )
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(
                f"y has one class only, {self.classes_.tolist()[0]!r}; the classifier needs two "
                "classes."
            )
        return codes.astype(np.float64), np.ones(n, dtype=np.int64)

    def _centres_and_scales(self, rows: Rows) -> tuple[Array, Array]:
        """Return what is taken off the columns, and what they are divided by."""
        weights = rows.n_trials / rows.n_trials.sum()
        centre = np.asarray(weights @ rows.X)
        if sparse.issparse(rows.X):
            square = weights @ rows.X.multiply(rows.X).tocsr()
            low, high = (f(axis=0).toarray().ravel() for f in (rows.X.min, rows.X.max))
            scale = np.sqrt(np.maximum(square - centre**2, 0.0))
            centre = np.zeros_like(centre)
        else:
            left = rows.X - centre
            largest = np.abs(left).max(axis=0)  # squares of 1e-200 underflow
            largest[largest == 0.0] = 1.0
            scale = largest * np.sqrt(weights @ np.square(left / largest))
            low, high = rows.X.min(axis=0), rows.X.max(axis=0)
        constant = np.flatnonzero((low == high) | (scale == 0.0))
        if constant.size:
            raise ValueError(
                f"column {self._names()[constant[0]]!r} of X is constant; leave it out: the model "
                "has an intercept. If it stands for a level that these rows lack, join rare levels."
            )
        return centre, scale if self.standardize else np.ones_like(scale)

    def _summarise(
        self, search: Search, problem: LogisticProblem, always: Ints, centre: Array, shift: float
    ) -> None:
        """Set the fitted attributes; ``shift`` is added to the intercepts."""
        free = problem.free.size
        self._keep(search, problem.scale[:free])
        chains: Any = search.chains
        fixed = sum(chain.fixed for chain in chains) / sum(chain.draws.n_added for chain in chains)
        mean, square, sign = fixed[:, :-1]
        unit = problem.scale[free:]
        self.coef_[always] = self.coef_conditional_[always] = mean * unit
        self.coef_sd_[always] = np.sqrt(np.maximum(square - mean**2, 0.0)) * unit
        self.positive_probability_[always] = sign
        self.intercept_ = np.array([fixed[0, -1] - self.coef_ @ centre + shift])
        self.coef_ = self.coef_[None]
        self._keep_draws(problem, chains, centre, shift)
        self._keep_modes(problem, always, centre, shift)

    def _keep_draws(
        self, problem: LogisticProblem, chains: list[LogisticChain], centre: Array, shift: float
    ) -> None:
        """Keep draws of intercept and coefficients, in units of the columns as given."""
        n_draws = min(len(chain.draws.kept) for chain in chains)
        draws = [draw for chain in chains for draw in chain.draws.kept[-n_draws:]]
        place = np.repeat(np.arange(len(draws)), [columns.size for columns, _ in draws])
        entries = np.concatenate([values for _, values in draws])
        columns = np.concatenate([columns for columns, _ in draws])
        last = problem.n_columns - 1
        inner = columns < last
        intercept = entries[~inner]  # one in each draw
        columns = columns[inner]
        coef = sparse.csr_array(
            (entries[inner] * problem.scale[columns], (place[inner], problem.given[columns])),
            shape=(len(draws), last),
        )
        self._draws = (intercept - coef @ centre + shift, coef, len(chains))

    def _keep_modes(
        self, problem: LogisticProblem, always: Ints, centre: Array, shift: float
    ) -> None:
        """Find the coefficients of the median and the most probable model."""
        median = np.flatnonzero(self.inclusion_probabilities_ >= 0.5)
        best = np.union1d(self.models_[0][0], always).astype(np.int64) if self.models_ else median
        self._modes = {}
        where = np.argsort(problem.given)
        for name, included in (("mpm", median), ("hpm", best)):
            b = mode(problem, np.append(where[included], problem.n_columns - 1))
            coef = np.zeros(where.size)
            coef[included] = b[:-1] * problem.scale[where[included]]
            self._modes[name] = (float(b[-1] - coef @ centre + shift), coef)

    def _drawn(self) -> sparse.csc_array:
        return self._draws[1].tocsc()

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
        X = self._read_new(X, estimator)
        if estimator != "bma":
            intercept, coef = self._modes[estimator]
            return np.asarray(X @ coef + intercept)
        intercepts, coefs, _ = self._draws
        result = np.empty(X.shape[0])
        step = max(1, _CHUNK // intercepts.size)
        for low in range(0, X.shape[0], step):
            psi = as_dense(X[low : low + step] @ coefs.T) + intercepts
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
        check_is_fitted(self)
        return np.asarray(self.classes_[(self.decision_function(X, estimator) > 0).astype(int)])

    def sample_posterior(self, n: int | None = 250) -> Any:
        """Return draws of models and coefficients that the chains kept.

        Parameters
        ----------
        n : int or None, default=250
            Draws per chain, at equal distances; at most as many as were kept, which None returns.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            With the group ``posterior``: ``coef``, ``included`` (chain, draw, feature), and
            ``intercept`` (chain, draw).
        """
        check_is_fitted(self)
        intercepts, coefs, n_chains = self._draws
        each = intercepts.size // n_chains
        n = each if n is None else check_count(n, "n", 1)
        if n > each:
            raise ValueError(f"n is {n}; each chain kept {each} draws. Give at most as many.")
        wanted = np.linspace(0, each - 1, n).round().astype(int)
        rows = (np.arange(n_chains)[:, None] * each + wanted).ravel()
        coef = coefs[rows].toarray().reshape(n_chains, n, -1)
        return self._posterior(coef, coef != 0, {}, intercept=intercepts[rows])
