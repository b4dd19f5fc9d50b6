"""The states that differ from the present one in a few variables of a block.

They are the nodes of a tree: each differs from its parent in one variable, which comes after those
in which the parent differs from the centre. Nodes are in depth-first order, so that going from one
to the next takes few moves, and log p is summed over at most ``radius`` changes.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import first_move, flip, forget_way, log_prob, log_ratio, row_of
from sklsb._kernels.numeric import exp


class Ball(NamedTuple):
    """Memory for the states around a centre, one row per chain."""

    block: NDArray[np.uint32]  # variables
    before: NDArray[np.int64]  # their values when the transition began
    parent: NDArray[np.int32]  # of each node; -1 for the centre
    place: NDArray[np.int32]  # in the block, of the variable that differs from the parent
    move: NDArray[np.int64]  # from the parent
    inverse: NDArray[np.int64]  # to the parent
    log_weight: NDArray[np.float64]
    path: NDArray[np.int32]


# Where counts of states stop.
MOST_COUNTED = 10**6


def ball_size(cardinalities: NDArray[np.integer[Any]], radius: int) -> int:
    """Count the states that differ from one in at most ``radius`` variables, up to a million."""
    by_distance = [1]
    for k in cardinalities.tolist():
        if len(by_distance) <= radius:
            by_distance.append(0)
        for r in range(len(by_distance) - 1, 0, -1):
            by_distance[r] += (k - 1) * by_distance[r - 1]
        if sum(by_distance) > MOST_COUNTED:
            break
    return sum(by_distance)


def largest_ball(cardinalities: NDArray[np.integer[Any]], size: int, radius: int) -> int:
    """Count the states of the largest ball of any ``size`` variables."""
    return ball_size(np.sort(cardinalities)[::-1][:size], radius)


def new_ball(n_chains: int, block_size: int, n_states: int) -> Ball:
    """Allocate memory for balls of at most ``n_states`` states."""
    return Ball(
        block=np.zeros((n_chains, block_size), np.uint32),
        before=np.zeros((n_chains, block_size), np.int64),
        parent=np.zeros((n_chains, n_states), np.int32),
        place=np.zeros((n_chains, n_states), np.int32),
        move=np.zeros((n_chains, n_states), np.int64),
        inverse=np.zeros((n_chains, n_states), np.int64),
        log_weight=np.zeros((n_chains, n_states)),
        path=np.zeros((n_chains, block_size + 1), np.int32),
    )


@implements(row_of, Ball)
def _row_of(part, c):
    return Ball(
        part.block[c],
        part.before[c],
        part.parent[c],
        part.place[c],
        part.move[c],
        part.inverse[c],
        part.log_weight[c],
        part.path[c],
    )


@inlined
def choose_block(sites, n, u, part):
    """Draw a uniformly random set of n sites by n uniform numbers; sorted.

    The k-th draw is a place among the sites left.
    """
    for k in range(n):
        place = min(np.int64(u[k] * (sites.size - k)), sites.size - k - 1)
        i = 0
        while i < k and np.int64(part.path[i]) <= place:
            place += 1
            i += 1
        for j in range(k, i, -1):
            part.path[j] = part.path[j - 1]
        part.path[i] = place
    for k in range(n):
        part.block[k] = sites[part.path[k]]


@inlined
def list_ball(view, part, n, radius):
    """List the states that differ from the present one in at most ``radius`` of n variables.

    Node 0 is the present state. Returns the number of states.
    """
    part.parent[0] = -1
    part.place[0] = -1
    size, node, depth = 1, 0, 0
    place = 0
    move = first_move(view, np.uint64(part.block[0]))
    while True:
        if depth < radius and place < n:
            site = np.uint64(part.block[place])
            if move < first_move(view, site + np.uint64(1)):
                part.parent[size] = node
                part.place[size] = place
                part.move[size] = np.int64(move)
                node = size
                size += 1
                depth += 1
            place += 1
        elif node > 0:  # back to the parent, then the next value of the variable that changed
            place = np.int64(part.place[node])
            move = np.uint64(part.move[node]) + np.uint64(1)
            node = np.int64(part.parent[node])
            depth -= 1
            continue
        else:
            return size
        if place < n:
            move = first_move(view, np.uint64(part.block[place]))


@inlined
def weigh_ball(view, chain, size, here, reference, known):
    """Compute log p of all listed states, up to a constant; at the centre it is ``here``.

    Log-ratios are summed along the way. Below an impossible state there are none, so log p itself
    is taken, relative to ``reference`` if that is ``known``, else to a possible state on the way.
    """
    forget_way(view, chain)
    part = chain.part
    part.log_weight[0] = here
    at = 0
    for node in range(1, size):
        parent = np.int64(part.parent[node])
        while at != parent:
            flip(view, chain, np.uint64(part.inverse[at]))
            at = np.int64(part.parent[at])
        move = np.uint64(part.move[node])
        inner = node + 1 < size and part.parent[node + 1] == node
        if part.log_weight[at] > -np.inf:
            weight = part.log_weight[at] + log_ratio(view, chain, move)
            if weight == -np.inf and inner and not known:
                reference = log_prob(view, chain) - part.log_weight[at]
                known = True
            if inner:
                part.inverse[node] = np.int64(flip(view, chain, move))
                at = node
        else:
            part.inverse[node] = np.int64(flip(view, chain, move))
            weight = log_prob(view, chain) - reference
            at = node
        part.log_weight[node] = weight
    while at != 0:
        flip(view, chain, np.uint64(part.inverse[at]))
        at = np.int64(part.parent[at])


@inlined
def weigh_values(view, chain, first, n, weight):
    """Weigh the n other values of a variable, whose first move is given, from their log-ratios.

    Returns the weight of the present value and the sum of all; the largest is 1.
    """
    largest = 0.0  # log weight of the present value
    for k in range(n):
        weight[k] = log_ratio(view, chain, first + np.uint64(k))
        largest = max(largest, weight[k])
    stay = exp(-largest)
    total = stay
    for k in range(n):
        weight[k] = exp(weight[k] - largest)
        total += weight[k]
    return stay, total


@inlined
def exponentials(log_weight, size):
    """Replace logarithms by weights relative to the largest; return its logarithm and their sum."""
    largest = -np.inf
    for k in range(size):
        largest = max(largest, log_weight[k])
    shift = largest if largest > -np.inf else 0.0
    total = 0.0
    for k in range(size):
        log_weight[k] = exp(log_weight[k] - shift)
        total += log_weight[k]
    return largest, total


@inlined
def draw_index(weight, size, r):
    """Return the index whose interval of weight holds r; never one of weight zero."""
    chosen = 0
    for k in range(size):
        if weight[k] > 0.0:
            chosen = k
            if r < weight[k]:
                break
            r -= weight[k]
    return chosen


@inlined
def choose(log_weight, size, u):
    """Draw an index with probability proportional to exp(log_weight), which is overwritten."""
    _, total = exponentials(log_weight, size)
    return draw_index(log_weight, size, u * total)


@inlined
def path_to(part, node):
    """Write the nodes on the way up to the centre into ``path``; return how many there are."""
    depth = 0
    while node > 0:
        part.path[depth] = node
        node = np.int64(part.parent[node])
        depth += 1
    return depth


@inlined
def go_to(view, chain, node):
    """Go from the centre to a listed state."""
    part = chain.part
    for k in range(path_to(part, node) - 1, -1, -1):
        flip(view, chain, np.uint64(part.move[part.path[k]]))


@inlined
def remember(chain, n):
    """Store the values of the block's variables."""
    for k in range(n):
        chain.part.before[k] = chain.x[np.uint64(chain.part.block[k])]


@inlined
def mark_moved(view, chain, n):
    """Mark the block's variables whose values differ from those stored."""
    for k in range(n):
        site = np.uint64(chain.part.block[k])
        if chain.x[site] != chain.part.before[k]:
            chain.moved[np.int64(first_move(view, site))] = True
