"""Making a model small before anything is multiplied.

Values that evidence or a zero excludes are struck out. Tables of one variable given others whose
rows sum to 1 are put aside where nothing else depends on the variable: it is *barren*.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb.targets._support import Support
from sklsb.targets.base import Target

Array = NDArray[np.float64]
# Sums of rows that differ by less are equal: rounding of a few terms.
EXACT = 64 * float(np.finfo(np.float64).eps)
# Beside a larger number too much of a small one is lost: 4e-9 beside this one.
LARGE = 2.0**24


class Factor(NamedTuple):
    """Logarithms of a table over some variables, of the values that are left of them."""

    scope: tuple[int, ...]
    table: Array


class Barren(NamedTuple):
    """A variable that nothing else depends on."""

    variable: int
    factor: Factor
    log_high: float  # of the largest sum of a row of exp(table)
    log_low: float  # of the smallest one over it


@dataclass
class Reduced:
    """A product of tables, and what of the model it was made from is left out of it.

    Parameters
    ----------
    target : Target
        The model.
    values : list of ndarray of int64
        Indices of the values that are left of each variable.
    factors : list of Factor
        Over variables of which several values are left.
    constant : float
        Log p less the sum of all factors, those of barren variables included.
    barren : list of Barren
        In the order in which they were put aside.
    row_sums : dict
        What is known of the sums of rows of the factors, by factor and variable.
    """

    target: Target
    values: list[NDArray[np.int64]]
    factors: list[Factor]
    constant: float
    barren: list[Barren] = field(default_factory=list)
    row_sums: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of values left of each variable."""
        return np.array([v.size for v in self.values], dtype=np.int64)

    @property
    def free(self) -> list[int]:
        """Variables that are to be eliminated."""
        barren = set(self.barren_variables)
        return [i for i, v in enumerate(self.values) if v.size > 1 and i not in barren]

    @property
    def barren_variables(self) -> list[int]:
        """Variables that were put aside."""
        return [b.variable for b in self.barren]

    @property
    def log_barren(self) -> float:
        """What the tables that were put aside add to the logarithm of the sum of all products."""
        return math.fsum(b.log_high for b in self.barren)

    @property
    def log_defect(self) -> float:
        """How far the sums of the rows that were put aside are from constant, together."""
        return -math.fsum(b.log_low for b in self.barren)


def log_factors(target: Target) -> list[tuple[tuple[int, ...], Array]]:
    """Return the factors of a target, or say that it has none."""
    found = target.log_factors
    if found is None:
        raise TypeError(
            f"{target!r:.200} is not made of factors, and exact answers are computed from those. "
            "Ising, Potts and MarkovNetwork have them, with evidence too; a class of your own can "
            "offer them by the property log_factors. Use a sampler instead."
        )
    factors = []
    for f, (scope, given) in enumerate(found):
        table = np.asarray(given, dtype=np.float64)
        shape = tuple(target.cardinalities[list(scope)].tolist()) if scope else ()
        if table.shape != shape or len(set(scope)) < len(scope):
            raise ValueError(
                f"log_factors[{f}] has the scope {tuple(scope)} and a table of shape "
                f"{table.shape}; name each site once, and give a table of shape {shape}."
            )
        if not np.max(table) < np.inf:  # NaN is not either
            raise ValueError(f"log_factors[{f}] has an entry that is NaN or inf; give logarithms.")
        factors.append((tuple(scope), table))
    return factors


def without_top(table: Array) -> tuple[Array, float]:
    """Return a table less its largest entry, where that is large, and what was taken off.

    So what is added to the likely entries stays beside them.
    """
    top = float(table.max())
    return (table - top, top) if LARGE < abs(top) < math.inf else (table, 0.0)


def strike(target: Target) -> Reduced:
    """Strike out what evidence and zeros exclude, and fix variables of one value.

    The largest entry of a table, where it is large, goes to the constant.
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
    left = support.domains
    values = [np.flatnonzero(domain) for domain in left]
    constant, taken, factors = 0.0, [], []
    may_be_large = not target._trusts_factors or target._log_prob_size > LARGE
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
    return Reduced(target, values, factors, math.fsum([constant, *taken]))


def no_state(target: Target, scope: tuple[Any, ...] | None) -> ValueError:
    """Return the error of a model whose probabilities are all zero."""
    where = "" if scope is None else f": a factor over {scope} cannot be satisfied"
    return ValueError(
        f"{target!r:.200} has no state of positive probability{where}. Its partition function is "
        "0; check the tables and the evidence."
    )


def _row_sums(table: Array, axis: int) -> tuple[float, float]:
    """Return the logarithm of the largest sum of a row, and of the smallest one over it."""
    top = float(table.max())
    sums = np.exp(table - top).sum(axis=axis)
    high, low = float(sums.max()), float(sums.min())
    return math.log(high) + top, math.log(low / high) if low > 0.0 else -math.inf


def prune(model: Reduced, keep: Collection[int] = (), defect: float = EXACT) -> Reduced:
    """Put barren variables aside, again and again.

    Parameters
    ----------
    model : Reduced
        As `strike` returns it; not changed.
    keep : collection of int
        Variables that are never put aside.
    defect : float
        How much the sums of the rows may differ, relative to the largest one. What differs by no
        more than rounding counts as equal.
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
        factor = Factor((i,), np.zeros(model.values[i].size))
        if found >= 0:
            factor = model.factors[found]
        if (found, i) not in model.row_sums:
            model.row_sums[found, i] = _row_sums(factor.table, factor.scope.index(i))
        log_high, log_low = model.row_sums[found, i]
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
    return Reduced(model.target, model.values, left, model.constant, barren)


def absorb(factors: list[Factor]) -> list[Factor]:
    """Add each table to one whose scope holds its own, if there is one."""
    hosts: list[Factor] = []
    same: dict[frozenset[int], int] = {}
    of: dict[int, list[int]] = {}  # hosts of more variables than the present one has
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
            _add(hosts[host], scope, table)
    return hosts


def _add(host: Factor, scope: tuple[int, ...], table: Array) -> None:
    """Add a table to one over more variables, in place."""
    order = sorted(range(len(scope)), key=lambda axis: host.scope.index(scope[axis]))
    shape = [
        size if i in scope else 1 for i, size in zip(host.scope, host.table.shape, strict=True)
    ]
    host.table[...] += table.transpose(order).reshape(shape)
