"""The estimator for measurements."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from sklsb.selection.base import BaseSpikeSlab


class SpikeSlabRegressor(RegressorMixin, BaseSpikeSlab):
    r"""Linear regression that says which columns matter, with what probability and error.

    .. math:: y = \alpha + X_x \beta + \epsilon, \quad \epsilon \sim N(0, \sigma^2 I), \qquad
              p(x \mid y) \propto p(y \mid x) \, p(x), \qquad x \in \{0, 1\}^p

    Column j is in the model if x_j = 1; otherwise its coefficient is zero. The posterior of models
    is that of `VariableSelection`, whose docstring has the formulas of both priors. Chains run a
    jump process without rejections over windows of columns, until the largest Monte Carlo error of
    an inclusion probability is below ``tol``.

    Parameters
    ----------
    prior : {"g", "independent"}, default="g"
        Prior of the coefficients: Zellner's g prior, or independent normals with the standard
        deviation ``slab_sd`` times that of the noise.
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
        the order of their first column.
    always : sequence of int or str, default=()
        Columns that are in every model, with a flat prior: projected out beforehand.
    groups : array_like of shape (n_features,), optional
        Columns with the same label are included together.
    standardize : bool, default=True
        Whether ``slab_sd`` is that of columns divided by their standard deviations.
    n_chains : int, default=4
        Number of chains, at least 2. Every second chain starts at the empty model, the others at
        the largest model of a lasso path.
    tol : float, default=0.01
        Stop when the largest Monte Carlo standard error of an inclusion probability is below.
    max_time : float, optional
        Stop after about this many seconds of sampling. Results then depend on the clock.
    subset_size : "auto" or int, default="auto"
        Units in a window. "auto": all of up to 2,000, 768 of more.
    tempering : "auto", None or float, default="auto"
        Power of the likelihood under which chains move; their states are weighted. "auto": 0.5 if
        a pilot finds that chains disagree and that this helps; None: 1.
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
        Whether the largest error is at most ``tol`` and no difference of chains is beyond chance.
    n_iter_ : int
        Jumps of all chains.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Raises
    ------
    ValueError
        If data are not finite or y is constant; if a column is constant or explained by
        ``always``; for n < 3, p > 1e6; if a parameter is out of range.

    Warns
    -----
    ModelWarning
        If columns are equal: they share a probability.
    SeparatedModesWarning
        If chains disagree: probabilities are uncertain by as much.
    ShortRunWarning
        If ``tol`` was not reached.
    InterruptedWarning
        After Ctrl-C: the results are of what was found so far.

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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SpikeSlabRegressor":
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
        if np.asarray(y).dtype.kind == "b":
            raise ValueError(
                "y has dtype bool: classes, not measurements, and the noise of this model is "
                "Gaussian. Give y.astype(float) if that is meant."
            )
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csc",
            dtype=(np.float64, np.float32),
            y_numeric=True,
            ensure_min_samples=3,
            estimator=self,
        )
        self._fit(X, np.asarray(y, dtype=np.float64), sample_weight)
        return self

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
        return self._predict(X, return_std, estimator)
