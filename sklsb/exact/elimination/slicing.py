"""Conditioning on a few variables, where messages do not fit into memory.

The elimination is then run for each joint value of these variables.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from sklsb.exact.elimination.order import Order
from sklsb.exact.elimination.reduce import Factor
from sklsb.exact.elimination.schedule import Need, Route

Int64 = NDArray[np.int64]
# Log2 of how far the work may exceed the limit before no more variables are chosen.
HOPELESS = 20.0
# Time of a pass beyond its table entries, in table entries.
_OF_PASS = 2.0**14
# Time of an answer, relative to the way forward alone.
WAYS: dict[Need, float] = {"sum": 1.0, "state": 2.0, "marginals": 4.0, "draws": 1.0}


def cliques(order: Sequence[int], factors: Sequence[Factor]) -> list[tuple[int, ...]]:
    """Return the axes of each variable's message, the one eliminated last first."""
    place = {v: i for i, v in enumerate(order)}
    waiting: list[list[set[int]]] = [[] for _ in order]  # of places
    for scope, _ in factors:
        inside = {place[v] for v in scope if v in place}
        if inside:
            waiting[min(inside)].append(inside)
    result = []
    for i, parts in enumerate(waiting):
        axes = set().union(*parts)
        axes.discard(i)
        found = sorted(axes, reverse=True)
        result.append(tuple([order[j] for j in found]))
        if found:
            waiting[found[-1]].append(axes)
    return result


def work_of(
    order: Sequence[int], axes: Sequence[tuple[int, ...]], sizes: Int64
) -> tuple[float, float]:
    """Return the number of entries of all tables and of all messages; inf beyond 2**1024."""
    with np.errstate(over="ignore"):
        messages = np.exp2(_log2_messages(axes, sizes))
        return float((messages * sizes[list(order)]).sum()), float(messages.sum())


def log2_work_of(order: Sequence[int], axes: Sequence[tuple[int, ...]], sizes: Int64) -> float:
    """Return log2 of the number of entries of all tables, always finite."""
    tables = _log2_messages(axes, sizes) + np.log2(sizes[list(order)])
    return float(np.logaddexp2.reduce(tables))


def _log2_messages(axes: Sequence[tuple[int, ...]], sizes: Int64) -> NDArray[np.float64]:
    logs = np.log2(sizes.astype(np.float64))
    return np.array([float(logs[list(found)].sum()) for found in axes])


def _next_slice(
    order: Sequence[int], axes: Sequence[tuple[int, ...]], sizes: Int64, keep: Collection[int]
) -> int | None:
    """Return the variable whose value, if given, makes the work grow least.

    The growth is relative to the logarithm of its number of values.
    """
    place = {v: i for i, v in enumerate(order)}
    allowed = np.array([v not in keep for v in order], dtype=np.bool_)
    if not allowed.any():
        return None
    # Variables of each table, sparse: a matrix would be larger than the messages.
    row = np.repeat(np.arange(len(order)), [1 + len(found) for found in axes])
    near = [(v, *found) for v, found in zip(order, axes, strict=True)]
    col = np.array([place[u] for found in near for u in found], dtype=np.int64)
    log_k = np.log2(sizes[list(order)].astype(np.float64))
    size = np.bincount(row, log_k[col], len(order))
    entries = np.exp2(size - size.max())
    saved = np.bincount(col, entries[row], len(order)) * (1.0 - np.exp2(-log_k))
    grown = log_k + np.log2(np.maximum(entries.sum() - saved, 1e-300) / entries.sum())
    return order[int(np.where(allowed, grown / log_k, np.inf).argmin())]


def choose_slices(
    found: Order,
    factors: Sequence[Factor],
    sizes: Int64,
    most: float,
    keep: Collection[int] = (),
    need: Need = "draws",
    max_work: float = 2.0**50,
) -> tuple[list[int], list[int]]:
    """Condition on variables until at most ``most`` entries of messages are held at once.

    More are chosen where that is less work than to make messages again. Returns an order of the
    rest, and the variables chosen: if none are enough, those that the work allows.
    """
    chosen: list[int] = []
    best, least = None, np.inf
    while True:
        axes = cliques(found.variables, factors)
        times = math.prod(float(k) for k in sizes[chosen])
        work = times * (WAYS[need] * work_of(found.variables, axes, sizes)[0] + _OF_PASS)
        if work >= min(least, 2.0**HOPELESS * max_work):
            return best or (found.variables, chosen)
        if np.exp2(_log2_messages(axes, sizes)).max(initial=0.0) <= most:
            route = Route(found.variables, axes, sizes, need, most, keep)
            again = route.n_again * (1.0 if need == "state" else times)
            if route.peak <= most and work + again < least:
                best, least = (found.variables, [*chosen]), work + again
        choice = _next_slice(found.variables, axes, sizes, keep) if found.variables else None
        if choice is None:
            return best or (found.variables, chosen)
        chosen.append(choice)
        found = found.given(choice)
