"""Activations of the hidden units of restricted Boltzmann machines.

A row of ``carried`` has the parts of the activations a, one after another, and at the end the sum
of log(1 + exp(-abs(a))), the excess of log(1 + exp a) over the positive part of a.
"""

import math

import numpy as np

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.numeric import add_up, fused_exp

# A product of so many numbers from 1 to 2 does not overflow.
_FACTORS = 800


@inlined
def _activation(carried, h, n):
    """Return the activation of unit h of n."""
    return carried[h] if carried.size <= 2 * n else carried[h] + carried[n + h]


@called
def _finish(carried, mean, scratch):
    """Fill sigma(a) and the last entry of ``carried`` from the activations of a chain."""
    n, real = mean.size, mean.dtype.type
    for h in range(n):
        a = _activation(carried, h, n)
        e = fused_exp(-abs(a))
        scratch[h] = 1.0 + e
        mean[h] = e if a < 0.0 else 1.0
    for h in range(n):
        mean[h] /= real(scratch[h])
    total = 0.0
    for first in range(0, n, _FACTORS):
        last = min(first + _FACTORS, n)
        whole = last - (last - first) % 4
        p = q = r = s = 1.0
        for h in range(first, whole, 4):
            p *= scratch[h]
            q *= scratch[h + 1]
            r *= scratch[h + 2]
            s *= scratch[h + 3]
        for h in range(whole, last):
            p *= scratch[h]
        total += math.log((p * q) * (r * s))
    carried[-1] = total


@kernel
def finish(carried, mean, scratch):
    """Fill what follows from the activations: sigma(a), and the last column of ``carried``."""
    for c in range(mean.shape[0]):
        _finish(carried[c], mean[c], scratch)


@kernel
def log_prob(x, visible_bias, carried, scratch, out):
    """Fill log p. ``scratch`` has a number for each visible unit, and one for each hidden unit."""
    visible, hidden = scratch
    for c in range(out.size):
        for i in range(visible.size):
            visible[i] = visible_bias[i] * np.float64(x[c, i])
        for h in range(hidden.size):
            hidden[h] = max(_activation(carried[c], h, hidden.size), 0.0)
        out[c] = add_up(visible) + (add_up(hidden) + carried[c, -1])


@called
def _change(before, there, scratch):
    """Sum of the changes of log(1 + exp a), without rounding errors of the size of a."""
    n = scratch.size
    if there.size <= 2 * n:
        for h in range(n):
            scratch[h] = max(there[h], 0.0) - max(before[h], 0.0)
    else:
        for h in range(n):
            a, b = before[h] + before[n + h], there[h] + there[n + h]
            both = (there[h] - before[h]) + (there[n + h] - before[n + h])
            scratch[h] = both if a > 0.0 and b > 0.0 else max(b, 0.0) - max(a, 0.0)
    return add_up(scratch) + (there[-1] - before[-1])


@called
def _add_rows(weights, sites, amounts, old, new):
    """Add amounts of rows of W, eight at a time: sums are exact in any order."""
    if sites.size == 1:
        row, amount = weights[sites[0]], amounts[0]
        for h in range(row.size):
            new[h] = old[h] + amount * row[h]
        return
    for h in range(weights.shape[1]):
        new[h] = old[h]
    whole = sites.size - sites.size % 8
    for k in range(0, whole, 8):
        a, b, c, d = amounts[k], amounts[k + 1], amounts[k + 2], amounts[k + 3]
        e, f, g, i = amounts[k + 4], amounts[k + 5], amounts[k + 6], amounts[k + 7]
        q, r = weights[sites[k]], weights[sites[k + 1]]
        s, t = weights[sites[k + 2]], weights[sites[k + 3]]
        u, v = weights[sites[k + 4]], weights[sites[k + 5]]
        w, z = weights[sites[k + 6]], weights[sites[k + 7]]
        for h in range(q.size):
            first = (a * q[h] + b * r[h]) + (c * s[h] + d * t[h])
            new[h] += first + ((e * u[h] + f * v[h]) + (g * w[h] + i * z[h]))
    for k in range(whole, sites.size):
        row, amount = weights[sites[k]], amounts[k]
        for h in range(row.size):
            new[h] += amount * row[h]


@kernel
def move(x, y, sites, weights, visible_bias, before, there, mean, log_ratio, scratch):
    """Carry activations from states x to y, which differ at most at these sites.

    ``weights`` has the parts of a row of W one after another. ``log_ratio`` is
    log p(y) - log p(x). ``scratch`` = (a number for each hidden unit, False for each visible one,
    a place and an amount for each).
    """
    logs, seen, changed, amounts = scratch
    for c in range(x.shape[0]):
        old, new = before[c], there[c]
        visible, n = 0.0, 0
        for r in range(sites.shape[1]):
            site = sites[c, r]
            change = np.float64(y[c, site]) - np.float64(x[c, site])
            if change != 0.0 and not seen[site]:
                visible += change * visible_bias[site]
                changed[n], amounts[n] = site, change
                seen[site] = True
                n += 1
        _add_rows(weights, changed[:n], amounts[:n], old, new)
        for k in range(n):
            seen[changed[k]] = False
        _finish(new, mean[c], logs)
        log_ratio[c] = visible + _change(old, new, logs)
