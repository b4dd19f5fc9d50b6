"""Activations of the hidden units of restricted Boltzmann machines."""

import math

import numpy as np

from sklsb._kernels._jit import called, kernel
from sklsb._kernels.numeric import exp

# A product of so many numbers from 1 to 2 does not overflow.
_FACTORS = 800


@called
def _finish(parts, c, mean, rest, scratch):
    """Fill sigma(a) of chain c, and the sum of log(1 + exp(-abs(a))), from the activations a."""
    n = scratch.size
    for h in range(n):
        a = parts[0][c, h]
        for k in range(1, len(parts)):
            a += parts[k][c, h]
        e = exp(-abs(a))
        scratch[h] = 1.0 + e
        mean[c, h] = (e if a < 0.0 else 1.0) / (1.0 + e)
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
    rest[c, 0] = total


@kernel
def finish(parts, mean, rest, scratch):
    """Fill what follows from the activations; see `move`."""
    for c in range(mean.shape[0]):
        _finish(parts, c, mean, rest, scratch)


@called
def _change(before, there, c, n):
    """Sum of the changes of the positive parts of the activations of chain c."""
    total = 0.0
    for h in range(n):
        a, b, change = before[0][c, h], there[0][c, h], there[0][c, h] - before[0][c, h]
        for k in range(1, len(before)):
            a, b = a + before[k][c, h], b + there[k][c, h]
            change += there[k][c, h] - before[k][c, h]
        if len(before) == 1 or a <= 0.0 or b <= 0.0:
            change = max(b, 0.0) - max(a, 0.0)
        total += change
    return total


@kernel
def move(states, sites, weights, visible_bias, before, there, scratch):
    """Carry activations from states x to y; ``states`` = (x, y), which differ at these sites only.

    ``before`` = (parts, rest) and ``there`` = (parts, rest, mean, log p(y) - log p(x)): the parts
    of the activations, the sums of log(1 + exp(-abs(a))) and sigma(a). ``weights`` has a row of
    each visible unit for each part.
    """
    (x, y), (old, old_rest), (new, rest, mean, log_ratio) = states, before, there
    n = scratch.size
    for c in range(x.shape[0]):
        for k in range(len(new)):
            for h in range(n):
                new[k][c, h] = old[k][c, h]
        visible = 0.0
        for r in range(sites.shape[1]):
            site = sites[c, r]
            change = np.float64(y[c, site]) - np.float64(x[c, site])
            for other in range(r):  # each site once
                change = 0.0 if sites[c, other] == site else change
            if change != 0.0:
                visible += change * visible_bias[site]
                for k in range(len(new)):
                    for h in range(n):
                        new[k][c, h] += change * weights[k][site, h]
        _finish(new, c, mean, rest, scratch)
        excess = rest[c, 0] - old_rest[c, 0]
        log_ratio[c] = visible + (_change(old, new, c, n) + excess)
