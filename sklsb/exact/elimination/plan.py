"""Memory layout: tables, messages, and the buckets that join them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.elimination.buckets import BLOCK, Buckets
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
    inside: list[Factor]  # over variables conditioned on alone: in no bucket
    back: list[Step]

    @property
    def n_tables(self) -> int:
        """Entries of the tables: the position of the first message."""
        return self.log_tables.size


class _Builder:
    """Collects the columns of `Buckets`."""

    def __init__(self, sizes: NDArray[np.int64]):
        self.sizes = sizes
        self.columns: dict[str, list[Any]] = {name: [] for name in Buckets._fields}
        self.tables: list[Array] = []
        self.n_tables = 0
        self._patterns: dict[Any, int] = {}
        self._offsets: list[NDArray[np.int64]] = []
        self._n_offsets = 0

    def add(self, **values: Any) -> None:
        for name, value in values.items():
            self.columns[name].append(value)

    def open(self, variable: int, axes: Sequence[int], row_sum: float) -> None:
        """Begin a bucket."""
        cards = [int(self.sizes[u]) for u in axes]
        inner_axes, inner_size = 0, 1
        for k in reversed(cards):
            if inner_size * k > BLOCK:
                break
            inner_axes, inner_size = inner_axes + 1, inner_size * k
        self.add(
            variable=variable,
            k=int(self.sizes[variable]),
            message_size=math.prod(cards),
            inner_axes=inner_axes,
            inner_size=inner_size,
            row_sum=row_sum,
            axis_start=len(self.columns["axis_variable"]),
            factor_start=len(self.columns["position"]),
        )
        self.columns["axis_variable"] += axes
        self.columns["axis_k"] += cards
        self._bucket = variable, tuple(axes), tuple(cards[len(cards) - inner_axes :])

    def table(self, table: Array) -> int:
        """Store a table; return its position."""
        at = self.n_tables
        self.tables.append(table.ravel() - table.max())
        self.n_tables += table.size
        return at

    def factor(
        self, position: int, strides: dict[int, int], given: dict[int, int], sender: int = -1
    ) -> None:
        """Add a table, or the message of bucket ``sender``, to the open bucket."""
        variable, axes, inner = self._bucket
        row, own = [strides.get(u, 0) for u in axes], strides[variable]
        self.add(
            position=position,
            sender=sender,
            own_stride=own,
            stride_start=len(self.columns["stride"]),
            offset_start=self._offset(own, tuple(row[len(row) - len(inner) :]), inner),
            given_start=len(self.columns["given_variable"]),
        )
        self.columns["stride"] += row
        self.columns["given_variable"] += given.keys()
        self.columns["given_stride"] += given.values()

    def _offset(self, own: int, row: tuple[int, ...], inner: tuple[int, ...]) -> int:
        """Return where the offsets of a factor's block begin; equal ones are shared."""
        if not any(row):
            return -1
        k = int(self.sizes[self._bucket[0]])
        key = (own, k, row, inner)
        if key not in self._patterns:
            offsets = own * np.arange(k)
            for stride, size in zip(row, inner, strict=True):
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
    builder = _Builder(sizes)
    for b in barren:
        others = [v for v in b.factor.scope if v != b.variable]
        row_sum = math.exp(b.log_high - float(b.factor.table.max()))
        builder.open(b.variable, others, row_sum if b.log_low < 0.0 else 0.0)
        strides = _strides(b.factor.scope, b.factor.table.shape)
        builder.factor(builder.table(b.factor.table), strides, {})
    # Messages follow all tables in memory, so positions are final only when those are known.
    arrived: list[list[int]] = [[] for _ in order]
    for i, v in enumerate(order):
        builder.open(v, axes[i], 0.0)
        for scope, table in waiting[i]:
            # The variable eliminated first changes fastest, as in messages.
            mine = sorted(scope, key=lambda u: -place.get(u, len(order)))
            turned = table.transpose([scope.index(u) for u in mine])
            strides = _strides(mine, turned.shape)
            conditioned = {u: strides[u] for u in mine if u not in place}
            builder.factor(builder.table(turned), strides, conditioned)
        for j in arrived[i]:
            strides = _strides(axes[j], [int(sizes[u]) for u in axes[j]])
            builder.factor(int(schedule.message[j]), strides, {}, len(barren) + j)
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
        math.fsum(float(f.table.max()) for part in waiting for f in part),
        math.fsum(float(b.factor.table.max()) for b in barren),
        n_tables + schedule.n_entries,
        inside,
        [Step(step.sends, step.first + n, step.end + n) for step in schedule.back],
    )
