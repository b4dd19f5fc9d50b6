"""Activations of the hidden units of restricted Boltzmann machines.

A row of ``carried`` has the parts of the activations a, one after another, and at the end the sum
of log(1 + exp(-abs(a))), the excess of log(1 + exp a) over the positive part of a.
"""

import math

import numpy as np

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.numeric import exp

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
        e = exp(-abs(a))
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
    p = q = r = s = 0.0
    whole = n - n % 4
    for h in range(0, whole, 4):
        p += scratch[h]
        q += scratch[h + 1]
        r += scratch[h + 2]
        s += scratch[h + 3]
    for h in range(whole, n):
        p += scratch[h]
    return ((p + q) + (r + s)) + (there[-1] - before[-1])


@kernel
def move(x, y, sites, weights, visible_bias, before, there, mean, log_ratio, scratch):
    """Carry activations from states x to y, which differ at most at these sites.

    ``weights`` has the parts of a row of W one after another. ``log_ratio`` is
    log p(y) - log p(x).
    """
    for c in range(x.shape[0]):
        old, new = before[c], there[c]
        for h in range(new.size):
            new[h] = old[h]
        visible, waits, amount = 0.0, -1, 0.0
        for r in range(sites.shape[1]):
            site = sites[c, r]
            change = np.float64(y[c, site]) - np.float64(x[c, site])
            n_before = 0
            for other in range(r):
                n_before += np.int64(sites[c, other] == site)
            if change != 0.0 and n_before == 0:  # each site once
                visible += change * visible_bias[site]
                if waits < 0:
                    waits, amount = site, change
                    continue
                one, two = weights[waits], weights[site]
                for h in range(one.size):
                    new[h] += amount * one[h] + change * two[h]
                waits = -1
        if waits >= 0:
            one = weights[waits]
            for h in range(one.size):
                new[h] += amount * one[h]
        _finish(new, mean[c], scratch)
        log_ratio[c] = visible + _change(old, new, scratch)
