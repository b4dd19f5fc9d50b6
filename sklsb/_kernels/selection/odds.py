"""Odds and rates of all units of a window."""

import math

import numpy as np

from sklsb._kernels._jit import called, inlined
from sklsb._kernels.numeric import exp
from sklsb._kernels.selection.linear import factorise, gram_row, invert_factor, largest_entry
from sklsb._kernels.selection.state import (
    EXPLAINED,
    K_COLUMNS,
    K_UNITS,
    LANES,
    N_FREE,
    N_UNITS,
)

# Largest log-odds whose exponential is used: probabilities are 1 there, of rates ratios count.
_LARGEST = 600.0
_SMALLEST = 1e-300
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROOT_BITS = int(np.float64(math.sqrt(0.5)).view(np.int64))
_MANTISSA = (1 << 52) - 1


@inlined
def log(x):
    """Log of a positive normal number, within 2 ulp of the larger of 1 and the result; vectorises.

    With x = 2^e m and m from sqrt(1/2) to sqrt(2), log m = 2 artanh((m - 1) / (m + 1)).
    """
    bits = np.float64(x).view(np.int64) - _ROOT_BITS
    e = np.float64(bits >> 52)
    m = np.int64((bits & _MANTISSA) + _ROOT_BITS).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    r = 1.0 / 15.0 + q * (1.0 / 17.0 + q * (1.0 / 19.0 + q * (1.0 / 21.0)))
    r = 1.0 / 9.0 + q * (1.0 / 11.0 + q * (1.0 / 13.0 + q * r))
    r = 1.0 / 3.0 + q * (1.0 / 5.0 + q * (1.0 / 7.0 + q * r))
    return e * _LOG2_HIGH + (2.0 * s + (2.0 * s * (q * r) + e * _LOG2_LOW))


@inlined
def _single(posterior, window, j, unit, error):
    """Compute what single column j, not included, would explain, its coefficient, and its u."""
    mean = posterior.shrink * window.v[j] / window.u[j]
    gain = mean * window.v[j]
    own = 0.0 if posterior.gaussian else gain
    window.mean[j] = mean
    window.variance[j] = posterior.shrink / window.u[j] * (error - own)
    window.fit[unit] = gain
    window.rest[unit] = window.u[j]


@called
def _factorise(window, matrix, d):
    """Write the inverse of the Cholesky factor of a matrix (d * d entries) into ``factor``.

    Return the log determinant and the largest diagonal entry of the inverse; -inf and inf if the
    matrix is singular.
    """
    f = window.factor
    for i in range(d):
        for j in range(i + 1):
            f[i, j] = matrix[i * d + j]
    log_det = factorise(f, d, 1e-14)
    if not log_det > -np.inf:
        return -np.inf, np.inf
    invert_factor(f, d)
    largest = 0.0
    for j in range(d):
        largest = max(largest, _diagonal(f, j, d))
    return log_det, largest


@inlined
def _diagonal(f, j, d):
    """Diagonal entry j of the inverse F'F of a matrix, from the inverse F of its factor."""
    total = 0.0
    for i in range(j, d):
        total += f[i, j] * f[i, j]
    return total


@called
def _group(columns, posterior, window, unit, error):
    """Compute the same for a group that is not included."""
    first, d = window.first[unit], window.first[unit + 1] - window.first[unit]
    log_det, largest = _factorise(window, window.cross[window.block[unit] :], d)
    possible = log_det > -np.inf and not posterior.least * largest >= 1.0
    if possible and posterior.least * (1.0 + d * d * largest) * largest_entry(window) >= 1.0:
        possible = not _collinear(columns, posterior, window, unit)
    window.fit[unit], window.rest[unit] = 0.0, 0.0
    window.mean[first : first + d] = 0.0
    window.variance[first : first + d] = 0.0
    if not possible:
        return
    f, gain = window.factor, 0.0
    for i in range(d):
        total = 0.0
        for j in range(i + 1):
            total += f[i, j] * window.v[first + j]
        gain += posterior.shrink * total * total
        for j in range(i + 1):
            window.mean[first + j] += posterior.shrink * f[i, j] * total
    own = 0.0 if posterior.gaussian else gain
    for j in range(d):
        window.variance[first + j] = posterior.shrink * _diagonal(f, j, d) * (error - own)
    window.fit[unit] = gain
    window.rest[unit] = max(math.exp(log_det), _SMALLEST)


@called
def _collinear(columns, posterior, window, unit):
    """Whether including a unit makes 1 - R^2 of an included column too small.

    ``factor`` holds the inverse of the Cholesky factor of what is left of the unit.
    """
    k, first, last = window.size[K_COLUMNS], window.first[unit], window.first[unit + 1]
    for m in range(first, last):
        gram_row(columns, posterior, window, m)
    for i in range(k):
        entry = window.inverse[i, i]
        for r in range(last - first):
            total = 0.0
            for j in range(r + 1):
                row, a = window.gram[window.slot[first + j]], 0.0
                for q in range(k):
                    a += window.inverse[i, q] * row[window.included[q]]
                total += window.factor[r, j] * a
            entry += total * total
        if posterior.least * entry >= 1.0:
            return True
    return False


@inlined
def _guard(columns, posterior, window):
    """Mark single columns that would make the model impossible by rest = 0."""
    close = posterior.least * largest_entry(window)
    for unit in range(window.size[N_UNITS]):
        m = window.first[unit]
        if window.u[m] <= close and window.place[m] < 0 and window.first[unit + 1] == m + 1:
            bad = window.u[m] <= posterior.least
            if not bad:
                window.factor[0, 0] = 1.0 / math.sqrt(window.u[m])
                bad = _collinear(columns, posterior, window, unit)
            if bad:
                window.rest[unit] = 0.0
                window.fit[unit] = 0.0
                window.mean[m] = 0.0
                window.variance[m] = 0.0


@called
def _stays(posterior, window, unit, error):
    """Compute fit and rest of the odds of an included unit, from its block of the inverse."""
    first, d = window.first[unit], window.first[unit + 1] - window.first[unit]
    for i in range(d):
        s = window.place[first + i]
        window.mean[first + i] = posterior.shrink * window.b[s]
        window.variance[first + i] = posterior.shrink * window.inverse[s, s] * error
    if d == 1:
        s = window.place[first]
        gain = window.b[s] * window.b[s] / window.inverse[s, s]
        log_det = math.log(window.inverse[s, s])
    else:
        matrix = window.cross[window.block[unit] :]  # scratch while the unit is included
        for i in range(d):
            for j in range(d):
                matrix[i * d + j] = window.inverse[window.place[first + i], window.place[first + j]]
        log_det, _ = _factorise(window, matrix, d)
        gain = 0.0
        for i in range(d):
            total = 0.0
            for j in range(i + 1):
                total += window.factor[i, j] * window.b[window.place[first + j]]
            gain += total * total
    gain *= posterior.shrink
    k = window.size[K_UNITS] - posterior.n_always
    if posterior.gaussian:
        window.fit[unit] = 0.5 * gain
    else:
        window.fit[unit] = posterior.exponent * math.log1p(gain / error)
    down = posterior.size_term[k] - posterior.size_term[max(k - 1, 0)]
    window.rest[unit] = posterior.log_odds[window.unit[unit]] + down
    window.rest[unit] += posterior.det_weight * log_det


@inlined
def _fit_and_rest(posterior, window, error):
    """Turn what units would explain, and what is left of them, into fit and rest of their odds."""
    n, k = window.size[N_UNITS], window.size[K_UNITS] - posterior.n_always
    up = posterior.size_term[k + 1] - posterior.size_term[k]
    if posterior.gaussian:
        for j in range(n):
            window.fit[j] *= 0.5
    else:
        inverse = 1.0 / error
        for j in range(n):
            remains = max(1.0 - window.fit[j] * inverse, _SMALLEST)
            window.fit[j] = -posterior.exponent * log(remains)
    if posterior.det_weight > 0.0:
        for j in range(n):
            left = window.rest[j]
            rest = window.log_odds[j] + up - posterior.det_weight * log(max(left, _SMALLEST))
            window.rest[j] = rest if left > 0.0 else -np.inf
    else:
        for j in range(n):
            window.rest[j] = window.log_odds[j] + up if window.rest[j] > 0.0 else -np.inf


@inlined
def _rates(rates, window):
    """Compute probabilities and rates; return the sum of the rates."""
    n, free = window.size[N_UNITS], window.size[N_FREE]
    if rates.power == 1.0:
        for j in range(n):
            o = exp(min(window.fit[j] + window.rest[j], _LARGEST))
            share = o / (1.0 + o)
            window.share[j] = share
            window.rate[j] = rates.barker * share + rates.leave * o
    else:
        for j in range(n):
            o = exp(min(window.fit[j] + window.rest[j], _LARGEST))
            window.share[j] = o / (1.0 + o)
            o = exp(min(rates.power * window.fit[j] + window.rest[j], _LARGEST))
            window.rate[j] = rates.barker * (o / (1.0 + o)) + rates.leave * o
    for i in range(window.size[K_COLUMNS]):
        unit = window.unit_of[window.included[i]]
        o = exp(min(rates.power * window.fit[unit] + window.rest[unit], _LARGEST))
        window.rate[unit] = rates.barker / (1.0 + o) + rates.leave
    total = _sum_by_lane(window, free)
    if rates.leave > 0.0 and total > 0.5 * rates.leave * math.exp(_LARGEST):
        _keep_ratios(rates, window)
        total = _sum_by_lane(window, free)
    return total


@called
def _keep_ratios(rates, window):
    """Divide huge rates of entering by one number, so that the largest does not overflow.

    Such a model is left at once, whatever the number, but by which unit depends on the ratios.
    """
    free, top = window.size[N_FREE], _LARGEST
    for j in range(free):
        if window.place[window.first[j]] < 0:
            top = max(top, rates.power * window.fit[j] + window.rest[j])
    for j in range(free):
        if window.place[window.first[j]] < 0:
            log_odds = rates.power * window.fit[j] + window.rest[j]
            window.rate[j] = rates.leave * math.exp(log_odds - top + _LARGEST)


@inlined
def _sum_by_lane(window, free):
    """Return the sum of the rates, and keep that of each lane."""
    window.lane[:] = 0.0
    whole = free - free % LANES
    for row in range(0, whole, LANES):
        for q in range(LANES):
            window.lane[q] += window.rate[row + q]
    for j in range(whole, free):
        window.lane[j - whole] += window.rate[j]
    total = 0.0
    for q in range(LANES):
        total += window.lane[q]
    return total


@inlined
def chosen(window, target):
    """Return the free unit in which the cumulated rates, lane by lane, exceed a number."""
    free, last = window.size[N_FREE], -1
    for q in range(LANES):
        if target >= window.lane[q] and q < min(LANES, free) - 1:
            target -= window.lane[q]
            continue
        for j in range(q, free, LANES):
            if window.rate[j] > 0.0:
                last = j
                if target < window.rate[j]:
                    return j
            target -= window.rate[j]
        break
    for j in range(free):  # rounding: no lane is left
        if last < 0 and window.rate[j] > 0.0:
            last = j
    return last


@called
def weigh(columns, posterior, rates, window):
    """Compute odds, probabilities and rates of all units; return the sum of the rates."""
    n = window.size[N_UNITS]
    error = 1.0
    if not posterior.gaussian:
        error = 1.0 - posterior.shrink * window.number[EXPLAINED]
    if window.block.size == 0:
        for j in range(n):
            _single(posterior, window, j, j, error)
    else:
        for unit in range(n):
            first = window.first[unit]
            if window.place[first] >= 0:
                continue
            if window.first[unit + 1] == first + 1:
                _single(posterior, window, first, unit, error)
            else:
                _group(columns, posterior, window, unit, error)
            d = window.first[unit + 1] - first
            if window.size[K_COLUMNS] + d > window.included.size:
                window.rest[unit] = 0.0
    if posterior.least > 0.0:
        _guard(columns, posterior, window)
    _fit_and_rest(posterior, window, error)
    for i in range(window.size[K_COLUMNS]):
        unit = window.unit_of[window.included[i]]
        if window.first[unit] == window.included[i]:
            _stays(posterior, window, unit, error)
    return _rates(rates, window)
