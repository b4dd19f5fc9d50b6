"""Conditioning on a few variables, where messages do not fit into memory.

The elimination is then run for each joint value of these variables.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from sklsb._system.arrays import Ints
from sklsb.exact.elimination.order import Order
from sklsb.exact.elimination.reduce import Factor
from sklsb.exact.elimination.schedule import BucketTree, Need, Route

# Log2 of how far the work may exceed the limit before no more variables are chosen.
HOPELESS = 20.0
# Time of a pass beyond its table entries, in table entries.
_OF_PASS = 2.0**14
# Time of an answer, relative to the way forward alone.
WAYS: dict[Need, float] = {"sum": 1.0, "state": 2.0, "marginals": 4.0, "draws": 1.0}


def _next_slice(tree: BucketTree, keep: Collection[int]) -> int | None:
    """Return the variable whose value, if given, makes the work grow least.

    The growth is relative to the logarithm of its number of values.
    """
    allowed = np.array([v not in keep for v in tree.order], dtype=np.bool_)
    if not allowed.any():
        return None
    size = tree.log_size + tree.log_k
    entries = np.exp2(size - size.max())
    share = np.bincount(tree.col, entries[tree.row], tree.sizes.size)[tree.order] + entries
    saved = share * (1.0 - np.exp2(-tree.log_k))
    grown = tree.log_k + np.log2(np.maximum(entries.sum() - saved, 1e-300) / entries.sum())
    return tree.order[int(np.where(allowed, grown / tree.log_k, np.inf).argmin())]


def choose_slices(
    found: Order,
    factors: Sequence[Factor],
    sizes: Ints,
    most: float,
    keep: Collection[int],
    need: Need,
    max_work: float,
) -> tuple[BucketTree, list[int]]:
    """Condition on variables until at most ``most`` entries of messages are held at once.

    More are chosen where that is less work than to make messages again. Returns the messages of the
    rest, and the variables chosen: if none are enough, those that the work allows.
    """
    chosen: list[int] = []
    best, least = None, np.inf
    while True:
        tree = BucketTree.of(found.variables, factors, sizes)
        times = math.prod(float(k) for k in sizes[chosen])
        work = times * (WAYS[need] * float(tree.work.sum()) + _OF_PASS)
        hopeless = work >= min(least, 2.0**HOPELESS * max_work)
        if not hopeless and tree.size.max(initial=0.0) <= most:
            route = Route(tree, need, most, keep)
            again = route.n_again * (1.0 if need == "state" else times)
            if route.peak <= most and work + again < least:
                best, least = (tree, [*chosen]), work + again
        choice = None if hopeless else _next_slice(tree, keep)
        if choice is None:
            return best or (tree, chosen)
        chosen.append(choice)
        found = found.given(choice)
