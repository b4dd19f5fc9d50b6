"""Conditioning on a few variables, where messages do not fit into memory.

The elimination is then run for each joint value of these variables.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from sklsb.exact.elimination.reduce import Factor
from sklsb.exact.elimination.schedule import Need, peak_of

# Time of all ways through the tables beside the way forward.
WAYS: dict[Need, float] = {"sum": 1.0, "state": 1.0, "marginals": 3.0, "draws": 1.0}


def cliques(order: Sequence[int], factors: Sequence[Factor]) -> list[tuple[int, ...]]:
    """Return the axes of each variable's message, the one eliminated last first."""
    place = {v: i for i, v in enumerate(order)}
    waiting: list[list[set[int]]] = [[] for _ in order]
    for scope, _ in factors:
        inside = {v for v in scope if v in place}
        if inside:
            waiting[min(place[v] for v in inside)].append(inside)
    result = []
    for i, v in enumerate(order):
        axes = set().union(*waiting[i]) - {v}
        found = tuple(sorted(axes, key=lambda u: -place[u]))
        result.append(found)
        if found:
            waiting[place[found[-1]]].append(axes)
    return result


def work_of(
    order: Sequence[int], axes: Sequence[tuple[int, ...]], sizes: NDArray[np.int64]
) -> tuple[float, float]:
    """Return the number of entries of all tables and of all messages; inf beyond 2**1024."""
    with np.errstate(over="ignore"):
        messages = np.exp2(_log2_messages(axes, sizes))
        return float((messages * sizes[list(order)]).sum()), float(messages.sum())


def log2_work_of(
    order: Sequence[int], axes: Sequence[tuple[int, ...]], sizes: NDArray[np.int64]
) -> tuple[float, float]:
    """Return log2 of what `work_of` returns, always finite."""
    messages = _log2_messages(axes, sizes)
    tables = messages + np.log2(sizes[list(order)])
    return float(np.logaddexp2.reduce(tables)), float(np.logaddexp2.reduce(messages))


def _log2_messages(
    axes: Sequence[tuple[int, ...]], sizes: NDArray[np.int64]
) -> NDArray[np.float64]:
    logs = np.log2(sizes.astype(np.float64))
    return np.array([float(logs[list(found)].sum()) for found in axes])


def choose_slices(
    order: Sequence[int],
    factors: Sequence[Factor],
    sizes: NDArray[np.int64],
    most: float,
    keep: Collection[int] = (),
    need: Need = "draws",
) -> list[int]:
    """Choose variables greedily until at most ``most`` entries of messages are held at once.

    Each choice makes the work grow least, relative to the logarithm of its number of values. More
    are chosen where that is less work than to make messages again.
    """
    axes = cliques(order, factors)
    logs = np.log2(sizes.astype(np.float64))
    place = {v: i for i, v in enumerate(order)}
    n = len(order)
    # Variables of each table, sparse: a matrix would be larger than the messages.
    row = np.repeat(np.arange(n), [1 + len(found) for found in axes])
    near = [(v, *found) for v, found in zip(order, axes, strict=True)]
    col = np.array([place[u] for found in near for u in found], dtype=np.int64)
    log_k = logs[list(order)]
    size = np.bincount(row, log_k[col], n)
    allowed = np.array([v not in keep for v in order])
    left = np.ones(n, dtype=np.bool_)
    chosen: list[int] = []
    best, least = chosen, np.inf

    def rate() -> tuple[float, float]:
        """Return the work of what is chosen, inf if it does not fit, and the least possible."""
        if np.exp2(size[left] - log_k[left]).max(initial=0.0) > most:
            return np.inf, 0.0
        rest = [v for v in order if v not in set(chosen)]
        axes = cliques(rest, factors)
        peak, again = peak_of(rest, axes, sizes, need, most, keep)
        times = float(np.exp2(logs[chosen].sum()))
        work = times * WAYS[need] * work_of(rest, axes, sizes)[0]
        again *= 1.0 if need == "state" else times
        return (work + again if peak <= most else np.inf), work

    while True:
        found, bound = rate()
        if found < least:
            best, least = chosen.copy(), found
        if bound >= least or not left.any():
            break
        entries = np.where(left, np.exp2(size), 0.0)
        saved = np.bincount(col, entries[row], n) * (1.0 - np.exp2(-log_k))
        grown = np.log2(np.maximum((entries.sum() - saved) * np.exp2(log_k), 1.0))
        score = np.where(left & allowed, (grown - np.log2(entries.sum())) / log_k, np.inf)
        choice = int(score.argmin())
        if not left[choice] or not allowed[choice]:
            break
        chosen.append(order[choice])
        size[row[col == choice]] -= log_k[choice]
        row, col = row[col != choice], col[col != choice]
        left[choice] = False
    return best
