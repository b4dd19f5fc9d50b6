"""Chains of a logistic regression with a spike and a slab.

A chain goes from window to window: the jump process over the columns of a window, given the weights
of the rows, then an update of the weights given the included columns.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.special import betaln, ndtr

from sklsb._kernels.selection import state
from sklsb._kernels.selection.columns import DenseColumns, SparseColumns
from sklsb._kernels.selection.process import run_window
from sklsb.selection.augmentation import Augmentation
from sklsb.selection.rows import Rows

Array = NDArray[np.float64]

MOST_INCLUDED = 200  # free columns in a model
N_BATCHES = 16  # of each chain, when there are most
MOST_DRAWS = 500  # of each chain, kept
_JUMPS = 20.0  # in a window
_SPARE_ROWS = 16  # of the Gram matrix
_MODELS = 1 << 12


class Problem(NamedTuple):
    """A posterior. Free columns come first, then those in every model, then the intercept."""

    columns: Any  # a view for the kernels, without weights
    posterior: state.Posterior
    rows: Rows
    n_free: int
    n_columns: int  # with the intercept

    def design(self, some: NDArray[np.int64]) -> Array:
        """Return columns, shape (some, n)."""
        if isinstance(self.columns, DenseColumns):
            return np.asarray(self.columns.x[some], dtype=np.float64)
        whole = sparse.csc_array(
            (self.columns.value, self.columns.row, self.columns.start),
            shape=(len(self.rows.n_trials), self.n_columns),
        )
        result: Array = whole[:, some].T.toarray()
        return result


def make_problem(
    rows: Rows, X: Any, n_always: int, slab_sd: float, size_prior: Any, log_odds: Array
) -> Problem:
    """Return the posterior.

    X is centred and scaled (n, p), an array or a CSC matrix, the last ``n_always`` columns in every
    model. ``size_prior`` are a and b of a beta-binomial prior of the size, or None; ``log_odds``
    prior log-odds of the free columns.
    """
    n, p = X.shape
    n_free = p - n_always
    none = np.empty(0)
    if sparse.issparse(X):
        whole = sparse.hstack([X, np.ones((n, 1))], format="csc")
        entries = whole.data, whole.indices.astype(np.int64), whole.indptr.astype(np.int64)
        columns: Any = SparseColumns(*entries, np.empty((p + 1, 0)), none)
    else:
        columns = DenseColumns(np.ascontiguousarray(np.vstack([X.T, np.ones(n)])), none)
    kappa = rows.n_successes - 0.5 * rows.n_trials
    z = np.append(X.T @ kappa, kappa.sum())
    ridge = np.append(np.full(p, slab_sd**-2.0), 0.0)
    most = min(n_free, MOST_INCLUDED)
    size_term = np.full(n_free + 2, -np.inf)
    k = np.arange(most + 1)
    size_term[k] = (
        0.0 if size_prior is None else betaln(k + size_prior[0], n_free - k + size_prior[1])
    )
    odds = np.zeros(p + 1)
    odds[:n_free] = log_odds - np.log(slab_sd)
    cdf = ndtr(np.arange(40 * state.CDF_STEPS) / state.CDF_STEPS)
    first = np.arange(p + 2)
    posterior = state.Posterior(
        z,
        none,
        ridge,
        first,
        odds,
        size_term,
        cdf,
        True,
        1.0,
        0.0,
        0.5,
        0.0,
        1.0,
        1.0,
        n_always + 1,
    )
    return Problem(columns, posterior, rows, n_free, p + 1)


def _new_window(width: int, most: int, n: int) -> state.Window:
    """Allocate memory for a window of at most ``width`` columns, of which ``most`` included."""
    slots = min(width, most + _SPARE_ROWS)
    shapes = {
        "size": 8, "number": 8, "column": width, "unit": width, "unit_of": width,
        "first": width + 1, "u": width, "v": width, "mean": width, "variance": width,
        "change": width, "log_odds": width, "fit": width, "rest": width, "share": width,
        "rate": width, "lane": state.LANES, "sum_share": width, "sum_mean": width,
        "sum_square": width, "cross": 0, "block": 0, "gram": (slots, width),
        "slot": width, "owner": slots + 1, "place": width,
        "included": most, "inverse": (most, most), "factor": (most, most), "b": most, "a": most,
        "rows": (most, width), "dense": n,
    }  # fmt: skip
    integers = {"size", "column", "unit", "unit_of", "first", "slot", "owner", "place", "block"}
    integers.add("included")
    arrays: dict[str, Any] = {
        name: np.zeros(shape, dtype=np.int64 if name in integers else np.float64)
        for name, shape in shapes.items()
    }
    return state.Window(word=np.zeros(2, dtype=np.uint64), **arrays)


class LogisticChain:
    """One chain.

    Parameters
    ----------
    problem : Problem
        The posterior.
    rng : numpy.random.Generator
        The source of all its numbers.
    start : ndarray of int64
        The free columns that are included at first.
    width : int
        Free columns in a window; the most probable half of them are in all windows.
    """

    def __init__(
        self, problem: Problem, rng: np.random.Generator, start: NDArray[np.int64], width: int
    ):
        self.problem, self.rng = problem, rng
        self.width = min(width, problem.n_free)
        fixed = np.arange(problem.n_free, problem.n_columns)
        self.included = np.concatenate([start, fixed])
        self.span = 1.0
        self.weights = Augmentation(problem.rows.n_successes, problem.rows.n_trials)
        self.anchors = np.empty(0, dtype=np.int64)
        self._turn = np.empty(0, dtype=np.int64)
        most = min(problem.n_free, MOST_INCLUDED) + fixed.size
        most_columns = min(problem.n_columns, self.width + most)
        self._window = _new_window(most_columns, most, problem.rows.n_trials.size)
        self.forget()

    def forget(self) -> None:
        """Empty all sums."""
        p, free = self.problem.n_columns, self.problem.n_free
        n_fixed = p - free
        sizes = np.zeros(min(free, MOST_INCLUDED) + 2)
        a, b, c, d, e, f = np.zeros((6, p))
        self.sums = state.Sums(a, b, c, d, e, f, sizes, np.zeros(state.N_TOTALS))
        kept = np.zeros(_MODELS, np.uint64), np.zeros(_MODELS), np.zeros(_MODELS)
        units_of = np.zeros((_MODELS, min(free, MOST_INCLUDED)), np.int32)
        self.models = state.Models(
            *kept, np.zeros(_MODELS, np.int64), units_of, np.zeros(1, np.int64)
        )
        self.fixed = np.zeros((3, n_fixed))  # mean, square, positive of columns in every model
        self.n_windows = 0
        self.batches: list[Array] = []  # (2, n_free): sums of probabilities, times
        self._before = np.zeros((2, free))
        self._length = 1
        self.draws: list[tuple[NDArray[np.int64], Array]] = []
        self._stride = 1

    def _free(self) -> NDArray[np.int64]:
        """Choose the free columns of the next window, whatever the state."""
        if self.width == self.problem.n_free:
            return np.arange(self.width)
        n = self.width - self.anchors.size
        if self._turn.size < n:
            others = np.setdiff1d(np.arange(self.problem.n_free), self.anchors)
            self._turn = self.rng.permutation(others)
        some, self._turn = self._turn[:n], self._turn[n:]
        return np.concatenate([self.anchors, some])

    def _open(self) -> None:
        """Put the next columns into the window."""
        free, window = self._free(), self._window
        column = np.concatenate([free, self.included[~np.isin(self.included, free)]])
        w, k = column.size, self.included.size
        window.column[:w] = column
        window.unit[:w] = column
        window.unit_of[:w] = window.first[:w] = np.arange(w)
        window.first[w] = w
        window.log_odds[:w] = self.problem.posterior.log_odds[column]
        order = np.argsort(column)
        window.included[:k] = order[np.searchsorted(column, self.included, sorter=order)]
        window.size[state.N_COLUMNS] = window.size[state.N_UNITS] = w
        window.size[state.N_FREE] = free.size
        window.size[state.K_COLUMNS] = window.size[state.K_UNITS] = k
        window.size[state.FRESH] = 1
        window.word[0] = np.uint64(self.rng.integers(2**63))

    def step(self) -> float:
        """Run through one window and update the weights; return the number of jumps."""
        self._open()
        jumps = self.sums.total[state.JUMPS]
        run_window(
            self.problem.columns._replace(weight=self.weights.omega),
            self.problem.posterior,
            state.Rates(1.0, 0.0, 1.0, 0.0),
            self._window,
            self.sums,
            self.models,
            np.array([self.span, 0.0]),
        )
        k = self._window.size[state.K_COLUMNS]
        self.included = self._window.column[self._window.included[:k]].copy()
        ridge = self.problem.posterior.ridge[self.included]
        given = self.weights.conditional(self.problem.design(self.included), ridge)
        coefficients = self.weights.update(given, ridge, self.rng)
        self._note(given, coefficients)
        return float(self.sums.total[state.JUMPS] - jumps)

    def _note(self, given: Any, coefficients: Array) -> None:
        """Add to the sums of fixed columns, the batches and the draws."""
        at = np.flatnonzero(self.included >= self.problem.n_free)
        place = self.included[at] - self.problem.n_free
        units = np.zeros((given.mean.size, at.size))
        units[at, np.arange(at.size)] = 1.0
        sd = np.linalg.norm(
            solve_triangular(given.root, units, lower=True, check_finite=False), axis=0
        )
        mean = given.mean[at]
        self.fixed[:, place] += mean, mean**2 + sd**2, ndtr(mean / sd)
        self.n_windows += 1
        if self.n_windows % self._length == 0:
            now = np.stack([self.sums.share, self.sums.time])[:, : self.problem.n_free]
            self.batches.append(now - self._before)
            self._before = now
            if len(self.batches) == 2 * N_BATCHES:
                pairs = zip(self.batches[::2], self.batches[1::2], strict=True)
                self.batches = [a + b for a, b in pairs]
                self._length *= 2
        if self.n_windows % self._stride == 0:
            self.draws.append((self.included, coefficients))
            if len(self.draws) == 2 * MOST_DRAWS:
                self.draws = self.draws[1::2]
                self._stride *= 2

    def run(self, n_windows: int) -> "LogisticChain":
        """Run through windows; return the chain."""
        for _ in range(n_windows):
            self.step()
        return self

    def burn_in(self, n_windows: int) -> "LogisticChain":
        """Run through windows; learn their time and their columns; forget; return the chain."""
        for _ in range(4):
            self.forget()
            jumps = sum(self.step() for _ in range(max(1, n_windows // 4)))
            mean = jumps / max(1, n_windows // 4)
            self.span = min(max(self.span * _JUMPS / max(mean, 1.0), 0.1), 50.0)
            if self.width < self.problem.n_free:
                share = self.sums.share / np.maximum(self.sums.time, 1e-12)
                order = np.argsort(-share[: self.problem.n_free], kind="stable")
                self.anchors = np.sort(order[: self.width // 2])
                self._turn = self._turn[:0]
        self.forget()
        return self


def errors(chains: list[LogisticChain]) -> tuple[Array, Array, float]:
    """Return inclusion probabilities, their standard errors, and how far chains disagree.

    The errors are those of ratios of sums over batches, of all chains. The disagreement is the
    largest difference between the probabilities of two chains.
    """
    parts = np.array([batch for chain in chains for batch in chain.batches])
    shares, times = parts.sum(axis=0)
    # A column whose turn has not come is as uncertain as can be.
    seen = times > 0
    probability = np.where(seen, shares / np.where(seen, times, 1.0), 0.5)
    n = len(parts)
    square = np.square(parts[:, 0] - probability * parts[:, 1]).sum(axis=0)
    error = np.sqrt(square * n / max(n - 1, 1)) / np.where(seen, times, 1.0)
    by_chain = [np.sum(chain.batches, axis=0) for chain in chains]
    each = np.array([s / np.where(t > 0, t, np.nan) for s, t in by_chain])
    spread = np.nanmax(each, axis=0) - np.nanmin(each, axis=0) if seen.all() else np.ones(1)
    return probability, np.where(seen, error, 0.5), float(spread.max())
