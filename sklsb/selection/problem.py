"""From data and priors to what the kernels need."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import betaln, logit
from scipy.stats import t as student

from sklsb._kernels.selection.columns import DenseColumns, SparseColumns
from sklsb._kernels.selection.state import CDF_STEPS, Posterior
from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import check_fits
from sklsb._words import few

# Most columns of X; most included columns.
MOST_COLUMNS, MOST_INCLUDED = 10**6, 256
# Entries of X up to which it is kept in double precision.
_DOUBLE = 1 << 23
# Of a column's sum of squares: at most this part is left by constants and ``always``.
_NOTHING_LEFT = 1e-12
# 1 - R^2 of collinear columns, well above the rounding of single precision; largest g and squared
# slab, as in `VariableSelection`.
_LEAST, _LARGEST_SCALE = 1e-5, 1e8
_PART = 1 << 22


def as_dense(part: Any) -> Array:
    """Return a part of X, which may be sparse, as an array."""
    found = part.toarray() if sparse.issparse(part) else part
    return np.asarray(found, dtype=np.float64)


def columns_between(first: Ints, units: Ints) -> Ints:
    """Return the numbers from first[u] up to first[u + 1], for some units u."""
    widths = first[units + 1] - first[units]
    return np.repeat(first[units + 1] - np.cumsum(widths), widths) + np.arange(widths.sum())


class Inclusion(NamedTuple):
    """Prior of inclusion: a and b of a beta-binomial prior of the size, or probabilities."""

    size: tuple[float, float] | None = None
    chance: Array | float = 0.5  # of all units or of each

    def by_size(self, n_units: int, most: int) -> Array:
        """Return log p of a model by its number of units; -inf for one more than ``most``."""
        found, k = np.full(most + 2, -np.inf), np.arange(most + 1)
        a, b = self.size or (0.0, 0.0)
        found[:-1] = betaln(k + a, n_units - k + b) if self.size else 0.0
        return found


@dataclass
class Prior:
    """Parameters of the priors, resolved for some data."""

    kind: str
    g: float
    slab_sd: float
    inclusion: Inclusion


@dataclass
class Problem(ABC):
    """A posterior of models: what kernels see, and the way back to the given columns.

    Columns are those of the kernels, in the order of units. Units of every model come last.
    """

    columns: DenseColumns | SparseColumns
    posterior: Posterior
    given: Ints  # number in X of each column to choose from, then of others
    scale: Array  # of each of these; a coefficient of X is this times that of the kernels
    most_columns: int  # included columns
    artificial: bool  # whether `most` is a limit of memory, not of the model
    n_rows: float  # sum of their weights, or trials
    score: Array  # products of the columns with the response, constants taken off
    lengths: Array  # of the columns of `part` to choose from
    leverage: Array  # of the rows, if no column to choose from is included

    def __post_init__(self) -> None:
        first, self.n_data = self.posterior.first, self.leverage.size
        # Most included units, without those of every model: terms are of the sizes 0 to most + 1.
        self.most = self.posterior.size_term.size - 2
        # Of the kernels, in all; then columns or groups to choose from.
        self.n_columns, self.n_units = int(first[-1]), first.size - 1
        self.n_free = self.n_units - self.posterior.n_always
        # Numbers in X of the columns to choose from, and the unit of each.
        self.free = self.given[: first[self.n_free]]
        self.unit_of = np.repeat(np.arange(self.n_free), np.diff(first[: self.n_free + 1]))

    def columns_of(self, units: Sequence[int] | Ints) -> Ints:
        """Return the columns of some units."""
        return columns_between(self.posterior.first, np.asarray(units, dtype=np.int64))

    @abstractmethod
    def part(self, chosen: Ints) -> Array:
        """Return some columns as least squares sees them, shape (n_data, chosen)."""

    @abstractmethod
    def combined(self, weights: Array) -> Array:
        """Return products of these columns with some vectors, (n_data, m): shape (columns, m)."""

    @abstractmethod
    def left(self, units: Ints) -> Array:
        """Return what a model leaves of the response, as `part` has its rows."""

    @abstractmethod
    def log_p(self, units: Ints) -> float:
        """Return log p of a model up to a constant."""


@dataclass
class LinearProblem(Problem):
    """A linear regression; ``always`` is projected out."""

    always: Ints  # numbers in X
    y_norm: float
    df: float
    weight: Array  # of rows
    response: Array  # what is left of y, of length one
    basis: Array  # (n, q) orthonormal: constant and always, times root of the weights

    def part(self, chosen: Ints) -> Array:
        """Return some columns, projected and scaled."""
        view = self.columns
        if isinstance(view, DenseColumns):
            return np.asarray(view.x[chosen].T, dtype=np.float64)
        made = np.zeros((len(self.weight), chosen.size))
        for i, j in enumerate(chosen):
            entries = slice(view.start[j], view.start[j + 1])
            made[view.row[entries], i] = view.value[entries]
        return made - self.basis @ view.low[chosen].T

    def combined(self, weights: Array) -> Array:
        """Return products of the columns of `part` with some vectors."""
        view = self.columns
        if isinstance(view, DenseColumns):
            return np.asarray(view.x @ weights.astype(view.x.dtype), dtype=np.float64)
        shape = len(self.weight), self.n_columns
        x = sparse.csc_array((view.value, view.row, view.start), shape=shape)
        return np.asarray(x.T @ weights) - view.low @ (self.basis.T @ weights)

    def left(self, units: Ints) -> Array:
        """Return what least squares leave of y."""
        q, _ = np.linalg.qr(self.part(self.columns_of(units)))
        return np.asarray(self.response - q @ (q.T @ self.response))

    def log_p(self, units: Ints) -> float:
        """Return log p of a model up to a constant."""
        columns, post = self.columns_of(units), self.posterior
        x = self.part(columns)
        found = log_p_of_models(x.T @ x + np.diag(post.ridge[columns]), post.z[columns], post).log_p
        prior = post.log_odds[units].sum() + post.size_term[min(len(units), self.most + 1)]
        return float(found + prior)


class LinearModels(NamedTuple):
    """What is known of linear models of equally many columns, along the first axis."""

    log_p: Array  # without the prior of the columns
    mean: Array  # of coefficients
    variance: Array  # of these, in units of ``spread``
    error: Array  # sum of squares that is left of the response


def log_p_of_models(matrix: Array, z: Array, post: Posterior) -> LinearModels:
    """Return what follows from M = X'X + ridge and z = X'y, (..., k, k) and (..., k)."""
    value, vector = np.linalg.eigh(matrix)
    value = np.maximum(value, 1e-15)  # of collinear columns: impossible, but no overflow
    diagonal = (np.square(vector) / value[..., None, :]).sum(axis=-1)
    turned = (vector * z[..., :, None]).sum(axis=-2)
    mean = post.shrink * (vector * (turned / value)[..., None, :]).sum(axis=-1)
    error = 1.0 - (mean * z).sum(axis=-1)
    possible = ~(diagonal.max(axis=-1, initial=0.0) * max(post.least, 1e-14) >= 1.0)
    possible &= error > 0.0
    log_p = -post.exponent * np.log(np.where(possible, error, 1.0))
    log_p = log_p - post.det_weight * np.log(value).sum(axis=-1)
    log_p = np.where(possible, log_p, -np.inf)
    return LinearModels(log_p, mean, post.shrink * diagonal * error[..., None], error)


def linear_problem(
    X: Any,
    y: Array,
    weight: Array,
    groups: list[Ints],
    always: Ints,
    prior: Prior,
    standardize: bool,
    names: Sequence[Any],
) -> LinearProblem:
    """Return the problem of a regression; X is dense or CSC, groups are columns by unit.

    Errors name columns by ``names``.
    """
    given, n_rows, root = np.concatenate(groups), float(weight.sum()), np.sqrt(weight)
    basis = _basis(X, always, root, names)
    df = n_rows - basis.shape[1]
    if not df > 2.0:
        raise ValueError(
            f"the weights of the {len(root)} rows sum to {n_rows:g}: they count rows, and with the "
            f"intercept and {always.size} columns in always more than {basis.shape[1] + 2} are "
            "needed for coefficients to have a variance. Give more rows, or weights that count."
        )
    response, y_norm = _response(y, root, basis)
    # The slab is that of columns as they are given: their lengths are taken before `always` is
    # projected out. Under the prior "g" lengths do not matter.
    length, by = 1.0, "left"
    if prior.kind != "g":
        length, by = prior.slab_sd, ""
        if standardize:
            length, by = length * math.sqrt(n_rows), "given"
    how = _Scaling(root, basis, response, length, by, names)
    columns, scale, square, z = (_sparse_columns if sparse.issparse(X) else _dense_columns)(
        X, given, how
    )
    if prior.kind != "g" and square.max() > _LARGEST_SCALE:
        j = int(square.argmax())
        raise ValueError(
            f"slab_sd**2 times the sum of squares of column {names[given[j]]!r} is {square[j]:g}; "
            f"it must be at most {_LARGEST_SCALE:g}. Use standardize=True, or give a smaller "
            "slab_sd."
        )
    first = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
    allowed = _told_apart(first, n_rows, basis.shape[1]) if prior.kind == "g" else given.size
    most_columns, artificial = most_included(first, allowed)
    posterior = _posterior(prior, first, z, square, df, min(len(groups), most_columns))
    problem = LinearProblem(
        columns=columns,
        posterior=posterior,
        given=given,
        always=always,
        scale=scale,
        y_norm=y_norm,
        df=df,
        n_rows=n_rows,
        weight=weight,
        response=response,
        basis=basis,
        most_columns=most_columns,
        artificial=artificial,
        score=z,
        lengths=np.sqrt(posterior.square - posterior.ridge),
        leverage=np.square(basis).sum(axis=1),
    )
    _refuse_collinear_groups(problem, names)
    return problem


def _response(y: Array, root: Array, basis: Array) -> tuple[Array, float]:
    """Return what the basis leaves of y, divided by its length, and the length."""
    largest = float(np.abs(y).max())
    if largest > 0.0 and not 1e-140 < largest < 1e140:
        raise ValueError(f"the largest entry of y is {largest:g}: its square is lost. Rescale y.")
    if y.min() == y.max():
        raise ValueError(f"y is constant ({y[0]:g}): there is nothing to explain.")
    left = root * y
    for _ in range(2):
        left = left - basis @ (basis.T @ left)
    y_norm = float(np.linalg.norm(left))
    if y_norm <= 1e-10 * np.linalg.norm(root * (y - np.average(y, weights=root**2))):
        raise ValueError("the columns in always explain y: there is nothing left to explain.")
    return left / y_norm, y_norm


def _told_apart(first: Ints, n_rows: float, n_always: int) -> int:
    """Return the most columns of a model under the prior "g", beside those of every model."""
    allowed = min(int(first[-1]), max(math.ceil(n_rows) - n_always - 1, 1))
    widest = int(np.diff(first).max())
    if widest > allowed:
        raise ValueError(
            f"groups puts {widest} columns together: with {n_rows:g} rows they explain all of "
            'y, and with the prior "g" at most '
            f'{allowed} can be told apart. Use smaller groups, or prior="independent".'
        )
    return allowed


def _basis(X: Any, always: Ints, root: Array, names: Sequence[Any]) -> Array:
    """Orthonormal basis of the constant and the columns that are always in the model."""
    chosen = as_dense(X[:, always])
    mean = np.average(chosen, axis=0, weights=root**2) if always.size else np.zeros(0)
    block = root[:, None] * np.column_stack([np.ones(len(root)), chosen - mean])
    length = np.linalg.norm(block, axis=0)
    if (length == 0.0).any():
        j = int(always[int(np.argmin(length)) - 1])
        raise ValueError(f"column {names[j]!r}, in always, is constant; leave it out.")
    q, r = np.linalg.qr(block / length)
    bad = np.abs(np.diagonal(r)) <= 1e-7
    if bad.any() or block.shape[1] > len(root) - 2:
        raise ValueError(
            f"always has {always.size} columns that are collinear or, with {len(root)} rows, too "
            "many; leave some out."
        )
    return np.asarray(q)


def most_included(first: Ints, allowed: int) -> tuple[int, bool]:
    """Return the most columns of a model, and whether the model would allow more."""
    most = max(min(allowed, MOST_INCLUDED), int(np.diff(first).max()))
    return most, most < allowed


def _posterior(
    prior: Prior, first: Ints, z: Array, square: Array, df: float, most: int
) -> Posterior:
    n_units, is_g = first.size - 1, prior.kind == "g"
    log_odds = np.zeros(n_units) + logit(prior.inclusion.chance)
    if is_g:
        log_odds -= 0.5 * np.diff(first) * math.log1p(prior.g)
    ridge = np.zeros(z.size) if is_g else np.ones(z.size)
    return Posterior(
        z=z,
        square=square + ridge,
        ridge=ridge,
        first=first,
        log_odds=log_odds,
        size_term=prior.inclusion.by_size(n_units, most),
        cdf=student(df).cdf(np.arange(40 * CDF_STEPS) / CDF_STEPS),
        gaussian=False,
        exponent=0.5 * df,
        det_weight=0.0 if is_g else 0.5,
        shrink=prior.g / (1.0 + prior.g) if is_g else 1.0,
        least=_LEAST if is_g else 0.0,
        spread=1.0 / (df - 2.0),
        studentize=math.sqrt(df),
    )


class _Scaling(NamedTuple):
    """How columns are projected and scaled.

    They are divided ``by`` their length as "given", by that of what is "left", or not at all ("").
    """

    root: Array  # of the weights of the rows
    basis: Array
    response: Array
    length: float
    by: str
    names: Sequence[Any]

    def refuse_constant(self, left: Array, before: Array, given: Ints) -> None:
        """Refuse columns of whose sum of squares nothing is left."""
        bad = given[left <= _NOTHING_LEFT * before]
        if bad.size:
            shown = few([repr(self.names[j]) for j in bad])
            one = bad.size == 1
            columns, are, them = ("column", "is", "it") if one else ("columns", "are", "them")
            why = "constant"
            if self.basis.shape[1] > 1:
                why += ", or explained by the columns in always"
            raise ValueError(
                f"{columns} {shown} of X {are} {why}; leave {them} out: the model has an intercept."
            )


def _dense_columns(X: Any, given: Ints, how: _Scaling) -> tuple[DenseColumns, Array, Array, Array]:
    """Centre, project and scale dense columns, some at a time."""
    root, basis = how.root, how.basis
    n, p = len(root), given.size
    kind: Any = np.float64 if n * p <= _DOUBLE else np.float32
    check_fits(n * p * np.dtype(kind).itemsize, f"A copy of X ({n} x {p})", "Give fewer columns.")
    x = np.empty((p, n), dtype=kind)
    scale, square, z = np.empty(p), np.empty(p), np.empty(p)
    step = max(1, _PART // n)
    for low in range(0, p, step):
        part = slice(low, min(low + step, p))
        block = np.asarray(X[:, given[part]], dtype=np.float64)
        largest = np.abs(block).max(axis=0)
        # Divided by the largest entry first: squares of 1e200 overflow.
        block = (block / np.where(largest > 0.0, largest, 1.0)).T
        same = block.max(axis=1) == block.min(axis=1)
        # Centred first: what varies little beside its mean is no less worth for that.
        block = (block - (block @ root**2 / (root @ root))[:, None]) * root
        before = np.where(same, np.inf, np.square(block).sum(axis=1))
        for _ in range(2):
            block -= (block @ basis) @ basis.T
        norm = np.linalg.norm(block, axis=1)
        how.refuse_constant(norm**2, before, given[part])
        divisor = {"left": norm, "given": np.sqrt(before), "": 1.0 / largest}[how.by]
        scale[part] = how.length / (divisor * largest)
        block *= (scale[part] * largest)[:, None]
        x[part] = block
        square[part] = np.square(block).sum(axis=1)
        z[part] = block @ how.response
    return DenseColumns(x, np.empty(0)), scale, square, z


def _sparse_columns(
    X: Any, given: Ints, how: _Scaling
) -> tuple[SparseColumns, Array, Array, Array]:
    """Scale sparse columns, as dense ones; the projection is left to the kernel."""
    chosen = sparse.csc_array(X[:, given], dtype=np.float64, copy=True)
    chosen.sum_duplicates()
    largest = np.abs(chosen).max(axis=0).toarray().ravel()
    largest = np.where(largest > 0.0, largest, 1.0)
    chosen.data /= np.repeat(largest, np.diff(chosen.indptr))
    chosen.data *= how.root[chosen.indices]
    before = np.asarray(chosen.multiply(chosen).sum(axis=0)).ravel()
    low = np.asarray(chosen.T @ how.basis)
    left = before - np.square(low).sum(axis=1)
    how.refuse_constant(left, before, given)
    # The first of the basis is the constant.
    own = before - low[:, 0] ** 2
    divisor = {"left": np.sqrt(left), "given": np.sqrt(own), "": 1.0 / largest}[how.by]
    scale = how.length / divisor
    chosen.data *= np.repeat(scale, np.diff(chosen.indptr))
    low *= scale[:, None]
    square = left * scale**2
    scale = scale / largest
    made = SparseColumns(
        value=chosen.data,
        row=chosen.indices.astype(np.int64),
        start=chosen.indptr.astype(np.int64),
        low=low,
        weight=np.empty(0),
    )
    return made, scale, square, np.asarray(chosen.T @ how.response)


def _refuse_collinear_groups(problem: LinearProblem, names: Sequence[Any]) -> None:
    """Refuse groups that, under the prior "g", no model could have."""
    first, least = problem.posterior.first, problem.posterior.least
    for unit in np.flatnonzero(np.diff(first) > 1) if least > 0.0 else ():
        columns = np.arange(first[unit], first[unit + 1])
        x = problem.part(columns)
        x /= np.linalg.norm(x, axis=0)
        value, vector = np.linalg.eigh(x.T @ x)
        # The largest 1 / (1 - R^2) of a column given the others.
        if value[0] <= 0.0 or (np.square(vector) @ (1.0 / value)).max() * least >= 1.0:
            shown = few([repr(names[j]) for j in problem.given[columns]])
            raise ValueError(
                f"groups puts columns {shown} together, which are collinear: with the prior "
                '"g" no model could have them. Leave one of them out (of dummy columns, one '
                'level), or use prior="independent".'
            )
