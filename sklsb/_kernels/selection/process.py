"""The jump process of a window."""

import math

import numpy as np

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.numeric import split_mix
from sklsb._kernels.selection.linear import flip, rebuild
from sklsb._kernels.selection.odds import chosen, weigh
from sklsb._kernels.selection.state import (
    BORDER,
    CDF_STEPS,
    EXPLAINED,
    JUMPS,
    K_COLUMNS,
    K_UNITS,
    LARGEST,
    LARGEST_FIT,
    LARGEST_LOG_WEIGHT,
    LOG_FIT,
    LOG_REST,
    N_COLUMNS,
    N_FREE,
    ROOT_ERROR,
    TIME,
    WORK,
)

# Flips after which everything is rebuilt.
_EVERY = 500


@inlined
def _code(unit):
    """Return a random integer that stands for a unit in the hash of a model."""
    state, _ = split_mix(np.uint64(unit + 1))
    return np.uint64(split_mix(state)[1] * 2.0**53)


@called
def _note(posterior, window, models, weight):
    """Add time at the present model to the table, if it is there or there is room."""
    n = models.key.size
    key = window.word[1] + np.uint64(1)
    place = np.int64(key % np.uint64(n))
    while models.key[place] != 0 and models.key[place] != key:
        place = (place + 1) % n
    if models.key[place] == 0:
        k = window.size[K_UNITS] - posterior.n_always
        if 4 * models.n_kept[0] >= 3 * n or k > models.units.shape[1]:
            return
        models.key[place] = key
        models.n_kept[0] += 1
        models.log_p[place] = window.number[LOG_FIT] + window.number[LOG_REST]
        models.size[place] = k
        k = 0
        for i in range(window.size[K_COLUMNS]):
            unit = window.unit_of[window.included[i]]
            fixed = window.unit[unit] >= posterior.first.size - 1 - posterior.n_always
            if window.first[unit] == window.included[i] and not fixed:
                models.units[place, k] = window.unit[unit]
                k += 1
    models.time[place] += weight


@inlined
def _add(posterior, window, sums, models, weight):
    """Add the present state, with its weight, to the sums."""
    free = window.size[N_FREE]
    if window.block.size == 0:
        for j in range(free):
            part = weight * window.share[j]
            mean = window.mean[j]
            window.sum_share[j] += part
            window.sum_mean[j] += part * mean
            window.sum_square[j] += part * (mean * mean + posterior.spread * window.variance[j])
    else:
        for j in range(free):
            window.sum_share[j] += weight * window.share[j]
        for j in range(window.first[free]):
            part, mean = weight * window.share[window.unit_of[j]], window.mean[j]
            window.sum_mean[j] += part * mean
            window.sum_square[j] += part * (mean * mean + posterior.spread * window.variance[j])
    k = window.size[K_UNITS] - posterior.n_always
    error = 1.0 - posterior.shrink * window.number[EXPLAINED]
    sums.sizes[k] += weight
    sums.total[TIME] += weight
    if not posterior.gaussian:
        sums.total[ROOT_ERROR] += weight * math.sqrt(error)
    sums.total[LARGEST] = max(sums.total[LARGEST], np.float64(k))
    _note(posterior, window, models, weight)


@called
def _end(posterior, window, sums, weight):
    """Add the last state of a window, a draw at a fixed time, and empty the sums of the window."""
    cdf, last = posterior.cdf, posterior.cdf.size - 1
    for j in range(window.first[window.size[N_FREE]]):
        share = weight * window.share[window.unit_of[j]]
        positive = 0.5
        if window.variance[j] > 0.0:
            z = posterior.studentize * window.mean[j] / math.sqrt(window.variance[j])
            a = min(abs(z) * CDF_STEPS, last - 1e-9)
            i = np.int64(a)
            positive = cdf[i] + (a - i) * (cdf[i + 1] - cdf[i])
            positive = positive if z > 0.0 else 1.0 - positive
        whole = window.column[j]
        sums.present[whole] += share
        sums.positive[whole] += share * positive
        sums.mean[whole] += window.sum_mean[j]
        sums.square[whole] += window.sum_square[j]
        window.sum_mean[j] = 0.0
        window.sum_square[j] = 0.0
    sums.total[BORDER] = weight


@called
def _hash(posterior, window):
    """Compute the hash of the present model."""
    window.word[1] = 0
    for i in range(window.size[K_COLUMNS]):
        unit = window.unit_of[window.included[i]]
        if window.first[unit] == window.included[i]:
            window.word[1] ^= _code(window.unit[unit])


@kernel
def run_window(columns, posterior, rates, window, sums, models, span):
    """Run the process for the time span[0], or until span[1] jumps were made if that is not 0.

    ``window.word[0]`` is the state of the random numbers. ``sums`` and ``models`` are added to.
    """
    rebuild(columns, posterior, window)
    _hash(posterior, window)
    left, most, jumps = span[0], span[1], 0
    before, weight = sums.total[TIME], 1.0
    while True:
        total = weigh(columns, posterior, rates, window)
        sums.total[WORK] += np.float64(window.size[N_COLUMNS])
        fit = window.number[LOG_FIT]
        sums.total[LARGEST_FIT] = max(sums.total[LARGEST_FIT], fit)
        weight = 1.0
        if rates.power != 1.0:
            log_weight = (1.0 - rates.power) * fit - rates.shift
            weight = math.exp(min(log_weight, LARGEST_LOG_WEIGHT))
        mean_time = left
        if total * left > 1e-12:
            mean_time = -math.expm1(-total * left) / total
        _add(posterior, window, sums, models, weight * mean_time)
        if not total > 0.0 or (most > 0.0 and jumps >= most):
            break
        window.word[0], r = split_mix(window.word[0])
        left += math.log(1.0 - r) / total
        if left <= 0.0:
            break
        window.word[0], r = split_mix(window.word[0])
        unit = chosen(window, r * total)
        window.word[1] ^= _code(window.unit[unit])
        flip(columns, posterior, window, unit)
        jumps += 1
        if jumps % _EVERY == 0:
            rebuild(columns, posterior, window)
    sums.total[JUMPS] += np.float64(jumps)
    for j in range(window.size[N_FREE]):
        whole = window.unit[j]
        sums.share[whole] += window.sum_share[j]
        sums.time[whole] += sums.total[TIME] - before
        window.sum_share[j] = 0.0
    _end(posterior, window, sums, weight)
