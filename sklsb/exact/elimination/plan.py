"""Memory layout: tables, messages, and the buckets that join them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from sklsb._kernels.elimination.buckets import CONSTANT, RUN, Buckets
from sklsb._kernels.elimination.tables import add_up, shift_tables
from sklsb._system.arrays import Array, Ints
from sklsb.exact.elimination.layout import (
    Joined,
    Layout,
    choose_layout,
    join_tables,
    n_entries,
    n_pieces,
)
from sklsb.exact.elimination.reduce import Barren, Factor, spread_over
from sklsb.exact.elimination.schedule import BucketTree, Route, Schedule, Step

# Positions are 32-bit numbers in the passes.
MOST_ENTRIES = 1 << 32
# Columns of `Buckets` with one number for each bucket, axis, factor, and variable conditioned on.
_OF_BUCKETS = (
    *("variable", "k", "message_size", "inner_axes", "inner_size", "period"),
    *("axis_start", "factor_start", "scattered_start"),
)
_OF_AXES, _OF_GIVEN = ("axis_variable", "axis_k", "axis_stride"), ("given_variable", "given_stride")
_OF_FACTORS = "offset_start", "position", "sender", "own_stride", "stride_start", "given_start"
# Constant factors come first, scattered ones last.
_TURN = {CONSTANT: 0, RUN: 1}


@dataclass
class Plan:
    """The buckets of an order of elimination, and their tables.

    The largest entry of each table was subtracted from its logarithms: their sum is ``shift`` for
    the tables that are summed, ``barren_shift`` for those of barren variables.
    """

    buckets: Buckets
    joined: list[Joined]  # what each table is made of
    log_tables: Array  # flat; messages follow them in memory
    least: Array  # log2 of the smallest entry above 0 of each factor; 0 for messages
    shift: float
    barren_shift: float
    n_entries: int  # of tables, messages and beliefs, as far as they are held at once
    # Of each bucket: equal ranges of blocks that add to different entries on the way back.
    n_pieces: Ints
    inside: list[Factor]  # over variables conditioned on alone: in no bucket
    back: list[Step]
    sizes: Ints  # of the tables, first those of barren variables
    factors: Ints  # what these are among the factors of buckets
    n_barren: int
    evidence: dict[int, int]  # where the weights of each variable's values are, if there are any
    # Pieces of work that buckets from one to another are divided into, by a size.
    divided: dict[tuple[int, int, int], list[tuple[int, int, bool]]] = field(default_factory=dict)

    def filled(self, logs: Array, index: Any = None, start: Any = None) -> "Plan":
        """Return the plan with other tables, each shifted to a maximum of 0.

        Entry p is the sum of logs[index[start[p] : start[p + 1]]], or logs[p] without an index.
        """
        log_tables = logs
        if index is not None:
            log_tables = np.empty(start.size - 1)
            add_up(logs, index, start, log_tables)
        tops, least = np.empty((2, self.sizes.size))
        shift = shift_tables(log_tables, self.sizes, self.n_barren, tops, least)
        of_factor = np.zeros(self.buckets.position.size)
        of_factor[self.factors] = least
        barren = math.fsum(tops[: self.n_barren].tolist())
        return replace(
            self, log_tables=log_tables, shift=shift, barren_shift=barren, least=of_factor
        )


class _Placed(NamedTuple):
    """A table or a message in memory; positions of messages count from the end of the tables."""

    scope: tuple[int, ...]
    position: int
    sender: int = -1


class _Builder:
    def __init__(self, sizes: Sequence[int]):
        self.sizes = sizes
        self.joined: list[Joined] = []
        self.n_tables = 0  # entries
        self.n_pieces: list[int] = []
        self._buckets: list[tuple[int, ...]] = []
        self._row_sums: list[float] = []
        self._axes: list[tuple[int, ...]] = []
        self._factors: list[tuple[int, ...]] = []
        self._given: list[tuple[int, int]] = []
        self._stride: list[int] = []
        self._offsets: list[int] = []
        self._patterns: dict[Any, int] = {}

    def add(
        self,
        variable: int,
        layout: Layout,
        tables: Sequence[Joined],
        messages: Sequence[_Placed] = (),
        row_sum: float = 0.0,
    ) -> None:
        sizes, inner = self.sizes, layout.inner
        received, mine = [message.scope for message in messages], []
        for table in tables:
            mine.append(_Placed(table.scope, self.n_tables))
            self.n_tables += n_entries(table.scope, sizes)
        self.joined += tables
        slow, fast = layout.loops(received, [table.scope for table in tables])
        outer, strides, found = slow + fast, self._strides(layout.axes), []
        axes, n_outer = [*outer, *inner], len(outer)
        run, block = [strides[u] for u in inner], [sizes[u] for u in inner]
        for scope, position, sender in (*mine, *messages):
            rest = self._strides(scope)
            own, row = rest.pop(variable), [rest.pop(u, 0) for u in axes]
            start = self._offset(row[n_outer:], run, block)
            # What is left of the strides is of variables conditioned on.
            found.append((start, position, sender, own, row, rest))
        found.sort(key=lambda factor: _TURN.get(factor[0], 2))
        # In one block, nothing is joined for others.
        n_early = sum([not n_outer or factor[0] in _TURN for factor in found])
        n_inner, n_fast = math.prod(block), n_entries(fast, sizes)
        size, first = n_inner * n_fast * n_entries(slow, sizes), len(self._factors)
        blocks = size, layout.n_inner, n_inner, n_fast
        starts = len(self._axes), first, first + n_early
        self._buckets.append((variable, sizes[variable], *blocks, *starts))
        self._row_sums.append(row_sum)
        self._axes += [(u, sizes[u], strides[u]) for u in axes]
        for *values, row, given in found:
            self._factors.append((*values, len(self._stride), len(self._given)))
            self._stride += row
            self._given += given.items()
        self.n_pieces.append(n_pieces(outer, received, sizes))

    def _strides(self, scope: Sequence[int]) -> dict[int, int]:
        result, distance = {}, 1
        for u in reversed(scope):
            result[u] = distance
            distance *= self.sizes[u]
        return result

    def _offset(self, strides: list[int], run: list[int], block: list[int]) -> int:
        """Return where the offsets of a factor's block begin; equal ones are shared."""
        if not any(strides):
            return CONSTANT
        if strides == run:
            return RUN
        key = *strides, *block
        if key not in self._patterns:
            offsets = [0]
            for stride, size in zip(strides, block, strict=True):
                steps = [stride * x for x in range(size)]
                offsets = [at + step for at in offsets for step in steps]
            self._patterns[key] = len(self._offsets)
            self._offsets += offsets
        return self._patterns[key]

    def finish(self, schedule: Schedule) -> Buckets:
        """Return all buckets, the last of which send messages."""
        columns: dict[str, Any] = {
            "row_sum": np.array(self._row_sums),
            "stride": np.array(self._stride, dtype=np.int64),
            "offset": np.array(self._offsets, dtype=np.uint32),
        }
        for names, rows in (
            (_OF_BUCKETS, self._buckets),
            (_OF_AXES, self._axes),
            (_OF_FACTORS, self._factors),
            (_OF_GIVEN, self._given),
        ):
            found = np.array(rows, dtype=np.int64).reshape(-1, len(names)).T.copy()
            columns |= zip(names, found, strict=True)
        ends = len(self._axes), len(self._factors), len(self._given)
        for name, end in zip(("axis_start", "factor_start", "given_start"), ends, strict=True):
            columns[name] = np.append(columns[name], end)
        columns["position"][columns["sender"] >= 0] += self.n_tables
        n = columns["k"].size
        for name, at in (("message", schedule.message), ("belief", schedule.belief)):
            columns[name] = np.full(n, -1)
            columns[name][n - at.size :] = np.where(at < 0, -1, at + self.n_tables)
        return Buckets(**columns)


def _entries(
    joined: Sequence[Joined], factors: Sequence[Factor], sizes: Sequence[int]
) -> list[Array]:
    tables = []
    for scope, members in joined:
        table = spread_over(scope, factors[members[0]])
        if len(members) > 1 or factors[members[0]].table.ndim < len(scope):
            shape = [sizes[u] for u in scope]
            parts = [spread_over(scope, factors[f]) for f in members]
            table = np.broadcast_to(reduce(np.add, parts), shape)
        tables.append(table.ravel())
    return tables


def build(
    order: Sequence[int],
    factors: Sequence[Factor],
    sizes: Ints,
    barren: Sequence[Barren] = (),
    schedule: Schedule | None = None,
    *,
    evidence: bool = False,
) -> Plan:
    """Lay out the buckets of an order; variables outside it are conditioned on.

    Barren variables send no message and are drawn last. Without a ``schedule`` all messages stay.
    With ``evidence``, each bucket also has weights of its variable's values in a table of its own.
    """
    schedule = schedule or Route(BucketTree.of(order, factors, sizes), "draws", math.inf).schedule()
    axes = schedule.axes
    place = {v: i for i, v in enumerate(order)}
    waiting: list[dict[int, tuple[int, ...]]] = [{} for _ in order]
    every, ks, n, inside = [*(b.factor for b in barren), *factors], sizes.tolist(), len(barren), []
    for f, factor in enumerate(factors, n):
        mine = [place[v] for v in factor.scope if v in place]
        if mine:
            waiting[min(mine)][f] = factor.scope
        else:
            inside.append(factor)
    builder = _Builder(ks)
    for f, b in enumerate(barren):
        others = [v for v in b.factor.scope if v != b.variable]
        row_sum = math.exp(b.log_high - float(b.factor.table.max())) if b.log_low < 0.0 else 0.0
        table = Joined(b.factor.scope, [f])
        builder.add(b.variable, Layout(tuple(others), 0), [table], row_sum=row_sum)
    arrived: list[list[_Placed]] = [[] for _ in order]
    starts, places = schedule.message.tolist(), dict[int, int]()
    for i, v in enumerate(order):
        layout = choose_layout(v, axes[i][::-1], [message.scope for message in arrived[i]], ks)
        given = sorted({u for scope in waiting[i].values() for u in scope if u not in place})
        tables = join_tables(v, layout, waiting[i], given, ks)
        if evidence:
            tables.append(Joined((v,), [len(every)]))
            every.append(Factor((v,), np.zeros(ks[v])))
        builder.add(v, layout, tables, arrived[i])
        if evidence:
            places[v] = builder.n_tables - ks[v]
        if axes[i]:
            arrived[place[axes[i][-1]]].append(_Placed(layout.axes, starts[i], n + i))
    entries = _entries(builder.joined, every, ks)
    buckets = builder.finish(schedule)
    owned = np.flatnonzero(buckets.sender < 0)
    plan = Plan(
        buckets,
        builder.joined,
        np.empty(0),
        np.empty(0),
        0.0,
        0.0,
        builder.n_tables + schedule.n_entries,
        np.array(builder.n_pieces),
        inside,
        [Step(step.sends, step.first + n, step.end + n) for step in schedule.back],
        np.array([table.size for table in entries], dtype=np.int64),
        owned[np.argsort(buckets.position[owned])],
        n,
        places,
    )
    return plan.filled(np.concatenate([*entries, np.empty(0)]))
