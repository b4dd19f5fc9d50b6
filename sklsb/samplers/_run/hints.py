"""What to say of a target on which chains fail."""

import numpy as np

from sklsb.exact.elimination.engine import DEFECT, MAX_MEMORY, MAX_WORK, fits, ordered
from sklsb.exact.elimination.order import is_affordable
from sklsb.exact.elimination.reduce import prune, strike
from sklsb.targets.base import States, Target

# Variables, and entries of the graph, beyond which it would take long to find out.
_MOST_SITES, _MOST_PAIRS = 5000, 1 << 17
# Orders that are looked for at length hardly ever save more than this of the work of the first one.
_SAVED = 2.0**6


def exact_hint(target: Target) -> str:
    """Return a sentence that says so, or nothing."""
    limits = float(MAX_WORK), float(MAX_MEMORY)
    try:
        if not target._has_factors or target.n_sites > _MOST_SITES:
            return ""
        if target.graph is not None and target.graph.nnz > _MOST_PAIRS:
            return ""
        struck = strike(target)
        model = prune(struck, (), DEFECT)
        if not is_affordable(model.free, model.factors, model.sizes, _SAVED * MAX_WORK):
            return ""
        found = ordered(struck, limits=limits)
    except (TypeError, ValueError):  # no state is possible, or the factors are no factors
        return ""
    if not fits(found.cost, limits):
        return ""
    return (
        " sklsb.exact answers on this target without a chain (exact.marginals), and "
        "EliminationSampler makes independent draws."
    )


def isolation(target: Target, states: States) -> str:
    """Return what to say if no single change leads out of any of the states, or nothing."""
    if not (target.n_possible > 1).any() or (target.log_ratios(states) > -np.inf).any():
        return ""
    return (
        " No change of a single variable leads from the states of the chains to a possible state, "
        "as in a ranking or an assignment, where two variables must change at once. Chains of "
        "single changes stay where they start: change several together, as "
        "GibbsSampler(block_size=2) does, or describe the states by other variables."
    )
