"""New entries of tables."""

import math

import numpy as np

from sklsb._kernels._jit import kernel


@kernel
def add_up(values, index, start, out):
    """Add up values[index[start[p]:start[p + 1]]] for each p; NaN counts as no probability."""
    for p in range(out.size):
        total = 0.0
        for j in range(start[p], start[p + 1]):
            total += values[index[j]]
        out[p] = -np.inf if math.isnan(total) else total


@kernel
def shift_tables(logs, sizes, first, tops, least):
    """Shift each table to a maximum of 0, by ``tops``; return the sum of these from ``first`` on.

    ``least`` gets log2 of its smallest entry above 0.
    """
    p, shift, lost = 0, 0.0, 0.0
    for f in range(sizes.size):
        end = p + sizes[f]
        top, low = -np.inf, np.inf
        for q in range(p, end):
            if logs[q] > -np.inf:
                top, low = max(top, logs[q]), min(low, logs[q])
        if top == -np.inf:
            top = low = 0.0
        for q in range(p, end):
            logs[q] -= top
        p, tops[f], least[f] = end, top, (low - top) / math.log(2.0)
        if f >= first:  # with what rounding loses
            total = shift + top
            lost += (shift - total) + top if abs(shift) >= abs(top) else (top - total) + shift
            shift = total
    return shift + lost
