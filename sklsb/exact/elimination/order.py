"""Orders of elimination.

The first order is greedy, by the connections that an elimination adds. It is turned into a tree of
joins, which is annealed as long as that takes less time than the elimination. Time is counted in
moves, never measured, so a model always gets the same order.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np

from sklsb._kernels.elimination.order import Graph, find_order
from sklsb._system.arrays import Ints
from sklsb.exact.elimination.reduce import Factor
from sklsb.exact.elimination.trees import ContractionTree

# Work below which the greedy order is good enough.
ENOUGH = 2.0**20
# Longest search, in table entries: relative to the work if it has saved this much already, in log2,
# else as long as the work; and relative to that of a large model, where it may be this long anyway.
_SAVING = 1.0
_SHARE, _SHARE_OF_LARGE, MAX_SEARCH = 4.0, 2.0**-4, 2.0**32
# The longest one while all orders exceed what is allowed by this factor, in log2.
_FAR, _MOST_HOPELESS = 6.0, 2.0**30
# Moves per join of its first and its longest rounds.
_FEWEST_MOVES, _MOST_MOVES = 300, 4800
# How much less work than that of the greedy order is thought possible in a quick look.
SAVED = 2.0**24
# Limit of the work, from MAX_SEARCH on, up to which the search is the same.
_SHARED_SEARCH = 2.0**36
# Share of the time left for annealing again after a variable is conditioned on.
_SHARE_GIVEN = 1.0 / 32.0
# Inverse temperatures at which rounds begin: at the first tree, and twice at the best one.
_HOTTEST = (1.0, 1.0, 2.0)
# Moves per join and first inverse temperature of rounds that leave a deep valley, and how much less
# than the best order one must take.
_LONG_MOVES, _LONG_HOTTEST, _LONG_SHARE = 32_000, 0.2, 2.0**-4
# Rounds without an improvement of this size, in log2 of the work, after which it ends.
_MOST_STALE, _IMPROVEMENT = 8, 0.03
# The graph is a matrix of bits, which limits the number of variables.
MOST_VARIABLES = 1 << 15
# Words of bits between two returns to Python, a tenth of a second.
_WORDS_PER_CALL = 1 << 26


def _graph(
    variables: Sequence[int],
    scopes: Sequence[Sequence[int]],
    sizes: Ints,
    late: Collection[int],
) -> Graph:
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


def _greedy(graph: Graph, most: float, limit: float) -> tuple[Ints, float]:
    """Return the greedy order and its work; both end early if the work exceeds ``most``.

    Tables above 2**limit entries are chosen last.
    """
    mine = Graph._make(array.copy() for array in graph)
    while find_order(mine, limit, most, _WORDS_PER_CALL):
        pass
    return mine.order, float(mine.total[0])


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


def greedy_work(
    variables: Sequence[int],
    factors: Sequence[Factor],
    sizes: Ints,
    max_work: float,
    saved: float = 1.0,
) -> float:
    """Return the work of the greedy order, or something above ``saved`` times ``max_work``."""
    if not variables:
        return 0.0
    graph = _graph(variables, [factor.scope for factor in factors], sizes, ())
    if _is_hopeless(graph, max(2.0, max_work)):
        return np.inf
    most = saved * max_work
    return _greedy(graph, most, float(np.log2(max(2.0, most))))[1]


@dataclass(frozen=True)
class Order:
    """An order of elimination, and the tree that it was read from, if it is worth improving."""

    variables: list[int]
    log2_work: float  # of all joined tables
    tree: ContractionTree | None
    left: float = 0.0  # time for further search, in table entries

    def given(self, variable: int) -> "Order":
        """Return an order of the other variables, given one; the tree is annealed again."""
        if self.tree is None:
            return replace(self, variables=[v for v in self.variables if v != variable])
        tree = self.tree.without(variable)
        fixed, time = tree.price(0), _SHARE_GIVEN * self.left
        moves = min(int(max(0.0, time - fixed) / (tree.price(1) - fixed)), _MOST_MOVES)
        for hottest in _HOTTEST[1:] if moves else ():
            other = tree.annealed(moves, hottest, len(self.variables))
            if other.log2_work() < tree.log2_work():
                tree = other
        left = self.left - len(_HOTTEST[1:]) * tree.price(moves)
        return Order(tree.order(), tree.log2_work(), tree, left)


def best_order(
    variables: Sequence[int],
    factors: Sequence[Factor],
    sizes: Ints,
    late: Collection[int] = (),
    max_work: float = 2.0**30,
) -> Order:
    """Return an order of elimination of little work.

    ``sizes`` are those of all variables of the model; variables in ``late`` come last. If no order
    can keep ``max_work``, the greedy one is returned.
    """
    if not variables:
        return Order([], -np.inf, None)
    graph = _graph(variables, [factor.scope for factor in factors], sizes, late)
    found, work = _greedy(graph, np.inf, float(np.log2(max_work)) + 1.0)
    greedy = [variables[i] for i in found.tolist()]
    log2_work = float(np.log2(work))
    hopeless = work > max_work and _is_hopeless(graph, max_work)
    if work < ENOUGH or len(factors) < 3 or hopeless:
        return Order(greedy, log2_work, None)
    inside = set(variables)
    scopes = tuple(frozenset(inside.intersection(factor.scope)) for factor in factors)
    # Questions whose limits differ little share an order.
    search = max_work if max_work < MAX_SEARCH else max(max_work, _SHARED_SEARCH)
    order = _annealed(tuple(greedy), scopes, frozenset(late), tuple(sizes.tolist()), search)
    # As much time again after variables are conditioned on, if the order may be used at all.
    useful = order.log2_work < np.log2(max_work) + 1.0
    left = _patience(order.log2_work, log2_work, max_work) if useful else 0.0
    return replace(order, left=left)


def _patience(log2_work: float, log2_first: float, max_work: float) -> float:
    """Time that a search for a better order may take, given the best one and the first one."""
    if log2_work > np.log2(max_work) + _FAR:
        return min(max_work, _MOST_HOPELESS)
    work = min(2.0**log2_work, max_work)
    share = _SHARE if log2_work < log2_first - _SAVING else 1.0
    return min(share * work, max_work, max(MAX_SEARCH, _SHARE_OF_LARGE * work))


@lru_cache(maxsize=16)
def _annealed(
    greedy: tuple[int, ...],
    scopes: tuple[frozenset[int], ...],
    late: frozenset[int],
    sizes: tuple[int, ...],
    max_work: float,
) -> Order:
    """Anneal in rounds, as long as they take little beside what the best order found would.

    Long ones from a higher temperature follow if that is much: orders near the best one may all be
    worse. The order is that of tables over these scopes, whatever their entries, so it is kept for
    the next question about the same network.
    """
    log_k = np.log2(np.array(sizes, dtype=float)).tolist()
    first = ContractionTree.from_order(greedy, scopes, late, log_k)
    log2_first = first.log2_work()
    best = Order(list(greedy), log2_first, first)
    spent, moves, stale, seed = 0.0, _FEWEST_MOVES, 0, 0
    while stale < _MOST_STALE:
        spent += first.price(moves)
        if spent > _patience(best.log2_work, log2_first, max_work):
            break
        turn = seed % len(_HOTTEST)
        tree = cast(ContractionTree, best.tree) if turn else first
        tree = tree.annealed(moves, _HOTTEST[turn], seed)
        moves, stale, seed = min(2 * moves, _MOST_MOVES), stale + 1, seed + 1
        log2_work = tree.log2_work()
        if log2_work < best.log2_work:
            stale *= best.log2_work - log2_work < _IMPROVEMENT
            best = Order(tree.order(), log2_work, tree)
    price = first.price(_LONG_MOVES)
    while price < _LONG_SHARE * 2.0**best.log2_work:
        spent, seed = spent + price, seed + 1
        if spent > _patience(best.log2_work, log2_first, max_work):
            break
        tree = first.annealed(_LONG_MOVES, _LONG_HOTTEST, seed)
        best = min(best, Order(tree.order(), tree.log2_work(), tree), key=lambda o: o.log2_work)
    return best
