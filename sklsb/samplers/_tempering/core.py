"""The core of a network: the rest after variables with few neighbours are summed out exactly.

Tempering then has fewer variables, fewer zeros and a lower barrier. The other variables are drawn
exactly, given a state of the core.
"""

import heapq
import math
from typing import Any

import numpy as np

from sklsb._kernels.tempering.lift import Conditionals, lift
from sklsb._system.arrays import Array, Ints
from sklsb.exact.elimination.blocks import neighbours
from sklsb.exact.elimination.reduce import (
    Factor,
    Reduced,
    absorb,
    no_state,
    prune,
    spread_over,
    strike,
)
from sklsb.targets._precision import rounding_of
from sklsb.targets.base import States, Target
from sklsb.targets.markov_network import MarkovNetwork

# Log2 of the largest table, by default and at most; entries of all tables together.
LOG2_SIZE, MOST_LOG2_SIZE, _MOST_ENTRIES = 12, 20, 1 << 22
# Rounding of log p that does not matter to swaps.
_MOST_ROUNDING = 1e-6


class Core:
    """A network of the variables that are left, and the distributions of the others given them.

    ``log2_size`` is the log2 of the entries of the largest table that a variable may be summed out
    of. ``network`` is the core, of the variables ``sites``; ``n_drawn`` others are drawn given it.
    ``constant`` is log Z of the target minus log Z of the network.
    """

    def __init__(self, target: Target, log2_size: float):
        self.log2_size = log2_size
        struck = strike(target)
        pruned = prune(struck) if log2_size > 0 else struck
        # If nothing else would be left, barren variables are summed out like all others.
        model = pruned if pruned.free else struck
        order = _order(model, log2_size)
        self.target, self.n_drawn = target, len(order) + len(model.barren)
        joined, factors = _sum_out(model, order)
        if any(not factor.table.max() > -np.inf for factor in factors):
            raise no_state(target, None)
        joined = [(b.variable, _turned(b.factor, b.variable)) for b in model.barren] + joined
        gone = {v for v, _ in joined}
        self.sites = np.array(
            [i for i, v in enumerate(model.values) if v.size > 1 and i not in gone], dtype=np.int64
        )
        self.values = [model.values[i] for i in self.sites.tolist()]
        place = {int(v): i for i, v in enumerate(self.sites)}
        moved = [Factor(tuple(place[v] for v in scope), table) for scope, table in factors]
        shift = math.fsum(float(f.table.max()) for f in moved if not f.scope)
        self.network = _network([v.size for v in self.values], [f for f in moved if f.scope])
        self.constant = model.constant + model.log_barren + shift
        self._conditionals = _conditionals(model, self.sites, joined)

    def __getstate__(self) -> dict[str, Any]:
        return {"target": self.target, "log2_size": self.log2_size}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def of(self, states: States) -> States:
        """Return states of the core from states of the target, shape (..., n_sites)."""
        x = np.searchsorted(np.asarray(self.target.values), states[..., self.sites])
        result = np.empty(x.shape, self.network.dtype)
        for j, left in enumerate(self.values):
            result[..., j] = np.searchsorted(left, x[..., j])
        return result

    def reference(self, product: list[Array] | None) -> list[Array] | None:
        """Return a reference's rows for the core; their sums may be less than 1."""
        if product is None:
            return None
        return [product[i][left] for i, left in zip(self.sites, self.values, strict=True)]

    def lift(self, core: States, u: Array) -> States:
        """Draw states of the target given states of the core, with uniforms (n, n_drawn).

        With u of shape (n, 0), take the likeliest value of each variable in turn.
        """
        x = np.empty((len(core), self.target.n_sites), self.target.dtype)
        index = np.zeros(self.target.n_sites, np.int64)
        lift(self._conditionals, np.ascontiguousarray(core), u, index, x)
        return x


def core_of(target: Target, given: Any) -> Core | None:
    """Return the core of a target, if any variable is summed out; ``given`` is ``eliminate``.

    If log p is so large that its differences are rounded, the core may be the whole target, whose
    tables are shifted to smaller entries.
    """
    if not target.offers.factors:
        return None
    rounded = rounding_of(target.offers.size) > _MOST_ROUNDING
    if given == "auto" and not isinstance(target.offers.plain, MarkovNetwork):
        given = None
    if given is None and not rounded:
        return None
    log2_size = {"auto": LOG2_SIZE, None: 0.0}.get(given, given)
    found = Core(target, float(log2_size))
    return found if (found.n_drawn or rounded) and found.sites.size else None


def _order(model: Reduced, log2_size: float) -> list[int]:
    """Return the variables to sum out, by size of table; one is always left."""
    near = neighbours(model)
    log_k = dict(zip(near, np.log2(model.sizes[list(near)].astype(np.float64)), strict=True))

    def size(v: int) -> float:
        return float(log_k[v] + sum(log_k[u] for u in near[v]))

    heap = [(size(v), v) for v in near]
    heapq.heapify(heap)
    order: list[int] = []
    room = float(_MOST_ENTRIES)
    while heap and len(near) > 1:
        known, v = heapq.heappop(heap)
        if v not in near or known != size(v):
            continue
        if known > log2_size or 2.0**known > room:
            break
        room -= 2.0**known
        order.append(v)
        touched = near.pop(v)
        for u in touched:
            near[u] |= touched
            near[u] -= {u, v}
        for u in touched:
            heapq.heappush(heap, (size(u), u))
    return order


def _sum_out(model: Reduced, order: list[int]) -> tuple[list[tuple[int, Factor]], list[Factor]]:
    """Return each variable's joint table, whose last axis it is, and the tables left."""
    sizes = model.sizes
    left: dict[int, Factor] = dict(enumerate(absorb(model.factors)))
    of: dict[int, set[int]] = {v: set() for v in model.free}
    for f, factor in left.items():
        for v in factor.scope:
            of[v].add(f)
    joined = []
    for v in order:
        mine = [left.pop(f) for f in sorted(of[v])]
        scope = sorted({u for factor in mine for u in factor.scope} - {v})
        table = np.zeros([int(sizes[u]) for u in (*scope, v)])
        for factor in mine:
            table = table + spread_over((*scope, v), factor)
        joined.append((v, Factor((*scope, v), table)))
        new = len(model.factors) + len(joined)
        for f in of.pop(v):
            for u in scope:
                of[u].discard(f)
        left[new] = Factor(tuple(scope), np.logaddexp.reduce(table, axis=-1))
        for u in scope:
            of[u].add(new)
    scoped = absorb([factor for factor in left.values() if factor.scope])
    return joined, scoped + [factor for factor in left.values() if not factor.scope]


def _turned(factor: Factor, variable: int) -> Factor:
    """Move a variable to the last axis."""
    scope = (*(v for v in factor.scope if v != variable), variable)
    return Factor(scope, spread_over(scope, factor))


def _network(sizes: list[int], factors: list[Factor]) -> MarkovNetwork:
    """Return the network of these log-tables."""
    tables = [
        np.where(np.isneginf(table), 0.0, np.exp(np.maximum(table - table.max(), -700.0)))
        for _, table in factors
    ]
    scopes = [scope for scope, _ in factors]
    network = MarkovNetwork(sizes, zip(scopes, tables, strict=True))
    logs = [np.ravel(table) for _, table in factors]
    network._log_table = np.concatenate([*logs, np.empty(0)])
    network._freeze()
    return network


def _conditionals(model: Reduced, core: Ints, joined: list[tuple[int, Factor]]) -> Conditionals:
    """Lay out the conditional distributions in the order of drawing."""
    variable, k, start, axis_start, axis, stride = [], [], [0], [0], [], []
    upto, likeliest = [], []
    for v, (scope, table) in reversed(joined):
        rows = table.reshape(-1, table.shape[-1])
        weight = np.exp(rows - np.maximum(rows.max(axis=1, keepdims=True), -1e300))
        total = np.cumsum(weight, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = total / total[:, -1:]
        # Values without weight are never drawn, whatever the rounding.
        share[(total == total[:, -1:]) | ~(total[:, -1:] > 0.0)] = 1.0
        best = np.zeros(rows.shape, np.int16)
        best[:, 0] = rows.argmax(axis=1)
        variable.append(v)
        k.append(rows.shape[1])
        start.append(start[-1] + rows.size)
        step = np.cumprod([1, *table.shape[-2::-1]])[: len(scope) - 1][::-1]
        axis += list(scope[:-1])
        stride += step.tolist()
        axis_start.append(len(axis))
        upto.append(share.ravel())
        likeliest.append(best.ravel())
    names = np.asarray(model.target.values, dtype=np.int64)
    sizes = model.sizes
    return Conditionals(
        core,
        np.array(variable, dtype=np.int64),
        np.array(k, dtype=np.int64),
        np.array(start, dtype=np.int64),
        np.array(axis_start, dtype=np.int64),
        np.array(axis, dtype=np.int64),
        np.array(stride, dtype=np.int64),
        np.concatenate([*upto, np.empty(0)]),
        np.concatenate([*likeliest, np.empty(0, np.int16)]),
        np.cumsum(sizes) - sizes,
        np.concatenate([names[:0], *(names[left] for left in model.values)]),
    )
