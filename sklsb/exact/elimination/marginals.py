"""All marginals: by one elimination, or by a further one for each barren variable."""

import math

import numpy as np
import xarray as xr

from sklsb._kernels.elimination.buckets import LINEAR
from sklsb.diagnostics.draws import value_coords
from sklsb.exact.elimination.cost import EliminationCost, check_fits, fits, n_entries
from sklsb.exact.elimination.engine import (
    Elimination,
    Ordered,
    order_sought,
    ordered,
    shown,
    warn_of_defect,
)
from sklsb.exact.elimination.reduce import Array, Reduced, strike
from sklsb.exact.elimination.slicing import WAYS
from sklsb.exact.precision import warn_if_lost
from sklsb.targets.base import Target

# Work below which one elimination is used without looking for alternatives.
_CHEAP = 2.0**24


def whole_or_parts(
    struck: Reduced, limits: tuple[float, ...]
) -> tuple[list[tuple[Ordered, list[int]]], EliminationCost]:
    """Choose one elimination for all marginals, or one for the core and one per barren variable.

    Returns eliminations with the variables whose marginals they give, and the cost of all.
    """
    n = len(struck.values)
    whole = ordered(struck, pruned=False, need="marginals", limits=limits)
    one = [(whole, list(range(n)))], whole.cost
    if whole.cost.log2_work <= math.log2(_CHEAP):
        return one
    exact = fits(whole.cost, limits)
    core = ordered(struck, need="marginals", limits=limits)
    if not core.model.barren or (exact and core.model.log_defect > 0.0):
        return one
    most = min(n_entries(whole.cost), limits[0])
    barren = set(core.model.barren_variables)
    share = limits[0] / len(barren), *limits[1:]
    parts = [(core, [i for i in range(n) if i not in barren])]
    work, memory = n_entries(core.cost), core.cost.log2_memory
    for i in sorted(barren):
        if work > most:
            return one
        part = ordered(struck, keep=[i], need="sum", limits=share)
        if exact and part.model.log_defect > 0.0:  # exact rather than cheap
            return one
        parts.append((part, [i]))
        work += n_entries(part.cost)
        memory = max(memory, part.cost.log2_memory)
    ways = 1.0 + (WAYS["marginals"] - 1.0) * n_entries(core.cost) / work
    total = EliminationCost(math.log2(work), memory, len(parts), ways)
    return (parts, total) if work <= most else one


def all_marginals(
    target: Target, limits: tuple[float, ...], verbose: int, n_jobs: int = 1
) -> Array:
    """Probability of each value of each variable, of shape (n_sites, values)."""
    with order_sought(verbose):
        parts, cost = whole_or_parts(strike(target), limits)
    check_fits(target, cost, limits)
    result = np.zeros((target.n_sites, len(target.values)))
    # The pass back takes as much as the pass forward.
    whole = parts[0][0]
    entries = 2.0**cost.log2_work + whole.n_forward * whole.cost.n_configurations
    size = 0.0
    with shown(verbose)(entries) as progress:
        for found, variables in parts:
            elimination = Elimination(found, LINEAR, progress, n_jobs)
            if len(parts) > 1 and len(variables) == 1:
                joint = elimination.joint(variables)
                result[variables[0], : joint.size] = joint
            else:
                result[variables] = elimination.marginals()[variables]
            size = max(size, elimination.rounding_size)
    warn_if_lost(target, size)
    defect = max(found.model.log_defect for found, _ in parts)
    if defect > 0.0:
        model = max((found.model for found, _ in parts), key=lambda model: model.log_defect)
        warn_of_defect(model, f"marginals may be off by {math.expm1(defect):.2g}")
    return result


def marginals_dataset(target: Target, p: Array) -> xr.Dataset:
    """Label marginals as `sklsb.diagnostics.marginals` does."""
    shape = (*target.shape, len(target.values))
    dims = (*target.dims, "state")
    return xr.Dataset(
        {"p": (dims, p.reshape(shape)), "mcse": (dims, np.zeros(shape))},
        coords=target.coords | value_coords(target),
    )
