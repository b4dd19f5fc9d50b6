"""Eliminations that take long, with a bar over their table entries."""

from collections.abc import Callable

from sklsb._elimination.engine import (
    Elimination,
    EliminationCost,
    Limits,
    Ordered,
    check_fits,
    n_entries,
    ordered,
)
from sklsb._elimination.reduce import strike
from sklsb._kernels.elimination.buckets import LINEAR
from sklsb.samplers._progress import Progress
from sklsb.targets.base import Target


def shown(verbose: int) -> Callable[[EliminationCost], Progress]:
    """Return what makes a bar over the table entries of an elimination, or nothing."""
    return lambda cost: Progress(verbose, "eliminate", n_entries(cost))


def that_fits(target: Target, limits: Limits, *, pruned: bool = True) -> Ordered:
    """Find an order that keeps the limits, or say what exceeds them."""
    found = ordered(strike(target), pruned=pruned, limits=limits)
    check_fits(target, found.cost, limits)
    return found


def eliminated(found: Ordered, verbose: int) -> Elimination:
    """Make the messages of all configurations."""
    with shown(verbose)(found.cost) as progress:
        elimination = Elimination(found, LINEAR, progress)
        elimination.run()
    return elimination
