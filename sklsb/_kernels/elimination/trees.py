"""Contraction trees, improved by local moves at a temperature."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.elimination.bits import count
from sklsb._kernels.numeric import split_mix, split_mix_bits

# Logarithms to base 2 are multiples of 1 / ONE, so sums are exact in any order.
ONE = 1 << 16
_STEP = 11  # log2 of the resolution of the table below
# log2(1 + 2**-d) at multiples of d.
_MORE = np.round(ONE * np.log2(1.0 + np.exp2(-(np.arange(12 << 5) + 0.5) / 32))).astype(np.int64)


class Tree(NamedTuple):
    """A tree whose leaves are tables; each other node joins two nodes.

    Leaves come first. The bits of variables with equal numbers of values share words.
    """

    left: NDArray[np.int64]  # (nodes,) the children; -1 for leaves
    right: NDArray[np.int64]
    open: NDArray[np.uint64]  # (nodes, words) variables that other nodes contain too
    cost: NDArray[np.int64]  # (nodes,) log2 of the entries of the joined table
    log_k: NDArray[np.int64]  # (words,) log2 of the number of values
    random: NDArray[np.uint64]  # (1,) state of the random numbers


@inlined
def _log_sum(a, b):
    """Log2 of 2**a + 2**b."""
    high = max(a, b)
    step = (high - min(a, b)) >> _STEP
    return high + (_MORE[step] if step < _MORE.size else 0)


@kernel
def weigh(tree):
    """Compute the cost of each node."""
    for q in range((tree.left.size + 1) // 2, tree.left.size):
        size = np.int64(0)
        for w in range(tree.log_k.size):
            joined = tree.open[tree.left[q], w] | tree.open[tree.right[q], w]
            size += tree.log_k[w] * np.int64(count(joined))
        tree.cost[q] = size


@kernel
def rotate(tree, beta, n_moves):
    """Propose to turn ((a, b), c) into ((a, c), b), ``n_moves`` times.

    Only one set of variables changes. A move is accepted by the change of log2 of the work of the
    two nodes, at the inverse temperature ``beta``.
    """
    n_leaves = (tree.left.size + 1) // 2
    n_inner = np.uint64(tree.left.size - n_leaves)
    for _ in range(n_moves):
        tree.random[0], z = split_mix_bits(tree.random[0])
        p = n_leaves + np.int64(((z >> np.uint64(32)) * n_inner) >> np.uint64(32))
        q, c = tree.left[p], tree.right[p]
        if q < n_leaves or (c >= n_leaves and z & np.uint64(1)):
            q, c = c, q
        if q < n_leaves:
            continue
        a, b = tree.left[q], tree.right[q]
        if z & np.uint64(2):
            a, b = b, a
        below, above = np.int64(0), np.int64(0)
        for w in range(tree.log_k.size):
            joined, rest = tree.open[a, w] | tree.open[c, w], tree.open[b, w]
            kept = joined & (rest | tree.open[p, w])
            below += tree.log_k[w] * np.int64(count(joined))
            above += tree.log_k[w] * np.int64(count(kept | rest))
        worse = _log_sum(below, above) - _log_sum(tree.cost[q], tree.cost[p])
        if worse > 0:
            tree.random[0], u = split_mix(tree.random[0])
            if u >= math.exp(-beta / ONE * worse):
                continue
        tree.left[q], tree.right[q], tree.left[p], tree.right[p] = a, c, q, b
        tree.cost[q], tree.cost[p] = below, above
        for w in range(tree.log_k.size):
            joined = tree.open[a, w] | tree.open[c, w]
            tree.open[q, w] = joined & (tree.open[b, w] | tree.open[p, w])
