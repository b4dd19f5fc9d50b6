"""How the clique of a bucket is gone through: the axes of its message, blocks, joined tables.

A block is made fast if each factor in it is a run of entries, or constant. So the axes of a message
follow the order of one of the messages that are joined in it, and small tables of a large clique
are joined beforehand and spread over the block.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

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


class Joined(NamedTuple):
    """The axes of a table, and the numbers of those that it is the product of."""

    scope: tuple[int, ...]
    members: list[int]


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

    def scattered(self, scopes: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Return the scopes with inner axes that are no run of entries in a block."""
        inner = self.inner
        any_inner = set(inner)
        return [
            scope
            for scope in scopes
            if tuple(scope[len(scope) - len(inner) :]) != inner and not any_inner.isdisjoint(scope)
        ]

    def loops(
        self, messages: Sequence[Sequence[int]], tables: Sequence[Sequence[int]] = ()
    ) -> tuple[list[int], list[int]]:
        """Split the outer axes into those of scattered factors, and those gone through faster."""
        outer = self.outer
        if not outer:
            return [], []
        slow = set[int]().union(*self.scattered([*messages, *tables]))
        # The longest message is read in its order, and each of its entries once.
        longest = max(messages, key=len, default=())
        order = [*(u for u in longest if u in outer), *(u for u in outer if u not in longest)]
        return [u for u in order if u in slow], [u for u in order if u not in slow]


def n_entries(scope: Sequence[int], sizes: Sequence[int]) -> int:
    return math.prod([sizes[u] for u in scope])


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
    k, rest = sizes[variable], axes[1:]
    if k * n_entries(axes, sizes) < LARGE:
        return Layout(tuple(axes), len(_blocks(axes, sizes, _SMALL_BLOCK)) - 1)
    longest = sorted(messages, key=len, reverse=True)[:_TRIED]
    late = [[u for u in first if u in rest] for first in ((), *longest)]
    orders = [(*axes[:1], *[u for u in rest if u not in last], *last) for last in late]
    best, least = Layout(tuple(axes), 0), math.inf
    for order in dict.fromkeys(orders):
        for m, n in reversed([*enumerate(_blocks(order, sizes, _BLOCK // k))]):
            per_block = (_PER_BLOCK / k + _PER_ROW * (1 + len(messages))) / n
            if per_block >= least:
                break
            layout = Layout(order, m)
            cost = _per_entry(layout, messages, sizes) + per_block
            if cost < least:
                best, least = layout, cost
    return best


def _blocks(axes: Sequence[int], sizes: Sequence[int], most: int) -> list[int]:
    result = [1]
    for u in reversed(axes):
        n = result[-1] * sizes[u]
        if n > most:
            break
        result.append(n)
    return result


def _per_entry(layout: Layout, messages: Sequence[Sequence[int]], sizes: Sequence[int]) -> float:
    """Estimate the time per entry of a clique in nanoseconds, without the time per block."""
    near, scattered = set(layout.inner), layout.scattered(messages)
    cost = _RUN * sum(not near.isdisjoint(message) for message in messages)
    if scattered:
        slow = set[int]().union(*scattered)
        fast = [u for u in layout.outer if u not in slow]
        cost += _SCATTERED * len(scattered) / n_entries(fast, sizes)
    return cost


def join_tables(
    variable: int,
    layout: Layout,
    scopes: Mapping[int, tuple[int, ...]],
    given: Sequence[int],
    sizes: Sequence[int],
) -> list[Joined]:
    """Join small tables of a large clique, and spread them over the block.

    ``scopes`` are those of tables by their numbers. The variables conditioned on come first in a
    table, then outer axes, the variable and inner axes.
    """
    order = [*given, *layout.outer, variable, *layout.inner]
    clique = sizes[variable] * n_entries(layout.axes, sizes)
    if clique < LARGE:
        return [Joined(_in_order(own, order), [f]) for f, own in scopes.items()]
    most = min(_JOINED, clique // _SHARE)
    groups: list[tuple[set[int], list[int]]] = []
    alone = []
    for f, own in scopes.items():
        scope = {variable, *own}
        spread = not scope.isdisjoint(layout.inner)
        if spread:
            scope.update(layout.inner)
        if n_entries(list(scope), sizes) > most:
            alone.append((own, [f]))
            continue
        for known, members in groups:
            if spread != known.isdisjoint(layout.inner) and (
                n_entries(list(known | scope), sizes) <= most
            ):
                known |= scope
                members.append(f)
                break
        else:
            groups.append((scope, [f]))
    return [Joined(_in_order(scope, order), members) for scope, members in (*alone, *groups)]


def _in_order(scope: Collection[int], order: Sequence[int]) -> tuple[int, ...]:
    return tuple(scope) if len(scope) == 1 else tuple([u for u in order if u in scope])
