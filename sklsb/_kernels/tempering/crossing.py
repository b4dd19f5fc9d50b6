"""Crossover: two states of one distribution exchange a part in which they differ.

This is the cluster move of Houdayer (European Physical Journal B 22, 2001) for any target whose log
p is a sum of terms over variables that are adjacent in a graph. A part is a connected component of
the variables in which two states differ. If the states exchange its values, each term still has the
values of one state or the other: the sum of both log p is unchanged, at every temperature.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import contract, implements, inlined
from sklsb._kernels.contract import first_move, flip, prepare
from sklsb._kernels.tempering.paths import at_level


class NoCrossing(NamedTuple):
    """For ladders with one replica per level."""

    nothing: NDArray[np.float64] = np.empty(0)


class Crossing(NamedTuple):
    """The graph, and memory for each ladder."""

    start: NDArray[np.int64]  # of the neighbours of each variable, with the end
    near: NDArray[np.int64]
    place: NDArray[np.int64]  # see `places_of`
    mark: NDArray[np.int8]  # (n, n_sites) 1: differs, 2: in the part
    listed: NDArray[np.int64]  # (n, n_sites) variables


@inlined
def _differing(crossing, first, second, c, u):
    """Mark the variables that differ; return how many, and a random one of them."""
    n_differ, mark = 0, crossing.mark[c]
    for i in range(first.x.size):
        differs = np.int8(first.x[i] != second.x[i])
        mark[i] = differs
        n_differ += np.int64(differs)  # in plain Python int8 would stay int8
    left, site = min(np.int64(u * n_differ), n_differ - 1), -1
    while left >= 0:
        site += 1
        left -= np.int64(mark[site])
    return n_differ, site


@inlined
def _find_part(crossing, c, site):
    """List the part that includes a variable; return its size."""
    mark, listed = crossing.mark[c], crossing.listed[c]
    mark[site] = 2
    listed[0] = site
    looked_at, found = 0, 1
    while looked_at < found:
        i = listed[looked_at]
        looked_at += 1
        for e in range(crossing.start[i], crossing.start[i + 1]):
            j = crossing.near[e]
            if mark[j] == 1:
                mark[j] = 2
                listed[found] = j
                found += 1
    return found


@inlined
def _list_rest(crossing, c):
    """List instead the variables that differ outside the part; return how many."""
    mark, listed, found = crossing.mark[c], crossing.listed[c], 0
    for i in range(mark.size):
        if mark[i] == 1:
            listed[found] = i
            found += 1
    return found


@inlined
def _put(view, crossing, chain, site, value):
    """Change the value of a variable."""
    now, new = crossing.place[np.int64(chain.x[site])], crossing.place[np.int64(value)]
    which = new - np.int64(new > now)
    flip(view, chain, first_move(view, np.uint64(site)) + np.uint64(which))


@contract(0, default=lambda crossing, path, rule, pair, c, k, u: 0)
def cross(crossing, path, rule, pair, c, k, u):
    """Let the replicas of a pair, both at level k, exchange a part; return its size."""


@implements(cross, Crossing)
def _cross(crossing, path, rule, pair, c, k, u):
    """Choose a part with probability proportional to its size by one number, and exchange it.

    If the part is more than half of the variables that differ, the others are exchanged instead:
    this gives the same two states, with the replicas swapped. So replicas change as little as
    possible, and not at all if the part is all that differs. Exchanging the same part again undoes
    the move.
    """
    first, second = pair
    n_differ, site = _differing(crossing, first, second, c, u)
    if n_differ < 2:
        return 0
    size = _find_part(crossing, c, site)
    if size == n_differ:
        return 0
    if 2 * size > n_differ:
        size = _list_rest(crossing, c)
    view = at_level(path, k)
    for t in range(size):
        i = crossing.listed[c, t]
        a, b = first.x[i], second.x[i]
        _put(view, crossing, first, i, b)
        _put(view, crossing, second, i, a)
    prepare(view, rule, first)
    prepare(view, rule, second)
    return size


@contract(0, default=lambda crossing, size, c, heading, stay, first, second: None)
def hand_over(crossing, size, c, heading, stay, first, second):
    """Exchange the records of the exchanged values between the replicas."""


@inlined
def _goes_along(crossing, c, i, moved):
    """Whether no neighbour of a variable differs between the replicas without having moved."""
    for e in range(crossing.start[i], crossing.start[i + 1]):
        if crossing.mark[c, crossing.near[e]] == 3 - moved:
            return False
    return True


@inlined
def _trade(heading, stay, first, second, i):
    j = 1 + i  # 0 is the replica itself
    a, b = heading[first, j], heading[second, j]
    heading[first, j], heading[second, j] = b, a
    d, e = stay[first, j], stay[second, j]
    stay[first, j], stay[second, j] = e, d


@implements(hand_over, Crossing)
def _hand_over(crossing, size, c, heading, stay, first, second):
    if size == 0:
        return
    mark, listed = crossing.mark[c], crossing.listed[c]
    moved = mark[listed[0]]
    for t in range(size):
        i = listed[t]
        _trade(heading[c], stay[c], first, second, i)
        # Where the replicas agree, neighbours decide whose value it is.
        for e in range(crossing.start[i], crossing.start[i + 1]):
            j = crossing.near[e]
            if mark[j] == 0:
                mark[j] = 3  # looked at
                if _goes_along(crossing, c, j, moved):
                    _trade(heading[c], stay[c], first, second, j)
