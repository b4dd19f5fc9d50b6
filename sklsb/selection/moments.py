"""Coefficients given a model: means, covariances, draws, and predictions from them."""

from dataclasses import dataclass

import numpy as np

from sklsb._system.arrays import Array, Ints
from sklsb.selection.problem import LinearProblem, as_dense


@dataclass
class Given:
    """The posterior given a model: coefficients are t with mean and scale^2 error / df * C."""

    columns: Ints  # numbers in X
    mean: Array
    root: Array  # lower triangular, C = root root'
    error: float  # sum of squares of y that is left


def given_model(problem: LinearProblem, columns: Ints) -> Given:
    """Return the posterior given the kernels' columns of a model."""
    post, scale = problem.posterior, problem.scale[columns]
    x = problem.part(columns)
    matrix = x.T @ x + np.diag(post.ridge[columns])
    z = post.z[columns]
    if columns.size:
        # Of collinear columns, as a median model may have, the one of least length is as good.
        inverse = np.linalg.pinv(matrix, rcond=1e-9, hermitian=True)
        value, vector = np.linalg.eigh(post.shrink * inverse)
        q = np.asarray(np.linalg.qr((vector * np.sqrt(np.maximum(value, 0.0))).T, "r")).T
        mean = post.shrink * (inverse @ z)
    else:
        q, mean = np.empty((0, 0)), np.empty(0)
    error = problem.y_norm**2 * max(1.0 - float(mean @ z), 0.0)
    return Given(
        columns=problem.given[columns],
        mean=mean * scale * problem.y_norm,
        root=q * scale[:, None],
        error=error,
    )


@dataclass
class Flat:
    """Intercept and ``always``: coefficients with a flat prior, projected out.

    With F the constant and these columns, W the weights, Q R = W^(1/2) F: ``by_y`` = Q'W^(1/2) y
    and ``by_x`` = Q'W^(1/2) X.
    """

    always: Ints
    r: Array
    by_y: Array
    by_x: Array  # (q, n_features)

    def coefficients(self, coef: Array) -> Array:
        """Return the intercept and those of ``always`` given all others."""
        return np.asarray(np.linalg.solve(self.r, self.by_y - self.by_x @ coef))

    def rest(self, row: Array) -> Array:
        """Return Q-coordinates h of rows of F, so that a prediction is h'by_y + (x - h'by_x) b."""
        return np.asarray(np.linalg.solve(self.r.T, row.T).T)


def flat_part(X: Array, y: Array, problem: LinearProblem) -> Flat:
    """Return what is needed of the projected-out part; X is dense or CSC."""
    root = np.sqrt(problem.weight)
    f = np.column_stack([np.ones(len(root)), as_dense(X[:, problem.always])])
    weighted = root[:, None] * problem.basis
    by_x = np.asarray(X.T @ weighted.astype(X.dtype)).T.astype(np.float64)
    by_x[:, problem.always] = 0.0
    return Flat(problem.always, problem.basis.T @ (root[:, None] * f), weighted.T @ y, by_x)


def linear_moments(
    flat: Flat, rows: Array, x: Array, states: list[Given], weights: Array, df: float
) -> tuple[Array, Array, float]:
    """Return means and variances of the linear predictor, and E sigma^2, averaged over models.

    ``rows`` multiply the coefficients of ``flat``, x (dense or CSC) all others; the weights of the
    models sum to one.
    """
    h = flat.rest(rows)
    base, own = h @ flat.by_y, np.square(h).sum(axis=1)
    mean, square = np.zeros(len(base)), np.zeros(len(base))
    inside, noise = np.zeros(len(base)), 0.0
    for state, weight in zip(states, weights, strict=True):
        part = as_dense(x[:, state.columns]) - h @ flat.by_x[:, state.columns]
        shift = part @ state.mean
        sigma2 = state.error / (df - 2.0)
        mean += weight * shift
        square += weight * shift**2
        inside += weight * sigma2 * (own + np.square(part @ state.root).sum(axis=1))
        noise += weight * sigma2
    return base + mean, np.maximum(square - mean**2, 0.0) + inside, noise
