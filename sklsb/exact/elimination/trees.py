"""Contraction trees: orders of elimination that can be improved by local moves.

The leaves of a tree are tables; each other node joins two nodes. A variable is summed out where
nothing outside the node contains it. Variables in the order in which they leave the tree, children
first, are an order of elimination of nearly the same work.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sklsb._kernels.elimination.trees import ONE, Tree, rotate, weigh
from sklsb._system.arrays import Array, Ints

Set = frozenset[int]
_N_TEMPERATURES = 60
_COLDEST = 10.0
# Time of a move, of each word of bits in it, and of a node for Python, in table entries.
_OF_MOVE, _OF_WORD, _OF_NODE = 32.0, 3.0, 2.0**13


@dataclass
class ContractionTree:
    """A tree over ``len(left) // 2 + 1`` tables, which are its first nodes; the last is its root.

    ``open`` holds the variables of each node that occur elsewhere too.
    """

    log_k: list[float]  # log2 of the number of values of each variable
    left: list[int]
    right: list[int]
    open: list[Set]
    alone: list[int]  # variables of at most one table each
    late: list[int]  # variables that come last

    @classmethod
    def from_order(
        cls,
        order: Sequence[int],
        scopes: Sequence[Collection[int]],
        late: Collection[int],
        log_k: Sequence[float],
    ) -> "ContractionTree":
        """Join tables as an order of elimination does, small ones first."""
        times: dict[int, int] = dict.fromkeys(late, 1)  # as if the root were in a table with them
        for scope in scopes:
            for v in scope:
                times[v] = times.get(v, 0) + 1
        alone = [v for v in order if times.get(v, 0) < 2 and v not in late]
        # How many tables of each node contain a variable, until all do.
        inside = [{v: 1 for v in scope if times[v] > 1} for scope in scopes]
        left, right = [-1] * len(scopes), [-1] * len(scopes)
        place = {v: i for i, v in enumerate(order)}
        waiting: list[list[int]] = [[] for _ in [*order, "root"]]

        def put(node: int, after: int) -> None:
            later = [place[v] for v in inside[node] if place[v] > after]
            waiting[min(later, default=len(order))].append(node)

        for node in range(len(scopes)):
            put(node, -1)
        for i in range(len(waiting)):
            nodes = sorted(waiting[i], key=lambda q: (len(inside[q]), q))
            while len(nodes) > 1:
                a, b, *nodes = nodes
                both = inside[a] | inside[b]
                for v in inside[a].keys() & inside[b].keys():
                    both[v] = inside[a][v] + inside[b][v]
                left.append(a)
                right.append(b)
                inside.append({v: m for v, m in both.items() if m < times[v]})
                nodes.insert(0, len(left) - 1)
            if nodes and i < len(order):
                put(nodes[0], i)
        open_ = [frozenset(found) for found in inside]
        last = sorted(late, key=lambda v: (-log_k[v], v))
        return cls(list(log_k), left, right, open_, alone, last)

    @property
    def n_leaves(self) -> int:
        return len(self.left) // 2 + 1

    def _size(self, variables: Set) -> float:
        return math.fsum(map(self.log_k.__getitem__, variables))

    def _joined(self, node: int) -> Set:
        return self.open[self.left[node]] | self.open[self.right[node]]

    def order(self) -> list[int]:
        """Variables in the order in which they leave the tree."""
        found, stack = [], [len(self.left) - 1]
        while stack:  # parents before children, so backwards
            node = stack.pop()
            if node >= self.n_leaves:
                gone = self._joined(node) - self.open[node]
                found += sorted(gone, key=lambda v: (self.log_k[v], -v))
                stack += [self.left[node], self.right[node]]
        return [*self.alone, *reversed(found), *self.late]

    def without(self, variable: int) -> "ContractionTree":
        """Return the tree given the value of a variable, which is not one of the last."""
        gone = frozenset((variable,))
        return replace(
            self,
            open=[found - gone for found in self.open],
            alone=[v for v in self.alone if v != variable],
        )

    def annealed(self, moves_per_node: int, hottest: float, seed: int = 0) -> "ContractionTree":
        """Return a tree improved by random moves; inverse temperatures rise from ``hottest``."""
        # Nodes are numbered anew: leaves, and then the others with parents last.
        inner: list[int] = []
        stack = [q for q in (len(self.left) - 1,) if q >= self.n_leaves]
        while stack:
            inner.append(stack.pop())
            q = inner[-1]
            stack += [c for c in (self.left[q], self.right[q]) if c >= self.n_leaves]
        inner.reverse()
        children = [c for q in inner for c in (self.left[q], self.right[q])]
        nodes = [c for c in children if c < self.n_leaves] + inner
        index = {q: i for i, q in enumerate(nodes)} | {-1: -1}
        variables = sorted(set().union(*self.open))
        places, log_k = _places(np.array([self.log_k[v] for v in variables]))
        at = dict(zip(variables, places.tolist(), strict=True))
        row = np.repeat(np.arange(len(nodes)), [len(self.open[q]) for q in nodes])
        where = np.array([at[v] for q in nodes for v in self.open[q]], dtype=np.int64)
        bits = np.zeros((len(nodes), log_k.size), dtype=np.uint64)
        np.bitwise_or.at(bits, (row, where >> 6), np.uint64(1) << (where & 63).astype(np.uint64))
        tree = Tree(
            left=np.array([index[self.left[q]] for q in nodes]),
            right=np.array([index[self.right[q]] for q in nodes]),
            open=bits,
            cost=np.zeros(len(nodes), dtype=np.int64),
            log_k=log_k,
            random=np.array([seed], dtype=np.uint64),
        )
        steps = np.geomspace(hottest, _COLDEST, _N_TEMPERATURES)
        n_moves = max(1, moves_per_node * len(inner) // steps.size)
        with np.errstate(over="ignore"):  # without compilation
            weigh(tree)
            for beta in steps.tolist():
                rotate(tree, beta, n_moves)
        names = np.full(64 * log_k.size, -1)
        names[places] = variables
        row, word = np.nonzero(bits)
        of_words = np.unpackbits(bits[row, word].view(np.uint8), bitorder="little").reshape(-1, 64)
        one, bit = np.nonzero(of_words)
        ends = np.searchsorted(row[one], np.arange(1, len(nodes)))
        found = np.split(names[64 * word[one] + bit], ends)
        open_ = [frozenset(mine.tolist()) for mine in found]
        return replace(self, left=tree.left.tolist(), right=tree.right.tolist(), open=open_)

    def log2_work(self) -> float:
        """Log2 of the entries of all joined tables."""
        sizes = [self._size(self._joined(q)) for q in range(self.n_leaves, len(self.left))]
        return float(np.logaddexp2.reduce(sizes, initial=-math.inf))

    def price(self, moves_per_node: int) -> float:
        n = self.n_leaves - 1
        return n * (_OF_NODE + moves_per_node * (_OF_MOVE + _OF_WORD * (1 + n / 64)))


def _places(log_k: Array) -> tuple[Ints, Ints]:
    """Return a bit for each variable, and log2 of the number of values for each word."""
    places = np.empty(log_k.size, dtype=np.int64)
    of_words: list[int] = []
    for value in np.unique(log_k):
        who = np.flatnonzero(log_k == value)
        places[who] = 64 * len(of_words) + np.arange(who.size)
        of_words += [round(ONE * float(value))] * (-(-who.size // 64))
    return places, np.array(of_words, dtype=np.int64)
