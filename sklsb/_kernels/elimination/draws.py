"""The way back: values are drawn, each given those eliminated later."""

import math

import numpy as np

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.elimination.buckets import DRAW, FOLLOW, LARGEST, LINEAR


@inlined
def _places(buckets, base, x, i, f, room):
    """Compute the position of a factor's first entry for each state."""
    n = x.shape[1]
    at = np.uint32(base[f])
    for t in range(n):
        room.place[t] = at
    start, first = buckets.stride_start[f], buckets.axis_start[i]
    for a in range(buckets.axis_start[i + 1] - first):
        stride = np.uint32(buckets.stride[start + a])
        if stride != 0:
            values = x[buckets.axis_variable[first + a]]
            for t in range(n):
                room.place[t] += stride * values[t]


@inlined
def _weigh(buckets, memory, base, x, i, room, mode):
    """Compute the weights of a variable's values for each state."""
    n, k = x.shape[1], buckets.k[i]
    neutral = 1.0 if mode == LINEAR else 0.0
    for v in range(k):
        for t in range(n):
            room.weight[v, t] = neutral
    for f in range(buckets.factor_start[i], buckets.factor_start[i + 1]):
        _places(buckets, base, x, i, f, room)
        own = np.uint32(buckets.own_stride[f])
        for v in range(k):
            weight, shift = room.weight[v], np.uint32(v) * own
            if mode == LINEAR:
                for t in range(n):
                    weight[t] *= memory[np.uint64(room.place[t] + shift)]
            else:
                for t in range(n):
                    weight[t] += memory[np.uint64(room.place[t] + shift)]


@inlined
def exponentiate(weight, k, n):
    """Turn logarithms into weights, the largest of which is 1; all are 0 if all are impossible."""
    for t in range(n):
        top = -np.inf
        for v in range(k):
            top = max(top, weight[v, t])
        for v in range(k):
            weight[v, t] = math.exp(weight[v, t] - top) if top > -np.inf else 0.0


@inlined
def _choose(weight, k, u, i, values):
    """Draw a value for each state by inverting the cumulative weights."""
    n = values.size
    for v in range(1, k):
        for t in range(n):
            weight[v, t] += weight[v - 1, t]
    for t in range(n):
        total = weight[k - 1, t]
        r = u[t, i] * total
        pick = 0
        for v in range(k - 1):
            pick += np.int64(weight[v, t] <= r)
        if r >= total:  # rounded up; the last value may have weight 0
            while pick > 0 and weight[pick, t] == weight[pick - 1, t]:
                pick -= 1
        values[t] = np.uint32(pick)


@inlined
def _largest(weight, k, values):
    for t in range(values.size):
        best = 0
        for v in range(1, k):
            if weight[v, t] > weight[best, t]:
                best = v
        values[t] = np.uint32(best)


@inlined
def _follow(weight, k, values, p):
    """Multiply p by the conditional probabilities of given values."""
    for t in range(values.size):
        total = 0.0
        for v in range(k):
            total += weight[v, t]
        mine = weight[np.int64(values[t]), t]
        p[t] = p[t] * (mine / total) if mine > 0.0 else 0.0


@inlined
def _row_sums(weight, k, largest, mode, p):
    """Multiply p by the row sums of a table, relative to the largest."""
    for t in range(p.size):
        total = 0.0
        for v in range(k):
            total += weight[v, t] if mode == LINEAR else math.exp(weight[v, t])
        p[t] *= total / largest


@kernel
def backward(buckets, memory, base, room, x, u, p, settings):
    """Choose values from one bucket down to another, for several states.

    ``x`` of shape (variables, states) has the given values. ``settings`` = (way of joining, way of
    choosing, first bucket, last bucket). ``p`` gets the probability of the given values, or of
    accepting a draw where rows of tables do not sum to 1.
    """
    mode, way, first, last = settings
    for t in range(p.size):
        p[t] = 1.0
    for i in range(first, last - 1, -1):
        k, values = buckets.k[i], x[buckets.variable[i]]
        _weigh(buckets, memory, base, x, i, room, mode)
        if way == LARGEST:
            _largest(room.weight, k, values)
            continue
        # Before logarithms become weights relative to the largest.
        if way == DRAW and buckets.row_sum[i] > 0.0:
            _row_sums(room.weight, k, buckets.row_sum[i], mode, p)
        if mode != LINEAR:
            exponentiate(room.weight, k, values.size)
        if way == FOLLOW:
            _follow(room.weight, k, values, p)
            continue
        _choose(room.weight, k, u, i, values)


@kernel
def log_densities(buckets, log_tables, base, room, x, out):
    """Sum the logarithms of the tables, for several states."""
    for t in range(out.size):
        out[t] = 0.0
    for i in range(buckets.variable.size):
        values = x[buckets.variable[i]]
        for f in range(buckets.factor_start[i], buckets.factor_start[i + 1]):
            if buckets.position[f] < log_tables.size:
                _places(buckets, base, x, i, f, room)
                own = np.uint32(buckets.own_stride[f])
                for t in range(out.size):
                    out[t] += log_tables[np.uint64(room.place[t] + own * values[t])]


@kernel
def emit(x, names, draws):
    """Write states as target values into ``draws`` of shape (states, variables)."""
    for i in range(x.shape[0]):
        for t in range(draws.shape[0]):
            draws[t, i] = names[i, np.int64(x[i, t])]
