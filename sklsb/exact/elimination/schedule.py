"""Which messages are held when, and which are made again on the way back.

A message is freed when the bucket that joins it is done. The way back, from the last bucket to the
first, needs it a second time. Where not all fit until then, buckets are divided into *parts*, and
these into smaller ones: messages that lead out of a part stay, and those inside it are made again
when the way back comes to it.
"""

import math
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from sklsb._system.arrays import Array, Ints
from sklsb.exact.elimination.reduce import Factor

# What messages are made for: a sum or a maximum alone; the state of the maximum or all marginals,
# on one way back; draws, on many.
Need = Literal["sum", "state", "marginals", "draws"]
# Messages that take this share of memory together stay for good, the smallest ones, and all but the
# largest so many.
_SHARE, _MOST_PLACED = 1 / 16, 4096
# Levels of parts, which is also how often a message may be made again; sizes of parts at the first
# one, relative to all messages. At each further level they are smaller by the same ratio. After
# ``_IDLE`` further sizes that hold no less, smaller ones are not tried.
_LEVELS, _RATIOS, _IDLE = 2, [2.0 ** (-j / 2) for j in range(1, 21)], 2
# Log2 of sizes above which all are alike; sums of them are finite.
_HUGE = 900.0


class Step(NamedTuple):
    """A step of the way back: make messages of buckets again, or go back through buckets."""

    sends: bool
    first: int
    end: int


class Schedule(NamedTuple):
    """Where messages and beliefs lie, relative to the end of the tables, and the way back."""

    axes: list[tuple[int, ...]]  # of each message
    message: Ints
    belief: Ints  # -1 where none is needed
    n_entries: int  # held at most
    back: list[Step]
    n_again: float  # entries of the tables of messages that are made again


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


class BucketTree:
    """The messages of an order of elimination: each bucket sends its own to its parent.

    Sizes beyond 2**900 count as that.
    """

    def __init__(self, order: Sequence[int], axes: Sequence[tuple[int, ...]], sizes: Ints):
        n, place = len(order), {v: i for i, v in enumerate(order)}
        self.order, self.axes, self.sizes = list(order), list(axes), sizes
        # The number of buckets where the message is a number.
        self.parent = np.array([place[a[-1]] if a else n for a in axes], dtype=np.int64)
        # Variables of each message: a matrix would be larger than the messages.
        self.row = np.repeat(np.arange(n), [len(a) for a in axes])
        self.col = np.array([u for a in axes for u in a], dtype=np.int64)
        log_k = np.log2(sizes.astype(np.float64))
        self.log_k = log_k[self.order]
        self.log_size = np.bincount(self.row, log_k[self.col], n)  # log2 of the entries
        self.size = np.rint(np.exp2(np.minimum(self.log_size, _HUGE)))  # entries of the message
        self.work = self.size * sizes[self.order]  # entries of the table
        self.child = np.argsort(self.parent, kind="stable")  # children of each bucket in turn
        self.child_start = np.searchsorted(self.parent[self.child], np.arange(n + 2))

    @classmethod
    def of(cls, order: Sequence[int], factors: Sequence[Factor], sizes: Ints) -> "BucketTree":
        return cls(order, cliques(order, factors), sizes)

    @property
    def log2_work(self) -> float:
        """Log2 of the entries of all tables, always finite."""
        logs = self.log_size + self.log_k
        if logs.max(initial=0.0) > _HUGE:
            return float(np.logaddexp2.reduce(logs))
        return math.log2(max(1.0, self.work.sum()))

    def depth_first(self, late: Collection[int] = ()) -> "BucketTree":
        """Return an order with the same messages, of which few are held at once.

        A variable comes right after those below it in the tree. Of several subtrees the one comes
        first that holds most beyond its message. Variables in ``late`` stay last.
        """
        n = len(self.order)
        children = np.split(self.child, self.child_start[1:-1])
        peak = np.zeros(n)
        for i, mine in enumerate(children[:n]):
            mine[:] = mine[np.argsort(self.size[mine] - peak[mine], kind="stable")]
            held = np.cumsum(self.size[mine])
            during = held - self.size[mine] + peak[mine]
            peak[i] = max(during.max(initial=0.0), held[-1:].sum() + self.size[i])
        stack, found = children[n].tolist(), []
        while stack:
            found.append(stack.pop())
            stack += children[found[-1]].tolist()
        last = {i for i, v in enumerate(self.order) if v in late}
        found = [i for i in reversed(found) if i not in last] + sorted(last)
        return BucketTree([self.order[i] for i in found], [self.axes[i] for i in found], self.sizes)


class _Lives(NamedTuple):
    """Spans of steps in which messages, or the beliefs numbered after them, are held."""

    owner: Ints
    begin: Ints
    end: Ints

    def peak(self, size: Array) -> float:
        """Most entries held at once, given those of each owner."""
        n, mine = int(self.end.max(initial=0)) + 2, size[self.owner]
        change = np.bincount(self.begin, mine, n) - np.bincount(self.end + 1, mine, n)
        return float(np.cumsum(change).max())


def _lives(tree: BucketTree, size: Array, steps: Sequence[Step], need: Need) -> _Lives:
    """Return when what takes memory is held: from when it is made to its last use before that."""
    n = tree.parent.size
    spans = [np.arange(s.first, s.end)[:: 1 if s.sends else -1] for s in steps]
    bucket = np.concatenate(spans)
    sends = np.repeat([s.sends for s in steps], [span.size for span in spans])
    # Whatever is done with a bucket uses the messages of its children.
    n_used = np.diff(tree.child_start)[bucket]
    used_at = np.repeat(np.arange(bucket.size), n_used)
    skipped = np.repeat(tree.child_start[bucket] - np.cumsum(n_used) + n_used, n_used)
    used = tree.child[np.arange(used_at.size) + skipped]
    owner = np.concatenate([bucket[sends], used])
    time = np.concatenate([np.flatnonzero(sends), used_at])
    made = np.arange(owner.size) < np.count_nonzero(sends)
    kept = np.flatnonzero(size[owner] > 0)
    kept = kept[np.lexsort((time[kept], owner[kept]))]
    first = np.flatnonzero(made[kept])
    last = np.append(first[1:], kept.size)[: first.size] - 1
    owner, begin, end = owner[kept[first]], time[kept[first]], time[kept[last]]
    if need == "marginals":
        spread_at = np.zeros(n, dtype=np.int64)
        spread_at[bucket[~sends]] = np.flatnonzero(~sends)
        below = np.flatnonzero(size > 0)
        owner = np.concatenate([owner, n + below])
        begin = np.concatenate([begin, spread_at[tree.parent[below]]])
        end = np.concatenate([end, spread_at[below]])
    return _Lives(owner, begin, end)


def _way_back(
    tree: BucketTree,
    size: Array,
    first: int,
    end: int,
    quotas: Sequence[float],
    made: bool = True,
) -> list[Step]:
    """Go back through a part whose messages are ``made``, or must be.

    A part is divided where its messages have more entries than ``quotas`` say for each level.
    """
    steps = []
    if not made:  # those that do not lead out of the part, which are used up
        mine = slice(first, end)
        sent = np.flatnonzero((tree.parent[mine] < end) & (size[mine] > 0)) + first
        runs = np.split(sent, np.flatnonzero(np.diff(sent) > 1) + 1)
        steps = [Step(True, int(run[0]), int(run[-1]) + 1) for run in runs if run.size]
    if not quotas:
        return [*steps, Step(False, first, end)]
    cuts = [first, *_cuts(tree, size, first, end, quotas[0]), end]
    for a, b in reversed(list(pairwise(cuts))):
        steps += _way_back(tree, size, a, b, quotas[1:], b == end)
    return steps


def _cuts(tree: BucketTree, size: Array, first: int, end: int, quota: float) -> list[int]:
    """Divide a part where little is held in between."""
    before = np.append(0.0, np.cumsum(size))
    # Entries of the messages that are held between two buckets, in one direction.
    used = np.bincount(np.minimum(tree.parent, size.size - 1) + 1, size, size.size + 1)
    between, cuts = before - np.cumsum(used), []
    while before[end] - before[first] > quota:
        low, high = np.searchsorted(before, before[first] + quota * np.array([0.5, 1.0]), "right")
        low = max(int(low) - 1, first + 1)
        high = max(int(high) - 1, low)
        if high >= end:
            break
        first = high - int(np.argmin(between[low : high + 1][::-1]))
        cuts.append(first)
    return cuts


def _steps(tree: BucketTree, size: Array, need: Need, room: float) -> tuple[list[Step], float]:
    """Return the steps after the way forward that keep the room, or else hold least; their peak.

    Few messages are made again.
    """
    n, total, twice = size.size, float(size.sum()), np.tile(size, 2)
    forward = Step(True, 0, n)
    if need == "sum":
        return [], _lives(tree, size, [forward], need).peak(size)
    best: tuple[list[Step], float] = [], np.inf
    for level in range(_LEVELS + 1):
        least, idle = np.inf, 0
        for ratio in _RATIOS if level else [1.0]:
            quotas = [total * ratio**j for j in range(1, level + 1)]
            steps = _way_back(tree, size, 0, n, quotas)
            peak = _lives(tree, size, [forward, *steps], need).peak(twice)
            if peak < best[1]:
                best = steps, peak
            idle = 0 if peak < 0.99 * least else idle + 1
            least = min(least, peak)
            if best[1] <= room or idle > _IDLE:
                break
        if best[1] <= room:
            break
    return best


def _first_fit(lives: _Lives, size: Ints) -> Ints:
    """Return an address for each owner, the largest first, so that none overlap while held."""
    at = np.zeros(size.size, dtype=np.int64)
    placed = np.zeros(lives.owner.size, dtype=np.bool_)
    spans: dict[int, list[int]] = {}
    for j, i in enumerate(lives.owner.tolist()):
        spans.setdefault(i, []).append(j)
    for i in sorted(spans, key=lambda i: -size[i]):
        near = np.zeros(placed.size, dtype=np.bool_)
        for j in spans[i]:
            near |= (lives.begin <= lives.end[j]) & (lives.begin[j] <= lives.end)
        near &= placed
        low = at[lives.owner[near]]
        high = low + size[lives.owner[near]]
        turn = np.argsort(low, kind="stable")
        free = np.append(0, np.maximum.accumulate(high[turn]))
        at[i] = free[np.argmax(np.append(low[turn], np.inf) - free >= size[i])]
        placed[spans[i]] = True
    return at


class Route:
    """An order of elimination with the same messages, when they are held, and the way back.

    Messages of variables in ``late``, which come last, and those sent to them, stay for good; the
    order changes only if others do not. If possible, at most ``room`` entries are held, and no more
    are made again than that takes.
    """

    def __init__(self, tree: BucketTree, need: Need, room: float, late: Collection[int] = ()):
        n, copies = tree.parent.size, 1 + (need == "marginals")

        def kept() -> Array:
            """Entries of the messages that stay."""
            smallest = np.argsort(tree.size, kind="stable")
            few = np.cumsum(tree.size[smallest]) * copies <= room * _SHARE
            stays = tree.parent >= n - len(set(late).intersection(tree.order))
            stays[smallest[few | (np.arange(n) < n - _MOST_PLACED)]] = True
            return np.where(stays | (need == "draws"), tree.size, 0.0)

        self._kept = kept()
        if (self._kept < tree.size).any():
            tree = tree.depth_first(late)
            self._kept = kept()
        self.tree, self._need, self._placed = tree, need, tree.size - self._kept
        self.peak = copies * float(self._kept.sum())  # most entries held at once
        self._back = [Step(False, 0, n)]
        if self._placed.any():
            self._back, more = _steps(tree, self._placed, need, room - self.peak)
            self.peak += more
        again = [slice(step.first, step.end) for step in self._back if step.sends]
        # Entries of the tables of messages that are made again.
        self.n_again = float(sum(tree.work[span].sum() for span in again))

    def schedule(self) -> Schedule:
        kept, size = self._kept.astype(np.int64), self._placed.astype(np.int64)
        both, held = self._need == "marginals", int(kept.sum())
        message = np.cumsum(kept) - kept
        belief = held + message if both else np.full(kept.size, -1)
        top = held = (1 + both) * held
        if size.any():
            steps, twice = [Step(True, 0, kept.size), *self._back], np.tile(size, 2)
            lives = _lives(self.tree, self._placed, steps, self._need)
            at = held + _first_fit(lives, twice)
            message = np.where(kept > 0, message, at[: kept.size])
            belief = np.where(kept > 0, belief, at[kept.size :]) if both else belief
            top = int((at + twice)[lives.owner].max())
        return Schedule(self.tree.axes, message, belief, top, self._back, self.n_again)
