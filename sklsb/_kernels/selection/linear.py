"""What is left of columns given the included ones: entering, leaving, rebuilding."""

import math

import numpy as np

from sklsb._kernels._jit import called, inlined
from sklsb._kernels.selection.columns import product, spread
from sklsb._kernels.selection.state import (
    EXPLAINED,
    FRESH,
    K_COLUMNS,
    K_UNITS,
    LOG_DET,
    LOG_FIT,
    LOG_REST,
    N_COLUMNS,
    N_UNITS,
)

# Relative error of what is left of a column, found by a flip, at which everything is rebuilt.
DRIFT = 1e-8
# Largest diagonal entry of the inverse, 1 / (1 - R^2), above which every flip is followed by that.
ILL = 1e3
# Columns in a part of a rank-one change that stays in the fast memory.
_PART = 1024


@called
def gram_row(columns, posterior, window, m):
    """Return the slot with the products of local column m with all of the window; made if need be.

    The slot of a column that is not included is used again when slots run out.
    """
    if window.slot[m] >= 0:
        return window.slot[m]
    n_slots = window.gram.shape[0]
    s = window.owner[n_slots]
    while window.owner[s] >= 0 and window.place[window.owner[s]] >= 0:
        s = (s + 1) % n_slots
    window.owner[n_slots] = (s + 1) % n_slots
    if window.owner[s] >= 0:
        window.slot[window.owner[s]] = -1
    window.owner[s] = m
    window.slot[m] = s
    whole = window.column[m]
    spread(columns, whole, window.dense)
    for j in range(window.size[N_COLUMNS]):
        window.gram[s, j] = product(columns, window.column[j], whole, window.dense)
    window.gram[s, m] += posterior.ridge[whole]
    return s


@inlined
def diagonal(columns, posterior, window, j):
    """Return M_jj of local column j."""
    whole = window.column[j]
    if columns.weight.size == 0:
        return posterior.square[whole]
    spread(columns, whole, window.dense)
    return product(columns, whole, whole, window.dense) + posterior.ridge[whole]


@called
def invert_factor(f, k):
    """Replace a lower triangular matrix of k rows by its inverse."""
    for j in range(k):
        f[j, j] = 1.0 / f[j, j]
        for i in range(j + 1, k):
            total = 0.0
            for q in range(j, i):
                total -= f[i, q] * f[q, j]
            f[i, j] = total / f[i, i]


@called
def factorise(f, k, least):
    """Replace the lower triangle of a matrix by its Cholesky factor; return log det.

    NaN if the square of a pivot is not above ``least``.
    """
    log_det = 0.0
    for i in range(k):
        for j in range(i + 1):
            total = f[i, j]
            for q in range(j):
                total -= f[i, q] * f[j, q]
            if i == j:
                if not total > least:
                    return np.nan
                log_det += math.log(total)
                f[i, i] = math.sqrt(total)
            else:
                f[i, j] = total / f[j, j]
    return log_det


@called
def _invert(window, k):
    """Compute the inverse from the Cholesky factor, which is overwritten."""
    f, inverse = window.factor, window.inverse
    invert_factor(f, k)
    for i in range(k):
        for j in range(i + 1):
            total = 0.0
            for q in range(i, k):
                total += f[q, i] * f[q, j]
            inverse[i, j] = total
            inverse[j, i] = total


@called
def _subtract_explained(posterior, window, k):
    """Subtract from u and v what the included columns explain, by forward substitution.

    It is as accurate for nearly collinear columns as the products themselves; the inverse is not.
    """
    f, rows, w = window.factor, window.rows, window.size[N_COLUMNS]
    for r in range(k):
        m = window.included[r]
        source, z = window.gram[window.slot[m]], posterior.z[window.column[m]]
        scale = 1.0 / f[r, r]
        for j in range(w):
            rows[r, j] = source[j]
        for q in range(r):
            factor, above = f[r, q], rows[q]
            z -= factor * window.a[q]
            for j in range(w):
                rows[r, j] -= factor * above[j]
        z *= scale
        window.a[r] = z
        for j in range(w):
            entry = rows[r, j] * scale
            rows[r, j] = entry
            window.u[j] -= entry * entry
            window.v[j] -= entry * z


@called
def rebuild(columns, posterior, window):
    """Compute all that is kept from the included columns."""
    k, w = window.size[K_COLUMNS], window.size[N_COLUMNS]
    if window.size[FRESH]:  # weights or columns have changed: forget the rows of the Gram matrix
        window.owner[:-1] = -1
        window.owner[-1] = 0
        window.slot[:w] = -1
        window.size[FRESH] = 0
    window.place[:w] = -1
    for i in range(k):
        window.place[window.included[i]] = i
    for i in range(k):
        gram_row(columns, posterior, window, window.included[i])
    for i in range(k):
        for j in range(i + 1):
            window.factor[i, j] = window.gram[window.slot[window.included[i]], window.included[j]]
    for j in range(w):
        window.u[j] = diagonal(columns, posterior, window, j)
        window.v[j] = posterior.z[window.column[j]]
    window.number[LOG_DET] = factorise(window.factor, k, 0.0)
    _subtract_explained(posterior, window, k)
    explained = 0.0
    for i in range(k):
        explained += window.a[i] * window.a[i]
    _invert(window, k)
    for i in range(k):
        window.b[i] = 0.0
        for q in range(i, k):
            window.b[i] += window.factor[q, i] * window.a[q]
    _set_fit(posterior, window, explained)
    _hide_included(window)
    if window.block.size > 0:
        for unit in range(window.size[N_UNITS]):
            if window.place[window.first[unit]] < 0:
                _block_anew(columns, posterior, window, unit)
    _rest_anew(posterior, window)


@inlined
def largest_entry(window):
    """Return the largest diagonal entry of the inverse, or 1."""
    largest = 1.0
    for i in range(window.size[K_COLUMNS]):
        largest = max(largest, window.inverse[i, i])
    return largest


@inlined
def _hide_included(window):
    """Give included columns harmless values of u and v."""
    for i in range(window.size[K_COLUMNS]):
        window.u[window.included[i]] = 1.0
        window.v[window.included[i]] = 0.0


@inlined
def _rest_anew(posterior, window):
    """Sum the part of log p that is not the fit."""
    total = posterior.size_term[window.size[K_UNITS] - posterior.n_always]
    for unit in range(window.size[N_UNITS]):
        if window.place[window.first[unit]] >= 0:
            total += posterior.log_odds[window.unit[unit]]
    window.number[LOG_REST] = total - posterior.det_weight * window.number[LOG_DET]


@called
def _block_anew(columns, posterior, window, unit):
    """Compute what is left of a group of columns that are not included."""
    first, last = window.first[unit], window.first[unit + 1]
    d = last - first
    if d == 1:
        return
    k = window.size[K_COLUMNS]
    for i in range(d):
        whole = window.column[first + i]
        spread(columns, whole, window.dense)
        for j in range(i + 1):
            total = product(columns, window.column[first + j], whole, window.dense)
            if i == j:
                total += posterior.ridge[whole]
            for r in range(k):
                row = window.gram[window.slot[window.included[r]]]
                for q in range(k):
                    other = window.gram[window.slot[window.included[q]]]
                    total -= row[first + i] * window.inverse[r, q] * other[first + j]
            window.cross[window.block[unit] + i * d + j] = total
            window.cross[window.block[unit] + j * d + i] = total


@inlined
def explain(posterior, window):
    """Compute b, Q and the fit from the inverse."""
    k = window.size[K_COLUMNS]
    window.b[:k] = 0.0
    for q in range(k):
        z = posterior.z[window.column[window.included[q]]]
        for i in range(k):
            window.b[i] += window.inverse[q, i] * z
    explained = 0.0
    for i in range(k):
        explained += window.b[i] * posterior.z[window.column[window.included[i]]]
    _set_fit(posterior, window, explained)


@inlined
def _set_fit(posterior, window, explained):
    """Keep Q and the fit."""
    window.number[EXPLAINED] = explained
    if posterior.gaussian:
        window.number[LOG_FIT] = 0.5 * explained
    else:
        error = 1.0 - posterior.shrink * explained
        window.number[LOG_FIT] = -posterior.exponent * math.log(error)


@inlined
def _change_all(posterior, window, k, by, scale):
    """Add scale times the rank-one change along the direction with coefficients ``a``.

    The direction is the sum of a_i times the Gram rows of the first k columns of ``included``.
    """
    w = window.size[N_COLUMNS]
    for low in range(0, w, _PART):
        high = min(low + _PART, w)
        window.change[low:high] = 0.0
        for i in range(k):
            factor, row = window.a[i], window.gram[window.slot[window.included[i]]]
            for j in range(low, high):
                window.change[j] += factor * row[j]
        for j in range(low, high):
            window.u[j] += scale * window.change[j] * window.change[j]
            window.v[j] += scale * window.change[j] * by
    if window.block.size > 0:
        for unit in range(window.size[N_UNITS]):
            first, d = window.first[unit], window.first[unit + 1] - window.first[unit]
            if d > 1:
                place = window.block[unit]
                for i in range(d):
                    for j in range(d):
                        product = window.change[first + i] * window.change[first + j]
                        window.cross[place + i * d + j] += scale * product


@called
def _enter(columns, posterior, window, m):
    """Include local column m; return the relative error that was found."""
    k = window.size[K_COLUMNS]
    slot = gram_row(columns, posterior, window, m)
    fresh = window.gram[slot, m]
    window.a[:k] = 0.0
    for q in range(k):
        product = window.gram[slot, window.included[q]]
        for i in range(k):
            window.a[i] -= window.inverse[q, i] * product
    for i in range(k):
        fresh += window.a[i] * window.gram[slot, window.included[i]]
    left, by = window.u[m], window.v[m]
    error = abs(left - fresh) / abs(fresh)
    window.included[k] = m
    window.place[m] = k
    window.a[k] = 1.0
    _change_all(posterior, window, k + 1, by, -1.0 / left)
    for i in range(k):
        factor = window.a[i] / left
        for q in range(k):
            window.inverse[i, q] += factor * window.a[q]
        window.inverse[i, k] = factor
        window.inverse[k, i] = factor
    window.inverse[k, k] = 1.0 / left
    window.number[LOG_DET] += math.log(left)
    window.size[K_COLUMNS] = k + 1
    return error


@called
def _leave(posterior, window, m):
    """Exclude local column m; return the relative error that was found."""
    k, s = window.size[K_COLUMNS], window.place[m]
    diagonal, by = window.inverse[s, s], window.b[s]
    row, error = window.gram[window.slot[m]], -1.0
    for i in range(k):
        window.a[i] = window.inverse[s, i]
        error += window.a[i] * row[window.included[i]]
    _change_all(posterior, window, k, by, 1.0 / diagonal)
    for i in range(k):
        if i != s:
            factor = window.a[i] / diagonal
            window.b[i] -= factor * by
            for q in range(k):
                if q != s:
                    window.inverse[i, q] -= factor * window.a[q]
    window.place[m] = -1
    window.u[m] = 1.0 / diagonal
    window.v[m] = by / diagonal
    last = k - 1
    if s != last:  # the last one takes its place
        for i in range(k):
            window.inverse[s, i] = window.inverse[last, i]
        for i in range(k):
            window.inverse[i, s] = window.inverse[i, last]
        window.b[s] = window.b[last]
        window.included[s] = window.included[last]
        window.place[window.included[s]] = s
    window.number[LOG_DET] += math.log(diagonal)
    window.size[K_COLUMNS] = last
    return abs(error)


@called
def flip(columns, posterior, window, unit):
    """Include or exclude a local unit, with all that is kept."""
    first, last = window.first[unit], window.first[unit + 1]
    enters = window.place[first] < 0
    k = window.size[K_UNITS] - posterior.n_always
    before = posterior.size_term[k] - posterior.det_weight * window.number[LOG_DET]
    error = 0.0
    for m in range(first, last):
        if enters:
            error = max(error, _enter(columns, posterior, window, m))
        else:
            error = max(error, _leave(posterior, window, m))
        _hide_included(window)
    step = 1 if enters else -1
    window.size[K_UNITS] += step
    if not enters and window.block.size > 0:
        _block_anew(columns, posterior, window, unit)
    after = posterior.size_term[k + step] - posterior.det_weight * window.number[LOG_DET]
    window.number[LOG_REST] += step * posterior.log_odds[window.unit[unit]] + after - before
    if largest_entry(window) > ILL or not error <= DRIFT:
        rebuild(columns, posterior, window)
    else:
        explain(posterior, window)
