"""Models to start at: a lasso path, backward elimination, and pairs of columns.

Supports whose columns say nothing alone are never met on ways up from the empty model. Where there
are fewer columns than rows, the way down from all of them meets them. Near-collinear pairs, which
say something only by their difference, are looked for among all pairs.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dger
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lars_path_gram

from sklsb._system.arrays import Array, Ints
from sklsb.selection.problem import Problem

# Most steps of the lasso path, and columns it considers.
_PATH_STEPS, _PATH_COLUMNS = 60, 400
# Columns from which models are eliminated; multiplications for a ridge regression of all columns.
_DOWN_COLUMNS, _RIDGE_WORK = 400, 1e9
_PENALTIES = 1e-9, 1e-3, 0.1, 1.0
# Multiplications up to which pairs are compared in full, and how many numbers stand for a column
# otherwise; columns in a tile; pairs that are kept of a tile, compared exactly, and tried.
_PAIR_WORK, _SKETCH, _TILE, _OF_TILE, _COMPARED, _TRIED = 4e9, 16, (256, 1024), 64, 2048, 8
MOST_PAIRED = 32_768


class Ridge(NamedTuple):
    """A ridge regression on all columns."""

    explained: float  # of the response, in rows that are left out
    promise: Array  # of each column


def ridge(problem: Problem) -> Ridge | None:
    """Return the best of some ridge regressions; None if it takes too long."""
    n, p = problem.n_data, problem.free.size
    if n * p * min(n, p) > _RIDGE_WORK:
        return None
    y = problem.left(np.empty(0, dtype=np.int64))
    x = problem.part(np.arange(p)) / problem.lengths
    value, vector = np.linalg.eigh(x.T @ x if p < n else x @ x.T)
    kept = value > 1e-12 * value[-1]
    value, vector = value[kept], vector[:, kept]
    u = (x @ vector) / np.sqrt(value) if p < n else vector
    explained, promise = -np.inf, np.zeros(p)
    for penalty in np.array(_PENALTIES) * value.mean():
        shrunk = value / (value + penalty)
        with np.errstate(divide="ignore", invalid="ignore"):
            left = (y - u @ (shrunk * (u.T @ y))) / (1.0 - problem.leverage - np.square(u) @ shrunk)
        found = 1.0 - np.nan_to_num(left @ left, nan=np.inf) / (y @ y)
        if found > explained:
            explained = found
            b = x.T @ (u @ (shrunk / value * (u.T @ y)))
            sd = np.ones(p)
            if p < n:
                sd = np.sqrt(np.square(vector) @ (shrunk / value))
            promise = np.abs(b) / np.maximum(sd, 1e-300)
    return Ridge(float(explained), promise)


def models_down(problem: Problem, promise: Array) -> list[Ints]:
    """Return models on the way down, by backward elimination, from those of the most promise."""
    rank = problem.n_data - round(float(problem.leverage.sum()))
    first = problem.posterior.first[: problem.n_free + 1]
    order = np.argsort(-np.maximum.reduceat(promise, first[:-1]), kind="stable")
    width = np.cumsum(np.diff(first)[order])
    found = []
    for most in (min(rank, _DOWN_COLUMNS), min(int(0.6 * rank), _DOWN_COLUMNS)):
        chosen = np.sort(order[width <= most])
        if chosen.size:
            found += _down(problem, chosen)
        if width[-1] <= most:
            break
    return found


def _down(problem: Problem, units: Ints) -> list[Ints]:
    """Return the best model on the way, with a Gaussian likelihood, and a few others."""
    post = problem.posterior
    # Columns of every model, but not the constant.
    fixed = np.arange(problem.free.size, problem.n_columns - 1)
    columns = np.concatenate([problem.columns_of(units), fixed])
    unit = np.append(np.repeat(units, np.diff(post.first)[units]), np.full(fixed.size, -1))
    x = problem.part(columns)
    matrix = x.T @ x + np.diag(post.ridge[columns])
    matrix[np.diag_indices_from(matrix)] *= 1.0 + 1e-12
    z = x.T @ problem.left(np.empty(0, dtype=np.int64))
    inverse = np.asfortranarray(np.linalg.inv(matrix))
    b, log_det = inverse @ z, float(np.linalg.slogdet(matrix)[1])
    explained = float(b @ z)

    def fit(explained: Any) -> Any:
        if post.gaussian:
            return 0.5 * explained
        return -post.exponent * np.log(np.maximum(1.0 - post.shrink * explained, 1e-300))

    path, value, inside = [], [], units
    while True:
        prior = post.log_odds[inside].sum() + post.size_term[min(inside.size, problem.most + 1)]
        path.append(inside)
        value.append(fit(explained) + prior - post.det_weight * log_det)
        if not inside.size:
            break
        loss, more = _of_units(inverse, b, unit)
        after = fit(explained - loss) - post.log_odds[inside] - post.det_weight * more
        worst = int(np.argmax(after))
        explained, log_det = explained - loss[worst], log_det + more[worst]
        for column in np.flatnonzero(unit == inside[worst]):
            change, pivot = inverse[:, column].copy(), inverse[column, column]
            b -= b[column] / pivot * change
            inverse = dger(-1.0 / pivot, change, change, a=inverse, overwrite_a=1)
        unit[unit == inside[worst]] = -2
        inside = np.delete(inside, worst)
        kept = unit > -2
        if 2 * np.count_nonzero(kept) < unit.size:
            b, unit, inverse = b[kept], unit[kept], inverse[np.ix_(kept, kept)].copy("F")
    # With a likelihood that is not Gaussian another size may be the best.
    sizes = [1 << i for i in range(6) if 1 << i < len(path)] if post.gaussian else []
    return [path[int(np.argmax(value))], *(path[-1 - k] for k in sizes)]


def _of_units(inverse: Array, b: Any, unit: Ints) -> tuple[Array, Array]:
    """Return what each unit explains besides the others, and the change of log det if it leaves."""
    free = np.flatnonzero(unit >= 0)
    border = np.flatnonzero(np.diff(unit[free])) + 1
    if border.size == free.size - 1:
        diagonal = np.maximum(inverse.diagonal()[free], 1e-300)
        return b[free] ** 2 / diagonal, np.log(diagonal)
    places = np.split(free, border)
    blocks = [inverse[np.ix_(at, at)] for at in places]
    loss = [b[at] @ np.linalg.solve(block, b[at]) for at, block in zip(places, blocks, strict=True)]
    return np.array(loss), np.array([np.linalg.slogdet(block)[1] for block in blocks])


def models_with_pairs(problem: Problem, model: Ints) -> list[Ints]:
    """Return a model with pairs of columns that only together explain much of what it leaves."""
    p, left, length = problem.free.size, problem.left(model), problem.lengths
    if not 2 < p <= MOST_PAIRED or not left @ left > 1e-12:
        return []
    c = problem.combined(left[:, None])[:, 0] / (length * np.linalg.norm(left))
    c[problem.columns_of(model)] = 0.0
    # What the best of all pairs of noise explains.
    pairs = _near_pairs(problem, c, -np.expm1(-4.0 * np.log(p) / problem.n_rows))
    at, place = np.unique(pairs, return_inverse=True)
    x = problem.part(at) / length[at]
    i, j = place.reshape(pairs.shape)
    r = np.einsum("ij,ij->j", x[:, i], x[:, j])
    order = np.argsort(-_of_pairs(c[pairs[0]], c[pairs[1]], r), kind="stable")[:_TRIED]
    return [np.union1d(model, units) for units in problem.unit_of[pairs[:, order]].T]


def _of_pairs(c_i: Any, c_j: Any, r: Array) -> Array:
    """Return what pairs explain, from their products with the response and with each other."""
    return np.asarray((c_i**2 + c_j**2 - 2.0 * r * c_i * c_j) / np.maximum(1.0 - r**2, 1e-6))


def _near_pairs(problem: Problem, c: Array, least: float) -> Ints:
    """Return pairs of columns, (2, n), that may explain ``least``, given what each explains.

    A pair explains (c_i - r c_j)^2 / (1 - r^2) + c_j^2 <= (|c_i| + |c_j|)^2 / (1 - |r|), so only
    pairs with 1 - |r| <= 2 (c_i^2 + c_j^2) / least are of interest. Where there are too many for
    their r, it is that of a few random combinations of the rows: the nearer to 1, the more exact.
    """
    n, p = problem.n_data, problem.free.size
    if n * p * p <= _PAIR_WORK:
        x = problem.part(np.arange(p)).astype(np.float32)
    else:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(n, _SKETCH))
        x = problem.combined(signs).T.astype(np.float32)
    slack = 2.0 * c**2 / least
    order = np.argsort(-slack, kind="stable")
    height, width = _TILE[0], min(_TILE[1], p + -p % _TILE[0])
    more = -p % width
    slack = np.pad(slack[order], (0, more), constant_values=-np.inf).astype(np.float32)
    x = np.pad(x[:, order] / np.linalg.norm(x[:, order], axis=0), ((0, 0), (0, more)))
    c = np.pad(c[order], (0, more))
    found, value = [np.empty((2, 0), dtype=np.int64)], [np.empty(0)]
    # The same memory for all tiles: that of new arrays takes longer than what is computed.
    tile = np.empty((height, width), dtype=np.float32)
    close = np.empty((height, width), dtype=np.bool_)
    for low in range(0, p, height):
        rows = np.ascontiguousarray(x[:, low : low + height].T)
        for high in range(low - low % width, p, width):
            np.matmul(rows, x[:, high : high + width], out=tile)
            np.abs(tile, out=tile)
            np.greater_equal(tile, 1.0 - slack[low] - slack[max(low, high)], out=close)
            near = np.flatnonzero(close)
            if not near.size:
                continue
            i, j = low + near // width, high + near % width
            kept = (i < j) & (tile.ravel()[near] >= 1.0 - slack[i] - slack[j])
            i, j = i[kept], j[kept]
            r = np.einsum("ij,ij->j", x[:, i], x[:, j]).astype(np.float64)
            explained = _of_pairs(c[i], c[j], r)
            if i.size > _OF_TILE:
                best = np.argpartition(-explained, _OF_TILE)[:_OF_TILE]
                i, j, explained = i[best], j[best], explained[best]
            found.append(order[np.array([i, j])])
            value.append(explained)
    best = np.argsort(-np.concatenate(value), kind="stable")[:_COMPARED]
    return np.concatenate(found, axis=1)[:, best]


def better_model(problem: Problem, model: Ints, promise: Array | None) -> tuple[float, Ints]:
    """Return log p and units of the best model found from a model, and on the way down."""
    ways = [] if promise is None else models_down(problem, promise)
    best = max(((problem.log_p(units), k, units) for k, units in enumerate([model, *ways])))
    while True:
        log_p, _, model = best
        pairs = models_with_pairs(problem, model)
        best = max((problem.log_p(units), k, units) for k, units in enumerate([model, *pairs]))
        if not best[0] > log_p + 1e-9:
            return log_p, model


def largest_of_path(problem: Problem) -> Ints:
    """Return the units of the largest model on the lasso path of the most correlated columns."""
    post, n = problem.posterior, problem.free.size
    promise = problem.score[:n] ** 2 / post.square[:n]
    chosen = np.sort(np.argsort(-promise, kind="stable")[:_PATH_COLUMNS])
    x = problem.part(chosen)
    length = np.linalg.norm(x, axis=0)
    gram = (x.T @ x) / np.outer(length, length)
    steps = min(_PATH_STEPS, max(1, int(problem.n_rows) // 4), problem.most // 2 + 1)
    with warnings.catch_warnings():
        # Of collinear columns the path drops some: any large model will do.
        warnings.simplefilter("ignore", ConvergenceWarning)
        path = lars_path_gram(
            Xy=problem.score[chosen] / length,
            Gram=gram,
            n_samples=int(problem.n_rows),
            method="lasso",
            max_iter=steps,
            eps=1e-10,
        )
    found: list[int] = []
    for unit in problem.unit_of[chosen[np.asarray(path[1], dtype=np.int64)]].tolist():
        if unit not in found and _independent(problem, [*found, unit]):
            found.append(unit)
    return np.sort(np.array(found, dtype=np.int64))


def _independent(problem: Problem, units: list[int]) -> bool:
    """Whether a model of some units is possible, and its columns are far from collinear."""
    columns = problem.columns_of(units)
    if columns.size > min(problem.most_columns, problem.n_rows / 2):
        return False
    x = problem.part(columns)
    x /= np.linalg.norm(x, axis=0)
    return bool(np.linalg.eigvalsh(x.T @ x)[0] > 1e-3)
