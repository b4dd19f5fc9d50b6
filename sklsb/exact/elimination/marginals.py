"""All marginals: by one elimination, or by further ones for barren variables."""

import math
from operator import itemgetter

import numpy as np

from sklsb._kernels.elimination.buckets import LINEAR
from sklsb._system.arrays import Array
from sklsb.exact.elimination.cost import EliminationCost, check_limits_kept, fits, n_entries
from sklsb.exact.elimination.engine import (
    DEFECT,
    MOST_DEFECTS,
    Elimination,
    Ordered,
    order_sought,
    ordered,
    shown,
    strike_few,
    warn_of_defect,
)
from sklsb.exact.elimination.order import greedy_work
from sklsb.exact.elimination.reduce import EXACT, Reduced, prune
from sklsb.exact.elimination.slicing import WAYS
from sklsb.targets._precision import warn_if_lost
from sklsb.targets.base import Target

# Work below which one elimination is used without looking for alternatives; how much less work
# than that of greedy orders is thought possible.
_CHEAP, _SAVED = 2.0**24, 2.0**6

# Eliminations with the variables whose marginals they give.
Parts = list[tuple[Ordered, list[int]]]


def whole_or_parts(struck: Reduced, limits: tuple[float, ...]) -> tuple[Parts, EliminationCost]:
    """Choose one elimination for all marginals, or one for the core and some for barren variables.

    Returns these and the cost of all.
    """
    whole = ordered(struck, pruned=False, need="marginals", limits=limits)
    one = [(whole, list(range(len(struck.values))))], whole.cost
    if whole.cost.log2_work <= math.log2(_CHEAP):
        return one
    most = min(n_entries(whole.cost), limits[0])
    for defect in (EXACT, DEFECT):
        core = prune(struck, (), defect)
        if defect > EXACT and (fits(whole.cost, limits) or core.log_defect > MOST_DEFECTS):
            break  # exact rather than cheap
        found = _core_and_barren(core, limits, most) if core.barren else one
        if n_entries(found[1]) <= most:
            return found
    return one


def _core_and_barren(
    core: Reduced, limits: tuple[float, ...], most: float
) -> tuple[Parts, EliminationCost]:
    """Return an elimination of the core, and others of barren variables with their ancestors.

    These are left out if they certainly take more than ``most`` entries.
    """
    parents = {v for b in core.barren for v in b.factor.scope if v != b.variable}
    last = [b.variable for b in core.barren if b.variable not in parents]
    above = _Above(core)
    groups, work = above.divided(last, _SAVED * most)
    if work > _SAVED * most:
        return [], EliminationCost(math.log2(work), 0.0, 1)
    barren, known = set(core.barren_variables), set[int]()
    found = ordered(core, pruned=False, need="marginals", limits=limits)
    parts = [(found, [i for i in range(len(core.values)) if i not in barren])]
    share = limits[0] / len(groups), *limits[1:]
    for variables in groups:
        model, inside = above.model(variables)
        part = ordered(model, pruned=False, need="marginals", limits=share)
        parts.append((part, [i for i in inside if i in barren and i not in known]))
        known.update(inside)
    costs = [part.cost for part, _ in parts]
    return parts, EliminationCost(
        math.log2(math.fsum(2.0**cost.log2_work for cost in costs)),
        max(cost.log2_memory for cost in costs),
        sum(cost.n_configurations for cost in costs),
        WAYS["marginals"],
        sum(cost.n_tables for cost in costs) + above.n_looked,
    )


class _Above:
    """What the barren variables of a model depend on."""

    def __init__(self, core: Reduced):
        self.core, self.n_looked = core, 0
        self.factors = [*core.factors, *(b.factor for b in core.barren)]
        self.of: dict[int, list[int]] = {}
        for f, (scope, _) in enumerate(core.factors):
            for i in scope:
                self.of.setdefault(i, []).append(f)
        self.of |= {b.variable: [f] for f, b in enumerate(core.barren, len(core.factors))}

    def model(self, variables: list[int]) -> tuple[Reduced, list[int]]:
        """Return the model of what some variables depend on, which all others drop out of."""
        core, inside, used = self.core, set[int](), set[int]()
        stack = [*variables]
        while stack:
            i = stack.pop()
            if i not in inside:
                inside.add(i)
                new = [f for f in self.of.get(i, ()) if f not in used]
                used.update(new)
                stack += [j for f in new for j in self.factors[f].scope]
        values = [v if i in inside else v[:1] for i, v in enumerate(core.values)]
        factors = [self.factors[f] for f in sorted(used)]
        self.n_looked += len(inside) + len(factors)
        return Reduced(core.target, values, factors, core.constant), sorted(inside)

    def divided(self, variables: list[int], most: float) -> tuple[list[list[int]], float]:
        """Divide variables as long as greedy orders for those above them take less work so.

        Returns the groups and the work; none if one variable alone takes more than ``most``.
        """
        model, inside = self.model(variables)
        work = greedy_work(inside, model.factors, model.sizes, most)
        if work <= _CHEAP or len(variables) == 1:
            return [variables], work
        half = len(variables) // 2
        first, of_first = self.divided(variables[:half], most)
        if of_first >= min(work, most):
            return [variables], work
        second, of_second = self.divided(variables[half:], most)
        return min(([variables], work), (first + second, of_first + of_second), key=itemgetter(1))


def all_marginals(
    target: Target, limits: tuple[float, ...], verbose: int, n_jobs: int = 1
) -> Array:
    """Probability of each value of each variable, of shape (n_sites, values)."""
    with order_sought(verbose):
        parts, cost = whole_or_parts(strike_few(target), limits)
    check_limits_kept(target, cost, limits)
    result = np.zeros((target.n_sites, len(target.values)))
    # The pass back takes as much as the pass forward.
    entries = 2.0**cost.log2_work + sum(
        part.n_forward * part.cost.n_configurations for part, _ in parts
    )
    size = 0.0
    with shown(verbose, entries) as progress:
        for found, variables in parts:
            elimination = Elimination(found, LINEAR, n_jobs)
            with elimination.watched(progress):
                result[variables] = elimination.marginals()[variables]
            size = max(size, elimination.rounding_size)
    warn_if_lost(target, size)
    defect = max(found.model.log_defect for found, _ in parts)
    if defect > 0.0:
        model = max((found.model for found, _ in parts), key=lambda model: model.log_defect)
        warn_of_defect(model, f"marginals may be off by {math.expm1(defect):.2g}")
    return result
