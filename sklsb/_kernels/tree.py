"""A tree of block sums over the weights of all moves, which finds a move in a few steps.

Level 0 holds the weights of the moves, padded with zeros to groups of 8; each further level holds
the sums of the groups below; the last entry is the total. Block sums are recomputed from their
members in a fixed order, never incremented.
"""

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import inlined
from sklsb._kernels.numeric import prefetch

FAN_OUT = 8


def levels(n_moves: int) -> NDArray[np.uint64]:
    """Start of each level of the tree; the last entry is the place of the total."""
    starts, size = [0], max(n_moves, 1)
    while True:
        groups = -(-size // FAN_OUT)
        starts.append(starts[-1] + groups * FAN_OUT)
        size = groups
        if size == 1:
            return np.array(starts, dtype=np.uint64)


@inlined
def _sum8(t, b):
    return ((t[b] + t[b + 1]) + (t[b + 2] + t[b + 3])) + (
        (t[b + 4] + t[b + 5]) + (t[b + 6] + t[b + 7])
    )


@inlined
def total(chain):
    return chain.part.tree[chain.part.level[chain.part.level.size - 1]]


@inlined
def sum_all(chain):
    """Recompute every block sum from the weights."""
    for lev in range(chain.part.level.size - 1):
        source, target = chain.part.level[lev], chain.part.level[lev + 1]
        for g in range((target - source) // np.uint64(FAN_OUT)):
            chain.part.tree[target + g] = _sum8(chain.part.tree, source + g * np.uint64(FAN_OUT))


@inlined
def sum_touched(chain, touched, begin, end):
    """Recompute the block sums above the (sorted) touched weights; return the total."""
    three = np.uint64(3)
    n = np.uint64(0)
    last = np.uint64(1 << 62)
    tree = chain.part.tree
    base = chain.part.level[1]
    for k in range(begin, end):
        g = np.uint64(touched[k]) >> three
        if g != last:
            tree[base + g] = _sum8(tree, g << three)
            chain.part.group[n] = g
            n += np.uint64(1)
            last = g
    for lev in range(1, chain.part.level.size - 1):
        source, base = base, chain.part.level[lev + 1]
        m = np.uint64(0)
        last = np.uint64(1 << 62)
        for k in range(n):
            g = chain.part.group[k] >> three
            if g != last:
                tree[base + g] = _sum8(tree, source + (g << three))
                chain.part.group[m] = g
                m += np.uint64(1)
                last = g
        n = m
    return tree[base]


@inlined
def select(view, chain, r):
    """Return the move whose interval of weight holds r, for 0 <= r <= total, total > 0.

    It goes down the tree, eight prefix sums at a time. They are summed pairwise so that they never
    decrease and do not change at a zero: a move of weight zero has an empty interval. On the way it
    prefetches lists of touched moves: with a million sites, most time is spent waiting for memory.
    """
    tree = chain.part.tree
    node = np.uint64(0)
    for lev in range(chain.part.level.size - 2, -1, -1):
        b = chain.part.level[lev] + node * np.uint64(FAN_OUT)
        t2, t4, t6 = tree[b + 2], tree[b + 4], tree[b + 6]
        s45 = t4 + tree[b + 5]
        p1 = tree[b]
        p2 = p1 + tree[b + 1]
        p3 = p2 + t2
        p4 = p2 + (t2 + tree[b + 3])
        p5 = p4 + t4
        p6 = p4 + s45
        p7 = p4 + (s45 + t6)
        p8 = p4 + (s45 + (t6 + tree[b + 7]))
        # Rounding in the level above may leave r at the end of this block.
        r = r if r < p8 else p8 * (1.0 - 2.0**-53)
        below = (
            (np.uint64(p1 <= r) + np.uint64(p2 <= r)) + (np.uint64(p3 <= r) + np.uint64(p4 <= r))
        ) + ((np.uint64(p5 <= r) + np.uint64(p6 <= r)) + np.uint64(p7 <= r))
        left = max(
            max(p1 if p1 <= r else 0.0, p2 if p2 <= r else 0.0),
            max(p3 if p3 <= r else 0.0, p4 if p4 <= r else 0.0),
        )
        right = max(p5 if p5 <= r else 0.0, p6 if p6 <= r else 0.0)
        r -= max(max(left, right), p7 if p7 <= r else 0.0)
        node = node * np.uint64(FAN_OUT) + below
        if lev == 2:
            for k in range(8):
                prefetch(view.touched_start, np.uint64(64) * node + np.uint64(8 * k))
        elif lev == 1:
            begin = view.touched_start[np.uint64(8) * node]
            for k in range(3):
                prefetch(view.touched, begin + np.uint64(16 * k))
    return node
