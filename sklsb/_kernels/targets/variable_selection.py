"""Selection of the columns of a linear regression, in the kernels."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, implements, inlined
from sklsb._kernels.contract import flip, init_cache, log_prob, log_ratio


class VariableSelectionView(NamedTuple):
    """Gram matrix M of the columns; its last column has their products with y.

    With F = L^-1 [M y] for M = L L' of the included columns, in the order of ``rank``,

        log p = size_term[k] - det_weight * log det M - exponent * log E,   E = 1 - sum F_y^2.

    The cache holds, as floats: F, one row of p + 1 per included column; two rows of sums over F
    (`_selection_sums`); the largest diagonal entry of M^-1. Then, as integers: the number of
    included columns, and these. F and the sums are recomputed in a fixed order from the first row
    that a flip changes. Unused entries are zero and never written: their memory is never claimed.
    """

    gram: NDArray[np.float64]  # (p, p + 1)
    size_term: NDArray[np.float64]  # by k, -inf: no such model
    rank: NDArray[np.uint32]
    exponent: float
    det_weight: float
    least: float  # 1 / (largest diagonal entry of M^-1) below which a model is impossible
    n_rows: int  # most columns of a possible model, plus one
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]

    @property
    def cache_size(self) -> int:
        return (self.n_rows + 2) * self.gram.shape[1] + 2 + self.gram.shape[0]


@inlined
def _selection_places(view):
    """Return where in the cache the sums, the largest entry and the list of columns begin."""
    sums = np.uint64(view.n_rows) * np.uint64(view.gram.shape[1])
    largest = sums + np.uint64(2 * view.gram.shape[1])
    return sums, largest, largest + np.uint64(1)


@inlined
def _selection_row(view, f, columns, r):
    """Compute row r of F from the rows above it.

    In the column of the i-th included one, M vanishes below row i; L^-1 is written there instead.
    The row of a column that the ones above it explain is zero.
    """
    width = np.uint64(view.gram.shape[1])
    column = columns[r]
    row = r * width
    for j in range(width):
        f[row + j] = view.gram[column, j]
    for q in range(r):
        above = q * width
        factor = f[above + column]
        f[row + columns[q]] = 0.0
        for j in range(width):
            f[row + j] -= factor * f[above + j]
    pivot = f[row + column]
    scale = 1.0 / math.sqrt(pivot) if pivot > view.least else 0.0
    f[row + column] = 1.0
    for j in range(width):
        f[row + j] *= scale


@inlined
def _selection_sums(view, f, columns, k):
    """Sum F_j^2 and F_j F_y over the rows, for each column j; if it is included, from its row on.

    These are the diagonal of M^-1 and M^-1 M_y for included columns, and what they explain of M_jj
    and M_jy for the others. Return the largest diagonal entry of M^-1.
    """
    width = np.uint64(view.gram.shape[1])
    square = np.uint64(view.n_rows) * width
    product = square + width
    for j in range(square, product + width):
        f[j] = 0.0
    for r in range(k):
        row = r * width
        by_y = f[row + width - np.uint64(1)]
        f[square + columns[r]] = 0.0
        f[product + columns[r]] = 0.0
        for j in range(width):
            f[square + j] += f[row + j] * f[row + j]
            f[product + j] += f[row + j] * by_y
    largest = 0.0
    for r in range(k):
        singular = f[r * width + columns[r]] == 0.0
        largest = np.inf if singular else max(largest, f[square + columns[r]])
    return largest


@called
def _selection_refresh(view, chain, first):
    """Recompute all that depends on the included columns from place ``first`` on."""
    f = chain.cache.view(np.float64)
    _, largest, size = _selection_places(view)
    columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
    k = min(np.uint64(chain.cache[size]), np.uint64(view.n_rows))
    for r in range(first, k):
        _selection_row(view, f, columns, np.uint64(r))
    f[largest] = _selection_sums(view, f, columns, k)


@inlined
def _selection_possible(view, chain):
    """Return whether the state is possible, E, and the number of included columns."""
    _, largest, size = _selection_places(view)
    f = chain.cache.view(np.float64)
    k = np.uint64(chain.cache[size])
    error = 1.0 - f[largest - np.uint64(view.gram.shape[1] + 1)]
    possible = view.least * f[largest] < 1.0 and view.size_term[k] > -np.inf
    return possible, error, k


@called
def _selection_collinear(view, chain, move, left):
    """Whether adding a column, of which ``left`` is unexplained, makes the model impossible."""
    sums, _, size = _selection_places(view)
    f = chain.cache.view(np.float64)
    columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
    width, k = np.uint64(view.gram.shape[1]), np.uint64(chain.cache[size])
    for i in range(k):
        coefficient = 0.0
        for r in range(i, k):
            coefficient += f[r * width + columns[i]] * f[r * width + move]
        diagonal = f[sums + columns[i]] + coefficient * coefficient / left
        if view.least * diagonal >= 1.0:
            return True
    return False


@implements(init_cache, VariableSelectionView)
def _init_cache(view, chain):
    _, _, size = _selection_places(view)
    width = np.uint64(view.gram.shape[1])
    before = min(np.uint64(chain.cache[size]), np.uint64(view.n_rows))
    for j in range(before * width):
        chain.cache[j] = 0
    for j in range(size, np.uint64(chain.cache.size)):
        chain.cache[j] = 0
    for j in range(chain.x.size):
        if chain.x[j] != 0:
            _selection_insert(view, chain, np.uint64(j))
    _selection_refresh(view, chain, np.uint64(0))


@inlined
def _selection_insert(view, chain, column):
    """Add a column to the list, in the order of rank; return its place."""
    size = _selection_places(view)[2]
    columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
    place = np.uint64(chain.cache[size])
    while place > 0 and view.rank[columns[place - np.uint64(1)]] > view.rank[column]:
        columns[place] = columns[place - np.uint64(1)]
        place -= np.uint64(1)
    columns[place] = column
    chain.cache[size] += 1
    return place


@inlined
def _selection_remove(view, chain, column):
    """Remove a column from the list and clear the last row; return its place."""
    size = _selection_places(view)[2]
    columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
    chain.cache[size] -= 1
    last = np.uint64(chain.cache[size])
    place = np.uint64(0)
    while columns[place] != column:
        place += np.uint64(1)
    for i in range(place, last):
        columns[i] = columns[i + np.uint64(1)]
    columns[last] = 0
    if last < np.uint64(view.n_rows):
        width = np.uint64(view.gram.shape[1])
        for j in range(last * width, (last + np.uint64(1)) * width):
            chain.cache[j] = 0
    return place


@implements(flip, VariableSelectionView)
def _flip(view, chain, move):
    move = np.uint64(move)
    if chain.x[move] == 0:
        place = _selection_insert(view, chain, move)
    else:
        place = _selection_remove(view, chain, move)
    chain.x[move] = 1 - chain.x[move]
    _selection_refresh(view, chain, place)
    return move


@implements(log_ratio, VariableSelectionView)
def _log_ratio(view, chain, move):
    possible, error, k = _selection_possible(view, chain)
    if not possible:
        return 0.0
    one, last = np.uint64(1), np.uint64(view.gram.shape[1] - 1)
    sums, largest, _ = _selection_places(view)
    f = chain.cache.view(np.float64)
    square, product = f[sums + np.uint64(move)], f[sums + last + one + np.uint64(move)]
    if chain.x[move] != 0:
        change, left, after = product * product / square, square, k - one
    else:
        left, after = view.gram[move, move] - square, k + one
        if left <= view.least or view.size_term[after] == -np.inf:
            return -np.inf
        if view.least * f[largest] >= left and _selection_collinear(
            view, chain, np.uint64(move), left
        ):
            return -np.inf
        product = view.gram[move, last] - product
        change = -product * product / left
    result = (view.size_term[after] - view.size_term[k]) - view.exponent * math.log1p(
        change / error
    )
    if view.det_weight > 0.0:
        result -= view.det_weight * math.log(left)
    return result


@implements(log_prob, VariableSelectionView)
def _log_prob(view, chain):
    possible, error, k = _selection_possible(view, chain)
    if not possible:
        return -np.inf
    size = _selection_places(view)[2]
    width = np.uint64(view.gram.shape[1])
    f = chain.cache.view(np.float64)
    columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
    result = view.size_term[k] - view.exponent * math.log(error)
    if view.det_weight > 0.0:
        for r in range(k):
            result += (2.0 * view.det_weight) * math.log(f[r * width + columns[r]])
    return result
