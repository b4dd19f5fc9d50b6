"""Shrinking a model before anything is multiplied.

Values excluded by evidence or a zero are struck out. A variable is *barren* if only one table
depends on it and the rows of that table sum to a constant; both are put aside.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._system.arrays import Array, Ints
from sklsb.targets._evidence import NoStateError, impossible
from sklsb.targets._precision import (
    LARGE,
    MOST_ROUNDING,
    log_factors,
    rounding_of,
    without_top,
)
from sklsb.targets._support import Support
from sklsb.targets.base import Conditioned, Target

# Row sums with a smaller relative difference count as equal: a few terms are rounded.
EXACT = 64 * float(np.finfo(np.float64).eps)
# Entries of a table that take as long to read as what there is to do for any table.
_AS_ONE = 1024
# Table entries of one question about part of the evidence, to name what is impossible.
_TO_NAME = 2.0**24


class Factor(NamedTuple):
    """Logarithms of a table over the values left of some variables."""

    scope: tuple[int, ...]
    table: Array


def spread_over(scope: Sequence[int], factor: Factor) -> Array:
    """Return a table with axes for all variables of a scope, of size 1 where it has none."""
    own, table = factor
    if table.ndim > 1:
        table = table.transpose([own.index(u) for u in scope if u in own])
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if u in own else 1 for u in scope])


class Barren(NamedTuple):
    """A variable that nothing else depends on."""

    variable: int
    factor: Factor
    log_high: float  # log of the largest row sum of exp(table)
    log_low: float  # log of the smallest row sum over the largest


@dataclass
class Reduced:
    """What is left of a model: a product of tables, and what was taken out of it."""

    target: Target
    values: list[Ints]  # indices of the values left of each variable
    factors: list[Factor]  # over variables with several values left
    constant: float  # log p less the sum of all factors, including those of barren variables
    barren: list[Barren] = field(default_factory=list)  # in the order in which they were put aside
    n_read: int = 0  # tables read to make this, large ones counted once per 1,024 entries

    @property
    def sizes(self) -> Ints:
        return np.array([v.size for v in self.values], dtype=np.int64)

    @cached_property
    def names(self) -> NDArray[Any]:
        """Target values of the values left, a row for each variable."""
        sizes, every = self.sizes, np.asarray(self.target.values, dtype=self.target.dtype)
        found = np.zeros((sizes.size, int(sizes.max(initial=1))), self.target.dtype)
        left = np.concatenate([*self.values, np.empty(0, np.int64)])
        found[np.arange(found.shape[1]) < sizes[:, np.newaxis]] = every[left]
        return found

    @property
    def free(self) -> list[int]:
        barren = set(self.barren_variables)
        return [i for i, v in enumerate(self.values) if v.size > 1 and i not in barren]

    @property
    def barren_variables(self) -> list[int]:
        return [b.variable for b in self.barren]

    @property
    def log_barren(self) -> float:
        """Contribution of barren variables to the logarithm of the sum of all products."""
        return math.fsum(b.log_high for b in self.barren)

    @property
    def log_defect(self) -> float:
        """How far row sums of barren variables are from constant, in all."""
        return -math.fsum(b.log_low for b in self.barren)


def strike(target: Target) -> Reduced:
    """Strike out values excluded by evidence and zeros, and fix variables with one value left.

    Large largest entries of tables go to the constant.
    """
    given = log_factors(target)
    scopes = [np.array(scope, dtype=np.uint32) for scope, _ in given]
    # Only zeros count here; logarithms may be anything.
    support = Support(
        scopes,
        lambda f: (given[f][1] > -np.inf).astype(np.float64),
        target.cardinalities,
        target.label,
    )
    if support.impossible is not None:
        raise no_state(target, support.called(support.impossible))
    values = [np.flatnonzero(domain) for domain in support.domains]
    constant, taken, factors = 0.0, [], []
    may_be_large = not target.offers.own_factors or target.offers.size > LARGE
    for scope, table in given:
        for axis, i in enumerate(scope):
            if values[i].size < table.shape[axis]:
                table = table.take(values[i], axis=axis)
        kept = [axis for axis, i in enumerate(scope) if values[i].size > 1]
        table = table.reshape([table.shape[axis] for axis in kept])
        if may_be_large:
            table, top = without_top(table)
            taken.append(top)
        if kept:
            factors.append(Factor(tuple(scope[axis] for axis in kept), table))
        else:
            constant += float(table)
    if constant == -math.inf:
        raise no_state(target, None)
    n_read = sum(1 + table.size // _AS_ONE for _, table in given)
    return Reduced(target, values, factors, math.fsum([constant, *taken]), n_read=n_read)


def no_state(target: Target, scope: tuple[Any, ...] | None) -> NoStateError:
    """Return the error for a target without a possible state; of evidence, what contradicts."""
    if isinstance(target, Conditioned):
        import sklsb

        try:
            plan = sklsb.exact.prepare(target.target, max_work=_TO_NAME)
            plan.log_partition(target.evidence)
        except NoStateError as named:
            return named
        except (ValueError, MemoryError):  # too large to ask about parts of the evidence
            return impossible(target.evidence)
    where = "" if scope is None else f": a factor over {scope} cannot be satisfied"
    return NoStateError(
        f"{target!r:.200} has no state of positive probability{where}. Its partition function is "
        "0; check the tables and the evidence."
    )


def _row_sums(table: Array, axis: int) -> tuple[float, float]:
    """Return log of the largest row sum, and log of the smallest over the largest."""
    top = float(table.max())
    sums = np.exp(table - top).sum(axis=axis)
    high, low = float(sums.max()), float(sums.min())
    return math.log(high) + top, math.log(low / high) if low > 0.0 else -math.inf


def prune(model: Reduced, keep: Collection[int] = (), defect: float = EXACT) -> Reduced:
    """Put barren variables aside repeatedly, except those in ``keep``.

    ``defect`` is how much row sums may differ, relative to the largest.
    """
    of: list[set[int]] = [set() for _ in model.values]
    for f, (scope, _) in enumerate(model.factors):
        for i in scope:
            of[i].add(f)
    gone: set[int] = set()
    barren = []
    stack = [i for i, v in enumerate(model.values) if v.size > 1 and len(of[i]) < 2]
    done = set(keep)
    while stack:
        i = stack.pop()
        if i in done or len(of[i]) > 1:
            continue
        found = next(iter(of[i]), -1)
        uniform = Factor((i,), np.zeros(model.values[i].size))
        factor = model.factors[found] if found >= 0 else uniform
        log_high, log_low = _row_sums(factor.table, factor.scope.index(i))
        if -log_low > defect:
            continue
        log_low = log_low if -log_low > EXACT else 0.0
        done.add(i)
        barren.append(Barren(i, factor, log_high, log_low))
        gone.add(found)
        for j in factor.scope:
            of[j].discard(found)
            if len(of[j]) < 2:
                stack.append(j)
    left = [factor for f, factor in enumerate(model.factors) if f not in gone]
    return replace(model, factors=left, barren=barren)


def absorb(factors: list[Factor]) -> list[Factor]:
    """Add each table to one whose scope includes its own, if there is one."""
    hosts: list[Factor] = []
    same: dict[frozenset[int], int] = {}
    of: dict[int, list[int]] = {}  # hosts with more variables than the present table
    n_listed = 0
    for scope, table in sorted(factors, key=lambda factor: -len(factor.scope)):
        while n_listed < len(hosts) and len(hosts[n_listed].scope) > len(scope):
            for i in hosts[n_listed].scope:
                of.setdefault(i, []).append(n_listed)
            n_listed += 1
        mine = frozenset(scope)
        near = min((of.get(i, []) for i in scope), key=len)
        host = same.get(mine)
        if host is None:
            host = next((h for h in near if mine.issubset(hosts[h].scope)), None)
        if host is None:
            same[mine] = len(hosts)
            hosts.append(Factor(scope, table.copy()))
        else:
            hosts[host].table[...] += spread_over(hosts[host].scope, Factor(scope, table))
    return hosts


def tied_by_zeros(target: Target) -> bool:
    """Whether a zero over several variables is left after impossible values are struck."""
    return bool(target.offers.joint_zeros) and any(
        len(scope) > 1 and not (table > -np.inf).all() for scope, table in strike(target).factors
    )


def cancelling_site(target: Target) -> int | None:
    """Return a variable at which large terms of log p may cancel, or None.

    A difference of log p in one variable is right if only one of the terms that change is large.
    """
    largest: dict[int, list[float]] = {}
    for factor in strike(target).factors:
        for axis, i in enumerate(factor.scope):
            largest.setdefault(i, []).append(_spread(factor, axis))
    second = {i: sorted(found)[-2] for i, found in largest.items() if len(found) > 1}
    worst = max(second, key=lambda i: second[i], default=None)
    return None if worst is None or rounding_of(second[worst]) <= MOST_ROUNDING else worst


def _spread(factor: Factor, axis: int) -> float:
    """Return the largest finite difference of two entries that differ in one variable."""
    table = factor.table
    high = table.max(axis=axis)
    low = np.where(table > -np.inf, table, np.inf).min(axis=axis)
    spread = (high - low)[high > -np.inf]
    return float(spread.max(initial=0.0))
