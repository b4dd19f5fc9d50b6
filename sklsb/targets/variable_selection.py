"""Variable selection in linear regression."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln

from sklsb._kernels.targets.variable_selection import VariableSelectionView
from sklsb._system.arrays import Array, Ints
from sklsb._system.warn import warn
from sklsb.exceptions import ModelWarning
from sklsb.targets._checks import (
    all_touched,
    as_array,
    beta_parameters,
    positive,
    real_array,
    refuse,
    refuse_other_rows,
    warn_if_classes,
)
from sklsb.targets._names import columns_of
from sklsb.targets.base import NO_SITES, States, Target

# A column is collinear if others leave at most this part of its variance unexplained: half of the
# digits, so that rounding never decides it.
_LEAST = 1e-7
# 1 + g and 1 + slab_sd^2 |x|^2 multiply the rounding error of the residual of y; beyond this, half
# of the digits are lost.
_LARGEST_SCALE = 1e8
_EPS = float(np.finfo(np.float64).eps)
_MANY_COLUMNS = 5_000
# Most columns in a random state; numbers in a batch of models.
_MOST_ADDED, _BATCH = 10, 1 << 22


class VariableSelection(Target):
    r"""Posterior of the columns of X that explain y in a linear regression.

    .. math:: y = \alpha + X_x \beta + \epsilon, \quad \epsilon \sim N(0, \sigma^2 I), \qquad
              p(x \mid y) \propto p(y \mid x) \, p(x), \qquad x \in \{0, 1\}^p

    Column j is in the model if x_j = 1; otherwise its coefficient is zero (a "spike"). Intercept,
    noise and coefficients are integrated out, under :math:`p(\alpha, \sigma^2) \propto 1/\sigma^2`
    and one of two priors of the coefficients (the "slab"). Below, k is the size of the model,
    columns and y are centred, :math:`R_x^2` is the coefficient of determination of least squares,
    and marginal likelihoods are relative to the empty model:

    - ``"g"`` (Zellner; [1]_): :math:`\beta \mid \sigma^2 \sim N(0, g \sigma^2 (X_x^T X_x)^{-1})`,

      .. math:: \log \frac{p(y | x)}{p(y | 0)} = \frac{n - 1 - k}{2} \log(1 + g)
                - \frac{n - 1}{2} \log\left(1 + g (1 - R_x^2)\right)

      Models of n - 1 columns or more, or of collinear columns, have probability zero.

    - ``"independent"`` ([2]_, with a spike at zero): :math:`\beta \mid \sigma^2 \sim N(0, s^2
      \sigma^2 I)` with s = ``slab_sd``; with :math:`M_x = I + s^2 X_x^T X_x`,

      .. math:: \log \frac{p(y | x)}{p(y | 0)} = -\frac{1}{2} \log \det M_x - \frac{n - 1}{2}
                \log\left(1 - s^2 \frac{y^T X_x M_x^{-1} X_x^T y}{y^T y}\right)

      Any model is possible.

    Each column is included with probability w ~ Beta(a, b), so

    .. math:: p(x) = B(k + a, p - k + b) / B(a, b)

    For a = b = 1 all sizes from 0 to p are equally likely.

    Parameters
    ----------
    X : array_like or data frame of shape (n, p)
        Columns to choose from, none of them constant; more columns than rows are fine. Names of a
        data frame's columns are the coordinate ``feature`` if all are strings or all are integers.
    y : array_like of shape (n,)
        Response: measurements, not classes.
    prior : {"g", "independent"}, default="g"
        Prior of the coefficients. "g" does not depend on the units of the columns.
    g : float, optional
        g of the prior "g", up to 1e8. Default: n (unit information).
    slab_sd : float, optional
        For the prior "independent", the prior standard deviation s of a coefficient in units of
        the noise's; 1 by default. Standardise the columns to treat them alike.
    size_prior : (float, float), default=(1.0, 1.0)
        a and b.

    Attributes
    ----------
    prior, g, slab_sd, size_prior
        Parameters; None if the prior has no such parameter.
    n_samples : int
        Number of rows.
    values : tuple of int
        (0, 1).

    Raises
    ------
    ValueError
        If the shapes do not fit, n is less than 3 or p is 0; if an entry is not finite; if y or a
        column of X is constant, or two columns have the same name; if a parameter is out of range
        or belongs to the other prior; if slab_sd^2 times the sum of squares of a centred column
        exceeds 1e8.
    TypeError
        If X or y is not of real numbers.

    Warns
    -----
    ModelWarning
        If y has only two values, such as 0 and 1: the noise of the model is Gaussian. If X has more
        than 5,000 columns: `SpikeSlabRegressor` is made for those.

    Notes
    -----
    Columns are collinear if one of them has :math:`1 - R^2 \le 10^{-7}` given the others. Rounding
    errors of log-ratios are about 1e-16 n. They grow as :math:`1 - R^2` falls, up to 1e-11 n, and
    as the unexplained part of y falls, up to 1e-15 n times g, or times the largest slab_sd^2 times
    the sum of squares of a column (`rounding`).

    The kernel keeps a Cholesky factorisation of the included columns. A transition at a model of k
    columns takes between p k and p k^2 operations, as columns more correlated with y come first
    and only the part after a change is recomputed. The Gram matrix and the list of touched moves
    take 12 p^2 bytes.

    References
    ----------
    .. [1] F. Liang, R. Paulo, G. Molina, M. A. Clyde and J. O. Berger, "Mixtures of g priors for
       Bayesian variable selection", JASA 103 (2008), Eqs. 3 to 6.
    .. [2] E. I. George and R. E. McCulloch, "Approaches for Bayesian variable selection",
       Statistica Sinica 7 (1997), the conjugate prior.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import VariableSelection
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 3))
    >>> target = VariableSelection(X, X[:, 0] + 0.5 * rng.normal(size=50))
    >>> target.log_prob([[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    array([-1.38629436, 41.98623926, 40.39590333])
    >>> target.log_ratios([0, 0, 0])
    array([43.37253362, -3.01273031, -2.15990467])
    """

    dims = ("feature",)
    values = (0, 1)

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        *,
        prior: str = "g",
        g: float | None = None,
        slab_sd: float | None = None,
        size_prior: tuple[float, float] = (1.0, 1.0),
    ):
        labels = _names(X)
        called = [repr(name) for name in labels]  # in errors
        refuse_other_rows(X, y=y)
        columns, response = _check_data(X, y, called)
        warn_if_classes(response)
        self.n_samples, p = columns.shape
        if p > _MANY_COLUMNS:
            warn(
                f"X has {p} columns: the Gram matrix and the list of moves take {12 * p**2} bytes. "
                "SpikeSlabRegressor has the same posterior in a fraction of memory and time.",
                ModelWarning,
            )
        self.shape = (p,)
        self._labels = labels or None
        self._set_prior(prior, g, slab_sd, size_prior)
        units, norms = _centred(columns)
        largest = self.g or 0.0
        if self.slab_sd is not None:
            scale = _slab_scale(self.slab_sd, norms, called)
            units *= scale
            largest = float(np.square(scale).max())
        # Logarithms of sums of squares from linear algebra, times half of the rows.
        self.rounding = self.n_samples * (1e-11 + 4 * _EPS * largest)
        data = np.column_stack([units, _centred(response[:, None])[0]])
        # A rotation of the rows changes nothing.
        self._data: Array = np.asarray(np.linalg.qr(data, "r")) if len(data) > p + 1 else data
        self._freeze()

    def _set_prior(self, prior: str, g: Any, slab_sd: Any, size_prior: Any) -> None:
        if prior not in ("g", "independent"):
            raise ValueError(f'prior is {prior!r}; give "g" or "independent".')
        other, value = ("slab_sd", slab_sd) if prior == "g" else ("g", g)
        if value is not None:
            raise ValueError(
                f"{other} is {value!r}, but the prior {prior!r} has none; leave it out."
            )
        self.prior, self.size_prior = prior, beta_parameters(size_prior)
        self.g: float | None = None
        self.slab_sd: float | None = None
        if prior == "g":
            self.g = positive(self.n_samples if g is None else g, "g", _LARGEST_SCALE)
        else:
            self.slab_sd = positive(1.0 if slab_sd is None else slab_sd, "slab_sd")

    def __repr__(self) -> str:
        given = f"g={self.g:g}" if self.g is not None else f"slab_sd={self.slab_sd:g}"
        return f"VariableSelection({self.n_sites} columns, {self.n_samples} rows, {given})"

    @property
    def _constants(self) -> tuple[float, float, float, float]:
        """Return 1 - h, the ridge, the weight of log det M, and the least 1 - R^2 of a column.

        Up to the prior of the size, log p = -weight * log det M - (n - 1) / 2 * log E for both
        priors, with M = ridge * I + A' A, E = 1 - h y' A M^-1 A' y, A the columns in ``_data`` and
        y of length one. For the prior "g" columns have length one too, and 1 - h = 1 / (1 + g).
        """
        if self.g is not None:
            return 1.0 / (1.0 + self.g), 0.0, 0.0, _LEAST
        return 0.0, 1.0, 0.5, 0.0

    @property
    def _size_term(self) -> Array:
        """Terms of log p for the sizes 0 to p."""
        k = np.arange(self.n_sites + 1)
        a, b = self.size_prior
        result: Array = betaln(k + a, self.n_sites - k + b) - betaln(a, b)
        if self.g is not None:
            result -= 0.5 * k * math.log1p(self.g)
            result[self.n_samples - 1 :] = -np.inf
        return result

    def draw_state(self, rng: np.random.Generator) -> States:
        """Draw a model of at most 10 columns, shape (n_sites,).

        Size and columns are uniform; a column that would make the model impossible is left out.
        """
        return self.draw_state_given(rng, NO_SITES, NO_SITES)

    def draw_state_given(self, rng: np.random.Generator, sites: Ints, observed: Ints) -> States:
        """Draw a model with at most 10 columns more than the evidence includes."""
        x = np.zeros(self.n_sites, dtype=np.int8)
        x[sites] = observed
        if self.log_prob(x) == -np.inf:
            raise ValueError(
                f"the evidence includes {int(x.sum())} columns that are collinear or, with "
                f"{self.n_samples} rows, too many: every such model has probability zero. Include "
                "fewer."
            )
        free = np.setdiff1d(np.arange(self.n_sites), sites)
        size = rng.integers(min(free.size, _MOST_ADDED) + 1)
        for j in rng.permutation(free)[:size]:
            x[j] = 1
            x[j] = self.log_prob(x) > -np.inf
        return x

    def log_prob(self, x: ArrayLike) -> Array:
        """Log of marginal likelihood, relative to the empty model's, times prior.

        -inf for an impossible model.
        """
        flat, leading = self._flat(x)
        size = flat.sum(axis=1, dtype=np.int64)
        result = self._size_term[size]
        for k in np.unique(size[result > -np.inf]):
            of_size = np.flatnonzero(size == k)
            at_once = max(1, _BATCH // (max(1, k) * len(self._data)))
            for some in np.array_split(of_size, -(-of_size.size // at_once)):
                included = np.nonzero(flat[some])[1].reshape(some.size, k)
                result[some] += self._log_marginal(included)
        return result.reshape(leading)

    def log_ratios(self, x: ArrayLike) -> Array:
        flat, leading = self._flat(x)
        result = np.full(flat.shape, np.nan)
        for i in np.flatnonzero(self.log_prob(flat) > -np.inf):
            result[i] = self._ratios(np.flatnonzero(flat[i]))
        return result.reshape(*leading, self.n_sites)

    def _factor(self, included: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        """QR of the included columns over sqrt(ridge) I; and y over 0, rotated by Q, and its rest.

        Row i belongs to row i of ``included``; shape (models, k).
        """
        columns = np.moveaxis(self._data[:, included], 0, 1)
        y = np.broadcast_to(self._data[:, -1:], (*columns.shape[:2], 1))
        if self._constants[1]:
            k = included.shape[1]
            below = np.broadcast_to(np.eye(k), (len(included), k, k))
            columns = np.concatenate([columns, below], axis=1)
            y = np.concatenate([y, np.zeros((len(included), k, 1))], axis=1)
        q, r = np.linalg.qr(columns)
        rotated = q.mT @ y
        return q, r, np.concatenate([rotated, y - q @ rotated], axis=1)[..., 0]

    def _error(self, rest: Array) -> Array:
        """E of `_constants`, from the part of y outside the span of the columns."""
        always = self._constants[0]
        return always + (1.0 - always) * np.square(rest).sum(axis=-1)

    def _log_marginal(self, included: NDArray[np.intp]) -> Array:
        """Log of the marginal likelihood up to a term of the size, shape (models,)."""
        _, _, weight, least = self._constants
        k = included.shape[1]
        _, r, rotated = self._factor(included)
        pivots = np.square(np.diagonal(r, axis1=1, axis2=2))
        singular = (pivots <= least).any(axis=1)
        r[singular] = np.eye(k)
        variance = np.square(np.linalg.inv(r)).sum(axis=2).max(axis=1, initial=0.0)
        result: Array = -0.5 * (self.n_samples - 1) * np.log(self._error(rotated[:, k:]))
        if weight:
            result -= weight * np.log(pivots).sum(axis=1)
        result[singular | (least * variance >= 1.0)] = -np.inf
        return result

    def _ratios(self, included: NDArray[np.intp]) -> Array:
        """Log-ratios of a possible model, from residuals on its columns; shape (n_sites,)."""
        always, ridge, weight, least = self._constants
        k, rows, columns = included.size, len(self._data), self._data[:, :-1]
        q, r, rotated = (part[0] for part in self._factor(included[None]))
        inverse = np.linalg.inv(r)
        # For a column outside: its residual, and the product of that with the residual of y ...
        inside = q[:rows].T @ columns
        padded = np.concatenate([columns, np.zeros((len(q) - rows, self.n_sites))])
        left = ridge + np.square(padded - q @ inside).sum(axis=0)
        product = rotated[k : k + rows] @ columns
        variance = np.square(inverse).sum(axis=1)
        possible = left > least
        left[~possible] = 1.0
        after = variance[:, None] + np.square(inverse @ inside) / left
        possible &= least * after.max(axis=0, initial=0.0) < 1.0
        change = -np.square(product) / left
        # ... and for an included one: its coefficient, and the variance of that.
        possible[included], left[included] = True, variance
        change[included] = np.square(inverse @ rotated[:k]) / variance
        term, step = self._size_term, np.ones(self.n_sites, dtype=np.int64)
        step[included] = -1
        result: Array = term[k + step] - term[k]
        change *= (1.0 - always) / self._error(rotated[k:])
        result -= 0.5 * (self.n_samples - 1) * np.log1p(change)
        if weight:
            result -= weight * np.log(left)
        result[~possible] = -np.inf
        return result

    @cached_property
    def _view(self) -> VariableSelectionView:
        always, ridge, weight, least = self._constants
        n, p = self.n_samples, self.n_sites
        gram = self._data[:, :-1].T @ self._data
        gram[:, :-1] += ridge * np.eye(p)
        gram[:, -1] *= math.sqrt(1.0 - always)
        rank = np.argsort(np.argsort(-np.abs(gram[:, -1]), kind="stable"), kind="stable")
        return VariableSelectionView(
            gram,
            self._size_term,
            rank.astype(np.uint32),
            0.5 * (n - 1),
            weight,
            least,
            min(p, n - 1) if least else p,
            *all_touched(p),
        )

    def view(self) -> VariableSelectionView:
        return self._view

    def _freeze(self) -> None:
        self._data.flags.writeable = False


def _check_data(X: Any, y: Any, called: list[str]) -> tuple[Array, Array]:
    """Return X and y as float64."""
    given = as_array(X, "X")
    if given.dtype.kind not in "iufb" and called:  # mixed types, or a column at fault
        parts = ((given[:, j].tolist(), f"column {name} of X") for j, name in enumerate(called))
        given = np.column_stack([real_array(values, name) for values, name in parts])
    columns, response = real_array(given, "X"), real_array(y, "y")
    if columns.ndim != 2 or columns.shape[0] < 3 or columns.shape[1] < 1:
        raise ValueError(
            f"X has shape {columns.shape}; it must have shape (n, p) with at least 3 rows and 1 "
            "column."
        )
    if response.shape != columns.shape[:1]:
        raise ValueError(
            f"y has shape {response.shape}; it must have one number for each of the "
            f"{len(columns)} rows of X."
        )
    # In one memory order, so that rounding does not depend on how the data are stored.
    columns, response = columns.astype(np.float64, order="C"), response.astype(np.float64)
    for j, name in enumerate(called):
        refuse(~np.isfinite(columns[:, j]), columns[:, j], f"X[{name}]", "it must be finite")
    for name, values in (("X", columns), ("y", response)):
        refuse(~np.isfinite(values), values, name, "it must be finite")
    constant = np.flatnonzero(columns.min(axis=0) == columns.max(axis=0))
    if constant.size:
        column = called[constant[0]] if called else constant[0]
        raise ValueError(
            f"column {column} of X is constant; leave it out: the model has an intercept."
        )
    if response.min() == response.max():
        raise ValueError(f"y is constant ({response[0]}): there is nothing to explain.")
    return columns, response


def _centred(columns: Array) -> tuple[Array, Array]:
    """Return centred columns of length one, and their lengths before."""
    # Divided by the largest entry first: squares of 1e200 and 1e-200 overflow and underflow.
    scale = np.abs(columns).max(axis=0)
    result = columns / scale
    result -= result.mean(axis=0)
    norms = np.linalg.norm(result, axis=0)
    result /= norms
    return result, scale * norms


def _slab_scale(slab_sd: float, norms: Array, called: list[str]) -> Array:
    """Return the length of each column in units of its prior."""
    with np.errstate(over="ignore"):
        scale: Array = slab_sd * norms
        square = np.square(scale)
    if square.max() > _LARGEST_SCALE:
        j = int(square.argmax())
        column = called[j] if called else j
        raise ValueError(
            f"slab_sd**2 times the sum of squares of column {column} of X, centred, is "
            f"{square[j]:g}; it must be at most {_LARGEST_SCALE:g}. Standardise the columns, "
            "or give a smaller slab_sd."
        )
    return scale


def _names(X: Any) -> list[Any]:
    """Return the names of the columns of a data frame, all different."""
    names = columns_of(X) or []
    if len(set(names)) < len(names):
        again = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(
            f"X has {names.count(again)} columns called {again!r}; give each a name of its own, or "
            "X.to_numpy() for columns without names."
        )
    return names
