"""Memory layout: tables, messages, and the buckets that join them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


class _Builder:
    """Collects the columns of `Buckets`."""

    def __init__(self, sizes: Sequence[int]):
        self.sizes = sizes
        self.columns: dict[str, list[Any]] = {name: [] for name in Buckets._fields}
        self.tables: list[Array] = []
        self.n_tables = 0
        self.n_pieces: list[int] = []
        self._patterns: dict[Any, int] = {}
        self._offsets: list[NDArray[np.int64]] = []
        self._n_offsets = 0

    def add(self, **values: Any) -> None:
        for name, value in values.items():
            self.columns[name].append(value)

    def open(
        self,
        variable: int,
        layout: Layout,
        row_sum: float,
        messages: Sequence[Sequence[int]] = (),
        tables: Sequence[Sequence[int]] = (),
    ) -> None:
        """Begin a bucket, of messages and tables with the given scopes."""
        slow, fast = layout.loops(messages, tables)
        self._variable, self._inner = variable, layout.inner
        self._axes = [*slow, *fast, *layout.inner]
        self._period = n_entries(fast, self.sizes)
        self._factors: list[tuple[int, dict[str, Any], list[int], dict[int, int]]] = []
        self.n_pieces.append(n_pieces([*slow, *fast], messages, self.sizes))
        cards = [self.sizes[u] for u in self._axes]
        strides = _strides(layout.axes, [self.sizes[u] for u in layout.axes])
        self._run = tuple(strides[u] for u in layout.inner)
        self.add(
            variable=variable,
            k=self.sizes[variable],
            message_size=math.prod(cards),
            inner_axes=layout.n_inner,
            inner_size=n_entries(layout.inner, self.sizes),
            row_sum=row_sum,
            axis_start=len(self.columns["axis_variable"]),
            factor_start=len(self.columns["position"]),
        )
        self.columns["axis_variable"] += self._axes
        self.columns["axis_stride"] += [strides[u] for u in self._axes]
        self.columns["axis_k"] += cards

    def table(self, table: Array) -> int:
        """Store a table; return its position."""
        at = self.n_tables
        self.tables.append(table.ravel() - _largest(table))
        self.n_tables += table.size
        return at

    def factor(
        self, position: int, strides: dict[int, int], given: dict[int, int], sender: int = -1
    ) -> None:
        """Add a table, or the message of bucket ``sender``, to the open bucket."""
        offset = self._offset(tuple(strides.get(u, 0) for u in self._inner))
        own = strides[self._variable]
        values = dict(position=position, sender=sender, own_stride=own, offset_start=offset)
        self._factors.append((offset, values, [strides.get(u, 0) for u in self._axes], given))

    def close(self) -> None:
        """Add the columns of the factors of the open bucket."""
        kinds = {CONSTANT: 0, RUN: 1}
        self._factors.sort(key=lambda factor: kinds.get(factor[0], 2))
        n = len(self._factors)
        if len(self._axes) > len(self._inner):  # more than one block
            n = sum(factor[0] in kinds for factor in self._factors)
        self.add(scattered_start=len(self.columns["position"]) + n, period=self._period)
        for _, values, row, given in self._factors:
            starts = {"stride_start": "stride", "given_start": "given_variable"}
            self.add(**values, **{key: len(self.columns[name]) for key, name in starts.items()})
            self.columns["stride"] += row
            self.columns["given_variable"] += given.keys()
            self.columns["given_stride"] += given.values()

    def _offset(self, strides: tuple[int, ...]) -> int:
        """Return where the offsets of a factor's block begin; equal ones are shared."""
        if not any(strides):
            return CONSTANT
        if strides == self._run:
            return RUN
        inner = tuple(self.sizes[u] for u in self._inner)
        key = strides, inner
        if key not in self._patterns:
            offsets = np.zeros(1, dtype=np.int64)
            for stride, size in zip(strides, inner, strict=True):
                offsets = np.add.outer(offsets, stride * np.arange(size)).ravel()
            self._patterns[key] = self._n_offsets
            self._offsets.append(offsets)
            self._n_offsets += offsets.size
        return self._patterns[key]

    def finish(self) -> Buckets:
        columns = self.columns
        columns["axis_start"].append(len(columns["axis_variable"]))
        columns["factor_start"].append(len(columns["position"]))
        columns["given_start"].append(len(columns["given_variable"]))
        arrays: dict[str, Any] = {name: np.array(c, np.int64) for name, c in columns.items()}
        arrays["row_sum"] = np.array(columns["row_sum"], dtype=np.float64)
        arrays["offset"] = np.concatenate([*self._offsets, np.empty(0)]).astype(np.uint32)
        return Buckets(**arrays)


def _largest(table: Array) -> float:
    """Return the largest logarithm of a table, or 0 if all are -inf."""
    top = float(table.max())
    return top if top > -math.inf else 0.0


def _strides(scope: Sequence[int], shape: Sequence[int]) -> dict[int, int]:
    """Stride of each variable in a flat table."""
    result, distance = {}, 1
    for v, k in zip(reversed(scope), reversed(shape), strict=True):
        result[v] = distance
        distance *= int(k)
    return result


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
    ks = sizes.tolist()
    builder = _Builder(ks)
    for b in barren:
        others = [v for v in b.factor.scope if v != b.variable]
        row_sum = math.exp(b.log_high - float(b.factor.table.max()))
        builder.open(b.variable, Layout(tuple(others), 0), row_sum if b.log_low < 0.0 else 0.0)
        strides = _strides(b.factor.scope, b.factor.table.shape)
        builder.factor(builder.table(b.factor.table), strides, {})
        builder.close()
    # Messages follow all tables in memory, so positions are final only when those are known.
    arrived: list[list[int]] = [[] for _ in order]
    layouts: list[Layout] = []
    shifts = []
    for i, v in enumerate(order):
        received = [layouts[j].axes for j in arrived[i]]
        layout = choose_layout(v, axes[i][::-1], received, ks)
        given = sorted({u for f in waiting[i] for u in f.scope if u not in place})
        tables = join_tables(v, layout, waiting[i], given, ks)
        builder.open(v, layout, 0.0, received, [scope for scope, _ in tables])
        for scope, table in tables:
            strides = _strides(scope, table.shape)
            conditioned = {u: strides[u] for u in scope if u not in place}
            builder.factor(builder.table(table), strides, conditioned)
            shifts.append(_largest(table))
        for j in arrived[i]:
            sent = layouts[j].axes
            strides = _strides(sent, [ks[u] for u in sent])
            builder.factor(int(schedule.message[j]), strides, {}, len(barren) + j)
        builder.close()
        layouts.append(layout)
        if axes[i]:
            arrived[place[axes[i][-1]]].append(i)
    columns, n, n_tables = builder.columns, len(barren), builder.n_tables
    is_message = [sender >= 0 for sender in columns["sender"]]
    columns["position"] = list(np.add(columns["position"], np.multiply(is_message, n_tables)))
    columns["message"] = [-1] * n + [n_tables + at for at in schedule.message]
    columns["belief"] = [-1] * n + [n_tables + at if at >= 0 else -1 for at in schedule.belief]
    return Plan(
        builder.finish(),
        np.concatenate([*builder.tables, np.empty(0)]),
        math.fsum(shifts),
        math.fsum(float(b.factor.table.max()) for b in barren),
        n_tables + schedule.n_entries,
        np.array(builder.n_pieces),
        inside,
        [Step(step.sends, step.first + n, step.end + n) for step in schedule.back],
    )
