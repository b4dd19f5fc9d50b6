"""Greedy orders of elimination: the variable that connects fewest others comes next."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.elimination.bits import count

# Added to the key of a variable that must come last, or whose table exceeds all limits.
_LAST = 1e9
_HUGE = 1e6
# Weight of the size of the table, beside the logarithm of the fill.
_TIE = 0.01
# Number of neighbours from which a table is certainly too large.
_MANY = 64


class Graph(NamedTuple):
    """A graph during elimination."""

    near: NDArray[np.uint64]  # (n, words) neighbours of each variable, as bits
    log_k: NDArray[np.float64]  # log2 of the number of values
    late: NDArray[np.int64]  # 1: eliminated after all others
    left: NDArray[np.int64]  # 1: not eliminated yet
    stale: NDArray[np.int64]  # 1: the key must be recomputed
    size: NDArray[np.float64]  # log2 of the entries of the table
    key: NDArray[np.float64]  # the least is eliminated next
    one: NDArray[np.int64]  # (n + 64,) lists of neighbours
    other: NDArray[np.int64]
    order: NDArray[np.int64]  # (n,) out
    done: NDArray[np.int64]  # (2,) variables eliminated, words of bits read
    total: NDArray[np.float64]  # (1,) entries of all tables


@inlined
def _list(row, out):
    """Write the numbers of the set bits; return how many there are."""
    n = 0
    for w in range(row.size):
        word = row[w]
        while word != np.uint64(0):
            low = word & (~word + np.uint64(1))
            out[n] = 64 * w + np.int64(count(low - np.uint64(1)))
            n += 1
            word ^= low
    return n


@inlined
def _weigh(graph, v, most):
    """Compute the key of a variable."""
    words = graph.near.shape[1]
    n = _list(graph.near[v], graph.one)
    size = graph.log_k[v]
    for a in range(n):
        size += graph.log_k[graph.one[a]]
    graph.size[v] = size
    key = _TIE * size + _LAST * graph.late[v]
    if size > most:  # a bad choice whatever its fill
        key += _HUGE + size
    else:
        fill = 0
        for a in range(n):
            u = graph.one[a]
            for w in range(words):
                fill += np.int64(count(graph.near[v, w] & ~graph.near[u, w]))
        fill -= n
        graph.done[1] += n * words
        if fill == 0:
            key -= 1e3
        key += math.log1p(np.float64(fill))
    graph.key[v] = key
    graph.stale[v] = 0


@inlined
def _bit(v):
    return np.uint64(1) << np.uint64(v & 63)


@inlined
def _remove(graph, v):
    words = graph.near.shape[1]
    n = _list(graph.near[v], graph.one)
    for a in range(n):
        u = graph.one[a]
        for w in range(words):
            graph.near[u, w] |= graph.near[v, w]
        graph.near[u, u >> 6] &= ~_bit(u)
        graph.near[u, v >> 6] &= ~_bit(v)
    for a in range(n):
        u = graph.one[a]
        graph.stale[u] = 1
        # The fill of their neighbours changes too, which matters while tables are small.
        if n < _MANY:
            m = _list(graph.near[u], graph.other)
            for b in range(m):
                graph.stale[graph.other[b]] = 1
            graph.done[1] += m
    graph.done[1] += n * words
    graph.left[v] = 0


@kernel
def find_order(graph, most, most_total, most_words):
    """Eliminate the variable of least key repeatedly; return whether there is more to do.

    ``most`` is log2 of the largest table whose fill is counted. It gives up when ``total`` exceeds
    ``most_total``, and pauses after ``most_words`` words of bits.
    """
    n = graph.left.size
    stop = graph.done[1] + most_words
    while graph.done[0] < n:
        if graph.done[1] > stop:
            return True
        best, key = np.int64(-1), np.inf  # a literal would be compiled beside an integer
        for v in range(n):
            if graph.left[v]:
                if graph.stale[v]:
                    _weigh(graph, v, most)
                if graph.key[v] < key:
                    best, key = v, graph.key[v]
        graph.done[1] += n >> 3
        graph.total[0] += 2.0 ** graph.size[best]
        if graph.total[0] > most_total:
            return False
        graph.order[graph.done[0]] = best
        graph.done[0] += 1
        _remove(graph, best)
    return False
