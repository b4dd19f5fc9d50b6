"""Orders of elimination.

The first order is greedy, by the connections that an elimination adds. It is turned into a tree of
joins, which is annealed as long as that takes less time than the elimination. Time is counted in
moves, never measured, so a model always gets the same order.
"""

import itertools
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.elimination.order import Graph, find_order
from sklsb.exact.elimination.reduce import Factor
from sklsb.exact.elimination.trees import ContractionTree

# Work below which the greedy order is good enough.
_ENOUGH = 2.0**20
# Longest search, in table entries, relative to the best work so far and in all; and moves per join
# of its first and its longest rounds.
_SHARE, _MOST_SEARCH = 4.0, 2.0**32
_FEWEST_MOVES, _MOST_MOVES = 300, 4800
# Inverse temperatures at which rounds begin.
_HOTTEST = (1.0, 1.5, 3.0)
# Rounds without an improvement of this size, in log2 of the work, after which it ends.
_MOST_STALE, _IMPROVEMENT = 8, 0.03
# The graph is a matrix of bits, which limits the number of variables.
MOST_VARIABLES = 1 << 15
# Words of bits between two returns to Python, a tenth of a second.
_WORDS_PER_CALL = 1 << 26


def _graph(
    variables: Sequence[int],
    scopes: Sequence[Sequence[int]],
    sizes: NDArray[np.int64],
    late: Collection[int],
) -> Graph:
    """Connect the variables that share a scope."""
    n = len(variables)
    index = {v: i for i, v in enumerate(variables)}
    near = np.zeros((n, -(-n // 64)), dtype=np.uint64)
    for scope in scopes:
        inside = np.array([index[v] for v in scope if v in index], dtype=np.int64)
        if inside.size > 1:
            row = np.zeros(near.shape[1], dtype=np.uint64)
            np.bitwise_or.at(row, inside >> 6, np.uint64(1) << (inside & 63).astype(np.uint64))
            near[inside] |= row
    every = np.arange(n)
    near[every, every >> 6] &= ~(np.uint64(1) << (every & 63).astype(np.uint64))
    return Graph(
        near=near,
        log_k=np.log2(sizes[list(variables)].astype(np.float64)),
        late=np.array([int(v in late) for v in variables], dtype=np.int64),
        left=np.ones(n, dtype=np.int64),
        stale=np.ones(n, dtype=np.int64),
        size=np.zeros(n),
        key=np.zeros(n),
        one=np.zeros(n + 64, dtype=np.int64),
        other=np.zeros(n + 64, dtype=np.int64),
        order=np.zeros(n, dtype=np.int64),
        done=np.zeros(2, dtype=np.int64),
        total=np.zeros(1),
    )


def _greedy(graph: Graph, most: float, limit: float) -> tuple[NDArray[np.int64] | None, float]:
    """Return the greedy order (None if its work exceeds ``most``) and its work."""
    mine = Graph._make(array.copy() for array in graph)
    while find_order(mine, limit, most, _WORDS_PER_CALL):
        pass
    return (mine.order if mine.done[0] == mine.order.size else None), float(mine.total[0])


def _is_hopeless(graph: Graph, max_work: float) -> bool:
    """Whether every order exceeds ``max_work``: a subgraph's degrees are all too large.

    Its first variable to be eliminated has a table of more than ``max_work`` entries.
    """
    least = int(np.log2(max_work) / graph.log_k.min())
    left = np.unpackbits(np.full(graph.near.shape[1] * 8, 255, np.uint8), bitorder="little")
    while True:
        mask = np.packbits(left, bitorder="little").view(np.uint64)
        degree = np.bitwise_count(graph.near & mask).sum(axis=1)
        gone = (degree < least) & (left[: degree.size] > 0)
        if not gone.any():
            return bool(left[: degree.size].any())
        left[: degree.size][gone] = 0


def is_affordable(
    variables: Sequence[int],
    factors: Sequence[Factor],
    sizes: NDArray[np.int64],
    max_work: float,
) -> bool:
    """Whether the greedy order takes at most ``max_work``; no other is tried."""
    graph = _graph(variables, [factor.scope for factor in factors], sizes, ())
    limit = float(np.log2(max(2.0, max_work)))
    return _greedy(graph, max_work, limit)[0] is not None


def best_order(
    variables: Sequence[int],
    factors: Sequence[Factor],
    sizes: NDArray[np.int64],
    late: Collection[int] = (),
    max_work: float = 2.0**30,
) -> tuple[list[int], float]:
    """Return an order of elimination and the number of table entries that it takes.

    ``sizes`` are those of all variables of the model; variables in ``late`` come last. If no order
    can keep ``max_work``, the greedy one is returned.
    """
    if not variables:
        return [], 0.0
    graph = _graph(variables, [factor.scope for factor in factors], sizes, late)
    found, work = _greedy(graph, np.inf, float(np.log2(max_work)) + 1.0)
    order = range(len(variables)) if found is None else found.tolist()
    greedy = [variables[i] for i in order]
    if work < _ENOUGH or len(factors) < 3 or (work > max_work and _is_hopeless(graph, max_work)):
        return greedy, work
    inside = set(variables)
    scopes = [inside.intersection(factor.scope) for factor in factors]
    log_k = np.log2(sizes.astype(np.float64))
    tree = _annealed(ContractionTree.from_order(greedy, scopes, late, log_k), work, max_work)
    return tree.order(), 2.0**tree.log2_work


def _annealed(first: ContractionTree, work: float, max_work: float) -> ContractionTree:
    """Anneal in rounds, as long as they take less than what the best tree found would."""
    best, log2_best, spent, moves, stale = first, first.log2_work, 0.0, _FEWEST_MOVES, 0
    for seed in itertools.count():
        left = min(_SHARE * min(2.0**log2_best, max_work), _MOST_SEARCH) - spent
        if left < first.price(moves) or stale == _MOST_STALE:
            return best
        tree = (first if seed < 2 else best).copy(seed)
        tree.anneal(moves, _HOTTEST[seed % len(_HOTTEST)], np.inf)
        spent += tree.price(moves)
        moves = min(2 * moves, _MOST_MOVES)
        stale += 1
        if tree.log2_work < log2_best:
            stale *= log2_best - tree.log2_work < _IMPROVEMENT
            best, log2_best = tree, tree.log2_work
