"""Memory layout: tables, messages, and the buckets that join them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.elimination.buckets import CONSTANT, RUN, Buckets
from sklsb.exact.elimination.layout import (
    Layout,
    choose_layout,
    join_tables,
    n_entries,
    n_pieces,
)
from sklsb.exact.elimination.reduce import Array, Barren, Factor
from sklsb.exact.elimination.schedule import Schedule, Step, scheduled
from sklsb.exact.elimination.slicing import cliques

# Positions are 32-bit numbers in the passes.
MOST_ENTRIES = 1 << 32
# Columns of `Buckets` with one number for each bucket, and for each factor.
_OF_BUCKETS = (
    *("variable", "k", "message_size", "inner_axes", "inner_size", "period"),
    "scattered_start",
)
_OF_FACTORS = ("offset_start", "position", "sender", "own_stride", "stride_start")
# Constant factors come first, scattered ones last.
_TURN = {CONSTANT: 0, RUN: 1}


@dataclass
class Plan:
    """The buckets of an order of elimination, and their tables.

    The largest entry of each table was subtracted from its logarithms: their sum is ``shift`` for
    the tables that are summed, ``barren_shift`` for those of barren variables.
    """

    buckets: Buckets
    log_tables: Array  # flat; messages follow them in memory
    shift: float
    barren_shift: float
    n_entries: int  # of tables, messages and beliefs, as far as they are held at once
    # Of each bucket: equal ranges of blocks that add to different entries on the way back.
    n_pieces: NDArray[np.int64]
    inside: list[Factor]  # over variables conditioned on alone: in no bucket
    back: list[Step]

    @property
    def n_tables(self) -> int:
        """Entries of the tables: the position of the first message."""
        return self.log_tables.size


class _Placed(NamedTuple):
    """A table or a message in memory; positions of messages count from the end of the tables."""

    scope: tuple[int, ...]
    position: int
    sender: int = -1


class _Builder:
    """Collects the columns of `Buckets`."""

    def __init__(self, sizes: Sequence[int]):
        self.sizes = sizes
        self.tables: list[Array] = []
        self.n_tables = 0
        self.n_pieces: list[int] = []
        self._buckets: list[tuple[int, ...]] = []
        self._factors: list[tuple[int, ...]] = []
        rest = set(Buckets._fields).difference(_OF_BUCKETS, _OF_FACTORS, ("message", "belief"))
        self._columns: dict[str, list[Any]] = {name: [] for name in rest}
        self._patterns: dict[Any, int] = {}

    def add(
        self,
        variable: int,
        layout: Layout,
        tables: Sequence[Factor],
        messages: Sequence[_Placed] = (),
        row_sum: float = 0.0,
    ) -> None:
        """Add a bucket."""
        sizes, columns, inner = self.sizes, self._columns, layout.inner
        received = [message.scope for message in messages]
        slow, fast = layout.loops(received, [table.scope for table in tables])
        axes, strides = [*slow, *fast, *inner], self._strides(layout.axes)
        columns["axis_start"].append(len(columns["axis_variable"]))
        columns["factor_start"].append(len(self._factors))
        columns["row_sum"].append(row_sum)
        columns["axis_variable"] += axes
        columns["axis_stride"] += [strides[u] for u in axes]
        columns["axis_k"] += [sizes[u] for u in axes]
        factors = [*[self._store(table) for table in tables], *messages]
        scattered = self._join(variable, axes, inner, [strides[u] for u in inner], factors)
        n_inner, n_fast = n_entries(inner, sizes), n_entries(fast, sizes)
        size = n_inner * n_fast * n_entries(slow, sizes)
        self._buckets.append(
            (variable, sizes[variable], size, layout.n_inner, n_inner, n_fast, scattered)
        )
        self.n_pieces.append(n_pieces([*slow, *fast], received, sizes))

    def _join(
        self,
        variable: int,
        axes: Sequence[int],
        inner: Sequence[int],
        run: list[int],
        factors: Sequence[_Placed],
    ) -> int:
        """Add the factors of a bucket; return the first one that is joined once for many blocks."""
        columns, found, n_outer = self._columns, [], len(axes) - len(inner)
        block = tuple([self.sizes[u] for u in inner])
        for scope, position, sender in factors:
            strides = self._strides(scope)
            own, row = strides.pop(variable), [strides.pop(u, 0) for u in axes]
            start = self._offset(row[n_outer:], run, block)
            # What is left of the strides is of variables conditioned on.
            found.append((start, position, sender, own, row, strides))
        found.sort(key=lambda factor: _TURN.get(factor[0], 2))
        first = len(self._factors)
        for *values, row, given in found:
            self._factors.append((*values, len(columns["stride"])))
            columns["given_start"].append(len(columns["given_variable"]))
            columns["stride"] += row
            columns["given_variable"] += given
            columns["given_stride"] += given.values()
        if not n_outer:  # one block
            return len(self._factors)
        return first + sum([factor[0] in _TURN for factor in found])

    def _store(self, table: Factor) -> _Placed:
        """Store a table."""
        flat = table.table.ravel()
        self.tables.append(flat)
        self.n_tables += flat.size
        return _Placed(table.scope, self.n_tables - flat.size)

    def _strides(self, scope: Sequence[int]) -> dict[int, int]:
        """Stride of each variable in a flat table."""
        result, distance = {}, 1
        for u in reversed(scope):
            result[u] = distance
            distance *= self.sizes[u]
        return result

    def _offset(self, strides: list[int], run: list[int], block: tuple[int, ...]) -> int:
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
            self._patterns[key] = len(self._columns["offset"])
            self._columns["offset"] += offsets
        return self._patterns[key]

    def finish(self, schedule: Schedule) -> Buckets:
        """Return all buckets, the last of which send messages."""
        kinds, rest = {"row_sum": np.float64, "offset": np.uint32}, self._columns
        rest["axis_start"].append(len(rest["axis_variable"]))
        rest["factor_start"].append(len(self._factors))
        rest["given_start"].append(len(rest["given_variable"]))
        columns = {name: np.array(c, kinds.get(name, np.int64)) for name, c in rest.items()}
        for names, rows in ((_OF_BUCKETS, self._buckets), (_OF_FACTORS, self._factors)):
            table = np.array(rows, dtype=np.int64).reshape(-1, len(names))
            columns.update(zip(names, table.T.copy(), strict=True))
        columns["position"][columns["sender"] >= 0] += self.n_tables
        for name, at in (("message", schedule.message), ("belief", schedule.belief)):
            columns[name] = np.full(len(self._buckets), -1, dtype=np.int64)
            columns[name][len(self._buckets) - at.size :] = np.where(at < 0, -1, at + self.n_tables)
        return Buckets(**columns)

    def finish_tables(self) -> tuple[Array, Array]:
        """Shift each log table to a maximum of 0; return tables and shifts (0 if all are -inf)."""
        flat, sizes = np.concatenate([*self.tables, np.empty(0)]), [t.size for t in self.tables]
        self.tables.clear()
        tops = np.maximum.reduceat(flat, np.cumsum([0, *sizes[:-1]])) if sizes else np.empty(0)
        tops[tops == -np.inf] = 0.0
        flat -= np.repeat(tops, sizes)
        return flat, tops


def build(
    order: Sequence[int],
    factors: Sequence[Factor],
    sizes: NDArray[np.int64],
    barren: Sequence[Barren] = (),
    schedule: Schedule | None = None,
) -> Plan:
    """Lay out the buckets of an order; variables outside it are conditioned on.

    Barren variables send no message and are drawn last. Without a ``schedule`` all messages stay.
    """
    axes = cliques(order, factors)
    schedule = schedule or scheduled(order, axes, sizes, "draws", math.inf)[1]
    place = {v: i for i, v in enumerate(order)}
    waiting: list[list[Factor]] = [[] for _ in order]
    inside = []
    for factor in factors:
        mine = [place[v] for v in factor.scope if v in place]
        if mine:
            waiting[min(mine)].append(factor)
        else:
            inside.append(factor)
    ks, n = sizes.tolist(), len(barren)
    builder = _Builder(ks)
    for b in barren:
        others = [v for v in b.factor.scope if v != b.variable]
        row_sum = math.exp(b.log_high - float(b.factor.table.max())) if b.log_low < 0.0 else 0.0
        builder.add(b.variable, Layout(tuple(others), 0), [b.factor], row_sum=row_sum)
    arrived: list[list[_Placed]] = [[] for _ in order]
    starts = schedule.message.tolist()
    for i, v in enumerate(order):
        layout = choose_layout(v, axes[i][::-1], [message.scope for message in arrived[i]], ks)
        given = sorted({u for f in waiting[i] for u in f.scope if u not in place})
        tables = join_tables(v, layout, waiting[i], given, ks)
        builder.add(v, layout, tables, arrived[i])
        if axes[i]:
            arrived[place[axes[i][-1]]].append(_Placed(layout.axes, starts[i], n + i))
    log_tables, tops = builder.finish_tables()
    return Plan(
        builder.finish(schedule),
        log_tables,
        math.fsum(tops[n:]),
        math.fsum(tops[:n]),
        log_tables.size + schedule.n_entries,
        np.array(builder.n_pieces),
        inside,
        [Step(step.sends, step.first + n, step.end + n) for step in schedule.back],
    )
