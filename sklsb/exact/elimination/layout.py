"""How the clique of a bucket is gone through: the axes of its message, blocks, joined tables.

A block is made fast if each factor in it is a run of entries, or constant. So the axes of a message
follow the order of one of the messages that are joined in it, and small tables of a large clique
are joined beforehand and spread over the block.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sklsb.exact.elimination.reduce import Array, Factor

# Cliques of at least so many entries are laid out with care.
LARGE = 1 << 12
# Most entries of a message that are made together: of small cliques, and, times the number of
# values summed out, of large ones.
_SMALL_BLOCK, _BLOCK = 128, 1 << 10
# Most entries of a joined table, alone and relative to the clique.
_JOINED, _SHARE = 1 << 14, 16
# Messages, the longest, that a layout may follow.
_TRIED = 3
# Pieces that threads work on.
_PIECES = 8
# Nanoseconds per block, per factor and value of a block, and per entry: of a run, and by offsets.
_PER_BLOCK, _PER_ROW, _RUN, _SCATTERED = 40.0, 6.0, 0.3, 2.0


class Layout(NamedTuple):
    """The axes of a message, the slowest first, of which the last ``n_inner`` make a block."""

    axes: tuple[int, ...]
    n_inner: int

    @property
    def outer(self) -> tuple[int, ...]:
        return self.axes[: len(self.axes) - self.n_inner]

    @property
    def inner(self) -> tuple[int, ...]:
        return self.axes[len(self.axes) - self.n_inner :]

    def loops(
        self, messages: Sequence[Sequence[int]], tables: Sequence[Sequence[int]] = ()
    ) -> tuple[list[int], list[int]]:
        """Split the outer axes into those of scattered factors, and those gone through faster.

        A factor is scattered if it depends on inner axes, and is no run of entries in a block.
        """
        if not self.outer:
            return [], []
        inner, slow = self.inner, set[int]()
        for scope in (*messages, *tables):
            is_run = tuple(scope[len(scope) - len(inner) :]) == inner
            if not is_run and not set(inner).isdisjoint(scope):
                slow.update(scope)
        # The longest message is read in its order, and each of its entries once.
        longest = max(messages, key=len, default=())
        place = {u: i for i, u in enumerate(longest)}
        order = sorted(self.outer, key=lambda u: place.get(u, len(place)))
        return [u for u in order if u in slow], [u for u in order if u not in slow]


def n_entries(scope: Sequence[int], sizes: Sequence[int]) -> int:
    return math.prod(sizes[u] for u in scope)


def n_pieces(axes: Sequence[int], messages: Sequence[Sequence[int]], sizes: Sequence[int]) -> int:
    """Into how many pieces the first axes divide a bucket, if all its messages have them."""
    n = 1
    for u in axes:
        if n >= _PIECES or not all(u in message for message in messages):
            break
        n *= sizes[u]
    return n


def choose_layout(
    variable: int,
    axes: Sequence[int],
    messages: Sequence[Sequence[int]],
    sizes: Sequence[int],
) -> Layout:
    """Choose how the message of a bucket is laid out.

    The first of its axes, which is summed out next, stays the slowest. ``messages`` are the axes of
    the messages joined here.
    """
    k = sizes[variable]
    if k * n_entries(axes, sizes) < LARGE:
        blocks = [m for m, n in _inner_sizes(axes, sizes) if n <= _SMALL_BLOCK]
        return Layout(tuple(axes), blocks[-1])
    found = []
    longest = sorted(messages, key=len, reverse=True)[:_TRIED]
    for first in ((), *longest):
        late = [u for u in first if u in axes[1:]]
        order = (*axes[:1], *(u for u in axes[1:] if u not in late), *late)
        for m, n in _inner_sizes(order, sizes):
            if n == 1 or k * n <= _BLOCK:
                layout = Layout(order, m)
                found.append((_cost(layout, messages, sizes, k, n), layout))
    return min(found, key=lambda pair: pair[0])[1]


def _inner_sizes(axes: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield numbers of last axes with their numbers of entries."""
    n = 1
    yield 0, n
    for m, u in enumerate(reversed(axes), 1):
        n *= sizes[u]
        yield m, n


def _cost(
    layout: Layout, messages: Sequence[Sequence[int]], sizes: Sequence[int], k: int, n: int
) -> float:
    """Estimate the time per entry of a clique in nanoseconds."""
    inner = set(layout.inner)
    inside = sum(not inner.isdisjoint(message) for message in messages)
    runs = sum(message[len(message) - len(inner) :] == layout.inner for message in messages)
    _, fast = layout.loops(messages)
    per_entry = _RUN * inside + _SCATTERED * (inside - runs) / n_entries(fast, sizes)
    return per_entry + (_PER_BLOCK / k + _PER_ROW * (1 + len(messages))) / n


def join_tables(
    variable: int,
    layout: Layout,
    tables: Sequence[Factor],
    given: Sequence[int],
    sizes: Sequence[int],
) -> list[Factor]:
    """Join small tables of a large clique, and spread them over the block.

    The variables conditioned on come first in a table, then outer axes, the variable and inner
    axes.
    """
    order = [*given, *layout.outer, variable, *layout.inner]
    turned = [_turned(table, order) for table in tables]
    clique = sizes[variable] * n_entries(layout.axes, sizes)
    if clique < LARGE:
        return turned
    most = min(_JOINED, clique // _SHARE)
    groups: list[tuple[set[int], list[Factor]]] = []
    alone = []
    for table in turned:
        scope = {variable, *table.scope}
        spread = not scope.isdisjoint(layout.inner)
        if spread:
            scope.update(layout.inner)
        if n_entries(list(scope), sizes) > most:
            alone.append(table)
            continue
        for known, members in groups:
            if spread != known.isdisjoint(layout.inner) and (
                n_entries(list(known | scope), sizes) <= most
            ):
                known |= scope
                members.append(table)
                break
        else:
            groups.append((scope, [table]))
    return [*alone, *(_joined([u for u in order if u in s], m, sizes) for s, m in groups)]


def _turned(factor: Factor, order: Sequence[int]) -> Factor:
    """Return a table with its axes in the given order."""
    scope = [u for u in order if u in factor.scope]
    return Factor(tuple(scope), factor.table.transpose([factor.scope.index(u) for u in scope]))


def _joined(scope: Sequence[int], members: Sequence[Factor], sizes: Sequence[int]) -> Factor:
    """Return the sum of logarithmic tables over a common scope, axes in the same order."""
    table: Array = np.zeros([sizes[u] for u in scope])
    for member in members:
        shape = [sizes[u] if u in member.scope else 1 for u in scope]
        table += member.table.reshape(shape)
    return Factor(tuple(scope), table)
