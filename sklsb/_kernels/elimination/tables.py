"""New entries of tables, and draws by their columns."""

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


@kernel
def choose(log_p, u, found, summed):
    """Draw an index for each column with probabilities exp(log_p), from uniform numbers.

    A column without a possible value keeps its present one. ``summed`` is scratch of n_rows.
    """
    n = log_p.shape[0]
    for j in range(u.size):
        top = -np.inf
        for v in range(n):
            top = max(top, log_p[v, j])
        if top == -np.inf:
            continue
        whole = 0.0
        for v in range(n):
            whole += 1.0 if log_p[v, j] == top else math.exp(log_p[v, j] - top)
            summed[v] = whole
        v = 0
        while v < n - 1 and summed[v] <= u[j] * whole:
            v += 1
        found[j] = v
