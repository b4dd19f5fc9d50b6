"""The step of `Walkers`, compiled: a second form of ``sklsb/ensembles/_torch/walkers.py``.

Arrays have one row for each chain, and no row depends on another.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.numeric import Table, exp, log_weight

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class Weighing(NamedTuple):
    """How first-order log-ratios become weights."""

    table: Table
    excluded: NDArray[np.bool_]  # of padded moves; empty if none is
    flat: bool  # whether the table is constant 0


class Weighed(NamedTuple):
    """Log-ratios of padded moves, and their weights."""

    ratios: NDArray[np.floating]
    cumulative: NDArray[np.float64]  # of the weights, relative to the largest
    log_total: NDArray[np.float64]  # (n_chains, 1)


class Drawn(NamedTuple):
    """Moves drawn together, and their inverses; all (n_chains, n_flips) but ``active``."""

    move: NDArray[np.int64]
    site: NDArray[np.int64]
    back: NDArray[np.int64]
    active: NDArray[np.int64]  # (n_chains,): the first of them that are made


@inlined
def _usable(ratio):
    """Return a log-ratio without what there is at impossible states: NaN and inf become 0."""
    u = np.float64(ratio)
    return u if u < np.inf else 0.0


@inlined
def _log_weight(weighing, ratios, move):
    if weighing.excluded.size and weighing.excluded[move]:
        return -np.inf
    table = weighing.table
    return log_weight(table, np.uint64(0), table.value.size, _usable(ratios[move]))


@called
def _largest(row):
    """Return the largest number of a row; four at a time, for speed."""
    a = b = c = d = -1e30
    whole = row.size - row.size % 4
    for m in range(0, whole, 4):
        a, b = max(a, row[m]), max(b, row[m + 1])
        c, d = max(c, row[m + 2]), max(d, row[m + 3])
    for m in range(whole, row.size):
        a = max(a, row[m])
    return max(max(a, b), max(c, d))


@called
def _accumulate(row):
    """Replace numbers by their cumulative sums, in blocks of 8 that need not wait for each other.

    Sums never decrease: within a block all add to the same number.
    """
    before = 0.0
    whole = row.size - row.size % 8
    for m in range(0, whole, 8):
        a = row[m]
        b = a + row[m + 1]
        c = b + row[m + 2]
        d = c + row[m + 3]
        e = d + row[m + 4]
        f = e + row[m + 5]
        g = f + row[m + 6]
        h = g + row[m + 7]
        row[m], row[m + 1], row[m + 2], row[m + 3] = before + a, before + b, before + c, before + d
        row[m + 4], row[m + 5], row[m + 6] = before + e, before + f, before + g
        before += h
        row[m + 7] = before
    for m in range(whole, row.size):
        before += row[m]
        row[m] = before


@called
def _weigh(weighing, ratios, cumulative):
    """Fill the cumulative weights of one state; return the log of their sum."""
    if weighing.flat:
        for m in range(ratios.size):
            cumulative[m] = 0.5 * _usable(ratios[m])
    else:
        table = weighing.table
        for m in range(ratios.size):
            u = _usable(ratios[m])
            cumulative[m] = log_weight(table, np.uint64(0), table.value.size, u)
    for m in range(weighing.excluded.size):
        cumulative[m] = -np.inf if weighing.excluded[m] else cumulative[m]
    shift = _largest(cumulative)
    for m in range(ratios.size):
        cumulative[m] = exp(cumulative[m] - shift)
    _accumulate(cumulative)
    return np.log(cumulative[-1]) + shift


@kernel
def weigh(weighing, weighed):
    """Fill the cumulative weights and the logs of their sums."""
    for c in range(weighed.ratios.shape[0]):
        weighed.log_total[c, 0] = _weigh(weighing, weighed.ratios[c], weighed.cumulative[c])


@inlined
def _search(cumulative, wanted):
    """Return the first index whose sum is above a number, at most the last."""
    first, n = 0, cumulative.size
    while n > 1:
        half = n // 2
        first += half if cumulative[first + half - 1] <= wanted else 0
        n -= half
    return min(first + np.int64(cumulative[first] <= wanted), cumulative.size - 1)


@kernel
def select(cumulative, numbers, out):
    """Draw moves by uniform numbers."""
    for c in range(out.shape[0]):
        for r in range(out.shape[1]):
            out[c, r] = _search(cumulative[c], numbers[c, r] * cumulative[c, -1])


@kernel
def propose(x, cumulative, numbers, lazy, n_values, y, drawn):
    """Draw the moves of one transition and make them together.

    ``n_values`` of each site, or empty if all sites have two.
    """
    n_flips = drawn.move.shape[1]
    per_site = cumulative.shape[1] // max(1, x.shape[1])
    for c in range(x.shape[0]):
        active = n_flips - np.int64(n_flips > 1 and numbers[c, n_flips] >= 0.5)
        drawn.active[c] = active
        for i in range(x.shape[1]):
            y[c, i] = x[c, i]
        for r in range(n_flips):
            u = numbers[c, r]
            if r == 0 and lazy > 0.0:
                u = min(max((u - lazy) / (1.0 - lazy), 0.0), 1.0 - 2.0**-53)
            # An inactive draw stands where an active one does.
            move = drawn.move[c, 0]
            if r < active:
                move = _search(cumulative[c], u * cumulative[c, -1])
            drawn.move[c, r] = move
            if n_values.size == 0:
                drawn.site[c, r] = drawn.back[c, r] = move
                y[c, move] ^= np.int64(r < active)
            else:
                site = move // per_site
                drawn.site[c, r] = site
                if r < active:
                    shift = _shift(x[c, site], move - site * per_site)
                    y[c, site] = (y[c, site] + shift) % n_values[site]
        for r in range(n_flips if n_values.size else 0):
            site = drawn.site[c, r]
            now, k = np.int64(y[c, site]), n_values[site]
            then = (now - _shift(x[c, site], drawn.move[c, r] - site * per_site)) % k
            drawn.back[c, r] = site * per_site + then - np.int64(then > now)


@inlined
def _shift(value, other):
    """What a move to an other value adds to a value."""
    value = np.int64(value)
    return other + np.int64(other >= value) - value


@kernel
def decide(weighing, drawn, log_ratio, here, there, numbers, lazy, sums):
    """Weigh the moves of the proposed states, and accept or refuse these.

    Where a chain refuses, its rows of ``there`` become those of ``here``. ``sums`` = (acceptance,
    moves made, whether each chain accepts).
    """
    acceptance, moved, accepts = sums
    for c in range(accepts.size):
        new, old = there.ratios[c], here.ratios[c]
        there.log_total[c, 0] = _weigh(weighing, new, there.cumulative[c])
        log_a = log_ratio[c]
        totals = here.log_total[c, 0] - there.log_total[c, 0]
        for r in range(drawn.active[c]):
            back = _log_weight(weighing, new, drawn.back[c, r])
            log_a += (back - _log_weight(weighing, old, drawn.move[c, r])) + totals
        probability = math.exp(min(log_a, 0.0)) if log_a == log_a else 0.0
        if numbers[c, 0] < lazy:
            probability = 0.0
        acceptance[c] += probability
        accepts[c] = numbers[c, -1] < probability
        if accepts[c]:
            for r in range(drawn.move.shape[1]):
                moved[c, drawn.move[c, r]] = True
        else:
            for m in range(new.size):
                new[m] = old[m]
                there.cumulative[c, m] = here.cumulative[c, m]
            there.log_total[c, 0] = here.log_total[c, 0]


@kernel
def restore(accepts, here, there):
    """Replace rows of chains that refused by those from before."""
    for c in range(accepts.size):
        if not accepts[c]:
            for k in range(here.shape[1]):
                there[c, k] = here[c, k]


@kernel
def along_flips(gradient, x, largest, out):
    """Fill a gradient with the signs of the flips, within limits; 0 where it is not finite."""
    for c in range(x.shape[0]):
        for i in range(x.shape[1]):
            u = np.float64(gradient[c, i])
            u = u if abs(u) < np.inf else 0.0
            u = min(max(u, -largest), largest)
            out[c, i] = -u if x[c, i] else u


@kernel
def expand(uniforms, out):
    """Fill out[c, t] with n_flips + 2 numbers from the pairs uniforms[c, t].

    The first is the key of the others but the last by Philox 4x32-10 (Salmon et al., 2011), as in
    ``philox.py``; the last is the second of the pair.
    """
    n = out.shape[2] - 1
    for c in range(out.shape[0]):
        for t in range(out.shape[1]):
            u = uniforms[c, t, 0]
            out[c, t, 0], out[c, t, n] = u, uniforms[c, t, 1]
            bits = np.uint64(u * 2.0**53)
            n_counts = n // 2
            for count in range(n_counts):
                w0, w1, w2, w3 = _philox(np.uint64(count), bits & _LOW, bits >> _HALF)
                out[c, t, 1 + count] = _uniform(w0, w1)
                if 1 + n_counts + count < n:
                    out[c, t, 1 + n_counts + count] = _uniform(w2, w3)


@inlined
def _philox(a, k0, k1):
    """Return four words for a counter (a, 0, 0, 0) and a key."""
    b, c, d = np.uint64(0), np.uint64(0), np.uint64(0)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b = (second >> _HALF) ^ b ^ k0, second & _LOW
        c, d = (first >> _HALF) ^ d ^ k1, first & _LOW
        k0 = (k0 + np.uint64(0x9E3779B9)) & _LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & _LOW
    return a, b, c, d


@inlined
def _uniform(high, low):
    """Return a number in [0, 1) of 53 bits from two words."""
    bits = (high >> np.uint64(5)) * np.uint64(1 << 26) + (low >> np.uint64(6))
    return np.float64(bits) * 2.0**-53
