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
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Axes = Sequence[tuple[int, ...]]
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
# Larger sizes are all alike; sums of them are finite.
_HUGE = 2.0**900


class Step(NamedTuple):
    """A step of the way back: make messages of buckets again, or go back through buckets."""

    sends: bool
    first: int
    end: int


class Schedule(NamedTuple):
    """Where messages and beliefs lie, relative to the end of the tables, and the way back."""

    message: Int64
    belief: Int64  # -1 where none is needed
    n_entries: int  # held at most
    back: list[Step]
    n_again: float  # entries of the tables of messages that are made again


class _Tree(NamedTuple):
    """Each bucket sends its message to its parent."""

    parent: Int64  # the number of buckets where the message is a number
    size: Float64  # entries of the message
    work: Float64  # entries of the table
    child: Int64  # children of each bucket in turn
    child_start: Int64


def _tree_of(order: Sequence[int], axes: Axes, sizes: Int64) -> _Tree:
    n = len(order)
    place = {v: i for i, v in enumerate(order)}
    parent = np.array([place[a[-1]] if a else n for a in axes], dtype=np.int64)
    ks = sizes.astype(np.float64).tolist()
    size: Float64 = np.array([min(math.prod([ks[u] for u in a]), _HUGE) for a in axes])
    work: Float64 = size * sizes[list(order)]
    child = np.argsort(parent, kind="stable")
    return _Tree(parent, size, work, child, np.searchsorted(parent[child], np.arange(n + 2)))


def depth_first(
    order: Sequence[int], axes: Axes, sizes: Int64, late: Collection[int] = ()
) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return an order with the same messages, of which few are held at once, and their axes.

    A variable comes right after those below it in the tree. Of several subtrees the one comes first
    that holds most beyond its message. Variables in ``late`` stay last.
    """
    tree, n = _tree_of(order, axes, sizes), len(order)
    children = np.split(tree.child, tree.child_start[1:-1])
    peak = np.zeros(n)
    for i, mine in enumerate(children[:n]):
        mine[:] = mine[np.argsort(tree.size[mine] - peak[mine], kind="stable")]
        held = np.cumsum(tree.size[mine])
        during = held - tree.size[mine] + peak[mine]
        peak[i] = max(during.max(initial=0.0), held[-1:].sum() + tree.size[i])
    stack, found = children[n].tolist(), []
    while stack:
        found.append(stack.pop())
        stack += children[found[-1]].tolist()
    last = {i for i, v in enumerate(order) if v in late}
    found = [i for i in reversed(found) if i not in last] + sorted(last)
    return [order[i] for i in found], [axes[i] for i in found]


class _Lives(NamedTuple):
    """Spans of steps in which messages, or the beliefs numbered after them, are held."""

    owner: Int64
    begin: Int64
    end: Int64

    def peak(self, size: Float64) -> float:
        """Most entries held at once, given those of each owner."""
        n, mine = int(self.end.max(initial=0)) + 2, size[self.owner]
        change = np.bincount(self.begin, mine, n) - np.bincount(self.end + 1, mine, n)
        return float(np.cumsum(change).max())


def _lives(tree: _Tree, steps: Sequence[Step], need: Need) -> _Lives:
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
    kept = np.flatnonzero(tree.size[owner] > 0)
    kept = kept[np.lexsort((time[kept], owner[kept]))]
    first = np.flatnonzero(made[kept])
    last = np.append(first[1:], kept.size)[: first.size] - 1
    owner, begin, end = owner[kept[first]], time[kept[first]], time[kept[last]]
    if need == "marginals":
        spread_at = np.zeros(n, dtype=np.int64)
        spread_at[bucket[~sends]] = np.flatnonzero(~sends)
        below = np.flatnonzero(tree.size > 0)
        owner = np.concatenate([owner, n + below])
        begin = np.concatenate([begin, spread_at[tree.parent[below]]])
        end = np.concatenate([end, spread_at[below]])
    return _Lives(owner, begin, end)


class _Parts:
    """Ways back through parts of the buckets."""

    def __init__(self, tree: _Tree):
        n = tree.parent.size
        self.tree = tree
        self._before = np.append(0.0, np.cumsum(tree.size))
        # Entries of the messages that are held between two buckets, in one direction.
        used = np.bincount(np.minimum(tree.parent, n - 1) + 1, tree.size, n + 1)
        self._between = self._before - np.cumsum(used)

    def way_back(self, first: int, end: int, quotas: Sequence[float], made: bool) -> list[Step]:
        """Go back through a part whose messages are ``made``, or must be.

        A part is divided where its messages have more entries than ``quotas`` say for each level.
        """
        steps = [] if made else self._inside(first, end)
        if not quotas:
            return [*steps, Step(False, first, end)]
        cuts = [first, *self._cuts(first, end, quotas[0]), end]
        for a, b in reversed(list(pairwise(cuts))):
            steps += self.way_back(a, b, quotas[1:], b == end)
        return steps

    def _inside(self, first: int, end: int) -> list[Step]:
        """Make the messages again that do not lead out of a part, which are used up."""
        mine = slice(first, end)
        sent = np.flatnonzero((self.tree.parent[mine] < end) & (self.tree.size[mine] > 0)) + first
        runs = np.split(sent, np.flatnonzero(np.diff(sent) > 1) + 1)
        return [Step(True, int(run[0]), int(run[-1]) + 1) for run in runs if run.size]

    def _cuts(self, first: int, end: int, quota: float) -> list[int]:
        """Divide a part where little is held in between."""
        cuts = []
        while self._before[end] - self._before[first] > quota:
            full = self._before[first] + quota * np.array([0.5, 1.0])
            low, high = np.searchsorted(self._before, full, "right") - 1
            low = max(int(low), first + 1)
            high = max(int(high), low)
            if high >= end:
                break
            first = high - int(np.argmin(self._between[low : high + 1][::-1]))
            cuts.append(first)
        return cuts


def _steps(tree: _Tree, need: Need, room: float) -> tuple[list[Step], float]:
    """Return the steps after the way forward that keep the room, or else hold least; their peak.

    Few messages are made again.
    """
    n, parts, total = tree.parent.size, _Parts(tree), float(tree.size.sum())
    forward = Step(True, 0, n)
    if need == "sum":
        return [], _lives(tree, [forward], need).peak(tree.size)
    size = np.tile(tree.size, 2)
    best: tuple[list[Step], float] = [], np.inf
    for level in range(_LEVELS + 1):
        least, idle = np.inf, 0
        for ratio in _RATIOS if level else [1.0]:
            quotas = [total * ratio**j for j in range(1, level + 1)]
            steps = parts.way_back(0, n, quotas, True)
            peak = _lives(tree, [forward, *steps], need).peak(size)
            if peak < best[1]:
                best = steps, peak
            idle = 0 if peak < 0.99 * least else idle + 1
            least = min(least, peak)
            if best[1] <= room or idle > _IDLE:
                break
        if best[1] <= room:
            break
    return best


def _staying(tree: _Tree, need: Need, room: float, n_late: int) -> NDArray[np.bool_]:
    n, copies = tree.parent.size, 1 + (need == "marginals")
    if need == "draws":
        return np.ones(n, dtype=np.bool_)
    smallest = np.argsort(tree.size, kind="stable")
    few = np.cumsum(tree.size[smallest]) * copies <= room * _SHARE
    stays = tree.parent >= n - n_late
    stays[smallest[few | (np.arange(n) < n - _MOST_PLACED)]] = True
    return stays


def _first_fit(lives: _Lives, size: Float64) -> Int64:
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
    are made again than that takes. Sizes beyond 2**900 count as that.
    """

    def __init__(
        self,
        order: Sequence[int],
        axes: Axes,
        sizes: Int64,
        need: Need,
        room: float,
        late: Collection[int] = (),
    ):
        n_late = len(set(late).intersection(order))
        tree = _tree_of(order, axes, sizes)
        stays = _staying(tree, need, room, n_late)
        if not stays.all():
            order, axes = depth_first(order, axes, sizes, late)
            tree = _tree_of(order, axes, sizes)
            stays = _staying(tree, need, room, n_late)
        self.order, self._need = list(order), need
        self._kept = np.where(stays, tree.size, 0.0)
        self._placed = tree._replace(size=tree.size - self._kept)
        self._back = [Step(False, 0, len(order))]
        self.peak = 0.0  # most entries held at once
        held = (1 + (need == "marginals")) * float(self._kept.sum())
        if not stays.all():
            self._back, self.peak = _steps(self._placed, need, room - held)
        self.peak += held
        again = [slice(step.first, step.end) for step in self._back if step.sends]
        # Entries of the tables of messages that are made again.
        self.n_again = float(sum(tree.work[span].sum() for span in again))

    def schedule(self) -> Schedule:
        kept, placed, both = self._kept.astype(np.int64), self._placed, self._need == "marginals"
        held = int(kept.sum())
        message = np.cumsum(kept) - kept
        belief = held + message if both else np.full(kept.size, -1)
        top = held = (1 + both) * held
        if placed.size.any():
            size = np.tile(placed.size, 2)
            lives = _lives(placed, [Step(True, 0, kept.size), *self._back], self._need)
            at = held + _first_fit(lives, size)
            message = np.where(kept > 0, message, at[: kept.size])
            belief = np.where(kept > 0, belief, at[kept.size :]) if both else belief
            top = int((at + size)[lives.owner].max())
        return Schedule(message, belief, top, self._back, self.n_again)
