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
_1, _2, _3, _4, _5, _6, _7 = map(np.uint64, range(1, FAN_OUT))


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
    # Unsigned, or each index would be compared with 0 before use.
    return ((t[b] + t[b + _1]) + (t[b + _2] + t[b + _3])) + (
        (t[b + _4] + t[b + _5]) + (t[b + _6] + t[b + _7])
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
    """Recompute the block sums above the (sorted) touched weights.

    Of a block that appears twice, or that has no touched weight, the same sum is found again: that
    costs less than branches that the processor cannot predict.
    """
    tree, level = chain.part.tree, chain.part.level
    for lev in range(1, level.size if begin < end else 0):
        source, target, shift = level[lev - 1], level[lev], np.uint64(3 * lev)
        first = np.uint64(touched[begin]) >> shift
        n = (np.uint64(touched[end - _1]) >> shift) - first + _1
        few = n <= end - begin
        for k in range(n if few else end - begin):
            g = first + k if few else np.uint64(touched[begin + k]) >> shift
            tree[target + g] = _sum8(tree, source + (g << _3))


@inlined
def select(view, chain, r):
    """Return the move whose interval of weight holds r, for 0 <= r <= total, total > 0.

    It goes down the tree, eight prefix sums at a time. They are summed pairwise so that they never
    decrease and do not change at a zero: a move of weight zero has an empty interval. On the way it
    prefetches lists of touched moves: with a million sites, most time is spent waiting for memory.
    It returns a move even if sums are not those of their blocks, lest an error there write outside
    of arrays.
    """
    tree = chain.part.tree
    node = np.uint64(0)
    for lev in range(chain.part.level.size - 2, -1, -1):
        b = chain.part.level[lev] + node * np.uint64(FAN_OUT)
        t2, t4, t6 = tree[b + _2], tree[b + _4], tree[b + _6]
        s45 = t4 + tree[b + _5]
        p1 = tree[b]
        p2 = p1 + tree[b + _1]
        p3 = p2 + t2
        p4 = p2 + (t2 + tree[b + _3])
        p5 = p4 + t4
        p6 = p4 + s45
        p7 = p4 + (s45 + t6)
        # Rounding in the level above may leave r at the end of this block.
        whole = tree[chain.part.level[lev + 1] + node]
        r = min(r, whole * (1.0 - 2.0**-53))
        below = (
            (np.uint64(p1 <= r) + np.uint64(p2 <= r)) + (np.uint64(p3 <= r) + np.uint64(p4 <= r))
        ) + ((np.uint64(p5 <= r) + np.uint64(p6 <= r)) + np.uint64(p7 <= r))
        left = max(
            max(p1 if p1 <= r else 0.0, p2 if p2 <= r else 0.0),
            max(p3 if p3 <= r else 0.0, p4 if p4 <= r else 0.0),
        )
        right = max(p5 if p5 <= r else 0.0, p6 if p6 <= r else 0.0)
        r -= max(max(left, right), p7 if p7 <= r else 0.0)
        last = np.uint64(view.touched_start.size - 2) >> np.uint64(3 * lev)
        node = min(node * np.uint64(FAN_OUT) + below, last)
        if lev == 2:
            for k in range(8):
                prefetch(view.touched_start, np.uint64(64) * node + np.uint64(8 * k))
        elif lev == 1:
            begin = view.touched_start[np.uint64(8) * node]
            for k in range(3):
                prefetch(view.touched, begin + np.uint64(16 * k))
    return node
