"""All models of few columns, in the place of chains."""

from itertools import product

import numpy as np
from scipy.stats import t as student

from sklsb._kernels.selection import state as names
from sklsb._kernels.selection.state import Models
from sklsb._system.arrays import Array, Bools, Ints
from sklsb.selection.chains import Chain
from sklsb.selection.problem import LinearProblem, log_p_of_models

# Units and columns up to which models are enumerated: a burn-in visits more than 2^13.
MOST_UNITS, MOST_COLUMNS = 13, 64
# Models of each chain that draws and predictions are made of.
_N_STATES = 200


def fill(chains: list[Chain], problem: LinearProblem) -> None:
    """Give chains what they would have summed and kept after infinite runs."""
    inside = np.array(list(product((False, True), repeat=problem.n_free)))
    log_p, mean, square, positive, error = _all_models(problem, inside)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    share, sizes, sums = p @ inside, inside.sum(axis=1), chains[0].sums
    for total, new in zip(
        sums[:6],
        (share, np.ones_like(share), p @ mean, p @ square, p @ positive, share[problem.unit_of]),
        strict=True,
    ):
        total[:] = new
    sums.sizes[:] = np.bincount(sizes, p, minlength=sums.sizes.size)[: sums.sizes.size]
    sums.total[names.TIME], sums.total[names.LARGEST] = 1.0, sizes[p > 0.0].max()
    sums.total[names.ROOT_ERROR] = p @ np.sqrt(error)
    order = np.argsort(-p, kind="stable")
    units = [np.flatnonzero(inside[i]) for i in order]
    chains[0].models = _table(units, p[order], log_p[order])
    cumulated = np.cumsum(p[order])
    for c, chain in enumerate(chains):
        chain.units = units[0]
        chain.batches.add_draw(np.array([share, np.ones_like(share)]))
        at = (np.arange(_N_STATES) + (c + 0.5) / len(chains)) / _N_STATES
        drawn = np.minimum(np.searchsorted(cumulated, at), order.size - 1)
        chain.states.kept = [(units[i], 1.0) for i in drawn]


def _all_models(problem: LinearProblem, inside: Bools) -> tuple[Array, Array, Array, Array, Array]:
    """Return log p of models, moments and signs of all their coefficients, and what they leave."""
    post, n = problem.posterior, len(inside)
    columns = inside[:, problem.unit_of]
    x = problem.part(np.arange(problem.n_columns))
    matrix = x.T @ x + np.diag(post.ridge)
    log_p, error = np.full(n, -np.inf), np.zeros(n)
    mean, square, positive = np.zeros((3, n, problem.n_columns))
    width = columns.sum(axis=1)
    for k in np.unique(width[width <= problem.most_columns]):
        rows = np.flatnonzero(width == k)
        chosen = np.nonzero(columns[rows])[1].reshape(rows.size, k)
        found = log_p_of_models(
            matrix[chosen[:, :, None], chosen[:, None, :]], post.z[chosen], post
        )
        log_p[rows], error[rows] = found.log_p, np.maximum(found.error, 0.0)
        at, possible = (rows[:, None], chosen), np.isfinite(found.log_p)[:, None]
        sd = np.sqrt(np.where(possible, np.maximum(found.variance, 1e-300), 1.0))
        mean[at] = np.where(possible, found.mean, 0.0)
        square[at] = mean[at] ** 2 + np.where(possible, post.spread * found.variance, 0.0)
        positive[at] = student(problem.df).cdf(post.studentize * mean[at] / sd)
    sizes = np.minimum(inside.sum(axis=1), problem.most + 1)
    return log_p + inside @ post.log_odds + post.size_term[sizes], mean, square, positive, error


def _table(units: list[Ints], p: Array, log_p: Array) -> Models:
    """Return a table of models, the most probable first."""
    kept = np.flatnonzero(p > 0.0)
    size = np.array([units[i].size for i in kept])
    padded = np.zeros((kept.size, max(int(size.max()), 1)), dtype=np.int32)
    for row, i in enumerate(kept):
        padded[row, : size[row]] = units[i]
    key = np.arange(1, kept.size + 1, dtype=np.uint64)
    return Models(key, p[kept], log_p[kept], size, padded, np.array([kept.size]))
