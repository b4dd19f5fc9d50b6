"""Orders of elimination.

The first order is greedy, by the connections that an elimination adds. Then random ones are tried
as long as that takes little work beside the best order's. Work is counted, not timed, so a model
always gets the same order.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.elimination.order import Graph, find_order
from sklsb.exact.elimination.reduce import Factor

# Most random tries, and the work below which there are none.
_TRIES = 512
_ENOUGH = 2.0**20
# Words of bits that random tries may read, per entry of the best order so far and in all.
_WORDS_PER_ENTRY = 2.0
_MOST_WORDS = 2.0**31
# The graph is a matrix of bits, which limits the number of variables.
MOST_VARIABLES = 1 << 15
# Words of bits between two returns to Python, a tenth of a second.
_WORDS_PER_CALL = 1 << 26
_FILL = (1.0, 0.01, 0.0)


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
        random=np.zeros(1, dtype=np.uint64),
    )


def _try(
    graph: Graph, score: tuple[float, float, float], seed: int, most: float, limit: float
) -> tuple[NDArray[np.int64] | None, float, int]:
    """Return an order (None if its work exceeds ``most``), its work, and the words of bits read."""
    mine = Graph._make(array.copy() for array in graph)
    mine.random[0] = seed
    while find_order(mine, (*score, limit), most, _WORDS_PER_CALL):
        pass
    found = mine.order if mine.done[0] == mine.order.size else None
    return found, float(mine.total[0]), int(mine.done[1])


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


def _score(seed: int) -> tuple[float, float, float]:
    rng = np.random.default_rng([seed, 0x5B])
    fill = float(rng.choice([1.0, 1.0, 0.5, 0.0]))
    size = float(rng.choice([0.1, 0.3, 1.0] if fill == 0.0 else [0.0, 0.1, 0.3, 1.0]))
    return fill, size, float(10.0 ** rng.uniform(-3.0, -0.5))


def is_affordable(
    variables: Sequence[int],
    factors: Sequence[Factor],
    sizes: NDArray[np.int64],
    max_work: float,
) -> bool:
    """Whether the greedy order takes at most ``max_work``; no other is tried."""
    graph = _graph(variables, [factor.scope for factor in factors], sizes, ())
    limit = float(np.log2(max(2.0, max_work)))
    return _try(graph, _FILL, 0, max_work, limit)[0] is not None


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
    limit = float(np.log2(max_work)) + 1.0
    found, work, words = _try(graph, _FILL, 0, np.inf, limit)
    order = np.arange(len(variables)) if found is None else found
    if work > max_work and _is_hopeless(graph, max_work):
        return [variables[i] for i in order.tolist()], work
    spent = 0
    for seed in range(1, _TRIES + 1):
        affordable = min(_WORDS_PER_ENTRY * work, _MOST_WORDS)
        if work < _ENOUGH or spent + words > affordable:
            break
        found, total, words = _try(graph, _score(seed), seed, work, limit)
        spent += words
        if found is not None and total < work:
            order, work = found, total
    return [variables[i] for i in order.tolist()], work
