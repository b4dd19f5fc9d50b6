"""A logistic regression with a spike and a slab: its posterior, and its chains.

A chain goes from window to window: the jump process over the columns of a window, given the weights
of the rows, then an update of the weights given the included columns.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.special import expit, logit, ndtr

from sklsb._kernels.selection import state as names
from sklsb._kernels.selection.columns import DenseColumns, SparseColumns
from sklsb._kernels.selection.state import CDF_STEPS, Posterior, Sums, Window
from sklsb._system.arrays import Array, Ints
from sklsb.diagnostics.batches import Thinned
from sklsb.selection.augmentation import Augmentation, Conditional, solve_lower
from sklsb.selection.chains import Chain, Pace, Plan
from sklsb.selection.problem import MOST_INCLUDED, Inclusion, Problem, as_dense, most_included
from sklsb.selection.rows import Rows

_MOST_DRAWS = 500  # of each chain, kept
# Work of an update of weights: for a row, and at all; in units of a column looked at in a jump.
_ROW_WORK, _UPDATE_WORK = 20.0, 30_000.0


@dataclass
class LogisticProblem(Problem):
    """A logistic regression. Columns of ``always`` and the intercept come last."""

    rows: Rows
    whole: Any  # all columns, (n_columns, n), an array or a CSR matrix
    centre: Array  # subtracted from the columns in `part`
    root: Array  # of the weights that rows have if all coefficients but the intercept are zero

    def part(self, chosen: Ints) -> Array:
        """Return some columns, centred, with the weights that rows have there."""
        return np.asarray((self.design(chosen) - self.centre[chosen, None]).T * self.root[:, None])

    def combined(self, weights: Array) -> Array:
        """Return products of the columns of `part` with some vectors."""
        of_rows, p = self.root[:, None] * weights, self.free.size
        return self.whole[:p] @ of_rows - np.outer(self.centre[:p], of_rows.sum(axis=0))

    def _fit(self, units: Ints) -> tuple[Ints, Array, Array]:
        """Return the columns of a model, their coefficients at the mode, and the predictor."""
        columns = self.columns_of([*units, *range(self.n_free, self.n_units)])
        b = mode(self, columns)
        return columns, b, b @ self.design(columns)

    def left(self, units: Ints) -> Array:
        """Return what a model leaves of the response, in units of `part`."""
        return self.left_by(self._fit(units)[2])

    def left_by(self, psi: Array) -> Array:
        """Return what a predictor leaves of the response."""
        return np.asarray((self.rows.n_successes - self.rows.n_trials * expit(psi)) / self.root)

    def log_p(self, units: Ints) -> float:
        """Return log p of a model up to a constant, by Laplace's approximation."""
        if len(units) > self.most or self.columns_of(units).size > MOST_INCLUDED:
            return -np.inf
        columns, b, psi = self._fit(units)
        y, m, post = self.rows.n_successes, self.rows.n_trials, self.posterior
        design, ridge, p = self.design(columns), post.ridge[columns], expit(psi)
        log_det = np.linalg.slogdet((design * (m * p * (1.0 - p))) @ design.T + np.diag(ridge))[1]
        fit = y @ psi - m @ np.logaddexp(0.0, psi) - 0.5 * ridge @ b**2
        return float(fit - 0.5 * log_det + post.log_odds[units].sum() + post.size_term[len(units)])

    def design(self, chosen: Ints) -> Array:
        """Return some columns, shape (chosen, n)."""
        return as_dense(self.whole[chosen])


def logistic_problem(
    rows: Rows,
    X: Any,
    given: Ints,
    scale: Array,
    groups: list[Ints],
    slab_sd: float,
    inclusion: Inclusion,
) -> LogisticProblem:
    """Return the posterior.

    X is scaled, (n, p), an array or a CSC matrix: columns of ``groups`` first, in their order, then
    those of every model. ``given`` are their numbers.
    """
    n, p = X.shape
    widths = np.array([group.size for group in groups])
    n_free = widths.size
    n_always = p - int(widths.sum()) + 1
    if sparse.issparse(X):
        whole: Any = sparse.vstack([X.T, np.ones((1, n))], format="csr")
        entries = whole.data, whole.indices.astype(np.int64), whole.indptr.astype(np.int64)
        columns: Any = SparseColumns(*entries, np.empty((p + 1, 0)), np.empty(0))
        own = whole.multiply(whole)
    else:
        whole = np.ascontiguousarray(np.vstack([X.T, np.ones(n)]))
        columns = DenseColumns(whole, np.empty(0))
        own = np.square(whole)
    ridge = np.append(np.full(p, slab_sd**-2.0), 0.0)
    first = np.concatenate([[0], np.cumsum(np.append(widths, np.ones(n_always, dtype=np.int64)))])
    most_columns, artificial = most_included(first, int(widths.sum()))
    log_odds = np.zeros(n_free + n_always)
    log_odds[:n_free] = logit(inclusion.chance) - widths * np.log(slab_sd)
    posterior = Posterior(
        z=whole @ (rows.n_successes - 0.5 * rows.n_trials),
        square=own @ (0.25 * rows.n_trials) + ridge,
        ridge=ridge,
        first=first,
        log_odds=log_odds,
        size_term=inclusion.by_size(n_free, min(n_free, most_columns)),
        cdf=ndtr(np.arange(40 * CDF_STEPS) / CDF_STEPS),
        gaussian=True,
        n_always=n_always,
    )
    rate = rows.n_successes.sum() / rows.n_trials.sum()
    root, share = np.sqrt(rows.n_trials * rate * (1.0 - rate)), rows.n_trials / rows.n_trials.sum()
    centre = np.asarray(whole @ share)
    weight, free = root**2, first[n_free]
    left = own[:free] @ weight - weight.sum() * centre[:free] ** 2
    return LogisticProblem(
        columns=columns,
        posterior=posterior,
        given=given,
        scale=scale,
        most_columns=most_columns + n_always,
        artificial=artificial,
        n_rows=float(rows.n_trials.sum()),
        rows=rows,
        whole=whole,
        score=whole @ (rows.n_successes - rows.n_trials * rate),
        lengths=np.sqrt(np.maximum(left, np.finfo(float).tiny)),
        leverage=share,
        centre=centre,
        root=root,
    )


class LogisticChain(Chain):
    """One chain, with weights of the rows."""

    pace: ClassVar[Pace] = Pace(500, 20, 20, 25, 8)
    problem: LogisticProblem

    def __init__(self, problem: LogisticProblem, rng: np.random.Generator, units: Ints):
        self.weights = Augmentation(problem.rows.n_successes, problem.rows.n_trials)
        super().__init__(problem, rng, units)

    def forget(self) -> None:
        """Forget all sums; the chain stays where it is."""
        super().forget()
        # Means, squares and signs of the coefficients of columns in every model.
        self.fixed = np.zeros((3, self.problem.posterior.n_always))
        # Included columns at the ends of windows, and draws of their coefficients.
        self.draws = Thinned[tuple[Ints, Array]](2 * _MOST_DRAWS)

    def _columns(self) -> Any:
        return self.problem.columns._replace(weight=self.weights.omega)

    def _set(self, plan: Plan, free: Ints) -> Window:
        window = super()._set(plan, free)
        window.size[names.FRESH] = 1  # the weights have changed
        return window

    def _passed(self, window: Window, of_sweep: Sums) -> None:
        """Update the weights; note a draw of the coefficients."""
        problem, k = self.problem, window.size[names.K_COLUMNS]
        included = window.column[window.included[:k]].copy()
        ridge = problem.posterior.ridge[included]
        given = self.weights.conditional(problem.design(included), ridge)
        coefficients = self.weights.update(given, ridge, self.rng)
        self._note_fixed(given, included)
        self.draws.add((included, coefficients))
        of_sweep.total[names.WORK] += _UPDATE_WORK + problem.n_data * (_ROW_WORK + k * k)

    def _note_fixed(self, given: Conditional, included: Ints) -> None:
        """Add what is known of coefficients of columns in every model."""
        low = self.problem.n_columns - self.problem.posterior.n_always
        at = np.flatnonzero(included >= low)
        place = included[at] - low
        units = np.zeros((included.size, at.size))
        units[at, np.arange(at.size)] = 1.0
        sd = np.linalg.norm(solve_lower(given.root, units), axis=0)
        mean = given.mean[at]
        self.fixed[:, place] += mean, mean**2 + sd**2, ndtr(mean / sd)


def mode(problem: LogisticProblem, columns: Ints) -> Array:
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
